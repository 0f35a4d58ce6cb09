//! `splitprover export-params`: a key as bellperson reads it.

use std::path::PathBuf;

use splitprover_core::RootOfUnity;

use super::key_file::open_zkey;
use super::progress::Progress;
use super::{Failure, print};
use crate::formats::write_params;
use crate::setup::monomial_h;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Proving key (.zkey)
    zkey: PathBuf,
    /// Where the key goes (.params)
    out: PathBuf,
    /// Check the key's points again although they have been checked before
    #[arg(long)]
    recheck: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let file = open_zkey(&arguments.zkey, arguments.recheck, false)?;
    let progress = Progress::new("changing the basis of H");
    let key = monomial_h(&file.key, &|done, total| progress.update(done as u64, total as u64))
        .map_err(|e| Failure::Backend(e.to_string()))?;
    drop(progress);
    write_params(&arguments.out, &key)?;
    file.check_unchanged()?;
    if key.domain().omega() != RootOfUnity::bellman().of_order(key.domain().log2()).unwrap_or_default() {
        print("its rows belong to powers of snarkjs's root of unity: prove with --root snarkjs; bellperson can't\n");
    }
    Ok(())
}
