//! Read-only memory maps of files: the harness's one island of `unsafe`.
//!
//! # How far a file that changes under the map is handled
//! A key of tens of gigabytes can't be copied, so it is mapped, and the kernel shows changes of the file through the map.
//! * Nothing read from a map is ever undefined behaviour in the reading code: maps are only seen as bytes, values are copied
//!   out before they are looked at, and a value that changes between two looks can make a wrong proof, which verification
//!   finds, but never an access out of bounds.
//! * [`MappedFile::check_unchanged`] compares size and time of modification with those at opening. It is called after the
//!   checks of a key; call it again when a proof that used the map fails, or before a result is written.
//! * A read of a page that the file no longer has (it was cut) raises `SIGBUS`. A process that doesn't handle the signal
//!   ends. [`survive_shrinking`] installs a handler that puts zeros in place of the lost pages, so that the reader goes on
//!   and the check then reports the change. It is a decision for the whole process, so the program makes it, not a library.
//! * A writer that keeps the size and sets the modification time back isn't noticed. Neither is a change between the
//!   last check and the last read.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use super::error::{FormatResult, Place};
use super::source::{FileIdentity, open_regular};

/// A file mapped into memory, read-only.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
    file: File,
    identity: FileIdentity,
    place: Place,
}

impl MappedFile {
    /// Maps a regular file.
    ///
    /// # Errors
    /// If the file can't be opened or mapped, or isn't a regular file.
    pub fn open(path: &Path) -> FormatResult<Arc<Self>> {
        let place = Place::file(path);
        let (file, identity) = open_regular(&place, path)?;
        let size = usize::try_from(identity.size)
            .map_err(|_| place.unexpected(None, "file size", "at most the address space", identity.size))?;
        // SAFETY: memmap2 asks that the file isn't changed while it is mapped, because a `&[u8]` over it promises
        // constant bytes. Other processes can break that promise whatever we do; the module documentation says what then
        // happens. This crate never writes to a file it has mapped (writers make new files and rename them), and no code
        // relies on two reads of a byte being equal for memory safety: readers copy values out, check the copy and use
        // the copy, or use values that can only make a result wrong.
        let map = unsafe { memmap2::MmapOptions::new().len(size).map(&file) }.map_err(|e| place.io("cannot map", e))?;
        Ok(Arc::new(Self { map, file, identity, place }))
    }

    /// Device, inode, size and times of the file when it was opened.
    pub fn identity(&self) -> &FileIdentity {
        &self.identity
    }

    /// Fails if size or time of the file differ from what they were when it was opened.
    ///
    /// # Errors
    /// [`Problem::Changed`](super::Problem::Changed).
    pub fn check_unchanged(&self) -> FormatResult<()> {
        let now = FileIdentity::of(&self.file).map_err(|e| self.place.io("cannot look at", e))?;
        if self.identity.same_contents(&now) { Ok(()) } else { Err(self.place.changed()) }
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}
