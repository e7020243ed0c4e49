//! What a run found, as one JSON object: what `--json` writes, and what a report is made from.
//!
//! Contract: plain data. Whatever this version writes it reads back unchanged, whatever a later one adds is ignored, and a
//! file of another format or version is refused by name. Times are in microseconds unless a name says otherwise.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Value of [`Outcome::format`].
pub const FORMAT: &str = "thalweg-bench";
/// Value of [`Outcome::version`].
pub const VERSION: u32 = 1;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// What the run is called on a page (`--label`).
    pub label: String,
    /// Where and how it ran.
    pub conditions: Conditions,
    /// Length of the measured window.
    pub measured_us: u64,
    /// What was counted in the window.
    pub totals: Totals,
    /// The same by second.
    pub rates: Rates,
    /// One series for each kind of operation: `append`, `read`, `deliver`, `restart`, ...
    pub latencies: BTreeMap<String, Latency>,
    /// The measured window, second by second; the last one may be shorter.
    pub timeline: Vec<Second>,
    /// The cost of the load generator itself.
    pub generator: Generator,
    /// The cost of the server; only with `--server-pid`.
    pub server: Option<ServerUse>,
    /// What reading everything back found; only with `--verify`.
    pub verified: Option<Verified>,
    /// What only one workload has to tell.
    pub extra: BTreeMap<String, Value>,
}

/// Where and how a run took place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// The command line.
    pub command: String,
    /// Commit of the repository that the generator was started in; empty if there is none.
    pub commit: String,
    /// Version of the load generator.
    pub thalweg: String,
    /// Model of the processor.
    pub machine: String,
    /// Cores that the machine has.
    pub cores: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// File system of the server's data directory if it is known, else of the working directory.
    pub disk: String,
    /// When the run started: UTC, RFC 3339, whole seconds.
    pub started_at: String,
    /// Address of the server.
    pub target: String,
    /// How streams are addressed: `thalweg`, `durable` or `ursula`.
    pub style: String,
    /// The workload.
    pub workload: String,
    /// Seed of names and payloads.
    pub seed: u64,
    /// All options that shape the load, by name; the name carries the unit.
    pub options: BTreeMap<String, Value>,
}

/// Sums over the measured window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Requests that succeeded; of live readers, records delivered (of `sse` and `long-poll` only these); restarts.
    pub operations: u64,
    /// Records that they wrote, read or delivered.
    pub records: u64,
    /// Bytes of these records, without framing and encoding.
    pub payload_bytes: u64,
    /// Bytes sent over all connections, heads included.
    pub sent_bytes: u64,
    /// Bytes received over all connections, heads included.
    pub received_bytes: u64,
    /// What failed, by status and code (`503 SHARD_LATCHED`) or by what happened (`connection reset`).
    pub errors: BTreeMap<String, u64>,
}

/// Sums by second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Requests.
    pub operations_per_s: f64,
    /// Records.
    pub records_per_s: f64,
    /// Bytes of records.
    pub payload_bytes_per_s: f64,
}

/// Latencies of one kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: u64,
    /// 90 % took at most this.
    pub p90_us: u64,
    /// 99 % took at most this.
    pub p99_us: u64,
    /// 99.9 % took at most this.
    pub p99_9_us: u64,
    /// The slowest.
    pub max_us: u64,
    /// Base64 of the V2+DEFLATE serialisation of the HDR histogram, in microseconds.
    pub histogram: String,
    /// Percentile (0 to 100) and latency at it, both growing: enough points to draw the curve.
    pub curve: Vec<(f64, u64)>,
}

/// One second of the measured window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Its end, from the start of the window.
    pub at_ms: u64,
    /// Requests that succeeded in it.
    pub operations: u64,
    /// Records.
    pub records: u64,
    /// Bytes of records.
    pub payload_bytes: u64,
    /// Failures.
    pub errors: u64,
    /// Median latency of the workload's main series.
    pub p50_us: u64,
    /// 99th percentile of it.
    pub p99_us: u64,
}

/// What the load generator itself used in the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// CPU time of its threads, kernel included.
    pub cpu_us: u64,
    /// The same by operation.
    pub cpu_us_per_operation: f64,
    /// Part of the window that its busiest thread was on a core, 0 to 1.
    pub busy: f64,
    /// Whether the generator, not the server, was the limit.
    pub limited: bool,
    /// Why it was; empty if it was not.
    pub why: String,
}

/// What the server's process used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUse {
    /// Its process id.
    pub pid: u32,
    /// CPU time in the measured window, kernel included.
    pub cpu_us: u64,
    /// The same by operation.
    pub cpu_us_per_operation: f64,
    /// Resident memory at the end of the window.
    pub resident_bytes: u64,
    /// The most it was since the server started.
    pub peak_resident_bytes: u64,
}

/// What reading everything back found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Streams read.
    pub streams: u64,
    /// Records found as they should be.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Acknowledged records that are not there.
    pub missing: u64,
    /// Records that are there twice, out of order, in the wrong stream, changed, or were never written.
    pub different: u64,
    /// The first of either.
    pub first_problem: Option<String>,
}

impl Outcome {
    /// The JSON, indented.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("an outcome is plain data");
        text.push('\n');
        text
    }

    /// Reads what [`Outcome::to_json`] wrote. The error says what is wrong with the text.
    pub fn from_json(text: &str) -> Result<Outcome, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        if value["format"] != FORMAT {
            return Err(format!("not the outcome of a run: its `format` is not `{FORMAT}`"));
        }
        if value["version"] != VERSION {
            return Err(format!("an outcome of version {}, this program reads {VERSION}", value["version"]));
        }
        serde_json::from_value(value).map_err(|error| format!("not a whole outcome: {error}"))
    }

    /// Reads a file. The error names it.
    pub fn read(path: &Path) -> Result<Outcome, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Outcome::from_json(&text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One with every field set, also those that are often not.
    pub fn example() -> Outcome {
        let options = [("streams", 64.into()), ("rate_per_s", Value::Null), ("cpus", vec![1].into())];
        Outcome {
            format: FORMAT.to_owned(),
            version: VERSION,
            label: "append \"c64\"".to_owned(),
            conditions: Conditions {
                command: "thalweg bench append".to_owned(),
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
                seed: u64::MAX,
                options: options.map(|(name, value)| (name.to_owned(), value)).into(),
            },
            measured_us: 10_000_123,
            totals: Totals {
                operations: 1,
                records: 2,
                payload_bytes: 3,
                sent_bytes: 4,
                received_bytes: 5,
                errors: [("503 SHARD_LATCHED".to_owned(), 3)].into(),
            },
            rates: Rates { operations_per_s: 0.1, records_per_s: 0.2, payload_bytes_per_s: 1e9 },
            latencies: [(
                "append".to_owned(),
                Latency {
                    count: 1,
                    mean_us: 1.5,
                    p50_us: 1,
                    p90_us: 2,
                    p99_us: 3,
                    p99_9_us: 4,
                    max_us: 5,
                    histogram: "HISTFA==".to_owned(),
                    curve: vec![(0.0, 1), (50.0, 1), (99.999, 5)],
                },
            )]
            .into(),
            timeline: vec![Second { at_ms: 1000, operations: 1, p99_us: 3, ..Second::default() }],
            generator: Generator {
                cpu_us: 1,
                cpu_us_per_operation: 1.0,
                busy: 0.93,
                limited: true,
                why: "busy".to_owned(),
            },
            server: Some(ServerUse { pid: 7, cpu_us: 1, cpu_us_per_operation: 14.2, ..ServerUse::default() }),
            verified: Some(Verified {
                streams: 64,
                missing: 1,
                first_problem: Some("x".to_owned()),
                ..Verified::default()
            }),
            extra: [("cycles".to_owned(), 12.into())].into(),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let whole = example();
        assert_eq!(Outcome::from_json(&whole.to_json()).unwrap(), whole);
        let bare = Outcome { server: None, verified: None, timeline: vec![], ..example() };
        assert_eq!(Outcome::from_json(&bare.to_json()).unwrap(), bare);
    }

    #[test]
    fn what_a_later_program_adds_is_ignored() {
        let mut value: Value = serde_json::from_str(&example().to_json()).unwrap();
        value["totals"]["news"] = 1.into();
        assert_eq!(Outcome::from_json(&value.to_string()).unwrap(), example());
    }

    #[test]
    fn other_texts_are_refused_by_name() {
        let with = |member: &str, new: Value| {
            let mut value: Value = serde_json::from_str(&example().to_json()).unwrap();
            value[member] = new;
            Outcome::from_json(&value.to_string()).unwrap_err()
        };
        assert!(with("format", "wrk".into()).contains("`thalweg-bench`"));
        assert!(with("version", 2.into()).contains("version 2"));
        assert!(with("totals", Value::Null).contains("not a whole outcome"));
        assert!(Outcome::from_json("{").unwrap_err().contains("not JSON"));
        let error = Outcome::read(Path::new("no/such/file")).unwrap_err();
        assert!(error.contains("no/such/file"), "{error}");
    }
}
