//! A `.params` of any bytes is read or refused; one that is read is written again, with a circuit of its counts, byte for byte.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use splitprover_core::{CsrMatrix, Matrices, RootOfUnity, Scalar};
use splitprover_harness::formats::params::{Circuit, params_to_bytes};
use splitprover_harness::formats::{OpenOptions, ParamsFile};

fuzz_target!(|data: &[u8]| {
    let name = Path::new("fuzz.params");
    let Ok(file) = ParamsFile::from_bytes(name, data.to_vec(), OpenOptions::default()) else { return };
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
});
