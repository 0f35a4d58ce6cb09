//! One shared library: from a path to a checked table.
#![allow(unsafe_code)]

use std::io::{Read, Seek, SeekFrom};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use splitprover_core::abi::{BackendLibrary, NegotiationError, SP_NEGOTIATE_SYMBOL, SpNegotiate};

/// Why a candidate isn't used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// A place to search that isn't absolute.
    #[error("not an absolute path")]
    Relative,
    /// There is no such file.
    #[error("no such file")]
    NoSuchFile,
    /// It can't be read.
    #[error("can't be read: {0}")]
    Unreadable(String),
    /// It is no whole shared library for this machine.
    #[error("not a shared library: {0}")]
    NotALibrary(&'static str),
    /// The dynamic linker refused it.
    #[error("can't be loaded: {0}")]
    Link(String),
    /// It has no `sp_negotiate`.
    #[error("not a splitprover backend: no symbol {SP_NEGOTIATE_SYMBOL}")]
    NoSymbol,
    /// Its table doesn't fit.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// It is another backend than the one its file name says.
    #[error("it calls itself {found:?}")]
    OtherName {
        /// The name in its table.
        found: String,
    },
}

impl LibraryError {
    /// Whether there just was nothing.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::NoSuchFile)
    }
}

/// Loads a library for good, and asks it for its table. The path comes back absolute.
pub(super) fn load(path: &Path) -> Result<(PathBuf, BackendLibrary), LibraryError> {
    // Absolute, so that the dynamic linker doesn't search, and resolved, so that the report names the real file.
    let path = path.canonicalize().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => LibraryError::NoSuchFile,
        _ => LibraryError::Unreadable(e.to_string()),
    })?;
    whole(&path)?;
    // SAFETY: loading runs the library's initialisers, whatever they are. Whoever names a file as a backend, or puts one
    // where backends are looked for, decided to run its code; there is no other safety in a plug-in.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
    // Never unloaded.
    let library = ManuallyDrop::new(library.map_err(|e| LibraryError::Link(linker_message(&e)))?);
    // SAFETY: the symbol's type is the ABI's; that it keeps to it is the plug-in's part of the contract.
    let symbol = unsafe { library.get::<SpNegotiate>(SP_NEGOTIATE_SYMBOL.as_bytes()) };
    let negotiate: SpNegotiate = *symbol.map_err(|_| LibraryError::NoSymbol)?;
    // SAFETY: a plug-in's `sp_negotiate`, in a library that stays loaded.
    let table = unsafe { BackendLibrary::negotiate(negotiate) }?;
    Ok((path, table))
}

fn linker_message(error: &libloading::Error) -> String {
    // The cause says what the linker said; the error itself only which function failed.
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Checks that the file is an ELF library for this machine and isn't cut: the dynamic linker maps a cut file without
/// complaint, and the first access beyond its end kills the process.
fn whole(path: &Path) -> Result<(), LibraryError> {
    const SHARED: u16 = 3;
    const LOAD: u32 = 1;
    #[cfg(target_arch = "x86_64")]
    const MACHINE: u16 = 62;
    #[cfg(target_arch = "aarch64")]
    const MACHINE: u16 = 183;
    let unreadable = |e: std::io::Error| LibraryError::Unreadable(e.to_string());
    let mut file = std::fs::File::open(path).map_err(unreadable)?;
    let info = file.metadata().map_err(unreadable)?;
    if !info.is_file() {
        return Err(LibraryError::NotALibrary("not a file"));
    }
    let mut header = [0u8; 64];
    file.read_exact(&mut header).map_err(|_| LibraryError::NotALibrary("too short"))?;
    let half = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let long = |bytes: &[u8], at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Err(LibraryError::NotALibrary("not a 64-bit little-endian ELF file"));
    }
    if half(&header, 16) != SHARED {
        return Err(LibraryError::NotALibrary("an ELF file of another kind"));
    }
    if half(&header, 18) != MACHINE {
        return Err(LibraryError::NotALibrary("for another kind of processor"));
    }
    let cut = LibraryError::NotALibrary("the file is cut");
    let (offset, size, count) = (long(&header, 32), half(&header, 54), half(&header, 56));
    if size < 56 {
        return Err(LibraryError::NotALibrary("a broken ELF header"));
    }
    // The table of sections comes last, in a file as a linker writes it: it shows a cut behind the loaded segments, too.
    let sections = u64::from(half(&header, 58)) * u64::from(half(&header, 60));
    if long(&header, 40).checked_add(sections).is_none_or(|end| end > info.len()) {
        return Err(cut);
    }
    file.seek(SeekFrom::Start(offset)).map_err(unreadable)?;
    let mut segments = vec![0u8; usize::from(size) * usize::from(count)];
    file.read_exact(&mut segments).map_err(|_| cut.clone())?;
    for segment in segments.chunks_exact(usize::from(size)) {
        let kind = u32::from_le_bytes([segment[0], segment[1], segment[2], segment[3]]);
        let end = long(segment, 8).checked_add(long(segment, 32));
        if kind == LOAD && end.is_none_or(|end| end > info.len()) {
            return Err(cut);
        }
    }
    Ok(())
}
