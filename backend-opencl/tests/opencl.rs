//! The backend on every OpenCL device that is chosen, usually PoCL's: real cases, random keys against the CPU, the conformance suite.
//!
//! `SPLITPROVER_OPENCL_PLATFORM` chooses a platform by number or name.

use std::path::PathBuf;

use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_backend_opencl::{Choice, OpenClProver, OpenOptions, devices};
use splitprover_core::{BackendError, HostMemory, Inputs, Prover};
use splitprover_harness::conformance::{ComparisonOptions, Options, Reentry, Scale, Subject, compare, run};
use splitprover_harness::formats::ZkeyFile;
use splitprover_tests::{cases, needs};

fn choice() -> Choice {
    Choice { platform: std::env::var("SPLITPROVER_OPENCL_PLATFORM").ok(), ..Choice::default() }
}

fn available() -> bool {
    needs::available("opencl", choice().find().err().map(|error| error.to_string()).as_deref())
}

/// The programs are built once for all test programs.
fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("opencl-programs")
}

fn open(options: OpenOptions) -> Result<OpenClProver, BackendError> {
    let device = choice().find().map_err(|error| BackendError::device("choosing the device", error))?;
    OpenClProver::open(&device, OpenOptions { cache: Some(cache()), ..options })
}

fn subject(options: OpenOptions) -> Subject<OpenClProver> {
    Subject::new("opencl", move |memory: &HostMemory| open(OpenOptions { memory: memory.clone(), ..options.clone() }))
}

#[test]
fn real_circuits_have_the_cpus_sums_and_proofs_that_verify() {
    if !available() {
        return;
    }
    let cpu = Prover::new(CpuBackend::new(CpuOptions::default()).unwrap());
    let device = Prover::new(open(OpenOptions::default()).unwrap());
    let circuits = cases::circuits();
    assert!(!circuits.is_empty());
    for case in circuits {
        let zkey = ZkeyFile::open(&case.join("circuit.zkey"), Default::default()).unwrap();
        let witness = || Inputs::new(zkey.read_witness(&case.join("witness.wtns"), &HostMemory::default()).unwrap());
        let (on_cpu, on_device) = (cpu.load_key(zkey.key.clone()).unwrap(), device.load_key(zkey.key.clone()).unwrap());
        let expected = cpu.start(&on_cpu, witness()).unwrap().finish_sums().unwrap();
        let sums = device.start(&on_device, witness()).unwrap().finish_sums().unwrap();
        assert_eq!(expected.differences(&sums), [""; 0], "{}", case.display());
        device.start(&on_device, witness()).unwrap().finish().unwrap();
    }
}

/// Random keys, both bases, densities, storages, forms of input; a disagreement shrinks to its smallest key.
#[track_caller]
fn agrees_with_the_cpu(options: OpenOptions, cases: u32, max_log2: u32) {
    if !available() {
        return;
    }
    let cpu = Subject::new("cpu", |memory: &HostMemory| {
        CpuBackend::new(CpuOptions { memory: memory.clone(), ..CpuOptions::default() })
    });
    let comparison = ComparisonOptions { cases, max_log2, ..ComparisonOptions::default() };
    let comparison = compare(&cpu, &subject(options), comparison, || ()).unwrap();
    assert!(comparison.agrees(), "{}", comparison.to_text());
}

#[test]
fn random_keys_have_the_cpus_sums() {
    agrees_with_the_cpu(OpenOptions::default(), 24, 8);
}

#[test]
fn random_keys_have_the_cpus_sums_when_bases_are_streamed() {
    agrees_with_the_cpu(OpenOptions { memory_limit: Some(4 << 20), ..OpenOptions::default() }, 8, 10);
}

#[test]
fn random_keys_have_the_cpus_sums_when_buffers_are_small() {
    agrees_with_the_cpu(OpenOptions { max_allocation: Some(1 << 20), ..OpenOptions::default() }, 8, 10);
}

#[test]
fn the_backend_conforms() {
    if !available() {
        return;
    }
    // For the time that a device on two cores takes.
    let scale = Scale { max_log2: 5, retention_log2: 14, soak_proofs: 24 };
    let options = Options { scale, reentry: Reentry::of_test("the_backend_conforms"), ..Options::default() };
    let report = run(&subject(OpenOptions::default()), &options, |case| println!("{}", case.lines()));
    assert!(report.passed(), "{}", report.to_text());
}

/// Not a test: what a process with another environment sees.
#[test]
#[ignore = "run by the other tests"]
fn lists_devices() {
    match devices() {
        Ok(devices) => devices.iter().for_each(|device| println!("a device: {}", device.name)),
        Err(error) => println!("an error: {error}"),
    }
}

fn listed_with(variable: &str, value: &str) -> String {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lists_devices", "--include-ignored", "--nocapture"])
        .env(variable, value)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_machine_without_drivers_is_told_so_in_one_line() {
    if !available() {
        return;
    }
    let listed = listed_with("OCL_ICD_VENDORS", "/there/is/no/such/folder");
    let line = listed.lines().find(|line| line.contains("an error: ")).unwrap_or_else(|| panic!("{listed}"));
    assert!(line.contains("no OpenCL here: the loader libOpenCL.so.1 knows no driver"), "{line}");
}

#[test]
fn all_devices_of_a_platform_are_listed() {
    if !available() || choice().find().is_ok_and(|device| device.platform_name != "Portable Computing Language") {
        return;
    }
    // PoCL has as many devices as it is told to.
    let listed = listed_with("POCL_DEVICES", "pthread basic pthread");
    assert_eq!(listed.matches("a device: ").count(), 3, "{listed}");
}
