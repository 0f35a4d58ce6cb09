//! Field elements as files write them: little-endian bytes, decimal digits; and which curve a prime belongs to.

use blstrs::Scalar;
use ff::Field;

/// The scalar field's modulus r, little-endian.
pub(crate) const R_BYTES: [u8; 32] = [
    0x01, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xfe, 0x5b, 0xfe, 0xff, 0x02, 0xa4, 0xbd, 0x53, 0x05, 0xd8, 0xa1,
    0x09, 0x08, 0xd8, 0x39, 0x33, 0x48, 0x7d, 0x9d, 0x29, 0x53, 0xa7, 0xed, 0x73,
];

/// The base field's modulus q, little-endian.
pub(crate) const Q_BYTES: [u8; 48] = [
    0xab, 0xaa, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xb9, 0xff, 0xff, 0x53, 0xb1, 0xfe, 0xff, 0xab, 0x1e, 0x24, 0xf6, 0xb0,
    0xf6, 0xa0, 0xd2, 0x30, 0x67, 0xbf, 0x12, 0x85, 0xf3, 0x84, 0x4b, 0x77, 0x64, 0xd7, 0xac, 0x4b, 0x43, 0xb6, 0xa7,
    0x1b, 0x4b, 0x9a, 0xe6, 0x7f, 0x39, 0xea, 0x11, 0x01, 0x1a,
];

/// Primes of curves that circom and snarkjs know, in decimal.
const KNOWN_PRIMES: [(&str, &str); 9] = [
    ("BN254", "21888242871839275222246405745257275088548364400416034343698204186575808495617"),
    ("BN254", "21888242871839275222246405745257275088696311157297823662689037894645226208583"),
    ("BLS12-377", "8444461749428370424248824938781546531375899335154063827935233455917409239041"),
    ("Goldilocks", "18446744069414584321"),
    ("Pallas", "28948022309329048855892746252171976963363056481941560715954676764349967630337"),
    ("Vesta", "28948022309329048855892746252171976963363056481941647379679742748393362948097"),
    ("secq256r1", "115792089210356248762697446949407573530086143415290314195533631308867097853951"),
    ("BLS12-381", "52435875175126190479447740508185965837690552500527637822603658699938581184513"),
    (
        "BLS12-381",
        "4002409555221667393417789825735904156556882819939007885332058136124031650490837864442687629129015664037894272559787",
    ),
];

/// The name of the curve whose scalar or base field has this prime (little-endian), or the prime in hexadecimal.
pub(crate) fn curve_of_prime(prime: &[u8]) -> String {
    let trimmed = |bytes: &[u8]| bytes.iter().rposition(|&b| b != 0).and_then(|last| bytes.get(..=last)).map(Vec::from);
    let prime = trimmed(prime).unwrap_or_default();
    let known = KNOWN_PRIMES.iter().find(|(_, decimal)| {
        let mut bytes = [0; 48];
        parse_decimal(decimal.as_bytes(), &mut bytes) && trimmed(&bytes).as_ref() == Some(&prime)
    });
    match known {
        Some((name, _)) => (*name).to_owned(),
        None => {
            let hex: String = prime.iter().rev().take(64).map(|b| format!("{b:02x}")).collect();
            format!("the field of prime 0x{hex}")
        }
    }
}

/// Whether `value` < `modulus`, both little-endian and of one length.
pub(crate) fn is_below(value: &[u8], modulus: &[u8]) -> bool {
    value.iter().rev().lt(modulus.iter().rev())
}

/// Reads decimal digits into little-endian bytes. False if there are no digits, something else than digits, leading zeros,
/// or more than fit.
pub(crate) fn parse_decimal(digits: &[u8], out: &mut [u8]) -> bool {
    out.fill(0);
    if digits.is_empty() || (digits.len() > 1 && digits.first() == Some(&b'0')) {
        return false;
    }
    digits.iter().all(|digit| {
        let Some(digit @ 0..=9) = digit.checked_sub(b'0') else { return false };
        // 255 · 10 + carry stays below 2560 + 10, so carries fit in 16 bits.
        let carry = out.iter_mut().fold(u16::from(digit), |carry, byte| {
            let sum = u16::from(*byte).wrapping_mul(10).wrapping_add(carry);
            *byte = sum as u8;
            sum >> 8
        });
        carry == 0
    })
}

/// Decimal digits of a little-endian number.
pub(crate) fn to_decimal(le_bytes: &[u8]) -> String {
    // Nine digits at a time: divide the number, as 32-bit limbs from the top, by 10^9.
    const BILLION: u64 = 1_000_000_000;
    let mut limbs: Vec<u32> =
        le_bytes.chunks(4).map(|chunk| chunk.iter().rev().fold(0, |limb, &byte| limb << 8 | u32::from(byte))).collect();
    let mut groups = Vec::new();
    while limbs.iter().any(|&limb| limb != 0) {
        let mut remainder = 0u64;
        for limb in limbs.iter_mut().rev() {
            let dividend = remainder << 32 | u64::from(*limb);
            *limb = (dividend / BILLION) as u32;
            remainder = dividend % BILLION;
        }
        groups.push(remainder);
    }
    let Some(first) = groups.pop() else { return "0".to_owned() };
    let mut text = first.to_string();
    text.extend(groups.iter().rev().map(|group| format!("{group:09}")));
    text
}

/// A scalar from 32 plain little-endian bytes; `None` if they are r or more.
pub(crate) fn scalar_from_plain(bytes: &[u8; 32]) -> Option<Scalar> {
    Scalar::from_bytes_le(bytes).into()
}

/// A scalar v from v·R² mod r (R = 2^256), as `.zkey` writes coefficients; `None` if the bytes are r or more.
pub(crate) fn scalar_from_double_montgomery(bytes: &[u8; 32]) -> Option<Scalar> {
    // Seen as Montgomery limbs, v·R² is the scalar v·R; and the limbs of 1 are the scalar R⁻¹.
    let v_r = is_below(bytes, &R_BYTES).then(|| blst::blst_fr { l: limbs(bytes) })?;
    Some(product(Scalar::from(v_r), Scalar::from(blst::blst_fr { l: [1, 0, 0, 0] })))
}

/// v·R² mod r of a scalar v, little-endian: the inverse of [`scalar_from_double_montgomery`].
pub(crate) fn scalar_to_double_montgomery(v: Scalar) -> [u8; 32] {
    // The limbs of v are v·R, and R as a scalar has the limbs R²: their product has the limbs v·R·R.
    let word = product(Scalar::from(1 << 32), Scalar::from(1 << 32));
    let r_r = [word; 4].into_iter().fold(Scalar::ONE, product);
    let limbs = blst::blst_fr::from(product(v, r_r)).l;
    let mut bytes = [0; 32];
    for (chunk, limb) in bytes.chunks_exact_mut(8).zip(limbs) {
        chunk.copy_from_slice(&limb.to_le_bytes());
    }
    bytes
}

/// −1.
#[allow(clippy::arithmetic_side_effects, reason = "field arithmetic can't overflow")]
pub(crate) fn minus_one() -> Scalar {
    -Scalar::ONE
}

#[allow(clippy::arithmetic_side_effects, reason = "field arithmetic can't overflow")]
fn product(x: Scalar, y: Scalar) -> Scalar {
    x * y
}

/// 64-bit limbs of 8·N little-endian bytes; missing bytes are zeros.
pub(crate) fn limbs<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut limbs = [0; N];
    for (limb, chunk) in limbs.iter_mut().zip(bytes.chunks(8)) {
        *limb = chunk.iter().rev().fold(0, |limb, &byte| limb << 8 | u64::from(byte));
    }
    limbs
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use rand_core::OsRng;

    use super::*;

    #[test]
    fn moduli_are_those_of_the_curve() {
        assert_eq!(to_decimal(&R_BYTES), KNOWN_PRIMES[7].1);
        assert_eq!(to_decimal(&Q_BYTES), KNOWN_PRIMES[8].1);
        assert_eq!(Scalar::char(), R_BYTES);
        assert_eq!(splitprover_core::point::FP_MODULUS, limbs::<6>(&Q_BYTES));
        assert_eq!(curve_of_prime(&R_BYTES), "BLS12-381");
        assert_eq!(curve_of_prime(&[1, 0, 0, 0, 255, 255, 255, 255, 0, 0]), "Goldilocks");
        assert_eq!(curve_of_prime(&[0x17, 0x01, 0]), "the field of prime 0x0117");
    }

    #[test]
    fn decimals_round_trip_and_must_be_canonical() {
        for text in ["0", "1", "9", "10", "999999999", "1000000000", "1000000001", "18446744073709551616"] {
            let mut bytes = [0xee; 32];
            assert!(parse_decimal(text.as_bytes(), &mut bytes));
            assert_eq!(to_decimal(&bytes), text);
        }
        for text in ["", "00", "01", "-1", "+1", "0x1", " 1", "1 ", "1e3", "1.0", "\u{0661}"] {
            assert!(!parse_decimal(text.as_bytes(), &mut [0; 32]), "{text:?}");
        }
        assert!(parse_decimal(b"255", &mut [0; 1]) && !parse_decimal(b"256", &mut [0; 1]));
        for _ in 0..50 {
            let scalar = Scalar::random(OsRng);
            let mut bytes = [0; 32];
            assert!(parse_decimal(to_decimal(&scalar.to_bytes_le()).as_bytes(), &mut bytes));
            assert_eq!(scalar_from_plain(&bytes), Some(scalar));
        }
    }

    #[test]
    fn double_montgomery_coefficients_round_trip() {
        // R² mod r, the coefficient 1.
        let one = scalar_to_double_montgomery(Scalar::ONE);
        assert_eq!(limbs::<4>(&one), [0xc999e990f3f29c6d, 0x2b6cedcb87925c23, 0x05d314967254398f, 0x0748d9d99f59ff11]);
        for scalar in [Scalar::ZERO, Scalar::ONE, -Scalar::ONE, Scalar::random(OsRng)] {
            assert_eq!(scalar_from_double_montgomery(&scalar_to_double_montgomery(scalar)), Some(scalar));
        }
        assert_eq!(scalar_from_double_montgomery(&R_BYTES), None);
        assert_eq!(scalar_from_double_montgomery(&[0xff; 32]), None);
    }

    #[test]
    fn comparison_is_by_the_highest_byte_first() {
        assert!(is_below(&[0xff, 0], &[0, 1]) && !is_below(&[0, 1], &[0xff, 0]) && !is_below(&[3, 3], &[3, 3]));
    }
}
