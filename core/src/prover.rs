//! The contract, read top-down: what a backend implements, and what a caller uses.
//!
//! A backend implements [`SplitProver`] and [`PendingSums`]. A caller wraps it in a [`Prover`], loads a key, and for each
//! proof calls [`start`](Prover::start) and [`finish`](InFlight::finish). The wrapper owns the inputs while the backend
//! reads them, frees them when it has, catches panics, checks the sums, blinds, assembles, and verifies: a wrong proof can't
//! be handed out.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use blstrs::Scalar;

use crate::error::{BackendError, FinishError, StartError};
use crate::inputs::{Inputs, LentInputs, Slots};
use crate::key::{CircuitShape, ProvingKey};
use crate::proof::{Blinding, Proof, QuerySums};
use crate::verify::PreparedVerifyingKey;

/// A backend: computes the four sums of a proof in two steps.
///
/// ```
/// use std::sync::Arc;
/// use splitprover_core::*;
///
/// struct MyBackend;
/// struct MyPending; // 'static: it cannot hold anything of the loan
///
/// impl PendingSums for MyPending {
///     fn finish(self) -> Result<QuerySums, BackendError> {
///         Err(BackendError::Unsupported("everything".into()))
///     }
/// }
///
/// impl SplitProver for MyBackend {
///     type Key = Arc<ProvingKey>;
///     type Pending = MyPending;
///
///     fn load_key(&self, key: &Arc<ProvingKey>) -> Result<Self::Key, BackendError> {
///         Ok(key.clone())
///     }
///
///     fn start<'i>(&self, _key: &Self::Key, inputs: LentInputs<'i>) -> Result<MyPending, BackendError> {
///         let LentInputs { witness, evaluations, .. } = inputs;
///         drop(evaluations);   // the loan ends; core frees the vectors when start returns
///         witness.release();   // freed right now
///         Ok(MyPending)
///     }
///
///     fn retained_host_bytes(&self, _shape: &CircuitShape) -> u64 {
///         0
///     }
/// }
/// ```
pub trait SplitProver: Send + Sync + 'static {
    /// A loaded key: resident where the backend wants it. Dropping it with proofs in flight is legal.
    type Key: Send + Sync + 'static;

    /// A proof in flight. Being `'static`, it can't hold a loan.
    type Pending: PendingSums;

    /// Prepares a key for any number of proofs.
    ///
    /// # Errors
    /// [`BackendError`], if the device can't take it.
    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<Self::Key, BackendError>;

    /// Reads the inputs and starts the sums. Returns as soon as the inputs have been read.
    ///
    /// Lengths have been checked against the key. Witness and evaluations are Montgomery scalars below r.
    /// Without evaluations the key has matrices.
    ///
    /// # Errors
    /// [`BackendError`]. If no vector was released or borrowed mutably, the caller gets its inputs back, so fail early.
    fn start<'i>(&self, key: &Self::Key, inputs: LentInputs<'i>) -> Result<Self::Pending, BackendError>;

    /// Upper bound of the host bytes that one [`Pending`](Self::Pending) of this shape holds on to after `start`. The
    /// conformance suite fails growth beyond it.
    fn retained_host_bytes(&self, shape: &CircuitShape) -> u64;
}

/// The second half of a proof. Dropping it cancels the work, or waits for it, and leaks nothing.
pub trait PendingSums: Send + 'static {
    /// Waits for the sums.
    ///
    /// # Errors
    /// [`BackendError`] if the device failed meanwhile.
    fn finish(self) -> Result<QuerySums, BackendError>;
}

/// A backend instance under the contract's care.
pub struct Prover<P> {
    backend: Arc<P>,
    identity: u64,
    /// Set once, by the first panic.
    poisoned: Arc<OnceLock<String>>,
}

impl<P: SplitProver> Prover<P> {
    /// Takes a backend instance.
    pub fn new(backend: P) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let identity = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { backend: Arc::new(backend), identity, poisoned: Arc::default() }
    }

    /// The backend.
    pub fn backend(&self) -> &P {
        &self.backend
    }

    /// Loads a key for use with this instance.
    ///
    /// # Errors
    /// What the backend says; [`BackendError::Poisoned`] after a panic.
    pub fn load_key(&self, key: Arc<ProvingKey>) -> Result<LoadedKey<P>, BackendError> {
        self.usable()?;
        let verifying_key = Arc::new(PreparedVerifyingKey::new(key.verifying_key()));
        let loaded = guarded(&self.poisoned, || self.backend.load_key(&key))?;
        Ok(LoadedKey { loaded, key, verifying_key, identity: self.identity })
    }

    /// Starts a proof. When this returns `Ok`, the inputs' memory has been freed, or is back in its pool.
    ///
    /// # Errors
    /// [`StartError`], with the inputs if the backend neither released nor changed any of them.
    pub fn start(&self, key: &LoadedKey<P>, inputs: Inputs) -> Result<InFlight<P>, StartError> {
        let checked = self.usable().and_then(|()| {
            if key.identity != self.identity {
                return Err(BackendError::ForeignKey);
            }
            Ok(inputs.check(&key.key)?)
        });
        if let Err(source) = checked {
            return Err(StartError { source, inputs: Some(Box::new(inputs)) });
        }
        // Verification needs the public inputs; they are few.
        let public = inputs.witness()[1..=key.key.shape().num_public].to_vec();
        let mut slots = Slots::new(inputs);
        let pending = guarded(&self.poisoned, || self.backend.start(&key.loaded, slots.lend()));
        match pending {
            Ok(pending) => {
                drop(slots);
                let (key, verifying_key) = (key.key.clone(), key.verifying_key.clone());
                Ok(InFlight { pending: Some(pending), key, verifying_key, public, poisoned: self.poisoned.clone() })
            }
            Err(source) => Err(StartError { source, inputs: slots.take_back().map(Box::new) }),
        }
    }

    fn usable(&self) -> Result<(), BackendError> {
        match self.poisoned.get() {
            Some(reason) => Err(BackendError::Poisoned(reason.clone())),
            None => Ok(()),
        }
    }
}

impl<P> std::fmt::Debug for Prover<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prover(instance {})", self.identity)
    }
}

/// A key that a backend instance has loaded.
pub struct LoadedKey<P: SplitProver> {
    loaded: P::Key,
    key: Arc<ProvingKey>,
    verifying_key: Arc<PreparedVerifyingKey>,
    identity: u64,
}

impl<P: SplitProver> LoadedKey<P> {
    /// The key as it was read.
    pub fn key(&self) -> &Arc<ProvingKey> {
        &self.key
    }
}

impl<P: SplitProver> std::fmt::Debug for LoadedKey<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LoadedKey({:?})", self.key.shape())
    }
}

/// A proof whose inputs are gone and whose sums are under way.
pub struct InFlight<P: SplitProver> {
    /// Taken by `finish`; what is left is dropped under a panic guard.
    pending: Option<P::Pending>,
    key: Arc<ProvingKey>,
    verifying_key: Arc<PreparedVerifyingKey>,
    public: Vec<Scalar>,
    poisoned: Arc<OnceLock<String>>,
}

impl<P: SplitProver> InFlight<P> {
    /// The public inputs, without the constant 1.
    pub fn public(&self) -> &[Scalar] {
        &self.public
    }

    /// Waits for the sums, blinds with fresh randomness, assembles and verifies.
    ///
    /// # Errors
    /// [`FinishError`]; never an invalid proof.
    pub fn finish(self) -> Result<Proof, FinishError> {
        self.finish_with(Blinding::random()?)
    }

    /// As [`finish`](Self::finish), with a given blinding.
    ///
    /// # Errors
    /// [`FinishError`]; never an invalid proof.
    pub fn finish_with(mut self, blinding: Blinding) -> Result<Proof, FinishError> {
        let sums = self.take_sums()?;
        let proof = Proof::assemble(&self.key, &sums, blinding)?;
        // As many public inputs as the key has: `start` took them from the witness by the key's count.
        match self.verifying_key.verify(&proof, &self.public) {
            Ok(true) => Ok(proof),
            _ => Err(FinishError::ProofInvalid),
        }
    }

    /// Waits for the four sums and checks that they are points of the group: for comparing backends. Nothing is verified.
    ///
    /// # Errors
    /// [`FinishError`] if the backend fails or returns a bad point.
    pub fn finish_sums(mut self) -> Result<QuerySums, FinishError> {
        let sums = self.take_sums()?;
        sums.check()?;
        Ok(sums)
    }

    fn take_sums(&mut self) -> Result<QuerySums, FinishError> {
        let pending = self.pending.take().ok_or(BackendError::Cancelled)?;
        Ok(guarded(&self.poisoned, || pending.finish())?)
    }
}

impl<P: SplitProver> Drop for InFlight<P> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            // A destructor that panics poisons the instance instead of tearing down the caller.
            let _ = guarded(&self.poisoned, || {
                drop(pending);
                Ok(())
            });
        }
    }
}

impl<P: SplitProver> std::fmt::Debug for InFlight<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InFlight({:?})", self.key.shape())
    }
}

/// Runs a backend's code; a panic becomes an error and poisons the instance.
fn guarded<T>(poisoned: &OnceLock<String>, body: impl FnOnce() -> Result<T, BackendError>) -> Result<T, BackendError> {
    // Unwind safety: after a panic the instance is never called again, and core's own state isn't touched by the body.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let reason = describe(payload);
        let _ = poisoned.set(format!("a panic: {reason}"));
        Err(BackendError::Panicked(reason))
    })
}

/// The message of a panic. The payload's own destructor may panic too; then it is forgotten.
pub(crate) fn describe(payload: Box<dyn Any + Send>) -> String {
    let message = if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a payload that is no text".to_owned()
    };
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    message
}
