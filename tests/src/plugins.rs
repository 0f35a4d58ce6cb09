//! Plug-ins for tests, built on demand. After a build there is little or nothing left to build.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// target/<profile>: two above this test, target/<profile>/deps/<test>.
fn profile_folder() -> PathBuf {
    let executable = std::env::current_exe().expect("a test has a path");
    executable.parent().and_then(Path::parent).expect("tests lie in target/<profile>/deps").to_owned()
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace")
}

/// `cargo` for the workspace, in this test's own profile and target folder.
fn cargo(command: &str) -> Command {
    let profile = profile_folder();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([command, "--quiet", "--locked", "--offline", "--manifest-path"]).arg(workspace().join("Cargo.toml"));
    cargo.arg("--target-dir").arg(profile.parent().expect("profiles lie in the target folder"));
    let name = profile.file_name().expect("a profile has a name");
    cargo.arg("--profile").arg(if name == "debug" { "dev".as_ref() } else { name });
    cargo
}

/// A shared library of the workspace.
fn library(name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut cargo = cargo("build");
        // All at once, so that what they share is built once.
        for package in ["cpu-plugin", "template-plugin", "misbehaving"] {
            cargo.arg("--package").arg(format!("splitprover-backend-{package}"));
        }
        let status = cargo.status().unwrap_or_else(|e| panic!("cargo: {e}"));
        assert!(status.success(), "cargo build: {status}");
    });
    let file = profile_folder().join(format!("libsplitprover_backend_{name}.so"));
    assert!(file.is_file(), "{} was not built", file.display());
    file
}

/// Compiles the backend to copy with one more argument for the compiler, and nothing else anew: whether that worked, and what
/// was said.
///
/// # Panics
/// If there is no cargo.
pub fn template_with(argument: &str) -> (bool, String) {
    // With everything else there, the compiler only sees the one crate.
    template();
    let mut cargo = cargo("rustc");
    cargo.args(["--package", "splitprover-backend-template-plugin", "--lib", "--", argument]);
    let output = cargo.output().unwrap_or_else(|e| panic!("cargo: {e}"));
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The CPU backend.
///
/// # Panics
/// If it can't be built.
pub fn cpu() -> PathBuf {
    library("cpu")
}

/// The backend to copy.
///
/// # Panics
/// If it can't be built.
pub fn template() -> PathBuf {
    library("template")
}

/// The backend that misbehaves as its option "mode" says.
///
/// # Panics
/// If it can't be built.
pub fn misbehaving() -> PathBuf {
    library("misbehaving")
}

/// The contract in plain C, built with the system's compiler (`CC`, or `cc`).
///
/// # Panics
/// If it can't be built.
pub fn c() -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    let file = profile_folder().join("libsplitprover_backend_c.so");
    BUILT.get_or_init(|| {
        // Made beside it and moved, so that nobody loads half a file.
        let new = file.with_extension(format!("{}.new", std::process::id()));
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let status = Command::new(&compiler)
            .args(["-O3", "-std=c11", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(workspace().join("core/include"))
            .arg(workspace().join("tests/plugins/c/backend.c"))
            .arg("-o")
            .arg(&new)
            .status()
            .unwrap_or_else(|e| panic!("{}: {e}", compiler.display()));
        assert!(status.success(), "{}: {status}", compiler.display());
        std::fs::rename(&new, &file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    });
    file
}
