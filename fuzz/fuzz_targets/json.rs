//! Proof, public inputs or verification key of any text are read or refused; what is read is written back to the same value.
//! The first byte says which of them the rest is.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use splitprover_harness::formats::json;

fuzz_target!(|data: &[u8]| {
    let name = Path::new("fuzz.json");
    let Some((&kind, text)) = data.split_first() else { return };
    match kind {
        b'p' => {
            let Ok(proof) = json::proof_from_bytes(name, text) else { return };
            let written = json::proof_to_json(&proof);
            assert_eq!(json::proof_from_bytes(name, written.as_bytes()).expect("a written proof can be read"), proof);
        }
        b'v' => {
            let Ok(key) = json::verifying_key_from_bytes(name, text) else { return };
            let written = json::verifying_key_to_json(&key);
            let again = json::verifying_key_from_bytes(name, written.as_bytes()).expect("a written key can be read");
            assert_eq!(again, key);
        }
        count => {
            let count = usize::from(count % 16);
            let Ok(public) = json::public_from_bytes(name, text, count) else { return };
            assert_eq!(public.len(), count);
            let written = json::public_to_json(&public);
            let again = json::public_from_bytes(name, written.as_bytes(), count).expect("written inputs can be read");
            assert_eq!(again, public);
        }
    }
});
