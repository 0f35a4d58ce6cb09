//! Where partitions come from: sources that can be run again, because nobody keeps copies of inputs.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use splitprover_core::memory::OutOfHostMemory;
use splitprover_core::{CircuitShape, Evaluations, HostBuf, HostMemory, Inputs, MemoryClass, Scalar};

use crate::formats::read_wtns;
use crate::setup::{ConstraintSystem, SetupError, Synthetic};

/// Host memory that a partition needs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Evaluation vectors.
    pub evaluations: u64,
    /// The witness.
    pub witness: u64,
    /// What synthesis needs beside them, and gives back before it ends.
    pub transient: u64,
}

/// Page-locked buffers may be a little longer than asked for.
const SLACK: u64 = 64 << 10;

impl Footprint {
    /// From a circuit's shape: so many evaluation vectors of the domain's size, and the witness.
    pub fn of(shape: &CircuitShape, vectors: u64) -> Self {
        let bytes = |len: usize| len as u64 * size_of::<Scalar>() as u64 + SLACK;
        Self { evaluations: vectors * bytes(shape.domain_size()), witness: bytes(shape.num_variables), transient: 0 }
    }

    /// The sum.
    pub fn total(&self) -> u64 {
        self.evaluations.saturating_add(self.witness).saturating_add(self.transient)
    }
}

/// Why a source gave no inputs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// It saw that the job was stopped.
    #[error("stopped")]
    Stopped,
    /// Memory was refused: it needs more than its footprint says, or the system has none.
    #[error(transparent)]
    Memory(#[from] OutOfHostMemory),
    /// Anything else: a witness file that is bad, a circuit that isn't satisfied.
    #[error("{0}")]
    Failed(String),
}

impl From<SetupError> for SourceError {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Memory(error) => Self::Memory(error),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// What a synthesis works with.
pub struct Synthesis<'a> {
    memory: &'a HostMemory,
    stopped: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Synthesis<'a> {
    /// For sources that are run outside an engine.
    pub fn new(memory: &'a HostMemory, stopped: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { memory, stopped }
    }

    /// Where the vectors come from: recycled buffers, counted, within the partition's permit.
    pub fn memory(&self) -> &HostMemory {
        self.memory
    }

    /// Whether the job has been cancelled or is too late: a long synthesis asks now and then.
    pub fn stopped(&self) -> bool {
        (self.stopped)()
    }

    /// Sleeps, unless the job is stopped.
    ///
    /// # Errors
    /// [`SourceError::Stopped`].
    pub fn sleep(&self, time: Duration) -> Result<(), SourceError> {
        let begin = Instant::now();
        loop {
            if self.stopped() {
                return Err(SourceError::Stopped);
            }
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }
}

impl fmt::Debug for Synthesis<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Synthesis({:?})", self.memory)
    }
}

/// A partition: makes the same inputs each time it is asked.
pub trait Source: Send + Sync {
    /// Host memory that it needs.
    fn footprint(&self) -> Footprint;

    /// Makes the inputs. Everything large comes from [`Synthesis::memory`].
    ///
    /// # Errors
    /// [`SourceError`]. The job fails: an error here would come again.
    fn synthesize(&self, synthesis: &Synthesis<'_>) -> Result<Inputs, SourceError>;
}

/// A synthetic circuit, synthesised for real: witness and evaluations from a seed.
#[derive(Clone, Debug)]
pub struct SyntheticSource {
    /// The circuit.
    pub circuit: Synthetic,
    /// Seed of the witness.
    pub seed: u64,
    /// Whether the evaluations are made here, or left to a device that has the matrices.
    pub evaluations: bool,
    /// A pause before synthesis, for a circuit whose synthesis takes longer.
    pub delay: Duration,
}

impl SyntheticSource {
    /// Variables and domain of the circuit.
    pub fn shape(circuit: &Synthetic) -> CircuitShape {
        CircuitShape {
            num_public: circuit.num_public(),
            num_variables: circuit.num_variables(),
            domain_log2: circuit.log2(),
        }
    }
}

impl Source for SyntheticSource {
    fn footprint(&self) -> Footprint {
        Footprint::of(&Self::shape(&self.circuit), if self.evaluations { 3 } else { 0 })
    }

    fn synthesize(&self, synthesis: &Synthesis<'_>) -> Result<Inputs, SourceError> {
        synthesis.sleep(self.delay)?;
        let witness = self.circuit.witness(self.seed, synthesis.memory())?;
        if !self.evaluations {
            return Ok(Inputs::new(witness));
        }
        let evaluations = self.circuit.evaluations(&witness, synthesis.memory())?;
        Ok(Inputs::with_evaluations(witness, evaluations))
    }
}

/// A witness in a `.wtns` file, for a key that has its matrices.
#[derive(Clone, Debug)]
pub struct WitnessFile {
    /// The file.
    pub path: PathBuf,
    /// The key's shape.
    pub shape: CircuitShape,
}

impl Source for WitnessFile {
    fn footprint(&self) -> Footprint {
        Footprint::of(&self.shape, 0)
    }

    fn synthesize(&self, synthesis: &Synthesis<'_>) -> Result<Inputs, SourceError> {
        let witness = read_wtns(&self.path, synthesis.memory()).map_err(|e| SourceError::Failed(e.to_string()))?;
        Ok(Inputs::new(witness))
    }
}

/// Inputs that were made beforehand and are copied for each partition: synthesis that takes next to no time, to see what the
/// devices can do.
pub struct Premade {
    witness: HostBuf<Scalar>,
    evaluations: Option<Evaluations>,
    delay: Duration,
}

impl fmt::Debug for Premade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Premade({} values)", self.witness.len())
    }
}

impl Premade {
    /// Runs a source once, with memory that stays, and keeps what it makes. `rows` lengthens the evaluations with zeros: a domain's
    /// size lets every backend work in place.
    ///
    /// # Errors
    /// What the source says.
    pub fn new(source: &dyn Source, rows: usize, delay: Duration, memory: &HostMemory) -> Result<Self, SourceError> {
        let made = source.synthesize(&Synthesis::new(memory, &|| false))?;
        let copy = |class, values: &[Scalar], len: usize| -> Result<HostBuf<Scalar>, SourceError> {
            let mut copy = memory.zeroed::<Scalar>(class, len)?;
            copy[..values.len()].copy_from_slice(values);
            Ok(copy)
        };
        let class = MemoryClass::Staging;
        let evaluations = match made.evaluations() {
            None => None,
            Some(Evaluations { a, b, c }) => Some(Evaluations {
                a: copy(class, a, rows.max(a.len()))?,
                b: copy(class, b, rows.max(b.len()))?,
                c: c.as_ref().map(|c| copy(class, c, rows.max(c.len()))).transpose()?,
            }),
        };
        Ok(Self { witness: copy(class, made.witness(), made.witness().len())?, evaluations, delay })
    }

    /// Bytes that [`new`](Self::new) needs while it runs: what stays, and what the source makes.
    pub fn set_aside(footprint: &Footprint) -> u64 {
        footprint.total().saturating_mul(2)
    }
}

impl Source for Arc<Premade> {
    fn footprint(&self) -> Footprint {
        let bytes = |values: &HostBuf<Scalar>| size_of_val::<[Scalar]>(values) as u64 + SLACK;
        let evaluations = self.evaluations.as_ref();
        Footprint {
            evaluations: evaluations
                .map_or(0, |Evaluations { a, b, c }| bytes(a) + bytes(b) + c.as_ref().map_or(0, bytes)),
            witness: bytes(&self.witness),
            transient: 0,
        }
    }

    fn synthesize(&self, synthesis: &Synthesis<'_>) -> Result<Inputs, SourceError> {
        synthesis.sleep(self.delay)?;
        let copy = |class, values: &HostBuf<Scalar>| -> Result<HostBuf<Scalar>, SourceError> {
            let mut copy = synthesis.memory().overwritten::<Scalar>(class, values.len())?;
            const PART: usize = 1 << 16;
            copy.par_chunks_mut(PART).zip(values.par_chunks(PART)).for_each(|(to, from)| to.copy_from_slice(from));
            Ok(copy)
        };
        let witness = copy(MemoryClass::Witness, &self.witness)?;
        let Some(Evaluations { a, b, c }) = &self.evaluations else { return Ok(Inputs::new(witness)) };
        let rows = |values| copy(MemoryClass::Evaluations, values);
        let evaluations = Evaluations { a: rows(a)?, b: rows(b)?, c: c.as_ref().map(rows).transpose()? };
        Ok(Inputs::with_evaluations(witness, evaluations))
    }
}
