//! `bench pipeline` as a user runs it: what it prints, writes and refuses.

use std::process::{Command, Output};

fn pipeline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_splitprover"))
        .args(["bench", "pipeline", "--synthetic", "mixed", "--log2", "6", "--threads", "1", "--budget", "256MiB"])
        .args(arguments)
        .output()
        .expect("the program runs")
}

#[test]
fn a_run_proves_everything_holds_nothing_and_leaves_a_report_and_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
    let (report, picture, metrics) = (path("report.json"), path("picture.svg"), path("metrics.prom"));
    let output = pipeline(&[
        "--jobs",
        "3",
        "--partitions",
        "2",
        "--pw",
        "3",
        "--json",
        "--report",
        &report,
        "--picture",
        &picture,
        "--metrics",
        &metrics,
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &printed["results"][0];
    assert_eq!((result["proofs"].as_u64(), result["status"]["partitions"]["proved"].as_u64()), (Some(6), Some(6)));
    assert_eq!(result["status"]["evaluations_beyond_start_peak_bytes"].as_u64(), Some(0));
    let written: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    let marks = written["results"][0]["marks"].as_array().unwrap();
    assert_eq!(marks.iter().filter(|mark| mark["step"] == "finished").count(), 6);
    assert!(!written["results"][0]["ledger_history"].as_array().unwrap().is_empty());
    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>") && picture.contains("evaluations"));
    assert!(std::fs::read_to_string(metrics).unwrap().contains("splitprover_proofs_total 6\n"));
}

#[test]
fn inputs_made_beforehand_and_a_fallback_device_are_offered() {
    let output =
        pipeline(&["--jobs", "1", "--partitions", "3", "--source", "premade", "--fallback", "cpu", "--no-evaluations"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("3 proofs in"));
}

#[test]
fn what_cannot_be_is_refused_with_its_exit_code() {
    let refused = [
        (&["--budget", "1KiB"][..], 4),
        (&["--budget", "1000000TiB"], 2),
        (&["--queue", "some"], 2),
        (&["--zkey", "/nowhere.zkey"], 3),
        (&["--backend", "/nowhere.so"], 4),
        (&["--jobs", "1", "--pw", "0"], 2),
    ];
    for (arguments, expected) in refused {
        // Of an option given twice clap would take neither: the budget of the usual arguments goes.
        let output = Command::new(env!("CARGO_BIN_EXE_splitprover"))
            .args(["bench", "pipeline", "--log2", "6"])
            .args(arguments)
            .output()
            .expect("the program runs");
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}: {output:?}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
    }
    if cfg!(not(feature = "bench-hold")) {
        let output = pipeline(&["--hold", "finish"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("bench-hold"));
    }
}
