//! Key opening and whole proofs, ours and the others'. `SPLITPROVER_BENCH_CIRCUITS=porep-14,dense-16` says which (see `race`);
//! every prover's first proof is compared with those of its basis before anything is timed.

use std::path::PathBuf;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ff::Field;
use splitprover_core::{Proof, Scalar};
use splitprover_race::circuit::Circuit;
use splitprover_race::provers::{Name, Opening, open_zkey};

fn circuits() -> (Vec<Circuit>, PathBuf) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/race");
    let from = std::env::var_os("SPLITPROVER_RACE_CIRCUITS").map(PathBuf::from);
    let names = std::env::var("SPLITPROVER_BENCH_CIRCUITS").unwrap_or_else(|_| "porep-12,dense-12".into());
    let prepare = |name| Circuit::prepare(name, &folder, from.as_deref()).expect("a circuit that can be prepared");
    let stamps = folder.join("stamps");
    std::fs::create_dir_all(&stamps).expect("a folder for stamps");
    (names.split(',').map(prepare).collect(), stamps)
}

fn opening(c: &mut Criterion) {
    let (circuits, stamps) = circuits();
    let mut group = c.benchmark_group("open key");
    group.sample_size(10);
    for circuit in &circuits {
        let zkey = circuit.zkey();
        let id = |name: &str| BenchmarkId::new(name, &circuit.name);
        group.bench_function(id("read the file"), |b| b.iter(|| std::fs::read(&zkey).expect("a file")));
        for (name, opening) in [("checked", Opening::Checked), ("stamped", Opening::Stamped)] {
            let open = || open_zkey(&zkey, opening, &stamps).expect("a good key");
            group.bench_function(id(name), |b| b.iter_with_large_drop(open));
        }
        for name in Name::PEERS {
            let open = || name.open(circuit, &stamps).expect("a good key");
            group.bench_function(id(name.text()), |b| b.iter_with_large_drop(open));
        }
    }
}

fn whole_proof(c: &mut Criterion) {
    let (circuits, stamps) = circuits();
    let mut group = c.benchmark_group("whole proof");
    group.sample_size(10);
    let blinding = || (-Scalar::from(7).square(), -Scalar::from(11).square());
    for circuit in &circuits {
        let mut seen: Vec<(PathBuf, Proof)> = Vec::new();
        for name in Name::ALL {
            let prover = name.open(circuit, &stamps).expect("a good key");
            let prove = || {
                let (r, s) = blinding();
                prover.prove(r, s).expect("a proof")
            };
            let (key, proof) = (name.zkey(circuit), prove().proof);
            let same = seen.iter().find(|(other, _)| *other == key).map(|(_, proof)| *proof);
            assert_eq!(same.unwrap_or(proof), proof, "{} {}", circuit.name, name.text());
            seen.push((key, proof));
            group.bench_function(BenchmarkId::new(name.text(), &circuit.name), |b| {
                b.iter_custom(|times| (0..times).map(|_| prove().wall).sum::<Duration>());
            });
        }
    }
}

criterion_group!(benches, opening, whole_proof);
criterion_main!(benches);
