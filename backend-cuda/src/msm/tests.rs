//! The kernels against sums of known discrete logarithms, on the emulator.

use std::cell::Cell;
use std::collections::BTreeMap;

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use group::Curve;
use group::prime::PrimeCurveAffine;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

use super::plan::AffineTerms;
use super::*;
use crate::driver::{Context, DeviceBuf, Priority};
use crate::kernels::Cache;
use crate::vector::bytes_of_scalars;

/// A group's points as the device sees them, with known discrete logarithms.
trait TestGroup: PrimeCurveAffine<Scalar = Scalar> {
    const GROUP: Group;
    fn many(logs: &[Scalar]) -> Vec<Self>;
    fn collect(plan: &Plan, bytes: &[u8]) -> Self::Curve;
    fn bytes(points: &[Self]) -> Vec<u8>;
}

impl TestGroup for G1Affine {
    const GROUP: Group = Group::G1;
    fn many(logs: &[Scalar]) -> Vec<Self> {
        logs.iter().map(|k| (Self::generator() * k).to_affine()).collect()
    }
    fn collect(plan: &Plan, bytes: &[u8]) -> Self::Curve {
        collect_g1(plan, bytes)
    }
    fn bytes(points: &[Self]) -> Vec<u8> {
        // SAFETY: a transparent wrapper of `blst_p1_affine`, twelve u64 limbs.
        unsafe { std::slice::from_raw_parts(points.as_ptr().cast::<u8>(), size_of_val(points)) }.to_vec()
    }
}

impl TestGroup for G2Affine {
    const GROUP: Group = Group::G2;
    fn many(logs: &[Scalar]) -> Vec<Self> {
        logs.iter().map(|k| (Self::generator() * k).to_affine()).collect()
    }
    fn collect(plan: &Plan, bytes: &[u8]) -> Self::Curve {
        collect_g2(plan, bytes)
    }
    fn bytes(points: &[Self]) -> Vec<u8> {
        // SAFETY: a transparent wrapper of `blst_p2_affine`, 24 u64 limbs.
        unsafe { std::slice::from_raw_parts(points.as_ptr().cast::<u8>(), size_of_val(points)) }.to_vec()
    }
}

struct Bench {
    context: Context,
    stream: Stream,
    kernels: Kernels,
    /// Rounds of affine additions that the last list went through.
    rounds: Cell<u32>,
}

/// One segment on the host: discrete logarithms of the bases, scalars, and which scalar each base takes.
struct Input {
    logs: Vec<Scalar>,
    scalars: Vec<Scalar>,
    index: Option<Vec<u32>>,
    montgomery: bool,
}

impl Input {
    fn plain(logs: Vec<Scalar>, scalars: Vec<Scalar>) -> Self {
        Self { logs, scalars, index: None, montgomery: true }
    }

    fn sum(&self) -> Scalar {
        let scalar = |i: usize| self.scalars[self.index.as_ref().map_or(i, |index| index[i] as usize)];
        self.logs.iter().enumerate().map(|(i, log)| scalar(i) * log).sum()
    }
}

impl Bench {
    fn new() -> Option<Self> {
        if !crate::emulator::available() {
            println!("skipped, no C++ compiler");
            return None;
        }
        let context = Context::emulated(1 << 32);
        let stream = Stream::new(&context, Priority::Normal).unwrap();
        let kernels = Kernels::new(&context, Cache::none());
        Some(Self { context, stream, kernels, rounds: Cell::new(0) })
    }

    fn upload(&self, bytes: &[u8]) -> DeviceBuf {
        let buffer = DeviceBuf::alloc(&self.context, bytes.len() as u64).unwrap();
        // SAFETY: both sides are alive, and the emulated stream works at once.
        unsafe { self.stream.upload(buffer.ptr(), bytes.as_ptr(), bytes.len() as u64).unwrap() };
        buffer
    }

    /// The sum of all inputs, added in calls of `per_call` segments, with a table of the plan's copies for each.
    fn run<G: TestGroup>(&self, plan: &Plan, inputs: &[Input], per_call: usize, few: bool) -> G::Curve {
        let kernels = MsmKernels::load(&self.kernels, G::GROUP).unwrap();
        let mut buffers = Vec::new();
        let mut segments = Vec::new();
        for input in inputs {
            let len = input.logs.len() as u32;
            let bases = G::bytes(&G::many(&input.logs));
            let mut table = bases.clone();
            table.resize(bases.len() * plan.table_copies() as usize, 0x11);
            let table = self.upload(&table);
            let all_copies = Shape { sets: 1, copies: plan.table_copies() };
            // SAFETY: the table has room for all copies.
            unsafe { kernels.shift_copies(&self.stream, all_copies, table.ptr(), len).unwrap() };
            let scalars: Vec<u8> = if input.montgomery {
                bytes_of_scalars(&input.scalars).to_vec()
            } else {
                input.scalars.iter().flat_map(|k| k.to_bytes_le()).collect()
            };
            let scalars = self.upload(&scalars);
            let index = input.index.as_ref().map(|index| {
                let bytes: Vec<u8> = index.iter().flat_map(|i| i.to_le_bytes()).collect();
                self.upload(&bytes)
            });
            segments.push(Segment {
                bases: table.ptr(),
                len,
                scalars: scalars.ptr(),
                index: index.as_ref().map(DeviceBuf::ptr),
                montgomery: input.montgomery,
                few,
            });
            buffers.push((table, scalars, index));
        }
        // What lies beyond must stay as it is.
        let mut beyond = [0; 4096];
        let end = plan.workspace_bytes();
        let workspace = DeviceBuf::alloc(&self.context, end + beyond.len() as u64).unwrap();
        // SAFETY: workspace and segments live to the end of this function, and the emulated stream works at once.
        unsafe {
            self.stream.fill(workspace.ptr(), 0xa5, end + beyond.len() as u64).unwrap();
            let msm = Msm::new(&kernels, plan, workspace.ptr());
            msm.begin(&self.stream).unwrap();
            for call in segments.chunks(per_call) {
                msm.add(&self.stream, call, None).unwrap();
            }
            msm.finish(&self.stream).unwrap();
            let mut bytes = vec![0; plan.output_bytes()];
            self.stream.download(bytes.as_mut_ptr(), msm.output(), bytes.len() as u64).unwrap();
            let mut rounds = [0; 4];
            self.stream.download(rounds.as_mut_ptr(), workspace.ptr().add(plan.layout().list), 4).unwrap();
            self.rounds.set(u32::from_le_bytes(rounds));
            self.stream.download(beyond.as_mut_ptr(), workspace.ptr().add(end), beyond.len() as u64).unwrap();
            assert_eq!(beyond, [0xa5; 4096], "{plan:?}");
            G::collect(plan, &bytes)
        }
    }

    fn check<G: TestGroup>(&self, plan: &Plan, inputs: &[Input], per_call: usize) {
        self.check_hinted::<G>(plan, inputs, per_call, &[false]);
    }

    /// The same with each of these for [`Segment::few`].
    fn check_hinted<G: TestGroup>(&self, plan: &Plan, inputs: &[Input], per_call: usize, hints: &[bool]) {
        let expected = G::generator() * inputs.iter().map(Input::sum).sum::<Scalar>();
        for &few in hints {
            let sum = self.run::<G>(plan, inputs, per_call, few);
            assert_eq!(sum.to_affine(), expected.to_affine(), "few: {few}, {plan:?}");
        }
    }
}

fn plan(group: Group, shape: Shape, len: usize) -> Plan {
    Plan::new(group, AffineG2::Off, shape, len as u64, 2, 1 << 26)
}

fn random(rng: &mut ChaCha20Rng, n: usize) -> Vec<Scalar> {
    (0..n).map(|_| Scalar::random(&mut *rng)).collect()
}

/// Scalars as witnesses have them: bits, −1, small values, values near every limit of a signed digit, and a random tail.
fn mixed(rng: &mut ChaCha20Rng, n: usize) -> Vec<Scalar> {
    (0..n)
        .map(|_| match rng.next_u32() % 8 {
            0 | 1 => Scalar::ZERO,
            2 | 3 => Scalar::ONE,
            4 => -Scalar::ONE,
            5 => Scalar::from(u64::from(rng.next_u32() % 70)),
            6 => {
                let power = Scalar::from(2).pow_vartime([u64::from(rng.next_u32() % 255)]);
                [power, power - Scalar::ONE, power + Scalar::ONE, -power][rng.next_u32() as usize % 4]
            }
            _ => Scalar::random(&mut *rng),
        })
        .collect()
}

fn sums_are_right<G: TestGroup>(sizes: &[usize], shapes: &[Shape]) {
    let Some(bench) = Bench::new() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(41);
    for &n in sizes {
        for &shape in shapes {
            let plan = plan(G::GROUP, shape, n);
            let (logs, scalars) = (random(&mut rng, n), mixed(&mut rng, n));
            bench.check_hinted::<G>(&plan, &[Input::plain(logs, scalars)], 1, &[false, true]);
        }
    }
}

#[test]
fn g1_sums_are_right_for_sizes_around_powers_of_two_and_any_shape() {
    let one_set = Shape { sets: 1, copies: 32 };
    sums_are_right::<G1Affine>(&[0, 1, 2, 31, 33, 256, 1025], &[one_set]);
    sums_are_right::<G1Affine>(&[65], &[Shape { sets: 6, copies: 5 }, Shape { sets: 2, copies: 16 }]);
}

/// Bases that are equal, opposite, infinite and twice one another, in turn.
fn colliding(n: usize, k: Scalar) -> Vec<Scalar> {
    (0..n).map(|i| [k, -k, Scalar::ZERO, k + k][(i / 3) % 4]).collect()
}

#[test]
fn equal_opposite_and_infinite_bases_are_added_correctly_in_g1() {
    let Some(bench) = Bench::new() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(42);
    let n = 150;
    let k = Scalar::random(&mut rng);
    let plan = plan(Group::G1, Shape { sets: 1, copies: 32 }, n);
    for scalars in [vec![Scalar::ONE; n], vec![k; n], mixed(&mut rng, n)] {
        bench.check::<G1Affine>(&plan, &[Input::plain(colliding(n, k), scalars.clone())], 1);
        bench.check::<G1Affine>(&plan, &[Input::plain(vec![k; n], scalars)], 1);
    }
}

/// One case for all of G2, whose warp-wide arithmetic takes the emulator long.
#[test]
fn g2_sums_are_right_for_random_equal_opposite_and_infinite_bases() {
    let Some(bench) = Bench::new() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(46);
    let k = Scalar::random(&mut rng);
    let logs = [colliding(12, k), random(&mut rng, 9)].concat();
    let scalars = mixed(&mut rng, logs.len());
    let plan = plan(Group::G2, Shape { sets: 1, copies: 32 }, logs.len());
    bench.check::<G2Affine>(&plan, &[Input::plain(logs, scalars)], 1);
}

#[test]
fn segments_share_buckets_whether_added_at_once_or_in_turn() {
    let Some(bench) = Bench::new() else { return };
    let inputs = || {
        let mut rng = ChaCha20Rng::seed_from_u64(44);
        let index: Vec<u32> = (0..70).map(|_| rng.next_u32() % 300).collect();
        let logs = random(&mut rng, 70);
        [
            Input::plain(random(&mut rng, 100), mixed(&mut rng, 100)),
            Input { logs, scalars: mixed(&mut rng, 300), index: Some(index), montgomery: true },
            Input { logs: random(&mut rng, 51), scalars: random(&mut rng, 51), index: None, montgomery: false },
            Input::plain(vec![], vec![]),
        ]
    };
    for shape in [Shape { sets: 1, copies: 32 }, Shape { sets: 3, copies: 10 }] {
        for per_call in [1, 2, 4] {
            let hints: &[bool] = if per_call == 2 { &[false, true] } else { &[false] };
            bench.check_hinted::<G1Affine>(&plan(Group::G1, shape, 250), &inputs(), per_call, hints);
        }
    }
}

#[test]
fn a_small_workspace_takes_more_passes_and_gives_the_same_sum() {
    let Some(bench) = Bench::new() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(45);
    let n = 700;
    let (logs, scalars) = (random(&mut rng, n), mixed(&mut rng, n));
    let shape = Shape { sets: 1, copies: 32 };
    let plan = Plan::new(Group::G1, AffineG2::Off, shape, n as u64, 2, 0);
    assert!(plan.slice < n as u64, "the case is meant to take several passes");
    bench.check_hinted::<G1Affine>(&plan, &[Input::plain(logs, scalars)], 1, &[false, true]);
}

fn counts_of(scalars: &[Scalar]) -> Counts {
    let units = scalars.iter().filter(|k| [Scalar::ONE, -Scalar::ONE].contains(k)).count() as u64;
    let zeros = scalars.iter().filter(|&&k| k == Scalar::ZERO).count() as u64;
    Counts { dense: scalars.len() as u64 - units - zeros, units }
}

/// Scalars whose every window has a pair, as few of them as are said, then units, then zeros.
fn worst(rng: &mut ChaCha20Rng, dense: usize, units: usize, zeros: usize) -> Vec<Scalar> {
    [random(rng, dense), vec![-Scalar::ONE; units], vec![Scalar::ZERO; zeros]].concat()
}

#[test]
fn plans_by_counts_have_room_for_all_pairs_in_fewer_batches() {
    let Some(bench) = Bench::new() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(53);
    let shape = Shape { sets: 16, copies: 2 };
    for scalars in [
        worst(&mut rng, 40, 300, 200),
        worst(&mut rng, 1, 0, 500),
        worst(&mut rng, 0, 400, 1),
        worst(&mut rng, 0, 0, 300),
        mixed(&mut rng, 400),
    ] {
        let (len, counts) = (scalars.len() as u64, counts_of(&scalars));
        let any = Plan::new(Group::G1, AffineG2::Off, shape, len, 2, 0);
        let room = any.workspace_bytes();
        let plan = Plan::within(Group::G1, AffineG2::Off, shape, len, counts, 2, room).unwrap();
        assert!(plan.batches(len) <= any.batches(len), "{plan:?}");
        assert!(plan.max_pairs() >= counts.dense + counts.units);
        let sliced = Plan::with_affine(None, Group::G1, shape, len, counts, 2, 0);
        let inputs = [Input::plain(random(&mut rng, scalars.len()), scalars)];
        for plan in [plan, sliced] {
            bench.check_hinted::<G1Affine>(&plan, &inputs, 1, &[counts.are_few(len)]);
        }
    }
    // A plan that takes no more dense scalars at a time than some of them, and affine additions.
    let scalars = worst(&mut rng, 500, 800, 3000);
    let terms = AffineTerms { least: 1 << 14, resident: 4 };
    let (len, counts) = (scalars.len() as u64, counts_of(&scalars));
    let plan = Plan::with_affine(Some(terms), Group::G1, Shape { sets: 1, copies: 32 }, len, counts, 1, 1 << 18);
    assert!(plan.slice < len && plan.affine.is_none(), "{plan:?}");
    let inputs = [Input::plain(random(&mut rng, scalars.len()), scalars)];
    bench.check::<G1Affine>(&plan, &inputs, 1);
    let plan = Plan::with_affine(Some(terms), Group::G1, Shape { sets: 1, copies: 32 }, len, counts, 1, 1 << 28);
    assert!(plan.slice == len && plan.affine.is_some(), "{plan:?}");
    bench.check::<G1Affine>(&plan, &inputs, 1);
    assert!(bench.rounds.get() > 0);
}

/// The signed digits of k, lowest first, by the definition: each window's bits with the carry of the one below.
fn digits(k: &Scalar, shape: Shape) -> Vec<i64> {
    let smaller = [*k, -*k].map(|k| k.to_bytes_be()).into_iter().min().unwrap();
    let negative = smaller != k.to_bytes_be();
    let bit = |i: u32| i64::from(smaller[31 - i as usize / 8] >> (i % 8) & 1);
    let (mut start, mut carry) = (0, 0);
    (0..shape.windows())
        .map(|window| {
            let width = shape.width(window);
            let raw = (0..width).map(|i| bit(start + i) << i).sum::<i64>() + carry;
            start += width;
            carry = i64::from(raw > 1 << (width - 1));
            let digit = raw - (carry << width);
            if negative { -digit } else { digit }
        })
        .collect()
}

fn power_of_two(exponent: u32) -> Scalar {
    Scalar::from(2).pow_vartime([u64::from(exponent)])
}

/// Sorts all sets in one batch and compares the list with the definition: every pair once, each bucket's in one place, and in whole groups of
/// neighbours where these are added first.
fn check_list(bench: &Bench, plan: &Plan, scalars: &[Scalar]) -> u32 {
    let [rounds, same] = [false, true].map(|few| check_list_of(bench, plan, scalars, few));
    assert_eq!(rounds, same, "{plan:?}");
    rounds
}

fn check_list_of(bench: &Bench, plan: &Plan, scalars: &[Scalar], few: bool) -> u32 {
    assert_eq!((plan.sets_per_batch, plan.slice), (plan.shape.sets, scalars.len() as u64), "{plan:?}");
    let kernels = MsmKernels::load(&bench.kernels, Group::G1).unwrap();
    let memory = bench.upload(bytes_of_scalars(scalars));
    let len = scalars.len() as u32;
    let segment = Segment { bases: memory.ptr(), len, scalars: memory.ptr(), index: None, montgomery: true, few };
    let workspace = DeviceBuf::alloc(&bench.context, plan.workspace_bytes()).unwrap();
    let (mut head, mut entries) = ([0u32; 2], vec![0u64; plan.list_room() as usize]);
    // SAFETY: all buffers live to the end of this function, and the emulated stream works at once.
    unsafe {
        bench.stream.fill(workspace.ptr(), 0xa5, plan.workspace_bytes()).unwrap();
        let msm = Msm::new(&kernels, plan, workspace.ptr());
        msm.sort(&bench.stream, &[Part { segment, from: 0, len }], 0, plan.shape.sets).unwrap();
        let layout = plan.layout();
        bench.stream.download(head.as_mut_ptr().cast(), workspace.ptr().add(layout.list), 8).unwrap();
        let bytes = 8 * entries.len() as u64;
        bench.stream.download(entries.as_mut_ptr().cast(), workspace.ptr().add(layout.sorted), bytes).unwrap();
    }
    let [rounds, length] = head;
    let mut found = BTreeMap::<u32, Vec<u32>>::new();
    let mut last = None;
    for group in entries[..length as usize].chunks(1 << rounds) {
        let key = (group[0] >> 32) as u32;
        for entry in group.iter().filter(|&&entry| entry as u32 != u32::MAX) {
            assert_eq!((entry >> 32) as u32, key, "{plan:?}");
            assert!(group[0] as u32 != u32::MAX, "{plan:?}");
            found.entry(key).or_default().push(*entry as u32);
        }
        if rounds == 0 {
            assert!(last <= Some(key), "{plan:?}");
            last = Some(key);
        }
    }
    let mut expected = BTreeMap::<u32, Vec<u32>>::new();
    for (i, k) in scalars.iter().enumerate() {
        for (window, digit) in (0..).zip(digits(k, plan.shape)) {
            let (copy, set) = (window / plan.shape.sets, window % plan.shape.sets);
            if digit != 0 {
                let key = plan.shape.buckets_of(0, set) as u32 + digit.unsigned_abs() as u32 - 1;
                let low = u32::from(digit < 0) << 31 | (copy * plan.spacing * len + i as u32);
                expected.entry(key).or_default().push(low);
            }
        }
    }
    for lows in found.values_mut().chain(expected.values_mut()) {
        lows.sort_unstable();
    }
    assert!(found == expected, "{plan:?}");
    rounds
}

#[test]
fn lists_are_right_however_unevenly_bins_are_filled() {
    let Some(bench) = Bench::new() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(54);
    let plan = |shape, scalars: &[Scalar], terms| {
        let len = scalars.len() as u64;
        Plan::with_affine(terms, Group::G1, shape, len, counts_of(scalars), 2, 1 << 28)
    };
    // Sixteen bins, each with room for some 1600 pairs at a time. Several windows of each of 900 scalars have their pair in the first: it is sorted at once,
    // in two to four turns, or without order; or one of its buckets alone has too many.
    let wide = Shape { sets: 2, copies: 8 };
    for (copies, equal) in [(1, 0), (3, 0), (5, 0), (7, 0), (8, 0), (5, 800), (3, 900)] {
        let scalars: Vec<Scalar> = (0..900)
            .map(|i| {
                let mut value = || 2 + if i < equal { 1234 } else { u64::from(rng.next_u32() % 4000) };
                (0..copies).map(|copy| Scalar::from(value()) * power_of_two(wide.shift(copy))).sum()
            })
            .collect();
        let plan = plan(wide, &scalars, None);
        assert!((1600..1700).contains(&plan.bin_stage(1 << 20)) && plan.bins == 16, "{plan:?}");
        check_list(&bench, &plan, &scalars);
    }
    // Windows of 13 and of 14 bits in one set, so that the lower buckets have twice the pairs; neighbours are added.
    let terms = Some(AffineTerms { least: 1 << 14, resident: 4 });
    let scalars = [random(&mut rng, 9000), mixed(&mut rng, 500)].concat();
    let plan_of = plan(Shape { sets: 1, copies: 19 }, &scalars, terms);
    assert!(plan_of.bins > 8 && check_list(&bench, &plan_of, &scalars) > 0);
    // Scalars at every limit, sets of different widths.
    for shape in [Shape { sets: 13, copies: 1 }, Shape { sets: 3, copies: 7 }, Shape { sets: 32, copies: 1 }, wide] {
        let mut scalars = mixed(&mut rng, 300);
        let half = (-Scalar::ONE) * Scalar::from(2).invert().unwrap();
        scalars.extend([half, half + Scalar::ONE, half - Scalar::ONE, -Scalar::from(2), Scalar::ZERO]);
        check_list(&bench, &plan(shape, &scalars, None), &scalars);
    }
    check_list(&bench, &plan(wide, &[Scalar::ZERO], None), &[Scalar::ZERO]);
}

#[test]
fn windows_may_be_narrower_than_the_copies_of_the_table_are_apart() {
    let Some(bench) = Bench::new() else { return };
    let inputs = |n: usize| {
        let mut rng = ChaCha20Rng::seed_from_u64(50);
        [
            Input::plain(random(&mut rng, n), mixed(&mut rng, n)),
            Input::plain(random(&mut rng, 33), random(&mut rng, 33)),
        ]
    };
    // All twelve copies with two sets, every third, every sixth, and the bases alone.
    for (sets, copies) in [(2, 12), (4, 4), (9, 2), (23, 1)] {
        let plan = plan(Group::G1, Shape { sets, copies }, 150).over(12);
        bench.check::<G1Affine>(&plan, &inputs(90), 2);
        bench.check::<G1Affine>(&plan, &inputs(150), 2);
    }
}

/// A plan for a small card on which lists of a few thousand pairs go through affine additions.
fn affine_plan(shape: Shape, len: usize) -> Plan {
    affine_plan_of(Group::G1, AffineTerms { least: 1 << 14, resident: 4 }, shape, len)
}

fn affine_plan_of(group: Group, terms: AffineTerms, shape: Shape, len: usize) -> Plan {
    let plan = Plan::with_affine(Some(terms), group, shape, len as u64, Counts::any(len as u64), 1, 1 << 28);
    assert!(plan.affine.is_some(), "{plan:?}");
    plan
}

#[test]
fn neighbours_are_added_in_affine_coordinates_where_buckets_are_full() {
    let Some(bench) = Bench::new() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(47);
    // Buckets with some 130 pairs, and with some 20.
    let one_set = Shape { sets: 1, copies: 32 };
    for (shape, n, rounds) in [(one_set, 520, 3), (Shape { sets: 3, copies: 9 }, 1300, 2)] {
        let plan = affine_plan(shape, n);
        let logs = random(&mut rng, n);
        bench.check::<G1Affine>(&plan, &[Input::plain(logs.clone(), random(&mut rng, n))], 1);
        assert_eq!(bench.rounds.get(), rounds, "{plan:?}");
        bench.check::<G1Affine>(&plan, &[Input::plain(logs, mixed(&mut rng, n))], 1);
    }
}

#[test]
fn affine_additions_get_equal_opposite_and_infinite_points_right() {
    let Some(bench) = Bench::new() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(48);
    let n = 520;
    let k = Scalar::random(&mut rng);
    let plan = affine_plan(Shape { sets: 1, copies: 32 }, n);
    for logs in [colliding(n, k), vec![k; n], vec![Scalar::ZERO; n]] {
        let same = vec![k + Scalar::ONE; n];
        for scalars in [same, random(&mut rng, n)] {
            bench.check::<G1Affine>(&plan, &[Input::plain(logs.clone(), scalars)], 1);
            assert_eq!(bench.rounds.get(), 3);
        }
    }
}

#[test]
fn units_and_joined_tables_go_through_affine_additions_too() {
    let Some(bench) = Bench::new() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(49);
    let n = 17_001;
    let few = random(&mut rng, 300);
    let logs: Vec<Scalar> = (0..n).map(|i| few[i % 300] * Scalar::from(1 + (i / 300) as u64 % 3)).collect();
    let units = (0..n).map(|i| [Scalar::ONE, -Scalar::ONE, Scalar::ONE][i % 3]).collect();
    let plan = affine_plan(Shape { sets: 32, copies: 1 }, 18_000);
    let tail = Input::plain(random(&mut rng, 30), mixed(&mut rng, 30));
    bench.check::<G1Affine>(&plan, &[Input::plain(logs, units), tail], 2);
    assert_eq!(bench.rounds.get(), 3);
}

#[test]
fn neighbours_are_added_in_affine_coordinates_in_g2_too() {
    let Some(bench) = Bench::new() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(51);
    let (n, k) = (260, Scalar::random(&mut rng));
    let terms = AffineTerms { least: 1 << 12, resident: 1 };
    let plan = affine_plan_of(Group::G2, terms, Shape { sets: 1, copies: 32 }, n);
    let (same, any) = (vec![k + Scalar::ONE; n], random(&mut rng, n));
    let cases = [
        (random(&mut rng, n), &any),
        (colliding(n, k), &any),
        (colliding(n, k), &same),
        (vec![k; n], &same),
        (vec![Scalar::ZERO; n], &any),
    ];
    for (logs, scalars) in cases {
        bench.check::<G2Affine>(&plan, &[Input::plain(logs, scalars.clone())], 1);
        assert_eq!(bench.rounds.get(), 3);
    }
    bench.check::<G2Affine>(&plan, &[Input::plain(random(&mut rng, n), mixed(&mut rng, n))], 1);
}

#[test]
fn short_lists_are_forced_through_affine_additions_for_tests() {
    let Some(bench) = Bench::new() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(52);
    let shape = Shape { sets: 32, copies: 1 };
    for (n, rounds) in [(1, 0), (40, 0), (300, 2)] {
        let plan = Plan::new(Group::G2, AffineG2::Always, shape, n as u64, 1, 1 << 28);
        let (logs, scalars) = (random(&mut rng, n), random(&mut rng, n));
        bench.check::<G2Affine>(&plan, &[Input::plain(logs, scalars)], 1);
        assert_eq!(bench.rounds.get(), rounds, "{plan:?}");
    }
}
