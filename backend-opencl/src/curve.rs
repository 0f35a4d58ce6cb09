//! Points between the device and the host.
#![allow(unsafe_code)]

use blstrs::{G1Projective, G2Projective};

/// A point from its 144 bytes: X, Y, Z in Jacobian coordinates, Montgomery limbs. Nothing is checked.
///
/// # Panics
/// If there are fewer bytes.
pub(crate) fn g1_from_jacobian(bytes: &[u8]) -> G1Projective {
    assert!(bytes.len() >= size_of::<G1Projective>());
    // SAFETY: a transparent wrapper of `blst_p1`, eighteen u64, for which any bits are valid; the length was just checked.
    unsafe { bytes.as_ptr().cast::<G1Projective>().read_unaligned() }
}

/// A point from its 288 bytes, coordinates c0‖c1.
///
/// # Panics
/// If there are fewer bytes.
pub(crate) fn g2_from_jacobian(bytes: &[u8]) -> G2Projective {
    assert!(bytes.len() >= size_of::<G2Projective>());
    // SAFETY: a transparent wrapper of `blst_p2`, 36 u64, for which any bits are valid; the length was just checked.
    unsafe { bytes.as_ptr().cast::<G2Projective>().read_unaligned() }
}
