//! Ours: the CPU backend behind core's prover, which blinds, assembles and verifies.

use std::path::{Path, PathBuf};

use splitprover_backend_cpu::{Arithmetic, CpuBackend, CpuOptions};
use splitprover_core::{Blinding, HostMemory, Inputs, LoadedKey, Prover, Scalar};
use splitprover_harness::formats::{OpenOptions, Residency, Stamps, ZkeyFile};

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
    // As `splitprover prove` does.
    Ok(ZkeyFile::open(path, OpenOptions { stamps, residency: Residency::Brief, ..OpenOptions::default() })?)
}

pub(super) struct Splitprover {
    prover: Prover<CpuBackend>,
    key: LoadedKey<CpuBackend>,
    file: ZkeyFile,
    witness: PathBuf,
    memory: HostMemory,
}

impl Splitprover {
    pub(super) fn open(name: Name, circuit: &Circuit, stamps: &Path) -> Result<Self> {
        // As the program does, so that what is freed leaves the process.
        let _ = splitprover_core::host_buf::map_large_blocks();
        let arithmetic = (name == Name::Avx2).then_some(Arithmetic::Avx2Fma);
        let prover = Prover::new(CpuBackend::new(CpuOptions { arithmetic, ..CpuOptions::default() })?);
        let file = open_zkey(&name.zkey(circuit), Opening::Stamped, stamps)?;
        let key = prover.load_key(file.key.clone())?;
        Ok(Self { prover, key, file, witness: circuit.witness(), memory: HostMemory::default() })
    }
}

impl super::Prover for Splitprover {
    fn prove(&self, r: Scalar, s: Scalar) -> Result<Timed> {
        // A proof uses its witness up.
        let inputs = Inputs::new(self.file.read_witness(&self.witness, &self.memory)?);
        timed(|| {
            let in_flight = self.prover.start(&self.key, inputs).map_err(|e| e.to_string())?;
            Ok(in_flight.finish_with(Blinding::insecure(r, s))?)
        })
    }
}
