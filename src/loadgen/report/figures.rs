//! The charts of a page: throughput over time, latency by percentile, latency over time.
//!
//! Contract: of one run the charts overlay its series; of several they overlay the runs, one chart for each series
//! and percentile, because more than a handful of curves in one chart cannot be read. Charts of the same quantity
//! have the same scale.

use super::chart::{Chart, Curve, LABEL_ROOM_PX, Layout, Note, ReadOut, STRIPS, Strip, end_label};
use super::scale::{self, LatencyAxis, Scale};
use super::svg::FONT_PX;
use super::text::{counted, figure, grouped, latency, short_labels, width_px};
use super::timeline::{self, Slice};
use super::{COLOURS, Run};

use super::super::outcome::Latency;

/// Height of what curves have in most charts.
const PLOT_PX: f64 = 212.0;
/// The same beside two charts above each other.
const TALL_PLOT_PX: f64 = 560.0;
/// Read-outs along a scale of percentiles.
const PERCENTILE_READ_OUTS: usize = 90;

/// All charts in the order of the page.
pub(super) fn figures(runs: &[Run<'_>]) -> Vec<Chart> {
    let times = Times::of(runs);
    let mut charts = vec![throughput(runs, &times)];
    if let [run] = runs {
        let series = run.outcome.latencies.iter().map(|(name, latency)| Distribution {
            key: name.clone(),
            label: String::new(),
            title: name.clone(),
            latency: Some(latency),
        });
        charts.push(percentiles("Latency by percentile", &series.collect::<Vec<_>>(), true));
    } else {
        let labels = run_labels(runs);
        for name in super::series_names(runs) {
            let series = runs.iter().zip(&labels).map(|(run, label)| {
                let latency = run.outcome.latencies.get(name);
                Distribution { key: run.letter.clone(), label: label.clone(), title: run.name(), latency }
            });
            let title = format!("Latency by percentile: {name}");
            charts.push(percentiles(&title, &series.collect::<Vec<_>>(), false));
        }
    }
    charts.extend(latencies_over_time(runs, &times));
    charts
}

/// What the curves of several runs are called.
fn run_labels(runs: &[Run<'_>]) -> Vec<String> {
    let names: Vec<String> = runs.iter().map(Run::name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let key_px = width_px("M ", FONT_PX);
    short_labels(&names, LABEL_ROOM_PX - key_px, FONT_PX)
}

/// The timelines of all runs, cut alike.
struct Times {
    slices: Vec<Vec<Slice>>,
    bundle: usize,
    end_ms: u64,
}

impl Times {
    fn of(runs: &[Run<'_>]) -> Times {
        let slices: Vec<Vec<Slice>> =
            runs.iter().map(|run| timeline::slices(&run.outcome.timeline)).collect();
        let bundle = timeline::bundle(slices.iter().map(Vec::len).max().unwrap_or(0));
        let slices: Vec<Vec<Slice>> = slices.iter().map(|slices| timeline::bundled(slices, bundle)).collect();
        let end_ms = slices.iter().flatten().map(|slice| slice.end_ms).max().unwrap_or(0).max(1);
        Times { slices, bundle, end_ms }
    }

    fn scale(&self, layout: Layout) -> Scale {
        Scale::linear((0.0, self.end_ms as f64), layout.x_px())
    }

    fn ticks(&self, layout: Layout) -> (String, Vec<(f64, String)>) {
        let axis = scale::time_axis(self.end_ms);
        let scale = self.scale(layout);
        let ticks = axis.ticks.into_iter().map(|(at_ms, label)| (scale.at_px(at_ms), label)).collect();
        (format!("time in the measured window, {}", axis.unit), ticks)
    }

    /// Read-outs at the slices of the longest run, from one value a curve and slice.
    fn read_outs(&self, layout: Layout, values: &[Vec<Option<String>>]) -> Vec<ReadOut> {
        let Some(longest) = self.slices.iter().max_by_key(|slices| slices.len()) else { return Vec::new() };
        let scale = self.scale(layout);
        let read_out = |(index, slice): (usize, &Slice)| ReadOut {
            at_px: scale.at_px(slice.middle_ms()),
            heading: format!("{} to {} s", figure_s(slice.start_ms), figure_s(slice.end_ms)),
            values: values.iter().map(|values| values.get(index).cloned().flatten()).collect(),
        };
        longest.iter().enumerate().map(read_out).collect()
    }

    /// What a point stands for.
    fn points_note(&self, what: &str) -> String {
        match self.bundle {
            1 => "second by second".to_owned(),
            several => format!("each point is {what} of {several} seconds"),
        }
    }
}

fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

fn figure_s(at_ms: u64) -> String {
    if at_ms.is_multiple_of(1000) { grouped(at_ms / 1000) } else { format!("{:.1}", at_ms as f64 / 1000.0) }
}

// --- throughput

fn throughput(runs: &[Run<'_>], times: &Times) -> Chart {
    // Records are what batches and single operations have in common.
    let by_record = super::counts_records(runs);
    let count = |slice: &Slice| if by_record { slice.records } else { slice.operations };
    let unit = if by_record { "records" } else { "operations" };
    let rates: Vec<Vec<f64>> = times
        .slices
        .iter()
        .map(|slices| slices.iter().map(|slice| slice.per_s(count(slice))).collect())
        .collect();
    let greatest = rates.iter().flatten().copied().fold(0.0, f64::max);
    let axis = scale::amount_axis(greatest);
    let tick_labels: Vec<String> = axis.ticks.iter().map(|(_, label)| label.clone()).collect();

    let labels = if runs.len() > 1 { run_labels(runs) } else { vec![String::new(); runs.len()] };
    let sum = |slices: &Vec<Slice>| slices.iter().fold(0_u64, |sum, slice| sum.saturating_add(slice.errors));
    let errors: Vec<u64> = times.slices.iter().map(sum).collect();
    let mut ends: Vec<String> =
        runs.iter().zip(&labels).map(|(run, label)| end_label(&run.letter, label)).collect();
    ends.extend(runs.iter().zip(&errors).map(|(run, errors)| end_label(&run.letter, &grouped(*errors))));
    let layout = Layout::new(PLOT_PX, &[&tick_labels[..], &[STRIPS.to_owned()]].concat(), &ends);

    let x = times.scale(layout);
    let y = Scale::linear((0.0, axis.end), layout.y_px());
    let curves = runs.iter().enumerate().map(|(index, run)| Curve {
        colour: run.colour(),
        key: run.letter.clone(),
        label: labels[index].clone(),
        title: run.name(),
        is_light: false,
        points: (times.slices[index].iter().zip(&rates[index]))
            .map(|(slice, rate)| Some((x.at_px(slice.middle_ms()), y.at_px(*rate))))
            .collect(),
    });
    let values: Vec<Vec<Option<String>>> =
        rates.iter().map(|rates| rates.iter().map(|rate| Some(figure(*rate))).collect()).collect();
    let strips: Vec<Strip> = (0..runs.len())
        .filter(|index| errors[*index] > 0)
        .map(|index| error_strip(&runs[index], &times.slices[index], errors[index], &x))
        .collect();
    let strips_note =
        if strips.is_empty() { "" } else { " Marks below: when there were errors, and how many in all." };
    let (x_title, x_ticks) = times.ticks(layout);
    Chart {
        title: "Throughput over time".to_owned(),
        caption: format!("{}, {}.{strips_note}", capitalized(unit), times.points_note("the mean")),
        layout,
        y_title: format!("{unit}/s"),
        y_ticks: axis.ticks.into_iter().map(|(tick, label)| (y.at_px(tick), label)).collect(),
        x_title,
        x_ticks,
        curves: curves.collect(),
        strips,
        notes: Vec::new(),
        read_outs: times.read_outs(layout, &values),
        is_tall: false,
    }
}

fn error_strip(run: &Run<'_>, slices: &[Slice], errors: u64, x: &Scale) -> Strip {
    let marks = slices.iter().filter(|slice| slice.errors > 0).map(|slice| {
        let width_px = x.at_px(slice.end_ms as f64) - x.at_px(slice.start_ms as f64);
        let title = format!(
            "{} from {} to {} s",
            counted(slice.errors, "error"),
            figure_s(slice.start_ms),
            figure_s(slice.end_ms)
        );
        (x.at_px(slice.middle_ms()), (width_px - 1.0).clamp(2.0, 4.0), title)
    });
    Strip { colour: run.colour(), key: run.letter.clone(), label: grouped(errors), marks: marks.collect() }
}

// --- latency over time

/// A percentile of every second.
#[derive(Clone, Copy)]
struct Percentile {
    name: &'static str,
    title: &'static str,
    of: fn(&Slice) -> u64,
}

const MEDIAN: Percentile =
    Percentile { name: "p50", title: "Median latency over time", of: |slice| slice.p50_us };
const P99: Percentile =
    Percentile { name: "p99", title: "99th percentile over time", of: |slice| slice.p99_us };

fn latencies_over_time(runs: &[Run<'_>], times: &Times) -> Vec<Chart> {
    let all = times.slices.iter().flatten();
    let axis =
        axis_around(all.flat_map(|slice| [slice.p50_us, slice.p99_us]).filter(|latency_us| *latency_us > 0));
    let line =
        |colour: usize, key: &str, label: &str, title: &str, percentile: Percentile, run: usize| Line {
            colour,
            key: key.to_owned(),
            label: label.to_owned(),
            title: title.to_owned(),
            values_us: times.slices[run].iter().map(percentile.of).collect(),
            is_light: percentile.name == MEDIAN.name && runs.len() == 1,
        };
    if let [_] = runs {
        let lines =
            [P99, MEDIAN].map(|percentile| line(0, "", percentile.name, percentile.name, percentile, 0));
        return vec![latency_over_time("Latency over time", runs, times, &axis, &lines)];
    }
    let labels = run_labels(runs);
    let chart = |percentile: Percentile| {
        let lines = runs.iter().enumerate();
        let lines: Vec<Line> = lines
            .map(|(index, run)| {
                line(run.colour(), &run.letter, &labels[index], &run.name(), percentile, index)
            })
            .collect();
        latency_over_time(percentile.title, runs, times, &axis, &lines)
    };
    vec![chart(MEDIAN), chart(P99)]
}

struct Line {
    colour: usize,
    key: String,
    label: String,
    title: String,
    values_us: Vec<u64>,
    is_light: bool,
}

fn latency_over_time(
    title: &str,
    runs: &[Run<'_>],
    times: &Times,
    axis: &LatencyAxis,
    lines: &[Line],
) -> Chart {
    let ends: Vec<String> = lines.iter().map(|line| end_label(&line.key, &line.label)).collect();
    let layout = Layout::new(PLOT_PX, &tick_labels(axis), &ends);
    let (x, y) = (times.scale(layout), latency_scale(axis, layout));
    let point = |slice: &Slice, latency_us: u64| {
        (latency_us > 0).then(|| (x.at_px(slice.middle_ms()), y.at_px(latency_us as f64)))
    };
    let curves = lines.iter().enumerate().map(|(index, line)| Curve {
        colour: line.colour,
        key: line.key.clone(),
        label: line.label.clone(),
        title: line.title.clone(),
        is_light: line.is_light,
        points: (times.slices[if runs.len() == 1 { 0 } else { index }].iter().zip(&line.values_us))
            .map(|(slice, latency_us)| point(slice, *latency_us))
            .collect(),
    });
    let read = |latency_us: &u64| (*latency_us > 0).then(|| latency(*latency_us));
    let values: Vec<Vec<Option<String>>> =
        lines.iter().map(|line| line.values_us.iter().map(read).collect()).collect();
    let (x_title, x_ticks) = times.ticks(layout);
    Chart {
        title: title.to_owned(),
        caption: format!(
            "Latencies of {}, {}.{}",
            main_series(runs),
            times.points_note("the greatest"),
            if runs.len() > 1 { " Median and p99 have one scale." } else { "" },
        ),
        layout,
        y_title: "latency, log scale".to_owned(),
        y_ticks: latency_ticks(axis, &y),
        x_title,
        x_ticks,
        curves: curves.collect(),
        strips: Vec::new(),
        notes: Vec::new(),
        read_outs: times.read_outs(layout, &values),
        is_tall: false,
    }
}

/// Which series the seconds of a run tell of, if all runs agree.
fn main_series(runs: &[Run<'_>]) -> String {
    let mut names: Vec<&str> = runs.iter().filter_map(|run| run.main).collect();
    names.dedup();
    match &*names {
        [name] => (*name).to_owned(),
        _ => "the main series of each run".to_owned(),
    }
}

// --- latency by percentile

/// A distribution to draw.
struct Distribution<'a> {
    key: String,
    label: String,
    title: String,
    /// None if the run has no such series.
    latency: Option<&'a Latency>,
}

/// Points of a distribution: nines and latency.
fn distribution_points(latency: Option<&Latency>) -> Vec<(f64, u64)> {
    let Some(latency) = latency.filter(|latency| latency.count > 0) else { return Vec::new() };
    let summary =
        [(50.0, latency.p50_us), (90.0, latency.p90_us), (99.0, latency.p99_us), (99.9, latency.p99_9_us)];
    let points = if latency.curve.is_empty() { &summary[..] } else { &latency.curve };
    // Beyond where one value is left, a curve only repeats the greatest.
    let end = scale::nines(100.0, latency.count);
    let mut points: Vec<(f64, u64)> = points
        .iter()
        .map(|(percentile, latency_us)| (scale::nines(*percentile, latency.count).min(end), *latency_us))
        .collect();
    points.push((end, latency.max_us));
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    // Where rounding puts a point above a later one, the later one is right.
    for index in (1..points.len()).rev() {
        points[index - 1].1 = points[index - 1].1.min(points[index].1);
    }
    points.dedup();
    points
}

fn percentiles(title: &str, series: &[Distribution<'_>], is_single: bool) -> Chart {
    let points: Vec<Vec<(f64, u64)>> =
        series.iter().map(|distribution| distribution_points(distribution.latency)).collect();
    let all = points.iter().flatten();
    let axis = axis_around(all.clone().map(|(_, latency_us)| *latency_us));
    let greatest_nines = all.map(|(nines, _)| *nines).fold(1.0, f64::max);
    let ends: Vec<String> =
        series.iter().map(|distribution| end_label(&distribution.key, &distribution.label)).collect();
    let height_px = if is_single { TALL_PLOT_PX } else { PLOT_PX };
    let layout = Layout::new(height_px, &tick_labels(&axis), &ends);
    let x = Scale::linear((0.0, greatest_nines), layout.x_px());
    let y = latency_scale(&axis, layout);
    let at = |(nines, latency_us): (f64, u64)| (x.at_px(nines), y.at_px(latency_us as f64));

    let curves = series.iter().zip(&points).enumerate().map(|(index, (distribution, points))| Curve {
        colour: index % COLOURS,
        key: distribution.key.clone(),
        label: distribution.label.clone(),
        title: distribution.title.clone(),
        is_light: false,
        points: points.iter().map(|point| Some(at(*point))).collect(),
    });
    let notes = match series {
        [Distribution { latency: Some(latency), .. }] if is_single => notes(latency, &at, greatest_nines),
        _ => Vec::new(),
    };
    let room_px = (layout.right_px - layout.left_px) / greatest_nines;
    let ticks = scale::percentile_ticks(greatest_nines, room_px);
    Chart {
        title: title.to_owned(),
        caption: "The share of operations, in percent, that took no longer.".to_owned(),
        layout,
        y_title: "latency, log scale".to_owned(),
        y_ticks: latency_ticks(&axis, &y),
        x_title: "percentile; each nine has the same room".to_owned(),
        x_ticks: ticks.into_iter().map(|(nines, label)| (x.at_px(nines), label)).collect(),
        curves: curves.collect(),
        strips: Vec::new(),
        notes,
        read_outs: percentile_read_outs(&points, greatest_nines, &x),
        is_tall: is_single,
    }
}

fn notes(latency_of: &Latency, at: &dyn Fn((f64, u64)) -> (f64, f64), greatest_nines: f64) -> Vec<Note> {
    if latency_of.count == 0 {
        return Vec::new();
    }
    let named = [
        ("p50", 50.0, latency_of.p50_us),
        ("p99", 99.0, latency_of.p99_us),
        ("p99.9", 99.9, latency_of.p99_9_us),
    ];
    let placed = named.map(|(name, percentile, latency_us)| {
        (format!("{name} {}", latency(latency_us)), scale::nines(percentile, latency_of.count), latency_us)
    });
    placed
        .into_iter()
        .filter(|(_, nines, _)| *nines <= greatest_nines)
        .map(|(text, nines, latency_us)| Note { colour: 0, at: at((nines, latency_us)), text })
        .collect()
}

fn percentile_read_outs(series: &[Vec<(f64, u64)>], greatest_nines: f64, x: &Scale) -> Vec<ReadOut> {
    let read_out = |index: usize| {
        let nines = greatest_nines * index as f64 / PERCENTILE_READ_OUTS as f64;
        let decimals = nines as usize;
        let share = 100.0 * (1.0 - 10_f64.powf(-nines));
        let value = |points: &Vec<(f64, u64)>| {
            points.iter().find(|(at, _)| *at >= nines - 1e-9).map(|(_, latency_us)| latency(*latency_us))
        };
        ReadOut {
            at_px: x.at_px(nines),
            heading: format!("{share:.decimals$} %"),
            values: series.iter().map(value).collect(),
        }
    };
    (0..=PERCENTILE_READ_OUTS).map(read_out).collect()
}

// --- axes of latency

fn axis_around(latencies_us: impl Iterator<Item = u64>) -> LatencyAxis {
    let (least, greatest) = latencies_us.fold((u64::MAX, 0), |(least, greatest), latency_us| {
        (least.min(latency_us), greatest.max(latency_us))
    });
    // Nothing to show: any axis will do.
    if least > greatest { scale::latency_axis(100, 1000) } else { scale::latency_axis(least, greatest) }
}

fn latency_scale(axis: &LatencyAxis, layout: Layout) -> Scale {
    Scale::log(axis.domain_us, layout.y_px())
}

fn tick_labels(axis: &LatencyAxis) -> Vec<String> {
    axis.ticks_us.iter().map(|tick_us| round_latency(*tick_us)).collect()
}

fn latency_ticks(axis: &LatencyAxis, y: &Scale) -> Vec<(f64, String)> {
    axis.ticks_us.iter().map(|tick_us| (y.at_px(*tick_us as f64), round_latency(*tick_us))).collect()
}

/// A round latency without decimals: `20 µs`, `1 ms`, `50 s`.
fn round_latency(latency_us: u64) -> String {
    let (number, unit) = match latency_us {
        0..1000 => (latency_us, "µs"),
        1000..1_000_000 => (latency_us / 1000, "ms"),
        _ => (latency_us / 1_000_000, "s"),
    };
    format!("{}\u{a0}{unit}", grouped(number))
}
