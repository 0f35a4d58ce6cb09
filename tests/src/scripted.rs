//! Backends that do as a test tells them: the contract is tested from the backend's side.

use std::sync::Arc;

use splitprover_core::{BackendError, CircuitShape, LentInputs, PendingSums, ProvingKey, QuerySums, SplitProver};

/// What a [`Scripted`] backend does in `start`.
pub type OnStart = dyn for<'i> Fn(LentInputs<'i>) -> Result<ScriptedSums, BackendError> + Send + Sync;

/// What runs when a value of the backend's is dropped.
pub type OnDrop = Option<Box<dyn FnOnce() + Send + Sync>>;

/// A backend whose `start` is a closure.
pub struct Scripted {
    on_start: Box<OnStart>,
    _on_drop: RunOnDrop,
}

/// Its key: nothing but a destructor.
pub struct ScriptedKey(#[expect(dead_code, reason = "held for its destructor")] RunOnDrop);

/// Its pending proof: a closure, and a destructor.
pub struct ScriptedSums {
    finish: Box<dyn FnOnce() -> Result<QuerySums, BackendError> + Send>,
    _on_drop: RunOnDrop,
}

struct RunOnDrop(OnDrop);

impl Drop for RunOnDrop {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

impl Scripted {
    /// A backend that runs `on_start` on whatever it is lent.
    pub fn new(
        on_start: impl for<'i> Fn(LentInputs<'i>) -> Result<ScriptedSums, BackendError> + Send + Sync + 'static,
    ) -> Self {
        Self { on_start: Box::new(on_start), _on_drop: RunOnDrop(None) }
    }

    /// The same backend with a destructor.
    pub fn dropped_with(self, on_drop: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { _on_drop: RunOnDrop(Some(Box::new(on_drop))), ..self }
    }
}

impl ScriptedSums {
    /// A pending proof that finishes with what `finish` returns.
    pub fn new(finish: impl FnOnce() -> Result<QuerySums, BackendError> + Send + 'static) -> Self {
        Self { finish: Box::new(finish), _on_drop: RunOnDrop(None) }
    }

    /// A pending proof that is never meant to be finished.
    pub fn never() -> Self {
        Self::new(|| Err(BackendError::Cancelled))
    }

    /// The same pending proof with a destructor.
    pub fn dropped_with(self, on_drop: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { finish: self.finish, _on_drop: RunOnDrop(Some(Box::new(on_drop))) }
    }
}

impl PendingSums for ScriptedSums {
    fn finish(self) -> Result<QuerySums, BackendError> {
        (self.finish)()
    }
}

impl SplitProver for Scripted {
    type Key = ScriptedKey;
    type Pending = ScriptedSums;

    fn load_key(&self, _key: &Arc<ProvingKey>) -> Result<ScriptedKey, BackendError> {
        Ok(ScriptedKey(RunOnDrop(None)))
    }

    fn start<'i>(&self, _key: &ScriptedKey, inputs: LentInputs<'i>) -> Result<ScriptedSums, BackendError> {
        (self.on_start)(inputs)
    }

    fn retained_host_bytes(&self, _shape: &CircuitShape) -> u64 {
        0
    }
}

/// A backend whose `load_key` is a closure that gives the key's destructor, and whose `start` succeeds.
pub struct ScriptedKeys(Box<dyn Fn() -> Result<OnDrop, BackendError> + Send + Sync>);

impl ScriptedKeys {
    /// A backend that runs `on_load` for each key.
    pub fn new(on_load: impl Fn() -> Result<OnDrop, BackendError> + Send + Sync + 'static) -> Self {
        Self(Box::new(on_load))
    }
}

impl SplitProver for ScriptedKeys {
    type Key = ScriptedKey;
    type Pending = ScriptedSums;

    fn load_key(&self, _key: &Arc<ProvingKey>) -> Result<ScriptedKey, BackendError> {
        Ok(ScriptedKey(RunOnDrop((self.0)()?)))
    }

    fn start<'i>(&self, _key: &ScriptedKey, _inputs: LentInputs<'i>) -> Result<ScriptedSums, BackendError> {
        Ok(ScriptedSums::never())
    }

    fn retained_host_bytes(&self, _shape: &CircuitShape) -> u64 {
        0
    }
}

type Alteration = Arc<dyn Fn(&mut QuerySums) + Send + Sync>;

/// Another backend whose sums are altered before core sees them.
pub struct Altered<P> {
    inner: P,
    alter: Alteration,
}

/// The pending proof of [`Altered`].
pub struct AlteredSums<S> {
    inner: S,
    alter: Alteration,
}

impl<P> Altered<P> {
    /// `inner`, with `alter` applied to every result.
    pub fn new(inner: P, alter: impl Fn(&mut QuerySums) + Send + Sync + 'static) -> Self {
        Self { inner, alter: Arc::new(alter) }
    }
}

impl<S: PendingSums> PendingSums for AlteredSums<S> {
    fn finish(self) -> Result<QuerySums, BackendError> {
        let mut sums = self.inner.finish()?;
        (self.alter)(&mut sums);
        Ok(sums)
    }
}

impl<P: SplitProver> SplitProver for Altered<P> {
    type Key = P::Key;
    type Pending = AlteredSums<P::Pending>;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<P::Key, BackendError> {
        self.inner.load_key(key)
    }

    fn start<'i>(&self, key: &P::Key, inputs: LentInputs<'i>) -> Result<Self::Pending, BackendError> {
        Ok(AlteredSums { inner: self.inner.start(key, inputs)?, alter: self.alter.clone() })
    }

    fn retained_host_bytes(&self, shape: &CircuitShape) -> u64 {
        self.inner.retained_host_bytes(shape)
    }
}
