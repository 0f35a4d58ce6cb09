//! A `.params` of any bytes is read or refused; one that is read is written again to the same bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    splitprover_fuzzing::params(data);
});
