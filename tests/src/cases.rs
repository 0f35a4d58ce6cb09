//! The real cases: circuits compiled by circom, set up and proved by snarkjs.

use std::path::{Path, PathBuf};

/// The repository's folder of cases.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// The folders of cases that hold a BLS12-381 circuit: those of the repository, and those of the folder named by
/// `SPLITPROVER_CASES` that the repository doesn't have.
///
/// # Panics
/// If a folder can't be read.
pub fn circuits() -> Vec<PathBuf> {
    let mut roots = vec![root()];
    roots.extend(std::env::var_os("SPLITPROVER_CASES").map(PathBuf::from));
    let mut cases: Vec<PathBuf> = Vec::new();
    for root in roots {
        let mut found: Vec<_> = std::fs::read_dir(&root)
            .unwrap_or_else(|e| panic!("{}: {e}", root.display()))
            .map(|entry| entry.expect("a folder entry").path())
            .filter(|path| path.join("circuit.zkey").is_file() && !path.ends_with("x_bn128_mul2"))
            .filter(|path| cases.iter().all(|known| known.file_name() != path.file_name()))
            .collect();
        found.sort();
        cases.extend(found);
    }
    cases
}
