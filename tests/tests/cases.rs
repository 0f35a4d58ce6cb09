//! Circuits compiled by circom, set up and proved by snarkjs: nothing in them was made by this project.
//!
//! `SPLITPROVER_CASES` may name a folder with more cases, laid out like `tests/cases`.

use std::path::Path;

use blstrs::{G1Projective, Scalar};
use serde_json::Value;
use sha2::{Digest, Sha256};
use splitprover_backend_cpu::{CpuBackend, CpuOptions, kernels};
use splitprover_core::{Blinding, HostMemory, Inputs, Prover, QuerySums};
use splitprover_harness::formats::json::{
    proof_from_bytes, proof_to_json, public_from_bytes, public_to_json, read_proof, read_public, read_verifying_key,
    verifying_key_to_json,
};
use splitprover_harness::formats::r1cs::{Combination, R1csFile, r1cs_to_bytes};
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
        R1csFile::open(&case.join("circuit.r1cs")).unwrap_err(),
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

#[test]
fn constraint_systems_written_again_are_the_same_files() {
    for case in circuits() {
        let path = case.join("circuit.r1cs");
        let read = R1csFile::open(&path).unwrap();
        let [a, b, c] = read.matrices(&path).unwrap();
        let written = r1cs_to_bytes(&path, read.header(), [&a, &b, &c], read.labels().as_deref()).unwrap();
        assert!(written == std::fs::read(&path).unwrap(), "{}", path.display());

        // The key's matrices are those of the constraints, and then the rows of the public inputs.
        let key = ZkeyFile::open(&case.join("circuit.zkey"), OpenOptions::default()).unwrap().key;
        assert_eq!(key.shape().num_public, read.header().num_public());
        let (in_key, rows) = (key.matrices().unwrap(), a.num_rows());
        assert_eq!(in_key.a.num_rows(), rows + read.header().num_public() + 1);
        for row in 0..rows {
            assert!(a.row(row).eq(in_key.a.row(row)) && b.row(row).eq(in_key.b.row(row)), "{}", path.display());
        }
    }
}

#[test]
fn a_satisfied_witness_breaks_no_constraint_and_a_changed_one_is_caught() {
    for case in circuits() {
        let system = R1csFile::open(&case.join("circuit.r1cs")).unwrap();
        let mut witness = read_wtns(&case.join("witness.wtns"), &HostMemory::default()).unwrap();
        assert_eq!(system.first_broken(&witness), None, "{}", case.display());
        for wire in [1, witness.len() / 2, witness.len() - 1] {
            if wire == 0 || wire >= witness.len() {
                continue; // only the constant 1
            }
            let kept = witness[wire];
            witness[wire] += Scalar::from(0x1234_5678);
            // The definition, one constraint after the other.
            let value = |row: Combination<'_>| row.terms().map(|(w, c)| witness[w as usize] * c).sum::<Scalar>();
            let expected = system.constraints().position(|row| value(row.a) * value(row.b) != value(row.c));
            let broken = system.first_broken(&witness);
            assert_eq!(broken.as_ref().map(|broken| broken.index), expected, "{}, wire {wire}", case.display());
            if let Some(broken) = broken {
                assert_ne!(broken.a * broken.b, broken.c);
                assert!(broken.to_string().starts_with(&format!("constraint {} is broken: (", broken.index)));
            }
            witness[wire] = kept;
        }
    }
}

/// The sums of `sums.json`, H and L added up.
fn expected_sums(sums: &Value) -> QuerySums {
    // Points in the form of a proof's are read as a proof.
    let proof = |a: &str, c: &str| {
        let [a, b, c] = [a, "B2", c].map(|name| sums[name]["result"].to_string());
        let text =
            format!("{{\"pi_a\":{a},\"pi_b\":{b},\"pi_c\":{c},\"protocol\":\"groth16\",\"curve\":\"bls12381\"}}");
        proof_from_bytes(Path::new("sums.json"), text.as_bytes()).unwrap()
    };
    let (first, second) = (proof("A", "C"), proof("B1", "H"));
    let hl = G1Projective::from(first.c()) + second.c();
    QuerySums { a: first.a(), b_g1: second.a(), b_g2: first.b(), hl: hl.into() }
}

fn sha256(scalars: &[Scalar]) -> String {
    let mut hash = Sha256::new();
    scalars.iter().for_each(|scalar| hash.update(scalar.to_bytes_le()));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decimal(text: &Value) -> Scalar {
    let json = format!("[{text}]");
    public_from_bytes(Path::new("rs.json"), json.as_bytes(), 1).unwrap()[0]
}

#[test]
fn the_cpu_backend_finds_snarkjs_scalars_sums_and_proof() {
    let prover = Prover::new(CpuBackend::new(CpuOptions::default()).unwrap());
    for case in circuits() {
        let name = case.display();
        let json = |file: &str| serde_json::from_str::<Value>(&text(&case.join(file))).unwrap();
        let zkey = ZkeyFile::open(&case.join("circuit.zkey"), OpenOptions::default()).unwrap();
        let witness = || zkey.read_witness(&case.join("witness.wtns"), &HostMemory::default()).unwrap();
        let (sums, rs) = (json("sums.json"), json("rs.json"));

        let (key, w) = (&zkey.key, witness());
        let shape = key.shape();
        let arithmetic = prover.backend().arithmetic();
        let evaluations = |matrix| {
            let mut rows = kernels::matrix_product(matrix, &w);
            rows.resize(shape.domain_size(), Scalar::from(0));
            rows
        };
        let matrices = key.matrices().unwrap();
        let (a, b) = (evaluations(&matrices.a), evaluations(&matrices.b));
        let c = a.iter().zip(&b).map(|(a, b)| a * b).collect();
        let h = kernels::quotient(arithmetic, key.domain(), key.h_basis(), [a, b, c]);
        for (sum, scalars) in [("A", &w[..]), ("B1", &w), ("B2", &w), ("C", &w[shape.num_public + 1..]), ("H", &h)] {
            assert_eq!(sums[sum]["n_bases"], scalars.len(), "{name}: {sum}");
            assert_eq!(sums[sum]["scalars_sha256"], sha256(scalars), "{name}: {sum}");
        }

        let loaded = prover.load_key(key.clone()).unwrap();
        let found = prover.start(&loaded, Inputs::new(witness())).unwrap().finish_sums().unwrap();
        assert_eq!(found.differences(&expected_sums(&sums)), [""; 0], "{name}");

        let blinding = Blinding::insecure(decimal(&rs["r"]), decimal(&rs["s"]));
        let proof = prover.start(&loaded, Inputs::new(witness())).unwrap().finish_with(blinding).unwrap();
        assert_eq!(proof_to_json(&proof), text(&case.join("proof_rs.json")), "{name}");
    }
}
