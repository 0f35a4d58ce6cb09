//! The suite against a backend that is right, and against backends that are wrong in one way each.

use std::time::Duration;

use super::naive::{Naive, Plant};
use super::*;

const PLANT: &str = "SPLITPROVER_TEST_PLANT";

fn subject(plant: Plant) -> Subject<Naive> {
    Subject::new(format!("naive {plant:?}"), move |memory| Ok(Naive { memory: memory.clone(), plant }))
}

/// Where worker processes enter.
#[test]
#[ignore = "run by the other tests"]
fn worker() {
    let name = std::env::var(PLANT).unwrap_or_default();
    let plant = Plant::ALL.into_iter().find(|plant| format!("{plant:?}") == name);
    if let Some(plant) = plant {
        run(&subject(plant), &Options::default(), |_| {});
    }
}

fn run_cases(subject: &Subject<Naive>, plant: Plant, cases: &[&str]) -> Report {
    let path = concat!(module_path!(), "::worker");
    let path = path.split_once("::").map_or(path, |(_, path)| path);
    let options = Options {
        cases: cases.iter().map(|&case| case.to_owned()).collect(),
        seed: 1,
        scale: Scale { max_log2: 5, retention_log2: 17, soak_proofs: 120 },
        time_limit: (plant == Plant::Hang).then_some(Duration::from_secs(2)),
        reentry: Reentry::of_test(path).with_variable(PLANT, format!("{plant:?}")),
        command: "again".into(),
        ..Options::default()
    };
    run(subject, &options, |_| {})
}

#[test]
fn a_right_backend_passes_every_case() {
    let report = run_cases(&subject(Plant::Nothing), Plant::Nothing, &[]);
    assert!(report.passed(), "{}", report.to_text());
    assert_eq!(report.cases.len(), case_names(report.scale).len());
}

/// Each planted fault, the case that must catch it, the verdict, and a part of the message.
#[test]
fn every_planted_fault_fails_the_case_that_is_about_it() {
    let table: &[(Plant, &str, &str, &str)] = &[
        (Plant::WrongSum, "correctness/smallest-circuits", "FAILED", "wrong sum: b_g2"),
        (Plant::WrongAbove65536, "correctness/above-2^16", "FAILED", "wrong sum: a"),
        (Plant::SnarkjsRootOnly, "correctness/basis-monomial-root-bellman", "FAILED", "wrong sum: hl"),
        (Plant::SnarkjsRootOnly, "correctness/basis-odd-lagrange-root-other", "FAILED", "wrong sum: hl"),
        (Plant::NonDeterministic, "determinism/repeated-proofs", "FAILED", "other sums for the same inputs: hl"),
        (Plant::PanicInStart, "correctness/smallest-circuits", "FAILED", "planted in start"),
        (Plant::PanicInFinish, "correctness/smallest-circuits", "FAILED", "planted in finish"),
        (Plant::PanicInDrop, "ownership/dropped-in-flight", "FAILED", "planted in drop"),
        (Plant::Hang, "correctness/smallest-circuits", "TIMED OUT", "not done after 2 s"),
        (Plant::Abort, "correctness/smallest-circuits", "CRASHED", "SIGABRT"),
        (Plant::CopyInputs, "ownership/retention", "FAILED", "1 in flight: "),
        (Plant::ReadInFinish, "ownership/guard", "CRASHED", "SIGSEGV): an input was read after start had returned"),
        (Plant::ReadInFinish, "ownership/poison", "FAILED", "wrong sum: a"),
        (Plant::ReadLater, "ownership/guard", "CRASHED", "SIGSEGV): an input was read after start had returned"),
        (Plant::NoRelease, "ownership/early-release", "FAILED", "not released"),
        (Plant::LeakPending, "soak/proofs", "FAILED", "bytes allocated, 60"),
        (Plant::LeakPending, "soak/dropped-proofs", "FAILED", "bytes allocated"),
        (Plant::LeakKey, "soak/keys", "FAILED", "bytes allocated"),
        (
            Plant::UnwrapAllocation,
            "faults/refused-allocations",
            "FAILED",
            "with charge 0 of 1 refused: a refusal became",
        ),
        (Plant::ReleaseBeforeAllocation, "ownership/hand-back", "FAILED", "the inputs did not come back"),
        (Plant::NoAccounting, "faults/accounting-is-used", "FAILED", "charged nothing"),
    ];
    for &(plant, case, verdict, message) in table {
        let report = run_cases(&subject(plant), plant, &[case]);
        let [result] = &report.cases[..] else { panic!("{case} is not one case") };
        assert_eq!(result.verdict.word(), verdict, "{plant:?}: {}", report.to_text());
        let said = result.verdict.message().unwrap_or_default();
        assert!(said.contains(message), "{plant:?}: {}", report.to_text());
        assert_eq!(
            result.repeat.as_deref(),
            Some(&*format!("again --case {case} --seed 1 --max-log2 5 --retention-log2 17 --soak 120"))
        );
        assert!(!report.passed());
    }
    let planted = |plant| plant == Plant::Nothing || table.iter().any(|row| row.0 == plant);
    assert!(Plant::ALL.into_iter().all(planted), "a plant is in no row");
}

#[test]
fn the_suite_goes_on_after_a_crash() {
    let cases = ["correctness/smallest-circuits", "determinism/across-instances"];
    let report = run_cases(&subject(Plant::Abort), Plant::Abort, &cases);
    let words: Vec<_> = report.cases.iter().map(|case| case.verdict.word()).collect();
    assert_eq!(words, ["CRASHED", "CRASHED"]);
}

#[test]
fn known_failures_are_no_failures_until_they_pass() {
    let case = "correctness/smallest-circuits";
    let broken = subject(Plant::WrongSum).known_failure(case, "a driver");
    let report = run_cases(&broken, Plant::WrongSum, &[case]);
    assert!(report.passed(), "{}", report.to_text());
    assert_eq!(report.cases[0].verdict.word(), "known failure");
    let mended = subject(Plant::Nothing).known_failure(case, "a driver");
    let report = run_cases(&mended, Plant::Nothing, &[case]);
    assert_eq!(report.cases[0].verdict, Verdict::UnexpectedPass { reason: "a driver".into() });
    assert!(!report.passed());
}

#[test]
fn cases_that_need_what_is_lacking_are_skipped_and_say_so() {
    let lacking = subject(Plant::Nothing).without(Capability::Accounting);
    let report = run_cases(&lacking, Plant::Nothing, &["faults/refused-allocations", "correctness/size-2^1"]);
    let reason = "needs what the backend is declared to lack: accounting".to_owned();
    assert_eq!(report.cases[1].verdict, Verdict::Skipped { reason });
    assert!(report.passed());
}

#[test]
fn names_are_unique_and_a_selection_of_nothing_fails() {
    let names = case_names(Scale::default());
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    assert!(!run_cases(&subject(Plant::Nothing), Plant::Nothing, &["no-such-case"]).passed());
}
