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
//! # Pages
//! What has been read through a map counts as the process's resident memory for as long as the system doesn't want the pages, which
//! may be for ever. A map with [`Residency::Brief`] lets them go when its reader says that they won't be needed soon. They stay in
//! the system's cache, so reading them again is no reading from the disk.
//!
//! Files that are read once from beginning to end (`.wtns`, JSON) aren't mapped: there a cut file is an ordinary error.
#![allow(unsafe_code)]

mod fault;

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::{Mmap, UncheckedAdvice};
use splitprover_core::ByteOwner;

use super::error::{FormatResult, Place};
use super::source::{FileIdentity, open_regular};

pub use fault::survive_shrinking;

/// How long the pages of a mapped file stay with the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residency {
    /// As long as the system lets them: for keys that prove again and again.
    #[default]
    Long,
    /// Until their reader is done with them for the time being: little memory, for some page faults in each proof.
    Brief,
}

/// A file mapped into memory, read-only.
#[derive(Debug)]
pub struct MappedFile {
    // Before `map`: a range is withdrawn before it is unmapped.
    registration: Option<fault::Registration>,
    map: Mmap,
    file: File,
    identity: FileIdentity,
    place: Place,
    residency: Residency,
}

impl MappedFile {
    /// Maps a regular file.
    ///
    /// # Errors
    /// If the file can't be opened or mapped, or isn't a regular file.
    pub fn open(path: &Path) -> FormatResult<Arc<Self>> {
        Self::open_for(path, Residency::Long)
    }

    /// Maps a regular file whose pages are to stay so long.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_for(path: &Path, residency: Residency) -> FormatResult<Arc<Self>> {
        let place = Place::file(path);
        let (file, identity) = open_regular(&place, path)?;
        Self::of(file, identity, place, residency, true)
    }

    /// Maps a file without a name, which nobody else can cut: it takes no place among those that are looked after.
    pub(super) fn anonymous(file: File, place: &Place) -> FormatResult<Arc<Self>> {
        let identity = FileIdentity::of(&file).map_err(|e| place.io("cannot look at", e))?;
        Self::of(file, identity, place.clone(), Residency::Long, false)
    }

    fn of(
        file: File,
        identity: FileIdentity,
        place: Place,
        residency: Residency,
        looked_after: bool,
    ) -> FormatResult<Arc<Self>> {
        let size = usize::try_from(identity.size)
            .map_err(|_| place.unexpected(None, "file size", "at most the address space", identity.size))?;
        // SAFETY: memmap2 asks that the file isn't changed while it is mapped, because a `&[u8]` over it promises
        // constant bytes. Other processes can break that promise whatever we do; the module documentation says what then
        // happens. This crate never writes to a file it has mapped (writers make new files and rename them), and no code
        // relies on two reads of a byte being equal for memory safety: readers copy values out, check the copy and use
        // the copy, or use values that can only make a result wrong.
        let map = unsafe { memmap2::MmapOptions::new().len(size).map(&file) }.map_err(|e| place.io("cannot map", e))?;
        let registration = looked_after.then(|| fault::Registration::new(&map));
        Ok(Arc::new(Self { registration, map, file, identity, place, residency }))
    }

    /// Lets go of the pages of a range, rounded outwards; what isn't in the file is left out.
    pub(super) fn let_go(&self, range: Range<usize>) {
        let length = range.end.min(self.map.len()).saturating_sub(range.start);
        if length == 0 {
            return;
        }
        // SAFETY: memmap2 warns of writes, since the pages of a private map would read as zeros from now on. This one is shared and
        // read-only, so they read as the file does, before and after: it is what the system itself does at any time when it is
        // short of memory. (A page that `fault` has put in place of a lost one reads as zeros, before and after.)
        let result = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, length) };
        debug_assert!(result.is_ok(), "letting go of {range:?}: {result:?}");
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

impl ByteOwner for MappedFile {
    fn wont_need(&self, range: Range<usize>) {
        if self.residency == Residency::Brief {
            self.let_go(range);
        }
    }

    fn lets_go(&self) -> bool {
        self.residency == Residency::Brief
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
        // Letting go doesn't bring the lost pages back, nor does growing.
        map.let_go(0..usize::MAX);
        assert!(bytes[1 << 16..].iter().all(|&byte| byte == 0));
        file.as_file().set_len(3 << 16).unwrap();
        assert!(map.has_lost_pages());
        other.check_unchanged().unwrap();
    }

    /// KiB of a map that are resident, as /proc/self/smaps says.
    fn resident(map: &MappedFile) -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", (*map).as_ref().as_ptr() as usize);
        let of_map = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let rss = of_map.filter_map(|line| line.strip_prefix("Rss:")).next().unwrap();
        rss.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn pages_that_were_let_go_of_leave_the_process_and_read_as_before() {
        let file = file_of(8);
        let sum = |map: &MappedFile| map.as_ref().iter().map(|&byte| usize::from(byte)).sum::<usize>();
        for (residency, stays) in [(Residency::Long, true), (Residency::Brief, false)] {
            let map = MappedFile::open_for(file.path(), residency).unwrap();
            assert_eq!(map.lets_go(), !stays);
            for _ in 0..2 {
                assert_eq!(sum(&map), 7 * (8 << 16));
                assert_eq!(resident(&map), 512);
                // Rounded outwards; what lies beyond the end doesn't matter.
                map.wont_need(1..(4 << 16) - 1);
                assert_eq!(resident(&map), if stays { 512 } else { 256 });
                map.wont_need(4 << 16..usize::MAX);
                map.wont_need(1 << 40..usize::MAX);
                assert_eq!(resident(&map), if stays { 512 } else { 0 });
            }
            map.let_go(0..usize::MAX);
            assert_eq!(resident(&map), 0);
            map.check_unchanged().unwrap();
        }
    }

    #[test]
    fn pages_may_be_let_go_of_while_others_read_them() {
        let file = file_of(8);
        let map = MappedFile::open_for(file.path(), Residency::Brief).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        assert!((*map).as_ref().iter().all(|&byte| byte == 7));
                    }
                });
            }
            for i in 0..200 {
                map.wont_need((i % 8) << 16..(i % 8 + 1) << 16);
            }
        });
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
