//! Points and scalars of the two families of crates, by their Montgomery limbs.

use ark_bls12_381::{Fq, Fq2, Fr, G1Affine as ArkG1, G2Affine as ArkG2};
use ark_ff::{BigInt, PrimeField};
use splitprover_core::{G1Affine, G2Affine, PointRecord, Scalar};

fn limbs(x: &Fq) -> [u8; 48] {
    let mut bytes = [0; 48];
    for (chunk, limb) in bytes.chunks_exact_mut(8).zip(x.0.0) {
        chunk.copy_from_slice(&limb.to_le_bytes());
    }
    bytes
}

fn coordinate(bytes: &[u8]) -> Fq {
    let mut limbs = [0; 6];
    for (limb, chunk) in limbs.iter_mut().zip(bytes.chunks_exact(8)) {
        *limb = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
    }
    Fq::new_unchecked(BigInt(limbs))
}

/// Of a record, as keys have it.
pub fn ark_g1(record: &[u8]) -> ArkG1 {
    match record.iter().all(|&byte| byte == 0) {
        true => ArkG1::identity(),
        false => ArkG1::new_unchecked(coordinate(&record[..48]), coordinate(&record[48..])),
    }
}

/// Of a record, as keys have it.
pub fn ark_g2(record: &[u8]) -> ArkG2 {
    let part = |i: usize| coordinate(&record[48 * i..48 * (i + 1)]);
    match record.iter().all(|&byte| byte == 0) {
        true => ArkG2::identity(),
        false => ArkG2::new_unchecked(Fq2::new(part(0), part(1)), Fq2::new(part(2), part(3))),
    }
}

/// Checked, as it comes from another prover.
pub fn our_g1(point: &ArkG1) -> G1Affine {
    let mut record = [0; 96];
    if *point != ArkG1::identity() {
        record[..48].copy_from_slice(&limbs(&point.x));
        record[48..].copy_from_slice(&limbs(&point.y));
    }
    G1Affine::check_record(&record).expect("a point of the curve");
    G1Affine::from_record_unchecked(&record)
}

/// Checked, as it comes from another prover.
pub fn our_g2(point: &ArkG2) -> G2Affine {
    let mut record = [0; 192];
    if *point != ArkG2::identity() {
        for (chunk, x) in record.chunks_exact_mut(48).zip([point.x.c0, point.x.c1, point.y.c0, point.y.c1]) {
            chunk.copy_from_slice(&limbs(&x));
        }
    }
    G2Affine::check_record(&record).expect("a point of the curve");
    G2Affine::from_record_unchecked(&record)
}

/// The same number.
pub fn ark_fr(scalar: &Scalar) -> Fr {
    Fr::from_le_bytes_mod_order(&scalar.to_bytes_le())
}
