//! Transforms and quotients on the card.

use ff::Field;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use splitprover_backend_cuda::driver::{Context, DeviceBuf, DevicePtr, Event, Module, Priority, Stream};
use splitprover_backend_cuda::kernels::{Cache, Kernels};
use splitprover_backend_cuda::ntt::{Arithmetic, NttKernels, Quotient, Rows, SCALAR};
use splitprover_core::{Domain, HBasis, RootOfUnity, Scalar};

use crate::{Outcome, summary};

fn reverse(i: usize, bits: u32) -> usize {
    if bits == 0 { 0 } else { i.reverse_bits() >> (usize::BITS - bits) }
}

fn download(stream: &Stream, from: DevicePtr, n: usize) -> Result<Vec<Scalar>, Box<dyn std::error::Error>> {
    let mut out = vec![Scalar::ZERO; n];
    // SAFETY: the vector is long enough, and the stream is synchronised before it's used.
    unsafe { stream.download(out.as_mut_ptr().cast(), from, n as u64 * SCALAR)? };
    stream.synchronise()?;
    Ok(out)
}

/// The kernels of the arithmetic that `NTT_ARITHMETIC` names, from the CUBIN that `NTT_CUBIN` names where it does, to compare variants.
fn load(context: &Context) -> Result<NttKernels, Box<dyn std::error::Error>> {
    let kernels = Kernels::new(context, Cache::from_environment());
    let arithmetic = match std::env::var("NTT_ARITHMETIC").as_deref() {
        Ok("montgomery") => Arithmetic::Montgomery,
        Ok("eisenstein") | Err(std::env::VarError::NotPresent) => Arithmetic::Eisenstein,
        other => return Err(format!("NTT_ARITHMETIC: {other:?} is no arithmetic").into()),
    };
    match std::env::var_os("NTT_CUBIN") {
        Some(path) if arithmetic == Arithmetic::Montgomery => {
            Ok(NttKernels::from_module(&Module::load(context, &std::fs::read(path)?)?)?)
        }
        Some(path) => {
            let mut found = NttKernels::load(&kernels, Arithmetic::Montgomery)?;
            found.use_eisenstein(&Module::load(context, &std::fs::read(path)?)?)?;
            Ok(found)
        }
        None => Ok(NttKernels::load(&kernels, arithmetic)?),
    }
}

/// One inverse and one forward transform, for a profiler; then the times of each. Parts of the first results are checked.
pub(crate) fn once(log_n: u32) -> Outcome {
    let context = Context::open(0)?;
    let stream = Stream::new(&context, Priority::Normal)?;
    let kernels = load(&context)?;
    let domain = Domain::new(log_n, RootOfUnity::bellman()).ok_or("domain")?;
    let full = std::env::var_os("NTT_FULL").is_some();
    let quotient = Quotient::new(&context, &kernels, &stream, domain, HBasis::OddLagrange, full)?;
    let vector = DeviceBuf::alloc(&context, domain.size() as u64 * SCALAR)?;
    let (begin, end) = (Event::new(&context, true)?, Event::new(&context, true)?);
    check_in_parts(&stream, &quotient, domain, vector.ptr())?;
    // SAFETY: the vector holds n elements.
    unsafe { quotient.fill_powers(&stream, vector.ptr(), Scalar::from(3), Scalar::from(5))? };
    let (mut down, mut up) = (Vec::new(), Vec::new());
    let runs = if std::env::var_os("NTT_PROFILE").is_some() { 1 } else { 10 };
    for _ in 0..runs {
        for (forward, times) in [(false, &mut down), (true, &mut up)] {
            stream.record(&begin)?;
            // SAFETY: as above.
            unsafe {
                if forward {
                    quotient.forward_transform(&stream, vector.ptr())?;
                } else {
                    quotient.inverse_transform(&stream, vector.ptr())?;
                }
            }
            stream.record(&end)?;
            stream.synchronise()?;
            times.push(end.milliseconds_since(&begin)?);
        }
    }
    println!("2^{log_n} inverse {}, forward {}", summary(down), summary(up));
    Ok(())
}

/// Transforms powers, whose transform is a geometric series, and back; checks eight stretches of each result.
fn check_in_parts(stream: &Stream, quotient: &Quotient, domain: Domain, vector: DevicePtr) -> Outcome {
    let (n, log_n) = (domain.size(), domain.log2());
    let mut rng = ChaCha20Rng::from_entropy();
    let (first, base) = (Scalar::random(&mut rng), Scalar::random(&mut rng));
    let length = n.min(4096);
    let stretches: Vec<usize> = (0..8).map(|i| (n - length) / 7 * i).collect();
    // SAFETY: the vector holds n elements.
    unsafe {
        quotient.fill_powers(stream, vector, first, base)?;
        quotient.inverse_transform(stream, vector)?;
    }
    let inverse = domain.omega().invert().unwrap();
    let numerator = first * (base.pow_vartime([n as u64]) - Scalar::ONE);
    for &from in &stretches {
        for (i, got) in download(stream, vector.add(from as u64 * SCALAR), length)?.into_iter().enumerate() {
            let k = reverse(from + i, log_n);
            if got * (base * inverse.pow_vartime([k as u64]) - Scalar::ONE) != numerator {
                return Err(format!("inverse transform of 2^{log_n}: frequency {k} is wrong").into());
            }
        }
    }
    // SAFETY: as above.
    unsafe { quotient.forward_transform(stream, vector)? };
    for &from in &stretches {
        let mut power = first * Scalar::from(n as u64) * base.pow_vartime([from as u64]);
        for (i, got) in download(stream, vector.add(from as u64 * SCALAR), length)?.into_iter().enumerate() {
            if got != power {
                return Err(format!("forward transform of 2^{log_n}: element {} is wrong", from + i).into());
            }
            power *= base;
        }
    }
    Ok(())
}

pub(crate) fn run(max_log2: u32) -> Outcome {
    let context = Context::open(0)?;
    println!("card: {:?}", context.info());
    let stream = Stream::new(&context, Priority::Normal)?;
    let kernels = load(&context)?;
    let mut rng = ChaCha20Rng::from_entropy();
    let (begin, end) = (Event::new(&context, true)?, Event::new(&context, true)?);

    for log_n in (3..=max_log2).filter(|&l| l <= 16 || l % 2 == 0 || l == max_log2) {
        for (root, full) in [(RootOfUnity::snarkjs(), true), (RootOfUnity::bellman(), false)] {
            let domain = Domain::new(log_n, root).ok_or("domain")?;
            let n = domain.size();
            let quotient = Quotient::new(&context, &kernels, &stream, domain, HBasis::OddLagrange, full)?;
            let vector = DeviceBuf::alloc(&context, n as u64 * SCALAR)?;
            let (first, base) = (Scalar::random(&mut rng), Scalar::random(&mut rng));
            // SAFETY: the vector holds n elements.
            unsafe {
                quotient.fill_powers(&stream, vector.ptr(), first, base)?;
                quotient.inverse_transform(&stream, vector.ptr())?;
            }
            // Sum of first (base w^-k)^i, a geometric series.
            let inverse = domain.omega().invert().unwrap();
            let numerator = first * (base.pow_vartime([n as u64]) - Scalar::ONE);
            let got = download(&stream, vector.ptr(), n)?;
            let samples: Vec<usize> =
                if n <= 1 << 16 { (0..n).collect() } else { (0..5000).map(|_| rng.next_u64() as usize % n).collect() };
            for k in samples {
                let denominator = base * inverse.pow_vartime([k as u64]) - Scalar::ONE;
                if got[reverse(k, log_n)] * denominator != numerator {
                    return Err(format!("inverse transform of 2^{log_n}: frequency {k} is wrong").into());
                }
            }
            // SAFETY: as above.
            unsafe { quotient.forward_transform(&stream, vector.ptr())? };
            let got = download(&stream, vector.ptr(), n)?;
            let mut power = first * Scalar::from(n as u64);
            for (i, value) in got.iter().enumerate() {
                if *value != power {
                    return Err(format!("forward transform of 2^{log_n}: element {i} is wrong").into());
                }
                power *= base;
            }
            if log_n >= 16 {
                for (name, forward) in [("inverse", false), ("forward", true)] {
                    let mut times = Vec::new();
                    for _ in 0..12 {
                        stream.record(&begin)?;
                        // SAFETY: as above.
                        unsafe {
                            if forward {
                                quotient.forward_transform(&stream, vector.ptr())?;
                            } else {
                                quotient.inverse_transform(&stream, vector.ptr())?;
                            }
                        }
                        stream.record(&end)?;
                        stream.synchronise()?;
                        times.push(end.milliseconds_since(&begin)?);
                    }
                    println!("2^{log_n} {name}, full table: {full}: {}", summary(times.split_off(2)));
                }
            }
        }
    }

    for log_n in (0..=max_log2.min(27)).filter(|&l| l <= 14 || l % 2 == 0 || l == max_log2) {
        for (root, basis) in [(RootOfUnity::snarkjs(), HBasis::OddLagrange), (RootOfUnity::bellman(), HBasis::Monomial)]
        {
            quotient(&context, &stream, &kernels, Domain::new(log_n, root).ok_or("domain")?, basis, &mut rng)?;
        }
    }
    println!("ntt: all right");
    Ok(())
}

/// The quotient's scalars against their values at one random point: the rows are powers, so that a, b and c = a∘b interpolate to closed
/// forms, and the result is checked as a polynomial.
fn quotient(
    context: &Context,
    stream: &Stream,
    kernels: &NttKernels,
    domain: Domain,
    basis: HBasis,
    rng: &mut ChaCha20Rng,
) -> Outcome {
    let (n, log_n) = (domain.size(), domain.log2());
    let quotient = Quotient::new(context, kernels, stream, domain, basis, true)?;
    let buffers: Vec<_> = (0..3).map(|_| DeviceBuf::alloc(context, n as u64 * SCALAR)).collect::<Result<_, _>>()?;
    let [a, b, c] = [0, 1, 2].map(|i| buffers[i].ptr());
    let (begin, end) = (Event::new(context, true)?, Event::new(context, true)?);
    let rows = Rows { a, b, c, c_given: false, len: n as u32 };
    let mut times = Vec::new();
    let (fa, ba) = (Scalar::random(&mut *rng), Scalar::random(&mut *rng));
    let (fb, bb) = (Scalar::random(&mut *rng), Scalar::random(&mut *rng));
    let mut h = Vec::new();
    for run in 0..if log_n >= 20 { 6 } else { 1 } {
        // SAFETY: both vectors hold n elements.
        unsafe {
            quotient.fill_powers(stream, a, fa, ba)?;
            quotient.fill_powers(stream, b, fb, bb)?;
        }
        stream.record(&begin)?;
        // SAFETY: the three vectors hold n elements.
        let at = unsafe { quotient.enqueue(stream, rows)? };
        stream.record(&end)?;
        stream.synchronise()?;
        times.push(end.milliseconds_since(&begin)?);
        if run == 0 {
            h = download(stream, at, n)?;
        }
    }
    // The polynomial with value f bⁱ at wⁱ takes at x the value (xⁿ − 1)/n · Σ f bⁱ wⁱ / (x − wⁱ).
    let mut x = Scalar::random(&mut *rng);
    let omega = domain.omega();
    let shift = domain.odd_coset_shift();
    let mut probe = None;
    if basis == HBasis::OddLagrange {
        let k = rng.next_u64() as usize % n;
        x = shift * omega.pow_vartime([k as u64]);
        probe = Some(k);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = n.div_ceil(threads);
    let sums = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|t| {
                let h = &h;
                scope.spawn(move || {
                    let (from, to) = ((t * part).min(n), ((t + 1) * part).min(n));
                    let mut w = omega.pow_vartime([from as u64]);
                    let (mut va, mut vb) = (fa * ba.pow_vartime([from as u64]), fb * bb.pow_vartime([from as u64]));
                    let mut sums = [Scalar::ZERO; 4];
                    let mut power = x.pow_vartime([from as u64]);
                    // Differences inverted in batches.
                    for chunk in (from..to).step_by(1024) {
                        let count = 1024.min(to - chunk);
                        let ws: Vec<Scalar> =
                            std::iter::successors(Some(w), |w| Some(*w * omega)).take(count).collect();
                        let mut running = Scalar::ONE;
                        let prefix: Vec<Scalar> = ws
                            .iter()
                            .map(|w| {
                                let before = running;
                                running *= x - w;
                                before
                            })
                            .collect();
                        let mut inverse = running.invert().unwrap();
                        let mut weights = vec![Scalar::ZERO; count];
                        for i in (0..count).rev() {
                            weights[i] = inverse * prefix[i] * ws[i];
                            inverse *= x - ws[i];
                        }
                        for (i, weight) in weights.iter().enumerate() {
                            sums[0] += va * weight;
                            sums[1] += vb * weight;
                            sums[2] += va * vb * weight;
                            sums[3] += h[chunk + i] * power;
                            va *= ba;
                            vb *= bb;
                            power *= x;
                        }
                        w = ws[count - 1] * omega;
                    }
                    sums
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().expect("no panic")).fold([Scalar::ZERO; 4], |mut all, one| {
            all.iter_mut().zip(one).for_each(|(a, o)| *a += o);
            all
        })
    });
    let z = x.pow_vartime([n as u64]) - Scalar::ONE;
    let scale = z * domain.size_inverse();
    let difference = sums[0] * scale * sums[1] * scale - sums[2] * scale;
    let right = match probe {
        Some(k) => h[k] == difference,
        None => sums[3] * z == difference,
    };
    if !right {
        return Err(format!("quotient of 2^{log_n} in {basis:?} is wrong").into());
    }
    if log_n >= 20 {
        println!("2^{log_n} quotient, {basis:?}: {}", summary(times.split_off(1)));
    }
    Ok(())
}
