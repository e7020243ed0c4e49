//! Subcommands and their options: one file each.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod serve;

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
}

/// Runs the subcommand that the command line names; the exit code says how it went. Bad flags end with 2.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(options) => serve::main(options),
    }
}
