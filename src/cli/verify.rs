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
    after_help = "Exit codes: 0 all is well, 7 a server uses it, 9 a newer version wrote it, 10 damage."
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
    let walked = target.walk(&mut walk);
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cli::offline::testing::data_dir;

    fn run(path: &Path) -> (Exit, String) {
        let mut out = Vec::new();
        let exit = verify(&Options { path: path.to_path_buf() }, &mut out).unwrap_or_else(|failure| {
            panic!("{failure}");
        });
        (exit, String::from_utf8(out).expect("text"))
    }

    #[test]
    fn the_verdict_and_the_exit_code_say_what_was_found() {
        let dir = data_dir();
        let (exit, out) = run(dir.path());
        let well = "all is well: 2 segments of 3.0 MiB, 5 commits, 9 entries, 4 records\n";
        assert_eq!((exit, &*out), (Exit::Clean, well));

        let segment = dir.path().join("generation-000001/shard-000/segment-0000000001.log");
        let mut bytes = std::fs::read(&segment).expect("readable");
        bytes[8192 + 300] ^= 1;
        std::fs::write(&segment, &bytes).expect("writable");
        let (exit, out) = run(dir.path());
        assert_eq!(exit, Exit::Damaged);
        let named = format!("DAMAGE: {} @8192: commit 2 is due there", segment.display());
        assert!(out.starts_with(&named), "{out}");
        assert_eq!(run(&segment).0, Exit::Damaged);

        // A later version: its checksum is right.
        bytes[8] = 2;
        let checksum = crc32c::crc32c(&bytes[..4092]);
        bytes[4092..4096].copy_from_slice(&checksum.to_le_bytes());
        std::fs::write(&segment, &bytes).expect("writable");
        assert_eq!(run(dir.path()).0, Exit::NewerFormat);
    }

    #[test]
    fn a_directory_in_use_is_left_alone() {
        let dir = data_dir();
        let _held = offline::lock(dir.path()).expect("free").expect("there is a lock file");
        let shard = dir.path().join("generation-000001/shard-000");
        for path in [dir.path(), &shard, &shard.join("segment-0000000001.log")] {
            let failure = verify(&Options { path: path.to_path_buf() }, &mut Vec::new()).expect_err("locked");
            assert_eq!(failure.code, Exit::DataDirInUse.code(), "{}", path.display());
        }
    }
}
