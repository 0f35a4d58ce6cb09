//! Transforms over the evaluation domain, on the device: plans, tables and launches for `kernels/ntt.cu`.
//!
//! A [`Domain`] and the basis of the H query fix everything: the passes, the powers of the format's own root
//! of unity and of its inverse, the coset and the scaling. [`Quotient`] holds those tables in device memory, made once per key, and
//! turns evaluation vectors into the scalars of the H query.
//!
//! With a, b, c the interpolated rows, g the coset generator, and Z = xⁿ − 1:
//!
//! * [`HBasis::OddLagrange`]: h_i = a·b − c at g·ωⁱ with g² = ω; three inverse and three forward transforms.
//! * [`HBasis::Monomial`]: on the coset Z is the constant z = gⁿ − 1, and c has degree below n, so
//!   z·h = coset-interpolation(a·b) − c as polynomials: three inverse, two forward and one more inverse transform.

use splitprover_core::{Domain, HBasis, Scalar};

use ff::{Field, PrimeField};

use crate::driver::{Arg, Context, CudaError, DeviceBuf, DevicePtr, Function, Module, Stream};
use crate::kernels::{Family, Kernels};

/// Bytes of a scalar.
pub const SCALAR: u64 = 32;
/// log2 of the elements that a transform's block holds: `NTT_LOG_BLOCK` in the kernels.
const LOG_BLOCK: u32 = 9;
/// Shared memory of a block: its elements.
const SHARED: u32 = 32 << LOG_BLOCK;
/// Threads of a block.
const THREADS: u32 = (1 << LOG_BLOCK) / 4;
/// Largest power of two that one pass transforms.
const PASS: u32 = 9;

/// How the transforms compute with residues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// Whole residues in Montgomery form: 112 wide multiply-adds a product.
    Montgomery,
    /// Residues as Eisenstein integers, with tables of twiddles in that form: 84 wide multiply-adds a product.
    #[default]
    Eisenstein,
}

/// The kernels of this family.
#[derive(Debug, Clone)]
pub struct NttKernels {
    /// What makes tables' entries of factors in Montgomery form, with Eisenstein integers.
    entries: Option<Function>,
    columns_dif: Function,
    columns_dit: Function,
    rows: Function,
    powers: Function,
    unshuffle: Function,
    tiny: Function,
}

impl NttKernels {
    /// Finds the kernels.
    ///
    /// # Errors
    /// As for [`Kernels::function`].
    pub fn load(kernels: &Kernels, arithmetic: Arithmetic) -> Result<Self, CudaError> {
        let mut found = Self::from_module(&kernels.module(Family::Ntt)?)?;
        if arithmetic == Arithmetic::Eisenstein {
            found.use_eisenstein(&kernels.module(Family::NttEis)?)?;
        }
        Ok(found)
    }

    /// Takes the transforms' kernels from a module of the other family.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn use_eisenstein(&mut self, module: &Module) -> Result<(), CudaError> {
        self.columns_dif = module.function("ntt_eis_columns_dif")?;
        self.columns_dit = module.function("ntt_eis_columns_dit")?;
        self.rows = module.function("ntt_eis_rows")?;
        self.entries = Some(module.function("ntt_eis_entries")?);
        self.allow_shared_memory()
    }

    fn allow_shared_memory(&self) -> Result<(), CudaError> {
        [&self.columns_dif, &self.columns_dit, &self.rows]
            .into_iter()
            .try_for_each(|function| function.allow_shared_memory(SHARED))
    }

    /// Finds the kernels in a module of the caller's.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn from_module(module: &Module) -> Result<Self, CudaError> {
        let find = |name| module.function(name);
        let found = Self {
            entries: None,
            columns_dif: find("ntt_columns_dif")?,
            columns_dit: find("ntt_columns_dit")?,
            rows: find("ntt_rows")?,
            powers: find("ntt_powers")?,
            unshuffle: find("ntt_unshuffle")?,
            tiny: find("ntt_tiny")?,
        };
        found.allow_shared_memory()?;
        Ok(found)
    }
}

/// How a transform of 2^L points is cut into passes: the sizes of the column passes, then of the rows, at most 2^9 each. As few
/// passes as possible, and even sizes where possible, which have no radix-2 step. Empty below 2^3.
///
/// ```text
/// L = 20: 8, 6 | 6      L = 24: 8, 8 | 8      L = 27: 9, 9 | 9
/// ```
pub(crate) fn passes(log_n: u32) -> Vec<u32> {
    if log_n < 3 {
        return Vec::new();
    }
    let count = log_n.div_ceil(PASS);
    let mut left = log_n;
    let mut passes: Vec<u32> = (1..count)
        .rev()
        .map(|after| {
            // What later passes can't take, and an even share.
            let least = left.saturating_sub(PASS * after);
            let bits = left.div_ceil(after + 1).next_multiple_of(2).clamp(least, least.max(8));
            left -= bits;
            bits
        })
        .collect();
    passes.push(left);
    passes
}

/// Powers of one root of unity in device memory, laid out as the kernels want them.
#[derive(Clone, Copy, Debug)]
struct Tables {
    small: DevicePtr,
    big: DevicePtr,
    low: DevicePtr,
    /// Shared by both directions; null where there is none.
    full: DevicePtr,
    /// Whether the full table holds powers of the inverse.
    inverted: bool,
}

/// A factor for each coefficient: high[i >> LOG_LOW] · low[i mod 2^LOG_LOW], or low[0] alone.
#[derive(Clone, Copy, Debug)]
struct Scale {
    high: DevicePtr,
    low: DevicePtr,
}

/// |x|, the parameter of BLS12-381, whose cube is a fourth root of unity modulo r.
const CURVE_PARAMETER: u64 = 0xd201_0000_0001_0000;

const LOG_BIG: u32 = 18;
const LOG_SCALE_LOW: u32 = 9;

/// Everything that depends on the domain and the basis alone.
#[derive(Debug)]
pub struct Quotient {
    kernels: NttKernels,
    log_n: u32,
    basis: HBasis,
    passes: Vec<u32>,
    forward: Tables,
    inverse: Tables,
    /// gⁱ/n.
    to_coset: Scale,
    /// g⁻ⁱ/(n·z), monomial basis only.
    from_coset: Scale,
    /// 1/(n·z), monomial basis only.
    plain: Scale,
    tiny: Tiny,
    /// Whether ω^(n/4) is −|x|³ and not |x|³, with x the curve's parameter; ω⁻¹'s is the other one.
    quarter_negative: bool,
    memory: DeviceBuf,
}

#[derive(Clone, Copy, Debug)]
struct Tiny {
    root: Scalar,
    root_inverse: Scalar,
    shift: Scalar,
    shift_inverse: Scalar,
    n_inverse: Scalar,
    z_inverse: Scalar,
}

/// The evaluation vectors of one proof in device memory. `c` is a∘b where it isn't given.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// n elements of space, of which the first `len` hold a·w.
    pub a: DevicePtr,
    /// Likewise b·w.
    pub b: DevicePtr,
    /// n elements of space; holds c·w if `c_given`.
    pub c: DevicePtr,
    /// Whether `c` was given.
    pub c_given: bool,
    /// Rows given; the others are zero.
    pub len: u32,
}

impl Quotient {
    /// Device bytes of the tables for a domain of 2^`log_n` rows; the `full` table of twiddles takes 16 bytes per row beyond 2^18 rows
    /// and saves one multiplication in six of the largest pass.
    #[must_use]
    pub fn table_bytes(log_n: u32, full: bool) -> u64 {
        let l = Layout::new(log_n);
        let full = if full { l.full } else { 0 };
        SCALAR * (2 * (2 * l.small + l.big + l.low) + 2 * (l.scale_high + l.scale_low) + l.scale_low + full)
    }

    /// Computes the tables on `stream`; they are ready for later work on that stream, or after it is synchronised.
    ///
    /// # Errors
    /// Out of device memory, or whatever the driver reports.
    pub fn new(
        context: &Context,
        kernels: &NttKernels,
        stream: &Stream,
        domain: Domain,
        basis: HBasis,
        full: bool,
    ) -> Result<Self, CudaError> {
        let log_n = domain.log2();
        let memory = DeviceBuf::alloc(context, Self::table_bytes(log_n, full))?;
        let layout = Layout::new(log_n);
        let mut next = memory.ptr();
        let mut take = |count: u64| {
            let at = next;
            next = next.add(count * SCALAR);
            at
        };
        let full = if full && layout.full > 0 { take(layout.full) } else { DevicePtr::NULL };
        let mut tables = |inverted| Tables {
            small: take(2 * layout.small),
            big: take(layout.big),
            low: take(layout.low),
            full,
            inverted,
        };
        let (forward, inverse) = (tables(false), tables(true));
        let mut scale = || Scale { high: take(layout.scale_high), low: take(layout.scale_low) };
        let (to_coset, from_coset) = (scale(), scale());
        let plain = Scale { high: DevicePtr::NULL, low: take(layout.scale_low) };

        let one = Scalar::ONE;
        let root = domain.omega();
        let root_inverse = root.invert().unwrap_or(one);
        let shift = match basis {
            HBasis::OddLagrange => domain.odd_coset_shift(),
            // bellman's coset generator; any element outside the domain gives the same coefficients.
            HBasis::Monomial => Scalar::MULTIPLICATIVE_GENERATOR,
        };
        let shift_inverse = shift.invert().unwrap_or(one);
        let n_inverse = domain.size_inverse();
        let z = shift.pow_vartime([domain.size() as u64]) - one;
        let z_inverse = z.invert().unwrap_or(one);
        let tiny = Tiny { root, root_inverse, shift, shift_inverse, n_inverse, z_inverse };
        let quotient = Self {
            kernels: kernels.clone(),
            log_n,
            basis,
            passes: passes(log_n),
            forward,
            inverse,
            to_coset,
            from_coset,
            plain,
            tiny,
            quarter_negative: root.pow_vartime([domain.size() as u64 / 4])
                != Scalar::from(CURVE_PARAMETER).pow_vartime([3]),
            memory,
        };
        // SAFETY: each range below was taken from `memory` with the length asked for, and `memory` outlives the work: dropping it frees
        // it in the driver, which waits for the device's use of it.
        let powers = |out, first, base, count| unsafe {
            quotient.powers(stream, out, first, base, count)?;
            // Small tables have room for their entries' other half.
            quotient.make_entries(stream, out, count, [forward.small, inverse.small].contains(&out))
        };
        if !quotient.passes.is_empty() {
            for (tables, root) in [(forward, root), (inverse, root_inverse)] {
                let power = |log_count: u32| root.pow_vartime([1u64 << (log_n - log_count)]);
                powers(tables.small, one, power(layout.log_small), layout.small)?;
                powers(tables.big, one, power(layout.log_big), layout.big)?;
                powers(tables.low, one, root, layout.low)?;
            }
            if full != DevicePtr::NULL {
                powers(full, one, root, layout.full)?;
            }
            let mut scales = vec![(to_coset, n_inverse, shift)];
            if basis == HBasis::Monomial {
                scales.push((from_coset, n_inverse * z_inverse, shift_inverse));
                powers(plain.low, n_inverse * z_inverse, one, layout.scale_low)?;
            }
            for (scale, first, base) in scales {
                powers(scale.high, one, base.pow_vartime([1u64 << LOG_SCALE_LOW]), layout.scale_high)?;
                powers(scale.low, first, base, layout.scale_low)?;
            }
        }
        Ok(quotient)
    }

    /// log2 of the domain's size.
    #[must_use]
    pub fn log_n(&self) -> u32 {
        self.log_n
    }

    /// Device bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Queues first·baseⁱ for i below `count`.
    ///
    /// # Safety
    /// `out` must be allocated for `count` scalars until the stream has passed this work.
    unsafe fn powers(
        &self,
        stream: &Stream,
        out: DevicePtr,
        first: Scalar,
        base: Scalar,
        count: u64,
    ) -> Result<(), CudaError> {
        let args = [out.into(), words(first), words(base), count.into()];
        // SAFETY: `ntt_powers(out, first, base, count)` writes `count` scalars at `out`: our caller's promise.
        unsafe { self.kernels.powers.launch(stream, [(count as u32).div_ceil(128), 1, 1], [128, 1, 1], 0, &args) }
    }

    /// Queues what turns factors in Montgomery form into entries of a table, where those look different.
    ///
    /// # Safety
    /// `table` must hold `count` scalars, twice as many if `turned`, and stay allocated until the stream has passed this work.
    unsafe fn make_entries(
        &self,
        stream: &Stream,
        table: DevicePtr,
        count: u64,
        turned: bool,
    ) -> Result<(), CudaError> {
        let Some(entries) = &self.kernels.entries else { return Ok(()) };
        let args = [table.into(), count.into(), u32::from(turned).into()];
        // SAFETY: `ntt_eis_entries(table, count, turned)` rewrites that many scalars at `table`: our caller's promise.
        unsafe { entries.launch(stream, [(count as u32).div_ceil(128), 1, 1], [128, 1, 1], 0, &args) }
    }

    /// Fills a vector of n elements with first·baseⁱ, for tests and benchmarks.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// `vector` must be allocated for n elements until the stream has passed this work.
    pub unsafe fn fill_powers(
        &self,
        stream: &Stream,
        vector: DevicePtr,
        first: Scalar,
        base: Scalar,
    ) -> Result<(), CudaError> {
        // SAFETY: our caller's promise.
        unsafe { self.powers(stream, vector, first, base, 1 << self.log_n) }
    }

    /// Queues the computation of the H query's scalars from the rows: n of them for the odd-Lagrange basis, n coefficients (the last
    /// zero) for the monomial one. The rows' memory is overwritten, and one of its three vectors holds the result, in natural order
    /// and Montgomery form; its address is returned.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// The three vectors must each be allocated for n elements until the stream has passed this work.
    pub unsafe fn enqueue(&self, stream: &Stream, rows: Rows) -> Result<DevicePtr, CudaError> {
        // SAFETY: handed on.
        unsafe {
            self.enqueue_first(stream, rows)?;
            self.enqueue_rest(stream, rows)
        }
    }

    /// The part of [`enqueue`](Self::enqueue) that needs a alone, where there is one: b may still be on its way.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// As [`enqueue`](Self::enqueue).
    pub unsafe fn enqueue_first(&self, stream: &Stream, rows: Rows) -> Result<(), CudaError> {
        if rows.c_given || self.passes.is_empty() {
            return Ok(());
        }
        // c's values on the domain are read from a and b, so these stay as they are, and a's on the coset go where c would be.
        // SAFETY: our caller's promise.
        unsafe { self.values_on_coset(stream, rows.a, rows.len, rows.c) }
    }

    /// The rest of [`enqueue`](Self::enqueue).
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// As [`enqueue`](Self::enqueue), and [`enqueue_first`](Self::enqueue_first) must be before it in the stream.
    pub unsafe fn enqueue_rest(&self, stream: &Stream, rows: Rows) -> Result<DevicePtr, CudaError> {
        let Rows { a, b, c, c_given, len } = rows;
        if self.passes.is_empty() {
            // SAFETY: our caller's promise; the kernel reads and writes at most n < 8 elements of each vector.
            unsafe { self.enqueue_tiny(stream, rows)? };
            return Ok(c);
        }
        // Where a's values on the coset are, and where c goes.
        let (a_coset, c_source, c) = if c_given {
            (a, Source { at: c, times: DevicePtr::NULL, len }, c)
        } else {
            (c, Source { at: a, times: b, len }, a)
        };
        // SAFETY: our caller's promise covers the three vectors, the only ones that are handed on; passes stay inside n elements.
        unsafe {
            self.down(stream, c_source, c)?;
            if self.basis == HBasis::Monomial {
                self.bottom(stream, c, self.plain)?;
            }
            if c_given {
                self.values_on_coset(stream, a, len, a)?;
            }
            self.values_on_coset(stream, b, len, b)?;
            match self.basis {
                HBasis::OddLagrange => {
                    self.middle(stream, c, self.to_coset)?;
                    self.up(stream, c, Some((a_coset, b)))?;
                    Ok(c)
                }
                HBasis::Monomial => {
                    let product = Source { at: a_coset, times: b, len: 1 << self.log_n };
                    self.down(stream, product, a_coset)?;
                    self.bottom(stream, a_coset, self.from_coset)?;
                    let args = [a_coset.into(), c.into(), b.into(), self.log_n.into()];
                    let grid = [(1u32 << self.log_n).div_ceil(256), 1, 1];
                    self.kernels.unshuffle.launch(stream, grid, [256, 1, 1], 0, &args)?;
                    Ok(b)
                }
            }
        }
    }

    /// From values on the domain, the first `len` of which are given, to values on the coset.
    ///
    /// # Safety
    /// As [`enqueue`](Self::enqueue).
    unsafe fn values_on_coset(
        &self,
        stream: &Stream,
        from: DevicePtr,
        len: u32,
        to: DevicePtr,
    ) -> Result<(), CudaError> {
        // SAFETY: our caller's promise.
        unsafe {
            self.down(stream, Source { at: from, times: DevicePtr::NULL, len }, to)?;
            self.middle(stream, to, self.to_coset)?;
            self.up(stream, to, None)
        }
    }

    /// One transform by itself, for tests and benchmarks: inverse, natural to bit-reversed order, unscaled.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// `vector` must be allocated for n elements until the stream has passed this work.
    pub unsafe fn inverse_transform(&self, stream: &Stream, vector: DevicePtr) -> Result<(), CudaError> {
        let source = Source { at: vector, times: DevicePtr::NULL, len: 1 << self.log_n };
        // SAFETY: our caller's promise.
        unsafe {
            self.down(stream, source, vector)?;
            self.bottom(stream, vector, Scale { high: DevicePtr::NULL, low: DevicePtr::NULL })
        }
    }

    /// One transform by itself, for tests and benchmarks: forward, bit-reversed to natural order.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// `vector` must be allocated for n elements until the stream has passed this work.
    pub unsafe fn forward_transform(&self, stream: &Stream, vector: DevicePtr) -> Result<(), CudaError> {
        let none = Scale { high: DevicePtr::NULL, low: DevicePtr::NULL };
        let n = 1u32 << self.log_n;
        // SAFETY: our caller's promise.
        unsafe {
            self.rows_pass(
                stream,
                Source { at: vector, times: DevicePtr::NULL, len: n },
                vector,
                (false, true, Digits { read: false, written: self.several_passes() }),
                none,
                None,
            )?;
            self.up(stream, vector, None)
        }
    }

    /// The column passes of an inverse transform. With a single pass there are none, and the rows read the source themselves: then
    /// it is copied, or multiplied, to its place.
    ///
    /// # Safety
    /// As [`enqueue`](Self::enqueue).
    unsafe fn down(&self, stream: &Stream, source: Source, to: DevicePtr) -> Result<(), CudaError> {
        let mut source = source;
        let mut log_s = self.log_n;
        for (i, &log_r) in self.passes[..self.passes.len() - 1].iter().enumerate() {
            log_s -= log_r;
            let mut args: Vec<Arg> = vec![source.at.into(), source.times.into(), source.len.into(), to.into()];
            args.extend(self.table_args(self.inverse));
            args.extend([Arg::from(log_r), log_s.into()]);
            args.extend(self.digits_arg(Digits { read: i > 0, written: true }));
            // SAFETY: our caller's promise; the arguments are those of `ntt_columns_dif`.
            unsafe { self.kernels.columns_dif.launch(stream, self.grid(log_r), [THREADS, 1, 1], SHARED, &args)? };
            source = Source { at: to, times: DevicePtr::NULL, len: 1 << self.log_n };
        }
        if self.passes.len() == 1
            && !(source.at == to && source.times == DevicePtr::NULL && u64::from(source.len) >> self.log_n == 1)
        {
            // A one-pass transform has no pass to fold this into, except the rows' own, which runs later and elsewhere.
            // SAFETY: our caller's promise. Neither DIF nor DIT: `ntt_rows` then only reads, pads, multiplies and writes.
            unsafe {
                let none = Scale { high: DevicePtr::NULL, low: DevicePtr::NULL };
                self.rows_pass(stream, source, to, (false, false, Digits::default()), none, None)?;
            }
        }
        Ok(())
    }

    /// The rows of an inverse transform, a factor per coefficient, and the rows of a forward transform.
    ///
    /// # Safety
    /// As [`enqueue`](Self::enqueue).
    unsafe fn middle(&self, stream: &Stream, vector: DevicePtr, scale: Scale) -> Result<(), CudaError> {
        let source = Source { at: vector, times: DevicePtr::NULL, len: 1 << self.log_n };
        let digits = Digits { read: self.several_passes(), written: self.several_passes() };
        // SAFETY: our caller's promise.
        unsafe { self.rows_pass(stream, source, vector, (true, true, digits), scale, None) }
    }

    /// The rows of an inverse transform and a factor per coefficient.
    ///
    /// # Safety
    /// As [`enqueue`](Self::enqueue).
    unsafe fn bottom(&self, stream: &Stream, vector: DevicePtr, scale: Scale) -> Result<(), CudaError> {
        let source = Source { at: vector, times: DevicePtr::NULL, len: 1 << self.log_n };
        let digits = Digits { read: self.several_passes(), written: false };
        // SAFETY: our caller's promise.
        unsafe { self.rows_pass(stream, source, vector, (true, false, digits), scale, None) }
    }

    /// The column passes of a forward transform; `product` makes the last of them write p∘q minus its result.
    ///
    /// # Safety
    /// As [`enqueue`](Self::enqueue).
    unsafe fn up(
        &self,
        stream: &Stream,
        vector: DevicePtr,
        product: Option<(DevicePtr, DevicePtr)>,
    ) -> Result<(), CudaError> {
        let columns = &self.passes[..self.passes.len() - 1];
        let n = 1u32 << self.log_n;
        if columns.is_empty() {
            if product.is_some() {
                let none = Scale { high: DevicePtr::NULL, low: DevicePtr::NULL };
                let source = Source { at: vector, times: DevicePtr::NULL, len: n };
                // SAFETY: our caller's promise. As in `down`: only the epilogue happens.
                unsafe { self.rows_pass(stream, source, vector, (false, false, Digits::default()), none, product)? };
            }
            return Ok(());
        }
        let mut log_s = *self.passes.last().unwrap_or(&0);
        for (i, &log_r) in columns.iter().enumerate().rev() {
            let (p, q) = product.filter(|_| i == 0).unwrap_or((DevicePtr::NULL, DevicePtr::NULL));
            let mut args: Vec<Arg> = vec![vector.into(), vector.into(), p.into(), q.into()];
            args.extend(self.table_args(self.forward));
            args.extend([Arg::from(log_r), log_s.into()]);
            args.extend(self.digits_arg(Digits { read: true, written: i > 0 }));
            // SAFETY: our caller's promise; the arguments are those of `ntt_columns_dit`.
            unsafe { self.kernels.columns_dit.launch(stream, self.grid(log_r), [THREADS, 1, 1], SHARED, &args)? };
            log_s += log_r;
        }
        Ok(())
    }

    /// One launch over all rows: of an inverse transform, of a forward one, both or neither.
    ///
    /// # Safety
    /// As [`enqueue`](Self::enqueue).
    unsafe fn rows_pass(
        &self,
        stream: &Stream,
        source: Source,
        to: DevicePtr,
        (dif, dit, digits): (bool, bool, Digits),
        scale: Scale,
        product: Option<(DevicePtr, DevicePtr)>,
    ) -> Result<(), CudaError> {
        let log_r = *self.passes.last().unwrap_or(&3);
        let (p, q) = product.unwrap_or((DevicePtr::NULL, DevicePtr::NULL));
        let mut args: Vec<Arg> = vec![
            source.at.into(),
            source.times.into(),
            source.len.into(),
            to.into(),
            p.into(),
            q.into(),
            self.inverse.small.into(),
            self.forward.small.into(),
            self.log_n.into(),
            Layout::new(self.log_n).log_small.into(),
            log_r.into(),
            u32::from(dif).into(),
            u32::from(dit).into(),
            scale.high.into(),
            scale.low.into(),
            LOG_SCALE_LOW.into(),
        ];
        args.extend(self.digits_arg(digits));
        // SAFETY: our caller's promise; the arguments are those of `ntt_rows`.
        unsafe { self.kernels.rows.launch(stream, self.grid(log_r), [THREADS, 1, 1], SHARED, &args) }
    }

    /// The whole quotient of a domain below 2^3 rows.
    ///
    /// # Safety
    /// As [`enqueue`](Self::enqueue).
    unsafe fn enqueue_tiny(&self, stream: &Stream, rows: Rows) -> Result<(), CudaError> {
        let t = &self.tiny;
        let c_in = if rows.c_given { rows.c } else { DevicePtr::NULL };
        let args = [
            rows.a.into(),
            rows.b.into(),
            c_in.into(),
            rows.len.into(),
            rows.c.into(),
            self.log_n.into(),
            u32::from(self.basis == HBasis::Monomial).into(),
            words(t.root),
            words(t.root_inverse),
            words(t.shift),
            words(t.shift_inverse),
            words(t.n_inverse),
            words(t.z_inverse),
        ];
        // SAFETY: our caller's promise; the arguments are those of `ntt_tiny`.
        unsafe { self.kernels.tiny.launch(stream, [1, 1, 1], [1, 1, 1], 0, &args) }
    }

    /// Whether a vector is left between passes; with Eisenstein integers it is pairs of digits there.
    fn several_passes(&self) -> bool {
        self.passes.len() > 1
    }

    /// The argument that only the kernels for Eisenstein integers have.
    fn digits_arg(&self, digits: Digits) -> Option<Arg> {
        let inverse = u32::from(!self.quarter_negative) << 2;
        let forward = u32::from(self.quarter_negative) << 3;
        let bits = u32::from(digits.read) | u32::from(digits.written) << 1 | inverse | forward;
        self.kernels.entries.is_some().then(|| bits.into())
    }

    fn grid(&self, log_r: u32) -> [u32; 3] {
        let columns = 1u32 << (self.log_n - log_r);
        [columns.div_ceil(1 << (LOG_BLOCK - log_r)), 1, 1]
    }

    fn table_args(&self, tables: Tables) -> [Arg; 8] {
        let layout = Layout::new(self.log_n);
        [
            tables.small.into(),
            tables.big.into(),
            tables.low.into(),
            tables.full.into(),
            u32::from(tables.inverted).into(),
            self.log_n.into(),
            layout.log_small.into(),
            layout.log_big.into(),
        ]
    }
}

/// Where a transform's first pass reads: `at`, times `times` unless that is null, zero from `len` on.
#[derive(Clone, Copy, Debug)]
struct Source {
    at: DevicePtr,
    times: DevicePtr,
    len: u32,
}

/// Whether a pass reads and writes pairs of digits where the arithmetic has such, in place of whole residues.
#[derive(Clone, Copy, Debug, Default)]
struct Digits {
    read: bool,
    written: bool,
}

/// Sizes of the tables, in elements.
struct Layout {
    log_small: u32,
    log_big: u32,
    small: u64,
    big: u64,
    low: u64,
    full: u64,
    scale_high: u64,
    scale_low: u64,
}

impl Layout {
    fn new(log_n: u32) -> Self {
        let (log_small, log_big) = (log_n.min(PASS), log_n.min(LOG_BIG));
        Self {
            log_small,
            log_big,
            small: 1 << log_small,
            big: 1 << log_big,
            low: 1 << (log_n - log_big),
            full: if log_n > log_big { 1 << (log_n - 1) } else { 0 },
            scale_high: 1 << log_n.saturating_sub(LOG_SCALE_LOW),
            scale_low: 1 << LOG_SCALE_LOW,
        }
    }
}

/// A scalar as a kernel argument: Montgomery limbs.
fn words(scalar: Scalar) -> Arg {
    let limbs = blst::blst_fr::from(scalar).l;
    let mut out = [0u32; 8];
    for (pair, limb) in out.chunks_exact_mut(2).zip(limbs) {
        pair[0] = limb as u32;
        pair[1] = (limb >> 32) as u32;
    }
    Arg::Words8(out)
}

#[cfg(test)]
mod tests;
