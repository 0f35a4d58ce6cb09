//! Recycling: buffers that go home when they are dropped, and a place to look for them before a new map is made.

use std::ptr::NonNull;

use super::{ForeignMemory, Map, Origin};

/// Where a [`HostMemory`](super::HostMemory) looks for large buffers before it makes new ones.
pub trait BufferPool: Send + Sync {
    /// Memory of at least `bytes` bytes, from [`MAP_THRESHOLD`](super::MAP_THRESHOLD) on; `None`: the caller makes a map of its own.
    /// All of it that is used is overwritten or zeroed first.
    fn take(&self, bytes: usize) -> Option<Box<dyn ForeignMemory>>;
}

/// Takes back the memory of a [`recycled`] buffer.
type Home = Box<dyn FnOnce(Box<dyn ForeignMemory>) + Send + Sync>;

struct Recycled {
    /// `None` only while being dropped.
    memory: Option<Box<dyn ForeignMemory>>,
    /// As `memory`.
    home: Option<Home>,
}

/// Memory that is handed to `home` when it is dropped, instead of going back to its owner.
pub fn recycled(
    memory: Box<dyn ForeignMemory>,
    home: impl FnOnce(Box<dyn ForeignMemory>) + Send + Sync + 'static,
) -> Box<dyn ForeignMemory> {
    Box::new(Recycled { memory: Some(memory), home: Some(Box::new(home)) })
}

impl Recycled {
    fn memory(&self) -> &dyn ForeignMemory {
        self.memory.as_deref().expect("only drop takes the memory")
    }
}

// SAFETY: every promise is that of the memory inside, which this value owns alone until it is dropped, and to which each method
// passes the call on.
unsafe impl ForeignMemory for Recycled {
    fn as_mut_ptr(&self) -> NonNull<u8> {
        self.memory().as_mut_ptr()
    }
    fn as_ptr(&self) -> NonNull<u8> {
        self.memory().as_ptr()
    }
    fn len_bytes(&self) -> usize {
        self.memory().len_bytes()
    }
    fn pool(&self) -> u64 {
        self.memory().pool()
    }
    fn origin(&self) -> Origin {
        self.memory().origin()
    }
}

impl Drop for Recycled {
    fn drop(&mut self) {
        if let (Some(memory), Some(home)) = (self.memory.take(), self.home.take()) {
            home(memory);
        }
    }
}

// SAFETY: an anonymous map of `bytes` zeros that this value owns alone until it is dropped, page-aligned. The pointer was made by
// `mmap`, so it may be written through, whatever the borrow.
unsafe impl ForeignMemory for Map {
    fn as_mut_ptr(&self) -> NonNull<u8> {
        self.address
    }
    fn len_bytes(&self) -> usize {
        self.bytes
    }
    fn pool(&self) -> u64 {
        0
    }
    fn origin(&self) -> Origin {
        Origin::Pageable
    }
}

/// A pageable map of `bytes` zeros that is charged to nobody: what a pool of pageable buffers is made of.
///
/// # Errors
/// What the operating system says.
pub fn pageable(bytes: usize) -> std::io::Result<Box<dyn ForeignMemory>> {
    if bytes == 0 {
        return Err(std::io::Error::other("a map of 0 bytes"));
    }
    Ok(Box::new(Map::new(bytes)?))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::{HostMemory, MemoryClass};

    #[derive(Default)]
    struct Shelf(Arc<Mutex<Vec<Box<dyn ForeignMemory>>>>);

    impl BufferPool for Shelf {
        fn take(&self, bytes: usize) -> Option<Box<dyn ForeignMemory>> {
            let mut shelf = self.0.lock().unwrap();
            let memory = match shelf.iter().position(|m| m.len_bytes() == bytes) {
                Some(at) => shelf.swap_remove(at),
                None => pageable(bytes).unwrap(),
            };
            let home = self.0.clone();
            Some(recycled(memory, move |memory| home.lock().unwrap().push(memory)))
        }
    }

    #[test]
    fn large_buffers_are_used_again_and_begin_as_zeros_or_as_they_were_left() {
        let shelf = Shelf::default();
        let idle = shelf.0.clone();
        let memory = HostMemory::default().drawing_from(Arc::new(shelf));
        let size = super::super::MAP_THRESHOLD;
        let mut first = memory.zeroed::<u8>(MemoryClass::Witness, size).unwrap();
        first.fill(9);
        let address = first.as_ptr();
        assert_eq!(first.origin(), Origin::Pageable);
        drop(first);
        assert_eq!((idle.lock().unwrap().len(), memory.ledger().now().total()), (1, 0));
        let again = memory.overwritten::<u8>(MemoryClass::Witness, size).unwrap();
        assert!(again.as_ptr() == address && again.iter().all(|&b| b == 9));
        assert_eq!(memory.ledger().now()[MemoryClass::Witness], size as u64);
        drop(again);
        let zeroed = memory.zeroed::<u8>(MemoryClass::Witness, size).unwrap();
        assert!(zeroed.as_ptr() == address && zeroed.iter().all(|&b| b == 0));
        // Small ones don't come from a pool.
        let small = memory.zeroed::<u8>(MemoryClass::Witness, size - 1).unwrap();
        drop((zeroed, small));
        assert_eq!(idle.lock().unwrap().len(), 1);
    }
}
