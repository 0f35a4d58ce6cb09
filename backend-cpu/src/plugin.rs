//! The backend as a plug-in: linked into the program, or exported by the crate in `plugin/`.

use splitprover_core::BackendError;
use splitprover_core::abi::{BackendPlugin, DeviceInfo, Host, Options};

use crate::field::Arithmetic;
use crate::prover::{CpuBackend, CpuOptions};

/// The CPU reference backend's entry in the table of backends. One device: the processor.
#[derive(Debug)]
pub struct CpuPlugin;

impl BackendPlugin for CpuPlugin {
    const NAME: &'static str = "cpu";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Prover = CpuBackend;

    fn devices(_host: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let name = format!("{threads} threads, {:?} arithmetic", Arithmetic::detect());
        Ok(vec![DeviceInfo::new(name, "cpu")])
    }

    fn open(device: usize, options: &Options, host: Host) -> Result<CpuBackend, BackendError> {
        options.only(&[])?;
        if device != 0 {
            return Err(BackendError::Unsupported(format!("there is one CPU device, number 0, not {device}")));
        }
        // No number given: the global pool, which obeys RAYON_NUM_THREADS.
        let threads = Some(host.threads()).filter(|&threads| threads > 0);
        CpuBackend::new(CpuOptions { threads, arithmetic: None, memory: host.memory().clone() })
    }
}
