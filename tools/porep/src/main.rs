//! Filecoin's circuits, proved by splitprover and by bellperson.
//!
//! Real proofs of replication and of space-time, from the crates that Filecoin proves with: sectors are sealed (small ones), the
//! circuits are theirs. A workspace of its own, because those are some 150 crates that the project itself doesn't need.
//!
//! ```text
//! splitprover-porep setup   --circuit porep --layers 2 --challenges 1 KEY.params     a development key; KEY.circuit beside it
//! splitprover-porep prove   --circuit porep --layers 2 --challenges 1 KEY.params [--partitions N] [--backend NAME|PATH]
//! splitprover-porep sectors --circuit porep --layers 11 --challenges 2 --partitions 10 --backend cuda [--key KEY.params]
//! splitprover-porep compare --circuit porep --layers 2 --challenges 1 KEY.params     both provers, times and peak memory
//! splitprover-porep load    KEY.params                                                both readers, times and peak memory
//! splitprover-porep export  --circuit winning NAME                                    NAME.r1cs, NAME.wtns, NAME.public.json
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `instance` | sealed sectors and their circuits |
//! | `provers` | one run of either prover, each proof verified by bellperson |
//! | `sectors` | whole sectors with a key that is made on the device and never written |
//! | `measure` | times, processor time and peak memory of this process |

mod instance;
mod measure;
mod provers;
mod sectors;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use splitprover_core::{HBasis, HostMemory};
use splitprover_harness::formats::json::public_to_json;
use splitprover_harness::formats::{Residency, write_files, write_params, write_wtns};
use splitprover_harness::loader::Registry;
use splitprover_harness::setup::{
    BackendFixedBase, ConstraintSystem, CpuFixedBase, DevelopmentKey, FixedBase, Resources, Trapdoor, generate,
};
use splitprover_harness::synthesis::Recording;

use instance::Instance;
use measure::{Meter, Report};
use provers::Reader;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Parser)]
#[command(name = "splitprover-porep", version, about = "Filecoin's circuits, proved by splitprover and by bellperson")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Make a development key for a circuit, and keep its constraints beside it. INSECURE
    Setup {
        #[command(flatten)]
        circuit: CircuitArguments,
        #[command(flatten)]
        device: DeviceArguments,
        /// Where the key goes (.params)
        key: PathBuf,
        /// Seed of the trapdoor
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Prove all partitions and verify them with bellperson
    Prove {
        #[command(flatten)]
        circuit: CircuitArguments,
        #[command(flatten)]
        device: DeviceArguments,
        /// Key (.params), with its constraints beside it (.circuit)
        key: PathBuf,
        /// Who proves
        #[arg(long, value_enum, default_value_t = Who::Splitprover)]
        prover: Who,
        /// Full synthesis: evaluations on the host, as bellperson makes them
        #[arg(long)]
        full: bool,
        /// Through the engine: partitions are synthesised while others are proved. The blinding is random
        #[arg(long, conflicts_with = "full")]
        engine: bool,
        /// Leave the key's pages in memory between sums, as the engine does
        #[arg(long)]
        keep_pages: bool,
        /// Where conversions of keys are kept, instead of the user's cache
        #[arg(long)]
        cache: Option<PathBuf>,
        /// bellperson: so many partitions in one call
        #[arg(long, default_value_t = 1)]
        batch: usize,
    },
    /// Make a development key on the device, keep it in memory, and prove whole sectors through the engine. INSECURE
    Sectors {
        #[command(flatten)]
        circuit: CircuitArguments,
        #[command(flatten)]
        device: DeviceArguments,
        #[command(flatten)]
        run: SectorArguments,
    },
    /// Prove with both, each in a process of its own, and compare proofs, times and peak memory
    Compare {
        #[command(flatten)]
        circuit: CircuitArguments,
        #[command(flatten)]
        device: DeviceArguments,
        /// Key (.params), with its constraints beside it (.circuit)
        key: PathBuf,
    },
    /// Read a key with both, each in a process of its own, and compare times and peak memory
    Load {
        /// Key (.params)
        key: PathBuf,
        /// Only this reader, in this process
        #[arg(long, value_enum)]
        reader: Option<Reader>,
        /// Where conversions of keys are kept, instead of the user's cache
        #[arg(long)]
        cache: Option<PathBuf>,
        /// Also the readers that check that every point is in the subgroup, which takes minutes
        #[arg(long)]
        subgroup: bool,
    },
    /// Write a circuit's constraints, witnesses and public inputs for other programs
    Export {
        #[command(flatten)]
        circuit: CircuitArguments,
        /// NAME.r1cs, NAME.wtns and NAME.public.json; from the second partition on NAME.1.wtns, ...
        name: PathBuf,
    },
}

/// Which circuit, and how large.
#[derive(Args, Clone, Debug)]
pub(crate) struct CircuitArguments {
    /// The circuit
    #[arg(long, value_enum)]
    circuit: Kind,
    /// PoRep: layers of the graph, 2 or more (sectors of 32 GiB have 11)
    #[arg(long, default_value_t = 2)]
    layers: usize,
    /// Challenges of a partition (PoRep), of a sector (PoSt). PoRep 1, WinningPoSt 66, WindowPoSt 10 unless told
    #[arg(long)]
    challenges: Option<usize>,
    /// Leaves of a sector's tree, 32 bytes each: a power of 8
    #[arg(long, default_value_t = 64)]
    nodes: usize,
    /// WindowPoSt: sectors of a partition
    #[arg(long, default_value_t = 2)]
    sectors: usize,
    /// Partitions
    #[arg(long, default_value_t = 1)]
    partitions: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Proof of replication, StackedDrg
    Porep,
    /// WinningPoSt: one sector, 66 challenges
    Winning,
    /// WindowPoSt: several sectors, 10 challenges each
    Window,
}

/// How sectors are proved.
#[derive(Args, Clone, Debug)]
pub(crate) struct SectorArguments {
    /// Prove the same sector so many times, a job each, all at once
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Partitions synthesised at a time
    #[arg(long, default_value_t = 2)]
    pw: usize,
    /// Starts at a time
    #[arg(long, default_value_t = 2)]
    gw: usize,
    /// First prove partition 0 with fixed blinding, outside the engine, and print the proof
    #[arg(long)]
    fixed: bool,
    /// Write the key here (.params) in the end
    #[arg(long)]
    key: Option<PathBuf>,
    /// Seed of the trapdoor
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceArguments {
    /// Backend: a name, or the path of a shared library
    #[arg(long, default_value = "cpu")]
    backend: String,
    /// Device of the backend
    #[arg(long, default_value_t = 0)]
    device: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    Splitprover,
    Bellperson,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("splitprover-porep: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<()> {
    // What Filecoin's crates cache goes where it is removed again.
    let folder = tempfile::tempdir()?;
    for name in ["FIL_PROOFS_CACHE_DIR", "FIL_PROOFS_PARAMETER_CACHE"] {
        // SAFETY: this thread is still the only one of the process, so that nobody reads the environment meanwhile.
        unsafe { std::env::set_var(name, format!("{}/", folder.path().display())) };
    }
    let make = |circuit: &CircuitArguments| Instance::new(circuit, folder.path());
    match task {
        Task::Setup { circuit, device, key, seed } => setup(&make(circuit)?, device, key, *seed),
        Task::Export { circuit, name } => export(&make(circuit)?, name),
        Task::Load { key, reader: Some(reader), cache, .. } => {
            println!("{}", provers::load(*reader, key, cache.as_deref())?);
            Ok(())
        }
        Task::Load { key, subgroup, .. } => load(key, *subgroup),
        Task::Sectors { circuit, device, run } => sectors::run(&Arc::new(make(circuit)?), device, run),
        Task::Prove { circuit, device, key, prover, full, engine, keep_pages, cache, batch } => {
            let instance = make(circuit)?;
            let report = match prover {
                Who::Splitprover if *engine => {
                    provers::through_engine(Arc::new(instance), device, key, cache.as_deref())?
                }
                Who::Splitprover => {
                    let residency = if *keep_pages { Residency::Long } else { Residency::Brief };
                    provers::splitprover(&instance, device, key, *full, residency, cache.as_deref())?
                }
                Who::Bellperson => provers::bellperson(&instance, key, *batch)?,
            };
            println!("{report}");
            Ok(())
        }
        Task::Compare { circuit, key, .. } => compare(circuit, key),
    }
}

/// The file that holds a key's constraints.
fn circuit_beside(key: &Path) -> PathBuf {
    key.with_extension("circuit")
}

fn setup(instance: &Instance, device: &DeviceArguments, key: &Path, seed: u64) -> Result<()> {
    let meter = Meter::start();
    let recording = Recording::new(instance.blank())?;
    recording.circuit(&circuit_beside(key))?.write(&circuit_beside(key))?;
    eprintln!("recorded: {}", meter.so_far());
    let made = development_key(&recording, device, seed)?;
    eprintln!("generated: {}", meter.so_far());
    write_params(key, &made.key)?;
    println!("{}; {}", describe(&made), meter.so_far());
    Ok(())
}

/// A key whose trapdoor comes from a seed, made on the device unless that is the CPU.
fn development_key(recording: &Recording, device: &DeviceArguments, seed: u64) -> Result<DevelopmentKey> {
    eprintln!("splitprover-porep: INSECURE development key: its trapdoor comes from a seed, anyone can forge proofs");
    let memory = HostMemory::default();
    let opened = open(device)?;
    let on_device = (opened.info().name != "cpu").then(|| BackendFixedBase::new(&opened)).transpose()?;
    let on_cpu = CpuFixedBase::new(recording.num_variables());
    let meter = Meter::start();
    let resources = Resources {
        memory: &memory,
        fixed_base: on_device.as_ref().map_or(&on_cpu as &dyn FixedBase, |device| device),
        progress: &|step, done, total| {
            if done == total {
                eprintln!("  {step}, {total}: {}", meter.so_far());
            }
        },
    };
    let basis = HBasis::Monomial;
    Ok(generate(recording, basis, &Trapdoor::from_seed(seed, basis), &resources)?)
}

fn describe(made: &DevelopmentKey) -> String {
    let shape = made.key.shape();
    format!(
        "{} constraints, {} variables, {} public, domain 2^{}; A {}, B {} dense",
        made.num_constraints,
        shape.num_variables,
        shape.num_public,
        shape.domain_log2,
        made.key.a().num_dense(),
        made.key.b_g1().num_dense(),
    )
}

fn open(device: &DeviceArguments) -> Result<splitprover_core::abi::Backend> {
    let options = splitprover_core::abi::OpenOptions::new(device.device);
    Ok(Registry::new().load(&device.backend)?.open(&options)?)
}

fn export(instance: &Instance, name: &Path) -> Result<()> {
    let recording = Recording::new(instance.blank())?;
    recording.write_r1cs(&name.with_extension("r1cs"))?;
    let memory = HostMemory::default();
    for partition in 0..instance.partitions() {
        let name = match partition {
            0 => name.to_path_buf(),
            number => name.with_extension(number.to_string()),
        };
        let inputs = recording.witness(instance.circuit(partition), &memory)?;
        let with = |extension: &str| PathBuf::from(format!("{}.{extension}", name.display()));
        write_wtns(&with("wtns"), inputs.witness())?;
        let public = public_to_json(instance.public(partition));
        write_files(&[(&with("public.json"), public.as_bytes())])?;
    }
    println!("{} constraints, {} variables", recording.num_constraints(), recording.num_variables());
    Ok(())
}

/// Runs this program again for each prover, so that each has a process's memory to itself.
fn compare(circuit: &CircuitArguments, key: &Path) -> Result<()> {
    let cache = tempfile::tempdir()?;
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(task) = arguments.iter_mut().find(|argument| *argument == "compare") {
        *task = "prove".to_owned();
    }
    let run = |extra: &[&str]| run_again(&arguments, extra);
    let folder = cache.path().to_string_lossy().into_owned();
    println!("{} partitions of {circuit:?}, key {}", circuit.partitions, key.display());
    println!("{:<34}{}", "", Report::heading());
    let theirs = run(&["--prover", "bellperson"])?;
    println!("{:<34}{}", "bellperson", theirs.row());
    let mut ours = Vec::new();
    for (name, extra) in [
        ("splitprover, first start", &["--cache", &folder][..]),
        ("splitprover, second start", &["--cache", &folder]),
        ("splitprover, key's pages kept", &["--cache", &folder, "--keep-pages"]),
        ("splitprover, full synthesis", &["--cache", &folder, "--full"]),
    ] {
        let report = run(extra)?;
        println!("{name:<34}{}", report.row());
        ours.push(report);
    }
    for report in &ours {
        if report.proofs != theirs.proofs {
            return Err("the proofs differ".into());
        }
    }
    println!("all proofs are equal byte for byte, and bellperson verified every one");
    Ok(())
}

/// Runs this program again, and reads what it measured.
fn run_again(arguments: &[String], extra: &[&str]) -> Result<Report> {
    let output = Command::new(std::env::current_exe()?).args(arguments).args(extra).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Report::parse(&String::from_utf8_lossy(&output.stdout))
}

/// Reads a key with each reader, in a process of its own, after it has been read once so that it is in the system's cache.
fn load(key: &Path, subgroup: bool) -> Result<()> {
    let (cache, deep) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let (folder, deep) = (cache.path().to_string_lossy(), deep.path().to_string_lossy());
    std::io::copy(&mut std::fs::File::open(key)?, &mut std::io::sink())?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    println!("{:<34}  key s (cpu s)     peak MiB   own MiB", key.display().to_string());
    let rows = [
        ("bellperson, on the curve", &["--reader", "bellperson"][..], true),
        ("splitprover, first opening", &["--reader", "splitprover", "--cache", &folder], true),
        ("splitprover, second opening", &["--reader", "splitprover", "--cache", &folder], true),
        ("bellperson, in the subgroup", &["--reader", "bellperson-checked"], subgroup),
        ("splitprover, in the subgroup", &["--reader", "splitprover-deep", "--cache", &deep], subgroup),
    ];
    for (name, extra, wanted) in rows {
        if wanted {
            let Report { load, peak_mib, own_mib, .. } = run_again(&arguments, extra)?;
            println!("{name:<34}{:>7.3} ({:>6.2})   {peak_mib:>8}   {own_mib:>7}", load.0, load.1);
        }
    }
    Ok(())
}
