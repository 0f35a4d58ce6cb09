//! A key's pages leave the process with its proofs where that was asked for, through the C table too, and come back for the next.

use std::path::Path;
use std::sync::Arc;

use splitprover_backend_cpu::{CpuBackend, CpuOptions, CpuPlugin};
use splitprover_core::abi::{Backend, OpenOptions};
use splitprover_core::{HBasis, HostMemory, Inputs, MemoryClass, Proof, Prover, ProvingKey, Scalar, SplitProver};
use splitprover_harness::formats::params::Circuit;
use splitprover_harness::formats::zkey::Extras;
use splitprover_harness::formats::{self, ParamsFile, Residency, Stamps, ZkeyFile, write_params, write_zkey};
use splitprover_harness::setup::{CpuFixedBase, Resources, Shape, Synthetic, Trapdoor, generate};

/// Bytes of a file's maps that are resident, as /proc/self/smaps says. The name is the end of its path.
fn resident(name: &str) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut of_file, mut kib) = (false, 0);
    for line in smaps.lines() {
        // A map's first line ends with the file's path; the others begin with a name and a colon.
        match line.split_whitespace().next() {
            Some("Rss:") if of_file => {
                kib += line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap();
            }
            Some(field) if field.ends_with(':') => {}
            _ => of_file = line.ends_with(name),
        }
    }
    kib * 1024
}

fn prove<B: SplitProver>(backend: B, key: &Arc<ProvingKey>, witness: &[Scalar]) -> Proof {
    let memory = HostMemory::default();
    let prover = Prover::new(backend);
    let loaded = prover.load_key(key.clone()).unwrap();
    // `finish` verifies.
    let inputs = || Inputs::new(memory.copy_of(MemoryClass::Witness, witness).unwrap());
    let first = prover.start(&loaded, inputs()).unwrap().finish().unwrap();
    prover.start(&loaded, inputs()).unwrap().finish().unwrap();
    first
}

fn direct() -> CpuBackend {
    CpuBackend::new(CpuOptions::default()).unwrap()
}

fn through_the_table() -> Backend {
    Backend::in_process::<CpuPlugin>(&OpenOptions::new(0)).unwrap()
}

/// Proves with a key that is mapped from the file of this name, and looks at what stays of it.
fn check(key: &Arc<ProvingKey>, witness: &[Scalar], name: &str, size: u64, residency: Residency) {
    for table in [false, true] {
        if table {
            prove(through_the_table(), key, witness);
        } else {
            prove(direct(), key, witness);
        }
        let stays = resident(name);
        match residency {
            Residency::Long => assert!(stays > size / 2, "{stays} of {size} bytes"),
            // A page brings its neighbours: where one query's table ends, some of another's that had gone.
            Residency::Brief => assert!(stays < size / 4, "{stays} of {size} bytes"),
        }
    }
    // Several proofs over one key: a hint of one is no more than a page fault for another.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| prove(direct(), key, witness));
        }
    });
}

fn synthetic(basis: HBasis) -> (Synthetic, Arc<ProvingKey>) {
    let circuit = Synthetic::new(Shape::Mixed, 14).unwrap();
    let (memory, fixed_base) = (HostMemory::default(), CpuFixedBase::new(1 << 16));
    let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
    let key = generate(&circuit, basis, &Trapdoor::from_seed(1, basis), &resources).unwrap().key;
    (circuit, key)
}

#[test]
fn pages_of_a_zkey_leave_with_the_proof() {
    let folder = tempfile::tempdir().unwrap();
    let (circuit, made) = synthetic(HBasis::OddLagrange);
    let witness = circuit.witness(2, &HostMemory::default()).unwrap();
    for (name, residency) in [("long.zkey", Residency::Long), ("brief.zkey", Residency::Brief)] {
        let path = folder.path().join(name);
        write_zkey(&path, &made, Extras::default()).unwrap();
        let size = std::fs::metadata(&path).unwrap().len();
        let file = ZkeyFile::open(&path, formats::OpenOptions { residency, ..Default::default() }).unwrap();
        // All points have been checked by now.
        let opened = resident(name);
        assert_eq!(opened < size / 16, residency == Residency::Brief, "{opened} of {size} bytes");
        check(&file.key, &witness, name, size, residency);
    }
}

#[test]
fn pages_of_a_params_conversion_leave_with_the_proof() {
    let folder = tempfile::tempdir().unwrap();
    let (circuit, made) = synthetic(HBasis::Monomial);
    let witness = circuit.witness(2, &HostMemory::default()).unwrap();
    let path = folder.path().join("key.params");
    write_params(&path, &made).unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    let circuit = Circuit::new(Path::new("synthetic"), made.matrices().unwrap().clone(), made.shape().num_public);
    for residency in [Residency::Long, Residency::Brief] {
        let cache = folder.path().join(format!("{residency:?}"));
        let options = formats::OpenOptions { residency, stamps: Stamps::In(&cache), ..formats::OpenOptions::default() };
        let file = ParamsFile::open(&path, options).unwrap();
        // Neither the file nor what was made of it is needed by now.
        assert!(resident("key.params") < size / 16 && resident(".points") < size / 16);
        let key = file.key(&circuit, made.domain().root()).unwrap();
        check(&key, &witness, ".points", size, residency);
    }
}
