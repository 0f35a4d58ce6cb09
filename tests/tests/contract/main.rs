//! The contract, from both sides: what callers get and what backends can do to them.
#![expect(clippy::drop_non_drop, clippy::forget_non_drop, reason = "loans dropped or forgotten are the subject")]

mod failure;
mod keys;
mod panics;
mod pools;
mod success;

use group::prime::PrimeCurveAffine;
use rand_core::OsRng;
use splitprover_core::{
    BackendError, Disposal, Evaluations, G1Affine, G2Affine, HostBuf, HostMemory, InFlight, Inputs, Lent,
    LentEvaluations, LentInputs, LoadedKey, MemoryClass, Prover, QuerySums, Scalar, SplitProver, StartError,
};
use splitprover_tests::naive::Setup;
use splitprover_tests::scripted::{Scripted, ScriptedSums};

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
