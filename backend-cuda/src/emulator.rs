//! Kernels as plain C++ on the CPU, for tests: the same sources and the same host code, where there is no card.
//!
//! A family's source is compiled with the system's C++ compiler and `kernels/host/emulate.h` into a shared library, which a context
//! opened with [`Context::emulated`](crate::driver::Context::emulated) loads in place of a CUBIN. It's slow, exact and deterministic.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernels::{Family, HEADERS};

/// Whether a C++ compiler can be run here.
#[must_use]
pub fn available() -> bool {
    Command::new(compiler()).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn compiler() -> std::ffi::OsString {
    std::env::var_os("CXX").unwrap_or_else(|| "c++".into())
}

/// The shared library of `family`, built unless this very source was built before.
///
/// # Errors
/// What went wrong, with the compiler's words.
pub fn library(family: Family) -> Result<PathBuf, String> {
    let (source, shim) = (family.source(), include_str!("../kernels/host/emulate.h"));
    let mut hasher = blake3::Hasher::new();
    for text in [source, shim].iter().chain(HEADERS.iter().map(|(_, text)| text)) {
        hasher.update(text.as_bytes());
    }
    let folder = std::env::temp_dir().join(format!("splitprover-emulator-{}", &hasher.finalize().to_hex()[..16]));
    let target = folder.join(format!("{}.so", family.name()));
    if target.exists() {
        return Ok(target);
    }
    let write = |name: &str, text: &str| {
        fs::create_dir_all(&folder).and_then(|()| replace(&folder.join(name), text)).map_err(|e| format!("{name}: {e}"))
    };
    write("emulate.h", shim)?;
    for (name, text) in HEADERS {
        write(name, &without_extern_shared(text))?;
    }
    let mut program = format!("#define SP_EMULATE 1\n#include \"emulate.h\"\n{}\n", without_extern_shared(source));
    for kernel in kernel_names(source) {
        program.push_str(&format!(
            "extern \"C\" void emu_{kernel}(const unsigned *grid, const unsigned *block, void **arguments) {{ emu_launch({kernel}, grid, block, arguments); }}\n"
        ));
    }
    let unit = format!("{}.cpp", family.name());
    write(&unit, &program)?;
    let part = folder.join(format!("{}.{}.part", family.name(), unique()));
    let output = Command::new(compiler())
        .args(["-std=c++17", "-O2", "-w", "-fPIC", "-shared", "-o"])
        .arg(&part)
        .arg(folder.join(&unit))
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    fs::rename(&part, &target).map_err(|error| error.to_string())?;
    Ok(target)
}

fn unique() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// Writes a file in one step, so that a concurrent builder never reads half of it.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let part = path.with_extension(format!("{}.part", unique()));
    fs::write(&part, text)?;
    fs::rename(part, path)
}

/// Dynamic shared memory has no counterpart in C++: `extern __shared__ T name[];` becomes a pointer to the emulator's buffer.
fn without_extern_shared(source: &str) -> String {
    let mut out = String::new();
    for line in source.lines() {
        let declaration =
            line.trim_start().strip_prefix("extern __shared__ ").and_then(|rest| rest.strip_suffix("[];"));
        match declaration.and_then(|rest| rest.rsplit_once(' ')) {
            Some((kind, name)) => out.push_str(&format!("static {kind} *const {name} = ({kind} *)emu_dynamic_shared;")),
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// The names of the `extern "C" __global__` functions of a source.
fn kernel_names(source: &str) -> Vec<String> {
    source
        .split("extern \"C\" __global__")
        .skip(1)
        .filter_map(|rest| {
            let mut rest = rest;
            let body = rest.find('{').unwrap_or(usize::MAX);
            if let Some(bounds) = rest.find("__launch_bounds__").filter(|&bounds| bounds < body) {
                let close = bounds + rest[bounds..].find(')')?;
                rest = &rest[close + 1..];
            }
            let head = &rest[..rest.find('(')?];
            head.split_whitespace().next_back().map(str::to_owned)
        })
        .collect()
}
