//! An `.r1cs` of any bytes is read or refused; one that is read is written and read again to the same constraints.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    splitprover_fuzzing::r1cs(data);
});
