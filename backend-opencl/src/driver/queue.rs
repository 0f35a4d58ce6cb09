//! Command queues: order between pieces of device work, and the only ways to wait for them.

use std::ffi::c_void;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use opencl3::command_queue::{
    create_command_queue, enqueue_fill_buffer, enqueue_nd_range_kernel, enqueue_read_buffer, enqueue_write_buffer,
    finish, flush, release_command_queue,
};
use opencl3::event::release_event;
use opencl3::kernel::set_kernel_arg;
use opencl3::types::{CL_BLOCKING, cl_command_queue, cl_event};

use super::{Buffer, Call, Context, Kernel, OpenClError, checked};

/// A kernel's argument.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A buffer, from its beginning.
    Buffer(&'a Buffer),
    /// A `uint`.
    U32(u32),
}

impl<'a> From<&'a Buffer> for Arg<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Self::Buffer(buffer)
    }
}

impl From<u32> for Arg<'_> {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}

/// An in-order queue of commands. Dropping it waits for what is in it.
pub struct Queue {
    context: Context,
    raw: cl_command_queue,
}

// SAFETY: OpenCL command queues may be used from any thread.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// A queue on the context's device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(context: &Context) -> Result<Self, OpenClError> {
        context.gate(Call::CreateQueue)?;
        // SAFETY: the device is the context's. (OpenCL 2.0 deprecates the call; 1.2, which this backend asks for, has no other.)
        let raw = unsafe { create_command_queue(context.0.raw, context.device().raw(), 0) };
        let raw = checked(Call::CreateQueue, raw)?;
        context.0.objects.fetch_add(1, Ordering::Relaxed);
        Ok(Self { context: context.clone(), raw })
    }

    /// Copies host bytes to a buffer. When it returns, the bytes have been read.
    ///
    /// # Errors
    /// What the driver says, also about earlier work in this queue. The bytes aren't read any more after an error either: the call is
    /// blocking, and an injected fault is reported instead of the call.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<(), OpenClError> {
        assert!(offset + bytes.len() as u64 <= buffer.bytes(), "{} bytes at {offset} of {buffer:?}", bytes.len());
        if bytes.is_empty() {
            return Ok(());
        }
        self.context.gate(Call::Write)?;
        // SAFETY: the range is inside the buffer, as just checked; `bytes` is readable until the call returns, which blocks.
        let event = unsafe {
            let from = bytes.as_ptr().cast::<c_void>();
            enqueue_write_buffer(
                self.raw,
                buffer.raw,
                CL_BLOCKING,
                offset as usize,
                bytes.len(),
                from,
                0,
                std::ptr::null(),
            )
        };
        forget_event(checked(Call::Write, event)?);
        Ok(())
    }

    /// Copies bytes of a buffer to the host, after all earlier work in this queue.
    ///
    /// # Errors
    /// What the driver says, also about earlier work in this queue.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn read(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8]) -> Result<(), OpenClError> {
        assert!(offset + bytes.len() as u64 <= buffer.bytes(), "{} bytes at {offset} of {buffer:?}", bytes.len());
        if bytes.is_empty() {
            return Ok(());
        }
        self.context.gate(Call::Read)?;
        // SAFETY: the range is inside the buffer, as just checked; `bytes` is writable until the call returns, which blocks.
        let event = unsafe {
            let to = bytes.as_mut_ptr().cast::<c_void>();
            enqueue_read_buffer(
                self.raw,
                buffer.raw,
                CL_BLOCKING,
                offset as usize,
                bytes.len(),
                to,
                0,
                std::ptr::null(),
            )
        };
        forget_event(checked(Call::Read, event)?);
        Ok(())
    }

    /// Queues zeroing a range of a buffer; offset and length are divisible by 4.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn clear(&self, buffer: &Buffer, offset: u64, bytes: u64) -> Result<(), OpenClError> {
        assert!(offset + bytes <= buffer.bytes() && bytes.is_multiple_of(4), "{bytes} bytes at {offset} of {buffer:?}");
        if bytes == 0 {
            return Ok(());
        }
        self.context.gate(Call::Fill)?;
        let zero = 0u32;
        // SAFETY: the range is inside the buffer; the pattern is copied by the call.
        let event = unsafe {
            let pattern = (&raw const zero).cast::<c_void>();
            enqueue_fill_buffer(self.raw, buffer.raw, pattern, 4, offset as usize, bytes as usize, 0, std::ptr::null())
        };
        forget_event(checked(Call::Fill, event)?);
        Ok(())
    }

    /// Queues `groups` work groups of `group` work items each.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// The arguments are those of the kernel, in number and type, and with them it stays inside its buffers.
    pub unsafe fn launch(
        &self,
        kernel: &Kernel,
        groups: u64,
        group: usize,
        arguments: &[Arg<'_>],
    ) -> Result<(), OpenClError> {
        if groups == 0 {
            return Ok(());
        }
        // A poisoned lock means a panic between two calls; all arguments are set anew.
        let raw = kernel.raw.lock().unwrap_or_else(PoisonError::into_inner);
        self.context.gate(Call::SetArgument)?;
        for (index, argument) in arguments.iter().enumerate() {
            // SAFETY: index and type are the kernel's, by the caller's promise; values are copied by the call.
            let set = unsafe {
                match argument {
                    Arg::Buffer(buffer) => {
                        let value = (&raw const buffer.raw).cast::<c_void>();
                        set_kernel_arg(raw.0, index as u32, size_of_val(&buffer.raw), value)
                    }
                    Arg::U32(value) => set_kernel_arg(raw.0, index as u32, 4, (&raw const *value).cast::<c_void>()),
                }
            };
            checked(Call::SetArgument, set)?;
        }
        self.context.gate(Call::Launch)?;
        let global = usize::try_from(groups)
            .ok()
            .and_then(|groups| groups.checked_mul(group))
            .ok_or_else(|| OpenClError::Unusable(format!("{groups} work groups of {}", kernel.name())))?;
        // SAFETY: all arguments are set; that the kernel stays inside its buffers is the caller's promise.
        let event = unsafe {
            enqueue_nd_range_kernel(
                self.raw,
                raw.0,
                1,
                std::ptr::null(),
                &raw const global,
                &raw const group,
                0,
                std::ptr::null(),
            )
        };
        forget_event(checked(Call::Launch, event)?);
        Ok(())
    }

    /// Hands what is queued to the device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn flush(&self) -> Result<(), OpenClError> {
        self.context.gate(Call::Flush)?;
        checked(Call::Flush, flush(self.raw))
    }

    /// Waits until everything in the queue is done.
    ///
    /// # Errors
    /// Also reports failures of earlier work. An injected fault is reported after the wait, so that memory may be reused after an error
    /// from here just as after a success: either the work is done or the device is lost.
    pub fn finish(&self) -> Result<(), OpenClError> {
        let verdict = self.context.gate(Call::Finish);
        checked(Call::Finish, finish(self.raw))?;
        verdict
    }
}

impl Queue {
    /// Waits until nothing is in the queue, on the way out of an error: no fault is injected and nothing reported.
    pub(crate) fn wait_out(&self) {
        let _ = finish(self.raw);
    }
}

/// Commands are followed by their queues alone.
fn forget_event(event: cl_event) {
    // SAFETY: the event was returned by an enqueue call, and this is its only reference of ours.
    let _ = unsafe { release_event(event) };
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = finish(self.raw);
        // SAFETY: created by `new`, released once.
        let _ = unsafe { release_command_queue(self.raw) };
        self.context.0.objects.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queue")
    }
}
