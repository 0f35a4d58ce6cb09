//! Keys with one query, their inputs, and the sums that must come out.
//!
//! Bases are known multiples of the generator, so the sum's discrete logarithm is an inner product over F_r, and every timed result
//! can be compared with one multiplication of the generator, at any size.

use std::sync::Arc;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::{BatchInverter, Field};
use group::prime::PrimeCurveAffine;
use group::{Curve, Group as _};
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

/// Bases of H in a key that shows whether transforms are right: the first, the last, the middle, and random ones.
const SHOWN: usize = 8;

/// The query that has bases, and their records.
enum Bases {
    None,
    A(Vec<u8>),
    BG2(Vec<u8>),
    /// Some of H only.
    H(Arc<Bitmap>, Vec<u8>),
}

/// Which group the bases of a multi-exponentiation are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    G1,
    G2,
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
        Self::msm(Group::G1, log2, scalars, fixed_base)
    }

    /// One multi-exponentiation in G2: 2^`log2` bases in the B query of G2; that of G1 is empty.
    ///
    /// # Errors
    /// As [`msm_g1`](Self::msm_g1).
    pub fn msm_g2(log2: u32, scalars: Scalars, fixed_base: &dyn FixedBase) -> Result<Self, WorkloadError> {
        Self::msm(Group::G2, log2, scalars, fixed_base)
    }

    /// One quotient: random evaluations of 2^`log2` rows, and no bases at all, so that nothing but transforms is timed. All sums are
    /// infinity: [`shown_quotient`](Self::shown_quotient) is what shows the transforms to be right.
    ///
    /// # Errors
    /// As [`msm_g1`](Self::msm_g1).
    pub fn quotient(log2: u32) -> Result<Self, WorkloadError> {
        let evaluations = random_evaluations(domain(log2)?);
        let key = key(log2, 1, Bases::None)?;
        Ok(Self { key, witness: vec![Scalar::ONE], evaluations, expected: infinities() })
    }

    /// The same quotient with a few bases of H, whose sum is known without a transform: by Lagrange's formula, 2^`log2` terms for
    /// each base.
    ///
    /// # Errors
    /// As [`msm_g1`](Self::msm_g1).
    pub fn shown_quotient(log2: u32, fixed_base: &dyn FixedBase) -> Result<Self, WorkloadError> {
        let domain = domain(log2)?;
        let n = domain.size();
        let evaluations = random_evaluations(domain);
        let mut rng = ChaCha20Rng::seed_from_u64(5);
        let mut shown = vec![0, n / 2, n - 1];
        shown.extend((shown.len()..SHOWN).map(|_| rng.next_u64() as usize & (n - 1)));
        shown.sort_unstable();
        shown.dedup();
        let scalars = odd_lagrange_scalars(domain, &evaluations, &shown);
        let logarithms: Vec<_> = shown.iter().map(|_| Scalar::random(&mut rng)).collect();
        let mut records = vec![0; shown.len() * G1Affine::BYTES];
        fixed_base.mul_g1(&logarithms, &mut records)?;
        let log: Scalar = scalars.iter().zip(&logarithms).map(|(h, k)| h * k).sum();
        let expected = QuerySums { hl: (G1Projective::generator() * log).to_affine(), ..infinities() };
        let density = Arc::new(Bitmap::from_fn(n, |index| shown.binary_search(&index).is_ok()));
        let key = key(log2, 1, Bases::H(density, records))?;
        Ok(Self { key, witness: vec![Scalar::ONE], evaluations, expected })
    }

    fn msm(group: Group, log2: u32, scalars: Scalars, fixed_base: &dyn FixedBase) -> Result<Self, WorkloadError> {
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
        let bytes = if group == Group::G2 { G2Affine::BYTES } else { G1Affine::BYTES };
        let mut records = vec![0; n * bytes];
        for (scalars, records) in
            logarithms.chunks(fixed_base.batch()).zip(records.chunks_mut(fixed_base.batch() * bytes))
        {
            match group {
                Group::G1 => fixed_base.mul_g1(scalars, records)?,
                Group::G2 => fixed_base.mul_g2(scalars, records)?,
            }
        }
        let mut expected = infinities();
        let bases = match group {
            Group::G1 => {
                expected.a = (G1Projective::generator() * log).to_affine();
                Bases::A(records)
            }
            Group::G2 => {
                expected.b_g2 = (G2Projective::generator() * log).to_affine();
                Bases::BG2(records)
            }
        };
        let key = key(1, n, bases)?;
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

fn random_evaluations(domain: Domain) -> Vec<Scalar> {
    let mut evaluations = vec![Scalar::ZERO; domain.size()];
    Scalars::Random.fill(4, &mut evaluations);
    evaluations
}

/// The scalars of H at the indices `at`, in the basis of the odd coset: A² − C at the points xᵢ = g·ωⁱ, where C has the squares
/// of A's `values`. By Lagrange's formula, A(x) = (xⁿ − 1)/n · Σ aⱼ·ωʲ/(x − ωʲ), and xⁿ = −1 there.
fn odd_lagrange_scalars(domain: Domain, values: &[Scalar], at: &[usize]) -> Vec<Scalar> {
    let omega = domain.omega();
    let points: Vec<_> = at.iter().map(|&i| domain.odd_coset_shift() * omega.pow_vartime([i as u64])).collect();
    let scale = -domain.size_inverse().double();
    let part = |(number, part): (usize, &[Scalar])| -> Vec<(Scalar, Scalar)> {
        let first = omega.pow_vartime([(number * CHUNK) as u64]);
        let roots: Vec<_> = std::iter::successors(Some(first), |root| Some(root * omega)).take(part.len()).collect();
        let mut scratch = vec![Scalar::ZERO; part.len()];
        let sums = |x: &Scalar| {
            let mut inverses: Vec<_> = roots.iter().map(|root| x - root).collect();
            // None is zero: x is an odd power of a root of twice the order.
            BatchInverter::invert_with_external_scratch(&mut inverses, &mut scratch);
            let terms = part.iter().zip(&roots).zip(&inverses).map(|((a, root), inverse)| (a, a * root * inverse));
            terms.fold((Scalar::ZERO, Scalar::ZERO), |(a_sum, c_sum), (a, term)| (a_sum + term, c_sum + a * term))
        };
        points.iter().map(sums).collect()
    };
    let add = |mut left: Vec<(Scalar, Scalar)>, right: Vec<(Scalar, Scalar)>| {
        for (left, right) in left.iter_mut().zip(right) {
            *left = (left.0 + right.0, left.1 + right.1);
        }
        left
    };
    let nothing = || vec![(Scalar::ZERO, Scalar::ZERO); points.len()];
    let sums = values.par_chunks(CHUNK).enumerate().map(part).reduce(nothing, add);
    sums.into_iter().map(|(a, c)| (scale * a).square() - scale * c).collect()
}

fn infinities() -> QuerySums {
    let (g1, g2) = (G1Affine::identity(), G2Affine::identity());
    QuerySums { a: g1, b_g1: g1, b_g2: g2, hl: g1 }
}

fn empty<C: PointRecord>(num_variables: usize) -> Query<C> {
    let nothing = Arc::new(Bitmap::from_fn(num_variables, |_| false));
    Query::compact(PointTable::from_points(&[]), nothing).expect("no bit, no record")
}

/// A key of `num_variables` in which one query has bases, and every other is empty.
fn key(log2: u32, num_variables: usize, bases: Bases) -> Result<Arc<ProvingKey>, WorkloadError> {
    let domain = domain(log2)?;
    let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
    let table = |records: Vec<u8>| PointTable::new(records.into()).expect("a whole number of records");
    let (mut a, mut b_g2, mut h) = (empty(num_variables), empty(num_variables), empty(domain.size()));
    match bases {
        Bases::None => {}
        Bases::A(records) => a = Query::full(table(records)),
        Bases::BG2(records) => b_g2 = Query::full(PointTable::new(records.into()).expect("a whole number of records")),
        Bases::H(density, records) => h = Query::compact(table(records), density).expect("a record for each bit"),
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
        h,
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
        for log2 in [1, 2, 7] {
            run(&Workload::quotient(log2).unwrap()).unwrap();
            run(&Workload::shown_quotient(log2, &fixed_base).unwrap()).unwrap();
        }
        // More than one unit of parallel work.
        run(&Workload::shown_quotient(15, &fixed_base).unwrap()).unwrap();
    }

    #[test]
    fn a_wrong_sum_is_named() {
        let mut workload = Workload::msm_g1(4, Scalars::Random, &CpuFixedBase::new(16)).unwrap();
        workload.expected.a = G1Affine::generator();
        assert!(matches!(run(&workload), Err(WorkloadError::WrongSum("a"))));

        let mut workload = Workload::shown_quotient(4, &CpuFixedBase::new(16)).unwrap();
        workload.evaluations[3] += Scalar::ONE;
        assert!(matches!(run(&workload), Err(WorkloadError::WrongSum("hl"))));
    }
}
