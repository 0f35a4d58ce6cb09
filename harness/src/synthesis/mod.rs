//! Circuits written for bellpepper (bellperson 0.27, bellpepper-core 0.2), as Filecoin's are.
//!
//! * [`synthesize`]: full synthesis. Witness, evaluations and densities, each time anew: what bellperson's prover does.
//! * [`Recording`]: the constraints are recorded once, as matrices with a dictionary of coefficients, and kept in a file beside the key
//!   ([`Recording::circuit`], [`Circuit::write`](crate::formats::params::Circuit::write)). From then on
//!   [`Recording::witness`] or [`witness`] runs the circuit for its witness alone: no constraint is built, no linear combination
//!   evaluated, and the evaluation vectors never exist on the host. The backend makes them from the matrices.
//!
//! [`CircuitSource`] makes a circuit a partition of the engine's, by recorded synthesis.
//!
//! Both give the same inputs. Variables are numbered as everywhere here: the constant 1, the public inputs, the private variables in
//! the order in which they are allocated. After the constraints comes a row `x·0 = 0` for the constant 1 and each public input, as
//! bellman's provers append it. Coefficients of zero count for nothing, and neither does a variable whose terms in a row cancel.
//!
//! A circuit must allocate and constrain the same whatever its values are, which is true of every circuit that can be proved
//! with one key. Where it doesn't, recorded synthesis notices a different number of variables; anything else is found when the
//! proof is verified, which it always is.

mod full;
mod record;
mod source;
mod witness;

use bellpepper_core::{Index, SynthesisError, Variable};
use splitprover_core::memory::OutOfHostMemory;

pub use full::{Synthesis, synthesize};
pub use record::Recording;
pub use source::CircuitSource;
pub use witness::{Counts, witness};

/// Why a circuit could not be synthesised.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CircuitError {
    /// The circuit says so.
    #[error("synthesis failed: {0}")]
    Synthesis(#[from] SynthesisError),
    /// It isn't the circuit that was recorded.
    #[error("the circuit has {found} {what}, but {expected} were recorded")]
    Other {
        /// `"public inputs"` or `"private variables"`.
        what: &'static str,
        /// How many it has: at least, where it was stopped.
        found: usize,
        /// How many were recorded.
        expected: usize,
    },
    /// More than 32-bit indices can tell apart.
    #[error("{0}")]
    TooLarge(#[from] splitprover_core::matrix::MatrixError),
    /// No memory for the vectors.
    #[error(transparent)]
    Memory(#[from] OutOfHostMemory),
}

/// Where a variable stands among the inputs or the private variables.
enum Place {
    Input(usize),
    Private(usize),
}

fn place(variable: Variable) -> Place {
    match variable.get_unchecked() {
        Index::Input(index) => Place::Input(index),
        Index::Aux(index) => Place::Private(index),
    }
}

fn input(index: usize) -> Variable {
    Variable::new_unchecked(Index::Input(index))
}

fn private(index: usize) -> Variable {
    Variable::new_unchecked(Index::Aux(index))
}
