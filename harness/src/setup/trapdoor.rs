//! The trapdoor of a development key: who knows it can forge proofs, and here everybody does.

use blstrs::{G2Affine, Scalar};
use ff::Field;
use splitprover_core::{HBasis, VerifyingKey};

use super::error::SetupError;
use super::fixed_base::multiple;

/// The secrets of Groth's setup ("On the Size of Pairing-based Non-interactive Arguments", 2016, section 3.2). None is zero.
///
/// Nothing here is secret: a key made from a known trapdoor is for development, and is marked as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trapdoor {
    /// τ, the point at which the circuit's polynomials are taken. Not in the domain of twice the rows: key generation checks.
    pub(crate) tau: Scalar,
    pub(crate) alpha: Scalar,
    pub(crate) beta: Scalar,
    pub(crate) gamma: Scalar,
    pub(crate) delta: Scalar,
}

impl Trapdoor {
    /// A trapdoor of these values.
    ///
    /// # Errors
    /// [`SetupError::Trapdoor`] if one of them is zero.
    pub fn new(tau: Scalar, alpha: Scalar, beta: Scalar, gamma: Scalar, delta: Scalar) -> Result<Self, SetupError> {
        for (value, fault) in [
            (tau, "tau is zero"),
            (alpha, "alpha is zero"),
            (beta, "beta is zero"),
            (gamma, "gamma is zero"),
            (delta, "delta is zero"),
        ] {
            if value == Scalar::ZERO {
                return Err(SetupError::Trapdoor(fault));
            }
        }
        Ok(Self { tau, alpha, beta, gamma, delta })
    }

    /// The trapdoor of a seed: the same on every machine and in every version of the format.
    ///
    /// In snarkjs's basis γ is 1, because its keys always have the generator there; in bellman's it is the one by which
    /// [`is_marked`] knows such a key. The other values don't depend on the basis.
    pub fn from_seed(seed: u64, basis: HBasis) -> Self {
        let mut stream = ScalarStream::new("splitprover development trapdoor v1", seed);
        let mut draw = || {
            loop {
                let scalar = stream.draw();
                if scalar != Scalar::ZERO {
                    return scalar;
                }
            }
        };
        let (tau, alpha, beta, delta) = (draw(), draw(), draw(), draw());
        let gamma = match basis {
            HBasis::OddLagrange => Scalar::ONE,
            HBasis::Monomial => development_gamma(),
        };
        Self { tau, alpha, beta, gamma, delta }
    }
}

/// γ of development keys in bellman's basis. No proof depends on it, and no ceremony arrives at it: its keys have the generator there, or a
/// random point.
fn development_gamma() -> Scalar {
    ScalarStream::new("splitprover INSECURE development key v1", 0).draw()
}

/// Whether a key says by itself that it is a development key: one from [`Trapdoor::from_seed`] in bellman's basis. A `.params` file has
/// room for nothing but points, so the mark is one; it goes wherever the verifying key goes, and no copy loses it.
pub fn is_marked(key: &VerifyingKey) -> bool {
    key.gamma_g2() == multiple::<G2Affine>(&development_gamma())
}

/// Scalars from a seed: BLAKE3's extendable output under a context string, 255 bits at a time, those of r and more left out.
pub(crate) struct ScalarStream(blake3::OutputReader);

impl ScalarStream {
    pub(crate) fn new(context: &str, seed: u64) -> Self {
        Self(blake3::Hasher::new_derive_key(context).update(&seed.to_le_bytes()).finalize_xof())
    }

    pub(crate) fn draw(&mut self) -> Scalar {
        loop {
            let mut bytes = [0; 32];
            self.0.fill(&mut bytes);
            bytes[31] &= 0x7f;
            if let Some(scalar) = Scalar::from_bytes_le(&bytes).into() {
                return scalar;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_trapdoor_in_both_bases_but_for_gamma() {
        let snarkjs = Trapdoor::from_seed(1, HBasis::OddLagrange);
        let bellman = Trapdoor::from_seed(1, HBasis::Monomial);
        assert_eq!(snarkjs.gamma, Scalar::ONE);
        assert_eq!(Trapdoor { gamma: Scalar::ONE, ..bellman }, snarkjs);
        assert_ne!(bellman.gamma, Scalar::ONE);
        let other = Trapdoor::from_seed(2, HBasis::Monomial);
        for (x, y) in [(bellman.tau, other.tau), (bellman.alpha, bellman.beta), (bellman.gamma, bellman.delta)] {
            assert_ne!(x, y);
        }
        assert_eq!(bellman.gamma, other.gamma);
        assert_eq!(bellman, Trapdoor::from_seed(1, HBasis::Monomial));
    }

    #[test]
    fn zeros_are_refused() {
        let good = [Scalar::ONE; 5];
        for position in 0..=5 {
            let mut values = good;
            if position < 5 {
                values[position] = Scalar::ZERO;
            }
            let [tau, alpha, beta, gamma, delta] = values;
            assert_eq!(Trapdoor::new(tau, alpha, beta, gamma, delta).is_ok(), position == 5);
        }
    }
}
