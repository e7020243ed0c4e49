//! The table at the end of a run, for people.

use std::fmt::Write as _;

use super::outcome::Outcome;

/// A count or rate with commas between thousands; below ten with two decimals.
pub fn count(number: f64) -> String {
    if number < 10.0 && number.fract() != 0.0 {
        return format!("{number:.2}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A latency in the unit that suits it.
pub fn latency_us(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.2} ms", us as f64 / 1e3),
        1_000_000.. => format!("{:.2} s", us as f64 / 1e6),
    }
}

fn bytes(bytes: f64) -> String {
    match bytes {
        ..1e3 => format!("{bytes:.0} B"),
        ..1e6 => format!("{:.1} kB", bytes / 1e3),
        ..1e9 => format!("{:.1} MB", bytes / 1e6),
        _ => format!("{:.2} GB", bytes / 1e9),
    }
}

/// The table.
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    let conditions = &outcome.conditions;
    let mut line = |name: &str, value: String| {
        writeln!(text, "  {name:<12} {value}").expect("a string takes it");
    };
    line("run", format!("{} ({}, seed {})", outcome.label, conditions.target, conditions.seed));
    line("measured", format!("{:.2} s", outcome.measured_us as f64 / 1e6));
    let (totals, rates) = (&outcome.totals, &outcome.rates);
    line(
        "requests",
        format!("{:>12}/s   {} in all", count(rates.operations_per_s), count(totals.operations as f64)),
    );
    line(
        "records",
        format!("{:>12}/s   {} in all", count(rates.records_per_s), count(totals.records as f64)),
    );
    let payload = (bytes(rates.payload_bytes_per_s), bytes(totals.payload_bytes as f64));
    line("payload", format!("{:>12}/s   {} in all", payload.0, payload.1));
    for (name, latency) in &outcome.latencies {
        let parts = [
            ("p50", latency.p50_us),
            ("p90", latency.p90_us),
            ("p99", latency.p99_us),
            ("p99.9", latency.p99_9_us),
            ("max", latency.max_us),
        ];
        let parts: Vec<String> =
            parts.iter().map(|(name, us)| format!("{name} {}", latency_us(*us))).collect();
        line(name, parts.join("   "));
    }
    line("errors", errors(outcome));
    let generator = &outcome.generator;
    let operations = totals.operations.max(1) as f64;
    line(
        "generator",
        format!(
            "{:.2} us of CPU a request, busy {:.0} %",
            generator.cpu_us_per_operation,
            generator.busy * 100.0
        ),
    );
    if let Some(server) = &outcome.server {
        let memory = (bytes(server.resident_bytes as f64), bytes(server.peak_resident_bytes as f64));
        let cpu_us = server.cpu_us as f64 / operations;
        line(
            "server",
            format!("{cpu_us:.2} us of CPU a request, {} resident, {} at most", memory.0, memory.1),
        );
    }
    if let Some(verified) = &outcome.verified {
        let found = format!("{} records in {} streams", count(verified.records as f64), verified.streams);
        let problem =
            verified.first_problem.as_ref().map(|problem| format!(": {problem}")).unwrap_or_default();
        let wrong = format!("{} missing, {} different{problem}", verified.missing, verified.different);
        line("verified", format!("{found}, {wrong}"));
    }
    for (name, value) in &outcome.extra {
        line(&name.replace('_', " "), value.to_string());
    }
    if generator.limited {
        line("LIMIT", format!("the generator, not the server, was the limit: {}", generator.why));
    }
    text
}

fn errors(outcome: &Outcome) -> String {
    let errors = &outcome.totals.errors;
    if errors.is_empty() {
        return "none".to_owned();
    }
    let parts: Vec<String> =
        errors.iter().map(|(name, number)| format!("{} x {name}", count(*number as f64))).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::outcome;
    use super::*;

    #[test]
    fn numbers_read_well() {
        let counts =
            [(0.0, "0"), (0.5, "0.50"), (999.4, "999"), (1000.0, "1,000"), (1_234_567.0, "1,234,567")];
        for (number, text) in counts {
            assert_eq!(count(number), text);
        }
        assert_eq!([999, 1_500, 2_000_000].map(latency_us), ["999 us", "1.50 ms", "2.00 s"]);
        assert_eq!([12.0, 1.5e3, 2e6, 3.25e9].map(bytes), ["12 B", "1.5 kB", "2.0 MB", "3.25 GB"]);
    }

    #[test]
    fn nothing_bad_is_hidden() {
        let text = table(&outcome::tests::example());
        for part in
            ["3 x 503 SHARD_LATCHED", "1 missing", ": x", "not the server, was the limit: busy", "cycles"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut clean = outcome::tests::example();
        clean.generator.limited = false;
        clean.totals.errors.clear();
        let text = table(&clean);
        assert!(text.contains("errors       none") && !text.contains("LIMIT"), "{text}");
    }
}
