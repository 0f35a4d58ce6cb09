//! Circuits as partitions of an engine's jobs.

use std::fmt;

use bellpepper_core::Circuit;
use blstrs::Scalar;
use splitprover_core::{CircuitShape, Inputs};

use super::{CircuitError, Counts, witness};
use crate::engine::{Footprint, Source, SourceError, Synthesis};

/// A partition whose circuit is made anew each time it is asked for, and run for its witness: for a key that has its matrices. The
/// witness's buffer comes from the engine's pool.
pub struct CircuitSource<F> {
    shape: CircuitShape,
    make: F,
}

impl<F> CircuitSource<F> {
    /// A partition of a key of this shape. `make` gives the same circuit each time.
    pub fn new(shape: CircuitShape, make: F) -> Self {
        Self { shape, make }
    }
}

impl<F> fmt::Debug for CircuitSource<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CircuitSource({:?})", self.shape)
    }
}

impl<C: Circuit<Scalar>, F: Fn() -> C + Send + Sync> Source for CircuitSource<F> {
    fn footprint(&self) -> Footprint {
        Footprint::of(&self.shape, 0)
    }

    fn synthesize(&self, synthesis: &Synthesis<'_>) -> Result<Inputs, SourceError> {
        if synthesis.stopped() {
            return Err(SourceError::Stopped);
        }
        let counts = Counts { num_public: self.shape.num_public, num_private: self.shape.num_private() };
        witness((self.make)(), counts, synthesis.memory()).map_err(|error| match error {
            CircuitError::Memory(error) => SourceError::Memory(error),
            error => SourceError::Failed(error.to_string()),
        })
    }
}
