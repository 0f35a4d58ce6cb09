//! An `.r1cs` of any bytes is read or refused; one that is read is written and read again to the same constraints.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use splitprover_core::Scalar;
use splitprover_harness::formats::R1csFile;
use splitprover_harness::formats::r1cs::r1cs_to_bytes;

fuzz_target!(|data: &[u8]| {
    let name = Path::new("fuzz.r1cs");
    let Ok(file) = R1csFile::from_bytes(name, data.to_vec()) else { return };
    // Any assignment, a short one too, is answered.
    let _ = file.first_broken(&[Scalar::from(1), Scalar::from(2)]);
    // A few bytes may declare four billion wires; writing them with their labels is legal, and too much for a fuzzer.
    if file.header().num_constraints.max(file.header().num_wires) > 1 << 16 {
        return;
    }
    let Ok([a, b, c]) = file.matrices(name) else { return };
    let labels = file.labels();
    let Ok(written) = r1cs_to_bytes(name, file.header(), [&a, &b, &c], labels.as_deref()) else { return };
    let again = R1csFile::from_bytes(name, written).expect("constraints that were written can be read");
    assert_eq!(again.header(), file.header());
    // A file without labels is written with the wires' own numbers: circom's tools want the section.
    assert!(labels.is_none() || again.labels() == labels);
    assert_eq!(again.matrices(name).expect("they fit before"), [a, b, c]);
});
