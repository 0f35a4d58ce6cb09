//! Output files that appear whole or not at all.
//!
//! What is written goes to a temporary file in the target's folder, is flushed to the disk, and takes the target's name in one
//! step. A crash, a full disk or an interrupted run leaves whatever was there before. Where the file system can, the
//! temporary file has no name until it is complete, so that an interrupted run doesn't even leave that.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, linkat};
use tempfile::NamedTempFile;

use super::error::{FormatResult, Place};

/// Bytes gathered before they go to the system.
const BUFFER: usize = 1 << 20;

/// Permissions of a new file, before the process's mask.
const MODE: u32 = 0o666;

/// A file in the making in some folder, which gets its name in the end, or is gone when it is dropped.
pub(super) enum Temporary {
    /// It has no name: nothing is left of it if this process is killed.
    Unnamed(File, PathBuf),
    /// It has another name: the file system knows no files without one.
    Named(NamedTempFile),
}

impl Temporary {
    /// Begins a file in a folder, with permissions that the process's mask takes away from.
    pub(super) fn in_folder(folder: &Path, mode: u32) -> io::Result<Self> {
        Self::begin(folder, mode, true)
    }

    fn begin(folder: &Path, mode: u32, unnamed: bool) -> io::Result<Self> {
        if let Some(file) = Some(folder).filter(|_| unnamed).and_then(|folder| unnamed_file(folder, mode)) {
            return Ok(Self::Unnamed(file, folder.to_owned()));
        }
        let mut builder = named();
        builder.permissions(Permissions::from_mode(mode));
        builder.tempfile_in(folder).map(Self::Named)
    }

    pub(super) fn file(&self) -> &File {
        match self {
            Self::Unnamed(file, _) => file,
            Self::Named(temporary) => temporary.as_file(),
        }
    }

    /// Gives the file its name, in place of what had it.
    pub(super) fn persist(self, target: &Path) -> io::Result<()> {
        let temporary = match self {
            // A link never replaces a file, so the name is another one first.
            Self::Unnamed(file, folder) => named().make_in(folder, |name| link(&file, name))?.into_temp_path(),
            Self::Named(temporary) => temporary.into_temp_path(),
        };
        temporary.persist(target).map_err(|e| e.error)
    }
}

impl Write for Temporary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

enum Sink {
    /// A file in the target's folder, which gets its name in the end.
    Temporary(BufWriter<Temporary>, PathBuf),
    /// The target is a pipe or device: there is nothing to replace.
    Direct(BufWriter<File>),
}

/// A file in the making. It appears when [`commit`](Self::commit) succeeds; dropped before, it leaves nothing.
pub struct OutputFile {
    sink: Sink,
    place: Place,
}

impl std::fmt::Debug for OutputFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OutputFile({:?})", self.place)
    }
}

impl OutputFile {
    /// Begins a file that will be at `path`. Where there is a file already it stays until [`commit`](Self::commit); a
    /// symbolic link stays one, and what it points to is replaced.
    ///
    /// # Errors
    /// If no file can be made in the target's folder, or the target is a folder.
    pub fn create(path: &Path) -> FormatResult<Self> {
        Self::begin(path, true)
    }

    fn begin(path: &Path, unnamed: bool) -> FormatResult<Self> {
        let place = Place::file(path);
        let fail = |e| place.io("cannot create", e);
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let sink = match std::fs::metadata(&target) {
            Ok(meta) if meta.is_dir() => return Err(fail(io::ErrorKind::IsADirectory.into())),
            Ok(meta) if !meta.is_file() => {
                let file = OpenOptions::new().write(true).open(&target).map_err(fail)?;
                Sink::Direct(BufWriter::with_capacity(BUFFER, file))
            }
            _ => {
                let file = Temporary::begin(folder_of(&target), MODE, unnamed).map_err(fail)?;
                Sink::Temporary(BufWriter::with_capacity(BUFFER, file), target)
            }
        };
        Ok(Self { sink, place })
    }

    /// Flushes everything to the disk; only the new name is missing then.
    fn complete(&mut self) -> FormatResult<()> {
        let done = match &mut self.sink {
            Sink::Temporary(writer, _) => writer.flush().and_then(|()| writer.get_ref().file().sync_all()),
            Sink::Direct(writer) => writer.flush(),
        };
        done.map_err(|e| self.place.io("cannot write", e))
    }

    /// Gives the file its name.
    fn appear(self) -> FormatResult<()> {
        let Self { sink, place } = self;
        let appeared = match sink {
            Sink::Direct(_) => Ok(()),
            Sink::Temporary(writer, target) => {
                writer.into_inner().map_err(|e| e.into_error()).and_then(|temporary| temporary.persist(&target))
            }
        };
        appeared.map_err(|e| place.io("cannot give the finished file its name", e))
    }

    /// Makes the file appear under its name, in place of what was there.
    ///
    /// # Errors
    /// If it can't be written to the end; then nothing has changed.
    pub fn commit(mut self) -> FormatResult<()> {
        self.complete()?;
        self.appear()
    }

    /// Makes several files appear. All of them are complete on the disk before the first gets its name, so that only a
    /// failing rename can leave some of them.
    ///
    /// # Errors
    /// If one of them can't be written to the end; then nothing has changed. If a rename fails.
    pub fn commit_all(mut files: Vec<Self>) -> FormatResult<()> {
        files.iter_mut().try_for_each(Self::complete)?;
        files.into_iter().try_for_each(Self::appear)
    }

    /// Writes with a closure, and says which file it was if that fails.
    pub(crate) fn fill(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> FormatResult<()> {
        write(self).map_err(|e| self.place.io("cannot write", e))
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Temporary(writer, _) => writer.write(bytes),
            Sink::Direct(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Temporary(writer, _) => writer.flush(),
            Sink::Direct(writer) => writer.flush(),
        }
    }
}

fn folder_of(target: &Path) -> &Path {
    target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn named() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".splitprover-").suffix(".part");
    builder
}

/// A file without a name, if the system and the file system have such, and can give it a name later.
fn unnamed_file(folder: &Path, mode: u32) -> Option<File> {
    let file = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).mode(mode).open(folder).ok()?;
    descriptor(&file).exists().then_some(file)
}

fn descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Gives a file without a name its first one.
fn link(file: &File, name: &Path) -> io::Result<()> {
    Ok(linkat(CWD, descriptor(file), CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// Writes files with these contents; all of them appear, or none.
///
/// # Errors
/// As [`OutputFile::commit_all`].
pub fn write_files(files: &[(&Path, &[u8])]) -> FormatResult<()> {
    let mut outputs = Vec::with_capacity(files.len());
    for (path, contents) in files {
        let mut output = OutputFile::create(path)?;
        output.fill(|out| out.write_all(contents))?;
        outputs.push(output);
    }
    OutputFile::commit_all(outputs)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode()
    }

    #[test]
    fn a_file_appears_on_commit_and_an_abandoned_one_leaves_nothing() {
        for unnamed in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("out");
            std::fs::write(&path, "old").unwrap();
            let usual = mode(&path);
            let mut output = OutputFile::begin(&path, unnamed).unwrap();
            output.write_all(b"half").unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"old");
            if let Sink::Temporary(writer, _) = &output.sink
                && let Temporary::Unnamed(..) = writer.get_ref()
            {
                assert_eq!(names(folder.path()), ["out"]);
            }
            drop(output);
            assert_eq!(names(folder.path()), ["out"]);
            assert_eq!(std::fs::read(&path).unwrap(), b"old");

            let mut output = OutputFile::begin(&path, unnamed).unwrap();
            output.write_all(b"new").unwrap();
            output.commit().unwrap();
            assert_eq!(names(folder.path()), ["out"]);
            assert_eq!(std::fs::read(&path).unwrap(), b"new");
            assert_eq!(mode(&path), usual);
        }
    }

    #[test]
    fn several_files_appear_together_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("none/b"));
        let error = write_files(&[(&a, b"1"), (&b, b"2")]).unwrap_err();
        assert_eq!(error.file(), b);
        assert!(names(folder.path()).is_empty());
        let b = folder.path().join("b");
        write_files(&[(&a, b"1"), (&b, b"2")]).unwrap();
        assert_eq!(names(folder.path()), ["a", "b"]);
    }

    #[test]
    fn a_link_stays_and_what_it_points_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join("ours");
        write_files(&[(&ours, b"x")]).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("ours", &link).unwrap();
        write_files(&[(&link, b"y")]).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&ours).unwrap(), b"y");
    }

    #[test]
    fn devices_are_written_to_and_folders_refused() {
        write_files(&[(Path::new("/dev/null"), b"x")]).unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        let folder = tempfile::tempdir().unwrap();
        assert!(write_files(&[(folder.path(), b"x")]).unwrap_err().to_string().contains("cannot create"));
    }
}
