//! Streams and events: order between pieces of device work, and the only ways to wait for them.

use std::sync::atomic::Ordering;

use super::{Call, Context, CudaError, DevicePtr};

/// Which work the card prefers when both are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Bulk work.
    Normal,
    /// Work that others wait for.
    High,
    /// Short work that the host waits for.
    Urgent,
}

/// A queue of device work. Dropping it waits for what is in it.
pub struct Stream {
    context: Context,
    raw: usize,
}

impl Stream {
    /// A stream that doesn't synchronise with the default one.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn new(context: &Context, priority: Priority) -> Result<Self, CudaError> {
        context.gate(Call::CreateStream)?;
        let raw = context.api().create_stream(priority)?;
        context.0.objects.fetch_add(1, Ordering::Relaxed);
        Ok(Self { context: context.clone(), raw })
    }

    /// The context it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn raw(&self) -> usize {
        self.raw
    }

    /// Waits until everything in the stream is done.
    ///
    /// # Errors
    /// Also reports failures of earlier asynchronous work. An injected fault is reported after the wait, so that memory may be
    /// reused after an error from here just as after a success: either the work is done or the context is dead.
    pub fn synchronise(&self) -> Result<(), CudaError> {
        let verdict = self.context.gate(Call::Synchronise);
        self.context.api().synchronise(self.raw)?;
        verdict
    }

    /// Whether everything in the stream is done; doesn't wait.
    ///
    /// # Errors
    /// Reports failures of earlier asynchronous work.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        self.context.api().stream_is_idle(self.raw)
    }

    /// Later work in this stream waits for `event`.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.context.gate(Call::WaitEvent)?;
        self.context.api().wait_event(self.raw, event.raw)
    }

    /// `event` fires when the work queued so far is done.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        self.context.gate(Call::RecordEvent)?;
        self.context.api().record_event(event.raw, self.raw)
    }

    /// Queues a copy of `bytes` from host memory to the device.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// `source` must be readable and unwritten, and `target` allocated, until the stream has passed this copy.
    pub unsafe fn upload(&self, target: DevicePtr, source: *const u8, bytes: u64) -> Result<(), CudaError> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.gate(Call::Copy)?;
        // SAFETY: handed on from our caller.
        unsafe { self.context.api().copy_to_device(target.0, source, bytes, self.raw) }
    }

    /// Queues a copy of `bytes` from the device to host memory.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// `target` must be writable and otherwise untouched, and `source` allocated, until the stream has passed this copy.
    pub unsafe fn download(&self, target: *mut u8, source: DevicePtr, bytes: u64) -> Result<(), CudaError> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.gate(Call::Copy)?;
        // SAFETY: handed on from our caller.
        unsafe { self.context.api().copy_to_host(target, source.0, bytes, self.raw) }
    }

    /// Queues a copy within device memory.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// Both ranges must stay allocated until the stream has passed this copy, and not overlap.
    pub unsafe fn copy(&self, target: DevicePtr, source: DevicePtr, bytes: u64) -> Result<(), CudaError> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.gate(Call::Copy)?;
        // SAFETY: handed on from our caller.
        unsafe { self.context.api().copy_on_device(target.0, source.0, bytes, self.raw) }
    }

    /// Queues filling `bytes` of device memory with `value`.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// The range must stay allocated until the stream has passed this.
    pub unsafe fn fill(&self, target: DevicePtr, value: u8, bytes: u64) -> Result<(), CudaError> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.gate(Call::Fill)?;
        // SAFETY: handed on from our caller.
        unsafe { self.context.api().fill(target.0, value, bytes, self.raw) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Owners of memory that this stream uses drop the stream first; so the wait belongs here and not in each of them.
        let _ = self.context.api().synchronise(self.raw);
        self.context.api().destroy_stream(self.raw);
        self.context.0.objects.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({:#x})", self.raw)
    }
}

/// A point in a stream that others can wait for.
pub struct Event {
    context: Context,
    raw: usize,
}

impl Event {
    /// An event for ordering; `timed` ones also carry a time stamp.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn new(context: &Context, timed: bool) -> Result<Self, CudaError> {
        context.gate(Call::CreateEvent)?;
        let raw = context.api().create_event(timed)?;
        context.0.objects.fetch_add(1, Ordering::Relaxed);
        Ok(Self { context: context.clone(), raw })
    }

    /// Waits until the event has fired (at once if it was never recorded).
    ///
    /// # Errors
    /// Also reports failures of earlier asynchronous work; an injected fault is reported after the wait.
    pub fn synchronise(&self) -> Result<(), CudaError> {
        let verdict = self.context.gate(Call::Synchronise);
        self.context.api().synchronise_event(self.raw)?;
        verdict
    }

    /// Milliseconds from `earlier` to this event; both timed, recorded and done.
    ///
    /// # Errors
    /// Whatever the driver reports, for one when an event isn't done.
    pub fn milliseconds_since(&self, earlier: &Self) -> Result<f32, CudaError> {
        self.context.api().elapsed(earlier.raw, self.raw)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.context.api().destroy_event(self.raw);
        self.context.0.objects.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({:#x})", self.raw)
    }
}
