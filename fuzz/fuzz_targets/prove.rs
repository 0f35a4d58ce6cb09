//! Proving with any key that the reader lets through: an error, or a proof that holds.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    splitprover_fuzzing::prove(data);
});
