//! What a run costs: time, processor time, peak memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Result;

/// Processor time of this process, all threads, user and system.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may hold anything, come fields 3 and on; 14 and 15 are ticks of 10 ms.
    let fields: Vec<u64> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|f| f.parse().ok())
        .collect();
    Duration::from_millis(10 * fields.iter().sum::<u64>())
}

/// A field of `/proc/self/status`, in KiB.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// Lets the peak of resident memory begin anew.
pub(crate) fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// MiB at the peak since [`reset_peak`].
pub(crate) fn peak_mib() -> u64 {
    status("VmHWM:") / 1024
}

/// Watches how much memory is the process's own, without mapped files, which the system can take back at any time.
pub(crate) struct OwnMemory {
    peak_kib: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl OwnMemory {
    /// Looks every five milliseconds from now on.
    pub(crate) fn watch() -> Self {
        let own = Self { peak_kib: Arc::default(), stop: Arc::default() };
        let (peak, stop) = (own.peak_kib.clone(), own.stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                peak.fetch_max(status("RssAnon:"), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        own
    }

    /// The peak so far, in MiB.
    pub(crate) fn peak_mib(&self) -> u64 {
        self.peak_kib.fetch_max(status("RssAnon:"), Ordering::Relaxed).max(status("RssAnon:")) / 1024
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Measures from when it was started.
pub(crate) struct Meter {
    begin: Instant,
    processor: Duration,
}

impl Meter {
    pub(crate) fn start() -> Self {
        Self { begin: Instant::now(), processor: processor_time() }
    }

    /// Time and processor time.
    pub(crate) fn read(&self) -> (Duration, Duration) {
        (self.begin.elapsed(), processor_time() - self.processor)
    }

    pub(crate) fn so_far(&self) -> String {
        let (time, processor) = self.read();
        format!("{:.1} s, {:.1} s of processor time", time.as_secs_f64(), processor.as_secs_f64())
    }
}

/// What one prover did.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// Reading the key: time and processor time, in seconds.
    pub(crate) load: (f64, f64),
    /// All partitions, synthesis included.
    pub(crate) prove: (f64, f64),
    /// Of that, synthesis.
    pub(crate) synthesis: f64,
    /// Peak of resident memory over both, in MiB.
    pub(crate) peak_mib: u64,
    /// Peak of the process's own memory, in MiB: without mapped files.
    pub(crate) own_mib: u64,
    /// The proofs, in hexadecimal.
    pub(crate) proofs: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { load, prove, synthesis, peak_mib, own_mib, proofs } = self;
        write!(f, "report {} {} {} {} {synthesis} {peak_mib} {own_mib} {proofs}", load.0, load.1, prove.0, prove.1)
    }
}

impl Report {
    /// Reads the line that `Display` writes, among others.
    pub(crate) fn parse(output: &str) -> Result<Self> {
        let line = output.lines().find_map(|line| line.strip_prefix("report ")).ok_or("no report")?;
        let fields: Vec<&str> = line.split(' ').collect();
        let [a, b, c, d, synthesis, peak, own, proofs] = fields.as_slice() else {
            return Err("a report of another form".into());
        };
        Ok(Self {
            load: (a.parse()?, b.parse()?),
            prove: (c.parse()?, d.parse()?),
            synthesis: synthesis.parse()?,
            peak_mib: peak.parse()?,
            own_mib: own.parse()?,
            proofs: (*proofs).to_owned(),
        })
    }

    pub(crate) fn heading() -> &'static str {
        "  key s (cpu s)      proofs s (cpu s)     synthesis s   peak MiB   own MiB"
    }

    pub(crate) fn row(&self) -> String {
        format!(
            "{:>6.2} ({:>6.2})   {:>8.2} ({:>8.2})   {:>11.2}   {:>8}   {:>7}",
            self.load.0, self.load.1, self.prove.0, self.prove.1, self.synthesis, self.peak_mib, self.own_mib
        )
    }
}
