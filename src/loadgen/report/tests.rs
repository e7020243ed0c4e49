//! The page as a whole: it is well-formed, complete, harmless, and nothing on it overlaps, whatever was measured.

use std::collections::BTreeMap;

use proptest::prelude::*;
use roxmltree::{Document, Node, ParsingOptions};
use serde_json::{Value, json};

use super::super::outcome::{
    Conditions, FORMAT, Generator, Latency, Outcome, Rates, Second, ServerUse, Totals, VERSION, Verified,
};
use super::*;

mod geometry;
mod palette;

/// A run of ten seconds with one series.
fn run(label: &str) -> Outcome {
    let options = json!({"streams": 64, "payload_bytes": 256, "rate_per_s": null, "cpus": [1]});
    let second = |at: u64| Second {
        at_ms: at * 1000,
        operations: 60_000 + at,
        records: 60_000 + at,
        payload_bytes: 256 * (60_000 + at),
        errors: 0,
        p50_us: 1000 + at,
        p99_us: 2400 - at,
    };
    Outcome {
        format: FORMAT.to_owned(),
        version: VERSION,
        label: label.to_owned(),
        conditions: Conditions {
            command: format!("thalweg bench append --label '{label}'"),
            commit: "abc1234".to_owned(),
            thalweg: "0.1.0".to_owned(),
            machine: "AMD EPYC".to_owned(),
            cores: 2,
            kernel: "6.18".to_owned(),
            disk: "ext4".to_owned(),
            started_at: "2026-11-30T12:00:00Z".to_owned(),
            target: "http://127.0.0.1:4437".to_owned(),
            style: "thalweg".to_owned(),
            workload: "append".to_owned(),
            seed: 12_345_678,
            options: serde_json::from_value(options).expect("an object"),
        },
        measured_us: 10_000_123,
        totals: Totals {
            operations: 600_055,
            records: 600_055,
            payload_bytes: 153_614_080,
            sent_bytes: 276_025_300,
            received_bytes: 108_009_900,
            errors: BTreeMap::new(),
        },
        rates: Rates {
            operations_per_s: 60_005.1,
            records_per_s: 60_005.1,
            payload_bytes_per_s: 15_361_219.0,
        },
        latencies: [("append".to_owned(), latency(1010, 21_500, 600_055))].into(),
        timeline: (1..=10).map(second).collect(),
        generator: Generator {
            cpu_us: 6_200_000,
            cpu_us_per_operation: 6.21,
            busy: 0.62,
            limited: false,
            why: String::new(),
        },
        server: Some(ServerUse {
            pid: 4711,
            cpu_us: 9_900_000,
            cpu_us_per_operation: 16.48,
            resident_bytes: 312 << 20,
            peak_resident_bytes: 330 << 20,
        }),
        verified: Some(Verified { streams: 64, records: 600_055, bytes: 153_614_080, ..Verified::default() }),
        extra: BTreeMap::new(),
    }
}

/// A series from half of its median to its greatest.
fn latency(p50_us: u64, max_us: u64, count: u64) -> Latency {
    let share = |share: f64| p50_us + ((max_us - p50_us) as f64 * share) as u64;
    let [p90_us, p99_us, p99_9_us] = [0.01, 0.05, 0.2].map(share);
    Latency {
        count,
        mean_us: p50_us as f64 * 1.1,
        p50_us,
        p90_us,
        p99_us,
        p99_9_us,
        max_us,
        histogram: String::new(),
        curve: vec![
            (0.0, p50_us / 2),
            (50.0, p50_us),
            (90.0, p90_us),
            (99.0, p99_us),
            (99.9, p99_9_us),
            (100.0, max_us),
        ],
    }
}

/// Writers, replayers and live readers, from 3 µs to 30 s, with errors.
fn mixed(label: &str) -> Outcome {
    let mut mixed = run(label);
    mixed.conditions.workload = "mixed".to_owned();
    mixed.latencies = [
        ("append".to_owned(), latency(850, 39_000, 100_000)),
        ("deliver".to_owned(), latency(1400, 30_000_000, 8_000_000)),
        ("read".to_owned(), latency(6, 137_000, 1)),
    ]
    .into();
    mixed.totals.errors = [("503 SHARD_LATCHED".to_owned(), 1234), ("connection reset".to_owned(), 2)].into();
    mixed.timeline.iter_mut().for_each(|second| second.errors = second.at_ms % 7);
    mixed.server = None;
    mixed.verified = None;
    mixed
}

/// A run in which nothing succeeded.
fn nothing(label: &str) -> Outcome {
    let mut nothing = run(label);
    nothing.totals = Totals { errors: [("connection refused".to_owned(), 64)].into(), ..Totals::default() };
    nothing.rates = Rates::default();
    nothing.latencies.clear();
    nothing.timeline.clear();
    nothing
}

/// The page as a document; fails unless it is well-formed.
fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options)
        .unwrap_or_else(|error| panic!("not well-formed: {error}\n{page}"))
}

fn elements<'a>(document: &'a Document<'a>, name: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    document.descendants().filter(move |node| node.tag_name().name() == name)
}

/// The text inside of an element, without titles that only show when it is pointed at.
fn text_of(node: Node<'_, '_>) -> String {
    let is_shown = |text: &Node<'_, '_>| text.ancestors().all(|around| around.tag_name().name() != "title");
    node.descendants().filter(|node| node.is_text()).filter(is_shown).filter_map(|text| text.text()).collect()
}

/// Text of the body with every run of blanks as one.
fn shown(page: &str) -> String {
    let document = parse(page);
    let bodies: String = elements(&document, "body").map(text_of).collect();
    bodies.replace('\u{a0}', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_single_run_is_told_in_full() {
    let page = render(&[run("append c64")]);
    let shown = shown(&page);
    let expected = [
        "append c64",
        "operations/s 60,005",
        "payload/s 15.4 MB",
        "p50 1.01 ms",
        "p99 2.03 ms",
        "p99.9 5.11 ms",
        "server CPU/op 16.5 µs",
        "errors 0",
        "generator busy 62 %",
        "2026-11-30 12:00:00 UTC",
        "Started 2026-11-30 12:00:00 UTC; verified: all 600,055 records as acknowledged, 64 streams read back",
        "commit abc1234",
        "machine AMD EPYC",
        "cores 2",
        "kernel 6.18",
        "disk ext4",
        "target http://127.0.0.1:4437",
        "payload 256 bytes",
        "rate none",
        "seed 12345678",
        "thalweg bench append --label 'append c64'",
        "server peak memory 330 MiB",
        "p50 1.01 ms p99 2.03 ms p99.9 5.11 ms Latency over time",
        "time in the measured window, s",
        "Errors None.",
    ];
    let without_blanks = |text: &str| text.replace(' ', "");
    for text in expected {
        assert!(without_blanks(&shown).contains(&without_blanks(text)), "{text:?} is missing in:\n{shown}");
    }
    assert!(!page.contains("<aside"), "nothing to warn of");
    assert!(!page.contains('×'), "nothing to compare with");
    assert!(!page.contains("differs\""), "nothing that differs");
}

#[test]
fn runs_are_compared_with_the_first() {
    let mut faster = run("append c64 faster");
    faster.rates.operations_per_s *= 1.5;
    faster.latencies.insert("append".to_owned(), latency(505, 43_000, 900_000));
    faster.conditions.options.insert("streams".to_owned(), 128.into());
    faster.conditions.disk = "xfs".to_owned();
    faster.conditions.started_at = "2026-11-30T12:05:00Z".to_owned();
    faster.totals.errors.insert("503 SHARD_LATCHED".to_owned(), 9_000);
    let page = render(&[run("append c64 first"), faster, mixed("third & last")]);
    let document = parse(&page);

    let table = elements(&document, "table").next().expect("figures to compare");
    let rows: Vec<String> = (table.descendants())
        .filter(|node| node.tag_name().name() == "tr")
        .map(|row| text_of(row).replace('\u{a0}', " "))
        .collect();
    assert_eq!(rows.len(), 4, "{rows:?}");
    for (row, texts) in rows[1..].iter().zip([
        &["A append c64 first", "60,005", "1.01 ms", "16.5 µs"][..],
        &["B append c64 faster", "90,0081.50×", "505 µs0.50×", "9,0001.5 %"],
        &["C third & last", "latencies of append", "850 µs0.84×", "1,2360.21 %"],
    ]) {
        for text in texts {
            assert!(row.contains(text), "{text:?} is missing in {row:?}");
        }
    }

    let differing: Vec<String> = (document.descendants())
        .filter(|node| node.attribute("class") == Some("differs"))
        .map(|node| text_of(node).replace('\u{a0}', " "))
        .collect();
    assert_eq!(
        differing,
        ["workloadA B append C mixed", "diskA C ext4 B xfs", "streamsA C 64 B 128"],
        "neither the time nor the command count, for no two runs share them"
    );
    let shown = shown(&page);
    assert!(shown.contains("The runs differ in conditions: workload, disk, streams."), "{shown}");
    for text in [
        "2026-11-30 12:00:00 UTC to 2026-11-30 12:05:00 UTC",
        "503 SHARD_LATCHED–9,0001,234",
        "A append c64 first, started",
    ] {
        assert!(shown.contains(text), "{text:?} is missing in {shown}");
    }
}

#[test]
fn every_run_has_its_label_its_colour_and_its_curves() {
    for count in 2..=8 {
        let outcomes: Vec<Outcome> = (0..count).map(|index| mixed(&format!("run {index}"))).collect();
        let page = render(&outcomes);
        let document = parse(&page);
        let charts: Vec<Node<'_, '_>> = elements(&document, "figure").collect();
        assert_eq!(charts.len(), 6, "throughput, three series, two percentiles");
        for chart in charts {
            let labels: Vec<String> = chart
                .descendants()
                .filter(|node| node.attribute("class").is_some_and(|class| class.starts_with("label")))
                .map(text_of)
                .collect();
            for (index, letter) in ('A'..='H').take(count).enumerate() {
                assert!(
                    labels.contains(&format!("{letter} run {index}")),
                    "{letter} is not among {labels:?}"
                );
                let class = format!("curve c{index}");
                let has_class = |node: Node<'_, '_>| node.attribute("class") == Some(&class);
                assert!(chart.descendants().any(has_class), "{letter} has no curve");
            }
        }
    }
}

#[test]
fn what_casts_doubt_on_figures_is_said_first() {
    let mut doubtful = run("doubtful");
    doubtful.generator = Generator {
        limited: true,
        why: "its thread never slept".to_owned(),
        busy: 0.99,
        ..doubtful.generator
    };
    doubtful.verified = Some(Verified {
        streams: 64,
        records: 7,
        missing: 2,
        different: 1,
        first_problem: Some("stream 3, record 5".to_owned()),
        ..Verified::default()
    });
    let warnings = |outcomes: &[Outcome]| -> Vec<String> {
        let page = render(outcomes);
        let document = parse(&page);
        let asides: Vec<Node<'_, '_>> = elements(&document, "aside").collect();
        asides.iter().flat_map(|aside| aside.children().filter(Node::is_element).map(text_of)).collect()
    };
    let single = warnings(&[doubtful.clone()]);
    assert!(single[0].starts_with("The load generator was the limit, not the server."), "{single:?}");
    assert!(single[0].contains("(its thread never slept)"), "{single:?}");
    assert!(single[1].starts_with("Verification failed."), "{single:?}");
    assert!(
        single[1].contains("2 missing, 1 different, 7 as acknowledged. The first: stream 3, record 5"),
        "{single:?}"
    );
    let several = warnings(&[run("fine"), doubtful, nothing("idle")]);
    assert!(several[0].starts_with("B doubtful: the load generator was the limit"), "{several:?}");
    assert_eq!(several[2], "C idle: no operation succeeded. 64\u{a0}errors.");
    assert_eq!(several.len(), 3, "{several:?}");
}

#[test]
fn records_count_where_requests_have_several() {
    let mut batch = run("batch");
    batch.totals.records *= 512;
    batch.rates.records_per_s *= 512.0;
    batch.timeline.iter_mut().for_each(|second| second.records *= 512);
    let shown = shown(&render(&[batch]));
    for text in ["operations/s60,005", "records/s30,722,611", "Records, second by second.", "30,000,000"] {
        assert!(shown.contains(text), "{text:?} is missing in {shown}");
    }
}

#[test]
fn seconds_with_errors_are_marked() {
    let mut with_errors = run("with errors");
    with_errors.timeline[3].errors = 1200;
    let page = render(&[run("without"), with_errors]);
    let document = parse(&page);
    let marks: Vec<&str> =
        elements(&document, "rect").filter_map(|mark| mark.first_element_child()?.text()).collect();
    assert_eq!(marks, ["1,200\u{a0}errors from 3 to 4 s"]);
}

/// Strings of an outcome that come from outside, all the same.
fn tainted(text: &str) -> Outcome {
    let mut outcome = mixed(text);
    let owned = || text.to_owned();
    let value: Value = json!({text: [text, {text: text}]});
    outcome.conditions = Conditions {
        command: owned(),
        commit: owned(),
        thalweg: owned(),
        machine: owned(),
        kernel: owned(),
        disk: owned(),
        started_at: owned(),
        target: owned(),
        style: owned(),
        workload: owned(),
        options: [(owned(), value.clone())].into(),
        ..outcome.conditions
    };
    outcome.latencies.insert(owned(), latency(10, 20, 30));
    outcome.totals.errors.insert(owned(), 1);
    outcome.generator.limited = true;
    outcome.generator.why = owned();
    outcome.verified = Some(Verified { missing: 1, first_problem: Some(owned()), ..Verified::default() });
    outcome.extra = [(owned(), value)].into();
    outcome
}

#[test]
fn whatever_comes_from_outside_is_only_text() {
    for text in [
        "</title></script></style><img src=x onerror=alert(1)>",
        "\" onload=\"alert(1)\" x=\"",
        "' onload='alert(1)",
        "&lt;b&gt; &amp; ]]> <!-- <![CDATA[",
        "a\u{0}b\u{1b}[31m\u{202e}c\u{ffff}",
        "",
    ] {
        for outcomes in [vec![tainted(text)], vec![tainted(text), run("other"), tainted(text)]] {
            let page = render(&outcomes);
            let document = parse(&page);
            let names: BTreeSet<&str> = document.descendants().map(|node| node.tag_name().name()).collect();
            assert!(!names.contains("img"), "{text:?}");
            assert_eq!(elements(&document, "script").count(), 1, "{text:?}");
            let is_event = |name: &str| name.starts_with("on");
            let events = document
                .descendants()
                .flat_map(|node| node.attributes())
                .filter(|attribute| is_event(attribute.name()));
            assert_eq!(events.count(), 0, "{text:?}");
            if text.starts_with("</title>") {
                assert!(shown(&page).contains(text), "it is shown as it is");
            }
        }
    }
}

#[test]
fn the_page_loads_nothing() {
    let page = render(&[run("one"), mixed("two")]);
    let document = parse(&page);
    for attribute in document.descendants().flat_map(|node| node.attributes()) {
        let is_local = attribute.name() != "href" || attribute.value().starts_with('#');
        assert!(
            is_local && !["src", "srcset", "data", "action"].contains(&attribute.name()),
            "{attribute:?}"
        );
    }
    for word in ["url(", "@import", "fetch(", "XMLHttp", "import("] {
        assert!(!STYLE.contains(word) && !SCRIPT.contains(word), "{word}");
    }
    assert_eq!(elements(&document, "link").count(), 0);
}

#[test]
fn read_outs_have_a_value_for_each_curve() {
    for outcomes in [vec![run("one")], vec![mixed("one")], vec![run("one"), mixed("two"), nothing("three")]] {
        let page = render(&outcomes);
        let document = parse(&page);
        for figure in elements(&document, "figure") {
            let json = |name: &str| -> Vec<Value> {
                serde_json::from_str(figure.attribute(name).expect("data")).expect("a list")
            };
            let keys = json("data-keys");
            let rows = json("data-read");
            assert!(!rows.is_empty());
            for row in &rows {
                assert_eq!(row[2].as_array().map(Vec::len), Some(keys.len()), "{row}");
            }
            let places: Vec<f64> = rows.iter().filter_map(|row| row[0].as_f64()).collect();
            assert!(places.is_sorted() && places.len() == rows.len(), "{places:?}");
        }
    }
    let page = render(&[run("one")]);
    assert!(page.contains("&quot;3 to 4 s&quot;,[&quot;60,004&quot;]"), "{page}");
    assert!(
        page.contains("&quot;3 to 4 s&quot;,[&quot;2.40\u{a0}ms&quot;,&quot;1.00\u{a0}ms&quot;]"),
        "{page}"
    );
}

#[test]
fn no_runs_make_a_page_too() {
    assert!(shown(&render(&[])).contains("There is no run to report."));
    let outcomes: Vec<Outcome> = (0..30).map(|index| run(&format!("run {index}"))).collect();
    assert!(shown(&render(&outcomes)).contains("30 run 29"), "beyond the alphabet");
}

#[test]
fn what_is_written_is_what_is_rendered() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("page.html");
    write(&path, &[run("one")]).expect("written");
    assert_eq!(std::fs::read_to_string(&path).expect("there"), render(&[run("one")]));
    assert!(write(&directory.path().join("no/page.html"), &[]).is_err());
}

#[test]
fn the_main_series_is_what_the_workload_is_about() {
    let main = |workload: &str, series: &[(&str, u64)]| {
        let mut outcome = run("");
        outcome.conditions.workload = workload.to_owned();
        outcome.latencies =
            series.iter().map(|(name, count)| ((*name).to_owned(), latency(1, 2, *count))).collect();
        main_series(&outcome).map(str::to_owned)
    };
    /// A workload, its series with their counts, the main one.
    type Case = (&'static str, &'static [(&'static str, u64)], Option<&'static str>);
    let cases: [Case; 7] = [
        ("read", &[("append", 9), ("read", 1)], Some("read")),
        ("append-batch", &[("append", 1), ("read", 9)], Some("append")),
        ("mixed", &[("append", 1), ("deliver", 9), ("read", 5)], Some("append")),
        ("sse", &[("append", 9), ("deliver", 1)], Some("deliver")),
        ("churn", &[("create", 5), ("delete", 9)], Some("delete")),
        ("restart", &[("restart", 1)], Some("restart")),
        ("append", &[], None),
    ];
    for (workload, series, expected) in cases {
        assert_eq!(main(workload, series).as_deref(), expected, "{workload}");
    }
}

// --- whatever was measured

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), 0..100_u64, 0..100_000_000_u64, any::<u64>()]
}

fn any_figure() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), 0.0..1e12_f64, any::<f64>()]
}

prop_compose! {
    fn any_latency()(
        numbers in prop::collection::vec(any_number(), 6),
        mean_us in any_figure(),
        curve in prop::collection::vec((any_figure(), any_number()), 0..12),
    ) -> Latency {
        let [count, p50_us, p90_us, p99_us, p99_9_us, max_us] = numbers[..] else { unreachable!("six numbers") };
        Latency { count, mean_us, p50_us, p90_us, p99_us, p99_9_us, max_us, histogram: String::new(), curve }
    }
}

prop_compose! {
    fn any_second()(numbers in prop::collection::vec(any_number(), 7)) -> Second {
        let [at_ms, operations, records, payload_bytes, errors, p50_us, p99_us] = numbers[..] else {
            unreachable!("seven numbers")
        };
        Second { at_ms, operations, records, payload_bytes, errors, p50_us, p99_us }
    }
}

prop_compose! {
    fn any_outcome()(
        label in ".{0,40}",
        // No name that looks like an odd figure.
        latencies in prop::collection::btree_map("[a-h]{0,9}", any_latency(), 0..4),
        timeline in prop::collection::vec(any_second(), 0..6),
        numbers in prop::collection::vec(any_number(), 9),
        figures in prop::collection::vec(any_figure(), 6),
        errors in prop::collection::btree_map(".{0,20}", any_number(), 0..3),
        with_server in any::<bool>(),
    ) -> Outcome {
        let mut outcome = run(&label);
        let [measured_us, operations, records, payload_bytes, sent_bytes, received_bytes, cpu_us, memory, missing] =
            numbers[..] else { unreachable!("nine numbers") };
        outcome.measured_us = measured_us;
        outcome.totals = Totals { operations, records, payload_bytes, sent_bytes, received_bytes, errors };
        outcome.rates = Rates { operations_per_s: figures[0], records_per_s: figures[1], payload_bytes_per_s: figures[2] };
        outcome.latencies = latencies;
        outcome.timeline = timeline;
        outcome.generator.busy = figures[3];
        outcome.generator.cpu_us_per_operation = figures[4];
        outcome.server = with_server.then_some(ServerUse {
            pid: 1,
            cpu_us,
            cpu_us_per_operation: figures[5],
            resident_bytes: memory,
            peak_resident_bytes: memory,
        });
        outcome.verified = Some(Verified { missing, ..Verified::default() });
        outcome
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_figures_are_too_odd_for_a_page(outcomes in prop::collection::vec(any_outcome(), 0..9)) {
        let page = render(&outcomes);
        let document = parse(&page);
        for svg in elements(&document, "svg") {
            for attribute in svg.descendants().flat_map(|node| node.attributes()) {
                let is_a_number = !matches!(attribute.name(), "x" | "y" | "x1" | "y1" | "x2" | "y2" | "cx" | "cy" | "d" | "viewBox")
                    || !(attribute.value().contains("NaN") || attribute.value().contains("inf"));
                prop_assert!(is_a_number, "{attribute:?}");
            }
        }
        for cell in elements(&document, "td").chain(elements(&document, "dd")).chain(elements(&document, "small")) {
            let text = text_of(cell);
            prop_assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }
}
