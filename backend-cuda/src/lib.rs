//! The CUDA backend.

pub mod driver;
#[cfg(any(test, feature = "emulator"))]
pub mod emulator;
pub mod kernels;
pub mod ntt;
mod nvrtc;
pub mod transfer;
pub mod vector;
