//! Loaded kernels and their launches.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Call, Context, CudaError, DevicePtr, Stream};

/// A CUBIN loaded into a context. Functions keep it alive.
#[derive(Clone)]
pub struct Module(Arc<Loaded>);

struct Loaded {
    context: Context,
    raw: usize,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.context.api().unload_module(self.raw);
        self.context.0.objects.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Module {
    /// Loads a CUBIN built for this card's architecture.
    ///
    /// # Errors
    /// Whatever the driver reports: an image that is damaged or for another architecture is refused here.
    pub fn load(context: &Context, cubin: &[u8]) -> Result<Self, CudaError> {
        context.gate(Call::LoadModule)?;
        let raw = context.api().load_module(cubin)?;
        context.0.objects.fetch_add(1, Ordering::Relaxed);
        Ok(Self(Arc::new(Loaded { context: context.clone(), raw })))
    }

    /// Finds the kernel called `name`.
    ///
    /// # Errors
    /// Whatever the driver reports, for one when there is no such kernel.
    pub fn function(&self, name: &str) -> Result<Function, CudaError> {
        self.0.context.gate(Call::FindFunction)?;
        let raw = self.0.context.api().find_function(self.0.raw, name)?;
        Ok(Function { module: self.clone(), raw })
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Module({:#x})", self.0.raw)
    }
}

/// A kernel that can be launched.
#[derive(Clone)]
pub struct Function {
    module: Module,
    raw: usize,
}

/// One kernel argument, by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// A 32-bit integer.
    U32(u32),
    /// A 64-bit integer.
    U64(u64),
    /// A device address.
    Ptr(DevicePtr),
    /// A field element or another 32-byte value.
    Words8([u32; 8]),
}

impl From<u32> for Arg {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}

impl From<u64> for Arg {
    fn from(value: u64) -> Self {
        Self::U64(value)
    }
}

impl From<DevicePtr> for Arg {
    fn from(value: DevicePtr) -> Self {
        Self::Ptr(value)
    }
}

impl From<[u32; 8]> for Arg {
    fn from(value: [u32; 8]) -> Self {
        Self::Words8(value)
    }
}

impl Arg {
    fn as_ptr(&self) -> *const std::ffi::c_void {
        match self {
            Self::U32(value) => std::ptr::from_ref(value).cast(),
            Self::U64(value) => std::ptr::from_ref(value).cast(),
            Self::Ptr(value) => std::ptr::from_ref(&value.0).cast(),
            Self::Words8(value) => value.as_ptr().cast(),
        }
    }
}

impl Function {
    /// Allows launches with up to `bytes` of dynamic shared memory; needed beyond 48 KiB.
    ///
    /// # Errors
    /// Whatever the driver reports, for one when the card has less.
    pub fn allow_shared_memory(&self, bytes: u32) -> Result<(), CudaError> {
        self.module.0.context.api().allow_shared_memory(self.raw, bytes)
    }

    /// Queues one launch of `grid` x `block` threads with `shared` bytes of dynamic shared memory.
    ///
    /// # Errors
    /// Whatever the driver reports. Failures while the kernel runs appear at a later synchronisation.
    ///
    /// # Safety
    /// `args` must match the kernel's parameters in number, order and size, and every device address among them must stay allocated
    /// for what the kernel does with it until the stream has passed this launch.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        args: &[Arg],
    ) -> Result<(), CudaError> {
        let context = &self.module.0.context;
        context.gate(Call::Launch)?;
        let mut pointers: Vec<_> = args.iter().map(|arg| arg.as_ptr().cast_mut()).collect();
        // SAFETY: handed on from our caller; the pointers are to `args`, which the driver reads before it returns.
        unsafe { context.api().launch(self.raw, grid, block, shared, stream.raw(), &mut pointers) }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({:#x})", self.raw)
    }
}
