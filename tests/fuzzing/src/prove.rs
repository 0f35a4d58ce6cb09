//! Proving with any key that the reader lets through.

use std::path::Path;
use std::sync::OnceLock;

use ff::Field;
use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_core::{HostMemory, Inputs, MemoryClass, PreparedVerifyingKey, Prover, Scalar};
use splitprover_harness::formats::{OpenOptions, ZkeyFile, wtns_from_bytes};

use crate::Outcome;

/// Length of a `.zkey` as four little-endian bytes, the `.zkey`, a `.wtns`. The CPU backend proves with them, or says why not. A
/// witness that isn't one, or is of another length, is replaced by one with zeros, ones, small and full values. A proof that comes
/// out holds under the key.
pub fn prove(data: &[u8]) -> Outcome {
    static PROVER: OnceLock<Prover<CpuBackend>> = OnceLock::new();
    let prover = PROVER.get_or_init(|| Prover::new(CpuBackend::new(CpuOptions::default()).expect("the default works")));

    let Some((length, rest)) = data.split_first_chunk() else { return Outcome::Refused };
    let (key, witness) = rest.split_at(rest.len().min(u32::from_le_bytes(*length) as usize));
    let Ok(file) = ZkeyFile::from_bytes(Path::new("fuzz.zkey"), key.to_vec(), OpenOptions::default()) else {
        return Outcome::Refused;
    };
    let (memory, variables) = (HostMemory::default(), file.key.shape().num_variables);
    let witness = match wtns_from_bytes(Path::new("fuzz.wtns"), witness, &memory) {
        Ok(witness) if witness.len() == variables => witness,
        _ => {
            let values: Vec<_> = (0..variables).map(made_up).collect();
            memory.copy_of(MemoryClass::Witness, &values).expect("memory in proportion to the key")
        }
    };
    let Ok(loaded) = prover.load_key(file.key.clone()) else { return Outcome::Refused };
    let Ok(in_flight) = prover.start(&loaded, Inputs::new(witness)) else { return Outcome::Refused };
    let public = in_flight.public().to_vec();
    let Ok(proof) = in_flight.finish() else { return Outcome::Refused };
    let holds = PreparedVerifyingKey::new(file.key.verifying_key()).verify(&proof, &public);
    assert_eq!(holds, Ok(true), "a proof that was handed out");
    Outcome::Accepted
}

fn made_up(variable: usize) -> Scalar {
    let small = Scalar::from(variable as u64);
    match variable % 5 {
        _ if variable == 0 => Scalar::ONE,
        0 => Scalar::ZERO,
        1 => Scalar::ONE,
        2 => small,
        3 => -Scalar::ONE,
        _ => small.invert().unwrap_or(Scalar::ZERO),
    }
}
