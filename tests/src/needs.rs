//! Tests that need something which not every machine has.
//!
//! `SPLITPROVER_REQUIRE` lists what must be there (`cpu,snarkjs,opencl`): missing it is a failure then. What isn't listed and isn't
//! there is skipped, with a line that says so.

/// Whether a test that needs `what` can run. `reason` says what is missing, `None` that it is there.
///
/// # Panics
/// If `what` is required and missing.
pub fn available(what: &str, missing: Option<&str>) -> bool {
    let Some(reason) = missing else { return true };
    let required = std::env::var("SPLITPROVER_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|r| r.trim() == what), "{what} is required here, but missing: {reason}");
    eprintln!("skipped: no {what}: {reason}");
    false
}
