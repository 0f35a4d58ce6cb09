//! taceo-groth16 on the same `.zkey`.

use std::fs::File;
use std::io::BufReader;

use ark_bls12_381::{Bls12_381, Fr};
use circom_types::groth16::Zkey;
use circom_types::{CheckElement, Witness};
use splitprover_core::{Proof, Scalar};
use taceo_groth16::{CircomReduction, ConstraintMatrices, Groth16, ProvingKey};

use super::{Timed, timed};
use crate::Result;
use crate::circuit::Circuit;
use crate::points::{ark_fr, our_g1, our_g2};

pub(super) struct Taceo {
    matrices: ConstraintMatrices<Fr>,
    key: ProvingKey<Bls12_381>,
    witness: Vec<Fr>,
}

impl Taceo {
    pub(super) fn open(circuit: &Circuit) -> Result<Self> {
        let reader = |path| -> Result<_> { Ok(BufReader::with_capacity(1 << 20, File::open(path)?)) };
        let zkey = Zkey::<Bls12_381>::from_reader(reader(circuit.zkey())?, CheckElement::No)?;
        let (matrices, key) = zkey.into();
        let witness = Witness::from_reader(reader(circuit.witness())?)?.values;
        Ok(Self { matrices, key, witness })
    }
}

impl super::Prover for Taceo {
    fn prove(&self, r: Scalar, s: Scalar) -> Result<Timed> {
        let (r, s) = (ark_fr(&r), ark_fr(&s));
        timed(|| {
            let proof = Groth16::prove::<CircomReduction>(&self.key, r, s, &self.matrices, &self.witness)
                .map_err(|e| e.to_string())?;
            Ok(Proof::new(our_g1(&proof.a), our_g2(&proof.b), our_g1(&proof.c))?)
        })
    }
}
