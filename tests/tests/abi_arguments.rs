//! What a Rust plug-in does with arguments that break the ABI: it refuses them, and the inputs come back.
//!
//! The arguments are a host's real ones with one field changed on the way.

use std::sync::Mutex;

use rand_core::OsRng;
use splitprover_core::abi::{
    Backend, BackendLibrary, BackendPlugin, DeviceInfo, Host, OpenOptions, Options, SP_OK, SP_VECTOR_A, SP_VECTOR_B,
    SP_VECTOR_WITNESS, SpBackendTable, SpError, SpHost, SpInputs, SpInstance, SpKey, SpLoadedKey, SpPending, SpStatus,
    table,
};
use splitprover_core::{BackendError, HBasis, HostMemory, Prover};
use splitprover_tests::naive::{NaiveProver, Setup};

struct Naive;

impl BackendPlugin for Naive {
    const NAME: &'static str = "naive";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = "1";
    type Prover = NaiveProver;

    fn devices(_: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        Ok(Vec::new())
    }

    fn open(_: usize, _: &Options, _: Host) -> Result<NaiveProver, BackendError> {
        Ok(NaiveProver)
    }
}

/// What a change is called, and what it does.
type Change<T> = (&'static str, fn(&mut T));

static CHANGE_KEY: Mutex<fn(&mut SpKey)> = Mutex::new(|_| {});
static CHANGE_INPUTS: Mutex<fn(&mut SpInputs)> = Mutex::new(|_| {});
/// The tests share the statics above.
static ONE_TEST: Mutex<()> = Mutex::new(());

unsafe extern "C" fn load_key(
    instance: *mut SpInstance,
    key: *const SpKey,
    out: *mut *mut SpLoadedKey,
    error: *mut *mut SpError,
) -> SpStatus {
    // SAFETY: the host's struct, of this version; the real entry gets the host's arguments but for what a test changes.
    unsafe {
        let mut key = *key;
        (CHANGE_KEY.lock().unwrap())(&mut key);
        table::<Naive>().load_key.unwrap()(instance, &key, out, error)
    }
}

unsafe extern "C" fn start(
    instance: *mut SpInstance,
    key: *mut SpLoadedKey,
    inputs: *const SpInputs,
    out: *mut *mut SpPending,
    error: *mut *mut SpError,
) -> SpStatus {
    // SAFETY: as in `load_key`.
    unsafe {
        let mut inputs = *inputs;
        (CHANGE_INPUTS.lock().unwrap())(&mut inputs);
        table::<Naive>().start.unwrap()(instance, key, &inputs, out, error)
    }
}

unsafe extern "C" fn sp_negotiate(_: u32, _: u32, _: *const SpHost, out: *mut *const SpBackendTable) -> SpStatus {
    let altered = SpBackendTable { load_key: Some(load_key), start: Some(start), ..*table::<Naive>() };
    // SAFETY: the host's pointer; the table is leaked, so it is static.
    unsafe { out.write(Box::leak(Box::new(altered))) };
    SP_OK
}

fn open() -> Prover<Backend> {
    // SAFETY: a table of this crate's own.
    let library = unsafe { BackendLibrary::negotiate(sp_negotiate) }.unwrap();
    Prover::new(library.open(&OpenOptions::new(0)).unwrap())
}

#[test]
fn keys_that_break_the_abi_are_refused() {
    let _one = ONE_TEST.lock().unwrap();
    let prover = open();
    let changes: [Change<SpKey>; 20] = [
        ("no size", |k| k.struct_size = 0),
        ("short", |k| k.struct_size -= 8),
        ("no retain", |k| k.retain = None),
        ("no release", |k| k.release = None),
        ("public inputs", |k| k.shape.num_public = u64::MAX),
        ("fewer public inputs", |k| k.shape.num_public -= 1),
        ("large domain", |k| k.shape.domain_log2 = 29),
        ("absurd domain", |k| k.shape.domain_log2 = u32::MAX),
        ("another domain", |k| k.shape.domain_log2 -= 1),
        ("unknown basis", |k| k.h_basis = 2),
        ("no root", |k| k.root = [0; 4]),
        ("a root of order 1", |k| {
            k.root = [0x1_ffff_fffe, 0x5884_b7fa_0003_4802, 0x998c_4fef_ecbc_4ff5, 0x1824_b159_acc5_056f]
        }),
        ("a point off the curve", |k| k.alpha_g1[0] ^= 1),
        ("infinity", |k| k.delta_g2 = [0; 192]),
        ("no ic", |k| k.ic = std::ptr::null()),
        ("no records", |k| k.a.records = std::ptr::null()),
        ("fewer records", |k| k.h.num_records -= 1),
        ("more records than memory", |k| k.l.num_records = u64::MAX / 96),
        ("fewer variables", |k| (k.b_g2.num_variables, k.b_g2.num_records) = (1, 1)),
        ("unknown storage", |k| {
            for query in [&mut k.a, &mut k.b_g1, &mut k.b_g2, &mut k.l, &mut k.h] {
                query.storage = 2;
            }
        }),
    ];
    for basis in [HBasis::OddLagrange, HBasis::Monomial] {
        let setup = Setup::random(3, basis, 2, 3, 6);
        let key = &setup.key;
        assert!(prover.load_key(key.clone()).is_ok());
        assert!(key.b_g1().density().is_some(), "the test needs a query that isn't full");
        for (what, change) in changes {
            *CHANGE_KEY.lock().unwrap() = change;
            let references = std::sync::Arc::strong_count(key);
            let error = prover.load_key(key.clone()).expect_err(what);
            assert!(!matches!(error, BackendError::Panicked(_)), "{what}: {error}");
            assert_eq!(std::sync::Arc::strong_count(key), references, "{what}: the key is let go of");
        }
        *CHANGE_KEY.lock().unwrap() = |_| {};
    }
}

#[test]
fn inputs_that_break_the_abi_are_refused_and_come_back() {
    let _one = ONE_TEST.lock().unwrap();
    let changes: [Change<SpInputs>; 18] = [
        ("no size", |i| i.struct_size = 0),
        ("short", |i| i.struct_size -= 8),
        ("no release", |i| i.release = None),
        ("no borrow_mut", |i| i.borrow_mut = None),
        ("nothing", |i| i.present = 0),
        ("no witness", |i| i.present &= !(1 << SP_VECTOR_WITNESS)),
        ("no a", |i| i.present &= !(1 << SP_VECTOR_A)),
        ("no b", |i| i.present &= !(1 << SP_VECTOR_B)),
        ("c alone", |i| i.present = 1 | 1 << 3),
        ("null", |i| i.vectors[0].data = std::ptr::null()),
        ("misaligned", |i| i.vectors[1].data = i.vectors[1].data.wrapping_add(1)),
        ("absurd", |i| i.vectors[2].len = u64::MAX / 16),
        ("empty witness", |i| i.vectors[0].len = 0),
        ("short witness", |i| i.vectors[0].len -= 1),
        ("long witness", |i| i.vectors[0].len += 1),
        ("a longer than the domain", |i| (1..4).for_each(|v| i.vectors[v].len = 1 << 20)),
        ("b shorter than a", |i| i.vectors[2].len -= 1),
        ("c longer than a", |i| i.vectors[3].len += 1),
    ];
    let setup = Setup::small();
    let memory = HostMemory::default();
    let prover = open();
    let key = prover.load_key(setup.key.clone()).unwrap();
    let values = setup.circuit.assignment(&mut OsRng);
    for (what, change) in changes {
        *CHANGE_INPUTS.lock().unwrap() = change;
        let error = prover.start(&key, setup.inputs_with_evaluations(&memory, &values, true).unwrap()).expect_err(what);
        assert!(!matches!(error.source, BackendError::Panicked(_)), "{what}: {error}");
        assert_eq!(error.inputs.expect(what).witness()[..], values[..], "{what}");
    }
    *CHANGE_INPUTS.lock().unwrap() = |_| {};
    assert!(prover.start(&key, setup.inputs(&memory, &values).unwrap()).unwrap().finish().is_ok());
    assert_eq!(memory.ledger().now().total(), 0);
}
