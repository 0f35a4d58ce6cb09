//! Development keys for circuits that circom compiled, against the keys that snarkjs made for them; and their way through files.

use std::path::Path;
use std::sync::Arc;

use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_core::{
    Blinding, CsrMatrix, FinishError, HBasis, HostMemory, Inputs, MemoryClass, PointRecord, Prover, ProvingKey, Query,
    Scalar,
};
use splitprover_harness::formats::zkey::{DevelopmentMark, Extras, zkey_to_bytes};
use splitprover_harness::formats::{OpenOptions, R1csFile, ZkeyFile, read_wtns};
use splitprover_harness::setup::{ConstraintSystem, CpuFixedBase, Resources, Shape, Synthetic, Trapdoor, generate};
use splitprover_tests::cases;

fn make<S: ConstraintSystem>(system: &S, basis: HBasis, seed: u64) -> Arc<ProvingKey> {
    let memory = HostMemory::default();
    let fixed_base = CpuFixedBase::new(system.num_variables());
    let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
    generate(system, basis, &Trapdoor::from_seed(seed, basis), &resources).unwrap().key
}

fn witness_of(case: &Path) -> Vec<Scalar> {
    read_wtns(&case.join("witness.wtns"), &HostMemory::default()).unwrap().to_vec()
}

fn proves(key: &Arc<ProvingKey>, witness: &[Scalar]) -> Result<splitprover_core::Proof, FinishError> {
    let prover = Prover::new(CpuBackend::new(CpuOptions::default()).unwrap());
    let loaded = prover.load_key(key.clone()).unwrap();
    let inputs = Inputs::new(HostMemory::default().copy_of(MemoryClass::Witness, witness).unwrap());
    prover.start(&loaded, inputs).unwrap().finish_with(Blinding::insecure(Scalar::from(5), Scalar::from(7)))
}

fn dense<C: PointRecord>(query: &Query<C>) -> Vec<usize> {
    query.dense().map(|(variable, _)| variable).collect()
}

/// The entries of a row, sorted; what adds up at one place is added up.
fn row(matrix: &CsrMatrix, row: usize) -> Vec<(usize, [u8; 32])> {
    let mut sums = std::collections::BTreeMap::new();
    for (column, value) in matrix.row(row) {
        *sums.entry(column).or_insert(Scalar::from(0)) += value;
    }
    sums.into_iter().map(|(column, value)| (column, value.to_bytes_le())).collect()
}

#[test]
fn keys_for_real_circuits_have_the_shape_of_snarkjss_and_prove() {
    let mut tried = 0;
    for case in cases::circuits() {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let theirs = ZkeyFile::open(&case.join("circuit.zkey"), OpenOptions::default()).unwrap().key;
        if theirs.shape().domain_log2 > 11 {
            continue;
        }
        tried += 1;
        let r1cs = R1csFile::open(&case.join("circuit.r1cs")).unwrap();
        let witness = witness_of(&case);
        assert_eq!(ConstraintSystem::first_broken(&r1cs, &witness, &HostMemory::default()).unwrap(), None, "{name}");
        for basis in [HBasis::OddLagrange, HBasis::Monomial] {
            let ours = make(&r1cs, basis, 1);
            assert_eq!(ours.shape(), theirs.shape(), "{name}");
            assert_eq!(dense(ours.a()), dense(theirs.a()), "{name}");
            assert_eq!(dense(ours.b_g1()), dense(theirs.b_g1()), "{name}");
            assert_eq!(dense(ours.b_g2()), dense(theirs.b_g2()), "{name}");
            assert_eq!(dense(ours.l()), dense(theirs.l()), "{name}");
            let (x, y) = (ours.matrices().unwrap(), theirs.matrices().unwrap());
            for (x, y) in [(&x.a, &y.a), (&x.b, &y.b)] {
                assert_eq!(x.num_rows(), y.num_rows(), "{name}");
                assert!((0..x.num_rows()).all(|i| row(x, i) == row(y, i)), "{name}");
            }
            proves(&ours, &witness).unwrap_or_else(|e| panic!("{name}, {basis:?}: {e}"));
        }
    }
    assert!(tried >= 20, "{tried} cases");
}

#[test]
fn keys_go_through_files_unchanged_and_stay_marked() {
    let memory = HostMemory::default();
    for (shape, basis) in
        [(Shape::Porep, HBasis::OddLagrange), (Shape::Porep, HBasis::Monomial), (Shape::Dense, HBasis::Monomial)]
    {
        let circuit = Synthetic::new(shape, 8).unwrap();
        let key = make(&circuit, basis, 9);
        let mark = DevelopmentMark {
            insecure: true,
            monomial_h: basis == HBasis::Monomial,
            text: "made by a test".to_owned(),
        };
        let name = Path::new("development.zkey");
        let bytes = zkey_to_bytes(name, &key, Extras { mark: Some(&mark), ..Extras::default() }).unwrap();
        let options = OpenOptions { deep: true, ..OpenOptions::default() };
        let file = ZkeyFile::from_bytes(name, bytes, options).unwrap();
        assert!(file.is_insecure());
        assert_eq!(file.mark.as_ref(), Some(&mark));
        let read = &file.key;
        assert_eq!((read.shape(), read.domain(), read.h_basis()), (key.shape(), key.domain(), basis));
        assert_eq!(read.verifying_key(), key.verifying_key());
        let witness = circuit.witness(3, &memory).unwrap();
        assert_eq!(proves(read, &witness).unwrap(), proves(&key, &witness).unwrap());
    }
}

#[test]
fn a_witness_goes_through_a_file_unchanged() {
    let memory = HostMemory::default();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("witness.wtns");
    for shape in Shape::ALL {
        let witness = Synthetic::new(shape, 9).unwrap().witness(4, &memory).unwrap();
        splitprover_harness::formats::write_wtns(&path, &witness).unwrap();
        assert_eq!(read_wtns(&path, &memory).unwrap()[..], witness[..]);
    }
}
