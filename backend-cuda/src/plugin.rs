//! The backend as a plug-in: exported by the crate in `plugin/`.

use std::path::{Path, PathBuf};

use splitprover_core::BackendError;
use splitprover_core::abi::{
    BackendPlugin, DeviceInfo, FixedBase, Host, KernelBuilder, Options, PinnedAllocator, Statistic,
};
use splitprover_core::host_buf::ForeignMemory;

use crate::device::{OpenOptions, devices};
use crate::driver::CudaError;
use crate::kernels::{Cache, Family, is_architecture};
use crate::limits;
use crate::msm::AffineG2;
use crate::ntt::Arithmetic;
use crate::prover::CudaProver;
use crate::transfer::PinnedPool;

/// The CUDA backend's entry in the table of backends.
#[derive(Debug)]
pub struct CudaPlugin;

impl BackendPlugin for CudaPlugin {
    const NAME: &'static str = "cuda";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Prover = CudaProver;

    fn devices(_host: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        let found = devices().map_err(|error| BackendError::device("looking for cards", error))?;
        Ok(found
            .into_iter()
            .map(|card| DeviceInfo {
                name: format!("{} ({})", card.name, card.arch()),
                kind: "cuda".into(),
                driver: format!("CUDA {}.{}", card.driver / 1000, card.driver % 1000 / 10),
                memory_bytes: card.memory,
                free_bytes: 0,
            })
            .collect())
    }

    /// Options: `vram_limit` in bytes, `cache` (folder of compiled kernels), `copies` (of the bases, for keys used many times), `slots`
    /// (proofs that overlap on the card), `ntt` (`eisenstein`, the default, or `montgomery`: the transforms' arithmetic), and for measurements and
    /// tests `g2_affine` (whether neighbours are added in affine coordinates in G2: `on` for long lists, the default; `off`; `always`, even where it
    /// doesn't pay).
    fn open(device: usize, options: &Options, host: Host) -> Result<CudaProver, BackendError> {
        options.only(&["vram_limit", "cache", "copies", "g2_affine", "slots", "ntt"])?;
        let defaults = OpenOptions::default();
        let small = |name: &str, default: u32, most: u64| match options.number(name)? {
            None => Ok(default),
            Some(value) if (1..=most).contains(&value) => Ok(value as u32),
            Some(value) => Err(BackendError::Unsupported(format!("option {name}: {value} is not in 1 to {most}"))),
        };
        let affine_g2 = match options.get("g2_affine") {
            None => defaults.affine_g2,
            Some("off") => AffineG2::Off,
            Some("on") => AffineG2::On,
            Some("always") => AffineG2::Always,
            Some(other) => {
                return Err(BackendError::Unsupported(format!("option g2_affine: {other} is not a value of it")));
            }
        };
        let ordinal = u32::try_from(device)
            .map_err(|_| BackendError::Unsupported(format!("there is no CUDA device {device}")))?;
        let open = OpenOptions {
            vram_limit: options.number("vram_limit")?,
            cache: options.get("cache").map(PathBuf::from),
            threads: host.threads(),
            copies: small("copies", defaults.copies, 64)?,
            affine_g2,
            slots: small("slots", defaults.slots as u32, 8)? as usize,
            arithmetic: match options.get("ntt") {
                None => defaults.arithmetic,
                Some("montgomery") => Arithmetic::Montgomery,
                Some("eisenstein") => Arithmetic::Eisenstein,
                Some(other) => return Err(BackendError::Unsupported(format!("option ntt: {other} is no arithmetic"))),
            },
            memory: host.memory().clone(),
        };
        let prover = CudaProver::open(ordinal, open)?;
        prover.pinned_pool().account_to(host.memory().ledger());
        Ok(prover)
    }

    fn pinned(prover: &CudaProver) -> Option<&dyn PinnedAllocator> {
        Some(prover.pinned_pool())
    }

    fn fixed_base(prover: &CudaProver) -> Option<&dyn FixedBase> {
        Some(prover.fixed_base())
    }

    fn statistics(prover: &CudaProver) -> Vec<Statistic> {
        let live = prover.context().live();
        let figure = |name: &str, value: f64| Statistic { name: name.into(), value };
        let mut figures = vec![
            figure("device memory held, bytes", live.device_bytes as f64),
            figure("page-locked memory held, bytes", live.pinned_bytes as f64),
            figure("driver calls", prover.context().faults().calls() as f64),
        ];
        let card = prover.context().info();
        figures.extend(limits::figures(card).into_iter().map(|(name, value)| figure(name, value)));
        figures
    }

    fn kernels() -> Option<&'static dyn KernelBuilder> {
        Some(&AheadOfTime)
    }
}

/// Kernels compiled where there is no card.
struct AheadOfTime;

impl KernelBuilder for AheadOfTime {
    fn build(&self, arch: &str, folder: &Path, report: &mut dyn FnMut(&str)) -> Result<(), BackendError> {
        let failed = |error: CudaError| BackendError::device("compiling kernels", error);
        if !is_architecture(arch) {
            let reason = format!("{arch} is no architecture; they look like sm_90");
            return Err(BackendError::device("compiling kernels", reason));
        }
        let cache = Cache::at(folder);
        cache.fill(&Family::ALL, arch).map_err(failed)?;
        for family in Family::ALL {
            let bytes = cache.cubin(family, arch).map_err(failed)?.len();
            report(&format!("{arch} {}: {bytes} bytes", family.name()));
        }
        Ok(())
    }
}

impl PinnedAllocator for PinnedPool {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn ForeignMemory>, BackendError> {
        self.lease(bytes).map_err(|error| BackendError::device("page-locked memory", error))
    }
}
