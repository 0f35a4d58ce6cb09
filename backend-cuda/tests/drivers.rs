//! What is said on machines without a usable card: no driver, a stub, an old driver, no device, an old card, no compiler.
//!
//! Drivers are made of a few lines of C; each is met by a process of its own, since a process loads a driver once.

use std::path::{Path, PathBuf};
use std::process::Command;

use splitprover_backend_cuda::{CudaProver, OpenOptions, devices};

const SAYS: &str = "SPLITPROVER_TEST_SAYS_WHAT_IT_SEES";

/// The part of the driver that is asked before anything runs.
const DRIVER: &str = r#"
#include <stddef.h>
#include <string.h>
#ifndef STATUS
#define STATUS 0
#endif
int cuInit(unsigned flags) { return STATUS; }
int cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
int cuDeviceGetCount(int *count) { *count = COUNT; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, device ? "Card Two" : "Card One", length); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)8 << 30; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? CAPABILITY / 10 : attribute == 76 ? CAPABILITY % 10 : 1;
    return 0;
}
int cuGetErrorString(int status, const char **text) { *text = status == 34 ? "CUDA driver is a stub library" : "words"; return 0; }
#ifndef OLD
int cuCtxCreate_v4(void **context, void *parameters, unsigned flags, int device) { *context = (void *)1; return 0; }
#endif
int cuCtxDestroy_v2(void *context) { return 0; }
"#;

/// What this process says of the driver it finds; for the other tests, in processes of their own.
#[test]
fn child() {
    if std::env::var_os(SAYS).is_none() {
        return;
    }
    match devices() {
        Ok(found) => println!("devices: {:?}", found.iter().map(|card| &card.name).collect::<Vec<_>>()),
        Err(error) => println!("devices: {error}"),
    }
    for card in [0, 1, 7] {
        match CudaProver::open(card, OpenOptions { threads: 1, ..OpenOptions::default() }) {
            Ok(_) => println!("card {card}: opened"),
            Err(error) => println!("card {card}: {error}"),
        }
    }
}

/// A driver of these properties in a folder of its own; none without a C compiler.
fn driver(name: &str, properties: &[&str]) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("driver-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("driver.c"), DRIVER).unwrap();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let defaults = ["-DVERSION=13000", "-DCOUNT=2", "-DCAPABILITY=90"];
    let given = |default: &&&str| {
        let name = default.split('=').next().unwrap_or_default();
        !properties.iter().any(|property| property.starts_with(name))
    };
    let outcome = Command::new(compiler)
        .args(["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(folder.join("driver.c"))
        .args(defaults.iter().filter(given))
        .args(properties)
        .output();
    let Ok(outcome) = outcome else {
        println!("skipped, no C compiler");
        return None;
    };
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    std::fs::copy(folder.join("libcuda.so.1"), folder.join("libcuda.so")).unwrap();
    Some(folder)
}

/// What a process says that finds its driver in `folder`, and no compiler and no kernels. The folder goes.
fn heard(folder: &Path) -> Vec<String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(SAYS, "1")
        .env("LD_LIBRARY_PATH", folder)
        .env("SPLITPROVER_NVRTC", folder.join("libnvrtc.so.13"))
        .env("SPLITPROVER_KERNEL_CACHE", folder.join("cache"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let mine = |line: &&str| line.starts_with("devices: ") || line.starts_with("card ");
    // The test harness may have begun the first line.
    let lines = text.lines().map(|line| line.find("devices: ").map_or(line, |at| &line[at..])).filter(mine);
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    assert_eq!(lines.len(), 4, "a line each: {text}");
    std::fs::remove_dir_all(folder).unwrap();
    lines
}

#[track_caller]
fn expect(line: &str, words: &[&str]) {
    for word in words {
        assert!(line.contains(word), "{word:?} isn't in {line:?}");
    }
}

#[test]
fn a_stub_driver_is_called_one() {
    let Some(folder) = driver("stub", &["-DSTATUS=34"]) else { return };
    for line in heard(&folder) {
        expect(&line, &["doesn't start", "34", "CUDA driver is a stub library"]);
    }
}

#[test]
fn an_old_driver_says_both_versions() {
    let Some(folder) = driver("old", &["-DVERSION=12040"]) else { return };
    for line in heard(&folder) {
        expect(&line, &["supports CUDA 12.4", "need 12.5"]);
    }
    let Some(folder) = driver("older", &["-DVERSION=11080", "-DOLD"]) else { return };
    for line in heard(&folder) {
        expect(&line, &["no CUDA driver", "older than CUDA 12.5"]);
    }
}

#[test]
fn a_driver_without_devices_says_how_many_there_are() {
    let Some(folder) = driver("none", &["-DCOUNT=0"]) else { return };
    let lines = heard(&folder);
    assert_eq!(lines[0], "devices: []");
    for (line, card) in lines[1..].iter().zip([0, 1, 7]) {
        expect(line, &[&format!("no CUDA device {card}"), "the driver sees 0"]);
    }
    let Some(folder) = driver("refusing", &["-DSTATUS=100"]) else { return };
    for line in heard(&folder) {
        expect(&line, &["no CUDA device 0", "the driver sees 0"]);
    }
}

#[test]
fn an_old_card_is_listed_and_refused_by_name() {
    let Some(folder) = driver("card", &["-DCAPABILITY=61"]) else { return };
    let lines = heard(&folder);
    assert_eq!(lines[0], "devices: [\"Card One\", \"Card Two\"]");
    expect(&lines[1], &["Card One has compute capability 6.1", "at least 7.5"]);
    expect(&lines[2], &["Card Two has compute capability 6.1", "at least 7.5"]);
    expect(&lines[3], &["no CUDA device 7", "the driver sees 2"]);
}

#[test]
fn a_missing_compiler_is_named_with_the_kernels_it_was_wanted_for() {
    let Some(folder) = driver("compiler", &[]) else { return };
    let lines = heard(&folder);
    assert_eq!(lines[0], "devices: [\"Card One\", \"Card Two\"]");
    for line in &lines[1..3] {
        expect(line, &["isn't in the cache for sm_90", "NVRTC can't be loaded", "libnvrtc.so.13"]);
    }
}

#[test]
fn a_machine_without_a_driver_says_so() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("driver-absent-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // An empty file in the driver's place hides one that may be installed.
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::write(folder.join(name), b"").unwrap();
    }
    let lines = heard(&folder);
    for line in lines {
        assert!(line.contains("no CUDA driver: ") && line.contains("libcuda.so.1"), "{line}");
    }
}
