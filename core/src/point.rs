//! Point records: how affine points lie in a key.
//!
//! A record is the affine point x‖y, each coordinate in Montgomery form (R = 2^384 mod q) as 48 little-endian bytes; G2
//! coordinates are c0‖c1. 96 bytes in G1, 192 in G2; infinity is all zeros. These are the bytes of `blst_p1_affine` and
//! `blst_p2_affine`, of snarkjs's `.zkey` sections, and of what GPU kernels read. Records carry **no alignment**: `.zkey`
//! sections start anywhere divisible by four, so a map of one is never a slice of points.

use std::fmt;

use blst::{blst_fp, blst_fp2, blst_p1_affine, blst_p2_affine};
use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;

/// The base field's modulus q as little-endian 64-bit limbs.
pub const FP_MODULUS: [u64; 6] = [
    0xb9fe_ffff_ffff_aaab,
    0x1eab_fffe_b153_ffff,
    0x6730_d2a0_f6b0_f624,
    0x6477_4b84_f385_12bf,
    0x4b1b_a7b6_434b_acd7,
    0x1a01_11ea_397f_e69a,
];

/// Bytes of one base field element.
pub const FP_BYTES: usize = 48;

/// What is wrong with a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointFault {
    /// A coordinate is not reduced: its limbs are q or more.
    #[error("a coordinate is not below q")]
    CoordinateRange,
    /// The coordinates don't satisfy the curve equation.
    #[error("the point is not on the curve")]
    OffCurve,
    /// The point is on the curve, but outside the subgroup of order r.
    #[error("the point is outside the subgroup of order r")]
    OutsideSubgroup,
    /// Infinity where the scheme forbids it.
    #[error("the point is infinity")]
    Infinity,
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for blstrs::G1Affine {}
    impl Sealed for blstrs::G2Affine {}
}

/// An affine point with a fixed-size record encoding: [`G1Affine`] (96 bytes) or [`G2Affine`] (192 bytes).
pub trait PointRecord:
    sealed::Sealed + PrimeCurveAffine<Scalar = blstrs::Scalar> + fmt::Debug + PartialEq + Send + Sync + 'static
{
    /// Bytes of one record.
    const BYTES: usize;
    /// `"G1"` or `"G2"`, for messages.
    const GROUP: &'static str;

    /// Decodes a record without looking at what it says. The result is only good for arithmetic if
    /// [`check_record`](Self::check_record) accepts the record.
    ///
    /// # Panics
    /// If `record` is not [`BYTES`](Self::BYTES) long.
    fn from_record_unchecked(record: &[u8]) -> Self;

    /// Encodes the point as a record.
    ///
    /// # Panics
    /// If `out` is not [`BYTES`](Self::BYTES) long.
    fn write_record(&self, out: &mut [u8]);

    /// Whether the curve equation holds (infinity counts as on the curve).
    fn on_curve(&self) -> bool;

    /// Whether the point lies in the subgroup of order r. Only meaningful for points on the curve.
    fn in_subgroup(&self) -> bool;

    /// Whether all coordinates are reduced.
    fn coordinates_reduced(&self) -> bool;

    /// Checks a record: coordinates below q and on the curve. All zeros (infinity) passes. The subgroup isn't looked at.
    ///
    /// # Errors
    /// [`PointFault::CoordinateRange`] or [`PointFault::OffCurve`].
    fn check_record(record: &[u8]) -> Result<(), PointFault> {
        if record.chunks_exact(FP_BYTES).any(|c| !limbs_reduced(&limbs(c))) {
            return Err(PointFault::CoordinateRange);
        }
        if !Self::from_record_unchecked(record).on_curve() {
            return Err(PointFault::OffCurve);
        }
        Ok(())
    }

    /// Checks a point: coordinates below q, on the curve, in the subgroup.
    ///
    /// # Errors
    /// The first [`PointFault`] found, in that order.
    fn check(&self) -> Result<(), PointFault> {
        if !self.coordinates_reduced() {
            Err(PointFault::CoordinateRange)
        } else if !self.on_curve() {
            Err(PointFault::OffCurve)
        } else if !self.in_subgroup() {
            Err(PointFault::OutsideSubgroup)
        } else {
            Ok(())
        }
    }
}

fn limbs(bytes: &[u8]) -> [u64; 6] {
    let mut limbs = [0; 6];
    for (limb, chunk) in limbs.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        *limb = u64::from_le_bytes(word);
    }
    limbs
}

fn limbs_reduced(limbs: &[u64; 6]) -> bool {
    for (limb, modulus) in limbs.iter().zip(&FP_MODULUS).rev() {
        if limb != modulus {
            return limb < modulus;
        }
    }
    false
}

fn read_fp(bytes: &[u8]) -> blst_fp {
    blst_fp { l: limbs(bytes) }
}

fn write_fp(x: &blst_fp, out: &mut [u8]) {
    for (chunk, limb) in out.chunks_exact_mut(8).zip(x.l) {
        chunk.copy_from_slice(&limb.to_le_bytes());
    }
}

fn read_fp2(bytes: &[u8]) -> blst_fp2 {
    blst_fp2 { fp: [read_fp(&bytes[..FP_BYTES]), read_fp(&bytes[FP_BYTES..])] }
}

impl PointRecord for G1Affine {
    const BYTES: usize = 96;
    const GROUP: &'static str = "G1";

    fn from_record_unchecked(record: &[u8]) -> Self {
        assert_eq!(record.len(), Self::BYTES, "G1 record length");
        let mut point = Self::default();
        *point.as_mut() = blst_p1_affine { x: read_fp(&record[..48]), y: read_fp(&record[48..]) };
        point
    }

    fn write_record(&self, out: &mut [u8]) {
        assert_eq!(out.len(), Self::BYTES, "G1 record length");
        let blst_p1_affine { x, y } = self.as_ref();
        out.chunks_exact_mut(FP_BYTES).zip([x, y]).for_each(|(bytes, fp)| write_fp(fp, bytes));
    }

    fn on_curve(&self) -> bool {
        self.is_on_curve().into()
    }

    fn in_subgroup(&self) -> bool {
        self.is_torsion_free().into()
    }

    fn coordinates_reduced(&self) -> bool {
        let blst_p1_affine { x, y } = self.as_ref();
        [x, y].into_iter().all(|fp| limbs_reduced(&fp.l))
    }
}

impl PointRecord for G2Affine {
    const BYTES: usize = 192;
    const GROUP: &'static str = "G2";

    fn from_record_unchecked(record: &[u8]) -> Self {
        assert_eq!(record.len(), Self::BYTES, "G2 record length");
        let mut point = Self::default();
        *point.as_mut() = blst_p2_affine { x: read_fp2(&record[..96]), y: read_fp2(&record[96..]) };
        point
    }

    fn write_record(&self, out: &mut [u8]) {
        assert_eq!(out.len(), Self::BYTES, "G2 record length");
        let blst_p2_affine { x, y } = self.as_ref();
        out.chunks_exact_mut(FP_BYTES).zip(x.fp.iter().chain(&y.fp)).for_each(|(bytes, fp)| write_fp(fp, bytes));
    }

    fn on_curve(&self) -> bool {
        self.is_on_curve().into()
    }

    fn in_subgroup(&self) -> bool {
        self.is_torsion_free().into()
    }

    fn coordinates_reduced(&self) -> bool {
        let blst_p2_affine { x, y } = self.as_ref();
        x.fp.iter().chain(&y.fp).all(|fp| limbs_reduced(&fp.l))
    }
}

#[cfg(test)]
mod tests {
    use blstrs::Scalar;
    use ff::Field;
    use rand_core::OsRng;

    use super::*;

    fn round_trip<C: PointRecord>(points: impl IntoIterator<Item = C>) {
        for point in points {
            let mut record = vec![0xff; C::BYTES];
            point.write_record(&mut record);
            assert_eq!(C::check_record(&record), Ok(()));
            assert_eq!(C::from_record_unchecked(&record), point);
            assert_eq!(point.check(), Ok(()));
        }
    }

    #[test]
    fn records_round_trip() {
        let s = Scalar::random(OsRng);
        round_trip([G1Affine::identity(), G1Affine::generator(), (G1Affine::generator() * s).into()]);
        round_trip([G2Affine::identity(), G2Affine::generator(), (G2Affine::generator() * s).into()]);
    }

    #[test]
    fn infinity_is_all_zeros() {
        let mut record = [1; 192];
        G2Affine::identity().write_record(&mut record);
        assert_eq!(record, [0; 192]);
        assert!(bool::from(G1Affine::from_record_unchecked(&[0; 96]).is_identity()));
    }

    #[test]
    fn unreduced_and_off_curve_records_are_refused() {
        let mut record = [0; 96];
        for (chunk, limb) in record.chunks_exact_mut(8).zip(FP_MODULUS) {
            chunk.copy_from_slice(&limb.to_le_bytes());
        }
        assert_eq!(G1Affine::check_record(&record), Err(PointFault::CoordinateRange));
        assert!(!G1Affine::from_record_unchecked(&record).coordinates_reduced());
        record[0] -= 1;
        assert_eq!(G1Affine::check_record(&record), Err(PointFault::OffCurve));
    }

    #[test]
    fn a_point_outside_the_subgroup_is_told_from_one_inside() {
        // Small x coordinates hit the curve half of the time, and the subgroup with probability 1/h (h about 2^125).
        let outside = (1u8..)
            .find_map(|x| {
                let mut bytes = [0; 48];
                (bytes[0], bytes[47]) = (0x80, x);
                Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
            })
            .unwrap();
        assert!(outside.on_curve());
        assert_eq!(outside.check(), Err(PointFault::OutsideSubgroup));
    }
}
