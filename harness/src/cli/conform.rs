//! `splitprover conform`: the suite every backend must pass, and the comparison of two backends on random keys.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use splitprover_core::abi::{Backend, OpenOptions};
use splitprover_core::domain::MAX_LOG2;

use super::backend::{self, Settings};
use super::progress::Progress;
use super::{Failure, print};
use crate::conformance::{
    Capability, ComparisonOptions, Group, Options, Report, Scale, Subject, case_names, compare, run as run_suite,
};
use crate::formats::write_files;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Backend: a name, or the path of a shared library
    #[arg(required_unless_present = "list")]
    backend: Option<String>,
    #[command(flatten)]
    settings: Settings,
    /// Compare with this backend on random keys instead of running the suite
    #[arg(long, value_name = "NAME|PATH")]
    against: Option<String>,
    /// Random keys of a comparison
    #[arg(long, default_value_t = ComparisonOptions::default().cases, requires = "against")]
    cases: u32,
    /// Only this group; may be repeated: correctness, determinism, ownership, concurrency, faults, abi, soak
    #[arg(long = "group", value_parser = group)]
    groups: Vec<Group>,
    /// Only this case; may be repeated
    #[arg(long = "case", value_name = "GROUP/NAME")]
    names: Vec<String>,
    /// Seed of all randomness; a fresh one without it
    #[arg(long)]
    seed: Option<u64>,
    /// Domains of up to 2^N rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LOG2)))]
    max_log2: Option<u32>,
    /// Rows, as a power of two, of the proof after which resident memory is looked at
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LOG2)))]
    retention_log2: Option<u32>,
    /// Proofs over which memory must not grow
    #[arg(long, value_name = "PROOFS")]
    soak: Option<u32>,
    /// Seconds each case may take, instead of its own limit
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
    /// Declare that the backend lacks a capability; may be repeated: matrices (computes evaluations from them), accounting
    /// (charges its memory to the host's account), early-release (releases every vector itself), abi (has a C interface)
    #[arg(long, value_name = "CAPABILITY", value_parser = capability)]
    without: Vec<Capability>,
    /// Cases that are known to fail, one a line: group/name and the reason
    #[arg(long, value_name = "FILE")]
    known_failures: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write the report as JUnit XML
    #[arg(long, value_name = "FILE", conflicts_with = "against")]
    junit: Option<PathBuf>,
    /// List the cases
    #[arg(long)]
    list: bool,
}

/// How this program was called.
fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "splitprover".into())
}

fn group(name: &str) -> Result<Group, String> {
    let names = || Group::ALL.map(Group::name).join(", ");
    Group::from_name(name).ok_or_else(|| format!("no such group; there are {}", names()))
}

fn capability(name: &str) -> Result<Capability, String> {
    let names = || Capability::ALL.map(Capability::name).join(", ");
    Capability::from_name(name).ok_or_else(|| format!("no such capability; there are {}", names()))
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let usual = Scale::default();
    let scale = Scale {
        max_log2: arguments.max_log2.unwrap_or(usual.max_log2),
        retention_log2: arguments.retention_log2.unwrap_or(usual.retention_log2),
        soak_proofs: arguments.soak.unwrap_or(usual.soak_proofs),
    };
    let Some(name) = arguments.backend.as_deref().filter(|_| !arguments.list) else {
        print(&format!("{}\n", case_names(scale).join("\n")));
        return Ok(());
    };
    // A backend that can't be had is trouble of its own (exit code 4), not a list of failed cases.
    let loaded = backend::registry().load(name)?;
    let subject = subject(name, arguments)?;
    let names = case_names(scale);
    let known =
        |name: &&String| names.iter().any(|id| id == *name || id.split_once('/').is_some_and(|(_, n)| n == *name));
    if let Some(unknown) = arguments.names.iter().find(|name| !known(name)) {
        return Err(Failure::Usage(format!("there is no case {unknown}; `conform --list` shows them")));
    }
    let defaults = Options::default();
    let seed = arguments.seed.unwrap_or(defaults.seed);
    if let Some(other) = &arguments.against {
        return against(&subject, other, arguments, seed);
    }
    drop(loaded);

    let options = Options {
        groups: arguments.groups.clone(),
        cases: arguments.names.clone(),
        seed,
        scale,
        time_limit: arguments.time_limit.map(Duration::from_secs),
        command: format!("{} conform {name}{}", program(), arguments.settings.command_line()),
        ..defaults
    };
    // In a worker process this doesn't return, and nothing has been printed yet.
    let report = run_suite(&subject, &options, |case| {
        if !arguments.json {
            print(&format!("{}\n", case.lines()));
        }
    });
    finish(arguments, &report)
}

fn subject(name: &str, arguments: &Arguments) -> Result<Subject<Backend>, Failure> {
    let open: OpenOptions = arguments.settings.open_options();
    let mut subject = Subject::backend(backend::registry(), name, open);
    for &capability in &arguments.without {
        subject = subject.without(capability);
    }
    if let Some(path) = &arguments.known_failures {
        let faulty = |reason: String| Failure::Mismatch(format!("{}: {reason}", path.display()));
        let list = std::fs::read_to_string(path).map_err(|e| faulty(e.to_string()))?;
        subject = subject.known_failures(&list).map_err(faulty)?;
    }
    Ok(subject)
}

fn finish(arguments: &Arguments, report: &Report) -> Result<(), Failure> {
    if let Some(path) = &arguments.junit {
        write_files(&[(path, report.to_junit().as_bytes())])?;
    }
    if arguments.json {
        print(&format!("{}\n", report.to_json()));
    } else {
        print(&format!("{}\n", report.summary()));
    }
    if report.passed() {
        Ok(())
    } else {
        let bad: Vec<_> = report.bad().map(|case| case.id()).collect();
        Err(Failure::No(format!("the backend does not conform: {}", bad.join(", "))))
    }
}

fn against(first: &Subject<Backend>, other: &str, arguments: &Arguments, seed: u64) -> Result<(), Failure> {
    let second = Subject::backend(backend::registry(), other, OpenOptions::new(0).log(backend::log()));
    let usual = ComparisonOptions::default();
    let max_log2 = arguments.max_log2.unwrap_or(usual.max_log2);
    let options = ComparisonOptions { cases: arguments.cases, max_log2, seed };
    let (progress, done) = (Progress::new("comparing"), AtomicU64::new(0));
    let comparison = compare(first, &second, options, || {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        progress.update(done, u64::from(options.cases).max(done));
    })
    .map_err(Failure::Backend)?;
    drop(progress);
    if arguments.json {
        super::print_json(&serde_json::json!(comparison));
    } else {
        print(&comparison.to_text());
    }
    if comparison.agrees() { Ok(()) } else { Err(Failure::No("the backends disagree".into())) }
}
