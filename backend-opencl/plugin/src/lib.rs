//! The OpenCL backend, exported.

splitprover_core::export_backend!(opencl::OpenClPlugin);
