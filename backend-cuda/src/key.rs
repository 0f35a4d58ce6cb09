//! A key in device memory.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use splitprover_core::memory::Charge;
use splitprover_core::point::PointRecord;
use splitprover_core::{MemoryClass, ProvingKey, Query};

use crate::device::Instance;
use crate::driver::{CudaError, DeviceBuf, DevicePtr, Event, PinnedBuf, Priority, Stream};
use crate::msm::Segment;
use crate::ntt::{Quotient, SCALAR};
use crate::residency::{QueryId, Residency, Sizes, SumId};
use crate::vector::{DeviceMatrix, bytes_of_u32};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Lists of whole objects: right at every moment a panic could strike.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A loaded key. Streams come first among the fields: they are dropped, and so waited for, before the memory they work on.
pub(crate) struct DeviceKey {
    slots: Mutex<VecDeque<Slot>>,
    slot_free: Condvar,
    outboxes: Mutex<Vec<Outbox>>,
    /// Fires when the additions of H and L of the last long proof that was queued are done.
    last_added: Mutex<Option<Arc<Event>>>,
    pub(crate) matrices: Option<[DeviceMatrix; 2]>,
    queries: [DeviceQuery; 5],
    pub(crate) quotient: Quotient,
    pub(crate) sizes: Sizes,
    pub(crate) residency: Residency,
    /// Bases that aren't resident are read from here.
    pub(crate) host: Arc<ProvingKey>,
    pub(crate) instance: Arc<Instance>,
}

/// The resident part of a query.
struct DeviceQuery {
    bases: DeviceBuf,
    /// Variable of each base, for all bases, where not every variable has one.
    index: Option<DeviceBuf>,
    resident: u32,
    len: u32,
}

/// Vectors, workspaces and streams of one proof's device work.
pub(crate) struct Slot {
    pub(crate) upload: Stream,
    /// Counts the witness's scalars, beside the evaluations on their way.
    pub(crate) counting: Stream,
    pub(crate) lanes: Vec<Stream>,
    /// Fires on each lane when the last work given to it is done.
    pub(crate) lane_done: Vec<Event>,
    /// Fire when a is in place, when all evaluations are, and when the witness is.
    pub(crate) a_ready: Event,
    pub(crate) rows_ready: Event,
    pub(crate) witness_ready: Event,
    /// Fires when the witness has been counted, and the counts are on the host.
    pub(crate) counted: Event,
    /// Fires when a sum's bases have been added to its buckets: what follows doesn't fill the card.
    pub(crate) added: [Arc<Event>; 4],
    pub(crate) chunk_ready: [Event; 2],
    pub(crate) chunk_free: [Event; 2],
    pub(crate) vectors: DeviceBuf,
    pub(crate) workspaces: Vec<DeviceBuf>,
    pub(crate) chunks: Option<[DeviceBuf; 2]>,
    pub(crate) counter: DeviceBuf,
}

/// Where a proof's results arrive: page-locked memory and the events that say when.
pub(crate) struct Outbox {
    pub(crate) done: Vec<Event>,
    pub(crate) memory: PinnedBuf,
    charge: Charge,
}

/// A slot in use; given back on drop.
pub(crate) struct SlotLease {
    slot: Option<Slot>,
    key: Arc<DeviceKey>,
}

impl std::ops::Deref for SlotLease {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        self.slot.as_ref().expect("taken only by drop")
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            lock(&self.key.slots).push_back(slot);
            self.key.slot_free.notify_one();
        }
    }
}

impl DeviceKey {
    /// Plans, allocates and uploads.
    pub(crate) fn load(instance: &Arc<Instance>, host: &Arc<ProvingKey>) -> Result<Self, CudaError> {
        Self::load_with(instance, host, Residency::plan)
    }

    /// The same with a plan of the caller's making.
    pub(crate) fn load_with(
        instance: &Arc<Instance>,
        host: &Arc<ProvingKey>,
        plan: impl FnOnce(&Sizes, u64) -> Result<Residency, CudaError>,
    ) -> Result<Self, CudaError> {
        let context = &instance.context;
        let shape = host.shape();
        let matrices_bytes = host.matrices().map_or(0, |m| DeviceMatrix::bytes_of(&m.a) + DeviceMatrix::bytes_of(&m.b));
        let g1 = |query: &Query<_>| (query.num_dense() as u64, query.density().is_some());
        let dense = [g1(host.h()), g1(host.l()), g1(host.a()), g1(host.b_g1()), {
            let query = host.b_g2();
            (query.num_dense() as u64, query.density().is_some())
        }];
        let sizes = Sizes {
            log_n: shape.domain_log2,
            num_variables: shape.num_variables as u64,
            bases: dense.map(|(count, _)| count),
            indexed: dense.map(|(_, indexed)| indexed),
            matrices: matrices_bytes,
            multiprocessors: context.info().multiprocessors,
            max_copies: instance.options.copies.max(1),
            affine_g2: instance.options.affine_g2,
            max_slots: instance.options.slots.max(1),
        };
        let residency = plan(&sizes, context.available_memory()?)?;
        let stream = Stream::new(context, Priority::Normal)?;
        let full = residency.full_twiddles;
        let quotient = Quotient::new(context, &instance.ntt, &stream, host.domain(), host.h_basis(), full)?;
        let load = |id: QueryId| -> Result<DeviceQuery, CudaError> {
            let (resident, copies) = (residency.resident[id as usize], residency.copies_of(id));
            match id {
                QueryId::H => DeviceQuery::load(instance, &stream, id, host.h(), resident, copies, &residency),
                QueryId::L => DeviceQuery::load(instance, &stream, id, host.l(), resident, copies, &residency),
                QueryId::A => DeviceQuery::load(instance, &stream, id, host.a(), resident, copies, &residency),
                QueryId::B1 => DeviceQuery::load(instance, &stream, id, host.b_g1(), resident, copies, &residency),
                QueryId::B2 => DeviceQuery::load(instance, &stream, id, host.b_g2(), resident, copies, &residency),
            }
        };
        let [h, l, a, b1, b2] = QueryId::ALL.map(load);
        let queries = [h?, l?, a?, b1?, b2?];
        let matrices = match host.matrices() {
            None => None,
            Some(matrices) => {
                let load = |matrix| DeviceMatrix::new(context, &stream, &instance.uploader, matrix);
                Some([load(&matrices.a)?, load(&matrices.b)?])
            }
        };
        let slots = (0..residency.slots).map(|_| Slot::new(instance, &sizes, &residency)).collect::<Result<_, _>>()?;
        stream.synchronise()?;
        Ok(Self {
            slots: Mutex::new(slots),
            slot_free: Condvar::new(),
            outboxes: Mutex::default(),
            last_added: Mutex::default(),
            matrices,
            queries,
            quotient,
            sizes,
            residency,
            host: host.clone(),
            instance: instance.clone(),
        })
    }

    /// The slot that has been idle longest; waits while all are leased. (In a resident key a lease ends with `start`: later work queues up
    /// behind earlier work in the slot's own streams. Where bases are streamed it ends with the streaming, which waits for
    /// nobody but the card.)
    pub(crate) fn lease(self: &Arc<Self>) -> SlotLease {
        let mut slots = lock(&self.slots);
        loop {
            if let Some(slot) = slots.pop_front() {
                return SlotLease { slot: Some(slot), key: self.clone() };
            }
            slots = self.slot_free.wait(slots).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A place for results.
    pub(crate) fn outbox(&self) -> Result<Outbox, CudaError> {
        if let Some(mut outbox) = lock(&self.outboxes).pop() {
            outbox.charge.reclassify(MemoryClass::Backend);
            return Ok(outbox);
        }
        let context = &self.instance.context;
        let charge = self.instance.options.memory.ledger().charge(MemoryClass::Backend, OUTBOX as u64)?;
        let done =
            self.residency.workspaces.iter().map(|_| Event::new(context, false)).collect::<Result<Vec<_>, _>>()?;
        Ok(Outbox { done, memory: PinnedBuf::alloc(context, OUTBOX)?, charge })
    }

    /// What the next proof's kernels wait for, so that they don't mix with the additions of a long one before it.
    pub(crate) fn last_added(&self) -> Option<Arc<Event>> {
        lock(&self.last_added).clone()
    }

    /// The long proof last queued is that of this event. Proofs that are started at once may miss one another: that costs time alone.
    pub(crate) fn set_last_added(&self, event: &Arc<Event>) {
        *lock(&self.last_added) = Some(event.clone());
    }

    /// Takes an outbox back whose work is done.
    pub(crate) fn return_outbox(&self, mut outbox: Outbox) {
        outbox.charge.reclassify(MemoryClass::PoolIdle);
        lock(&self.outboxes).push(outbox);
    }

    /// The resident part of a query, with its scalars, of which few may be dense.
    pub(crate) fn resident(&self, id: QueryId, scalars: DevicePtr, few: bool) -> Segment {
        let query = &self.queries[id as usize];
        Segment {
            bases: query.bases.ptr(),
            len: query.resident,
            scalars,
            index: query.index.as_ref().map(DeviceBuf::ptr),
            montgomery: true,
            few,
        }
    }

    /// The scalar of each base of a query, resident or not, and how many there are.
    pub(crate) fn indices(&self, id: QueryId) -> (Option<DevicePtr>, u32) {
        let query = &self.queries[id as usize];
        (query.index.as_ref().map(DeviceBuf::ptr), query.len)
    }

    /// Bases of a query that aren't resident: a range.
    pub(crate) fn streamed(&self, id: QueryId) -> std::ops::Range<u32> {
        let query = &self.queries[id as usize];
        query.resident..query.len
    }

    /// The segment for bases `from .. from + len` of a query, which lie at `bases`.
    pub(crate) fn chunk(
        &self,
        id: QueryId,
        bases: DevicePtr,
        from: u32,
        len: u32,
        scalars: DevicePtr,
        few: bool,
    ) -> Segment {
        let index = self.queries[id as usize].index.as_ref().map(|index| index.ptr().add(4 * u64::from(from)));
        let scalars = if index.is_some() { scalars } else { scalars.add(SCALAR * u64::from(from)) };
        Segment { bases, len, scalars, index, montgomery: true, few }
    }

    /// Copies bases from `from` on to `out`.
    pub(crate) fn copy_bases(&self, id: QueryId, from: usize, out: &mut [u8]) {
        match id {
            QueryId::H => self.host.h().copy_dense(from, out),
            QueryId::L => self.host.l().copy_dense(from, out),
            QueryId::A => self.host.a().copy_dense(from, out),
            QueryId::B1 => self.host.b_g1().copy_dense(from, out),
            QueryId::B2 => self.host.b_g2().copy_dense(from, out),
        }
    }
}

/// Bytes of an outbox: the counts of scalars and the outputs of four multi-exponentiations, each at most
/// 255 + 24 points, one for each bit of all windows.
pub(crate) const OUTBOX: usize = OUTBOX_HEAD + 4 * OUTBOX_PART;
/// The first part.
pub(crate) const OUTBOX_HEAD: usize = 256;
/// Each of the others.
pub(crate) const OUTBOX_PART: usize = 320 * 288;

impl DeviceQuery {
    fn load<C: PointRecord>(
        instance: &Instance,
        stream: &Stream,
        id: QueryId,
        query: &Query<C>,
        resident: u64,
        copies: u32,
        residency: &Residency,
    ) -> Result<Self, CudaError> {
        let context = &instance.context;
        let record = id.group().point_bytes();
        let bases = DeviceBuf::alloc(context, resident * record * u64::from(copies))?;
        let fill = |at: usize, chunk: &mut [u8]| query.copy_dense(at / record as usize, chunk);
        let bytes = (resident * record) as usize;
        // SAFETY: the table is long enough, and its owner outlives the work: whoever drops it frees memory in the driver, which waits.
        unsafe { instance.uploader.upload_filled(stream, bases.ptr(), bytes, record as usize, fill)? };
        let sum = SumId::ALL.into_iter().find(|sum| sum.queries().contains(&id)).unwrap_or(SumId::Hl);
        let shape = residency.shapes[sum as usize];
        // SAFETY: the table has room for all copies, and copy 0 has been queued for upload on the same stream.
        unsafe { instance.msm_kernels(id.group()).shift_copies(stream, shape, bases.ptr(), resident as u32)? };
        let index = match query.density() {
            None => None,
            Some(density) => {
                let mut indices = instance.options.memory.zeroed::<u32>(MemoryClass::Staging, density.count_ones())?;
                indices.iter_mut().zip(density.iter_ones()).for_each(|(index, variable)| *index = variable as u32);
                let index = DeviceBuf::alloc(context, 4 * indices.len() as u64)?;
                // SAFETY: as above.
                unsafe { instance.uploader.upload(stream, index.ptr(), bytes_of_u32(&indices))? };
                Some(index)
            }
        };
        Ok(Self { bases, index, resident: resident as u32, len: query.num_dense() as u32 })
    }
}

impl Slot {
    fn new(instance: &Instance, sizes: &Sizes, residency: &Residency) -> Result<Self, CudaError> {
        let context = &instance.context;
        let event = || Event::new(context, false);
        let lanes = residency.workspaces.len();
        // The first lane has the longest chain of work; the others fill its gaps.
        let lane = |i| Stream::new(context, if i == 0 { Priority::High } else { Priority::Normal });
        let vectors = SCALAR * (sizes.num_variables + (3 << sizes.log_n));
        let chunk = || DeviceBuf::alloc(context, residency.chunk_bytes());
        Ok(Self {
            upload: Stream::new(context, Priority::Normal)?,
            counting: Stream::new(context, Priority::Urgent)?,
            lanes: (0..lanes).map(lane).collect::<Result<_, _>>()?,
            lane_done: (0..lanes).map(|_| event()).collect::<Result<_, _>>()?,
            a_ready: event()?,
            rows_ready: event()?,
            witness_ready: event()?,
            counted: event()?,
            added: [Arc::new(event()?), Arc::new(event()?), Arc::new(event()?), Arc::new(event()?)],
            chunk_ready: [event()?, event()?],
            chunk_free: [event()?, event()?],
            vectors: DeviceBuf::alloc(context, vectors)?,
            workspaces: residency
                .workspaces
                .iter()
                .map(|&bytes| DeviceBuf::alloc(context, bytes))
                .collect::<Result<_, _>>()?,
            chunks: if residency.is_resident() { None } else { Some([chunk()?, chunk()?]) },
            counter: DeviceBuf::alloc(context, 256)?,
        })
    }

    /// The witness, in front of the rows.
    pub(crate) fn witness(&self) -> DevicePtr {
        self.vectors.ptr()
    }

    /// Vector 0, 1 or 2 of n rows.
    pub(crate) fn rows(&self, sizes: &Sizes, which: u64) -> DevicePtr {
        self.vectors.ptr().add(SCALAR * (sizes.num_variables + (which << sizes.log_n)))
    }
}

impl Residency {
    /// Copies of the bases of a query, the bases themselves included.
    #[must_use]
    pub fn copies_of(&self, id: QueryId) -> u32 {
        let sum = SumId::ALL.into_iter().find(|sum| sum.queries().contains(&id)).unwrap_or(SumId::Hl);
        self.shapes[sum as usize].copies
    }
}
