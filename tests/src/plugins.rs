//! Plug-ins for tests, built on demand.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// The shared library of a workspace package, built in this test's own profile and target folder. After a build of the whole
/// workspace there is nothing left to build.
///
/// # Panics
/// If it can't be built.
pub fn library(package: &str, lib: &str) -> PathBuf {
    static BUILDS: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // target/<profile>/deps/<test>
    let executable = std::env::current_exe().expect("a test has a path");
    let profile = executable.parent().and_then(Path::parent).expect("tests lie in target/<profile>/deps");
    let target = profile.parent().expect("profiles lie in the target folder");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").join("Cargo.toml");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "--offline", "--package", package, "--manifest-path"]).arg(manifest);
    cargo.arg("--target-dir").arg(target);
    let name = profile.file_name().expect("a profile has a name");
    cargo.arg("--profile").arg(if name == "debug" { "dev".as_ref() } else { name });
    let status = cargo.status().unwrap_or_else(|e| panic!("cargo: {e}"));
    assert!(status.success(), "cargo build --package {package}: {status}");
    let file = profile.join(format!("lib{lib}.so"));
    assert!(file.is_file(), "{} was not built", file.display());
    file
}

/// The CPU backend.
pub fn cpu() -> PathBuf {
    library("splitprover-backend-cpu-plugin", "splitprover_backend_cpu")
}

/// The backend to copy.
pub fn template() -> PathBuf {
    library("splitprover-backend-template", "splitprover_backend_template")
}

/// The backend that misbehaves as its option "mode" says.
pub fn misbehaving() -> PathBuf {
    library("splitprover-backend-misbehaving", "splitprover_backend_misbehaving")
}
