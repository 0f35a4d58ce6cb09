//! The CUDA backend, exported.

splitprover_core::export_backend!(cuda::CudaPlugin);
