//! What a case is, and what it has at hand while it runs.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};
use splitprover_core::matrix::MatrixError;
use splitprover_core::memory::{LedgerSnapshot, OutOfHostMemory};
use splitprover_core::{
    BackendError, CircuitShape, Disposal, FinishError, HostMemory, InFlight, Inputs, KeyError, LentInputs, LoadedKey,
    MemoryClass, MemoryLedger, Prover, ProvingKey, QuerySums, SplitProver, StartError,
};

use super::material::{Assignment, Material};
use super::subject::{Capability, Subject};

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Group {
    /// The four sums are right.
    Correctness,
    /// The inputs are gone once `start` returns, whatever happens.
    Ownership,
    /// Proofs overlap, and their parts die in any order.
    Concurrency,
    /// The C interface of a plug-in.
    Abi,
    /// What is refused or missing gives an error, and harms nothing.
    Faults,
    /// Nothing grows over many proofs.
    Soak,
    /// Equal inputs give equal sums.
    Determinism,
}

impl Group {
    /// All groups.
    pub const ALL: [Self; 7] =
        [Self::Correctness, Self::Determinism, Self::Ownership, Self::Concurrency, Self::Faults, Self::Abi, Self::Soak];

    /// The name used in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Correctness => "correctness",
            Self::Ownership => "ownership",
            Self::Concurrency => "concurrency",
            Self::Abi => "abi",
            Self::Faults => "faults",
            Self::Soak => "soak",
            Self::Determinism => "determinism",
        }
    }

    /// The group of that [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|g| g.name() == name)
    }
}

/// How large the cases are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// The size classes of the correctness group go up to 2^`max_log2` variables. (Some cases go to just above 2^16 whatever
    /// this says.)
    pub max_log2: u32,
    /// The domain in which retained memory is measured.
    pub retention_log2: u32,
    /// Proofs of a soak.
    pub soak_proofs: u32,
}

impl Scale {
    /// For every day: every case, in sizes at which none takes long.
    pub const fn quick() -> Self {
        Self { max_log2: 6, retention_log2: 18, soak_proofs: 40 }
    }
}

impl Default for Scale {
    /// What two CPU cores do in a minute or two.
    fn default() -> Self {
        Self { max_log2: 10, retention_log2: 20, soak_proofs: 200 }
    }
}

/// Why a case failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) String);

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self(message.to_owned())
    }
}

/// A blanket conversion from all errors would rule out the one from text.
macro_rules! failure_from {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self(error.to_string())
            }
        })+
    };
}
failure_from!(BackendError, FinishError, KeyError, MatrixError, OutOfHostMemory, StartError, std::io::Error,);

impl Failure {
    pub(crate) fn context(self, what: impl fmt::Display) -> Self {
        Self(format!("{what}: {}", self.0))
    }
}

/// A case that fails with this message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::conformance::case::Failure(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;

type Body<P> = dyn Fn(&Context<'_, P>) -> Result<(), Failure>;

/// One case: data, and a function.
pub(crate) struct Case<P> {
    pub(crate) group: Group,
    pub(crate) name: String,
    pub(crate) requires: &'static [Capability],
    /// Runs in a process of its own: it measures the process, or may kill it.
    pub(crate) isolated: bool,
    /// If it fails, nothing else can be judged.
    pub(crate) gate: bool,
    /// What a crash means, if the case provokes one.
    pub(crate) crash_means: Option<&'static str>,
    pub(crate) time_limit: Duration,
    pub(crate) body: Box<Body<P>>,
}

impl<P: SplitProver> Case<P> {
    pub(crate) fn new(
        group: Group,
        name: impl Into<String>,
        body: impl Fn(&Context<'_, P>) -> Result<(), Failure> + 'static,
    ) -> Self {
        Self {
            group,
            name: name.into(),
            requires: &[],
            isolated: false,
            gate: false,
            crash_means: None,
            time_limit: Duration::from_secs(60),
            body: Box::new(body),
        }
    }

    pub(crate) fn requires(mut self, capabilities: &'static [Capability]) -> Self {
        self.requires = capabilities;
        self
    }

    pub(crate) fn isolated(mut self) -> Self {
        self.isolated = true;
        self
    }

    pub(crate) fn gate(mut self) -> Self {
        self.gate = true;
        self
    }

    pub(crate) fn crash_means(mut self, what: &'static str) -> Self {
        self.crash_means = Some(what);
        self.isolated()
    }

    pub(crate) fn seconds(mut self, limit: u64) -> Self {
        self.time_limit = Duration::from_secs(limit);
        self
    }

    /// `group/name`.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.group.name(), self.name)
    }
}

/// What a case has at hand.
pub(crate) struct Context<'s, P> {
    subject: &'s Subject<P>,
    pub(crate) scale: Scale,
    rng: RefCell<ChaCha8Rng>,
}

impl<'s, P: SplitProver> Context<'s, P> {
    /// Every case draws from a generator of its own, so that it repeats alone as in the whole suite.
    pub(crate) fn new(subject: &'s Subject<P>, scale: Scale, seed: u64, case: &str) -> Self {
        let mut key = blake3::Hasher::new();
        key.update(&seed.to_le_bytes()).update(case.as_bytes());
        let rng = RefCell::new(ChaCha8Rng::from_seed(*key.finalize().as_bytes()));
        Self { subject, scale, rng }
    }

    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.subject.has(capability)
    }

    pub(crate) fn subject(&self) -> &'s Subject<P> {
        self.subject
    }

    /// A generator that goes its own way from here.
    pub(crate) fn rng(&self) -> ChaCha8Rng {
        let mut seed = [0; 32];
        self.rng.borrow_mut().fill_bytes(&mut seed);
        ChaCha8Rng::from_seed(seed)
    }

    /// A fresh instance with a ledger of its own.
    pub(crate) fn open(&self) -> Result<Instance<P>, Failure> {
        let memory = HostMemory::default();
        let backend = self.subject.open(&memory).map_err(|e| Failure(e).context("open"))?;
        let watched = Arc::new(Mutex::new(Watched::default()));
        let prover = Prover::new(Observed { backend, watched: watched.clone() });
        Ok(Instance { prover, memory, watched })
    }
}

/// Where a panic is planted around the backend's `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Panic {
    Before,
    After,
}

#[derive(Default)]
struct Watched {
    ledger: Option<MemoryLedger>,
    at_return: Option<LedgerSnapshot>,
    panic: Option<Panic>,
}

/// What a planted panic says.
pub(crate) const PLANTED: &str = "a panic that the suite has planted";

/// The backend under test, with an eye on the ledger at the moment its `start` returns, before core frees what is left.
pub(crate) struct Observed<P> {
    backend: P,
    watched: Arc<Mutex<Watched>>,
}

impl<P: SplitProver> SplitProver for Observed<P> {
    type Key = P::Key;
    type Pending = P::Pending;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<Self::Key, BackendError> {
        self.backend.load_key(key)
    }

    fn start<'i>(&self, key: &Self::Key, inputs: LentInputs<'i>) -> Result<Self::Pending, BackendError> {
        let panic = |at| self.watched.lock().unwrap_or_else(PoisonError::into_inner).panic == Some(at);
        assert!(!panic(Panic::Before), "{PLANTED}");
        let result = self.backend.start(key, inputs);
        assert!(!panic(Panic::After), "{PLANTED}");
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.at_return = watched.ledger.as_ref().map(MemoryLedger::now);
        result
    }

    fn retained_host_bytes(&self, shape: &CircuitShape) -> u64 {
        self.backend.retained_host_bytes(shape)
    }
}

/// An opened backend, its own memory, and checks that belong to every proof.
pub(crate) struct Instance<P: SplitProver> {
    pub(crate) prover: Prover<Observed<P>>,
    /// What the backend charges its own memory to.
    pub(crate) memory: HostMemory,
    watched: Arc<Mutex<Watched>>,
}

/// A key loaded by an [`Instance`].
pub(crate) type Key<P> = LoadedKey<Observed<P>>;
/// A proof started by an [`Instance`].
pub(crate) type Started<P> = InFlight<Observed<P>>;

impl<P: SplitProver> Instance<P> {
    pub(crate) fn load(&self, material: &Material) -> Result<Key<P>, Failure> {
        let key = self.prover.load_key(material.key.clone());
        key.map_err(|e| Failure::from(e).context(format_args!("load_key ({:?})", material.plan)))
    }

    /// Host bytes that the backend says a proof in flight holds.
    pub(crate) fn declared(&self, material: &Material) -> u64 {
        self.prover.backend().retained_host_bytes(&material.key.shape())
    }

    /// Starts a proof and checks that its inputs are gone, or come back untouched.
    pub(crate) fn start(&self, key: &Key<P>, assignment: &Assignment) -> Result<Started<P>, Failure> {
        self.start_in(key, assignment, Disposal::Free)
    }

    pub(crate) fn start_in(
        &self,
        key: &Key<P>,
        assignment: &Assignment,
        disposal: Disposal,
    ) -> Result<Started<P>, Failure> {
        let memory = HostMemory::default().with_disposal(disposal);
        let inputs = assignment.inputs(&memory)?;
        let result = self.prover.start(key, inputs);
        if let Err(StartError { inputs: Some(back), .. }) = &result {
            ensure!(assignment.matches(back), "start failed and handed back inputs that are not what was given");
        }
        let held = |result: &Result<_, StartError>| matches!(result, Err(StartError { inputs: Some(_), .. }));
        if !held(&result) {
            inputs_gone(memory.ledger())?;
        }
        result.map_err(|e| Failure::from(e).context(format_args!("start ({})", assignment.what)))
    }

    /// Starts a proof with inputs of the caller's making.
    pub(crate) fn start_raw(&self, key: &Key<P>, inputs: Inputs) -> Result<Started<P>, StartError> {
        self.prover.start(key, inputs)
    }

    /// Starts a proof and says what of its inputs existed when the *backend* returned.
    pub(crate) fn start_watched(
        &self,
        key: &Key<P>,
        assignment: &Assignment,
    ) -> Result<(Started<P>, LedgerSnapshot), Failure> {
        let memory = HostMemory::default();
        let watched = || self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        *watched() = Watched { ledger: Some(memory.ledger().clone()), ..Watched::default() };
        let started = self.prover.start(key, assignment.inputs(&memory)?)?;
        let at_return = std::mem::take(&mut *watched()).at_return;
        Ok((started, at_return.ok_or("the backend's start was not called")?))
    }

    /// Every `start` from now on panics: before the backend's own, or after.
    pub(crate) fn plant(&self, panic: Panic) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).panic = Some(panic);
    }

    /// Proves and compares all four sums.
    pub(crate) fn prove(&self, key: &Key<P>, material: &Material, assignment: &Assignment) -> Result<(), Failure> {
        finish(self.start(key, assignment)?, material, assignment)
    }

    /// Loads, proves and compares: for one proof with a key.
    pub(crate) fn check(&self, material: &Material, assignment: &Assignment) -> Result<(), Failure> {
        self.prove(&self.load(material)?, material, assignment)
    }
}

/// No inputs exist in this ledger.
pub(crate) fn inputs_gone(ledger: &MemoryLedger) -> Result<(), Failure> {
    let now = ledger.now();
    for class in [MemoryClass::Evaluations, MemoryClass::Witness] {
        ensure!(now[class] == 0, "after start {} bytes of class {} still exist", now[class], class.name());
    }
    Ok(())
}

/// Waits for the sums and compares all four with what they must be.
pub(crate) fn finish<P: SplitProver>(
    started: Started<P>,
    material: &Material,
    assignment: &Assignment,
) -> Result<(), Failure> {
    let sums = started.finish_sums();
    let about = || format!("{}; {:?}", assignment.what, material.plan);
    let sums = sums.map_err(|e| Failure::from(e).context(format_args!("finish ({})", about())))?;
    compare(&sums, &assignment.expected, about)
}

/// Names the sums that are wrong.
pub(crate) fn compare(sums: &QuerySums, expected: &QuerySums, about: impl FnOnce() -> String) -> Result<(), Failure> {
    let wrong = sums.differences(expected);
    ensure!(
        wrong.is_empty(),
        "wrong {}: {} ({})",
        if wrong.len() == 1 { "sum" } else { "sums" },
        wrong.join(", "),
        about()
    );
    Ok(())
}
