//! An independent reader and prover over arkworks, taceo-circom-types and taceo-groth16, on keys that `setup` made: it reads the
//! `.zkey`, and its proofs are ours.

use std::path::Path;

use ark_bls12_381::{Bls12_381, Fr};
use ark_ff::PrimeField;
use circom_types::CheckElement;
use circom_types::groth16::Zkey;
use ff::Field;
use rand_core::OsRng;
use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_core::{
    Blinding, G1Affine, G1Projective, G2Affine, HBasis, HostMemory, Inputs, MemoryClass, PointRecord, Proof, Prover,
    Scalar,
};
use splitprover_harness::formats::zkey::{Extras, zkey_to_bytes};
use splitprover_harness::formats::{R1csFile, read_wtns};
use splitprover_harness::setup::{
    ConstraintSystem, CpuFixedBase, DevelopmentKey, Resources, Shape, Synthetic, Trapdoor, generate,
};
use taceo_groth16::{CircomReduction, ConstraintMatrices, Groth16, ProvingKey};

/// The limbs of a coordinate, as records have them.
fn limbs(x: &ark_bls12_381::Fq) -> [u8; 48] {
    let mut bytes = [0; 48];
    for (chunk, limb) in bytes.chunks_exact_mut(8).zip(x.0.0) {
        chunk.copy_from_slice(&limb.to_le_bytes());
    }
    bytes
}

fn g1(point: &ark_bls12_381::G1Affine) -> G1Affine {
    let mut record = [0; 96];
    if *point != ark_bls12_381::G1Affine::identity() {
        record[..48].copy_from_slice(&limbs(&point.x));
        record[48..].copy_from_slice(&limbs(&point.y));
    }
    G1Affine::check_record(&record).unwrap();
    G1Affine::from_record_unchecked(&record)
}

fn g2(point: &ark_bls12_381::G2Affine) -> G2Affine {
    let mut record = [0; 192];
    if *point != ark_bls12_381::G2Affine::identity() {
        for (chunk, x) in record.chunks_exact_mut(48).zip([point.x.c0, point.x.c1, point.y.c0, point.y.c1]) {
            chunk.copy_from_slice(&limbs(&x));
        }
    }
    G2Affine::check_record(&record).unwrap();
    G2Affine::from_record_unchecked(&record)
}

fn fr(scalar: &Scalar) -> Fr {
    Fr::from_le_bytes_mod_order(&scalar.to_bytes_le())
}

struct Peer {
    matrices: ConstraintMatrices<Fr>,
    key: ProvingKey<Bls12_381>,
    witness: Vec<Fr>,
}

impl Peer {
    fn new(development: &DevelopmentKey, witness: &[Scalar]) -> Self {
        let bytes = zkey_to_bytes(Path::new("peer.zkey"), &development.key, Extras::default()).unwrap();
        let (matrices, key) = Zkey::<Bls12_381>::from_reader(&bytes[..], CheckElement::Yes).unwrap().into();
        Self { matrices, key, witness: witness.iter().map(fr).collect() }
    }

    fn prove(&self, r: Scalar, s: Scalar) -> Proof {
        let proof =
            Groth16::prove::<CircomReduction>(&self.key, fr(&r), fr(&s), &self.matrices, &self.witness).unwrap();
        Groth16::<Bls12_381>::verify(&self.key.vk, &proof, &self.witness[1..self.matrices.num_instance_variables])
            .unwrap();
        Proof::new(g1(&proof.a), g2(&proof.b), g1(&proof.c)).unwrap()
    }
}

/// Makes a key for the system and compares the peer's proofs of the witness with ours.
fn compare<S: ConstraintSystem>(name: &str, system: &S, witness: &[Scalar], seed: u64) {
    let memory = HostMemory::default();
    let fixed_base = CpuFixedBase::new(system.num_variables());
    let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
    let trapdoor = Trapdoor::from_seed(seed, HBasis::OddLagrange);
    let development = generate(system, HBasis::OddLagrange, &trapdoor, &resources).unwrap();
    let peer = Peer::new(&development, witness);
    assert_eq!(peer.matrices.num_constraints, development.num_constraints, "{name}");

    let prover = Prover::new(CpuBackend::new(CpuOptions::default()).unwrap());
    let key = prover.load_key(development.key.clone()).unwrap();
    let start = || prover.start(&key, Inputs::new(memory.copy_of(MemoryClass::Witness, witness).unwrap())).unwrap();
    // With r = s = 0 a proof is the sums and the key's constants: A = α + a, B = β + b, C = hl. With r = 1, s = 0 it has C = hl + β + b
    // in G1. So equal proofs for these, and for random r and s, say that all four sums are equal.
    let random = || Scalar::random(OsRng);
    for (r, s) in [(Scalar::ZERO, Scalar::ZERO), (Scalar::ONE, Scalar::ZERO), (random(), random())] {
        let ours = start().finish_with(Blinding::insecure(r, s)).unwrap();
        assert_eq!(peer.prove(r, s), ours, "{name}");
    }
    let sums = start().finish_sums().unwrap();
    let zeros = peer.prove(Scalar::ZERO, Scalar::ZERO);
    assert_eq!(zeros.c(), sums.hl, "{name}");
    let a = G1Projective::from(development.key.verifying_key().alpha_g1()) + sums.a;
    assert_eq!(zeros.a(), G1Affine::from(a), "{name}");
}

#[test]
fn the_peer_makes_our_proofs_of_synthetic_circuits() {
    for (shape, log2) in
        [(Shape::Porep, 4), (Shape::Dense, 4), (Shape::Mixed, 6), (Shape::Dense, 9), (Shape::Porep, 11)]
    {
        let circuit = Synthetic::new(shape, log2).unwrap();
        let witness = circuit.witness(77, &HostMemory::default()).unwrap();
        compare(&format!("{shape:?} 2^{log2}"), &circuit, &witness, u64::from(log2));
    }
}

#[test]
fn the_peer_makes_our_proofs_of_real_circuits() {
    for case in ["mul2", "poseidon2", "num2bits254", "e_unused_inputs_O0", "e_pow2_62"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases").join(case);
        let system = R1csFile::open(&folder.join("circuit.r1cs")).unwrap();
        let witness = read_wtns(&folder.join("witness.wtns"), &HostMemory::default()).unwrap();
        compare(case, &system, &witness, 5);
    }
}
