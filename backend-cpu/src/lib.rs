//! The CPU reference.
