//! The program under other circumstances: one thread, two processes at once, interrupted.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use splitprover_tests::cases;

/// The program with a cache for stamps in the test's own folder.
fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_splitprover"));
    command.env("XDG_CACHE_HOME", folder.join("cache")).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn run(command: &mut Command) {
    let status = command.status().expect("the program runs");
    assert!(status.success(), "{status}: {command:?}");
}

fn json(path: &Path) -> serde_json::Value {
    let text = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A case's proof with the blinding that the expected one has, into `out`.
fn prove_case(case: &Path, folder: &Path, out: &Path) -> Command {
    let rs = json(&case.join("rs.json"));
    let mut command = program(folder);
    command.arg("prove").args(["circuit.zkey", "witness.wtns"].map(|name| case.join(name)));
    command.args(["proof.json", "public.json"].map(|name| out.join(name)));
    command.arg("--insecure-blinding");
    command.arg(format!("{},{}", rs["r"].as_str().unwrap(), rs["s"].as_str().unwrap()));
    command
}

fn assert_expected(case: &Path, out: &Path) {
    assert_eq!(json(&out.join("proof.json")), json(&case.join("proof_rs.json")), "{}", case.display());
    assert_eq!(json(&out.join("public.json")), json(&case.join("public.json")), "{}", case.display());
}

#[test]
fn any_number_of_threads_gives_the_expected_proof() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["poseidon16", "num2bits254", "e_one_constraint"] {
        let case = cases::root().join(name);
        for threads in ["1", "2", "7"] {
            run(prove_case(&case, folder.path(), folder.path()).env("RAYON_NUM_THREADS", threads));
            assert_expected(&case, folder.path());
        }
    }
}

#[test]
fn processes_at_once_share_key_and_stamp() {
    let folder = tempfile::tempdir().unwrap();
    let case = cases::root().join("poseidon16");
    // A key that nobody has opened, so that all of them check it and write its stamp.
    for file in ["circuit.zkey", "witness.wtns", "rs.json", "proof_rs.json", "public.json"] {
        fs::copy(case.join(file), folder.path().join(file)).unwrap();
    }
    let outs = ["one", "two", "three"].map(|name| folder.path().join(name));
    for _ in 0..3 {
        let children: Vec<Child> = outs
            .iter()
            .map(|out| {
                fs::create_dir_all(out).unwrap();
                prove_case(folder.path(), folder.path(), out).spawn().expect("the program runs")
            })
            .collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        for out in &outs {
            assert_expected(folder.path(), out);
            fs::remove_dir_all(out).unwrap();
        }
    }
}

/// How a process ends and how long that took, within a time that only one that hangs exceeds.
fn wait(child: &mut Child) -> (ExitStatus, Duration) {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (status, begin.elapsed());
        }
        if begin.elapsed() > Duration::from_secs(30) {
            let _ = child.kill();
            panic!("still running half a minute after it was interrupted");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What interrupts a child: SIGINT, or SIGTERM where this process was started with SIGINT ignored, as jobs in the background of a
/// script are: children inherit that.
fn interrupting() -> i32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    if ignored >> (2 - 1) & 1 == 1 { 15 } else { 2 }
}

fn interrupt(child: &Child, signal: i32) {
    // Fails if the process has ended meanwhile, which is fine.
    let arguments = [format!("-{signal}"), child.id().to_string()];
    let _ = Command::new("kill").args(arguments).stderr(Stdio::null()).status();
}

/// The files in a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn an_interrupted_proof_ends_and_leaves_no_partial_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (key, witness, vkey) = (at("key.zkey"), at("witness.wtns"), at("vkey.json"));
    run(program(folder.path())
        .args(["setup", "--synthetic", "dense", "--log2", "12", "--witness"])
        .args([&witness, &key]));
    run(program(folder.path()).arg("export-vk").args([&key, &vkey]));
    let out = at("out");
    fs::create_dir(&out).unwrap();
    let [proof, public] = ["proof.json", "public.json"].map(|name| out.join(name));
    let prove = || program(folder.path()).arg("prove").args([&key, &witness, &proof, &public]).spawn().unwrap();

    // How long one takes, so that the moments spread over it however fast the machine is.
    let begin = Instant::now();
    assert!(prove().wait().unwrap().success());
    let whole = begin.elapsed();
    run(program(folder.path()).arg("verify").args([&vkey, &public, &proof]));

    let (mut interrupted, signal, mut longest) = (0, interrupting(), Duration::ZERO);
    for moment in 0..12 {
        // Proofs of an earlier run stay, or are replaced as a whole.
        let old = moment % 2 == 0;
        for path in [&proof, &public] {
            fs::remove_file(path).ok();
            if old {
                fs::write(path, "old").unwrap();
            }
        }
        let mut child = prove();
        std::thread::sleep(whole * moment / 12);
        interrupt(&child, signal);
        let (status, took) = wait(&mut child);
        match status.success() {
            true => run(program(folder.path()).arg("verify").args([&vkey, &public, &proof])),
            false => {
                assert!(status.signal() == Some(signal) || status.code() == Some(128 + signal), "{status}");
                interrupted += 1;
                longest = longest.max(took);
            }
        }
        for path in files(&out) {
            assert!(path == proof || path == public, "left behind: {}", path.display());
            let text = fs::read_to_string(&path).unwrap();
            assert!((old && text == "old") || serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
        }
        if old {
            assert_eq!(files(&out).len(), 2, "what was there is still there");
        }
    }
    assert!(interrupted > 0, "no proof was interrupted");
    println!("{interrupted} proofs of {whole:.1?} interrupted; they ended within {longest:.1?}");
}

#[test]
fn a_killed_conversion_leaves_nothing_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let unnamed = fs::OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(folder.path());
    if let Err(error) = unnamed {
        println!("skipped: this file system has no files without a name: {error}");
        return;
    }
    let key = folder.path().join("key.params");
    run(program(folder.path()).args(["setup", "--synthetic", "dense", "--log2", "12"]).arg(&key));
    let cache = folder.path().join("cache");
    let inspect = || program(folder.path()).args(["inspect", "--recheck"]).arg(&key).spawn().unwrap();
    let begin = Instant::now();
    assert!(inspect().wait().unwrap().success());
    let whole = begin.elapsed();
    let mut killed = 0;
    for moment in 0..12 {
        fs::remove_dir_all(&cache).unwrap();
        fs::create_dir(&cache).unwrap();
        let mut child = inspect();
        std::thread::sleep(whole * moment / 12);
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());
        let Ok(entries) = fs::read_dir(cache.join("splitprover")) else { continue };
        for entry in entries {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(name.ends_with(".points") || name.ends_with(".stamp") || name.starts_with(".stamp-"), "{name}");
        }
    }
    assert!(killed > 0, "no conversion was killed");
}
