//! The suite that every backend must pass.
//!
//! Three ways to use it:
//!
//! * one line in a Rust backend's own tests: [`conformance_tests!`](crate::conformance_tests);
//! * `splitprover conform BACKEND`, which is [`run`] behind a command line;
//! * the [`Report`] as JSON or JUnit, for other tools.
//!
//! Cases are data: a group, a name, the capabilities they need, a time limit, a function. They run in worker processes, so
//! a backend that crashes or hangs fails a case and not the suite. What the sums must be comes from no backend: the suite
//! knows the discrete logarithm of every base it makes. All randomness comes from one seed; a failure names the wrong sum and
//! prints the command that repeats it.
//!
//! | group | promise |
//! |---|---|
//! | correctness | all four sums, over sizes, values, densities, storage, bases, roots and forms of input |
//! | determinism | equal inputs give equal sums, within an instance and across instances |
//! | ownership | inputs are gone once `start` returns: account, poison, guard, resident memory, early release, hand-back |
//! | concurrency | overlapping starts, any order of finishing, keys and instances that die first |
//! | faults | a refused allocation is an error that names a cause, and harms nothing |
//! | abi | a plug-in's C interface |
//! | soak | nothing grows |
//!
//! A backend that lacks something says so ([`Subject::without`]), and the cases that need it are reported as skipped. A case
//! that is known to fail is data too ([`Subject::known_failure`]); it fails the suite when it passes.

mod case;
mod cases;
mod circuit;
mod compare;
mod material;
mod oracle;
mod pool;
mod process;
mod report;
mod run;
mod subject;
mod witness;
mod worker;

#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use splitprover_core::{BackendError, CircuitShape, LentInputs, PendingSums, ProvingKey, QuerySums, SplitProver};

pub use case::{Group, Scale};
pub use compare::{Comparison, ComparisonOptions, Disagreement, compare};
pub use report::{CaseReport, Report, Verdict};
pub use run::{Options, case_names, run};
pub use subject::{Capability, KnownFailure, Subject};
pub use worker::Reentry;

/// Runs the suite as a test: prints a line for each case, and panics unless the backend conforms. What
/// [`conformance_tests!`](crate::conformance_tests) calls.
///
/// `test` is the full path of the test function. The sizes are those of [`Scale::quick`], so that the test takes a minute or so;
/// environment variables choose others, and what runs:
///
/// | `SPLITPROVER_CONFORMANCE_`… | what |
/// |---|---|
/// | `CASE` | only these cases: `group/name`, separated by commas |
/// | `GROUP` | only these groups, separated by commas |
/// | `SEED` | seed of all randomness |
/// | `MAX_LOG2`, `RETENTION_LOG2`, `SOAK` | the fields of [`Scale`] |
///
/// # Panics
/// If a case goes wrong, or a variable has no such value.
pub fn check<P: SplitProver>(subject: &Subject<P>, test: &str) {
    // The standard harness knows a test by its path within the crate.
    let name = test.split_once("::").map_or(test, |(_, name)| name);
    let variable = |name: &str| std::env::var(format!("SPLITPROVER_CONFORMANCE_{name}")).ok();
    let list = |name: &str| variable(name).map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>());
    let number = |name: &str, usual: u64| {
        variable(name).map_or(usual, |text| text.parse::<u64>().unwrap_or_else(|e| panic!("{name}: {e}")))
    };
    let small = |name: &str, usual: u32| u32::try_from(number(name, usual.into())).unwrap_or(u32::MAX);
    let (usual, quick) = (Options::default(), Scale::quick());
    let group = |name: String| Group::from_name(&name).unwrap_or_else(|| panic!("GROUP: no group {name}"));
    let options = Options {
        groups: list("GROUP").unwrap_or_default().into_iter().map(group).collect(),
        cases: list("CASE").unwrap_or_default(),
        seed: number("SEED", usual.seed),
        scale: Scale {
            max_log2: small("MAX_LOG2", quick.max_log2).min(splitprover_core::domain::MAX_LOG2),
            retention_log2: small("RETENTION_LOG2", quick.retention_log2).min(splitprover_core::domain::MAX_LOG2),
            soak_proofs: small("SOAK", quick.soak_proofs),
        },
        reentry: Reentry::of_test(name),
        ..usual
    };
    let report = run(subject, &options, |case| println!("{}", case.lines()));
    println!("{}", report.summary());
    let again: Vec<_> = report
        .bad()
        .map(|case| {
            format!(
                "SPLITPROVER_CONFORMANCE_CASE={} SPLITPROVER_CONFORMANCE_SEED={} \
                 SPLITPROVER_CONFORMANCE_MAX_LOG2={} SPLITPROVER_CONFORMANCE_RETENTION_LOG2={} \
                 SPLITPROVER_CONFORMANCE_SOAK={} cargo test {name} -- --nocapture",
                case.id(),
                report.seed,
                report.scale.max_log2,
                report.scale.retention_log2,
                report.scale.soak_proofs
            )
        })
        .collect();
    assert!(report.passed(), "{}\nrepeat with\n{}", report.summary(), again.join("\n"));
}

/// Makes a test that runs the conformance suite on a backend: one line in the tests of whoever writes one.
///
/// It takes a name and a function from the [`HostMemory`](splitprover_core::HostMemory) on which an instance counts its own to
/// an instance:
///
/// ```
/// # use splitprover_backend_cpu::{CpuBackend as Mine, CpuOptions};
/// # use splitprover_core::HostMemory;
/// # fn open(memory: HostMemory) -> Result<Mine, splitprover_core::BackendError> {
/// #     Mine::new(CpuOptions { memory, ..CpuOptions::default() })
/// # }
/// splitprover_harness::conformance_tests!(conforms, "mine", |memory| open(memory.clone()));
/// # fn main() {}
/// ```
///
/// or a [`Subject`], which can declare what the backend lacks.
#[macro_export]
macro_rules! conformance_tests {
    ($name:ident, $backend:literal, $open:expr) => {
        $crate::conformance_tests!($name, $crate::conformance::Subject::new($backend, $open));
    };
    ($name:ident, $subject:expr) => {
        #[test]
        fn $name() {
            $crate::conformance::check(&$subject, concat!(module_path!(), "::", stringify!($name)));
        }
    };
}

/// A backend for the type checker: the list of cases can be made without a real one.
enum Nothing {}

impl PendingSums for Nothing {
    fn finish(self) -> Result<QuerySums, BackendError> {
        match self {}
    }
}

impl SplitProver for Nothing {
    type Key = Self;
    type Pending = Self;

    fn load_key(&self, _: &Arc<ProvingKey>) -> Result<Self, BackendError> {
        match *self {}
    }

    fn start<'i>(&self, _: &Self, _: LentInputs<'i>) -> Result<Self, BackendError> {
        match *self {}
    }

    fn retained_host_bytes(&self, _: &CircuitShape) -> u64 {
        match *self {}
    }
}
