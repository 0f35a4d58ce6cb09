//! The `splitprover` program: one file per subcommand.
//!
//! The order of arguments is that of snarkjs and rapidsnark. Exit codes are those of [`Failure`]. Errors are one line on standard
//! error; long work shows a progress bar on a terminal and nothing in a pipe; `--json` prints one JSON document.

mod backend;
mod bench;
mod check;
mod conform;
mod export_params;
mod export_vk;
mod failure;
mod inspect;
mod kernels;
mod key_file;
mod progress;
mod prove;
mod setup;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::formats::survive_shrinking;
pub use failure::Failure;

/// A Groth16 prover over BLS12-381.
#[derive(Debug, Parser)]
#[command(name = "splitprover", version, about, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prove: a key and a witness go in, a verified proof and the public inputs come out
    Prove(prove::Arguments),
    /// Verify a proof
    Verify(verify::Arguments),
    /// Write a key's verification key
    ExportVk(export_vk::Arguments),
    /// Write a key as bellperson reads it (.params)
    ExportParams(export_params::Arguments),
    /// Say what a zkey, params, wtns or r1cs file holds, and whether it is sound
    Inspect(inspect::Arguments),
    /// Compute the same sums on every backend and compare them; with --r1cs, look for a broken constraint
    Check(check::Arguments),
    /// Make a development key. Its trapdoor is known: INSECURE
    Setup(setup::Arguments),
    /// Run the suite that every backend must pass, or compare two backends on random keys
    Conform(Box<conform::Arguments>),
    /// Time a backend: multi-exponentiations, transforms, whole proofs, every result checked
    #[command(subcommand)]
    Bench(Box<bench::Bench>),
    /// Compile a backend's kernels ahead of time, where there is no device
    Kernels(kernels::Arguments),
    /// List every backend: loaded, or why not
    Backends(backend::ListArguments),
}

/// Runs the program on the process's arguments.
pub fn main() -> ExitCode {
    // What is freed shows in resident memory then; otherwise tens of megabytes stay after a proof (backend-cpu/NOTES.md).
    let _ = splitprover_core::host_buf::map_large_blocks();
    // Usage errors are exit code 2, help and version 0: clap's own choice is ours.
    let cli = Cli::parse();
    // A key that is cut while it is mapped is a bad file, not a crash. Without the handler it would be one; nothing else changes.
    let _ = survive_shrinking();
    let result = match cli.command {
        Command::Prove(arguments) => prove::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::ExportVk(arguments) => export_vk::run(&arguments),
        Command::ExportParams(arguments) => export_params::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Setup(arguments) => setup::run(&arguments),
        Command::Conform(arguments) => conform::run(&arguments),
        Command::Bench(bench) => bench::run(&bench),
        Command::Kernels(arguments) => kernels::run(&arguments),
        Command::Backends(arguments) => backend::list(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}

/// Prints a JSON document to standard output.
fn print_json(value: &serde_json::Value) {
    print(&format!("{value:#}\n"));
}

/// Prints to standard output. A reader that went away (`| head`) is no error of ours.
fn print(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
