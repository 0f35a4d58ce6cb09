//! Verification of any proof under a fixed key, and of any three files.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    splitprover_fuzzing::verify(data);
});
