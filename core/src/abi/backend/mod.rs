//! A host's side: one type for every backend, whether it was linked in or loaded.

mod extensions;
mod library;

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use blstrs::{G1Affine, G2Affine};

use super::host::{HostContext, LogLevel};
use super::key::KeyOwner;
use super::lend::Loan;
use super::plugin::BackendPlugin;
use super::types::*;
use crate::error::BackendError;
use crate::inputs::LentInputs;
use crate::key::{CircuitShape, ProvingKey};
use crate::memory::MemoryClass;
use crate::point::PointRecord;
use crate::proof::QuerySums;
use crate::prover::{PendingSums, SplitProver};

pub use library::{BackendInfo, BackendLibrary, DeviceInfo, NegotiationError, OpenOptions};
use library::{Library, broken};

/// A backend instance on one device: a [`SplitProver`] over the table. Clones are the same instance, which is closed with the
/// last of its clones, keys, pending proofs and pinned buffers.
#[derive(Clone)]
pub struct Backend(Arc<Instance>);

struct Instance {
    handle: NonNull<SpInstance>,
    library: Arc<Library>,
    host: Box<HostContext>,
}

// SAFETY: entries may be called from any thread at any time.
unsafe impl Send for Instance {}
// SAFETY: as above.
unsafe impl Sync for Instance {}

impl Instance {
    fn note(&self, what: &str, result: Result<(), BackendError>) {
        if let Err(error) = result {
            self.host.log().line(LogLevel::Error, &self.library.info.name, &format!("{what}: {error}"));
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the handle of `open`, ended once; keys, pending proofs and buffers hold the instance, so they are gone.
        let result = self.library.call(|error| unsafe { (self.library.table.close)(self.handle.as_ptr(), error) });
        self.note("close", result);
        for (class, bytes) in self.host.outstanding() {
            let message = format!("closed with {bytes} bytes of class {} on its account", class.name());
            self.host.log().line(LogLevel::Warn, &self.library.info.name, &message);
        }
    }
}

impl Backend {
    /// Opens a device of a backend that is linked in.
    ///
    /// # Errors
    /// What the backend says.
    pub fn in_process<P: BackendPlugin>(options: &OpenOptions) -> Result<Self, BackendError> {
        BackendLibrary::in_process::<P>().open(options)
    }

    /// What the backend says of itself.
    pub fn info(&self) -> &BackendInfo {
        &self.0.library.info
    }

    /// Host memory that the backend has on its account now, by class.
    pub fn accounted(&self) -> Vec<(MemoryClass, u64)> {
        self.0.host.outstanding()
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({})", self.0.library.info.name)
    }
}

/// A key that a [`Backend`] has loaded.
#[derive(Debug)]
pub struct BackendKey(Arc<Loaded>);

struct Loaded {
    handle: NonNull<SpLoadedKey>,
    instance: Arc<Instance>,
    /// What the plug-in's views point to.
    _views: Arc<KeyOwner>,
}

// SAFETY: entries may be called from any thread at any time.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a key loaded by {}", self.instance.library.info.name)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let library = &self.instance.library;
        // SAFETY: the handle of `load_key`, ended once; pending proofs hold the key, so they are gone.
        let result = library.call(|error| unsafe { (library.table.unload_key)(self.handle.as_ptr(), error) });
        self.instance.note("unload_key", result);
    }
}

/// A proof in flight on a [`Backend`].
#[derive(Debug)]
pub struct BackendPending {
    /// `None` once `finish` has ended it.
    handle: Option<NonNull<SpPending>>,
    key: Arc<Loaded>,
}

// SAFETY: `finish` and `drop_pending` may be called from any thread.
unsafe impl Send for BackendPending {}

impl SplitProver for Backend {
    type Key = BackendKey;
    type Pending = BackendPending;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<BackendKey, BackendError> {
        let library = &self.0.library;
        let views = KeyOwner::new(key.clone());
        let view = views.view();
        let mut handle = std::ptr::null_mut();
        // SAFETY: a live instance; the view lives during the call, what it points to as long as `views`.
        library.call(|error| unsafe { (library.table.load_key)(self.0.handle.as_ptr(), &view, &mut handle, error) })?;
        let handle = NonNull::new(handle).ok_or_else(|| broken("load_key succeeded without a key"))?;
        Ok(BackendKey(Arc::new(Loaded { handle, instance: self.0.clone(), _views: views })))
    }

    fn start<'i>(&self, key: &BackendKey, inputs: LentInputs<'i>) -> Result<BackendPending, BackendError> {
        if !Arc::ptr_eq(&self.0, &key.0.instance) {
            return Err(BackendError::ForeignKey);
        }
        let library = &self.0.library;
        let loan = Loan::new(inputs);
        let pools = library.pools.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let view = loan.view(|number| pools.iter().find(|pool| pool.0 == number).map(|pool| pool.1));
        let mut handle = std::ptr::null_mut();
        // SAFETY: live handles of this instance; loan and view stay in this frame during the call.
        library.call(|error| unsafe {
            (library.table.start)(self.0.handle.as_ptr(), key.0.handle.as_ptr(), &view, &mut handle, error)
        })?;
        let handle = NonNull::new(handle).ok_or_else(|| broken("start succeeded without a pending proof"))?;
        Ok(BackendPending { handle: Some(handle), key: key.0.clone() })
    }

    fn retained_host_bytes(&self, shape: &CircuitShape) -> u64 {
        let library = &self.0.library;
        let Some(entry) = library.table.raw.retained_host_bytes else { return 0 };
        let shape = SpShape {
            num_public: shape.num_public as u64,
            num_variables: shape.num_variables as u64,
            domain_log2: shape.domain_log2,
            reserved: 0,
        };
        let mut bytes = 0;
        // SAFETY: a live instance; shape and result live during the call.
        let result = library.call(|error| unsafe { entry(self.0.handle.as_ptr(), &shape, &mut bytes, error) });
        match result {
            Ok(()) => bytes,
            // Whoever budgets by this must not take a failure for nothing.
            Err(_) => u64::MAX,
        }
    }
}

impl PendingSums for BackendPending {
    fn finish(mut self) -> Result<QuerySums, BackendError> {
        let library = &self.key.instance.library;
        let Some(handle) = self.handle.take() else { return Err(BackendError::Cancelled) };
        // Sums that the plug-in doesn't write are out of range, and so found out.
        let mut sums = SpSums {
            struct_size: size_of::<SpSums>() as u64,
            a: [0xff; 96],
            b_g1: [0xff; 96],
            b_g2: [0xff; 192],
            hl: [0xff; 96],
        };
        // SAFETY: the handle of `start`, ended once; the sums live during the call.
        library.call(|error| unsafe { (library.table.finish)(handle.as_ptr(), &mut sums, error) })?;
        Ok(QuerySums {
            a: G1Affine::from_record_unchecked(&sums.a),
            b_g1: G1Affine::from_record_unchecked(&sums.b_g1),
            b_g2: G2Affine::from_record_unchecked(&sums.b_g2),
            hl: G1Affine::from_record_unchecked(&sums.hl),
        })
    }
}

impl Drop for BackendPending {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            let library = &self.key.instance.library;
            // SAFETY: the handle of `start`, ended once.
            let result = library.call(|error| unsafe { (library.table.drop_pending)(handle.as_ptr(), error) });
            self.key.instance.note("drop_pending", result);
        }
    }
}
