//! A panic of a backend is an error, wherever it happens, and the instance is not used again.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicUsize, Ordering};

use ff::Field;
use splitprover_core::{BackendError, FinishError, Lent, LoadedKey, Prover, Scalar, StartError};
use splitprover_tests::naive::NaiveProver;
use splitprover_tests::scripted::{Scripted, ScriptedKeys, ScriptedSums};

use crate::{Bench, input_bytes, loans, panicked, sums};

#[test]
fn a_panic_in_start_hands_untouched_inputs_back_and_poisons_the_instance() {
    let bench = Bench::new();
    let (prover, key) = bench.scripted(|inputs| panic!("lost track of {} values", inputs.witness.len()));
    let StartError { source, inputs } = prover.start(&key, bench.inputs()).unwrap_err();
    assert_eq!(panicked(&source), format!("lost track of {} values", bench.witness.len()));
    let inputs = *inputs.expect("untouched");
    assert_eq!(inputs.witness()[..], bench.witness[..]);

    let StartError { source, inputs } = prover.start(&key, inputs).unwrap_err();
    let BackendError::Poisoned(reason) = source else { panic!("{source}") };
    assert!(reason.contains("lost track"), "{reason}");
    let error = prover.load_key(bench.setup.key.clone()).unwrap_err();
    assert!(matches!(error, BackendError::Poisoned(_)));

    let (other, key) = bench.prover(NaiveProver);
    assert!(other.start(&key, *inputs.unwrap()).unwrap().finish().is_ok());
}

#[test]
fn a_panic_after_a_release_or_a_change_hands_nothing_back() {
    let bench = Bench::new();
    for touch in [|loan: Lent<'_>| loan.release(), |mut loan: Lent<'_>| loan.make_mut().fill(Scalar::ZERO)] {
        let result = bench.start(move |inputs| {
            let [_witness, _a, _b, c] = loans(inputs);
            touch(c);
            panic!("half-way")
        });
        let StartError { source, inputs } = result.unwrap_err();
        assert_eq!((panicked(&source), inputs.is_none(), input_bytes(&bench.memory)), ("half-way", true, 0));
    }
}

#[test]
fn a_panic_while_scratch_space_is_half_written_hands_nothing_back() {
    let bench = Bench::new();
    let result = bench.start(|inputs| {
        let [mut witness, ..] = loans(inputs);
        witness.make_mut().iter_mut().enumerate().for_each(|(i, x)| {
            assert_ne!(i, 1, "half-way");
            *x = Scalar::ZERO;
        });
        Ok(ScriptedSums::never())
    });
    assert!(result.unwrap_err().inputs.is_none());
}

/// A panic payload whose destructor panics, and whose payload's destructor panics.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_any(Bomb(self.0 - 1));
        }
    }
}

/// A panic payload whose destructor panics with another one, for ever.
struct Endless;

impl Drop for Endless {
    fn drop(&mut self) {
        panic_any(Endless);
    }
}

#[test]
fn any_panic_payload_is_survived() {
    let bench = Bench::new();
    let throws: [(fn(), &str); 5] = [
        (|| panic!("text"), "text"),
        (|| panic!("{}", "formatted"), "formatted"),
        (|| panic_any(5u8), "a payload that is no text"),
        (|| panic_any(Bomb(3)), "a payload that is no text"),
        (|| panic_any(Endless), "a payload that is no text"),
    ];
    for (throw, message) in throws {
        let error = bench
            .start(move |_| {
                throw();
                Ok(ScriptedSums::never())
            })
            .unwrap_err();
        assert_eq!(panicked(&error.source), message);
        assert!(error.inputs.is_some());
    }
}

#[test]
fn a_panic_in_finish_is_an_error_and_poisons_the_instance() {
    let bench = Bench::new();
    let (prover, key) = bench.scripted(|_| Ok(ScriptedSums::new(|| panic!("device gone"))));
    let (first, second) = (prover.start(&key, bench.inputs()).unwrap(), prover.start(&key, bench.inputs()).unwrap());
    let FinishError::Backend(error) = first.finish().unwrap_err() else { panic!() };
    assert_eq!(panicked(&error), "device gone");
    let error = prover.start(&key, bench.inputs()).unwrap_err();
    assert!(matches!(error.source, BackendError::Poisoned(_)) && error.inputs.is_some());
    // What was in flight may still be finished, or fail by itself.
    assert!(matches!(second.finish_sums(), Err(FinishError::Backend(BackendError::Panicked(_)))));
}

#[test]
fn a_panic_that_the_backend_reports_itself_poisons_the_instance_too() {
    let bench = Bench::new();
    let (prover, key) = bench.scripted(|_| Err(BackendError::Panicked("in a worker".into())));
    let error = prover.start(&key, bench.inputs()).unwrap_err();
    assert_eq!((panicked(&error.source), error.inputs.is_some()), ("in a worker", true));
    let error = prover.start(&key, bench.inputs()).unwrap_err();
    assert!(matches!(error.source, BackendError::Poisoned(_)));
}

#[test]
fn proofs_in_flight_finish_after_the_instance_was_poisoned() {
    let bench = Bench::new();
    let calls = AtomicUsize::new(0);
    let (prover, key) = bench.scripted(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Ok(ScriptedSums::new(|| Ok(sums()))),
        _ => panic!("the second proof is too much"),
    });
    let first = prover.start(&key, bench.inputs()).unwrap();
    assert!(prover.start(&key, bench.inputs()).is_err());
    assert_eq!(first.finish_sums().unwrap(), sums());
}

#[test]
fn an_error_in_finish_is_passed_on_and_poisons_nothing() {
    let bench = Bench::new();
    let (prover, key) =
        bench.scripted(|_| Ok(ScriptedSums::new(|| Err(BackendError::device("multi-exponentiation", "hung")))));
    for _ in 0..2 {
        let error = prover.start(&key, bench.inputs()).unwrap().finish().unwrap_err();
        assert!(matches!(error, FinishError::Backend(BackendError::Device { what: "multi-exponentiation", .. })));
    }
}

#[test]
fn destructors_that_panic_poison_the_instance_and_nobody_else() {
    let bench = Bench::new();
    let boom = || panic!("in a destructor");
    let poisoned = |prover: &Prover<Scripted>, key: &LoadedKey<Scripted>| {
        matches!(prover.start(key, bench.inputs()), Err(StartError { source: BackendError::Poisoned(_), .. }))
    };

    // A pending proof that is dropped, after finish and without.
    let (prover, key) = bench.scripted(move |_| Ok(ScriptedSums::never().dropped_with(boom)));
    drop(prover.start(&key, bench.inputs()).unwrap());
    assert!(poisoned(&prover, &key));
    let (prover, key) = bench.scripted(move |_| Ok(ScriptedSums::new(|| Ok(sums())).dropped_with(boom)));
    let error = prover.start(&key, bench.inputs()).unwrap().finish_sums().unwrap_err();
    assert!(matches!(error, FinishError::Backend(BackendError::Panicked(_))));
    assert!(poisoned(&prover, &key));

    // One that is dropped because the caller is unwinding already.
    let (prover, key) = bench.scripted(move |_| Ok(ScriptedSums::never().dropped_with(boom)));
    let in_flight = prover.start(&key, bench.inputs()).unwrap();
    let payload = catch_unwind(AssertUnwindSafe(move || {
        let _in_flight = in_flight;
        panic!("the caller's own")
    }));
    assert_eq!(payload.unwrap_err().downcast_ref::<&str>(), Some(&"the caller's own"));
    assert!(poisoned(&prover, &key));

    // A key, and the instance itself.
    let keys = Prover::new(ScriptedKeys::new(move || Ok(Some(Box::new(boom)))));
    drop(keys.load_key(bench.setup.key.clone()).unwrap());
    assert!(matches!(keys.load_key(bench.setup.key.clone()), Err(BackendError::Poisoned(_))));
    drop(Prover::new(Scripted::new(|_| Ok(ScriptedSums::never())).dropped_with(boom)));
}

#[test]
fn a_panic_in_load_key_is_an_error_and_poisons_the_instance() {
    let bench = Bench::new();
    let prover = Prover::new(ScriptedKeys::new(|| panic!("no key")));
    assert_eq!(panicked(&prover.load_key(bench.setup.key.clone()).unwrap_err()), "no key");
    assert!(matches!(prover.load_key(bench.setup.key.clone()), Err(BackendError::Poisoned(_))));
}
