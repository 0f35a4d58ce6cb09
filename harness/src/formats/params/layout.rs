//! Where everything lies in a `.params` file, and in its conversion.

use std::ops::Range;

use blstrs::{G1Affine, G2Affine};
use splitprover_core::PointRecord;
use splitprover_core::domain::MAX_LOG2;

use super::super::error::{FormatResult, Place};
use super::{Counts, kind};

/// Bytes of section 1.
const CONSTANTS: usize = 3 * (G1Affine::BYTES + G2Affine::BYTES);
/// Bytes of a count.
const COUNT: usize = 4;
/// Tables of a conversion begin at multiples of this: the pages of any system.
pub(super) const PAGE: usize = 4096;

/// One of the tables H, L, A, B in G1, B in G2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Section number.
    pub(super) kind: u32,
    /// Bytes of a point, in the file and as a record.
    pub(super) point: usize,
    /// Points.
    pub(super) count: usize,
    /// Where the points lie in the file.
    pub(super) source: Range<usize>,
    /// Where the records begin in the conversion.
    pub(super) target: usize,
}

impl Table {
    /// Where the records lie in the conversion.
    pub(super) fn converted(&self) -> Range<usize> {
        self.target..self.target.saturating_add(self.source.len())
    }
}

/// A file's layout: it fills the file exactly, and its counts agree with each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Where the points of IC lie.
    pub(super) ic: Range<usize>,
    /// H, L, A, B in G1, B in G2.
    pub(super) tables: [Table; 5],
    /// log2 of the domain size, one more than the points of H.
    pub(super) domain_log2: u32,
    /// Bytes of a conversion.
    pub(super) converted_size: usize,
}

/// Goes through the sections.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    place: &'a Place,
}

/// A section's count, where it stands, and where its points lie.
struct Found {
    count: usize,
    count_at: usize,
    points: Range<usize>,
}

impl Walk<'_> {
    fn section(&mut self, kind: u32, point: usize) -> FormatResult<Found> {
        let place = self.place.section(kind, kind::name(kind));
        let count_at = self.at;
        let rest = self.bytes.get(count_at..).unwrap_or_default();
        let Some((count, rest)) = rest.split_first_chunk::<COUNT>() else {
            let found = format!("{} to the end of the file", rest.len());
            return Err(place.unexpected(count_at as u64, "number of points", "4 bytes", found));
        };
        let count = u32::from_be_bytes(*count) as usize;
        let fits = rest.len().checked_div(point).unwrap_or_default();
        if count > fits {
            let expected =
                format!("at most {fits}, which the {} bytes to the end of the file have room for", rest.len());
            return Err(place.unexpected(count_at as u64, "number of points", expected, count));
        }
        let from = count_at.saturating_add(COUNT);
        let points = from..from.saturating_add(count.saturating_mul(point));
        self.at = points.end;
        Ok(Found { count, count_at, points })
    }
}

impl Layout {
    /// Reads the counts and checks them against the file's size and each other. No point is looked at.
    pub(super) fn read(bytes: &[u8], place: &Place) -> FormatResult<Self> {
        if bytes.len() < CONSTANTS {
            let place = place.section(kind::CONSTANTS, kind::name(kind::CONSTANTS));
            let expected = format!("{CONSTANTS} bytes or more");
            return Err(place.unexpected(bytes.len() as u64, "file size", expected, bytes.len()));
        }
        let mut walk = Walk { bytes, at: CONSTANTS, place };
        let ic = walk.section(kind::IC, G1Affine::BYTES)?;
        let h = walk.section(kind::H, G1Affine::BYTES)?;
        let l = walk.section(kind::L, G1Affine::BYTES)?;
        let a = walk.section(kind::A, G1Affine::BYTES)?;
        let b_g1 = walk.section(kind::B_G1, G1Affine::BYTES)?;
        let b_g2 = walk.section(kind::B_G2, G2Affine::BYTES)?;
        if walk.at != bytes.len() {
            let at = walk.at as u64;
            let place = place.section(kind::B_G2, kind::name(kind::B_G2));
            let expected = format!("the end of the file, {}", bytes.len());
            return Err(place.unexpected(at, "end of the section", expected, at));
        }

        let refuse = |kind: u32, found: &Found, expected: String| {
            let place = place.section(kind, kind::name(kind));
            Err(place.unexpected(found.count_at as u64, "number of points", expected, found.count))
        };
        if ic.count == 0 {
            return refuse(kind::IC, &ic, "one or more, for the constant 1".to_owned());
        }
        let domain = h.count.saturating_add(1);
        if !domain.is_power_of_two() || domain.trailing_zeros() > MAX_LOG2 {
            return refuse(kind::H, &h, format!("one less than a power of two up to 2^{MAX_LOG2}"));
        }
        if ic.count > domain {
            // Each of them has a row of its own.
            return refuse(kind::IC, &ic, format!("at most the domain size, {domain}"));
        }
        let variables = ic.count.saturating_add(l.count);
        if u32::try_from(variables).is_err() {
            return refuse(kind::L, &l, "less than 2^32 variables in all".to_owned());
        }
        if a.count < ic.count || a.count > variables {
            let expected = format!("from {} (IC) to {variables} (all variables)", ic.count);
            return refuse(kind::A, &a, expected);
        }
        if b_g1.count > variables {
            return refuse(kind::B_G1, &b_g1, format!("at most {variables}, all variables"));
        }
        if b_g2.count != b_g1.count {
            return refuse(kind::B_G2, &b_g2, format!("{}, as in G1", b_g1.count));
        }

        let mut target = 0usize;
        let mut table = |kind: u32, point: usize, found: Found| {
            let table = Table { kind, point, count: found.count, source: found.points, target };
            target = table.converted().end.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
            table
        };
        let tables = [
            table(kind::H, G1Affine::BYTES, h),
            table(kind::L, G1Affine::BYTES, l),
            table(kind::A, G1Affine::BYTES, a),
            table(kind::B_G1, G1Affine::BYTES, b_g1),
            table(kind::B_G2, G2Affine::BYTES, b_g2),
        ];
        Ok(Self { ic: ic.points, tables, domain_log2: domain.trailing_zeros(), converted_size: target })
    }

    /// The numbers of points.
    pub(super) fn counts(&self) -> Counts {
        let [h, l, a, b, _] = &self.tables;
        let ic = self.ic.len() / G1Affine::BYTES;
        Counts { ic, h: h.count, l: l.count, a: a.count, b: b.count }
    }
}
