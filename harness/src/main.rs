//! The `splitprover` program. Everything is in the library, under `cli`.

fn main() -> std::process::ExitCode {
    splitprover_harness::cli::main()
}
