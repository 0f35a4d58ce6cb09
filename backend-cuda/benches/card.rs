//! Times on a real card, with criterion, from a binary that was built elsewhere: field products, transforms, multi-exponentiations,
//! whole proofs. Every timed result is checked in the same run; after each group a line says how far from the card's limit it was.
//!
//! ```sh
//! card --bench                                  # needs a card and kernels, or NVRTC; without a card it says so and ends well
//! CARD_LOG2=20,22,24 card --bench msm           # sizes; 2^20 without the variable
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use blstrs::Scalar;
use criterion::{BenchmarkId, Criterion, Throughput};
use ff::Field;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use splitprover_backend_cuda::driver::{Arg, Context, DeviceBuf, Event, Priority, Stream};
use splitprover_backend_cuda::kernels::{Cache, Family, Kernels};
use splitprover_backend_cuda::ntt::{Arithmetic, NttKernels, Quotient, SCALAR};
use splitprover_backend_cuda::{CudaProver, OpenOptions, limits};
use splitprover_core::abi::FixedBase as _;
use splitprover_core::{
    BackendError, Domain, Evaluations, G1Affine, G2Affine, HBasis, HostBuf, HostMemory, Inputs, LoadedKey, MemoryClass,
    Prover, RootOfUnity,
};
use splitprover_harness::bench::{Scalars, Workload, WorkloadError};
use splitprover_harness::setup::{FixedBase, Resources, Shape, Synthetic, Trapdoor, generate};

use group::prime::PrimeCurveAffine;

type Failure = Box<dyn std::error::Error>;

fn sizes() -> Vec<u32> {
    let text = std::env::var("CARD_LOG2").unwrap_or_else(|_| "20".into());
    text.split(',').map(|size| size.trim().parse().expect("CARD_LOG2 is numbers with commas")).collect()
}

/// Runs `work` as often as criterion asks and gives the time that `work` says it took.
fn times(runs: u64, mut work: impl FnMut() -> Result<Duration, Failure>) -> Duration {
    (0..runs).map(|_| work().unwrap_or_else(|error| panic!("{error}"))).sum()
}

/// Time between two events around the work that `queue` puts on the stream.
fn on_stream(stream: &Stream, queue: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    let (begin, end) = (Event::new(stream.context(), true)?, Event::new(stream.context(), true)?);
    stream.record(&begin)?;
    queue()?;
    stream.record(&end)?;
    stream.synchronise()?;
    Ok(Duration::from_secs_f64(f64::from(end.milliseconds_since(&begin)?) / 1e3))
}

/// Says what share of the limit the best run reached.
fn roofline(name: &str, operations: f64, limit: Option<f64>, best: Duration) {
    let Some(limit) = limit else { return };
    let rate = operations / best.as_secs_f64();
    println!("roofline {name}: {:.3e}/s of at most {limit:.3e}/s, {:.1} %", rate, 100.0 * rate / limit);
}

fn fields(criterion: &mut Criterion, context: &Context, kernels: &Kernels) -> Result<(), Failure> {
    const ROUNDS: u32 = 2000;
    const THREADS: u32 = 128;
    let blocks = context.info().multiprocessors * 16;
    let chains = u64::from(2 * blocks * THREADS);
    let stream = Stream::new(context, Priority::Normal)?;
    let rate = limits::wide_rate(context.info());
    let mut group = criterion.benchmark_group("field");
    group.throughput(Throughput::Elements(chains * u64::from(ROUNDS)));
    for (name, kernel, bytes, cost) in
        [("Fp product", "probe_fp_mul", 48, limits::FP_PRODUCT), ("Fr product", "probe_fr_mul", 32, limits::FR_PRODUCT)]
    {
        let function = kernels.function(Family::Probe, kernel)?;
        let values = DeviceBuf::alloc(context, chains * bytes)?;
        let step = DeviceBuf::alloc(context, bytes)?;
        let mut rng = ChaCha20Rng::from_entropy();
        let elements: Vec<Vec<u8>> = (0..2).map(|_| element(bytes as usize, &mut rng)).collect();
        let (start, multiplier) = (&elements[0], &elements[1]);
        let all: Vec<u8> = start.repeat(chains as usize);
        let mut best = Duration::MAX;
        let mut checked = false;
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|runs| {
                times(runs, || {
                    // SAFETY: the buffers have these sizes, and the stream is waited for before anything is used again.
                    unsafe {
                        stream.upload(values.ptr(), all.as_ptr().cast(), all.len() as u64)?;
                        stream.upload(step.ptr(), multiplier.as_ptr().cast(), bytes)?;
                    }
                    let arguments: [Arg; 3] = [values.ptr().into(), step.ptr().into(), ROUNDS.into()];
                    let time = on_stream(&stream, || {
                        // SAFETY: two elements for each thread, one to multiply by.
                        unsafe { function.launch(&stream, [blocks, 1, 1], [THREADS, 1, 1], 0, &arguments)? };
                        Ok(())
                    })?;
                    best = best.min(time);
                    if !std::mem::replace(&mut checked, true) {
                        let mut last = vec![0u8; bytes as usize];
                        let at = values.ptr().add((chains - 1) * bytes);
                        // SAFETY: the last element, waited for below.
                        unsafe { stream.download(last.as_mut_ptr().cast(), at, bytes)? };
                        stream.synchronise()?;
                        if last != repeated_product(start, multiplier, ROUNDS) {
                            return Err(format!("{name}: wrong product").into());
                        }
                    }
                    Ok(time)
                })
            });
        });
        if checked {
            roofline(name, chains as f64 * f64::from(ROUNDS), rate.map(|rate| rate / cost), best);
        }
    }
    group.finish();
    Ok(())
}

/// A random field element in memory: of F_r with 32 bytes, of F_p with 48.
fn element(bytes: usize, rng: &mut ChaCha20Rng) -> Vec<u8> {
    use rand_core::RngCore;
    let mut out = vec![0; bytes];
    rng.fill_bytes(&mut out);
    // Below both moduli.
    out[bytes - 1] &= 0x0f;
    out
}

/// start · by^rounds, in Montgomery form as in memory.
fn repeated_product(start: &[u8], by: &[u8], rounds: u32) -> Vec<u8> {
    if start.len() == 32 {
        let read = |bytes: &[u8]| {
            let mut limbs = blst::blst_fr::default();
            for (limb, bytes) in limbs.l.iter_mut().zip(bytes.chunks_exact(8)) {
                *limb = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            }
            limbs
        };
        let (mut value, by) = (read(start), read(by));
        for _ in 0..rounds {
            let left = value;
            // SAFETY: three valid elements.
            unsafe { blst::blst_fr_mul(&mut value, &left, &by) };
        }
        return value.l.iter().flat_map(|limb| limb.to_le_bytes()).collect();
    }
    let read = |bytes: &[u8]| {
        let mut limbs = blst::blst_fp::default();
        for (limb, bytes) in limbs.l.iter_mut().zip(bytes.chunks_exact(8)) {
            *limb = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        limbs
    };
    let (mut value, by) = (read(start), read(by));
    for _ in 0..rounds {
        let left = value;
        // SAFETY: three valid elements.
        unsafe { blst::blst_fp_mul(&mut value, &left, &by) };
    }
    value.l.iter().flat_map(|limb| limb.to_le_bytes()).collect()
}

fn transforms(criterion: &mut Criterion, context: &Context, kernels: &Kernels) -> Result<(), Failure> {
    let stream = Stream::new(context, Priority::Normal)?;
    let ntt = NttKernels::load(kernels, Arithmetic::default())?;
    let limit = limits::wide_rate(context.info()).map(|rate| rate / limits::TWIDDLE_PRODUCT);
    let mut group = criterion.benchmark_group("ntt");
    for log2 in sizes() {
        let domain = Domain::new(log2, RootOfUnity::snarkjs()).ok_or("the domain is too large")?;
        let n = domain.size();
        let quotient = Quotient::new(context, &ntt, &stream, domain, HBasis::OddLagrange, true)?;
        let vector = DeviceBuf::alloc(context, n as u64 * SCALAR)?;
        group.throughput(Throughput::Elements(n as u64));
        for (name, forward) in [("inverse", false), ("forward", true)] {
            let mut best = Duration::MAX;
            group.bench_function(BenchmarkId::new(name, log2), |bencher| {
                bencher.iter_custom(|runs| {
                    times(runs, || {
                        // SAFETY: the vector holds n elements.
                        let time = on_stream(&stream, || unsafe { transform(&quotient, &stream, &vector, forward) })?;
                        best = best.min(time);
                        Ok(time)
                    })
                });
            });
            if best < Duration::MAX {
                let products = n as f64 / 2.0 * f64::from(log2);
                roofline(&format!("{name} transform 2^{log2}"), products, limit, best);
            }
        }
        // Both transforms of a geometric series give it back, times n.
        let (first, base) = (Scalar::from(3), Scalar::from(5));
        // SAFETY: the vector holds n elements.
        unsafe {
            quotient.fill_powers(&stream, vector.ptr(), first, base)?;
            transform(&quotient, &stream, &vector, false)?;
            transform(&quotient, &stream, &vector, true)?;
        }
        let mut out = vec![Scalar::ZERO; n];
        // SAFETY: n elements, and the stream is waited for.
        unsafe { stream.download(out.as_mut_ptr().cast(), vector.ptr(), n as u64 * SCALAR)? };
        stream.synchronise()?;
        let mut power = first * Scalar::from(n as u64);
        for value in &out {
            if *value != power {
                return Err(format!("transforms of 2^{log2} are wrong").into());
            }
            power *= base;
        }
    }
    group.finish();
    Ok(())
}

/// One transform.
///
/// # Safety
/// `vector` must hold the domain's elements.
unsafe fn transform(quotient: &Quotient, stream: &Stream, vector: &DeviceBuf, forward: bool) -> Result<(), Failure> {
    // SAFETY: our caller's promise.
    unsafe {
        if forward {
            quotient.forward_transform(stream, vector.ptr())?;
        } else {
            quotient.inverse_transform(stream, vector.ptr())?;
        }
    }
    Ok(())
}

struct OnCard<'a>(&'a CudaProver);

impl FixedBase for OnCard<'_> {
    fn mul_g1(&self, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError> {
        self.0.fixed_base().g1(&G1Affine::generator(), scalars, records)
    }

    fn mul_g2(&self, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError> {
        self.0.fixed_base().g2(&G2Affine::generator(), scalars, records)
    }

    fn batch(&self) -> usize {
        1 << 22
    }
}

struct Bench {
    card: Prover<CudaProver>,
    memory: HostMemory,
}

impl Bench {
    fn pinned(&self, class: MemoryClass, values: &[Scalar]) -> Result<HostBuf<Scalar>, Failure> {
        let mut buffer = self.card.backend().pinned_pool().buffer::<Scalar>(&self.memory, class, values.len())?;
        buffer.copy_from_slice(values);
        Ok(buffer)
    }

    fn inputs(&self, workload: &Workload) -> Result<Inputs, Failure> {
        let witness = self.pinned(MemoryClass::Witness, &workload.witness)?;
        let copy = |values: &[Scalar]| self.pinned(MemoryClass::Evaluations, values);
        let evaluations: Evaluations = workload.evaluations(copy)?;
        Ok(Inputs::with_evaluations(witness, evaluations))
    }

    fn sums(&self, key: &LoadedKey<CudaProver>, workload: &Workload) -> Result<Duration, Failure> {
        let inputs = self.inputs(workload)?;
        let clock = Instant::now();
        let sums = self.card.start(key, inputs).map_err(WorkloadError::from)?.finish_sums()?;
        let time = clock.elapsed();
        if (sums.a, sums.b_g2) != (workload.expected.a, workload.expected.b_g2) {
            return Err("a sum isn't the known one".into());
        }
        Ok(time)
    }
}

fn sums(criterion: &mut Criterion, bench: &Bench) -> Result<(), Failure> {
    let rate = limits::wide_rate(bench.card.backend().context().info());
    type Make = fn(u32, Scalars, &dyn FixedBase) -> Result<Workload, WorkloadError>;
    let groups: [(&str, Make, f64); 2] = [
        ("msm_g1", Workload::msm_g1, limits::G1_MIXED_ADDITION),
        ("msm_g2", Workload::msm_g2, limits::G2_MIXED_ADDITION),
    ];
    for (name, make, cost) in groups {
        let mut group = criterion.benchmark_group(name);
        for log2 in sizes() {
            group.throughput(Throughput::Elements(1 << log2));
            let mut best = Duration::MAX;
            // Made when criterion first asks: a filter may leave it out.
            let mut made: Option<(Workload, LoadedKey<CudaProver>)> = None;
            group.bench_function(BenchmarkId::new("random scalars, pinned", log2), |bencher| {
                let (workload, key) = made.get_or_insert_with(|| {
                    let workload = make(log2, Scalars::Random, &OnCard(bench.card.backend())).expect("a workload");
                    let key = bench.card.load_key(workload.key.clone()).expect("the key fits");
                    (workload, key)
                });
                bencher.iter_custom(|runs| {
                    times(runs, || {
                        let time = bench.sums(key, workload)?;
                        best = best.min(time);
                        Ok(time)
                    })
                });
            });
            if made.is_some() {
                let windows = f64::from(256u32.div_ceil(log2.clamp(8, 22)));
                let additions = windows * f64::from(log2).exp2();
                roofline(&format!("{name} 2^{log2}, mixed additions"), additions, rate.map(|rate| rate / cost), best);
            }
        }
        group.finish();
    }
    Ok(())
}

fn proofs(criterion: &mut Criterion, bench: &Bench) -> Result<(), Failure> {
    let mut group = criterion.benchmark_group("proof");
    for shape in Shape::ALL {
        for log2 in sizes() {
            let circuit = Synthetic::new(shape, log2)?;
            let mut made: Option<(LoadedKey<CudaProver>, HostBuf<Scalar>)> = None;
            group.throughput(Throughput::Elements(1 << log2));
            group.bench_function(BenchmarkId::new(shape.name(), log2), |bencher| {
                let (key, witness) = made.get_or_insert_with(|| {
                    let on_card = OnCard(bench.card.backend());
                    let resources = Resources { memory: &bench.memory, fixed_base: &on_card, progress: &|_, _, _| {} };
                    let basis = HBasis::OddLagrange;
                    let key = generate(&circuit, basis, &Trapdoor::from_seed(1, basis), &resources).expect("a key").key;
                    let loaded = bench.card.load_key(Arc::clone(&key)).expect("the key fits");
                    (loaded, circuit.witness(1, &bench.memory).expect("a witness"))
                });
                bencher.iter_custom(|runs| {
                    times(runs, || {
                        let inputs = Inputs::new(bench.pinned(MemoryClass::Witness, witness)?);
                        let clock = Instant::now();
                        // Core verifies the proof before it gives it out.
                        bench.card.start(key, inputs).map_err(WorkloadError::from)?.finish()?;
                        Ok(clock.elapsed())
                    })
                });
            });
        }
    }
    group.finish();
    Ok(())
}

fn main() -> Result<(), Failure> {
    let context = match Context::open(0) {
        Ok(context) => context,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let card = context.info();
    println!(
        "card: {} ({}), {} multiprocessors, at most {} MHz, driver CUDA {}.{}",
        card.name,
        card.arch(),
        card.multiprocessors,
        card.clock_khz / 1000,
        card.driver / 1000,
        card.driver % 1000 / 10
    );
    let kernels = Kernels::new(&context, Cache::from_environment());
    let mut criterion = Criterion::default().sample_size(10).without_plots().configure_from_args();
    fields(&mut criterion, &context, &kernels)?;
    transforms(&mut criterion, &context, &kernels)?;
    let bench =
        Bench { card: Prover::new(CudaProver::open(0, OpenOptions::default())?), memory: HostMemory::default() };
    sums(&mut criterion, &bench)?;
    proofs(&mut criterion, &bench)?;
    criterion.final_summary();
    Ok(())
}
