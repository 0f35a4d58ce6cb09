//! Random keys and inputs on two backends: equal sums, or the backend that is wrong is named.
//!
//! Which backends are compared, and how much, is chosen by the environment:
//!
//! | variable | what | without it |
//! |---|---|---|
//! | `SPLITPROVER_COMPARE` | a backend, by name or path | the CPU backend's own shared library |
//! | `SPLITPROVER_COMPARE_WITH` | the other one | `cpu`, which is linked in |
//! | `SPLITPROVER_COMPARE_CASES` | random keys, with one proof each | 40 |
//! | `SPLITPROVER_COMPARE_MAX_LOG2` | domains of up to 2^N rows | 9 |
//! | `SPLITPROVER_COMPARE_SEED` | seed of all randomness | a fresh one |
//!
//! The test program can be carried to a machine without a tool chain, as long as it is told a backend: it then builds nothing.
//! `splitprover conform NAME --against NAME` does the same.

use splitprover_core::abi::{Backend, OpenOptions};
use splitprover_harness::conformance::{ComparisonOptions, Subject, compare};
use splitprover_harness::loader::Registry;
use splitprover_tests::plugins;

fn backend(request: &str) -> Subject<Backend> {
    Subject::backend(Registry::new(), request, OpenOptions::new(0))
}

fn reference() -> Subject<Backend> {
    backend("cpu")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("SPLITPROVER_COMPARE{name}")).ok()
}

fn number<T: std::str::FromStr>(name: &str, usual: T) -> T {
    let parsed =
        variable(name).map(|text| text.parse().ok().unwrap_or_else(|| panic!("{name}: {text:?} is no number")));
    parsed.unwrap_or(usual)
}

#[test]
fn a_backend_agrees_with_the_reference_on_random_keys() {
    let request = variable("").unwrap_or_else(|| plugins::cpu().to_str().expect("a path in UTF-8").to_owned());
    let with = variable("_WITH").unwrap_or_else(|| "cpu".to_owned());
    let usual = ComparisonOptions::default();
    let options = ComparisonOptions {
        cases: number("_CASES", 40),
        max_log2: number("_MAX_LOG2", 9),
        seed: number("_SEED", usual.seed),
    };
    let comparison = compare(&backend(&with), &backend(&request), options, || ()).unwrap();
    println!("{}", comparison.to_text());
    assert!(comparison.agrees(), "{}", comparison.to_text());
}

#[test]
fn the_wrong_one_of_two_backends_is_named() {
    let path = plugins::misbehaving();
    let open = OpenOptions::new(0).set("mode", "wrong-b-g1");
    let wrong = Subject::backend(Registry::empty(), path.to_str().expect("a path in UTF-8"), open);
    let options = ComparisonOptions { cases: 4, max_log2: 4, ..ComparisonOptions::default() };
    let comparison = compare(&reference(), &wrong, options, || ()).unwrap();
    let disagreement = comparison.disagreement.as_ref().expect("a wrong sum");
    assert!(disagreement.message.ends_with("is wrong in b_g1"), "{}", comparison.to_text());
    // The fault is in every proof, so the smallest key shows it.
    assert!(disagreement.case.contains("domain_log2: 0, rows: 0, variables: 1,"), "{}", comparison.to_text());
}
