//! NVRTC, the run-time compiler, bound directly: nine functions found with `libloading`.
//!
//! cudarc's own NVRTC bindings panic on a missing library or symbol and can't be told where to look. A compiler that lives beside a
//! Python package or a tool kit that isn't on the loader's path is reached with `SPLITPROVER_NVRTC=/path/to/libnvrtc.so.13`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;

type Program = *mut c_void;

/// The loaded compiler. It is never unloaded.
pub(crate) struct Nvrtc {
    version: (u32, u32),
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    words: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// What a compilation gave: the image and the assembler's resource report.
pub(crate) struct Compiled {
    pub(crate) cubin: Vec<u8>,
    pub(crate) log: String,
}

impl Nvrtc {
    /// The compiler of this process, or why there is none.
    pub(crate) fn get() -> Result<&'static Self, String> {
        static LOADED: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
        LOADED.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    /// Major and minor version.
    pub(crate) fn version(&self) -> (u32, u32) {
        self.version
    }

    fn load() -> Result<Self, String> {
        let mut reasons = Vec::new();
        for candidate in candidates() {
            preload_builtins(&candidate);
            // SAFETY: loading the vendor's compiler runs its initialisers and nothing else.
            match unsafe { Library::new(&candidate) } {
                Ok(library) => match Self::bind(library) {
                    Ok(bound) => return Ok(bound),
                    Err(error) => {
                        reasons.push(format!("{}: {}", candidate.display(), crate::driver::loader_words(&error)))
                    }
                },
                Err(error) => reasons.push(crate::driver::loader_words(&error)),
            }
        }
        Err(reasons.join("; "))
    }

    fn bind(library: Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types are those of nvrtc.h, unchanged from CUDA 11.1 on; `library` is leaked below, so the pointers stay valid.
        let (version, bound) = unsafe {
            let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = *library.get(b"nvrtcVersion")?;
            let bound = Self {
                version: (0, 0),
                create: *library.get(b"nvrtcCreateProgram")?,
                compile: *library.get(b"nvrtcCompileProgram")?,
                destroy: *library.get(b"nvrtcDestroyProgram")?,
                log_size: *library.get(b"nvrtcGetProgramLogSize")?,
                log: *library.get(b"nvrtcGetProgramLog")?,
                cubin_size: *library.get(b"nvrtcGetCUBINSize")?,
                cubin: *library.get(b"nvrtcGetCUBIN")?,
                words: *library.get(b"nvrtcGetErrorString")?,
            };
            (version, bound)
        };
        std::mem::forget(library);
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both outputs are writable.
        unsafe { version(&mut major, &mut minor) };
        Ok(Self { version: (major.unsigned_abs(), minor.unsigned_abs()), ..bound })
    }

    /// Compiles `source`, which may include the named `headers`, to a CUBIN. On refusal, the log.
    pub(crate) fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(&str, &str)],
        options: &[String],
    ) -> Result<Compiled, String> {
        let text = |s: &str| CString::new(s).map_err(|_| format!("NUL byte in {name} or its options"));
        let (source, name) = (text(source)?, text(name)?);
        let header_names = headers.iter().map(|(n, _)| text(n)).collect::<Result<Vec<_>, _>>()?;
        let header_texts = headers.iter().map(|(_, t)| text(t)).collect::<Result<Vec<_>, _>>()?;
        let options = options.iter().map(|o| text(o)).collect::<Result<Vec<_>, _>>()?;
        let pointers = |strings: &[CString]| strings.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
        let (names, texts, opts) = (pointers(&header_names), pointers(&header_texts), pointers(&options));

        let mut program = Guard { nvrtc: self, raw: std::ptr::null_mut() };
        // SAFETY: all strings are NUL-terminated and live to the end of this function, past the program, and the counts are theirs.
        let status = unsafe {
            (self.create)(
                &mut program.raw,
                source.as_ptr(),
                name.as_ptr(),
                headers.len() as c_int,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        self.check(status, "nvrtcCreateProgram")?;
        // SAFETY: the program was created above; options as before.
        let verdict = unsafe { (self.compile)(program.raw, opts.len() as c_int, opts.as_ptr()) };
        // SAFETY: each size function is paired with the function that fills a buffer of that size.
        let log = unsafe { self.fetch(program.raw, self.log_size, self.log) }.unwrap_or_default();
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned();
        if verdict != 0 {
            return Err(if log.is_empty() { self.words(verdict) } else { log });
        }
        // SAFETY: as for the log.
        let cubin = unsafe { self.fetch(program.raw, self.cubin_size, self.cubin) }?;
        Ok(Compiled { cubin, log })
    }

    /// # Safety
    /// `fill` must write no more than `size` reports.
    unsafe fn fetch(
        &self,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        fill: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = 0usize;
        // SAFETY: the program is alive and the output writable.
        self.check(unsafe { size(program, &mut bytes) }, "reading a size")?;
        let mut buffer = vec![0u8; bytes];
        // SAFETY: our caller's promise.
        self.check(unsafe { fill(program, buffer.as_mut_ptr().cast()) }, "reading a result")?;
        Ok(buffer)
    }

    fn check(&self, status: c_int, what: &str) -> Result<(), String> {
        if status == 0 { Ok(()) } else { Err(format!("{what}: {}", self.words(status))) }
    }

    fn words(&self, status: c_int) -> String {
        // SAFETY: the function takes any number and returns a static string, or null for what it doesn't know.
        let text = unsafe { (self.words)(status) };
        if text.is_null() {
            return format!("NVRTC error {status}");
        }
        // SAFETY: not null, static and NUL-terminated.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

struct Guard<'a> {
    nvrtc: &'a Nvrtc,
    raw: Program,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: created once, destroyed once.
            unsafe { (self.nvrtc.destroy)(&mut self.raw) };
        }
    }
}

fn candidates() -> Vec<PathBuf> {
    if let Some(explicit) = std::env::var_os("SPLITPROVER_NVRTC").filter(|value| !value.is_empty()) {
        return vec![explicit.into()];
    }
    let named = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
    let placed = ["/usr/local/cuda/lib64/libnvrtc.so", "/opt/cuda/lib64/libnvrtc.so"];
    named.iter().chain(&placed).map(PathBuf::from).collect()
}

/// NVRTC opens `libnvrtc-builtins.so.X.Y` by bare name; where it sits beside an NVRTC off the loader's path, load it first, so that the
/// loader finds it under that name.
fn preload_builtins(nvrtc: &Path) {
    let Some(folder) = nvrtc.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return };
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("libnvrtc-builtins.so.") {
            // SAFETY: as for NVRTC itself.
            if let Ok(library) = unsafe { Library::new(entry.path()) } {
                std::mem::forget(library);
            }
        }
    }
}
