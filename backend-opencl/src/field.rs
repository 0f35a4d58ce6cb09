//! The two fields as the kernels see them: limbs, constants, and the text that puts the constants before `field.cl`.

use std::fmt::Write as _;

use blstrs::Scalar;
use splitprover_core::point::FP_MODULUS;

/// Bytes of a scalar.
pub(crate) const SCALAR: u64 = 32;

/// The scalar field's modulus r as little-endian 64-bit limbs.
pub(crate) const FR_MODULUS: [u64; 4] =
    [0xffff_ffff_0000_0001, 0x53bd_a402_fffe_5bfe, 0x3339_d808_09a1_d805, 0x73ed_a753_299d_7d48];

/// Scalars as the bytes that a device reads.
pub(crate) fn bytes_of_scalars(scalars: &[Scalar]) -> &[u8] {
    bytes_of(scalars)
}

/// Words as the bytes that a device reads: devices are little-endian, as this processor.
pub(crate) fn bytes_of_u32(words: &[u32]) -> &[u8] {
    bytes_of(words)
}

mod sealed {
    pub(crate) trait Plain: Copy {}
    impl Plain for u32 {}
    // A transparent wrapper of `blst_fr`, four u64.
    impl Plain for blstrs::Scalar {}
}

#[allow(unsafe_code)]
fn bytes_of<T: sealed::Plain>(values: &[T]) -> &[u8] {
    // SAFETY: the types are plain integers without padding, so all bytes are initialised; the length is the slice's own.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}

#[cfg(target_endian = "big")]
compile_error!("points and scalars are handed to devices as they lie in memory, little-endian");

/// A field of `N` 64-bit limbs.
pub(crate) struct FieldText<const N: usize> {
    /// The prefix of its functions.
    pub(crate) name: &'static str,
    /// Its modulus.
    pub(crate) modulus: [u64; N],
}

/// The scalar field.
pub(crate) const FR: FieldText<4> = FieldText { name: "fr", modulus: FR_MODULUS };
/// The base field.
pub(crate) const FP: FieldText<6> = FieldText { name: "fp", modulus: FP_MODULUS };

impl<const N: usize> FieldText<N> {
    /// The field's arithmetic as OpenCL C.
    pub(crate) fn source(&self, ptx: bool) -> String {
        let Self { name, modulus } = self;
        let upper = name.to_uppercase();
        let mut text = String::new();
        // Newton's iteration doubles the right bits.
        let inverse = (0..5).fold(1u32, |x, _| x.wrapping_mul(2u32.wrapping_sub((modulus[0] as u32).wrapping_mul(x))));
        for (constant, limbs) in [("P", *modulus), ("ONE", power_of_two(modulus, 64 * N))] {
            let words: Vec<String> =
                limbs.iter().flat_map(|&l| [l as u32, (l >> 32) as u32]).map(|w| format!("{w:#010x}u")).collect();
            let _ = writeln!(text, "__constant uint {upper}_{constant}[{}] = {{{}}};", 2 * N, words.join(", "));
        }
        for macro_name in ["FE", "FE_T", "FE_N", "FE_P", "FE_ONE", "FE_INV", "FE_PTX"] {
            let _ = writeln!(text, "#undef {macro_name}");
        }
        let _ = writeln!(text, "#define FE(name) {name}_##name");
        let _ = writeln!(text, "#define FE_T {name}");
        let _ = writeln!(text, "#define FE_N {}", 2 * N);
        let _ = writeln!(text, "#define FE_P {upper}_P");
        let _ = writeln!(text, "#define FE_ONE {upper}_ONE");
        let _ = writeln!(text, "#define FE_INV {:#010x}u", inverse.wrapping_neg());
        let _ = writeln!(text, "#define FE_PTX {}", u8::from(ptx));
        if ptx {
            text.push_str(include_str!("../kernels/ptx.cl"));
        }
        text.push_str(include_str!("../kernels/field.cl"));
        text
    }
}

/// 1 as a coordinate of `bytes` bytes: 48 in G1, 96 in G2.
pub(crate) fn one_of_coordinates(bytes: usize) -> Vec<u8> {
    let mut one: Vec<u8> = power_of_two(&FP_MODULUS, 384).iter().flat_map(|limb| limb.to_le_bytes()).collect();
    one.resize(bytes, 0);
    one
}

/// 2^bits mod p, by doubling; p has a free top bit.
fn power_of_two<const N: usize>(modulus: &[u64; N], bits: usize) -> [u64; N] {
    let mut value = [0; N];
    value[0] = 1;
    for _ in 0..bits {
        let mut carry = 0;
        for limb in &mut value {
            (*limb, carry) = (*limb << 1 | carry, *limb >> 63);
        }
        if value.iter().rev().ge(modulus.iter().rev()) {
            let mut borrow = false;
            for (limb, m) in value.iter_mut().zip(modulus) {
                let (difference, first) = limb.overflowing_sub(*m);
                let (difference, second) = difference.overflowing_sub(u64::from(borrow));
                (*limb, borrow) = (difference, first || second);
            }
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use ff::{Field, PrimeField};

    use super::*;

    #[test]
    fn constants_are_those_of_the_fields() {
        assert_eq!(
            Scalar::MODULUS.trim_start_matches("0x"),
            FR_MODULUS.iter().rev().map(|l| format!("{l:016x}")).collect::<String>()
        );
        assert_eq!(power_of_two(&FR_MODULUS, 256), blst::blst_fr::from(Scalar::ONE).l);
        // R mod q: the Montgomery form of 1, the y-coordinate's factor in no case; blst's own constant through its addition.
        let one = power_of_two(&FP_MODULUS, 384);
        let mut product = blst::blst_fp::default();
        // SAFETY: plain values in, a plain value out.
        unsafe { blst::blst_fp_mul(&mut product, &blst::blst_fp { l: one }, &blst::blst_fp { l: [5, 0, 0, 0, 0, 0] }) };
        assert_eq!(product.l, [5, 0, 0, 0, 0, 0]);
        assert!(FR.source(false).contains("#define FE_INV 0xffffffffu"));
        assert!(FP.source(true).contains("#define FE_INV 0xfffcfffdu"));
    }
}
