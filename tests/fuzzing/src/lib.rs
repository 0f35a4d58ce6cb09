//! What the fuzz targets do with their bytes.
//!
//! The targets in `fuzz` hand these functions what the fuzzer makes up; the test beside them, which needs no more than a stable
//! compiler, hands them the committed seeds and mutations of those. Each function promises the same: it returns for any bytes,
//! without a panic and with memory in proportion to them, and what it accepts passes the checks that its comment names.

mod boundary;
mod files;
mod prove;
mod verify;

pub use boundary::{negotiate, start_arguments};
pub use files::{json, params, r1cs, wtns, zkey};
pub use prove::prove;
pub use verify::verify;

/// What became of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They are what the target reads, and passed its checks.
    Accepted,
    /// A typed error.
    Refused,
}

/// Target, by the name of its folder of seeds.
pub type Target = (&'static str, fn(&[u8]) -> Outcome);

/// All targets.
pub const TARGETS: [Target; 9] = [
    ("zkey", zkey),
    ("wtns", wtns),
    ("r1cs", r1cs),
    ("params", params),
    ("json", json),
    ("verify", verify),
    ("prove", prove),
    ("negotiate", negotiate),
    ("start_arguments", start_arguments),
];
