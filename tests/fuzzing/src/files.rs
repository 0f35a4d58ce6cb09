//! Readers of files, and round trips: what is read is written, and read again to the same.

use std::path::Path;
use std::sync::Arc;

use splitprover_core::{CsrMatrix, HostMemory, Matrices, PointRecord, ProvingKey, Query, RootOfUnity, Scalar};
use splitprover_harness::formats::params::{Circuit, params_to_bytes};
use splitprover_harness::formats::r1cs::r1cs_to_bytes;
use splitprover_harness::formats::zkey::Extras;
use splitprover_harness::formats::{
    OpenOptions, ParamsFile, R1csFile, ZkeyFile, json as text, wtns_from_bytes, wtns_to_bytes, zkey_to_bytes,
};

use crate::Outcome;

/// A `.zkey`. One that is read is written and read again to the same key, in every part, and written again to the same bytes.
pub fn zkey(data: &[u8]) -> Outcome {
    let name = Path::new("fuzz.zkey");
    let read = |bytes: &[u8]| ZkeyFile::from_bytes(name, bytes.to_vec(), OpenOptions::default());
    let Ok(file) = read(data) else { return Outcome::Refused };
    let write = |file: &ZkeyFile| {
        let extras = Extras { mark: file.mark.as_ref(), contributions: file.contributions.as_ref() };
        zkey_to_bytes(name, &file.key, extras).expect("a key that was read can be written")
    };
    let written = write(&file);
    let again = read(&written).expect("a key that was written can be read");
    assert_same_key(&again.key, &file.key);
    assert_eq!(again.mark, file.mark);
    // A key without the section is written with an empty one: snarkjs's tools want it to be there.
    assert!(file.contributions.is_none() || again.contributions == file.contributions);
    assert_eq!(write(&again), written);
    Outcome::Accepted
}

fn assert_same_key(found: &ProvingKey, expected: &ProvingKey) {
    assert_eq!(found.shape(), expected.shape());
    assert_eq!((found.domain(), found.h_basis()), (expected.domain(), expected.h_basis()));
    assert_eq!(found.verifying_key(), expected.verifying_key());
    assert_eq!((found.beta_g1(), found.delta_g1()), (expected.beta_g1(), expected.delta_g1()));
    fn assert_same_query<C: PointRecord>(found: &Query<C>, expected: &Query<C>) {
        assert_eq!(found.density(), expected.density());
        assert_eq!(found.table().as_bytes(), expected.table().as_bytes());
    }
    assert_same_query(found.a(), expected.a());
    assert_same_query(found.b_g1(), expected.b_g1());
    assert_same_query(found.b_g2(), expected.b_g2());
    assert_same_query(found.l(), expected.l());
    assert_same_query(found.h(), expected.h());
    let (Some(found), Some(expected)) = (found.matrices(), expected.matrices()) else {
        panic!("a key without matrices")
    };
    for (found, expected) in [(&found.a, &expected.a), (&found.b, &expected.b)] {
        // Coefficients may be numbered in another order.
        let size = |matrix: &CsrMatrix| (matrix.num_rows(), matrix.num_columns(), matrix.num_entries());
        assert_eq!(size(found), size(expected));
        assert!((0..expected.num_rows()).all(|row| found.row(row).eq(expected.row(row))));
    }
}

/// A `.wtns`. One that is read is written and read again to the same values.
pub fn wtns(data: &[u8]) -> Outcome {
    let (name, memory) = (Path::new("fuzz.wtns"), HostMemory::default());
    let Ok(values) = wtns_from_bytes(name, data, &memory) else { return Outcome::Refused };
    let written = wtns_to_bytes(name, &values).expect("a witness that was read can be written");
    let again = wtns_from_bytes(name, &written, &memory).expect("a witness that was written can be read");
    assert_eq!(*again, *values);
    Outcome::Accepted
}

/// An `.r1cs`. One that is read answers for any assignment, is written and read again to the same constraints.
pub fn r1cs(data: &[u8]) -> Outcome {
    let name = Path::new("fuzz.r1cs");
    let Ok(file) = R1csFile::from_bytes(name, data.to_vec()) else { return Outcome::Refused };
    // A short assignment, too.
    let _ = file.first_broken(&[Scalar::from(1), Scalar::from(2)]);
    let Ok([a, b, c]) = file.matrices(name) else { return Outcome::Refused };
    let labels = file.labels();
    let Ok(written) = r1cs_to_bytes(name, file.header(), [&a, &b, &c], labels.as_deref()) else {
        return Outcome::Refused;
    };
    let again = R1csFile::from_bytes(name, written).expect("constraints that were written can be read");
    assert_eq!(again.header(), file.header());
    // A file without labels is written with the wires' own numbers: circom's tools want the section.
    assert!(labels.is_none() || again.labels() == labels);
    assert_eq!(again.matrices(name).expect("they fit before"), [a, b, c]);
    let circuit = Circuit::from_r1cs(name, &again).expect("they fit before");
    assert_circuit_is_written(&circuit);
    Outcome::Accepted
}

/// What a circuit's own file begins with, and how long its checksum is.
const CIRCUIT: (&[u8], usize) = (b"SPcircu1", 32);

/// A circuit's own file, whose checksum is put right. One that is read is written and read again to the same circuit.
fn circuit(data: &[u8]) -> Outcome {
    let (magic, checksum) = CIRCUIT;
    let body = data.get(magic.len() + checksum..).unwrap_or_default();
    // Of up to 1 MiB: the hash of the only piece's hash.
    let checksum = blake3::hash(blake3::hash(body).as_bytes());
    let bytes = [magic, checksum.as_bytes(), body].concat();
    let Ok(circuit) = Circuit::from_bytes(Path::new("fuzz.circuit"), &bytes) else { return Outcome::Refused };
    assert_circuit_is_written(&circuit);
    Outcome::Accepted
}

fn assert_circuit_is_written(circuit: &Circuit) {
    let name = Path::new("fuzz.circuit");
    // One of almost nothing but variables that don't occur isn't written.
    let Ok(written) = circuit.to_bytes(name) else { return };
    let again = Circuit::from_bytes(name, &written).expect("a circuit that was written can be read");
    assert_eq!(again.num_public(), circuit.num_public());
    assert_eq!((&again.matrices().a, &again.matrices().b), (&circuit.matrices().a, &circuit.matrices().b));
    assert_eq!((again.density_a(), again.density_b()), (circuit.density_a(), circuit.density_b()));
}

/// A `.params`, or the file of a circuit that goes with one. A key that is read is written again, with a circuit of its counts, byte
/// for byte.
pub fn params(data: &[u8]) -> Outcome {
    if data.starts_with(CIRCUIT.0) {
        return circuit(data);
    }
    let name = Path::new("fuzz.params");
    let Ok(file) = ParamsFile::from_bytes(name, data.to_vec(), OpenOptions::default()) else { return Outcome::Refused };
    let (shape, counts) = (file.shape(), file.counts());
    // Any circuit with these counts will do: the first variables occur, all in the first row.
    let row = |dense: usize| {
        let entries = move || (0..dense as u32).map(|variable| (0, variable, Scalar::from(1)));
        CsrMatrix::from_entries(shape.domain_size(), shape.num_variables, entries).expect("indices in range")
    };
    let matrices = Matrices { a: row(counts.a), b: row(counts.b) };
    let circuit = Circuit::new(Path::new("fuzz.r1cs"), Arc::new(matrices), shape.num_public);
    let key = file.key(&circuit, RootOfUnity::bellman()).expect("a circuit of the file's counts");
    assert_eq!(params_to_bytes(name, &key).expect("a key that was read can be written"), data);
    Outcome::Accepted
}

/// A proof, public inputs or a verification key: the first byte says which, `p`, how many, or `v`. What is read is written
/// back to the same value.
pub fn json(data: &[u8]) -> Outcome {
    let name = Path::new("fuzz.json");
    let Some((&kind, bytes)) = data.split_first() else { return Outcome::Refused };
    match kind {
        b'p' => {
            let Ok(proof) = text::proof_from_bytes(name, bytes) else { return Outcome::Refused };
            let written = text::proof_to_json(&proof);
            assert_eq!(text::proof_from_bytes(name, written.as_bytes()).expect("a written proof can be read"), proof);
        }
        b'v' => {
            let Ok(key) = text::verifying_key_from_bytes(name, bytes) else { return Outcome::Refused };
            let written = text::verifying_key_to_json(&key);
            let again = text::verifying_key_from_bytes(name, written.as_bytes()).expect("a written key can be read");
            assert_eq!(again, key);
        }
        count => {
            let count = usize::from(count % 16);
            let Ok(public) = text::public_from_bytes(name, bytes, count) else { return Outcome::Refused };
            assert_eq!(public.len(), count);
            let written = text::public_to_json(&public);
            let again = text::public_from_bytes(name, written.as_bytes(), count).expect("written inputs can be read");
            assert_eq!(again, public);
        }
    }
    Outcome::Accepted
}
