//! What is wrong with a file: which file, where in it, what was expected and what was found, in one line.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Why a file was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The operating system failed.
    #[error("{doing}: {source}")]
    Io {
        /// The operation, as in "cannot open".
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The file's size, time or contents changed while it was in use.
    #[error("the file changed while it was read")]
    Changed,
    /// The file belongs to another curve.
    #[error("made for {found}: only BLS12-381 is supported")]
    OtherCurve {
        /// The curve's name, or the prime where it has none we know.
        found: String,
    },
    /// Something isn't as the format wants it.
    #[error("{what}: expected {expected}, found {found}")]
    Unexpected {
        /// The field or value looked at.
        what: String,
        /// What the format asks for.
        expected: String,
        /// What is there.
        found: String,
    },
}

#[derive(Debug)]
struct Details {
    place: Place,
    offset: Option<u64>,
    problem: Problem,
}

/// A file that could not be read or written: file, section, offset, problem.
#[derive(Debug)]
pub struct FormatError(Box<Details>);

/// The result of reading or writing a file.
pub type FormatResult<T> = Result<T, FormatError>;

impl FormatError {
    /// The file.
    pub fn file(&self) -> &Path {
        &self.0.place.file
    }

    /// Type and name of the section, where the format has sections.
    pub fn section(&self) -> Option<(u32, &'static str)> {
        self.0.place.section
    }

    /// Offset in bytes from the beginning of the file, where there is one.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// What is wrong.
    pub fn problem(&self) -> &Problem {
        &self.0.problem
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { place, offset, problem } = &*self.0;
        // File names may hold line breaks and terminal escapes; the message stays one harmless line.
        write!(f, "{}: ", place.file.display().to_string().escape_debug())?;
        if let Some((kind, name)) = place.section {
            write!(f, "section {kind} ({name}), ")?;
        }
        if let Some(offset) = offset {
            write!(f, "offset {offset}: ")?;
        }
        write!(f, "{problem}")
    }
}

impl std::error::Error for FormatError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.problem {
            Problem::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Where a reader is: what its errors say.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    file: Arc<Path>,
    section: Option<(u32, &'static str)>,
}

impl Place {
    pub(crate) fn file(path: &Path) -> Self {
        Self { file: path.into(), section: None }
    }

    pub(crate) fn section(&self, kind: u32, name: &'static str) -> Self {
        Self { file: self.file.clone(), section: Some((kind, name)) }
    }

    /// The file's name, as messages say it.
    pub(crate) fn name(&self) -> String {
        self.file.display().to_string().escape_debug().to_string()
    }

    fn error(&self, offset: Option<u64>, problem: Problem) -> FormatError {
        FormatError(Box::new(Details { place: self.clone(), offset, problem }))
    }

    pub(crate) fn io(&self, doing: &'static str, source: io::Error) -> FormatError {
        self.error(None, Problem::Io { doing, source })
    }

    /// A failed read: the end of the file where it wasn't when the reading began means that the file shrank.
    pub(crate) fn read_failed(&self, source: io::Error) -> FormatError {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => self.changed(),
            _ => self.io("cannot read", source),
        }
    }

    pub(crate) fn changed(&self) -> FormatError {
        self.error(None, Problem::Changed)
    }

    pub(crate) fn other_curve(&self, offset: impl Into<Option<u64>>, found: impl Into<String>) -> FormatError {
        self.error(offset.into(), Problem::OtherCurve { found: found.into() })
    }

    pub(crate) fn unexpected(
        &self,
        offset: impl Into<Option<u64>>,
        what: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> FormatError {
        let problem =
            Problem::Unexpected { what: what.into(), expected: expected.to_string(), found: found.to_string() };
        self.error(offset.into(), problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line_and_name_the_place() {
        let place = Place::file(Path::new("a\n\x1b[2Jb.zkey")).section(4, "coefficients");
        let message = place.unexpected(99, "matrix", "0 or 1", 2).to_string();
        assert_eq!(
            message,
            r"a\n\u{1b}[2Jb.zkey: section 4 (coefficients), offset 99: matrix: expected 0 or 1, found 2"
        );
        let io = Place::file(Path::new("x")).io("cannot open", io::ErrorKind::NotFound.into());
        assert_eq!(io.to_string(), "x: cannot open: entity not found");
        assert!(std::error::Error::source(&io).is_some());
    }
}
