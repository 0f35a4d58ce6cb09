//! `splitprover verify`: exit code 0 if the proof holds, 1 if it doesn't.

use std::path::PathBuf;

use splitprover_core::PreparedVerifyingKey;

use super::{Failure, print};
use crate::formats::json;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Verification key (JSON, as snarkjs exports it)
    verification_key: PathBuf,
    /// Public inputs (JSON)
    public: PathBuf,
    /// Proof (JSON)
    proof: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let key = json::read_verifying_key(&arguments.verification_key)?;
    let public = json::read_public(&arguments.public, key.num_public())?;
    let proof = json::read_proof(&arguments.proof)?;
    match PreparedVerifyingKey::new(&key).verify(&proof, &public) {
        Ok(true) => {
            print("the proof is valid\n");
            Ok(())
        }
        Ok(false) => Err(Failure::No("the proof is not valid".into())),
        Err(error) => Err(Failure::No(format!("{}: {error}", arguments.public.display()))),
    }
}
