//! What the cross-crate tests share.

pub mod cases;
pub mod naive;
pub mod needs;
pub mod plugins;
pub mod scripted;
