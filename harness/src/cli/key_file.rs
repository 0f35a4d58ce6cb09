//! Opening a proving key of either kind.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use splitprover_core::{ProvingKey, RootOfUnity};

use super::Failure;
use super::progress::Progress;
use crate::formats::params::{Circuit, is_params};
use crate::formats::zkey::OpenOptions;
use crate::formats::{FormatResult, ParamsFile, Residency, Stamps, ZkeyFile};

/// What a `.params` key needs beside its file.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ParamsArguments {
    /// The circuit's constraints (.r1cs), which a .params key doesn't hold
    #[arg(long)]
    pub(super) r1cs: Option<PathBuf>,
    /// Root of unity of a .params key's rows: snarkjs only for one that was exported from a .zkey of snarkjs's
    #[arg(long, value_enum, default_value_t = Root::Bellman)]
    pub(super) root: Root,
}

/// A family of roots of unity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Root {
    /// Powers of 7^((r-1)/2^32)
    Bellman,
    /// Powers of 5^((r-1)/2^32)
    Snarkjs,
}

/// A proving key from a file.
pub(super) enum KeyFile {
    Zkey(Box<ZkeyFile>),
    Params { file: Box<ParamsFile>, key: Arc<ProvingKey> },
}

impl KeyFile {
    /// Opens a key that is to prove.
    pub(super) fn open(path: &Path, recheck: bool, params: &ParamsArguments) -> Result<Self, Failure> {
        if !is_params(path) {
            return Ok(Self::Zkey(Box::new(open_zkey(path, recheck, false)?)));
        }
        let Some(r1cs) = &params.r1cs else {
            return Err(Failure::Usage(format!("{}: a .params key needs --r1cs CIRCUIT.r1cs", path.display())));
        };
        let file = open_params(path, recheck, false)?;
        let circuit = Circuit::open(r1cs)?;
        let root = match params.root {
            Root::Bellman => RootOfUnity::bellman(),
            Root::Snarkjs => RootOfUnity::snarkjs(),
        };
        let key = file.key(&circuit, root)?;
        Ok(Self::Params { file: Box::new(file), key })
    }

    pub(super) fn key(&self) -> &Arc<ProvingKey> {
        match self {
            Self::Zkey(file) => &file.key,
            Self::Params { key, .. } => key,
        }
    }

    pub(super) fn is_insecure(&self) -> bool {
        match self {
            Self::Zkey(file) => file.is_insecure(),
            Self::Params { file, .. } => file.is_insecure(),
        }
    }

    pub(super) fn check_unchanged(&self) -> FormatResult<()> {
        match self {
            Self::Zkey(file) => file.check_unchanged(),
            Self::Params { file, .. } => file.check_unchanged(),
        }
    }
}

/// Opens a `.zkey` for one use, with a progress bar for the point checks and a warning if its trapdoor is known. The key's pages
/// don't stay in memory.
pub(super) fn open_zkey(path: &Path, recheck: bool, deep: bool) -> Result<ZkeyFile, Failure> {
    open_zkey_for(path, recheck, deep, Residency::Brief)
}

/// The same with pages that may stay longer: for many proofs.
pub(super) fn open_zkey_for(path: &Path, recheck: bool, deep: bool, residency: Residency) -> Result<ZkeyFile, Failure> {
    let progress = Progress::new("checking points");
    let report = |done, total| progress.update(done, total);
    let options = OpenOptions { recheck, deep, stamps: Stamps::User, residency, progress: Some(&report) };
    let file = ZkeyFile::open(path, options)?;
    drop(progress);
    if file.is_insecure() {
        warn_insecure(path);
    }
    Ok(file)
}

fn warn_insecure(path: &Path) {
    eprintln!("splitprover: warning: {}: INSECURE development key, anyone can forge its proofs", path.display());
}

/// Opens a `.params` for one use, with a progress bar for the conversion, and warnings if its trapdoor is known, or if the conversion has
/// to be made again next time.
pub(super) fn open_params(path: &Path, recheck: bool, deep: bool) -> Result<ParamsFile, Failure> {
    let progress = Progress::new("converting points");
    let report = |done, total| progress.update(done, total);
    let residency = Residency::Brief;
    let options = OpenOptions { recheck, deep, stamps: Stamps::User, residency, progress: Some(&report) };
    let file = ParamsFile::open(path, options)?;
    drop(progress);
    if file.is_insecure() {
        warn_insecure(path);
    }
    if let Some(reason) = &file.not_cached {
        let reason = reason.escape_debug();
        eprintln!("splitprover: warning: {}: its conversion isn't remembered: {reason}", path.display());
    }
    Ok(file)
}
