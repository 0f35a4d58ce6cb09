//! Timing a backend through the contract: one multi-exponentiation, one quotient, one whole proof, each result checked.
//!
//! What a caller can do is what is timed: inputs lie in host memory (pinned where the backend offers it), [`start`] and the sums are
//! called as a prover calls them. A single multi-exponentiation is a key in which every query but one is empty; a quotient is a key in
//! which all are. So the same benchmark runs on every backend, and none can be timed on a path that proofs don't take.
//!
//! | module | what it holds |
//! |---|---|
//! | [`workload`] | keys with one query, their inputs, and the sums that must come out |
//! | [`mod@measure`] | warm-up, repetitions, medians |
//!
//! [`start`]: splitprover_core::Prover::start

pub mod measure;
pub mod workload;

pub use measure::{Measurement, Summary, measure, measure_pair};
pub use workload::{Scalars, Workload, WorkloadError};
