//! Scales and their ticks: from values to pixels, and which values to name on an axis.
//!
//! Contract: pure; every position is finite for finite input, also where a domain has no extent. Ticks grow, are
//! few, and are round numbers.

use super::svg::FONT_PX;
use super::text::{grouped, width_px};

/// Ticks of an axis that is divided by a nice step: roughly so many at most.
const TICKS_MAX: usize = 6;
/// Ticks of a logarithmic axis up to which 2 and 5 are named beside 1.
const TICKS_WITH_TWO_AND_FIVE_MAX: usize = 8;
/// What an axis leaves free beyond what it shows, as a share of it.
const MARGIN: f64 = 0.06;
/// Least distance of labels on a horizontal axis.
const LABEL_GAP_PX: f64 = 5.0;
/// More nines than that no run is long enough for.
const NINES_MAX: f64 = 9.0;

/// Maps a domain of values to a range of pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    domain: (f64, f64),
    range_px: (f64, f64),
    is_log: bool,
}

impl Scale {
    /// Equal steps for equal differences.
    pub(super) fn linear(domain: (f64, f64), range_px: (f64, f64)) -> Scale {
        assert!(domain.0 < domain.1, "a domain has an extent: {domain:?}");
        Scale { domain, range_px, is_log: false }
    }

    /// Equal steps for equal ratios. The domain is positive.
    pub(super) fn log(domain: (f64, f64), range_px: (f64, f64)) -> Scale {
        assert!(0.0 < domain.0 && domain.0 < domain.1, "a positive domain with an extent: {domain:?}");
        Scale { domain: (domain.0.ln(), domain.1.ln()), range_px, is_log: true }
    }

    /// Where a value lies. Values beyond the domain lie at its end.
    pub(super) fn at_px(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let share = (value - self.domain.0) / (self.domain.1 - self.domain.0);
        self.range_px.0 + share.clamp(0.0, 1.0) * (self.range_px.1 - self.range_px.0)
    }
}

/// The smallest of 1, 2, 5, 10, 20, ... (and their tenths) that is at least `least`.
fn nice_step(least: f64) -> f64 {
    assert!(least > 0.0 && least.is_finite(), "a step grows: {least}");
    let decade = 10_f64.powf(least.log10().floor());
    // A hair of slack, so that what is a nice step but for rounding stays one.
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * decade)
}

/// An axis of amounts: it begins at 0, because amounts compare by length.
#[derive(Debug)]
pub(super) struct AmountAxis {
    /// Its end, a little above everything to show.
    pub(super) end: f64,
    /// Positions and labels.
    pub(super) ticks: Vec<(f64, String)>,
}

/// The axis that shows 0 to `greatest`.
pub(super) fn amount_axis(greatest: f64) -> AmountAxis {
    let greatest = if greatest > 0.0 && greatest.is_finite() { greatest } else { 1.0 };
    let step = nice_step(greatest / (TICKS_MAX - 1) as f64);
    let end = greatest * (1.0 + MARGIN);
    let decimals = (-step.log10() - 1e-9).ceil().max(0.0) as usize;
    let ticks = (0..=(end / step) as usize).map(|index| index as f64 * step);
    AmountAxis { end, ticks: ticks.map(|tick| (tick, tick_label(tick, decimals))).collect() }
}

/// A logarithmic axis of latencies.
#[derive(Debug, PartialEq)]
pub(super) struct LatencyAxis {
    /// Its ends, a little around everything to show.
    pub(super) domain_us: (f64, f64),
    /// What to name: at least two values, 1, 2 or 5 times a power of ten.
    pub(super) ticks_us: Vec<u64>,
}

/// The axis that shows `least_us` to `greatest_us`; latencies below 1 µs count as that.
pub(super) fn latency_axis(least_us: u64, greatest_us: u64) -> LatencyAxis {
    let least_us = least_us.max(1);
    let greatest_us = greatest_us.max(least_us);
    let steps = || (0..=19_u32).flat_map(|decade| [1, 2, 5].map(|lead| (lead, decade))).filter_map(power);
    let domain_us = (least_us as f64 / (1.0 + MARGIN), greatest_us as f64 * (1.0 + MARGIN));
    let mut ticks_us: Vec<u64> =
        steps().filter(|step| (domain_us.0..=domain_us.1).contains(&(*step as f64))).collect();
    if ticks_us.len() < 2 {
        // So near to each other that only the values around them say where they are.
        let low = steps().rfind(|step| *step <= least_us).unwrap_or(1);
        let high = steps().find(|step| *step >= greatest_us && *step > low).unwrap_or(u64::MAX);
        let between = steps().filter(|step| (low..=high).contains(step)).collect();
        return LatencyAxis { domain_us: (low as f64, high as f64), ticks_us: between };
    }
    let decades = greatest_us.ilog10() - least_us.ilog10();
    if ticks_us.len() > TICKS_WITH_TWO_AND_FIVE_MAX {
        let every = decades.div_ceil(8).max(1);
        ticks_us.retain(|step| 10_u64.pow(step.ilog10()) == *step && step.ilog10().is_multiple_of(every));
    }
    LatencyAxis { domain_us, ticks_us }
}

fn power((lead, decade): (u64, u32)) -> Option<u64> {
    10_u64.checked_pow(decade)?.checked_mul(lead)
}

/// Where a percentile lies on the scale of nines that is usual for HDR histograms: 0 at 0, 90 at 1, 99 at 2, 99.9
/// at 3. It has no end; the greatest of `count` values lies where one of them is left.
pub(super) fn nines(percentile: f64, count: u64) -> f64 {
    let end = (count.max(2) as f64).log10().min(NINES_MAX);
    let share = if percentile.is_finite() { (percentile / 100.0).clamp(0.0, 1.0) } else { 1.0 };
    if share < 1.0 { (-(1.0 - share).log10()).clamp(0.0, NINES_MAX) } else { end }
}

/// Percentiles to name up to so many nines: where, and how. Not more than there is room for at `room_px` a nine: of
/// two that would touch, the lower is the one to keep.
pub(super) fn percentile_ticks(greatest_nines: f64, room_px: f64) -> Vec<(f64, String)> {
    let label = |nines: usize| match nines {
        0 => "0".to_owned(),
        1 => "90".to_owned(),
        2 => "99".to_owned(),
        _ => format!("99.{}", "9".repeat(nines - 2)),
    };
    let last = greatest_nines.clamp(0.0, NINES_MAX).floor() as usize;
    let mut wanted: Vec<(f64, String)> = (0..=last).map(|nines| (nines as f64, label(nines))).collect();
    wanted.insert(1, (nines(50.0, 2), "50".to_owned()));
    let mut ticks: Vec<(f64, String)> = Vec::new();
    let mut free_px = f64::NEG_INFINITY;
    for (at, label) in wanted {
        let half_px = width_px(&label, FONT_PX) / 2.0;
        if at * room_px - half_px >= free_px {
            free_px = at * room_px + half_px + LABEL_GAP_PX;
            ticks.push((at, label));
        }
    }
    ticks
}

/// A scale of time within a run.
#[derive(Debug, PartialEq)]
pub(super) struct TimeAxis {
    /// Unit of the labels.
    pub(super) unit: &'static str,
    /// Milliseconds of that unit.
    pub(super) unit_ms: f64,
    /// Positions in milliseconds and their labels.
    pub(super) ticks: Vec<(f64, String)>,
}

/// The axis from 0 to `end_ms`: seconds for up to ten minutes, then minutes, then hours.
pub(super) fn time_axis(end_ms: u64) -> TimeAxis {
    let (unit, unit_ms) = match end_ms {
        0..=600_000 => ("s", 1_000.0),
        600_001..=36_000_000 => ("min", 60_000.0),
        _ => ("h", 3_600_000.0),
    };
    let end = (end_ms.max(1) as f64) / unit_ms;
    let step = nice_step(end / TICKS_MAX as f64);
    let decimals = (-step.log10() - 1e-9).ceil().max(0.0) as usize;
    let count = (end / step * (1.0 + 1e-9)).floor() as usize;
    let ticks = (0..=count).map(|index| index as f64 * step);
    TimeAxis { unit, unit_ms, ticks: ticks.map(|at| (at * unit_ms, tick_label(at, decimals))).collect() }
}

/// A tick's value with so many decimals and thousands separators.
pub(super) fn tick_label(value: f64, decimals: usize) -> String {
    if decimals == 0 { grouped(value.round() as u64) } else { format!("{value:.decimals$}") }
}

/// Moves positions apart, so that neighbours are at least `gap_px` from each other, all within the limits and each
/// as near to where it wants to be as that allows. The order stays; where there is no room the gap shrinks.
pub(super) fn spread(wanted_px: &[f64], gap_px: f64, limits_px: (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted_px.len()).collect();
    order.sort_by(|one, other| wanted_px[*one].total_cmp(&wanted_px[*other]));
    let room_px = limits_px.1 - limits_px.0;
    let gap_px = if order.len() > 1 { gap_px.min(room_px / (order.len() - 1) as f64) } else { gap_px };
    let mut placed = vec![0.0; wanted_px.len()];
    let mut least = limits_px.0;
    for index in &order {
        placed[*index] = wanted_px[*index].max(least);
        least = placed[*index] + gap_px;
    }
    let mut greatest = limits_px.1;
    for index in order.iter().rev() {
        placed[*index] = placed[*index].min(greatest);
        greatest = placed[*index] - gap_px;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_map_ends_to_ends() {
        let linear = Scale::linear((0.0, 10.0), (100.0, 0.0));
        let log = Scale::log((1.0, 10_000.0), (0.0, 400.0));
        let cases = [
            (linear, 0.0, 100.0),
            (linear, 2.5, 75.0),
            (linear, 10.0, 0.0),
            (linear, 11.0, 0.0),
            (linear, -1.0, 100.0),
            (log, 1.0, 0.0),
            (log, 100.0, 200.0),
            (log, 10_000.0, 400.0),
            (log, 0.0, 0.0),
        ];
        for (scale, value, at_px) in cases {
            assert!((scale.at_px(value) - at_px).abs() < 1e-9, "{scale:?} {value}: {}", scale.at_px(value));
        }
    }

    #[test]
    fn amounts_begin_at_zero_and_have_round_ticks() {
        let cases = [
            (0.0, "0.0 0.2 0.4 0.6 0.8 1.0"),
            (1.0, "0.0 0.2 0.4 0.6 0.8 1.0"),
            (5.0, "0 1 2 3 4 5"),
            (7.0, "0 2 4 6"),
            (7.8, "0 2 4 6 8"),
            (61_204.0, "0 20,000 40,000 60,000"),
            (100_000.0, "0 20,000 40,000 60,000 80,000 100,000"),
            (0.003, "0.000 0.001 0.002 0.003"),
            (f64::NAN, "0.0 0.2 0.4 0.6 0.8 1.0"),
            (f64::INFINITY, "0.0 0.2 0.4 0.6 0.8 1.0"),
        ];
        for (greatest, expected) in cases {
            let axis = amount_axis(greatest);
            let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
            assert_eq!(labels.join(" "), expected, "{greatest}");
            assert!(axis.ticks.iter().all(|(at, _)| *at <= axis.end), "{axis:?}");
            assert!(!greatest.is_finite() || axis.end > greatest, "{axis:?}");
        }
        assert!(amount_axis(1e19).ticks.len() <= TICKS_MAX);
    }

    #[test]
    fn latency_ticks_are_few_and_among_the_values() {
        let cases: [(u64, u64, &[u64]); 11] = [
            (0, 0, &[1, 2]),
            (12, 12, &[10, 20]),
            (10, 10, &[10, 20]),
            (110, 180, &[100, 200]),
            (1_900, 2_100, &[1_000, 2_000, 5_000]),
            (850, 5_100, &[1_000, 2_000, 5_000]),
            (120, 9_500, &[200, 500, 1_000, 2_000, 5_000, 10_000]),
            (60, 9_500, &[100, 200, 500, 1_000, 2_000, 5_000, 10_000]),
            (60, 90_000, &[100, 1_000, 10_000]),
            (3, 30_000_000, &[10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]),
            (9, 5, &[5, 10]),
        ];
        for (least, greatest, ticks) in cases {
            let axis = latency_axis(least, greatest);
            assert_eq!(axis.ticks_us, ticks, "{least} to {greatest}");
            let is_around = |latency_us: u64| {
                axis.domain_us.0 <= latency_us as f64 && latency_us as f64 <= axis.domain_us.1
            };
            assert!(is_around(least.max(1)) && is_around(greatest.max(1)), "{axis:?}");
            assert!(ticks.iter().all(|tick| is_around(*tick)), "{axis:?}");
        }
        assert_eq!(latency_axis(1, u64::MAX).ticks_us.len(), 7);
        assert_eq!(latency_axis(u64::MAX, u64::MAX).domain_us, (1e19, u64::MAX as f64));
    }

    #[test]
    fn every_nine_takes_the_same_room() {
        let cases = [
            (0.0, 10, 0.0),
            (50.0, 10, std::f64::consts::LOG10_2),
            (90.0, 10, 1.0),
            (99.0, 10, 2.0),
            (99.9, 10, 3.0),
            (99.999, 10, 5.0),
            (100.0, 1_000_000, 6.0),
            (100.0, 1, std::f64::consts::LOG10_2),
            (100.0, u64::MAX, NINES_MAX),
            (-3.0, 10, 0.0),
            (250.0, 1_000, 3.0),
            (f64::NAN, 100, 2.0),
        ];
        for (percentile, count, expected) in cases {
            let got = nines(percentile, count);
            assert!((got - expected).abs() < 1e-5, "{percentile} of {count}: {got}");
        }
    }

    #[test]
    fn percentile_ticks_leave_room_for_their_labels() {
        let labels = |greatest: f64, room_px: f64| -> Vec<String> {
            percentile_ticks(greatest, room_px).into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(4.2, 100.0), ["0", "50", "90", "99", "99.9", "99.99"]);
        assert_eq!(labels(0.4, 100.0), ["0", "50"]);
        assert_eq!(labels(0.0, 100.0), ["0", "50"]);
        assert_eq!(labels(7.0, 55.0), ["0", "50", "90", "99", "99.9", "99.99", "99.999", "99.9999"]);
        assert_eq!(labels(2.0, 40.0), ["0", "90", "99"], "no room for the median");
    }

    #[test]
    fn time_has_units_that_fit() {
        let labels = |end_ms: u64| {
            let axis = time_axis(end_ms);
            let labels: Vec<String> = axis.ticks.into_iter().map(|(_, label)| label).collect();
            (axis.unit, labels.join(" "))
        };
        let cases = [
            (0, "s", "0.0000 0.0002 0.0004 0.0006 0.0008 0.0010"),
            (1_000, "s", "0.0 0.2 0.4 0.6 0.8 1.0"),
            (10_000, "s", "0 2 4 6 8 10"),
            (10_900, "s", "0 2 4 6 8 10"),
            (600_000, "s", "0 100 200 300 400 500 600"),
            (3_600_000, "min", "0 10 20 30 40 50 60"),
            (86_400_000, "h", "0 5 10 15 20"),
        ];
        for (end_ms, unit, expected) in cases {
            assert_eq!(labels(end_ms), (unit, expected.to_owned()), "{end_ms} ms");
        }
        let at_ms: Vec<f64> = time_axis(3_600_000).ticks.into_iter().map(|(at_ms, _)| at_ms).collect();
        assert_eq!(at_ms[..2], [0.0, 600_000.0]);
    }

    #[test]
    fn crowded_labels_are_moved_apart() {
        let cases: [(&[f64], &[f64]); 6] = [
            (&[], &[]),
            (&[50.0], &[50.0]),
            (&[150.0], &[100.0]),
            (&[50.0, 50.0, 51.0], &[50.0, 60.0, 70.0]),
            (&[99.0, 98.0, 10.0], &[100.0, 90.0, 10.0]),
            (&[-5.0, 0.0], &[0.0, 10.0]),
        ];
        for (wanted, placed) in cases {
            assert_eq!(spread(wanted, 10.0, (0.0, 100.0)), placed, "{wanted:?}");
        }
        assert_eq!(spread(&[5.0; 21], 10.0, (0.0, 100.0))[20], 100.0, "a shrunken gap");
    }
}
