//! Living on when a mapped file is cut: a handler of `SIGBUS` that puts zeros in place of pages which the file has lost.
//!
//! The handler acts only on addresses inside registered maps, and hands everything else to the handler that was there before
//! it (Rust's own, which ends the process). It does what a signal handler may do: reads atomics, makes one system call.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Maps beyond this many at a time aren't protected.
const SLOTS: usize = 64;

/// A registered map.
#[derive(Debug)]
struct Range {
    start: usize,
    end: usize,
    lost: AtomicBool,
}

/// What the handler looks at. Entries are leaked, so that it never meets freed memory: some bytes for each map ever made.
static RANGES: [AtomicPtr<Range>; SLOTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];
static PAGE: AtomicUsize = AtomicUsize::new(0);
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A map's place among the registered ones; withdrawn on drop.
#[derive(Debug)]
pub(super) struct Registration {
    range: &'static Range,
    slot: Option<usize>,
}

impl Registration {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let start = bytes.as_ptr() as usize;
        let range: &'static Range =
            Box::leak(Box::new(Range { start, end: start.saturating_add(bytes.len()), lost: AtomicBool::new(false) }));
        let pointer = ptr::from_ref(range).cast_mut();
        let slot = RANGES.iter().position(|slot| {
            slot.compare_exchange(ptr::null_mut(), pointer, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        Self { range, slot }
    }

    /// Whether the handler had to put zeros somewhere in this map.
    pub(super) fn has_lost_pages(&self) -> bool {
        self.range.lost.load(Ordering::Acquire)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.and_then(|slot| RANGES.get(slot)) {
            slot.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

/// From now on, a mapped file that is cut by somebody else doesn't end this process: readers see zeros in place of what is gone,
/// and [`MappedFile::check_unchanged`](super::MappedFile::check_unchanged) fails.
///
/// Installs a handler of `SIGBUS` for the whole process, once; for programs, not for libraries.
///
/// # Errors
/// If the system refuses.
pub fn survive_shrinking() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    INSTALLED.get_or_init(install).map_err(io::Error::from_raw_os_error)
}

fn install() -> Result<(), i32> {
    let failed = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    // SAFETY: sysconf reads a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).ok().filter(|page| page.is_power_of_two()).ok_or(libc::EINVAL)?;
    PAGE.store(page, Ordering::Release);

    // SAFETY: `sigaction` is a plain C struct for which zeros are a valid value.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks for the current action only; `previous` is valid for writes.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut previous) } != 0 {
        return Err(failed());
    }
    // Before the handler can run.
    let _ = PREVIOUS.set(previous);

    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fault;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` is valid for reads; its handler has the signature that SA_SIGINFO asks for and does only what a
    // signal handler may do.
    if unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) } != 0 {
        return Err(failed());
    }
    Ok(())
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO, and SIGBUS fills in the address.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in &RANGES {
        // SAFETY: entries are null or point to a leaked, immutable (but for its atomic) `Range`.
        let Some(range) = (unsafe { slot.load(Ordering::Acquire).as_ref() }) else { continue };
        if (range.start..range.end).contains(&address) {
            range.lost.store(true, Ordering::Release);
            if put_zeros(address) {
                return;
            }
        }
    }
    pass_on(signal, info, context);
}

/// Replaces the page of an address inside a registered map by zeros.
fn put_zeros(address: usize) -> bool {
    let page = PAGE.load(Ordering::Acquire);
    let start = address & !page.wrapping_sub(1);
    // SAFETY: the page lies in a live, read-only map of a file that this process made (a registration is withdrawn before
    // its map is unmapped), and nothing can be read from it any more: it faults. Mapping over it touches no other memory.
    // The map's owner unmaps the whole range in the end, this page with it.
    let mapped = unsafe {
        libc::mmap(
            start as *mut c_void,
            page,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}

/// A fault that isn't ours goes to the handler that was there before, or ends the process.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = PREVIOUS.get().filter(|previous| {
        previous.sa_sigaction != libc::SIG_DFL
            && previous.sa_sigaction != libc::SIG_IGN
            && previous.sa_flags & libc::SA_SIGINFO != 0
    });
    match previous {
        Some(previous) => {
            // SAFETY: the action was installed with SA_SIGINFO, so its handler is a function of this type.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(previous.sa_sigaction) };
            handler(signal, info, context);
        }
        None => {
            // SAFETY: restores the default action; the access is tried again when this returns, and ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}
