//! The CUDA backend.

pub mod driver;
