//! What the cross-crate tests share.

pub mod cases;
pub mod needs;
