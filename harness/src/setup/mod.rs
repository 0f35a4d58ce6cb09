//! Development keys from a seeded trapdoor, and synthetic circuits.
//!
//! Real keys come out of a ceremony. A development key is made by one party who knows the trapdoor: right for tests and for
//! measurements at sizes that no public ceremony covers, insecure for anything else.
//!
//! ```
//! use splitprover_core::{HBasis, HostMemory};
//! use splitprover_harness::setup::{CpuFixedBase, Resources, Shape, Synthetic, Trapdoor, generate};
//!
//! let circuit = Synthetic::new(Shape::Porep, 6)?;
//! let (memory, basis) = (HostMemory::default(), HBasis::OddLagrange);
//! let resources = Resources { memory: &memory, fixed_base: &CpuFixedBase::new(1 << 6), progress: &|_, _, _| {} };
//! let development = generate(&circuit, basis, &Trapdoor::from_seed(1, basis), &resources)?;
//! let witness = circuit.witness(1, &memory)?;
//! assert_eq!(witness.len(), development.key.shape().num_variables);
//! # Ok::<(), splitprover_harness::setup::SetupError>(())
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`constraints`] | constraint systems: in memory, from a file, or made as they are read |
//! | [`synthetic`] | the circuits `porep`, `mixed` and `dense`, and their witnesses |
//! | [`trapdoor`] | τ, α, β, γ, δ from a seed |
//! | [`mod@generate`] | from a system and a trapdoor to a key |
//! | [`fixed_base`] | many multiples of the generators |
//! | [`h_basis`] | from snarkjs's H basis to bellman's |

pub mod constraints;
mod error;
pub mod fixed_base;
pub mod generate;
pub mod h_basis;
mod polynomials;
mod r1cs;
pub mod synthetic;
pub mod trapdoor;

pub use constraints::{ConstraintSystem, Constraints, Matrix};
pub use error::SetupError;
pub use fixed_base::{BackendFixedBase, CpuFixedBase, FixedBase};
pub use generate::{DevelopmentKey, Resources, generate, generate_over};
pub use h_basis::monomial_h;
pub use synthetic::{Shape, Synthetic};
pub use trapdoor::{Trapdoor, is_marked};
