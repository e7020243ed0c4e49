//! What a thread counts, and what the main thread makes of it.
//!
//! Contract: a thread counts alone. At the end of every second it hands its [`Tally`] over and begins a new one, so nothing
//! is shared while it works. A tally belongs to one second of the warm-up or of the measured window; the window begins and
//! ends exactly at the plan's times, and what happens after it counts nowhere.
//!
//! Invariant: the sum of all tallies of the window is the result; no operation is in two of them or (inside the window) in
//! none.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::Sender;

use hdrhistogram::Histogram;

use super::clock::SECOND_NS;
use super::usage;

/// The longest latency that is told from longer ones, in microseconds: an hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;
/// Digits of latencies that are kept.
const LATENCY_DIGITS: u8 = 3;

/// Kinds of operation, each with its own latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Series {
    /// Requests that append, of any shape.
    Append,
    /// One page of a catch-up read.
    Read,
    /// A whole stream, page after page.
    CatchUp,
    /// From the intended send time of a record to its arrival at a live reader.
    Deliver,
    /// Creating a stream.
    Create,
    /// Closing one.
    Close,
    /// Deleting one.
    Delete,
    /// From the restart of the server to the first read that succeeds.
    Restart,
}

impl Series {
    /// All of them.
    pub const ALL: [Series; 8] = [
        Series::Append,
        Series::Read,
        Series::CatchUp,
        Series::Deliver,
        Series::Create,
        Series::Close,
        Series::Delete,
        Series::Restart,
    ];

    /// Its name in the outcome.
    pub fn name(self) -> &'static str {
        match self {
            Series::Append => "append",
            Series::Read => "read",
            Series::CatchUp => "catch_up",
            Series::Deliver => "deliver",
            Series::Create => "create",
            Series::Close => "close",
            Series::Delete => "delete",
            Series::Restart => "restart",
        }
    }
}

/// Counts of a second, or of several.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests that succeeded.
    pub operations: u64,
    /// Records that they carried.
    pub records: u64,
    /// Bytes of those.
    pub payload_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Failures by name.
    pub errors: BTreeMap<String, u64>,
    /// Open loop: requests that found a free connection, and those of them that were sent late all the same.
    pub sent_free: u64,
    /// See `sent_free`.
    pub sent_late: u64,
    /// Time that a thread stood still although it had something to do.
    pub still_ns: u64,
    pub(super) histograms: [Option<Histogram<u64>>; Series::ALL.len()],
}

impl Tally {
    /// Failures, all together.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Adds a failure.
    pub fn error(&mut self, name: &str) {
        self.errors_of(name, 1);
    }

    /// Adds failures of the same kind.
    pub fn errors_of(&mut self, name: &str, failures: u64) {
        match self.errors.get_mut(name) {
            Some(count) => *count += failures,
            None => drop(self.errors.insert(name.to_owned(), failures)),
        }
    }

    /// Adds a latency.
    #[inline]
    pub fn latency(&mut self, series: Series, nanoseconds: u64) {
        self.histograms[series as usize]
            .get_or_insert_with(new_histogram)
            .saturating_record(nanoseconds / 1000);
    }

    /// The latencies of a series, if there are any.
    pub fn histogram(&self, series: Series) -> Option<&Histogram<u64>> {
        self.histograms[series as usize].as_ref()
    }

    /// Adds all counts of another one.
    pub fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.records += other.records;
        self.payload_bytes += other.payload_bytes;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.sent_free += other.sent_free;
        self.sent_late += other.sent_late;
        self.still_ns += other.still_ns;
        for (name, count) in &other.errors {
            *self.errors.entry(name.clone()).or_default() += count;
        }
        for (mine, theirs) in self.histograms.iter_mut().zip(&other.histograms) {
            if let Some(theirs) = theirs {
                let mine = mine.get_or_insert_with(new_histogram);
                mine.add(theirs).expect("all histograms have the same bounds");
            }
        }
    }
}

fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, LATENCY_DIGITS).expect("the bounds are good ones")
}

/// When a run measures, on its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Load begins.
    pub begin_ns: u64,
    /// The warm-up ends.
    pub start_ns: u64,
    /// The measured window ends, and with it the load.
    pub end_ns: u64,
}

impl Window {
    /// All time: for work that is done once and not measured.
    pub const ALWAYS: Window = Window { begin_ns: 0, start_ns: u64::MAX, end_ns: u64::MAX };

    /// The second of the window that a time lies in; negative ones are the warm-up.
    pub fn second(&self, at_ns: u64) -> i64 {
        match at_ns.checked_sub(self.start_ns) {
            Some(after_ns) => (after_ns / SECOND_NS) as i64,
            None => -1 - ((self.start_ns - at_ns - 1) / SECOND_NS) as i64,
        }
    }

    /// When a second of the window ends.
    pub fn end_of(&self, second: i64) -> u64 {
        let end = self.start_ns as i128 + i128::from(second + 1) * i128::from(SECOND_NS);
        u64::try_from(end).unwrap_or(0).min(self.end_ns)
    }

    /// Seconds of the measured window, a started one included.
    pub fn seconds(&self) -> i64 {
        (self.end_ns - self.start_ns).div_ceil(SECOND_NS) as i64
    }
}

/// What a thread did in a second.
#[derive(Debug)]
pub struct Report {
    /// The thread.
    pub thread: usize,
    /// The second of the window; negative ones are the warm-up.
    pub second: i64,
    /// What it counted.
    pub tally: Tally,
    /// Its CPU time in that second.
    pub cpu_ns: u64,
    /// Time in that second that it was ready to run and waited for a core.
    pub waited_ns: u64,
}

/// The counts of one thread.
#[derive(Debug)]
pub struct Measure {
    thread: usize,
    window: Window,
    second: i64,
    /// The present tally's time ends here.
    boundary_ns: u64,
    cpu_ns: u64,
    waited_ns: u64,
    /// The present tally.
    pub tally: Tally,
    reports: Option<Sender<Report>>,
}

impl Measure {
    /// Counts for a window; every second's go to `reports`.
    pub fn new(thread: usize, window: Window, reports: Option<Sender<Report>>) -> Self {
        let second = window.second(window.begin_ns);
        let boundary_ns = if reports.is_some() { window.end_of(second) } else { u64::MAX };
        let (cpu_ns, waited_ns) = (usage::thread_cpu_ns(), usage::thread_waited_ns());
        Self { thread, window, second, boundary_ns, cpu_ns, waited_ns, tally: Tally::default(), reports }
    }

    /// When [`Measure::turn`] wants to be called, at the latest.
    pub fn boundary_ns(&self) -> u64 {
        self.boundary_ns
    }

    /// Hands over what is complete.
    #[inline]
    pub fn turn(&mut self, now_ns: u64) {
        if now_ns >= self.boundary_ns {
            self.hand_over(now_ns, 0..0);
        }
    }

    /// The thread stood still for that time, which has just ended.
    pub fn stood_still(&mut self, time_ns: Range<u64>) {
        let now_ns = time_ns.end;
        if now_ns >= self.boundary_ns {
            self.hand_over(now_ns, time_ns.clone());
        }
        self.tally.still_ns += now_ns - time_ns.start.max(self.window.end_of(self.second - 1)).min(now_ns);
    }

    #[cold]
    fn hand_over(&mut self, now_ns: u64, still_ns: Range<u64>) {
        while now_ns >= self.boundary_ns {
            let begin_ns = self.window.end_of(self.second - 1).max(still_ns.start);
            self.tally.still_ns += still_ns.end.min(self.boundary_ns).saturating_sub(begin_ns);
            let (cpu_ns, waited_ns) = (usage::thread_cpu_ns(), usage::thread_waited_ns());
            let report = Report {
                thread: self.thread,
                second: self.second,
                tally: std::mem::take(&mut self.tally),
                cpu_ns: cpu_ns - self.cpu_ns,
                waited_ns: waited_ns - self.waited_ns,
            };
            (self.cpu_ns, self.waited_ns) = (cpu_ns, waited_ns);
            if let Some(reports) = &self.reports {
                // Nobody listens any more only if the run has failed.
                let _ = reports.send(report);
            }
            let was_last = self.boundary_ns == self.window.end_ns;
            self.second += 1;
            self.boundary_ns = if was_last { u64::MAX } else { self.window.end_of(self.second) };
        }
    }

    /// Counts an operation that ended now.
    #[inline]
    pub fn operation(&mut self, series: Series, latency_ns: u64, records: u64, payload_bytes: u64) {
        self.tally.operations += 1;
        self.tally.records += records;
        self.tally.payload_bytes += payload_bytes;
        self.tally.latency(series, latency_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const WINDOW: Window = Window { begin_ns: 3_500_000_000, start_ns: 5_000_000_000, end_ns: 7_250_000_000 };

    #[test]
    fn seconds_are_counted_from_the_start_of_the_window() {
        let table = [
            (3_500_000_000, -2, 4_000_000_000),
            (4_000_000_000, -1, 5_000_000_000),
            (4_999_999_999, -1, 5_000_000_000),
            (5_000_000_000, 0, 6_000_000_000),
            (6_000_000_000, 1, 7_000_000_000),
            (7_249_999_999, 2, 7_250_000_000),
        ];
        for (at_ns, second, end_ns) in table {
            assert_eq!((WINDOW.second(at_ns), WINDOW.end_of(second)), (second, end_ns), "{at_ns}");
        }
        assert_eq!(WINDOW.seconds(), 3);
    }

    #[test]
    fn every_operation_is_in_the_tally_of_its_second_and_what_is_late_in_none() {
        let (sender, reports) = mpsc::channel();
        let mut measure = Measure::new(4, WINDOW, Some(sender));
        let mut at_ns = WINDOW.begin_ns;
        while at_ns < 8_000_000_000 {
            measure.turn(at_ns);
            measure.operation(Series::Append, 2_000_000, 2, 20);
            at_ns += 100_000_000;
        }
        drop(measure);
        let operations: Vec<(i64, u64)> =
            reports.iter().map(|report| (report.second, report.tally.operations)).collect();
        assert_eq!(operations, [(-2, 5), (-1, 10), (0, 10), (1, 10), (2, 3)]);
    }

    #[test]
    fn a_thread_that_slept_through_seconds_reports_them_empty() {
        let (sender, reports) = mpsc::channel();
        let mut measure = Measure::new(0, WINDOW, Some(sender));
        measure.operation(Series::Append, 1, 1, 1);
        measure.turn(u64::MAX - 1);
        assert_eq!(measure.boundary_ns(), u64::MAX);
        drop(measure);
        let operations: Vec<u64> = reports.iter().map(|report| report.tally.operations).collect();
        assert_eq!(operations, [1, 0, 0, 0, 0]);
    }

    #[test]
    fn time_that_a_thread_stood_still_is_charged_to_its_seconds() {
        let (sender, reports) = mpsc::channel();
        let mut measure = Measure::new(0, WINDOW, Some(sender));
        measure.stood_still(3_600_000_000..3_700_000_000);
        measure.stood_still(4_900_000_000..6_100_000_000);
        measure.stood_still(6_500_000_000..6_600_000_000);
        measure.stood_still(7_000_000_000..9_000_000_000);
        drop(measure);
        let still_ms: Vec<u64> = reports.iter().map(|report| report.tally.still_ns / 1_000_000).collect();
        assert_eq!(still_ms, [100, 100, 1000, 200, 250]);
    }

    #[test]
    fn tallies_add_up() {
        let (mut one, mut other) = (Tally::default(), Tally::default());
        for us in 1..=100 {
            one.latency(Series::Append, us * 1000);
            other.latency(Series::Deliver, us * 1_000_000);
            other.latency(Series::Append, (100 + us) * 1000);
        }
        one.error("x");
        other.error("x");
        other.error("y");
        other.records = 7;
        one.add(&other);
        let append = one.histogram(Series::Append).unwrap();
        assert_eq!((append.len(), append.value_at_quantile(0.5), append.max()), (200, 100, 200));
        assert_eq!(one.histogram(Series::Deliver).unwrap().len(), 100);
        assert!(one.histogram(Series::Close).is_none());
        assert_eq!((one.records, one.error_count(), one.errors["x"]), (7, 3, 2));
    }

    #[test]
    fn a_latency_beyond_all_bounds_is_counted() {
        let mut tally = Tally::default();
        tally.latency(Series::Append, u64::MAX);
        let histogram = tally.histogram(Series::Append).unwrap();
        assert!(histogram.len() == 1 && histogram.max() >= LATENCY_US_MAX);
    }

    #[test]
    fn series_have_places_of_their_own() {
        for (place, series) in Series::ALL.into_iter().enumerate() {
            assert_eq!(series as usize, place, "{series:?}");
        }
    }
}
