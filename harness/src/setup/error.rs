//! Why no development key or witness could be made.

use splitprover_core::memory::OutOfHostMemory;
use splitprover_core::{BackendError, KeyError};

/// Why no development key or witness could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A trapdoor with which no key exists: a zero, or τ in the evaluation domain.
    #[error("degenerate trapdoor: {0}")]
    Trapdoor(&'static str),
    /// The size of a synthetic circuit is out of range.
    #[error("synthetic circuits have 2^{min} to 2^{max} rows, not 2^{log2}")]
    Log2 {
        /// The size asked for.
        log2: u32,
        /// The smallest.
        min: u32,
        /// The largest.
        max: u32,
    },
    /// No synthetic circuit has this name.
    #[error("no synthetic circuit {0:?}: porep, mixed or dense")]
    Shape(String),
    /// The circuit has more rows than the largest domain.
    #[error("{rows} constraint rows, at most 2^{max_log2} are supported")]
    Rows {
        /// Constraints and public input rows.
        rows: usize,
        /// log2 of the largest domain.
        max_log2: u32,
    },
    /// A witness that doesn't belong to the circuit.
    #[error("the witness has {found} values, the circuit {expected} variables")]
    WitnessLength {
        /// Values given.
        found: usize,
        /// Variables of the circuit.
        expected: usize,
    },
    /// An entry names a row or a variable that the circuit doesn't have.
    #[error(transparent)]
    Matrix(#[from] splitprover_core::matrix::MatrixError),
    /// The parts don't make a key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Host memory could not be had.
    #[error(transparent)]
    Memory(#[from] OutOfHostMemory),
    /// The device that multiplies the generators failed.
    #[error(transparent)]
    FixedBase(#[from] BackendError),
}
