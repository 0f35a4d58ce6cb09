//! Device memory, with its owner.

use std::sync::atomic::Ordering;

use opencl3::error_codes::{CL_INVALID_BUFFER_SIZE, CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES};
use opencl3::memory::{CL_MEM_READ_WRITE, create_buffer, release_mem_object};
use opencl3::types::cl_mem;

use super::{Call, Context, OpenClError};

/// A buffer in device memory. The driver keeps the memory until commands that use it are done, so it may be dropped at any time.
pub struct Buffer {
    context: Context,
    pub(super) raw: cl_mem,
    bytes: u64,
}

// SAFETY: OpenCL memory objects may be used from any thread.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `bytes` (at least 16). The contents are undefined.
    ///
    /// # Errors
    /// [`OpenClError::OutOfMemory`] when the device or the context's limit is exhausted, [`OpenClError::DoesNotFit`] beyond the largest buffer.
    pub fn new(context: &Context, bytes: u64) -> Result<Self, OpenClError> {
        let inner = &context.0;
        let bytes = bytes.max(16);
        let most = context.max_allocation();
        if bytes > most {
            return Err(OpenClError::DoesNotFit { what: "one buffer", need: bytes, have: most });
        }
        context.gate(Call::CreateBuffer)?;
        let limit = inner.limit.load(Ordering::Relaxed);
        let out_of_memory =
            || OpenClError::OutOfMemory { wanted: bytes, held: inner.bytes.load(Ordering::Relaxed), limit };
        let fits = |held: u64| held.checked_add(bytes).filter(|&total| total <= limit);
        inner.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| out_of_memory())?;
        // SAFETY: no host memory is involved.
        match unsafe { create_buffer(inner.raw, CL_MEM_READ_WRITE, bytes as usize, std::ptr::null_mut()) } {
            Ok(raw) => Ok(Self { context: context.clone(), raw, bytes }),
            Err(code) => {
                let error = match code {
                    CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_INVALID_BUFFER_SIZE | CL_OUT_OF_RESOURCES => out_of_memory(),
                    code => OpenClError::Call { function: Call::CreateBuffer.function(), code },
                };
                inner.bytes.fetch_sub(bytes, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// How long it is, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: created by `new`, released once.
        let _ = unsafe { release_mem_object(self.raw) };
        self.context.0.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}
