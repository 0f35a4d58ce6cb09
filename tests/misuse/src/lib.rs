//! What the programs under `cases/` have in common, so that each of them is its one mistake and little else.
//!
//! A package of its own with few dependencies: the test driver builds them once more for itself.

pub use splitprover_core::host_buf::{ForeignMemory, HostElement};
pub use splitprover_core::*;

/// A pending proof that holds nothing.
#[derive(Debug, Default)]
pub struct Sums;

impl PendingSums for Sums {
    fn finish(self) -> Result<QuerySums, BackendError> {
        Err(BackendError::Cancelled)
    }
}

/// The items of a [`SplitProver`] implementation that a program isn't about: all of them but `Pending` and `start`; the key's
/// type may be given.
#[macro_export]
macro_rules! rest_of_the_backend {
    () => {
        $crate::rest_of_the_backend!(());
    };
    ($key:ty) => {
        type Key = $key;

        fn load_key(&self, _key: &std::sync::Arc<$crate::ProvingKey>) -> Result<$key, $crate::BackendError> {
            Ok(<$key>::default())
        }

        fn retained_host_bytes(&self, _shape: &$crate::CircuitShape) -> u64 {
            0
        }
    };
}
