//! Memory that stays resident after `start` has returned: what the backend keeps, and how much of it the allocator gives back when
//! asked to.
//!
//! `cargo run --release -p splitprover-backend-cpu --example retained [LOG2]`

use std::sync::Arc;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use rand_core::{OsRng, RngCore};
use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_core::{
    Domain, Evaluations, HBasis, HostMemory, Inputs, MemoryClass, PointTable, Prover, ProvingKey, ProvingKeyParts,
    Query, RootOfUnity, VerifyingKey,
};

mod shared;

use shared::query;

/// Anonymous resident memory of this process, in KiB.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no arguments that could be wrong; it may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn main() {
    let log2 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(16);
    let n = 1usize << log2;
    let memory = HostMemory::default();
    let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
    let h = query::<G1Projective>(n);
    let parts = ProvingKeyParts {
        domain: Domain::new(log2, RootOfUnity::snarkjs()).expect("a domain"),
        h_basis: HBasis::OddLagrange,
        verifying_key: VerifyingKey::new(g1, g2, g2, g2, vec![g1]).expect("good points"),
        beta_g1: g1,
        delta_g1: g1,
        a: h.clone(),
        b_g1: h.clone(),
        b_g2: query::<G2Projective>(n),
        l: Query::full(PointTable::from_points(&(1..n).map(|i| h.table().get(i)).collect::<Vec<_>>())),
        h,
        matrices: None,
    };
    let prover = Prover::new(CpuBackend::new(CpuOptions::default()).expect("the default works"));
    let key = prover.load_key(Arc::new(ProvingKey::new(parts).expect("a consistent key"))).expect("a key that fits");
    trim();
    let begin = resident();
    for bits in [0, 63, 0, 63, 0] {
        let witness: Vec<_> = (0..n)
            .map(|i| match i {
                0 => Scalar::ONE,
                _ if i % 64 < bits => Scalar::from(u64::from(OsRng.next_u32() & 1)),
                _ => Scalar::random(OsRng),
            })
            .collect();
        let evaluations = || memory.copy_of(MemoryClass::Evaluations, &witness).expect("memory");
        let evaluations = Evaluations { a: evaluations(), b: evaluations(), c: None };
        let inputs =
            Inputs::with_evaluations(memory.copy_of(MemoryClass::Witness, &witness).expect("memory"), evaluations);
        drop(witness);
        let in_flight = prover.start(&key, inputs).expect("starts");
        let after = resident();
        trim();
        println!("{bits}/64 bits: {} KiB stay, {} KiB when trimmed", after - begin, resident() - begin);
        drop(in_flight);
    }
}
