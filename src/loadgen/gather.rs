//! Adds up what threads report, second by second, and makes the figures of the outcome from it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use serde_json::Value;

use super::clock::SECOND_NS;
use super::measure::{Report, Series, Tally, Window};
use super::outcome::{
    Conditions, FORMAT, Generator, Latency, Outcome, Rates, Second, ServerUse, Totals, VERSION,
};
use super::plan::Plan;

/// A thread that is on a core, or waits for one, longer than this part of the time is the limit, not the server.
const BUSY_MAX: f64 = 0.9;
/// One that waits for a core longer than this is kept from its work. Less is normal: the kernel works for the server, too.
const WAITED_MAX: f64 = 0.25;
/// Part of the time that threads may have stood still.
const STILL_MAX: f64 = 0.02;
/// Part of an open loop's requests that may be sent late although a connection was free.
const LATE_MAX: f64 = 0.01;
/// Steps of a latency curve in each halving of the distance to 100 %.
const CURVE_STEPS: u32 = 8;
/// Points of a latency curve are at least this far from 100 %, in percent.
const CURVE_REST: f64 = 1e-5;

/// Reports so far.
pub struct Gatherer {
    threads: usize,
    window: Window,
    /// The series of the timeline.
    main: Series,
    /// Seconds of which not all threads have reported: the sum so far, and how many have.
    open: BTreeMap<i64, (Tally, usize)>,
    /// The sum of those of the window that are complete.
    total: Tally,
    timeline: Vec<Second>,
    cpu_ns: Vec<u64>,
    waited_ns: Vec<u64>,
}

impl Gatherer {
    /// For so many threads; `main` is the series of the timeline.
    pub fn new(threads: usize, window: Window, main: Series) -> Self {
        Self {
            threads,
            window,
            main,
            open: BTreeMap::new(),
            total: Tally::default(),
            timeline: Vec::new(),
            cpu_ns: vec![0; threads],
            waited_ns: vec![0; threads],
        }
    }

    /// Adds a report; the second that is complete with it.
    pub fn add(&mut self, report: Report) -> Option<(i64, Tally)> {
        if report.second >= 0 {
            self.cpu_ns[report.thread] += report.cpu_ns;
            self.waited_ns[report.thread] += report.waited_ns;
        }
        let (sum, count) = self.open.entry(report.second).or_default();
        sum.add(&report.tally);
        *count += 1;
        if *count < self.threads {
            return None;
        }
        let (sum, _) = self.open.remove(&report.second)?;
        if report.second >= 0 {
            self.total.add(&sum);
            self.timeline.push(self.second(report.second, &sum));
        }
        Some((report.second, sum))
    }

    fn second(&self, second: i64, tally: &Tally) -> Second {
        let histogram = tally.histogram(self.main);
        let at = |quantile| histogram.map_or(0, |histogram| histogram.value_at_quantile(quantile));
        Second {
            at_ms: (self.window.end_of(second) - self.window.start_ns) / (SECOND_NS / 1000),
            operations: tally.operations,
            records: tally.records,
            payload_bytes: tally.payload_bytes,
            errors: tally.error_count(),
            p50_us: at(0.5),
            p99_us: at(0.99),
        }
    }

    /// All threads are done.
    pub fn finish(self) -> Gathered {
        let Self { window, total, mut timeline, cpu_ns, waited_ns, .. } = self;
        timeline.sort_unstable_by_key(|second| second.at_ms);
        Gathered { window, total, timeline, cpu_ns, waited_ns }
    }
}

/// The measured window.
pub struct Gathered {
    window: Window,
    /// All of it.
    pub total: Tally,
    timeline: Vec<Second>,
    cpu_ns: Vec<u64>,
    waited_ns: Vec<u64>,
}

impl Gathered {
    /// A window that was counted elsewhere.
    pub fn of(window: Window, total: Tally) -> Self {
        Self { window, total, timeline: Vec::new(), cpu_ns: Vec::new(), waited_ns: Vec::new() }
    }

    /// The outcome, without verification.
    pub fn outcome(
        self,
        plan: &Plan,
        conditions: Conditions,
        server: Option<ServerUse>,
        extra: BTreeMap<String, Value>,
    ) -> Outcome {
        let measured_us = (self.window.end_ns - self.window.start_ns) / 1000;
        let per_s = |count: u64| count as f64 * 1e6 / measured_us as f64;
        let total = &self.total;
        let latencies = Series::ALL.into_iter().filter_map(|series| {
            let histogram = total.histogram(series)?;
            Some((series.name().to_owned(), latency(histogram)))
        });
        Outcome {
            format: FORMAT.to_owned(),
            version: VERSION,
            label: plan.label.clone(),
            conditions,
            measured_us,
            totals: Totals {
                operations: total.operations,
                records: total.records,
                payload_bytes: total.payload_bytes,
                sent_bytes: total.sent_bytes,
                received_bytes: total.received_bytes,
                errors: total.errors.clone(),
            },
            rates: Rates {
                operations_per_s: per_s(total.operations),
                records_per_s: per_s(total.records),
                payload_bytes_per_s: per_s(total.payload_bytes),
            },
            latencies: latencies.collect(),
            generator: self.generator(measured_us),
            timeline: self.timeline,
            server,
            verified: None,
            extra,
        }
    }

    fn generator(&self, measured_us: u64) -> Generator {
        let cpu_us = self.cpu_ns.iter().sum::<u64>() / 1000;
        let part = |time_ns: u64| time_ns as f64 / 1e3 / measured_us as f64;
        let busy = part(self.cpu_ns.iter().max().copied().unwrap_or(0));
        let threads = self.cpu_ns.iter().zip(&self.waited_ns);
        let busiest = threads.max_by_key(|(on, waited)| *on + *waited);
        let (on, waited) = busiest.map_or((0.0, 0.0), |(on, waited)| (part(*on), part(*waited)));
        let mut why = Vec::new();
        if on + waited > BUSY_MAX {
            why.push(format!(
                "its busiest thread was on a core for {:.0} % of the time and waited for one for {:.0} %",
                on * 100.0,
                waited * 100.0
            ));
        } else if waited > WAITED_MAX {
            why.push(format!(
                "other processes kept it from its cores for {:.0} % of the time",
                waited * 100.0
            ));
        }
        let still = self.total.still_ns as f64 / 1e3 / measured_us as f64;
        if still > STILL_MAX {
            let still_ms = self.total.still_ns / 1_000_000;
            why.push(format!("it stood still for {still_ms} ms: it was stopped, or the machine was"));
        }
        let (free, late) = (self.total.sent_free, self.total.sent_late);
        if late as f64 > free as f64 * LATE_MAX {
            why.push(format!(
                "{late} of {free} requests were sent more than 1 ms late with a connection free"
            ));
        }
        Generator {
            cpu_us,
            cpu_us_per_operation: cpu_us as f64 / self.total.operations.max(1) as f64,
            busy,
            limited: !why.is_empty(),
            why: why.join("; "),
        }
    }
}

/// The figures of a series.
pub fn latency(histogram: &Histogram<u64>) -> Latency {
    let mut serialised = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut serialised).expect("memory takes it");
    let at = |quantile| histogram.value_at_quantile(quantile).min(histogram.max());
    Latency {
        count: histogram.len(),
        mean_us: histogram.mean(),
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p99_9_us: at(0.999),
        max_us: histogram.max(),
        histogram: BASE64.encode(serialised),
        curve: curve(histogram),
    }
}

/// Percentiles and values, denser towards 100 %; it ends where a single latency makes the difference.
fn curve(histogram: &Histogram<u64>) -> Vec<(f64, u64)> {
    let mut points = vec![(0.0, histogram.min())];
    let (mut rest, mut step) = (100.0, 0);
    let last = (100.0 / histogram.len().max(1) as f64).max(CURVE_REST);
    while rest > last {
        step += 1;
        rest = 100.0 / 2_f64.powf(f64::from(step) / f64::from(CURVE_STEPS));
        let percentile = 100.0 - rest.max(last);
        points.push((percentile, histogram.value_at_percentile(percentile).min(histogram.max())));
    }
    points.push((100.0, histogram.max()));
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;

    #[test]
    fn a_second_is_complete_when_all_threads_have_reported() {
        let window = Window { begin_ns: 0, start_ns: SECOND_NS, end_ns: 3 * SECOND_NS };
        let mut gatherer = Gatherer::new(2, window, Series::Append);
        let tally = Tally { operations: 5, ..Tally::default() };
        let mut add = |thread, second| {
            let report = Report {
                thread,
                second,
                tally: tally.clone(),
                cpu_ns: 300_000_000 * (thread as u64 + 1),
                waited_ns: 0,
            };
            gatherer.add(report).map(|(second, tally)| (second, tally.operations))
        };
        assert_eq!(add(0, -1), None);
        assert_eq!(add(0, 0), None);
        assert_eq!(add(1, -1), Some((-1, 10)));
        assert_eq!(add(0, 1), None);
        assert_eq!(add(1, 0), Some((0, 10)));
        assert_eq!(add(1, 1), Some((1, 10)));
        let gathered = gatherer.finish();
        assert_eq!(gathered.total.operations, 20, "the warm-up does not count");
        let timeline: Vec<(u64, u64)> =
            gathered.timeline.iter().map(|second| (second.at_ms, second.operations)).collect();
        assert_eq!(timeline, [(1000, 10), (2000, 10)]);
        let generator = gathered.generator(2_000_000);
        assert_eq!((generator.cpu_us, generator.limited), (1_800_000, false));
        assert!((generator.busy - 0.6).abs() < 1e-9, "{}", generator.busy);
    }

    #[test]
    fn a_generator_that_is_the_limit_says_so() {
        let window = Window { begin_ns: 0, start_ns: 0, end_ns: SECOND_NS };
        let generator = |cpu_ns: u64, waited_ns: u64, sent_free, sent_late| {
            let total = Tally { sent_free, sent_late, ..Tally::default() };
            let (cpu_ns, waited_ns) = (vec![1, cpu_ns], vec![1, waited_ns]);
            Gathered { window, total, timeline: vec![], cpu_ns, waited_ns }.generator(1_000_000)
        };
        let waiting = generator(0, 260_000_000, 0, 0);
        assert!(waiting.limited && waiting.why.contains("kept it from its cores for 26 %"), "{waiting:?}");
        let busy = generator(710_000_000, 200_000_000, 0, 0);
        assert!(
            busy.limited && busy.why.contains("for 71 % of the time and waited for one for 20 %"),
            "{busy:?}"
        );
        assert!((busy.busy - 0.71).abs() < 1e-9, "{busy:?}");
        let still = Tally { still_ns: 30_000_000, ..Tally::default() };
        let still = Gathered::of(window, still).generator(1_000_000);
        assert!(still.limited && still.why.contains("30 ms"), "{still:?}");
        let late = generator(100_000_000, 0, 1000, 11);
        assert!(late.limited && late.why.contains("11 of 1000"), "{late:?}");
        assert!(!generator(650_000_000, 240_000_000, 1000, 10).limited);
    }

    #[test]
    fn figures_agree_with_the_histogram_that_is_kept() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3).unwrap();
        (1..=10_000).for_each(|us| histogram.record(us).unwrap());
        let latency = latency(&histogram);
        assert_eq!((latency.count, latency.max_us), (10_000, histogram.max()));
        assert!(latency.p50_us.abs_diff(5_000) <= 5 && latency.p99_us.abs_diff(9_900) <= 10, "{latency:?}");
        let bytes = BASE64.decode(&latency.histogram).unwrap();
        let again: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!(
            (again.len(), again.value_at_quantile(0.999)),
            (10_000, histogram.value_at_quantile(0.999))
        );
        let grows = latency.curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        assert!(grows && latency.curve.len() > 50, "{:?}", latency.curve);
        assert_eq!((latency.curve[0], latency.curve.last()), ((0.0, 1), Some(&(100.0, histogram.max()))));
    }
}
