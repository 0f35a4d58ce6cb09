//! The C boundary, in process: what crosses it, what comes back, and what is refused.

// Ending a loan by dropping or forgetting it is what is tested, whether it runs a destructor or not.
#![allow(clippy::drop_non_drop, clippy::forget_non_drop)]

use std::any::Any;
use std::mem::forget;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ff::Field;
use group::prime::PrimeCurveAffine;
use rand_core::OsRng;
use splitprover_core::abi::{
    Backend, BackendLibrary, BackendPlugin, DeviceInfo, FixedBase, Host, KernelBuilder, LogLevel, LogSink,
    NegotiationError, OpenOptions, Options, PinnedAllocator, SP_ABI_VERSION, SP_ERR_DEVICE, SP_ERR_VERSION, SP_OK,
    SpBackendTable, SpError, SpHost, SpInputs, SpInstance, SpLoadedKey, SpPending, SpStatus, SpStr, Statistic,
    negotiate, table,
};
use splitprover_core::host_buf::{ForeignMemory, Origin};
use splitprover_core::memory::OutOfHostMemory;
use splitprover_core::{
    BackendError, Blinding, CircuitShape, FinishError, G1Affine, G1Projective, G2Affine, G2Projective, HBasis,
    HostMemory, Inputs, LentInputs, MemoryClass, MemoryLedger, PointRecord, Prover, ProvingKey, QuerySums, Scalar,
    SplitProver,
};
use splitprover_tests::naive::{NaiveProver, Setup};
use splitprover_tests::scripted::{Scripted, ScriptedSums};

/// The definition, as a plug-in.
struct Naive;

impl BackendPlugin for Naive {
    const NAME: &'static str = "naive";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = "1.2.3";
    const BUILD: &'static str = "a build";
    type Prover = NaiveProver;

    fn devices(host: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        host.log(LogLevel::Info, "devices", "looking");
        let second =
            DeviceInfo { driver: "7".into(), memory_bytes: 11, free_bytes: 5, ..DeviceInfo::new("two", "gpu") };
        Ok(vec![DeviceInfo::new("one", "cpu"), second])
    }

    fn open(device: usize, options: &Options, host: Host) -> Result<NaiveProver, BackendError> {
        options.only(&["threads"])?;
        host.log(LogLevel::Warn, "open", &format!("device {device}, {} threads", host.threads()));
        Ok(NaiveProver)
    }
}

static SCRIPTS: Mutex<Vec<Option<Scripted>>> = Mutex::new(Vec::new());

/// A scripted backend, as a plug-in.
struct Script;

impl BackendPlugin for Script {
    const NAME: &'static str = "script";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = "1";
    type Prover = Scripted;

    fn devices(_: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        Err(BackendError::device("libvendor.so.1", "not found"))
    }

    fn open(_: usize, options: &Options, _: Host) -> Result<Scripted, BackendError> {
        let index = options.number("script")?.expect("the test gives it") as usize;
        Ok(SCRIPTS.lock().unwrap()[index].take().expect("opened once"))
    }
}

fn open(script: Scripted) -> Prover<Backend> {
    Prover::new(open_with(script, OpenOptions::new(0)))
}

fn open_with(script: Scripted, options: OpenOptions) -> Backend {
    let mut scripts = SCRIPTS.lock().unwrap();
    scripts.push(Some(script));
    let options = options.set("script", (scripts.len() - 1).to_string());
    drop(scripts);
    Backend::in_process::<Script>(&options).unwrap()
}

fn logged() -> (LogSink, Arc<Mutex<Vec<String>>>) {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let theirs = lines.clone();
    let sink = LogSink::new(move |level, target, message| {
        theirs.lock().unwrap().push(format!("{} {target}: {message}", level.name()));
    });
    (sink, lines)
}

#[test]
fn proofs_through_the_table_are_the_definitions() {
    let memory = HostMemory::default();
    let backend = Backend::in_process::<Naive>(&OpenOptions::new(1)).unwrap();
    let prover = Prover::new(backend);
    for basis in [HBasis::OddLagrange, HBasis::Monomial] {
        for (seed, (public, free, constraints)) in
            [(0, 1, 0), (1, 2, 3), (3, 0, 12), (0, 40, 1)].into_iter().enumerate()
        {
            let setup = Setup::random(seed as u64, basis, public, free, constraints);
            let (r, s) = (Scalar::random(OsRng), Scalar::random(OsRng));
            let w = setup.circuit.assignment(&mut OsRng);
            let expected = setup.proof_from_trapdoor(&w, r, s);
            let with = prover.load_key(setup.key.clone()).unwrap();
            let without = prover.load_key(Arc::new(setup.key.without_matrices())).unwrap();
            for case in 0..3 {
                let (key, inputs) = match case {
                    0 => (&with, setup.inputs(&memory, &w)),
                    1 => (&with, setup.inputs_with_evaluations(&memory, &w, true)),
                    _ => (&without, setup.inputs_with_evaluations(&memory, &w, false)),
                };
                let in_flight = prover.start(key, inputs.unwrap()).unwrap();
                assert_eq!(memory.ledger().now().total(), 0);
                assert_eq!(in_flight.finish_with(Blinding::insecure(r, s)).unwrap(), expected);
            }
        }
    }
}

#[test]
fn names_devices_and_options_cross() {
    let library = BackendLibrary::in_process::<Naive>();
    let info = library.info();
    assert_eq!((&*info.name, &*info.vendor, &*info.version), ("naive", "splitprover", "1.2.3"));
    assert_eq!((&*info.build, &*info.abi), ("a build", "0.1"));
    let (log, lines) = logged();
    let devices = library.devices(log.clone()).unwrap();
    assert_eq!((&*devices[0].name, devices[0].memory_bytes), ("one", 0));
    assert_eq!((&*devices[1].driver, devices[1].memory_bytes, devices[1].free_bytes), ("7", 11, 5));
    library.open(&OpenOptions::new(3).threads(5).log(log)).unwrap();
    assert_eq!(*lines.lock().unwrap(), ["info devices: looking", "warn open: device 3, 5 threads"]);

    let refused = library.open(&OpenOptions::new(0).set("thread", "5")).unwrap_err();
    assert_eq!(refused.to_string(), "not supported by this backend: option thread (known: threads)");
    let missing = BackendLibrary::in_process::<Script>().devices(LogSink::default()).unwrap_err();
    assert_eq!(missing.to_string(), "libvendor.so.1: not found");
}

/// A backend that keeps every key it is given, for ever.
struct Keeper(Mutex<Vec<Arc<ProvingKey>>>);

static KEPT: Mutex<Vec<Arc<ProvingKey>>> = Mutex::new(Vec::new());

impl SplitProver for Keeper {
    type Key = ();
    type Pending = ScriptedSums;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<(), BackendError> {
        self.0.lock().unwrap().push(key.clone());
        KEPT.lock().unwrap().push(key.clone());
        Ok(())
    }

    fn start<'i>(&self, (): &(), _: LentInputs<'i>) -> Result<ScriptedSums, BackendError> {
        Ok(ScriptedSums::never())
    }

    fn retained_host_bytes(&self, shape: &CircuitShape) -> u64 {
        assert!(shape.num_variables != 1000, "a thousand");
        shape.num_variables as u64
    }
}

impl BackendPlugin for Keeper {
    const NAME: &'static str = "keeper";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = "1";
    type Prover = Self;

    fn devices(_: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        Ok(Vec::new())
    }

    fn open(_: usize, _: &Options, _: Host) -> Result<Self, BackendError> {
        Ok(Self(Mutex::default()))
    }
}

#[test]
fn a_key_arrives_whole_and_lives_as_long_as_the_plug_in_wants() {
    let backend = Backend::in_process::<Keeper>(&OpenOptions::new(0)).unwrap();
    for basis in [HBasis::OddLagrange, HBasis::Monomial] {
        let key = Arc::new(Setup::random(5, basis, 2, 3, 9).key.as_ref().clone());
        let copy = key.as_ref().clone();
        drop(backend.load_key(&key).unwrap());
        drop(key);
        let kept = KEPT.lock().unwrap().pop().unwrap();
        assert_eq!((kept.shape(), kept.domain(), kept.h_basis()), (copy.shape(), copy.domain(), copy.h_basis()));
        assert_eq!(kept.verifying_key(), copy.verifying_key());
        assert_eq!((kept.beta_g1(), kept.delta_g1()), (copy.beta_g1(), copy.delta_g1()));
        for (x, y) in [(kept.a(), copy.a()), (kept.b_g1(), copy.b_g1()), (kept.l(), copy.l()), (kept.h(), copy.h())] {
            assert_eq!(x.table().as_bytes(), y.table().as_bytes());
            assert_eq!((x.density(), x.storage()), (y.density(), y.storage()));
        }
        assert_eq!(kept.b_g2().table().as_bytes(), copy.b_g2().table().as_bytes());
        let (x, y) = (kept.matrices().unwrap(), copy.matrices().unwrap());
        assert_eq!((&x.a, &x.b), (&y.a, &y.b));
        assert!(backend.load_key(&Arc::new(copy.without_matrices())).is_ok());
        assert!(KEPT.lock().unwrap().pop().unwrap().matrices().is_none());
    }
    let shape = |num_variables| CircuitShape { num_public: 1, num_variables, domain_log2: 4 };
    assert_eq!(backend.retained_host_bytes(&shape(77)), 77);
    assert_eq!(backend.retained_host_bytes(&shape(1000)), u64::MAX);
}

/// What `start` does with its loan before it fails, and whether the inputs come back.
#[test]
#[allow(clippy::drop_non_drop, clippy::forget_non_drop, reason = "that neither does anything is what is tested")]
fn inputs_come_back_exactly_where_nothing_was_released_or_written() {
    type Act = fn(LentInputs<'_>);
    let acts: [(&str, Act, bool); 8] = [
        ("dropped", |inputs| drop(inputs), true),
        ("forgotten", |inputs| forget(inputs), true),
        ("read", |inputs| assert_eq!(inputs.witness[0], Scalar::ONE), true),
        ("parts dropped", |LentInputs { witness, evaluations, .. }| drop((evaluations, witness)), true),
        ("witness released", |inputs| inputs.witness.release(), false),
        ("c released", |inputs| inputs.evaluations.unwrap().c.unwrap().release(), false),
        ("witness written", |mut inputs| inputs.witness.make_mut()[0] = Scalar::ZERO, false),
        ("a borrowed to write", |inputs| assert_eq!(inputs.evaluations.unwrap().a.make_mut().len(), 5), false),
    ];
    let memory = HostMemory::default();
    let setup = Setup::small();
    let w = setup.circuit.assignment(&mut OsRng);
    for (what, act, back) in acts {
        for panics in [false, true] {
            let prover = open(Scripted::new(move |inputs| {
                act(inputs);
                assert!(!panics, "planned");
                Err(BackendError::Cancelled)
            }));
            let key = prover.load_key(setup.key.clone()).unwrap();
            let inputs = setup.inputs_with_evaluations(&memory, &w, true).unwrap();
            let address = inputs.witness().as_ptr();
            let error = prover.start(&key, inputs).unwrap_err();
            match error.source {
                BackendError::Cancelled if !panics => {}
                BackendError::Panicked(reason) if panics => assert_eq!(reason, "planned"),
                other => panic!("{other}"),
            }
            assert_eq!(error.inputs.is_some(), back, "{what}");
            if let Some(inputs) = error.inputs {
                assert_eq!(inputs.witness().as_ptr(), address, "{what}: the same memory");
                assert_eq!(inputs.witness()[..], w[..], "{what}");
                assert!(inputs.evaluations().unwrap().c.is_some());
            }
            assert_eq!(memory.ledger().now().total(), 0, "{what}");
        }
    }
}

#[test]
fn a_release_frees_the_hosts_memory_at_once_and_writes_reach_it() {
    let memory = HostMemory::default();
    let ledger = memory.ledger().clone();
    let setup = Setup::small();
    let w = setup.circuit.assignment(&mut OsRng);
    let prover = open(Scripted::new(move |inputs| {
        let LentInputs { mut witness, evaluations, .. } = inputs;
        let evaluations = evaluations.unwrap();
        assert_eq!(witness.origin(), Origin::Pageable);
        let before = ledger.now();
        evaluations.a.release();
        assert!(ledger.now()[MemoryClass::Evaluations] < before[MemoryClass::Evaluations]);
        evaluations.b.release();
        drop(evaluations.c);
        assert!(ledger.now()[MemoryClass::Evaluations] > 0, "only a loan ended");
        witness.make_mut().fill(Scalar::from(9));
        assert!(witness.iter().all(|x| *x == Scalar::from(9)), "what was written is read");
        witness.release();
        assert_eq!(ledger.now()[MemoryClass::Witness], 0);
        Ok(ScriptedSums::never())
    }));
    let key = prover.load_key(setup.key.clone()).unwrap();
    let in_flight = prover.start(&key, setup.inputs_with_evaluations(&memory, &w, true).unwrap()).unwrap();
    assert_eq!(memory.ledger().now().total(), 0);
    assert!(matches!(in_flight.finish(), Err(FinishError::Backend(BackendError::Cancelled))));
}

#[test]
fn errors_keep_their_kind_and_their_numbers() {
    let memory = HostMemory::default();
    let setup = Setup::small();
    let w = setup.circuit.assignment(&mut OsRng);
    let class = MemoryClass::Staging;
    let errors: [fn() -> BackendError; 6] = [
        || BackendError::DeviceMemory { what: "bases", requested: 1 << 40, available: 17 },
        || OutOfHostMemory { class: MemoryClass::Staging, requested: 99, reason: "none left".into() }.into(),
        || BackendError::device("kernel", "launch failed"),
        || BackendError::Unsupported("this".into()),
        || BackendError::Cancelled,
        || BackendError::ForeignKey,
    ];
    assert_eq!(class.name(), "staging");
    for make in errors {
        let prover = open(Scripted::new(move |_| Err(make())));
        let key = prover.load_key(setup.key.clone()).unwrap();
        let error = prover.start(&key, setup.inputs(&memory, &w).unwrap()).unwrap_err();
        assert_eq!(format!("{:?}", error.source), format!("{:?}", make()));
        let prover = open(Scripted::new(move |_| Ok(ScriptedSums::new(move || Err(make())))));
        let key = prover.load_key(setup.key.clone()).unwrap();
        let error = prover.start(&key, setup.inputs(&memory, &w).unwrap()).unwrap().finish().unwrap_err();
        assert_eq!(error.to_string(), make().to_string());
    }
}

#[test]
fn a_panic_anywhere_poisons_the_instance_and_nothing_else() {
    let memory = HostMemory::default();
    let setup = Setup::small();
    let w = setup.circuit.assignment(&mut OsRng);
    let inputs = || setup.inputs(&memory, &w).unwrap();
    let poisoned = |prover: &Prover<Backend>| {
        let error = prover.load_key(setup.key.clone()).unwrap_err();
        assert!(matches!(error, BackendError::Poisoned(_)), "{error}");
        let again = prover.load_key(setup.key.clone()).unwrap_err();
        assert!(again.to_string().contains("planned"), "{again}");
    };

    // In finish.
    let prover = open(Scripted::new(|_| Ok(ScriptedSums::new(|| panic!("planned finish")))));
    let key = prover.load_key(setup.key.clone()).unwrap();
    let error = prover.start(&key, inputs()).unwrap().finish().unwrap_err();
    assert!(matches!(&error, FinishError::Backend(BackendError::Panicked(_))), "{error}");
    poisoned(&prover);

    // In the destructor of a pending proof; the one of the instance runs later, and is logged.
    let (log, lines) = logged();
    let script = Scripted::new(|_| Ok(ScriptedSums::never().dropped_with(|| panic!("planned drop"))));
    let prover = Prover::new(open_with(script.dropped_with(|| panic!("planned end")), OpenOptions::new(0).log(log)));
    let key = prover.load_key(setup.key.clone()).unwrap();
    drop(prover.start(&key, inputs()).unwrap());
    poisoned(&prover);
    drop((prover, key));
    let lines = lines.lock().unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("drop_pending") && lines[1].contains("close") && lines[1].contains("planned end"));
    assert_eq!(memory.ledger().now().total(), 0);

    // A payload whose own destructor panics.
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("planned payload");
        }
    }
    let bomb = || std::panic::panic_any(Box::new(Bomb) as Box<dyn Any + Send>);
    let prover = open(Scripted::new(move |_| bomb()));
    let key = prover.load_key(setup.key.clone()).unwrap();
    assert!(matches!(prover.start(&key, inputs()).unwrap_err().source, BackendError::Panicked(_)));
}

#[test]
fn keys_belong_to_their_instance_and_outlive_it() {
    let setup = Setup::small();
    let count = Arc::new(AtomicUsize::new(0));
    let theirs = count.clone();
    let first = open_with(
        Scripted::new(|_| Ok(ScriptedSums::never())).dropped_with(move || {
            theirs.fetch_add(1, Ordering::SeqCst);
        }),
        OpenOptions::new(0),
    );
    let second = open_with(Scripted::new(|_| Ok(ScriptedSums::never())), OpenOptions::new(0));
    let key = first.load_key(&setup.key).unwrap();
    let prover = Prover::new(second);
    let own = prover.load_key(setup.key.clone()).unwrap();
    drop(own);
    drop(first);
    assert_eq!(count.load(Ordering::SeqCst), 0, "the key still needs its instance");
    drop(key);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// A backend that holds host memory on the host's account.
struct Accountant {
    host: Host,
    held: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl SplitProver for Accountant {
    type Key = ();
    type Pending = ScriptedSums;

    fn load_key(&self, _: &Arc<ProvingKey>) -> Result<(), BackendError> {
        let buffer = self.host.memory().zeroed::<u8>(MemoryClass::Backend, 1000)?;
        self.held.lock().unwrap().push(Box::new(buffer));
        Ok(())
    }

    fn start<'i>(&self, (): &(), _: LentInputs<'i>) -> Result<ScriptedSums, BackendError> {
        Ok(ScriptedSums::never())
    }

    fn retained_host_bytes(&self, _: &CircuitShape) -> u64 {
        0
    }
}

/// Where a host that is to outlive its instance is kept.
static STASH: Mutex<Option<Host>> = Mutex::new(None);

impl BackendPlugin for Accountant {
    const NAME: &'static str = "accountant";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = "1";
    type Prover = Self;

    fn devices(_: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        Ok(Vec::new())
    }

    fn open(_: usize, _: &Options, host: Host) -> Result<Self, BackendError> {
        *STASH.lock().unwrap() = Some(host.clone());
        Ok(Self { host, held: Mutex::default() })
    }
}

#[test]
fn a_plug_ins_memory_is_on_the_hosts_account_and_can_be_refused() {
    let setup = Setup::small();
    let ledger = MemoryLedger::new(Some(2500));
    let (log, lines) = logged();
    let backend = Backend::in_process::<Accountant>(&OpenOptions::new(0).ledger(ledger.clone()).log(log)).unwrap();
    backend.load_key(&setup.key).unwrap();
    backend.load_key(&setup.key).unwrap();
    assert_eq!(ledger.now()[MemoryClass::Backend], 2000);
    assert_eq!(backend.accounted(), [(MemoryClass::Backend, 2000)]);
    let refused = backend.load_key(&setup.key).unwrap_err();
    assert!(matches!(&refused, BackendError::HostMemory(e) if e.requested == 1000), "{refused}");
    assert_eq!(ledger.now()[MemoryClass::Backend], 2000);

    // What outlives the instance neither counts nor speaks any more.
    let host = STASH.lock().unwrap().take().unwrap();
    let leaked = host.memory().zeroed::<u8>(MemoryClass::Staging, 7).unwrap();
    drop(backend);
    assert_eq!(ledger.now().total(), 0);
    assert_eq!(*lines.lock().unwrap(), ["warn accountant: closed with 7 bytes of class staging on its account"]);
    drop(leaked);
    host.log(LogLevel::Error, "late", "nobody hears this");
    assert_eq!((ledger.now().total(), lines.lock().unwrap().len()), (0, 1));
}

/// A backend with every extension. Its pool has number 0, to see that this is a number like any other.
struct Extended;

struct Block(NonNull<u8>, usize);

// SAFETY: plain memory of its own.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

fn layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes.max(64), 64).unwrap()
}

static LIVE_BLOCKS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: zeroed memory of its own, aligned to 64 bytes, freed on drop.
unsafe impl ForeignMemory for Block {
    fn as_mut_ptr(&self) -> NonNull<u8> {
        self.0
    }
    fn len_bytes(&self) -> usize {
        self.1
    }
    fn pool(&self) -> u64 {
        0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        LIVE_BLOCKS.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: allocated with the same layout.
        unsafe { std::alloc::dealloc(self.0.as_ptr(), layout(self.1)) };
    }
}

impl PinnedAllocator for Scripted2 {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn ForeignMemory>, BackendError> {
        if bytes > 1 << 20 {
            return Err(BackendError::device("pinned memory", "too much"));
        }
        LIVE_BLOCKS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the layout isn't empty.
        let data = unsafe { std::alloc::alloc_zeroed(layout(bytes)) };
        Ok(Box::new(Block(NonNull::new(data).unwrap(), bytes)))
    }
}

impl FixedBase for Scripted2 {
    fn g1(&self, base: &G1Affine, scalars: &[Scalar], out: &mut [u8]) -> Result<(), BackendError> {
        for (record, x) in out.chunks_exact_mut(96).zip(scalars) {
            G1Affine::from(G1Projective::from(*base) * x).write_record(record);
        }
        Ok(())
    }
    fn g2(&self, base: &G2Affine, scalars: &[Scalar], out: &mut [u8]) -> Result<(), BackendError> {
        for (record, x) in out.chunks_exact_mut(192).zip(scalars) {
            G2Affine::from(G2Projective::from(*base) * x).write_record(record);
        }
        Ok(())
    }
}

/// Says where the witness comes from, in place of a sum.
struct Scripted2;

impl SplitProver for Scripted2 {
    type Key = ();
    type Pending = ScriptedSums;

    fn load_key(&self, _: &Arc<ProvingKey>) -> Result<(), BackendError> {
        Ok(())
    }

    fn start<'i>(&self, (): &(), inputs: LentInputs<'i>) -> Result<ScriptedSums, BackendError> {
        Err(BackendError::Unsupported(format!("{:?}", inputs.witness.origin())))
    }

    fn retained_host_bytes(&self, _: &CircuitShape) -> u64 {
        0
    }
}

impl KernelBuilder for Scripted2 {
    fn build(&self, arch: &str, folder: &Path, report: &mut dyn FnMut(&str)) -> Result<(), BackendError> {
        if arch == "sm_1" {
            return Err(BackendError::device("compiling kernels", "no such architecture"));
        }
        report(&format!("one for {arch}"));
        report(&format!("two in {}", folder.display()));
        Ok(())
    }
}

impl BackendPlugin for Extended {
    const NAME: &'static str = "extended";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = "1";
    type Prover = Scripted2;

    fn devices(_: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        Ok(Vec::new())
    }

    fn open(_: usize, _: &Options, _: Host) -> Result<Scripted2, BackendError> {
        Ok(Scripted2)
    }

    fn pinned(prover: &Scripted2) -> Option<&dyn PinnedAllocator> {
        Some(prover)
    }

    fn fixed_base(prover: &Scripted2) -> Option<&dyn FixedBase> {
        Some(prover)
    }

    fn statistics(_: &Scripted2) -> Vec<Statistic> {
        vec![Statistic { name: "kernel_ms".into(), value: 1.5 }, Statistic { name: "proofs".into(), value: 3.0 }]
    }

    fn kernels() -> Option<&'static dyn KernelBuilder> {
        Some(&Scripted2)
    }
}

#[test]
fn a_backend_recognises_its_own_pinned_memory_and_only_that() {
    let setup = Setup::small();
    let w = setup.circuit.assignment(&mut OsRng);
    let memory = HostMemory::default();
    let library = BackendLibrary::in_process::<Extended>();
    let backend = library.open(&OpenOptions::new(0)).unwrap();
    let inputs = || {
        let pinned = backend.pinned(32 * w.len()).unwrap().unwrap();
        let mut witness = memory.foreign::<Scalar>(MemoryClass::Witness, pinned, w.len()).unwrap();
        witness.copy_from_slice(&w);
        Inputs::new(witness)
    };
    let origin_at = |backend: Backend, inputs| {
        let prover = Prover::new(backend);
        let key = prover.load_key(setup.key.clone()).unwrap();
        let error = prover.start(&key, inputs).unwrap_err();
        assert_eq!(error.inputs.unwrap().witness()[..], w[..]);
        error.source.to_string().rsplit_once(": ").unwrap().1.to_owned()
    };
    let another = library.open(&OpenOptions::new(0)).unwrap();
    let stranger = BackendLibrary::in_process::<Extended>().open(&OpenOptions::new(0)).unwrap();
    assert_eq!(origin_at(backend.clone(), inputs()), "Pool(0)");
    assert_eq!(origin_at(another, inputs()), "Pool(0)", "another instance of the same library");
    assert_eq!(origin_at(stranger, inputs()), "Pageable", "another library, whatever its numbers");
    assert_eq!(origin_at(backend.clone(), setup.inputs(&memory, &w).unwrap()), "Pageable");
    assert_eq!(LIVE_BLOCKS.load(Ordering::SeqCst), 0);
    assert!(backend.pinned(2 << 20).unwrap().is_err());
    assert!(Backend::in_process::<Naive>(&OpenOptions::new(0)).unwrap().pinned(64).is_none());
}

#[test]
fn fixed_base_multiples_and_statistics_cross() {
    let backend = Backend::in_process::<Extended>(&OpenOptions::new(0)).unwrap();
    let scalars = [Scalar::ZERO, Scalar::ONE, Scalar::random(OsRng)];
    let (base1, base2) = (G1Affine::generator(), G2Affine::generator());
    let (mut in_g1, mut in_g2) = (vec![1; scalars.len() * 96], vec![1; scalars.len() * 192]);
    backend.fixed_base_g1(&base1, &scalars, &mut in_g1).unwrap().unwrap();
    backend.fixed_base_g2(&base2, &scalars, &mut in_g2).unwrap().unwrap();
    for ((x, g1), g2) in scalars.iter().zip(in_g1.chunks_exact(96)).zip(in_g2.chunks_exact(192)) {
        assert_eq!(G1Affine::from_record_unchecked(g1), G1Affine::from(G1Projective::from(base1) * x));
        assert_eq!(G2Affine::from_record_unchecked(g2), G2Affine::from(G2Projective::from(base2) * x));
    }
    backend.fixed_base_g1(&base1, &[], &mut []).unwrap().unwrap();
    let figures = backend.statistics().unwrap();
    assert_eq!(figures.iter().map(|s| (&*s.name, s.value)).collect::<Vec<_>>(), [("kernel_ms", 1.5), ("proofs", 3.0)]);

    let naive = Backend::in_process::<Naive>(&OpenOptions::new(0)).unwrap();
    assert!(naive.fixed_base_g1(&base1, &scalars, &mut in_g1).is_none());
    assert!(naive.fixed_base_g2(&base2, &scalars, &mut in_g2).is_none());
    assert!(naive.statistics().unwrap().is_empty());
}

#[test]
fn kernels_are_built_without_an_instance() {
    let library = BackendLibrary::in_process::<Extended>();
    let mut lines = Vec::new();
    library.build_kernels("sm_90", "/some/cache", |line| lines.push(line)).unwrap().unwrap();
    assert_eq!(lines, ["one for sm_90", "two in /some/cache"]);
    let refused = library.build_kernels("sm_1", "", |_| ()).unwrap().unwrap_err();
    assert!(refused.to_string().contains("no such architecture"), "{refused}");
    assert!(BackendLibrary::in_process::<Naive>().build_kernels("sm_90", "", |_| ()).is_none());
}

/// The table of [`Naive`], altered, handed out by an `sp_negotiate`. Each test has one of its own.
macro_rules! altered {
    ($alter:expr) => {{
        unsafe extern "C" fn sp_negotiate(
            _: u32,
            _: u32,
            _: *const SpHost,
            out: *mut *const SpBackendTable,
        ) -> SpStatus {
            let mut altered = *table::<Naive>();
            let alter: fn(&mut SpBackendTable) = $alter;
            alter(&mut altered);
            // SAFETY: the host's pointer; the table is leaked, so it is static.
            unsafe { out.write(Box::leak(Box::new(altered))) };
            SP_OK
        }
        // SAFETY: an altered table of this crate's own: the entries that are there keep the rules.
        unsafe { BackendLibrary::negotiate(sp_negotiate) }
    }};
}

#[test]
fn tables_that_do_not_fit_are_refused_by_name() {
    let size = size_of::<SpBackendTable>() as u64;
    assert!(altered!(|_| {}).is_ok());
    assert!(altered!(|t| t.abi_version = SP_ABI_VERSION + 1).is_ok(), "a later minor version only appends");
    let refused = |result: Result<BackendLibrary, NegotiationError>| result.unwrap_err();
    assert_eq!(
        refused(altered!(|t| t.struct_size -= 8)),
        NegotiationError::ShortTable { found: size - 8, expected: size }
    );
    assert_eq!(refused(altered!(|t| t.struct_size = 8)), NegotiationError::ShortTable { found: 8, expected: size });
    assert_eq!(refused(altered!(|t| t.start = None)), NegotiationError::MissingEntry("start"));
    assert_eq!(refused(altered!(|t| t.drop_pending = None)), NegotiationError::MissingEntry("drop_pending"));
    assert_eq!(refused(altered!(|t| t.abi_version = 0)), NegotiationError::Version { theirs: "0.0".into() });
    let layout = refused(altered!(|t| t.curve = SpStr::new("bn254")));
    assert_eq!(layout.to_string(), r#"curve: the plug-in has "bn254", this host "bls12-381""#);
    let layout = refused(altered!(|t| t.point_layout = SpStr::EMPTY));
    assert!(matches!(layout, NegotiationError::Layout { what: "point layout", .. }));

    unsafe extern "C" fn failing(_: u32, _: u32, _: *const SpHost, _: *mut *const SpBackendTable) -> SpStatus {
        SP_ERR_DEVICE
    }
    unsafe extern "C" fn silent(_: u32, _: u32, _: *const SpHost, _: *mut *const SpBackendTable) -> SpStatus {
        SP_OK
    }
    unsafe extern "C" fn ahead(_: u32, _: u32, _: *const SpHost, out: *mut *const SpBackendTable) -> SpStatus {
        let table = SpBackendTable { abi_version: (3 << 16) | 7, ..*table::<Naive>() };
        // SAFETY: the host's pointer; the table is leaked.
        unsafe { out.write(Box::leak(Box::new(table))) };
        SP_ERR_VERSION
    }
    unsafe extern "C" fn mute(_: u32, _: u32, _: *const SpHost, _: *mut *const SpBackendTable) -> SpStatus {
        SP_ERR_VERSION
    }
    // SAFETY: they keep the rules.
    let asked = |f| refused(unsafe { BackendLibrary::negotiate(f) });
    assert_eq!(asked(failing), NegotiationError::Refused(SP_ERR_DEVICE));
    assert_eq!(asked(silent), NegotiationError::NoTable);
    assert_eq!(asked(ahead), NegotiationError::Version { theirs: "3.7".into() });
    assert_eq!(asked(mute), NegotiationError::Version { theirs: "another version".into() });
}

#[test]
fn a_rust_plug_in_takes_hosts_that_know_its_version_and_no_others() {
    for (min, max, expected) in [
        (SP_ABI_VERSION, SP_ABI_VERSION, SP_OK),
        (0, u32::MAX, SP_OK),
        (SP_ABI_VERSION + 1, u32::MAX, SP_ERR_VERSION),
        (0, SP_ABI_VERSION - 1, SP_ERR_VERSION),
        (SP_ABI_VERSION + 1, SP_ABI_VERSION - 1, SP_ERR_VERSION),
    ] {
        let mut out = std::ptr::null();
        // SAFETY: no host is allowed, and `out` is writable.
        let status = unsafe { negotiate::<Naive>(min, max, std::ptr::null(), &mut out) };
        assert_eq!(status, expected, "{min}..={max}");
        assert!(!out.is_null());
        // SAFETY: as above; nowhere to write is an argument it refuses.
        assert_ne!(unsafe { negotiate::<Naive>(min, max, std::ptr::null(), std::ptr::null_mut()) }, SP_OK);
    }
}

static RELEASED_AT_ONCE: AtomicUsize = AtomicUsize::new(0);

/// A `start` as a careless C author could write it: releases twice, releases what isn't there, asks for what was released.
unsafe extern "C" fn careless(
    _: *mut SpInstance,
    _: *mut SpLoadedKey,
    inputs: *const SpInputs,
    _: *mut *mut SpPending,
    _: *mut *mut SpError,
) -> SpStatus {
    // SAFETY: the host's struct, during `start`.
    let inputs = unsafe { &*inputs };
    let (release, borrow_mut) = (inputs.release.unwrap(), inputs.borrow_mut.unwrap());
    for which in [0, 0, 1, 1, 3, 3, 4, u32::MAX] {
        // SAFETY: as above.
        unsafe { release(inputs.ctx, which) };
    }
    for which in [0, 1, 3, 4, u32::MAX] {
        // SAFETY: as above.
        assert!(unsafe { borrow_mut(inputs.ctx, which) }.is_null());
    }
    RELEASED_AT_ONCE.store(inputs.present as usize, Ordering::SeqCst);
    SP_ERR_DEVICE
}

#[test]
fn releasing_twice_or_nothing_does_nothing() {
    let library = altered!(|t| t.start = Some(careless)).unwrap();
    let prover = Prover::new(library.open(&OpenOptions::new(0)).unwrap());
    let setup = Setup::small();
    let key = prover.load_key(setup.key.clone()).unwrap();
    let memory = HostMemory::default();
    let w = setup.circuit.assignment(&mut OsRng);
    let error = prover.start(&key, setup.inputs_with_evaluations(&memory, &w, false).unwrap()).unwrap_err();
    assert!(error.inputs.is_none());
    assert_eq!(error.to_string(), "the backend: status 2".replace('2', &SP_ERR_DEVICE.to_string()));
    assert_eq!((RELEASED_AT_ONCE.load(Ordering::SeqCst), memory.ledger().now().total()), (0b111, 0));
}

#[test]
fn what_a_plug_in_leaves_out_is_found() {
    unsafe extern "C" fn nothing(
        _: *mut SpInstance,
        _: *mut SpLoadedKey,
        _: *const SpInputs,
        _: *mut *mut SpPending,
        _: *mut *mut SpError,
    ) -> SpStatus {
        SP_OK
    }
    let setup = Setup::small();
    let memory = HostMemory::default();
    let w = setup.circuit.assignment(&mut OsRng);
    let prover = Prover::new(altered!(|t| t.start = Some(nothing)).unwrap().open(&OpenOptions::new(0)).unwrap());
    let key = prover.load_key(setup.key.clone()).unwrap();
    let error = prover.start(&key, setup.inputs(&memory, &w).unwrap()).unwrap_err();
    assert!(error.to_string().contains("without a pending proof"), "{error}");

    // Sums that were never written aren't taken for infinity.
    unsafe extern "C" fn unwritten(
        pending: *mut SpPending,
        _: *mut splitprover_core::abi::SpSums,
        error: *mut *mut SpError,
    ) -> SpStatus {
        // SAFETY: the handle of the real `start`.
        unsafe { table::<Naive>().drop_pending.unwrap()(pending, error) }
    }
    let prover = Prover::new(altered!(|t| t.finish = Some(unwritten)).unwrap().open(&OpenOptions::new(0)).unwrap());
    let key = prover.load_key(setup.key.clone()).unwrap();
    let in_flight = prover.start(&key, setup.inputs(&memory, &w).unwrap()).unwrap();
    assert!(matches!(in_flight.finish_sums(), Err(FinishError::BadSum { sum: "a", .. })));
}

#[test]
fn null_arguments_are_refused_by_the_shims() {
    let t = table::<Naive>();
    let none = std::ptr::null_mut();
    // SAFETY: the shims take null for every pointer.
    unsafe {
        let mut instance = std::ptr::null_mut();
        assert_ne!(t.devices.unwrap()(std::ptr::null(), None, std::ptr::null_mut(), none), SP_OK);
        assert_ne!(t.open.unwrap()(std::ptr::null(), &mut instance, none), SP_OK);
        assert!(instance.is_null());
        assert_ne!(t.close.unwrap()(std::ptr::null_mut(), none), SP_OK);
        assert_ne!(t.unload_key.unwrap()(std::ptr::null_mut(), none), SP_OK);
        assert_ne!(t.drop_pending.unwrap()(std::ptr::null_mut(), none), SP_OK);
        assert_ne!(t.finish.unwrap()(std::ptr::null_mut(), std::ptr::null_mut(), none), SP_OK);
        let (start, load) = (t.start.unwrap(), t.load_key.unwrap());
        assert_ne!(
            start(std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null(), std::ptr::null_mut(), none),
            SP_OK
        );
        assert_ne!(load(std::ptr::null_mut(), std::ptr::null(), std::ptr::null_mut(), none), SP_OK);
        t.error_destroy.unwrap()(std::ptr::null_mut());
        assert!(t.extension.unwrap()(SpStr::new("splitprover.unheard_of.0")).is_null());
    }
}

/// A check that the sums type of the tests is what crosses.
#[test]
fn sums_cross_as_records() {
    let sums = QuerySums {
        a: G1Affine::generator(),
        b_g1: G1Affine::identity(),
        b_g2: -G2Affine::generator(),
        hl: (G1Projective::from(G1Affine::generator()) * Scalar::random(OsRng)).into(),
    };
    let prover = open(Scripted::new(move |_| Ok(ScriptedSums::new(move || Ok(sums)))));
    let setup = Setup::small();
    let key = prover.load_key(setup.key.clone()).unwrap();
    let w = setup.circuit.assignment(&mut OsRng);
    let in_flight = prover.start(&key, setup.inputs(&HostMemory::default(), &w).unwrap()).unwrap();
    assert_eq!(in_flight.finish_sums().unwrap(), sums);
}
