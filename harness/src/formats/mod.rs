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
mod output;
pub mod r1cs;
mod source;
mod stamp;
mod wtns;
pub mod zkey;

pub use container::Section;
pub use error::{FormatError, FormatResult, Problem};
pub use map::{MappedFile, survive_shrinking};
pub use output::{OutputFile, write_files};
pub use r1cs::R1csFile;
pub use source::FileIdentity;
pub use stamp::Stamps;
pub use wtns::{read_wtns, write_wtns, wtns_from_bytes, wtns_to_bytes};
pub use zkey::{OpenOptions, ZkeyFile, write_zkey, zkey_to_bytes};
