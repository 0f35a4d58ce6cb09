//! bellperson's `.params`: keys go through it unchanged, snarkjs's keys get into it, and nothing that isn't one gets out.

use std::fs::{File, FileTimes};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use blstrs::{G1Affine, G2Affine, Scalar};
use group::prime::PrimeCurveAffine;
use rand_core::{OsRng, RngCore};
use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_core::{
    Blinding, HBasis, HostMemory, Inputs, MemoryClass, PreparedVerifyingKey, Proof, Prover, ProvingKey, Query,
    RootOfUnity,
};
use splitprover_harness::formats::json::{read_proof, read_public};
use splitprover_harness::formats::params::{Circuit, params_to_bytes};
use splitprover_harness::formats::zkey::PointsChecked;
use splitprover_harness::formats::{
    FormatError, FormatResult, OpenOptions, ParamsFile, R1csFile, Stamps, ZkeyFile, read_proofs, read_wtns,
};
use splitprover_harness::setup::{
    ConstraintSystem, Constraints, CpuFixedBase, Matrix, Resources, Trapdoor, generate, monomial_h,
};
use splitprover_tests::cases;

const NAME: &str = "key.params";
/// Bytes of section 1.
const CONSTANTS: usize = 864;

fn make<S: ConstraintSystem>(system: &S) -> Arc<ProvingKey> {
    generated(system, 7)
}

fn generated<S: ConstraintSystem>(system: &S, seed: u64) -> Arc<ProvingKey> {
    let memory = HostMemory::default();
    let fixed_base = CpuFixedBase::new(4 * system.num_variables());
    let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
    generate(system, HBasis::Monomial, &Trapdoor::from_seed(seed, HBasis::Monomial), &resources).unwrap().key
}

fn r1cs(case: &str) -> (PathBuf, R1csFile) {
    let path = cases::root().join(case).join("circuit.r1cs");
    let file = R1csFile::open(&path).unwrap();
    (path, file)
}

fn circuit(case: &str) -> Circuit {
    let (path, file) = r1cs(case);
    Circuit::from_r1cs(&path, &file).unwrap()
}

/// A case's key as a `.params`.
fn file_of(case: &str) -> Vec<u8> {
    params_to_bytes(Path::new(NAME), &make(&r1cs(case).1)).unwrap()
}

fn read(bytes: &[u8]) -> FormatResult<ParamsFile> {
    ParamsFile::from_bytes(Path::new(NAME), bytes.to_vec(), OpenOptions::default())
}

fn read_deep(bytes: &[u8]) -> FormatResult<ParamsFile> {
    ParamsFile::from_bytes(Path::new(NAME), bytes.to_vec(), OpenOptions { deep: true, ..OpenOptions::default() })
}

fn refused(bytes: &[u8]) -> FormatError {
    let error = read(bytes).expect_err("a file that isn't as it should be");
    let text = error.to_string();
    assert!(text.starts_with(NAME) && text.contains("section ") && text.contains("expected "), "{text}");
    assert!(error.offset().is_some() && !text.contains('\n'), "{text}");
    error
}

fn prove(key: &Arc<ProvingKey>, witness: &[Scalar], blinding: Blinding) -> Proof {
    let prover = Prover::new(CpuBackend::new(CpuOptions::default()).unwrap());
    let loaded = prover.load_key(key.clone()).unwrap();
    let inputs = Inputs::new(HostMemory::default().copy_of(MemoryClass::Witness, witness).unwrap());
    prover.start(&loaded, inputs).unwrap().finish_with(blinding).unwrap()
}

fn blinding() -> Blinding {
    Blinding::insecure(Scalar::from(12), Scalar::from(34))
}

/// Where each section's count stands, and how many bytes its points have.
fn counts(bytes: &[u8]) -> [(usize, usize); 6] {
    let mut at = CONSTANTS;
    [96, 96, 96, 96, 96, 192].map(|point| {
        let here = at;
        at += 4 + point * u32::from_be_bytes(bytes[here..here + 4].try_into().unwrap()) as usize;
        (here, point)
    })
}

#[test]
fn development_keys_go_through_a_file_unchanged() {
    for case in ["mul2", "e_one_constraint", "e_nopub", "e_allpub", "poseidon2", "e_Bempty"] {
        let (_, system) = r1cs(case);
        let key = make(&system);
        let bytes = params_to_bytes(Path::new(NAME), &key).unwrap();
        let file = read_deep(&bytes).unwrap();
        assert_eq!(file.points_checked, PointsChecked::InSubgroup);
        assert_eq!((file.shape(), file.verifying_key()), (key.shape(), key.verifying_key()), "{case}");
        let again = file.key(&circuit(case), RootOfUnity::bellman()).unwrap();
        assert_eq!((again.domain(), again.h_basis()), (key.domain(), key.h_basis()));
        assert_eq!(params_to_bytes(Path::new(NAME), &again).unwrap(), bytes, "{case}");
        let dense = |key: &ProvingKey| {
            let of = |query: &Query<G1Affine>| query.dense().map(|(variable, _)| variable).collect::<Vec<_>>();
            [of(key.a()), of(key.b_g1()), of(key.l())]
        };
        assert_eq!(dense(&again), dense(&key), "{case}");

        let witness = read_wtns(&cases::root().join(case).join("witness.wtns"), &HostMemory::default()).unwrap();
        assert_eq!(prove(&again, &witness, blinding()), prove(&key, &witness, blinding()), "{case}");
    }
}

#[test]
fn keys_of_snarkjs_get_bellmans_basis_and_give_the_same_proofs() {
    let (mut tried, mut without) = (0, 0);
    for case in cases::circuits() {
        let zkey = ZkeyFile::open(&case.join("circuit.zkey"), OpenOptions::default()).unwrap();
        if zkey.key.shape().domain_log2 > 9 {
            continue;
        }
        let monomial = monomial_h(&zkey.key, &|_, _| {}).unwrap();
        let written = params_to_bytes(Path::new(NAME), &monomial);
        // A variable that occurs nowhere has no place in such a file.
        if zkey.key.l().num_dense() < zkey.key.l().num_variables() {
            let error = written.unwrap_err();
            assert_eq!(error.section(), Some((4, "L")), "{error}");
            without += 1;
            continue;
        }
        let file = read(&written.unwrap()).unwrap();
        let path = case.join("circuit.r1cs");
        let circuit = Circuit::from_r1cs(&path, &R1csFile::open(&path).unwrap()).unwrap();
        let key = file.key(&circuit, RootOfUnity::snarkjs()).unwrap();
        let witness = read_wtns(&case.join("witness.wtns"), &HostMemory::default()).unwrap();
        let rs: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(case.join("rs.json")).unwrap()).unwrap();
        let scalar = |name: &str| {
            let text = format!("[\"{}\"]", rs[name].as_str().unwrap());
            splitprover_harness::formats::json::public_from_bytes(Path::new("rs"), text.as_bytes(), 1).unwrap()[0]
        };
        let proof = prove(&key, &witness, Blinding::insecure(scalar("r"), scalar("s")));
        assert_eq!(proof, read_proof(&case.join("proof_rs.json")).unwrap(), "{}", case.display());
        tried += 1;
    }
    assert!(tried >= 15 && without > 0, "{tried} and {without} cases");
    // And snarkjs's own basis isn't written as it is.
    let zkey = ZkeyFile::open(&cases::root().join("mul2/circuit.zkey"), OpenOptions::default()).unwrap();
    assert_eq!(params_to_bytes(Path::new(NAME), &zkey.key).unwrap_err().section(), Some((3, "H")));
}

#[test]
fn a_file_cut_or_extended_anywhere_is_refused() {
    let bytes = file_of("mul2");
    for length in 0..bytes.len() {
        refused(&bytes[..length]);
    }
    for extra in [1, 4, 95, 96, 192, 5000] {
        let mut longer = bytes.clone();
        longer.resize(bytes.len() + extra, 0);
        let error = refused(&longer);
        assert_eq!(error.offset(), Some(bytes.len() as u64), "{error}");
        let mut before = vec![0; extra];
        before.extend(&bytes);
        refused(&before);
    }
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let bytes = file_of("mul2");
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (OsRng.next_u32() % 8);
        refused(&flipped);
    }
}

#[test]
fn counts_are_checked_against_the_file_and_each_other() {
    let bytes = file_of("poseidon2");
    read(&bytes).unwrap();
    for (section, (at, point)) in counts(&bytes).into_iter().enumerate() {
        let good = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        for count in [0, good - 1, good + 1, good | 1 << 31, u32::MAX, u32::MAX / point as u32] {
            let mut changed = bytes.clone();
            changed[at..at + 4].copy_from_slice(&count.to_be_bytes());
            refused(&changed);
            if count > good + 1 {
                // A file cannot make its reader allocate: what doesn't fit is refused where it stands.
                assert_eq!(refused(&changed).offset(), Some(at as u64), "section {}", section + 2);
            }
        }
        // A point less, and its bytes gone with it: only the other counts can tell.
        if good > 0 {
            let mut less = bytes[..at].to_vec();
            less.extend((good - 1).to_be_bytes());
            less.extend(&bytes[at + 4 + point..]);
            match section {
                // One public input or private variable less can be another circuit's key; its circuit will tell.
                0 | 2 | 3 => {
                    if let Ok(file) = read(&less) {
                        let error = file.key(&circuit("poseidon2"), RootOfUnity::bellman()).unwrap_err();
                        assert!(error.to_string().contains("as in the key"), "{error}");
                    }
                }
                _ => drop(refused(&less)),
            }
        }
    }
}

#[test]
fn flags_infinity_and_coordinates_out_of_range_are_named() {
    let bytes = file_of("mul2");
    let [(ic, _), (h, _), (l, _), (a, _), (b_g1, _), (b_g2, _)] = counts(&bytes);
    let q = {
        // Big-endian q, as a coordinate.
        let mut q = [0u8; 48];
        for (chunk, limb) in q.rchunks_exact_mut(8).zip(splitprover_core::point::FP_MODULUS) {
            chunk.copy_from_slice(&limb.to_be_bytes());
        }
        q
    };
    for at in [0, 96, 192, 384, 576, 672, ic + 4, h + 4, l + 4, a + 4, b_g1 + 4, b_g2 + 4] {
        for (flag, name) in [(0x80, "compressed"), (0x40, "infinite"), (0x20, "negative")] {
            let mut changed = bytes.clone();
            changed[at] |= flag;
            let error = refused(&changed);
            assert_eq!(error.offset(), Some(at as u64), "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
        let mut changed = bytes.clone();
        changed[at..at + 48].copy_from_slice(&q);
        assert!(refused(&changed).to_string().contains("not below q"));
        // Infinity as the encoding has it, and zeros, which a record would take for infinity.
        let point = if [192, 384, 672, b_g2 + 4].contains(&at) { 192 } else { 96 };
        for first in [0x40, 0] {
            changed[at..at + point].fill(0);
            changed[at] = first;
            assert_eq!(refused(&changed).offset(), Some(at as u64));
        }
    }
}

#[test]
fn points_outside_the_subgroup_are_found_where_they_count_and_elsewhere_on_demand() {
    let outside = (1u8..)
        .find_map(|x| {
            let mut bytes = [0; 48];
            (bytes[0], bytes[47]) = (0x80, x);
            Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
        })
        .unwrap()
        .to_uncompressed();
    let bytes = file_of("mul2");
    let [(ic, _), (h, _), (l, _), ..] = counts(&bytes);
    for at in [0, 96, 576, ic + 4] {
        let mut changed = bytes.clone();
        changed[at..at + 96].copy_from_slice(&outside);
        let error = refused(&changed);
        assert!(error.offset() == Some(at as u64) && error.to_string().contains("subgroup of order r"), "{error}");
    }
    for at in [h + 4, l + 4 + 96] {
        let mut changed = bytes.clone();
        changed[at..at + 96].copy_from_slice(&outside);
        assert_eq!(read(&changed).unwrap().points_checked, PointsChecked::OnCurve);
        let error = read_deep(&changed).unwrap_err();
        assert!(error.offset() == Some(at as u64) && error.to_string().contains("subgroup of order r"), "{error}");
    }
    // β in G2 that isn't β in G1.
    let mut changed = bytes.clone();
    changed[192..384].copy_from_slice(&G2Affine::generator().to_uncompressed());
    read(&changed).unwrap();
    assert!(read_deep(&changed).unwrap_err().to_string().contains("beta and delta"));
}

#[test]
fn a_winning_post_of_filecoins_gives_bellpersons_proof() {
    let case = cases::root().join("winning_post_2");
    let (path, system) = r1cs("winning_post_2");
    let key = generated(&system, 1);
    let file = read(&params_to_bytes(Path::new(NAME), &key).unwrap()).unwrap();
    let circuit = Circuit::from_r1cs(&path, &system).unwrap();
    let key = file.key(&circuit, RootOfUnity::bellman()).unwrap();
    let witness = read_wtns(&case.join("witness.wtns"), &HostMemory::default()).unwrap();
    let blinding = Blinding::insecure(Scalar::from(12_345), Scalar::from(67_890));
    let proof = prove(&key, &witness, blinding);
    let theirs = read_proofs(&case.join("proof_bellperson.bin")).unwrap();
    assert_eq!(theirs, [proof]);
    let public = read_public(&case.join("public.json"), key.shape().num_public).unwrap();
    let verifier = PreparedVerifyingKey::new(key.verifying_key());
    assert_eq!(verifier.verify(&theirs[0], &public), Ok(true));
    for i in 0..public.len() {
        let mut wrong = public.clone();
        wrong[i] += Scalar::from(1);
        assert_eq!(verifier.verify(&theirs[0], &wrong), Ok(false));
    }
}

#[test]
fn development_keys_are_known_by_themselves() {
    let system = r1cs("mul2").1;
    for seed in [0, 1, u64::MAX] {
        let file = read(&params_to_bytes(Path::new(NAME), &generated(&system, seed)).unwrap()).unwrap();
        assert!(file.is_insecure());
    }
    // Any other γ may be some ceremony's.
    let memory = HostMemory::default();
    let fixed_base = CpuFixedBase::new(4 * system.num_variables());
    let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
    let [a, b, c, d] = [3, 5, 7, 11].map(Scalar::from);
    for gamma in [Scalar::from(1), Scalar::from(13)] {
        let trapdoor = Trapdoor::new(a, b, c, gamma, d).unwrap();
        let key = generate(&system, HBasis::Monomial, &trapdoor, &resources).unwrap().key;
        let file = read(&params_to_bytes(Path::new(NAME), &key).unwrap()).unwrap();
        assert!(!file.is_insecure());
    }
}

/// A system of one public input, and rows whose terms are given.
fn system(num_variables: usize, rows: &[[&[(u32, u64)]; 3]]) -> Constraints {
    Constraints::new(1, num_variables, rows.len(), |matrix| {
        let of = match matrix {
            Matrix::A => 0,
            Matrix::B => 1,
            Matrix::C => 2,
        };
        let entries =
            rows.iter().zip(0..).flat_map(|(row, i)| row[of].iter().map(move |&(j, x)| (i, j, Scalar::from(x))));
        entries.collect::<Vec<_>>().into_iter()
    })
    .unwrap()
}

#[test]
fn a_circuit_that_is_not_the_keys_is_refused() {
    let file = read(&file_of("poseidon2")).unwrap();
    file.key(&circuit("poseidon2"), RootOfUnity::bellman()).unwrap();
    for other in ["mul2", "poseidon16", "comparators", "e_nopub"] {
        let error = file.key(&circuit(other), RootOfUnity::bellman()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("circuit.r1cs") && text.contains(NAME), "{text}");
    }
    // Equal sizes, other densities: variable 3 moves from B to A.
    let one = system(4, &[[&[(2, 1)], &[(3, 1)], &[(1, 1)]]]);
    let two = system(4, &[[&[(2, 1), (3, 1)], &[], &[(1, 1)]]]);
    let file = read(&params_to_bytes(Path::new(NAME), &make(&one)).unwrap()).unwrap();
    let circuit = |system: &Constraints| {
        let key = make(system);
        Circuit::new(Path::new("other.r1cs"), key.matrices().unwrap().clone(), 1)
    };
    file.key(&circuit(&one), RootOfUnity::bellman()).unwrap();
    let error = file.key(&circuit(&two), RootOfUnity::bellman()).unwrap_err();
    assert!(error.to_string().contains("occur in A"), "{error}");
    // More rows than the domain has, and so few that the domain would be smaller.
    let row: [&[(u32, u64)]; 3] = [&[(2, 1)], &[(3, 1)], &[(1, 1)]];
    let six = read(&params_to_bytes(Path::new(NAME), &make(&system(4, &[row; 6]))).unwrap()).unwrap();
    six.key(&circuit(&system(4, &[row; 3])), RootOfUnity::bellman()).unwrap();
    for rows in [2, 7] {
        let error = six.key(&circuit(&system(4, &vec![row; rows])), RootOfUnity::bellman()).unwrap_err();
        assert!(error.to_string().contains("domain"), "{error}");
    }
}

#[test]
fn what_such_a_file_cannot_hold_is_not_written() {
    // Variable 4 occurs nowhere.
    let key = make(&system(5, &[[&[(2, 1)], &[(3, 1)], &[(1, 1)]]]));
    let error = params_to_bytes(Path::new(NAME), &key).unwrap_err();
    assert!(error.section() == Some((4, "L")) && error.to_string().contains("private variable 2"), "{error}");
}

fn settle() {
    std::thread::sleep(Duration::from_millis(150));
}

fn conversions(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "points")).collect()
}

#[test]
fn a_conversion_is_mapped_at_the_second_opening_until_the_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (path, cache) = (folder.path().join(NAME), folder.path().join("cache"));
    let bytes = file_of("poseidon2");
    std::fs::write(&path, &bytes).unwrap();
    settle();
    let options = OpenOptions { stamps: Stamps::In(&cache), ..OpenOptions::default() };
    let circuit = circuit("poseidon2");
    let open = |path: &Path, options| {
        let file = ParamsFile::open(path, options).unwrap();
        assert_eq!(file.not_cached, None);
        let key = file.key(&circuit, RootOfUnity::bellman()).unwrap();
        assert_eq!(params_to_bytes(path, &key).unwrap(), bytes);
        file.check_unchanged().unwrap();
        file.points_checked
    };
    assert_eq!(open(&path, options), PointsChecked::OnCurve);
    assert_eq!(open(&path, options), PointsChecked::ByStamp);
    assert_eq!(open(&path, OpenOptions { recheck: true, ..options }), PointsChecked::OnCurve);
    assert_eq!(open(&path, OpenOptions { deep: true, ..options }), PointsChecked::InSubgroup);
    assert_eq!(open(&path, options), PointsChecked::ByStamp);

    // Touched, or copied: known by its contents, and one conversion serves both.
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_times(FileTimes::new().set_modified(std::time::UNIX_EPOCH))
        .unwrap();
    settle();
    assert_eq!(open(&path, options), PointsChecked::ByStamp);
    let copy = folder.path().join("copy.params");
    std::fs::copy(&path, &copy).unwrap();
    settle();
    assert_eq!(open(&copy, options), PointsChecked::ByStamp);
    assert_eq!(conversions(&cache).len(), 1);

    // A damaged conversion is made again, whether its times tell or its hash has to.
    let conversion = &conversions(&cache)[0];
    let good = std::fs::read(conversion).unwrap();
    for at in [0, 8, 50, 80, 110, 4096, good.len() / 2, good.len() - 4096] {
        let mut damaged = good.clone();
        damaged[at] ^= 1;
        std::fs::write(conversion, &damaged).unwrap();
        assert_eq!(open(&path, options), PointsChecked::OnCurve, "byte {at}");
        assert_eq!(std::fs::read(conversion).unwrap(), good);
    }
    std::fs::write(conversion, &good[..good.len() - 1]).unwrap();
    assert_eq!(open(&path, options), PointsChecked::OnCurve);
    std::fs::remove_file(conversion).unwrap();
    assert_eq!(open(&path, options), PointsChecked::OnCurve);

    // Another key under the old name isn't taken for it.
    let mut file = File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(counts(&bytes)[2].0 as u64 + 60)).unwrap();
    file.write_all(&[0x55]).unwrap();
    drop(file);
    let error = ParamsFile::open(&path, options).unwrap_err();
    assert_eq!(error.section(), Some((4, "L")), "{error}");
}

#[test]
fn a_cache_that_cannot_be_written_costs_only_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(NAME);
    std::fs::write(&path, file_of("mul2")).unwrap();
    settle();
    // A file where the cache's folder should be.
    let blocked = folder.path().join("blocked");
    std::fs::write(&blocked, "").unwrap();
    let options = OpenOptions { stamps: Stamps::In(&blocked), ..OpenOptions::default() };
    for _ in 0..2 {
        let file = ParamsFile::open(&path, options).unwrap();
        assert!(file.not_cached.is_some());
        assert_eq!(file.points_checked, PointsChecked::OnCurve);
        file.key(&circuit("mul2"), RootOfUnity::bellman()).unwrap();
    }
    // A file that changes under the reader is reported.
    let file = ParamsFile::open(&path, OpenOptions::default()).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    assert!(file.check_unchanged().is_err());
}
