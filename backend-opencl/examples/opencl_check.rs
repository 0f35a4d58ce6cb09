//! Checks the OpenCL backend on real devices and times it: built elsewhere, carried there, run in one go.
//!
//! ```text
//! opencl_check list                       the devices
//! opencl_check open [FRESH]               opens the device, with times; FRESH: a new folder for the programs' cache
//! opencl_check prove [LOG2 [ROUNDS]]      sums and proofs of random and edge inputs against the CPU, up to 2^LOG2 rows
//! opencl_check limited SHAPE LOG2 MIB     sums within so much device memory, and with small buffers, against those of the CPU
//! opencl_check bench SHAPE LOG2 [RUNS]    times of whole proofs, each verified
//! ```
//!
//! `SPLITPROVER_OPENCL_PLATFORM`, `SPLITPROVER_OPENCL_NAME`, `SPLITPROVER_OPENCL_DEVICE` choose the device, `SPLITPROVER_OPENCL_PTX` and
//! `SPLITPROVER_OPENCL_STRAIGHT` are `on` or `off`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use ff::Field as _;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore as _, SeedableRng as _};
use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_backend_opencl::{Choice, OpenClProver, OpenOptions, devices};
use splitprover_core::{
    CsrMatrix, Evaluations, HBasis, HostMemory, Inputs, LoadedKey, MemoryClass, Prover, ProvingKey, QuerySums, Scalar,
    SplitProver,
};
use splitprover_harness::setup::{CpuFixedBase, Resources, Shape, Synthetic, Trapdoor, generate};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u32| arguments.get(index).and_then(|a| a.parse().ok()).unwrap_or(default);
    let text = |index: usize, default: &str| arguments.get(index).map_or(default, String::as_str).to_owned();
    let outcome = match arguments.first().map(String::as_str) {
        Some("list") => list(),
        Some("open") => open(options(text(1, ""))).map(drop),
        Some("prove") => prove(number(1, 12), number(2, 2)),
        Some("limited") => limited(&text(1, "dense"), number(2, 16), number(3, 64)),
        Some("bench") => bench(&text(1, "porep"), number(2, 20), number(3, 7)),
        _ => Err("see the top of examples/opencl_check.rs for the commands".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("opencl_check: {error}");
            ExitCode::FAILURE
        }
    }
}

fn list() -> Outcome {
    for (index, device) in devices()?.iter().enumerate() {
        println!("{index}: {device:?}");
    }
    Ok(())
}

fn options(cache: String) -> OpenOptions {
    let switch = |name: &str| std::env::var(format!("SPLITPROVER_OPENCL_{name}")).ok().map(|value| value == "on");
    let cache = (!cache.is_empty()).then(|| cache.into());
    OpenOptions { cache, ptx: switch("PTX"), straight: switch("STRAIGHT"), ..OpenOptions::default() }
}

fn open(options: OpenOptions) -> Outcome<Prover<OpenClProver>> {
    let set = |name: &str| std::env::var(format!("SPLITPROVER_OPENCL_{name}")).ok();
    let index = set("DEVICE").map_or(Ok(0), |index| index.parse())?;
    let device = Choice { platform: set("PLATFORM"), name: set("NAME"), index }.find()?;
    let begun = Instant::now();
    let prover = OpenClProver::open(&device, options)?;
    let (build, cached) = prover.build();
    println!(
        "{} ({}, driver {}): programs in {build:.2} s ({cached} of 3 from the cache), open and tested in {:.2} s, {:?}",
        device.name,
        device.platform_name,
        device.driver,
        begun.elapsed().as_secs_f64(),
        prover.products()
    );
    Ok(Prover::new(prover))
}

fn development_key(circuit: &Synthetic, basis: HBasis) -> Outcome<Arc<ProvingKey>> {
    let memory = HostMemory::default();
    let fixed_base = CpuFixedBase::new(1 << circuit.log2());
    let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
    Ok(generate(circuit, basis, &Trapdoor::from_seed(7, basis), &resources)?.key)
}

fn product(matrix: &CsrMatrix, witness: &[Scalar]) -> Vec<Scalar> {
    let rows = matrix.num_rows();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = rows.div_ceil(threads).max(1);
    let mut out = vec![Scalar::ZERO; rows];
    std::thread::scope(|scope| {
        for (i, out) in out.chunks_mut(part).enumerate() {
            scope.spawn(move || {
                for (j, value) in out.iter_mut().enumerate() {
                    *value = matrix.row(i * part + j).map(|(column, c)| c * witness[column]).sum();
                }
            });
        }
    });
    out
}

fn witness_alone(witness: &[Scalar]) -> Outcome<Inputs> {
    Ok(Inputs::new(HostMemory::default().copy_of(MemoryClass::Witness, witness)?))
}

fn evaluated(witness: &[Scalar], a: &[Scalar], b: &[Scalar], c: Option<&[Scalar]>) -> Outcome<Inputs> {
    let memory = HostMemory::default();
    let copy = |values: &[Scalar]| memory.copy_of(MemoryClass::Evaluations, values);
    let evaluations = Evaluations { a: copy(a)?, b: copy(b)?, c: c.map(copy).transpose()? };
    Ok(Inputs::with_evaluations(memory.copy_of(MemoryClass::Witness, witness)?, evaluations))
}

fn sums_of<P: SplitProver>(prover: &Prover<P>, key: &LoadedKey<P>, inputs: Inputs) -> Outcome<QuerySums> {
    Ok(prover.start(key, inputs).map_err(|error| error.source)?.finish_sums()?)
}

fn expect(expected: &QuerySums, got: &QuerySums, what: &str) -> Outcome {
    let differences = expected.differences(got);
    if differences.is_empty() { Ok(()) } else { Err(format!("{what}: {differences:?} differ from the CPU's").into()) }
}

/// Sums of random and edge inputs in every form against the CPU's, and proofs that verify.
fn prove(max_log2: u32, rounds: u32) -> Outcome {
    let device = open(options(String::new()))?;
    let cpu = Prover::new(CpuBackend::new(CpuOptions::default())?);
    let memory = HostMemory::default();
    let mut rng = ChaCha20Rng::from_entropy();
    let mut compared = 0;
    for log2 in 4..=max_log2 {
        for (shape, basis) in [
            (Shape::Porep, HBasis::OddLagrange),
            (Shape::Mixed, HBasis::Monomial),
            (Shape::Dense, if log2 % 2 == 0 { HBasis::OddLagrange } else { HBasis::Monomial }),
        ] {
            let circuit = Synthetic::new(shape, log2)?;
            let key = development_key(&circuit, basis)?;
            let (on_device, on_cpu) = (device.load_key(key.clone())?, cpu.load_key(key.clone())?);
            let matrices = key.matrices().ok_or("the key has matrices")?;
            for round in 0..if log2 > 14 { 1 } else { rounds } {
                let name = format!("{shape:?} 2^{log2} {basis:?} round {round}");
                let good = circuit.witness(rng.next_u64(), &memory)?;
                // Also assignments that satisfy nothing: the sums are defined all the same.
                let mut edge = good.to_vec();
                for value in &mut edge[1..] {
                    *value = match rng.next_u32() % 8 {
                        0 => Scalar::ZERO,
                        1 => Scalar::ONE,
                        2 => -Scalar::ONE,
                        3 => Scalar::from(u64::from(rng.next_u32())),
                        4 => -Scalar::from(2),
                        _ => Scalar::random(&mut rng),
                    };
                }
                let mut zero = vec![Scalar::ZERO; good.len()];
                zero[0] = Scalar::ONE;
                for witness in [&good[..], &edge, &zero] {
                    let expected = sums_of(&cpu, &on_cpu, witness_alone(witness)?)?;
                    expect(&expected, &sums_of(&device, &on_device, witness_alone(witness)?)?, &name)?;
                    let (a, b) = (product(&matrices.a, witness), product(&matrices.b, witness));
                    let c: Vec<Scalar> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
                    for c in [None, Some(&c[..])] {
                        let got = sums_of(&device, &on_device, evaluated(witness, &a, &b, c)?)?;
                        expect(&expected, &got, &format!("{name}, evaluations given"))?;
                    }
                    compared += 3;
                }
                device.start(&on_device, witness_alone(&good)?).map_err(|e| e.source)?.finish()?;
            }
        }
        println!("up to 2^{log2}: {compared} sums equal the CPU's");
    }
    Ok(())
}

/// The sums of a key that doesn't fit, against the CPU's.
fn limited(shape: &str, log2: u32, mib: u32) -> Outcome {
    let circuit = Synthetic::new(shape.parse::<Shape>()?, log2)?;
    let key = development_key(&circuit, HBasis::OddLagrange)?;
    let witness = circuit.witness(3, &HostMemory::default())?;
    let cpu = Prover::new(CpuBackend::new(CpuOptions::default())?);
    let expected = sums_of(&cpu, &cpu.load_key(key.clone())?, witness_alone(&witness)?)?;
    let limit = u64::from(mib) << 20;
    for (memory_limit, max_allocation) in [(Some(limit), None), (None, Some(limit / 8)), (Some(limit), Some(limit / 4))]
    {
        let device = open(OpenOptions { memory_limit, max_allocation, ..options(String::new()) })?;
        let loaded = device.load_key(key.clone())?;
        let begun = Instant::now();
        let got = sums_of(&device, &loaded, witness_alone(&witness)?)?;
        expect(&expected, &got, &format!("{memory_limit:?}, {max_allocation:?}"))?;
        println!(
            "limit {memory_limit:?}, buffers {max_allocation:?}: equal, {:.3} s, {} MiB held",
            begun.elapsed().as_secs_f64(),
            device.backend().context().live().bytes >> 20
        );
    }
    Ok(())
}

fn summary(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    let [least, middle, most] = [0, times.len() / 2, times.len() - 1].map(|i| times[i]);
    format!("median {middle:.1} ms (of {}: {least:.1} to {most:.1})", times.len())
}

/// Times of whole proofs: from the start to the verified proof, and to the return of `start`.
fn bench(shape: &str, log2: u32, runs: u32) -> Outcome {
    let circuit = Synthetic::new(shape.parse::<Shape>()?, log2)?;
    let device = open(options(String::new()))?;
    let begun = Instant::now();
    let key = development_key(&circuit, HBasis::OddLagrange)?;
    let made = begun.elapsed();
    let begun = Instant::now();
    let loaded = device.load_key(key.clone())?;
    println!(
        "{shape} 2^{log2}: key made in {:.1} s, loaded in {:.2} s, {} MiB on the device",
        made.as_secs_f64(),
        begun.elapsed().as_secs_f64(),
        device.backend().context().live().bytes >> 20
    );
    let matrices = key.matrices().ok_or("the key has matrices")?;
    let witness = circuit.witness(1, &HostMemory::default())?;
    let (a, b) = (product(&matrices.a, &witness), product(&matrices.b, &witness));
    for given in [false, true] {
        let inputs = || if given { evaluated(&witness, &a, &b, None) } else { witness_alone(&witness) };
        let name = if given { "a and b given" } else { "witness alone" };
        let (mut starts, mut proofs, mut sums, mut pairs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let milliseconds = |begun: Instant| 1000.0 * begun.elapsed().as_secs_f64();
        // The first of each is a warm-up.
        for _ in 0..=runs {
            let lent = inputs()?;
            let begun = Instant::now();
            let pending = device.start(&loaded, lent).map_err(|e| e.source)?;
            starts.push(milliseconds(begun));
            pending.finish()?;
            proofs.push(milliseconds(begun));
            let lent = inputs()?;
            let begun = Instant::now();
            device.start(&loaded, lent).map_err(|e| e.source)?.finish_sums()?;
            sums.push(milliseconds(begun));
            let (first, second) = (inputs()?, inputs()?);
            let begun = Instant::now();
            let first = device.start(&loaded, first).map_err(|e| e.source)?;
            let second = device.start(&loaded, second).map_err(|e| e.source)?;
            let waiting = std::thread::spawn(move || second.finish().map(drop));
            first.finish()?;
            waiting.join().map_err(|_| "a panic")??;
            pairs.push(milliseconds(begun));
        }
        for (what, times) in
            [("start returns", starts), ("sums", sums), ("verified proof", proofs), ("two in flight, verified", pairs)]
        {
            println!("  {name}: {what}, {}", summary(times[1..].to_vec()));
        }
    }
    Ok(())
}
