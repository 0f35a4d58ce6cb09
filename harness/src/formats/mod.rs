//! File formats: readers that trust nothing, and writers.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod container;
mod error;
mod field;
pub mod json;
mod map;
mod source;
mod wtns;
pub mod zkey;

pub use container::Section;
pub use error::{FormatError, FormatResult, Problem};
pub use map::MappedFile;
pub use source::FileIdentity;
pub use wtns::{read_wtns, wtns_from_bytes};
pub use zkey::{OpenOptions, ZkeyFile};
