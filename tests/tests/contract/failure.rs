//! What the caller gets back when `start` fails, and when a backend computes wrongly.

use std::sync::Arc;

use ff::Field;
use group::prime::PrimeCurveAffine;
use splitprover_core::error::InputsError;
use splitprover_core::{
    BackendError, Evaluations, FinishError, G1Affine, G2Affine, Inputs, Lent, LentInputs, MemoryClass, Prover,
    QuerySums, Scalar, StartError,
};
use splitprover_tests::naive::NaiveProver;
use splitprover_tests::scripted::{Altered, Scripted, ScriptedSums};

use crate::{Bench, input_bytes, loans, no_memory, vectors};

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
