//! Compiles the CUDA kernels for several architectures and checks what the compiler made of them; fills a kernel cache on the way.
//!
//! ```text
//! splitprover-kernels [--arch sm_90]... [--all-arch] [--out DIR] [--check] [--verbose]
//! ```
//! Needs NVRTC (see `SPLITPROVER_NVRTC`) and no card. Without `--arch`: sm_75, sm_90 and sm_120; `--all-arch` adds sm_80, sm_86, sm_89
//! and sm_100. With `--check` a hot kernel that spills registers fails the run, unless the spill is a known one. `--verbose` lists all
//! kernels, not only hot ones. Exit codes: 0 done, 1 a check failed, 2 usage, 4 no compiler or a compiler error.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use splitprover_backend_cuda::driver::CudaError;
use splitprover_backend_cuda::kernels::{Built, Cache, Family, build, compiler, hot, is_architecture};

const USUAL: [&str; 3] = ["sm_75", "sm_90", "sm_120"];
const OTHERS: [&str; 4] = ["sm_80", "sm_86", "sm_89", "sm_100"];

#[derive(Default)]
struct Request {
    archs: Vec<String>,
    out: Option<String>,
    check: bool,
    verbose: bool,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Request, String> {
    let mut request = Request::default();
    while let Some(argument) = arguments.next() {
        let mut value = |name: &str| arguments.next().ok_or_else(|| format!("{name} needs a value"));
        match argument.as_str() {
            "--arch" => request.archs.extend(value("--arch")?.split(',').map(str::to_owned)),
            "--all-arch" => request.archs.extend(USUAL.iter().chain(&OTHERS).map(|&arch| arch.to_owned())),
            "--out" => request.out = Some(value("--out")?),
            "--check" => request.check = true,
            "--verbose" => request.verbose = true,
            other => return Err(format!("unknown argument {other}")),
        }
    }
    if request.archs.is_empty() {
        request.archs = USUAL.map(str::to_owned).to_vec();
    }
    match request.archs.iter().find(|arch| !is_architecture(arch)) {
        Some(bad) => Err(format!("{bad} is no architecture; they look like sm_90")),
        None => Ok(request),
    }
}

/// One family for one architecture, built.
type Outcome = Result<(Built, Duration), CudaError>;

/// Builds every family for every architecture, as many at a time as there are cores. Results come in the order asked for.
fn build_all(work: &[(Family, &str)]) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Outcome>>> = Mutex::new(work.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&(family, arch)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let clock = Instant::now();
                    let outcome = build(family, arch).map(|built| (built, clock.elapsed()));
                    let index = work.iter().position(|item| *item == (family, arch));
                    let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    if let Some(result) = index.and_then(|index| results.get_mut(index)) {
                        *result = Some(outcome);
                    }
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.into_iter().flatten().collect()
}

fn run(request: &Request) -> Result<bool, CudaError> {
    let work: Vec<(Family, &str)> =
        request.archs.iter().flat_map(|arch| Family::ALL.map(|family| (family, arch.as_str()))).collect();
    let mut allowed = true;
    for ((family, arch), outcome) in work.iter().zip(build_all(&work)) {
        let (built, time) = outcome?;
        let (kernels, bytes) = (built.resources.len(), built.cubin.len());
        println!("{arch} {}: {kernels} functions, {bytes} bytes, {:.1} s", family.name(), time.as_secs_f32());
        for (verdict, line) in hot::examine(*family, arch, &built) {
            println!("  {line}");
            allowed &= verdict.is_allowed();
        }
        if request.verbose {
            for kernel in &built.resources {
                println!(
                    "    {}: {} registers, stack {}, spilled bytes {}",
                    kernel.name, kernel.registers, kernel.stack, kernel.spills
                );
            }
        }
        if let Some(folder) = &request.out {
            Cache::at(folder).put(*family, arch, &built.cubin)?;
        }
    }
    Ok(allowed)
}

fn main() -> ExitCode {
    let request = match parse(std::env::args().skip(1)) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("splitprover-kernels: {error}");
            eprintln!("usage: splitprover-kernels [--arch sm_90]... [--all-arch] [--out DIR] [--check] [--verbose]");
            return ExitCode::from(2);
        }
    };
    match compiler() {
        Ok((major, minor)) => println!("NVRTC {major}.{minor}"),
        Err(reason) => {
            eprintln!("splitprover-kernels: NVRTC can't be loaded: {reason}");
            return ExitCode::from(4);
        }
    }
    match run(&request) {
        Ok(allowed) if allowed || !request.check => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("splitprover-kernels: a hot kernel spills registers, or is missing from the compiler's report");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("splitprover-kernels: {error}");
            ExitCode::from(4)
        }
    }
}
