//! Resident memory falls by the inputs when `start` returns, at a million constraints.
//!
//! One test in a binary of its own: other tests would move the process's resident memory meanwhile.

use std::sync::Arc;

use ff::Field;
use group::prime::PrimeCurveAffine;
use rand_core::{OsRng, RngCore};
use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_core::{
    BackendError, Domain, Evaluations, G1Affine, G1Projective, G2Affine, G2Projective, HBasis, HostMemory, Inputs,
    LentEvaluations, LentInputs, MemoryClass, PointRecord, PointTable, Prover, ProvingKey, ProvingKeyParts, Query,
    QuerySums, RootOfUnity, Scalar, SplitProver, StartError, VerifyingKey,
};
use splitprover_tests::scripted::{Scripted, ScriptedSums};

/// Distinct points in a table; they repeat.
const TILE: usize = 1 << 12;

/// Resident bytes of this process, without pages of files, which come and go, and what the allocator keeps for later.
fn resident() -> u64 {
    // SAFETY: gives free heap pages back to the system; touches no memory in use.
    unsafe { libc::malloc_trim(0) };
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let field = |at: usize| statm.split(' ').nth(at).unwrap().parse::<u64>().unwrap();
    let pages = field(1) - field(2);
    // SAFETY: a query without arguments in memory.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}

/// Whether memory fell by `inputs` bytes but for at most `retained`, within the greater of 8 MiB and 10 %.
fn fell(before: u64, after: u64, inputs: u64, retained: u64) -> bool {
    let slack = (8 << 20).max(inputs / 10) as i64;
    let kept = after as i64 - (before as i64 - inputs as i64);
    (-slack..=retained as i64 + slack).contains(&kept)
}

/// A table of `len` points, i mod TILE + 1 times the generator each, so that sums over it are known.
fn table<C: PointRecord>(len: usize) -> PointTable<C> {
    let generator = C::generator();
    let mut tile = Vec::with_capacity(TILE * C::BYTES);
    let mut point = generator.to_curve();
    for _ in 0..TILE.min(len) {
        let mut record = vec![0; C::BYTES];
        group::Curve::to_affine(&point).write_record(&mut record);
        tile.extend_from_slice(&record);
        point += generator;
    }
    let mut bytes = Vec::with_capacity(len * C::BYTES);
    while bytes.len() < len * C::BYTES {
        bytes.extend_from_slice(&tile[..tile.len().min(len * C::BYTES - bytes.len())]);
    }
    PointTable::new(bytes.into()).unwrap()
}

/// Σ xᵢ·(i mod TILE + 1): the discrete logarithm of a sum over [`table`].
fn weight<'s>(scalars: impl Iterator<Item = &'s Scalar>) -> Scalar {
    let mut by_point = vec![Scalar::ZERO; TILE];
    scalars.enumerate().for_each(|(i, x)| by_point[i % TILE] += x);
    by_point.iter().zip(1u64..).map(|(x, k)| *x * Scalar::from(k)).sum()
}

/// A key of 2^log2 rows and variables whose sums are known; no proof of it verifies.
fn key(log2: u32) -> Arc<ProvingKey> {
    let n = 1 << log2;
    let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
    let all = table::<G1Affine>(n);
    let key = ProvingKey::new(ProvingKeyParts {
        domain: Domain::new(log2, RootOfUnity::snarkjs()).unwrap(),
        h_basis: HBasis::OddLagrange,
        verifying_key: VerifyingKey::new(g1, g2, g2, g2, vec![g1]).unwrap(),
        beta_g1: g1,
        delta_g1: g1,
        a: Query::full(all.clone()),
        b_g1: Query::full(all.clone()),
        b_g2: Query::full(table(n)),
        l: Query::full(table(n - 1)),
        h: Query::full(all),
        matrices: None,
    });
    Arc::new(key.unwrap())
}

/// Constant evaluation vectors: their polynomials are constants, and so is a·b − c on the coset.
const A: u64 = 3;
const B: u64 = 5;
const C: u64 = 7;

fn inputs(memory: &HostMemory, log2: u32) -> Inputs {
    let n = 1 << log2;
    let mut witness = memory.zeroed::<Scalar>(MemoryClass::Witness, n).unwrap();
    for (i, x) in witness.iter_mut().enumerate() {
        *x = if i % 64 == 63 { Scalar::random(OsRng) } else { Scalar::from(u64::from(OsRng.next_u32() % 2)) };
    }
    witness[0] = Scalar::ONE;
    let rows = |value: u64| {
        let mut rows = memory.zeroed(MemoryClass::Evaluations, n).unwrap();
        rows.fill(Scalar::from(value));
        rows
    };
    Inputs::with_evaluations(witness, Evaluations { a: rows(A), b: rows(B), c: Some(rows(C)) })
}

fn known_sums(witness: &[Scalar]) -> QuerySums {
    let all = weight(witness.iter());
    let h = Scalar::from(A * B - C);
    let hl = weight(witness[1..].iter()) + weight(std::iter::repeat_n(&h, witness.len()));
    let g1 = |x: Scalar| G1Affine::from(G1Projective::from(G1Affine::generator()) * x);
    let b_g2 = (G2Projective::from(G2Affine::generator()) * all).into();
    QuerySums { a: g1(all), b_g1: g1(all), b_g2, hl: g1(hl) }
}

fn evaluation_and_witness_bytes(memory: &HostMemory) -> u64 {
    let now = memory.ledger().now();
    now[MemoryClass::Evaluations] + now[MemoryClass::Witness]
}

fn loaded<P: SplitProver>(backend: P, key: &Arc<ProvingKey>) -> (Prover<P>, splitprover_core::LoadedKey<P>) {
    let prover = Prover::new(backend);
    let key = prover.load_key(key.clone()).unwrap();
    (prover, key)
}

#[test]
fn resident_memory_falls_by_the_inputs_when_start_returns() {
    const LOG2: u32 = 20;
    const INPUT_BYTES: u64 = 4 << (LOG2 + 5);
    let memory = HostMemory::default();
    let cpu = || CpuBackend::new(CpuOptions { memory: memory.clone(), ..CpuOptions::default() }).unwrap();

    // Threads, their stacks, and whatever else is made once.
    let (prover, warm) = loaded(cpu(), &key(12));
    let small = inputs(&memory, 12);
    let expected = known_sums(small.witness());
    assert_eq!(prover.start(&warm, small).unwrap().finish_sums().unwrap(), expected);
    drop((prover, warm));

    // What core frees by itself.
    let key = key(LOG2);
    for release in [false, true] {
        let (prover, key) = loaded(
            Scripted::new(move |inputs| {
                let LentInputs { witness, evaluations: Some(LentEvaluations { a, b, c, .. }), .. } = inputs else {
                    return Err(BackendError::Unsupported("inputs without evaluations".into()));
                };
                if release {
                    [witness, a, b].into_iter().chain(c).for_each(|vector| vector.release());
                }
                Ok(ScriptedSums::never())
            }),
            &key,
        );
        let inputs = inputs(&memory, LOG2);
        assert_eq!(evaluation_and_witness_bytes(&memory), INPUT_BYTES);
        let before = resident();
        let _in_flight = prover.start(&key, inputs).unwrap();
        assert_eq!(evaluation_and_witness_bytes(&memory), 0);
        let after = resident();
        assert!(fell(before, after, INPUT_BYTES, 0), "{before} bytes before, {after} after");
    }

    // The measure sees a backend that keeps a copy of one vector.
    let (prover, loaded_key) = loaded(
        Scripted::new(|inputs| {
            let copy = inputs.witness.to_vec();
            Ok(ScriptedSums::new(move || Err(BackendError::device("keeping a copy", copy.len()))))
        }),
        &key,
    );
    let kept = inputs(&memory, LOG2);
    let before = resident();
    let in_flight = prover.start(&loaded_key, kept).unwrap();
    let after = resident();
    assert!(!fell(before, after, INPUT_BYTES, 0), "{before} bytes before, {after} after");
    drop(in_flight);

    // An untouched failure moves nothing; then the same inputs prove on another instance, and are gone.
    let (full, loaded_key) = loaded(
        Scripted::new(|_| Err(BackendError::DeviceMemory { what: "the key", requested: 1 << 40, available: 0 })),
        &key,
    );
    let given = inputs(&memory, LOG2);
    let (address, expected) = (given.witness().as_ptr(), known_sums(given.witness()));
    let StartError { inputs: returned, .. } = full.start(&loaded_key, given).unwrap_err();
    let returned = *returned.expect("untouched");
    assert_eq!((returned.witness().as_ptr(), evaluation_and_witness_bytes(&memory)), (address, INPUT_BYTES));
    let retained = cpu().retained_host_bytes(&key.shape());
    let (prover, loaded_key) = loaded(cpu(), &key);
    let before = resident();
    let in_flight = prover.start(&loaded_key, returned).unwrap();
    assert_eq!(evaluation_and_witness_bytes(&memory), 0);
    let after = resident();
    assert!(fell(before, after, INPUT_BYTES, retained), "{before} bytes before, {after} after, {retained} declared");
    assert_eq!(in_flight.finish_sums().unwrap(), expected);
    assert_eq!(memory.ledger().now().total(), 0);
}
