//! Section 4: the constraint matrices A and B, into compressed sparse rows.
//!
//! A record is u32 matrix (0 = A, 1 = B), u32 constraint, u32 variable and 32 bytes v·R² mod r. snarkjs writes them
//! constraint by constraint, so the entries of each matrix come in the order of its rows; then every thread knows where its
//! records go, and two parallel passes do. Files in any other order are read one record after the other.

use std::collections::HashMap;

use blstrs::Scalar;
use ff::Field;
use rayon::prelude::*;
use splitprover_core::matrix::MatrixError;
use splitprover_core::{CsrMatrix, Matrices};

use crate::formats::container::{Cursor, Section};
use crate::formats::error::{FormatError, FormatResult, Place};
use crate::formats::field::{R_BYTES, is_below, minus_one, scalar_from_double_montgomery, scalar_to_double_montgomery};

/// Bytes of a record.
pub(super) const RECORD: usize = 44;
/// Bytes before the first record.
const COUNT: u64 = 4;
/// Records that one piece of parallel work has at least.
const PIECE: usize = 1 << 14;

#[derive(Clone, Copy)]
struct Record<'a> {
    matrix: u32,
    row: u32,
    column: u32,
    value: &'a [u8; 32],
}

fn record(bytes: &[u8; RECORD]) -> Record<'_> {
    let [m0, m1, m2, m3, r0, r1, r2, r3, c0, c1, c2, c3, value @ ..] = bytes;
    Record {
        matrix: u32::from_le_bytes([*m0, *m1, *m2, *m3]),
        row: u32::from_le_bytes([*r0, *r1, *r2, *r3]),
        column: u32::from_le_bytes([*c0, *c1, *c2, *c3]),
        value,
    }
}

/// Number of records that the section's own count and its size agree on.
fn records<'a>(bytes: &'a [u8], section: Section, place: &Place) -> FormatResult<&'a [[u8; RECORD]]> {
    let mut cursor = Cursor::new(bytes, section.offset, place);
    let count = cursor.u32("number of coefficients")?;
    let needed = u64::from(count).saturating_mul(RECORD as u64).saturating_add(COUNT);
    if section.size != needed {
        let expected = format!("{needed} bytes ({count} records of {RECORD})");
        return Err(place.unexpected(section.offset, "section size", expected, section.size));
    }
    let (records, rest) = cursor.take(cursor.left(), "coefficients")?.as_chunks();
    if rest.is_empty() { Ok(records) } else { Err(place.changed()) }
}

fn entry_offset(section: Section, entry: usize) -> u64 {
    section.offset.saturating_add(COUNT).saturating_add((entry as u64).saturating_mul(RECORD as u64))
}

/// Limits that records are checked against.
#[derive(Clone, Copy)]
struct Limits {
    rows: u32,
    columns: u32,
}

fn check_record(record: Record<'_>, limits: Limits, at: u64, place: &Place) -> FormatResult<()> {
    if record.matrix > 1 {
        return Err(place.unexpected(at, "matrix", "0 (A) or 1 (B)", record.matrix));
    }
    if record.row >= limits.rows {
        let expected = format!("less than the domain size {}", limits.rows);
        return Err(place.unexpected(at.saturating_add(4), "constraint", expected, record.row));
    }
    if record.column >= limits.columns {
        let expected = format!("less than the {} variables", limits.columns);
        return Err(place.unexpected(at.saturating_add(8), "variable", expected, record.column));
    }
    if !is_below(record.value, &R_BYTES) {
        return Err(place.unexpected(at.saturating_add(12), "coefficient", "less than r", "r or more"));
    }
    Ok(())
}

/// What the first pass learns about a piece, for each matrix.
#[derive(Clone, Copy, Default)]
struct Span {
    /// Entries.
    count: usize,
    /// First and last row, if there are entries.
    rows: Option<(u32, u32)>,
    /// Whether rows ascend within the piece.
    sorted: bool,
}

impl Span {
    fn add(&mut self, row: u32) {
        self.count = self.count.saturating_add(1);
        self.rows = match self.rows {
            None => Some((row, row)),
            Some((first, last)) => {
                self.sorted &= row >= last;
                Some((first, row.max(last)))
            }
        };
    }
}

/// Reads section 4, whose bytes are `bytes`.
pub(super) fn read_matrices(
    bytes: &[u8],
    section: Section,
    place: &Place,
    num_variables: u32,
    domain_log2: u32,
) -> FormatResult<(Matrices, usize)> {
    let records = records(bytes, section, place)?;
    let limits = Limits { rows: 1u32.wrapping_shl(domain_log2), columns: num_variables };
    let pieces = piece_length(records.len());

    let scanned: Vec<FormatResult<[Span; 2]>> = records
        .par_chunks(pieces)
        .enumerate()
        .map(|(piece, chunk)| {
            let first = piece.saturating_mul(pieces);
            let mut spans = [Span { sorted: true, ..Span::default() }; 2];
            for (i, bytes) in chunk.iter().enumerate() {
                let record = record(bytes);
                check_record(record, limits, entry_offset(section, first.saturating_add(i)), place)?;
                if let Some(span) = spans.get_mut(record.matrix as usize) {
                    span.add(record.row);
                }
            }
            Ok(spans)
        })
        .collect();
    let scanned: Vec<[Span; 2]> = scanned.into_iter().collect::<FormatResult<_>>()?;

    let last_row = scanned.iter().flatten().filter_map(|span| span.rows).map(|(_, last)| last).max();
    let num_rows = last_row.map_or(0, |last| (last as usize).saturating_add(1));
    let mut built = Vec::with_capacity(2);
    for matrix in [0, 1] {
        let spans: Vec<Span> = scanned.iter().filter_map(|spans| spans.get(matrix)).copied().collect();
        let num_columns = num_variables as usize;
        let csr = if in_row_order(&spans) {
            build_sorted(records, pieces, matrix as u32, &spans, num_rows, num_columns)
        } else {
            build_unsorted(records, matrix as u32, num_rows, num_columns)
        };
        built.push(csr.map_err(|e| bad_matrix(e, place, section))?);
    }
    match (built.pop(), built.pop()) {
        (Some(b), Some(a)) => Ok((Matrices { a, b }, records.len())),
        _ => Err(place.changed()),
    }
}

fn bad_matrix(error: MatrixError, place: &Place, section: Section) -> FormatError {
    match error {
        // Everything was checked in the first pass: what is wrong now wasn't then.
        MatrixError::Unstable | MatrixError::Row { .. } | MatrixError::Column { .. } => place.changed(),
        other => place.unexpected(section.offset, "coefficients", "a matrix", other),
    }
}

fn piece_length(records: usize) -> usize {
    let tasks = rayon::current_num_threads().saturating_mul(4).max(1);
    records.div_ceil(tasks).max(PIECE)
}

fn in_row_order(spans: &[Span]) -> bool {
    let mut last = 0;
    spans.iter().all(|span| match span.rows {
        None => true,
        Some((first, next)) => {
            let ordered = span.sorted && first >= last;
            last = next;
            ordered
        }
    })
}

/// Distinct coefficients in the order of their first use. ±1 have the ids 0 and 1, as in [`CsrMatrix`].
struct Dictionary {
    fixed: [[u8; 32]; 2],
    ids: HashMap<[u8; 32], u32>,
    values: Vec<[u8; 32]>,
}

impl Dictionary {
    fn new() -> Self {
        let fixed = [Scalar::ONE, minus_one()].map(scalar_to_double_montgomery);
        Self { fixed, ids: HashMap::new(), values: Vec::new() }
    }

    fn id(&mut self, value: &[u8; 32]) -> u32 {
        let [one, minus_one] = &self.fixed;
        if value == one {
            return 0;
        }
        if value == minus_one {
            return 1;
        }
        let next = (self.values.len() as u32).saturating_add(2);
        *self.ids.entry(*value).or_insert_with(|| {
            self.values.push(*value);
            next
        })
    }
}

/// What the second pass writes to in one piece: disjoint parts of the matrix's vectors.
struct Part<'a> {
    records: &'a [[u8; RECORD]],
    columns: &'a mut [u32],
    coefficients: &'a mut [u32],
    /// Where the rows begin that begin in this piece: row `first_row` + i at `starts[i]`.
    starts: &'a mut [u32],
    first_row: usize,
    first_slot: u32,
}

/// Builds a matrix whose entries come in the order of its rows.
fn build_sorted(
    records: &[[u8; RECORD]],
    pieces: usize,
    matrix: u32,
    spans: &[Span],
    num_rows: usize,
    num_columns: usize,
) -> Result<CsrMatrix, MatrixError> {
    let count = spans.iter().fold(0usize, |sum, span| sum.saturating_add(span.count));
    if u32::try_from(count).is_err() {
        return Err(MatrixError::TooMany { what: "entries", count });
    }
    let mut row_offsets = vec![count as u32; num_rows.saturating_add(1)];
    let (mut columns, mut coefficients) = (vec![0u32; count], vec![0u32; count]);

    let mut parts = Vec::with_capacity(spans.len());
    let (mut starts_left, mut columns_left, mut coefficients_left) =
        (row_offsets.as_mut_slice(), columns.as_mut_slice(), coefficients.as_mut_slice());
    let (mut next_row, mut next_slot) = (0usize, 0u32);
    for (records, span) in records.chunks(pieces).zip(spans) {
        // This piece says where the rows begin up to its last one, but not those that an earlier piece began.
        let rows = span.rows.map_or(0, |(_, last)| (last as usize).saturating_add(1).saturating_sub(next_row));
        parts.push(Part {
            records,
            columns: split_off(&mut columns_left, span.count)?,
            coefficients: split_off(&mut coefficients_left, span.count)?,
            starts: split_off(&mut starts_left, rows)?,
            first_row: next_row,
            first_slot: next_slot,
        });
        next_row = next_row.saturating_add(rows);
        next_slot = next_slot.saturating_add(span.count as u32);
    }
    let dictionaries: Vec<Dictionary> =
        parts.into_par_iter().map(|part| fill(part, matrix)).collect::<Result<_, _>>()?;

    // One dictionary out of the pieces' own, then the pieces' ids become its ids.
    let mut all = Dictionary::new();
    let maps: Vec<Vec<u32>> =
        dictionaries.iter().map(|dictionary| dictionary.values.iter().map(|value| all.id(value)).collect()).collect();
    let mut left = coefficients.as_mut_slice();
    let mut jobs = Vec::with_capacity(spans.len());
    for (span, map) in spans.iter().zip(&maps) {
        jobs.push((split_off(&mut left, span.count)?, map));
    }
    jobs.into_par_iter().for_each(|(piece, map)| {
        for id in piece.iter_mut().filter(|id| **id >= 2) {
            *id = map.get((*id as usize).saturating_sub(2)).copied().unwrap_or(u32::MAX);
        }
    });
    let values = all.values.par_iter().map(scalar_from_double_montgomery);
    let mut dictionary = vec![Scalar::ONE, minus_one()];
    dictionary.extend(values.collect::<Option<Vec<_>>>().ok_or(MatrixError::Unstable)?);
    CsrMatrix::from_parts(row_offsets, columns, coefficients, dictionary, num_columns)
}

/// Takes the first `count` values off a slice.
fn split_off<'a>(left: &mut &'a mut [u32], count: usize) -> Result<&'a mut [u32], MatrixError> {
    let (taken, rest) = std::mem::take(left).split_at_mut_checked(count).ok_or(MatrixError::Unstable)?;
    *left = rest;
    Ok(taken)
}

/// Writes one piece's entries of one matrix.
fn fill(part: Part<'_>, matrix: u32) -> Result<Dictionary, MatrixError> {
    let Part { records, columns, coefficients, starts, first_row, first_slot } = part;
    let mut dictionary = Dictionary::new();
    let mut slots = columns.iter_mut().zip(coefficients);
    let mut starts = starts.iter_mut();
    let (mut next_row, mut slot) = (first_row, first_slot);
    for record in records.iter().map(record).filter(|record| record.matrix == matrix) {
        while next_row <= record.row as usize {
            *starts.next().ok_or(MatrixError::Unstable)? = slot;
            next_row = next_row.saturating_add(1);
        }
        let (column, coefficient) = slots.next().ok_or(MatrixError::Unstable)?;
        *column = record.column;
        *coefficient = dictionary.id(record.value);
        slot = slot.saturating_add(1);
    }
    if slots.next().is_some() || starts.next().is_some() {
        return Err(MatrixError::Unstable);
    }
    Ok(dictionary)
}

/// Builds a matrix whose entries come in any order.
fn build_unsorted(
    records: &[[u8; RECORD]],
    matrix: u32,
    num_rows: usize,
    num_columns: usize,
) -> Result<CsrMatrix, MatrixError> {
    CsrMatrix::from_entries(num_rows, num_columns, || {
        records.iter().map(record).filter(move |record| record.matrix == matrix).map(|record| {
            // Values were checked in the first pass. One that has changed since makes a wrong matrix, hence a proof that
            // doesn't verify.
            (record.row, record.column, scalar_from_double_montgomery(record.value).unwrap_or(Scalar::ZERO))
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use rand_core::{OsRng, RngCore};

    use super::*;

    type Entry = (u32, u32, u32, Scalar);

    fn section_of(entries: &[Entry]) -> Vec<u8> {
        let mut bytes = (entries.len() as u32).to_le_bytes().to_vec();
        for (matrix, row, column, value) in entries {
            [matrix, row, column].into_iter().for_each(|number| bytes.extend(number.to_le_bytes()));
            bytes.extend(scalar_to_double_montgomery(*value));
        }
        bytes
    }

    fn read(bytes: &[u8], num_variables: u32, domain_log2: u32) -> FormatResult<Matrices> {
        let section = Section { kind: 4, offset: 1000, size: bytes.len() as u64 };
        let place = Place::file(std::path::Path::new("key")).section(4, "coefficients");
        Ok(read_matrices(bytes, section, &place, num_variables, domain_log2)?.0)
    }

    fn expected(entries: &[Entry], matrix: u32, rows: usize, columns: usize) -> CsrMatrix {
        CsrMatrix::from_entries(rows, columns, || {
            entries.iter().filter(move |entry| entry.0 == matrix).map(|&(_, row, column, value)| (row, column, value))
        })
        .unwrap()
    }

    /// The same entries in the same order; dictionaries may number coefficients differently.
    fn assert_same(found: &CsrMatrix, expected: &CsrMatrix) {
        assert_eq!(found.row_offsets(), expected.row_offsets());
        for row in 0..expected.num_rows() {
            assert!(found.row(row).eq(expected.row(row)), "row {row}");
        }
    }

    /// Entries as snarkjs orders them, with empty rows, runs of rows in one matrix only, ±1, few and many distinct values.
    fn entries(count: usize) -> Vec<Entry> {
        let few: Vec<_> = (0..50).map(|_| Scalar::random(OsRng)).collect();
        let mut row = 0;
        let mut entries = Vec::with_capacity(count);
        while entries.len() < count {
            row += OsRng.next_u32() % 3;
            for matrix in 0..2 {
                for _ in 0..OsRng.next_u32() % if row % 1000 < 400 { 4 } else { 1 + matrix * 3 } {
                    let value = match OsRng.next_u32() % 4 {
                        0 => Scalar::ONE,
                        1 => -Scalar::ONE,
                        2 => few[OsRng.next_u32() as usize % few.len()],
                        _ => Scalar::from(OsRng.next_u64()),
                    };
                    entries.push((matrix, row, OsRng.next_u32() % 1000, value));
                }
            }
        }
        entries
    }

    #[test]
    fn pieces_in_parallel_build_what_one_after_the_other_does() {
        for count in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 77] {
            let entries = entries(count);
            let rows = entries.last().map_or(0, |entry| entry.1 as usize + 1);
            let bytes = section_of(&entries);
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let found = pool.install(|| read(&bytes, 1000, 20)).unwrap();
                assert_same(&found.a, &expected(&entries, 0, rows, 1000));
                assert_same(&found.b, &expected(&entries, 1, rows, 1000));
            }
        }
    }

    #[test]
    fn any_order_is_read_and_repeated_places_stay() {
        let mut entries = entries(3 * PIECE);
        entries.extend_from_within(..100);
        for i in (1..entries.len()).rev() {
            entries.swap(i, OsRng.next_u32() as usize % (i + 1));
        }
        let rows = entries.iter().map(|entry| entry.1 as usize + 1).max().unwrap();
        let found = read(&section_of(&entries), 1000, 20).unwrap();
        assert_same(&found.a, &expected(&entries, 0, rows, 1000));
        assert_same(&found.b, &expected(&entries, 1, rows, 1000));
    }

    #[test]
    fn the_first_bad_record_is_named() {
        let mut good = entries(3 * PIECE);
        let last = good.len() - 1;
        good[last].1 = 1 << 20;
        good[2 * PIECE].0 = 2;
        let offset = |entry: usize, field: u64| 1000 + 4 + 44 * entry as u64 + field;
        let error = read(&section_of(&good), 1000, 20).unwrap_err();
        assert_eq!(error.offset(), Some(offset(2 * PIECE, 0)));
        good[2 * PIECE].0 = 0;
        let error = read(&section_of(&good), 1000, 20).unwrap_err();
        assert_eq!(error.offset(), Some(offset(last, 4)));
        good[last].1 = good[last - 1].1;
        good[7].2 = 1000;
        assert_eq!(read(&section_of(&good), 1000, 20).unwrap_err().offset(), Some(offset(7, 8)));
        good[7].2 = 999;
        let mut bytes = section_of(&good);
        let at = 4 + 44 * 9 + 12;
        bytes[at..at + 32].copy_from_slice(&R_BYTES);
        assert_eq!(read(&bytes, 1000, 20).unwrap_err().offset(), Some(offset(9, 12)));
        bytes.pop();
        assert!(read(&bytes, 1000, 20).unwrap_err().to_string().contains("section size"));
    }
}
