//! Readers of files, and round trips: what is read is written, and read again to the same.

use std::path::Path;
use std::sync::Arc;

use splitprover_core::{CsrMatrix, HostMemory, Matrices, RootOfUnity, Scalar};
use splitprover_harness::formats::params::{Circuit, params_to_bytes};
use splitprover_harness::formats::r1cs::r1cs_to_bytes;
use splitprover_harness::formats::zkey::Extras;
use splitprover_harness::formats::{
    OpenOptions, ParamsFile, R1csFile, ZkeyFile, json as text, wtns_from_bytes, wtns_to_bytes, zkey_to_bytes,
};

use crate::Outcome;

/// A `.zkey`. One that is read is written and read again to the same key, and written again to the same bytes.
pub fn zkey(data: &[u8]) -> Outcome {
    let name = Path::new("fuzz.zkey");
    let read = |bytes: &[u8]| ZkeyFile::from_bytes(name, bytes.to_vec(), OpenOptions::default());
    let Ok(file) = read(data) else { return Outcome::Refused };
    let write = |file: &ZkeyFile| {
        let extras = Extras { mark: file.mark.as_ref(), ..Extras::default() };
        zkey_to_bytes(name, &file.key, extras).expect("a key that was read can be written")
    };
    let written = write(&file);
    let again = read(&written).expect("a key that was written can be read");
    assert_eq!(again.key.shape(), file.key.shape());
    assert_eq!(again.key.verifying_key(), file.key.verifying_key());
    assert_eq!(write(&again), written);
    Outcome::Accepted
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
    // A few bytes may declare four billion wires; writing them with their labels is legal, and too much for a fuzzer.
    if file.header().num_constraints.max(file.header().num_wires) > 1 << 16 {
        return Outcome::Accepted;
    }
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
    Outcome::Accepted
}

/// A `.params`. One that is read is written again, with a circuit of its counts, byte for byte.
pub fn params(data: &[u8]) -> Outcome {
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
