//! `splitprover export-vk`: the verification key of a proving key, as snarkjs exports it.

use std::path::PathBuf;

use super::{Failure, open_key};
use crate::formats::{json, write_files};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Proving key (.zkey)
    zkey: PathBuf,
    /// Where the verification key goes (JSON)
    verification_key: PathBuf,
    /// Check the key's points again although they have been checked before
    #[arg(long)]
    recheck: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let file = open_key(&arguments.zkey, arguments.recheck, false)?;
    let text = json::verifying_key_to_json(file.key.verifying_key());
    write_files(&[(&arguments.verification_key, text.as_bytes())])?;
    Ok(())
}
