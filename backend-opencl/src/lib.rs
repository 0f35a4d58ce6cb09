//! The OpenCL backend: an independent second opinion on any OpenCL 1.2 device, CPUs among them. It shares no kernel code with other backends.
//!
//! | module | what it is for |
//! |---|---|
//! | [`driver`] | the one layer over OpenCL: owners, typed errors, injected faults |
//! | [`kernels`] | the programs, and the cache of built ones on disk |
//! | [`device`] | devices of all platforms, and how one is opened |
//! | `selftest` | known answers when a device is opened |
//! | `field`, `curve` | limbs, constants, points between host and device |
//! | `ntt`, `vector`, `msm` | the work: transforms, sparse products, multi-exponentiations |
//! | `residency`, `key` | what of a key lives in device memory |
//! | [`prover`] | the contract |
//!
//! Without OpenCL the crate builds, and says in one line what is missing when devices are listed.

mod curve;
pub mod device;
pub mod driver;
mod field;
pub mod kernels;
mod key;
mod msm;
mod ntt;
mod plugin;
pub mod prover;
mod residency;
mod selftest;
#[cfg(test)]
mod tests;
mod vector;

pub use device::{Choice, OpenOptions, devices};
pub use plugin::OpenClPlugin;
pub use prover::{OpenClKey, OpenClPending, OpenClProver};
