//! What the C boundary costs: the CPU backend called directly, through the table in process, and from its shared library, on a
//! proof of 2^12 constraints; and a backend that does nothing, to see the boundary alone.
//!
//! Every timed proof is checked against the first one's sums.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use splitprover_backend_cpu::{CpuBackend, CpuOptions, CpuPlugin};
use splitprover_core::abi::{Backend, BackendPlugin, DeviceInfo, Host, OpenOptions, Options};
use splitprover_core::{
    BackendError, CircuitShape, G1Affine, G2Affine, HBasis, HostMemory, Inputs, LentInputs, PendingSums, Prover,
    ProvingKey, QuerySums, SplitProver,
};
use splitprover_harness::loader::Registry;
use splitprover_harness::setup::{CpuFixedBase, Resources, Shape, Synthetic, Trapdoor, generate};
use splitprover_tests::plugins;

const LOG2: u32 = 12;

/// A backend that releases its inputs and returns infinity.
struct Idle;
struct IdlePending;

impl PendingSums for IdlePending {
    fn finish(self) -> Result<QuerySums, BackendError> {
        let (g1, g2) = (G1Affine::default(), G2Affine::default());
        Ok(QuerySums { a: g1, b_g1: g1, b_g2: g2, hl: g1 })
    }
}

impl SplitProver for Idle {
    type Key = ();
    type Pending = IdlePending;

    fn load_key(&self, _: &Arc<ProvingKey>) -> Result<(), BackendError> {
        Ok(())
    }

    fn start<'i>(&self, (): &(), inputs: LentInputs<'i>) -> Result<IdlePending, BackendError> {
        inputs.witness.release();
        Ok(IdlePending)
    }

    fn retained_host_bytes(&self, _: &CircuitShape) -> u64 {
        0
    }
}

impl BackendPlugin for Idle {
    const NAME: &'static str = "idle";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = "1";
    type Prover = Self;

    fn devices(_: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        Ok(Vec::new())
    }

    fn open(_: usize, _: &Options, _: Host) -> Result<Self, BackendError> {
        Ok(Self)
    }
}

fn sums<P: SplitProver>(prover: P, key: &Arc<ProvingKey>, inputs: impl Fn() -> Inputs) -> impl FnMut(Inputs) {
    let prover = Prover::new(prover);
    let key = prover.load_key(key.clone()).unwrap();
    let expected = prover.start(&key, inputs()).unwrap().finish_sums().unwrap();
    move |inputs| {
        let sums = prover.start(&key, inputs).unwrap().finish_sums().unwrap();
        assert!(black_box(sums) == expected);
    }
}

fn boundary(criterion: &mut Criterion) {
    let memory = HostMemory::default();
    let circuit = Synthetic::new(Shape::Porep, LOG2).unwrap();
    let basis = HBasis::OddLagrange;
    let resources = Resources { memory: &memory, fixed_base: &CpuFixedBase::new(1 << LOG2), progress: &|_, _, _| {} };
    let key = generate(&circuit, basis, &Trapdoor::from_seed(1, basis), &resources).unwrap().key;
    let inputs = || Inputs::new(circuit.witness(1, &memory).unwrap());

    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let linked = CpuBackend::new(CpuOptions { threads: Some(threads), ..CpuOptions::default() }).unwrap();
    let table = Backend::in_process::<CpuPlugin>(&OpenOptions::new(0)).unwrap();
    let library = Registry::empty().load(plugins::cpu().to_str().unwrap()).unwrap().open(&OpenOptions::new(0)).unwrap();
    let mut group = criterion.benchmark_group(format!("porep 2^{LOG2}"));
    let mut direct = sums(linked, &key, inputs);
    group.bench_function("direct", |b| b.iter_batched(inputs, &mut direct, BatchSize::PerIteration));
    let mut in_process = sums(table, &key, inputs);
    group.bench_function("table in process", |b| b.iter_batched(inputs, &mut in_process, BatchSize::PerIteration));
    let mut loaded = sums(library, &key, inputs);
    group.bench_function("shared library", |b| b.iter_batched(inputs, &mut loaded, BatchSize::PerIteration));
    group.finish();

    let mut group = criterion.benchmark_group("idle");
    let mut direct = sums(Idle, &key, inputs);
    group.bench_function("direct", |b| b.iter_batched(inputs, &mut direct, BatchSize::SmallInput));
    let mut table = sums(Backend::in_process::<Idle>(&OpenOptions::new(0)).unwrap(), &key, inputs);
    group.bench_function("table in process", |b| b.iter_batched(inputs, &mut table, BatchSize::SmallInput));
    group.finish();
}

criterion_group!(benches, boundary);
criterion_main!(benches);
