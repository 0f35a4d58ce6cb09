//! Whole proofs on the card: against the CPU reference, under faults, and timed.

use std::sync::Arc;
use std::time::Instant;

use ff::Field;
use group::Curve;
use group::prime::PrimeCurveAffine;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_backend_cuda::driver::Context;
use splitprover_backend_cuda::{CudaProver, OpenOptions};
use splitprover_core::abi::FixedBase as _;
use splitprover_core::{
    BackendError, CsrMatrix, Evaluations, G1Affine, G2Affine, HBasis, HostBuf, HostMemory, Inputs, LoadedKey,
    MemoryClass, Prover, ProvingKey, QuerySums, Scalar,
};
use splitprover_harness::setup::{FixedBase, Resources, Shape, Synthetic, Trapdoor, generate};

use crate::{Outcome, summary};

pub(crate) type Failure = Box<dyn std::error::Error>;

/// The card's fixed-base multiplication, as key generation asks for it.
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

pub(crate) fn development_key(
    card: &CudaProver,
    circuit: &Synthetic,
    basis: HBasis,
) -> Result<Arc<ProvingKey>, Failure> {
    let memory = HostMemory::default();
    let on_card = OnCard(card);
    let resources = Resources { memory: &memory, fixed_base: &on_card, progress: &|_, _, _| {} };
    Ok(generate(circuit, basis, &Trapdoor::from_seed(7, basis), &resources)?.key)
}

pub(crate) fn open(options: OpenOptions) -> Result<Prover<CudaProver>, Failure> {
    Ok(Prover::new(CudaProver::open(0, options)?))
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

/// Buffers of the process or of the card's pool.
#[derive(Clone, Copy)]
struct Source<'a> {
    card: &'a CudaProver,
    memory: &'a HostMemory,
    pinned: bool,
}

impl Source<'_> {
    fn copy(&self, class: MemoryClass, values: &[Scalar]) -> Result<HostBuf<Scalar>, Failure> {
        if !self.pinned {
            return Ok(self.memory.copy_of(class, values)?);
        }
        let mut buffer = self.card.pinned_pool().buffer::<Scalar>(self.memory, class, values.len())?;
        buffer.copy_from_slice(values);
        Ok(buffer)
    }

    fn witness(&self, witness: &[Scalar]) -> Result<Inputs, Failure> {
        Ok(Inputs::new(self.copy(MemoryClass::Witness, witness)?))
    }

    fn evaluated(&self, witness: &[Scalar], rows: [&[Scalar]; 2], c: Option<&[Scalar]>) -> Result<Inputs, Failure> {
        let copy = |values| self.copy(MemoryClass::Evaluations, values);
        let evaluations = Evaluations { a: copy(rows[0])?, b: copy(rows[1])?, c: c.map(copy).transpose()? };
        Ok(Inputs::with_evaluations(self.copy(MemoryClass::Witness, witness)?, evaluations))
    }
}

pub(crate) fn sums_of(
    prover: &Prover<CudaProver>,
    key: &LoadedKey<CudaProver>,
    inputs: Inputs,
) -> Result<QuerySums, Failure> {
    Ok(prover.start(key, inputs).map_err(|error| error.source)?.finish_sums()?)
}

pub(crate) fn expect(expected: &QuerySums, got: &QuerySums, what: &str) -> Outcome {
    let differences = expected.differences(got);
    if differences.is_empty() { Ok(()) } else { Err(format!("{what}: {differences:?} differ from the CPU's").into()) }
}

/// Sums of random and edge inputs in every form against the CPU's, and proofs that verify.
pub(crate) fn check(max_log2: u32, rounds: u32) -> Outcome {
    let card = open(OpenOptions::default())?;
    let copies = open(OpenOptions { copies: 16, ..OpenOptions::default() })?;
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
            let key = development_key(card.backend(), &circuit, basis)?;
            let (on_card, on_copies, on_cpu) =
                (card.load_key(key.clone())?, copies.load_key(key.clone())?, cpu.load_key(key.clone())?);
            let matrices = key.matrices().ok_or("the key has matrices")?;
            for round in 0..if log2 > 14 { 1 } else { rounds } {
                let name = format!("{shape:?} 2^{log2} {basis:?} round {round}");
                let good = circuit.witness(rng.next_u64(), &memory)?;
                // Also assignments that satisfy nothing: the sums are defined all the same.
                let mut edge = good.to_vec();
                for value in edge[1..].iter_mut() {
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
                    let plain = Source { card: card.backend(), memory: &memory, pinned: false };
                    let expected = cpu.start(&on_cpu, plain.witness(witness)?).map_err(|e| e.source)?.finish_sums()?;
                    expect(
                        &expected,
                        &sums_of(&copies, &on_copies, plain.witness(witness)?)?,
                        &format!("{name}, copies"),
                    )?;
                    let (a, b) = (product(&matrices.a, witness), product(&matrices.b, witness));
                    let c: Vec<_> = a.iter().zip(&b).map(|(a, b)| *a * b).collect();
                    for pinned in [false, true] {
                        let source = Source { pinned, ..plain };
                        for inputs in [
                            source.witness(witness)?,
                            source.evaluated(witness, [&a, &b], None)?,
                            source.evaluated(witness, [&a, &b], Some(&c))?,
                        ] {
                            expect(&expected, &sums_of(&card, &on_card, inputs)?, &name)?;
                            compared += 1;
                        }
                    }
                    // Fewer rows than the domain has.
                    let half = a.len() / 2;
                    let inputs = || plain.evaluated(witness, [&a[..half], &b[..half]], None);
                    let expected = cpu.start(&on_cpu, inputs()?).map_err(|e| e.source)?.finish_sums()?;
                    expect(&expected, &sums_of(&card, &on_card, inputs()?)?, &format!("{name}, half the rows"))?;
                }
                card.start(&on_card, Inputs::new(good)).map_err(|e| e.source)?.finish()?;
            }
        }
        println!("2^{log2}: sums equal the CPU's ({compared} so far)");
    }
    println!("prove: all right");
    Ok(())
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Device memory and resident memory over many proofs.
pub(crate) fn flat(proofs: u64) -> Outcome {
    let memory = HostMemory::default();
    let circuit = Synthetic::new(Shape::Mixed, 16)?;
    let card = open(OpenOptions::default())?;
    let loaded = card.load_key(development_key(card.backend(), &circuit, HBasis::OddLagrange)?)?;
    let mut marks = Vec::new();
    for i in 0..proofs {
        let inputs = Inputs::new(circuit.witness(i, &memory)?);
        let pending = card.start(&loaded, inputs).map_err(|e| e.source)?;
        if i % 7 == 3 {
            drop(pending)
        } else {
            pending.finish()?;
        }
        if i == proofs / 4 || i + 1 == proofs {
            marks.push((card.backend().context().available_memory()?, resident_bytes()));
        }
    }
    println!(
        "after a quarter and all of {proofs} proofs: device bytes free {} {}, resident {} {}",
        marks[0].0, marks[1].0, marks[0].1, marks[1].1
    );
    if marks[0].0 != marks[1].0 || marks[1].1 > marks[0].1 + (16 << 20) {
        return Err("memory grows".into());
    }
    Ok(())
}

/// Times whole proofs: pinned and pageable inputs, alone and two in flight.
pub(crate) fn bench(shape: &str, log2: u32, limit: Option<u64>, copies: u32) -> Outcome {
    let memory = HostMemory::default();
    let circuit = Synthetic::new(shape.parse::<Shape>()?, log2)?;
    let card = open(OpenOptions { vram_limit: limit, copies, ..OpenOptions::default() })?;
    let maker = open(OpenOptions { slots: 1, ..OpenOptions::default() })?;
    let clock = Instant::now();
    let key = development_key(maker.backend(), &circuit, HBasis::OddLagrange)?;
    drop(maker);
    let made = clock.elapsed();
    let clock = Instant::now();
    let loaded = card.load_key(key.clone())?;
    println!(
        "{shape} 2^{log2}: key made in {:.1} s, loaded in {:.2} s",
        made.as_secs_f32(),
        clock.elapsed().as_secs_f32()
    );
    let matrices = key.matrices().ok_or("the key has matrices")?;
    let witness = circuit.witness(1, &memory)?;
    let rows = |matrix| if log2 >= 26 { Vec::new() } else { product(matrix, &witness) };
    let (a, b) = (rows(&matrices.a), rows(&matrices.b));
    let runs = if log2 >= 26 { 2 } else { 7 };
    for (name, pinned, evaluated) in
        [("pinned witness", true, false), ("pinned a, b", true, true), ("pageable a, b", false, true)]
    {
        if evaluated && log2 >= 26 {
            continue;
        }
        let source = Source { card: card.backend(), memory: &memory, pinned };
        let inputs = || if evaluated { source.evaluated(&witness, [&a, &b], None) } else { source.witness(&witness) };
        let (mut starts, mut sums, mut proofs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..=runs {
            let given = inputs()?;
            let clock = Instant::now();
            let pending = card.start(&loaded, given).map_err(|e| e.source)?;
            starts.push(1000.0 * clock.elapsed().as_secs_f32());
            pending.finish()?;
            proofs.push(1000.0 * clock.elapsed().as_secs_f32());
            let given = inputs()?;
            let clock = Instant::now();
            card.start(&loaded, given).map_err(|e| e.source)?.finish_sums()?;
            sums.push(1000.0 * clock.elapsed().as_secs_f32());
        }
        println!("  {name}: start {}", summary(starts.split_off(1)));
        println!("  {name}: sums {}", summary(sums.split_off(1)));
        println!("  {name}: verified proof {}", summary(proofs.split_off(1)));
        if evaluated {
            let mut pairs = Vec::new();
            for _ in 0..=runs {
                let (first, second) = (inputs()?, inputs()?);
                let clock = Instant::now();
                let first = card.start(&loaded, first).map_err(|e| e.source)?;
                let second = card.start(&loaded, second).map_err(|e| e.source)?;
                let waiting = std::thread::spawn(move || second.finish().map(drop));
                first.finish()?;
                waiting.join().map_err(|_| "a panic")??;
                pairs.push(1000.0 * clock.elapsed().as_secs_f32());
            }
            println!("  {name}: two in flight {}", summary(pairs.split_off(1)));
        }
    }
    Ok(())
}

/// The sums of a key that doesn't fit, against those of one that does.
pub(crate) fn limited(shape: &str, log2: u32, limit: u64) -> Outcome {
    let memory = HostMemory::default();
    let circuit = Synthetic::new(shape.parse::<Shape>()?, log2)?;
    let card = open(OpenOptions::default())?;
    let key = development_key(card.backend(), &circuit, HBasis::OddLagrange)?;
    let expected = {
        let loaded = card.load_key(key.clone())?;
        sums_of(&card, &loaded, Inputs::new(circuit.witness(3, &memory)?))?
    };
    drop(card);
    let small = open(OpenOptions { vram_limit: Some(limit), ..OpenOptions::default() })?;
    let loaded = small.load_key(key)?;
    for _ in 0..2 {
        let clock = Instant::now();
        let sums = sums_of(&small, &loaded, Inputs::new(circuit.witness(3, &memory)?))?;
        println!(
            "{shape} 2^{log2} within {} MiB: {:.0} ms, {} MiB held",
            limit >> 20,
            1000.0 * clock.elapsed().as_secs_f32(),
            small.backend().context().live().device_bytes >> 20
        );
        expect(&expected, &sums, "under a limit")?;
    }
    small.start(&loaded, Inputs::new(circuit.witness(4, &memory)?)).map_err(|e| e.source)?.finish()?;
    Ok(())
}

/// One large circuit: the card's sums against the CPU's, and a proof that verifies under a key that the card made.
pub(crate) fn once(shape: &str, log2: u32) -> Outcome {
    let memory = HostMemory::default();
    let circuit = Synthetic::new(shape.parse::<Shape>()?, log2)?;
    let card = open(OpenOptions::default())?;
    let clock = Instant::now();
    let key = development_key(card.backend(), &circuit, HBasis::OddLagrange)?;
    let made = clock.elapsed();
    let witness = circuit.witness(u64::from(log2), &memory)?;
    let inputs = || memory.copy_of(MemoryClass::Witness, &witness).map(Inputs::new);
    let loaded = card.load_key(key.clone())?;
    let got = sums_of(&card, &loaded, inputs()?)?;
    card.start(&loaded, inputs()?).map_err(|e| e.source)?.finish()?;
    let cpu = Prover::new(CpuBackend::new(CpuOptions::default())?);
    let on_cpu = cpu.load_key(key)?;
    let clock = Instant::now();
    let expected = cpu.start(&on_cpu, inputs()?).map_err(|e| e.source)?.finish_sums()?;
    println!(
        "{shape} 2^{log2}: key made on the card in {:.1} s, proof verified, CPU's sums took {:.1} s",
        made.as_secs_f32(),
        clock.elapsed().as_secs_f32()
    );
    expect(&expected, &got, &format!("{shape} 2^{log2}"))?;
    println!("{shape} 2^{log2}: sums equal the CPU's");
    Ok(())
}

/// The fixed-base extension against the CPU.
pub(crate) fn fixed_base() -> Outcome {
    let card = open(OpenOptions::default())?;
    let mut rng = ChaCha20Rng::from_entropy();
    let mut scalars: Vec<Scalar> = (0..5000).map(|_| Scalar::random(&mut rng)).collect();
    scalars[7] = Scalar::ZERO;
    scalars[8] = Scalar::ONE;
    scalars[9] = -Scalar::ONE;
    let (mut g1, mut g2) = (vec![0; 96 * scalars.len()], vec![0; 192 * scalars.len()]);
    card.backend().fixed_base().g1(&G1Affine::generator(), &scalars, &mut g1)?;
    card.backend().fixed_base().g2(&G2Affine::generator(), &scalars, &mut g2)?;
    use splitprover_core::point::PointRecord;
    for (i, scalar) in scalars.iter().enumerate() {
        let right = G1Affine::from_record_unchecked(&g1[96 * i..][..96])
            == (G1Affine::generator() * scalar).to_affine()
            && G2Affine::from_record_unchecked(&g2[192 * i..][..192]) == (G2Affine::generator() * scalar).to_affine();
        if !right {
            return Err(format!("fixed-base product {i} is wrong").into());
        }
    }
    println!("fixed base: all right");
    Ok(())
}

/// Opens a card that isn't there, for the message.
pub(crate) fn absent() -> Outcome {
    println!("{}", Context::open(99).err().map_or("opened".into(), |error| error.to_string()));
    Ok(())
}
