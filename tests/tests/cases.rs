//! Circuits compiled by circom, set up and proved by snarkjs: nothing in them was made by this project.
//!
//! `SPLITPROVER_CASES` may name a folder with more cases, laid out like `tests/cases`.

use std::path::{Path, PathBuf};

use splitprover_core::HostMemory;
use splitprover_harness::formats::json::{
    proof_to_json, public_to_json, read_proof, read_public, read_verifying_key, verifying_key_to_json,
};
use splitprover_harness::formats::{OpenOptions, ZkeyFile, read_wtns};

/// The folders of all cases over BLS12-381.
fn cases() -> Vec<PathBuf> {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let more = std::env::var_os("SPLITPROVER_CASES").map(PathBuf::from);
    let mut found: Vec<PathBuf> = [Some(committed), more]
        .into_iter()
        .flatten()
        .flat_map(|folder| std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("circuit.zkey").is_file() && !path.ends_with("x_bn128_mul2"))
        .collect();
    found.sort();
    assert!(found.len() >= 20, "only {} cases", found.len());
    found
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn verification_keys_and_public_inputs_are_snarkjs_own_byte_for_byte() {
    for case in cases() {
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
