//! Each driver call fails once on the card; then a kernel that reads where nothing is.

use std::sync::Arc;

use group::prime::PrimeCurveAffine;
use splitprover_backend_cuda::driver::{Arg, Context, DevicePtr, FaultPlan, Priority, Stream};
use splitprover_backend_cuda::kernels::{Cache, Family, Kernels};
use splitprover_backend_cuda::{CudaProver, OpenOptions};
use splitprover_core::abi::FixedBase as _;
use splitprover_core::{
    BackendError, G1Affine, G2Affine, HBasis, HostMemory, Inputs, LoadedKey, MemoryClass, Prover, ProvingKey,
    QuerySums, Scalar, SplitProver,
};
use splitprover_harness::setup::{Shape, Synthetic};

use crate::Outcome;
use crate::prove::{Failure, development_key, expect, open, sums_of};

/// Lets the k-th driver call of `work` fail for k = 1, 2, … until it has no more; each time `work` must fail and `after` must not.
fn each_call(
    what: &str,
    context: &Context,
    mut work: impl FnMut() -> Outcome,
    mut after: impl FnMut() -> Outcome,
) -> Outcome {
    let live = context.live();
    for at in 1.. {
        context.faults().arm(FaultPlan { at, only: None, lost: false });
        let outcome = work();
        if !context.faults().disarm() {
            outcome?;
            println!("{what}: {} calls failed once each", at - 1);
            break;
        }
        if outcome.is_ok() {
            return Err(format!("{what}: call {at} failed and nobody said so").into());
        }
        after().map_err(|error| format!("{what}: after call {at} had failed: {error}"))?;
    }
    let now = context.live();
    if (now.device_bytes, now.objects) != (live.device_bytes, live.objects) {
        return Err(format!("{what}: {live:?} before, {now:?} after").into());
    }
    Ok(())
}

/// Every call of opening a card fails once, on a context of its own each time.
fn opening() -> Outcome {
    for at in 1.. {
        let context = Context::open(0)?;
        context.faults().arm(FaultPlan { at, only: None, lost: false });
        let opened = CudaProver::with_context(context.clone(), OpenOptions::default());
        if !context.faults().disarm() {
            opened?;
            println!("opening: {} calls failed once each", at - 1);
            break;
        }
        if opened.is_ok() {
            return Err(format!("opening: call {at} failed and nobody said so").into());
        }
        let live = context.live();
        if (live.device_bytes, live.pinned_bytes, live.objects) != (0, 0, 0) {
            return Err(format!("opening: call {at} failed and left {live:?}").into());
        }
    }
    Ok(())
}

/// A card that may hold no more than the key needs at the least, so that its bases are streamed.
fn streaming(key: &Arc<ProvingKey>) -> Result<Prover<CudaProver>, Failure> {
    let mut limit = 64 << 20;
    for _ in 0..8 {
        let card = open(OpenOptions { vram_limit: Some(limit), ..OpenOptions::default() })?;
        match card.backend().load_key(key) {
            Ok(loaded) => {
                println!("streaming: {} under {} MiB", loaded.residency(), limit >> 20);
                let streams = loaded.residency().contains("chunks of");
                return if streams {
                    Ok(card)
                } else {
                    Err("the least memory that will do holds the whole key".into())
                };
            }
            Err(BackendError::DeviceMemory { requested, available, .. }) => limit += requested - available + (1 << 20),
            Err(error) => return Err(error.into()),
        }
    }
    Err("no limit is large enough".into())
}

pub(crate) fn run() -> Outcome {
    let memory = HostMemory::default();
    let circuit = Synthetic::new(Shape::Mixed, 8)?;
    opening()?;
    let card = open(OpenOptions { copies: 3, ..OpenOptions::default() })?;
    let key = development_key(card.backend(), &circuit, HBasis::OddLagrange)?;
    let context = card.backend().context().clone();
    each_call("loading a key", &context, || Ok(card.load_key(key.clone()).map(drop)?), || Ok(()))?;

    let scalars: Vec<Scalar> = (0..300).map(Scalar::from).collect();
    let generation = || -> Outcome {
        let fixed_base = card.backend().fixed_base();
        fixed_base.g1(&G1Affine::generator(), &scalars, &mut vec![0; 96 * scalars.len()])?;
        Ok(fixed_base.g2(&G2Affine::generator(), &scalars, &mut vec![0; 192 * scalars.len()])?)
    };
    each_call("multiples of a base", &context, generation, || Ok(()))?;

    let loaded = card.load_key(key.clone())?;
    let inputs = |seed| circuit.witness(seed, &memory).map(Inputs::new);
    let expected = sums_of(&card, &loaded, inputs(1)?)?;
    let proof = |card: &Prover<CudaProver>, loaded: &LoadedKey<CudaProver>| -> Result<QuerySums, Failure> {
        sums_of(card, loaded, inputs(1)?)
    };
    each_call(
        "a proof, pageable inputs",
        &context,
        || proof(&card, &loaded).map(drop),
        || expect(&expected, &proof(&card, &loaded)?, "sums"),
    )?;
    let pinned = || -> Result<QuerySums, Failure> {
        let witness = circuit.witness(1, &memory)?;
        let pool = card.backend().pinned_pool();
        let mut buffer = pool.buffer::<Scalar>(&memory, MemoryClass::Witness, witness.len())?;
        buffer.copy_from_slice(&witness);
        sums_of(&card, &loaded, Inputs::new(buffer))
    };
    // The pool has its buffer from here on.
    pinned()?;
    each_call("a proof, pinned inputs", &context, || pinned().map(drop), || expect(&expected, &pinned()?, "sums"))?;

    let large = Synthetic::new(Shape::Dense, 17)?;
    let large_key = development_key(card.backend(), &large, HBasis::OddLagrange)?;
    let small_card = streaming(&large_key)?;
    let streamed = small_card.load_key(large_key)?;
    let witness = large.witness(1, &memory)?;
    let prove = || -> Result<QuerySums, Failure> {
        sums_of(&small_card, &streamed, memory.copy_of(MemoryClass::Witness, &witness).map(Inputs::new)?)
    };
    let expected_streamed = prove()?;
    each_call(
        "a proof, streamed bases",
        small_card.backend().context(),
        || prove().map(drop),
        || expect(&expected_streamed, &prove()?, "sums"),
    )?;
    drop((streamed, small_card));

    lost(&circuit, &key, card, loaded, &expected)?;
    println!("faults: all right");
    Ok(())
}

/// A stray kernel kills its context. The driver documents that the process can't use the card any more after that; an error says
/// so, and nothing hangs or crashes.
fn lost(
    circuit: &Synthetic,
    key: &Arc<ProvingKey>,
    card: Prover<CudaProver>,
    loaded: LoadedKey<CudaProver>,
    expected: &QuerySums,
) -> Outcome {
    let memory = HostMemory::default();
    let inputs = |seed| circuit.witness(seed, &memory).map(Inputs::new);
    let context = card.backend().context().clone();
    let bystander = open(OpenOptions::default())?;
    let bystander_key = bystander.load_key(key.clone())?;
    let kernels = Kernels::new(&context, Cache::from_environment());
    let stray = kernels.function(Family::Vector, "count_scalars")?;
    let stream = Stream::new(&context, Priority::Normal)?;
    let nowhere = DevicePtr::NULL.add(0x1000);
    let arguments: [Arg; 4] = [nowhere.into(), DevicePtr::NULL.into(), 1024u32.into(), nowhere.into()];
    // SAFETY: deliberately none: the point of the exercise. The context is given up afterwards.
    unsafe { stray.launch(&stream, [1, 1, 1], [256, 1, 1], 0, &arguments)? };
    println!("stray kernel: {}", stream.synchronise().err().map_or("no error".into(), |e| e.to_string()));
    let first = card.start(&loaded, inputs(2)?).map_err(|e| e.source.to_string()).err();
    let second = card.start(&loaded, inputs(2)?).map_err(|e| (e.source.to_string(), e.inputs.is_some())).err();
    println!("the lost card says: {first:?}, then {second:?}");
    if second.is_none() {
        return Err("a lost context went on".into());
    }
    match sums_of(&bystander, &bystander_key, inputs(1)?) {
        Ok(sums) => expect(expected, &sums, "the other context")?,
        Err(error) => println!("the other context on this card: {error}"),
    }
    drop((stream, stray, kernels, loaded, card, bystander_key, bystander, context));
    // Some drivers are kinder.
    match open(OpenOptions::default()) {
        Ok(again) => {
            let loaded = again.load_key(key.clone())?;
            expect(expected, &sums_of(&again, &loaded, inputs(1)?)?, "a card opened again")?;
        }
        Err(error) => println!("opening it again in this process: {error}"),
    }
    Ok(())
}
