//! A plug-in's table with something in between: what the host passes is altered on its way to the entry, and what the plug-in
//! does in return is watched.
//!
//! The host is core's own, so keys, inputs and results are a real proof's; only `load_key`, `start` and `finish` pass through
//! here. Cases run one after the other in a process that has one subject, so what lies between is in statics.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use splitprover_core::abi::{
    Backend, BackendLibrary, SP_ERR_ARGUMENT, SP_OK, SP_VECTOR_A, SP_VECTOR_B, SP_VECTOR_C, SP_VECTOR_WITNESS,
    SpBackendTable, SpError, SpHost, SpInputs, SpInstance, SpKey, SpLoadedKey, SpPending, SpStatus, SpSums,
};
use splitprover_core::{HostMemory, LoadedKey, PointRecord, Prover, QuerySums, SplitProver};

use super::abi::Plugin;
use super::form;
use super::ownership::typed;
use crate::conformance::Capability;
use crate::conformance::case::{Case, Context, Failure, Group, compare, ensure};
use crate::conformance::material::{Assignment, Form, Material, Plan, Witness};

pub(super) fn cases<P: SplitProver>() -> Vec<Case<P>> {
    let case = |name: &str, body: fn(&Context<'_, P>) -> Result<(), Failure>| {
        Case::new(Group::Abi, name, body).requires(&[Capability::Abi])
    };
    vec![
        case("short-key", short_key),
        case("wrong-lengths", wrong_lengths),
        case("double-release", double_release),
        case("late-calls", late_calls),
        case("short-and-long-sums", short_and_long_sums),
    ]
}

/// What happens on the way.
#[derive(Clone, Copy)]
enum Change {
    Nothing,
    Key(fn(&mut SpKey)),
    Inputs(fn(&mut SpInputs)),
    /// Every release is done twice, and calls after `start` has returned are counted.
    Watch,
    /// `finish` gets sums of this size, followed by more bytes.
    Sums(u64),
}

struct Real(SpBackendTable);

// SAFETY: a copy of static data whose entries may be called from any thread.
unsafe impl Send for Real {}

static REAL: Mutex<Option<Real>> = Mutex::new(None);
static CHANGE: Mutex<Change> = Mutex::new(Change::Nothing);
static LATE: AtomicUsize = AtomicUsize::new(0);
static LENT_AGAIN: AtomicUsize = AtomicUsize::new(0);
static FINISHED: Mutex<Option<LongSums>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn real() -> Option<SpBackendTable> {
    locked(&REAL).as_ref().map(|real| real.0)
}

/// Sums as the host provides them, followed by bytes that this version doesn't know.
#[repr(C)]
#[derive(Clone, Copy)]
struct LongSums {
    known: SpSums,
    unknown: [u8; 64],
}

const UNTOUCHED: u8 = 0xee;

/// The host's loan of one `start`. Leaked, so that a call that comes too late finds it.
struct Loan {
    ctx: *mut c_void,
    release: unsafe extern "C" fn(*mut c_void, u32),
    borrow_mut: unsafe extern "C" fn(*mut c_void, u32) -> *mut u64,
    over: AtomicBool,
}

impl Loan {
    /// # Safety
    /// `ctx` is that of a leaked `Loan`.
    unsafe fn of<'a>(ctx: *mut c_void) -> Option<&'a Self> {
        // SAFETY: by the caller's promise, valid for ever.
        let loan = unsafe { ctx.cast::<Self>().as_ref() }?;
        if loan.over.load(Ordering::SeqCst) {
            LATE.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        Some(loan)
    }
}

unsafe extern "C" fn release(ctx: *mut c_void, which: u32) {
    // SAFETY: `start` below made `ctx`. The host's functions are called during the host's `start`.
    unsafe {
        let Some(loan) = Loan::of(ctx) else { return };
        for which in [which, which, 4, u32::MAX] {
            (loan.release)(loan.ctx, which);
        }
        if !(loan.borrow_mut)(loan.ctx, which).is_null() {
            LENT_AGAIN.fetch_add(1, Ordering::SeqCst);
        }
    }
}

unsafe extern "C" fn borrow_mut(ctx: *mut c_void, which: u32) -> *mut u64 {
    // SAFETY: as in `release`.
    unsafe { Loan::of(ctx).map_or(std::ptr::null_mut(), |loan| (loan.borrow_mut)(loan.ctx, which)) }
}

unsafe extern "C" fn load_key(
    instance: *mut SpInstance,
    key: *const SpKey,
    out: *mut *mut SpLoadedKey,
    error: *mut *mut SpError,
) -> SpStatus {
    let Some(entry) = real().and_then(|table| table.load_key) else { return SP_ERR_ARGUMENT };
    // SAFETY: the host is this version's core: the struct is whole. The plug-in gets the host's arguments, but for the change.
    unsafe {
        let mut key = *key;
        let change = *locked(&CHANGE);
        if let Change::Key(change) = change {
            change(&mut key);
        }
        entry(instance, &key, out, error)
    }
}

unsafe extern "C" fn start(
    instance: *mut SpInstance,
    key: *mut SpLoadedKey,
    inputs: *const SpInputs,
    out: *mut *mut SpPending,
    error: *mut *mut SpError,
) -> SpStatus {
    let Some(entry) = real().and_then(|table| table.start) else { return SP_ERR_ARGUMENT };
    // SAFETY: as in `load_key`.
    unsafe {
        let mut inputs = *inputs;
        let mut loan: Option<&Loan> = None;
        let change = *locked(&CHANGE);
        match (change, inputs.release, inputs.borrow_mut) {
            (Change::Inputs(change), ..) => change(&mut inputs),
            (Change::Watch, Some(theirs), Some(borrow)) => {
                let ctx = inputs.ctx;
                let new = Loan { ctx, release: theirs, borrow_mut: borrow, over: AtomicBool::new(false) };
                let leaked: &'static Loan = Box::leak(Box::new(new));
                inputs.ctx = std::ptr::from_ref(leaked).cast_mut().cast();
                inputs.release = Some(release);
                inputs.borrow_mut = Some(borrow_mut);
                loan = Some(leaked);
            }
            _ => {}
        }
        let status = entry(instance, key, &inputs, out, error);
        if let Some(loan) = loan {
            loan.over.store(true, Ordering::SeqCst);
        }
        status
    }
}

unsafe extern "C" fn finish(pending: *mut SpPending, out: *mut SpSums, error: *mut *mut SpError) -> SpStatus {
    let Some(entry) = real().and_then(|table| table.finish) else { return SP_ERR_ARGUMENT };
    let change = *locked(&CHANGE);
    let Change::Sums(struct_size) = change else {
        // SAFETY: the host's arguments.
        return unsafe { entry(pending, out, error) };
    };
    let known =
        SpSums { struct_size, a: [UNTOUCHED; 96], b_g1: [UNTOUCHED; 96], b_g2: [UNTOUCHED; 192], hl: [UNTOUCHED; 96] };
    let mut sums = LongSums { known, unknown: [UNTOUCHED; 64] };
    // SAFETY: the host's handle, and a struct of the size that it gives, or of a larger one.
    let status = unsafe { entry(pending, std::ptr::from_mut(&mut sums).cast(), error) };
    *locked(&FINISHED) = Some(sums);
    status
}

unsafe extern "C" fn sp_negotiate(_: u32, _: u32, _: *const SpHost, out: *mut *const SpBackendTable) -> SpStatus {
    let Some(real) = real() else { return SP_ERR_ARGUMENT };
    let altered = SpBackendTable { load_key: Some(load_key), start: Some(start), finish: Some(finish), ..real };
    // SAFETY: the host's pointer. The table is leaked, so it is as good as static.
    unsafe { out.write(Box::leak(Box::new(altered))) };
    SP_OK
}

/// The plug-in behind what is in between.
struct Between(Prover<Backend>);

type Key = LoadedKey<Backend>;

impl Between {
    fn open<P: SplitProver>(context: &Context<'_, P>) -> Result<Self, Failure> {
        let Plugin { table, options, .. } = Plugin::of(context)?;
        *locked(&REAL) = Some(Real(table));
        // SAFETY: the plug-in's own table, but for three entries that hand on to it.
        let library = unsafe { BackendLibrary::negotiate(sp_negotiate) }.map_err(|e| Failure(e.to_string()))?;
        Ok(Self(Prover::new(library.open(&options)?)))
    }

    fn load(&self, material: &Material) -> Result<Key, Failure> {
        Ok(self.0.load_key(material.key.clone())?)
    }

    fn sums(&self, key: &Key, assignment: &Assignment, change: Change) -> Result<QuerySums, Failure> {
        *locked(&CHANGE) = change;
        let inputs = assignment.inputs(&HostMemory::default())?;
        let sums = self.0.start(key, inputs).map_err(Failure::from).and_then(|started| Ok(started.finish_sums()?));
        *locked(&CHANGE) = Change::Nothing;
        sums
    }

    /// A proof with nothing in between.
    fn prove(&self, key: &Key, assignment: &Assignment) -> Result<(), Failure> {
        compare(&self.sums(key, assignment, Change::Nothing)?, &assignment.expected, || assignment.what.clone())
    }
}

/// A key of a size that this version doesn't have is refused, and the next one is loaded.
fn short_key<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let mut rng = context.rng();
    let between = Between::open(context)?;
    let material = Material::new(Plan::of_log2(4), &mut rng)?;
    let assignment = material.assign(Witness::Dense, form(context, &material.plan), &mut rng);
    let changes: [fn(&mut SpKey); 3] = [|k| k.struct_size = 0, |k| k.struct_size = 8, |k| k.struct_size -= 8];
    for change in changes {
        *locked(&CHANGE) = Change::Key(change);
        let result = between.0.load_key(material.key.clone());
        *locked(&CHANGE) = Change::Nothing;
        let Err(error) = result else { return Err("a key whose struct is too short was accepted".into()) };
        typed(&error)?;
        between.prove(&between.load(&material)?, &assignment)?;
    }
    Ok(())
}

fn lengths(inputs: &mut SpInputs, which: &[u32], change: impl Fn(u64) -> u64) {
    for &which in which {
        let len = &mut inputs.vectors[which as usize].len;
        *len = change(*len);
    }
}

type InputsChange = (&'static str, fn(&mut SpInputs));

/// Each is wrong for every key and for inputs with a, b and c.
const WRONG: [InputsChange; 17] = [
    ("inputs without a size", |i| i.struct_size = 0),
    ("inputs whose struct is too short", |i| i.struct_size -= 8),
    ("no inputs at all", |i| i.present = 0),
    ("no witness", |i| i.present &= !(1 << SP_VECTOR_WITNESS)),
    ("a without b", |i| i.present &= !(1 << SP_VECTOR_B)),
    ("b without a", |i| i.present &= !(1 << SP_VECTOR_A)),
    ("c alone", |i| i.present = 1 << SP_VECTOR_WITNESS | 1 << SP_VECTOR_C),
    ("an empty witness", |i| lengths(i, &[SP_VECTOR_WITNESS], |_| 0)),
    ("a witness one value too short", |i| lengths(i, &[SP_VECTOR_WITNESS], |len| len - 1)),
    ("a witness one value too long", |i| lengths(i, &[SP_VECTOR_WITNESS], |len| len + 1)),
    ("a witness as long as memory", |i| lengths(i, &[SP_VECTOR_WITNESS], |_| u64::MAX / 32)),
    ("a witness whose bytes overflow", |i| lengths(i, &[SP_VECTOR_WITNESS], |_| u64::MAX)),
    ("a shorter than b", |i| lengths(i, &[SP_VECTOR_A], |len| len - 1)),
    ("b shorter than a", |i| lengths(i, &[SP_VECTOR_B], |len| len - 1)),
    ("c longer than a", |i| lengths(i, &[SP_VECTOR_C], |len| len + 1)),
    ("evaluations longer than any domain", |i| {
        lengths(i, &[SP_VECTOR_A, SP_VECTOR_B, SP_VECTOR_C], |_| (1 << 28) + 1);
    }),
    ("evaluations whose bytes overflow", |i| {
        lengths(i, &[SP_VECTOR_A, SP_VECTOR_B, SP_VECTOR_C], |_| 1 << 60);
    }),
];

/// Lengths that don't fit the key are refused before anything is released or written: the inputs come back whole, and the
/// instance is as good as before.
fn wrong_lengths<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let mut rng = context.rng();
    let between = Between::open(context)?;
    // Evaluations as long as the domain, for a key without matrices; or shorter, for one that has them.
    let plain = Plan { variables: 50, ..Plan::of_log2(5) };
    for plan in [plain.bellman(), Plan { rows: 20, ..plain }] {
        let material = Material::new(plan, &mut rng)?;
        let key = between.load(&material)?;
        let assignment = material.assign(Witness::Dense, Form::GivenWithC, &mut rng);
        let missing: &[InputsChange] = match plan.matrices {
            true => &[],
            false => &[("no evaluations for a key without matrices", |i| i.present = 1)],
        };
        for &(what, change) in WRONG.iter().chain(missing) {
            *locked(&CHANGE) = Change::Inputs(change);
            let result = between.0.start(&key, assignment.inputs(&HostMemory::default())?);
            *locked(&CHANGE) = Change::Nothing;
            let Err(error) = result else { return Err(Failure(format!("{what}: start accepted that"))) };
            typed(&error.source).map_err(|e| e.context(what))?;
            let whole = error.inputs.as_ref().is_some_and(|inputs| assignment.matches(inputs));
            ensure!(whole, "{what}: refused ({}), and the inputs did not come back whole", error.source);
            between.prove(&key, &assignment).map_err(|e| e.context(format_args!("after {what}")))?;
        }
    }
    Ok(())
}

/// Proofs in every form of input under [`Change::Watch`]. Afterwards the instance is gone.
fn watched<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let mut rng = context.rng();
    let between = Between::open(context)?;
    LATE.store(0, Ordering::SeqCst);
    LENT_AGAIN.store(0, Ordering::SeqCst);
    for plan in [Plan::of_log2(6), Plan::of_log2(6).bellman()] {
        let material = Material::new(plan, &mut rng)?;
        let key = between.load(&material)?;
        for &form in super::forms(context, &plan) {
            let assignment = material.assign(Witness::Dense, form, &mut rng);
            let sums = between.sums(&key, &assignment, Change::Watch)?;
            compare(&sums, &assignment.expected, || assignment.what.clone())?;
        }
    }
    Ok(())
}

/// Releasing a vector twice, or one that isn't there, does nothing, and what was released isn't lent again.
fn double_release<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    watched(context)?;
    let again = LENT_AGAIN.load(Ordering::SeqCst);
    ensure!(again == 0, "{again} vectors could be borrowed after they were released");
    Ok(())
}

/// Nobody calls the loan's functions once `start` has returned.
fn late_calls<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    watched(context)?;
    // A straggler gets its chance.
    std::thread::sleep(Duration::from_millis(300));
    let late = LATE.load(Ordering::SeqCst);
    ensure!(late == 0, "release or borrow_mut were called {late} times after start had returned");
    Ok(())
}

/// `finish` writes as much as the host has room for, and as it knows itself.
fn short_and_long_sums<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let mut rng = context.rng();
    let between = Between::open(context)?;
    let material = Material::new(Plan::of_log2(4), &mut rng)?;
    let key = between.load(&material)?;
    let assignment = material.assign(Witness::Dense, form(context, &material.plan), &mut rng);
    let mut expected = [UNTOUCHED; size_of::<LongSums>()];
    let QuerySums { a, b_g1, b_g2, hl } = assignment.expected;
    a.write_record(&mut expected[8..104]);
    b_g1.write_record(&mut expected[104..200]);
    b_g2.write_record(&mut expected[200..392]);
    hl.write_record(&mut expected[392..488]);
    for size in [8usize, 104, 200, 488, 488 + 64] {
        // The host sees sums that weren't written, and refuses them; what counts is what was written here.
        let _ = between.sums(&key, &assignment, Change::Sums(size as u64));
        let sums = locked(&FINISHED).take().ok_or("finish was not reached")?;
        // SAFETY: a struct of integers and bytes without padding (8 + 480 + 64 bytes, aligned to 8).
        let bytes = unsafe { std::mem::transmute::<LongSums, [u8; size_of::<LongSums>()]>(sums) };
        ensure!(bytes[..8] == (size as u64).to_le_bytes(), "finish changed the size of sums of {size} bytes");
        let written = size.min(size_of::<SpSums>());
        ensure!(bytes[8..written] == expected[8..written], "finish did not fill sums of {size} bytes with the sums");
        let beyond = bytes[written..].iter().all(|&byte| byte == UNTOUCHED);
        ensure!(beyond, "finish wrote beyond the {size} bytes of the host's sums, or beyond those it knows");
    }
    between.prove(&key, &assignment)
}
