//! Options of `thalweg bench report`: puts the outcomes of runs on one page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::loadgen::outcome::Outcome;
use crate::loadgen::report;

/// Options of `thalweg bench report`.
#[derive(Args, Debug)]
#[command(after_help = "Ratios are to the first run; conditions that differ are marked.")]
pub struct Options {
    /// Outcomes of runs (`--json`), in the order of the page
    #[arg(value_name = "OUTCOME", required = true)]
    outcomes: Vec<PathBuf>,

    /// The page: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Writes the page. Ends with 1 if an outcome cannot be read or the page not be written, and then writes none.
pub fn main(options: &Options) -> ExitCode {
    match write_report(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("thalweg bench report: {why}");
            ExitCode::FAILURE
        }
    }
}

fn write_report(options: &Options) -> Result<(), String> {
    let Options { outcomes, out } = options;
    if outcomes.iter().any(|outcome| is_same_file(outcome, out)) {
        return Err(format!("{} is an outcome: --out would overwrite it", out.display()));
    }
    let outcomes =
        outcomes.iter().map(|path| Outcome::read(path)).collect::<Result<Vec<Outcome>, String>>()?;
    report::write(out, &outcomes).map_err(|error| format!("cannot write {}: {error}", out.display()))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        // What does not exist cannot be overwritten.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Harness {
        #[command(flatten)]
        options: Options,
    }

    fn outcome(label: &str) -> String {
        let latency = json!({"count": 1, "mean_us": 1.0, "p50_us": 1, "p90_us": 1, "p99_us": 1, "p99_9_us": 1,
            "max_us": 1, "histogram": "", "curve": [[0.0, 1]]});
        json!({
            "format": "thalweg-bench", "version": 1, "label": label,
            "conditions": {"command": "", "commit": "", "thalweg": "", "machine": "", "cores": 2, "kernel": "",
                "disk": "", "started_at": "", "target": "", "style": "", "workload": "append", "seed": 1,
                "options": {}},
            "measured_us": 1,
            "totals": {"operations": 1, "records": 1, "payload_bytes": 1, "sent_bytes": 1, "received_bytes": 1,
                "errors": {}},
            "rates": {"operations_per_s": 1.0, "records_per_s": 1.0, "payload_bytes_per_s": 1.0},
            "latencies": {"append": latency}, "timeline": [],
            "generator": {"cpu_us": 1, "cpu_us_per_operation": 1.0, "busy": 0.5, "limited": false, "why": ""},
            "server": null, "verified": null, "extra": {},
        })
        .to_string()
    }

    #[test]
    fn outcomes_become_a_page_in_their_order() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        fs::write(path("one.json"), outcome("first <run>")).expect("written");
        fs::write(path("two.json"), outcome("second")).expect("written");
        let options = |outcomes: &[&str], out: &str| {
            let files = outcomes.iter().map(|name| path(name).into_os_string());
            let arguments = [path("report").into_os_string()].into_iter().chain(files);
            let out = ["--out".into(), path(out).into_os_string()];
            Harness::try_parse_from(arguments.chain(out)).map(|harness| harness.options)
        };

        write_report(&options(&["two.json", "one.json"], "page.html").expect("options")).expect("a page");
        let page = fs::read_to_string(path("page.html")).expect("written");
        let places = ["<bdi>second</bdi>", "<bdi>first &lt;run&gt;</bdi>"].map(|label| page.find(label));
        assert!(places[0].is_some() && places[0] < places[1], "{places:?}");

        let refused = |outcomes: &[&str], out: &str| write_report(&options(outcomes, out).expect("options"));
        assert!(refused(&["one.json"], "one.json").expect_err("an outcome").contains("would overwrite it"));
        assert_eq!(fs::read_to_string(path("one.json")).expect("still there"), outcome("first <run>"));
        fs::write(path("other.json"), "{}").expect("written");
        let error = refused(&["one.json", "other.json"], "none.html").expect_err("no outcome");
        assert!(error.contains("other.json: not the outcome of a run"), "{error}");
        assert!(!path("none.html").exists(), "half of a comparison is none");
        let error = refused(&["one.json"], "no/page.html").expect_err("no directory");
        assert!(error.contains("cannot write") && error.contains("page.html"), "{error}");
        assert!(options(&[], "page.html").is_err(), "at least one");
    }
}
