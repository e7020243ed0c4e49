//! The report: one HTML page from the outcomes of one or several runs.
//!
//! Contract: pure but for [`write()`]; the same outcomes give the same page. The page is one file that loads
//! nothing: style, drawings and the few lines of script are inside, and it is complete without the script, which
//! only reads out values under the pointer. It is well-formed XML, so that a test can read it whole. Whatever comes
//! from an outcome is escaped, and no figure, however odd, makes a page fail or shows as `NaN`.
//!
//! - `text`: numbers with units, escaping; `scale`: scales and ticks; `svg`: writes drawings
//! - `timeline`: the seconds to draw; `chart`: the form of every chart; `figures`: the charts
//! - `tables`: figures; `conditions`: what a run was
//!
//! Several runs have a letter and a colour each, in the order in which they are given; ratios are to the first.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use self::text::escape;
use super::outcome::Outcome;

mod chart;
mod conditions;
mod figures;
mod scale;
mod svg;
mod tables;
mod text;
mod timeline;

#[cfg(test)]
mod tests;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Runs that have a colour of their own.
const COLOURS: usize = 8;

/// A run on a page.
struct Run<'a> {
    outcome: &'a Outcome,
    index: usize,
    /// What it is called in short; empty if it is alone.
    letter: String,
    /// The series that its timeline tells of.
    main: Option<&'a str>,
}

impl Run<'_> {
    /// Its label, or what it was if it has none.
    fn name(&self) -> String {
        let label = self.outcome.label.trim();
        let name = if label.is_empty() { self.outcome.conditions.workload.trim() } else { label };
        if name.is_empty() { "run".to_owned() } else { name.to_owned() }
    }

    /// Which colour it has.
    fn colour(&self) -> usize {
        self.index % COLOURS
    }

    /// Its letter in its colour.
    fn key_html(&self) -> String {
        format!("<b class=\"key c{}\">{}</b>", self.colour(), self.letter)
    }

    /// Letter and label.
    fn name_html(&self) -> String {
        let name = format!("<bdi>{}</bdi>", escape(&self.name()));
        if self.letter.is_empty() { name } else { format!("{} {name}", self.key_html()) }
    }
}

/// Writes the page of these runs. The error is that of the file.
pub fn write(path: &Path, outcomes: &[Outcome]) -> io::Result<()> {
    std::fs::write(path, render(outcomes))
}

/// The page of these runs, in this order; ratios are to the first.
pub fn render(outcomes: &[Outcome]) -> String {
    let runs = runs(outcomes);
    let title = title(&runs);
    let mut body = format!("<header>\n<h1>{}</h1>\n{}</header>\n", escape(&title), introduction(&runs));
    if runs.is_empty() {
        body += "<p>There is no run to report.</p>\n";
    } else {
        let charts: String = figures::figures(&runs).iter().map(chart::Chart::html).collect();
        body += &warnings(&runs);
        body += &tables::headline(&runs);
        body += &differences(&runs);
        body += &format!("<div class=\"charts\">\n{charts}</div>\n");
        body += &format!("<h2>Latencies</h2>\n{}", tables::latencies(&runs));
        body += &format!("<h2>Errors</h2>\n{}", tables::errors(&runs));
        body += &format!("<h2>Work and cost</h2>\n{}", tables::work(&runs));
        body += &conditions::extra(&runs);
        body += &format!("<h2 id=\"conditions\">Conditions</h2>\n{}", conditions::html(&runs));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>{}</title>\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<meta name=\"color-scheme\" \
         content=\"light dark\"/>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}<script>\n{SCRIPT}</script>\n\
         </body>\n</html>\n",
        escape(&title),
    )
}

fn runs(outcomes: &[Outcome]) -> Vec<Run<'_>> {
    let letter = |index: usize| match (outcomes.len(), u8::try_from(index)) {
        (1, _) => String::new(),
        (_, Ok(index @ 0..26)) => char::from(b'A' + index).to_string(),
        _ => (index + 1).to_string(),
    };
    let run = |(index, outcome)| Run { outcome, index, letter: letter(index), main: main_series(outcome) };
    outcomes.iter().enumerate().map(run).collect()
}

/// The series that a workload is about, whose latencies are in its timeline.
fn main_series(outcome: &Outcome) -> Option<&str> {
    let workload = &outcome.conditions.workload;
    let find = |is_main: &dyn Fn(&str) -> bool| outcome.latencies.keys().find(|name| is_main(name));
    let is_fan_out = matches!(workload.as_str(), "sse" | "long-poll");
    // `append-batch` is about `append`; what mixes several is about its appends.
    let named = find(&|name| workload == name).or_else(|| find(&|name| workload.starts_with(name)));
    let usual = named.or_else(|| find(&|name| name == if is_fan_out { "deliver" } else { "append" }));
    let largest =
        || outcome.latencies.iter().rev().max_by_key(|(_, latency)| latency.count).map(|(name, _)| name);
    usual.or_else(largest).map(String::as_str)
}

/// Names of the series of all runs.
fn series_names<'a>(runs: &[Run<'a>]) -> BTreeSet<&'a str> {
    runs.iter().flat_map(|run| run.outcome.latencies.keys()).map(String::as_str).collect()
}

/// Whether operations and records are not the same in some run, so that records are what compares.
fn counts_records(runs: &[Run<'_>]) -> bool {
    runs.iter().any(|run| run.outcome.totals.records != run.outcome.totals.operations)
        && runs.iter().all(|run| run.outcome.totals.records > 0 || run.outcome.totals.operations == 0)
}

/// All errors of a run.
fn errors_of(outcome: &Outcome) -> u64 {
    outcome.totals.errors.values().fold(0, |sum, count| sum.saturating_add(*count))
}

fn title(runs: &[Run<'_>]) -> String {
    match runs {
        [] => "No run".to_owned(),
        [run] => run.name(),
        several => format!("{} runs compared", several.len()),
    }
}

/// One line: what this is about.
fn introduction(runs: &[Run<'_>]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let mut workloads: Vec<&str> = runs.iter().map(|run| run.outcome.conditions.workload.as_str()).collect();
    workloads.dedup();
    let what = match &*workloads {
        [workload] => format!("<code>thalweg bench {}</code>", escape(workload)),
        _ => "<code>thalweg bench</code>".to_owned(),
    };
    let mut when: Vec<String> = runs.iter().map(|run| time(&run.outcome.conditions.started_at)).collect();
    when.sort();
    when.dedup();
    let when = match &*when {
        [only] => only.clone(),
        [first, .., last] => format!("{first} to {last}"),
        [] => String::new(),
    };
    format!("<p>{what}, {}</p>\n", escape(&when))
}

/// A time in UTC as people write it; anything else as it is.
fn time(rfc_3339: &str) -> String {
    match rfc_3339.strip_suffix('Z').and_then(|rest| rest.split_once('T')) {
        Some((date, time)) => format!("{date}\u{a0}{time}\u{a0}UTC"),
        None => rfc_3339.to_owned(),
    }
}

/// What a reader must know before believing a figure.
fn warnings(runs: &[Run<'_>]) -> String {
    let item = |run: &Run<'_>, (what, more): (&str, String)| {
        let what = match run.letter.as_str() {
            "" => format!("{}{}", what[..1].to_uppercase(), &what[1..]),
            _ => format!("{}: {what}", run.name_html()),
        };
        format!("<p><strong>{what}.</strong> {}</p>\n", escape(&more))
    };
    let items =
        runs.iter().flat_map(|run| warnings_of(run.outcome).into_iter().map(|warning| item(run, warning)));
    let items: String = items.collect();
    if items.is_empty() { items } else { format!("<aside class=\"warnings\">\n{items}</aside>\n") }
}

/// Warnings about a run: each in short and in full.
fn warnings_of(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let Outcome { generator, verified, totals, .. } = outcome;
    let mut warnings = Vec::new();
    if generator.limited {
        let why = if generator.why.is_empty() { String::new() } else { format!(" ({})", generator.why) };
        let more = format!("The server may well do more than these figures say{why}.");
        warnings.push(("the load generator was the limit, not the server", more));
    }
    if let Some(verified) =
        verified.as_ref().filter(|verified| verified.missing > 0 || verified.different > 0)
    {
        let first = verified.first_problem.as_deref().unwrap_or_default();
        let first = if first.is_empty() { String::new() } else { format!(" The first: {first}") };
        let more = format!("Of what was acknowledged: {}.{first}", tables::verified_text(verified));
        warnings.push(("verification failed", more));
    }
    if totals.operations == 0 {
        warnings.push(("no operation succeeded", format!("{}.", text::counted(errors_of(outcome), "error"))));
    }
    warnings
}

/// Which conditions differ, right where figures are compared.
fn differences(runs: &[Run<'_>]) -> String {
    let names = conditions::differing(runs);
    if runs.len() < 2 {
        return String::new();
    }
    let what = match names.len() {
        0 => "The runs had the same <a href=\"#conditions\">conditions</a>.".to_owned(),
        _ => format!(
            "The runs differ in <a href=\"#conditions\">conditions</a>: {}.",
            escape(&names.join(", "))
        ),
    };
    format!("<p class=\"quiet\">{what}</p>\n")
}
