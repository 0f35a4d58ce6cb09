//! Known answers, computed on the device and on the CPU when a device is opened: a device whose compiler or driver gets one wrong is not used.
//!
//! Every kernel that a proof goes through is in a case: the fields' operations (inline PTX and plain), the curves' additions with their
//! special cases, transforms of one and of several passes, multi-exponentiations in both groups, with all kinds of scalars.

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::{Field, PrimeField};
use group::{Curve, Group as _};
use splitprover_core::{Domain, HBasis, PointRecord, RootOfUnity};

use crate::curve::{g1_from_jacobian, g2_from_jacobian};
use crate::device::Instance;
use crate::driver::{Buffer, Kernel, OpenClError, Queue};
use crate::field::{FP, FR, FR_MODULUS, SCALAR, bytes_of_scalars};
use crate::kernels::CurveKernels;
use crate::msm::{Group, Load, Msm, Plan, Segment, Tuning, Workspace};
use crate::ntt::{Direction, Transforms};

/// Compares a device's results with the CPU's.
pub(crate) struct Checker<'a> {
    instance: &'a Instance,
    queue: Queue,
    /// Where operands come from that aren't corner cases.
    seed: u64,
}

/// Runs all cases.
pub(crate) fn run(instance: &Instance) -> Result<(), OpenClError> {
    let checker = Checker::new(instance, 1)?;
    checker.fields()?;
    checker.curves()?;
    for log_n in [0, 3, 11] {
        checker.transforms(log_n)?;
    }
    // Of several blocks of prefix sums in G1, and little memory in G2.
    checker.multi_exponentiation::<G1Affine>(Group::G1, 40, 8, 16, Plan::fold_g1)?;
    checker.multi_exponentiation::<G2Affine>(Group::G2, 40, 6, 64, Plan::fold_g2)
}

/// The names of a field's operations, as the kernels number them.
const OPERATIONS: [&str; 6] = ["product", "plain product", "square", "sum", "difference", "negative"];

impl<'a> Checker<'a> {
    pub(crate) fn new(instance: &'a Instance, seed: u64) -> Result<Self, OpenClError> {
        Ok(Self { instance, queue: Queue::new(&instance.context)?, seed })
    }

    fn expect(&self, right: bool, case: impl FnOnce() -> String) -> Result<(), OpenClError> {
        if right {
            Ok(())
        } else {
            Err(OpenClError::SelfTest { device: self.instance.context.device().name.clone(), case: case() })
        }
    }

    fn upload(&self, bytes: &[u8]) -> Result<Buffer, OpenClError> {
        let buffer = Buffer::new(&self.instance.context, bytes.len() as u64)?;
        self.queue.write(&buffer, 0, bytes)?;
        Ok(buffer)
    }

    pub(crate) fn fields(&self) -> Result<(), OpenClError> {
        let kernels = &self.instance.kernels;
        let group = kernels.geometry.group;
        self.field(FR.name, &FR_MODULUS, &kernels.scalars.fr_operation, group, scalar_operation)?;
        for curve in [&kernels.g1, &kernels.g2] {
            self.field(FP.name, &FP.modulus, &curve.fp_operation, kernels.geometry.curve_group, coordinate_operation)?;
        }
        Ok(())
    }

    #[allow(unsafe_code)]
    fn field<const N: usize>(
        &self,
        name: &str,
        modulus: &[u64; N],
        kernel: &Kernel,
        group: usize,
        reference: impl Fn(usize, &[u64; N], &[u64; N]) -> [u64; N],
    ) -> Result<(), OpenClError> {
        let edge = edges(modulus, self.seed);
        let pairs: Vec<[[u64; N]; 2]> = edge.iter().flat_map(|x| edge.iter().map(move |y| [*x, *y])).collect();
        let words =
            |side: usize| -> Vec<u8> { pairs.iter().flat_map(|pair| pair[side]).flat_map(u64::to_le_bytes).collect() };
        let (a, b) = (self.upload(&words(0))?, self.upload(&words(1))?);
        let mut bytes = vec![0; pairs.len() * 8 * N];
        let out = self.upload(&bytes)?;
        for (operation, what) in OPERATIONS.iter().enumerate() {
            let arguments =
                [(&a).into(), (&b).into(), (&out).into(), (pairs.len() as u32).into(), (operation as u32).into()];
            // SAFETY: the three buffers hold an element for each pair.
            unsafe { self.queue.launch(kernel, pairs.len().div_ceil(group) as u64, group, &arguments)? };
            self.queue.read(&out, 0, &mut bytes)?;
            let got = bytes.chunks_exact(8 * N).map(limbs::<N>);
            let wrong = pairs.iter().zip(got).find(|([x, y], got)| reference(operation, x, y) != *got);
            self.expect(wrong.is_none(), || format!("{name}: a {what} (operands {:x?})", wrong.map(|(pair, _)| pair)))?;
        }
        Ok(())
    }

    pub(crate) fn curves(&self) -> Result<(), OpenClError> {
        let kernels = &self.instance.kernels;
        self.curve::<G1Affine>("G1", &kernels.g1, g1_from_jacobian)?;
        self.curve::<G2Affine>("G2", &kernels.g2, g2_from_jacobian)
    }

    #[allow(unsafe_code)]
    fn curve<C: PointRecord>(
        &self,
        name: &str,
        kernels: &CurveKernels,
        read: fn(&[u8]) -> C::Curve,
    ) -> Result<(), OpenClError>
    where
        C::Curve: Curve<AffineRepr = C>,
    {
        let group = self.instance.kernels.geometry.curve_group;
        let points =
            [C::identity(), multiple::<C>(1), multiple::<C>(5), multiple::<C>(self.seed.max(9)), -multiple::<C>(5)];
        let pairs: Vec<(C, C)> = points.iter().flat_map(|p| points.iter().map(move |q| (*p, *q))).collect();
        let records: Vec<u8> = pairs.iter().flat_map(|pair| record(&pair.1)).collect();
        // As sums: x, y, 1, 1, and infinity all zeros.
        let one = crate::field::one_of_coordinates(C::BYTES / 2);
        let sums: Vec<u8> = pairs
            .iter()
            .flat_map(|(p, _)| {
                let denominators =
                    if bool::from(p.is_identity()) { vec![0; C::BYTES] } else { [&one[..], &one].concat() };
                [record(p), denominators].concat()
            })
            .collect();
        let count = pairs.len();
        let (b, out) = (self.upload(&records)?, self.upload(&sums)?);
        let jacobian_bytes = C::BYTES / 2 * 3;
        let mut bytes = vec![0; count * jacobian_bytes];
        let jacobian = self.upload(&bytes)?;
        let groups = count.div_ceil(group) as u64;
        // Twice: the second time with denominators that aren't 1.
        let mut a = self.upload(&sums)?;
        let mut left: Vec<C::Curve> = pairs.iter().map(|(p, _)| p.to_curve()).collect();
        for round in 0..2 {
            for (operation, what) in
                ["a mixed addition", "an addition", "a doubling", "P + P", "P - P"].into_iter().enumerate()
            {
                let arguments =
                    [(&a).into(), (&b).into(), (&out).into(), (count as u32).into(), (operation as u32).into()];
                let convert = [(&out).into(), 0.into(), (count as u32).into(), (&jacobian).into(), 0.into()];
                // SAFETY: each buffer holds a point for each pair, in its form.
                unsafe {
                    self.queue.launch(&kernels.curve_operation, groups, group, &arguments)?;
                    self.queue.launch(&kernels.to_jacobian, groups, group, &convert)?;
                }
                self.queue.read(&jacobian, 0, &mut bytes)?;
                let wrong =
                    left.iter().zip(&pairs).zip(bytes.chunks_exact(jacobian_bytes)).any(|((p, (_, q)), got)| {
                        let expected = match operation {
                            0 | 1 => *p + *q,
                            2 | 3 => p.double(),
                            _ => C::Curve::identity(),
                        };
                        read(got) != expected
                    });
                self.expect(!wrong, || format!("{name}: {what}"))?;
            }
            if round == 0 {
                let arguments = [(&a).into(), (&b).into(), (&out).into(), (count as u32).into(), 0u32.into()];
                // SAFETY: as above.
                unsafe { self.queue.launch(&kernels.curve_operation, groups, group, &arguments)? };
                let mut sums = vec![0; count * 2 * C::BYTES];
                self.queue.read(&out, 0, &mut sums)?;
                a = self.upload(&sums)?;
                left.iter_mut().zip(&pairs).for_each(|(p, (_, q))| *p += *q);
            }
        }
        Ok(())
    }

    #[allow(unsafe_code)]
    pub(crate) fn transforms(&self, log_n: u32) -> Result<(), OpenClError> {
        let (context, kernels) = (&self.instance.context, &self.instance.kernels);
        let root = if log_n % 2 == 1 { RootOfUnity::snarkjs() } else { RootOfUnity::bellman() };
        let Some(domain) = Domain::new(log_n, root) else { return Ok(()) };
        let n = domain.size();
        let rows: Vec<Scalar> = scalars(self.seed, n);
        let transforms = Transforms::new(context, kernels, &self.queue, domain, HBasis::OddLagrange)?;
        let data = self.upload(bytes_of_scalars(&rows))?;
        let mut bytes = vec![0; n * SCALAR as usize];
        for direction in [Direction::ToCoefficients, Direction::ToCoset] {
            // SAFETY: the buffer holds n scalars.
            unsafe { transforms.transform(kernels, &self.queue, &data, direction)? };
            self.queue.read(&data, 0, &mut bytes)?;
            let got: Vec<Scalar> = bytes.chunks_exact(32).map(scalar).collect();
            let inverse = Option::from(domain.omega().invert()).unwrap_or(Scalar::ONE);
            let mut expected = evaluate(&rows, inverse);
            let right = match direction {
                Direction::ToCoefficients => (0..n).all(|i| got[reversed(i, log_n)] == expected[i]),
                Direction::ToCoset => {
                    let mut power = Scalar::ONE;
                    for value in &mut expected {
                        *value *= power;
                        power *= domain.odd_coset_shift();
                    }
                    evaluate(&expected, domain.omega()) == got
                }
            };
            self.expect(right, || format!("a transform of 2^{log_n} scalars, {direction:?}"))?;
        }
        Ok(())
    }

    #[allow(unsafe_code)]
    pub(crate) fn multi_exponentiation<C: PointRecord>(
        &self,
        group: Group,
        count: usize,
        width: u32,
        windows_at_once: u64,
        fold: fn(&Plan, &[u8]) -> C::Curve,
    ) -> Result<(), OpenClError>
    where
        C::Curve: Curve<AffineRepr = C>,
    {
        let (context, kernels) = (&self.instance.context, &self.instance.kernels);
        let mut exponents = scalars(self.seed, count);
        let edge = [Scalar::ZERO, Scalar::ONE, -Scalar::ONE, Scalar::from(2), -Scalar::from(2), Scalar::TWO_INV];
        for (exponent, edge) in exponents.iter_mut().rev().step_by(2).zip(edge) {
            *exponent = edge;
        }
        // Equal scalars of equal and of opposite bases: sums of a bucket that meet themselves.
        for i in (9..count).step_by(9) {
            exponents[i] = exponents[i - 1];
        }
        let bases: Vec<C> = (0..count as u64)
            .map(|i| match i % 4 {
                0 => multiple::<C>(7),
                1 => -multiple::<C>(7),
                _ => multiple::<C>(i / 8 + 1),
            })
            .collect();
        let count = bases.len() as u64;
        let load = Load { bases: count, tail: count, units: count, tail_in_all: count };
        let scan_block = u64::from(kernels.geometry.scan_block());
        let plan = Plan::with_width(group, load, width, (windows_at_once + 1) * count, Tuning::of(context), scan_block);
        let workspace = Workspace::new(context, plan.needs())?;
        let records: Vec<u8> = bases.iter().flat_map(record).collect();
        let (bases_at, scalars_at) = (self.upload(&records)?, self.upload(bytes_of_scalars(&exponents))?);
        let mut bytes = vec![0; plan.result_bytes() as usize];
        let result = self.upload(&bytes)?;
        let msm = Msm { kernels, plan: &plan, workspace: &workspace, queue: &self.queue };
        msm.begin()?;
        let segment = Segment {
            scalars: &scalars_at,
            first_scalar: 0,
            index: None,
            first_base: 0,
            count: count as u32,
            montgomery: true,
        };
        // SAFETY: bases and scalars are as many as the segment says, and the plan's load.
        unsafe { msm.pass(&bases_at, &[segment], count, count)? };
        msm.finish(&result)?;
        self.queue.read(&result, 0, &mut bytes)?;
        let expected =
            bases.iter().zip(&exponents).fold(C::Curve::identity(), |sum, (base, k)| sum + base.to_curve() * k);
        self.expect(fold(&plan, &bytes) == expected, || format!("a multi-exponentiation in {group:?}"))
    }
}

/// Values around the field's corners, and some from a fixed sequence.
fn edges<const N: usize>(modulus: &[u64; N], seed: u64) -> Vec<[u64; N]> {
    let small = |value: u64| std::array::from_fn(|i| if i == 0 { value } else { 0 });
    let minus_one = std::array::from_fn(|i| if i == 0 { modulus[0] - 1 } else { modulus[i] });
    let mut sequence = Sequence(seed);
    let mut values = vec![small(0), small(1), small(2), small(u64::MAX), minus_one];
    for _ in 0..8 {
        // Below p: p's top limb has a free bit, and is cut to half its value.
        values.push(std::array::from_fn(|i| {
            let word = sequence.next();
            if i == N - 1 { word % (modulus[N - 1] / 2) } else { word }
        }));
    }
    values
}

/// Steele, Lea, Flood 2014: a fixed sequence that looks random.
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn scalars(seed: u64, count: usize) -> Vec<Scalar> {
    let mut sequence = Sequence(seed);
    let mut word = || Scalar::from(sequence.next());
    let shift = Scalar::from(1 << 63).double();
    (0..count).map(|_| ((word() * shift + word()) * shift + word()) * shift + word()).collect()
}

fn limbs<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut limbs = [0; N];
    for (limb, chunk) in limbs.iter_mut().zip(bytes.chunks_exact(8)) {
        *limb = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
    }
    limbs
}

/// A scalar from its limbs in Montgomery form.
pub(crate) fn scalar(bytes: &[u8]) -> Scalar {
    Scalar::from(blst::blst_fr { l: limbs(bytes) })
}

fn record<C: PointRecord>(point: &C) -> Vec<u8> {
    let mut bytes = vec![0; C::BYTES];
    point.write_record(&mut bytes);
    bytes
}

fn multiple<C: PointRecord>(k: u64) -> C
where
    C::Curve: Curve<AffineRepr = C>,
{
    (C::generator() * Scalar::from(k)).to_affine()
}

fn scalar_operation(operation: usize, x: &[u64; 4], y: &[u64; 4]) -> [u64; 4] {
    let [a, b] = [x, y].map(|l| Scalar::from(blst::blst_fr { l: *l }));
    let result = match operation {
        0 | 1 => a * b,
        2 => a * a,
        3 => a + b,
        4 => a - b,
        _ => -a,
    };
    blst::blst_fr::from(result).l
}

#[allow(unsafe_code)]
fn coordinate_operation(operation: usize, x: &[u64; 6], y: &[u64; 6]) -> [u64; 6] {
    let [a, b] = [x, y].map(|l| blst::blst_fp { l: *l });
    let mut out = blst::blst_fp::default();
    // SAFETY: plain values below q in, a plain value out.
    unsafe {
        match operation {
            0 | 1 => blst::blst_fp_mul(&mut out, &a, &b),
            2 => blst::blst_fp_sqr(&mut out, &a),
            3 => blst::blst_fp_add(&mut out, &a, &b),
            4 => blst::blst_fp_sub(&mut out, &a, &b),
            _ => blst::blst_fp_cneg(&mut out, &a, true),
        }
    }
    out.l
}

fn reversed(i: usize, bits: u32) -> usize {
    if bits == 0 { 0 } else { i.reverse_bits() >> (usize::BITS - bits) }
}

/// Values of the polynomial with these coefficients at 1, ω, ω², …: by halves.
fn evaluate(coefficients: &[Scalar], omega: Scalar) -> Vec<Scalar> {
    let n = coefficients.len();
    if n == 1 {
        return coefficients.to_vec();
    }
    let part = |from: usize| coefficients.iter().skip(from).step_by(2).copied().collect::<Vec<_>>();
    let (even, odd) = (evaluate(&part(0), omega.square()), evaluate(&part(1), omega.square()));
    let mut values = vec![Scalar::ZERO; n];
    let mut power = Scalar::ONE;
    for i in 0..n / 2 {
        values[i] = even[i] + power * odd[i];
        values[i + n / 2] = even[i] - power * odd[i];
        power *= omega;
    }
    values
}
