//! Blinding, assembly and the compact encoding of proofs.
//!
//! A backend returns four sums and never sees r or s: zero knowledge doesn't rest on vendor code, every backend shares this
//! one assembly, and "equal inputs give four equal group elements" is the whole cross-check between backends.

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

use std::fmt;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use rand_core::{OsRng, RngCore};

use crate::error::FinishError;
use crate::key::ProvingKey;
use crate::point::{PointFault, PointRecord};

/// The multi-exponentiations of one proof, w the full assignment and h the quotient's scalars in the key's basis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuerySums {
    /// Σ wᵢ·Aᵢ over all variables.
    pub a: G1Affine,
    /// Σ wᵢ·Bᵢ over all variables, in G1.
    pub b_g1: G1Affine,
    /// Σ wᵢ·Bᵢ over all variables, in G2.
    pub b_g2: G2Affine,
    /// Σ hⱼ·Hⱼ + Σ wᵢ·Lᵢ over the private variables.
    pub hl: G1Affine,
}

impl QuerySums {
    /// Checks all four: coordinates below q, on the curve, in the subgroup.
    ///
    /// # Errors
    /// [`FinishError::BadSum`] names the first bad one.
    pub fn check(&self) -> Result<(), FinishError> {
        fn one<C: PointRecord>(sum: &'static str, point: &C) -> Result<(), FinishError> {
            point.check().map_err(|fault| FinishError::BadSum { sum, fault })
        }
        one("a", &self.a)?;
        one("b_g1", &self.b_g1)?;
        one("b_g2", &self.b_g2)?;
        one("hl", &self.hl)
    }

    /// The names of the sums in which the two differ.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        [
            ("a", self.a == other.a),
            ("b_g1", self.b_g1 == other.b_g1),
            ("b_g2", self.b_g2 == other.b_g2),
            ("hl", self.hl == other.hl),
        ]
        .into_iter()
        .filter_map(|(name, equal)| (!equal).then_some(name))
        .collect()
    }
}

/// The blinding scalars r and s of one proof. Used once: it can't be copied or printed.
pub struct Blinding {
    r: Scalar,
    s: Scalar,
}

impl Blinding {
    /// r and s from the operating system's generator, uniform in F_r (by rejection).
    ///
    /// # Errors
    /// [`FinishError::Randomness`] if the system gives none.
    pub fn random() -> Result<Self, FinishError> {
        Ok(Self { r: random_scalar()?, s: random_scalar()? })
    }

    /// Fixed r and s: for tests only. A proof with known blinding isn't zero-knowledge.
    pub fn insecure(r: Scalar, s: Scalar) -> Self {
        Self { r, s }
    }
}

impl fmt::Debug for Blinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blinding(..)")
    }
}

fn random_scalar() -> Result<Scalar, FinishError> {
    loop {
        let mut bytes = random_bytes::<32>().map_err(FinishError::Randomness)?;
        bytes[31] &= 0x7f; // r has 255 bits
        if let Some(scalar) = Scalar::from_bytes_le(&bytes).into() {
            return Ok(scalar);
        }
    }
}

/// Bytes from the operating system's generator, or what it said instead.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    OsRng.try_fill_bytes(&mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// A Groth16 proof. Its points are on the curve and in the subgroup: a `Proof` can't be made of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    a: G1Affine,
    b: G2Affine,
    c: G1Affine,
}

/// A point of a proof that isn't one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{point}: {fault}")]
pub struct ProofError {
    /// `"A"`, `"B"` or `"C"`.
    pub point: &'static str,
    /// What is wrong with it.
    pub fault: PointFault,
}

impl Proof {
    /// Bytes of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 192;

    /// Checks the points: coordinates below q, on the curve, in the subgroup.
    ///
    /// # Errors
    /// [`ProofError`] names the first bad point.
    pub fn new(a: G1Affine, b: G2Affine, c: G1Affine) -> Result<Self, ProofError> {
        a.check().map_err(|fault| ProofError { point: "A", fault })?;
        b.check().map_err(|fault| ProofError { point: "B", fault })?;
        c.check().map_err(|fault| ProofError { point: "C", fault })?;
        Ok(Self { a, b, c })
    }

    /// Adds the key's constants and the blinding to the sums:
    /// A = α + a + r·δ, B = β + b + s·δ, C = hl + s·A + r·B₁ − r·s·δ with B₁ = β + b + s·δ in G1 (Groth 2016, section 3.2).
    ///
    /// # Errors
    /// [`FinishError::BadSum`] if a sum isn't a point of the group.
    pub fn assemble(key: &ProvingKey, sums: &QuerySums, blinding: Blinding) -> Result<Self, FinishError> {
        sums.check()?;
        let Blinding { r, s } = blinding;
        let vk = key.verifying_key();
        let delta_g1 = G1Projective::from(key.delta_g1());
        let a = delta_g1 * r + vk.alpha_g1() + sums.a;
        let b = G2Projective::from(vk.delta_g2()) * s + vk.beta_g2() + sums.b_g2;
        let b_g1 = delta_g1 * s + key.beta_g1() + sums.b_g1;
        let c = a * s + b_g1 * r - delta_g1 * (r * s) + sums.hl;
        Ok(Self { a: a.into(), b: b.into(), c: c.into() })
    }

    /// A in G1.
    pub fn a(&self) -> G1Affine {
        self.a
    }

    /// B in G2.
    pub fn b(&self) -> G2Affine {
        self.b
    }

    /// C in G1.
    pub fn c(&self) -> G1Affine {
        self.c
    }

    /// bellman's encoding: A ‖ B ‖ C in the zcash compressed form, 48 + 96 + 48 bytes.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..48].copy_from_slice(&self.a.to_compressed());
        bytes[48..144].copy_from_slice(&self.b.to_compressed());
        bytes[144..].copy_from_slice(&self.c.to_compressed());
        bytes
    }

    /// Reads [`to_bytes`](Self::to_bytes). Refuses what isn't canonical, on the curve and in the subgroup.
    ///
    /// # Errors
    /// [`ProofError`] names the first bad point.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, ProofError> {
        fn part<const N: usize>(bytes: &[u8]) -> [u8; N] {
            let mut out = [0; N];
            out.copy_from_slice(bytes);
            out
        }
        fn decoded<C: PointRecord>(point: &'static str, decoded: Option<C>) -> Result<C, ProofError> {
            decoded.ok_or(ProofError { point, fault: PointFault::OffCurve })
        }
        // The unchecked decoders look at flags, ranges and the curve, `new` at the subgroup: so the fault is told apart.
        let a = decoded("A", G1Affine::from_compressed_unchecked(&part(&bytes[..48])).into())?;
        let b = decoded("B", G2Affine::from_compressed_unchecked(&part(&bytes[48..144])).into())?;
        let c = decoded("C", G1Affine::from_compressed_unchecked(&part(&bytes[144..])).into())?;
        Self::new(a, b, c)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use group::prime::PrimeCurveAffine;

    use super::*;

    #[test]
    fn the_compact_encoding_round_trips_and_refuses_garbage() {
        let proof = Proof::new(G1Affine::generator(), G2Affine::generator(), -G1Affine::generator()).unwrap();
        let bytes = proof.to_bytes();
        assert_eq!(Proof::from_bytes(&bytes), Ok(proof));
        for (at, point) in [(0, "A"), (48, "B"), (144, "C")] {
            let mut bad = bytes;
            bad[at] &= 0x7f; // not compressed
            assert_eq!(Proof::from_bytes(&bad).unwrap_err().point, point);
        }
    }

    #[test]
    fn blinding_is_fresh_each_time() {
        let (x, y) = (Blinding::random().unwrap(), Blinding::random().unwrap());
        assert!(x.r != y.r && x.s != y.s && x.r != x.s);
        assert_eq!(format!("{x:?}"), "Blinding(..)");
    }

    #[test]
    fn differences_name_the_sums() {
        let g = QuerySums {
            a: G1Affine::generator(),
            b_g1: G1Affine::generator(),
            b_g2: G2Affine::generator(),
            hl: G1Affine::generator(),
        };
        assert!(g.check().is_ok() && g.differences(&g).is_empty());
        let other = QuerySums { b_g2: G2Affine::identity(), hl: G1Affine::identity(), ..g };
        assert_eq!(g.differences(&other), ["b_g2", "hl"]);
    }
}
