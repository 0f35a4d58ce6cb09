//! Programs that break the contract do not compile, each for the reason it was written for.
//!
//! Every program under `cases/` has a twin, `…_ok.rs`, that compiles as a part of this very test, and comments aside the two
//! differ in one line: so a program is refused for its mistake, not for a typing error around it. The compiler's words are
//! compared in full with the `.stderr` files (the toolchain is pinned; `TRYBUILD=overwrite` writes them anew), and the
//! errors in those files with the table below, so that new words can't slip in another reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What rustc says when a region doesn't outlive another; it has no code.
const LIFETIME: &str = "lifetime may not live long enough";

macro_rules! cases {
    ($($name:ident: $($error:expr),+;)*) => {
        /// The twins.
        #[allow(dead_code, unused_imports, unreachable_pub, elided_lifetimes_in_paths)]
        #[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
        mod twins {
            $(mod $name { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/cases/", stringify!($name), "_ok.rs")); })*
        }

        /// Programs, and the errors expected: codes, or the text of an error that has none.
        const CASES: &[(&str, &[&str])] = &[$((stringify!($name), &[$($error),+])),*];
    };
}

cases! {
    backend_started_by_the_caller: "E0308";
    blinding_printed: "E0616";
    blinding_used_twice: "E0382";
    buffer_cloned: "E0599";
    buffer_moved_out_of_a_loan: "E0308";
    closure_in_the_pending_proof: LIFETIME;
    destructured_completely: "E0638";
    finished_twice: "E0382";
    foreign_memory_without_unsafe: "E0200";
    future_in_the_pending_proof: LIFETIME;
    host_buffer_of_references: "E0277";
    inputs_borrowed_across_start: "E0505";
    inputs_cloned: "E0599";
    inputs_lent_by_the_caller: "E0599";
    inputs_started_twice: "E0382";
    inputs_used_after_start: "E0382";
    key_borrowed_by_the_pending_proof: LIFETIME;
    key_of_another_backend: "E0308";
    leaked_box: LIFETIME;
    lent_inputs_built_outside_core: "E0639";
    lent_inputs_updated_outside_core: "E0639";
    loan_behind_any: LIFETIME;
    loan_cloned: "E0599";
    loan_in_a_panic: "E0521";
    loan_in_a_resumed_panic: LIFETIME;
    loan_in_an_error: "E0308";
    loan_made_outside_core: "E0423";
    loan_moved_to_a_thread: "E0521";
    loan_read_after_release: "E0382";
    loan_sent_through_a_channel: "E0521";
    loan_swapped_with_a_kept_one: "E0521";
    pending_holds_a_loan: LIFETIME;
    pending_names_the_loan: "`impl` item signature doesn't match `trait` item signature";
    pending_through_the_provers_lifetime: LIFETIME;
    plain_element_claimed: "E0277";
    proof_of_unchecked_points: "E0451";
    prover_with_a_lifetime: "E0478", "E0803";
    released_while_a_thread_reads: "E0505";
    slice_in_the_pending_proof: LIFETIME, "E0597";
    slice_read_after_release: "E0505";
    slice_swapped_out_of_a_loan: LIFETIME, "E0597";
    slot_of_a_loan: "E0616";
    start_as_an_async_function: "E0053";
    start_for_static_loans_only: "E0308";
    start_where_the_loan_is_static: "E0195";
    stash_in_a_static: "E0521";
    stash_in_a_thread_local: "E0521";
    stash_in_the_key: "E0521";
    stash_in_the_prover: "E0521";
    stash_shared_with_the_pending_proof: "E0521";
    written_through_a_shared_loan: "E0594";
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

fn read(file: &str) -> String {
    fs::read_to_string(folder().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn code_lines(source: &str) -> Vec<&str> {
    source.lines().filter(|line| !line.starts_with("//")).collect()
}

#[test]
fn the_table_lists_every_program() {
    let expected: BTreeSet<String> = CASES
        .iter()
        .flat_map(|(name, _)| [format!("{name}.rs"), format!("{name}.stderr"), format!("{name}_ok.rs")])
        .collect();
    let found: BTreeSet<String> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, expected);
}

#[test]
fn each_program_is_one_line_away_from_its_twin() {
    for (name, _) in CASES {
        let (program, twin) = (read(&format!("{name}.rs")), read(&format!("{name}_ok.rs")));
        let (program, twin) = (code_lines(&program), code_lines(&twin));
        assert_eq!(program.len(), twin.len(), "{name}");
        let differing = program.iter().zip(&twin).filter(|(x, y)| x != y).count();
        assert_eq!(differing, 1, "{name}");
    }
}

#[test]
fn each_program_is_refused() {
    let programs = trybuild::TestCases::new();
    for (name, _) in CASES {
        programs.compile_fail(folder().join(format!("{name}.rs")));
    }
}

#[test]
fn each_program_is_refused_for_its_own_reason() {
    for (name, expected) in CASES {
        let stderr = read(&format!("{name}.stderr"));
        let found: BTreeSet<&str> = stderr
            .lines()
            .filter_map(|line| line.strip_prefix("error"))
            .map(|rest| match rest.strip_prefix('[') {
                Some(coded) => coded.split(']').next().unwrap(),
                None => rest.trim_start_matches(": "),
            })
            .collect();
        assert_eq!(found, expected.iter().copied().collect(), "{name}");
    }
}
