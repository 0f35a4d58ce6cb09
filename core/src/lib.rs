//! The contract of splitprover.
//!
//! Groth16 proving over BLS12-381 is split in two. [`Prover::start`] takes the evaluation vectors and the witness
//! *by value* and puts them on a device; [`InFlight::finish`] completes the proof. When `start` returns `Ok`, the host
//! memory of its inputs has been freed, and the compiler, not a convention, says so: to the caller, whose inputs were
//! moved, and to whoever writes a backend, who is only ever [lent](LentInputs) them for a lifetime that nothing which
//! outlives the call can name.
//!
//! | module | what it holds |
//! |---|---|
//! | [`prover`] | the trait a backend implements and the public entry; read it first |
//! | [`inputs`] | what is proved: evaluations and witness, owned by the caller, lent to the backend |
//! | [`key`] | the proving key: query tables, densities, H basis, domain root, optional matrices |
//! | [`proof`], [`verify`] | blinding, assembly, encodings; the pairing check |
//! | [`memory`], [`host_buf`] | bytes by class, now and over time; the buffers that are counted |
//! | [`domain`], [`matrix`], [`density`], [`point`] | evaluation domain, constraint matrices, density maps, point records |
//! | [`abi`] | the C boundary: backends as plug-ins, and one type for every backend |
//!
//! This crate has no GPU code, reads no files and starts no threads. `unsafe` is forbidden outside [`host_buf`] and [`abi`].
#![deny(unsafe_code)]

pub mod abi;
pub mod density;
pub mod domain;
pub mod error;
pub mod host_buf;
pub mod inputs;
pub mod key;
pub mod matrix;
pub mod memory;
pub mod point;
pub mod proof;
pub mod prover;
pub mod verify;

pub use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};

pub use density::Bitmap;
pub use domain::{Domain, RootOfUnity};
pub use error::{BackendError, FinishError, KeyError, StartError};
pub use host_buf::{Disposal, HostBuf, HostMemory};
pub use inputs::{Evaluations, Inputs, Lent, LentEvaluations, LentInputs};
pub use key::{ByteOwner, CircuitShape, HBasis, Matrices, PointTable, ProvingKey, ProvingKeyParts, Query, SharedBytes};
pub use matrix::CsrMatrix;
pub use memory::{MemoryClass, MemoryLedger};
pub use point::PointRecord;
pub use proof::{Blinding, Proof, QuerySums};
pub use prover::{InFlight, LoadedKey, PendingSums, Prover, SplitProver};
pub use verify::{PreparedVerifyingKey, VerifyingKey};
