//! Lent inputs across the boundary: the host's loan, and [`LentInputs`](crate::LentInputs) rebuilt in a plug-in.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blstrs::Scalar;

use super::types::*;
use super::{copy_sized, quietly};
use crate::error::BackendError;
use crate::host_buf::{ForeignMemory, HostBuf, HostMemory, Origin};
use crate::inputs::{Evaluations, Inputs, Lent, LentEvaluations, LentInputs, Slots};
use crate::key::CircuitShape;
use crate::memory::MemoryClass;

const NONE: SpVector = SpVector { data: std::ptr::null(), len: 0, pool: 0, pooled: 0, reserved: 0 };

/// The host's side of one `start`: holds the loans, so that the plug-in can end them one by one. `ctx` points to it.
pub(super) struct Loan<'i> {
    vectors: Mutex<[Option<Lent<'i>>; 4]>,
}

impl<'i> Loan<'i> {
    pub(super) fn new(inputs: LentInputs<'i>) -> Self {
        let LentInputs { witness, evaluations } = inputs;
        let (a, b, c) = match evaluations {
            Some(LentEvaluations { a, b, c }) => (Some(a), Some(b), c),
            None => (None, None, None),
        };
        Self { vectors: Mutex::new([Some(witness), a, b, c]) }
    }

    fn vectors(&self) -> MutexGuard<'_, [Option<Lent<'i>>; 4]> {
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The struct to pass. Good as long as `self` stays where it is. `pool` translates a pool's number to the plug-in's.
    pub(super) fn view(&self, pool: impl Fn(u64) -> Option<u64>) -> SpInputs {
        let mut view = SpInputs {
            struct_size: size_of::<SpInputs>() as u64,
            ctx: std::ptr::from_ref(self).cast_mut().cast(),
            present: 0,
            reserved: 0,
            vectors: [NONE; 4],
            release: Some(release),
            borrow_mut: Some(borrow_mut),
        };
        for (i, lent) in self.vectors().iter().enumerate() {
            let Some(lent) = lent else { continue };
            let pool = match lent.origin() {
                Origin::Pool(number) => pool(number),
                Origin::Pageable => None,
            };
            view.present |= 1 << i;
            view.vectors[i] = SpVector {
                data: lent.as_ptr().cast(),
                len: lent.len() as u64,
                pool: pool.unwrap_or(0),
                pooled: u32::from(pool.is_some()),
                reserved: 0,
            };
        }
        view
    }
}

/// # Safety
/// `ctx` is that of a [`Loan`] whose `start` hasn't returned.
unsafe extern "C" fn release(ctx: *mut c_void, which: u32) {
    quietly((), || {
        // SAFETY: by the caller's promise. The lifetime of the loans is longer than the call.
        let Some(loan) = (unsafe { ctx.cast::<Loan<'_>>().as_ref() }) else { return };
        let lent = loan.vectors().get_mut(which as usize).and_then(Option::take);
        // Outside the lock: unmapping gigabytes takes a while.
        if let Some(lent) = lent {
            lent.release();
        }
    });
}

/// # Safety
/// As [`release`].
unsafe extern "C" fn borrow_mut(ctx: *mut c_void, which: u32) -> *mut u64 {
    quietly(std::ptr::null_mut(), || {
        // SAFETY: as in `release`.
        let Some(loan) = (unsafe { ctx.cast::<Loan<'_>>().as_ref() }) else { return std::ptr::null_mut() };
        match loan.vectors().get_mut(which as usize) {
            Some(Some(lent)) => lent.make_mut().as_mut_ptr().cast(),
            _ => std::ptr::null_mut(),
        }
    })
}

/// Whether the loan is still on, and how to end its parts.
struct Control {
    on: AtomicBool,
    ctx: *mut c_void,
    release: unsafe extern "C" fn(*mut c_void, u32),
    borrow_mut: unsafe extern "C" fn(*mut c_void, u32) -> *mut u64,
}

// SAFETY: the ABI allows both functions from any thread while the loan is on.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

/// The memory of one lent vector, as a plug-in's buffer. Dropping it while the loan is on releases the vector.
struct LentMemory {
    data: AtomicPtr<u8>,
    bytes: usize,
    which: u32,
    origin: Origin,
    control: Arc<Control>,
}

// SAFETY: the host promises `len` initialised scalars at 64-byte alignment until the loan ends, and nobody else's access
// meanwhile. These values live in `RebuiltLoan`, which its maker keeps in the frame of `start` alone.
unsafe impl ForeignMemory for LentMemory {
    fn as_mut_ptr(&self) -> NonNull<u8> {
        if self.control.on.load(Ordering::Acquire) {
            // SAFETY: the loan is on. The host marks the vector as written to, and gives the pointer to use from now on.
            let writable = unsafe { (self.control.borrow_mut)(self.control.ctx, self.which) };
            if !writable.is_null() {
                self.data.store(writable.cast(), Ordering::Release);
            }
        }
        self.as_ptr()
    }

    fn as_ptr(&self) -> NonNull<u8> {
        NonNull::new(self.data.load(Ordering::Acquire)).expect("checked when the loan was rebuilt")
    }

    fn len_bytes(&self) -> usize {
        self.bytes
    }

    fn pool(&self) -> u64 {
        match self.origin {
            Origin::Pool(number) => number,
            Origin::Pageable => 0,
        }
    }

    fn origin(&self) -> Origin {
        self.origin
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        if self.control.on.load(Ordering::Acquire) {
            // SAFETY: the loan is on, and the vector isn't touched again: its only owner is being dropped.
            unsafe { (self.control.release)(self.control.ctx, self.which) }
        }
    }
}

/// A plug-in's side of one `start`: the slots again, owned by the shim's frame. Dropping it ends the loan; it releases
/// nothing more, because what is left is the host's to free or to hand back.
pub(super) struct RebuiltLoan {
    control: Arc<Control>,
    slots: Slots,
}

impl RebuiltLoan {
    /// Inputs that don't fit the key (its sizes, and whether it has matrices) are refused before anything but their value 0 is
    /// read, so that a length that is wrong does no harm.
    ///
    /// # Safety
    /// `inputs` is what a host passed to `start`, as [`SpInputs`] describes it, and the result is dropped before `start` returns.
    /// Lengths that don't fit may be wrong.
    pub(super) unsafe fn new(
        inputs: *const SpInputs,
        shape: &CircuitShape,
        matrices: bool,
    ) -> Result<Self, BackendError> {
        let refuse = |reason: &str| BackendError::device("inputs across the plug-in boundary", reason);
        // SAFETY: a struct with its size, by the caller's promise.
        let view =
            unsafe { copy_sized(inputs, size_of::<SpInputs>()) }.ok_or_else(|| refuse("no inputs, or short ones"))?;
        let (Some(release), Some(borrow_mut)) = (view.release, view.borrow_mut) else {
            return Err(refuse("no release or no borrow_mut"));
        };
        // Off until everything is built: a vector must not be released because another one is broken.
        let control = Arc::new(Control { on: AtomicBool::new(false), ctx: view.ctx, release, borrow_mut });
        let memory = HostMemory::default();
        let buffer = |which: u32, class: MemoryClass| -> Result<Option<HostBuf<Scalar>>, BackendError> {
            if view.present & (1 << which) == 0 {
                return Ok(None);
            }
            let vector = view.vectors[which as usize];
            let len = usize::try_from(vector.len).map_err(|_| refuse("a length overflows"))?;
            let bytes = len.checked_mul(size_of::<Scalar>()).ok_or_else(|| refuse("a length overflows"))?;
            if vector.data.is_null() || !(vector.data as usize).is_multiple_of(64) || bytes > isize::MAX as usize {
                return Err(refuse("a vector at a null or misaligned address"));
            }
            let origin = if vector.pooled == 1 { Origin::Pool(vector.pool) } else { Origin::Pageable };
            let data = AtomicPtr::new(vector.data.cast_mut().cast());
            let lent = LentMemory { data, bytes, which, origin, control: control.clone() };
            Ok(Some(memory.foreign(class, Box::new(lent), len)?))
        };
        let witness = buffer(SP_VECTOR_WITNESS, MemoryClass::Witness)?.ok_or_else(|| refuse("no witness"))?;
        let a = buffer(SP_VECTOR_A, MemoryClass::Evaluations)?;
        let b = buffer(SP_VECTOR_B, MemoryClass::Evaluations)?;
        let c = buffer(SP_VECTOR_C, MemoryClass::Evaluations)?;
        let inputs = match (a, b, c) {
            (None, None, None) => Inputs::new(witness),
            (Some(a), Some(b), c) => Inputs::with_evaluations(witness, Evaluations { a, b, c }),
            _ => return Err(refuse("one evaluation vector without the other")),
        };
        inputs.check_shape(shape, matrices)?;
        control.on.store(true, Ordering::Release);
        Ok(Self { control, slots: Slots::new(inputs) })
    }

    pub(super) fn lend(&mut self) -> LentInputs<'_> {
        self.slots.lend()
    }
}

impl Drop for RebuiltLoan {
    fn drop(&mut self) {
        self.control.on.store(false, Ordering::Release);
    }
}
