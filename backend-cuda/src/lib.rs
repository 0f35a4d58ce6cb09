//! The CUDA backend.

pub mod device;
pub mod driver;
#[cfg(any(test, feature = "emulator"))]
pub mod emulator;
pub mod fixed_base;
pub mod kernels;
mod key;
pub mod msm;
pub mod ntt;
mod nvrtc;
mod plugin;
pub mod prover;
pub mod residency;
pub mod transfer;
pub mod vector;

pub use device::{OpenOptions, devices};
pub use plugin::CudaPlugin;
pub use prover::{CudaKey, CudaPending, CudaProver};
