//! Files that mean the program harm. Whatever they are, it ends: with an allowed exit code, one line on standard error, and without
//! having taken memory for what a file only says it holds.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use splitprover_tests::cases;

/// Most bytes that may be resident at any time.
const MEMORY: u64 = 64 << 20;

/// How a process ended.
struct Ended {
    status: ExitStatus,
    /// What it said on standard error, without warnings.
    lines: Vec<String>,
    /// Bytes that were resident at most.
    peak: u64,
}

/// Waits for a child, and ends it if it hangs.
fn wait(child: &Child) -> (ExitStatus, u64) {
    let begin = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: `rusage` is a plain C struct for which zeros are a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for writes; the child is ours and hasn't been waited for: no `Child::wait` is called.
        let ended = unsafe { libc::wait4(child.id() as i32, &mut status, libc::WNOHANG, &mut usage) };
        if ended != 0 {
            assert_eq!(ended, child.id() as i32, "{}", std::io::Error::last_os_error());
            return (ExitStatus::from_raw(status), usage.ru_maxrss as u64 * 1024);
        }
        if begin.elapsed() > Duration::from_secs(120) {
            // SAFETY: sends a signal to our own child, which hasn't been waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGKILL) };
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A folder with a valid key, witness and proof of each kind, and the program run in it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let case = cases::root().join("mul2");
        for (from, to) in [
            ("circuit.zkey", "good.zkey"),
            ("circuit.r1cs", "good.r1cs"),
            ("witness.wtns", "good.wtns"),
            ("vkey.json", "vkey.json"),
            ("public.json", "public.json"),
            ("proof_rs.json", "proof.json"),
        ] {
            fs::copy(case.join(from), folder.path().join(to)).unwrap();
        }
        let place = Self { folder };
        let made = place.run(&["setup", "--r1cs", "good.r1cs", "good.params"]);
        assert!(made.status.success(), "{:?}", made.lines);
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.at(name)).unwrap()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.at(name), bytes).unwrap();
    }

    /// A file that begins and ends like this, with a hole between: `size` bytes in all.
    fn sparse(&self, name: &str, head: &[u8], size: u64, tail: &[u8]) {
        let mut file = File::create(self.at(name)).unwrap();
        file.write_all(head).unwrap();
        file.set_len(size).unwrap();
        file.seek(SeekFrom::Start(size - tail.len() as u64)).unwrap();
        file.write_all(tail).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let errors = tempfile::tempfile().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_splitprover"));
        command.args(arguments).current_dir(self.folder.path()).env("XDG_CACHE_HOME", self.at("cache"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.try_clone().unwrap());
        #[allow(clippy::zombie_processes, reason = "it is waited for by its number")]
        let child = command.spawn().expect("the program runs");
        let (status, peak) = wait(&child);
        let text = std::io::read_to_string({
            let mut errors = errors;
            errors.rewind().unwrap();
            errors
        });
        let text = text.expect("text on standard error");
        let lines =
            text.lines().filter(|line| !line.starts_with("splitprover: warning: ")).map(str::to_owned).collect();
        Ended { status, lines, peak }
    }

    /// Runs the program; it must end with one of these codes, with one line unless that is 0, and take little memory.
    fn expect(&self, arguments: &[&str], allowed: &[i32]) {
        let Ended { status, lines, peak } = self.run(arguments);
        let said = format!("{arguments:?}: {status}, {} KiB: {lines:?}", peak >> 10);
        assert!(status.code().is_some_and(|code| allowed.contains(&code)), "{allowed:?} are allowed: {said}");
        assert_eq!(lines.len(), usize::from(!status.success()), "{said}");
        assert!(lines.iter().all(|line| line.starts_with("splitprover: ")), "{said}");
        assert!(peak <= MEMORY, "{said}");
    }

    fn refuses(&self, arguments: &[&str]) {
        self.expect(arguments, &[3]);
    }

    /// Everything that reads a file of this kind, with this file in the place of the good one.
    fn readers_of(&self, kind: &str, file: &str) -> Vec<Vec<String>> {
        let commands: &[&str] = match kind {
            "zkey" | "params" => &[
                "inspect FILE",
                "prove FILE good.wtns p.out q.out --r1cs good.r1cs",
                "check FILE good.wtns --r1cs good.r1cs",
                "export-vk FILE v.out",
            ],
            "wtns" => &["inspect FILE", "prove good.zkey FILE p.out q.out", "check good.zkey FILE"],
            "r1cs" => &[
                "inspect FILE",
                "check good.zkey good.wtns --r1cs FILE",
                "prove good.params good.wtns p.out q.out --r1cs FILE",
                "setup --r1cs FILE k.zkey",
            ],
            "circuit" => &["prove good.params good.wtns p.out q.out --r1cs FILE"],
            "vkey" => &["verify FILE public.json proof.json"],
            "public" => &["verify vkey.json FILE proof.json"],
            "proof" => &["verify vkey.json public.json FILE"],
            other => panic!("no such kind: {other}"),
        };
        let command = |text: &str| text.split(' ').map(|word| word.replace("FILE", file)).collect();
        let mut commands: Vec<Vec<String>> = commands.iter().map(|text| command(text)).collect();
        if kind == "zkey" {
            // Its constraints are in it.
            commands[1].truncate(5);
        }
        commands
    }

    fn readers_refuse(&self, kind: &str, file: &str) {
        for arguments in self.readers_of(kind, file) {
            self.refuses(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        }
        for out in ["p.out", "q.out", "v.out", "k.zkey"] {
            assert!(!self.at(out).exists(), "{kind} {file}: {out} was written");
        }
    }

    fn write_and_refuse(&self, kind: &str, name: &str, bytes: &[u8]) {
        let extension = if kind == "params" { "params" } else { kind };
        let file = format!("{name}.{extension}").replace(' ', "_");
        self.write(&file, bytes);
        self.readers_refuse(kind, &file);
    }
}

/// Kinds of files that are given by name, and the ending that says so where it matters.
const KINDS: [&str; 8] = ["zkey", "params", "wtns", "r1cs", "circuit", "vkey", "public", "proof"];

/// A container with another size of the section at `index`, and other bytes at `offset` of that section's data.
fn container(bytes: &[u8], kind: u32, size: Option<u64>, patch: Option<(usize, &[u8])>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = 12;
    loop {
        let found = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let length = u64::from_le_bytes(bytes[at + 4..at + 12].try_into().unwrap()) as usize;
        if found == kind {
            if let Some(size) = size {
                bytes[at + 4..at + 12].copy_from_slice(&size.to_le_bytes());
            }
            if let Some((offset, patch)) = patch {
                bytes[at + 12 + offset..][..patch.len()].copy_from_slice(patch);
            }
            return bytes;
        }
        at += 12 + length;
    }
}

#[test]
fn counts_and_sizes_beyond_all_files_cost_nothing() {
    let place = Place::new();
    let [zkey, wtns, r1cs, params] = ["zkey", "wtns", "r1cs", "params"].map(|kind| place.read(&format!("good.{kind}")));
    for number in [u32::MAX, 1 << 31] {
        let bytes = number.to_le_bytes();
        // Section, offset of the number: variables, public inputs, domain; coefficients; contributions.
        for (section, offset) in [(2, 88), (2, 92), (2, 96), (4, 0), (10, 64)] {
            let bad = container(&zkey, section, None, Some((offset, &bytes)));
            place.write_and_refuse("zkey", &format!("{section} {offset} {number}"), &bad);
        }
        place.write_and_refuse("wtns", &format!("{number}"), &container(&wtns, 1, None, Some((36, &bytes))));
        // Wires, outputs, public inputs, constraints; terms of the first combination.
        for (section, offset) in [(1, 36), (1, 40), (1, 44), (1, 60), (2, 0)] {
            let bad = container(&r1cs, section, None, Some((offset, &bytes)));
            place.write_and_refuse("r1cs", &format!("{section} {offset} {number}"), &bad);
        }
        // The points of IC, which are the first count.
        let mut bad = params.clone();
        bad[864..868].copy_from_slice(&number.to_be_bytes());
        place.write_and_refuse("params", &format!("IC {number}"), &bad);
    }
    for size in [u64::MAX, u64::MAX - 11, 1 << 63, 1 << 32] {
        place.write_and_refuse("zkey", &format!("size {size}"), &container(&zkey, 9, Some(size), None));
        place.write_and_refuse("wtns", &format!("size {size}"), &container(&wtns, 2, Some(size), None));
        place.write_and_refuse("r1cs", &format!("size {size}"), &container(&r1cs, 2, Some(size), None));
    }
}

/// A few bytes that declare billions of wires, of which none has a term or label: users of the constraints have something for each.
#[test]
fn wires_without_terms_or_labels_are_bounded_by_the_file() {
    let place = Place::new();
    let good = place.read("good.r1cs");
    let prime = {
        let header = good.windows(12).position(|bytes| bytes[..4] == [1, 0, 0, 0] && bytes[4..] == 64u64.to_le_bytes());
        good[header.unwrap() + 12..][..36].to_vec()
    };
    for (wires, outputs) in [(u32::MAX, 0), (u32::MAX, u32::MAX - 1), (1 << 26, 1 << 25)] {
        let mut bytes = b"r1cs\x01\0\0\0\x02\0\0\0".to_vec();
        bytes.extend([1u32.to_le_bytes().as_slice(), &64u64.to_le_bytes(), &prime].concat());
        for number in [wires, outputs, 0, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend([u64::from(wires).to_le_bytes().as_slice(), &0u32.to_le_bytes()].concat());
        bytes.extend([2u32.to_le_bytes().as_slice(), &0u64.to_le_bytes()].concat());
        place.write_and_refuse("r1cs", &format!("{wires} {outputs}"), &bytes);
    }

    // The same in a circuit's own file, under the right checksum.
    for (public, variables, rows) in
        [(0, 1u64 << 60, 0u64), (0, (1 << 32) - 1, 0), (0, 2, u64::MAX), (0, 2, u64::MAX >> 2)]
    {
        let mut body: Vec<u8> = [public, variables, rows].into_iter().flat_map(u64::to_le_bytes).collect();
        for _ in 0..2 {
            body.extend([0u64, 2].into_iter().flat_map(u64::to_le_bytes));
            body.extend([0; 4]);
            body.extend([1; 64]);
        }
        let inner: [u8; 32] = blake3::hash(&body).into();
        let checksum: [u8; 32] = blake3::hash(&inner).into();
        let bytes = [b"SPcircu1".as_slice(), &checksum, &body].concat();
        place.write_and_refuse("circuit", &format!("{variables} {rows}"), &bytes);
    }
}

#[test]
fn sparse_files_cost_no_more_than_what_they_hold() {
    const TERABYTE: u64 = 1 << 40;
    let place = Place::new();
    for kind in KINDS {
        let file = format!("zeros.{kind}");
        place.sparse(&file, b"", TERABYTE, b"");
        place.readers_refuse(kind, &file);
    }
    // A witness that is as long as it says, for another key; and one whose first value isn't 1.
    let head = place.read("good.wtns")[..60].to_vec();
    for (count, first) in [(1u32 << 29, 1u8), (u32::MAX, 1), (1 << 29, 0), (u32::MAX, 0)] {
        let size = 32 * u64::from(count);
        let mut bytes = [head.as_slice(), &count.to_le_bytes(), &2u32.to_le_bytes(), &size.to_le_bytes()].concat();
        bytes.push(first);
        let file = format!("{count}-{first}.wtns");
        place.sparse(&file, &bytes, 76 + size, b"");
        place.refuses(&["prove", "good.zkey", &file, "p.out", "q.out"]);
        place.refuses(&["prove", "good.params", &file, "p.out", "q.out", "--r1cs", "good.r1cs"]);
        if first == 0 {
            place.refuses(&["inspect", &file]);
        }
    }
    // Good files behind a section of 8 GiB that nobody knows, whose size is right, or not by one byte.
    const HOLE: u64 = 8 << 30;
    for kind in ["zkey", "wtns", "r1cs"] {
        let good = place.read(&format!("good.{kind}"));
        let count = u32::from_le_bytes(good[8..12].try_into().unwrap()) + 1;
        for (size, code) in [(HOLE, 0), (HOLE + 1, 3), (HOLE - 1, 3), (HOLE + TERABYTE, 3)] {
            let head = [&good[..8], &count.to_le_bytes(), &99u32.to_le_bytes(), &size.to_le_bytes()].concat();
            place.sparse("far", &head, 24 + HOLE + good.len() as u64 - 12, &good[12..]);
            place.expect(&["inspect", "far"], &[code]);
        }
    }
    // Proofs without end, and as many as are read.
    for size in [192 << 30, 192 << 20] {
        place.sparse("proofs", &[0xc0], size, b"");
        place.refuses(&["verify", "vkey.json", "public.json", "proofs"]);
    }
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let place = Place::new();
    fs::create_dir(place.at("folder")).unwrap();
    symlink("loop2", place.at("loop1")).unwrap();
    symlink("loop1", place.at("loop2")).unwrap();
    symlink("/dev/zero", place.at("zero")).unwrap();
    symlink("/dev/null", place.at("null")).unwrap();
    symlink("nowhere", place.at("dangling")).unwrap();
    place.write("empty", b"");
    let fifo = place.at("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let long = "x".repeat(300);
    for kind in KINDS {
        for name in
            ["folder", "loop1", "zero", "null", "dangling", "empty", "fifo", "missing", "good.zkey/below", &long]
        {
            // A key of bellperson's is known by its name.
            let file = if kind == "params" { format!("{name}.params") } else { name.to_owned() };
            if kind == "params" && !file.contains('/') && name != long && name != "missing" {
                let _ = symlink(name, place.at(&file));
            }
            place.readers_refuse(kind, &file);
        }
    }
}

#[test]
fn text_of_another_encoding_or_without_end_is_refused() {
    let place = Place::new();
    for kind in ["vkey", "public", "proof"] {
        let text = String::from_utf8(place.read(&format!("{kind}.json"))).unwrap();
        let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let bytes = text.as_bytes();
        let variants: [(&str, Vec<u8>); 14] = [
            ("byte order mark", [b"\xef\xbb\xbf", bytes].concat()),
            ("UTF-16", [b"\xff\xfe".as_slice(), &utf16].concat()),
            ("UTF-16 without mark", utf16),
            ("NUL first", [b"\0", bytes].concat()),
            ("NUL last", [bytes, b"\0"].concat()),
            ("twice", [bytes, bytes].concat()),
            ("cut", bytes[..bytes.len() - 1].to_vec()),
            ("comment", [b"// a proof\n", bytes].concat()),
            ("single quotes", text.replace('"', "'").into_bytes()),
            ("escapes", text.replacen('"', "\\u0022", 1).into_bytes()),
            ("line break in a string", text.replacen('"', "\"\n", 1).into_bytes()),
            ("spaces", vec![b' '; 16 << 20]),
            ("long string", [b"[\"".as_slice(), &vec![b'1'; 16 << 20], b"\"]"].concat()),
            ("deep", b"[{\"a\":".repeat(1 << 20)),
        ];
        for (name, bytes) in variants {
            place.write_and_refuse(kind, name, &bytes);
        }
        for number in [
            "NaN",
            "Infinity",
            "-1",
            "1e1",
            "1.0",
            "0x1",
            "1n",
            "true",
            "null",
            "{}",
            "[\"1\"]",
            "\"\\u0031\"",
            "\"1\\n\"",
        ] {
            // The first number in quotes: an input, or a coordinate.
            let first = text.find(|c: char| c.is_ascii_digit()).map(|at| text[..at].rfind('"').unwrap());
            // In a verification key the first digit may be that of a field's name.
            let first = first.filter(|_| kind != "vkey").unwrap_or_else(|| text.find("\"vk_alpha_1\"").unwrap() + 14);
            let first = first + text[first..].find('"').unwrap();
            let end = first + 1 + text[first + 1..].find('"').unwrap() + 1;
            let bad = [&text[..first], number, &text[end..]].concat();
            place.write_and_refuse(kind, &format!("number {}", number.len()), bad.as_bytes());
        }
    }
}

/// While others cut, replace and rewrite the files that the program reads, it still ends with an answer: that of one of the files,
/// or that a file is bad.
#[test]
fn files_that_change_under_the_program_are_an_error_or_nothing() {
    let place = Place::new();
    let made = place.run(&["setup", "--synthetic", "dense", "--log2", "12", "--witness", "big.wtns", "big.zkey"]);
    assert!(made.status.success(), "{:?}", made.lines);
    let (key, witness) = (place.read("big.zkey"), place.read("big.wtns"));
    let fifo = place.at("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    for (name, bytes) in [("now.zkey", &key), ("now.wtns", &witness)] {
        let stop = AtomicBool::new(false);
        place.write(name, bytes);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (target, other) = (place.at(name), place.at("other"));
                for round in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // Only while it is a file: opening a pipe would wait for a reader.
                    let set_len = |length| File::options().write(true).open(&target)?.set_len(length);
                    let _ = match round % 6 {
                        0 => set_len(bytes.len() as u64 / 2),
                        1 => set_len(bytes.len() as u64),
                        2 => fs::write(&target, bytes),
                        3 => fs::hard_link(&fifo, &other).and_then(|()| fs::rename(&other, &target)),
                        4 => fs::remove_file(&target).and_then(|()| symlink("folder", &target)),
                        _ => fs::write(&other, bytes).and_then(|()| fs::rename(&other, &target)),
                    };
                    // Whole for some time, so that some openings get further than the first look.
                    std::thread::sleep(Duration::from_millis(if round % 6 == 5 { 60 } else { round % 7 }));
                }
            });
            let (key, witness) = if name == "now.zkey" { (name, "big.wtns") } else { ("big.zkey", name) };
            let mut codes = [0; 4];
            // On a quick machine all of a few runs may fall between two changes.
            let mut rounds = 0;
            while rounds < 8 || (codes[3] == 0 && rounds < 500) {
                rounds += 1;
                for arguments in
                    [&["prove", key, witness, "p.out", "q.out", "--recheck"][..], &["inspect", name, "--recheck"]]
                {
                    let Ended { status, lines, .. } = place.run(arguments);
                    let said = format!("{arguments:?}: {status}: {lines:?}");
                    let code = status.code().unwrap_or_else(|| panic!("{said}"));
                    assert!([0, 1, 3].contains(&code), "{said}");
                    assert_eq!(lines.len(), usize::from(code != 0), "{said}");
                    codes[code as usize] += 1;
                }
            }
            stop.store(true, Ordering::Relaxed);
            println!("{name}: {} good, {} proofs that don't hold, {} bad files", codes[0], codes[1], codes[3]);
            assert!(codes[3] > 0, "nothing was changed in time");
        });
    }
}

/// Names can't break the one line or reach the terminal.
#[test]
fn names_of_files_are_shown_harmlessly() {
    let place = Place::new();
    let name = std::ffi::OsStr::from_bytes(b"a\n\x1b[2J\xff.zkey");
    fs::write(place.folder.path().join(name), "no key").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_splitprover"))
        .arg("inspect")
        .arg(Path::new(name))
        .current_dir(place.folder.path())
        .output()
        .expect("the program runs");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(3), 1), "{text}");
    assert!(!text.trim_end().contains(char::is_control), "{text:?}");
}
