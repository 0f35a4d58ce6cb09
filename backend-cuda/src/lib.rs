//! The CUDA backend.
//!
//! | module | what it is for |
//! |---|---|
//! | [`driver`] | the one layer over CUDA's driver: owners, typed errors, injected faults, a dry device |
//! | [`kernels`] | NVRTC to CUBIN by family, and the cache on disk |
//! | [`device`] | cards, and how one is opened |
//! | [`ntt`], [`vector`], [`msm`], [`fixed_base`] | the work: transforms, sparse products, multi-exponentiations, key generation |
//! | [`transfer`] | pinned pool and ring: host memory to the card |
//! | [`limits`] | what a card could do at most |
//! | [`residency`] | what of a key lives in device memory |
//! | [`prover`] | the contract |
//!
//! Everything runs on the device but the folding of a few hundred points per sum. Without CUDA the crate builds, and says in one line
//! what is missing when a card is opened.

pub mod device;
pub mod driver;
#[cfg(any(test, feature = "emulator"))]
pub mod emulator;
pub mod fixed_base;
pub mod kernels;
mod key;
pub mod limits;
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
