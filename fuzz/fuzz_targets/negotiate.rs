//! Any range of versions that a host may ask a plug-in for, and any table that a plug-in may answer with.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    splitprover_fuzzing::negotiate(data);
});
