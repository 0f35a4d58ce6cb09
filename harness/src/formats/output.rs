//! Output files that appear whole or not at all.
//!
//! What is written goes to a temporary file beside the target, is flushed to the disk, and takes the target's name in one step.
//! A crash, a full disk or an interrupted run leaves whatever was there before.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::error::{FormatResult, Place};

/// Bytes gathered before they go to the system.
const BUFFER: usize = 1 << 20;

enum Sink {
    /// Written beside the target, renamed in the end.
    Temporary(BufWriter<NamedTempFile>, PathBuf),
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
                let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
                let temporary = tempfile::Builder::new()
                    .prefix(".splitprover-")
                    .suffix(".part")
                    // As for any new file: the process's mask decides.
                    .permissions(Permissions::from_mode(0o666))
                    .tempfile_in(folder.unwrap_or(Path::new(".")))
                    .map_err(fail)?;
                Sink::Temporary(BufWriter::with_capacity(BUFFER, temporary), target)
            }
        };
        Ok(Self { sink, place })
    }

    /// Flushes everything to the disk; only the new name is missing then.
    fn complete(&mut self) -> FormatResult<()> {
        let done = match &mut self.sink {
            Sink::Temporary(writer, _) => writer.flush().and_then(|()| writer.get_ref().as_file().sync_all()),
            Sink::Direct(writer) => writer.flush(),
        };
        done.map_err(|e| self.place.io("cannot write", e))
    }

    /// Gives the file its name.
    fn appear(self) -> FormatResult<()> {
        let Self { sink, place } = self;
        match sink {
            Sink::Direct(_) => Ok(()),
            Sink::Temporary(writer, target) => {
                let temporary = writer.into_inner().map_err(|e| place.io("cannot write", e.into_error()))?;
                temporary.persist(&target).map_err(|e| place.io("cannot rename the finished file", e.error))?;
                Ok(())
            }
        }
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

    #[test]
    fn a_file_appears_on_commit_and_an_abandoned_one_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        std::fs::write(&path, "old").unwrap();
        let mut output = OutputFile::create(&path).unwrap();
        output.write_all(b"half").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        drop(output);
        assert_eq!(names(folder.path()), ["out"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");

        let mut output = OutputFile::create(&path).unwrap();
        output.write_all(b"new").unwrap();
        output.commit().unwrap();
        assert_eq!(names(folder.path()), ["out"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
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
    fn permissions_are_those_of_any_new_file_and_links_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, ours) = (folder.path().join("plain"), folder.path().join("ours"));
        std::fs::write(&plain, "").unwrap();
        write_files(&[(&ours, b"x")]).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&plain), mode(&ours));

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
