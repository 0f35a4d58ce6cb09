//! What has become of the inputs when `start` has succeeded, and of a proof in flight.

use std::sync::atomic::{AtomicUsize, Ordering};

use ff::Field;
use splitprover_core::{
    FinishError, HostMemory, InFlight, Inputs, Lent, LoadedKey, MemoryClass, Prover, Scalar, StartError,
};
use splitprover_tests::naive::NaiveProver;
use splitprover_tests::scripted::{Altered, Scripted, ScriptedSums};

use crate::{Bench, input_bytes, loans, sums};

#[test]
fn what_crosses_threads_may() {
    fn sent<T: Send + 'static>() {}
    fn shared<T: Send + Sync + 'static>() {}
    sent::<Inputs>();
    sent::<InFlight<Scripted>>();
    sent::<StartError>();
    sent::<FinishError>();
    shared::<Prover<Scripted>>();
    shared::<LoadedKey<Scripted>>();
    shared::<HostMemory>();
}

#[test]
fn inputs_are_gone_when_start_returns_whatever_the_backend_did_with_its_loans() {
    let bench = Bench::new();
    let ways: [fn(Lent<'_>); 5] = [
        |loan| drop(loan),
        |loan| loan.release(),
        |loan| std::mem::forget(loan),
        |mut loan| loan.make_mut().fill(Scalar::ZERO),
        |loan| _ = Box::leak(Box::new(loan)),
    ];
    for way in ways {
        let in_flight = bench
            .start(move |inputs| {
                loans(inputs).into_iter().for_each(way);
                Ok(ScriptedSums::never())
            })
            .unwrap();
        assert_eq!(input_bytes(&bench.memory), 0);
        assert_eq!(in_flight.public(), &bench.witness[1..2]);
    }
    assert!(bench.memory.ledger().peak_total() > 0);
}

#[test]
fn inputs_that_the_backend_never_looked_at_are_gone_too() {
    let bench = Bench::new();
    let _in_flight = bench
        .start(|inputs| {
            std::mem::forget(inputs);
            Ok(ScriptedSums::never())
        })
        .unwrap();
    assert_eq!(input_bytes(&bench.memory), 0);
}

#[test]
fn an_early_release_shows_in_the_ledger_inside_start() {
    let bench = Bench::new();
    let memory = bench.memory.clone();
    bench.memory.ledger().record_history();
    let in_flight = bench.start(move |inputs| {
        let [witness, a, b, c] = loans(inputs);
        let (row_bytes, witness_bytes) = (size_of_val(&*a) as u64, size_of_val(&*witness) as u64);
        let evaluations = || memory.ledger().now()[MemoryClass::Evaluations];
        assert_eq!(evaluations(), 3 * row_bytes);
        c.release();
        assert_eq!(evaluations(), 2 * row_bytes);
        b.release();
        a.release();
        assert_eq!((evaluations(), memory.ledger().now()[MemoryClass::Witness]), (0, witness_bytes));
        witness.release();
        assert_eq!(memory.ledger().now().total(), 0);
        Ok(ScriptedSums::never())
    });
    assert!(in_flight.is_ok());
    let history = bench.memory.ledger().history();
    let evaluations: Vec<u64> =
        history.iter().filter(|e| e.class == MemoryClass::Evaluations).map(|e| e.bytes).collect();
    let row_bytes = evaluations[0];
    assert_eq!(evaluations, [1, 2, 3, 2, 1, 0].map(|vectors| vectors * row_bytes));
}

#[test]
fn scoped_threads_may_read_and_release_inside_start() {
    let bench = Bench::new();
    let expected: Scalar = bench.witness.iter().sum();
    let result = bench.start(move |inputs| {
        let [witness, a, b, c] = loans(inputs);
        let total: Scalar = std::thread::scope(|scope| {
            let halves = witness.split_at(2);
            let threads = [halves.0, halves.1].map(|half| scope.spawn(move || half.iter().sum::<Scalar>()));
            scope.spawn(move || c.release());
            scope.spawn(move || drop((a, b)));
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(total, expected);
        Ok(ScriptedSums::never())
    });
    assert!(result.is_ok() && input_bytes(&bench.memory) == 0);
}

#[test]
fn proofs_start_and_finish_on_many_threads_at_once() {
    let bench = Bench::new();
    let (prover, key) = bench.prover(NaiveProver);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| prover.start(&key, bench.inputs()).unwrap().finish().unwrap());
        }
    });
    assert_eq!(bench.memory.ledger().now().total(), 0);
}

#[test]
fn a_pending_proof_outlives_its_prover_and_its_key() {
    let bench = Bench::new();
    let (prover, key) = bench.prover(NaiveProver);
    let in_flight = prover.start(&key, bench.inputs()).unwrap();
    drop(prover);
    drop(key);
    assert!(in_flight.finish().is_ok());
}

#[test]
fn a_dropped_proof_drops_what_is_pending_and_a_finished_one_does_too() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let bench = Bench::new();
    let start = || {
        let pending = || ScriptedSums::new(|| Ok(sums())).dropped_with(|| _ = DROPS.fetch_add(1, Ordering::SeqCst));
        bench.start(move |_| Ok(pending())).unwrap()
    };
    drop(start());
    assert_eq!(DROPS.load(Ordering::SeqCst), 1);
    assert_eq!(start().finish_sums().unwrap(), sums());
    assert_eq!(DROPS.load(Ordering::SeqCst), 2);
}

#[test]
fn a_backend_may_wrap_another() {
    let bench = Bench::new();
    let (prover, key) = bench.prover(Altered::new(Altered::new(NaiveProver, |_| ()), |_| ()));
    assert!(prover.start(&key, bench.inputs()).unwrap().finish().is_ok());
    assert_eq!(input_bytes(&bench.memory), 0);
}
