//! Numbers, points and curve names in JSON, read strictly and written as snarkjs writes them.
//!
//! Numbers are canonical decimal strings below their modulus. Points are affine with a third coordinate: 1, or 0 for
//! infinity, which is (0, 1, 0). Other Jacobian forms, which snarkjs takes, are refused, and so are points off the curve or
//! outside the subgroup: without the latter, verification accepts forgeries.

use std::io::BufRead;

use blstrs::{G1Affine, G2Affine, Scalar};
use group::prime::PrimeCurveAffine;
use splitprover_core::PointRecord;
use splitprover_core::point::PointFault;

use crate::formats::error::{FormatError, FormatResult, Place};
use crate::formats::field::{Q_BYTES, is_below, parse_decimal, scalar_from_plain, to_decimal};

use super::parse::Reader;

/// A base field element, plain, little-endian.
type Fp = [u8; 48];

const ZERO: Fp = [0; 48];
const ONE: Fp = {
    let mut one = [0; 48];
    one[0] = 1;
    one
};

/// A base field element.
pub(super) fn fp<R: BufRead>(reader: &mut Reader<R>, what: &str) -> FormatResult<Fp> {
    let text = reader.string(what)?;
    let mut bytes = ZERO;
    if !parse_decimal(text.as_bytes(), &mut bytes) {
        return Err(reader.error(what, "a canonical decimal number below q", shown(&text)));
    }
    if !is_below(&bytes, &Q_BYTES) {
        return Err(reader.error(what, "less than q", shown(&text)));
    }
    Ok(bytes)
}

/// A scalar.
pub(super) fn scalar<R: BufRead>(reader: &mut Reader<R>, what: &str) -> FormatResult<Scalar> {
    let text = reader.string(what)?;
    let mut bytes = [0; 32];
    if !parse_decimal(text.as_bytes(), &mut bytes) {
        return Err(reader.error(what, "a canonical decimal number below r", shown(&text)));
    }
    scalar_from_plain(&bytes).ok_or_else(|| reader.error(what, "less than r", shown(&text)))
}

fn shown(text: &str) -> String {
    format!("\"{text}\"")
}

/// [c0, c1].
fn fp2<R: BufRead>(reader: &mut Reader<R>, what: &str) -> FormatResult<[Fp; 2]> {
    reader.array(what, fp)
}

/// Three coordinates as they stand in the text; not yet a point. Points are looked at when the text has said which curve they
/// are on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Triple<T> {
    coordinates: [T; 3],
    /// Where the text of the coordinates ends.
    at: u64,
}

/// Three coordinates of a point of G1.
pub(super) fn g1<R: BufRead>(reader: &mut Reader<R>, what: &str) -> FormatResult<Triple<Fp>> {
    Ok(Triple { coordinates: reader.array(what, fp)?, at: reader.offset() })
}

/// Three coordinates of a point of G2.
pub(super) fn g2<R: BufRead>(reader: &mut Reader<R>, what: &str) -> FormatResult<Triple<[Fp; 2]>> {
    Ok(Triple { coordinates: reader.array(what, fp2)?, at: reader.offset() })
}

impl Triple<Fp> {
    /// The point, in the subgroup or infinity.
    pub(super) fn point(&self, place: &Place, what: &str) -> FormatResult<G1Affine> {
        let [x, y, z] = self.coordinates;
        if z == ZERO && x == ZERO && y == ONE {
            return Ok(G1Affine::identity());
        }
        if z != ONE {
            return Err(not_affine(place, self.at, what, "(0, 1, 0)"));
        }
        let mut bytes = [0; 96];
        put_big_endian(&mut bytes, &[x, y]);
        checked(place, self.at, what, G1Affine::from_uncompressed_unchecked(&bytes).into())
    }
}

impl Triple<[Fp; 2]> {
    /// The point, in the subgroup or infinity.
    pub(super) fn point(&self, place: &Place, what: &str) -> FormatResult<G2Affine> {
        let [x, y, z] = self.coordinates;
        if z == [ZERO, ZERO] && x == [ZERO, ZERO] && y == [ONE, ZERO] {
            return Ok(G2Affine::identity());
        }
        if z != [ONE, ZERO] {
            return Err(not_affine(place, self.at, what, "([0, 0], [1, 0], [0, 0])"));
        }
        let ([x0, x1], [y0, y1]) = (x, y);
        let mut bytes = [0; 192];
        put_big_endian(&mut bytes, &[x1, x0, y1, y0]);
        checked(place, self.at, what, G2Affine::from_uncompressed_unchecked(&bytes).into())
    }
}

fn not_affine(place: &Place, at: u64, what: &str, infinity: &str) -> FormatError {
    let expected = format!("an affine point with third coordinate 1, or infinity as {infinity}");
    place.unexpected(at, what, expected, "another form")
}

/// The zcash uncompressed form: coordinates big-endian. Its three flag bits are clear, as q has 381 bits.
fn put_big_endian(out: &mut [u8], coordinates: &[Fp]) {
    for (chunk, coordinate) in out.chunks_exact_mut(48).zip(coordinates) {
        chunk.copy_from_slice(coordinate);
        chunk.reverse();
    }
}

fn checked<C: PointRecord>(place: &Place, at: u64, what: &str, point: Option<C>) -> FormatResult<C> {
    let refuse = |found: &dyn std::fmt::Display| {
        place.unexpected(at, what, format!("a point of the subgroup of {}", C::GROUP), found)
    };
    // Coordinates are below q and flags clear, so the decoder has nothing to refuse but the curve.
    let point = point.ok_or_else(|| refuse(&PointFault::OffCurve))?;
    if bool::from(point.is_identity()) {
        return Err(refuse(&"coordinates (0, 0)"));
    }
    point.check().map_err(|fault| refuse(&fault))?;
    Ok(point)
}

/// `"groth16"`.
pub(super) fn protocol<R: BufRead>(reader: &mut Reader<R>) -> FormatResult<()> {
    match reader.string("protocol")?.as_str() {
        "groth16" => Ok(()),
        other => Err(reader.error("protocol", "\"groth16\"", shown(other))),
    }
}

/// Any spelling of BLS12-381.
pub(super) fn curve<R: BufRead>(reader: &mut Reader<R>) -> FormatResult<()> {
    let text = reader.string("curve")?;
    let name: String = text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_uppercase()).collect();
    match name.as_str() {
        "BLS12381" => Ok(()),
        "BN128" | "BN254" | "ALTBN128" => Err(reader.other_curve("BN254")),
        _ => Err(reader.other_curve(format!("curve {}", shown(&text)))),
    }
}

/// The affine coordinates, three for G1.
pub(super) fn g1_text(point: &G1Affine) -> [String; 3] {
    if point.is_identity().into() {
        return ["0", "1", "0"].map(str::to_owned);
    }
    let bytes = point.to_uncompressed();
    let (x, y) = bytes.split_at(48);
    [big_endian_text(x), big_endian_text(y), "1".to_owned()]
}

/// The affine coordinates, three pairs for G2.
pub(super) fn g2_text(point: &G2Affine) -> [[String; 2]; 3] {
    if point.is_identity().into() {
        return [["0", "0"], ["1", "0"], ["0", "0"]].map(|pair| pair.map(str::to_owned));
    }
    let bytes = point.to_uncompressed();
    let ((x, y), one) = (bytes.split_at(96), ["1", "0"].map(str::to_owned));
    let pair = |c1_c0: &[u8]| {
        let (c1, c0) = c1_c0.split_at(48);
        [big_endian_text(c0), big_endian_text(c1)]
    };
    [pair(x), pair(y), one]
}

fn big_endian_text(bytes: &[u8]) -> String {
    to_decimal(&bytes.iter().rev().copied().collect::<Vec<u8>>())
}

/// A scalar in decimal.
pub fn scalar_text(scalar: &Scalar) -> String {
    to_decimal(&scalar.to_bytes_le())
}
