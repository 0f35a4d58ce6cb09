//! The pairing check, single and in batches.
//!
//! A proof (A, B, C) for public inputs x₁ … x_ℓ holds if e(A, B) = e(α, β)·e(Σ xᵢ·ICᵢ, γ)·e(C, δ) with x₀ = 1 (Groth,
//! "On the Size of Pairing-based Non-interactive Arguments", 2016, section 3.2). Points reach this check only through
//! [`Proof::new`] and [`VerifyingKey::new`], which
//! make sure that they are in the subgroup of order r: a check without that accepts forgeries from the cofactor.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::get_unwrap,
    clippy::panic,
    clippy::panic_in_result_fn,
    clippy::unreachable,
    clippy::todo,
    clippy::unimplemented,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use blstrs::{Bls12, G1Affine, G1Projective, G2Affine, G2Prepared, Gt, Scalar};
use ff::Field;
use group::Group;
use group::prime::PrimeCurveAffine;
use pairing::{MillerLoopResult, MultiMillerLoop};

use crate::error::KeyError;
use crate::point::{PointFault, PointRecord};
use crate::proof::{Proof, random_bytes};

/// A verifying key whose points are in the subgroup; α, β, γ, δ aren't infinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyingKey {
    alpha_g1: G1Affine,
    beta_g2: G2Affine,
    gamma_g2: G2Affine,
    delta_g2: G2Affine,
    ic: Vec<G1Affine>,
}

impl VerifyingKey {
    /// Checks and keeps the points. `ic` has one base for the constant 1 and one for each public input; they may be infinity
    /// (unused inputs).
    ///
    /// # Errors
    /// [`KeyError`] names the first bad point, or an empty `ic`.
    pub fn new(
        alpha_g1: G1Affine,
        beta_g2: G2Affine,
        gamma_g2: G2Affine,
        delta_g2: G2Affine,
        ic: Vec<G1Affine>,
    ) -> Result<Self, KeyError> {
        fn fixed<C: PointRecord>(part: &'static str, point: &C) -> Result<(), KeyError> {
            point.check().map_err(|fault| KeyError::Point { part, fault })?;
            if point.is_identity().into() {
                return Err(KeyError::Point { part, fault: PointFault::Infinity });
            }
            Ok(())
        }
        fixed("alpha in G1", &alpha_g1)?;
        fixed("beta in G2", &beta_g2)?;
        fixed("gamma in G2", &gamma_g2)?;
        fixed("delta in G2", &delta_g2)?;
        if ic.is_empty() {
            return Err(KeyError::Length { part: "IC", found: 0, expected: 1 });
        }
        for point in &ic {
            point.check().map_err(|fault| KeyError::Point { part: "IC", fault })?;
        }
        Ok(Self { alpha_g1, beta_g2, gamma_g2, delta_g2, ic })
    }

    /// α in G1.
    pub fn alpha_g1(&self) -> G1Affine {
        self.alpha_g1
    }

    /// β in G2.
    pub fn beta_g2(&self) -> G2Affine {
        self.beta_g2
    }

    /// γ in G2.
    pub fn gamma_g2(&self) -> G2Affine {
        self.gamma_g2
    }

    /// δ in G2.
    pub fn delta_g2(&self) -> G2Affine {
        self.delta_g2
    }

    /// The bases of the constant 1 and the public inputs: [`num_public`](Self::num_public) + 1 points.
    pub fn ic(&self) -> &[G1Affine] {
        &self.ic
    }

    /// Number of public inputs, without the constant 1.
    pub fn num_public(&self) -> usize {
        // `new` refuses a key without bases.
        self.ic.len().saturating_sub(1)
    }
}

/// A verifying key with everything that doesn't depend on the proof computed once.
pub struct PreparedVerifyingKey {
    ic: Vec<G1Affine>,
    alpha_g1: G1Affine,
    alpha_beta: Gt,
    beta: G2Prepared,
    minus_gamma: G2Prepared,
    minus_delta: G2Prepared,
}

/// Why the check could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The public inputs aren't as many as the key's.
    #[error("{found} public inputs, the key has {expected}")]
    PublicCount {
        /// Public inputs given.
        found: usize,
        /// Public inputs of the key.
        expected: usize,
    },
    /// The operating system gave no randomness for a batch.
    #[error("no randomness from the operating system: {0}")]
    Randomness(String),
}

/// 126 random bits, never zero.
fn random_weight() -> Result<Scalar, VerifyError> {
    loop {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&random_bytes::<16>().map_err(VerifyError::Randomness)?);
        bytes[15] &= 0x3f;
        if let Some(weight) = Option::<Scalar>::from(Scalar::from_bytes_le(&bytes)).filter(|w| *w != Scalar::ZERO) {
            return Ok(weight);
        }
    }
}

impl std::fmt::Debug for PreparedVerifyingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PreparedVerifyingKey({} public inputs)", self.ic.len().saturating_sub(1))
    }
}

impl PreparedVerifyingKey {
    /// Prepares a key.
    pub fn new(key: &VerifyingKey) -> Self {
        let beta = G2Prepared::from(key.beta_g2);
        Self {
            alpha_beta: Bls12::multi_miller_loop(&[(&key.alpha_g1, &beta)]).final_exponentiation(),
            ic: key.ic.clone(),
            alpha_g1: key.alpha_g1,
            beta,
            minus_gamma: G2Prepared::from(-key.gamma_g2),
            minus_delta: G2Prepared::from(-key.delta_g2),
        }
    }

    fn public_sum(&self, public: &[Scalar]) -> Result<G1Projective, VerifyError> {
        // A key has at least the first: `VerifyingKey::new` sees to it.
        let Some((first, bases)) = self.ic.split_first().filter(|(_, bases)| bases.len() == public.len()) else {
            let expected = self.ic.len().saturating_sub(1);
            return Err(VerifyError::PublicCount { found: public.len(), expected });
        };
        // `multi_exp` is blst's Pippenger; it doesn't take infinity, which an unused input has.
        let (points, scalars): (Vec<_>, Vec<_>) = bases
            .iter()
            .zip(public)
            .filter(|(point, scalar)| !bool::from(point.is_identity()) && !bool::from(scalar.is_zero()))
            .map(|(point, scalar)| (G1Projective::from(point), *scalar))
            .unzip();
        let first = G1Projective::from(first);
        Ok(match points.len() {
            0 => first,
            1..8 => points.iter().zip(&scalars).fold(first, |sum, (p, s)| sum + p * s),
            _ => first + G1Projective::multi_exp(&points, &scalars),
        })
    }

    /// Whether the proof holds for these public inputs (without the constant 1).
    ///
    /// # Errors
    /// [`VerifyError::PublicCount`] if there are more or fewer public inputs than the key has.
    pub fn verify(&self, proof: &Proof, public: &[Scalar]) -> Result<bool, VerifyError> {
        let inputs = G1Affine::from(self.public_sum(public)?);
        let product = Bls12::multi_miller_loop(&[
            (&proof.a(), &G2Prepared::from(proof.b())),
            (&inputs, &self.minus_gamma),
            (&proof.c(), &self.minus_delta),
        ]);
        Ok(product.final_exponentiation() == self.alpha_beta)
    }

    /// Whether all proofs hold, by one random linear combination: N + 3 Miller loops and one final exponentiation. A false
    /// "yes" has probability below 2⁻¹²⁰. An empty batch holds.
    ///
    /// # Errors
    /// [`VerifyError`] if a proof comes with the wrong number of public inputs, or there is no randomness.
    pub fn verify_batch(&self, proofs: &[(Proof, Vec<Scalar>)]) -> Result<bool, VerifyError> {
        let (mut inputs, mut c_sum, mut weight) = (G1Projective::identity(), G1Projective::identity(), Scalar::ZERO);
        let mut pairs = Vec::with_capacity(proofs.len());
        for (proof, public) in proofs {
            let z = random_weight()?;
            inputs += self.public_sum(public)? * z;
            c_sum += proof.c() * z;
            weight += z;
            pairs.push((G1Affine::from(proof.a() * z), G2Prepared::from(proof.b())));
        }
        let (inputs, c_sum) = (G1Affine::from(inputs), G1Affine::from(c_sum));
        let minus_alpha = G1Affine::from(-(self.alpha_g1 * weight));
        let mut terms: Vec<(&G1Affine, &G2Prepared)> = pairs.iter().map(|(a, b)| (a, b)).collect();
        terms.extend([(&minus_alpha, &self.beta), (&inputs, &self.minus_gamma), (&c_sum, &self.minus_delta)]);
        Ok(Bls12::multi_miller_loop(&terms).final_exponentiation() == Gt::identity())
    }
}
