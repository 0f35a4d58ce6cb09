//! File formats: readers that trust nothing, and writers.
//!
//! | module | what |
//! |---|---|
//! | [`zkey`] | snarkjs's proving keys, with our mark of development keys |
//! | [`params`] | bellperson's proving keys |
//! | [`read_wtns`], [`write_wtns`] | circom's witnesses |
//! | [`r1cs`] | circom's constraint systems |
//! | [`read_proofs`] | bellman's proofs: 192 bytes each, one after the other |
//! | [`json`] | snarkjs's proofs, public inputs and verification keys |
//!
//! # What readers promise
//! * Every count, offset, size and index is checked before it is used or anything is allocated for it; memory is in proportion
//!   to the file. Values are checked to be reduced, points to be on the curve (a key's constants and everything a verifier
//!   uses also to be in the subgroup), and nothing may follow the last section.
//! * What isn't as it should be is a [`FormatError`]: file, section, offset, what was expected and found, in one line. Files of
//!   another curve are refused by its name. There is no panic in a reader: the lints below see to it, in
//!   every module here. What readers call in core answers bad bytes with an error or `None`: points and proofs, verifying keys,
//!   matrices, density maps, tables of records. The fuzz targets run all of it with overflow checks.
//! * A file made by circom or snarkjs, read and written again, is the same file byte for byte.
//!
//! # Files that change while they are in use
//! `.wtns` and JSON are read once, and a file that shrinks meanwhile is an ordinary error. JSON may come from a pipe; a named pipe
//! that nobody has open to write is an empty file, and isn't waited for. What else isn't a regular file is refused. `.zkey`, `.params` and `.r1cs` are mapped, and the
//! kernel shows what others do to the file through the map. Size and modification time are compared at the end of opening;
//! [`ZkeyFile::check_unchanged`] does so again, and belongs before a result is written and after a proof that failed. Reading
//! a page that the file has lost raises `SIGBUS`: in a program that called [`survive_shrinking`] the reader sees zeros, and the
//! check reports the change; in another the process ends. A writer that keeps the size and sets the time back isn't noticed
//! here; its effect on a proof is, because every proof is verified.
//!
//! # Files that are written
//! appear whole or not at all ([`OutputFile`]).
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::get_unwrap,
    clippy::panic,
    clippy::panic_in_result_fn,
    clippy::unreachable,
    clippy::todo,
    clippy::unimplemented,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::arithmetic_side_effects
)]

mod compact;
mod container;
mod error;
mod field;
pub mod json;
mod map;
mod output;
pub mod params;
pub mod r1cs;
mod source;
mod stamp;
mod wtns;
pub mod zkey;

pub use compact::{is_compact, proofs_from_bytes, read_proofs};
pub use container::Section;
pub use error::{FormatError, FormatResult, Problem};
pub use map::{MappedFile, Residency, survive_shrinking};
pub use output::{OutputFile, write_files};
pub use params::{ParamsFile, write_params};
pub use r1cs::R1csFile;
pub use source::FileIdentity;
pub(crate) use source::first_bytes;
pub use stamp::Stamps;
pub use wtns::{read_wtns, read_wtns_of_length, write_wtns, wtns_from_bytes, wtns_to_bytes};
pub use zkey::{OpenOptions, ZkeyFile, write_zkey, zkey_to_bytes};
