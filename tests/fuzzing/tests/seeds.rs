//! The fuzz targets on a stable compiler: every committed seed, and thousands of mutations of each. The mutations are the same in
//! every run; `SPLITPROVER_MUTATIONS` is a number to multiply theirs with. `SPLITPROVER_CORPUS` is a folder with a fuzzer's corpora, by
//! the names of their targets, which are gone through as well.

use std::path::Path;
use std::time::Instant;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use splitprover_fuzzing::{Outcome, TARGETS, Target};

/// Name and bytes of each seed of a target, in order of their names.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let entries = std::fs::read_dir(&folder).expect("a folder of seeds for each target");
    let mut seeds: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("a readable folder");
            (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("a readable seed"))
        })
        .collect();
    seeds.sort();
    seeds
}

fn below(rng: &mut ChaCha8Rng, end: usize) -> usize {
    (rng.next_u64() % end.max(1) as u64) as usize
}

/// Numbers that counts, sizes and offsets go wrong at.
const AWKWARD: [u64; 14] = [
    0,
    1,
    2,
    3,
    0x7f,
    0xff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
    1 << 32,
    u64::MAX - 0x28,
    u64::MAX - 1,
    u64::MAX,
];

/// Changes some bytes, as fuzzers do: flips, awkward numbers of any width, small steps, parts cut, repeated, moved, or taken
/// from another seed.
fn mutate(rng: &mut ChaCha8Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = below(rng, bytes.len());
    let length = 1 + below(rng, 48);
    let end = bytes.len().min(at + length);
    match below(rng, 10) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => {
            let part = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, part));
        }
        3 => {
            let from = below(rng, other.len());
            let part = other[from..other.len().min(from + length)].to_vec();
            let end = bytes.len().min(at + part.len());
            drop(bytes.splice(at..end, part));
        }
        4 => bytes.extend((0..length).map(|i| i as u8)),
        5 | 6 => {
            let number = AWKWARD[below(rng, AWKWARD.len())].to_le_bytes();
            let width = [1, 2, 4, 8][below(rng, 4)].min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&number[..width]);
        }
        7 => bytes.get_mut(at).into_iter().for_each(|byte| *byte = byte.wrapping_add(1)),
        8 => bytes.get_mut(at).into_iter().for_each(|byte| *byte = byte.wrapping_sub(1)),
        _ => bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (rng.next_u32() % 8)),
    }
}

fn run((name, target): Target, mutations: usize) {
    let seeds = seeds(name);
    let accepted = seeds.iter().filter(|(_, bytes)| target(bytes) == Outcome::Accepted).count();
    assert!(2 * accepted > seeds.len(), "{name}: {accepted} of {} seeds are accepted", seeds.len());
    assert_eq!(target(&[]), Outcome::Refused, "{name}");

    let factor = std::env::var("SPLITPROVER_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut rng = ChaCha8Rng::seed_from_u64(0x5eed);
    let (mut refused, begin) = (0, Instant::now());
    for round in 0..mutations * factor {
        let (seed, bytes) = &seeds[round % seeds.len()];
        let other = &seeds[below(&mut rng, seeds.len())].1;
        let mut bytes = bytes.clone();
        for _ in 0..1 + below(&mut rng, 3) {
            mutate(&mut rng, &mut bytes, other);
        }
        let outcome = std::panic::catch_unwind(|| target(&bytes));
        match outcome {
            Ok(Outcome::Refused) => refused += 1,
            Ok(Outcome::Accepted) => {}
            Err(panic) => {
                let path = std::env::temp_dir().join(format!("splitprover-{name}-{round}"));
                std::fs::write(&path, &bytes).expect("a folder for temporary files");
                eprintln!("{name}: mutation {round} of seed {seed} is in {}", path.display());
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{name}: {} mutations, {refused} refused, {:.1?}", mutations * factor, begin.elapsed());
    assert!(refused > mutations / 10, "{name}: hardly any mutation is refused");
}

fn target(name: &str) -> Target {
    TARGETS.into_iter().find(|(found, _)| *found == name).expect("a target of that name")
}

#[test]
fn zkey_survives_mutations() {
    run(target("zkey"), 6000);
}

#[test]
fn wtns_survives_mutations() {
    run(target("wtns"), 10000);
}

#[test]
fn r1cs_survives_mutations() {
    run(target("r1cs"), 10000);
}

#[test]
fn params_survive_mutations() {
    run(target("params"), 6000);
}

#[test]
fn json_survives_mutations() {
    run(target("json"), 4000);
}

#[test]
fn verification_survives_mutations() {
    run(target("verify"), 3000);
}

#[test]
fn proving_survives_mutations() {
    run(target("prove"), 2000);
}

#[test]
fn negotiation_survives_mutations() {
    run(target("negotiate"), 4000);
}

#[test]
fn starting_survives_mutations() {
    run(target("start_arguments"), 4000);
}

/// What a fuzzer has found before passes under the checks that there are now.
#[test]
fn corpora_pass() {
    let Some(folder) = std::env::var_os("SPLITPROVER_CORPUS") else {
        println!("skipped: SPLITPROVER_CORPUS names no folder");
        return;
    };
    for (name, target) in TARGETS {
        let Ok(entries) = std::fs::read_dir(Path::new(&folder).join(name)) else { continue };
        let (mut count, mut accepted) = (0, 0);
        for entry in entries {
            let path = entry.expect("a readable folder").path();
            let bytes = std::fs::read(&path).expect("a readable file");
            let outcome = std::panic::catch_unwind(|| target(&bytes));
            let outcome = outcome.unwrap_or_else(|_| panic!("{name}: {}", path.display()));
            (count, accepted) = (count + 1, accepted + usize::from(outcome == Outcome::Accepted));
        }
        println!("{name}: {count} inputs, {accepted} accepted");
    }
}

#[test]
fn every_folder_of_seeds_has_its_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut folders: Vec<_> = std::fs::read_dir(folder)
        .expect("seeds")
        .map(|entry| entry.expect("a readable folder").file_name().to_string_lossy().into_owned())
        .collect();
    folders.sort();
    let mut names = TARGETS.map(|(name, _)| name.to_owned());
    names.sort();
    assert_eq!(folders, names);
}
