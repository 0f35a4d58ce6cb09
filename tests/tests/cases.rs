//! Circuits compiled by circom, set up and proved by snarkjs: nothing in them was made by this project.
//!
//! `SPLITPROVER_CASES` may name a folder with more cases, laid out like `tests/cases`.

use std::path::Path;

use splitprover_core::HostMemory;
use splitprover_harness::formats::json::{
    proof_to_json, public_to_json, read_proof, read_public, read_verifying_key, verifying_key_to_json,
};
use splitprover_harness::formats::zkey::Extras;
use splitprover_harness::formats::{OpenOptions, ZkeyFile, read_wtns, wtns_to_bytes, zkey_to_bytes};
use splitprover_tests::cases::circuits;

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn verification_keys_and_public_inputs_are_snarkjs_own_byte_for_byte() {
    for case in circuits() {
        let zkey = ZkeyFile::open(&case.join("circuit.zkey"), OpenOptions::default()).unwrap();
        let vkey = zkey.key.verifying_key();
        assert_eq!(verifying_key_to_json(vkey), text(&case.join("vkey.json")), "{}", case.display());
        assert_eq!(&read_verifying_key(&case.join("vkey.json")).unwrap(), vkey, "{}", case.display());

        let witness = read_wtns(&case.join("witness.wtns"), &HostMemory::default()).unwrap();
        let public = &witness[1..=vkey.num_public()];
        assert_eq!(public_to_json(public), text(&case.join("public.json")), "{}", case.display());
        assert_eq!(read_public(&case.join("public.json"), public.len()).unwrap(), public);

        let proof = read_proof(&case.join("proof_rs.json")).unwrap();
        assert_eq!(proof_to_json(&proof), text(&case.join("proof_rs.json")), "{}", case.display());
    }
}

#[test]
fn another_curve_is_refused_by_name() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/x_bn128_mul2");
    let refused = [
        ZkeyFile::open(&case.join("circuit.zkey"), OpenOptions::default()).unwrap_err(),
        read_wtns(&case.join("witness.wtns"), &HostMemory::default()).unwrap_err(),
        read_verifying_key(&case.join("vkey.json")).unwrap_err(),
        read_proof(&case.join("proof_rs.json")).unwrap_err(),
    ];
    for error in refused {
        assert!(error.to_string().contains("made for BN254: only BLS12-381"), "{error}");
    }
}

#[test]
fn keys_and_witnesses_written_again_are_the_same_files() {
    for case in circuits() {
        let path = case.join("circuit.zkey");
        let read = ZkeyFile::open(&path, OpenOptions::default()).unwrap();
        let extras = Extras { contributions: read.contributions.as_ref(), mark: read.mark.as_ref() };
        let written = zkey_to_bytes(&path, &read.key, extras).unwrap();
        let original = std::fs::read(&path).unwrap();
        // snarkjs orders sections by number, but for keys that nobody contributed to.
        if read.sections.is_sorted_by_key(|section| section.kind) {
            assert!(written == original, "{}", path.display());
        } else {
            assert_eq!(written.len(), original.len());
        }
        let again = ZkeyFile::from_bytes(&path, written.clone(), OpenOptions::default()).unwrap();
        assert_eq!(again.contributions, read.contributions);
        assert_eq!(again.key.matrices().unwrap().a, read.key.matrices().unwrap().a);
        let extras = Extras { contributions: again.contributions.as_ref(), mark: None };
        assert!(zkey_to_bytes(&path, &again.key, extras).unwrap() == written, "{}", path.display());

        let path = case.join("witness.wtns");
        let witness = read_wtns(&path, &HostMemory::default()).unwrap();
        assert!(wtns_to_bytes(&path, &witness).unwrap() == std::fs::read(&path).unwrap(), "{}", path.display());
    }
}
