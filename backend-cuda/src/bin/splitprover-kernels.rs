//! Compiles the CUDA kernels ahead of time: fills a kernel cache where there is no card, and checks what the compiler made of them.
//!
//! ```text
//! splitprover-kernels [--arch sm_90]... [--all-arch] [--out DIR] [--check]
//! ```
//! Needs NVRTC (see `SPLITPROVER_NVRTC`). Without `--arch`: sm_75, sm_90 and sm_120; `--all-arch` adds sm_80, sm_86, sm_89 and sm_100.
//! With `--check` a hot kernel that spills registers fails the run. Exit codes: 0 done, 1 a check failed, 2 usage, 4 no compiler or a
//! compiler error.

use std::process::ExitCode;

use splitprover_backend_cuda::kernels::{Built, Cache, Family, build, compiler};

const USUAL: [&str; 3] = ["sm_75", "sm_90", "sm_120"];
const OTHERS: [&str; 4] = ["sm_80", "sm_86", "sm_89", "sm_100"];

struct Request {
    archs: Vec<String>,
    out: Option<String>,
    check: bool,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Request, String> {
    let mut request = Request { archs: Vec::new(), out: None, check: false };
    while let Some(argument) = arguments.next() {
        let mut value = |name: &str| arguments.next().ok_or_else(|| format!("{name} needs a value"));
        match argument.as_str() {
            "--arch" => request.archs.extend(value("--arch")?.split(',').map(str::to_owned)),
            "--all-arch" => request.archs.extend(USUAL.iter().chain(&OTHERS).map(|&arch| arch.to_owned())),
            "--out" => request.out = Some(value("--out")?),
            "--check" => request.check = true,
            other => return Err(format!("unknown argument {other}")),
        }
    }
    if request.archs.is_empty() {
        request.archs = USUAL.map(str::to_owned).to_vec();
    }
    let is_arch =
        |arch: &String| arch.strip_prefix("sm_").is_some_and(|n| n.trim_end_matches(['a', 'f']).parse::<u32>().is_ok());
    match request.archs.iter().find(|arch| !is_arch(arch)) {
        Some(bad) => Err(format!("{bad} is no architecture; they look like sm_90")),
        None => Ok(request),
    }
}

fn main() -> ExitCode {
    let request = match parse(std::env::args().skip(1)) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("splitprover-kernels: {error}");
            eprintln!("usage: splitprover-kernels [--arch sm_90]... [--all-arch] [--out DIR] [--check]");
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
    let mut spilled = false;
    for arch in &request.archs {
        for family in Family::ALL {
            match build(family, arch) {
                Ok(built) => {
                    spilled |= report(family, arch, &built);
                    if let Some(folder) = &request.out
                        && let Err(error) = Cache::at(folder).put(family, arch, &built.cubin)
                    {
                        eprintln!("splitprover-kernels: {error}");
                        return ExitCode::from(4);
                    }
                }
                Err(error) => {
                    eprintln!("splitprover-kernels: {error}");
                    return ExitCode::from(4);
                }
            }
        }
    }
    if spilled && request.check { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

/// Prints a family's hot kernels; whether one of them spills.
fn report(family: Family, arch: &str, built: &Built) -> bool {
    println!("{arch} {}: {} kernels, {} bytes", family.name(), built.resources.len(), built.cubin.len());
    let mut spilled = false;
    for name in family.hot_kernels() {
        match built.resources.iter().find(|kernel| kernel.name == *name) {
            Some(kernel) => {
                let mark = if kernel.spills > 0 { "  SPILLS" } else { "" };
                println!(
                    "  {name}: {} registers, stack {}, spills {}{mark}",
                    kernel.registers, kernel.stack, kernel.spills
                );
                spilled |= kernel.spills > 0;
            }
            None => {
                println!("  {name}: missing from the compiler's report");
                spilled = true;
            }
        }
    }
    spilled
}
