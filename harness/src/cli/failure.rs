//! What can go wrong, and the exit code that says so.

use std::path::Path;
use std::process::ExitCode;

use splitprover_core::error::InputsError;
use splitprover_core::{BackendError, FinishError, StartError};

use crate::formats::FormatError;

/// Why the program ends with another exit code than 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// 1: the answer is no: a proof doesn't verify, a constraint is broken, backends disagree.
    #[error("{0}")]
    No(String),
    /// 2: the arguments don't make sense together.
    #[error("{0}")]
    Usage(String),
    /// 3: a file is bad, can't be read or can't be written.
    #[error(transparent)]
    File(#[from] FormatError),
    /// 3: two files don't belong together.
    #[error("{0}")]
    Mismatch(String),
    /// 4: device or backend trouble.
    #[error("{0}")]
    Backend(String),
}

impl Failure {
    /// The exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::No(_) => 1,
            Self::Usage(_) => 2,
            Self::File(_) | Self::Mismatch(_) => 3,
            Self::Backend(_) => 4,
        })
    }

    /// `file` doesn't belong to the key.
    pub(super) fn mismatch(file: &Path, error: &InputsError) -> Self {
        Self::Mismatch(format!("{}: not a witness of this key: {error}", file.display()))
    }

    /// One line on standard error.
    pub fn report(&self) {
        eprintln!("splitprover: {self}");
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::Backend(error.to_string())
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        error.source.into()
    }
}

impl From<FinishError> for Failure {
    fn from(error: FinishError) -> Self {
        match error {
            FinishError::ProofInvalid => Self::No(error.to_string()),
            error => Self::Backend(error.to_string()),
        }
    }
}
