//! `splitprover export-vk`: the verification key of a proving key, as snarkjs exports it.

use std::path::PathBuf;

use super::Failure;
use super::key_file::{open_params, open_zkey};
use crate::formats::params::is_params;
use crate::formats::{json, write_files};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Proving key (.zkey, .params)
    key: PathBuf,
    /// Where the verification key goes (JSON)
    verification_key: PathBuf,
    /// Check the key's points again although they have been checked before
    #[arg(long)]
    recheck: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let text = match is_params(&arguments.key) {
        true => json::verifying_key_to_json(open_params(&arguments.key, arguments.recheck, false)?.verifying_key()),
        false => json::verifying_key_to_json(open_zkey(&arguments.key, arguments.recheck, false)?.key.verifying_key()),
    };
    write_files(&[(&arguments.verification_key, text.as_bytes())])?;
    Ok(())
}
