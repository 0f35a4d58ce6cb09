//! What only a look inside can test: every kernel with fresh random values, every call failing, faulty compilers, the cache.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use ff::Field;
use rand_chacha::ChaCha8Rng;
use rand_core::{OsRng, RngCore, SeedableRng};
use splitprover_core::{
    BackendError, CsrMatrix, G1Affine, G2Affine, HBasis, HostMemory, Inputs, LoadedKey, MemoryClass, Prover,
    ProvingKey, Scalar, StartError,
};
use splitprover_harness::setup::{CpuFixedBase, Resources, Shape, Synthetic, Trapdoor, generate};
use splitprover_tests::needs;

use crate::device::{Choice, Instance, OpenOptions};
use crate::driver::{Buffer, DeviceDescription, FaultPlan, Faults, OpenClError, Queue};
use crate::field::bytes_of_scalars;
use crate::kernels::ProgramId;
use crate::msm::Group;
use crate::prover::OpenClProver;
use crate::selftest::{Checker, scalar};
use crate::vector::{DeviceMatrix, count_kinds};

fn device() -> Option<DeviceDescription> {
    let platform = std::env::var("SPLITPROVER_OPENCL_PLATFORM").ok();
    let found = Choice { platform, ..Choice::default() }.find();
    let missing = found.as_ref().err().map(ToString::to_string);
    needs::available("opencl", missing.as_deref()).then(|| found.unwrap())
}

/// Programs are built once for all tests.
fn options() -> OpenOptions {
    let beside = std::env::current_exe().unwrap().parent().map(PathBuf::from).unwrap_or_default();
    OpenOptions { cache: Some(beside.join("opencl-programs")), ..OpenOptions::default() }
}

/// One instance for the tests that leave it as it was.
fn shared() -> Option<Arc<Instance>> {
    static SHARED: OnceLock<Option<Arc<Instance>>> = OnceLock::new();
    SHARED.get_or_init(|| device().map(|device| Instance::open(&device, options()).unwrap())).clone()
}

fn fresh() -> Option<Arc<Instance>> {
    device().map(|device| Instance::open(&device, options()).unwrap())
}

#[test]
fn field_and_curve_operations_are_blsts_for_random_values() {
    let Some(instance) = shared() else { return };
    for _ in 0..4 {
        let checker = Checker::new(&instance, OsRng.next_u64()).unwrap();
        checker.fields().unwrap();
        checker.curves().unwrap();
    }
}

#[test]
fn transforms_of_every_size_are_those_of_the_definition() {
    let Some(instance) = shared() else { return };
    let checker = Checker::new(&instance, OsRng.next_u64()).unwrap();
    for log_n in 0..=13 {
        checker.transforms(log_n).unwrap();
    }
    // Three passes.
    checker.transforms(19).unwrap();
}

#[test]
fn multi_exponentiations_are_the_sums_of_their_terms() {
    let Some(instance) = shared() else { return };
    let checker = Checker::new(&instance, OsRng.next_u64()).unwrap();
    for count in [1, 2, 3, 15, 16, 17, 63, 64, 65, 255, 257] {
        for (width, at_once) in [(2, 200), (3, 1), (5, 7), (8, 200), (11, 2)] {
            checker
                .multi_exponentiation::<G1Affine>(Group::G1, count, width, at_once, crate::msm::Plan::fold_g1)
                .unwrap();
        }
        checker.multi_exponentiation::<G2Affine>(Group::G2, count, 4, 9, crate::msm::Plan::fold_g2).unwrap();
    }
}

#[test]
#[allow(unsafe_code)]
fn sparse_products_and_counts_are_those_of_the_cpu_also_for_long_rows() {
    let Some(instance) = shared() else { return };
    let mut rng = ChaCha8Rng::from_rng(OsRng).unwrap();
    let (context, kernels) = (&instance.context, &instance.kernels);
    let queue = Queue::new(context).unwrap();
    for (rows, columns, n) in [(0u32, 1u32, 1u32), (1, 1, 1), (5, 3, 8), (300, 1000, 512)] {
        let mut entries = Vec::new();
        for row in 0..rows {
            // Around the length from which a row has a work group of its own.
            let len = match row % 7 {
                0 => 0,
                1 => 255,
                2 => 256,
                3 => 1000,
                _ => rng.next_u32() % 5,
            };
            for _ in 0..len {
                let coefficient = match rng.next_u32() % 4 {
                    0 => Scalar::ONE,
                    1 => -Scalar::ONE,
                    2 => Scalar::ZERO,
                    _ => Scalar::random(&mut rng),
                };
                entries.push((row, rng.next_u32() % columns, coefficient));
            }
        }
        let matrix = CsrMatrix::from_entries(rows as usize, columns as usize, || entries.iter().copied()).unwrap();
        let witness: Vec<Scalar> = (0..columns)
            .map(|i| match i % 5 {
                0 => Scalar::ZERO,
                1 => Scalar::ONE,
                2 => -Scalar::ONE,
                3 => Scalar::from(2),
                _ => Scalar::random(&mut rng),
            })
            .collect();
        let on_device = DeviceMatrix::new(context, &queue, &HostMemory::default(), &matrix).unwrap();
        let scalars = Buffer::new(context, 32 * u64::from(columns)).unwrap();
        queue.write(&scalars, 0, bytes_of_scalars(&witness)).unwrap();
        // What was there before must go.
        let garbage = vec![0xffu8; 32 * n as usize];
        let out = Buffer::new(context, garbage.len() as u64).unwrap();
        queue.write(&out, 0, &garbage).unwrap();
        let mut bytes = garbage;
        // SAFETY: witness and result are as long as the matrix says.
        unsafe { on_device.product(kernels, &queue, &scalars, &out, n).unwrap() };
        queue.read(&out, 0, &mut bytes).unwrap();
        let got: Vec<Scalar> = bytes.chunks_exact(32).map(scalar).collect();
        for (row, got) in got.iter().enumerate() {
            let expected: Scalar = if row < rows as usize {
                matrix.row(row).map(|(column, coefficient)| coefficient * witness[column]).sum()
            } else {
                Scalar::ZERO
            };
            assert_eq!(*got, expected, "row {row} of {rows}");
        }
        let totals = Buffer::new(context, 16).unwrap();
        // SAFETY: the witness has as many scalars.
        let counted = unsafe { count_kinds(kernels, &queue, &scalars, columns, &totals).unwrap() };
        let unit = |w: &Scalar| *w == Scalar::ONE || *w == -Scalar::ONE;
        let units = witness.iter().filter(|w| unit(w)).count() as u32;
        let tail = witness.iter().filter(|w| !unit(w) && **w != Scalar::ZERO).count() as u32;
        assert_eq!(counted, [tail, units]);
    }
}

fn development_key(circuit: &Synthetic, basis: HBasis) -> Arc<ProvingKey> {
    let memory = HostMemory::default();
    let fixed_base = CpuFixedBase::new(1 << circuit.log2());
    let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
    generate(circuit, basis, &Trapdoor::from_seed(7, basis), &resources).unwrap().key
}

fn inputs(circuit: &Synthetic, memory: &HostMemory) -> Inputs {
    Inputs::new(circuit.witness(5, memory).unwrap())
}

#[test]
fn every_call_of_a_proof_may_fail_and_nothing_leaks_or_stays_broken() {
    let Some(instance) = fresh() else { return };
    let memory = HostMemory::default();
    let circuit = Synthetic::new(Shape::Mixed, 4).unwrap();
    let key = development_key(&circuit, HBasis::Monomial);
    let context = instance.context.clone();
    let prover = Prover::new(OpenClProver::from_instance(instance));
    let idle = context.live();
    let loaded = prover.load_key(key).unwrap();
    let run = |loaded: &LoadedKey<OpenClProver>| -> Result<(), Option<StartError>> {
        let started = prover.start(loaded, inputs(&circuit, &memory)).map_err(Some)?;
        started.finish_sums().map(drop).map_err(|_| None)
    };
    run(&loaded).unwrap();
    let with_key = context.live();
    let (mut at, mut handed_back) = (0, 0);
    loop {
        at += 1;
        context.faults().arm(FaultPlan { at, lost: false });
        let outcome = run(&loaded);
        if !context.faults().disarm() {
            outcome.unwrap();
            break;
        }
        let error = outcome.expect_err("the call failed");
        handed_back += usize::from(error.is_some_and(|error| error.inputs.is_some()));
        if at % 16 == 0 {
            run(&loaded).unwrap_or_else(|error| panic!("after call {at} failed: {error:?}"));
        }
        assert_eq!(context.live(), with_key, "call {at}");
    }
    run(&loaded).unwrap();
    assert!(at > 100, "{at} calls");
    assert!(handed_back > 0, "inputs that were not touched come back");
    drop(loaded);
    assert_eq!(context.live(), idle);
    assert_eq!(memory.ledger().now()[MemoryClass::Witness], 0);
}

#[test]
fn every_call_of_loading_a_key_may_fail_and_nothing_leaks() {
    let Some(instance) = fresh() else { return };
    let circuit = Synthetic::new(Shape::Porep, 4).unwrap();
    let key = development_key(&circuit, HBasis::OddLagrange);
    let context = instance.context.clone();
    let prover = Prover::new(OpenClProver::from_instance(instance));
    let idle = context.live();
    let mut at = 0;
    loop {
        at += 1;
        context.faults().arm(FaultPlan { at, lost: false });
        let result = prover.load_key(key.clone());
        if !context.faults().disarm() {
            result.unwrap();
            break;
        }
        assert!(result.is_err(), "call {at}");
        drop(result);
        assert_eq!(context.live(), idle, "call {at}");
    }
    assert!(at > 30, "{at} calls");
}

#[test]
fn calls_of_opening_a_device_may_fail() {
    let Some(device) = device() else { return };
    drop(shared());
    let calls = {
        let instance = Instance::open(&device, options()).unwrap();
        instance.context.faults().calls()
    };
    for at in [1, 2, 3, 5, 8].into_iter().chain((10..calls).step_by(calls as usize / 24 + 1)) {
        let faults = Faults::default();
        faults.arm(FaultPlan { at, lost: true });
        let result = Instance::open_with(&device, options(), faults, &|_, text| text);
        assert!(result.is_err(), "call {at} of {calls}");
    }
}

#[test]
fn a_lost_device_is_refused_from_then_on_and_other_instances_are_unharmed() {
    let (Some(lost), Some(other)) = (fresh(), shared()) else { return };
    let memory = HostMemory::default();
    let circuit = Synthetic::new(Shape::Porep, 4).unwrap();
    let key = development_key(&circuit, HBasis::OddLagrange);
    let context = lost.context.clone();
    let (lost, other) =
        (Prover::new(OpenClProver::from_instance(lost)), Prover::new(OpenClProver::from_instance(other)));
    let (lost_key, other_key) = (lost.load_key(key.clone()).unwrap(), other.load_key(key.clone()).unwrap());
    context.faults().arm(FaultPlan { at: 20, lost: true });
    let outcome = lost.start(&lost_key, inputs(&circuit, &memory)).map(|pending| pending.finish_sums().map(drop));
    assert!(matches!(outcome, Err(_) | Ok(Err(_))));
    assert!(context.faults().disarm());
    let refused = lost.start(&lost_key, inputs(&circuit, &memory)).unwrap_err();
    assert!(matches!(refused.source, BackendError::Poisoned(_)), "{refused}");
    assert!(refused.inputs.is_some());
    assert!(matches!(lost.load_key(key), Err(BackendError::Poisoned(_))));
    other.start(&other_key, inputs(&circuit, &memory)).unwrap().finish().unwrap();
}

#[test]
fn a_device_whose_compiler_gets_one_operation_wrong_is_refused_and_the_case_named() {
    let Some(device) = device() else { return };
    for (program, text, wrong, case) in [
        (
            ProgramId::Scalars,
            "uint mask = 0u - borrow, carry = 0;",
            "uint mask = 0u - borrow, carry = 1;",
            "fr: a difference",
        ),
        (
            ProgramId::Scalars,
            "bits_of(m, w * width, width) + carry;",
            "bits_of(m, w * width, width);",
            "a multi-exponentiation in G1",
        ),
        (
            ProgramId::Scalars,
            "uint log_half = layer;",
            "uint log_half = layer > 4 ? 4 : layer;",
            "a transform of 2^11 scalars, ToCoset",
        ),
        (
            ProgramId::G1,
            "if (CO(is_zero)(p)) return CO(is_zero)(q) ? point_double(a) : point_infinity();",
            "",
            "G1: an addition",
        ),
    ] {
        let patch = move |id: ProgramId, source: String| {
            if id != program {
                return source;
            }
            assert!(source.contains(text), "{text} is not in {}", id.name());
            source.replace(text, wrong)
        };
        let opened = Instance::open_with(&device, options(), Faults::default(), &patch);
        let error = opened.err().unwrap_or_else(|| panic!("{text:?} became {wrong:?}, and nothing was noticed"));
        let OpenClError::SelfTest { case: found, .. } = &error else { panic!("{error}") };
        assert!(found.starts_with(case), "{found}");
        assert!(error.to_string().contains("computes wrongly"), "{error}");
    }
}

#[test]
fn a_program_that_does_not_compile_is_an_error_with_the_compilers_log() {
    let Some(device) = device() else { return };
    let patch = |id: ProgramId, source: String| {
        if id == ProgramId::G2 { source + "\nint broken(void) { return no_such_name; }\n" } else { source }
    };
    let error = Instance::open_with(&device, options(), Faults::default(), &patch).unwrap_err();
    assert!(matches!(error, OpenClError::Build { program: "g2", .. }), "{error}");
    assert!(error.to_string().contains("no_such_name"), "{error}");
}

#[test]
fn built_programs_are_cached_and_damaged_entries_built_again() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let options = OpenOptions { cache: Some(folder.path().into()), ..OpenOptions::default() };
        Instance::open(&device, options).unwrap().kernels.cached
    };
    // What other tests have built does for the first time.
    let warm = options().cache.unwrap();
    drop(shared());
    for entry in std::fs::read_dir(&warm).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    assert_eq!(open(), 3);
    let scalars = || {
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_string_lossy().contains("opencl-scalars-")).collect::<Vec<_>>()
    };
    for damage in [
        (|bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2)) as fn(&mut Vec<u8>),
        |bytes| {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
        },
        |bytes| bytes.clear(),
        // Whole, and nothing that a driver gave out.
        |bytes| {
            *bytes = b"splitprover-ocl1".to_vec();
            bytes.extend_from_slice(blake3::hash(b"nonsense").as_bytes());
            bytes.extend_from_slice(b"nonsense");
        },
    ] {
        for path in scalars() {
            let mut bytes = std::fs::read(&path).unwrap();
            damage(&mut bytes);
            std::fs::write(&path, bytes).unwrap();
        }
        assert_eq!(open(), 2);
        assert_eq!(open(), 3);
    }
    assert!(std::fs::read_dir(folder.path()).unwrap().all(|e| !e.unwrap().path().to_string_lossy().ends_with(".part")));
}

#[test]
fn a_cache_that_cannot_be_written_costs_time_and_nothing_else() {
    let Some(device) = device() else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    // A folder below a file. The programs are known to the driver's own cache by now, or built here.
    let options = OpenOptions { cache: Some(file.path().join("below")), ..OpenOptions::default() };
    assert_eq!(Instance::open(&device, options).unwrap().kernels.cached, 0);
}

#[test]
fn too_little_memory_says_how_much_is_missing() {
    let Some(device) = device() else { return };
    let circuit = Synthetic::new(Shape::Dense, 12).unwrap();
    let key = development_key(&circuit, HBasis::OddLagrange);
    for (limit, allocation) in [(Some(3 << 20), None), (None, Some(1 << 16))] {
        let small = OpenOptions { memory_limit: limit, ..options() };
        let instance = Instance::open(&device, small).unwrap();
        if let Some(bytes) = allocation {
            instance.context.set_max_allocation(bytes);
        }
        let prover = Prover::new(OpenClProver::from_instance(instance));
        let error = prover.load_key(key.clone()).unwrap_err();
        let BackendError::DeviceMemory { requested, available, .. } = error else { panic!("{error}") };
        assert!(requested > available, "{requested} of {available}");
    }
}

#[test]
fn devices_are_chosen_by_number_and_name_and_a_missing_one_is_named() {
    let Some(device) = device() else { return };
    let choose = |platform: Option<&str>, name: Option<&str>, index| {
        Choice { platform: platform.map(str::to_owned), name: name.map(str::to_owned), index }.find()
    };
    let (platform, name) = (device.platform.to_string(), device.name.to_uppercase());
    assert_eq!(choose(Some(&platform), None, device.number).unwrap().name, device.name);
    assert_eq!(choose(Some(&device.platform_name.to_lowercase()), Some(&name), 0).unwrap().name, device.name);
    for (platform, name, index) in [(Some("1000"), None, 0), (None, Some("no such device"), 0), (None, None, 1000)] {
        let error = choose(platform, name, index).unwrap_err();
        assert!(matches!(error, OpenClError::NoDevice { .. }), "{error}");
        let asked = [platform, name].into_iter().flatten().next().map_or(index.to_string(), str::to_owned);
        assert!(error.to_string().contains(&asked), "{error}");
    }
}
