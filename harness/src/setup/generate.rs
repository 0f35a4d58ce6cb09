//! Key generation: from a constraint system and a trapdoor to a proving key (Groth 2016, section 3.2).
//!
//! With uᵢ, vᵢ, wᵢ the polynomials of variable i in A, B, C:
//!
//! | query | scalars | over |
//! |---|---|---|
//! | A, B | uᵢ(τ), vᵢ(τ) | all variables |
//! | IC | (β·uᵢ(τ) + α·vᵢ(τ) + wᵢ(τ))/γ | 1 and the public inputs |
//! | L | (β·uᵢ(τ) + α·vᵢ(τ) + wᵢ(τ))/δ | private variables |
//! | H, bellman | τ^j·(τⁿ − 1)/δ, 0 ≤ j < n − 1 | coefficients of the quotient |
//! | H, snarkjs | L_(2j+1)(τ)/δ in the domain of size 2n, 0 ≤ j < n | values on the odd coset |
//!
//! The rows are the constraints and then one for the constant 1 and each public input, in either basis
//! (see [`public_rows`](super::constraints::public_rows)); the domain is the least power of two that holds them, and at least 2.
//! Tables hold a record for each *dense* variable, so that a key of 2^27 rows takes no memory for infinities.

use std::sync::Arc;

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use rayon::prelude::*;
use splitprover_core::domain::MAX_LOG2;
use splitprover_core::{
    BackendError, Bitmap, ByteOwner, Domain, HBasis, HostBuf, HostMemory, KeyError, Matrices, MemoryClass, PointRecord,
    PointTable, ProvingKey, ProvingKeyParts, Query, RootOfUnity, SharedBytes, VerifyingKey,
};

use super::constraints::{ConstraintSystem, Matrix, key_matrix, num_rows};
use super::error::SetupError;
use super::fixed_base::{FixedBase, multiple};
use super::polynomials::{at_tau, check_tau, geometric, lagrange, odd_lagrange, power_of_two};
use super::trapdoor::Trapdoor;

/// What key generation works with.
pub struct Resources<'a> {
    /// Where the key's tables (class [`Key`](MemoryClass::Key)) and the scalars (class [`Staging`](MemoryClass::Staging))
    /// live.
    pub memory: &'a HostMemory,
    /// Who multiplies the generators.
    pub fixed_base: &'a dyn FixedBase,
    /// Is told now and then how far a step is: its name, points done, points to do.
    pub progress: &'a (dyn Fn(&'static str, usize, usize) + Sync),
}

impl std::fmt::Debug for Resources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Resources({:?})", self.memory)
    }
}

/// A key whose trapdoor is known: good for tests and measurements, worthless for security. Whoever writes it to a file marks
/// it there.
#[derive(Clone, Debug)]
pub struct DevelopmentKey {
    /// The proving key, with its matrices.
    pub key: Arc<ProvingKey>,
    /// Rows of the constraint system, without those of the public inputs.
    pub num_constraints: usize,
}

/// The domain of a system: the least power of two that holds its constraints and a row for the constant 1 and each public
/// input, and at least 2; with the root of the key format that goes with the basis.
///
/// # Errors
/// [`SetupError::Rows`] beyond [`MAX_LOG2`].
pub fn domain<S: ConstraintSystem>(system: &S, basis: HBasis) -> Result<Domain, SetupError> {
    let rows = num_rows(system);
    let root = match basis {
        HBasis::OddLagrange => RootOfUnity::snarkjs(),
        HBasis::Monomial => RootOfUnity::bellman(),
    };
    rows.checked_next_power_of_two()
        .and_then(|size| Domain::new(size.max(2).ilog2(), root))
        .ok_or(SetupError::Rows { rows, max_log2: MAX_LOG2 })
}

/// Makes the key of a system, over its [`domain`]. The same trapdoor gives the same key, whatever the number of threads.
///
/// # Errors
/// [`SetupError`]: a degenerate trapdoor, a system that is too large or inconsistent, no memory, a device that failed.
pub fn generate<S: ConstraintSystem>(
    system: &S,
    basis: HBasis,
    trapdoor: &Trapdoor,
    resources: &Resources<'_>,
) -> Result<DevelopmentKey, SetupError> {
    generate_over(system, domain(system, basis)?, basis, trapdoor, resources)
}

/// As [`generate`], over any domain that holds the rows: larger than need be, or with a root that no key format joins with this
/// basis. Over one domain the keys of both bases differ in H alone, and give equal proofs.
///
/// # Errors
/// As [`generate`]; [`KeyError::Rows`] if the domain is too small.
pub fn generate_over<S: ConstraintSystem>(
    system: &S,
    domain: Domain,
    basis: HBasis,
    trapdoor: &Trapdoor,
    resources: &Resources<'_>,
) -> Result<DevelopmentKey, SetupError> {
    let (num_public, num_variables) = (system.num_public(), system.num_variables());
    if num_variables <= num_public || u32::try_from(num_variables).is_err() {
        return Err(KeyError::Variables { num_variables, num_public }.into());
    }
    let (rows, domain_size) = (num_rows(system), domain.size());
    if rows > domain_size {
        return Err(KeyError::Rows { rows, domain_size }.into());
    }
    let Trapdoor { tau, alpha, beta, gamma, delta } = *trapdoor;
    check_tau(tau, domain)?;
    let nonzero = |x: Scalar| Option::<Scalar>::from(x.invert()).ok_or(SetupError::Trapdoor("gamma or delta is zero"));
    let (gamma_inverse, delta_inverse) = (nonzero(gamma)?, nonzero(delta)?);

    let Polynomials { a, b, c } = Polynomials::at(tau, system, domain, resources)?;
    let mut combined = c;
    combined.par_iter_mut().zip(a.par_iter().zip(b.par_iter())).enumerate().for_each(|(i, (c, (a, b)))| {
        let divisor = if i <= num_public { gamma_inverse } else { delta_inverse };
        *c = (beta * a + alpha * b + *c) * divisor;
    });
    let ic = resources.table::<G1Affine>("IC", &combined[..=num_public])?;
    let ic = (0..ic.len()).map(|i| ic.get(i)).collect();
    let l = resources.query("L query", &combined[num_public + 1..])?;
    drop(combined);
    let a_query = resources.query("A query", &a)?;
    drop(a);
    let b_g1 = resources.query("B query in G1", &b)?;
    let b_g2 = resources.query("B query in G2", &b)?;
    drop(b);
    let h = {
        let scalars = h_scalars(basis, tau, delta_inverse, domain, resources.memory)?;
        resources.query("H query", &scalars)?
    };

    (resources.progress)("matrices", 0, 1);
    let (a, b) = rayon::join(|| key_matrix(system, Matrix::A), || key_matrix(system, Matrix::B));
    let matrices = Some(Arc::new(Matrices { a: a?, b: b? }));
    (resources.progress)("matrices", 1, 1);

    let verifying_key = VerifyingKey::new(multiple(&alpha), multiple(&beta), multiple(&gamma), multiple(&delta), ic)?;
    let (beta_g1, delta_g1) = (multiple(&beta), multiple(&delta));
    let parts = ProvingKeyParts {
        domain,
        h_basis: basis,
        verifying_key,
        beta_g1,
        delta_g1,
        a: a_query,
        b_g1,
        b_g2,
        l,
        h,
        matrices,
    };
    Ok(DevelopmentKey { key: Arc::new(ProvingKey::new(parts)?), num_constraints: system.num_constraints() })
}

/// The polynomials of all variables at τ.
struct Polynomials {
    a: HostBuf<Scalar>,
    b: HostBuf<Scalar>,
    c: HostBuf<Scalar>,
}

impl Polynomials {
    fn at<S: ConstraintSystem>(
        tau: Scalar,
        system: &S,
        domain: Domain,
        resources: &Resources<'_>,
    ) -> Result<Self, SetupError> {
        (resources.progress)("polynomials", 0, 1);
        let lagrange = lagrange(tau, domain, resources.memory)?;
        let at = |matrix| at_tau(system, matrix, &lagrange, resources.memory);
        let ((a, b), c) = rayon::join(|| rayon::join(|| at(Matrix::A), || at(Matrix::B)), || at(Matrix::C));
        (resources.progress)("polynomials", 1, 1);
        Ok(Self { a: a?, b: b?, c: c? })
    }
}

fn h_scalars(
    basis: HBasis,
    tau: Scalar,
    delta_inverse: Scalar,
    domain: Domain,
    memory: &HostMemory,
) -> Result<HostBuf<Scalar>, SetupError> {
    let scalars = |len| memory.zeroed::<Scalar>(MemoryClass::Staging, len);
    Ok(match basis {
        HBasis::OddLagrange => {
            let mut h = scalars(domain.size())?;
            odd_lagrange(&mut h, tau, domain, delta_inverse);
            h
        }
        HBasis::Monomial => {
            let mut h = scalars(domain.size() - 1)?;
            let vanishing = power_of_two(tau, domain.log2()) - Scalar::ONE;
            geometric(&mut h, vanishing * delta_inverse, tau);
            h
        }
    })
}

/// A group in which a query lives: which of the fixed base's methods makes its points.
trait QueryGroup: PointRecord {
    fn mul_many(fixed_base: &dyn FixedBase, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError>;
}

impl QueryGroup for G1Affine {
    fn mul_many(fixed_base: &dyn FixedBase, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError> {
        fixed_base.mul_g1(scalars, records)
    }
}

impl QueryGroup for G2Affine {
    fn mul_many(fixed_base: &dyn FixedBase, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError> {
        fixed_base.mul_g2(scalars, records)
    }
}

/// Key memory that a table can share.
struct KeyMemory(HostBuf<u8>);

impl ByteOwner for KeyMemory {}

impl AsRef<[u8]> for KeyMemory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Resources<'_> {
    /// The query of these scalars: points of the non-zero ones, and which they are.
    fn query<C: QueryGroup>(&self, step: &'static str, scalars: &[Scalar]) -> Result<Query<C>, SetupError> {
        let density = Bitmap::from_fn(scalars.len(), |i| scalars[i] != Scalar::ZERO);
        let total = density.count_ones();
        if total == scalars.len() {
            return Ok(Query::full(self.table(step, scalars)?));
        }
        let mut dense = self.memory.zeroed::<Scalar>(MemoryClass::Staging, total)?;
        for (dense, i) in dense.iter_mut().zip(density.iter_ones()) {
            *dense = scalars[i];
        }
        let table = self.table(step, &dense)?;
        Ok(Query::compact(table, Arc::new(density)).expect("a point was made for each bit that is set"))
    }

    fn table<C: QueryGroup>(&self, step: &'static str, scalars: &[Scalar]) -> Result<PointTable<C>, SetupError> {
        let mut records = self.memory.zeroed::<u8>(MemoryClass::Key, scalars.len() * C::BYTES)?;
        let batch = self.fixed_base.batch().max(1);
        let mut done = 0;
        (self.progress)(step, 0, scalars.len());
        for (scalars_part, records_part) in scalars.chunks(batch).zip(records.chunks_mut(batch * C::BYTES)) {
            C::mul_many(self.fixed_base, scalars_part, records_part)?;
            done += scalars_part.len();
            (self.progress)(step, done, scalars.len());
        }
        let bytes = SharedBytes::new(Arc::new(KeyMemory(records)));
        Ok(PointTable::new(bytes).expect("a whole number of records"))
    }
}
