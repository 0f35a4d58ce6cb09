//! The backend: `start` uploads, a thread that the pending proof owns queues the work and feeds it, `finish` waits for the thread.
//!
//! ```text
//! start   allocate, begin the thread; upload a, b, (c), witness, each released as soon as the blocking copy has ended
//! thread  lane 0: quotient, H + L;   last lane: count of scalars that aren't 0 or ±1, B in G2, A, B in G1;   read and fold the results
//! ```
//!
//! A device whose memory is the host's has one lane and one slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use group::{Curve as _, Group as _};
use splitprover_core::memory::Charge;
use splitprover_core::{
    BackendError, CircuitShape, G1Projective, G2Projective, Lent, LentEvaluations, LentInputs, MemoryClass,
    PendingSums, ProvingKey, QuerySums, SplitProver,
};

use crate::device::{Instance, OpenOptions};
use crate::driver::{Buffer, Context, DeviceDescription, OpenClError};
use crate::field::bytes_of_scalars;
use crate::kernels::Products;
use crate::key::{DeviceKey, SlotLease, upload_bases};
use crate::msm::{Msm, Plan};
use crate::ntt::Rows;
use crate::residency::SumId;
use crate::vector::count_kinds;

/// Host bytes that a pending proof keeps: results on their way, and its thread's books.
const RETAINED: u64 = 256 << 10;
/// Its thread's stack.
const STACK: usize = 1 << 20;

/// A device as a [`SplitProver`].
#[derive(Clone, Debug)]
pub struct OpenClProver {
    instance: Arc<Instance>,
}

/// A loaded key. Clones are the same key; the memory goes with the last of them and of its proofs.
#[derive(Clone)]
pub struct OpenClKey(Arc<DeviceKey>);

impl std::fmt::Debug for OpenClKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenClKey({})", self.0.residency)
    }
}

impl OpenClKey {
    /// What of it is resident, in words.
    #[must_use]
    pub fn residency(&self) -> String {
        self.0.residency.to_string()
    }
}

impl OpenClProver {
    /// Opens a device: builds its programs, or loads them from the cache, and tests them.
    ///
    /// # Errors
    /// [`BackendError`] says in one line what is missing, what the compiler refused, or which case came out wrong.
    pub fn open(device: &DeviceDescription, options: OpenOptions) -> Result<Self, BackendError> {
        let instance =
            Instance::open(device, options).map_err(|error| error.into_backend("opening the OpenCL device", 0))?;
        Ok(Self { instance })
    }

    #[cfg(test)]
    pub(crate) fn from_instance(instance: Arc<Instance>) -> Self {
        Self { instance }
    }

    /// The context, for statistics and tests.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.instance.context
    }

    /// Seconds that building or loading the programs took, and how many of the three came from the cache.
    #[must_use]
    pub fn build(&self) -> (f64, usize) {
        (self.instance.kernels.build_seconds, self.instance.kernels.cached)
    }

    /// How its products are written.
    #[must_use]
    pub fn products(&self) -> Products {
        self.instance.kernels.products
    }
}

impl SplitProver for OpenClProver {
    type Key = OpenClKey;
    type Pending = OpenClPending;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<OpenClKey, BackendError> {
        self.instance.usable()?;
        let loaded = DeviceKey::load(&self.instance, key);
        loaded.map(|key| OpenClKey(Arc::new(key))).map_err(|error| self.instance.fail("the proving key", error))
    }

    fn start<'i>(&self, key: &OpenClKey, inputs: LentInputs<'i>) -> Result<OpenClPending, BackendError> {
        self.instance.usable()?;
        start(&key.0, inputs).map_err(|error| self.instance.fail("starting a proof", error))
    }

    fn retained_host_bytes(&self, _shape: &CircuitShape) -> u64 {
        // Whatever the size. A driver that computes on the host keeps what its threads touch, too.
        RETAINED + STACK as u64 + (2 << 20)
    }
}

/// What the thread is told when the inputs are on the device.
struct Go {
    slot: SlotLease,
    evaluated: bool,
    c_given: bool,
}

fn start(key: &Arc<DeviceKey>, inputs: LentInputs<'_>) -> Result<OpenClPending, OpenClError> {
    let LentInputs { evaluations, witness, .. } = inputs;
    if evaluations.is_none() && key.matrices.is_none() {
        return Err(OpenClError::Unusable("the key has no matrices and no evaluations were given".into()));
    }
    // All that may fail for want of memory comes before a vector is touched.
    let charge = key.instance.options.memory.ledger().charge(MemoryClass::Backend, RETAINED)?;
    let cancel = Arc::new(AtomicBool::new(false));
    let (go, told) = sync_channel::<Go>(1);
    let (for_thread, cancelled) = (key.clone(), cancel.clone());
    let thread = std::thread::Builder::new()
        .name("opencl-proof".into())
        .stack_size(STACK)
        .spawn(move || work(&for_thread, &told, &cancelled))
        .map_err(|error| OpenClError::Unusable(format!("no thread could be started: {error}")))?;
    let pending = OpenClPending { thread: Some(thread), cancel, key: key.clone(), _charge: charge };
    // Dropped before the pending proof when an upload fails: then the thread gets no slot and ends, and the drop doesn't wait for ever.
    let go = go;
    let slot = key.lease();
    let evaluated = evaluations.is_some();
    let mut c_given = false;
    let [a, b, c] = &slot.rows;
    if let Some(LentEvaluations { a: lent_a, b: lent_b, c: lent_c, .. }) = evaluations {
        c_given = lent_c.is_some();
        upload(&slot, lent_a, a, key.sizes.rows())?;
        upload(&slot, lent_b, b, key.sizes.rows())?;
        if let Some(lent_c) = lent_c {
            upload(&slot, lent_c, c, key.sizes.rows())?;
        }
    }
    upload(&slot, witness, &slot.witness, key.sizes.witness())?;
    // Also for what precedes an empty vector.
    slot.upload.finish()?;
    // The thread waits for this, or has panicked; then `finish` says so.
    let _ = go.send(Go { slot, evaluated, c_given });
    Ok(pending)
}

/// Copies a vector to the device, zeros after it, and releases it.
fn upload(slot: &SlotLease, vector: Lent<'_>, to: &Buffer, bytes: u64) -> Result<(), OpenClError> {
    let given = bytes_of_scalars(&vector);
    let len = given.len() as u64;
    if len > bytes {
        return Err(OpenClError::Unusable("a vector that is longer than the key has room for".into()));
    }
    slot.upload.clear(to, len, bytes - len)?;
    slot.upload.write(to, 0, given)?;
    vector.release();
    Ok(())
}

/// The thread: waits for the inputs, queues everything, waits for it, folds.
fn work(key: &Arc<DeviceKey>, told: &Receiver<Go>, cancel: &AtomicBool) -> Result<QuerySums, OpenClError> {
    let Ok(Go { slot, evaluated, c_given }) = told.recv() else { return Err(OpenClError::Cancelled) };
    let kernels = &key.instance.kernels;
    let (Some(first), Some(last)) = (slot.lanes.first(), slot.lanes.last()) else {
        return Err(OpenClError::Unusable("a slot without lanes".into()));
    };
    let cancelled = || if cancel.load(Ordering::Relaxed) { Err(OpenClError::Cancelled) } else { Ok(()) };
    cancelled()?;
    let [a, b, c] = &slot.rows;
    let n = 1u32 << key.sizes.log_n;
    if !evaluated {
        let Some([matrix_a, matrix_b]) = &key.matrices else { return Err(OpenClError::Cancelled) };
        // SAFETY: core has checked that the matrices have a column per variable and at most n rows; rows have room for n scalars.
        #[allow(unsafe_code)]
        unsafe {
            matrix_a.product(kernels, &first.queue, &slot.witness, a, n)?;
            matrix_b.product(kernels, &first.queue, &slot.witness, b, n)?;
        }
    }
    // SAFETY: rows have room for n scalars each.
    #[allow(unsafe_code)]
    let h = unsafe { key.transforms.quotient(kernels, &first.queue, &Rows { a, b, c, c_given })? };
    first.queue.flush()?;
    // SAFETY: the witness has been uploaded whole.
    #[allow(unsafe_code)]
    let [tail, units] =
        unsafe { count_kinds(kernels, &last.queue, &slot.witness, key.sizes.num_variables as u32, &slot.totals)? };
    let mut plans = [const { None }; 4];
    for sum in SumId::ALL {
        cancelled()?;
        if key.sizes.sum_len(sum) > 0 {
            let plan = key.residency.msm(&key.sizes, sum, tail.into(), units.into());
            queue_sum(key, &slot, sum, &plan, h, [tail.into(), units.into()], &cancelled)?;
            plans[sum as usize] = Some(plan);
        }
    }
    let read = |sum: SumId, plan: &Plan| -> Result<Vec<u8>, OpenClError> {
        let mut bytes = vec![0; plan.result_bytes() as usize];
        let lane = &slot.lanes[sum.lane(slot.lanes.len())];
        lane.queue.read(&slot.results[sum as usize], 0, &mut bytes)?;
        Ok(bytes)
    };
    let g1 = |sum: SumId| match &plans[sum as usize] {
        Some(plan) => read(sum, plan).map(|bytes| plan.fold_g1(&bytes)),
        None => Ok(G1Projective::identity()),
    };
    let b_g2 = match &plans[SumId::B2 as usize] {
        Some(plan) => plan.fold_g2(&read(SumId::B2, plan)?),
        None => G2Projective::identity(),
    };
    Ok(QuerySums {
        a: g1(SumId::A)?.to_affine(),
        b_g1: g1(SumId::B1)?.to_affine(),
        b_g2: b_g2.to_affine(),
        hl: g1(SumId::Hl)?.to_affine(),
    })
}

/// Queues one sum on its lane, streaming what isn't resident.
fn queue_sum(
    key: &DeviceKey,
    slot: &SlotLease,
    sum: SumId,
    plan: &Plan,
    h: &Buffer,
    [tail, units]: [u64; 2],
    cancelled: &dyn Fn() -> Result<(), OpenClError>,
) -> Result<(), OpenClError> {
    let lane = &slot.lanes[sum.lane(slot.lanes.len())];
    let msm = Msm { kernels: &key.instance.kernels, plan, workspace: &lane.workspace, queue: &lane.queue };
    msm.begin()?;
    let (chunk, len) = (key.residency.chunk(&key.sizes, sum), key.sizes.sum_len(sum));
    let mut staging = None;
    for number in 0..key.residency.chunks(&key.sizes, sum) {
        cancelled()?;
        let from = number * chunk;
        let count = chunk.min(len - from);
        let bases = match (key.resident(sum, number), &slot.stream) {
            (Some(resident), _) => resident,
            (None, Some(buffer)) => {
                let staging = match &mut staging {
                    Some(staging) => staging,
                    none => {
                        let bytes = (count * sum.group().record()).min(4 << 20) as usize;
                        none.insert(key.instance.options.memory.zeroed::<u8>(MemoryClass::Staging, bytes)?)
                    }
                };
                // In the lane's own queue: after the passes that read the buffer's last contents.
                upload_bases(&key.host, &lane.queue, buffer, sum, from, count, staging)?;
                buffer
            }
            (None, None) => return Err(OpenClError::Unusable("a chunk that is nowhere".into())),
        };
        let segments = key.segments(sum, from, count, &slot.witness, h);
        // The quotient's scalars may all be in the tail, or all units; the witness's are counted.
        let [tail, units] = [tail, units].map(|witness| {
            segments.iter().map(|s| if s.montgomery { witness.min(s.count.into()) } else { s.count.into() }).sum()
        });
        // SAFETY: bases and lists are the key's, and hold `count` records and variables of the witness; the quotient has n scalars, and
        // the H query at most as many bases; the counts are upper bounds.
        #[allow(unsafe_code)]
        unsafe {
            msm.pass(bases, &segments, tail, units)?;
        }
    }
    msm.finish(&slot.results[sum as usize])?;
    lane.queue.flush()
}

/// A proof whose sums are under way. It holds no input: the thread that sees to them.
pub struct OpenClPending {
    /// `None` once finished.
    thread: Option<JoinHandle<Result<QuerySums, OpenClError>>>,
    cancel: Arc<AtomicBool>,
    key: Arc<DeviceKey>,
    _charge: Charge,
}

impl std::fmt::Debug for OpenClPending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpenClPending")
    }
}

impl PendingSums for OpenClPending {
    fn finish(mut self) -> Result<QuerySums, BackendError> {
        let Some(thread) = self.thread.take() else { return Err(BackendError::Cancelled) };
        match thread.join() {
            Ok(sums) => sums.map_err(|error| self.key.instance.fail("finishing a proof", error)),
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }
}

impl Drop for OpenClPending {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.cancel.store(true, Ordering::Relaxed);
            // A panic has nobody to go to. What was queued is waited for where the slot is given back.
            drop(thread.join());
        }
    }
}
