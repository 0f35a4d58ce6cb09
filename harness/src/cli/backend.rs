//! Choosing a backend, and `splitprover backends`.

use serde_json::json;
use splitprover_backend_cpu::CpuPlugin;
use splitprover_core::MemoryLedger;
use splitprover_core::abi::{Backend, DeviceInfo, LogLevel, LogSink, OpenOptions};

use super::{Failure, print, print_json};
use crate::loader::{LoadError, Registry, Survey};

/// `--backend` and what goes with it.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Choice {
    /// Backend: a name, or the path of a shared library
    #[arg(long, default_value = "cpu", value_name = "NAME|PATH")]
    backend: String,
    #[command(flatten)]
    settings: Settings,
}

/// How a backend is opened.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Settings {
    /// Device of the backend, as `splitprover backends` numbers them
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Threads the backend may keep busy; 0: as many as there are cores
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Most device memory the backend may hold: bytes, or with a unit, as in 12GiB
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    vram_limit: Option<u64>,
    /// An option of the backend's own
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = key_value)]
    options: Vec<(String, String)>,
}

impl Settings {
    /// As the library takes them. Bytes are charged to a ledger of its own until another is set.
    pub(super) fn open_options(&self) -> OpenOptions {
        let options = OpenOptions::new(self.device).threads(self.threads).log(log());
        let options =
            self.vram_limit.iter().fold(options, |options, limit| options.set("vram_limit", limit.to_string()));
        self.options.iter().fold(options, |options, (key, value)| options.set(key, value))
    }

    /// As a user would type them again.
    pub(super) fn command_line(&self) -> String {
        let device = if self.device == 0 { String::new() } else { format!(" --device {}", self.device) };
        let threads = if self.threads == 0 { String::new() } else { format!(" --threads {}", self.threads) };
        let limit = self.vram_limit.map_or_else(String::new, |limit| format!(" --vram-limit {limit}"));
        let options = self.options.iter().map(|(key, value)| format!(" --option {key}={value}"));
        device + &threads + &limit + &options.collect::<String>()
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    text.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).ok_or_else(|| "expected KEY=VALUE".to_owned())
}

/// A number of bytes: digits, and a unit if there is one. Zero is refused: it would leave nothing to work with.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        other => return Err(format!("no such unit: {other:?}; there are B, KiB, MiB, GiB and TiB")),
    };
    let number = number.parse::<u64>().map_err(|_| "expected a whole number of bytes, KiB, MiB, GiB or TiB")?;
    match number.checked_mul(1 << shift) {
        None => Err("more bytes than there are addresses".to_owned()),
        Some(0) => Err("zero bytes hold nothing".to_owned()),
        Some(bytes) => Ok(bytes),
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        // The candidates are listed a line each; an error is one line.
        Self::Backend(error.to_string().replace("\n  ", " ").replace('\n', " "))
    }
}

/// Warnings and errors of backends go to standard error.
pub(super) fn log() -> LogSink {
    LogSink::new(|level, target, message| {
        if matches!(level, LogLevel::Warn | LogLevel::Error) {
            eprintln!("splitprover: warning: {target}: {message}");
        }
    })
}

/// The backends this program can reach.
pub(super) fn registry() -> Registry {
    Registry::new().linked::<CpuPlugin>().log(log())
}

impl Choice {
    /// The same backend on another device.
    pub(super) fn on_device(&self, device: usize) -> Self {
        Self { settings: Settings { device, ..self.settings.clone() }, ..self.clone() }
    }

    /// The same with other threads.
    pub(super) fn with_threads(&self, threads: usize) -> Self {
        Self { settings: Settings { threads, ..self.settings.clone() }, ..self.clone() }
    }

    /// The number of the device.
    pub(super) fn device_index(&self) -> usize {
        self.settings.device
    }

    /// The most device memory that may be held.
    pub(super) fn vram_limit(&self) -> Option<u64> {
        self.settings.vram_limit
    }

    /// Threads that may be kept busy; 0: as many as there are cores.
    pub(super) fn threads(&self) -> usize {
        self.settings.threads
    }
}

/// Opens the backend that was asked for. One that can't be had is an error: there is no fall-back.
pub(super) fn open(choice: &Choice, ledger: &MemoryLedger) -> Result<Backend, Failure> {
    Ok(registry().load(&choice.backend)?.open(&choice.settings.open_options().ledger(ledger.clone()))?)
}

/// What the chosen device calls itself.
pub(super) fn device(choice: &Choice) -> Result<DeviceInfo, Failure> {
    let devices = registry().load(&choice.backend)?.library().devices(log())?;
    let index = choice.settings.device;
    devices.into_iter().nth(index).ok_or_else(|| Failure::Backend(format!("there is no device {index}")))
}

/// Opens the reference backend, which is always there.
pub(super) fn reference(ledger: &MemoryLedger) -> Result<Backend, Failure> {
    Ok(registry().load("cpu")?.open(&OpenOptions::new(0).ledger(ledger.clone()).log(log()))?)
}

/// Every usable device of every backend, the reference first: a name for people, and how to open it.
pub(super) fn usable(ledger: &MemoryLedger) -> Vec<(String, Result<Backend, Failure>)> {
    let registry = registry();
    let Survey { candidates } = registry.survey(false);
    let mut found = Vec::new();
    for candidate in candidates {
        let Some(info) = candidate.backend else { continue };
        let request = if candidate.location == "linked in" { info.name.clone() } else { candidate.location.clone() };
        for device in candidate.devices {
            let options = OpenOptions::new(device.index).ledger(ledger.clone()).log(log());
            let opened = registry.load(&request).and_then(|loaded| loaded.open(&options)).map_err(Failure::from);
            found.push((
                format!("{} ({}, device {}: {})", info.name, candidate.location, device.index, device.name),
                opened,
            ));
        }
    }
    found
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Don't let the devices prove something with a known answer
    #[arg(long)]
    no_self_test: bool,
}

/// `splitprover backends`.
pub(super) fn list(arguments: &ListArguments) -> Result<(), Failure> {
    let survey = registry().survey(!arguments.no_self_test);
    if arguments.json {
        print_json(&json!(survey));
    } else {
        print(&format!("{survey}\n"));
    }
    if survey.any_usable() { Ok(()) } else { Err(Failure::Backend("no usable device".into())) }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!(bytes("1"), Ok(1));
        assert_eq!(bytes("12GiB"), Ok(12 << 30));
        assert_eq!(bytes("3072 MiB"), Ok(3 << 30));
        assert_eq!(bytes("7KiB"), Ok(7 << 10));
        assert_eq!(bytes("16777215TiB"), Ok(16_777_215 << 40));
        for bad in ["", "GiB", "-1", "1.5GiB", "12GB", "12gib", "0", "0GiB", "16777216TiB", "18446744073709551616"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
