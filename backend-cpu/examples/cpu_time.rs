//! Processor time of the kernels, on one thread: figures that hold on a busy machine.
//!
//! `cargo run --release -p splitprover-backend-cpu --example cpu_time [LOG2] [FILTER]`

use std::time::Duration;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::Field;
use rand_core::{OsRng, RngCore};
use splitprover_backend_cpu::curve_check::CurveCheck;
use splitprover_backend_cpu::{Arithmetic, kernels};
use splitprover_core::{Domain, HBasis, PointRecord, Query, RootOfUnity};

mod shared;

use shared::query;

/// Processor time of this thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn measure<T>(name: &str, elements: usize, mut run: impl FnMut() -> T) -> T {
    let mut best = Duration::MAX;
    let mut result = None;
    for _ in 0..3 {
        let start = processor_time();
        result = Some(run());
        best = best.min(processor_time() - start);
    }
    println!("{name:40} {:9.3} ms {:9.1} ns each", best.as_secs_f64() * 1e3, best.as_nanos() as f64 / elements as f64);
    result.expect("three runs")
}

/// The records of a query, with the alignment of a `.zkey`.
fn records<C: PointRecord>(query: &Query<C>) -> Vec<u8> {
    query.table().as_bytes().to_vec()
}

fn main() {
    let log2 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(16);
    let filter = std::env::args().nth(2).unwrap_or_default();
    let n = 1usize << log2;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    pool.install(|| {
        let dense: Vec<_> = (0..n).map(|_| Scalar::random(OsRng)).collect();
        let ones = vec![Scalar::ONE; n];
        let porep: Vec<_> = (0..n)
            .map(|i| if i % 64 == 0 { dense[i] } else { Scalar::from(u64::from(OsRng.next_u32() & 1)) })
            .collect();
        let domain = Domain::new(log2, RootOfUnity::snarkjs()).expect("a domain");
        let wanted = |name: &str| name.contains(&filter);
        for arithmetic in Arithmetic::supported() {
            let name = format!("ntt {arithmetic:?}");
            if wanted(&name) {
                let mut work = dense.clone();
                measure(&name, 2 * n, || kernels::to_odd_coset(arithmetic, domain, &mut work));
                measure(&format!("{name} quotient"), n, || {
                    kernels::quotient(
                        arithmetic,
                        domain,
                        HBasis::OddLagrange,
                        [dense.clone(), porep.clone(), dense.clone()],
                    )
                });
            }
        }
        let g1 = query::<G1Projective>(n);
        let g2 = query::<G2Projective>(n);
        for arithmetic in Arithmetic::supported() {
            let name = format!("check g1 {arithmetic:?}");
            if wanted(&name) {
                let records = records(&g1);
                measure(&name, n, || G1Affine::check_records(arithmetic, &records)).expect("points");
            }
            let name = format!("check g2 {arithmetic:?}");
            if wanted(&name) {
                let records = records(&g2);
                measure(&name, n, || G2Affine::check_records(arithmetic, &records)).expect("points");
            }
        }
        for (shape, scalars) in [("dense", &dense), ("porep", &porep), ("ones", &ones)] {
            for arithmetic in Arithmetic::supported() {
                let name = format!("g1 {shape} {arithmetic:?}");
                if wanted(&name) {
                    measure(&name, n, || kernels::multi_exponentiation_g1(arithmetic, &g1, scalars));
                }
                let name = format!("g2 {shape} {arithmetic:?}");
                if wanted(&name) {
                    measure(&name, n, || kernels::multi_exponentiation_g2(arithmetic, &g2, scalars));
                }
            }
        }
    });
}
