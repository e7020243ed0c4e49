//! The seconds of a run as a page shows them: with their true lengths, and not more of them than can be told apart.
//!
//! Contract: pure. Slices follow each other and each has a length; no operation and no error is lost between the
//! timeline and the slices.

use super::super::outcome::Second;

/// More slices than that cannot be told apart in a chart.
const SLICES_MAX: usize = 360;

/// A part of the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Slice {
    pub(super) start_ms: u64,
    pub(super) end_ms: u64,
    pub(super) operations: u64,
    pub(super) records: u64,
    pub(super) errors: u64,
    /// Greatest of the medians in it; 0 if nothing was measured.
    pub(super) p50_us: u64,
    /// Greatest of the 99th percentiles in it.
    pub(super) p99_us: u64,
}

impl Slice {
    /// Its middle.
    pub(super) fn middle_ms(&self) -> f64 {
        (self.start_ms as f64 + self.end_ms as f64) / 2.0
    }

    /// A count in it as a rate.
    pub(super) fn per_s(&self, count: u64) -> f64 {
        count as f64 * 1000.0 / self.length_ms() as f64
    }

    fn length_ms(&self) -> u64 {
        self.end_ms - self.start_ms
    }

    fn absorb(&mut self, next: &Slice) {
        self.end_ms = self.end_ms.max(next.end_ms);
        self.operations = self.operations.saturating_add(next.operations);
        self.records = self.records.saturating_add(next.records);
        self.errors = self.errors.saturating_add(next.errors);
        self.p50_us = self.p50_us.max(next.p50_us);
        self.p99_us = self.p99_us.max(next.p99_us);
    }
}

/// The slices of a timeline: one a second. A last one of less than half a second has a rate that says little and
/// joins the one before it; so does one without any length.
pub(super) fn slices(timeline: &[Second]) -> Vec<Slice> {
    let mut slices: Vec<Slice> = Vec::with_capacity(timeline.len());
    for (index, second) in timeline.iter().enumerate() {
        let start_ms = slices.last().map_or(0, |last| last.end_ms);
        let slice = Slice {
            start_ms,
            end_ms: second.at_ms.max(start_ms),
            operations: second.operations,
            records: second.records,
            errors: second.errors,
            p50_us: second.p50_us,
            p99_us: second.p99_us,
        };
        let is_last = index + 1 == timeline.len();
        let is_short = slice.length_ms() == 0 || is_last && slice.length_ms() < 500;
        match slices.last_mut() {
            Some(last) if is_short => last.absorb(&slice),
            Some(_) => slices.push(slice),
            None => slices.push(Slice { end_ms: slice.end_ms.max(1), ..slice }),
        }
    }
    slices
}

/// How many slices of a run with `longest` of them make one in a chart.
pub(super) fn bundle(longest: usize) -> usize {
    longest.div_ceil(SLICES_MAX).max(1)
}

/// Every `bundle` slices as one.
pub(super) fn bundled(slices: &[Slice], bundle: usize) -> Vec<Slice> {
    let join = |slices: &[Slice]| {
        let mut joined = slices[0];
        slices[1..].iter().for_each(|slice| joined.absorb(slice));
        joined
    };
    slices.chunks(bundle.max(1)).map(join).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at_ms: u64, operations: u64) -> Second {
        Second { at_ms, operations, errors: operations % 2, p99_us: operations, ..Second::default() }
    }

    #[test]
    fn slices_have_the_length_of_their_seconds() {
        /// Ends and counts of seconds; starts, ends and counts of slices.
        type Case = (&'static [(u64, u64)], &'static [(u64, u64, u64)]);
        let cases: [Case; 7] = [
            (&[], &[]),
            (&[(1000, 5)], &[(0, 1000, 5)]),
            (&[(120, 5)], &[(0, 120, 5)]),
            (&[(0, 5)], &[(0, 1, 5)]),
            (&[(1000, 5), (2000, 6), (2001, 1)], &[(0, 1000, 5), (1000, 2001, 7)]),
            (&[(1000, 5), (2000, 6), (2600, 3)], &[(0, 1000, 5), (1000, 2000, 6), (2000, 2600, 3)]),
            (&[(1000, 5), (900, 6), (2000, 7)], &[(0, 1000, 11), (1000, 2000, 7)]),
        ];
        for (timeline, expected) in cases {
            let seconds: Vec<Second> = timeline.iter().map(|(at, count)| second(*at, *count)).collect();
            let got: Vec<(u64, u64, u64)> = slices(&seconds)
                .iter()
                .map(|slice| (slice.start_ms, slice.end_ms, slice.operations))
                .collect();
            assert_eq!(got, expected);
        }
        assert_eq!(slices(&[second(500, 50)])[0].per_s(50), 100.0, "a rate is by second");
    }

    #[test]
    fn bundles_lose_nothing() {
        let seconds: Vec<Second> = (1..=1000).map(|at| second(at * 1000, at)).collect();
        let slices = slices(&seconds);
        assert_eq!((bundle(0), bundle(SLICES_MAX), bundle(1000)), (1, 1, 3));
        let bundled = bundled(&slices, bundle(slices.len()));
        assert_eq!(bundled.len(), 334);
        assert_eq!(bundled.iter().map(|slice| slice.operations).sum::<u64>(), 500_500);
        assert_eq!(bundled.iter().map(|slice| slice.errors).sum::<u64>(), 500);
        assert_eq!((bundled[0].end_ms, bundled[0].p99_us, bundled[0].middle_ms()), (3000, 3, 1500.0));
    }
}
