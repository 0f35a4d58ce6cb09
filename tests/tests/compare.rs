//! Random keys and inputs on two backends: equal sums, or the backend that is wrong is named.
//!
//! Which backend is compared with the linked-in reference is chosen by `SPLITPROVER_COMPARE`, a name or a path; without it,
//! the CPU backend's own shared library. On a machine without a tool chain, `splitprover conform NAME --against cpu` does the
//! same.

use splitprover_core::abi::{Backend, OpenOptions};
use splitprover_harness::conformance::{ComparisonOptions, Subject, compare};
use splitprover_harness::loader::Registry;
use splitprover_tests::plugins;

fn reference() -> Subject<Backend> {
    Subject::backend(Registry::new(), "cpu", OpenOptions::new(0))
}

#[test]
fn a_backend_agrees_with_the_reference_on_random_keys() {
    let chosen = std::env::var("SPLITPROVER_COMPARE").ok();
    let request = chosen.unwrap_or_else(|| plugins::cpu().to_str().expect("a path in UTF-8").to_owned());
    let other = Subject::backend(Registry::new(), &request, OpenOptions::new(0));
    let options = ComparisonOptions { cases: 40, max_log2: 9, ..ComparisonOptions::default() };
    let comparison = compare(&reference(), &other, options, || ()).unwrap();
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
