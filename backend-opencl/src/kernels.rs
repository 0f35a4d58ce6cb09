//! The programs: their text, how they are built for a device, and the cache of built ones on disk.
//!
//! There is one program for scalars (transforms, products, sorting) and one for each group, built side by side. A cached binary's name is a
//! hash of the program's text, the options, the device and its driver's and platform's version. Entries are written to a temporary file
//! and renamed, so concurrent processes see whole entries or none; each carries its own hash, and one that doesn't match, or that the
//! driver refuses, is built again. A cache that can't be written to costs time and nothing else.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::driver::{Context, DeviceDescription, Kernel, OpenClError, Program};
use crate::field::{FP, FR};

/// Elements of 32 bytes that a work group of a transform holds in local memory, at most.
const MAX_TILE: u64 = 1 << 10;
/// Prefix sums: elements for each work item.
const SCAN_ITEMS: u32 = 8;
const OPTIONS: &str = "-cl-std=CL1.2";

/// The sizes that the kernels are built with, from the device's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Work items of a group in the scalars' program.
    pub group: usize,
    /// Work items of a group in the groups' programs.
    pub curve_group: usize,
    /// Work items of a group in transforms.
    pub ntt_group: usize,
    /// Elements that such a group holds in local memory.
    pub ntt_tile: usize,
}

impl Geometry {
    /// The sizes for a device.
    ///
    /// # Errors
    /// [`OpenClError::Unfit`] if there is no local memory to speak of.
    pub fn of(device: &DeviceDescription) -> Result<Self, OpenClError> {
        let most = device.max_work_group.max(1);
        let power = |limit: usize| 1 << limit.min(most).ilog2();
        // Half of what there is: the compiler may want some for itself, and two groups share a unit's.
        let elements = (device.local_memory / 32).min(MAX_TILE);
        if elements < 16 {
            return Err(OpenClError::Unfit {
                device: device.name.clone(),
                reason: format!("it has {} bytes of local memory", device.local_memory),
            });
        }
        Ok(Self { group: power(256), curve_group: power(64), ntt_group: power(256), ntt_tile: 1 << elements.ilog2() })
    }

    /// Elements of a block of prefix sums.
    #[must_use]
    pub fn scan_block(&self) -> u32 {
        self.group as u32 * SCAN_ITEMS
    }

    fn prelude(&self, group: usize, inlined: bool, straight: bool) -> String {
        let Self { ntt_group, ntt_tile, .. } = self;
        let call = if inlined { "__attribute__((always_inline)) inline" } else { "__attribute__((noinline))" };
        let product = if straight { "" } else { " 1" };
        format!(
            "#define GROUP {group}\n\
             #define WORK_GROUP __attribute__((reqd_work_group_size(GROUP, 1, 1)))\n\
             #define NTT_GROUP {ntt_group}\n\
             #define NTT_TILE {ntt_tile}\n\
             #define NTT_WORK_GROUP __attribute__((reqd_work_group_size(NTT_GROUP, 1, 1)))\n\
             #define SCAN_ITEMS {SCAN_ITEMS}\n\
             #define SCAN_BLOCK (GROUP * SCAN_ITEMS)\n\
             #define NO_UNROLL _Pragma(\"unroll 1\")\n\
             #define PRODUCT_LOOP _Pragma(\"unroll{product}\")\n\
             #define PRODUCT_CALL {call}\n"
        )
    }
}

/// How products of field elements are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Products {
    /// In PTX.
    pub ptx: bool,
    /// In straight code, and those of scalars in line, not as loops of two rows that are called. With products of coordinates in line, too, a
    /// program took NVIDIA's compiler more than a minute (driver 580).
    pub straight: bool,
}

/// The programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramId {
    /// Transforms, products, sorting.
    Scalars,
    /// Sums in G1.
    G1,
    /// Sums in G2.
    G2,
}

impl ProgramId {
    /// All of them, the longest build first.
    pub const ALL: [Self; 3] = [Self::G2, Self::G1, Self::Scalars];

    /// Its name in messages and file names.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalars => "scalars",
            Self::G1 => "g1",
            Self::G2 => "g2",
        }
    }

    /// Its text.
    #[must_use]
    pub fn source(self, geometry: &Geometry, products: Products) -> String {
        let coordinates = |name: &str, words: u32| {
            format!("#define CO_T {name}\n#define CO(name) {name}_##name\n#define CO_WORDS {words}\n")
        };
        let curve = |coordinates: String, field: &str| {
            [
                &geometry.prelude(geometry.curve_group, false, products.straight),
                &FP.source(products.ptx),
                field,
                &coordinates,
                include_str!("../kernels/curve.cl"),
                include_str!("../kernels/msm.cl"),
            ]
            .join("\n")
        };
        match self {
            Self::Scalars => [
                &geometry.prelude(geometry.group, products.straight, products.straight),
                &FR.source(products.ptx),
                include_str!("../kernels/vector.cl"),
                include_str!("../kernels/ntt.cl"),
                include_str!("../kernels/sort.cl"),
            ]
            .join("\n"),
            Self::G1 => curve(coordinates("fp", 12), ""),
            Self::G2 => curve(coordinates("fp2", 24), include_str!("../kernels/fp2.cl")),
        }
    }
}

macro_rules! kernels {
    ($(#[$doc:meta])* $name:ident { $($kernel:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name {
            $(pub(crate) $kernel: Kernel,)*
            _program: Program,
        }

        impl $name {
            fn new(program: Program) -> Result<Self, OpenClError> {
                Ok(Self { $($kernel: program.kernel(stringify!($kernel))?,)* _program: program })
            }
        }
    };
}

kernels! {
    /// The kernels of [`ProgramId::Scalars`].
    ScalarKernels {
        multiply, sparse_rows, sparse_long_rows, quotient_values, quotient_coefficients, fr_operation,
        rows_to_coefficients, coefficients_to_values,
        split, count_kinds, histogram, scatter, append_units, scan_blocks, scan_add,
    }
}

kernels! {
    /// The kernels of [`ProgramId::G1`] or [`ProgramId::G2`].
    CurveKernels {
        gather_bases, gather_points, reduce_buckets, sum_rows, to_jacobian, curve_operation, fp_operation,
    }
}

/// All kernels, built for one device.
#[derive(Debug)]
pub(crate) struct Kernels {
    pub(crate) geometry: Geometry,
    pub(crate) products: Products,
    pub(crate) scalars: ScalarKernels,
    pub(crate) g1: CurveKernels,
    pub(crate) g2: CurveKernels,
    /// Seconds that the builds took, and how many programs came from the cache.
    pub(crate) build_seconds: f64,
    pub(crate) cached: usize,
}

/// A change of a program's text, for tests of what a faulty compiler leads to.
pub(crate) type Patch = dyn Fn(ProgramId, String) -> String + Sync;

impl Kernels {
    /// Loads all programs into `context`, building what the cache lacks, side by side.
    pub(crate) fn new(
        context: &Context,
        cache: &Cache,
        products: Products,
        patch: &Patch,
    ) -> Result<Self, OpenClError> {
        let geometry = Geometry::of(context.device())?;
        let begun = Instant::now();
        let [g2, g1, scalars] = std::thread::scope(|scope| {
            ProgramId::ALL
                .map(|id| {
                    let text = patch(id, id.source(&geometry, products));
                    scope.spawn(move || cache.program(context, id, &text))
                })
                .map(|thread| thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload)))
        });
        let ((g2, g2_cached), (g1, g1_cached), (scalars, scalars_cached)) = (g2?, g1?, scalars?);
        Ok(Self {
            geometry,
            products,
            scalars: ScalarKernels::new(scalars)?,
            g1: CurveKernels::new(g1)?,
            g2: CurveKernels::new(g2)?,
            build_seconds: begun.elapsed().as_secs_f64(),
            cached: [g2_cached, g1_cached, scalars_cached].into_iter().filter(|&cached| cached).count(),
        })
    }
}

/// The cache of built programs: a folder, or none.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: Option<PathBuf>,
}

const MAGIC: &[u8; 16] = b"splitprover-ocl1";

impl Cache {
    /// A cache in a folder of the caller's.
    pub(crate) fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()) }
    }

    /// `SPLITPROVER_KERNEL_CACHE`, or `splitprover/kernels` in the user's cache folder; none if there is neither.
    pub(crate) fn from_environment() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let users = || {
            let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
            cache.map(|cache| cache.join("splitprover/kernels"))
        };
        Self { folder: set("SPLITPROVER_KERNEL_CACHE").or_else(users) }
    }

    /// The program, and whether it came from the cache.
    fn program(&self, context: &Context, id: ProgramId, text: &str) -> Result<(Program, bool), OpenClError> {
        let path = self.folder.as_ref().map(|folder| folder.join(entry_name(context.device(), id, text)));
        if let Some(binary) = path.as_deref().and_then(read_entry) {
            // A driver may refuse what it has once given out; the text is still there.
            if let Ok(program) = Program::from_binary(context, id.name(), &binary, OPTIONS) {
                return Ok((program, true));
            }
        }
        let program = Program::from_source(context, id.name(), text, OPTIONS)?;
        if let (Some(path), Some(binary)) = (path, program.binary()) {
            let _ = write_entry(&path, &binary);
        }
        Ok((program, false))
    }
}

/// What the binary depends on, hashed.
fn entry_name(device: &DeviceDescription, id: ProgramId, text: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in
        [text, OPTIONS, &device.name, &device.vendor, &device.driver, &device.platform_name, &device.platform_version]
    {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    format!("opencl-{}-{}.bin", id.name(), &hasher.finalize().to_hex()[..32])
}

fn read_entry(path: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(path).ok()?;
    let (hash, binary) = bytes.strip_prefix(MAGIC)?.split_at_checked(32)?;
    (blake3::hash(binary).as_bytes().as_slice() == hash).then(|| binary.to_vec())
}

fn write_entry(path: &Path, binary: &[u8]) -> std::io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".opencl-{}-{number}.part", std::process::id()));
    let write = || {
        let mut file = fs::File::create(&temporary)?;
        file.write_all(MAGIC)?;
        file.write_all(blake3::hash(binary).as_bytes())?;
        file.write_all(binary)?;
        drop(file);
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}
