//! Nothing overlaps and nothing is cut off: texts of charts, measured with a wide font, lie apart and inside.

use super::super::svg::FONT_PX;
use super::super::text::width_px;
use super::*;

/// What a text of a chart covers.
struct Covered {
    text: String,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

fn covered(text: Node<'_, '_>) -> Covered {
    let number =
        |name: &str| -> f64 { text.attribute(name).and_then(|value| value.parse().ok()).expect("a place") };
    let content = text_of(text);
    let (at, base) = (number("x"), number("y"));
    let length = width_px(&content, FONT_PX);
    let left = match text.attribute("text-anchor") {
        Some("end") => at - length,
        Some("middle") => at - length / 2.0,
        _ => at,
    };
    Covered {
        text: content,
        left,
        right: left + length,
        top: base - FONT_PX * 0.78,
        bottom: base + FONT_PX * 0.22,
    }
}

/// What is wrong with the texts of a page's charts.
fn findings(page: &str) -> Vec<String> {
    let document = parse(page);
    let mut findings = Vec::new();
    for svg in elements(&document, "svg") {
        let size: Vec<f64> = svg
            .attribute("viewBox")
            .expect("a size")
            .split(' ')
            .map(|n| n.parse().expect("a size"))
            .collect();
        let texts: Vec<Covered> =
            svg.descendants().filter(|node| node.tag_name().name() == "text").map(covered).collect();
        for (index, one) in texts.iter().enumerate() {
            // The last label of an axis may stand out by a hair.
            let is_inside =
                one.left >= -1.0 && one.right <= size[2] + 2.0 && one.top >= 0.0 && one.bottom <= size[3];
            if !is_inside {
                findings.push(format!(
                    "cut off at {size:?}: {:?} from {:.1} to {:.1}",
                    one.text, one.left, one.right
                ));
            }
            for other in &texts[index + 1..] {
                let is_apart = one.right <= other.left
                    || other.right <= one.left
                    || one.bottom <= other.top + 0.5
                    || other.bottom <= one.top + 0.5;
                if !is_apart {
                    findings.push(format!("overlap: {:?} and {:?}", one.text, other.text));
                }
            }
        }
    }
    findings
}

fn assert_none(what: &str, outcomes: &[Outcome]) {
    let findings = findings(&render(outcomes));
    assert!(findings.is_empty(), "{what}:\n{}", findings.join("\n"));
}

const LONG: &str =
    "append over 64 connections with an extraordinarily long label, typed without a thought of any page";

/// Runs of every kind under every kind of label.
fn kinds() -> Vec<(&'static str, Outcome)> {
    let mut kinds = Vec::new();
    let mut point = run("one point");
    point.timeline.truncate(1);
    point.timeline[0].errors = 3;
    let mut idle = run("idle");
    idle.timeline.iter_mut().for_each(|second| (second.operations, second.p50_us, second.p99_us) = (0, 0, 0));
    let mut flat = run("flat");
    flat.latencies.insert("append".to_owned(), latency(3, 3, 1_000_000_000));
    flat.timeline.iter_mut().for_each(|second| (second.p50_us, second.p99_us) = (3, 3));
    let mut steep = run("steep");
    steep.latencies.insert("append".to_owned(), latency(3, 30_000_000, 1_000_000_000));
    let mut few = run("few");
    few.latencies.insert("append".to_owned(), latency(3, 30_000_000, 2));
    let mut huge = run("huge");
    huge.timeline.iter_mut().for_each(|second| second.operations = 123_456_789_012);
    let mut slow = run("slow");
    slow.timeline.iter_mut().for_each(|second| (second.operations, second.errors) = (0, 123_456_789));
    slow.timeline[3].operations = 1;
    let mut hours = run("day");
    hours.timeline = (1..=7_200).map(|at| Second { at_ms: at * 1000, ..hours.timeline[0].clone() }).collect();
    kinds.extend([("plain", run("plain")), ("mixed", mixed("mixed")), ("nothing", nothing("nothing"))]);
    kinds.extend([("one point", point), ("idle", idle), ("flat", flat), ("steep", steep), ("few", few)]);
    kinds.extend([("huge", huge), ("slow", slow), ("hours", hours)]);
    kinds
}

#[test]
fn nothing_overlaps_in_a_chart_of_one_run() {
    for (what, outcome) in kinds() {
        assert_none(what, std::slice::from_ref(&outcome));
        assert_none(what, &[Outcome { label: LONG.to_owned(), ..outcome }]);
    }
}

#[test]
fn nothing_overlaps_in_a_chart_of_several_runs() {
    let kinds = kinds();
    for count in 2..=8 {
        for (what, outcome) in &kinds {
            let labelled = |index: usize| {
                let short = format!("run {index}");
                let labels = [&short, LONG, "追記のベンチマーク、六十四接続", "WWWWWWWWWWWWWWWWWWWWWWW"];
                Outcome { label: labels[index % 4].to_owned(), ..outcome.clone() }
            };
            let same: Vec<Outcome> = (0..count).map(labelled).collect();
            assert_none(&format!("{count} times {what}"), &same);
        }
        let different: Vec<Outcome> = kinds.iter().take(count).map(|(_, outcome)| outcome.clone()).collect();
        assert_none(&format!("{count} kinds"), &different);
    }
    let all: Vec<Outcome> = kinds.into_iter().map(|(_, outcome)| outcome).collect();
    assert_none("all kinds", &all[3..]);
}

#[test]
fn an_overlap_and_a_cut_are_found() {
    let svg = |texts: &str| format!("<a><svg viewBox=\"0 0 100 50\">{texts}</svg></a>");
    let text = |x: u32, y: u32, content: &str| {
        format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"start\">{content}</text>")
    };
    assert_eq!(findings(&svg(&(text(0, 20, "one") + &text(0, 35, "two")))).len(), 0);
    assert_eq!(findings(&svg(&(text(0, 20, "one") + &text(5, 24, "two")))).len(), 1, "above each other");
    assert_eq!(findings(&svg(&(text(0, 20, "one") + &text(15, 20, "two")))).len(), 1, "beside each other");
    assert_eq!(findings(&svg(&text(90, 20, "cut off"))).len(), 1);
    assert_eq!(findings(&svg(&text(0, 5, "cut off"))).len(), 1);
}
