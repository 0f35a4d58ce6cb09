//! A key in device memory.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use splitprover_core::memory::Charge;
use splitprover_core::point::PointRecord;
use splitprover_core::{Bitmap, MemoryClass, ProvingKey, Query};

use crate::device::Instance;
use crate::driver::{Buffer, OpenClError, Queue};
use crate::field::bytes_of_u32;
use crate::msm::{Segment, Tuning, Workspace};
use crate::ntt::Transforms;
use crate::residency::{QueryId, RESULT, Residency, Sizes, SumId};
use crate::vector::DeviceMatrix;

/// Host bytes in which records are gathered for an upload.
const STAGING: usize = 4 << 20;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A list of whole objects: right at every moment a panic could strike.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A loaded key. Slots come first among the fields: their queues are waited for before the rest goes.
pub(crate) struct DeviceKey {
    slots: Mutex<VecDeque<Slot>>,
    slot_free: Condvar,
    pub(crate) matrices: Option<[DeviceMatrix; 2]>,
    /// Resident chunks of each sum.
    chunks: [Vec<Buffer>; 4],
    /// Variable of each base, where not every variable has one.
    indices: [Option<Buffer>; 5],
    pub(crate) transforms: Transforms,
    pub(crate) sizes: Sizes,
    pub(crate) residency: Residency,
    /// Bases that aren't resident are read from here.
    pub(crate) host: Arc<ProvingKey>,
    pub(crate) instance: Arc<Instance>,
    /// Device memory that is host memory is on the host's account.
    _charge: Option<Charge>,
}

/// What a sum works with.
pub(crate) struct Lane {
    pub(crate) queue: Queue,
    pub(crate) workspace: Workspace,
}

/// Vectors, workspaces and queues of one proof's device work.
pub(crate) struct Slot {
    pub(crate) upload: Queue,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) witness: Buffer,
    pub(crate) rows: [Buffer; 3],
    pub(crate) totals: Buffer,
    pub(crate) results: [Buffer; 4],
    pub(crate) stream: Option<Buffer>,
}

/// A slot in use; given back on drop, when its queues are idle.
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
            // The next proof's uploads go through another queue than this one's sums.
            slot.lanes.iter().for_each(|lane| lane.queue.wait_out());
            slot.upload.wait_out();
            lock(&self.key.slots).push_back(slot);
            self.key.slot_free.notify_one();
        }
    }
}

/// Length and density of a query.
fn shape_of<C: PointRecord>(query: &Query<C>) -> (u64, Option<&Arc<Bitmap>>) {
    (query.num_dense() as u64, query.density())
}

impl DeviceKey {
    /// Plans, allocates and uploads.
    pub(crate) fn load(instance: &Arc<Instance>, host: &Arc<ProvingKey>) -> Result<Self, OpenClError> {
        Self::load_with(instance, host, Residency::plan)
    }

    /// The same with a plan of the caller's making.
    pub(crate) fn load_with(
        instance: &Arc<Instance>,
        host: &Arc<ProvingKey>,
        plan: impl FnOnce(&Sizes, u64) -> Result<Residency, OpenClError>,
    ) -> Result<Self, OpenClError> {
        let (context, kernels) = (&instance.context, &instance.kernels);
        let memory = &instance.options.memory;
        let shape = host.shape();
        let queries =
            [shape_of(host.h()), shape_of(host.l()), shape_of(host.a()), shape_of(host.b_g1()), shape_of(host.b_g2())];
        let on_host = context.device().host_memory;
        let sizes = Sizes {
            log_n: shape.domain_log2,
            num_variables: shape.num_variables as u64,
            bases: queries.map(|(count, _)| count),
            indexed: queries.map(|(_, density)| density.is_some()),
            matrices: host.matrices().map_or(0, |m| DeviceMatrix::bytes_of(&m.a) + DeviceMatrix::bytes_of(&m.b)),
            tuning: Tuning::of(context),
            scan_block: u64::from(kernels.geometry.scan_block()),
            max_allocation: context.max_allocation(),
            max_slots: instance.options.slots.unwrap_or(if on_host { 1 } else { 2 }).max(1),
            max_lanes: if on_host { 1 } else { 2 },
        };
        for (query, &bases) in ["H", "L", "A", "B in G1", "B in G2"].iter().zip(&sizes.bases) {
            // The top bit of an entry is a sign.
            if bases >= 1 << 31 {
                return Err(OpenClError::Unusable(format!("{bases} bases in query {query}, at most 2^31 - 1")));
            }
        }
        let residency = plan(&sizes, context.available_memory())?;
        let charge = if instance.accounts_device_memory() {
            Some(memory.ledger().charge(MemoryClass::Backend, residency.total)?)
        } else {
            None
        };
        let queue = Queue::new(context)?;
        let transforms = Transforms::new(context, kernels, &queue, host.domain(), host.h_basis())?;
        let mut staging = memory.zeroed::<u8>(MemoryClass::Staging, STAGING)?;
        let mut chunks = [const { Vec::new() }; 4];
        for sum in SumId::ALL {
            let record = sum.group().record();
            let chunk = residency.chunk(&sizes, sum);
            for number in 0..residency.resident[sum as usize] {
                let from = number * chunk;
                let count = chunk.min(sizes.sum_len(sum) - from);
                let buffer = Buffer::new(context, count * record)?;
                upload_bases(host, &queue, &buffer, sum, from, count, &mut staging)?;
                chunks[sum as usize].push(buffer);
            }
        }
        let mut indices = [const { None }; 5];
        for (index, (_, density)) in indices.iter_mut().zip(queries) {
            let Some(density) = density else { continue };
            let buffer = Buffer::new(context, 4 * density.count_ones() as u64)?;
            let mut ones = density.iter_ones();
            let mut words = memory.zeroed::<u32>(MemoryClass::Staging, density.count_ones().min(STAGING / 4))?;
            let mut at = 0;
            while at < density.count_ones() {
                let count = words.len().min(density.count_ones() - at);
                words.iter_mut().zip(ones.by_ref().take(count)).for_each(|(word, one)| *word = one as u32);
                queue.write(&buffer, 4 * at as u64, bytes_of_u32(&words[..count]))?;
                at += count;
            }
            *index = Some(buffer);
        }
        let matrices = match host.matrices() {
            None => None,
            Some(matrices) => {
                let load = |matrix| DeviceMatrix::new(context, &queue, memory, matrix);
                Some([load(&matrices.a)?, load(&matrices.b)?])
            }
        };
        let slots = (0..residency.slots).map(|_| Slot::new(instance, &sizes, &residency)).collect::<Result<_, _>>()?;
        queue.finish()?;
        Ok(Self {
            slots: Mutex::new(slots),
            slot_free: Condvar::new(),
            matrices,
            chunks,
            indices,
            transforms,
            sizes,
            residency,
            host: host.clone(),
            instance: instance.clone(),
            _charge: charge,
        })
    }

    /// The slot that has been idle longest; waits while all are leased. (A lease ends with the device's work, whether or not anybody
    /// finishes the proof.)
    pub(crate) fn lease(self: &Arc<Self>) -> SlotLease {
        let mut slots = lock(&self.slots);
        loop {
            if let Some(slot) = slots.pop_front() {
                return SlotLease { slot: Some(slot), key: self.clone() };
            }
            slots = self.slot_free.wait(slots).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A sum's chunk, if it is resident.
    pub(crate) fn resident(&self, sum: SumId, number: u64) -> Option<&Buffer> {
        self.chunks[sum as usize].get(number as usize)
    }

    /// The parts of bases `from .. from + count` of a sum, with their scalars: the witness's, and for H the quotient's.
    pub(crate) fn segments<'a>(
        &'a self,
        sum: SumId,
        from: u64,
        count: u64,
        witness: &'a Buffer,
        h: &'a Buffer,
    ) -> Vec<Segment<'a>> {
        let mut segments = Vec::new();
        parts(&self.sizes, sum, from, count, |query, first, count, place| {
            let offset = if query == QueryId::L { self.host.shape().num_public as u32 + 1 } else { 0 };
            let index = self.indices[query as usize].as_ref();
            segments.push(Segment {
                scalars: if query == QueryId::H { h } else { witness },
                // A list counts from the query's first variable.
                first_scalar: if index.is_some() { offset } else { offset + first as u32 },
                index: index.map(|index| (index, first as u32)),
                first_base: place as u32,
                count: count as u32,
                montgomery: query != QueryId::H,
            });
        });
        segments
    }
}

/// The queries' parts of bases `from .. from + count` of a sum: (query, its first base, how many, place among the `count`).
fn parts(sizes: &Sizes, sum: SumId, from: u64, count: u64, mut visit: impl FnMut(QueryId, u64, u64, u64)) {
    let (mut begin, mut place) = (0, 0);
    for &query in sum.queries() {
        let end = begin + sizes.bases[query as usize];
        let (first, last) = (from.max(begin), (from + count).min(end));
        if first < last {
            visit(query, first - begin, last - first, place);
            place += last - first;
        }
        begin = end;
    }
}

/// Writes bases `from .. from + count` of a sum to a buffer, through `staging`.
pub(crate) fn upload_bases(
    host: &ProvingKey,
    queue: &Queue,
    buffer: &Buffer,
    sum: SumId,
    from: u64,
    count: u64,
    staging: &mut [u8],
) -> Result<(), OpenClError> {
    let record = sum.group().record() as usize;
    let (first_len, most) = (host.h().num_dense() as u64, (staging.len() / record) as u64);
    let mut done = 0;
    while done < count {
        let at = from + done;
        let (query, first, left) = match sum {
            SumId::Hl if at < first_len => (QueryId::H, at, first_len - at),
            SumId::Hl => (QueryId::L, at - first_len, u64::MAX),
            SumId::A => (QueryId::A, at, u64::MAX),
            SumId::B1 => (QueryId::B1, at, u64::MAX),
            SumId::B2 => (QueryId::B2, at, u64::MAX),
        };
        let piece = (count - done).min(most).min(left);
        let bytes = &mut staging[..piece as usize * record];
        match query {
            QueryId::H => host.h().copy_dense(first as usize, bytes),
            QueryId::L => host.l().copy_dense(first as usize, bytes),
            QueryId::A => host.a().copy_dense(first as usize, bytes),
            QueryId::B1 => host.b_g1().copy_dense(first as usize, bytes),
            QueryId::B2 => host.b_g2().copy_dense(first as usize, bytes),
        }
        queue.write(buffer, done * record as u64, bytes)?;
        done += piece;
    }
    Ok(())
}

impl Slot {
    fn new(instance: &Instance, sizes: &Sizes, residency: &Residency) -> Result<Self, OpenClError> {
        let context = &instance.context;
        let buffer = |bytes| Buffer::new(context, bytes);
        let lane = |needs| Ok(Lane { queue: Queue::new(context)?, workspace: Workspace::new(context, needs)? });
        let slot = Self {
            upload: Queue::new(context)?,
            lanes: residency.workspaces.iter().map(|&needs| lane(needs)).collect::<Result<_, OpenClError>>()?,
            witness: buffer(sizes.witness())?,
            rows: [buffer(sizes.rows())?, buffer(sizes.rows())?, buffer(sizes.rows())?],
            totals: buffer(16)?,
            results: [buffer(RESULT)?, buffer(RESULT)?, buffer(RESULT)?, buffer(RESULT)?],
            stream: if residency.stream > 0 { Some(buffer(residency.stream)?) } else { None },
        };
        if !context.device().host_memory {
            // Drivers allocate a buffer when it is first used. Now is better than in the middle of a proof.
            for buffer in slot.buffers() {
                slot.upload.clear(buffer, 0, buffer.bytes() / 4 * 4)?;
            }
            slot.upload.finish()?;
        }
        Ok(slot)
    }

    fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        let workspaces = self.lanes.iter().flat_map(|lane| lane.workspace.buffers());
        let vectors = self.rows.iter().chain([&self.witness, &self.totals]).chain(&self.results).chain(&self.stream);
        workspaces.chain(vectors)
    }
}
