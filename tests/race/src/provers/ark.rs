//! ark-groth16, with the matrices in memory so that there is no synthesis.

use std::fs::File;
use std::io::BufReader;

use ark_bls12_381::{Bls12_381, Fr};
use ark_groth16::r1cs_to_qap::LibsnarkReduction;
use ark_groth16::{Groth16, ProvingKey};
use ark_serialize::CanonicalDeserialize;
use circom_types::Witness;
use splitprover_core::{Proof, Scalar};

use super::{Timed, timed};
use crate::Result;
use crate::circuit::Circuit;
use crate::points::{ark_fr, our_g1, our_g2};

pub(super) struct Ark {
    key: ProvingKey<Bls12_381>,
    matrices: [Vec<Vec<(Fr, usize)>>; 3],
    witness: Vec<Fr>,
}

impl Ark {
    pub(super) fn open(circuit: &Circuit) -> Result<Self> {
        let mut reader = BufReader::with_capacity(1 << 20, File::open(circuit.ark())?);
        let key = ProvingKey::deserialize_uncompressed_unchecked(&mut reader)?;
        let mut matrix = || Vec::<Vec<(Fr, usize)>>::deserialize_uncompressed_unchecked(&mut reader);
        let matrices = [matrix()?, matrix()?, matrix()?];
        let witness = Witness::from_reader(BufReader::new(File::open(circuit.witness())?))?.values;
        Ok(Self { key, matrices, witness })
    }
}

impl super::Prover for Ark {
    fn prove(&self, r: Scalar, s: Scalar) -> Result<Timed> {
        let (r, s) = (ark_fr(&r), ark_fr(&s));
        timed(|| {
            let proof = Groth16::<Bls12_381, LibsnarkReduction>::create_proof_with_reduction_and_matrices(
                &self.key,
                r,
                s,
                &self.matrices,
                self.key.vk.gamma_abc_g1.len(),
                self.matrices[0].len(),
                &self.witness,
            )?;
            Ok(Proof::new(our_g1(&proof.a), our_g2(&proof.b), our_g1(&proof.c))?)
        })
    }
}
