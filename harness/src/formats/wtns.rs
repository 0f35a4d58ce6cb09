//! circom's `.wtns`: the full assignment of a circuit's variables.
//!
//! Values are 32 plain little-endian bytes, below r, value 0 is 1, then outputs, public inputs, private variables. They go
//! from the file to a buffer of Montgomery scalars in parallel pieces; the file is neither mapped nor held in memory whole.

use std::io::{self, Write};
use std::path::Path;

use blstrs::Scalar;
use ff::Field;
use rayon::prelude::*;
use splitprover_core::{HostBuf, HostMemory, MemoryClass};

use super::container::{Container, Cursor, Format, Section};
use super::error::{FormatResult, Place};
use super::field::{R_BYTES, scalar_from_plain};
use super::output::OutputFile;
use super::source::{FileSource, Source};
use super::zkey::check_prime;

const HEADER: u32 = 1;
const VALUES: u32 = 2;
const VALUE: usize = 32;
/// Values per parallel piece of work: 64 KiB of file.
const PIECE: usize = 2048;

static FORMAT: Format = Format { magic: *b"wtns", version: 2, sections: &[(HEADER, "header"), (VALUES, "values")] };

/// Reads a witness into a buffer charged to `memory` as [`MemoryClass::Witness`].
///
/// # Errors
/// [`FormatError`](super::FormatError) says where the file isn't as it should be, or that there is no memory.
pub fn read_wtns(path: &Path, memory: &HostMemory) -> FormatResult<HostBuf<Scalar>> {
    open(path, memory, None)
}

/// As [`read_wtns`], of a witness of so many values, the variables of a key. One with another number is refused before any of them
/// is read.
///
/// # Errors
/// As [`read_wtns`].
pub fn read_wtns_of_length(path: &Path, memory: &HostMemory, values: usize) -> FormatResult<HostBuf<Scalar>> {
    open(path, memory, Some(values))
}

fn open(path: &Path, memory: &HostMemory, expected: Option<usize>) -> FormatResult<HostBuf<Scalar>> {
    let place = Place::file(path);
    let file = FileSource::open(&place, path)?;
    let values = read(&file, &place, memory, expected)?;
    file.check_unchanged(&place)?;
    Ok(values)
}

/// Reads a witness from memory. `name` stands in messages.
///
/// # Errors
/// As [`read_wtns`].
pub fn wtns_from_bytes(name: &Path, bytes: &[u8], memory: &HostMemory) -> FormatResult<HostBuf<Scalar>> {
    read(bytes, &Place::file(name), memory, None)
}

fn read(
    source: &(impl Source + ?Sized),
    place: &Place,
    memory: &HostMemory,
    expected: Option<usize>,
) -> FormatResult<HostBuf<Scalar>> {
    let container = Container::read(source, &FORMAT, place)?;
    let section = container.section(HEADER)?;
    let header_place = container.place(HEADER);
    let bytes = container.copy(source, section, 4096)?;
    let mut cursor = Cursor::new(&bytes, section.offset, &header_place);
    check_prime(&mut cursor, &header_place, "r", &R_BYTES)?;
    let at = cursor.offset();
    let count = cursor.u32("number of values")?;
    cursor.end()?;
    if let Some(expected) = expected.filter(|&expected| expected != count as usize) {
        let expected = format!("{expected}, the key's variables");
        return Err(header_place.unexpected(at, "number of values", expected, count));
    }

    let size = u64::from(count).checked_mul(VALUE as u64);
    let section = container.section_of_size(VALUES, size, &format!("{count} values of {VALUE}"))?;
    let place = container.place(VALUES);
    if count == 0 {
        return Err(place.unexpected(section.offset, "number of values", "at least 1", count));
    }
    // Before there is memory for the others: a file of zeros, however large, is refused at once.
    let mut first = [0; VALUE];
    source.read_at(&mut first, section.offset).map_err(|e| place.read_failed(e))?;
    if scalar_from_plain(&first) != Some(Scalar::ONE) {
        return Err(place.unexpected(section.offset, "value 0", "1", "another value"));
    }
    let count = usize::try_from(count).map_err(|_| place.changed())?;
    let mut values: HostBuf<Scalar> = memory
        .zeroed(MemoryClass::Witness, count)
        .map_err(|e| place.io("cannot hold the witness", std::io::Error::other(e)))?;
    // Every piece is looked at, so that the first fault in the file is the one reported.
    let faults: Vec<_> = values
        .par_chunks_mut(PIECE)
        .enumerate()
        .filter_map(|(piece, out)| read_piece(source, section, piece.saturating_mul(PIECE), out, &place).err())
        .collect();
    if let Some(fault) = faults.into_iter().next() {
        return Err(fault);
    }
    // A file that has changed meanwhile.
    if values.first() == Some(&Scalar::ONE) { Ok(values) } else { Err(place.changed()) }
}

fn value_offset(section: Section, index: usize) -> u64 {
    section.offset.saturating_add((index as u64).saturating_mul(VALUE as u64))
}

fn read_piece(
    source: &(impl Source + ?Sized),
    section: Section,
    first: usize,
    out: &mut [Scalar],
    place: &Place,
) -> FormatResult<()> {
    let mut bytes = vec![0; out.len().saturating_mul(VALUE)];
    source.read_at(&mut bytes, value_offset(section, first)).map_err(|e| place.read_failed(e))?;
    let (plain, _) = bytes.as_chunks::<VALUE>();
    for (i, (scalar, plain)) in out.iter_mut().zip(plain).enumerate() {
        *scalar = scalar_from_plain(plain).ok_or_else(|| {
            let index = first.saturating_add(i);
            place.unexpected(value_offset(section, index), format!("value {index}"), "less than r", "r or more")
        })?;
    }
    Ok(())
}

/// Writes a witness, which appears whole or not at all.
///
/// # Errors
/// If there are no values, 2^32 or more, or the first isn't 1; if the file can't be written.
pub fn write_wtns(path: &Path, values: &[Scalar]) -> FormatResult<()> {
    let count = checked_count(&Place::file(path), values)?;
    let mut output = OutputFile::create(path)?;
    output.fill(|out| write(out, count, values))?;
    output.commit()
}

/// A witness file in memory: what [`write_wtns`] writes.
///
/// # Errors
/// As [`write_wtns`]; `name` stands in messages.
pub fn wtns_to_bytes(name: &Path, values: &[Scalar]) -> FormatResult<Vec<u8>> {
    let place = Place::file(name);
    let mut bytes = Vec::new();
    write(&mut bytes, checked_count(&place, values)?, values).map_err(|e| place.io("cannot write", e))?;
    Ok(bytes)
}

fn checked_count(place: &Place, values: &[Scalar]) -> FormatResult<u32> {
    let count = u32::try_from(values.len())
        .map_err(|_| place.unexpected(None, "number of values", "less than 2^32", values.len()))?;
    if values.first() == Some(&Scalar::ONE) {
        Ok(count)
    } else {
        Err(place.unexpected(None, "value 0", "1", if count == 0 { "none" } else { "another value" }))
    }
}

fn write(out: &mut dyn Write, count: u32, values: &[Scalar]) -> io::Result<()> {
    out.write_all(&FORMAT.magic)?;
    for number in [FORMAT.version, 2, HEADER] {
        out.write_all(&number.to_le_bytes())?;
    }
    out.write_all(&40u64.to_le_bytes())?;
    out.write_all(&(VALUE as u32).to_le_bytes())?;
    out.write_all(&R_BYTES)?;
    out.write_all(&count.to_le_bytes())?;
    out.write_all(&VALUES.to_le_bytes())?;
    out.write_all(&u64::from(count).saturating_mul(VALUE as u64).to_le_bytes())?;
    let batch = PIECE.saturating_mul(rayon::current_num_threads()).max(PIECE);
    for batch in values.chunks(batch) {
        let plain: Vec<[u8; VALUE]> = batch.par_iter().map(Scalar::to_bytes_le).collect();
        out.write_all(plain.as_flattened())?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use rand_core::OsRng;

    use super::super::Problem;
    use super::*;

    #[test]
    fn witnesses_of_all_sizes_round_trip() {
        for count in [1, 2, 3, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5] {
            let mut values: Vec<_> = (0..count).map(|_| Scalar::random(OsRng)).collect();
            values[count - 1] = -Scalar::ONE;
            values[count / 2] = Scalar::ZERO;
            values[0] = Scalar::ONE;
            let name = Path::new("w");
            let bytes = wtns_to_bytes(name, &values).unwrap();
            assert_eq!(bytes.len(), 76 + 32 * count);
            assert_eq!(*wtns_from_bytes(name, &bytes, &HostMemory::default()).unwrap(), values[..]);
        }
        assert!(wtns_to_bytes(Path::new("w"), &[]).is_err());
        assert!(wtns_to_bytes(Path::new("w"), &[Scalar::ZERO]).is_err());
    }

    /// Bytes that end before their size says.
    struct Shrunk(Vec<u8>, usize);

    impl Source for Shrunk {
        fn size(&self) -> u64 {
            self.0.len() as u64
        }
        fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
            self.0[..self.1].read_at(out, offset)
        }
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_read_is_an_error() {
        let bytes = wtns_to_bytes(Path::new("w"), &vec![Scalar::ONE; 2 * PIECE]).unwrap();
        for left in [0, 5, 13, 40, 70, 76, 80, bytes.len() / 2, bytes.len() - 1] {
            let source = Shrunk(bytes.clone(), left);
            let error = read(&source, &Place::file(Path::new("w")), &HostMemory::default(), None).unwrap_err();
            assert!(matches!(error.problem(), Problem::Changed), "{left}: {error}");
        }
    }

    #[test]
    fn a_witness_that_memory_cannot_hold_is_refused() {
        let bytes = wtns_to_bytes(Path::new("w"), &[Scalar::ONE; 100]).unwrap();
        let memory = HostMemory::new(splitprover_core::MemoryLedger::new(Some(1000)));
        let message = wtns_from_bytes(Path::new("w"), &bytes, &memory).unwrap_err().to_string();
        assert!(message.contains("cannot hold the witness"), "{message}");
    }
}
