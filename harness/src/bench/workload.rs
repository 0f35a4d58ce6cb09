//! Keys with one query, their inputs, and the sums that must come out.
//!
//! Bases are known multiples of the generator, so the sum's discrete logarithm is an inner product over F_r, and every timed result
//! can be compared with one multiplication of the generator, at any size.

use std::sync::Arc;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rayon::prelude::*;
use splitprover_core::{
    BackendError, Bitmap, Domain, Evaluations, FinishError, HBasis, KeyError, PointRecord, PointTable, ProvingKey,
    ProvingKeyParts, Query, QuerySums, RootOfUnity, StartError, VerifyingKey,
};

use splitprover_core::memory::OutOfHostMemory;

use crate::setup::FixedBase;

/// Values per unit of parallel work.
const CHUNK: usize = 1 << 14;

/// What can go wrong while timing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The backend's.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The backend's, from `start`.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The backend's, from the other half.
    #[error(transparent)]
    Finish(#[from] FinishError),
    /// No memory for the inputs.
    #[error(transparent)]
    Memory(#[from] OutOfHostMemory),
    /// A size that no key can have.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A domain that is too large.
    #[error("2^{0} is beyond the largest domain")]
    Log2(u32),
    /// A result that isn't what it must be.
    #[error("wrong result: the sum {0} isn't the known one")]
    WrongSum(&'static str),
}

/// What the scalars of a multi-exponentiation look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalars {
    /// Uniform in F_r.
    Random,
    /// 63 of 64 are bits, half of them 1, as in proofs of replication.
    Porep,
    /// All 1.
    Ones,
}

impl Scalars {
    fn value(self, index: usize, rng: &mut ChaCha20Rng) -> Scalar {
        match self {
            Self::Random => Scalar::random(rng),
            Self::Ones => Scalar::ONE,
            Self::Porep if index % 64 == 63 => Scalar::random(rng),
            Self::Porep => Scalar::from(u64::from(rng.next_u32() & 1)),
        }
    }

    /// `len` scalars, the first of them 1, from a seed; the same whatever the number of threads.
    fn fill(self, seed: u64, out: &mut [Scalar]) {
        out.par_chunks_mut(CHUNK).enumerate().for_each(|(part, out)| {
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            rng.set_stream(part as u64);
            for (i, out) in out.iter_mut().enumerate() {
                *out = self.value(i, &mut rng);
            }
        });
        if let Some(first) = out.first_mut() {
            *first = Scalar::ONE;
        }
    }
}

/// Which query has bases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dense {
    Nothing,
    A,
    BG2,
}

/// A key with at most one query, and what goes with it.
#[derive(Debug)]
pub struct Workload {
    /// The key, without matrices.
    pub key: Arc<ProvingKey>,
    /// The witness, Montgomery form.
    pub witness: Vec<Scalar>,
    /// A·w and B·w (the same values for both), of the domain's size.
    pub evaluations: Vec<Scalar>,
    /// What must come out.
    pub expected: QuerySums,
}

impl Workload {
    /// One multi-exponentiation in G1: 2^`log2` bases in the A query, and a domain of two rows with zeros.
    ///
    /// # Errors
    /// [`WorkloadError`]: a device that fails, a size that is too large.
    pub fn msm_g1(log2: u32, scalars: Scalars, fixed_base: &dyn FixedBase) -> Result<Self, WorkloadError> {
        Self::msm(Dense::A, log2, scalars, fixed_base)
    }

    /// One multi-exponentiation in G2: 2^`log2` bases in the B query of G2; that of G1 is empty.
    ///
    /// # Errors
    /// As [`msm_g1`](Self::msm_g1).
    pub fn msm_g2(log2: u32, scalars: Scalars, fixed_base: &dyn FixedBase) -> Result<Self, WorkloadError> {
        Self::msm(Dense::BG2, log2, scalars, fixed_base)
    }

    /// One quotient: random evaluations of 2^`log2` rows, and no bases at all. All sums are infinity, so this alone shows no
    /// transform to be right: proofs do.
    ///
    /// # Errors
    /// As [`msm_g1`](Self::msm_g1).
    pub fn quotient(log2: u32) -> Result<Self, WorkloadError> {
        let mut evaluations = vec![Scalar::ZERO; domain(log2)?.size()];
        Scalars::Random.fill(4, &mut evaluations);
        let key = key(log2, 1, Dense::Nothing, Vec::new())?;
        Ok(Self { key, witness: vec![Scalar::ONE], evaluations, expected: infinities() })
    }

    fn msm(dense: Dense, log2: u32, scalars: Scalars, fixed_base: &dyn FixedBase) -> Result<Self, WorkloadError> {
        let n = domain(log2)?.size();
        let mut witness = vec![Scalar::ZERO; n];
        scalars.fill(1, &mut witness);
        let mut logarithms = vec![Scalar::ZERO; n];
        Scalars::Random.fill(2, &mut logarithms);
        let log: Scalar = witness
            .par_chunks(CHUNK)
            .zip(logarithms.par_chunks(CHUNK))
            .map(|(w, k)| w.iter().zip(k).map(|(w, k)| w * k).sum::<Scalar>())
            .sum();
        let bytes = if dense == Dense::BG2 { G2Affine::BYTES } else { G1Affine::BYTES };
        let mut records = vec![0; n * bytes];
        for (scalars, records) in
            logarithms.chunks(fixed_base.batch()).zip(records.chunks_mut(fixed_base.batch() * bytes))
        {
            match dense {
                Dense::BG2 => fixed_base.mul_g2(scalars, records)?,
                _ => fixed_base.mul_g1(scalars, records)?,
            }
        }
        let mut expected = infinities();
        match dense {
            Dense::BG2 => expected.b_g2 = (G2Projective::generator() * log).to_affine(),
            _ => expected.a = (G1Projective::generator() * log).to_affine(),
        }
        let key = key(1, n, dense, records)?;
        Ok(Self { key, witness, evaluations: vec![Scalar::ZERO; 2], expected })
    }

    /// Bytes of the inputs of one proof: what goes to the device.
    pub fn input_bytes(&self) -> u64 {
        ((self.witness.len() + 2 * self.evaluations.len()) * size_of::<Scalar>()) as u64
    }

    /// The evaluations as inputs, given a maker of buffers.
    ///
    /// # Errors
    /// The maker's.
    pub fn evaluations<E>(
        &self,
        mut copy: impl FnMut(&[Scalar]) -> Result<splitprover_core::HostBuf<Scalar>, E>,
    ) -> Result<Evaluations, E> {
        Ok(Evaluations { a: copy(&self.evaluations)?, b: copy(&self.evaluations)?, c: None })
    }
}

fn domain(log2: u32) -> Result<Domain, WorkloadError> {
    Domain::new(log2, RootOfUnity::snarkjs()).ok_or(WorkloadError::Log2(log2))
}

fn infinities() -> QuerySums {
    let (g1, g2) = (G1Affine::identity(), G2Affine::identity());
    QuerySums { a: g1, b_g1: g1, b_g2: g2, hl: g1 }
}

fn empty<C: PointRecord>(num_variables: usize) -> Query<C> {
    let nothing = Arc::new(Bitmap::from_fn(num_variables, |_| false));
    Query::compact(PointTable::from_points(&[]), nothing).expect("no bit, no record")
}

/// A key of `num_variables` in which `dense` has `records` and every other query is empty.
fn key(log2: u32, num_variables: usize, dense: Dense, records: Vec<u8>) -> Result<Arc<ProvingKey>, WorkloadError> {
    let domain = domain(log2)?;
    let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
    let table = |records: Vec<u8>| PointTable::new(records.into()).expect("a whole number of records");
    let (mut a, mut b_g2) = (empty(num_variables), empty(num_variables));
    match dense {
        Dense::Nothing => {}
        Dense::A => a = Query::full(table(records)),
        Dense::BG2 => b_g2 = Query::full(PointTable::new(records.into()).expect("a whole number of records")),
    }
    let parts = ProvingKeyParts {
        domain,
        h_basis: HBasis::OddLagrange,
        verifying_key: VerifyingKey::new(g1, g2, g2, g2, vec![g1])?,
        beta_g1: g1,
        delta_g1: g1,
        a,
        b_g1: empty(num_variables),
        b_g2,
        l: empty(num_variables - 1),
        h: empty(domain.size()),
        matrices: None,
    };
    Ok(Arc::new(ProvingKey::new(parts)?))
}

#[cfg(test)]
mod tests {
    use splitprover_backend_cpu::{CpuBackend, CpuOptions};
    use splitprover_core::{HostMemory, Inputs, MemoryClass, Prover};

    use super::super::measure::{Ending, measure};
    use super::*;
    use crate::setup::CpuFixedBase;

    fn run(workload: &Workload) -> Result<(), WorkloadError> {
        let prover = Prover::new(CpuBackend::new(CpuOptions::default()).unwrap());
        let key = prover.load_key(workload.key.clone())?;
        let memory = HostMemory::default();
        let copy = |class, values: &[Scalar]| memory.copy_of(class, values);
        measure(&prover, &key, 1, Ending::Sums(&workload.expected), || {
            let witness = copy(MemoryClass::Witness, &workload.witness)?;
            let evaluations = workload.evaluations(|values| copy(MemoryClass::Evaluations, values))?;
            Ok(Inputs::with_evaluations(witness, evaluations))
        })?;
        Ok(())
    }

    #[test]
    fn every_workload_gives_the_known_sums() {
        let fixed_base = CpuFixedBase::new(1 << 8);
        for scalars in [Scalars::Random, Scalars::Porep, Scalars::Ones] {
            run(&Workload::msm_g1(8, scalars, &fixed_base).unwrap()).unwrap();
            run(&Workload::msm_g2(6, scalars, &fixed_base).unwrap()).unwrap();
        }
        run(&Workload::quotient(7).unwrap()).unwrap();
    }

    #[test]
    fn a_wrong_sum_is_named() {
        let mut workload = Workload::msm_g1(4, Scalars::Random, &CpuFixedBase::new(16)).unwrap();
        workload.expected.a = G1Affine::generator();
        assert!(matches!(run(&workload), Err(WorkloadError::WrongSum("a"))));
    }
}
