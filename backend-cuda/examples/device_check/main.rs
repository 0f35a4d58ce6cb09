//! Checks the CUDA backend on a real card and times it: built elsewhere, carried there, run in one go.
//!
//! ```text
//! device_check ntt [MAX_LOG2]      transforms and quotients against closed forms and the definition, with times
//! device_check ntt-once LOG2       two transforms, for a profiler
//! device_check kernels DIR ARCH..  fills a kernel cache; needs NVRTC and no card
//! ```

mod ntt;

use std::process::ExitCode;

use splitprover_backend_cuda::kernels::{Cache, Family};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u32| arguments.get(index).and_then(|a| a.parse().ok()).unwrap_or(default);
    let outcome = match arguments.first().map(String::as_str) {
        Some("ntt") => ntt::run(number(1, 27)),
        Some("ntt-once") => ntt::once(number(1, 24)),
        Some("kernels") => kernels(&arguments[1..]),
        _ => Err("usage: device_check ntt [MAX_LOG2]".into()),
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
