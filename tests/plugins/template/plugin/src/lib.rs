//! The backend, exported.

splitprover_core::export_backend!(backend::Plugin);
