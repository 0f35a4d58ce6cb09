//! Devices, and an open device with its kernels: what a prover and its keys share.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use splitprover_core::{BackendError, HostMemory};

use crate::driver::{Context, DeviceDescription, Faults, OpenClError, probe};
use crate::kernels::{Cache, Kernels, Patch, Products};
use crate::selftest;

/// Which device is meant: all that is given must fit; `index` counts among what does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Its platform: a number, or a part of its name, whatever the case.
    pub platform: Option<String>,
    /// A part of its name, whatever the case.
    pub name: Option<String>,
    /// Its number among those that fit.
    pub index: usize,
}

/// The devices of all platforms, CPUs among them, in the loader's order.
///
/// # Errors
/// One line that says why OpenCL can't be used here.
pub fn devices() -> Result<Vec<DeviceDescription>, OpenClError> {
    probe()
}

impl Choice {
    /// The device of this machine that is meant.
    ///
    /// # Errors
    /// [`OpenClError::NoOpenCl`], or [`OpenClError::NoDevice`] with what was asked for.
    pub fn find(&self) -> Result<DeviceDescription, OpenClError> {
        self.among(&probe()?)
    }

    fn among(&self, devices: &[DeviceDescription]) -> Result<DeviceDescription, OpenClError> {
        let holds = |text: &str, part: &str| text.to_lowercase().contains(&part.to_lowercase());
        let platform_fits = |device: &DeviceDescription| match &self.platform {
            None => true,
            Some(platform) => match platform.parse::<usize>() {
                Ok(number) => device.platform == number,
                Err(_) => holds(&device.platform_name, platform),
            },
        };
        let name_fits = |device: &DeviceDescription| self.name.as_ref().is_none_or(|name| holds(&device.name, name));
        let mut fitting = devices.iter().filter(|device| platform_fits(device) && name_fits(device));
        fitting.nth(self.index).cloned().ok_or_else(|| {
            let mut wanted = self.index.to_string();
            if let Some(name) = &self.name {
                wanted += &format!(" with {name:?} in its name");
            }
            if let Some(platform) = &self.platform {
                wanted += &format!(" of platform {platform:?}");
            }
            OpenClError::NoDevice { wanted, present: devices.len() }
        })
    }
}

/// How a device is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Most bytes of device memory to hold; nine tenths of all without it.
    pub memory_limit: Option<u64>,
    /// Most bytes of one buffer; the device's limit without it.
    pub max_allocation: Option<u64>,
    /// Folder of the cache of built programs; the user's own without it.
    pub cache: Option<PathBuf>,
    /// Proofs whose device work may overlap; by the device without it.
    pub slots: Option<usize>,
    /// Whether products go through inline PTX; on NVIDIA's platform without it.
    pub ptx: Option<bool>,
    /// Whether products in PTX are straight code, which takes longer to build; loops without it.
    pub straight: Option<bool>,
    /// Whose account the backend's own host memory is on.
    pub memory: HostMemory,
}

/// An open device.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) kernels: Kernels,
    pub(crate) options: OpenOptions,
    pub(crate) context: Context,
    lost: OnceLock<String>,
}

impl Instance {
    /// Opens the device: builds the programs, or loads them from the cache, and tests them.
    pub(crate) fn open(device: &DeviceDescription, options: OpenOptions) -> Result<Arc<Self>, OpenClError> {
        Self::open_with(device, options, Faults::default(), &|_, text| text)
    }

    /// The same with faults armed beforehand, and programs changed.
    pub(crate) fn open_with(
        device: &DeviceDescription,
        options: OpenOptions,
        faults: Faults,
        patch: &Patch,
    ) -> Result<Arc<Self>, OpenClError> {
        let context = Context::new(device, faults)?;
        if let Some(limit) = options.memory_limit {
            context.set_memory_limit(limit);
        }
        if let Some(most) = options.max_allocation {
            context.set_max_allocation(most);
        }
        let cache = options.cache.as_ref().map_or_else(Cache::from_environment, Cache::at);
        let ptx = options.ptx.unwrap_or(device.is_nvidia());
        let products = Products { ptx, straight: ptx && options.straight.unwrap_or(false) };
        let kernels = Kernels::new(&context, &cache, products, patch)?;
        let instance = Arc::new(Self { kernels, options, context, lost: OnceLock::new() });
        selftest::run(&instance)?;
        Ok(instance)
    }

    /// Whether device memory is on the host's account.
    pub(crate) fn accounts_device_memory(&self) -> bool {
        self.context.device().host_memory
    }

    /// An error as the contract has it. One after which the device can't be used makes this instance refuse all further work.
    pub(crate) fn fail(&self, what: &'static str, error: OpenClError) -> BackendError {
        if error.is_sticky() {
            let _ = self.lost.set(error.to_string());
        }
        error.into_backend(what, self.context.available_memory())
    }

    /// Refuses work after the device was lost.
    pub(crate) fn usable(&self) -> Result<(), BackendError> {
        self.lost.get().map_or(Ok(()), |reason| Err(BackendError::Poisoned(reason.clone())))
    }
}
