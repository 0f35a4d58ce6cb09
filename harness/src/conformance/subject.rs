//! What is put to the test: a way to open instances of a backend, and what the backend says about itself.

use serde::Serialize;
use splitprover_core::abi::{Backend, BackendLibrary, OpenOptions};
use splitprover_core::{BackendError, HostMemory, SplitProver};

use crate::loader::Registry;

/// Something that a backend may lack. A case whose requirements aren't declared is skipped, and the report says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Capability {
    /// Computes the evaluations from the key's matrices.
    Matrices,
    /// Charges its own host memory to the [`HostMemory`] it was opened with, and fails cleanly when a charge is refused.
    Accounting,
    /// Releases every lent vector itself, before its `start` returns.
    EarlyRelease,
    /// Is reached through the C interface.
    Abi,
}

impl Capability {
    /// All capabilities.
    pub const ALL: [Self; 4] = [Self::Matrices, Self::Accounting, Self::EarlyRelease, Self::Abi];

    /// The name used in messages and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Matrices => "matrices",
            Self::Accounting => "accounting",
            Self::EarlyRelease => "early-release",
            Self::Abi => "abi",
        }
    }

    /// The capability of that [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }
}

/// A case that is known to fail, and why. It doesn't fail the suite; its unexpected pass does, so that the list stays true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFailure {
    /// `group/name` of the case.
    pub case: String,
    /// Why it fails: a driver's bug, a limit of the device.
    pub reason: String,
}

type Open<P> = dyn Fn(&HostMemory) -> Result<P, String> + Send + Sync;
type Load = dyn Fn() -> Result<(BackendLibrary, OpenOptions), String> + Send + Sync;

/// A backend under test.
pub struct Subject<P> {
    name: String,
    open: Box<Open<P>>,
    capabilities: Vec<Capability>,
    known_failures: Vec<KnownFailure>,
    load: Option<Box<Load>>,
}

impl Subject<Backend> {
    /// A backend by name or path, as the loader finds it, on the device and with the options of `open`. Nothing is loaded
    /// before a worker process runs a case. No self-test is made: finding out is the suite's business.
    pub fn backend(registry: Registry, request: &str, open: OpenOptions) -> Self {
        let request = request.to_owned();
        let (again, again_request, again_open) = (registry.clone(), request.clone(), open.clone());
        let mut subject = Self::over(request.clone(), move |memory| {
            let loaded = registry.load(&request).map_err(|e| e.to_string())?;
            let open = open.clone().ledger(memory.ledger().clone());
            loaded.open_untested(&open).map_err(|e| e.to_string())
        });
        subject.load = Some(Box::new(move || {
            let loaded = again.load(&again_request).map_err(|e| e.to_string())?;
            Ok((loaded.library().clone(), again_open.clone()))
        }));
        subject.capabilities = Capability::ALL.to_vec();
        subject
    }
}

impl<P: SplitProver> Subject<P> {
    /// A backend whose instances `open` makes. An instance charges its own host memory to the memory it is given; one that
    /// doesn't is declared [`without`](Self::without) [`Capability::Accounting`].
    pub fn new(
        name: impl Into<String>,
        open: impl Fn(&HostMemory) -> Result<P, BackendError> + Send + Sync + 'static,
    ) -> Self {
        Self::over(name.into(), move |memory| open(memory).map_err(|e| e.to_string()))
    }

    fn over(name: String, open: impl Fn(&HostMemory) -> Result<P, String> + Send + Sync + 'static) -> Self {
        let capabilities = Capability::ALL.into_iter().filter(|&c| c != Capability::Abi).collect();
        Self { name, open: Box::new(open), capabilities, known_failures: Vec::new(), load: None }
    }

    /// The same backend, declared to lack a capability.
    #[must_use]
    pub fn without(mut self, capability: Capability) -> Self {
        self.capabilities.retain(|&c| c != capability);
        self
    }

    /// The same backend with a case that is known to fail.
    #[must_use]
    pub fn known_failure(mut self, case: impl Into<String>, reason: impl Into<String>) -> Self {
        self.known_failures.push(KnownFailure { case: case.into(), reason: reason.into() });
        self
    }

    /// The same backend with the known failures of a list: one in a line, `group/name` and then the reason. Empty lines and
    /// lines that begin with `#` mean nothing.
    ///
    /// # Errors
    /// The number of the first line that isn't like that.
    pub fn known_failures(mut self, list: &str) -> Result<Self, String> {
        for (number, line) in list.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let entry = line.split_once(char::is_whitespace).filter(|(case, _)| case.contains('/'));
            let (case, reason) =
                entry.ok_or_else(|| format!("line {}: expected group/name and a reason", number + 1))?;
            self = self.known_failure(case, reason.trim());
        }
        Ok(self)
    }

    /// The name, for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the capability is declared.
    pub fn has(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }

    /// The known failure of a case.
    pub fn known(&self, case: &str) -> Option<&KnownFailure> {
        self.known_failures.iter().find(|k| k.case == case)
    }

    /// Opens an instance.
    ///
    /// # Errors
    /// What the backend or the loader says.
    pub fn open(&self, memory: &HostMemory) -> Result<P, String> {
        (self.open)(memory)
    }

    /// Its table, and how a device is opened; `None` if it isn't reached through one.
    pub(super) fn library(&self) -> Option<Result<(BackendLibrary, OpenOptions), String>> {
        self.load.as_ref().map(|load| load())
    }
}

impl<P> std::fmt::Debug for Subject<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("name", &self.name)
            .field("capabilities", &self.capabilities)
            .field("known_failures", &self.known_failures)
            .finish_non_exhaustive()
    }
}
