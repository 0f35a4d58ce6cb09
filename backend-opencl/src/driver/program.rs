//! Programs and kernels.

use std::ffi::CString;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use opencl3::kernel::{CL_KERNEL_WORK_GROUP_SIZE, create_kernel, get_kernel_work_group_info, release_kernel};
use opencl3::program::{
    CL_PROGRAM_BINARIES, CL_PROGRAM_BUILD_LOG, build_program, create_program_with_binary, create_program_with_source,
    get_program_build_data, get_program_info, release_program,
};
use opencl3::types::{cl_kernel, cl_program};

use super::{Call, Context, OpenClError, checked, text_of};

/// A built program.
pub struct Program {
    context: Context,
    raw: cl_program,
}

// SAFETY: OpenCL programs may be used from any thread.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Program {
    /// Compiles `source`.
    ///
    /// # Errors
    /// [`OpenClError::Build`] with the compiler's log.
    pub fn from_source(
        context: &Context,
        name: &'static str,
        source: &str,
        options: &str,
    ) -> Result<Self, OpenClError> {
        context.gate(Call::CreateProgram)?;
        // One text: the binding passes several wrongly.
        let raw = checked(Call::CreateProgram, create_program_with_source(context.0.raw, &[source]))?;
        Self::built(context, raw, name, options)
    }

    /// Loads what [`binary`](Self::binary) gave for the same device and driver.
    ///
    /// # Errors
    /// What the driver says to it.
    pub fn from_binary(
        context: &Context,
        name: &'static str,
        binary: &[u8],
        options: &str,
    ) -> Result<Self, OpenClError> {
        context.gate(Call::CreateProgram)?;
        let devices = [context.device().raw()];
        // SAFETY: the device is the context's.
        let raw = unsafe { create_program_with_binary(context.0.raw, &devices, &[binary]) };
        Self::built(context, checked(Call::CreateProgram, raw)?, name, options)
    }

    fn built(context: &Context, raw: cl_program, name: &'static str, options: &str) -> Result<Self, OpenClError> {
        context.0.objects.fetch_add(1, Ordering::Relaxed);
        let program = Self { context: context.clone(), raw };
        context.gate(Call::BuildProgram)?;
        let options =
            CString::new(options).map_err(|_| OpenClError::Unusable("build options with a zero byte".into()))?;
        let device = context.device().raw();
        match build_program(raw, &[device], &options, None, std::ptr::null_mut()) {
            Ok(()) => Ok(program),
            Err(code) => {
                let log = get_program_build_data(raw, device, CL_PROGRAM_BUILD_LOG).map(text_of).unwrap_or_default();
                let status = opencl3::error_codes::error_text(code);
                Err(OpenClError::Build { program: name, log: format!("{status} ({code})\n{log}") })
            }
        }
    }

    /// The device's code for it; `None` if the driver doesn't give it out.
    #[must_use]
    pub fn binary(&self) -> Option<Vec<u8>> {
        let info = get_program_info(self.raw, CL_PROGRAM_BINARIES).ok()?;
        let binaries: Vec<Vec<u8>> = info.into();
        binaries.into_iter().next().filter(|binary| !binary.is_empty())
    }

    /// One of its kernels.
    ///
    /// # Errors
    /// What the driver says: there is no such kernel, or no memory.
    pub fn kernel(&self, name: &'static str) -> Result<Kernel, OpenClError> {
        self.context.gate(Call::CreateKernel)?;
        let text = CString::new(name).map_err(|_| OpenClError::Unusable("a kernel's name with a zero byte".into()))?;
        let raw = checked(Call::CreateKernel, create_kernel(self.raw, &text))?;
        self.context.0.objects.fetch_add(1, Ordering::Relaxed);
        let device = self.context.device().raw();
        let max_group = get_kernel_work_group_info(raw, device, CL_KERNEL_WORK_GROUP_SIZE).map_or(1, usize::from);
        Ok(Kernel { context: self.context.clone(), raw: Mutex::new(RawKernel(raw)), name, max_group })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created by `from_source` or `from_binary`, released once.
        let _ = unsafe { release_program(self.raw) };
        self.context.0.objects.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Program")
    }
}

pub(super) struct RawKernel(pub(super) cl_kernel);

// SAFETY: a kernel object may be used from any thread, one at a time: the lock around it sees to that.
unsafe impl Send for RawKernel {}

/// A kernel. Its arguments are set and it is launched under a lock.
pub struct Kernel {
    context: Context,
    pub(super) raw: Mutex<RawKernel>,
    name: &'static str,
    max_group: usize,
}

impl Kernel {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Work items of the largest work group that the device takes for it.
    #[must_use]
    pub fn max_group(&self) -> usize {
        self.max_group
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let raw = self.raw.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).0;
        // SAFETY: created by `Program::kernel`, released once.
        let _ = unsafe { release_kernel(raw) };
        self.context.0.objects.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({})", self.name)
    }
}
