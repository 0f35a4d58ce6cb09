//! The C library's allocator, asked to let go.

/// Bytes of the blocks that get a map of their own. With 1 MiB, arenas keep some megabytes more of the scratch that a small proof
/// freed; with 256 KiB, a small proof takes measurably longer.
const BLOCK_THRESHOLD: usize = 1 << 19;

/// Asks the C library's allocator to make a map of its own for each block of 512 KiB and more, and so to give
/// it back when it is freed, as [`HostBuf`](super::HostBuf) does. By itself glibc raises that limit to 32 MiB as a program runs, and keeps what
/// is freed in one arena for each thread: then a process has memory that nobody uses and no ledger shows. Whether the allocator knows
/// such a setting. For the whole process: a program's choice, not a library's.
pub fn map_large_blocks() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `mallopt` takes two integers and may be called at any time; it changes how later blocks are made, and no block that is.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, BLOCK_THRESHOLD as libc::c_int) == 1 }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    {
        let _ = BLOCK_THRESHOLD;
        false
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn glibc_takes_the_setting_and_large_blocks_are_maps() {
        if let Some(sanitizer) = std::env::var_os("SPLITPROVER_SANITIZER") {
            println!("skipped: the {} sanitizer has an allocator of its own", sanitizer.display());
        } else if cfg!(all(target_os = "linux", target_env = "gnu")) {
            assert!(super::map_large_blocks());
            // Freed blocks raise the limit unless it was set: then this one would come from an arena and not begin a map.
            drop(vec![1u8; 24 << 20]);
            let block = vec![1u8; 16 << 20];
            let address = block.as_ptr() as usize;
            assert_eq!(address % 4096, 16, "a block with a map of its own begins behind its header");
        }
    }
}
