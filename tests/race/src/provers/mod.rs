//! The provers, behind one trait.

mod ark;
mod bellperson;
mod splitprover;
mod taceo;

use std::path::Path;
use std::time::Duration;

use splitprover_core::{Proof, Scalar};

use crate::Result;
use crate::circuit::Circuit;

pub use splitprover::{Opening, open_zkey};

/// A key and a witness in memory, ready to prove.
pub trait Prover {
    /// A proof with this blinding, and how long it took: wall time and processor time.
    ///
    /// # Errors
    /// If the prover fails.
    fn prove(&self, r: Scalar, s: Scalar) -> Result<Timed>;
}

/// A proof and its times.
#[derive(Clone, Debug)]
pub struct Timed {
    /// From the key and the witness in memory to the proof.
    pub wall: Duration,
    /// Likewise, summed over the threads, in steps of 10 ms.
    pub processor: Duration,
    /// The proof.
    pub proof: Proof,
}

fn timed(prove: impl FnOnce() -> Result<Proof>) -> Result<Timed> {
    let (processor, wall) = (crate::measure::processor_time(), std::time::Instant::now());
    let proof = prove()?;
    Ok(Timed { wall: wall.elapsed(), processor: crate::measure::processor_time().saturating_sub(processor), proof })
}

/// Who proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Ours, with the odd Lagrange basis.
    Splitprover,
    /// Ours, without AVX-512: what most processors get.
    Avx2,
    /// Ours, with the monomial basis.
    SplitproverBellman,
    /// taceo-groth16 0.2
    Taceo,
    /// ark-groth16 0.6
    Ark,
    /// bellperson 0.27, on the CPU
    Bellperson,
}

impl Name {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Splitprover, Self::Avx2, Self::SplitproverBellman, Self::Taceo, Self::Ark, Self::Bellperson];

    /// The other provers.
    pub const PEERS: [Self; 3] = [Self::Taceo, Self::Ark, Self::Bellperson];

    /// On the command line and in tables.
    pub fn text(self) -> &'static str {
        match self {
            Self::Splitprover => "splitprover",
            Self::Avx2 => "splitprover-avx2",
            Self::SplitproverBellman => "splitprover-bellman",
            Self::Taceo => "taceo-groth16",
            Self::Ark => "ark-groth16",
            Self::Bellperson => "bellperson",
        }
    }

    /// The prover of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.text() == text)
    }

    /// The key that its proofs are verified with.
    pub fn zkey(self, circuit: &Circuit) -> std::path::PathBuf {
        match self {
            Self::Splitprover | Self::Avx2 | Self::Taceo => circuit.zkey(),
            Self::SplitproverBellman | Self::Ark | Self::Bellperson => circuit.bellman_zkey(),
        }
    }

    /// The file that its key is in.
    pub fn key_file(self, circuit: &Circuit) -> std::path::PathBuf {
        match self {
            Self::Ark => circuit.ark(),
            Self::Bellperson => circuit.params(),
            _ => self.zkey(circuit),
        }
    }

    /// Reads the key and the witness. splitprover looks into `stamps` for what it has checked before.
    ///
    /// # Errors
    /// If a file can't be read.
    pub fn open(self, circuit: &Circuit, stamps: &Path) -> Result<Box<dyn Prover>> {
        Ok(match self {
            Self::Splitprover | Self::Avx2 | Self::SplitproverBellman => {
                Box::new(splitprover::Splitprover::open(self, circuit, stamps)?)
            }
            Self::Taceo => Box::new(taceo::Taceo::open(circuit)?),
            Self::Ark => Box::new(ark::Ark::open(circuit)?),
            Self::Bellperson => Box::new(bellperson::Bellperson::open(circuit)?),
        })
    }
}
