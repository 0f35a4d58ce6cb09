//! `splitprover kernels`: a backend's kernels compiled ahead of time, where there is no device.

use std::path::PathBuf;

use super::{Failure, backend, print};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Backend: a name, or the path of a shared library
    #[arg(long, default_value = "cuda", value_name = "NAME|PATH")]
    backend: String,
    /// Architecture, as its vendor names it: sm_90; may be repeated
    #[arg(long = "arch", required = true, value_name = "ARCH", value_delimiter = ',')]
    archs: Vec<String>,
    /// Kernel cache to fill; made if it isn't there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let folder = arguments.out.to_str();
    let folder = folder.ok_or_else(|| Failure::Usage("--out: the folder's name isn't UTF-8".into()))?;
    let loaded = backend::registry().load(&arguments.backend)?;
    let name = &loaded.library().info().name;
    for arch in &arguments.archs {
        let built = loaded.library().build_kernels(arch, folder, |line| print(&format!("{line}\n")));
        built.ok_or_else(|| Failure::Backend(format!("backend {name} has no kernels to compile ahead of time")))??;
    }
    Ok(())
}
