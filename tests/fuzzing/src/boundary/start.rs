//! The arguments of a plug-in's `start`.

use std::cell::RefCell;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock};

use ff::Field;
use splitprover_core::abi::{
    Backend, BackendLibrary, BackendPlugin, DeviceInfo, Host, OpenOptions, Options, SP_ERR_CANCELLED, SP_ERR_PANICKED,
    SP_ERR_POISONED, SP_OK, SpBackendTable, SpError, SpErrorInfo, SpHost, SpInputs, SpInstance, SpKey, SpLoadedKey,
    SpPending, SpStatus, SpStr, SpSums, SpVector, table,
};
use splitprover_core::host_buf::Origin;
use splitprover_core::{
    BackendError, CircuitShape, G1Affine, G2Affine, HBasis, HostBuf, HostMemory, Lent, LentInputs, LoadedKey,
    MemoryClass, PendingSums, Prover, ProvingKey, QuerySums, Scalar, SplitProver,
};
use splitprover_harness::setup::{CpuFixedBase, Resources, Shape, Synthetic, Trapdoor, generate};

use super::{Bytes, block};
use crate::Outcome;

/// What the plug-in does with a vector once it has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Release,
    Drop,
    Forget,
    Write,
    WriteAndRelease,
}

const ACTS: [Act; 5] = [Act::Release, Act::Drop, Act::Forget, Act::Write, Act::WriteAndRelease];

/// A vector as the plug-in sees it: its number, length, hash, and whether it comes from the plug-in's own pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    which: usize,
    len: usize,
    hash: u64,
    origin: Origin,
}

#[derive(Default)]
struct Script {
    acts: [Option<Act>; 4],
    fails: bool,
    seen: Vec<Seen>,
}

thread_local! {
    static SCRIPT: RefCell<Script> = RefCell::default();
    static LOG: RefCell<Log> = RefCell::default();
}

fn hash(values: &[Scalar]) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.iter().for_each(|value| value.to_bytes_le().hash(&mut hasher));
    hasher.finish()
}

/// A backend that reads everything and follows the script.
struct Reads;

struct Infinite;

impl PendingSums for Infinite {
    fn finish(self) -> Result<QuerySums, BackendError> {
        let (g1, g2) = (G1Affine::default(), G2Affine::default());
        Ok(QuerySums { a: g1, b_g1: g1, b_g2: g2, hl: g1 })
    }
}

impl SplitProver for Reads {
    type Key = ();
    type Pending = Infinite;

    fn load_key(&self, _: &Arc<ProvingKey>) -> Result<(), BackendError> {
        Ok(())
    }

    fn start<'i>(&self, (): &(), inputs: LentInputs<'i>) -> Result<Infinite, BackendError> {
        let mut vectors = vec![(0, inputs.witness)];
        if let Some(given) = inputs.evaluations {
            vectors.extend([(1, given.a), (2, given.b)]);
            vectors.extend(given.c.map(|c| (3, c)));
        }
        SCRIPT.with_borrow_mut(|script| {
            for (which, vector) in vectors {
                script.seen.push(Seen { which, len: vector.len(), hash: hash(&vector), origin: vector.origin() });
                act(script.acts[which].unwrap_or(Act::Drop), vector);
            }
            if script.fails { Err(BackendError::Cancelled) } else { Ok(Infinite) }
        })
    }

    fn retained_host_bytes(&self, _: &CircuitShape) -> u64 {
        0
    }
}

// Ending a loan by dropping or forgetting it is what is tested, whether it runs a destructor or not.
#[allow(clippy::drop_non_drop, clippy::forget_non_drop)]
fn act(act: Act, mut vector: Lent<'_>) {
    if matches!(act, Act::Write | Act::WriteAndRelease) {
        vector.make_mut().fill(Scalar::ZERO);
    }
    match act {
        Act::Release | Act::WriteAndRelease => vector.release(),
        Act::Forget => std::mem::forget(vector),
        Act::Drop | Act::Write => drop(vector),
    }
}

impl BackendPlugin for Reads {
    const NAME: &'static str = "reads";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = "1";
    type Prover = Self;

    fn devices(_: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        Ok(Vec::new())
    }

    fn open(_: usize, _: &Options, _: Host) -> Result<Self, BackendError> {
        Ok(Self)
    }
}

/// Handles of an instance and a key, as the host got them.
#[derive(Clone, Copy)]
struct Handles {
    instance: *mut SpInstance,
    key: *mut SpLoadedKey,
}

// SAFETY: entries may be called with them from any thread.
unsafe impl Send for Handles {}

static LOADED: Mutex<Vec<Handles>> = Mutex::new(Vec::new());

unsafe extern "C" fn load_key(
    instance: *mut SpInstance,
    key: *const SpKey,
    out: *mut *mut SpLoadedKey,
    error: *mut *mut SpError,
) -> SpStatus {
    // SAFETY: the host's arguments, handed on.
    unsafe {
        let status = table::<Reads>().load_key.expect("it has one")(instance, key, out, error);
        LOADED.lock().expect("no panics").push(Handles { instance, key: *out });
        status
    }
}

unsafe extern "C" fn notes_handles(_: u32, _: u32, _: *const SpHost, out: *mut *const SpBackendTable) -> SpStatus {
    static TABLE: OnceLock<usize> = OnceLock::new();
    let address = TABLE.get_or_init(|| {
        let altered = SpBackendTable { load_key: Some(load_key), ..*table::<Reads>() };
        std::ptr::from_ref(Box::leak(Box::new(altered))).expose_provenance()
    });
    // SAFETY: the host's pointer, and a leaked table.
    unsafe { out.write(std::ptr::with_exposed_provenance(*address)) };
    SP_OK
}

/// What stays the same for all inputs: two instances, and a key with matrices and one without on the first.
struct Fixed {
    own: [Handles; 2],
    stranger: Handles,
    variables: usize,
    rows: usize,
    _alive: (Vec<Prover<Backend>>, Vec<LoadedKey<Backend>>),
}

fn fixed() -> &'static Mutex<Fixed> {
    static FIXED: OnceLock<Mutex<Fixed>> = OnceLock::new();
    FIXED.get_or_init(|| {
        let memory = HostMemory::default();
        let circuit = Synthetic::new(Shape::Dense, 4).expect("a small circuit");
        let basis = HBasis::OddLagrange;
        let resources = Resources { memory: &memory, fixed_base: &CpuFixedBase::new(16), progress: &|_, _, _| {} };
        let generated = generate(&circuit, basis, &Trapdoor::from_seed(1, basis), &resources);
        let key = generated.expect("a small key").key;
        let bare = Arc::new(key.without_matrices());
        // SAFETY: the table of a real plug-in.
        let library = unsafe { BackendLibrary::negotiate(notes_handles) }.expect("a whole table");
        let provers = [0, 0].map(|device| Prover::new(library.open(&OpenOptions::new(device)).expect("it opens")));
        let load = |prover: &Prover<Backend>, key: &Arc<ProvingKey>| prover.load_key(key.clone()).expect("a good key");
        let keys = vec![load(&provers[0], &key), load(&provers[0], &bare), load(&provers[1], &key)];
        let loaded = LOADED.lock().expect("no panics");
        let shape = key.shape();
        Mutex::new(Fixed {
            own: [loaded[0], loaded[1]],
            stranger: loaded[2],
            variables: shape.num_variables,
            rows: shape.domain_size(),
            _alive: (provers.into(), keys),
        })
    })
}

/// What the host's functions saw.
#[derive(Default)]
struct Log {
    released: Vec<u32>,
    borrowed: Vec<u32>,
    /// Where `borrow_mut` points to, by vector.
    memory: [usize; 4],
}

unsafe extern "C" fn release(ctx: *mut c_void, which: u32) {
    assert_eq!(ctx.addr(), CTX);
    LOG.with_borrow_mut(|log| log.released.push(which));
}

unsafe extern "C" fn borrow_mut(ctx: *mut c_void, which: u32) -> *mut u64 {
    assert_eq!(ctx.addr(), CTX);
    LOG.with_borrow_mut(|log| {
        log.borrowed.push(which);
        std::ptr::with_exposed_provenance_mut(log.memory[which as usize])
    })
}

/// An argument that is nobody's pointer: it is only passed back.
const CTX: usize = 0xc7;

/// Where a vector begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    /// 64 bytes further: aligned as well.
    Later,
    Null,
    Misaligned(usize),
}

impl Place {
    fn of(bytes: &mut Bytes<'_>) -> Self {
        match bytes.u8() {
            0..200 => Self::Start,
            200..220 => Self::Later,
            220..230 => Self::Null,
            other => Self::Misaligned(1 + usize::from(other) % 63),
        }
    }
}

/// One vector as the host offers it.
struct Offered {
    memory: HostBuf<Scalar>,
    place: Place,
    view: SpVector,
}

impl Offered {
    /// `usual` scalars, with room for two more.
    fn new(bytes: &mut Bytes<'_>, usual: usize, memory: &HostMemory) -> Self {
        let mut values = memory.zeroed::<Scalar>(MemoryClass::Witness, usual + 2).expect("a few bytes");
        let seed = Scalar::from(bytes.u64());
        values.iter_mut().enumerate().for_each(|(i, value)| *value = seed + Scalar::from(i as u64));
        let place = Place::of(bytes);
        if bytes.u8() < 224 {
            let first = if place == Place::Later { 2 } else { 0 };
            values[first] = Scalar::ONE;
        }
        let base = values.as_ptr().cast::<u8>();
        let data = match place {
            Place::Start => base,
            Place::Later => base.wrapping_add(64),
            Place::Null => std::ptr::null(),
            Place::Misaligned(by) => base.wrapping_add(by),
        };
        let len = match bytes.u8() {
            0..160 => usual as u64,
            160..200 => u64::from(bytes.u8()) % (usual as u64 + 1),
            200..220 => usual as u64 + 1,
            220..230 => u64::MAX / 32 - u64::from(bytes.u8()) + 128,
            _ => bytes.u64(),
        };
        let pooled = bytes.mostly(0, |bytes| u32::from(bytes.u8() % 3));
        let view =
            SpVector { data: data.cast(), len, pool: bytes.mostly(0, Bytes::u64), pooled, reserved: bytes.u32() };
        Self { memory: values, place, view }
    }

    fn addressable(&self) -> bool {
        matches!(self.place, Place::Start | Place::Later)
    }

    /// The scalars of the view, if the length is one that was meant.
    fn values(&self) -> &[Scalar] {
        let first = if self.place == Place::Later { 2 } else { 0 };
        &self.memory[first..first + self.view.len as usize]
    }
}

/// Inputs for one of two keys, and what the plug-in does with them. No bytes are neither.
///
/// * Inputs reach the backend exactly if struct, flags, addresses, lengths and the constant 1 are what they must be; it sees
///   the vectors that were offered.
/// * Otherwise `start` fails with an error that is no panic, and nothing was released, borrowed or handed out.
/// * A vector is released exactly if the backend releases it, once; it is borrowed before it is written to.
///
/// # Panics
/// If one of these doesn't hold.
pub fn start_arguments(data: &[u8]) -> Outcome {
    if data.is_empty() {
        return Outcome::Refused;
    }
    let mut bytes = Bytes(data);
    let fixed = fixed().lock().expect("no panics");
    let t = table::<Reads>();

    let kind = bytes.u8();
    let with_matrices = kind % 2 == 0;
    let own = fixed.own[usize::from(!with_matrices)];
    let (instance, key) = match kind {
        0..240 => (own.instance, own.key),
        240..244 => (fixed.stranger.instance, own.key),
        244..248 => (own.instance, fixed.stranger.key),
        248..252 => (std::ptr::null_mut(), own.key),
        _ => (own.instance, std::ptr::null_mut()),
    };

    let memory = HostMemory::default();
    let offered: [Offered; 4] =
        std::array::from_fn(|i| Offered::new(&mut bytes, if i == 0 { fixed.variables } else { fixed.rows }, &memory));
    let equal = bytes.u8() < 128;
    let vectors = offered.each_ref().map(|vector| vector.view);
    let mut view = SpInputs {
        struct_size: bytes.mostly(size_of::<SpInputs>() as u64, Bytes::u64),
        ctx: std::ptr::without_provenance_mut(CTX),
        present: match bytes.u8() {
            0..64 => 0b0001,
            64..128 => 0b0111,
            128..192 => 0b1111,
            _ => bytes.u32(),
        },
        reserved: bytes.u32(),
        vectors,
        release: (bytes.u8() != 255).then_some(release as unsafe extern "C" fn(*mut c_void, u32)),
        borrow_mut: (bytes.u8() != 255).then_some(borrow_mut as unsafe extern "C" fn(*mut c_void, u32) -> *mut u64),
    };
    let mut offered = offered;
    if equal {
        // Otherwise equal lengths are rare.
        for i in [2, 3] {
            view.vectors[i].len = view.vectors[1].len;
            offered[i].view.len = view.vectors[1].len;
        }
    }
    let no_place = bytes.u8() == 255;
    let acts = std::array::from_fn(|_| Some(ACTS[usize::from(bytes.u8()) % ACTS.len()]));
    let fails = bytes.u8() % 4 == 3;
    // The host may move a vector that is borrowed to be written to.
    let moves = bytes.u8() % 2 == 1;
    let mut other: [HostBuf<Scalar>; 4] = std::array::from_fn(|i| {
        memory.zeroed::<Scalar>(MemoryClass::Witness, offered[i].memory.len()).expect("a few bytes")
    });
    let places = std::array::from_fn(|i| match moves {
        true => other[i].as_mut_ptr().expose_provenance(),
        // As memory that is written to from now on.
        false => offered[i]
            .memory
            .as_mut_ptr()
            .wrapping_byte_add(if offered[i].place == Place::Later { 64 } else { 0 })
            .expose_provenance(),
    });
    for (i, vector) in offered.iter().enumerate() {
        if vector.addressable() {
            view.vectors[i].data = std::ptr::with_exposed_provenance(match vector.place {
                Place::Later => vector.memory.as_ptr().wrapping_add(2).expose_provenance(),
                _ => vector.memory.as_ptr().expose_provenance(),
            });
        }
    }
    LOG.with_borrow_mut(|log| *log = Log { memory: places, ..Log::default() });
    SCRIPT.with_borrow_mut(|script| *script = Script { acts, fails, seen: Vec::new() });

    let good = kind < 240 && !no_place && fits(&view, &offered, &fixed, with_matrices);
    let expected: Vec<Seen> = if good { seen(&view, &offered) } else { Vec::new() };
    let block = block(&view, view.struct_size);
    let (mut pending, mut error): (*mut SpPending, *mut SpError) = (std::ptr::null_mut(), std::ptr::null_mut());
    let out = if no_place { std::ptr::null_mut() } else { std::ptr::from_mut(&mut pending) };
    // SAFETY: handles that are alive or null; a struct as large as it says, whose pointers point to what is there for every
    // length that is accepted; writable pointers or null.
    let status = unsafe { t.start.expect("it has one")(instance, key, block.as_ptr().cast(), out, &mut error) };

    let log = LOG.with_borrow_mut(std::mem::take);
    let script = SCRIPT.with_borrow_mut(std::mem::take);
    assert_eq!(status == SP_OK, error.is_null(), "status {status}");
    describe(t, status, error);
    assert_eq!(pending.is_null(), status != SP_OK);
    assert_eq!(script.seen, expected, "{good}");
    if !good {
        assert!(![SP_OK, SP_ERR_PANICKED, SP_ERR_POISONED].contains(&status), "status {status}");
        assert_eq!((log.released, log.borrowed), (vec![], vec![]));
        return Outcome::Refused;
    }
    assert_eq!(status, if fails { SP_ERR_CANCELLED } else { SP_OK });
    let numbers = |wanted: &[Act]| -> Vec<u32> {
        let acted = |seen: &&Seen| acts[seen.which].is_some_and(|act| wanted.contains(&act));
        expected.iter().filter(acted).map(|seen| seen.which as u32).collect()
    };
    assert_eq!(log.released, numbers(&[Act::Release, Act::WriteAndRelease]));
    let mut borrowed = log.borrowed;
    borrowed.dedup();
    assert_eq!(borrowed, numbers(&[Act::Write, Act::WriteAndRelease]));
    if status == SP_OK {
        end(t, pending, &mut bytes);
    }
    drop((offered, other));
    Outcome::Accepted
}

/// Whether the inputs are a host's.
fn fits(view: &SpInputs, offered: &[Offered; 4], fixed: &Fixed, with_matrices: bool) -> bool {
    let present = |i: usize| view.present >> i & 1 == 1;
    let whole = view.struct_size >= size_of::<SpInputs>() as u64 && view.release.is_some() && view.borrow_mut.is_some();
    let addressable = (0..4).all(|i| !present(i) || offered[i].addressable());
    if !whole || !addressable || !present(0) || view.vectors[0].len != fixed.variables as u64 {
        return false;
    }
    if offered[0].values()[0] != Scalar::ONE {
        return false;
    }
    let rows = view.vectors[1].len;
    match (present(1), present(2), present(3)) {
        (false, false, false) => with_matrices,
        (true, true, c) => {
            rows <= fixed.rows as u64 && view.vectors[2].len == rows && (!c || view.vectors[3].len == rows)
        }
        _ => false,
    }
}

/// What the backend is to see of good inputs.
fn seen(view: &SpInputs, offered: &[Offered; 4]) -> Vec<Seen> {
    let vectors = offered.iter().enumerate().filter(|(i, _)| view.present >> i & 1 == 1);
    vectors
        .map(|(which, vector)| {
            let origin = if vector.view.pooled == 1 { Origin::Pool(vector.view.pool) } else { Origin::Pageable };
            Seen { which, len: vector.values().len(), hash: hash(vector.values()), origin }
        })
        .collect()
}

/// An error says what the status said, and is destroyed.
fn describe(t: &SpBackendTable, status: SpStatus, error: *mut SpError) {
    if error.is_null() {
        return;
    }
    let mut info = SpErrorInfo {
        struct_size: size_of::<SpErrorInfo>() as u64,
        code: SP_OK,
        memory_class: 0,
        what: SpStr::EMPTY,
        message: SpStr::EMPTY,
        requested: 0,
        available: 0,
    };
    // SAFETY: the handle that the plug-in has just stored, destroyed once.
    unsafe {
        t.error_info.expect("it has one")(error, &mut info);
        t.error_destroy.expect("it has one")(error);
    }
    assert_eq!(info.code, status);
}

/// Ends a pending proof: by `finish`, into sums of any size, or by dropping it.
fn end(t: &SpBackendTable, pending: *mut SpPending, bytes: &mut Bytes<'_>) {
    let mut error = std::ptr::null_mut();
    if bytes.u8() % 2 == 1 {
        // SAFETY: the handle of `start`, ended once.
        let status = unsafe { t.drop_pending.expect("it has one")(pending, &mut error) };
        assert!(status == SP_OK && error.is_null());
        return;
    }
    let struct_size = bytes.mostly(size_of::<SpSums>() as u64, |bytes| u64::from(bytes.u32() % 1024));
    let sums = SpSums { struct_size, a: [0xff; 96], b_g1: [0xff; 96], b_g2: [0xff; 192], hl: [0xff; 96] };
    let mut block = block(&sums, struct_size);
    // SAFETY: as above; a writable struct as large as it says.
    let status = unsafe { t.finish.expect("it has one")(pending, block.as_mut_ptr().cast(), &mut error) };
    assert!(status == SP_OK && error.is_null());
    // Infinity is all zeros.
    let written = struct_size.min(size_of::<SpSums>() as u64) as usize;
    let bytes: Vec<u8> = block.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(bytes[..8], struct_size.to_le_bytes());
    assert!(bytes.iter().enumerate().skip(8).all(|(i, byte)| *byte == if i < written { 0 } else { 0xff }));
}
