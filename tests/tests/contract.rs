//! The contract, from both sides: what callers get and what backends can do to them.
#![expect(clippy::drop_non_drop, clippy::forget_non_drop, reason = "what becomes of loans that are dropped or forgotten")]

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use ff::Field;
use group::prime::PrimeCurveAffine;
use rand_core::OsRng;
use splitprover_core::error::InputsError;
use splitprover_core::host_buf::{ForeignMemory, Origin, POISON};
use splitprover_core::point::PointFault;
use splitprover_core::{
    BackendError, Bitmap, Disposal, Evaluations, FinishError, G1Affine, G2Affine, HBasis, HostBuf, HostMemory,
    InFlight, Inputs, KeyError, Lent, LentEvaluations, LentInputs, LoadedKey, MemoryClass, PointTable, Prover,
    ProvingKey, Query, QuerySums, Scalar, SplitProver, StartError,
};
use splitprover_tests::naive::{NaiveProver, Setup};
use splitprover_tests::scripted::{Altered, Scripted, ScriptedKeys, ScriptedSums};

/// Bytes of evaluations and witness that exist now.
fn input_bytes(memory: &HostMemory) -> u64 {
    let now = memory.ledger().now();
    now[MemoryClass::Evaluations] + now[MemoryClass::Witness]
}

fn sums() -> QuerySums {
    let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
    QuerySums { a: g1, b_g1: g1, b_g2: g2, hl: g1 }
}

/// A setup, memory for inputs, and the words to say "a backend that does so in start".
struct Bench {
    setup: Setup,
    memory: HostMemory,
    witness: Vec<Scalar>,
}

impl Bench {
    fn new() -> Self {
        let setup = Setup::small();
        let witness = setup.circuit.assignment(&mut OsRng);
        Self { setup, memory: HostMemory::default(), witness }
    }

    fn with_disposal(disposal: Disposal) -> Self {
        let bench = Self::new();
        Self { memory: bench.memory.with_disposal(disposal), ..bench }
    }

    /// Witness, a, b and c.
    fn inputs(&self) -> Inputs {
        self.setup.inputs_with_evaluations(&self.memory, &self.witness, true).unwrap()
    }

    fn prover<P: SplitProver>(&self, backend: P) -> (Prover<P>, LoadedKey<P>) {
        let prover = Prover::new(backend);
        let key = prover.load_key(self.setup.key.clone()).unwrap();
        (prover, key)
    }

    fn scripted(
        &self,
        on_start: impl for<'i> Fn(LentInputs<'i>) -> Result<ScriptedSums, BackendError> + Send + Sync + 'static,
    ) -> (Prover<Scripted>, LoadedKey<Scripted>) {
        self.prover(Scripted::new(on_start))
    }

    /// One `start` of a backend that does so.
    fn start(
        &self,
        on_start: impl for<'i> Fn(LentInputs<'i>) -> Result<ScriptedSums, BackendError> + Send + Sync + 'static,
    ) -> Result<InFlight<Scripted>, StartError> {
        let (prover, key) = self.scripted(on_start);
        prover.start(&key, self.inputs())
    }
}

/// The four loans, witness first.
fn loans(inputs: LentInputs<'_>) -> [Lent<'_>; 4] {
    let LentInputs { witness, evaluations, .. } = inputs;
    let LentEvaluations { a, b, c, .. } = evaluations.expect("the test gives evaluations");
    [witness, a, b, c.expect("the test gives c")]
}

fn no_memory() -> BackendError {
    BackendError::DeviceMemory { what: "buckets", requested: 2, available: 1 }
}

fn panicked(error: &BackendError) -> &str {
    match error {
        BackendError::Panicked(reason) => reason,
        other => panic!("not a panic: {other}"),
    }
}

fn vectors(inputs: &Inputs) -> Vec<&HostBuf<Scalar>> {
    let Evaluations { a, b, c } = inputs.evaluations().unwrap();
    vec![inputs.witness(), a, b, c.as_ref().unwrap()]
}

// --- success ---------------------------------------------------------------------------------------------------------

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

// --- failure ---------------------------------------------------------------------------------------------------------

#[test]
fn an_untouched_failure_hands_back_the_same_memory_which_proves_on_another_instance() {
    let bench = Bench::new();
    let inputs = bench.inputs();
    let before: Vec<_> = vectors(&inputs).iter().map(|v| (v.as_ptr() as usize, v.to_vec())).collect();
    let bytes = input_bytes(&bench.memory);

    let (full, key) = bench.scripted(|inputs| {
        let read: Scalar = loans(inputs).iter().flat_map(|loan| loan.iter()).sum();
        assert_ne!(read, Scalar::ZERO);
        Err(no_memory())
    });
    let StartError { source, inputs } = full.start(&key, inputs).unwrap_err();
    assert!(matches!(source, BackendError::DeviceMemory { requested: 2, available: 1, .. }), "{source}");
    let inputs = *inputs.expect("nothing was released or changed");
    let after: Vec<_> = vectors(&inputs).iter().map(|v| (v.as_ptr() as usize, v.to_vec())).collect();
    assert_eq!(after, before);
    assert_eq!(input_bytes(&bench.memory), bytes);

    // A failure is no panic: the instance goes on.
    let StartError { inputs, .. } = full.start(&key, inputs).unwrap_err();
    let (other, key) = bench.prover(NaiveProver);
    let proof = other.start(&key, *inputs.unwrap()).unwrap();
    assert_eq!(input_bytes(&bench.memory), 0);
    assert!(proof.finish().is_ok());
}

#[test]
fn loans_dropped_or_forgotten_before_a_failure_are_handed_back() {
    let bench = Bench::new();
    for end in [|loan: Lent<'_>| drop(loan), |loan: Lent<'_>| std::mem::forget(loan)] {
        let result = bench.start(move |inputs| {
            loans(inputs).into_iter().for_each(end);
            Err(no_memory())
        });
        let inputs = result.unwrap_err().inputs.expect("the loans only ended");
        assert_eq!(inputs.witness()[..], bench.witness[..]);
    }
}

#[test]
fn a_failure_after_a_release_or_a_change_hands_nothing_back_and_frees_the_rest() {
    let bench = Bench::new();
    for touched in 0..4 {
        for touch in [|loan: Lent<'_>| loan.release(), |mut loan: Lent<'_>| _ = loan.make_mut()] {
            let result = bench.start(move |inputs| {
                touch(loans(inputs).into_iter().nth(touched).unwrap());
                Err(BackendError::device("upload", "lost"))
            });
            let StartError { source, inputs } = result.unwrap_err();
            assert!(inputs.is_none(), "vector {touched}");
            assert!(matches!(source, BackendError::Device { what: "upload", .. }));
            assert_eq!(input_bytes(&bench.memory), 0);
        }
    }
}

#[test]
fn scratch_space_is_the_vector_itself() {
    let bench = Bench::new();
    let expected = bench.witness.clone();
    let result = bench.start(move |inputs| {
        let [mut witness, ..] = loans(inputs);
        assert_eq!(witness.make_mut(), expected);
        witness.make_mut()[0] = Scalar::from(9);
        assert_eq!(witness[0], Scalar::from(9));
        Ok(ScriptedSums::never())
    });
    assert!(result.is_ok());
}

#[test]
fn inputs_without_evaluations_come_back_without() {
    let bench = Bench::new();
    let (prover, key) = bench.scripted(|inputs| {
        assert!(inputs.evaluations.is_none());
        Err(no_memory())
    });
    let error = prover.start(&key, bench.setup.inputs(&bench.memory, &bench.witness).unwrap()).unwrap_err();
    assert!(error.inputs.unwrap().evaluations().is_none());
    let (prover, key) = bench.scripted(|inputs| {
        assert!(inputs.evaluations.unwrap().c.is_none());
        Err(no_memory())
    });
    let inputs = bench.setup.inputs_with_evaluations(&bench.memory, &bench.witness, false).unwrap();
    let error = prover.start(&key, inputs).unwrap_err();
    assert!(error.inputs.unwrap().evaluations().unwrap().c.is_none());
}

#[test]
fn a_key_that_another_instance_loaded_is_refused() {
    let bench = Bench::new();
    let (first, _) = bench.prover(NaiveProver);
    let (_second, foreign) = bench.prover(NaiveProver);
    let error = first.start(&foreign, bench.inputs()).unwrap_err();
    assert!(matches!(error.source, BackendError::ForeignKey));
    assert!(error.inputs.is_some());
}

#[test]
fn inputs_that_do_not_fit_the_key_are_named_and_handed_back_before_the_backend_sees_them() {
    let bench = Bench::new();
    let never = |_: LentInputs<'_>| -> Result<ScriptedSums, BackendError> { unreachable!("core checks inputs first") };
    let (prover, key) = bench.scripted(never);
    let shape = bench.setup.key.shape();
    let (variables, n) = (shape.num_variables, shape.domain_size());

    let witness = |len: usize, first: Scalar| {
        let mut witness = bench.memory.zeroed(MemoryClass::Witness, len).unwrap();
        witness.iter_mut().take(1).for_each(|x| *x = first);
        witness
    };
    let rows = |len: usize| bench.memory.zeroed::<Scalar>(MemoryClass::Evaluations, len).unwrap();
    let evaluated = |a: usize, b: usize, c: Option<usize>| {
        let evaluations = Evaluations { a: rows(a), b: rows(b), c: c.map(rows) };
        Inputs::with_evaluations(witness(variables, Scalar::ONE), evaluations)
    };
    let rows_error = |vector, found, expected| InputsError::EvaluationLength { vector, found, expected };
    for (inputs, expected) in [
        (Inputs::new(witness(0, Scalar::ONE)), InputsError::WitnessLength { found: 0, expected: variables }),
        (
            Inputs::new(witness(variables - 1, Scalar::ONE)),
            InputsError::WitnessLength { found: variables - 1, expected: variables },
        ),
        (
            Inputs::new(witness(variables + 1, Scalar::ONE)),
            InputsError::WitnessLength { found: variables + 1, expected: variables },
        ),
        (Inputs::new(witness(variables, Scalar::ZERO)), InputsError::FirstNotOne),
        (Inputs::new(witness(variables, -Scalar::ONE)), InputsError::FirstNotOne),
        (evaluated(n + 1, n + 1, None), rows_error("a", n + 1, n)),
        (evaluated(n, n - 1, None), rows_error("b", n - 1, n)),
        (evaluated(n - 1, n, Some(n)), rows_error("b", n, n - 1)),
        (evaluated(n, n, Some(n + 1)), rows_error("c", n + 1, n)),
        (evaluated(n, n, Some(0)), rows_error("c", 0, n)),
    ] {
        let bytes = input_bytes(&bench.memory);
        let StartError { source, inputs } = prover.start(&key, inputs).unwrap_err();
        let BackendError::Inputs(found) = source else { panic!("{source}") };
        assert_eq!(found, expected);
        assert!(inputs.is_some() && input_bytes(&bench.memory) == bytes);
    }

    let bare = Prover::new(Scripted::new(never));
    let key = bare.load_key(Arc::new(bench.setup.key.without_matrices())).unwrap();
    let error = bare.start(&key, Inputs::new(witness(variables, Scalar::ONE))).unwrap_err();
    assert!(matches!(error.source, BackendError::Inputs(InputsError::EvaluationsMissing)));
    assert!(error.inputs.is_some());
}

#[test]
fn evaluations_shorter_than_the_domain_and_empty_ones_fit() {
    let bench = Bench::new();
    for len in [0, 1, bench.setup.key.shape().domain_size()] {
        let rows = || bench.memory.zeroed(MemoryClass::Evaluations, len).unwrap();
        let witness = bench.memory.copy_of(MemoryClass::Witness, &bench.witness).unwrap();
        let inputs = Inputs::with_evaluations(witness, Evaluations { a: rows(), b: rows(), c: None });
        let (prover, key) = bench.prover(NaiveProver);
        assert!(prover.start(&key, inputs).unwrap().finish_sums().is_ok());
    }
}

// --- panics ----------------------------------------------------------------------------------------------------------

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

#[test]
fn any_panic_payload_is_survived() {
    let bench = Bench::new();
    let throws: [(fn(), &str); 4] = [
        (|| panic!("text"), "text"),
        (|| panic!("{}", "formatted"), "formatted"),
        (|| panic_any(5u8), "a payload that is no text"),
        (|| panic_any(Bomb(3)), "a payload that is no text"),
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

// --- wrong sums ------------------------------------------------------------------------------------------------------

#[test]
fn a_wrong_sum_is_never_handed_out_as_a_proof() {
    let bench = Bench::new();
    let alterations: [fn(&mut QuerySums); 4] = [
        |sums| sums.a = (sums.a.to_curve() + G1Affine::generator()).into(),
        |sums| sums.b_g1 = -sums.b_g1,
        |sums| sums.b_g2 = G2Affine::identity(),
        |sums| sums.hl = G1Affine::identity(),
    ];
    for alter in alterations {
        let (prover, key) = bench.prover(Altered::new(NaiveProver, alter));
        let in_flight = prover.start(&key, bench.inputs()).unwrap();
        assert!(matches!(in_flight.finish(), Err(FinishError::ProofInvalid)));
    }
}

// --- keys ------------------------------------------------------------------------------------------------------------

/// On the curve and outside the subgroup: small x coordinates hit the curve half of the time, the subgroup hardly ever.
fn outside_the_subgroup() -> G1Affine {
    (1u8..)
        .find_map(|x| {
            let mut bytes = [0; 48];
            (bytes[0], bytes[47]) = (0x80, x);
            Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
        })
        .unwrap()
}

#[test]
fn a_key_whose_parts_do_not_fit_together_is_refused() {
    let parts = || Setup::random(3, HBasis::Monomial, 1, 1, 4).key.parts().clone();
    let refused = |change: &dyn Fn(&mut splitprover_core::ProvingKeyParts)| {
        let mut parts = parts();
        change(&mut parts);
        ProvingKey::new(parts).unwrap_err()
    };
    let point = |part, fault| KeyError::Point { part, fault };
    assert!(ProvingKey::new(parts()).is_ok());
    assert_eq!(refused(&|p| p.delta_g1 = outside_the_subgroup()), point("delta in G1", PointFault::OutsideSubgroup));
    assert_eq!(refused(&|p| p.beta_g1 = outside_the_subgroup()), point("beta in G1", PointFault::OutsideSubgroup));
    assert_eq!(refused(&|p| p.beta_g1 = G1Affine::identity()), point("beta in G1", PointFault::Infinity));
    assert_eq!(refused(&|p| p.delta_g1 = G1Affine::identity()), point("delta in G1", PointFault::Infinity));

    let (variables, n) = (parts().a.num_variables(), parts().domain.size());
    let query = |len: usize| Query::full(PointTable::from_points(&vec![G1Affine::generator(); len]));
    let length = |part, found, expected| KeyError::Length { part, found, expected };
    assert_eq!(refused(&|p| p.b_g1 = query(variables - 1)), length("B query in G1", variables - 1, variables));
    assert_eq!(refused(&|p| p.l = query(variables - 1)), length("L query", variables - 1, variables - 2));
    assert_eq!(refused(&|p| p.h = query(n)), length("H query", n, n - 1));
    assert_eq!(refused(&|p| p.a = query(1)), KeyError::Variables { num_variables: 1, num_public: 1 });
    assert!(
        Query::compact(PointTable::from_points(&[G1Affine::generator()]), Arc::new(Bitmap::from_fn(3, |_| true)))
            .is_none()
    );
    assert!(
        Query::spread(PointTable::from_points(&[G1Affine::generator()]), Arc::new(Bitmap::from_fn(3, |_| true)))
            .is_none()
    );
}

#[test]
fn records_out_of_range_panic_rather_than_wrap() {
    let table = PointTable::from_points(&[G1Affine::generator(); 2]);
    for index in [2, usize::MAX / 96 + 1, usize::MAX] {
        assert!(catch_unwind(AssertUnwindSafe(|| table.get(index))).is_err(), "{index}");
        let check = catch_unwind(AssertUnwindSafe(|| table.check(index..index)));
        assert_eq!(check.is_ok(), index == 2, "{index}");
    }
}

// --- memory that is given back -----------------------------------------------------------------------------------------

/// A buffer from a pool of one's own, that goes back through a channel; its destructor may panic.
struct Lease {
    address: NonNull<u8>,
    buffer: Option<HostBuf<u8>>,
    back: mpsc::Sender<HostBuf<u8>>,
    panics: bool,
}

const LEASE_BYTES: usize = 1 << 20;

// SAFETY: the address is that of a buffer that this value owns, and plain memory isn't tied to a thread.
unsafe impl Send for Lease {}
// SAFETY: a shared lease gives out the address, and `ForeignMemory`'s user is the only one to use it.
unsafe impl Sync for Lease {}

// SAFETY: `address` is the first byte of `buffer`, a map of its own that doesn't move with it: initialised, aligned to 64
// bytes, and nobody else touches it until the drop.
unsafe impl ForeignMemory for Lease {
    fn as_mut_ptr(&self) -> NonNull<u8> {
        self.address
    }
    fn len_bytes(&self) -> usize {
        LEASE_BYTES
    }
    fn pool(&self) -> u64 {
        11
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.back.send(self.buffer.take().unwrap());
        if self.panics {
            panic!("the pool is gone");
        }
    }
}

/// A witness in pool memory, and where the memory goes when the witness is dropped.
fn leased_witness(bench: &Bench, panics: bool) -> (Inputs, mpsc::Receiver<HostBuf<u8>>) {
    let mut buffer = HostMemory::default().zeroed::<u8>(MemoryClass::PoolIdle, LEASE_BYTES).unwrap();
    let (back, returned) = mpsc::channel();
    let address = NonNull::new(buffer.as_mut_ptr()).unwrap();
    let lease = Lease { address, buffer: Some(buffer), back, panics };
    let mut witness = bench.memory.foreign(MemoryClass::Witness, Box::new(lease), bench.witness.len()).unwrap();
    witness.copy_from_slice(&bench.witness);
    (Inputs::new(witness), returned)
}

#[test]
fn pool_memory_is_back_in_its_pool_when_start_returns() {
    let bench = Bench::new();
    let (prover, key) = bench.scripted(|inputs| {
        assert_eq!(inputs.witness.origin(), Origin::Pool(11));
        Ok(ScriptedSums::never())
    });
    let (inputs, returned) = leased_witness(&bench, false);
    assert!(returned.try_recv().is_err());
    assert_eq!(input_bytes(&bench.memory), LEASE_BYTES as u64);
    let _in_flight = prover.start(&key, inputs).unwrap();
    assert!(returned.try_recv().is_ok());
    assert_eq!(input_bytes(&bench.memory), 0);
}

#[test]
fn pool_memory_that_panics_on_its_way_back_is_an_error_of_start() {
    let bench = Bench::new();
    let (prover, key) = bench.scripted(|_| Ok(ScriptedSums::never()));
    let (inputs, returned) = leased_witness(&bench, true);
    let StartError { source, inputs } = prover.start(&key, inputs).unwrap_err();
    assert_eq!((panicked(&source), inputs.is_none()), ("the pool is gone", true));
    assert!(returned.try_recv().is_ok() && input_bytes(&bench.memory) == 0);

    // The same when the backend releases it, and when it fails after that.
    let (prover, key) = bench.scripted(|inputs| {
        inputs.witness.release();
        Ok(ScriptedSums::never())
    });
    let (inputs, _returned) = leased_witness(&bench, true);
    let StartError { source, inputs } = prover.start(&key, inputs).unwrap_err();
    assert_eq!((panicked(&source), inputs.is_none(), input_bytes(&bench.memory)), ("the pool is gone", true, 0));

    // And when what is left is freed after a failure.
    let (prover, key) = bench.scripted(|mut inputs| {
        inputs.witness.make_mut();
        Err(no_memory())
    });
    let (inputs, _returned) = leased_witness(&bench, true);
    let StartError { source, inputs } = prover.start(&key, inputs).unwrap_err();
    assert!(matches!(source, BackendError::DeviceMemory { .. }) && inputs.is_none());
    assert_eq!(input_bytes(&bench.memory), 0);
}

#[test]
fn poison_is_what_a_late_device_copy_would_read() {
    for disposal in [Disposal::Poison, Disposal::Guard] {
        let bench = Bench::with_disposal(disposal);
        let (prover, key) = bench.scripted(|_| Ok(ScriptedSums::never()));
        let (inputs, returned) = leased_witness(&bench, false);
        let _in_flight = prover.start(&key, inputs).unwrap();
        let pool = returned.try_recv().unwrap();
        let used = size_of_val(&bench.witness[..]);
        assert!(pool[..used].iter().all(|&byte| byte == POISON), "{disposal:?}");
    }
    let bench = Bench::new();
    let (prover, key) = bench.scripted(|_| Ok(ScriptedSums::never()));
    let (inputs, returned) = leased_witness(&bench, false);
    let _in_flight = prover.start(&key, inputs).unwrap();
    assert!(returned.try_recv().unwrap()[..32].iter().any(|&byte| byte != POISON));
}

/// Where a misbehaving backend leaves the address of its witness.
static ADDRESS: Mutex<usize> = Mutex::new(0);

/// Run by the test below in a process of its own.
#[test]
#[ignore = "reads memory after it was released"]
fn late_reader() {
    let late = std::env::var("SPLITPROVER_LATE_READ").as_deref() == Ok("late");
    let bench = Bench::with_disposal(Disposal::Guard);
    let read = |what: &str| {
        let address = *ADDRESS.lock().unwrap() as *const u64;
        print!("reading {what}; ");
        std::io::stdout().flush().unwrap();
        // SAFETY: inside `start` the address is that of the witness. After it there is no argument: the read is what the
        // guard is there to catch, and the range stays reserved, so that it hits nothing else.
        let word = unsafe { address.read_volatile() };
        println!("read {what}: {}", word != 0);
    };
    let _in_flight = bench
        .start(move |inputs| {
            *ADDRESS.lock().unwrap() = inputs.witness.as_ptr() as usize;
            read("in time");
            Ok(ScriptedSums::never())
        })
        .unwrap();
    if late {
        read("late");
    }
}

#[test]
fn a_late_read_of_guarded_memory_faults() {
    let run = |when: &str| {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "late_reader", "--ignored", "--nocapture"])
            .env("SPLITPROVER_LATE_READ", when)
            .output()
            .unwrap();
        (output.status, String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, output) = run("never");
    assert!(status.success() && output.contains("read in time: true"), "{status}: {output}");
    let (status, output) = run("late");
    assert!(!status.success(), "{status}: {output}");
    assert!(output.contains("reading late;") && !output.contains("read late"), "{output}");
}
