//! A backend to copy. It computes on the calling thread with the simplest algorithms that are right for every key: replace
//! `multiexp` and `transform` by your device's, and keep the order of things in `Template::start`.

use std::sync::Arc;

use ff::{Field, PrimeField};
use group::{Group, prime::PrimeCurveAffine};
use splitprover_core::abi::{BackendPlugin, DeviceInfo, Host, LogLevel, Options};
use splitprover_core::{
    BackendError, CircuitShape, CsrMatrix, G1Projective, G2Projective, HBasis, HostMemory, Lent, LentInputs,
    MemoryClass, PendingSums, PointRecord, ProvingKey, Query, QuerySums, Scalar, SplitProver,
};

/// The plug-in: names, devices, and how to open one.
pub struct Plugin;

impl BackendPlugin for Plugin {
    const NAME: &'static str = "template";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Prover = Template;

    fn devices(_host: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        // Probe for the vendor's library here, and fail with an error that names it.
        Ok(vec![DeviceInfo::new("the calling thread", "cpu")])
    }

    fn open(device: usize, options: &Options, host: Host) -> Result<Template, BackendError> {
        options.only(&[])?;
        if device != 0 {
            return Err(BackendError::device("open", format!("there is no device {device}")));
        }
        host.log(LogLevel::Debug, "template", "opened");
        Ok(Template::new(host.memory().clone()))
    }
}

/// An open device. Yours may keep the whole [`Host`] as well, for its log.
pub struct Template {
    /// Host memory on the host's account: it is counted, and may be refused.
    memory: HostMemory,
}

/// A proof in flight. Everything was done in `start`, so this holds the sums; yours holds a stream or an event.
pub struct Pending(QuerySums);

impl PendingSums for Pending {
    fn finish(self) -> Result<QuerySums, BackendError> {
        Ok(self.0)
    }
}

impl SplitProver for Template {
    /// Yours holds the bases in device memory. Sharing the host's key is free: it isn't copied.
    type Key = Arc<ProvingKey>;
    type Pending = Pending;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<Self::Key, BackendError> {
        Ok(key.clone())
    }

    fn start<'i>(&self, key: &Self::Key, inputs: LentInputs<'i>) -> Result<Pending, BackendError> {
        let LentInputs { witness, evaluations, .. } = inputs;
        let n = key.domain().size();
        // First whatever may fail: until something is released, the caller gets its inputs back.
        let zeros = || self.memory.zeroed::<Scalar>(MemoryClass::Backend, n);
        let (mut a, mut b, mut c) = (zeros()?, zeros()?, zeros()?);
        let given_c = match (evaluations, key.matrices()) {
            (Some(given), _) => {
                upload(given.a, &mut a);
                upload(given.b, &mut b);
                given.c
            }
            (None, Some(matrices)) => {
                evaluate(&matrices.a, &witness, &mut a);
                evaluate(&matrices.b, &witness, &mut b);
                None
            }
            (None, None) => return Err(BackendError::Unsupported("a key without matrices needs evaluations".into())),
        };
        match given_c {
            Some(given) => upload(given, &mut c),
            None => c.iter_mut().zip(a.iter().zip(b.iter())).for_each(|(c, (a, b))| *c = *a * b),
        }
        let h = quotient(key, &mut a, &mut b, &mut c);
        let sums = QuerySums {
            a: multiexp(key.a(), &witness, G1Projective::multi_exp).into(),
            b_g1: multiexp(key.b_g1(), &witness, G1Projective::multi_exp).into(),
            b_g2: multiexp(key.b_g2(), &witness, G2Projective::multi_exp).into(),
            hl: (multiexp(key.h(), h, G1Projective::multi_exp)
                + multiexp(key.l(), &witness[key.shape().num_public + 1..], G1Projective::multi_exp))
            .into(),
        };
        witness.release();
        Ok(Pending(sums))
    }

    fn retained_host_bytes(&self, _shape: &CircuitShape) -> u64 {
        0 // nothing that grows with the circuit
    }
}

impl Template {
    /// Opens the device.
    pub fn new(memory: HostMemory) -> Self {
        Self { memory }
    }
}

/// Reads a vector, the rest being zero, and frees it: released as soon as it has been read.
fn upload(vector: Lent<'_>, to: &mut [Scalar]) {
    to[..vector.len()].copy_from_slice(&vector);
    vector.release();
}

/// Rows of a matrix times the witness.
fn evaluate(matrix: &CsrMatrix, witness: &[Scalar], out: &mut [Scalar]) {
    for (row, value) in out.iter_mut().enumerate().take(matrix.num_rows()) {
        *value = matrix.row(row).map(|(column, coefficient)| coefficient * witness[column]).sum();
    }
}

/// The scalars of the H query, from the rows of a, b and c on the domain. Left in `a`.
fn quotient<'a>(key: &ProvingKey, a: &'a mut [Scalar], b: &mut [Scalar], c: &mut [Scalar]) -> &'a [Scalar] {
    let domain = key.domain();
    let omega = domain.omega();
    let inverse = omega.invert().expect("a root of unity");
    let shift = match key.h_basis() {
        HBasis::OddLagrange => domain.odd_coset_shift(), // the format's, not free
        HBasis::Monomial => Scalar::MULTIPLICATIVE_GENERATOR,
    };
    for values in [&mut *a, &mut *b, &mut *c] {
        transform(values, inverse);
        scale(values, domain.size_inverse(), shift);
        transform(values, omega);
    }
    a.iter_mut().zip(b.iter().zip(c.iter())).for_each(|(a, (b, c))| *a = *a * b - c);
    match key.h_basis() {
        HBasis::OddLagrange => a, // the bases contain the division by Z
        HBasis::Monomial => {
            let z = shift.pow_vartime([a.len() as u64]) - Scalar::ONE;
            transform(a, inverse);
            scale(a, domain.size_inverse() * z.invert().expect("off the domain"), shift.invert().expect("not zero"));
            &a[..a.len() - 1]
        }
    }
}

/// values[i] · factor · ratioⁱ.
fn scale(values: &mut [Scalar], mut factor: Scalar, ratio: Scalar) {
    for value in values {
        *value *= factor;
        factor *= ratio;
    }
}

/// values[k] = Σ values[i]·omega^(i·k): decimation in time, radix 2.
fn transform(values: &mut [Scalar], omega: Scalar) {
    let n = values.len();
    let bits = n.trailing_zeros();
    for i in 1..n {
        let j = i.reverse_bits() >> (usize::BITS - bits);
        if i < j {
            values.swap(i, j);
        }
    }
    for level in 0..bits {
        let half = 1 << level;
        let root = omega.pow_vartime([(n >> (level + 1)) as u64]);
        for block in values.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            let mut twiddle = Scalar::ONE;
            for (x, y) in low.iter_mut().zip(high) {
                (*x, *y) = (*x + *y * twiddle, *x - *y * twiddle);
                twiddle *= root;
            }
        }
    }
}

/// Σ scalars[i]·Pᵢ over the dense variables i of a query; in pieces, so that what isn't on the account doesn't grow.
fn multiexp<C, P>(query: &Query<C>, scalars: &[Scalar], multi_exp: fn(&[P], &[Scalar]) -> P) -> P
where
    C: PointRecord + PrimeCurveAffine<Curve = P>,
    P: Group + From<C>,
{
    let mut dense = query.dense().map(|(variable, record)| (P::from(query.table().get(record)), scalars[variable]));
    let mut sum = P::identity();
    loop {
        let (points, scalars): (Vec<P>, Vec<Scalar>) = dense.by_ref().take(1 << 13).unzip();
        if points.is_empty() {
            return sum;
        }
        sum += multi_exp(&points, &scalars);
    }
}
