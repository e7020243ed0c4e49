//! The figures of a page: what matters at its head, then latencies, work and cost, and errors in full.
//!
//! Contract: every table reads as one on a wide page and as a list on a narrow one, which is why each cell says
//! what it is (`data-name`). Ratios are to the first run, and only where there are several.

use std::collections::BTreeSet;

use super::scale::Scale;
use super::svg::Svg;
use super::text::{
    NONE, bytes, counted, escape, figure, grouped, latency, latency_mean, memory, percent, ratio,
};
use super::{COLOURS, Run};

use super::super::outcome::{Latency, Outcome, Verified};

/// Width of a drawing of a distribution within a table.
const RANGE_PX: f64 = 150.0;
const RANGE_HEIGHT_PX: f64 = 14.0;
/// Runs that have a column each on a narrow page.
const MATRIX_FEW: usize = 3;

/// One figure.
struct Cell {
    text: String,
    /// How it compares, or what share it is.
    note: Option<String>,
    /// To be seen at once: errors, a generator at its limit.
    is_alarming: bool,
}

impl Cell {
    fn plain(text: String) -> Cell {
        Cell { text, note: None, is_alarming: false }
    }

    /// A value with its ratio to that of the first run.
    fn compared(text: String, value: Option<f64>, first: Option<f64>, run: &Run<'_>) -> Cell {
        let pair = value.zip(first).filter(|_| run.index > 0);
        Cell { note: pair.and_then(|(value, first)| ratio(value, first)), ..Cell::plain(text) }
    }

    /// The inside and the class of an element.
    fn inner_html(&self) -> (String, &'static str) {
        let note =
            self.note.as_ref().map(|note| format!("<small>{}</small>", escape(note))).unwrap_or_default();
        (format!("{}{note}", escape(&self.text)), if self.is_alarming { " class=\"alarm\"" } else { "" })
    }

    fn html(&self, name: &str) -> String {
        let (inner, class) = self.inner_html();
        format!("<td{class} data-name=\"{}\">{inner}</td>", escape(name))
    }
}

// --- the head of the page

/// A column of the table at the head.
struct Measure {
    name: &'static str,
    value: fn(&Run<'_>) -> Option<f64>,
    text: fn(&Run<'_>) -> String,
}

fn main_latency<'a>(run: &Run<'a>) -> Option<&'a Latency> {
    run.main.and_then(|name| run.outcome.latencies.get(name)).filter(|latency| latency.count > 0)
}

fn latency_text(latency_us: Option<u64>) -> String {
    latency_us.map_or(NONE.to_owned(), latency)
}

const OPERATIONS: Measure = Measure {
    name: "operations/s",
    value: |run| Some(run.outcome.rates.operations_per_s),
    text: |run| figure(run.outcome.rates.operations_per_s),
};
const RECORDS: Measure = Measure {
    name: "records/s",
    value: |run| Some(run.outcome.rates.records_per_s),
    text: |run| figure(run.outcome.rates.records_per_s),
};
const PAYLOAD: Measure = Measure {
    name: "payload/s",
    value: |run| Some(run.outcome.rates.payload_bytes_per_s),
    text: |run| bytes(run.outcome.rates.payload_bytes_per_s),
};
const P50: Measure = Measure {
    name: "p50",
    value: |run| main_latency(run).map(|latency| latency.p50_us as f64),
    text: |run| latency_text(main_latency(run).map(|latency| latency.p50_us)),
};
const P99: Measure = Measure {
    name: "p99",
    value: |run| main_latency(run).map(|latency| latency.p99_us as f64),
    text: |run| latency_text(main_latency(run).map(|latency| latency.p99_us)),
};
const P99_9: Measure = Measure {
    name: "p99.9",
    value: |run| main_latency(run).map(|latency| latency.p99_9_us as f64),
    text: |run| latency_text(main_latency(run).map(|latency| latency.p99_9_us)),
};
const SERVER_CPU: Measure = Measure {
    name: "server CPU/op",
    value: |run| server_cpu_us(run.outcome),
    text: |run| server_cpu_us(run.outcome).map_or(NONE.to_owned(), latency_mean),
};

/// CPU time of the server by operation; none if it was not measured or nothing was done.
fn server_cpu_us(outcome: &Outcome) -> Option<f64> {
    let server = outcome.server.as_ref().filter(|_| outcome.totals.operations > 0)?;
    Some(server.cpu_us_per_operation).filter(|cpu_us| cpu_us.is_finite())
}

fn measures(runs: &[Run<'_>]) -> Vec<Measure> {
    if super::counts_records(runs) {
        vec![OPERATIONS, RECORDS, PAYLOAD, P50, P99, P99_9, SERVER_CPU]
    } else {
        vec![OPERATIONS, PAYLOAD, P50, P99, P99_9, SERVER_CPU]
    }
}

/// The figures that matter: large ones of a single run, a table of several.
pub(super) fn headline(runs: &[Run<'_>]) -> String {
    match runs {
        [] => String::new(),
        [run] => headline_single(run),
        several => headline_several(several),
    }
}

fn headline_single(run: &Run<'_>) -> String {
    let measures = measures(std::slice::from_ref(run)).into_iter();
    let mut figures: Vec<(&str, Cell)> =
        measures.map(|measure| (measure.name, Cell::plain((measure.text)(run)))).collect();
    figures.push(("errors", errors_cell(run.outcome)));
    figures.push(("generator busy", generator_cell(run.outcome)));
    let items = figures.iter().map(|(name, cell)| {
        let (inner, class) = cell.inner_html();
        format!("<div><dt>{}</dt><dd{class}>{inner}</dd></div>\n", escape(name))
    });
    let of = match (run.main, run.outcome.latencies.len()) {
        (Some(main), 2..) => format!("<p class=\"quiet\">Latencies are those of {}.</p>\n", escape(main)),
        _ => String::new(),
    };
    format!("<dl class=\"headline\">\n{}</dl>\n{of}", items.collect::<String>())
}

fn headline_several(runs: &[Run<'_>]) -> String {
    let measures = measures(runs);
    let names = measures.iter().map(|measure| measure.name).chain(["errors", "generator busy"]);
    let heads: String = names.map(|name| format!("<th scope=\"col\">{}</th>", escape(name))).collect();
    let row = |run: &Run<'_>| {
        let mut cells: Vec<String> = measures
            .iter()
            .map(|measure| {
                let (value, first) = ((measure.value)(run), (measure.value)(&runs[0]));
                Cell::compared((measure.text)(run), value, first, run).html(measure.name)
            })
            .collect();
        cells.push(errors_cell(run.outcome).html("errors"));
        cells.push(generator_cell(run.outcome).html("generator busy"));
        let of = match (run.main, run.outcome.latencies.len()) {
            (Some(main), 2..) => format!("<small>latencies of {}</small>", escape(main)),
            _ => String::new(),
        };
        format!("<tr><th scope=\"row\">{}{of}</th>{}</tr>\n", run.name_html(), cells.concat())
    };
    let rows: String = runs.iter().map(row).collect();
    let key = match rows.contains('×') {
        true => format!("<p class=\"quiet\">×: ratio to {}</p>\n", runs[0].key_html()),
        false => String::new(),
    };
    format!(
        "<table class=\"figures wide\">\n<thead><tr><th scope=\"col\">run</th>{heads}</tr></thead>\n<tbody>\n{rows}\
         </tbody></table>\n{key}",
    )
}

fn errors_cell(outcome: &Outcome) -> Cell {
    let errors = super::errors_of(outcome);
    let share = errors as f64 / (errors as f64 + outcome.totals.operations as f64);
    Cell { text: grouped(errors), note: (errors > 0).then(|| percent(share)), is_alarming: errors > 0 }
}

fn generator_cell(outcome: &Outcome) -> Cell {
    let is_alarming = outcome.generator.limited;
    Cell {
        text: percent(outcome.generator.busy),
        note: is_alarming.then(|| "the limit".to_owned()),
        is_alarming,
    }
}

// --- latencies in full

/// Every series of every run, series by series.
pub(super) fn latencies(runs: &[Run<'_>]) -> String {
    let names = super::series_names(runs);
    let of = |name: &str| -> Vec<(&Run<'_>, &Latency)> {
        let pairs = runs.iter().filter_map(|run| Some((run, run.outcome.latencies.get(name)?)));
        pairs.filter(|(_, latency)| latency.count > 0).collect()
    };
    let all = names.iter().flat_map(|name| of(name));
    let (least, greatest) = all.fold((u64::MAX, 0), |(least, greatest), (_, latency)| {
        (least.min(latency.p50_us.max(1)), greatest.max(latency.max_us))
    });
    if least > greatest {
        return "<p>No latency was measured.</p>\n".to_owned();
    }
    let scale = Scale::log((least as f64, (greatest as f64).max(least as f64 * 1.01)), (4.0, RANGE_PX - 4.0));
    let bodies = names.iter().enumerate().map(|(index, name)| latency_rows(name, &of(name), &scale, index));
    let heads = ["count", "mean", "p50", "p90", "p99", "p99.9", "max"];
    let heads: String = heads.iter().map(|name| format!("<th scope=\"col\">{name}</th>")).collect();
    format!(
        "<table class=\"figures wide\">\n<thead><tr><th scope=\"col\">series</th>{heads}<th scope=\"col\" \
         class=\"range\"><span>{}</span><span>log</span><span>{}</span></th></tr></thead>\n{}</table>\n\
         <p class=\"quiet\">Drawn beside each row: a dot at p50, a heavy line to p99, a thin one to the greatest.</p>\n",
        escape(&latency(least)),
        escape(&latency(greatest)),
        bodies.collect::<String>(),
    )
}

fn latency_rows(name: &str, rows: &[(&Run<'_>, &Latency)], scale: &Scale, series: usize) -> String {
    let mut html = String::from("<tbody>\n");
    for (run, found) in rows {
        let first = rows.iter().find(|(run, _)| run.index == 0).map(|(_, latency)| *latency);
        let compared = |name: &str, of: fn(&Latency) -> u64| {
            Cell::compared(
                latency(of(found)),
                Some(of(found) as f64),
                first.map(|first| of(first) as f64),
                run,
            )
            .html(name)
        };
        html += &format!(
            "<tr><th scope=\"row\">{}{}</th>{}{}{}{}{}{}{}<td class=\"range\">{}</td></tr>\n",
            escape(name),
            if run.letter.is_empty() { String::new() } else { format!(" {}", run.key_html()) },
            Cell::plain(grouped(found.count)).html("count"),
            Cell::plain(latency_mean(found.mean_us)).html("mean"),
            compared("p50", |latency| latency.p50_us),
            compared("p90", |latency| latency.p90_us),
            compared("p99", |latency| latency.p99_us),
            compared("p99.9", |latency| latency.p99_9_us),
            compared("max", |latency| latency.max_us),
            // The colours of the charts: of several runs those of the runs, of a single one those of its series.
            range((run.index + series_colour(run, series)) % COLOURS, found, scale),
        );
    }
    html + "</tbody>\n"
}

fn series_colour(run: &Run<'_>, series: usize) -> usize {
    if run.letter.is_empty() { series } else { 0 }
}

fn range(colour: usize, found: &Latency, scale: &Scale) -> String {
    let mut svg = Svg::new(RANGE_PX, RANGE_HEIGHT_PX);
    let middle_px = RANGE_HEIGHT_PX / 2.0;
    let [p50, p99, max] = [found.p50_us, found.p99_us, found.max_us].map(|at_us| scale.at_px(at_us as f64));
    svg.line(&format!("thin c{colour}"), (p50, middle_px), (max, middle_px));
    svg.line(&format!("heavy c{colour}"), (p50, middle_px), (p99, middle_px));
    svg.dot(&format!("point c{colour}"), (p50, middle_px), 3.5);
    svg.finish("from p50 over p99 to the greatest")
}

// --- work and cost

/// What was done in each run, what it cost, and whether it was verified: a row a quantity, a column a run.
pub(super) fn work(runs: &[Run<'_>]) -> String {
    type Row = (&'static str, fn(&Outcome) -> Option<String>);
    let rows: [Row; 16] = [
        ("measured for", |outcome| Some(latency(outcome.measured_us))),
        ("operations", |outcome| Some(grouped(outcome.totals.operations))),
        ("records", |outcome| Some(grouped(outcome.totals.records))),
        ("payload", |outcome| Some(bytes(outcome.totals.payload_bytes as f64))),
        ("sent", |outcome| Some(bytes(outcome.totals.sent_bytes as f64))),
        ("received", |outcome| Some(bytes(outcome.totals.received_bytes as f64))),
        ("server CPU", |outcome| outcome.server.as_ref().map(|server| latency(server.cpu_us))),
        ("server CPU/op", |outcome| server_cpu_us(outcome).map(latency_mean)),
        ("server CPU share", |outcome| outcome.server.as_ref().map(|server| share(server.cpu_us, outcome))),
        ("server memory", |outcome| outcome.server.as_ref().map(|server| memory(server.resident_bytes))),
        ("server peak memory", |outcome| {
            outcome.server.as_ref().map(|server| memory(server.peak_resident_bytes))
        }),
        ("generator CPU", |outcome| Some(latency(outcome.generator.cpu_us))),
        ("generator CPU/op", |outcome| {
            (outcome.totals.operations > 0).then(|| latency_mean(outcome.generator.cpu_us_per_operation))
        }),
        ("generator busy", |outcome| Some(percent(outcome.generator.busy))),
        ("generator limited", |outcome| {
            Some(if outcome.generator.limited { "yes" } else { "no" }.to_owned())
        }),
        ("verified", |outcome| Some(outcome.verified.as_ref().map_or("not asked for", verdict).to_owned())),
    ];
    let cells = |of: fn(&Outcome) -> Option<String>| -> Vec<Option<String>> {
        runs.iter().map(|run| of(run.outcome)).collect()
    };
    let rows: Vec<(String, Vec<Option<String>>)> =
        rows.iter().map(|(name, of)| ((*name).to_owned(), cells(*of))).collect();
    match runs {
        [_] => list(&rows),
        _ => matrix("quantity", runs, &rows),
    }
}

/// What is a column in a table of several runs takes less room as a list of one.
fn list(rows: &[(String, Vec<Option<String>>)]) -> String {
    let item = |(name, cells): &(String, Vec<Option<String>>)| {
        let text = cells.first().and_then(Option::as_deref).unwrap_or(NONE);
        format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(text))
    };
    format!("<dl class=\"conditions\">\n{}</dl>\n", rows.iter().map(item).collect::<String>())
}

fn share(cpu_us: u64, outcome: &Outcome) -> String {
    percent(cpu_us as f64 / outcome.measured_us as f64)
}

fn verdict(verified: &Verified) -> &'static str {
    if verified.missing == 0 && verified.different == 0 { "all found" } else { "failed" }
}

/// What reading back found, in a few words.
pub(super) fn verified_text(verified: &Verified) -> String {
    let Verified { records, missing, different, .. } = verified;
    if *missing == 0 && *different == 0 {
        return format!("all {} as acknowledged", counted(*records, "record"));
    }
    format!(
        "{} missing, {} different, {} as acknowledged",
        grouped(*missing),
        grouped(*different),
        grouped(*records)
    )
}

// --- errors

/// Errors by code, a row a code, a column a run.
pub(super) fn errors(runs: &[Run<'_>]) -> String {
    let codes: BTreeSet<&String> = runs.iter().flat_map(|run| run.outcome.totals.errors.keys()).collect();
    if codes.is_empty() {
        return format!("<p>None{}.</p>\n", if runs.len() > 1 { " in any run" } else { "" });
    }
    let count =
        |run: &Run<'_>, code: &String| run.outcome.totals.errors.get(code).map(|count| grouped(*count));
    let mut rows: Vec<(String, Vec<Option<String>>)> = codes
        .iter()
        .map(|code| ((*code).clone(), runs.iter().map(|run| count(run, code)).collect()))
        .collect();
    let sum = |run: &Run<'_>| Some(grouped(super::errors_of(run.outcome)));
    if codes.len() > 1 {
        rows.push(("all".to_owned(), runs.iter().map(sum).collect()));
    }
    matrix("status and code", runs, &rows)
}

/// A table with a column a run.
fn matrix(corner: &str, runs: &[Run<'_>], rows: &[(String, Vec<Option<String>>)]) -> String {
    // A few columns fit on a narrow page, too.
    let class = if runs.len() <= MATRIX_FEW { "matrix" } else { "matrix wide" };
    let head = |run: &Run<'_>| match run.letter.as_str() {
        "" => "<th scope=\"col\">count</th>".to_owned(),
        _ => format!("<th scope=\"col\">{}</th>", run.key_html()),
    };
    let heads: String = runs.iter().map(head).collect();
    let row = |(name, cells): &(String, Vec<Option<String>>)| {
        let cells = cells.iter().zip(runs).map(|(cell, run)| {
            let text = cell.as_deref().unwrap_or(NONE);
            format!("<td data-name=\"{}\">{}</td>", run.letter, escape(text))
        });
        format!("<tr><th scope=\"row\">{}</th>{}</tr>\n", escape(name), cells.collect::<String>())
    };
    format!(
        "<table class=\"{class}\">\n<thead><tr><th scope=\"col\">{corner}</th>{heads}</tr></thead>\n<tbody>\n\
         {}</tbody></table>\n",
        rows.iter().map(row).collect::<String>(),
    )
}
