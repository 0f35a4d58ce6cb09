//! `splitprover bench`: times of a backend, each result checked in the same run.
//!
//! `msm`, `ntt` and `prove` go through the contract, so they run on any backend; see [`crate::bench`] for what is timed.

mod pipeline;
mod prove;
mod report;
mod sums;

use clap::Subcommand;
use splitprover_core::abi::Backend;
use splitprover_core::{BackendError, HostBuf, HostMemory, MemoryClass, Scalar};

use super::Failure;
use crate::bench::WorkloadError;
use crate::setup::{BackendFixedBase, CpuFixedBase, FixedBase};

#[derive(Debug, Subcommand)]
pub(super) enum Bench {
    /// One multi-exponentiation: bases loaded with the key, scalars in host memory, to the sum
    Msm(sums::MsmArguments),
    /// One quotient: evaluations in host memory, six transforms (or as many as the backend takes), no bases
    Ntt(sums::NttArguments),
    /// Whole proofs of a synthetic circuit: key loaded, inputs in host memory, to the verified proof
    Prove(prove::Arguments),
    /// Many partitions of many jobs through the engine: rates, latencies, memory by class over time, and a picture
    Pipeline(Box<pipeline::Arguments>),
}

pub(super) fn run(bench: &Bench) -> Result<(), Failure> {
    match bench {
        Bench::Msm(arguments) => sums::msm(arguments),
        Bench::Ntt(arguments) => sums::ntt(arguments),
        Bench::Prove(arguments) => prove::run(arguments),
        Bench::Pipeline(arguments) => pipeline::run(arguments),
    }
}

/// What all of them take.
#[derive(Clone, Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    backend: super::backend::Choice,
    /// log2 of the size; several with commas
    #[arg(long, value_delimiter = ',', required = true)]
    log2: Vec<u32>,
    /// Runs after the warm-up
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Inputs in ordinary memory, although the backend offers pinned buffers
    #[arg(long)]
    pageable: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl From<WorkloadError> for Failure {
    fn from(error: WorkloadError) -> Self {
        match error {
            WorkloadError::Log2(_) | WorkloadError::Key(_) => Self::Usage(error.to_string()),
            WorkloadError::WrongSum(_) => Self::No(error.to_string()),
            _ => Self::Backend(error.to_string()),
        }
    }
}

/// Buffers for inputs: the backend's own where it has any and they are wanted.
struct Buffers<'a> {
    backend: &'a Backend,
    memory: HostMemory,
    pinned: bool,
}

impl<'a> Buffers<'a> {
    /// Asks the backend once whether it has pinned buffers.
    fn new(backend: &'a Backend, memory: HostMemory, pageable: bool) -> Result<Self, Failure> {
        let pinned = !pageable && backend.pinned(64).transpose()?.is_some();
        Ok(Self { backend, memory, pinned })
    }

    fn copy(&self, class: MemoryClass, values: &[Scalar]) -> Result<HostBuf<Scalar>, WorkloadError> {
        let pinned = if self.pinned { self.backend.pinned(size_of_val(values)) } else { None };
        let Some(pinned) = pinned else { return Ok(self.memory.copy_of(class, values)?) };
        let mut buffer = self.memory.foreign(class, pinned?, values.len())?;
        buffer.copy_from_slice(values);
        Ok(buffer)
    }
}

/// The backend's fixed-base multiplication where it has one, the CPU's otherwise: keys are made, not timed.
fn key_maker<'a>(backend: &'a Backend, products: usize) -> Result<Box<dyn FixedBase + 'a>, Failure> {
    match BackendFixedBase::new(backend) {
        Ok(on_device) => Ok(Box::new(on_device)),
        Err(BackendError::Unsupported(_)) => Ok(Box::new(CpuFixedBase::new(products))),
        Err(error) => Err(error.into()),
    }
}
