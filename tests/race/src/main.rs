//! Races the provers and prints the tables of docs/performance.md.
//!
//! `race [--repetitions N] [--folder DIR] [CIRCUIT…]`. A circuit is `porep-14`, `mixed-16`, `dense-18`, …, or the name of a folder
//! with a `circuit.r1cs` and a `witness.wtns` in `$SPLITPROVER_RACE_CIRCUITS`. Keys are made once and kept in DIR. Each prover
//! runs in a process of its own, one after the other, so that its peak memory is its own.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ff::Field;
use splitprover_core::{HostMemory, PreparedVerifyingKey, Proof, Scalar};
use splitprover_harness::formats::read_wtns;
use splitprover_race::Result;
use splitprover_race::circuit::Circuit;
use splitprover_race::measure::{median, peak_resident};
use splitprover_race::provers::{Name, Opening, open_zkey};

const SYNTHETIC: [&str; 6] = ["porep-14", "dense-14", "porep-16", "dense-16", "porep-18", "dense-18"];

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["prove", prover, folder, stamps, repetitions] => {
            let prover = Name::parse(prover).ok_or("no such prover")?;
            prove(prover, &Circuit::in_folder(Path::new(folder)), Path::new(stamps), repetitions.parse()?)
        }
        _ => race(&words),
    }
}

/// Blinding that is as large as any, and the same for all provers.
fn blinding(repetition: u64) -> (Scalar, Scalar) {
    let scalar = |n: u64| -Scalar::from(n).square().square();
    (scalar(0xd1f7_52a3 + repetition), scalar(0x9b3e_0cc5 + repetition))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// In a process of its own: one prover, a line for opening, for each proof, and for memory.
fn prove(name: Name, circuit: &Circuit, stamps: &Path, repetitions: u64) -> Result<()> {
    let begin = Instant::now();
    let prover = name.open(circuit, stamps)?;
    println!("open {}", begin.elapsed().as_nanos());
    for repetition in 0..repetitions {
        let (r, s) = blinding(repetition);
        let timed = prover.prove(r, s)?;
        let (wall, processor) = (timed.wall.as_nanos(), timed.processor.as_nanos());
        println!("proof {wall} {processor} {}", hex(&timed.proof.to_bytes()));
    }
    println!("peak {}", peak_resident());
    Ok(())
}

/// What a child said.
#[derive(Default)]
struct Run {
    open: Duration,
    wall: Vec<Duration>,
    processor: Vec<Duration>,
    proofs: Vec<String>,
    peak: u64,
}

impl Run {
    fn of(name: Name, circuit: &Circuit, stamps: &Path, repetitions: u64) -> Result<Self> {
        let output = Command::new(std::env::current_exe()?)
            .arg("prove")
            .arg(name.text())
            .args([circuit.folder(), stamps])
            .arg(repetitions.to_string())
            .output()?;
        if !output.status.success() {
            return Err(format!("{}: {}", name.text(), String::from_utf8_lossy(&output.stderr).trim()).into());
        }
        let mut run = Self::default();
        for line in String::from_utf8(output.stdout)?.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["open", nanoseconds] => run.open = Duration::from_nanos(nanoseconds.parse()?),
                ["peak", bytes] => run.peak = bytes.parse()?,
                ["proof", wall, processor, proof] => {
                    run.wall.push(Duration::from_nanos(wall.parse()?));
                    run.processor.push(Duration::from_nanos(processor.parse()?));
                    run.proofs.push(proof.to_owned());
                }
                _ => return Err(format!("{}: an unexpected line: {line}", name.text()).into()),
            }
        }
        Ok(run)
    }
}

/// All that was measured on one circuit.
struct Measured {
    circuit: String,
    constraints: u32,
    runs: Vec<(Name, Run)>,
    key_bytes: u64,
    stamped: Duration,
    checked: Duration,
    plain: Duration,
}

impl Measured {
    fn run(&self, name: Name) -> Option<&Run> {
        self.runs.iter().find(|(found, _)| *found == name).map(|(_, run)| run)
    }
}

fn race(words: &[&str]) -> Result<()> {
    let (mut repetitions, mut folder, mut names) = (3, PathBuf::from("target/race"), Vec::new());
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} what?"));
        match word {
            "--repetitions" => repetitions = value()?.parse()?,
            "--folder" => folder = PathBuf::from(value()?),
            _ if word.starts_with('-') => return Err(format!("unknown option {word}").into()),
            _ => names.push(word.to_owned()),
        }
    }
    let circuits = std::env::var_os("SPLITPROVER_RACE_CIRCUITS").map(PathBuf::from);
    if names.is_empty() {
        names = SYNTHETIC.map(str::to_owned).to_vec();
        if let Some(circuits) = &circuits {
            let mut found: Vec<_> = std::fs::read_dir(circuits)?
                .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
                .collect();
            found.sort();
            names.extend(found);
        }
    }
    let begin = Instant::now();
    let mut all = Vec::new();
    for name in &names {
        let circuit = Circuit::prepare(name, &folder, circuits.as_deref())?;
        eprintln!("{name}: prepared, {:.0} s so far", begin.elapsed().as_secs_f64());
        all.push(measure(&circuit, &folder.join("stamps"), repetitions)?);
        eprintln!("{name}: done, {:.0} s so far", begin.elapsed().as_secs_f64());
    }
    print_tables(&all, repetitions);
    Ok(())
}

fn measure(circuit: &Circuit, stamps: &Path, repetitions: u64) -> Result<Measured> {
    std::fs::create_dir_all(stamps)?;
    let opening = |opening| -> Result<_> {
        let begin = Instant::now();
        open_zkey(&circuit.zkey(), opening, stamps)?;
        Ok(begin.elapsed())
    };
    // Writes the stamps.
    opening(Opening::Stamped)?;
    let keys = [circuit.zkey(), circuit.bellman_zkey()].map(|path| open_zkey(&path, Opening::Stamped, stamps));
    let [odd, monomial] = keys;
    let (odd, monomial) = (odd?, monomial?);
    let times = |time: &dyn Fn() -> Result<Duration>| -> Result<_> {
        Ok(median(&(0..5).map(|_| time()).collect::<Result<Vec<_>>>()?))
    };
    let plain = times(&|| {
        let begin = Instant::now();
        std::hint::black_box(std::fs::read(circuit.zkey())?);
        Ok(begin.elapsed())
    })?;
    let (checked, stamped) = (times(&|| opening(Opening::Checked))?, times(&|| opening(Opening::Stamped))?);

    let witness = read_wtns(&circuit.witness(), &HostMemory::default())?;
    let public = &witness[1..=odd.key.shape().num_public];
    let mut runs: Vec<(Name, Run)> = Vec::new();
    for name in Name::ALL {
        // The monomial key is there for the comparison with the others.
        let repetitions = if name == Name::SplitproverBellman { 1 } else { repetitions };
        let run = Run::of(name, circuit, stamps, repetitions)?;
        let same_basis = runs.iter().find(|(other, _)| other.zkey(circuit) == name.zkey(circuit));
        if let Some((other, first)) = same_basis
            && run.proofs.first() != first.proofs.first()
        {
            return Err(format!("{}: {} and {} differ", circuit.name, name.text(), other.text()).into());
        }
        let file = if name.zkey(circuit) == circuit.zkey() { &odd } else { &monomial };
        let key = PreparedVerifyingKey::new(file.key.verifying_key());
        for proof in &run.proofs {
            let bytes = (0..Proof::BYTES).map(|i| u8::from_str_radix(&proof[2 * i..2 * i + 2], 16));
            let bytes: [u8; Proof::BYTES] =
                bytes.collect::<std::result::Result<Vec<_>, _>>()?.try_into().map_err(|_| "a proof of 192 bytes")?;
            if !key.verify(&Proof::from_bytes(&bytes)?, public)? {
                return Err(format!("{}: a proof of {} doesn't hold", circuit.name, name.text()).into());
            }
        }
        runs.push((name, run));
    }
    let constraints = splitprover_harness::formats::R1csFile::open(&circuit.r1cs())?.header().num_constraints;
    let key_bytes = std::fs::metadata(circuit.zkey())?.len();
    Ok(Measured { circuit: circuit.name.clone(), constraints, runs, key_bytes, stamped, checked, plain })
}

fn command_output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn print_tables(all: &[Measured], repetitions: u64) {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    println!(
        "{} threads, {}; {}; load {}; medians of {repetitions} proofs.",
        rayon::current_num_threads(),
        model.unwrap_or("unknown processor"),
        command_output("date", &["+%F"]),
        std::fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next().unwrap_or_default(),
    );
    let shown = [Name::Splitprover, Name::Avx2, Name::Taceo, Name::Ark, Name::Bellperson];
    let table = |title: &str, unit: &str, value: &dyn Fn(&Run) -> f64, digits: usize| {
        println!("\n{title}, {unit}:\n");
        println!(
            "| best peer / ours | best peer / ours, AVX2 | circuit | constraints | {} |",
            shown.map(Name::text).join(" | ")
        );
        println!("|---|---|---|---|{}", "---|".repeat(shown.len()));
        for measured in all {
            let of = |name| measured.run(name).map_or(f64::NAN, value);
            let best = Name::PEERS.map(of).into_iter().fold(f64::INFINITY, f64::min);
            let cells: Vec<_> = shown.iter().map(|&name| format!("{:.digits$}", of(name))).collect();
            let (ours, avx2) = (best / of(Name::Splitprover), best / of(Name::Avx2));
            let Measured { circuit, constraints, .. } = measured;
            println!("| {ours:.1} | {avx2:.1} | {circuit} | {constraints} | {} |", cells.join(" | "));
        }
    };
    table("Whole proof", "wall time in s", &|run| median(&run.wall).as_secs_f64(), 3);
    let processor = |run: &Run| run.processor.iter().sum::<Duration>().as_secs_f64() / run.processor.len() as f64;
    table("Whole proof", "processor time in s", &processor, 2);
    table("Peak resident memory, key and mapped files included", "MB", &|run| run.peak as f64 / 1e6, 0);

    println!("\nOpening a key, ms; the others check nothing:\n");
    println!(
        "| checked / reading | circuit | key, MB | reading the file | stamped | checked | taceo-groth16 | ark-groth16 | bellperson |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for measured in all {
        let Measured { circuit, plain, stamped, checked, .. } = measured;
        let milliseconds = |time: &Duration| time.as_secs_f64() * 1e3;
        let peers = Name::PEERS
            .map(|name| format!("{:.0}", measured.run(name).map_or(f64::NAN, |run| milliseconds(&run.open))));
        println!(
            "| {:.1} | {circuit} | {:.1} | {:.1} | {:.1} | {:.1} | {} |",
            checked.as_secs_f64() / plain.as_secs_f64(),
            measured.key_bytes as f64 / 1e6,
            milliseconds(plain),
            milliseconds(stamped),
            milliseconds(checked),
            peers.join(" | "),
        );
    }
}
