//! Proof, public inputs or verification key of any text are read or refused; what is read is written back to the same value.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    splitprover_fuzzing::json(data);
});
