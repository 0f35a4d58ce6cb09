//! The CPU reference backend, exported.

splitprover_core::export_backend!(cpu::CpuPlugin);
