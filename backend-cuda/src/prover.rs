//! The backend: `start` uploads and queues, `finish` waits and folds.
//!
//! What happens in [`CudaProver::start`], and on which stream:
//!
//! ```text
//! upload    witness  a, b, (c)
//! counting           counts of scalars
//! lane 1 …                             A, B in G1, B in G2
//! lane 0                                                   quotient (transforms)  H + L
//! ```
//!
//! The host waits for the counts, of the scalars that are none of 0 and ±1 and of those that are ±1: they decide windows and batches. Long kernels that share
//! the card slow one another down, so they follow one another: the sums over A and B, while the evaluations arrive, then the quotient, then H and L,
//! and a proof's first after the last additions of the proof before it. Reductions run beside them, and where kernels are too short to fill the card, so do sums and
//! proofs. Once the upload
//! stream is idle all inputs have been read and are released. Everything later is queued without waiting. Where bases are streamed,
//! a thread that [`CudaPending`] owns does the queueing, for it has to feed the ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use group::{Curve, Group as _};
use splitprover_core::host_buf::Origin;
use splitprover_core::{
    BackendError, CircuitShape, G1Projective, G2Projective, Lent, LentEvaluations, LentInputs, PendingSums, ProvingKey,
    QuerySums, SplitProver,
};

use crate::device::{Instance, OpenOptions, to_backend_error};
use crate::driver::{Context, CudaError, DevicePtr, Event};
use crate::fixed_base::DeviceFixedBase;
use crate::key::{DeviceKey, OUTBOX, OUTBOX_HEAD, OUTBOX_PART, Outbox, SlotLease};
use crate::msm::{Counts, Msm, Plan as MsmPlan, collect_g1, collect_g2};
use crate::ntt::{Rows, SCALAR};
use crate::residency::{QueryId, SumId};
use crate::transfer::{PinnedPool, WaitOnDrop};
use crate::vector::bytes_of_scalars;

/// A card as a [`SplitProver`].
#[derive(Clone, Debug)]
pub struct CudaProver {
    instance: Arc<Instance>,
    fixed_base: Arc<DeviceFixedBase>,
}

/// A loaded key. Clones are the same key; the memory goes with the last of them and of its proofs.
#[derive(Clone)]
pub struct CudaKey(Arc<DeviceKey>);

impl std::fmt::Debug for CudaKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaKey({})", self.0.residency)
    }
}

impl CudaKey {
    /// What of it is resident, in words.
    #[must_use]
    pub fn residency(&self) -> String {
        self.0.residency.to_string()
    }
}

impl CudaProver {
    /// Opens card `ordinal`, as the driver numbers them, and loads or compiles the kernels.
    ///
    /// # Errors
    /// [`BackendError`] says in one line what is missing or too old.
    pub fn open(ordinal: u32, options: OpenOptions) -> Result<Self, BackendError> {
        let context = Context::open(ordinal).map_err(|error| BackendError::device("opening the card", error))?;
        Self::with_context(context, options)
    }

    /// The same on a context of the caller's: a dry or emulated one in tests.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_context(context: Context, options: OpenOptions) -> Result<Self, BackendError> {
        let instance = Instance::new(context.clone(), options)
            .map_err(|error| to_backend_error(&context, "kernels and staging buffers", error))?;
        let instance = Arc::new(instance);
        Ok(Self { fixed_base: Arc::new(DeviceFixedBase::new(instance.clone())), instance })
    }

    /// Multiples of one base by many scalars, for key generation.
    #[must_use]
    pub fn fixed_base(&self) -> &DeviceFixedBase {
        &self.fixed_base
    }

    /// Page-locked buffers: inputs that are born in one are uploaded at full speed.
    #[must_use]
    pub fn pinned_pool(&self) -> &PinnedPool {
        &self.instance.pool
    }

    /// The context, for statistics and tests.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.instance.context
    }
}

impl SplitProver for CudaProver {
    type Key = CudaKey;
    type Pending = CudaPending;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<CudaKey, BackendError> {
        self.instance.usable()?;
        let loaded = DeviceKey::load(&self.instance, key);
        loaded.map(|key| CudaKey(Arc::new(key))).map_err(|error| self.instance.fail("the proving key", error))
    }

    fn start<'i>(&self, key: &CudaKey, inputs: LentInputs<'i>) -> Result<CudaPending, BackendError> {
        self.instance.usable()?;
        start(&key.0, inputs).map_err(|error| self.instance.fail("starting a proof", error))
    }

    fn retained_host_bytes(&self, _shape: &CircuitShape) -> u64 {
        // The sums' page-locked landing place, and a streaming thread's stack.
        OUTBOX as u64 + (2 << 20)
    }
}

/// A vector on its way to the device.
struct Upload<'i> {
    /// Still lent while the card reads it; `None` once it has been copied to the ring and released.
    reading: Option<Lent<'i>>,
}

/// Whether the card can read a vector where it is.
fn is_pinned(key: &DeviceKey, vector: &Lent<'_>) -> bool {
    vector.origin() == Origin::Pool(key.instance.pool.identity())
}

fn upload<'i>(key: &DeviceKey, slot: &SlotLease, vector: Lent<'i>, to: DevicePtr) -> Result<Upload<'i>, CudaError> {
    let bytes = bytes_of_scalars(&vector);
    if is_pinned(key, &vector) {
        // SAFETY: the vector stays lent, in `reading` or in our caller's frame, until the upload stream has been waited for: `take_inputs` does
        // that before it releases or returns, on every path, by `WaitOnDrop`. `to` is one of the slot's vectors.
        unsafe { slot.upload.upload(to, bytes.as_ptr(), bytes.len() as u64)? };
        return Ok(Upload { reading: Some(vector) });
    }
    // SAFETY: `to` is one of the slot's vectors, which hold any vector that core has checked against the key.
    unsafe { key.instance.uploader.upload(&slot.upload, to, bytes)? };
    vector.release();
    Ok(Upload { reading: None })
}

fn start(key: &Arc<DeviceKey>, inputs: LentInputs<'_>) -> Result<CudaPending, CudaError> {
    let LentInputs { evaluations, witness, .. } = inputs;
    // The only allocation; it comes before any vector is touched.
    let outbox = key.outbox()?;
    let slot = key.lease();
    let job = Job { key: key.clone(), outbox: Some(outbox), plans: [const { None }; 4] };
    let mut queueing = Queueing { slot, job: Some(job) };
    let h = queueing.take_inputs(evaluations, witness)?;
    if key.residency.is_resident() {
        let job = queueing.finish(&[SumId::Hl], h, &AtomicBool::new(false))?;
        return Ok(CudaPending { state: Some(State::Queued(job)) });
    }
    let cancel = Arc::new(AtomicBool::new(false));
    let cancelled = cancel.clone();
    let thread = std::thread::Builder::new()
        .name("cuda-stream".into())
        .stack_size(1 << 20)
        .spawn(move || queueing.finish(&[SumId::Hl, SumId::B2, SumId::A, SumId::B1], h, &cancelled))
        .map_err(|_| CudaError::Unusable("no thread could be started for streaming"))?;
    Ok(CudaPending { state: Some(State::Streaming { thread, cancel, key: key.clone() }) })
}

/// A job on its way to a slot's lanes. If it doesn't get there, by an error or a panic or because no thread can be started, the lanes are waited for:
/// nothing may still be on its way to the outbox, or be left for the slot's next proof to trip over.
struct Queueing {
    slot: SlotLease,
    /// `None` once all of it is queued.
    job: Option<Job>,
}

impl Queueing {
    fn take_inputs(
        &mut self,
        evaluations: Option<LentEvaluations<'_>>,
        witness: Lent<'_>,
    ) -> Result<DevicePtr, CudaError> {
        let Some(job) = &mut self.job else { return Err(CudaError::Cancelled) };
        job.take_inputs(&self.slot, evaluations, witness)
    }

    /// Queues the sums that are left, and what says that all are done.
    fn finish(mut self, sums: &[SumId], h: DevicePtr, cancel: &AtomicBool) -> Result<Job, CudaError> {
        let (Some(job), slot) = (&self.job, &self.slot) else { return Err(CudaError::Cancelled) };
        for &sum in sums {
            job.queue(slot, sum, h, cancel)?;
        }
        if job.key.residency.is_resident() && job.is_longer(SumId::Hl, LONG_PROOF) {
            job.key.set_last_added(&slot.added[SumId::Hl as usize]);
        }
        let done = job.outbox.iter().flat_map(|outbox| &outbox.done);
        for ((lane, lane_done), done) in slot.lanes.iter().zip(&slot.lane_done).zip(done) {
            lane.record(lane_done)?;
            lane.record(done)?;
        }
        self.job.take().ok_or(CudaError::Cancelled)
    }
}

impl Drop for Queueing {
    fn drop(&mut self) {
        if self.job.is_some() {
            for lane in &self.slot.lanes {
                let _ = lane.synchronise();
            }
        }
    }
}

/// Sums that are queued on the device, or about to be.
struct Job {
    key: Arc<DeviceKey>,
    /// `None` once returned.
    outbox: Option<Outbox>,
    plans: [Option<SumPlan>; 4],
}

/// How a sum is computed.
struct SumPlan {
    msm: MsmPlan,
    /// Whether few of its scalars from the witness are dense.
    few: bool,
}

impl Job {
    /// Uploads the inputs and releases them, queues the quotient and, in a resident key, the sums that don't need it. Returns where the quotient's
    /// scalars will be.
    fn take_inputs(
        &mut self,
        slot: &SlotLease,
        evaluations: Option<LentEvaluations<'_>>,
        witness: Lent<'_>,
    ) -> Result<DevicePtr, CudaError> {
        let key = self.key.clone();
        let mut reading = Vec::new();
        // Declared after the loans that the card reads, so dropped before them: none ends while it does.
        let all_read = [WaitOnDrop(&slot.upload), WaitOnDrop(&slot.counting)];
        // The vectors still serve the slot's previous proof.
        for done in &slot.lane_done {
            slot.upload.wait(done)?;
        }
        reading.push(upload(&key, slot, witness, slot.witness())?);
        slot.upload.record(&slot.witness_ready)?;
        slot.counting.wait(&slot.witness_ready)?;
        self.count(slot)?;
        slot.counting.record(&slot.counted)?;
        let given = match evaluations {
            Some(evaluations) => Some(send_pinned(&key, slot, evaluations, &mut reading)?),
            None if key.matrices.is_none() => {
                return Err(CudaError::Unusable("the key has no matrices and no evaluations were given"));
            }
            None => None,
        };
        slot.counted.synchronise()?;
        self.plan();
        let mut before = key.last_added();
        if key.residency.is_resident() {
            before = self.queue_witness_sums(slot, before)?;
        }
        if let Some(before) = &before {
            slot.lanes[0].wait(before)?;
        }
        let h = queue_quotient(&key, slot, given, &mut reading)?;
        slot.upload.synchronise()?;
        // Nothing is left to wait for.
        std::mem::forget(all_read);
        for upload in reading {
            if let Some(vector) = upload.reading {
                vector.release();
            }
        }
        Ok(h)
    }

    /// Queues the sums over A and B, each after a long one before it, the first after `before`. Returns what comes after the last long one.
    fn queue_witness_sums(
        &self,
        slot: &SlotLease,
        mut before: Option<Arc<Event>>,
    ) -> Result<Option<Arc<Event>>, CudaError> {
        for sum in [SumId::B2, SumId::A, SumId::B1] {
            if let Some(before) = &before {
                slot.lanes[self.key.residency.lanes[sum as usize]].wait(before)?;
            }
            self.queue(slot, sum, DevicePtr::NULL, &AtomicBool::new(false))?;
            if self.is_longer(sum, LONG_SUM) {
                before = Some(slot.added[sum as usize].clone());
            }
        }
        Ok(before)
    }

    /// Queues counting the scalars of L, A and B, and the counts' way to the outbox.
    fn count(&self, slot: &SlotLease) -> Result<(), CudaError> {
        let (key, counts) = (&self.key, slot.counter.ptr());
        let Some(outbox) = &self.outbox else { return Err(CudaError::Cancelled) };
        // SAFETY: this stream has waited for the witness, and indices come from a density map over the variables. Counter and outbox live until
        // the stream has been waited for, which our caller sees to when this fails.
        unsafe {
            slot.counting.fill(counts, 0, COUNTS)?;
            for sum in SumId::ALL {
                let query = counted_query(sum);
                let (index, len) = key.indices(query);
                let to = counts.add(8 * sum as u64);
                key.instance.vector.count_scalars(&slot.counting, scalars(key, slot, query, counts), index, len, to)?;
            }
            slot.counting.download(outbox.memory.as_ptr(), counts, COUNTS)
        }
    }

    /// Plans all sums by the counts, which have arrived.
    fn plan(&mut self) {
        let Some(outbox) = &self.outbox else { return };
        let (key, memory) = (&self.key, outbox.memory.as_slice());
        let number =
            |at: usize| memory[at..].first_chunk().map_or(u64::MAX, |bytes| u64::from(u32::from_ne_bytes(*bytes)));
        self.plans = SumId::ALL.map(|sum| {
            let at = 8 * sum as usize;
            let counts = Counts { dense: number(at), units: number(at + 4) };
            let len = key.sizes.bases[counted_query(sum) as usize];
            let plan = || SumPlan { msm: key.residency.msm(&key.sizes, sum, counts), few: counts.are_few(len) };
            (key.sizes.sum_len(sum) > 0).then(plan)
        });
    }

    /// Whether a batch of the sum has so many pairs for each multiprocessor, at most.
    fn is_longer(&self, sum: SumId, pairs: u64) -> bool {
        self.plans[sum as usize].as_ref().is_some_and(|plan| plan.msm.pairs_per_multiprocessor() >= pairs)
    }

    /// Queues one sum on its lane.
    fn queue(&self, slot: &SlotLease, sum: SumId, h: DevicePtr, cancel: &AtomicBool) -> Result<(), CudaError> {
        match (&self.plans[sum as usize], &self.outbox) {
            (Some(plan), Some(outbox)) => queue_sum(&self.key, slot, outbox, sum, plan, h, cancel),
            _ => Ok(()),
        }
    }

    /// Waits for the sums and folds them.
    fn collect(mut self) -> Result<QuerySums, CudaError> {
        let key = self.key.clone();
        let wait = self.outbox.iter().flat_map(|outbox| &outbox.done).try_for_each(|done| done.synchronise());
        let Some(outbox) = self.outbox.take() else { return Err(CudaError::Cancelled) };
        // On failure the context is dead, or a fault was injected after the wait: the outbox is at rest either way.
        wait?;
        let bytes = |sum: SumId, plan: &MsmPlan| {
            let from = part_of(sum);
            &outbox.memory.as_slice()[from..from + plan.output_bytes()]
        };
        let g1 = |sum: SumId| match &self.plans[sum as usize] {
            Some(SumPlan { msm, .. }) => collect_g1(msm, bytes(sum, msm)),
            None => G1Projective::identity(),
        };
        let g2 = |sum: SumId| match &self.plans[sum as usize] {
            Some(SumPlan { msm, .. }) => collect_g2(msm, bytes(sum, msm)),
            None => G2Projective::identity(),
        };
        let sums = QuerySums {
            a: g1(SumId::A).to_affine(),
            b_g1: g1(SumId::B1).to_affine(),
            b_g2: g2(SumId::B2).to_affine(),
            hl: g1(SumId::Hl).to_affine(),
        };
        key.return_outbox(outbox);
        Ok(sums)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(outbox) = self.outbox.take() {
            // The card writes to the outbox until then.
            if outbox.done.iter().all(|done| done.synchronise().is_ok()) {
                self.key.return_outbox(outbox);
            }
        }
    }
}

/// Evaluations in place or on their way, and those of them that the host is still to copy.
type Given<'i> = (Rows, [Option<Lent<'i>>; 3]);

/// Queues the way of the evaluations that the card fetches itself. The others go through the ring afterwards.
fn send_pinned<'i>(
    key: &DeviceKey,
    slot: &SlotLease,
    evaluations: LentEvaluations<'i>,
    reading: &mut Vec<Upload<'i>>,
) -> Result<Given<'i>, CudaError> {
    let to = [0, 1, 2].map(|which| slot.rows(&key.sizes, which));
    let LentEvaluations { a, b, c, .. } = evaluations;
    let rows = Rows { a: to[0], b: to[1], c: to[2], c_given: c.is_some(), len: a.len() as u32 };
    let mut vectors = [Some(a), Some(b), c];
    for (which, vector) in vectors.iter_mut().enumerate() {
        if let Some(vector) = vector.take_if(|vector| is_pinned(key, vector)) {
            reading.push(upload(key, slot, vector, to[which])?);
            if which == 0 {
                slot.upload.record(&slot.a_ready)?;
            }
        }
    }
    Ok((rows, vectors))
}

/// Queues the quotient on lane 0, from the evaluations given or by the key's matrices, and copies what isn't on its way yet: a's transforms begin while b is.
/// Returns where its scalars will be.
fn queue_quotient<'i>(
    key: &DeviceKey,
    slot: &SlotLease,
    given: Option<Given<'i>>,
    reading: &mut Vec<Upload<'i>>,
) -> Result<DevicePtr, CudaError> {
    let main = &slot.lanes[0];
    let rows = match given {
        Some((rows, [copied_a, copied_b, copied_c])) => {
            if let Some(vector) = copied_a {
                reading.push(upload(key, slot, vector, rows.a)?);
                slot.upload.record(&slot.a_ready)?;
            }
            main.wait(&slot.a_ready)?;
            // SAFETY: the slot's vectors have room for n scalars each, and live as long as the key, which waits for its streams.
            unsafe { key.quotient.enqueue_first(main, rows)? };
            for (vector, to) in [(copied_b, rows.b), (copied_c, rows.c)] {
                if let Some(vector) = vector {
                    reading.push(upload(key, slot, vector, to)?);
                }
            }
            slot.upload.record(&slot.rows_ready)?;
            main.wait(&slot.rows_ready)?;
            rows
        }
        None => {
            let Some([matrix_a, matrix_b]) = &key.matrices else { return Err(CudaError::Cancelled) };
            let [a, b, c] = [0, 1, 2].map(|which| slot.rows(&key.sizes, which));
            let rows = Rows { a, b, c, c_given: false, len: matrix_a.num_rows() };
            main.wait(&slot.witness_ready)?;
            // SAFETY: as above; core has checked that the matrices have a column per variable and at most n rows.
            unsafe {
                matrix_a.product(&key.instance.vector, main, slot.witness(), a)?;
                matrix_b.product(&key.instance.vector, main, slot.witness(), b)?;
                key.quotient.enqueue_first(main, rows)?;
            }
            rows
        }
    };
    // SAFETY: as above.
    unsafe { key.quotient.enqueue_rest(main, rows) }
}

/// A batch of so many pairs for each multiprocessor fills the card: what comes after such a sum waits for its additions. The next proof waits for those of H and
/// L if they have the second number. In tests all do.
const LONG_SUM: u64 = if cfg!(test) { 0 } else { 1 << 15 };
const LONG_PROOF: u64 = if cfg!(test) { 0 } else { 1 << 18 };

/// Where a sum's output begins in the outbox.
fn part_of(sum: SumId) -> usize {
    OUTBOX_HEAD + sum as usize * OUTBOX_PART
}

/// Bytes of the counts of scalars, two for each sum.
const COUNTS: u64 = 8 * SumId::ALL.len() as u64;

/// The query of a sum whose scalars are the witness's.
fn counted_query(sum: SumId) -> QueryId {
    match sum {
        SumId::Hl => QueryId::L,
        SumId::A => QueryId::A,
        SumId::B1 => QueryId::B1,
        SumId::B2 => QueryId::B2,
    }
}

/// Where the scalars of a query lie, those of H at `h`.
fn scalars(key: &DeviceKey, slot: &SlotLease, query: QueryId, h: DevicePtr) -> DevicePtr {
    match query {
        QueryId::H => h,
        QueryId::L => slot.witness().add(SCALAR * (key.host.shape().num_public as u64 + 1)),
        QueryId::A | QueryId::B1 | QueryId::B2 => slot.witness(),
    }
}

/// Queues one sum on its lane.
fn queue_sum(
    key: &DeviceKey,
    slot: &SlotLease,
    outbox: &Outbox,
    sum: SumId,
    SumPlan { msm: plan, few }: &SumPlan,
    h: DevicePtr,
    cancel: &AtomicBool,
) -> Result<(), CudaError> {
    let lane_index = key.residency.lanes[sum as usize];
    let lane = &slot.lanes[lane_index];
    lane.wait(&slot.witness_ready)?;
    let scalars = |query| scalars(key, slot, query, h);
    let few = |query| *few && query == counted_query(sum);
    let kernels = key.instance.msm_kernels(sum.group());
    // SAFETY: the lane's workspace has room for every plan that `Residency::msm` makes for it, serves this lane alone, in whose order
    // sums follow one another, and lives as long as the key, which waits for its streams.
    let msm = unsafe { Msm::new(kernels, plan, slot.workspaces[lane_index].ptr()) };
    msm.begin(lane)?;
    let segments: Vec<_> = sum.queries().iter().map(|&query| key.resident(query, scalars(query), few(query))).collect();
    // SAFETY: bases and indices are the key's, scalars the slot's; `lane_done` keeps the next proof's uploads off until this work is
    // done. Core promises scalars below r; the quotient's are; indices come from a density map over the variables. The plan was made by the counts of the
    // same scalars for the same bases.
    unsafe { msm.add(lane, &segments, Some(&slot.added[sum as usize]))? };
    if let Some(chunks) = &slot.chunks {
        let mut turn = 0;
        for &query in sum.queries() {
            let streamed = key.streamed(query);
            for from in streamed.clone().step_by(key.residency.chunk as usize) {
                if cancel.load(Ordering::Relaxed) {
                    return Err(CudaError::Cancelled);
                }
                let len = (streamed.end - from).min(key.residency.chunk as u32);
                let record = query.group().point_bytes() as usize;
                let buffer = &chunks[turn % 2];
                slot.upload.wait(&slot.chunk_free[turn % 2])?;
                let fill = |at: usize, chunk: &mut [u8]| key.copy_bases(query, from as usize + at / record, chunk);
                // SAFETY: the buffer holds a whole chunk of either group, and was waited for.
                unsafe {
                    let uploader = &key.instance.uploader;
                    uploader.upload_filled(&slot.upload, buffer.ptr(), len as usize * record, record, fill)?;
                }
                slot.upload.record(&slot.chunk_ready[turn % 2])?;
                lane.wait(&slot.chunk_ready[turn % 2])?;
                let chunk = key.chunk(query, buffer.ptr(), from, len, scalars(query), few(query));
                // SAFETY: as for the resident part; the buffer isn't written again before `chunk_free` has fired.
                unsafe { msm.add(lane, &[chunk], None)? };
                lane.record(&slot.chunk_free[turn % 2])?;
                turn += 1;
            }
        }
    }
    msm.finish(lane)?;
    if plan.output_bytes() > OUTBOX_PART {
        return Err(CudaError::DoesNotFit {
            what: "the result of a multi-exponentiation",
            need: plan.output_bytes() as u64,
            have: OUTBOX_PART as u64,
        });
    }
    // SAFETY: the part has room for the output, and the outbox stays alive until its events have fired.
    unsafe {
        let to = outbox.memory.as_ptr().add(part_of(sum));
        lane.download(to, msm.output(), plan.output_bytes() as u64)
    }
}

/// A proof whose sums are under way. It holds no input: only where the sums will arrive.
pub struct CudaPending {
    /// `None` once finished.
    state: Option<State>,
}

#[allow(clippy::large_enum_variant, reason = "one for each proof in flight, moved twice")]
enum State {
    Queued(Job),
    Streaming { thread: JoinHandle<Result<Job, CudaError>>, cancel: Arc<AtomicBool>, key: Arc<DeviceKey> },
}

impl std::fmt::Debug for CudaPending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.state {
            None => "CudaPending(finished)",
            Some(State::Queued(_)) => "CudaPending(queued)",
            Some(State::Streaming { .. }) => "CudaPending(streaming)",
        })
    }
}

impl PendingSums for CudaPending {
    fn finish(mut self) -> Result<QuerySums, BackendError> {
        let (key, job) = match self.state.take() {
            None => return Err(BackendError::Cancelled),
            Some(State::Queued(job)) => (job.key.clone(), Ok(job)),
            Some(State::Streaming { thread, key, .. }) => match thread.join() {
                Ok(job) => (key, job),
                Err(payload) => std::panic::resume_unwind(payload),
            },
        };
        job.and_then(Job::collect).map_err(|error| key.instance.fail("finishing a proof", error))
    }
}

impl Drop for CudaPending {
    fn drop(&mut self) {
        if let Some(State::Streaming { thread, cancel, .. }) = self.state.take() {
            cancel.store(true, Ordering::Relaxed);
            // What it queued is waited for where the job is dropped; a panic has nobody to go to.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests;
