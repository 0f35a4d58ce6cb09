//! Ours: the CPU backend behind core's prover, which blinds, assembles and verifies.

use std::path::Path;

use splitprover_backend_cpu::{Arithmetic, CpuBackend, CpuOptions};
use splitprover_core::{Blinding, HostBuf, HostMemory, Inputs, LoadedKey, MemoryClass, Prover, Scalar};
use splitprover_harness::formats::{OpenOptions, Stamps, ZkeyFile};

use super::{Name, Timed, timed};
use crate::Result;
use crate::circuit::Circuit;

/// How a key is opened.
#[derive(Clone, Copy, Debug)]
pub enum Opening {
    /// Every point is checked to be on the curve.
    Checked,
    /// A stamp says that they have been.
    Stamped,
}

/// Opens a key.
///
/// # Errors
/// If it isn't as it should be.
pub fn open_zkey(path: &Path, opening: Opening, stamps: &Path) -> Result<ZkeyFile> {
    let stamps = match opening {
        Opening::Checked => Stamps::Off,
        Opening::Stamped => Stamps::In(stamps),
    };
    Ok(ZkeyFile::open(path, OpenOptions { stamps, ..OpenOptions::default() })?)
}

pub(super) struct Splitprover {
    prover: Prover<CpuBackend>,
    key: LoadedKey<CpuBackend>,
    memory: HostMemory,
    witness: HostBuf<Scalar>,
}

impl Splitprover {
    pub(super) fn open(name: Name, circuit: &Circuit, stamps: &Path) -> Result<Self> {
        let arithmetic = (name == Name::Portable).then_some(Arithmetic::Portable);
        let prover = Prover::new(CpuBackend::new(CpuOptions { arithmetic, ..CpuOptions::default() })?);
        let memory = HostMemory::default();
        let file = open_zkey(&name.zkey(circuit), Opening::Stamped, stamps)?;
        let witness = file.read_witness(&circuit.witness(), &memory)?;
        let key = prover.load_key(file.key.clone())?;
        Ok(Self { prover, key, memory, witness })
    }
}

impl super::Prover for Splitprover {
    fn prove(&self, r: Scalar, s: Scalar) -> Result<Timed> {
        let inputs = Inputs::new(self.memory.copy_of(MemoryClass::Witness, &self.witness)?);
        timed(|| {
            let in_flight = self.prover.start(&self.key, inputs).map_err(|e| e.to_string())?;
            Ok(in_flight.finish_with(Blinding::insecure(r, s))?)
        })
    }
}
