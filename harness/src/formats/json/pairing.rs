//! `vk_alphabeta_12`: the pairing e(α, β) as snarkjs writes it.

use blst::{blst_fp, blst_fp12};
use splitprover_core::VerifyingKey;
use splitprover_core::point::FP_MODULUS;

use crate::formats::field::to_decimal;

/// −q⁻¹ mod 2^64.
const Q_INVERSE: u64 = 0x89f3_fffc_fffc_fffd;

/// The coefficients of e(α, β) over F_q: F_q12 = F_q6\[w\], F_q6 = F_q2\[v\], F_q2 = F_q\[u\], lowest first.
pub(super) fn alpha_beta_text(key: &VerifyingKey) -> [[[String; 2]; 3]; 2] {
    let pairing = blst_fp12::miller_loop(key.beta_g2().as_ref(), key.alpha_g1().as_ref()).final_exp();
    pairing.fp6.map(|fp6| fp6.fp2.map(|fp2| fp2.fp.map(|fp| to_decimal(&plain(&fp)))))
}

/// Plain little-endian bytes of an element in Montgomery form: one Montgomery reduction, limb by limb.
fn plain(x: &blst_fp) -> [u8; 48] {
    let mut limbs = x.l;
    for _ in 0..6 {
        // Adds the multiple of q that clears the lowest limb, and shifts by one limb. The value stays below q.
        let [lowest, ..] = limbs;
        let factor = u128::from(lowest.wrapping_mul(Q_INVERSE));
        let mut carry = 0u128;
        let mut sum = [0u64; 6];
        for ((out, limb), modulus) in sum.iter_mut().zip(limbs).zip(FP_MODULUS) {
            // At most (2^64 − 1)² + 2·(2^64 − 1) < 2^128.
            carry = factor.wrapping_mul(u128::from(modulus)).wrapping_add(u128::from(limb)).wrapping_add(carry >> 64);
            *out = carry as u64;
        }
        let [_, a, b, c, d, e] = sum;
        limbs = [a, b, c, d, e, (carry >> 64) as u64];
    }
    let mut bytes = [0; 48];
    for (chunk, limb) in bytes.chunks_exact_mut(8).zip(limbs) {
        chunk.copy_from_slice(&limb.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use blstrs::{G1Affine, Scalar};
    use group::prime::PrimeCurveAffine;
    use rand_core::OsRng;

    use super::*;

    #[test]
    fn reduction_agrees_with_the_uncompressed_encoding() {
        use ff::Field;
        for _ in 0..20 {
            let point = G1Affine::from(G1Affine::generator() * Scalar::random(OsRng));
            let mut bytes = plain(&point.as_ref().x);
            bytes.reverse();
            assert_eq!(bytes, point.to_uncompressed()[..48]);
        }
    }
}
