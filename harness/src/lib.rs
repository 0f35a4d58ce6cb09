//! The harness: everything around the provers.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@bench`] | times of a backend through the contract, each result checked |
//! | [`cli`] | the `splitprover` program |
//! | [`loader`] | finds backends, loads them, and offers only devices that compute rightly |
//! | [`formats`] | `.zkey`, `.wtns`, `.r1cs`, snarkjs JSON: readers that trust nothing, and writers |
//! | [`engine`] | many partitions, many jobs, several devices, one memory budget |
//! | [`conformance`] | the suite that every backend must pass |
//! | [`setup`] | development keys from a seeded trapdoor, synthetic circuits |
//! | `synthesis` | circuits written for bellpepper; with the feature `bellpepper` |
pub mod bench;
pub mod cli;
pub mod conformance;
pub mod engine;
pub mod formats;
pub mod loader;
pub mod setup;
#[cfg(feature = "bellpepper")]
pub mod synthesis;
