//! The contract, read top-down: what a backend implements, and what a caller uses.
//!
//! A backend implements [`SplitProver`] and [`PendingSums`]. A caller wraps it in a [`Prover`], loads a key, and for each
//! proof calls [`start`](Prover::start) and [`finish`](InFlight::finish). The wrapper owns the inputs while the backend
//! reads them, frees them when it has, catches panics, checks the sums, blinds, assembles, and verifies: a wrong proof can't
//! be handed out.
//!
//! A panic of a backend becomes an error: in `load_key`, `start`, `finish`, in a destructor of the backend, its keys and pending
//! proofs, or of [foreign memory](crate::host_buf::ForeignMemory). What can't be caught is what Rust itself turns into an
//! abort: a destructor that panics while another panic unwinds the same thread's backend frames, and a program built with
//! `panic = "abort"`.

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
    /// [`Prover::start`] has checked the lengths against the key; without evaluations the key has matrices. Witness and
    /// evaluations are Montgomery scalars, below r if whoever filled the buffers kept to it. `unsafe` code must rely on neither:
    /// a backend that wraps another one may lend on what it likes. It takes lengths from the slices.
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
///
/// After a panic of the backend the instance starts nothing any more. Proofs in flight can still be finished: each is verified.
pub struct Prover<P> {
    backend: Contained<P>,
    identity: u64,
    /// Set once, by the first panic.
    poisoned: Poison,
}

impl<P: SplitProver> Prover<P> {
    /// Takes a backend instance.
    pub fn new(backend: P) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let identity = NEXT.fetch_add(1, Ordering::Relaxed);
        let poisoned = Poison::default();
        Self { backend: Contained::new(backend, &poisoned), identity, poisoned }
    }

    /// The backend.
    pub fn backend(&self) -> &P {
        self.backend.get()
    }

    /// Loads a key for use with this instance.
    ///
    /// # Errors
    /// What the backend says; [`BackendError::Poisoned`] after a panic.
    pub fn load_key(&self, key: Arc<ProvingKey>) -> Result<LoadedKey<P>, BackendError> {
        self.usable()?;
        let verifying_key = Arc::new(PreparedVerifyingKey::new(key.verifying_key()));
        let loaded = guarded(&self.poisoned, || self.backend().load_key(&key))?;
        let loaded = Contained::new(loaded, &self.poisoned);
        Ok(LoadedKey { loaded, key, verifying_key, identity: self.identity })
    }

    /// Starts a proof. When this returns `Ok`, the inputs' memory has been freed, or is back in its pool.
    ///
    /// # Errors
    /// [`StartError`], with the inputs if the backend neither released nor changed any of them.
    pub fn start(&self, key: &LoadedKey<P>, inputs: Inputs) -> Result<InFlight<P>, StartError> {
        self.start_slots(key, inputs, |_| {}, drop)
    }

    /// As [`start`](Self::start), but the inputs' memory stays until the proof is finished or dropped, whatever the backend releases:
    /// what a prover costs that doesn't free its inputs at start. For measurements only.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    #[cfg(feature = "bench-hold")]
    pub fn start_holding(&self, key: &LoadedKey<P>, inputs: Inputs) -> Result<InFlight<P>, StartError> {
        let mut held = None;
        let mut in_flight = self.start_slots(key, inputs, Slots::hold, |slots| held = Some(slots))?;
        in_flight.held = held;
        Ok(in_flight)
    }

    fn start_slots(
        &self,
        key: &LoadedKey<P>,
        inputs: Inputs,
        prepare: impl FnOnce(&mut Slots),
        dispose: impl FnOnce(Slots),
    ) -> Result<InFlight<P>, StartError> {
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
        prepare(&mut slots);
        let pending = guarded(&self.poisoned, || self.backend().start(key.loaded.get(), slots.lend()));
        match pending {
            Ok(pending) => {
                let pending = Contained::new(pending, &self.poisoned);
                // Foreign memory goes back to code of the backend's here.
                let freed = guarded(&self.poisoned, || {
                    dispose(slots);
                    Ok(())
                });
                if let Err(source) = freed {
                    return Err(StartError { source, inputs: None });
                }
                let (key, verifying_key) = (key.key.clone(), key.verifying_key.clone());
                Ok(InFlight {
                    pending,
                    key,
                    verifying_key,
                    public,
                    poisoned: self.poisoned.clone(),
                    #[cfg(feature = "bench-hold")]
                    held: None,
                })
            }
            Err(source) => {
                let inputs = guarded(&self.poisoned, || Ok(slots.take_back()));
                Err(StartError { source, inputs: inputs.ok().flatten().map(Box::new) })
            }
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
    loaded: Contained<P::Key>,
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
    pending: Contained<P::Pending>,
    key: Arc<ProvingKey>,
    verifying_key: Arc<PreparedVerifyingKey>,
    public: Vec<Scalar>,
    poisoned: Poison,
    /// For measurements: inputs that are freed with this value only.
    #[cfg(feature = "bench-hold")]
    held: Option<Slots>,
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
    pub fn finish_with(self, blinding: Blinding) -> Result<Proof, FinishError> {
        let Self { pending, key, verifying_key, public, poisoned, .. } = self;
        let sums = guarded(&poisoned, || pending.into_inner().finish())?;
        let proof = Proof::assemble(&key, &sums, blinding)?;
        // As many public inputs as the key has: `start` took them from the witness by the key's count.
        match verifying_key.verify(&proof, &public) {
            Ok(true) => Ok(proof),
            _ => Err(FinishError::ProofInvalid),
        }
    }

    /// Waits for the four sums and checks that they are points of the group: for comparing backends. Nothing is verified.
    ///
    /// # Errors
    /// [`FinishError`] if the backend fails or returns a bad point.
    pub fn finish_sums(self) -> Result<QuerySums, FinishError> {
        let Self { pending, poisoned, .. } = self;
        let sums = guarded(&poisoned, || pending.into_inner().finish())?;
        sums.check()?;
        Ok(sums)
    }
}

impl<P: SplitProver> std::fmt::Debug for InFlight<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InFlight({:?})", self.key.shape())
    }
}

/// Why an instance isn't used any more; shared by all that belongs to it.
type Poison = Arc<OnceLock<String>>;

/// A value of a backend's. If its destructor panics, the instance is poisoned and the caller goes on.
struct Contained<T> {
    /// `None` only once it is on its way out.
    value: Option<T>,
    poisoned: Poison,
}

impl<T> Contained<T> {
    fn new(value: T, poisoned: &Poison) -> Self {
        Self { value: Some(value), poisoned: poisoned.clone() }
    }

    fn get(&self) -> &T {
        self.value.as_ref().expect("only into_inner and drop take the value")
    }

    fn into_inner(mut self) -> T {
        self.value.take().expect("only into_inner and drop take the value")
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        let _ = guarded(&self.poisoned, || {
            drop(value);
            Ok(())
        });
    }
}

/// Runs a backend's code; a panic becomes an error and poisons the instance.
fn guarded<T>(poisoned: &OnceLock<String>, body: impl FnOnce() -> Result<T, BackendError>) -> Result<T, BackendError> {
    // Unwind safety: after a panic the instance starts nothing any more, what it has in flight is verified before it is given
    // out, and of core's own state the body touches only slots, which are whole or marked as spent at every moment.
    let result =
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| Err(BackendError::Panicked(describe(payload))));
    // A backend that wraps another one, or a library, may have caught the panic itself.
    result.inspect_err(|error| {
        if let BackendError::Panicked(reason) = error {
            let _ = poisoned.set(format!("a panic: {reason}"));
        }
    })
}

/// The message of a panic. The payload's own destructor may panic too, with another payload; a chain without end is forgotten.
pub(crate) fn describe(payload: Box<dyn Any + Send>) -> String {
    let message = if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a payload that is no text".to_owned()
    };
    let mut payload = Some(payload);
    for _ in 0..8 {
        payload = payload.and_then(|payload| catch_unwind(AssertUnwindSafe(|| drop(payload))).err());
    }
    std::mem::forget(payload);
    message
}
