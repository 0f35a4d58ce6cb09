//! Host memory to the device: a pool of page-locked buffers, and a page-locked ring for memory that isn't.
//!
//! A buffer of the [`PinnedPool`] is read by the card directly; whoever queues that waits for the copy before the buffer may go. Any other
//! memory is copied, in chunks and by several threads, into a ring that the card reads; it may go as soon as its last chunk is in
//! the ring. No copy ever reads the caller's memory after the function that was given it returns.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use splitprover_core::host_buf::{ForeignMemory, HostBuf, HostElement, HostMemory};
use splitprover_core::memory::Charge;
use splitprover_core::{MemoryClass, MemoryLedger};

use crate::driver::{Context, CudaError, DevicePtr, Event, PinnedBuf, Stream};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The states behind these locks are lists of whole buffers: right at every moment a panic could strike.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Page-locked host buffers, kept for reuse: inputs that are born in one are uploaded at full speed.
#[derive(Clone, Debug)]
pub struct PinnedPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    context: Context,
    identity: u64,
    idle: Mutex<Vec<(PinnedBuf, Option<Charge>)>>,
    ledger: Mutex<Option<MemoryLedger>>,
}

impl PinnedPool {
    /// An empty pool.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        // Unlikely to meet another library's numbering.
        static NEXT: AtomicU64 = AtomicU64::new(0xc0da_0000_0000_0001);
        let identity = NEXT.fetch_add(1, Ordering::Relaxed);
        let pool = Pool { context: context.clone(), identity, idle: Mutex::default(), ledger: Mutex::default() };
        Self(Arc::new(pool))
    }

    /// From now on idle buffers are charged to `ledger` as [`MemoryClass::PoolIdle`]; one that it refuses is freed.
    pub fn account_to(&self, ledger: &MemoryLedger) {
        *lock(&self.0.ledger) = Some(ledger.clone());
    }

    /// The number that buffers of this pool carry as their origin.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.0.identity
    }

    /// A buffer of `len` elements, charged to `memory`'s ledger as `class`. Its contents are whatever its last use left.
    ///
    /// # Errors
    /// Page-locked memory ran out, or the ledger refused.
    pub fn buffer<T: HostElement>(
        &self,
        memory: &HostMemory,
        class: MemoryClass,
        len: usize,
    ) -> Result<HostBuf<T>, PoolError> {
        let lease = self.lease(len.saturating_mul(size_of::<T>()))?;
        memory.foreign(class, lease, len).map_err(PoolError::Refused)
    }

    /// At least `bytes` bytes, charged to nobody.
    ///
    /// # Errors
    /// Page-locked memory ran out.
    pub fn lease(&self, bytes: usize) -> Result<Box<dyn ForeignMemory>, CudaError> {
        Ok(Box::new(Lease { buffer: Some(self.0.take(bytes.max(1))?), pool: self.0.clone() }))
    }

    /// Frees all idle buffers.
    pub fn trim(&self) {
        lock(&self.0.idle).clear();
    }

    /// Bytes of idle buffers.
    #[must_use]
    pub fn idle_bytes(&self) -> u64 {
        lock(&self.0.idle).iter().map(|(buffer, _)| buffer.bytes() as u64).sum()
    }
}

/// Why a pool gave no buffer.
#[derive(Debug)]
pub enum PoolError {
    /// The driver gave no memory.
    Cuda(CudaError),
    /// The ledger refused.
    Refused(splitprover_core::memory::OutOfHostMemory),
}

impl From<CudaError> for PoolError {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

impl std::fmt::Display for PoolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cuda(error) => error.fmt(f),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PoolError {}

impl Pool {
    /// The smallest idle buffer that is large enough and no more than twice as large, else a new one.
    fn take(&self, bytes: usize) -> Result<PinnedBuf, CudaError> {
        {
            let mut idle = lock(&self.idle);
            let fitting = idle.iter().enumerate().filter(|(_, (b, _))| b.bytes() >= bytes && b.bytes() / 2 <= bytes);
            if let Some(index) = fitting.min_by_key(|(_, (b, _))| b.bytes()).map(|(index, _)| index) {
                return Ok(idle.swap_remove(index).0);
            }
        }
        PinnedBuf::alloc(&self.context, bytes)
    }

    fn give_back(&self, buffer: PinnedBuf) {
        let ledger = lock(&self.ledger).clone();
        let charge = match ledger.map(|ledger| ledger.charge(MemoryClass::PoolIdle, buffer.bytes() as u64)) {
            None => None,
            Some(Ok(charge)) => Some(charge),
            Some(Err(_)) => return,
        };
        lock(&self.idle).push((buffer, charge));
    }
}

/// A pool's buffer in use.
struct Lease {
    /// `None` only while being dropped.
    buffer: Option<PinnedBuf>,
    pool: Arc<Pool>,
}

// SAFETY: the buffer's memory is page-aligned, was zeroed at its birth, stays allocated until `drop` has handed it back, and isn't
// touched through the pool while it's leased.
unsafe impl ForeignMemory for Lease {
    fn as_mut_ptr(&self) -> NonNull<u8> {
        self.buffer.as_ref().and_then(|buffer| NonNull::new(buffer.as_ptr())).unwrap_or(NonNull::dangling())
    }

    fn len_bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, PinnedBuf::bytes)
    }

    fn pool(&self) -> u64 {
        self.pool.identity
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.give_back(buffer);
        }
    }
}

/// Bytes of one chunk of the ring.
const CHUNK: usize = 4 << 20;

/// The ring through which pageable memory goes to the device.
#[derive(Debug)]
pub struct Uploader {
    slots: Mutex<Vec<Slot>>,
    threads: usize,
    _charge: Charge,
}

#[derive(Debug)]
struct Slot {
    buffer: PinnedBuf,
    /// Fires when the card has read the chunk.
    read: Event,
}

impl Uploader {
    /// A ring filled by up to `threads` threads, two chunks for each, charged to `ledger` as [`MemoryClass::Staging`].
    ///
    /// # Errors
    /// Page-locked memory ran out, or the ledger refused it.
    pub fn new(context: &Context, threads: usize, ledger: &MemoryLedger) -> Result<Self, CudaError> {
        let threads = threads.clamp(1, 16);
        let charge = ledger.charge(MemoryClass::Staging, (2 * threads * CHUNK) as u64)?;
        let slots = (0..2 * threads)
            .map(|_| Ok(Slot { buffer: PinnedBuf::alloc(context, CHUNK)?, read: Event::new(context, false)? }))
            .collect::<Result<_, CudaError>>()?;
        Ok(Self { slots: Mutex::new(slots), threads, _charge: charge })
    }

    /// Queues the upload of `source` on `stream`. On return `source` has been read and may go; the copy from the ring may still be
    /// under way.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// `to` must be allocated for `source.len()` bytes until the stream has passed this work.
    pub unsafe fn upload(&self, stream: &Stream, to: DevicePtr, source: &[u8]) -> Result<(), CudaError> {
        let fill = |at: usize, chunk: &mut [u8]| chunk.copy_from_slice(&source[at..at + chunk.len()]);
        // SAFETY: our caller's promise.
        unsafe { self.upload_filled(stream, to, source.len(), 1, fill) }
    }

    /// As [`upload`](Self::upload), for `bytes` bytes that `fill(offset, chunk)` writes chunk by chunk, in any order and from several
    /// threads; chunks are whole multiples of `unit` bytes.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// `to` must be allocated for `bytes` bytes until the stream has passed this work.
    pub unsafe fn upload_filled(
        &self,
        stream: &Stream,
        to: DevicePtr,
        bytes: usize,
        unit: usize,
        fill: impl Fn(usize, &mut [u8]) + Sync,
    ) -> Result<(), CudaError> {
        let mut slots = lock(&self.slots);
        let step = CHUNK / unit * unit;
        let chunks = bytes.div_ceil(step);
        let next = AtomicU64::new(0);
        let work = |pair: &mut [Slot]| -> Result<(), CudaError> {
            for turn in 0.. {
                let chunk = next.fetch_add(1, Ordering::Relaxed) as usize;
                if chunk >= chunks {
                    break;
                }
                let slot = &mut pair[turn % 2];
                slot.read.synchronise()?;
                let at = chunk * step;
                let part = step.min(bytes - at);
                fill(at, &mut slot.buffer.as_mut_slice()[..part]);
                // SAFETY: the slot isn't written again before its event has fired; the target is our caller's promise.
                let queued = unsafe { stream.upload(to.add(at as u64), slot.buffer.as_ptr(), part as u64) };
                queued.and_then(|()| stream.record(&slot.read)).inspect_err(|_| {
                    // Without its event the slot would look free while the card still reads it.
                    let _ = stream.synchronise();
                })?;
            }
            Ok(())
        };
        if chunks <= 2 {
            return work(&mut slots[..2]);
        }
        let threads = self.threads.min(chunks.div_ceil(2));
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                slots.chunks_exact_mut(2).take(threads).map(|pair| scope.spawn(|| work(pair))).collect();
            let mut verdict = Ok(());
            for worker in workers {
                match worker.join() {
                    Ok(result) => verdict = verdict.and(result),
                    Err(payload) => std::panic::resume_unwind(payload),
                }
            }
            verdict
        })
    }
}

impl Drop for Uploader {
    fn drop(&mut self) {
        for slot in lock(&self.slots).iter() {
            let _ = slot.read.synchronise();
        }
    }
}

/// Waits for a stream when dropped: held while the card reads memory that is only borrowed, so that the borrow can't end first, not on
/// an error and not in a panic.
#[derive(Debug)]
pub struct WaitOnDrop<'a>(pub &'a Stream);

impl Drop for WaitOnDrop<'_> {
    fn drop(&mut self) {
        let _ = self.0.synchronise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{DeviceBuf, FaultPlan, Priority};

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn pageable_memory_arrives_whole_whatever_its_size() {
        let context = Context::dry(1 << 30);
        let stream = Stream::new(&context, Priority::Normal).unwrap();
        let uploader = Uploader::new(&context, 3, &MemoryLedger::default()).unwrap();
        for bytes in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 17] {
            let source = pattern(bytes);
            let target = DeviceBuf::alloc(&context, bytes as u64).unwrap();
            let mut back = vec![0u8; bytes];
            // SAFETY: all three buffers are alive and long enough.
            unsafe {
                uploader.upload(&stream, target.ptr(), &source).unwrap();
                stream.download(back.as_mut_ptr(), target.ptr(), bytes as u64).unwrap();
            }
            assert!(back == source, "{bytes} bytes");
        }
    }

    #[test]
    fn chunks_are_whole_records() {
        let context = Context::dry(1 << 30);
        let stream = Stream::new(&context, Priority::Normal).unwrap();
        let uploader = Uploader::new(&context, 2, &MemoryLedger::default()).unwrap();
        let bytes = 192 * 50_001;
        let target = DeviceBuf::alloc(&context, bytes as u64).unwrap();
        let fill = |at: usize, chunk: &mut [u8]| {
            assert!(at.is_multiple_of(192) && chunk.len().is_multiple_of(192));
            chunk.fill((at / 192) as u8);
        };
        // SAFETY: the target is long enough.
        unsafe { uploader.upload_filled(&stream, target.ptr(), bytes, 192, fill).unwrap() };
    }

    #[test]
    fn a_failure_at_any_call_is_reported_and_leaves_a_ring_that_works() {
        let context = Context::dry(1 << 30);
        let stream = Stream::new(&context, Priority::Normal).unwrap();
        let uploader = Uploader::new(&context, 2, &MemoryLedger::default()).unwrap();
        let source = pattern(5 * CHUNK);
        let target = DeviceBuf::alloc(&context, source.len() as u64).unwrap();
        let mut at = 0;
        loop {
            at += 1;
            context.faults().arm(FaultPlan { at, only: None, lost: false });
            // SAFETY: the target is long enough.
            let result = unsafe { uploader.upload(&stream, target.ptr(), &source) };
            if !context.faults().disarm() {
                result.unwrap();
                break;
            }
            assert!(result.is_err(), "call {at}");
        }
        assert!(at > 15, "{at}");
    }

    #[test]
    fn buffers_return_to_the_pool_and_are_accounted() {
        let context = Context::dry(1 << 30);
        let pool = PinnedPool::new(&context);
        let ledger = MemoryLedger::new(None);
        pool.account_to(&ledger);
        let memory = HostMemory::new(ledger.clone());
        let buffer = pool.buffer::<u64>(&memory, MemoryClass::Witness, 1000).unwrap();
        assert_eq!(buffer.origin(), splitprover_core::host_buf::Origin::Pool(pool.identity()));
        assert_eq!((ledger.now()[MemoryClass::Witness], ledger.now().total()), (8000, 8000));
        drop(buffer);
        assert_eq!((ledger.now()[MemoryClass::PoolIdle], ledger.now().total()), (8000, 8000));
        let again = pool.buffer::<u64>(&memory, MemoryClass::Witness, 900).unwrap();
        assert_eq!(context.live().pinned_bytes, 8000, "reused");
        drop(again);
        pool.trim();
        assert_eq!((ledger.now().total(), context.live().pinned_bytes), (0, 0));
    }
}
