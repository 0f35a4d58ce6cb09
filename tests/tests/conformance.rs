//! The conformance suite against backends that are right, in process and as shared libraries, and against one that misbehaves
//! in one way at a time.

use std::path::Path;
use std::time::Duration;

use splitprover_core::abi::{Backend, OpenOptions};
use splitprover_harness::conformance::{Options, Reentry, Report, Scale, Subject, case_names, run};
use splitprover_harness::conformance_tests;
use splitprover_harness::loader::Registry;
use splitprover_tests::plugins;

/// What a worker process loads.
const LIBRARY: &str = "SPLITPROVER_TEST_LIBRARY";
/// How the misbehaving plug-in misbehaves.
const MODE: &str = "SPLITPROVER_MISBEHAVE";

conformance_tests!(the_cpu_backend_conforms_in_process, Subject::backend(Registry::new(), "cpu", OpenOptions::new(0)));

fn subject(library: &Path) -> Subject<Backend> {
    let path = library.to_str().expect("a path in UTF-8");
    Subject::backend(Registry::empty(), path, OpenOptions::new(0))
}

/// Not a test: where worker processes enter.
#[test]
#[ignore = "run by the other tests"]
fn worker() {
    if let Some(library) = std::env::var_os(LIBRARY) {
        run(&subject(Path::new(&library)), &Options::default(), |_| {});
    }
}

fn suite(library: &Path, mode: &str, options: Options) -> Report {
    suite_of(&subject(library), library, mode, options)
}

fn suite_of(subject: &Subject<Backend>, library: &Path, mode: &str, options: Options) -> Report {
    let mut reentry = Reentry::of_test("worker").with_variable(LIBRARY, library);
    if !mode.is_empty() {
        reentry = reentry.with_variable(MODE, mode);
    }
    run(subject, &Options { reentry, ..options }, |case| println!("{}", case.lines()))
}

#[test]
fn the_cpu_backend_conforms_as_a_shared_library() {
    let report = suite(&plugins::cpu(), "", Options::default());
    assert!(report.passed(), "{}", report.to_text());
}

#[test]
fn the_backend_to_copy_conforms() {
    // It is simple, and slow.
    let scale = Scale::quick();
    let report = suite(&plugins::template(), "", Options { scale, ..Options::default() });
    assert!(report.passed(), "{}", report.to_text());
}

#[test]
fn the_contract_in_plain_c_conforms() {
    // Simpler, and slower: bits one by one. So nothing of 2^16 and more.
    let scale = Scale { max_log2: 4, retention_log2: 14, soak_proofs: 16 };
    let cases = case_names(scale).into_iter().filter(|case| case != "correctness/above-2^16").collect();
    let time_limit = Some(Duration::from_secs(300));
    let report = suite(&plugins::c(), "", Options { scale, cases, time_limit, ..Options::default() });
    assert!(report.passed(), "{}", report.to_text());
}

/// Each fault, a case that must find it, how the case ends, and a part of what it says.
const FAULTS: &[(&str, &str, &str, &str)] = &[
    ("keep", "ownership/guard", "CRASHED", "an input was read after start had returned"),
    ("keep", "ownership/poison", "FAILED", "wrong sum: a"),
    ("late-thread", "ownership/guard", "CRASHED", "an input was read after start had returned"),
    ("late-thread", "ownership/poison", "FAILED", "wrong sum: a"),
    ("copy", "ownership/retention", "FAILED", "1 in flight: "),
    ("scribble-then-fail", "ownership/hand-back", "FAILED", "the inputs that came back were changed"),
    ("panic-in-start", "correctness/smallest-circuits", "FAILED", "a planned panic in start"),
    ("panic-in-finish", "correctness/smallest-circuits", "FAILED", "a planned panic in finish"),
    ("panic-in-drop", "ownership/dropped-in-flight", "FAILED", "a planned panic in a destructor"),
    ("panic-in-unload", "concurrency/two-keys", "FAILED", "a planned panic in the key's destructor"),
    ("leak-pending", "soak/proofs", "FAILED", "bytes allocated"),
    ("leak-pending", "soak/dropped-proofs", "FAILED", "bytes allocated"),
    ("wrong-a", "correctness/smallest-circuits", "FAILED", "wrong sum: a "),
    ("wrong-b-g1", "correctness/smallest-circuits", "FAILED", "wrong sum: b_g1 "),
    ("wrong-b-g2", "correctness/smallest-circuits", "FAILED", "wrong sum: b_g2 "),
    ("wrong-hl", "correctness/smallest-circuits", "FAILED", "wrong sum: hl "),
    ("wrong-above-65536", "correctness/above-2^16", "FAILED", "wrong sum: hl "),
    ("non-deterministic", "determinism/repeated-proofs", "FAILED", "gave other sums for the same inputs: hl"),
    ("slow", "correctness/proofs-verify", "TIMED OUT", "not done after 10 s"),
    ("hang-in-start", "correctness/proofs-verify", "TIMED OUT", "not done after 10 s"),
    ("hang-in-finish", "correctness/proofs-verify", "TIMED OUT", "not done after 10 s"),
    ("other-version", "abi/opens", "FAILED", "the plug-in speaks ABI 1.1, this host 0.1"),
    ("short-table", "abi/opens", "FAILED", "the table has 136 bytes, ABI 0.1 has 224"),
    ("missing-entry", "abi/opens", "FAILED", "the table has no entry finish"),
    ("other-curve", "abi/opens", "FAILED", "curve: the plug-in has \"bn254\""),
    ("no-table", "abi/opens", "FAILED", "sp_negotiate gave no table"),
    ("refuses", "abi/opens", "FAILED", "sp_negotiate returned status 3"),
    ("any-version", "abi/versions", "FAILED", "returned 0, expected 11"),
    ("any-length", "abi/wrong-lengths", "FAILED", "an empty witness: start accepted that"),
    ("late-release", "abi/late-calls", "FAILED", "times after start had returned"),
    ("long-sums", "abi/short-and-long-sums", "FAILED", "finish wrote beyond the 8 bytes of the host's sums"),
];

/// Small, because there are many, and the faults don't hide.
const FAULTS_SCALE: Scale = Scale { max_log2: 4, retention_log2: 18, soak_proofs: 40 };

/// How the command that repeats a case says so.
const FAULTS_OPTIONS: &str = "--max-log2 4 --retention-log2 18 --soak 40";

fn options(mode: &str, cases: Vec<String>) -> Options {
    let sleeps = mode == "slow" || mode.starts_with("hang");
    Options {
        cases,
        scale: FAULTS_SCALE,
        time_limit: sleeps.then_some(Duration::from_secs(10)),
        command: "splitprover conform MISBEHAVING".into(),
        ..Options::default()
    }
}

#[test]
fn every_fault_fails_the_case_that_is_about_it_and_the_suite_survives() {
    let library = plugins::misbehaving();
    for &(mode, case, verdict, message) in FAULTS {
        let report = suite(&library, mode, options(mode, vec![case.to_owned()]));
        let [result] = &report.cases[..] else { panic!("{case} is not one case") };
        let said = result.verdict.message().unwrap_or_default();
        assert!(
            result.verdict.word() == verdict && said.contains(message),
            "{mode}: expected {verdict}: {message}\n{}",
            report.to_text()
        );
        let seed = report.seed;
        let repeat = format!("splitprover conform MISBEHAVING --case {case} --seed {seed} {FAULTS_OPTIONS}");
        assert_eq!(result.repeat.as_deref(), Some(&*repeat));
        assert!(!report.passed());
    }
}

/// So it is the fault that fails them.
#[test]
fn the_same_plug_in_passes_those_cases_when_it_behaves() {
    let mut cases: Vec<_> = FAULTS.iter().map(|fault| fault.1.to_owned()).collect();
    cases.sort();
    cases.dedup();
    let report = suite(&plugins::misbehaving(), "", options("", cases));
    assert!(report.passed(), "{}", report.to_text());
}

#[test]
fn a_backend_that_cannot_be_loaded_fails_once_and_not_sixty_times() {
    let report = suite(&plugins::misbehaving(), "other-version", options("", Vec::new()));
    assert!(!report.passed());
    assert_eq!(report.bad().map(|case| case.id()).collect::<Vec<_>>(), ["abi/opens"]);
    assert!(report.cases[1..].iter().all(|case| case.verdict.message().as_deref() == Some("abi/opens failed")));
}

/// Reports are for other programs too: an independent reader finds in them what is wrong, and how to see it again.
#[test]
fn reports_of_failures_and_of_unexpected_passes_are_valid_json_and_junit() {
    let library = plugins::misbehaving();
    let known = "correctness/empty-queries";
    let subject = subject(&library).known_failure(known, "a \"driver\" & its <bugs>");
    let cases = ["correctness/smallest-circuits", known, "abi/opens"].map(str::to_owned).to_vec();

    let report = suite_of(&subject, &library, "wrong-b-g2", options("", cases.clone()));
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!((json["passed"].as_bool(), json["seed"].as_u64()), (Some(false), Some(report.seed)));
    let failed = json["cases"].as_array().unwrap().iter().find(|case| case["verdict"] == "failed").unwrap();
    assert_eq!((failed["group"].as_str(), failed["name"].as_str()), (Some("correctness"), Some("smallest-circuits")));
    assert!(failed["message"].as_str().unwrap().starts_with("wrong sum: b_g2 "), "{failed}");
    let repeat = format!(
        "splitprover conform MISBEHAVING --case correctness/smallest-circuits --seed {} {FAULTS_OPTIONS}",
        report.seed
    );
    assert_eq!(failed["repeat"].as_str(), Some(&*repeat));

    let junit = report.to_junit();
    let document = roxmltree::Document::parse(&junit).unwrap();
    let named = |name: &str| document.descendants().find(|node| node.attribute("name") == Some(name)).unwrap();
    let failure = named("smallest-circuits").first_element_child().unwrap();
    assert_eq!((failure.tag_name().name(), failure.attribute("type")), ("failure", Some("FAILED")));
    assert!(failure.attribute("message").unwrap().starts_with("wrong sum: b_g2 "));
    assert!(failure.text().unwrap().contains(&repeat));
    let skipped = named("empty-queries").first_element_child().unwrap();
    assert_eq!(skipped.tag_name().name(), "skipped");
    assert!(skipped.attribute("message").unwrap().starts_with("a \"driver\" & its <bugs>: "));
    let suites: Vec<_> = document.descendants().filter(|node| node.has_tag_name("testsuite")).collect();
    let counted =
        |name: &str| suites.iter().map(|s| s.attribute(name).unwrap().parse::<usize>().unwrap()).sum::<usize>();
    assert_eq!((counted("tests"), counted("failures"), counted("skipped")), (3, 1, 1));

    // The same declaration on a backend that is right is out of date, and fails the suite.
    let report = suite_of(&subject, &library, "", options("", cases));
    assert!(!report.passed());
    assert_eq!(report.bad().map(|case| case.id()).collect::<Vec<_>>(), [known]);
    let junit = report.to_junit();
    let document = roxmltree::Document::parse(&junit).unwrap();
    let failure = document.descendants().find(|node| node.has_tag_name("failure")).unwrap();
    assert_eq!(failure.attribute("type"), Some("UNEXPECTED PASS"));
    assert!(failure.attribute("message").unwrap().contains("declared to fail"));
}

/// A panic must become an error, and with `panic = "abort"` it can't: such a plug-in isn't made.
#[test]
fn a_plug_in_that_would_abort_on_panic_does_not_compile() {
    let (compiled, said) = plugins::template_with("-Cpanic=abort");
    assert!(!compiled && said.contains("a splitprover backend must be built with panic = \"unwind\""), "{said}");
}
