//! The `thalweg` binary: dispatch a subcommand, return its exit code.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    thalweg::cli::main()
}
