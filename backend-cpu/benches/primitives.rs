//! Transforms, multi-exponentiations and the sparse product. Every timed result is checked in the same run.
//!
//! Sizes are powers of two up to 2^14; `SPLITPROVER_BENCH_LOG2=18` sets the largest. Inputs are random and fresh in every run.

mod inputs;

use std::hint::black_box;

use blstrs::{G1Projective, G2Projective, Scalar};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ff::Field;
use inputs::{Shape, expected, points, rng, scalars, sizes};
use rand_core::RngCore;
use splitprover_backend_cpu::{Arithmetic, kernels};
use splitprover_core::{CsrMatrix, Domain, HBasis, RootOfUnity};

/// The arithmetics to compare, or the one that `SPLITPROVER_BENCH_ARITHMETIC` names.
fn arithmetics() -> Vec<Arithmetic> {
    let wanted = std::env::var("SPLITPROVER_BENCH_ARITHMETIC").ok();
    Arithmetic::supported().filter(|a| wanted.as_ref().is_none_or(|w| format!("{a:?}") == *w)).collect()
}

fn multi_exponentiation(c: &mut Criterion) {
    let mut rng = rng();
    for log2 in sizes() {
        let n = 1usize << log2;
        let (query, start, step) = points::<G1Projective>(&mut rng, n);
        let mut group = c.benchmark_group("msm g1");
        group.sample_size(10).throughput(Throughput::Elements(n as u64));
        for shape in [Shape::Dense, Shape::Porep, Shape::Ones] {
            let scalars = scalars(&mut rng, shape, n);
            let expected: G1Projective = expected(start, step, &scalars);
            for arithmetic in arithmetics() {
                let run = || kernels::multi_exponentiation_g1(arithmetic, &query, black_box(&scalars));
                assert_eq!(run(), expected);
                group.bench_function(BenchmarkId::new(format!("{shape:?} {arithmetic:?}"), n), |b| b.iter(run));
            }
        }
        // blst's own Pippenger.
        let dense = scalars(&mut rng, Shape::Dense, n);
        let bases: Vec<G1Projective> = (0..n).map(|i| query.table().get(i).into()).collect();
        let run = || G1Projective::multi_exp(&bases, black_box(&dense));
        assert_eq!(run(), self::expected(start, step, &dense));
        group.bench_function(BenchmarkId::new("Dense blst", n), |b| b.iter(run));
        group.finish();

        let (query, start, step) = points::<G2Projective>(&mut rng, n);
        let mut group = c.benchmark_group("msm g2");
        group.sample_size(10).throughput(Throughput::Elements(n as u64));
        for shape in [Shape::Dense, Shape::Porep, Shape::Ones] {
            let scalars = scalars(&mut rng, shape, n);
            let expected: G2Projective = self::expected(start, step, &scalars);
            for arithmetic in arithmetics() {
                let run = || kernels::multi_exponentiation_g2(arithmetic, &query, black_box(&scalars));
                assert_eq!(run(), expected);
                group.bench_function(BenchmarkId::new(format!("{shape:?} {arithmetic:?}"), n), |b| b.iter(run));
            }
        }
        let bases: Vec<G2Projective> = (0..n).map(|i| query.table().get(i).into()).collect();
        let run = || G2Projective::multi_exp(&bases, black_box(&dense));
        assert_eq!(run(), self::expected(start, step, &dense));
        group.bench_function(BenchmarkId::new("Dense blst", n), |b| b.iter(run));
        group.finish();
    }
}

fn evaluate(coefficients: &[Scalar], x: Scalar) -> Scalar {
    coefficients.iter().rev().fold(Scalar::ZERO, |sum, c| sum * x + c)
}

fn transforms(c: &mut Criterion) {
    let mut rng = rng();
    for log2 in sizes() {
        let n = 1usize << log2;
        let mut group = c.benchmark_group("ntt");
        group.sample_size(10).throughput(Throughput::Elements(n as u64));
        let Some(domain) = Domain::new(log2, RootOfUnity::snarkjs()) else { continue };
        let coefficients = scalars(&mut rng, Shape::Dense, n);
        let i = rng.next_u64() % n as u64;
        let at_i = evaluate(&coefficients, domain.omega().pow_vartime([i]));
        let at_odd_i = evaluate(&coefficients, domain.odd_coset_shift() * domain.omega().pow_vartime([i]));
        for arithmetic in arithmetics() {
            let values = kernels::to_values(arithmetic, domain, &coefficients);
            assert_eq!(values[i as usize], at_i);
            let mut coset = values.clone();
            kernels::to_odd_coset(arithmetic, domain, &mut coset);
            assert_eq!(coset[i as usize], at_odd_i);
            group.bench_function(BenchmarkId::new(format!("to odd coset (two) {arithmetic:?}"), n), |b| {
                let mut work = values.clone();
                b.iter(|| kernels::to_odd_coset(arithmetic, domain, black_box(&mut work)));
            });
            let b = scalars(&mut rng, Shape::Dense, n);
            let c: Vec<_> = values.iter().zip(&b).map(|(a, b)| a * b).collect();
            // Not satisfied in one row: the quotient on the coset isn't zero, whatever the transforms do.
            let inputs = [values, b, c];
            group.bench_function(BenchmarkId::new(format!("quotient (six) {arithmetic:?}"), n), |bench| {
                bench.iter_batched(
                    || inputs.clone(),
                    |inputs| kernels::quotient(arithmetic, domain, HBasis::OddLagrange, inputs),
                    BatchSize::PerIteration,
                );
            });
        }
        group.finish();
    }
}

fn matrix(c: &mut Criterion) {
    let mut rng = rng();
    for log2 in sizes() {
        let n = 1usize << log2;
        let entries: Vec<_> = (0..4 * n as u32)
            .map(|i| {
                let coefficient = match rng.next_u32() % 8 {
                    0..4 => Scalar::ONE,
                    4..6 => -Scalar::ONE,
                    k => Scalar::from(1u64 << (rng.next_u32() % 60) << (k & 1)),
                };
                (i / 4, rng.next_u32() % n as u32, coefficient)
            })
            .collect();
        let Ok(matrix) = CsrMatrix::from_entries(n, n, || entries.iter().copied()) else { continue };
        let mut group = c.benchmark_group("matrix product");
        group.sample_size(10).throughput(Throughput::Elements(entries.len() as u64));
        for shape in [Shape::Dense, Shape::Porep] {
            let witness = scalars(&mut rng, shape, n);
            let mut expected = vec![Scalar::ZERO; n];
            for &(row, column, coefficient) in &entries {
                expected[row as usize] += coefficient * witness[column as usize];
            }
            assert_eq!(kernels::matrix_product(&matrix, &witness), expected);
            group.bench_function(BenchmarkId::new(format!("{shape:?}"), n), |b| {
                b.iter(|| kernels::matrix_product(&matrix, black_box(&witness)));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, transforms, multi_exponentiation, matrix);
criterion_main!(benches);
