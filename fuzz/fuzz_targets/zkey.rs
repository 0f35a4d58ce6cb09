//! A `.zkey` of any bytes is read or refused; one that is read is written and read again to the same key.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use splitprover_harness::formats::zkey::Extras;
use splitprover_harness::formats::{OpenOptions, ZkeyFile, zkey_to_bytes};

fuzz_target!(|data: &[u8]| {
    let name = Path::new("fuzz.zkey");
    let read = |bytes: &[u8]| ZkeyFile::from_bytes(name, bytes.to_vec(), OpenOptions::default());
    let Ok(file) = read(data) else { return };
    let extras = |file: &ZkeyFile| {
        let extras = Extras { mark: file.mark.as_ref(), ..Extras::default() };
        zkey_to_bytes(name, &file.key, extras).expect("a key that was read can be written")
    };
    let written = extras(&file);
    let again = read(&written).expect("a key that was written can be read");
    assert_eq!(again.key.shape(), file.key.shape());
    assert_eq!(again.key.verifying_key(), file.key.verifying_key());
    assert_eq!(extras(&again), written);
});
