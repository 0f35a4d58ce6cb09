//! Whole sectors, from nothing: constraints, a key made on the device and kept in memory, and all partitions through an engine.
//!
//! For sizes at which a key's file, its conversion and the key itself wouldn't fit beside each other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bellperson::groth16;
use blstrs::Bls12;
use splitprover_core::host_buf::map_large_blocks;
use splitprover_core::{Blinding, HostBuf, HostMemory, Inputs, MemoryClass, Prover, ProvingKey, Scalar, VerifyingKey};
use splitprover_harness::engine::{Config, DeviceSpec, Engine, JobSpec, Mark, Source, Step, limits};
use splitprover_harness::formats::write_params;
use splitprover_harness::loader::Registry;
use splitprover_harness::synthesis::{CircuitSource, Recording, witness};

use crate::instance::Instance;
use crate::measure::Meter;
use crate::provers::{blinding, hex, verify};
use crate::{DeviceArguments, Result, SectorArguments, describe, development_key};

const MIB: f64 = (1u64 << 20) as f64;

pub(crate) fn run(instance: &Arc<Instance>, device: &DeviceArguments, arguments: &SectorArguments) -> Result<()> {
    let _ = map_large_blocks();
    let meter = Meter::start();
    eprintln!("{} partitions sealed and their circuits made", instance.partitions());
    let recording = Recording::new(instance.blank())?;
    eprintln!("recorded: {}", meter.so_far());

    // Nothing that makes a key needs the witness, nor the other way round.
    let memory = HostMemory::default();
    let (made, first) = std::thread::scope(|scope| {
        let first = arguments.fixed.then(|| {
            scope.spawn(|| -> std::result::Result<_, String> {
                let begin = Instant::now();
                let inputs = witness(instance.circuit(0), recording.counts(), &memory).map_err(|e| e.to_string())?;
                eprintln!("partition 0 synthesised: {:.1} s", begin.elapsed().as_secs_f64());
                Ok((inputs, begin.elapsed()))
            })
        });
        let made = development_key(&recording, device, arguments.seed);
        (made, first.map(|first| first.join().unwrap_or_else(|_| Err("synthesis panicked".to_owned()))))
    });
    let made = made?;
    let (key, what) = (made.key.clone(), describe(&made));
    println!("{what}");
    println!(
        "key {:.0} MiB and matrices {:.0} MiB of {} terms, made with constraints in {}",
        points_bytes(&key) as f64 / MIB,
        matrices_bytes(&key) as f64 / MIB,
        key.matrices().map_or(0, |m| m.a.num_entries() + m.b.num_entries()),
        meter.so_far()
    );
    drop((made, recording));
    let vk = theirs(key.verifying_key(), &key);
    if let Some(first) = first {
        let (inputs, synthesis) = first?;
        println!("partition 0: synthesis {:.2} s, beside the making of the key", synthesis.as_secs_f64());
        let proof = with_fixed_blinding(device, &key, inputs, &memory)?;
        verify(&vk, instance, &proof)?;
        println!("proof of partition 0 with fixed blinding, verified by bellperson: {}", hex(&proof.concat()));
    }
    let result = through_engine(instance, device, &key, &vk, arguments);
    // Written even so: another prover may have more luck.
    if let Some(path) = &arguments.key {
        let meter = Meter::start();
        write_params(path, &key)?;
        println!("key written: {}", meter.so_far());
    }
    result
}

/// Proves the first partition twice outside the engine, one after the other: what a start takes, what it leaves, and a proof that another
/// prover's can be compared with.
fn with_fixed_blinding(
    device: &DeviceArguments,
    key: &Arc<ProvingKey>,
    inputs: Inputs,
    memory: &HostMemory,
) -> Result<Vec<Vec<u8>>> {
    let meter = Meter::start();
    let options = splitprover_core::abi::OpenOptions::new(device.device).ledger(memory.ledger().clone());
    let prover = Prover::new(Registry::new().load(&device.backend)?.open(&options)?);
    let loaded = prover.load_key(key.clone())?;
    println!("device opened and key loaded: {}", meter.so_far());
    let again: HostBuf<Scalar> = memory.copy_of(MemoryClass::Witness, inputs.witness())?;
    let (r, s) = blinding(0);
    let mut proofs = Vec::new();
    for inputs in [inputs, Inputs::new(again)] {
        let before = memory.ledger().now().total();
        let size = size_of_val::<[Scalar]>(inputs.witness());
        let begin = Instant::now();
        let in_flight = prover.start(&loaded, inputs)?;
        let (started, after) = (begin.elapsed(), memory.ledger().now().total());
        proofs.push(in_flight.finish_with(Blinding::insecure(r, s))?.to_bytes().to_vec());
        println!(
            "partition 0 from pageable memory: start {:.3} s, verified proof {:.3} s; ledger {:.1} MiB with a witness of \
             {:.1} MiB, {:.1} MiB after start",
            started.as_secs_f64(),
            begin.elapsed().as_secs_f64(),
            before as f64 / MIB,
            size as f64 / MIB,
            after as f64 / MIB,
        );
    }
    if proofs[0] != proofs[1] {
        return Err("two proofs with the same blinding differ".into());
    }
    proofs.truncate(1);
    Ok(proofs)
}

fn through_engine(
    instance: &Arc<Instance>,
    device: &DeviceArguments,
    key: &Arc<ProvingKey>,
    vk: &groth16::VerifyingKey<Bls12>,
    arguments: &SectorArguments,
) -> Result<()> {
    let (name, index) = (device.backend.clone(), device.device);
    let spec = DeviceSpec::new(device.backend.clone(), move |ledger| {
        let options = splitprover_core::abi::OpenOptions::new(index).ledger(ledger.clone());
        Registry::new().load(&name).and_then(|loaded| loaded.open(&options)).map_err(|error| error.to_string())
    });
    let mut config = Config::default();
    config.synthesis_workers = arguments.pw;
    config.device_workers = arguments.gw;
    config.record = true;
    let meter = Meter::start();
    let engine = Engine::new(config, key, points_bytes(key) + matrices_bytes(key), vec![spec])?;
    println!("engine with the key loaded: {}", meter.so_far());

    let meter = Meter::start();
    let jobs = (0..arguments.repeat).map(|_| {
        let partitions = (0..instance.partitions()).map(|partition| -> Arc<dyn Source> {
            let instance = instance.clone();
            Arc::new(CircuitSource::new(key.shape(), move || instance.circuit(partition)))
        });
        engine.submit(JobSpec::new(partitions.collect()))
    });
    let jobs = jobs.collect::<std::result::Result<Vec<_>, _>>()?;
    let mut proofs = Vec::new();
    for job in &jobs {
        proofs.push(job.wait()?);
        println!("sector {} proved: {}", job.id().number(), meter.so_far());
    }
    let (wall, processor) = meter.read();
    let resident = limits::resident_bytes();
    let (status, marks) = (engine.status(), engine.marks());
    if !engine.shutdown(Duration::from_secs(60)).is_clean() {
        return Err("the engine left something behind".into());
    }

    let partitions = proofs.iter().map(Vec::len).sum::<usize>();
    let wall = wall.as_secs_f64();
    println!(
        "{partitions} partitions, pw {}, gw {}: {wall:.2} s, {:.3} s each, {:.2} s for {}; {:.1} s of processor time",
        arguments.pw,
        arguments.gw,
        wall / partitions as f64,
        wall / arguments.repeat as f64,
        instance.partitions(),
        processor.as_secs_f64(),
    );
    println!("{}", spans(&marks));
    let mib = |bytes: u64| bytes as f64 / MIB;
    let classes = status.memory.iter().filter(|class| class.peak_bytes > 0);
    let classes =
        classes.map(|class| format!("{} {:.0} (peak {:.0})", class.class, mib(class.bytes), mib(class.peak_bytes)));
    println!(
        "ledger, MiB: {}; peak of all {:.0}",
        classes.collect::<Vec<_>>().join(", "),
        mib(status.memory_peak_bytes)
    );
    println!(
        "evaluations beyond start, peak {:.0} MiB; resident now {:.0} MiB; device memory {:.0} MiB; {:?}",
        mib(status.evaluations_beyond_start_peak_bytes),
        mib(resident),
        status.devices.iter().map(|device| mib(device.device_bytes)).sum::<f64>(),
        status.partitions,
    );
    for proofs in &proofs {
        for (partition, proof) in proofs.iter().enumerate() {
            if proof.public != instance.public(partition) {
                return Err(format!("partition {partition} has other public inputs").into());
            }
        }
        let bytes: Vec<_> = proofs.iter().map(|partition| partition.proof.to_bytes().to_vec()).collect();
        verify(vk, instance, &bytes)?;
    }
    println!("all {partitions} proofs verified here and by bellperson, which refuses them for other inputs");
    Ok(())
}

/// From the partitions' steps: how long synthesis and `start` take, and how often a device gives a proof.
fn spans(marks: &[Mark]) -> String {
    let of = |from: Step, to: Step| {
        let ends = marks.iter().filter(|mark| mark.step == to);
        summary(ends.filter_map(|end| {
            let same = |mark: &&Mark| (mark.job, mark.partition, mark.step) == (end.job, end.partition, from);
            Some((end.at - marks.iter().rfind(same)?.at).as_secs_f64())
        }))
    };
    let mut finished: Vec<_> = marks.iter().filter(|mark| mark.step == Step::Finished).map(|mark| mark.at).collect();
    finished.sort();
    format!(
        "medians (least to most), s: synthesis {}, start {}, start to verified proof {}, from a proof to the next {}",
        of(Step::SynthesisBegins, Step::SynthesisEnds),
        of(Step::StartBegins, Step::Started),
        of(Step::StartBegins, Step::Finished),
        summary(finished.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64())),
    )
}

/// Median, least and most.
fn summary(times: impl Iterator<Item = f64>) -> String {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    match times.as_slice() {
        [] => "-".to_owned(),
        [least, .., most] => format!("{:.3} ({least:.3} to {most:.3})", times[times.len() / 2]),
        [one] => format!("{one:.3}"),
    }
}

fn points_bytes(key: &ProvingKey) -> u64 {
    let g1 = [key.h(), key.l(), key.a(), key.b_g1()].map(|query| query.table().as_bytes().len());
    (g1.iter().sum::<usize>() + key.b_g2().table().as_bytes().len()) as u64
}

fn matrices_bytes(key: &ProvingKey) -> u64 {
    key.matrices().map_or(0, |matrices| matrices.a.host_bytes() + matrices.b.host_bytes())
}

/// A verifying key as bellperson has it.
fn theirs(vk: &VerifyingKey, key: &ProvingKey) -> groth16::VerifyingKey<Bls12> {
    groth16::VerifyingKey {
        alpha_g1: vk.alpha_g1(),
        beta_g1: key.beta_g1(),
        beta_g2: vk.beta_g2(),
        gamma_g2: vk.gamma_g2(),
        delta_g1: key.delta_g1(),
        delta_g2: vk.delta_g2(),
        ic: vk.ic().to_vec(),
    }
}
