//! Options of `thalweg verify`: checks every byte that counts, offline, and names what is damaged.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::offline::{self, Target};
use crate::node::exit::{Exit, Failure};
use crate::storage::format::BadStructure;
use crate::storage::inspect::{Row, Totals, Walk, size, write_text};

/// Options of `thalweg verify`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 all is well, 7 a server uses the directory, 9 a newer version wrote it, 10 damage was found."
)]
pub struct Options {
    /// A data directory, the directory of one shard, or one segment file
    #[arg(value_name = "PATH", default_value = "data")]
    path: PathBuf,
}

/// Runs the subcommand.
pub fn main(options: &Options) -> ExitCode {
    match verify(options, &mut io::stdout().lock()) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("thalweg verify: {failure}");
            failure.code.into()
        }
    }
}

fn verify(options: &Options, out: &mut dyn Write) -> Result<Exit, Failure> {
    let target = Target::of(&options.path)?;
    // What a server is writing would look like damage.
    let _lock = offline::lock(&options.path)?;
    let mut is_newer = false;
    let mut sink = |row: &Row<'_>| match row {
        Row::Finding(_) => write_text(out, row),
        Row::Segment { header: Err(BadStructure::NewerVersion(_)), .. } => {
            is_newer = true;
            Ok(())
        }
        _ => Ok(()),
    };
    let mut walk = Walk::new(&mut sink);
    let walked = match &target {
        Target::DataDir(_, logs) => logs.iter().try_for_each(|log| walk.log(log)),
        Target::Log(log) => walk.log(log),
        Target::Segment(path) => walk.lone_segment(path),
    };
    let totals = walk.totals();
    walked
        .and_then(|()| write_verdict(&totals, out))
        .map_err(|error| Failure::new(Exit::Failed, format!("writing: {error}")))?;
    Ok(match totals.damages {
        0 => Exit::Clean,
        _ if is_newer => Exit::NewerFormat,
        _ => Exit::Damaged,
    })
}

fn write_verdict(totals: &Totals, out: &mut dyn Write) -> io::Result<()> {
    let Totals { segments, commits, entries, records, bytes, damages, .. } = totals;
    let verdict = if *damages == 0 { "all is well".to_string() } else { format!("{damages} damages") };
    writeln!(
        out,
        "{verdict}: {segments} segments of {}, {commits} commits, {entries} entries, {records} records",
        size(*bytes)
    )
}
