//! Checks the CUDA backend on a real card and times it: built elsewhere, carried there, run in one go.
//!
//! ```text
//! device_check ntt [MAX_LOG2]      transforms and quotients against closed forms and the definition, with times
//! device_check ntt-once LOG2       two transforms, for a profiler
//! device_check fixed-base          key generation's multiplications against the CPU
//! device_check prove [LOG2 [N]]    sums and proofs of random and edge inputs against the CPU, up to 2^LOG2 rows, N rounds each
//! device_check faults              every driver call of a proof fails once; a lost context
//! device_check flat [N]            memory over N proofs
//! device_check limited SHAPE LOG2 MIB     sums within so much device memory against those without limit
//! device_check bench SHAPE LOG2 [MIB [COPIES]]   times of whole proofs
//! device_check absent              what a card that isn't there says
//! device_check kernels DIR ARCH..  fills a kernel cache; needs NVRTC and no card
//! ```

mod faults;
mod ntt;
mod prove;

use std::process::ExitCode;

use splitprover_backend_cuda::kernels::{Cache, Family};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u32| arguments.get(index).and_then(|a| a.parse().ok()).unwrap_or(default);
    let outcome = match arguments.first().map(String::as_str) {
        Some("ntt") => ntt::run(number(1, 27)),
        Some("ntt-once") => ntt::once(number(1, 24)),
        Some("fixed-base") => prove::fixed_base(),
        Some("prove") => prove::check(number(1, 14), number(2, 2)),
        Some("faults") => faults::run(),
        Some("once") => prove::once(arguments.get(1).map_or("dense", String::as_str), number(2, 20)),
        Some("flat") => prove::flat(u64::from(number(1, 200))),
        Some("absent") => prove::absent(),
        Some("bench") => {
            let shape = arguments.get(1).map_or("porep", String::as_str);
            let limit = Some(number(3, 0)).filter(|&mib| mib > 0).map(|mib| u64::from(mib) << 20);
            prove::bench(shape, number(2, 20), limit, number(4, 1))
        }
        Some("limited") => {
            let shape = arguments.get(1).map_or("dense", String::as_str);
            prove::limited(shape, number(2, 24), u64::from(number(3, 12288)) << 20)
        }
        Some("kernels") => kernels(&arguments[1..]),
        _ => Err("see the top of examples/device_check/main.rs for the commands".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("device_check: {error}");
            ExitCode::FAILURE
        }
    }
}

fn kernels(arguments: &[String]) -> Outcome {
    let [folder, archs @ ..] = arguments else { return Err("usage: device_check kernels DIR ARCH..".into()) };
    for arch in archs {
        Cache::at(folder).fill(&Family::ALL, arch)?;
    }
    Ok(())
}

/// Any error, as text.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The median of an odd or even number of values, and the least and the greatest.
pub(crate) fn summary(mut values: Vec<f32>) -> String {
    values.sort_by(f32::total_cmp);
    let (first, last) = (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(0.0));
    format!("{:.3} ms ({first:.3} to {last:.3}, {} runs)", values[values.len() / 2], values.len())
}
