//! The CPU reference backend of splitprover: rayon and blst, with an AVX-512 path for the inner loops.
//!
//! | module | what it holds |
//! |---|---|
//! | `field` | base and scalar field, eight elements at a time, on blst or on AVX-512 |
//! | `curve` | batched affine addition |
//! | `msm` | multi-exponentiation |
//! | `ntt` | number-theoretic transforms between rows, coefficients and the odd coset |
//! | `sparse` | constraint matrix times witness |
//! | `prover` | [`CpuBackend`]: the contract |

mod curve;
mod field;
mod msm;

pub use field::Arithmetic;
