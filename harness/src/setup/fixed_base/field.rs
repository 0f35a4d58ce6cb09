//! The coordinate fields of G1 and G2, as a thin safe layer over blst's routines.
//!
//! Values are in Montgomery form and reduced; the layout is that of `blst_fp` and `blst_fp2`, little-endian limbs, which is
//! also the layout of point records.
#![allow(unsafe_code)]

use blst::{
    blst_fp, blst_fp_add, blst_fp_cneg, blst_fp_eucl_inverse, blst_fp_mul, blst_fp_sqr, blst_fp_sub, blst_fp2,
    blst_fp2_add, blst_fp2_cneg, blst_fp2_eucl_inverse, blst_fp2_mul, blst_fp2_sqr, blst_fp2_sub,
};

/// Arithmetic in a coordinate field.
pub(crate) trait Coordinate: Copy + Send + Sync + PartialEq + 'static {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Bytes of the record encoding.
    const BYTES: usize;

    fn add(&self, other: &Self) -> Self;
    fn sub(&self, other: &Self) -> Self;
    fn mul(&self, other: &Self) -> Self;
    fn square(&self) -> Self;
    /// −self if `negate`, else self.
    fn negate_if(&self, negate: bool) -> Self;
    /// 1/self; 0 for 0.
    fn inverse(&self) -> Self;
    /// Writes the limbs, little-endian, to `BYTES` bytes.
    fn write(&self, out: &mut [u8]);

    fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }
}

/// 1 in Montgomery form: 2^384 mod q.
const FP_ONE: blst_fp = blst_fp {
    l: [
        0x7609_0000_0002_fffd,
        0xebf4_000b_c40c_0002,
        0x5f48_9857_53c7_58ba,
        0x77ce_5853_7052_5745,
        0x5c07_1a97_a256_ec6d,
        0x15f6_5ec3_fa80_e493,
    ],
};
const FP_ZERO: blst_fp = blst_fp { l: [0; 6] };

/// A safe method over a blst routine that writes its first argument and reads the others.
macro_rules! routine {
    ($method:ident, $routine:ident, $zero:expr $(, $other:ident: $kind:ty => $pass:expr)?) => {
        #[inline]
        fn $method(&self $(, $other: $kind)?) -> Self {
            let mut out = $zero;
            // SAFETY: `out` is valid for writes and distinct from the arguments, which are valid for reads; the routine
            // accesses one element through each pointer, keeps none of them and accepts any limbs.
            unsafe { $routine(&mut out, self $(, $pass)?) };
            out
        }
    };
}

impl Coordinate for blst_fp {
    const ZERO: Self = FP_ZERO;
    const ONE: Self = FP_ONE;
    const BYTES: usize = 48;

    routine!(add, blst_fp_add, FP_ZERO, other: &Self => other);
    routine!(sub, blst_fp_sub, FP_ZERO, other: &Self => other);
    routine!(mul, blst_fp_mul, FP_ZERO, other: &Self => other);
    routine!(square, blst_fp_sqr, FP_ZERO);
    routine!(negate_if, blst_fp_cneg, FP_ZERO, negate: bool => negate);
    routine!(inverse, blst_fp_eucl_inverse, FP_ZERO);

    fn write(&self, out: &mut [u8]) {
        for (bytes, limb) in out.chunks_exact_mut(8).zip(self.l) {
            bytes.copy_from_slice(&limb.to_le_bytes());
        }
    }
}

const FP2_ZERO: blst_fp2 = blst_fp2 { fp: [FP_ZERO; 2] };

impl Coordinate for blst_fp2 {
    const ZERO: Self = FP2_ZERO;
    const ONE: Self = blst_fp2 { fp: [FP_ONE, FP_ZERO] };
    const BYTES: usize = 96;

    routine!(add, blst_fp2_add, FP2_ZERO, other: &Self => other);
    routine!(sub, blst_fp2_sub, FP2_ZERO, other: &Self => other);
    routine!(mul, blst_fp2_mul, FP2_ZERO, other: &Self => other);
    routine!(square, blst_fp2_sqr, FP2_ZERO);
    routine!(negate_if, blst_fp2_cneg, FP2_ZERO, negate: bool => negate);
    routine!(inverse, blst_fp2_eucl_inverse, FP2_ZERO);

    fn write(&self, out: &mut [u8]) {
        for (bytes, part) in out.chunks_exact_mut(blst_fp::BYTES).zip(&self.fp) {
            part.write(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laws<F: Coordinate + std::fmt::Debug>(values: &[F]) {
        for x in values {
            assert_eq!(x.mul(&F::ONE), *x);
            assert_eq!(x.add(&x.negate_if(true)), F::ZERO);
            assert_eq!(x.negate_if(false), *x);
            assert_eq!(x.square(), x.mul(x));
            let product = x.mul(&x.inverse());
            assert_eq!(product, if x.is_zero() { F::ZERO } else { F::ONE });
            for y in values {
                assert_eq!(x.add(y).sub(y), *x);
                assert_eq!(x.add(y).square(), x.square().add(&x.mul(y)).add(&x.mul(y)).add(&y.square()));
            }
        }
    }

    #[test]
    fn field_laws_hold() {
        let two = FP_ONE.add(&FP_ONE);
        let base = [FP_ZERO, FP_ONE, two, FP_ONE.negate_if(true), two.inverse(), blst_fp { l: [7, 6, 5, 4, 3, 2] }];
        laws(&base);
        let extension: Vec<_> = base.iter().flat_map(|&x| base.iter().map(move |&y| blst_fp2 { fp: [x, y] })).collect();
        laws(&extension);
    }
}
