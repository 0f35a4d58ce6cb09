//! Faults of the table: what `sp_negotiate` hands out, or refuses. Chosen by the environment, because there are no options yet.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use splitprover_core::abi::{
    SP_ABI_VERSION, SP_ERR_ARGUMENT, SP_ERR_DEVICE, SP_ERR_VERSION, SP_OK, SpBackendTable, SpError, SpHost, SpInputs,
    SpInstance, SpKey, SpLoadedKey, SpPending, SpStatus, SpStr, SpSums, negotiate, table,
};

use crate::Plugin;

/// The environment variable with the mode.
pub(crate) const VARIABLE: &str = "SPLITPROVER_MISBEHAVE";

const MODES: [&str; 10] = [
    "other-version",
    "short-table",
    "missing-entry",
    "other-curve",
    "no-table",
    "refuses",
    "any-version",
    "any-length",
    "late-release",
    "long-sums",
];

/// Whether a mode is one of the table's.
pub(crate) fn is_mode(name: &str) -> bool {
    MODES.contains(&name)
}

/// Hands out the backend's table, or a faulty one.
///
/// # Safety
/// As the ABI says: `out` points to a writable pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sp_negotiate(
    min: u32,
    max: u32,
    host: *const SpHost,
    out: *mut *const SpBackendTable,
) -> SpStatus {
    let mut altered = *table::<Plugin>();
    let mode = std::env::var(VARIABLE).unwrap_or_default();
    let status = match mode.as_str() {
        "other-version" => {
            altered.abi_version = SP_ABI_VERSION + (1 << 16);
            SP_ERR_VERSION
        }
        "short-table" => {
            altered.struct_size = 136;
            SP_OK
        }
        "missing-entry" => {
            altered.finish = None;
            SP_OK
        }
        "other-curve" => {
            altered.curve = SpStr::new("bn254");
            SP_OK
        }
        "no-table" => return SP_OK,
        "any-version" => SP_OK,
        "any-length" => {
            altered.load_key = Some(remember_length);
            altered.start = Some(start_with_any_length);
            SP_OK
        }
        "late-release" => {
            altered.start = Some(start_and_release_late);
            SP_OK
        }
        "long-sums" => {
            altered.finish = Some(finish_with_long_sums);
            SP_OK
        }
        "refuses" => return SP_ERR_DEVICE,
        // SAFETY: the host's arguments, handed on.
        _ => return unsafe { negotiate::<Plugin>(min, max, host, out) },
    };
    // SAFETY: the host's pointer. The table is leaked, so it is as good as static.
    unsafe { out.write(Box::leak(Box::new(altered))) };
    status
}

/// Variables of the key that was loaded last.
static VARIABLES: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn remember_length(
    instance: *mut SpInstance,
    key: *const SpKey,
    out: *mut *mut SpLoadedKey,
    error: *mut *mut SpError,
) -> SpStatus {
    let Some(entry) = table::<Plugin>().load_key else { return SP_ERR_ARGUMENT };
    // SAFETY: the host's arguments, handed on.
    unsafe {
        VARIABLES.store((*key).shape.num_variables, Ordering::SeqCst);
        entry(instance, key, out, error)
    }
}

/// Takes the witness for as long as the key's, whatever the host says.
unsafe extern "C" fn start_with_any_length(
    instance: *mut SpInstance,
    key: *mut SpLoadedKey,
    inputs: *const SpInputs,
    out: *mut *mut SpPending,
    error: *mut *mut SpError,
) -> SpStatus {
    let Some(entry) = table::<Plugin>().start else { return SP_ERR_ARGUMENT };
    // SAFETY: the host's arguments, handed on. Where the host says less than the key, this reads what it doesn't say: the fault
    // that is to be found.
    unsafe {
        let mut inputs = *inputs;
        inputs.vectors[0].len = VARIABLES.load(Ordering::SeqCst);
        entry(instance, key, &inputs, out, error)
    }
}

/// A host's argument on its way to another thread.
struct Late(SpInputs);

// SAFETY: there is none: the loan is over when the thread uses it. That is the fault that is to be found.
unsafe impl Send for Late {}

unsafe extern "C" fn start_and_release_late(
    instance: *mut SpInstance,
    key: *mut SpLoadedKey,
    inputs: *const SpInputs,
    out: *mut *mut SpPending,
    error: *mut *mut SpError,
) -> SpStatus {
    let Some(entry) = table::<Plugin>().start else { return SP_ERR_ARGUMENT };
    // SAFETY: the host's arguments, handed on.
    let (late, status) = unsafe { (Late(*inputs), entry(instance, key, inputs, out, error)) };
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        // All of it, and not its fields one by one: the whole is what may be sent.
        let Late(inputs) = { late };
        if let Some(release) = inputs.release {
            // SAFETY: there is none, see above.
            unsafe { release(inputs.ctx, 0) };
        }
    });
    status
}

/// Writes all sums, whatever room the host says there is.
unsafe extern "C" fn finish_with_long_sums(
    pending: *mut SpPending,
    out: *mut SpSums,
    error: *mut *mut SpError,
) -> SpStatus {
    let Some(entry) = table::<Plugin>().finish else { return SP_ERR_ARGUMENT };
    // SAFETY: there is none where the host says less: the fault that is to be found. The case has room behind it.
    unsafe {
        let said = (*out).struct_size;
        (*out).struct_size = size_of::<SpSums>() as u64;
        let status = entry(pending, out, error);
        (*out).struct_size = said;
        status
    }
}
