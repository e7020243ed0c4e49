//! Subcommands and their options: one file each.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod bench;
pub mod bench_report;
pub mod inspect;
mod offline;
pub mod serve;
pub mod verify;

/// A durable Durable Streams server on io_uring.
#[derive(Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server
    Serve(serve::Options),
    /// Put load on a server and measure it
    Bench(bench::Options),
    /// Show what is on disk, offline: segments, commits, entries, footers, streams
    Inspect(inspect::Options),
    /// Check everything on disk, offline, and name what is damaged
    Verify(verify::Options),
}

/// Runs the subcommand that the command line names; the exit code says how it went. Bad flags end with 2.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(options) => serve::main(options),
        Command::Bench(options) => bench::main(options),
        Command::Inspect(options) => inspect::main(&options),
        Command::Verify(options) => verify::main(&options),
    }
}
