//! Finds backends, loads them, and offers only devices that compute rightly.
//!
//! A backend is asked for by name or by path, and looked for in this order:
//!
//! 1. a path, if the request is one: anything with a `/` in it or `.so` at its end;
//! 2. the backends that are linked into the program;
//! 3. `libsplitprover_backend_<name>.so` in the places of `SPLITPROVER_BACKENDS`, a list of folders and files separated
//!    by colons;
//! 4. the same beside the executable.
//!
//! Every candidate that was tried is reported with the reason why it isn't used. A backend that was asked for and can't be
//! loaded is an error, never a silent fall-back to another one. Before a device is offered it proves something with a known
//! answer ([`selftest`]).
//!
//! ```no_run
//! use splitprover_core::abi::OpenOptions;
//! use splitprover_harness::loader::Registry;
//!
//! let registry = Registry::new();
//! let backend = registry.load("cpu")?.open(&OpenOptions::new(0))?;
//! println!("{}", backend.info().name);
//! # Ok::<(), splitprover_harness::loader::LoadError>(())
//! ```
//!
//! A library that has been loaded stays loaded until the process ends: unloading a Rust library whose threads or thread-local
//! destructors may still run is undefined behaviour.

mod library;
mod report;
mod search;
pub mod selftest;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use splitprover_backend_cpu::CpuPlugin;
use splitprover_core::BackendError;
use splitprover_core::abi::{Backend, BackendLibrary, BackendPlugin, LogLevel, LogSink, OpenOptions};

pub use library::LibraryError;
pub use report::{BackendReport, CandidateReport, DeviceReport, SelfTestReport, Survey};
pub use search::{SEARCH_VARIABLE, SearchPath, file_name};
pub use selftest::SelfTestError;

/// How long a self-test may take. The first one on a GPU may have to compile its kernels.
pub const SELF_TEST_LIMIT: Duration = Duration::from_secs(600);

/// Where a backend comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// It is linked into the program.
    LinkedIn,
    /// A file, by its absolute path.
    File(PathBuf),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkedIn => f.write_str("linked in"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// A candidate that was tried and isn't used.
#[derive(Debug)]
pub struct Rejected {
    /// Where it is, or should be.
    pub location: Location,
    /// Why it isn't used.
    pub reason: LibraryError,
}

/// Why there is no backend. The program ends with exit code 4.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No candidate could be loaded.
    #[error("no backend {request:?}:{}", listed(.tried))]
    NoBackend {
        /// What was asked for.
        request: String,
        /// All candidates and places, in the order in which they were tried.
        tried: Vec<Rejected>,
    },
    /// A backend was loaded, and its device couldn't be opened.
    #[error("backend {name} ({location}), device {device}: {source}")]
    Open {
        /// The backend.
        name: String,
        /// Where it comes from.
        location: Location,
        /// Number of the device.
        device: usize,
        /// What it said.
        source: BackendError,
    },
    /// The device computes wrongly.
    #[error("backend {name} ({location}), device {device} is not usable: {source}")]
    SelfTest {
        /// The backend.
        name: String,
        /// Where it comes from.
        location: Location,
        /// Number of the device.
        device: usize,
        /// What was wrong.
        source: SelfTestError,
    },
}

fn listed(tried: &[Rejected]) -> String {
    if tried.is_empty() {
        return " no place to look for it".into();
    }
    tried.iter().map(|r| format!("\n  {}: {}", r.location, r.reason)).collect()
}

/// The backends that a program can reach.
#[derive(Clone, Debug)]
pub struct Registry {
    linked: Vec<BackendLibrary>,
    search: SearchPath,
    log: LogSink,
    self_test_limit: Duration,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// The CPU backend, which is linked in, `SPLITPROVER_BACKENDS`, and the executable's folder.
    pub fn new() -> Self {
        Self::empty().linked::<CpuPlugin>().search(SearchPath::of_process())
    }

    /// Nothing linked in, and nowhere to search: only paths can be asked for.
    pub fn empty() -> Self {
        Self {
            linked: Vec::new(),
            search: SearchPath::default(),
            log: LogSink::default(),
            self_test_limit: SELF_TEST_LIMIT,
        }
    }

    /// Adds a backend that is linked in, in place of one with the same name.
    #[must_use]
    pub fn linked<P: BackendPlugin>(mut self) -> Self {
        self.linked.retain(|library| library.info().name != P::NAME);
        self.linked.push(BackendLibrary::in_process::<P>());
        self
    }

    /// Searches these places.
    #[must_use]
    pub fn search(mut self, search: SearchPath) -> Self {
        self.search = search;
        self
    }

    /// Log lines of loading, device listing and self-tests go here. Instances have their own, in [`OpenOptions`].
    #[must_use]
    pub fn log(mut self, log: LogSink) -> Self {
        self.log = log;
        self
    }

    /// Another limit for self-tests than [`SELF_TEST_LIMIT`].
    #[must_use]
    pub fn self_test_limit(mut self, limit: Duration) -> Self {
        self.self_test_limit = limit;
        self
    }

    /// Loads a backend by name or path. Its devices aren't touched yet.
    ///
    /// # Errors
    /// [`LoadError::NoBackend`] with every candidate tried.
    pub fn load(&self, request: &str) -> Result<Loaded, LoadError> {
        let mut tried = Vec::new();
        let loaded = |location, library, passed_over: Vec<Rejected>| {
            for Rejected { location, reason } in &passed_over {
                let message = format!("backend {request}: passed over {location}: {reason}");
                // Places without such a file are how a search goes; anything else the operator should know.
                let level = if reason.is_absence() { LogLevel::Debug } else { LogLevel::Warn };
                self.log.line(level, "loader", &message);
            }
            Ok(Loaded { library, location, passed_over, limit: self.self_test_limit })
        };
        if is_path(request) {
            let path = PathBuf::from(request);
            return match library::load(&path) {
                Ok((path, library)) => loaded(Location::File(path), library, tried),
                Err(reason) => {
                    tried.push(Rejected { location: Location::File(path), reason });
                    Err(LoadError::NoBackend { request: request.into(), tried })
                }
            };
        }
        if let Some(library) = self.linked.iter().find(|library| library.info().name == request) {
            return loaded(Location::LinkedIn, library.clone(), tried);
        }
        for candidate in self.search.candidates(request) {
            match candidate.and_then(|path| {
                let (path, library) = library::load(&path).map_err(|reason| (path, reason))?;
                let found = library.info().name.clone();
                if found == request { Ok((path, library)) } else { Err((path, LibraryError::OtherName { found })) }
            }) {
                Ok((path, library)) => return loaded(Location::File(path), library, tried),
                Err((path, reason)) => tried.push(Rejected { location: Location::File(path), reason }),
            }
        }
        Err(LoadError::NoBackend { request: request.into(), tried })
    }

    /// Tries everything that can be found without a name: what is linked in, and every file in the places to search that is
    /// named like a backend. With `self_test`, every device proves something; that may take minutes where kernels have to be
    /// compiled.
    pub fn survey(&self, self_test: bool) -> Survey {
        let linked = self.linked.iter().map(|library| (Location::LinkedIn, None, Ok(library.clone())));
        let files = self.search.all().into_iter().map(|candidate| match candidate {
            Ok(found) => match library::load(&found) {
                Ok((path, library)) => (Location::File(path), Some(found), Ok(library)),
                Err(reason) => (Location::File(found), None, Err(reason)),
            },
            Err((path, reason)) => (Location::File(path), None, Err(reason)),
        });
        let limit = self_test.then_some(self.self_test_limit);
        let candidates = linked.chain(files).map(|(location, found, library)| {
            report::candidate(&location, found.as_deref(), library.as_ref(), limit, &self.log)
        });
        Survey { candidates: candidates.collect() }
    }
}

/// Whether a request is a path and not a name.
fn is_path(request: &str) -> bool {
    request.contains('/') || Path::new(request).extension().is_some_and(|e| e == "so")
}

/// A backend that was found and loaded.
#[derive(Debug)]
pub struct Loaded {
    library: BackendLibrary,
    location: Location,
    passed_over: Vec<Rejected>,
    limit: Duration,
}

impl Loaded {
    /// The backend.
    pub fn library(&self) -> &BackendLibrary {
        &self.library
    }

    /// Where it comes from.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Candidates that come earlier in the search order, and why they aren't used.
    pub fn passed_over(&self) -> &[Rejected] {
        &self.passed_over
    }

    /// Opens a device, and lets it prove something with a known answer.
    ///
    /// # Errors
    /// [`LoadError::Open`] or [`LoadError::SelfTest`].
    pub fn open(&self, options: &OpenOptions) -> Result<Backend, LoadError> {
        let backend = self.open_untested(options)?;
        selftest::run_within(&backend, self.limit).map_err(|source| LoadError::SelfTest {
            name: self.library.info().name.clone(),
            location: self.location.clone(),
            device: options.device(),
            source,
        })?;
        Ok(backend)
    }

    /// Opens a device without a self-test: for whoever wants to examine a backend that computes wrongly.
    ///
    /// # Errors
    /// [`LoadError::Open`].
    pub fn open_untested(&self, options: &OpenOptions) -> Result<Backend, LoadError> {
        self.library.open(options).map_err(|source| LoadError::Open {
            name: self.library.info().name.clone(),
            location: self.location.clone(),
            device: options.device(),
            source,
        })
    }
}
