//! `bench pipeline` as a user runs it: what it prints, writes and refuses.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use splitprover_tests::plugins;

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
    let bytes = |what: &str| result[what].as_u64().unwrap();
    assert!(bytes("promised_peak_bytes") > 0 && bytes("promised_peak_bytes") <= bytes("formula_bytes"), "{result}");
    assert_eq!(result["hung_calls"].as_u64(), Some(0));
    let shares = &result["device_shares"][0];
    assert!(shares["with_a_proof"].as_f64().is_some_and(|share| share > 0.0 && share <= 1.0), "{shares}");
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
        (&["--jobs", "1", "--pw", "18446744073709551615"], 2),
        (&["--jobs", "18446744073709551615"], 2),
        (&["--devices", "0,7"], 4),
        (&["--picture", "/nowhere/picture.svg"], 2),
        (&["--memory", "1GiB"], 2),
        (&["--project", "99"], 2),
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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn several_keys_take_turns_under_one_budget() {
    let output =
        pipeline(&["--jobs", "4", "--partitions", "2", "--keys", "2", "--loaded-keys", "1", "--pw", "2", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let status = &printed["results"][0]["status"];
    assert_eq!((status["partitions"]["proved"].as_u64(), printed["plan"]["keys"].as_u64()), (Some(8), Some(2)));
    assert_eq!(status["devices"][0]["keys"].as_array().map(Vec::len), Some(1));
    let bytes = |value: &serde_json::Value| value.as_u64().unwrap();
    let keys: u64 = status["keys"].as_array().unwrap().iter().map(|key| bytes(&key["host_bytes"])).sum();
    assert!(keys > 0 && keys == bytes(&printed["plan"]["key_bytes"]));
}

#[test]
fn a_second_device_is_measured_beside_the_first_alone() {
    // The CPU twice: two instances, as two cards are.
    let output = pipeline(&["--jobs", "2", "--partitions", "3", "--devices", "0,0", "--scaling"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let printed = text(&output.stdout);
    assert!(printed.contains("2 devices: ") && printed.contains(" times\n"), "{printed}");
    assert!(printed.contains("| hold none, permit through-send, queue workers, 2 devices |"), "{printed}");
    assert!(printed.contains("device 0 "), "{printed}");
}

#[test]
fn a_size_that_is_not_at_hand_is_projected() {
    let project = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_splitprover"))
            .args(["bench", "pipeline", "--project", "27", "--pw", "12", "--json"])
            .args(arguments)
            .output()
            .expect("the program runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let projected = project(&["--in-flight", "15"]);
    let (ours, held) = (&projected["results"][0], &projected["results"][1]);
    assert_eq!(
        (ours["partitions_with_inputs"].as_u64(), held["partitions_with_inputs"].as_u64()),
        (Some(16), Some(31))
    );
    // The inputs of a partition are 16 GiB, the key is 45.
    let gib = |value: &serde_json::Value| value["host_bytes"].as_u64().unwrap() >> 30;
    assert!((300..=302).contains(&gib(ours)) && (540..=542).contains(&gib(held)), "{projected}");
    assert_eq!((ours["most_workers"].as_u64(), held["most_workers"].as_u64()), (Some(40), Some(25)));
    let small = project(&["--memory", "96GiB"]);
    assert!(small["results"][0]["most_workers"].is_null(), "{small}");
}

#[test]
fn a_hung_backend_ends_the_program_with_exit_code_4_after_the_grace_period() {
    let plugin = plugins::misbehaving();
    let hung = |mode: &str, more: &[&str]| {
        let begin = Instant::now();
        let mode = format!("mode={mode}");
        let options = ["--backend", plugin.to_str().unwrap(), "--option", &mode, "--option", "above=32"];
        let small = ["--jobs", "1", "--partitions", "2", "--hang-after", "1", "--grace", "1"];
        let output = pipeline(&[&options[..], &small, more].concat());
        assert!(begin.elapsed() < Duration::from_secs(300), "it waited for a call that never returns");
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(text(&output.stderr).contains("do not return"), "{output:?}");
        assert!(text(&output.stderr).contains("quarantined"), "{output:?}");
        output
    };
    for mode in ["hang-in-start", "hang-in-finish"] {
        let output = hung(mode, &[]);
        assert!(text(&output.stderr).contains("no usable device is left"), "{output:?}");
        // What was asked for is proved even so; the code says that threads were left behind.
        let output = hung(mode, &["--fallback", "cpu", "--json"]);
        assert!(text(&output.stderr).contains("FALL-BACK"), "{output:?}");
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(printed["results"][0]["proofs"].as_u64(), Some(2), "{printed}");
        assert!(printed["results"][0]["hung_calls"].as_u64() >= Some(1));
    }
}

#[test]
fn a_fall_back_is_asked_for_and_seen() {
    let plugin = plugins::misbehaving();
    let options = ["--backend", plugin.to_str().unwrap(), "--option", "mode=panic-in-start", "--option", "above=32"];
    let panicking = [&options[..], &["--jobs", "2", "--partitions", "2"]].concat();
    let output = pipeline(&panicking);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(text(&output.stderr).contains("planned panic in start"), "{output:?}");
    assert!(!text(&output.stderr).contains("FALL-BACK"), "{output:?}");
    let output = pipeline(&[&panicking[..], &["--fallback", "cpu"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("FALL-BACK: no other device is left"), "{output:?}");
    assert!(text(&output.stdout).contains("cpu, as a fall-back: 4 proofs"), "{output:?}");
}

#[test]
fn an_interrupted_run_ends_at_once_and_leaves_no_partial_file() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let mut child = Command::new(env!("CARGO_BIN_EXE_splitprover"))
        .args(["bench", "pipeline", "--log2", "6", "--threads", "1", "--budget", "256MiB", "--jobs", "1"])
        .args(["--partitions", "3", "--finish-delay", "3600000", "--metrics"])
        .arg(folder.path().join("metrics"))
        .arg("--report")
        .arg(&report)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    // It proves, and then waits for an hour.
    let begin = Instant::now();
    while !folder.path().join("metrics").exists() {
        assert!(begin.elapsed() < Duration::from_secs(120), "it never began");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    // SIGTERM: SIGINT may be ignored where this is started in the background.
    let number = child.id().to_string();
    assert!(Command::new("kill").args(["-15", &number]).status().expect("kill runs").success());
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(15), "{status}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["metrics"]);
}

#[cfg(feature = "bench-hold")]
#[test]
fn a_sweep_has_a_row_for_each_combination_of_switches() {
    let small = ["--jobs", "2", "--partitions", "1", "--pw", "2"];
    for (which, delay, rows) in [("--sweep", "20", 5), ("--sweep=every", "20", 16), ("--sweep=every", "0", 8)] {
        let output = pipeline(&[&small[..], &[which, "--finish-delay", delay]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let printed = text(&output.stdout);
        let table: std::collections::HashSet<_> = printed.lines().filter(|line| line.starts_with("| hold ")).collect();
        assert_eq!(table.len(), rows, "{printed}");
        assert_eq!(printed.matches("hold finish, permit before-send, queue unbounded").count(), 2 * rows.div_ceil(8));
        // With and without the pause, where there is one.
        let with = table.iter().filter(|line| line.contains("finish delay")).count();
        assert_eq!(with, [rows, rows / 2, 0][[5, 16, 8].iter().position(|&r| r == rows).unwrap()], "{printed}");
    }
}
