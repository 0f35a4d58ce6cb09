//! Where backends are looked for.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::library::LibraryError;

/// The environment variable with places to search: folders and files, separated by colons, absolute.
pub const SEARCH_VARIABLE: &str = "SPLITPROVER_BACKENDS";

const PREFIX: &str = "libsplitprover_backend_";
const SUFFIX: &str = ".so";

/// The file that holds the backend of this name.
pub fn file_name(name: &str) -> String {
    format!("{PREFIX}{}{SUFFIX}", name.replace('-', "_"))
}

/// A file to try, or a place that can't be one and why.
pub(super) type Candidate = Result<PathBuf, (PathBuf, LibraryError)>;

/// Folders, and files in place of folders, in the order in which they are searched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchPath {
    places: Vec<PathBuf>,
}

impl SearchPath {
    /// These places. Relative ones are reported, and not searched: what they mean would depend on where a program is started.
    pub fn new(places: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { places: places.into_iter().filter(|place| !place.as_os_str().is_empty()).collect() }
    }

    /// `SPLITPROVER_BACKENDS`, then the executable's folder.
    pub fn of_process() -> Self {
        let executable = std::env::current_exe().ok();
        Self::of(std::env::var_os(SEARCH_VARIABLE).as_deref(), executable.as_deref())
    }

    /// As [`of_process`](Self::of_process), of a given value and a given executable.
    pub fn of(variable: Option<&OsStr>, executable: Option<&Path>) -> Self {
        let listed = variable.map(|list| std::env::split_paths(list).collect::<Vec<_>>()).unwrap_or_default();
        let beside = executable.and_then(Path::parent).map(Path::to_owned);
        Self::new(listed.into_iter().chain(beside))
    }

    /// The places.
    pub fn places(&self) -> &[PathBuf] {
        &self.places
    }

    /// The files to try for a name, in order.
    pub(super) fn candidates(&self, name: &str) -> Vec<Candidate> {
        let file = file_name(name);
        self.places
            .iter()
            .filter_map(|place| match checked(place) {
                Err(reason) => Some(Err((place.clone(), reason))),
                Ok(()) if place.is_dir() => Some(Ok(place.join(&file))),
                Ok(()) => (place.file_name() == Some(OsStr::new(&file))).then(|| Ok(place.clone())),
            })
            .collect()
    }

    /// All files that are named like backends, and places that can't be searched.
    pub(super) fn all(&self) -> Vec<Candidate> {
        let mut found: Vec<Candidate> = Vec::new();
        for place in &self.places {
            let listing = match checked(place) {
                Err(reason) => Err(reason),
                Ok(()) if place.is_dir() => {
                    std::fs::read_dir(place).map_err(|e| LibraryError::Unreadable(e.to_string()))
                }
                Ok(()) => {
                    found.push(Ok(place.clone()));
                    continue;
                }
            };
            match listing {
                Err(reason) => found.push(Err((place.clone(), reason))),
                Ok(entries) => {
                    let mut files: Vec<_> =
                        entries.flatten().map(|entry| entry.path()).filter(|p| is_backend(p)).collect();
                    files.sort();
                    found.extend(files.into_iter().map(Ok));
                }
            }
        }
        found
    }
}

fn checked(place: &Path) -> Result<(), LibraryError> {
    if place.is_relative() {
        Err(LibraryError::Relative)
    } else if !place.exists() {
        Err(LibraryError::NoSuchFile)
    } else {
        Ok(())
    }
}

fn is_backend(path: &Path) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_comes_before_the_executables_folder_and_relative_places_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        for place in [&first, &second] {
            std::fs::create_dir(place).unwrap();
            std::fs::write(place.join(file_name("my-card")), "").unwrap();
            std::fs::write(place.join("unrelated.so"), "").unwrap();
        }
        let list =
            std::env::join_paths([first.clone(), PathBuf::from("relative"), folder.path().join("none")]).unwrap();
        let search = SearchPath::of(Some(&list), Some(&second.join("splitprover")));
        let expected = |place: &Path| place.join("libsplitprover_backend_my_card.so");
        for candidates in [search.candidates("my-card"), search.all()] {
            let mut candidates = candidates.into_iter();
            assert_eq!(candidates.next().unwrap().unwrap(), expected(&first));
            let (place, reason) = candidates.next().unwrap().unwrap_err();
            assert!(place == Path::new("relative") && matches!(reason, LibraryError::Relative));
            let (place, reason) = candidates.next().unwrap().unwrap_err();
            assert!(place.ends_with("none") && matches!(reason, LibraryError::NoSuchFile));
            assert_eq!(candidates.next().unwrap().unwrap(), expected(&second));
            assert!(candidates.next().is_none());
        }
    }

    #[test]
    fn a_file_in_the_list_stands_for_itself() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(file_name("x"));
        std::fs::write(&file, "").unwrap();
        let search = SearchPath::of(Some(file.as_os_str()), None);
        assert_eq!(search.candidates("x").into_iter().map(Result::unwrap).collect::<Vec<_>>(), [file]);
        assert!(search.candidates("y").is_empty());
        assert!(SearchPath::of(Some(OsStr::new("")), None).places().is_empty());
    }
}
