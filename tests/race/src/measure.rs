//! Processor time and memory of this process, from /proc.

use std::time::Duration;

/// Processor time of the whole process so far, in steps of 10 ms.
pub fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may hold anything; fields 14 and 15 of the line are ticks of 10 ms.
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = rest.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

fn status(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.split_whitespace().find_map(|word| word.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The most memory that this process has had resident, pages of mapped files among it, in bytes.
pub fn peak_resident() -> u64 {
    status("VmHWM:")
}

/// The middle one.
pub fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
