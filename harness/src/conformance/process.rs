//! What the operating system says about this process.

/// Resident, allocated, threads, open files: what must not grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Resident bytes, without pages of files where the system tells them apart: those come and go as the system likes.
    pub(crate) resident: u64,
    /// Bytes that the C allocator has handed out and not got back; `None` where it doesn't say. A plug-in shares it.
    pub(crate) allocated: Option<u64>,
    pub(crate) threads: u64,
    pub(crate) files: u64,
}

impl Footprint {
    /// The process now, after the allocator gave back what it can.
    pub(crate) fn now() -> std::io::Result<Self> {
        let allocated = trimmed_heap();
        let status = std::fs::read_to_string("/proc/self/status")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            number.ok_or_else(|| std::io::Error::other(format!("/proc/self/status has no {name}")))
        };
        let resident = match (field("RssAnon"), field("RssShmem")) {
            (Ok(anonymous), Ok(shared)) => anonymous + shared,
            _ => field("VmRSS")?,
        };
        Ok(Self {
            resident: resident * 1024,
            allocated,
            threads: field("Threads")?,
            files: std::fs::read_dir("/proc/self/fd")?.count() as u64,
        })
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
fn trimmed_heap() -> Option<u64> {
    // SAFETY: `malloc_trim` and `mallinfo2` take no pointers and lock what they look at; both may be called at any time from
    // any thread.
    let info = unsafe {
        libc::malloc_trim(0);
        libc::mallinfo2()
    };
    // In use within the arenas, and in maps of their own.
    Some((info.uordblks + info.hblkhd) as u64)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trimmed_heap() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_show() {
        let before = Footprint::now().unwrap();
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = Footprint::now().unwrap();
        assert!(after.resident > before.resident + (48 << 20), "{before:?}, {after:?}");
        if let (Some(before), Some(after)) = (before.allocated, after.allocated) {
            assert!(after > before + (48 << 20), "{before}, {after}");
        }
        drop(block);
    }
}
