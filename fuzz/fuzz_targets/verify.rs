//! Verification of any proof bytes under a fixed key: only the proof that the key was made for holds, and the compact
//! encoding is canonical.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use splitprover_core::{PreparedVerifyingKey, Proof, Scalar};
use splitprover_harness::formats::json;

struct Case {
    key: PreparedVerifyingKey,
    public: Vec<Scalar>,
    proof: Proof,
}

fn case() -> &'static Case {
    static CASE: OnceLock<Case> = OnceLock::new();
    CASE.get_or_init(|| {
        let name = Path::new("mul2");
        let key = json::verifying_key_from_bytes(name, include_bytes!("../../tests/cases/mul2/vkey.json")).unwrap();
        let public = include_bytes!("../../tests/cases/mul2/public.json");
        let public = json::public_from_bytes(name, public, key.num_public()).unwrap();
        let proof = json::proof_from_bytes(name, include_bytes!("../../tests/cases/mul2/proof_rs.json")).unwrap();
        Case { key: PreparedVerifyingKey::new(&key), public, proof }
    })
}

fuzz_target!(|data: &[u8]| {
    let Case { key, public, proof } = case();
    let Ok(bytes) = <&[u8; Proof::BYTES]>::try_from(data) else { return };
    let Ok(candidate) = Proof::from_bytes(bytes) else { return };
    assert_eq!(&candidate.to_bytes(), bytes, "one encoding for each proof");
    let holds = key.verify(&candidate, public).expect("as many inputs as the key has");
    // (−A, −B, C) is the same proof: Groth16 is malleable. Anything else would be a forgery.
    let malleable = candidate.a() == -proof.a() && candidate.b() == -proof.b() && candidate.c() == proof.c();
    assert_eq!(holds, candidate == *proof || malleable);
    let batch = [(*proof, public.clone()), (candidate, public.clone())];
    assert_eq!(key.verify_batch(&batch).expect("as many inputs as the key has"), holds);
});
