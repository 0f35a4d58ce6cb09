//! Writing a `.r1cs`, in circom's order of sections.

use std::io::{self, Write};
use std::path::Path;

use splitprover_core::CsrMatrix;

use crate::formats::error::{FormatResult, Place};
use crate::formats::field::R_BYTES;
use crate::formats::output::OutputFile;

use super::{CONSTRAINTS, FORMAT, HEADER, HEADER_BYTES, LABEL, LABELS, R1csHeader, TERM};

/// Writes a constraint system, which appears whole or not at all.
///
/// `matrices` are A, B and C, of `num_constraints` rows and `num_wires` columns; `labels` has one for each wire. `None`
/// labels wire i with i.
///
/// # Errors
/// If the sizes don't agree; if the file can't be written.
pub fn write_r1cs(
    path: &Path,
    header: R1csHeader,
    matrices: [&CsrMatrix; 3],
    labels: Option<&[u64]>,
) -> FormatResult<()> {
    check(&Place::file(path), header, matrices, labels)?;
    let mut output = OutputFile::create(path)?;
    output.fill(|out| write(out, header, matrices, labels))?;
    output.commit()
}

/// A constraint system's file in memory: what [`write_r1cs`] writes.
///
/// # Errors
/// As [`write_r1cs`]; `name` stands in messages.
pub fn r1cs_to_bytes(
    name: &Path,
    header: R1csHeader,
    matrices: [&CsrMatrix; 3],
    labels: Option<&[u64]>,
) -> FormatResult<Vec<u8>> {
    let place = Place::file(name);
    check(&place, header, matrices, labels)?;
    let mut bytes = Vec::new();
    write(&mut bytes, header, matrices, labels).map_err(|e| place.io("cannot write", e))?;
    Ok(bytes)
}

fn check(place: &Place, header: R1csHeader, matrices: [&CsrMatrix; 3], labels: Option<&[u64]>) -> FormatResult<()> {
    let require = |what: &str, expected: usize, found: usize| {
        if expected == found { Ok(()) } else { Err(place.unexpected(None, what, expected, found)) }
    };
    let wires = header.num_wires as usize;
    if header.num_public() >= wires {
        let expected = format!("more than the {} outputs and public inputs", header.num_public());
        return Err(place.unexpected(None, "number of wires", expected, wires));
    }
    for matrix in matrices {
        require("rows of a matrix", header.num_constraints as usize, matrix.num_rows())?;
        require("columns of a matrix", wires, matrix.num_columns())?;
    }
    if let Some(labels) = labels {
        require("number of labels", wires, labels.len())?;
    }
    let label = labels.map_or(u64::from(header.num_wires).checked_sub(1), |labels| labels.iter().max().copied());
    match label {
        Some(label) if label >= header.num_labels => {
            Err(place.unexpected(None, "number of labels", format!("more than {label}"), header.num_labels))
        }
        _ => Ok(()),
    }
}

fn write(out: &mut dyn Write, header: R1csHeader, matrices: [&CsrMatrix; 3], labels: Option<&[u64]>) -> io::Result<()> {
    out.write_all(&FORMAT.magic)?;
    out.write_all(&FORMAT.version.to_le_bytes())?;
    out.write_all(&3u32.to_le_bytes())?;

    let terms = matrices.iter().fold(0u64, |sum, matrix| sum.saturating_add(matrix.num_entries() as u64));
    let counts = u64::from(header.num_constraints).saturating_mul(3).saturating_mul(4);
    section(out, CONSTRAINTS, terms.saturating_mul(TERM as u64).saturating_add(counts))?;
    for row in 0..header.num_constraints as usize {
        for matrix in matrices {
            // A row has as many terms as there are wires at most, or repeats; either way below 2^32, as all entries are.
            let terms: Vec<_> = matrix.row(row).collect();
            out.write_all(&(terms.len() as u32).to_le_bytes())?;
            for (wire, coefficient) in terms {
                out.write_all(&(wire as u32).to_le_bytes())?;
                out.write_all(&coefficient.to_bytes_le())?;
            }
        }
    }

    section(out, HEADER, HEADER_BYTES)?;
    out.write_all(&(R_BYTES.len() as u32).to_le_bytes())?;
    out.write_all(&R_BYTES)?;
    for number in [header.num_wires, header.num_outputs, header.num_public_inputs, header.num_private_inputs] {
        out.write_all(&number.to_le_bytes())?;
    }
    out.write_all(&header.num_labels.to_le_bytes())?;
    out.write_all(&header.num_constraints.to_le_bytes())?;

    section(out, LABELS, u64::from(header.num_wires).saturating_mul(LABEL as u64))?;
    match labels {
        Some(labels) => labels.iter().try_for_each(|label| out.write_all(&label.to_le_bytes())),
        None => (0..u64::from(header.num_wires)).try_for_each(|label| out.write_all(&label.to_le_bytes())),
    }
}

fn section(out: &mut dyn Write, kind: u32, size: u64) -> io::Result<()> {
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&size.to_le_bytes())
}
