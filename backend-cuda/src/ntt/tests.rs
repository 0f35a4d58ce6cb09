use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use splitprover_core::RootOfUnity;

use super::*;
use crate::driver::Priority;
use crate::kernels::Cache;
use crate::vector::bytes_of_scalars;

#[test]
fn passes_cover_the_domain_and_are_few() {
    for log_n in 0..=31 {
        let passes = passes(log_n);
        if log_n < 3 {
            assert!(passes.is_empty());
            continue;
        }
        assert_eq!(passes.iter().sum::<u32>(), log_n, "{passes:?}");
        assert_eq!(passes.len() as u32, log_n.div_ceil(PASS));
        assert!(passes.iter().all(|bits| (3..=PASS).contains(bits)), "{log_n}: {passes:?}");
    }
    assert_eq!(passes(20), [8, 6, 6]);
    assert_eq!(passes(24), [8, 8, 8]);
    assert_eq!(passes(27), [9, 9, 9]);
}

/// Σ xⱼ·wⁱʲ as it stands in the definition, for the indices asked for.
fn evaluate(x: &[Scalar], at: Scalar) -> Scalar {
    x.iter().rev().fold(Scalar::ZERO, |sum, &coefficient| sum * at + coefficient)
}

fn reverse(i: usize, bits: u32) -> usize {
    if bits == 0 { 0 } else { i.reverse_bits() >> (usize::BITS - bits) }
}

fn transform(x: &[Scalar], root: Scalar) -> Vec<Scalar> {
    // Recursive halves: even and odd coefficients at the squared root.
    if x.len() == 1 {
        return x.to_vec();
    }
    let half = |odd: usize| transform(&x.iter().skip(odd).step_by(2).copied().collect::<Vec<_>>(), root.square());
    let (even, odd) = (half(0), half(1));
    let mut power = Scalar::ONE;
    let mut low = Vec::new();
    let mut high = Vec::new();
    for (e, o) in even.into_iter().zip(odd) {
        low.push(e + power * o);
        high.push(e - power * o);
        power *= root;
    }
    low.extend(high);
    low
}

struct Bench {
    context: Context,
    stream: Stream,
    kernels: NttKernels,
}

impl Bench {
    fn new(arithmetic: Arithmetic) -> Option<Self> {
        if !crate::emulator::available() {
            println!("skipped, no C++ compiler");
            return None;
        }
        let context = Context::emulated(1 << 30);
        let stream = Stream::new(&context, Priority::Normal).unwrap();
        let kernels = NttKernels::load(&Kernels::new(&context, Cache::none()), arithmetic).unwrap();
        Some(Self { context, stream, kernels })
    }

    fn upload(&self, n: usize, values: &[Scalar]) -> DeviceBuf {
        // Poisoned beyond the values, so that a missing zero shows.
        let buffer = DeviceBuf::alloc(&self.context, n as u64 * SCALAR).unwrap();
        // SAFETY: both sides are alive, and the emulated stream works at once.
        unsafe {
            self.stream.fill(buffer.ptr(), 0x11, n as u64 * SCALAR).unwrap();
            self.stream.upload(buffer.ptr(), values.as_ptr().cast(), values.len() as u64 * SCALAR).unwrap();
        }
        buffer
    }

    fn download(&self, from: DevicePtr, n: usize) -> Vec<Scalar> {
        let mut out = vec![Scalar::ZERO; n];
        // SAFETY: as above.
        unsafe { self.stream.download(out.as_mut_ptr().cast(), from, n as u64 * SCALAR).unwrap() };
        out
    }
}

fn random(n: usize, rng: &mut ChaCha20Rng) -> Vec<Scalar> {
    (0..n)
        .map(|i| match i % 7 {
            0 => Scalar::ZERO,
            1 => Scalar::ONE,
            2 => -Scalar::ONE,
            _ => Scalar::random(&mut *rng),
        })
        .collect()
}

#[test]
fn transforms_agree_with_the_definition_in_every_pass_structure() {
    transforms_agree_with_the_definition(Arithmetic::Montgomery);
}

#[test]
fn transforms_with_eisenstein_integers_agree_with_the_definition_in_every_pass_structure() {
    transforms_agree_with_the_definition(Arithmetic::Eisenstein);
}

fn transforms_agree_with_the_definition(arithmetic: Arithmetic) {
    let Some(bench) = Bench::new(arithmetic) else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    for root in [RootOfUnity::snarkjs(), RootOfUnity::bellman()] {
        for log_n in (3..=13).chain([16]) {
            if log_n == 16 && root == RootOfUnity::bellman() {
                continue;
            }
            let domain = Domain::new(log_n, root).unwrap();
            let n = domain.size();
            let quotient =
                Quotient::new(&bench.context, &bench.kernels, &bench.stream, domain, HBasis::OddLagrange, false)
                    .unwrap();
            let x = random(n, &mut rng);
            let vector = bench.upload(n, &x);
            // SAFETY: the vector holds n elements.
            unsafe { quotient.inverse_transform(&bench.stream, vector.ptr()).unwrap() };
            let expected = transform(&x, domain.omega().invert().unwrap());
            let got = bench.download(vector.ptr(), n);
            assert!((0..n).all(|p| got[p] == expected[reverse(p, log_n)]), "inverse, 2^{log_n}");
            // SAFETY: as above.
            unsafe { quotient.forward_transform(&bench.stream, vector.ptr()).unwrap() };
            let got = bench.download(vector.ptr(), n);
            let size = Scalar::from(n as u64);
            assert!(got.iter().zip(&x).all(|(g, x)| *g == *x * size), "forward, 2^{log_n}");
        }
    }
}

/// Beyond 2^18 points the last twiddles come from a table of all of them, or else are products of two.
#[test]
fn twiddles_beyond_the_big_table_agree_with_the_definition() {
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let log_n = LOG_BIG + 1;
    let domain = Domain::new(log_n, RootOfUnity::bellman()).unwrap();
    let (n, size) = (domain.size(), Scalar::from(domain.size() as u64));
    let x = random(n, &mut rng);
    let expected = transform(&x, domain.omega().invert().unwrap());
    for (arithmetic, full) in
        [(Arithmetic::Eisenstein, true), (Arithmetic::Eisenstein, false), (Arithmetic::Montgomery, true)]
    {
        let Some(bench) = Bench::new(arithmetic) else { return };
        let quotient =
            Quotient::new(&bench.context, &bench.kernels, &bench.stream, domain, HBasis::OddLagrange, full).unwrap();
        let vector = bench.upload(n, &x);
        // SAFETY: the vector holds n elements.
        unsafe { quotient.inverse_transform(&bench.stream, vector.ptr()).unwrap() };
        let got = bench.download(vector.ptr(), n);
        assert!((0..n).all(|p| got[p] == expected[reverse(p, log_n)]), "inverse, {arithmetic:?}, full table: {full}");
        // SAFETY: as above.
        unsafe { quotient.forward_transform(&bench.stream, vector.ptr()).unwrap() };
        let got = bench.download(vector.ptr(), n);
        assert!(got.iter().zip(&x).all(|(g, x)| *g == *x * size), "forward, {arithmetic:?}, full table: {full}");
    }
}

/// The H query's scalars by evaluation and interpolation as the formulas say.
fn quotient_by_definition(domain: Domain, basis: HBasis, rows: [&[Scalar]; 3]) -> Vec<Scalar> {
    let n = domain.size();
    let inverse = domain.omega().invert().unwrap();
    let [a, b, c] = rows.map(|row| {
        let mut padded = row.to_vec();
        padded.resize(n, Scalar::ZERO);
        transform(&padded, inverse).into_iter().map(|x| x * domain.size_inverse()).collect::<Vec<_>>()
    });
    match basis {
        HBasis::OddLagrange => {
            let points = (0..n as u64).map(|i| domain.odd_coset_shift() * domain.omega().pow_vartime([i]));
            points.map(|x| evaluate(&a, x) * evaluate(&b, x) - evaluate(&c, x)).collect()
        }
        HBasis::Monomial => {
            // Schoolbook a·b − c, then division by xⁿ − 1: the quotient's coefficients are the upper half's.
            let mut product = vec![Scalar::ZERO; 2 * n];
            for (i, x) in a.iter().enumerate() {
                for (j, y) in b.iter().enumerate() {
                    product[i + j] += *x * y;
                }
            }
            for (p, c) in product.iter_mut().zip(&c) {
                *p -= c;
            }
            let high = product[n..].to_vec();
            assert!((0..n).all(|i| product[i] + high[i] == Scalar::ZERO), "divisible by Z");
            high
        }
    }
}

#[test]
fn quotients_agree_with_the_definition_for_both_bases_and_roots() {
    quotients_agree_with_the_definition(Arithmetic::Montgomery);
}

#[test]
fn quotients_with_eisenstein_integers_agree_with_the_definition_for_both_bases_and_roots() {
    quotients_agree_with_the_definition(Arithmetic::Eisenstein);
}

fn quotients_agree_with_the_definition(arithmetic: Arithmetic) {
    let Some(bench) = Bench::new(arithmetic) else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(2);
    for (root, basis) in [
        (RootOfUnity::snarkjs(), HBasis::OddLagrange),
        (RootOfUnity::bellman(), HBasis::OddLagrange),
        (RootOfUnity::bellman(), HBasis::Monomial),
        (RootOfUnity::snarkjs(), HBasis::Monomial),
    ] {
        for log_n in [0, 1, 2, 3, 4, 6, 8, 9, 10] {
            let domain = Domain::new(log_n, root).unwrap();
            let n = domain.size();
            let quotient = Quotient::new(&bench.context, &bench.kernels, &bench.stream, domain, basis, true).unwrap();
            for (len, c_given) in [(n, false), (n - n / 3, true), (n - n / 3, false), (0, false)] {
                let (a, b) = (random(len, &mut rng), random(len, &mut rng));
                let satisfied: Vec<_> = a.iter().zip(&b).map(|(x, y)| *x * y).collect();
                // A c of its own need not be a∘b, except where Z must divide.
                let c = if c_given && basis == HBasis::OddLagrange { random(len, &mut rng) } else { satisfied };
                // b arrives when a is under way.
                let (da, db) = (bench.upload(n, &a), bench.upload(n, &random(n, &mut rng)));
                let dc = bench.upload(n, if c_given { &c } else { &[] });
                let rows = Rows { a: da.ptr(), b: db.ptr(), c: dc.ptr(), c_given, len: len as u32 };
                // SAFETY: all three vectors hold n elements, and the emulated stream works at once.
                let h = unsafe {
                    quotient.enqueue_first(&bench.stream, rows).unwrap();
                    bench.stream.upload(db.ptr(), bytes_of_scalars(&b).as_ptr(), SCALAR * b.len() as u64).unwrap();
                    quotient.enqueue_rest(&bench.stream, rows).unwrap()
                };
                let expected = quotient_by_definition(domain, basis, [&a, &b, &c]);
                assert!(bench.download(h, n) == expected, "{basis:?}, 2^{log_n}, {len} rows, c given: {c_given}");
            }
        }
    }
}

#[test]
fn a_whole_plan_runs_dry_at_the_largest_domains() {
    let context = Context::dry(1 << 40);
    let stream = Stream::new(&context, Priority::Normal).unwrap();
    let load = |arithmetic| NttKernels::load(&Kernels::new(&context, Cache::none()), arithmetic).unwrap();
    let both = [load(Arithmetic::Montgomery), load(Arithmetic::Eisenstein)];
    for log_n in [24, 27, 28] {
        let domain = Domain::new(log_n, RootOfUnity::bellman()).unwrap();
        for (basis, kernels) in
            [HBasis::OddLagrange, HBasis::Monomial].into_iter().flat_map(|b| both.iter().map(move |k| (b, k)))
        {
            let quotient = Quotient::new(&context, kernels, &stream, domain, basis, true).unwrap();
            assert_eq!(quotient.bytes(), Quotient::table_bytes(log_n, true));
            let null = DevicePtr::NULL;
            let rows = Rows { a: null, b: null.add(1), c: null.add(2), c_given: false, len: 1 << log_n };
            // SAFETY: a dry launch touches no memory.
            unsafe { quotient.enqueue(&stream, rows).unwrap() };
        }
    }
    assert_eq!(context.live().device_bytes, 0);
}
