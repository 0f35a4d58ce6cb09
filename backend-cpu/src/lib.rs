//! The CPU reference backend of splitprover: rayon and blst, with AVX-512 and AVX2 paths for the inner loops.
//!
//! | module | what it holds |
//! |---|---|
//! | `field` | base and scalar field, eight elements at a time, on blst, AVX2 or AVX-512 |
//! | `curve` | batched affine addition |
//! | `msm` | multi-exponentiation |
//! | `ntt` | number-theoretic transforms between rows, coefficients and the odd coset |
//! | `quotient` | the scalars of the H query, in both bases |
//! | `sparse` | constraint matrix times witness |
//! | `assignment` | the witness, sorted by what its values cost |
//! | [`curve_check`] | whether the points of a key are on their curves |
//! | [`decode`] | encoded points to a key's records |
//! | [`kernels`] | these pieces one by one |
//! | `prover` | [`CpuBackend`]: the contract |

mod assignment;
mod curve;
pub mod curve_check;
pub mod decode;
mod field;
pub mod kernels;
mod msm;
mod ntt;
mod plugin;
mod prover;
mod quotient;
mod sparse;

pub use field::Arithmetic;
pub use plugin::CpuPlugin;
pub use prover::{CpuBackend, CpuOptions, CpuPending};
