use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_core::{
    Evaluations, HBasis, HostBuf, HostMemory, Inputs, LoadedKey, MemoryClass, Prover, Scalar, StartError,
};
use splitprover_harness::setup::{CpuFixedBase, Resources, Shape, Synthetic, Trapdoor, generate};

use super::*;
use crate::driver::FaultPlan;

const GIB: u64 = 1 << 30;

fn development_key(circuit: &Synthetic, basis: HBasis) -> Arc<ProvingKey> {
    let memory = HostMemory::default();
    let fixed_base = CpuFixedBase::new(1 << circuit.log2());
    let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
    generate(circuit, basis, &Trapdoor::from_seed(7, basis), &resources).unwrap().key
}

/// Kernels on the CPU, where there is a C++ compiler.
fn emulated(vram: u64, options: OpenOptions) -> Option<Prover<CudaProver>> {
    if !crate::emulator::available() {
        println!("skipped, no C++ compiler");
        return None;
    }
    let context = Context::emulated(vram);
    Some(Prover::new(CudaProver::with_context(context, options).unwrap()))
}

fn options() -> OpenOptions {
    OpenOptions { threads: 2, ..OpenOptions::default() }
}

fn rows_of(key: &ProvingKey, witness: &[Scalar], memory: &HostMemory, with_c: bool) -> Evaluations {
    let matrices = key.matrices().unwrap();
    let product = |matrix: &splitprover_core::CsrMatrix| -> HostBuf<Scalar> {
        let rows: Vec<Scalar> =
            (0..matrix.num_rows()).map(|i| matrix.row(i).map(|(j, c)| c * witness[j]).sum()).collect();
        memory.copy_of(MemoryClass::Evaluations, &rows).unwrap()
    };
    let (a, b) = (product(&matrices.a), product(&matrices.b));
    let c = with_c.then(|| {
        let c: Vec<Scalar> = a.iter().zip(b.iter()).map(|(a, b)| *a * b).collect();
        memory.copy_of(MemoryClass::Evaluations, &c).unwrap()
    });
    Evaluations { a, b, c }
}

/// The same inputs in every form in which a caller can give them.
fn every_form(
    key: &ProvingKey,
    witness: &HostBuf<Scalar>,
    pool: &PinnedPool,
    memory: &HostMemory,
) -> Vec<(&'static str, Inputs)> {
    let copy = || memory.copy_of(MemoryClass::Witness, witness).unwrap();
    let pinned = |values: &[Scalar], class| {
        let mut buffer = pool.buffer::<Scalar>(memory, class, values.len()).unwrap();
        buffer.copy_from_slice(values);
        buffer
    };
    let rows = rows_of(key, witness, memory, true);
    let in_pool = |values: &[Scalar]| pinned(values, MemoryClass::Evaluations);
    let pinned_rows = Evaluations { a: in_pool(&rows.a), b: in_pool(&rows.b), c: None };
    vec![
        ("witness", Inputs::new(copy())),
        ("pinned witness", Inputs::new(pinned(witness, MemoryClass::Witness))),
        ("a, b", Inputs::with_evaluations(copy(), rows_of(key, witness, memory, false))),
        ("a, b, c", Inputs::with_evaluations(copy(), rows)),
        ("pinned a, b", Inputs::with_evaluations(pinned(witness, MemoryClass::Witness), pinned_rows)),
    ]
}

fn reference(key: &Arc<ProvingKey>, witness: &[Scalar], memory: &HostMemory) -> QuerySums {
    let cpu = Prover::new(CpuBackend::new(CpuOptions::default()).unwrap());
    let loaded = cpu.load_key(key.clone()).unwrap();
    let inputs = Inputs::new(memory.copy_of(MemoryClass::Witness, witness).unwrap());
    cpu.start(&loaded, inputs).unwrap().finish_sums().unwrap()
}

#[test]
fn sums_equal_the_cpus_for_every_form_of_inputs_and_both_bases() {
    let Some(prover) = emulated(GIB, options()) else { return };
    let memory = HostMemory::default();
    let ledger = memory.ledger().clone();
    // A proof takes the emulator seconds, so the second basis is met in two forms only.
    for (shape, log2, basis, forms) in
        [(Shape::Porep, 4, HBasis::OddLagrange, 5), (Shape::Dense, 4, HBasis::Monomial, 2)]
    {
        let circuit = Synthetic::new(shape, log2).unwrap();
        let key = development_key(&circuit, basis);
        let loaded = prover.load_key(key.clone()).unwrap();
        let witness = circuit.witness(3, &memory).unwrap();
        let expected = reference(&key, &witness, &memory);
        let pool = prover.backend().pinned_pool();
        for (name, inputs) in every_form(&key, &witness, pool, &memory).into_iter().rev().take(forms) {
            let pending = prover.start(&loaded, inputs).unwrap();
            let sums = pending.finish_sums().unwrap();
            assert_eq!(expected.differences(&sums), [""; 0], "{shape:?} 2^{log2} {basis:?}: {name}");
        }
        drop(witness);
        assert_eq!(ledger.now()[MemoryClass::Evaluations], 0);
        assert_eq!(ledger.now()[MemoryClass::Witness], 0);
    }
}

#[test]
fn a_proof_verifies_with_copies_of_the_bases_and_with_the_key_dropped_in_flight() {
    let Some(prover) = emulated(GIB, OpenOptions { copies: 4, slots: 1, ..options() }) else { return };
    let memory = HostMemory::default();
    let circuit = Synthetic::new(Shape::Mixed, 4).unwrap();
    let loaded = prover.load_key(development_key(&circuit, HBasis::OddLagrange)).unwrap();
    let context = prover.backend().context().clone();
    let first = prover.start(&loaded, Inputs::new(circuit.witness(1, &memory).unwrap())).unwrap();
    let second = prover.start(&loaded, Inputs::new(circuit.witness(2, &memory).unwrap())).unwrap();
    drop(loaded);
    drop(prover);
    first.finish().unwrap();
    drop(second);
    let live = context.live();
    assert_eq!((live.device_bytes, live.pinned_bytes, live.objects), (0, 0, 0));
}

#[test]
fn a_key_that_does_not_fit_is_streamed_and_gives_the_same_sums() {
    let memory = HostMemory::default();
    let circuit = Synthetic::new(Shape::Dense, 4).unwrap();
    let key = development_key(&circuit, HBasis::OddLagrange);
    let witness = circuit.witness(9, &memory).unwrap();
    let expected = reference(&key, &witness, &memory);
    let Some(prover) = emulated(GIB, options()) else { return };
    // Forced, since no real limit is this small: a third of each query resident, the rest in chunks of five.
    let mut plan = None;
    let loaded = DeviceKey::load_with(&prover.backend().instance, &key, |sizes, available| {
        let mut residency = crate::residency::Residency::plan(sizes, available)?;
        residency.slots = 1;
        residency.chunk = 5;
        residency.resident = sizes.bases.map(|count| count / 3);
        plan = Some(residency.clone());
        Ok(residency)
    });
    let loaded = CudaKey(Arc::new(loaded.unwrap()));
    assert!(loaded.residency().contains("chunks of 5"), "{}", loaded.residency());
    let prover = Prover::new(Injected { inner: prover.backend().clone(), key: loaded });
    let loaded = prover.load_key(key.clone()).unwrap();
    for _ in 0..2 {
        let inputs = Inputs::new(memory.copy_of(MemoryClass::Witness, &witness).unwrap());
        let dropped = prover.start(&loaded, inputs).unwrap();
        let inputs = Inputs::new(memory.copy_of(MemoryClass::Witness, &witness).unwrap());
        let pending = prover.start(&loaded, inputs).unwrap();
        drop(dropped);
        assert_eq!(expected.differences(&pending.finish_sums().unwrap()), [""; 0]);
    }
}

/// A backend whose key was made beforehand.
struct Injected {
    inner: CudaProver,
    key: CudaKey,
}

impl SplitProver for Injected {
    type Key = CudaKey;
    type Pending = CudaPending;

    fn load_key(&self, _: &Arc<ProvingKey>) -> Result<CudaKey, BackendError> {
        Ok(self.key.clone())
    }

    fn start<'i>(&self, key: &CudaKey, inputs: LentInputs<'i>) -> Result<CudaPending, BackendError> {
        self.inner.start(key, inputs)
    }

    fn retained_host_bytes(&self, shape: &CircuitShape) -> u64 {
        self.inner.retained_host_bytes(shape)
    }
}

fn dry(vram: u64, options: OpenOptions) -> Result<Prover<CudaProver>, BackendError> {
    Ok(Prover::new(CudaProver::with_context(Context::dry(vram), options)?))
}

#[test]
fn every_driver_call_of_a_proof_may_fail_and_nothing_leaks_or_stays_broken() {
    let memory = HostMemory::default();
    let circuit = Synthetic::new(Shape::Porep, 6).unwrap();
    let key = development_key(&circuit, HBasis::OddLagrange);
    let witness = circuit.witness(5, &memory).unwrap();
    let prover = dry(GIB, options()).unwrap();
    let context = prover.backend().context().clone();
    let idle = context.live();
    let run = |loaded: &LoadedKey<CudaProver>, pinned: bool| -> Result<(), Option<StartError>> {
        let mut forms = every_form(&key, &witness, prover.backend().pinned_pool(), &memory);
        let (_, inputs) = forms.remove(if pinned { 4 } else { 0 });
        drop(forms);
        prover.start(loaded, inputs).map_err(Some)?.finish_sums().map(drop).map_err(|_| None)
    };
    let mut handed_back = 0;
    for pinned in [false, true] {
        // The buffers of the pool exist before faults are counted.
        let loaded = prover.load_key(key.clone()).unwrap();
        run(&loaded, pinned).unwrap();
        let mut at = 0;
        loop {
            at += 1;
            // Formed before the fault is armed, in `run`'s first lines otherwise.
            let mut forms = every_form(&key, &witness, prover.backend().pinned_pool(), &memory);
            let (_, inputs) = forms.remove(if pinned { 4 } else { 0 });
            drop(forms);
            context.faults().arm(FaultPlan { at, only: None, lost: false });
            let result = prover.start(&loaded, inputs);
            let outcome = match result {
                Ok(pending) => pending.finish_sums().map(drop).map_err(|error| error.to_string()),
                Err(error) => {
                    handed_back += usize::from(error.inputs.is_some());
                    Err(error.to_string())
                }
            };
            if !context.faults().disarm() {
                outcome.unwrap();
                break;
            }
            assert!(outcome.is_err(), "call {at}");
            run(&loaded, pinned).unwrap_or_else(|error| panic!("after call {at} failed: {error:?}"));
        }
        assert!(at > 30, "{at} calls");
        drop(loaded);
        prover.backend().pinned_pool().trim();
        assert_eq!(context.live(), idle, "pinned: {pinned}");
        assert_eq!(memory.ledger().now()[MemoryClass::Evaluations], 0);
    }
    assert!(handed_back > 0, "inputs that were not touched come back");
}

#[test]
fn every_driver_call_of_loading_a_key_may_fail_and_nothing_leaks() {
    let circuit = Synthetic::new(Shape::Porep, 6).unwrap();
    let key = development_key(&circuit, HBasis::Monomial);
    let prover = dry(GIB, OpenOptions { copies: 3, ..options() }).unwrap();
    let context = prover.backend().context().clone();
    let idle = context.live();
    let mut at = 0;
    loop {
        at += 1;
        context.faults().arm(FaultPlan { at, only: None, lost: false });
        let result = prover.load_key(key.clone());
        if !context.faults().disarm() {
            result.unwrap();
            break;
        }
        assert!(result.is_err(), "call {at}");
        drop(result);
        assert_eq!(context.live(), idle, "call {at}");
    }
    assert!(at > 60, "{at} calls");
}

#[test]
fn every_driver_call_of_opening_a_card_may_fail() {
    let mut at = 0;
    loop {
        at += 1;
        let context = Context::dry(GIB);
        context.faults().arm(FaultPlan { at, only: None, lost: false });
        let result = CudaProver::with_context(context.clone(), options());
        if !context.faults().disarm() {
            result.unwrap();
            break;
        }
        assert!(result.is_err(), "call {at}");
        let live = context.live();
        assert_eq!((live.device_bytes, live.pinned_bytes, live.objects), (0, 0, 0), "call {at}");
    }
    assert!(at > 30, "{at} calls");
}

#[test]
fn a_lost_context_is_refused_from_then_on_and_other_cards_are_unharmed() {
    let memory = HostMemory::default();
    let circuit = Synthetic::new(Shape::Porep, 5).unwrap();
    let key = development_key(&circuit, HBasis::OddLagrange);
    let (lost, other) = (dry(GIB, options()).unwrap(), dry(GIB, options()).unwrap());
    let (lost_key, other_key) = (lost.load_key(key.clone()).unwrap(), other.load_key(key.clone()).unwrap());
    let inputs = || Inputs::new(circuit.witness(5, &memory).unwrap());
    let context = lost.backend().context().clone();
    context.faults().arm(FaultPlan { at: 20, only: None, lost: true });
    let outcome = lost.start(&lost_key, inputs()).map(|pending| pending.finish_sums().map(drop));
    assert!(matches!(outcome, Err(_) | Ok(Err(_))));
    assert!(context.faults().disarm());
    let refused = lost.start(&lost_key, inputs()).unwrap_err();
    assert!(matches!(refused.source, BackendError::Poisoned(_)), "{refused}");
    assert!(refused.inputs.is_some());
    assert!(matches!(lost.load_key(key), Err(BackendError::Poisoned(_))));
    other.start(&other_key, inputs()).unwrap().finish_sums().unwrap();
}

#[test]
fn memory_does_not_grow_over_many_proofs() {
    let memory = HostMemory::default();
    let circuit = Synthetic::new(Shape::Mixed, 6).unwrap();
    let prover = dry(GIB, options()).unwrap();
    let loaded = prover.load_key(development_key(&circuit, HBasis::OddLagrange)).unwrap();
    let context = prover.backend().context().clone();
    let mut pending = Vec::new();
    let mut live = None;
    for i in 0..200 {
        pending.push(prover.start(&loaded, Inputs::new(circuit.witness(i, &memory).unwrap())).unwrap());
        if pending.len() == 4 {
            // Finished out of order, and dropped.
            pending.swap_remove(1).finish_sums().unwrap();
            pending.clear();
        }
        if i == 20 {
            live = Some(context.live());
        }
    }
    pending.clear();
    assert_eq!(live, Some(context.live()));
}

#[test]
fn a_card_that_is_too_small_says_how_much_is_missing_and_gives_the_inputs_back() {
    let circuit = Synthetic::new(Shape::Dense, 10).unwrap();
    let prover = dry(GIB, OpenOptions { vram_limit: Some(1 << 20), ..options() }).unwrap();
    let error = prover.load_key(development_key(&circuit, HBasis::OddLagrange)).unwrap_err();
    let BackendError::DeviceMemory { requested, available, .. } = error else { panic!("{error}") };
    assert!(requested > available && available <= 1 << 20);
}
