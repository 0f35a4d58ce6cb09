//! Any arguments that a plug-in's `start` may get.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    splitprover_fuzzing::start_arguments(data);
});
