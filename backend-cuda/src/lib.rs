//! The CUDA backend.
