//! Faults of the table: what `sp_negotiate` hands out, or refuses. Chosen by the environment, because there are no options yet.
#![allow(unsafe_code)]

use splitprover_core::abi::{
    SP_ABI_VERSION, SP_ERR_DEVICE, SP_ERR_VERSION, SP_OK, SpBackendTable, SpHost, SpStatus, SpStr, negotiate, table,
};

use crate::Plugin;

/// The environment variable with the mode.
pub(crate) const VARIABLE: &str = "SPLITPROVER_MISBEHAVE";

const MODES: [&str; 6] = ["other-version", "short-table", "missing-entry", "other-curve", "no-table", "refuses"];

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
        "refuses" => return SP_ERR_DEVICE,
        // SAFETY: the host's arguments, handed on.
        _ => return unsafe { negotiate::<Plugin>(min, max, host, out) },
    };
    // SAFETY: the host's pointer. The table is leaked, so it is as good as static.
    unsafe { out.write(Box::leak(Box::new(altered))) };
    status
}
