//! Tests against an independent reader and prover: see the `tests` folder.
