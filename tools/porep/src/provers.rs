//! One run of either prover. Blinding is fixed, so that the proofs can be compared; bellperson verifies each.

use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellperson::groth16::{self, Parameters, create_proof_batch, prepare_verifying_key, verify_proof};
use blstrs::{Bls12, Scalar};
use splitprover_core::host_buf::map_large_blocks;
use splitprover_core::{Blinding, HostMemory, Prover, ProvingKey, RootOfUnity};
use splitprover_harness::engine::{Config, DeviceSpec, Engine, JobSpec, Source};
use splitprover_harness::formats::params::Circuit;
use splitprover_harness::formats::{OpenOptions, ParamsFile, Residency, Stamps};
use splitprover_harness::loader::Registry;
use splitprover_harness::synthesis::{CircuitSource, Counts, synthesize, witness};

use crate::instance::Instance;
use crate::measure::{Meter, OwnMemory, Report, peak_mib, reset_peak};
use crate::{DeviceArguments, Result, circuit_beside, open};

/// r and s of a partition's proof.
pub(crate) fn blinding(partition: usize) -> (Scalar, Scalar) {
    (Scalar::from(12_345 + partition as u64), Scalar::from(67_890 + partition as u64))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What bellperson says about proofs made with a key.
pub(crate) fn verify(vk: &groth16::VerifyingKey<Bls12>, instance: &Instance, proofs: &[Vec<u8>]) -> Result<()> {
    let vk = prepare_verifying_key(vk);
    for (partition, bytes) in proofs.iter().enumerate() {
        let proof = groth16::Proof::<Bls12>::read(&bytes[..])?;
        let public = instance.public(partition);
        if !verify_proof(&vk, &proof, public)? {
            return Err(format!("bellperson refuses the proof of partition {partition}").into());
        }
        let mut wrong = public.to_vec();
        wrong[0] += Scalar::from(1);
        if verify_proof(&vk, &proof, &wrong)? {
            return Err(format!("bellperson accepts partition {partition} for other inputs").into());
        }
    }
    Ok(())
}

/// The verifying key at the beginning of a key file.
fn verifying_key(key: &Path) -> Result<groth16::VerifyingKey<Bls12>> {
    Ok(groth16::VerifyingKey::read(BufReader::new(std::fs::File::open(key)?))?)
}

/// bellperson, so many partitions in one call. With the feature `supraseal` it proves on the device, and says itself how long
/// that took beside synthesis.
pub(crate) fn bellperson(instance: &Instance, key: &Path, batch: usize) -> Result<Report> {
    #[cfg(feature = "supraseal")]
    env_logger::Builder::new().parse_filters("bellperson=info").init();
    reset_peak();
    let own = OwnMemory::watch();
    let meter = Meter::start();
    // Unchecked: no subgroup tests, as here.
    #[cfg(not(feature = "supraseal"))]
    let params = Parameters::<Bls12>::read(BufReader::new(std::fs::File::open(key)?), false)?;
    // In the background: the first proof waits for the rest.
    #[cfg(feature = "supraseal")]
    let params = groth16::SuprasealParameters::<Bls12>::new(key.to_owned())?;
    let (load, load_cpu) = meter.read();

    let meter = Meter::start();
    let mut proofs = Vec::new();
    let all: Vec<usize> = (0..instance.partitions()).collect();
    for partitions in all.chunks(batch.max(1)) {
        let (r, s) = partitions.iter().map(|&partition| blinding(partition)).unzip();
        let circuits = partitions.iter().map(|&partition| instance.circuit(partition)).collect();
        let begin = Instant::now();
        for proof in create_proof_batch(circuits, &params, r, s)? {
            let mut bytes = Vec::new();
            proof.write(&mut bytes)?;
            proofs.push(bytes);
        }
        eprintln!("bellperson, {} partitions: {:.2} s with synthesis", partitions.len(), begin.elapsed().as_secs_f64());
    }
    let (prove, prove_cpu) = meter.read();
    let (peak_mib, own_mib) = (peak_mib(), own.peak_mib());
    verify(&verifying_key(key)?, instance, &proofs)?;
    Ok(Report {
        load: (load.as_secs_f64(), load_cpu.as_secs_f64()),
        prove: (prove.as_secs_f64(), prove_cpu.as_secs_f64()),
        // bellperson doesn't say.
        synthesis: f64::NAN,
        peak_mib,
        own_mib,
        proofs: hex(&proofs.concat()),
    })
}

/// How the key is read, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Reader {
    /// Ours: every point is checked to be on the curve the first time
    Splitprover,
    /// Ours, with a check that every point is in the subgroup
    SplitproverDeep,
    /// bellperson's, unchecked: it still refuses points that aren't on the curve
    Bellperson,
    /// bellperson's, with a check that every point is in the subgroup
    BellpersonChecked,
}

/// Reads a key and does nothing with it.
pub(crate) fn load(reader: Reader, key: &Path, cache: Option<&Path>) -> Result<Report> {
    reset_peak();
    let own = OwnMemory::watch();
    let meter = Meter::start();
    let theirs = |checked| -> Result<_> {
        Ok(Parameters::<Bls12>::read(BufReader::new(std::fs::File::open(key)?), checked)?.h.len())
    };
    let stamps = cache.map_or(Stamps::User, Stamps::In);
    let ours = |deep| -> Result<_> {
        let file = ParamsFile::open(key, OpenOptions { deep, stamps, ..OpenOptions::default() })?;
        eprintln!("points {:?}, kept: {}", file.points_checked, file.not_cached.as_deref().unwrap_or("yes"));
        Ok(file.counts().h)
    };
    match reader {
        Reader::Splitprover => ours(false)?,
        Reader::SplitproverDeep => ours(true)?,
        Reader::Bellperson => theirs(false)?,
        Reader::BellpersonChecked => theirs(true)?,
    };
    let (load, load_cpu) = meter.read();
    Ok(Report {
        load: (load.as_secs_f64(), load_cpu.as_secs_f64()),
        peak_mib: peak_mib(),
        own_mib: own.peak_mib(),
        proofs: "none".to_owned(),
        ..Report::default()
    })
}

/// Opens a key and its constraints.
fn open_key(key: &Path, cache: Option<&Path>, residency: Residency) -> Result<(ParamsFile, Arc<ProvingKey>)> {
    let meter = Meter::start();
    let stamps = cache.map_or(Stamps::User, Stamps::In);
    let file = ParamsFile::open(key, OpenOptions { stamps, residency, ..OpenOptions::default() })?;
    let (opened, opened_cpu) = meter.read();
    let circuit = Circuit::open(&circuit_beside(key))?;
    let proving_key = file.key(&circuit, RootOfUnity::bellman())?;
    let (both, _) = meter.read();
    eprintln!(
        "key {:.3} s ({:.2} s of processor time), points {:?}, kept: {}; constraints {:.3} s",
        opened.as_secs_f64(),
        opened_cpu.as_secs_f64(),
        file.points_checked,
        file.not_cached.as_deref().unwrap_or("yes"),
        (both - opened).as_secs_f64(),
    );
    Ok((file, proving_key))
}

/// All partitions as one job of an engine.
pub(crate) fn through_engine(
    instance: Arc<Instance>,
    device: &DeviceArguments,
    key: &Path,
    cache: Option<&Path>,
) -> Result<Report> {
    let _ = map_large_blocks();
    reset_peak();
    let own = OwnMemory::watch();
    let meter = Meter::start();
    let (file, proving_key) = open_key(key, cache, Residency::Long)?;
    let (name, index) = (device.backend.clone(), device.device);
    let spec = DeviceSpec::new(device.backend.clone(), move |ledger| {
        let options = splitprover_core::abi::OpenOptions::new(index).ledger(ledger.clone());
        Registry::new().load(&name).and_then(|loaded| loaded.open(&options)).map_err(|error| error.to_string())
    });
    let matrices = proving_key.matrices().map_or(0, |m| m.a.host_bytes() + m.b.host_bytes());
    let engine = Engine::new(Config::default(), &proving_key, matrices, vec![spec])?;
    let (load, load_cpu) = meter.read();

    let meter = Meter::start();
    let partitions = (0..instance.partitions()).map(|partition| -> Arc<dyn Source> {
        let instance = instance.clone();
        Arc::new(CircuitSource::new(file.shape(), move || instance.circuit(partition)))
    });
    let proofs = engine.submit(JobSpec::new(partitions.collect()))?.wait()?;
    let (prove, prove_cpu) = meter.read();
    let (peak_mib, own_mib) = (peak_mib(), own.peak_mib());
    for partition in &proofs {
        eprintln!("in work {:.2} s, latency {:.2} s", partition.in_work.as_secs_f64(), partition.latency.as_secs_f64());
    }
    if !engine.shutdown(Duration::from_secs(60)).is_clean() {
        return Err("the engine left something behind".into());
    }
    let proofs: Vec<_> = proofs.iter().map(|partition| partition.proof.to_bytes().to_vec()).collect();
    verify(&verifying_key(key)?, &instance, &proofs)?;
    Ok(Report {
        load: (load.as_secs_f64(), load_cpu.as_secs_f64()),
        prove: (prove.as_secs_f64(), prove_cpu.as_secs_f64()),
        // In parallel with everything else.
        synthesis: f64::NAN,
        peak_mib,
        own_mib,
        proofs: hex(&proofs.concat()),
    })
}

pub(crate) fn splitprover(
    instance: &Instance,
    device: &DeviceArguments,
    key: &Path,
    full: bool,
    residency: Residency,
    cache: Option<&Path>,
) -> Result<Report> {
    // As the program `splitprover` does.
    let _ = map_large_blocks();
    let prover = Prover::new(open(device)?);
    let memory = HostMemory::default();
    reset_peak();
    let own = OwnMemory::watch();
    let meter = Meter::start();
    let (file, proving_key) = open_key(key, cache, residency)?;
    let loaded = prover.load_key(proving_key)?;
    let (load, load_cpu) = meter.read();
    let shape = file.shape();
    let counts = Counts { num_public: shape.num_public, num_private: shape.num_private() };
    let meter = Meter::start();
    let (mut proofs, mut synthesis) = (Vec::new(), 0.0);
    for partition in 0..instance.partitions() {
        let begin = Instant::now();
        let inputs = match full {
            true => synthesize(instance.circuit(partition), &memory)?.inputs,
            false => witness(instance.circuit(partition), counts, &memory)?,
        };
        synthesis += begin.elapsed().as_secs_f64();
        let in_flight = prover.start(&loaded, inputs)?;
        let (r, s) = blinding(partition);
        proofs.push(in_flight.finish_with(Blinding::insecure(r, s))?.to_bytes().to_vec());
    }
    let (prove, prove_cpu) = meter.read();
    let (peak_mib, own_mib) = (peak_mib(), own.peak_mib());
    verify(&verifying_key(key)?, instance, &proofs)?;
    Ok(Report {
        load: (load.as_secs_f64(), load_cpu.as_secs_f64()),
        prove: (prove.as_secs_f64(), prove_cpu.as_secs_f64()),
        synthesis,
        peak_mib,
        own_mib,
        proofs: hex(&proofs.concat()),
    })
}
