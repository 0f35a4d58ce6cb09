//! Random keys and inputs on two backends: equal sums, or the backend that is wrong is named.
//!
//! A test program with a `main` of its own, so that it can be carried to a machine with a device and without a tool chain, and
//! asked there for any two backends (`--help` lists what else there is):
//!
//! ```text
//! compare --backend NAME|PATH [--against NAME|PATH] [--cases N] [--max-log2 N] [--seed N]
//! ```
//! What isn't given comes from the environment (`SPLITPROVER_COMPARE`, `SPLITPROVER_COMPARE_WITH`, `…_CASES`, `…_MAX_LOG2`, `…_SEED`),
//! and else is the CPU backend's own shared library against the CPU backend that is linked in. Only without a backend to
//! compare is anything built, and the program itself tested. Exit codes are those of `splitprover`: 0 the two agree, 1 they don't,
//! 2 usage, 4 a backend can't be had. `splitprover conform NAME --against NAME` does the same.

use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Parser;
use splitprover_core::abi::{Backend, OpenOptions};
use splitprover_harness::conformance::{Comparison, ComparisonOptions, Subject, compare};
use splitprover_harness::loader::Registry;
use splitprover_tests::plugins;

/// Compares the sums that two backends compute for random keys and inputs.
#[derive(Debug, Parser)]
#[command(name = "compare")]
struct Arguments {
    /// Backend: a name, or the path of a shared library
    #[arg(long, value_name = "NAME|PATH")]
    backend: Option<String>,
    /// The other one [default: cpu, which is linked in]
    #[arg(long, value_name = "NAME|PATH")]
    against: Option<String>,
    /// Device of the backend
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// An option of the backend's own
    #[arg(long = "option", value_name = "KEY=VALUE")]
    options: Vec<String>,
    /// Random keys, with one proof each [default: 40]
    #[arg(long)]
    cases: Option<u32>,
    /// Domains of up to 2^N rows [default: 9]
    #[arg(long, value_name = "N")]
    max_log2: Option<u32>,
    /// Seed of all randomness; a fresh one without it
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    cargo: Cargo,
}

/// What `cargo test` passes on to every test program.
#[derive(Debug, clap::Args)]
struct Cargo {
    /// Only checks whose names contain one of these
    filters: Vec<String>,
    #[arg(long, hide = true)]
    exact: bool,
    #[arg(long, hide = true)]
    list: bool,
    #[arg(long, hide = true)]
    ignored: bool,
    #[arg(long, hide = true)]
    include_ignored: bool,
    #[arg(long, hide = true, alias = "no-capture")]
    nocapture: bool,
    #[arg(long, hide = true)]
    show_output: bool,
    #[arg(long, short, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    test_threads: Option<usize>,
}

impl Cargo {
    fn wants(&self, name: &str) -> bool {
        let named = |filter: &String| if self.exact { filter == name } else { name.contains(filter.as_str()) };
        !self.ignored && (self.filters.is_empty() || self.filters.iter().any(named))
    }
}

/// Why there is no agreement, by exit code.
enum Failure {
    Disagreement(String),
    Usage(String),
    Backend(String),
}

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("SPLITPROVER_COMPARE{name}")).ok()
}

fn number<T: std::str::FromStr>(given: Option<T>, name: &str, usual: T) -> Result<T, Failure> {
    let parse = |text: String| {
        text.parse().map_err(|_| Failure::Usage(format!("SPLITPROVER_COMPARE{name}: {text:?} is no number")))
    };
    given.map_or_else(|| variable(name).map_or(Ok(usual), parse), Ok)
}

fn reference() -> Subject<Backend> {
    Subject::backend(Registry::new(), "cpu", OpenOptions::new(0))
}

fn backends_agree(arguments: &Arguments, request: &str) -> Result<(), Failure> {
    let mut open = OpenOptions::new(arguments.device);
    for option in &arguments.options {
        let (key, value) =
            option.split_once('=').ok_or_else(|| Failure::Usage(format!("--option {option}: expected KEY=VALUE")))?;
        open = open.set(key, value);
    }
    let with = arguments.against.clone().or_else(|| variable("_WITH")).unwrap_or_else(|| "cpu".to_owned());
    let other = Subject::backend(Registry::new(), &with, OpenOptions::new(0));
    let backend = Subject::backend(Registry::new(), request, open);
    let options = ComparisonOptions {
        cases: number(arguments.cases, "_CASES", 40)?,
        max_log2: number(arguments.max_log2, "_MAX_LOG2", 9)?,
        seed: number(arguments.seed, "_SEED", ComparisonOptions::default().seed)?,
    };
    let comparison = compare(&other, &backend, options, || ()).map_err(Failure::Backend)?;
    println!("{}", comparison.to_text());
    if comparison.agrees() { Ok(()) } else { Err(Failure::Disagreement("the backends disagree".into())) }
}

fn the_wrong_one_of_two_backends_is_named() {
    let path = plugins::misbehaving();
    let open = OpenOptions::new(0).set("mode", "wrong-b-g1");
    let wrong = Subject::backend(Registry::empty(), utf8(&path), open);
    let options = ComparisonOptions { cases: 4, max_log2: 4, ..ComparisonOptions::default() };
    let comparison: Comparison = compare(&reference(), &wrong, options, || ()).unwrap();
    let disagreement = comparison.disagreement.as_ref().expect("a wrong sum");
    assert!(disagreement.message.ends_with("is wrong in b_g1"), "{}", comparison.to_text());
    // The fault is in every proof, so the smallest key shows it.
    assert!(disagreement.case.contains("domain_log2: 0, rows: 0, variables: 1,"), "{}", comparison.to_text());
}

/// This program, as it is called where it was carried to.
fn exit_codes_tell_disagreement_usage_and_a_missing_backend_apart() {
    let misbehaving = plugins::misbehaving();
    let small = ["--cases", "3", "--max-log2", "3"];
    let called = |arguments: &[&str]| {
        let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
        for name in ["", "_WITH", "_CASES", "_MAX_LOG2", "_SEED"] {
            command.env_remove(format!("SPLITPROVER_COMPARE{name}"));
        }
        let output = command.args(arguments).output().expect("this program runs");
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (output.status.code(), said)
    };
    let wrong = ["--backend", utf8(&misbehaving), "--option", "mode=wrong-a"];
    for (arguments, code, part) in [
        ([&["--backend", utf8(&misbehaving)][..], &small].concat(), 0, "agree on 3 random keys up to 2^3"),
        ([&["--backend", "cpu", "--against", utf8(&misbehaving)][..], &small].concat(), 0, "agree on 3"),
        ([&wrong[..], &small].concat(), 1, "is wrong in a"),
        (vec!["--backend"], 2, "a value is required for '--backend"),
        (vec!["--bakend", "cpu"], 2, "--bakend"),
        (vec!["--backend", "cpu", "--option", "mode"], 2, "expected KEY=VALUE"),
        (vec!["--backend", "/nowhere/lib.so"], 4, "/nowhere/lib.so: no such file"),
        (vec!["--backend", "cpu", "--against", "no-such-backend"], 4, "no backend \"no-such-backend\""),
    ] {
        let (status, said) = called(&arguments);
        assert!(status == Some(code) && said.contains(part), "{arguments:?}: {status:?}, expected {code}: {said}");
    }
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    const AGREES: &str = "a_backend_agrees_with_the_reference_on_random_keys";
    const CHECKS: [(&str, fn()); 2] = [
        ("the_wrong_one_of_two_backends_is_named", the_wrong_one_of_two_backends_is_named),
        (
            "exit_codes_tell_disagreement_usage_and_a_missing_backend_apart",
            exit_codes_tell_disagreement_usage_and_a_missing_backend_apart,
        ),
    ];
    if arguments.cargo.list {
        [AGREES].into_iter().chain(CHECKS.map(|check| check.0)).for_each(|name| println!("{name}: test"));
        return Ok(());
    }
    let asked = arguments.backend.clone().or_else(|| variable(""));
    if asked.is_none() && arguments.against.is_some() {
        return Err(Failure::Usage("--against needs --backend".into()));
    }
    if arguments.cargo.wants(AGREES) {
        let request = asked.clone().unwrap_or_else(|| utf8(&plugins::cpu()).to_owned());
        backends_agree(arguments, &request)?;
    }
    for (name, check) in CHECKS {
        if asked.is_none() && arguments.cargo.wants(name) {
            check();
            println!("{name}: ok");
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let (code, said) = match run(&Arguments::parse()) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Disagreement(said)) => (1, said),
        Err(Failure::Usage(said)) => (2, said),
        Err(Failure::Backend(said)) => (4, said),
    };
    eprintln!("compare: {said}");
    ExitCode::from(code)
}
