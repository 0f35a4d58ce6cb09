//! Host buffers that are really gone when they are dropped.
//!
//! This is the crate's island of `unsafe`. A [`HostBuf`] is charged to a [`MemoryLedger`] from its birth to its drop. From
//! 1 MiB on it is an anonymous map of its own, because allocators keep freed blocks and "freed" must show in the
//! process's resident memory; or it belongs to a backend's pool ([`ForeignMemory`], pinned memory for instance).
//!
//! Two test modes catch a backend that reads inputs after `start`: [`Disposal::Poison`] overwrites a buffer before it is
//! freed, so that a late DMA gives a wrong sum; [`Disposal::Guard`] makes its pages inaccessible and keeps the range
//! reserved, so that a late read by the CPU faults.
#![allow(unsafe_code)]

mod allocator;
mod recycle;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use blstrs::Scalar;

use crate::memory::{Charge, MemoryClass, MemoryLedger, OutOfHostMemory};

pub use allocator::map_large_blocks;
pub use recycle::{BufferPool, pageable, recycled};

/// Buffers of this many bytes and more are maps of their own.
pub const MAP_THRESHOLD: usize = 1 << 20;

/// The byte that [`Disposal::Poison`] leaves behind.
pub const POISON: u8 = 0xa5;

mod sealed {
    /// # Safety
    /// Any bytes, zeros among them, are a valid value without padding, and alignment is at most 64.
    pub unsafe trait Plain: Copy + Send + Sync + 'static {}
}

/// Element types of a [`HostBuf`]: plain data for which any bytes are a valid value.
pub trait HostElement: sealed::Plain {}

// SAFETY: a transparent wrapper of `blst_fr`, four u64 limbs. A pattern of r or more is a wrong number, not undefined
// behaviour.
unsafe impl sealed::Plain for Scalar {}
impl HostElement for Scalar {}
// SAFETY: an integer.
unsafe impl sealed::Plain for u8 {}
impl HostElement for u8 {}
// SAFETY: an integer.
unsafe impl sealed::Plain for u32 {}
impl HostElement for u32 {}
// SAFETY: an integer.
unsafe impl sealed::Plain for u64 {}
impl HostElement for u64 {}

/// What happens to a buffer's memory when it is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disposal {
    /// It is freed.
    #[default]
    Free,
    /// It is overwritten with [`POISON`], then freed. For tests.
    Poison,
    /// Its pages give up their memory and become inaccessible; the address range stays reserved for the life of the process.
    /// For tests, in a child process: a late read is a fault. Doesn't apply to [`ForeignMemory`], which is poisoned instead.
    Guard,
}

/// Memory that someone else owns and takes back on drop: a pool of pinned buffers, or a host across the C ABI.
///
/// # Safety
/// From construction to drop, `len_bytes` doesn't change, and that many bytes from what `as_mut_ptr` and `as_ptr` return are
/// initialised, valid for reads and writes, aligned to 64 bytes, and accessed through this value alone. Both give the same
/// memory: what was written through the one is read through the other.
pub unsafe trait ForeignMemory: Send + Sync {
    /// First byte, to write to. Called anew for each exclusive borrow, so an owner that must know about writes learns of them.
    fn as_mut_ptr(&self) -> NonNull<u8>;
    /// First byte, to read from.
    fn as_ptr(&self) -> NonNull<u8> {
        self.as_mut_ptr()
    }
    /// Length in bytes.
    fn len_bytes(&self) -> usize;
    /// Identifies the pool, so that a backend recognises memory of its own.
    fn pool(&self) -> u64;
    /// What [`HostBuf::origin`] says. Memory of another process part that is lent, not pooled, is pageable.
    fn origin(&self) -> Origin {
        Origin::Pool(self.pool())
    }
}

/// Where a buffer's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The process's own pageable memory.
    Pageable,
    /// A pool's, by [`ForeignMemory::pool`].
    Pool(u64),
}

/// A source of host buffers: a ledger to charge, what happens to the memory in the end, and perhaps a pool to draw from.
#[derive(Clone, Default)]
pub struct HostMemory {
    ledger: MemoryLedger,
    disposal: Disposal,
    pool: Option<Arc<dyn BufferPool>>,
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pooled = self.pool.is_some();
        write!(f, "HostMemory({:?}, {:?}, pool: {pooled})", self.ledger, self.disposal)
    }
}

impl HostMemory {
    /// Buffers charged to `ledger`.
    pub fn new(ledger: MemoryLedger) -> Self {
        Self { ledger, disposal: Disposal::Free, pool: None }
    }

    /// The same ledger and pool with another disposal.
    pub fn with_disposal(&self, disposal: Disposal) -> Self {
        Self { disposal, ..self.clone() }
    }

    /// The same ledger, with buffers of [`MAP_THRESHOLD`] bytes and more from `pool`.
    #[must_use]
    pub fn drawing_from(&self, pool: Arc<dyn BufferPool>) -> Self {
        Self { pool: Some(pool), ..self.clone() }
    }

    /// The ledger.
    pub fn ledger(&self) -> &MemoryLedger {
        &self.ledger
    }

    /// A buffer of `len` zeros.
    ///
    /// # Errors
    /// [`OutOfHostMemory`] if the ledger or the operating system refuses.
    pub fn zeroed<T: HostElement>(&self, class: MemoryClass, len: usize) -> Result<HostBuf<T>, OutOfHostMemory> {
        if let Some(mut recycled) = self.pooled::<T>(class, len)? {
            let bytes = recycled.bytes();
            // SAFETY: the elements are `bytes` contiguous bytes, exclusively borrowed, and any bytes are a valid `T`.
            unsafe { <[T]>::as_mut_ptr(&mut recycled).cast::<u8>().write_bytes(0, bytes) };
            return Ok(recycled);
        }
        self.fresh(class, len)
    }

    /// A buffer of `len` elements of unspecified value, for a caller that writes all of them: it may be a recycled one of the pool.
    ///
    /// # Errors
    /// As [`zeroed`](Self::zeroed).
    pub fn overwritten<T: HostElement>(&self, class: MemoryClass, len: usize) -> Result<HostBuf<T>, OutOfHostMemory> {
        match self.pooled(class, len)? {
            Some(recycled) => Ok(recycled),
            None => self.fresh(class, len),
        }
    }

    fn pooled<T: HostElement>(&self, class: MemoryClass, len: usize) -> Result<Option<HostBuf<T>>, OutOfHostMemory> {
        let Some(pool) = &self.pool else { return Ok(None) };
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes >= MAP_THRESHOLD);
        // A size that overflows is refused where a fresh buffer is made.
        let Some(memory) = bytes.and_then(|bytes| pool.take(bytes)) else { return Ok(None) };
        self.foreign(class, memory, len).map(Some)
    }

    fn fresh<T: HostElement>(&self, class: MemoryClass, len: usize) -> Result<HostBuf<T>, OutOfHostMemory> {
        let refuse = |requested: u64, reason: String| OutOfHostMemory { class, requested, reason };
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(|| refuse(u64::MAX, format!("{len} elements overflow the address space")))?;
        let charge = self.ledger.charge(class, bytes as u64)?;
        let guard = self.disposal == Disposal::Guard && bytes > 0;
        let memory = if bytes >= MAP_THRESHOLD || guard {
            Memory::Map(Map::new(bytes).map_err(|e| refuse(bytes as u64, e.to_string()))?)
        } else {
            let mut heap = Vec::new();
            heap.try_reserve_exact(bytes.div_ceil(64)).map_err(|e| refuse(bytes as u64, e.to_string()))?;
            heap.resize(bytes.div_ceil(64), Line([0; 64]));
            Memory::Heap(heap.into_boxed_slice())
        };
        Ok(HostBuf { memory, len, disposal: self.disposal, charge: Some(charge), element: std::marker::PhantomData })
    }

    /// A buffer with a copy of `values`.
    ///
    /// # Errors
    /// As [`zeroed`](Self::zeroed).
    pub fn copy_of<T: HostElement>(&self, class: MemoryClass, values: &[T]) -> Result<HostBuf<T>, OutOfHostMemory> {
        let mut buffer = self.overwritten(class, values.len())?;
        buffer.copy_from_slice(values);
        Ok(buffer)
    }

    /// A buffer of `len` elements in foreign memory, charged while it lives. It begins with whatever the memory holds: a pool
    /// that serves several parties wipes its memory itself.
    ///
    /// # Errors
    /// [`OutOfHostMemory`] if the ledger refuses or the memory is too short or misaligned; the memory goes back to its owner.
    pub fn foreign<T: HostElement>(
        &self,
        class: MemoryClass,
        memory: Box<dyn ForeignMemory>,
        len: usize,
    ) -> Result<HostBuf<T>, OutOfHostMemory> {
        let bytes = memory.len_bytes();
        let needed = len.checked_mul(size_of::<T>()).map_or(u64::MAX, |needed| needed as u64);
        let refuse = |reason: String| Err(OutOfHostMemory { class, requested: needed, reason });
        if needed > bytes as u64 {
            return refuse(format!("the foreign buffer has {bytes} bytes"));
        }
        // Its owner vouches for the alignment; across a C ABI that is worth a look.
        if !(memory.as_ptr().as_ptr() as usize).is_multiple_of(64) {
            return refuse("the foreign buffer is not aligned to 64 bytes".into());
        }
        let charge = Some(self.ledger.charge(class, bytes as u64)?);
        Ok(HostBuf {
            memory: Memory::Foreign(memory),
            len,
            disposal: self.disposal,
            charge,
            element: std::marker::PhantomData,
        })
    }
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

enum Memory {
    Heap(Box<[Line]>),
    Map(Map),
    Foreign(Box<dyn ForeignMemory>),
}

/// A buffer of plain elements that is charged to a ledger and gone when dropped. Aligned to 64 bytes. Not `Clone`.
pub struct HostBuf<T: HostElement> {
    memory: Memory,
    len: usize,
    disposal: Disposal,
    charge: Option<Charge>,
    element: std::marker::PhantomData<T>,
}

impl<T: HostElement> HostBuf<T> {
    fn pointer(&self) -> NonNull<u8> {
        match &self.memory {
            Memory::Heap(lines) => NonNull::from(&**lines).cast(),
            Memory::Map(map) => map.address,
            Memory::Foreign(memory) => memory.as_ptr(),
        }
    }

    fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Where the memory comes from.
    pub fn origin(&self) -> Origin {
        match &self.memory {
            Memory::Foreign(memory) => memory.origin(),
            _ => Origin::Pageable,
        }
    }

    /// The class charged.
    pub fn class(&self) -> Option<MemoryClass> {
        self.charge.as_ref().map(Charge::class)
    }
}

impl<T: HostElement> Deref for HostBuf<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `pointer` is aligned to 64 bytes and valid for `len` elements: each kind of memory was made or checked
        // for at least `len * size_of::<T>()` initialised bytes, any bytes are a valid `T`, and nobody writes while
        // `self` is borrowed. For an empty buffer the pointer is still aligned and not null.
        unsafe { std::slice::from_raw_parts(self.pointer().cast().as_ptr(), self.len) }
    }
}

impl<T: HostElement> DerefMut for HostBuf<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let pointer = match &mut self.memory {
            Memory::Heap(lines) => NonNull::from(&mut **lines).cast::<u8>(),
            Memory::Map(map) => map.address,
            Memory::Foreign(memory) => memory.as_mut_ptr(),
        };
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive, and the pointer was derived mutably.
        unsafe { std::slice::from_raw_parts_mut(pointer.cast().as_ptr(), self.len) }
    }
}

impl<T: HostElement> fmt::Debug for HostBuf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuf({} elements, {:?})", self.len, self.origin())
    }
}

impl<T: HostElement> Drop for HostBuf<T> {
    fn drop(&mut self) {
        let foreign = matches!(self.memory, Memory::Foreign(_));
        match self.disposal {
            Disposal::Free => {}
            Disposal::Guard if !foreign => {
                if let Memory::Map(map) = &mut self.memory {
                    map.guard();
                }
            }
            Disposal::Poison | Disposal::Guard => {
                let bytes = self.bytes();
                let first = <[T]>::as_mut_ptr(self).cast::<u8>();
                // SAFETY: the elements are `bytes` contiguous bytes, exclusively borrowed, and any bytes are a valid `T`.
                // Volatile, so that the writes aren't elided although the memory is freed next.
                (0..bytes).for_each(|i| unsafe { first.add(i).write_volatile(POISON) });
            }
        }
        // The memory goes before the charge, so that the ledger never shows less than there is.
        self.memory = Memory::Heap(Box::default());
    }
}

/// An anonymous private map.
struct Map {
    address: NonNull<u8>,
    bytes: usize,
    guarded: bool,
}

// SAFETY: the map is plain memory that this value alone owns; it isn't tied to a thread.
unsafe impl Send for Map {}
// SAFETY: a shared `Map` gives no access to the memory but through `HostBuf`'s shared borrows.
unsafe impl Sync for Map {}

impl Map {
    fn new(bytes: usize) -> std::io::Result<Self> {
        // SAFETY: a fresh anonymous map at an address of the kernel's choice touches no existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast::<u8>()).ok_or_else(|| std::io::Error::other("mmap returned null"))?;
        if bytes >= 4 << 20 {
            // Fewer page faults at first touch. A hint: failure changes nothing.
            // SAFETY: the range is the map just made; the advice doesn't change its contents.
            unsafe { libc::madvise(address.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(Self { address, bytes, guarded: false })
    }

    /// Gives the pages back and makes the range inaccessible, for ever.
    fn guard(&mut self) {
        self.guarded = true;
        // SAFETY: the range is this map's, and `&mut self` says that nobody borrows it. Mapping over it replaces the pages
        // by inaccessible ones in one step; the range stays reserved because `drop` doesn't unmap a guarded map.
        let address = unsafe {
            libc::mmap(
                self.address.as_ptr().cast(),
                self.bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert!(address != libc::MAP_FAILED, "a guard map could not be made: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if !self.guarded {
            // SAFETY: the range is exactly the map made in `new`, unmapped once, and no borrow of it outlives `self`.
            unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn buffers_of_all_sizes_start_as_zeros_and_are_charged() {
        let memory = HostMemory::default();
        for bytes in [0, 1, 63, 64, 65, MAP_THRESHOLD - 1, MAP_THRESHOLD, MAP_THRESHOLD + 1, 5 << 20] {
            let mut buffer = memory.zeroed::<u8>(MemoryClass::Witness, bytes).unwrap();
            assert!(buffer.len() == bytes && buffer.iter().all(|&b| b == 0));
            assert_eq!(buffer.as_ptr() as usize % 64, 0);
            buffer.fill(7);
            assert!(buffer.iter().all(|&b| b == 7));
            assert_eq!(memory.ledger().now()[MemoryClass::Witness], bytes as u64);
        }
        assert_eq!(memory.ledger().now().total(), 0);
        assert!(memory.zeroed::<Scalar>(MemoryClass::Witness, usize::MAX / 8).is_err());
        assert!(memory.zeroed::<u8>(MemoryClass::Witness, isize::MAX as usize).is_err());
        assert_eq!(memory.ledger().now().total(), 0);
    }

    struct Shared(Arc<Mutex<Vec<Line>>>);

    // SAFETY: the vector is kept alive, is not resized, and is only looked at by the test after the drop.
    unsafe impl ForeignMemory for Shared {
        fn as_mut_ptr(&self) -> NonNull<u8> {
            NonNull::new(self.0.lock().unwrap().as_mut_ptr()).unwrap().cast()
        }
        fn len_bytes(&self) -> usize {
            128
        }
        fn pool(&self) -> u64 {
            42
        }
    }

    #[test]
    fn foreign_memory_is_poisoned_and_goes_back() {
        let lines = Arc::new(Mutex::new(vec![Line([1; 64]); 2]));
        for (disposal, expected) in [(Disposal::Free, 1), (Disposal::Poison, POISON), (Disposal::Guard, POISON)] {
            let memory = HostMemory::default().with_disposal(disposal);
            let foreign = Box::new(Shared(lines.clone()));
            let buffer = memory.foreign::<u8>(MemoryClass::Staging, foreign, 128).unwrap();
            assert_eq!(buffer.origin(), Origin::Pool(42));
            assert_eq!(memory.ledger().now().total(), 128);
            drop(buffer);
            assert_eq!(Arc::strong_count(&lines), 1);
            assert!(lines.lock().unwrap().iter().all(|line| line.0 == [expected; 64]));
        }
        let memory = HostMemory::default();
        assert!(memory.foreign::<u8>(MemoryClass::Staging, Box::new(Shared(lines.clone())), 129).is_err());
        assert_eq!((Arc::strong_count(&lines), memory.ledger().now().total()), (1, 0));
    }

    #[test]
    fn a_guarded_range_stays_reserved_and_inaccessible() {
        let memory = HostMemory::default().with_disposal(Disposal::Guard);
        let buffer = memory.zeroed::<u8>(MemoryClass::Witness, 5000).unwrap();
        let address = buffer.as_ptr() as usize;
        drop(buffer);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps
            .lines()
            .find(|line| {
                let (range, _) = line.split_once(' ').unwrap();
                let (from, to) = range.split_once('-').unwrap();
                let parse = |x| usize::from_str_radix(x, 16).unwrap();
                (parse(from)..parse(to)).contains(&address)
            })
            .expect("the range is still mapped");
        assert!(line.contains(" ---p "), "{line}");
    }
}
