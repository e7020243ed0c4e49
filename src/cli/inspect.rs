//! Options of `thalweg inspect`: shows what is on disk, offline.

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::offline::{self, Target};
use crate::node::exit::{Exit, Failure};
use crate::node::manifest::Manifest;
use crate::shard;
use crate::storage::codec::Entry;
use crate::storage::event::Event;
use crate::storage::inspect::{Row, Totals, Walk, lineage_of, size, write_json, write_text};

/// Options of `thalweg inspect`.
#[derive(Args, Debug)]
pub struct Options {
    /// A data directory, the directory of one shard, or one segment file
    #[arg(value_name = "PATH", default_value = "data")]
    path: PathBuf,

    /// Write one JSON object a line instead of text
    #[arg(long)]
    json: bool,

    /// Show every commit
    #[arg(long)]
    commits: bool,

    /// Show every entry, with the first bytes of its payload
    #[arg(long)]
    entries: bool,

    /// Show only the stream with this key (`bucket/stream`, or `/path` on the flat surface): its entries and
    /// its state
    #[arg(long, value_name = "KEY")]
    stream: Option<String>,
}

/// Runs the subcommand.
pub fn main(options: &Options) -> ExitCode {
    let mut out = BufWriter::new(io::stdout().lock());
    match inspect(options, &mut out).and_then(|()| out.flush().map_err(io_failure)) {
        Ok(()) => Exit::Clean.into(),
        Err(failure) => {
            eprintln!("thalweg inspect: {failure}");
            failure.code.into()
        }
    }
}

fn io_failure(error: io::Error) -> Failure {
    // A reader that has seen enough (`| head`) is no failure.
    let exit = if error.kind() == io::ErrorKind::BrokenPipe { Exit::Clean } else { Exit::Failed };
    Failure::new(exit, format!("writing: {error}"))
}

fn inspect(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let target = Target::of(&options.path)?;
    let lock = offline::lock(&options.path);
    if let Err(failure) = &lock {
        eprintln!("thalweg inspect: {failure}; what it is writing may look unfinished");
    }
    if let Target::DataDir(manifest, _) = &target {
        write_manifest(options, manifest, out).map_err(io_failure)?;
    }
    let mut shown = HashSet::new();
    let mut shard = 0;
    let mut sink = |row: &Row<'_>| {
        if let (Row::Log { path, .. }, Target::DataDir(_, logs)) = (row, &target) {
            shard = logs.iter().position(|log| log == path).unwrap_or(shard);
        }
        if !is_wanted(options, row, &mut shown) || belongs_elsewhere(&target, shard, row) {
            return Ok(());
        }
        if options.json { write_json(out, row) } else { write_text(out, row) }
    };
    let mut walk = Walk::new(&mut sink);
    target.walk(&mut walk).map_err(io_failure)?;
    let totals = walk.totals();
    if options.json { Ok(()) } else { write_totals(&totals, out).map_err(io_failure) }
}

/// Whether a row is to be shown; `shown` gathers the lineages of the stream that was asked for.
fn is_wanted(options: &Options, row: &Row<'_>, shown: &mut HashSet<u64>) -> bool {
    match row {
        Row::Commit { .. } => options.commits,
        Row::Entry { entry, .. } => match &options.stream {
            None => options.entries,
            Some(key) => {
                if let Entry::Event(Event::StreamCreated(created)) = entry
                    && created.key == key.as_bytes()
                {
                    shown.insert(created.lineage);
                }
                lineage_of(entry).is_some_and(|lineage| shown.contains(&lineage))
            }
        },
        Row::Stream(stream) => options.stream.as_ref().is_none_or(|key| stream.key == key.as_bytes()),
        _ => true,
    }
}

/// Whether a row shows a stream of another shard: where the number of shards has changed, a log holds earlier parts of them,
/// and what it knows of them is out of date.
fn belongs_elsewhere(target: &Target, shard: usize, row: &Row<'_>) -> bool {
    let (Target::DataDir(manifest, _), Row::Stream(stream)) = (target, row) else { return false };
    shard::owner(stream.placement, manifest.shards()) != shard
}

fn write_manifest(options: &Options, manifest: &Manifest, out: &mut dyn Write) -> io::Result<()> {
    let Manifest { generation, placement_seed, log_ids, .. } = manifest;
    if options.json {
        let row = serde_json::json!({
            "row": "manifest", "generation": generation, "placement_seed": placement_seed, "logs": log_ids,
        });
        return writeln!(out, "{row}");
    }
    writeln!(
        out,
        "data directory {}: generation {generation}, {} shards, placement seed {placement_seed:016x}",
        options.path.display(),
        log_ids.len()
    )
}

fn write_totals(totals: &Totals, out: &mut dyn Write) -> io::Result<()> {
    let Totals { segments, commits, entries, records, bytes, damages, notes } = totals;
    writeln!(
        out,
        "\n{segments} segments of {}, {commits} commits, {entries} entries, {records} records; \
         {damages} damages, {notes} notes",
        size(*bytes)
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cli::offline::testing::data_dir;

    fn run(path: &Path, change: impl FnOnce(&mut Options)) -> String {
        let path = path.to_path_buf();
        let mut options = Options { path, json: false, commits: false, entries: false, stream: None };
        change(&mut options);
        let mut out = Vec::new();
        inspect(&options, &mut out).expect("readable");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn each_option_shows_what_it_says() {
        let dir = data_dir();
        let plain = run(dir.path(), |_| {});
        assert!(plain.starts_with("data directory ") && plain.contains("1 shards"), "{plain}");
        assert!(
            plain.ends_with("\n2 segments of 3.0 MiB, 5 commits, 9 entries, 4 records; 0 damages, 0 notes\n"),
            "{plain}"
        );
        assert!(
            !plain.contains("commit 1 ") && plain.contains("stream \"orders/eu\"") && plain.contains("/flat"),
            "{plain}"
        );
        let commits = run(dir.path(), |options| options.commits = true);
        assert!(commits.contains("@4096 commit 1 ") && !commits.contains("bucket_created"), "{commits}");
        let entries = run(dir.path(), |options| options.entries = true);
        assert!(
            entries.contains("bucket_created \"orders\"") && !entries.contains("@4096 commit 1 "),
            "{entries}"
        );
        let one = run(dir.path(), |options| options.stream = Some("/flat".to_string()));
        assert!(one.contains("stream_deleted lineage 11") && !one.contains("lineage 10"), "{one}");
    }

    #[test]
    fn json_is_one_object_a_line() {
        let dir = data_dir();
        let text = run(dir.path(), |options| {
            options.json = true;
            options.entries = true;
        });
        let rows = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line));
        let kinds: Vec<String> = rows.map(|row| row["row"].as_str().expect("a kind").to_string()).collect();
        assert_eq!(kinds[..3], ["manifest", "log", "segment"]);
        assert_eq!(kinds.len(), 1 + 1 + 3 + 9 + 3 + 2);
    }

    #[test]
    fn a_shard_and_a_segment_can_be_shown_alone() {
        let dir = data_dir();
        let shard = dir.path().join("generation-000001/shard-000");
        let segment = shard.join("segment-0000000002.log");
        assert!(run(&shard, |_| {}).contains("5 commits"));
        assert!(run(&segment, |_| {}).contains("2 commits"));
        assert!(Target::of(&dir.path().join("generation-000001")).is_err());
        assert!(Target::of(&dir.path().join("nowhere")).is_err());
    }
}
