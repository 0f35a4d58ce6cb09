//! Kernel families: their sources, how they are compiled for a card, and the cache on disk.
//!
//! Each family is one NVRTC program, since compile time grows steeply with the size of a program. A CUBIN is cached under a name that
//! holds the family, the architecture, a hash of sources and options, and the compiler's version. Entries are written to a
//! temporary file and renamed, so concurrent processes see whole entries or none; each entry carries its own hash, and one that
//! doesn't match is built again. A full cache needs no compiler.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::driver::{Context, CudaError, Function, Module};
use crate::nvrtc::Nvrtc;

pub mod hot;

/// A set of kernels compiled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// Transforms over the evaluation domain.
    Ntt,
    /// The same on residues as Eisenstein integers.
    NttEis,
    /// Sparse matrix-vector product and element-wise steps.
    Vector,
    /// Scalars to sorted (bucket, base) pairs.
    MsmSort,
    /// Bucket sums in G1.
    MsmG1,
    /// Bucket sums in G2.
    MsmG2,
    /// Many multiples of one base.
    FixedBase,
    /// Rates of the field multiplications, for benchmarks.
    Probe,
}

impl Family {
    /// All families that proofs and keys need.
    pub const ALL: [Self; 7] =
        [Self::Ntt, Self::NttEis, Self::Vector, Self::MsmSort, Self::MsmG1, Self::MsmG2, Self::FixedBase];

    /// The family's name in file names and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ntt => "ntt",
            Self::NttEis => "ntt_eis",
            Self::Vector => "vector",
            Self::MsmSort => "msm_sort",
            Self::MsmG1 => "msm_g1",
            Self::MsmG2 => "msm_g2",
            Self::FixedBase => "fixed_base",
            Self::Probe => "probe",
        }
    }

    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::Ntt => include_str!("../kernels/ntt.cu"),
            Self::NttEis => include_str!("../kernels/ntt_eis.cu"),
            Self::Vector => include_str!("../kernels/vector.cu"),
            Self::MsmSort => include_str!("../kernels/msm_sort.cu"),
            Self::MsmG1 => include_str!("../kernels/msm_g1.cu"),
            Self::MsmG2 => include_str!("../kernels/msm_g2.cu"),
            Self::FixedBase => include_str!("../kernels/fixed_base.cu"),
            Self::Probe => include_str!("../kernels/probe.cu"),
        }
    }
}

/// Headers any family may include.
pub(crate) const HEADERS: &[(&str, &str)] = &[
    ("base.cuh", include_str!("../kernels/base.cuh")),
    ("fr.cuh", include_str!("../kernels/fr.cuh")),
    ("eis.cuh", include_str!("../kernels/eis.cuh")),
    ("fp.cuh", include_str!("../kernels/fp.cuh")),
    ("fp2.cuh", include_str!("../kernels/fp2.cuh")),
    ("curve.cuh", include_str!("../kernels/curve.cuh")),
    ("msm.cuh", include_str!("../kernels/msm.cuh")),
    ("fp_invert.cuh", include_str!("../kernels/fp_invert.cuh")),
    ("msm_affine.cuh", include_str!("../kernels/msm_affine.cuh")),
    ("msm_affine_g2.cuh", include_str!("../kernels/msm_affine_g2.cuh")),
];

/// Where CUBINs are kept.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    folder: Option<PathBuf>,
}

/// What the assembler reported for one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources {
    /// The kernel or non-inlined function.
    pub name: String,
    /// Registers per thread; zero for a function that isn't a kernel.
    pub registers: u32,
    /// Stack frame in bytes.
    pub stack: u32,
    /// Bytes of spill stores and loads.
    pub spills: u32,
}

/// A freshly built CUBIN with its report.
#[derive(Clone, Debug)]
pub struct Built {
    /// The image.
    pub cubin: Vec<u8>,
    /// One entry per kernel.
    pub resources: Vec<Resources>,
}

impl Cache {
    /// A cache in `folder`, made when first written to.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()) }
    }

    /// No cache: every family is compiled anew.
    #[must_use]
    pub fn none() -> Self {
        Self { folder: None }
    }

    /// `SPLITPROVER_KERNEL_CACHE`, else the user's cache folder, else none.
    #[must_use]
    pub fn from_environment() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = set("SPLITPROVER_KERNEL_CACHE").or_else(|| {
            set("XDG_CACHE_HOME")
                .or_else(|| set("HOME").map(|home| home.join(".cache")))
                .map(|c| c.join("splitprover/kernels"))
        });
        Self { folder }
    }

    /// The CUBIN of `family` for `arch`, from the cache or else compiled and put there.
    ///
    /// # Errors
    /// [`CudaError::NoCompiler`] when it isn't cached and NVRTC is missing, [`CudaError::Compile`] when NVRTC refuses,
    /// [`CudaError::Cache`] when the result can't be stored.
    pub fn cubin(&self, family: Family, arch: &str) -> Result<Vec<u8>, CudaError> {
        self.cubin_by(family, arch, compiler().ok(), build)
    }

    /// The same with another compiler: its version, if there is one, and how it builds.
    fn cubin_by(
        &self,
        family: Family,
        arch: &str,
        version: Option<(u32, u32)>,
        build: impl FnOnce(Family, &str) -> Result<Built, CudaError>,
    ) -> Result<Vec<u8>, CudaError> {
        // Threads of one process that want the same entry wait for the first.
        let _turn = turn(family, arch);
        if let Some(cubin) = self.lookup(family, arch, version) {
            return Ok(cubin);
        }
        let built = build(family, arch)?;
        if let Some(version) = version {
            self.store(family, arch, version, &built.cubin)?;
        }
        Ok(built.cubin)
    }

    /// Compiles the families for `arch` into this cache, side by side; needs NVRTC and no card. Entries that are there already are kept.
    ///
    /// # Errors
    /// As for [`cubin`](Self::cubin).
    pub fn fill(&self, families: &[Family], arch: &str) -> Result<(), CudaError> {
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                families.iter().map(|&family| scope.spawn(move || self.cubin(family, arch).map(drop))).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload)))
        })
    }

    /// Puts a freshly built CUBIN into the cache, in place of an entry that may be there.
    ///
    /// # Errors
    /// [`CudaError::Cache`] when it can't be stored.
    pub fn put(&self, family: Family, arch: &str, cubin: &[u8]) -> Result<(), CudaError> {
        compiler().map_or(Ok(()), |version| self.store(family, arch, version, cubin))
    }

    fn lookup(&self, family: Family, arch: &str, version: Option<(u32, u32)>) -> Option<Vec<u8>> {
        let folder = self.folder.as_deref()?;
        let stem = stem(family, arch);
        if let Some(version) = version {
            return read_entry(&folder.join(entry_name(&stem, version)));
        }
        // Without a compiler any version's work will do; the newest first.
        let mut matching: Vec<_> = fs::read_dir(folder)
            .ok()?
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{stem}-")))
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "cubin"))
            .collect();
        matching.sort();
        matching.iter().rev().find_map(|path| read_entry(path))
    }

    fn store(&self, family: Family, arch: &str, version: (u32, u32), cubin: &[u8]) -> Result<(), CudaError> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let Some(folder) = self.folder.as_deref() else { return Ok(()) };
        let target = folder.join(entry_name(&stem(family, arch), version));
        let temporary =
            folder.join(format!(".{}-{}.part", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(folder)?;
            let mut file = fs::File::create(&temporary)?;
            file.write_all(MAGIC)?;
            file.write_all(blake3::hash(cubin).as_bytes())?;
            file.write_all(cubin)?;
            drop(file);
            fs::rename(&temporary, &target)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&temporary);
            CudaError::Cache { path: target.clone(), reason: error.to_string() }
        })
    }
}

const MAGIC: &[u8; 16] = b"splitprover-cu1\n";
const ELF: &[u8; 4] = b"\x7fELF";

fn read_entry(path: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(path).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (hash, cubin) = rest.split_at_checked(32)?;
    (blake3::hash(cubin).as_bytes().as_slice() == hash && cubin.starts_with(ELF)).then(|| cubin.to_vec())
}

fn options(arch: &str) -> Vec<String> {
    vec![
        format!("--gpu-architecture={arch}"),
        "--std=c++17".into(),
        "--generate-line-info".into(),
        "--ptxas-options=-v".into(),
    ]
}

fn stem(family: Family, arch: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut part = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    part(family.source());
    HEADERS.iter().for_each(|(name, text)| {
        part(name);
        part(text);
    });
    options(arch).iter().for_each(|option| part(option));
    format!("{}-{arch}-{}", family.name(), &hasher.finalize().to_hex()[..24])
}

fn entry_name(stem: &str, (major, minor): (u32, u32)) -> String {
    format!("{stem}-nvrtc{major}.{minor}.cubin")
}

fn turn(family: Family, arch: &str) -> impl Drop {
    struct Turn(Arc<(Mutex<bool>, std::sync::Condvar)>);
    impl Drop for Turn {
        fn drop(&mut self) {
            *self.0.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = false;
            self.0.1.notify_one();
        }
    }
    type Turns = Mutex<HashMap<(Family, String), Arc<(Mutex<bool>, std::sync::Condvar)>>>;
    static TURNS: OnceLock<Turns> = OnceLock::new();
    let mut turns = TURNS.get_or_init(Turns::default).lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let entry = turns.entry((family, arch.to_owned())).or_default().clone();
    drop(turns);
    let mut busy = entry.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    while *busy {
        busy = entry.1.wait(busy).unwrap_or_else(std::sync::PoisonError::into_inner);
    }
    *busy = true;
    drop(busy);
    Turn(entry)
}

/// Whether NVRTC can be loaded here; if not, why.
///
/// # Errors
/// The loader's own words.
pub fn compiler() -> Result<(u32, u32), String> {
    Nvrtc::get().map(Nvrtc::version)
}

/// Compiles `family` for `arch` without looking at any cache.
///
/// # Errors
/// [`CudaError::NoCompiler`] or [`CudaError::Compile`].
pub fn build(family: Family, arch: &str) -> Result<Built, CudaError> {
    let nvrtc = Nvrtc::get().map_err(|reason| CudaError::NoCompiler {
        family: family.name(),
        arch: arch.to_owned(),
        reason,
    })?;
    let compiled = nvrtc
        .compile(&format!("{}.cu", family.name()), family.source(), HEADERS, &options(arch))
        .map_err(|log| CudaError::Compile { family: family.name(), arch: arch.to_owned(), log })?;
    Ok(Built { resources: parse_report(&compiled.log), cubin: compiled.cubin })
}

/// Reads the assembler's report: for each function a "properties" line, a frame line and, for kernels, a register line.
fn parse_report(log: &str) -> Vec<Resources> {
    let number_before = |line: &str, words: &str| -> u32 {
        line.find(words)
            .and_then(|end| line[..end].trim_end().rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
            .unwrap_or(0)
    };
    let mut found: Vec<Resources> = Vec::new();
    for line in log.lines() {
        if let Some((_, name)) = line.split_once("Function properties for ") {
            found.push(Resources { name: name.trim().to_owned(), registers: 0, stack: 0, spills: 0 });
        } else if let Some(last) = found.last_mut() {
            if line.contains("bytes stack frame") {
                last.stack = number_before(line, "bytes stack frame");
                last.spills = number_before(line, "bytes spill stores") + number_before(line, "bytes spill loads");
            } else if line.contains("Used ") && line.contains(" registers") {
                last.registers = number_before(line, "registers");
            }
        }
    }
    found
}

/// Whether `arch` names an architecture of NVIDIA's: `sm_90`, `sm_100a`.
#[must_use]
pub fn is_architecture(arch: &str) -> bool {
    let number = arch.strip_prefix("sm_").map(|rest| rest.strip_suffix(['a', 'f']).unwrap_or(rest));
    number.is_some_and(|digits| (2..=3).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The kernels of one context, loaded family by family when first asked for.
#[derive(Debug)]
pub struct Kernels {
    context: Context,
    cache: Cache,
    modules: Mutex<HashMap<Family, Module>>,
}

impl Kernels {
    /// No module is loaded yet.
    #[must_use]
    pub fn new(context: &Context, cache: Cache) -> Self {
        Self { context: context.clone(), cache, modules: Mutex::default() }
    }

    /// Shared memory that one block may have, in bytes.
    #[must_use]
    pub fn shared_per_block(&self) -> u32 {
        self.context.info().shared_per_block
    }

    /// Sees to it that all families are in the cache, so that a card opened for the first time waits for the slowest compilation
    /// and not for the sum of all.
    ///
    /// # Errors
    /// As for [`Cache::cubin`].
    pub fn prepare(&self) -> Result<(), CudaError> {
        if self.context.is_dry() || self.cache.folder.is_none() {
            return Ok(());
        }
        self.cache.fill(&Family::ALL, &self.context.info().arch())
    }

    /// Loads `family` unless it is loaded.
    ///
    /// # Errors
    /// As for [`Cache::cubin`], and whatever the driver reports.
    pub fn module(&self, family: Family) -> Result<Module, CudaError> {
        let mut modules = self.modules.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(module) = modules.get(&family) {
            return Ok(module.clone());
        }
        let image = self.image(family)?;
        let module = Module::load(&self.context, &image)?;
        modules.insert(family, module.clone());
        Ok(module)
    }

    fn image(&self, family: Family) -> Result<Vec<u8>, CudaError> {
        #[cfg(any(test, feature = "emulator"))]
        if self.context.is_emulated() {
            let library = crate::emulator::library(family);
            return library
                .map(|path| path.to_string_lossy().into_owned().into_bytes())
                .map_err(|log| CudaError::Compile { family: family.name(), arch: "the emulator".into(), log });
        }
        if self.context.is_dry() {
            return Ok(Vec::new());
        }
        self.cache.cubin(family, &self.context.info().arch())
    }

    /// Finds a kernel.
    ///
    /// # Errors
    /// As for [`module`](Self::module).
    pub fn function(&self, family: Family, name: &str) -> Result<Function, CudaError> {
        self.module(family)?.function(name)
    }
}

#[cfg(test)]
mod tests;
