//! Bytes to read from: an open file, read piece by piece, or memory.
//!
//! Reading with `pread` rather than through a map means that a file which shrinks under the reader gives an error and not a
//! fault: readers that need every byte once (`.wtns`) work this way.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::error::{FormatResult, Place};

/// Random access to bytes whose number is known.
pub(crate) trait Source: Sync {
    /// Number of bytes.
    fn size(&self) -> u64;
    /// Fills `out` from `offset` on, or fails.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        let bytes = from.and_then(|bytes| bytes.get(..out.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }
}

/// What tells a file from another, and from itself at another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Time of the last modification of the contents, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Time of the last change of contents or attributes, in nanoseconds since 1970.
    pub changed_ns: i128,
}

impl FileIdentity {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        let nanoseconds = |s: i64, ns: i64| i128::from(s).saturating_mul(1_000_000_000).saturating_add(i128::from(ns));
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified_ns: nanoseconds(meta.mtime(), meta.mtime_nsec()),
            changed_ns: nanoseconds(meta.ctime(), meta.ctime_nsec()),
        })
    }

    /// As bytes, to keep and compare.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [self.device, self.inode, self.size].into_iter().flat_map(u64::to_le_bytes);
        let times = [self.modified_ns, self.changed_ns].into_iter().flat_map(i128::to_le_bytes);
        bytes.iter_mut().zip(numbers.chain(times)).for_each(|(out, byte)| *out = byte);
        bytes
    }

    /// Bytes of [`to_bytes`](Self::to_bytes).
    pub(crate) const BYTES: usize = 3 * 8 + 2 * 16;

    /// Whether the contents are, by size and time, still the same. A new link or mode doesn't count.
    pub fn same_contents(&self, other: &Self) -> bool {
        (self.device, self.inode, self.size, self.modified_ns)
            == (other.device, other.inode, other.size, other.modified_ns)
    }
}

/// Opens a regular file. Anything else (a pipe would block, a device has no end) is refused.
pub(crate) fn open_regular(place: &Place, path: &Path) -> FormatResult<(File, FileIdentity)> {
    let fail = |e| place.io("cannot open", e);
    // Looked at before, because opening a device can do something to it, and after, because the name may stand for something
    // else by then.
    refuse_irregular(place, &std::fs::metadata(path).map_err(fail)?)?;
    let file = open_at_once(path).map_err(fail)?;
    refuse_irregular(place, &file.metadata().map_err(fail)?)?;
    let identity = FileIdentity::of(&file).map_err(|e| place.io("cannot look at", e))?;
    Ok((file, identity))
}

fn refuse_irregular(place: &Place, meta: &Metadata) -> FormatResult<()> {
    if meta.is_file() {
        return Ok(());
    }
    let found = if meta.is_dir() { "a folder" } else { "a pipe, socket or device" };
    Err(place.unexpected(None, "kind of file", "a regular file", found))
}

/// Opens a file to read without waiting: a named pipe is open at once, and has ended where nobody has it open to write.
fn open_at_once(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Opens what is read once from beginning to end: a regular file, or a pipe that somebody writes to. What a pipe's writer hasn't
/// written yet is waited for.
pub(crate) fn open_stream(place: &Place, path: &Path) -> FormatResult<File> {
    let open = || {
        let file = open_at_once(path)?;
        fcntl_setfl(&file, fcntl_getfl(&file)?.difference(OFlags::NONBLOCK))?;
        Ok(file)
    };
    open().map_err(|e| place.io("cannot open", e))
}

/// The first bytes of a regular file that has as many.
pub(crate) fn first_bytes<const N: usize>(path: &Path) -> Option<[u8; N]> {
    let (mut file, _) = open_regular(&Place::file(path), path).ok()?;
    let mut bytes = [0; N];
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// An open file, read with `pread`.
#[derive(Debug)]
pub(crate) struct FileSource {
    file: File,
    identity: FileIdentity,
}

impl FileSource {
    pub(crate) fn open(place: &Place, path: &Path) -> FormatResult<Self> {
        let (file, identity) = open_regular(place, path)?;
        Ok(Self { file, identity })
    }

    /// Fails if size or time of the file differ from what they were when it was opened.
    pub(crate) fn check_unchanged(&self, place: &Place) -> FormatResult<()> {
        let now = FileIdentity::of(&self.file).map_err(|e| place.io("cannot look at", e))?;
        if self.identity.same_contents(&now) { Ok(()) } else { Err(place.changed()) }
    }
}

impl Source for FileSource {
    fn size(&self) -> u64 {
        self.identity.size
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }
}
