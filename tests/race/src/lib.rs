//! splitprover beside other provers, on the same circuits and in the same run.
//!
//! | prover | what it proves with |
//! |---|---|
//! | `splitprover` | the `.zkey` that `setup` made, mapped |
//! | `taceo-groth16` | the same `.zkey` |
//! | `ark-groth16` | the key of the same trapdoor with the monomial H basis, and the matrices, in arkworks' own encoding |
//! | `bellperson` | the same monomial key as its `Parameters`; its circuit reads the `.r1cs`. Synthesis isn't counted |
//!
//! What is timed: from the key and the witness in memory to the proof. splitprover's time has the blinding and the verification
//! of its proof in it, the others don't verify. With equal blinding the provers of one basis must give equal proofs, and every
//! proof is verified.

pub mod circuit;
pub mod measure;
pub mod points;
pub mod provers;

/// Whatever goes wrong ends the race.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
