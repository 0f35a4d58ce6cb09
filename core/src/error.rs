//! The errors of the contract. All of them are `'static`: an error can't carry a loan out of `start`.

use crate::inputs::Inputs;
use crate::point::PointFault;

/// Why a backend could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The device has not enough memory. The common failure: inputs are untouched and can go to another device.
    #[error("out of device memory: {requested} bytes for {what}, {available} available")]
    DeviceMemory {
        /// What the memory was for.
        what: &'static str,
        /// Bytes asked for.
        requested: u64,
        /// Bytes that were free, as far as known.
        available: u64,
    },
    /// Host memory could not be had, or the ledger refused it.
    #[error(transparent)]
    HostMemory(#[from] crate::memory::OutOfHostMemory),
    /// The device, its driver or its compiler failed.
    #[error("{what}: {reason}")]
    Device {
        /// The operation.
        what: &'static str,
        /// What the driver said.
        reason: String,
    },
    /// The key or the inputs ask for something that this backend doesn't do.
    #[error("not supported by this backend: {0}")]
    Unsupported(String),
    /// Inputs and key don't fit together.
    #[error(transparent)]
    Inputs(#[from] InputsError),
    /// The backend panicked; the instance isn't used again.
    #[error("the backend panicked: {0}")]
    Panicked(String),
    /// The instance panicked or lost its device before, and isn't used again.
    #[error("the backend instance is unusable since: {0}")]
    Poisoned(String),
    /// A key was used with an instance that didn't load it.
    #[error("the key was loaded by another backend instance")]
    ForeignKey,
    /// The work was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl BackendError {
    /// A [`BackendError::Device`].
    pub fn device(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Device { what, reason: reason.to_string() }
    }
}

/// Inputs that can't belong to the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputsError {
    /// The witness has another number of variables than the key.
    #[error("the witness has {found} values, the key {expected} variables")]
    WitnessLength {
        /// Values in the witness.
        found: usize,
        /// Variables in the key.
        expected: usize,
    },
    /// Variable 0 isn't 1.
    #[error("witness value 0 is not 1")]
    FirstNotOne,
    /// An evaluation vector is longer than the domain, or the vectors differ in length.
    #[error("evaluation vector {vector} has {found} rows, expected {expected}")]
    EvaluationLength {
        /// `"a"`, `"b"` or `"c"`.
        vector: &'static str,
        /// Its rows.
        found: usize,
        /// Rows expected: at most the domain size for a, exactly a's for the others.
        expected: usize,
    },
    /// No evaluations were given, and the key carries no matrices to compute them from.
    #[error("the key carries no matrices, so the evaluations must be given")]
    EvaluationsMissing,
}

/// Why `start` failed, with the inputs where they are still whole.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct StartError {
    /// The cause.
    pub source: BackendError,
    /// The inputs, if the backend neither released nor changed any of them: another device can take them without a
    /// new synthesis. Boxed, so that the error stays small.
    pub inputs: Option<Box<Inputs>>,
}

/// Why `finish` gave no proof.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinishError {
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A sum isn't a point of the group: the backend computes wrongly.
    #[error("the backend returned a bad sum: {sum}: {fault}")]
    BadSum {
        /// `"a"`, `"b_g1"`, `"b_g2"` or `"hl"`.
        sum: &'static str,
        /// What is wrong with it.
        fault: PointFault,
    },
    /// The assembled proof doesn't verify: the witness doesn't satisfy the constraints, or the backend computes wrongly.
    #[error("the proof does not verify: the witness does not satisfy the circuit, or the backend computed wrongly")]
    ProofInvalid,
    /// The operating system gave no randomness for the blinding.
    #[error("no randomness from the operating system: {0}")]
    Randomness(String),
}

/// Parts that don't make a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A part has the wrong length.
    #[error("{part}: {found}, expected {expected}")]
    Length {
        /// The part.
        part: &'static str,
        /// Its length.
        found: usize,
        /// The length that the other parts ask for.
        expected: usize,
    },
    /// Too few variables for the public inputs, or more than 32-bit indices can name.
    #[error("{num_variables} variables with {num_public} public inputs")]
    Variables {
        /// All variables.
        num_variables: usize,
        /// Public inputs.
        num_public: usize,
    },
    /// More rows than the domain has.
    #[error("{rows} constraint rows in a domain of {domain_size}")]
    Rows {
        /// Rows of the matrices.
        rows: usize,
        /// Size of the domain.
        domain_size: usize,
    },
    /// A point of the key's header is bad.
    #[error("{part}: {fault}")]
    Point {
        /// Which one.
        part: &'static str,
        /// What is wrong with it.
        fault: PointFault,
    },
}
