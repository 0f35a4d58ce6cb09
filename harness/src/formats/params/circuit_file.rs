//! A circuit's file: its matrices as they are used, so that a start maps them instead of building them.
//!
//! Our own format, little-endian: 8 bytes of magic, BLAKE3 over the rest, then u64 public inputs, u64 variables, u64 rows, and for A and B
//! u64 entries, u64 distinct coefficients, the rows + 1 offsets, the columns and the coefficients' numbers as u32, and the
//! coefficients as 32 plain bytes each.

use std::path::Path;
use std::sync::Arc;

use blstrs::Scalar;
use splitprover_core::{CsrMatrix, Matrices};

use super::super::container::Cursor;
use super::super::error::{FormatResult, Place};
use super::super::field::scalar_from_plain;
use super::super::map::MappedFile;
use super::super::output::OutputFile;
use super::Circuit;

pub(super) const MAGIC: [u8; 8] = *b"SPcircu1";
const CHECKSUM: usize = 32;

impl Circuit {
    /// Writes the circuit to a file of our own, which [`open`](Self::open) reads much faster than a `.r1cs`.
    ///
    /// # Errors
    /// If almost all variables occur neither in A nor in B: a circuit of 8 variables or more for each byte of its file isn't read.
    /// If the file can't be written.
    pub fn write(&self, path: &Path) -> FormatResult<()> {
        let bytes = self.to_bytes(path)?;
        let mut output = OutputFile::create(path)?;
        output.fill(|out| out.write_all(&bytes))?;
        output.commit()
    }

    /// The file in memory: what [`write`](Self::write) writes.
    ///
    /// # Errors
    /// As [`write`](Self::write); `name` stands in messages.
    pub fn to_bytes(&self, name: &Path) -> FormatResult<Vec<u8>> {
        let mut body = Vec::new();
        let matrices = self.matrices();
        for number in [self.num_public(), matrices.a.num_columns(), matrices.a.num_rows()] {
            body.extend((number as u64).to_le_bytes());
        }
        for matrix in [&matrices.a, &matrices.b] {
            for number in [matrix.num_entries(), matrix.dictionary().len()] {
                body.extend((number as u64).to_le_bytes());
            }
            for numbers in [matrix.row_offsets(), matrix.columns(), matrix.coefficients()] {
                numbers.iter().for_each(|number| body.extend(number.to_le_bytes()));
            }
            matrix.dictionary().iter().for_each(|value| body.extend(value.to_bytes_le()));
        }
        let checksum = super::cache::hash(&body);
        let bytes = [MAGIC.as_slice(), checksum.as_slice(), body.as_slice()].concat();
        check_variables(matrices.a.num_columns(), &bytes, None, &Place::file(name))?;
        Ok(bytes)
    }

    /// A circuit from a file in memory, which [`write`](Self::write) made. `name` stands in messages.
    ///
    /// # Errors
    /// [`FormatError`](super::super::FormatError) says where it isn't as it should be.
    pub fn from_bytes(name: &Path, bytes: &[u8]) -> FormatResult<Self> {
        read(name, bytes)
    }

    /// Opens a circuit: a file that [`write`](Self::write) made, or a `.r1cs`.
    ///
    /// # Errors
    /// [`FormatError`](super::super::FormatError) says where the file isn't as it should be.
    pub fn open(path: &Path) -> FormatResult<Self> {
        let map = MappedFile::open(path)?;
        let bytes: &[u8] = (*map).as_ref();
        if bytes.starts_with(&MAGIC) {
            return map.unless_changed(read(path, bytes));
        }
        Self::from_r1cs(path, &super::super::R1csFile::open(path)?)
    }
}

fn read(path: &Path, bytes: &[u8]) -> FormatResult<Circuit> {
    let place = Place::file(path);
    let mut cursor = Cursor::new(bytes, 0, &place);
    if cursor.array("magic")? != MAGIC {
        return Err(place.unexpected(0, "magic", "that of a circuit's file", "another"));
    }
    let at = cursor.offset();
    let checksum = cursor.array::<CHECKSUM>("checksum")?;
    let body = bytes.get(MAGIC.len().saturating_add(CHECKSUM)..).unwrap_or_default();
    if super::cache::hash(body) != checksum {
        return Err(place.unexpected(at, "checksum", "that of the contents", "another"));
    }
    // What carries the right checksum was written here; all the same nothing is believed.
    let at = cursor.offset();
    let [num_public, variables, rows] =
        [number(&mut cursor, "public inputs")?, number(&mut cursor, "variables")?, number(&mut cursor, "rows")?];
    if num_public >= variables {
        return Err(place.unexpected(at, "public inputs", format!("less than {variables} variables"), num_public));
    }
    check_variables(variables, bytes, at.saturating_add(8), &place)?;
    let a = matrix(&mut cursor, rows, variables, &place)?;
    let b = matrix(&mut cursor, rows, variables, &place)?;
    cursor.end()?;
    Ok(Circuit::new(path, Arc::new(Matrices { a, b }), num_public))
}

/// Variables cost a bit each in the density maps, so their number is bounded by the file's bits.
fn check_variables(count: usize, bytes: &[u8], at: impl Into<Option<u64>>, place: &Place) -> FormatResult<()> {
    let most = bytes.len().saturating_mul(8);
    if count <= most {
        return Ok(());
    }
    Err(place.unexpected(at, "variables", format!("at most as many as the file has bits, {most}"), count))
}

fn number(cursor: &mut Cursor<'_>, what: &str) -> FormatResult<usize> {
    // Too large a number is refused where it is used: the bytes for it aren't there.
    Ok(usize::try_from(cursor.u64(what)?).unwrap_or(usize::MAX))
}

fn numbers(cursor: &mut Cursor<'_>, count: usize, what: &str) -> FormatResult<Vec<u32>> {
    let bytes = cursor.take(count.saturating_mul(4), what)?;
    Ok(bytes.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number)).collect())
}

fn matrix(cursor: &mut Cursor<'_>, rows: usize, variables: usize, place: &Place) -> FormatResult<CsrMatrix> {
    let begin = cursor.offset();
    let entries = number(cursor, "entries")?;
    let distinct = number(cursor, "distinct coefficients")?;
    let offsets = numbers(cursor, rows.saturating_add(1), "row offsets")?;
    let columns = numbers(cursor, entries, "columns")?;
    let coefficients = numbers(cursor, entries, "numbers of coefficients")?;
    let at = cursor.offset();
    let (values, _) = cursor.take(distinct.saturating_mul(32), "coefficients")?.as_chunks::<32>();
    let dictionary: Option<Vec<Scalar>> = values.iter().map(scalar_from_plain).collect();
    let dictionary = dictionary.ok_or_else(|| place.unexpected(at, "coefficients", "less than r", "r or more"))?;
    CsrMatrix::from_parts(offsets, columns, coefficients, dictionary, variables)
        .map_err(|e| place.unexpected(begin, "matrix", "one that is sound", e))
}
