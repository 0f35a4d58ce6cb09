//! Read-only memory maps of files: the harness's island of `unsafe`, with [`fault`].
//!
//! # How far a file that changes under the map is handled
//! A key of tens of gigabytes can't be copied, so it is mapped, and the kernel shows changes of the file through the map.
//! * Readers see a map as bytes only, and nothing they do for memory's sake depends on two reads of a byte being equal: a
//!   value is copied out before it is checked and used, or is one that can only make a result wrong. Wrong results are
//!   found, because every proof is verified.
//! * [`MappedFile::check_unchanged`] compares size and time of modification with those at opening. It is called at the end of
//!   a key's checks; call it again when a proof that used the map fails, and before a result is written.
//! * A read of a page that the file no longer has (it was cut) raises `SIGBUS`, which ends a process that doesn't handle it.
//!   [`survive_shrinking`] handles it: the reader sees zeros and goes on, and the check then reports the change. That is
//!   a decision for the whole process, so programs make it, not libraries.
//! * Not noticed: a writer that keeps the size and sets the modification time back, and a change between the last check
//!   and the last read. Not handled: a disk that fails under the map, where no handler was installed.
//!
//! Files that are read once from beginning to end (`.wtns`, JSON) aren't mapped: there a cut file is an ordinary error.
#![allow(unsafe_code)]

mod fault;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use super::error::{FormatResult, Place};
use super::source::{FileIdentity, open_regular};

pub use fault::survive_shrinking;

/// A file mapped into memory, read-only.
#[derive(Debug)]
pub struct MappedFile {
    // Before `map`: a range is withdrawn before it is unmapped.
    registration: Option<fault::Registration>,
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
        Self::of(file, identity, place, true)
    }

    /// Maps a file without a name, which nobody else can cut: it takes no place among those that are looked after.
    pub(super) fn anonymous(file: File, place: &Place) -> FormatResult<Arc<Self>> {
        let identity = FileIdentity::of(&file).map_err(|e| place.io("cannot look at", e))?;
        Self::of(file, identity, place.clone(), false)
    }

    /// Maps the same file anew: none of its pages is resident on this map's account then.
    pub(super) fn again(&self) -> FormatResult<Arc<Self>> {
        let file = self.file.try_clone().map_err(|e| self.place.io("cannot open again", e))?;
        let map = Self::of(file, self.identity, self.place.clone(), true)?;
        map.check_unchanged()?;
        Ok(map)
    }

    fn of(file: File, identity: FileIdentity, place: Place, looked_after: bool) -> FormatResult<Arc<Self>> {
        let size = usize::try_from(identity.size)
            .map_err(|_| place.unexpected(None, "file size", "at most the address space", identity.size))?;
        // SAFETY: memmap2 asks that the file isn't changed while it is mapped, because a `&[u8]` over it promises
        // constant bytes. Other processes can break that promise whatever we do; the module documentation says what then
        // happens. This crate never writes to a file it has mapped (writers make new files and rename them), and no code
        // relies on two reads of a byte being equal for memory safety: readers copy values out, check the copy and use
        // the copy, or use values that can only make a result wrong.
        let map = unsafe { memmap2::MmapOptions::new().len(size).map(&file) }.map_err(|e| place.io("cannot map", e))?;
        let registration = looked_after.then(|| fault::Registration::new(&map));
        Ok(Arc::new(Self { registration, map, file, identity, place }))
    }

    /// Device, inode, size and times of the file when it was opened.
    pub fn identity(&self) -> &FileIdentity {
        &self.identity
    }

    /// Fails if size or time of the file differ from what they were when it was opened, or pages were lost meanwhile.
    ///
    /// # Errors
    /// [`Problem::Changed`](super::Problem::Changed).
    pub fn check_unchanged(&self) -> FormatResult<()> {
        let now = FileIdentity::of(&self.file).map_err(|e| self.place.io("cannot look at", e))?;
        let same = self.identity.same_contents(&now) && !self.has_lost_pages();
        if same { Ok(()) } else { Err(self.place.changed()) }
    }

    fn has_lost_pages(&self) -> bool {
        self.registration.as_ref().is_some_and(|registration| registration.has_lost_pages())
    }

    /// The result of reading this file, or, if the file has changed meanwhile, that: what was read from it then means nothing.
    pub(super) fn unless_changed<T>(&self, result: FormatResult<T>) -> FormatResult<T> {
        self.check_unchanged()?;
        result
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file_of(pages: usize) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![7; pages << 16]).unwrap();
        file.flush().unwrap();
        file
    }

    #[test]
    fn a_file_that_is_cut_under_the_map_reads_as_zeros_and_is_reported() {
        survive_shrinking().unwrap();
        let file = file_of(3);
        let map = MappedFile::open(file.path()).unwrap();
        let other = MappedFile::open(file_of(1).path()).unwrap();
        map.check_unchanged().unwrap();
        file.as_file().set_len(1 << 16).unwrap();
        let bytes: &[u8] = (*map).as_ref();
        assert!(bytes[..1 << 16].iter().all(|&byte| byte == 7));
        assert!(bytes[1 << 16..].iter().all(|&byte| byte == 0));
        assert!(matches!(map.check_unchanged().unwrap_err().problem(), super::super::Problem::Changed));
        // Growing back doesn't bring the lost pages back.
        file.as_file().set_len(3 << 16).unwrap();
        assert!(map.has_lost_pages());
        other.check_unchanged().unwrap();
    }

    #[test]
    fn a_file_that_is_written_to_is_reported() {
        let mut file = file_of(1);
        let map = MappedFile::open(file.path()).unwrap();
        file.write_all(b"more").unwrap();
        assert!(map.check_unchanged().is_err());
        assert!(map.unless_changed(Ok(())).is_err());
    }

    #[test]
    fn empty_files_are_mapped_and_what_is_no_file_is_refused() {
        let empty = file_of(0);
        let map = MappedFile::open(empty.path()).unwrap();
        assert_eq!((*map).as_ref(), b"");
        for (path, found) in [("/dev/zero", "device"), ("/", "a folder"), ("/nowhere/at/all", "cannot open")] {
            let message = MappedFile::open(Path::new(path)).unwrap_err().to_string();
            assert!(message.contains(found), "{message}");
        }
    }
}
