//! Every file of `tests/cases/malformed` meets the readers; none is taken that must be refused, and every refusal says where.

use std::path::{Path, PathBuf};

use serde_json::Value;
use splitprover_core::{HostMemory, Inputs, PreparedVerifyingKey};
use splitprover_harness::formats::json::{read_proof, read_public, read_verifying_key};
use splitprover_harness::formats::{FormatError, OpenOptions, ZkeyFile};

fn folder() -> PathBuf {
    splitprover_tests::cases::root().join("malformed")
}

/// What a program that only reads, checks and verifies would say: 0, 1 or 3.
fn read_pair(zkey: &Path, wtns: &Path) -> Result<(), String> {
    let zkey = ZkeyFile::open(zkey, OpenOptions::default()).map_err(checked_message)?;
    let witness = zkey.read_witness(wtns, &HostMemory::default()).map_err(checked_message)?;
    Inputs::new(witness).check(&zkey.key).unwrap();
    Ok(())
}

fn verify(base: &Path) -> Result<bool, String> {
    let with = |extension: &str| PathBuf::from(format!("{}.{extension}", base.display()));
    let key = read_verifying_key(&with("vkey.json")).map_err(checked_message)?;
    let public = read_public(&with("public.json"), key.num_public()).map_err(checked_message)?;
    let proof = read_proof(&with("proof.json")).map_err(checked_message)?;
    Ok(PreparedVerifyingKey::new(&key).verify(&proof, &public).unwrap())
}

/// Messages are one line and name the file.
fn checked_message(error: FormatError) -> String {
    let message = error.to_string();
    assert!(message.starts_with(&error.file().display().to_string()), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn every_file_gets_an_allowed_answer() {
    let expected: Value = serde_json::from_slice(&std::fs::read(folder().join("expected.json")).unwrap()).unwrap();
    let (base_zkey, base_wtns) = (folder().join("base.zkey"), folder().join("base.wtns"));
    let mut count = 0;
    for case in expected.as_array().unwrap() {
        let (id, kind) = (case["id"].as_str().unwrap(), case["kind"].as_str().unwrap());
        let allowed: Vec<u64> = case["exit"].as_array().unwrap().iter().map(|code| code.as_u64().unwrap()).collect();
        let path = folder().join(format!("{id}.{kind}"));
        let code = match kind {
            "zkey" | "wtns" => {
                let result = match kind {
                    "zkey" => read_pair(&path, &base_wtns),
                    _ => read_pair(&base_zkey, &path),
                };
                match result {
                    // Whether the proof verifies is seen where proofs are made: reading can only say yes or 3.
                    Ok(()) if allowed == [1] => 1,
                    Ok(()) => 0,
                    Err(message) => {
                        println!("{id}: {message}");
                        3
                    }
                }
            }
            "verify" => match verify(&folder().join(id)) {
                Ok(true) => 0,
                Ok(false) => 1,
                Err(message) => {
                    println!("{id}: {message}");
                    3
                }
            },
            other => panic!("{id}: kind {other}"),
        };
        assert!(allowed.contains(&code), "{id}: {code}, allowed are {allowed:?}");
        count += 1;
    }
    assert!(count >= 54, "only {count} cases");
}
