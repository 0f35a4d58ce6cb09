//! A `.wtns` of any bytes is read or refused; one that is read is written and read again to the same values.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use splitprover_core::HostMemory;
use splitprover_harness::formats::{wtns_from_bytes, wtns_to_bytes};

fuzz_target!(|data: &[u8]| {
    let (name, memory) = (Path::new("fuzz.wtns"), HostMemory::default());
    let Ok(values) = wtns_from_bytes(name, data, &memory) else { return };
    let written = wtns_to_bytes(name, &values).expect("a witness that was read can be written");
    let again = wtns_from_bytes(name, &written, &memory).expect("a witness that was written can be read");
    assert_eq!(*again, *values);
});
