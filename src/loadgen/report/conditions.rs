//! The conditions of runs: what was the same for all, and, to be seen at once, what differed.
//!
//! Contract: every condition of every run is on the page once. Runs with the same value share it. What differs by
//! its nature (when a run started, its command line) is told of each run and not marked as a difference.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Run;
use super::tables::verified_text;
use super::text::{counted, escape, grouped};

use super::super::outcome::{Conditions, Outcome};

/// A condition and what it was in each run.
struct Condition {
    name: String,
    values: Vec<String>,
}

impl Condition {
    fn differs(&self) -> bool {
        self.values.iter().any(|value| *value != self.values[0])
    }

    /// Each value once with the runs that had it.
    fn html(&self, runs: &[Run<'_>]) -> String {
        if !self.differs() {
            let value = self.values.first().map_or("", String::as_str);
            return format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(&self.name), escape(value));
        }
        let mut seen: Vec<&String> = Vec::new();
        let mut values = String::new();
        for value in &self.values {
            if seen.contains(&value) {
                continue;
            }
            seen.push(value);
            let with_it = runs.iter().zip(&self.values).filter(|(_, other)| *other == value);
            let keys: Vec<String> = with_it.map(|(run, _)| run.key_html()).collect();
            values += &format!("<span class=\"value\">{} {}</span> ", keys.join("\u{a0}"), escape(value));
        }
        format!(
            "<div class=\"differs\"><dt>{}</dt><dd>{}</dd></div>\n",
            escape(&self.name),
            values.trim_end()
        )
    }
}

/// Names of the conditions that differ.
pub(super) fn differing(runs: &[Run<'_>]) -> Vec<String> {
    all(runs).into_iter().filter(Condition::differs).map(|condition| condition.name).collect()
}

/// The section.
pub(super) fn html(runs: &[Run<'_>]) -> String {
    let (differing, same): (Vec<Condition>, Vec<Condition>) =
        all(runs).into_iter().partition(Condition::differs);
    let list = |conditions: &[Condition]| -> String {
        let items: String = conditions.iter().map(|condition| condition.html(runs)).collect();
        format!("<dl class=\"conditions\">\n{items}</dl>\n")
    };
    let mut html = String::new();
    if runs.len() > 1 {
        html += &match differing.len() {
            0 => "<p>The same for all runs:</p>\n".to_owned(),
            _ => format!(
                "<h3>What differs between the runs</h3>\n{}<h3>The same for all</h3>\n",
                list(&differing)
            ),
        };
    }
    html += &list(&same);
    html += "<h3>Commands</h3>\n";
    html + &runs.iter().map(run_html).collect::<String>()
}

/// What is of one run only.
fn run_html(run: &Run<'_>) -> String {
    let Conditions { command, started_at, .. } = &run.outcome.conditions;
    let start =
        if run.letter.is_empty() { "Started".to_owned() } else { format!("{}, started", run.name_html()) };
    let verified = match &run.outcome.verified {
        Some(verified) => format!(
            "verified: {}, {} read back",
            verified_text(verified),
            counted(verified.streams, "stream")
        ),
        None => "not verified".to_owned(),
    };
    format!(
        "<div class=\"run\"><p>{start} {}; {}</p>\n<pre>{}</pre></div>\n",
        escape(&super::time(started_at)),
        escape(&verified),
        escape(command),
    )
}

fn all(runs: &[Run<'_>]) -> Vec<Condition> {
    type Field = (&'static str, fn(&Conditions) -> String);
    let fields: [Field; 10] = [
        ("workload", |conditions| conditions.workload.clone()),
        ("target", |conditions| conditions.target.clone()),
        ("style", |conditions| conditions.style.clone()),
        ("commit", |conditions| conditions.commit.clone()),
        ("thalweg", |conditions| conditions.thalweg.clone()),
        ("machine", |conditions| conditions.machine.clone()),
        ("cores", |conditions| conditions.cores.to_string()),
        ("kernel", |conditions| conditions.kernel.clone()),
        ("disk", |conditions| conditions.disk.clone()),
        // A seed is copied, not read: no separators.
        ("seed", |conditions| conditions.seed.to_string()),
    ];
    let of_all = |of: &dyn Fn(&Outcome) -> String| -> Vec<String> {
        let shown = |run: &Run<'_>| Some(of(run.outcome)).filter(|value| !value.is_empty());
        runs.iter().map(|run| shown(run).unwrap_or_else(|| "unknown".to_owned())).collect()
    };
    let mut conditions: Vec<Condition> = fields
        .iter()
        .map(|(name, of)| Condition {
            name: (*name).to_owned(),
            values: of_all(&|outcome| of(&outcome.conditions)),
        })
        .collect();
    let options: BTreeSet<&String> =
        runs.iter().flat_map(|run| run.outcome.conditions.options.keys()).collect();
    conditions.extend(options.into_iter().map(|option| {
        let (name, unit) = name_and_unit(option);
        let value = |outcome: &Outcome| match outcome.conditions.options.get(option) {
            Some(value) => value_text(value, unit),
            None => "not an option".to_owned(),
        };
        Condition { name, values: of_all(&value) }
    }));
    conditions
}

/// What only some workloads have to tell, by name: the values as text.
pub(super) fn extra(runs: &[Run<'_>]) -> String {
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.outcome.extra.keys()).collect();
    if names.is_empty() {
        return String::new();
    }
    let items = names.into_iter().map(|extra| {
        let (name, unit) = name_and_unit(extra);
        let found = runs.iter().filter_map(|run| Some((run, run.outcome.extra.get(extra)?)));
        let values = found.map(|(run, value)| {
            let key = if run.letter.is_empty() { String::new() } else { format!("{} ", run.key_html()) };
            format!("<span class=\"value\">{key}{}</span>", escape(&value_text(value, unit)))
        });
        let values: Vec<String> = values.collect();
        format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(&name), values.join(" "))
    });
    format!("<h2>Also found</h2>\n<dl class=\"conditions\">\n{}</dl>\n", items.collect::<String>())
}

/// An option's name in words and its unit: `payload_bytes` is the payload in bytes.
fn name_and_unit(option: &str) -> (String, &'static str) {
    let units = [
        ("_per_s", "/s"),
        ("_ms", "\u{a0}ms"),
        ("_us", "\u{a0}µs"),
        ("_s", "\u{a0}s"),
        ("_bytes_per_s", "\u{a0}bytes/s"),
        ("_bytes", "\u{a0}bytes"),
    ];
    let longest = units.iter().filter(|(end, _)| option.ends_with(end)).max_by_key(|(end, _)| end.len());
    let (stem, unit) = match longest {
        Some((end, unit)) if option.len() > end.len() => (&option[..option.len() - end.len()], *unit),
        _ => (option, ""),
    };
    (stem.replace('_', " "), unit)
}

fn value_text(value: &Value, unit: &str) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => {
            let is_whole = |value: &f64| value.fract() == 0.0 && (0.0..1e15).contains(value);
            let whole =
                number.as_u64().or_else(|| number.as_f64().filter(is_whole).map(|value| value as u64));
            let text = whole.map_or_else(|| number.to_string(), grouped);
            format!("{text}{unit}")
        }
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => "none".to_owned(),
        Value::Array(values) if values.iter().all(|value| !value.is_array() && !value.is_object()) => {
            values.iter().map(|value| value_text(value, "")).collect::<Vec<_>>().join(", ") + unit
        }
        Value::Object(members) if members.is_empty() => "none".to_owned(),
        Value::Object(members) if members.values().all(|value| !value.is_array() && !value.is_object()) => {
            let member = |(name, value)| format!("{name}: {}", value_text(value, unit));
            members.iter().map(member).collect::<Vec<_>>().join("; ")
        }
        nested => nested.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_read_as_words_with_units() {
        let cases = [
            ("payload_bytes", json!(4096), "payload", "4,096\u{a0}bytes"),
            ("rate_per_s", json!(null), "rate", "none"),
            ("rate_per_s", json!(50_000.0), "rate", "50,000/s"),
            ("rate_per_s", json!(0.5), "rate", "0.5/s"),
            ("warm_up_ms", json!(1000), "warm up", "1,000\u{a0}ms"),
            ("limit_bytes_per_s", json!(1), "limit", "1\u{a0}bytes/s"),
            ("cpus", json!([1, 2]), "cpus", "1, 2"),
            ("cpus", json!([]), "cpus", "none"),
            ("shard_aware", json!(true), "shard aware", "yes"),
            ("verify", json!(false), "verify", "no"),
            ("share", json!(0.25), "share", "0.25"),
            ("content_type", json!("text/plain"), "content type", "text/plain"),
            ("_ms", json!(1), " ms", "1"),
            ("late", json!({}), "late", "none"),
            ("late", json!({"503 X": 1200, "reset": 1}), "late", "503 X: 1,200; reset: 1"),
            ("nested", json!({"a": [1, {"b": 2}]}), "nested", "{\"a\":[1,{\"b\":2}]}"),
        ];
        for (option, value, name, text) in cases {
            let (got, unit) = name_and_unit(option);
            assert_eq!((&*got, &*value_text(&value, unit)), (name, text), "{option}");
        }
    }
}
