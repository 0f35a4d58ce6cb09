//! The backend as a plug-in: exported by the crate in `plugin/`.

use std::path::PathBuf;

use splitprover_core::BackendError;
use splitprover_core::abi::{BackendPlugin, DeviceInfo, Host, LogLevel, Options, Statistic};

use crate::device::{Choice, OpenOptions, devices};
use crate::prover::OpenClProver;

/// The OpenCL backend's entry in the table of backends.
#[derive(Debug)]
pub struct OpenClPlugin;

impl BackendPlugin for OpenClPlugin {
    const NAME: &'static str = "opencl";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Prover = OpenClProver;

    fn devices(_host: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        let found = devices().map_err(|error| BackendError::device("looking for devices", error))?;
        Ok(found
            .into_iter()
            .map(|device| DeviceInfo {
                name: format!("{} ({})", device.name, device.platform_name),
                kind: format!("opencl {}", device.kind),
                driver: device.driver,
                memory_bytes: device.memory,
                free_bytes: 0,
            })
            .collect())
    }

    /// Options: `platform` (number, or part of its name) and `name` (part of the device's): the device's number then counts among those that
    /// fit; `vram_limit` and `max_allocation` in bytes, `cache` (folder of built programs), `slots` (proofs that overlap on the device),
    /// `ptx` and `straight` (`on` or `off`: products in PTX, and in straight code).
    fn open(device: usize, options: &Options, host: Host) -> Result<OpenClProver, BackendError> {
        options.only(&["platform", "name", "vram_limit", "max_allocation", "cache", "slots", "ptx", "straight"])?;
        let choice = Choice {
            platform: options.get("platform").map(str::to_owned),
            name: options.get("name").map(str::to_owned),
            index: device,
        };
        let slots = match options.number("slots")? {
            None => None,
            Some(slots @ 1..=8) => Some(slots as usize),
            Some(slots) => return Err(BackendError::Unsupported(format!("option slots: {slots} is not in 1 to 8"))),
        };
        let switch = |name: &str| match options.get(name) {
            None => Ok(None),
            Some("on") => Ok(Some(true)),
            Some("off") => Ok(Some(false)),
            Some(other) => Err(BackendError::Unsupported(format!("option {name}: {other:?} is not on or off"))),
        };
        let (ptx, straight) = (switch("ptx")?, switch("straight")?);
        let open = OpenOptions {
            memory_limit: options.number("vram_limit")?,
            max_allocation: options.number("max_allocation")?,
            cache: options.get("cache").map(PathBuf::from),
            slots,
            ptx,
            straight,
            memory: host.memory().clone(),
        };
        let device = choice.find().map_err(|error| BackendError::device("choosing the device", error))?;
        let prover = OpenClProver::open(&device, open)?;
        let (seconds, cached) = prover.build();
        let from = if cached == 3 { "from the cache" } else { "built" };
        host.log(LogLevel::Info, "opencl", &format!("{}: programs {from} in {seconds:.1} s", device.name));
        Ok(prover)
    }

    fn statistics(prover: &OpenClProver) -> Vec<Statistic> {
        let live = prover.context().live();
        let figure = |name: &str, value: f64| Statistic { name: name.into(), value };
        vec![
            figure("device memory held, bytes", live.bytes as f64),
            figure("programs, built or loaded, s", prover.build().0),
            figure("OpenCL calls", prover.context().faults().calls() as f64),
        ]
    }
}
