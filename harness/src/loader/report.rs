//! What `splitprover backends` shows: every candidate, loaded or why not, and its devices.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use splitprover_core::abi::{BackendLibrary, DeviceInfo, LogSink, OpenOptions};

use super::library::LibraryError;
use super::{Location, file_name, selftest};

/// All candidates, in search order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Survey {
    /// The candidates.
    pub candidates: Vec<CandidateReport>,
}

/// One file, place or linked-in backend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateReport {
    /// "linked in", or the path.
    pub location: String,
    /// Whether it is a backend that this program can talk to. Its devices may still be unusable.
    pub loaded: bool,
    /// Why not, or why its devices couldn't be listed.
    pub reason: Option<String>,
    /// The file name under which a search for the backend's name would find it, where the file has another one. It is
    /// reached by path only.
    pub by_path_only: Option<String>,
    /// What it says of itself, if it was loaded.
    pub backend: Option<BackendReport>,
    /// Its devices.
    pub devices: Vec<DeviceReport>,
}

/// What a backend says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackendReport {
    /// What to ask for with `--backend`.
    pub name: String,
    /// Who makes it.
    pub vendor: String,
    /// Its version.
    pub version: String,
    /// What tells builds apart.
    pub build: String,
    /// The ABI version in use.
    pub abi: String,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceReport {
    /// What to ask for with `--device`.
    pub index: usize,
    /// What users know it by.
    pub name: String,
    /// "cpu", "cuda", …
    pub kind: String,
    /// Version of its driver.
    pub driver: String,
    /// Memory in bytes; 0: not known.
    pub memory_bytes: u64,
    /// Memory that is free now; 0: not known.
    pub free_bytes: u64,
    /// Its self-test, if one was asked for.
    pub self_test: Option<SelfTestReport>,
}

/// How a self-test went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelfTestReport {
    /// Whether the device is offered.
    pub passed: bool,
    /// Why not.
    pub reason: Option<String>,
    /// How long it took, with opening the device.
    pub milliseconds: u64,
}

/// `found` is the file's path as the search gave it, by whose name it is asked for.
pub(super) fn candidate(
    location: &Location,
    found: Option<&Path>,
    library: Result<&BackendLibrary, &LibraryError>,
    self_test: Option<Duration>,
    log: &LogSink,
) -> CandidateReport {
    let mut report = CandidateReport {
        location: location.to_string(),
        loaded: library.is_ok(),
        reason: None,
        by_path_only: None,
        backend: None,
        devices: Vec::new(),
    };
    let library = match library {
        Ok(library) => library,
        Err(reason) => {
            report.reason = Some(reason.to_string());
            return report;
        }
    };
    let info = library.info().clone();
    let expected = file_name(&info.name);
    report.by_path_only = found.and_then(|path| (path.file_name() != Some(OsStr::new(&expected))).then_some(expected));
    report.backend = Some(BackendReport {
        name: info.name,
        vendor: info.vendor,
        version: info.version,
        build: info.build,
        abi: info.abi,
    });
    match library.devices(log.clone()) {
        Err(error) => report.reason = Some(error.to_string()),
        Ok(devices) => {
            report.devices = devices
                .into_iter()
                .enumerate()
                .map(|(index, DeviceInfo { name, kind, driver, memory_bytes, free_bytes })| DeviceReport {
                    index,
                    name,
                    kind,
                    driver,
                    memory_bytes,
                    free_bytes,
                    self_test: self_test.map(|limit| test(library, index, limit, log)),
                })
                .collect();
        }
    }
    report
}

fn test(library: &BackendLibrary, device: usize, limit: Duration, log: &LogSink) -> SelfTestReport {
    let begin = std::time::Instant::now();
    let result = library
        .open(&OpenOptions::new(device).log(log.clone()))
        .map_err(|error| error.to_string())
        .and_then(|backend| selftest::run_within(&backend, limit).map_err(|error| error.to_string()));
    let milliseconds = begin.elapsed().as_millis() as u64;
    SelfTestReport { passed: result.is_ok(), reason: result.err(), milliseconds }
}

impl Survey {
    /// Whether there is a device that can be used: one that passed its self-test, or, without self-tests, any.
    pub fn any_usable(&self) -> bool {
        self.candidates.iter().flat_map(|c| &c.devices).any(|d| d.self_test.as_ref().is_none_or(|t| t.passed))
    }
}

/// One line for each candidate, one below it for each device.
impl fmt::Display for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for candidate in &self.candidates {
            match &candidate.backend {
                Some(b) => {
                    write!(f, "{} {} by {}, ABI {} ({})", b.name, b.version, b.vendor, b.abi, candidate.location)?;
                    if !b.build.is_empty() {
                        write!(f, ", build {}", b.build)?;
                    }
                    writeln!(f)?;
                    if let Some(expected) = &candidate.by_path_only {
                        writeln!(
                            f,
                            "  ask for it by path: as {:?} it isn't found, for the file isn't {expected}",
                            b.name
                        )?;
                    }
                    if let Some(reason) = &candidate.reason {
                        writeln!(f, "  no devices: {reason}")?;
                    } else if candidate.devices.is_empty() {
                        writeln!(f, "  no devices")?;
                    }
                }
                None => {
                    let reason = candidate.reason.as_deref().unwrap_or("not loaded");
                    writeln!(f, "not loaded: {}: {reason}", candidate.location)?;
                }
            }
            for device in &candidate.devices {
                write!(f, "  device {}: {} ({})", device.index, device.name, device.kind)?;
                if device.memory_bytes > 0 {
                    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
                    write!(f, ", {:.1} GiB", gib(device.memory_bytes))?;
                    if device.free_bytes > 0 {
                        write!(f, ", {:.1} free", gib(device.free_bytes))?;
                    }
                }
                if !device.driver.is_empty() {
                    write!(f, ", driver {}", device.driver)?;
                }
                match &device.self_test {
                    None => writeln!(f)?,
                    Some(t) if t.passed => writeln!(f, ": self-test passed in {} ms", t.milliseconds)?,
                    Some(t) => writeln!(f, ": NOT USABLE: {}", t.reason.as_deref().unwrap_or("self-test failed"))?,
                }
            }
        }
        Ok(())
    }
}
