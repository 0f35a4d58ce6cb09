//! `start` and `finish` of whole proofs: everything but blinding, assembly and verification, which are core's. The four sums are
//! checked in the same run.
//!
//! Keys are made of points with known discrete logarithms, so they belong to no circuit, but cost what a real key costs: 2^k
//! rows with some two entries in each matrix, 2^k variables, a quarter of them dense in B. Sizes as in `primitives`.

mod inputs;

use std::sync::Arc;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ff::Field;
use group::{Curve, Group};
use inputs::{Shape, expected, points, rng, scalars, sizes};
use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;
use splitprover_backend_cpu::{Arithmetic, CpuBackend, CpuOptions, kernels};
use splitprover_core::{
    Bitmap, CsrMatrix, Domain, HBasis, HostMemory, Inputs, Matrices, MemoryClass, PointRecord, Prover, ProvingKey,
    ProvingKeyParts, Query, QuerySums, RootOfUnity, VerifyingKey,
};

/// A query over some of the variables, and what multiplies their values: (first exponent, step).
struct Known<C> {
    query: Query<C>,
    start: Scalar,
    step: Scalar,
}

impl<C: PointRecord + Default> Known<C>
where
    C::Curve: Curve<AffineRepr = C> + Group<Scalar = Scalar>,
{
    fn new(rng: &mut ChaCha8Rng, density: Bitmap) -> Self {
        let (all, start, step) = points::<C::Curve>(rng, density.count_ones());
        let query = Query::compact(all.table().clone(), Arc::new(density)).expect("a point for each bit");
        Self { query, start, step }
    }

    fn sum(&self, values: &[Scalar]) -> C::Curve {
        let dense: Vec<_> = self.query.dense().map(|(variable, _)| values[variable]).collect();
        expected(self.start, self.step, &dense)
    }
}

fn matrix(rng: &mut ChaCha8Rng, n: usize) -> CsrMatrix {
    let entries: Vec<_> = (0..2 * n as u32)
        .map(|i| {
            let coefficient = if rng.next_u32().is_multiple_of(4) { -Scalar::ONE } else { Scalar::ONE };
            (i / 2, rng.next_u32() % n as u32, coefficient)
        })
        .collect();
    CsrMatrix::from_entries(n, n, || entries.iter().copied()).expect("entries in range")
}

fn affine<C: PointRecord>(rng: &mut ChaCha8Rng) -> C
where
    C::Curve: Curve<AffineRepr = C> + Group<Scalar = Scalar>,
{
    (C::generator() * Scalar::random(rng)).to_affine()
}

fn whole_proof(c: &mut Criterion) {
    let mut rng = rng();
    let memory = HostMemory::default();
    for log2 in sizes() {
        let n = 1usize << log2;
        let domain = Domain::new(log2, RootOfUnity::snarkjs()).expect("a domain");
        let full = |n| Bitmap::from_fn(n, |_| true);
        let a = Known::<G1Affine>::new(&mut rng, full(n));
        let b_g1 = Known::<G1Affine>::new(&mut rng, Bitmap::from_fn(n, |i| i % 4 == 0));
        let b_g2 = Known::<G2Affine>::new(&mut rng, Bitmap::from_fn(n, |i| i % 4 == 0));
        let l = Known::<G1Affine>::new(&mut rng, full(n - 1));
        let h = Known::<G1Affine>::new(&mut rng, full(n));
        let matrices = Matrices { a: matrix(&mut rng, n), b: matrix(&mut rng, n) };
        let verifying_key = VerifyingKey::new(
            affine(&mut rng),
            affine(&mut rng),
            affine(&mut rng),
            affine(&mut rng),
            vec![affine(&mut rng)],
        )
        .expect("good points");
        let key = ProvingKey::new(ProvingKeyParts {
            domain,
            h_basis: HBasis::OddLagrange,
            verifying_key,
            beta_g1: affine(&mut rng),
            delta_g1: affine(&mut rng),
            a: a.query.clone(),
            b_g1: b_g1.query.clone(),
            b_g2: b_g2.query.clone(),
            l: l.query.clone(),
            h: Query::full(h.query.table().clone()),
            matrices: Some(Arc::new(matrices.clone())),
        })
        .expect("a consistent key");
        let key = Arc::new(key);
        let mut group = c.benchmark_group("whole proof");
        group.sample_size(10).throughput(Throughput::Elements(n as u64));
        for shape in [Shape::Dense, Shape::Porep] {
            let mut witness = scalars(&mut rng, shape, n);
            witness[0] = Scalar::ONE;
            let rows = [&matrices.a, &matrices.b].map(|m| kernels::matrix_product(m, &witness));
            let products = rows[0].iter().zip(&rows[1]).map(|(a, b)| a * b).collect();
            let [rows_a, rows_b] = rows;
            let quotient =
                kernels::quotient(Arithmetic::Portable, domain, HBasis::OddLagrange, [rows_a, rows_b, products]);
            let hl: G1Projective = h.sum(&quotient) + l.sum(&witness[1..]);
            let (a, b_g1): (G1Projective, G1Projective) = (a.sum(&witness), b_g1.sum(&witness));
            let b_g2: G2Projective = b_g2.sum(&witness);
            let expected =
                QuerySums { a: a.to_affine(), b_g1: b_g1.to_affine(), b_g2: b_g2.to_affine(), hl: hl.to_affine() };
            for arithmetic in Arithmetic::supported() {
                let options = CpuOptions { arithmetic: Some(arithmetic), ..CpuOptions::default() };
                let prover = Prover::new(CpuBackend::new(options).expect("supported"));
                let loaded = prover.load_key(key.clone()).expect("a key that fits");
                let inputs = || Inputs::new(memory.copy_of(MemoryClass::Witness, &witness).expect("memory"));
                let prove = |inputs| prover.start(&loaded, inputs).expect("starts").finish_sums().expect("finishes");
                assert_eq!(prove(inputs()), expected);
                group.bench_function(BenchmarkId::new(format!("{shape:?} {arithmetic:?}"), n), |bench| {
                    bench.iter_batched(inputs, prove, BatchSize::PerIteration);
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, whole_proof);
criterion_main!(benches);
