//! Cards, and an open card with its kernels: what a prover and its keys share.

use std::path::PathBuf;
use std::sync::OnceLock;

use splitprover_core::{BackendError, HostMemory};

use crate::driver::{Context, CudaError, DeviceInfo, probe};
use crate::kernels::{Cache, Kernels};
use crate::msm::{AffineG2, Group, MsmKernels};
use crate::ntt::{Arithmetic, NttKernels};
use crate::transfer::{PinnedPool, Uploader};
use crate::vector::VectorKernels;

/// The cards that this process sees, in the driver's order.
///
/// # Errors
/// One line that says why CUDA can't be used here: no driver, a stub, a driver that is too old.
pub fn devices() -> Result<Vec<DeviceInfo>, CudaError> {
    probe()
}

/// How a card is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Most bytes of device memory to hold; all that is free without it.
    pub vram_limit: Option<u64>,
    /// Folder of the kernel cache; the user's own without it.
    pub cache: Option<PathBuf>,
    /// Threads that copy pageable inputs, and fold sums.
    pub threads: usize,
    /// Most shifted copies of the bases to precompute when a key is loaded, 1 for none. Where those of all bases find no room, H and L alone have as many as
    /// do. Pays for keys used many times.
    pub copies: u32,
    /// Affine additions in G2.
    pub affine_g2: AffineG2,
    /// Proofs whose device work may overlap.
    pub slots: usize,
    /// How transforms compute with residues.
    pub arithmetic: Arithmetic,
    /// Whose account the backend's own host memory is on.
    pub memory: HostMemory,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            vram_limit: None,
            cache: None,
            threads,
            copies: 1,
            affine_g2: AffineG2::default(),
            slots: 2,
            arithmetic: Arithmetic::default(),
            memory: HostMemory::default(),
        }
    }
}

/// An open card.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) ntt: NttKernels,
    pub(crate) vector: VectorKernels,
    pub(crate) g1: MsmKernels,
    pub(crate) g2: MsmKernels,
    pub(crate) uploader: Uploader,
    pub(crate) kernels: Kernels,
    pub(crate) pool: PinnedPool,
    pub(crate) options: OpenOptions,
    pub(crate) context: Context,
    lost: OnceLock<String>,
}

impl Instance {
    /// Loads all kernels into `context`, compiling what the cache lacks.
    pub(crate) fn new(context: Context, options: OpenOptions) -> Result<Self, CudaError> {
        if let Some(limit) = options.vram_limit {
            context.set_memory_limit(limit);
        }
        let cache = options.cache.as_ref().map_or_else(Cache::from_environment, Cache::at);
        let kernels = Kernels::new(&context, cache);
        kernels.prepare()?;
        Ok(Self {
            ntt: NttKernels::load(&kernels, options.arithmetic)?,
            vector: VectorKernels::load(&kernels)?,
            g1: MsmKernels::load(&kernels, Group::G1)?,
            g2: MsmKernels::load(&kernels, Group::G2)?,
            uploader: Uploader::new(&context, options.threads.div_ceil(2).min(8), options.memory.ledger())?,
            pool: PinnedPool::new(&context),
            kernels,
            options,
            context,
            lost: OnceLock::new(),
        })
    }

    pub(crate) fn msm_kernels(&self, group: Group) -> &MsmKernels {
        match group {
            Group::G1 => &self.g1,
            Group::G2 => &self.g2,
        }
    }

    /// An error as the contract has it. One after which the context can't be used makes this instance refuse all further work.
    pub(crate) fn fail(&self, what: &'static str, error: CudaError) -> BackendError {
        if error.is_sticky() {
            let _ = self.lost.set(error.to_string());
        }
        to_backend_error(&self.context, what, error)
    }

    /// Refuses work after the context was lost.
    pub(crate) fn usable(&self) -> Result<(), BackendError> {
        self.lost.get().map_or(Ok(()), |reason| Err(BackendError::Poisoned(reason.clone())))
    }
}

/// An error as the contract has it.
pub(crate) fn to_backend_error(context: &Context, what: &'static str, error: CudaError) -> BackendError {
    match error {
        CudaError::OutOfMemory { wanted, .. } => {
            BackendError::DeviceMemory { what, requested: wanted, available: context.available_memory().unwrap_or(0) }
        }
        CudaError::DoesNotFit { what, need, have } => {
            BackendError::DeviceMemory { what, requested: need, available: have }
        }
        CudaError::HostMemory(error) => BackendError::HostMemory(error),
        other => BackendError::device(what, other),
    }
}
