//! Verification, of the compact encoding under a fixed key and of three JSON files.

use std::path::Path;
use std::sync::OnceLock;

use splitprover_core::{PreparedVerifyingKey, Proof, Scalar, VerifyingKey};
use splitprover_harness::formats::{json, proofs_from_bytes};

use crate::Outcome;

/// A proof that holds.
struct Case {
    key: VerifyingKey,
    prepared: PreparedVerifyingKey,
    public: Vec<Scalar>,
    proof: Proof,
}

impl Case {
    fn get() -> &'static Self {
        static CASE: OnceLock<Case> = OnceLock::new();
        CASE.get_or_init(|| {
            let name = Path::new("mul2");
            let key = json::verifying_key_from_bytes(name, include_bytes!("../../cases/mul2/vkey.json"));
            let key = key.expect("the case's key");
            let public = include_bytes!("../../cases/mul2/public.json");
            let public = json::public_from_bytes(name, public, key.num_public()).expect("the case's inputs");
            let proof = json::proof_from_bytes(name, include_bytes!("../../cases/mul2/proof_rs.json"));
            Self { prepared: PreparedVerifyingKey::new(&key), key, public, proof: proof.expect("the case's proof") }
        })
    }

    /// Whether a proof of the case's statement may hold. (−A, −B, C) is the same proof: Groth16 is malleable. Anything else
    /// that a fuzzer comes upon would be a forgery.
    fn is_known(&self, proof: &Proof) -> bool {
        let malleable = proof.a() == -self.proof.a() && proof.b() == -self.proof.b() && proof.c() == self.proof.c();
        malleable || *proof == self.proof
    }
}

/// 192 bytes: a proof under a fixed key, in its one encoding. A multiple of that: proofs one after the other, which are read to the
/// values that they are the encoding of. Anything else: verification key, public inputs and proof as JSON,
/// with zero bytes between them. Only the proof that the fixed key's case has holds under that key, alone and in a batch.
pub fn verify(data: &[u8]) -> Outcome {
    match <&[u8; Proof::BYTES]>::try_from(data) {
        Ok(bytes) => compact(bytes),
        Err(_) if data.len().is_multiple_of(Proof::BYTES) && data.first().is_some_and(|&first| first >= 0x80) => {
            several(data)
        }
        Err(_) => files(data),
    }
}

fn several(data: &[u8]) -> Outcome {
    let Ok(proofs) = proofs_from_bytes(Path::new("fuzz.proofs"), data) else { return Outcome::Refused };
    assert_eq!(proofs.iter().flat_map(Proof::to_bytes).collect::<Vec<u8>>(), data, "one encoding for each proof");
    Outcome::Accepted
}

fn compact(bytes: &[u8; Proof::BYTES]) -> Outcome {
    let case = Case::get();
    let Ok(candidate) = Proof::from_bytes(bytes) else { return Outcome::Refused };
    assert_eq!(&candidate.to_bytes(), bytes, "one encoding for each proof");
    let holds = case.prepared.verify(&candidate, &case.public).expect("as many inputs as the key has");
    assert_eq!(holds, case.is_known(&candidate));
    let batch = [(case.proof, case.public.clone()), (candidate, case.public.clone())];
    assert_eq!(case.prepared.verify_batch(&batch).expect("as many inputs as the key has"), holds);
    if holds { Outcome::Accepted } else { Outcome::Refused }
}

fn files(data: &[u8]) -> Outcome {
    let case = Case::get();
    let mut parts = data.split(|&byte| byte == 0);
    let (Some(key), Some(public), Some(proof), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Outcome::Refused;
    };
    let name = Path::new("fuzz.json");
    let Ok(key) = json::verifying_key_from_bytes(name, key) else { return Outcome::Refused };
    let Ok(public) = json::public_from_bytes(name, public, key.num_public()) else { return Outcome::Refused };
    let Ok(proof) = json::proof_from_bytes(name, proof) else { return Outcome::Refused };
    let holds = PreparedVerifyingKey::new(&key).verify(&proof, &public).expect("as many inputs as the key has");
    if key == case.key {
        assert_eq!(holds, public == case.public && case.is_known(&proof));
    }
    if holds { Outcome::Accepted } else { Outcome::Refused }
}
