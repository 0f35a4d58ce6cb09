//! `splitprover verify`: exit code 0 if the proof holds, 1 if it doesn't.

use std::path::PathBuf;

use splitprover_core::verify::VerifyError;
use splitprover_core::{PreparedVerifyingKey, Proof, Scalar};

use super::{Failure, print};
use crate::formats::{is_compact, json, read_proofs};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Verification key (JSON, as snarkjs exports it)
    verification_key: PathBuf,
    /// Public inputs (JSON); of several proofs an array with an array for each
    public: PathBuf,
    /// Proof: JSON, or 192 bytes as bellman writes it; several of those one after the other are verified in one batch
    proof: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let key = json::read_verifying_key(&arguments.verification_key)?;
    let proofs = match is_compact(&arguments.proof) {
        true => read_proofs(&arguments.proof)?,
        false => vec![json::read_proof(&arguments.proof)?],
    };
    let public = match proofs.len() {
        1 => vec![json::read_public(&arguments.public, key.num_public())?],
        several => json::read_public_sets(&arguments.public, several, key.num_public())?,
    };
    let key = PreparedVerifyingKey::new(&key);
    let fail = |error: VerifyError| Failure::No(format!("{}: {error}", arguments.public.display()));
    let claims: Vec<_> = proofs.into_iter().zip(public).collect();
    let [(proof, public)] = claims.as_slice() else {
        return batch(&key, &claims).map_err(fail)?;
    };
    match key.verify(proof, public).map_err(fail)? {
        true => {
            print("the proof is valid\n");
            Ok(())
        }
        false => Err(Failure::No("the proof is not valid".into())),
    }
}

/// All proofs in one check; only if that fails is each looked at, to say which it is.
fn batch(key: &PreparedVerifyingKey, claims: &[(Proof, Vec<Scalar>)]) -> Result<Result<(), Failure>, VerifyError> {
    if key.verify_batch(claims)? {
        print(&format!("all {} proofs are valid\n", claims.len()));
        return Ok(Ok(()));
    }
    let mut wrong = Vec::new();
    for (index, (proof, public)) in claims.iter().enumerate() {
        if !key.verify(proof, public)? {
            wrong.push(index.to_string());
        }
    }
    Ok(Err(Failure::No(format!("of {} proofs these are not valid: {}", claims.len(), wrong.join(", ")))))
}
