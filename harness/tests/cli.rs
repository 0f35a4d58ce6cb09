//! The program as a user runs it: real cases, exit codes, messages, output files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use splitprover_tests::{cases, needs};

fn run<A: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = A>) -> Output {
    // A cache of its own, so that no test depends on what another run left behind.
    let cache = std::env::temp_dir().join(format!("splitprover-cli-test-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_splitprover"))
        .args(arguments)
        .env("XDG_CACHE_HOME", &cache)
        .output()
        .expect("the program runs");
    assert!(output.status.code().is_some(), "killed by a signal: {output:?}");
    output
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn expect(output: &Output, expected: i32) {
    assert_eq!(code(output), expected, "{output:?}");
    assert!(!stderr(output).contains("panicked"), "{output:?}");
    if expected != 0 && expected != 2 {
        assert_eq!(stderr(output).lines().filter(|l| !l.contains("warning: ")).count(), 1, "one line: {output:?}");
    }
}

fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(name)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn case(name: &str) -> PathBuf {
    cases::root().join(name)
}

/// r and s of a case, as `--insecure-blinding` takes them.
fn blinding(case: &Path) -> String {
    let json: serde_json::Value = serde_json::from_str(&read(&case.join("rs.json"))).unwrap();
    format!("{},{}", json["r"].as_str().unwrap(), json["s"].as_str().unwrap())
}

#[test]
fn every_case_gives_the_expected_proof_public_inputs_and_verification_key() {
    let out = tempfile::tempdir().unwrap();
    let [proof, public, vkey] = ["proof.json", "public.json", "vkey.json"].map(|name| path(out.path(), name));
    let cases = cases::circuits();
    assert!(cases.len() > 20, "only {} cases", cases.len());
    for case in cases {
        let (zkey, wtns) = (case.join("circuit.zkey"), case.join("witness.wtns"));
        let rs = blinding(&case);
        let args = ["prove".as_ref(), zkey.as_os_str(), wtns.as_os_str(), proof.as_os_str(), public.as_os_str()];
        let output = run(args.into_iter().chain(["--insecure-blinding".as_ref(), rs.as_ref()]));
        expect(&output, 0);
        assert!(stderr(&output).contains("not zero-knowledge"));
        // The expected proof is snarkjs's object, in whatever layout it was saved; the public inputs are its file.
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(json(&read(&proof)), json(&read(&case.join("proof_rs.json"))), "{}", case.display());
        assert_eq!(json(&read(&public)), json(&read(&case.join("public.json"))), "{}", case.display());

        expect(&run(["export-vk".as_ref(), zkey.as_os_str(), vkey.as_os_str()]), 0);
        assert_eq!(read(&vkey), read(&case.join("vkey.json")), "{}", case.display());
        expect(&run(["verify".as_ref(), vkey.as_os_str(), public.as_os_str(), proof.as_os_str()]), 0);
    }
}

#[test]
fn snarkjs_verifies_proofs_with_fresh_blinding() {
    let snarkjs = cases::root().with_file_name("snarkjs");
    let missing =
        (!snarkjs.join("node_modules/snarkjs").is_dir()).then_some("run tests/run, or npm ci in tests/snarkjs");
    if !needs::available("snarkjs", missing) {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let mut triples = Vec::new();
    for (i, case) in cases::circuits().iter().enumerate() {
        let [proof, public] = ["proof", "public"].map(|name| path(out.path(), &format!("{i}.{name}.json")));
        let (zkey, wtns) = (case.join("circuit.zkey"), case.join("witness.wtns"));
        let args = ["prove".as_ref(), zkey.as_os_str(), wtns.as_os_str(), proof.as_os_str(), public.as_os_str()];
        expect(&run(args), 0);
        assert_ne!(read(&proof), read(&case.join("proof_rs.json")), "the blinding is fresh");
        triples.push([case.join("vkey.json"), public, proof]);
    }
    // One triple that must fail: the proof of one circuit under the public inputs of another with as many.
    let count = triples.len();
    let wrong = [
        case("poseidon2").join("vkey.json"),
        case("e_pow2_61").join("public.json"),
        case("poseidon2").join("proof_rs.json"),
    ];
    triples.push(wrong);
    let output = Command::new("node")
        .arg(snarkjs.join("verify.mjs"))
        .args(triples.iter().flatten())
        .output()
        .expect("node runs");
    let answers = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers: Vec<_> = answers.lines().collect();
    assert_eq!(answers.len(), count + 1, "{output:?}");
    assert!(answers[..count].iter().all(|answer| *answer == "ok"), "{answers:?}");
    assert_eq!(answers[count], "no");
}

#[test]
fn malformed_files_end_with_the_allowed_exit_codes() {
    let folder = case("malformed");
    let expected: serde_json::Value = serde_json::from_str(&read(&folder.join("expected.json"))).unwrap();
    let out = tempfile::tempdir().unwrap();
    let [proof, public] = ["proof.json", "public.json"].map(|name| path(out.path(), name));
    let mut seen = 0;
    for entry in expected.as_array().unwrap() {
        let (id, kind) = (entry["id"].as_str().unwrap(), entry["kind"].as_str().unwrap());
        let file = |extension: &str| folder.join(format!("{id}.{extension}"));
        let prove = |zkey: PathBuf, wtns: PathBuf| {
            run(["prove".as_ref(), zkey.as_os_str(), wtns.as_os_str(), proof.as_os_str(), public.as_os_str()])
        };
        let output = match kind {
            "zkey" => prove(file("zkey"), folder.join("base.wtns")),
            "wtns" => prove(folder.join("base.zkey"), file("wtns")),
            "verify" => run(["verify".into(), file("vkey.json"), file("public.json"), file("proof.json")]),
            other => panic!("kind {other}?"),
        };
        let allowed: Vec<i64> = entry["exit"].as_array().unwrap().iter().map(|code| code.as_i64().unwrap()).collect();
        assert!(allowed.contains(&code(&output).into()), "{id}: allowed {allowed:?}, got {output:?}");
        expect(&output, code(&output));
        if code(&output) != 0 && kind != "verify" {
            assert!(!proof.exists() && !public.exists(), "{id} left an output file");
        }
        let _ = (fs::remove_file(&proof), fs::remove_file(&public));
        seen += 1;
    }
    assert!(seen > 50, "only {seen} malformed files");
}

#[test]
fn a_key_of_another_curve_is_refused_by_name() {
    let folder = case("x_bn128_mul2");
    let out = tempfile::tempdir().unwrap();
    let [proof, public] = ["proof.json", "public.json"].map(|name| path(out.path(), name));
    let (zkey, wtns) = (folder.join("circuit.zkey"), folder.join("witness.wtns"));
    let output = run(["prove".as_ref(), zkey.as_os_str(), wtns.as_os_str(), proof.as_os_str(), public.as_os_str()]);
    expect(&output, 3);
    assert!(stderr(&output).contains("BN254"), "{output:?}");
    for file in ["circuit.zkey", "witness.wtns", "circuit.r1cs"] {
        expect(&run(["inspect".into(), folder.join(file)]), 3);
    }
    let triple = ["vkey.json", "public.json", "proof_rs.json"].map(|file| folder.join(file));
    let [vkey, public, proof] = &triple;
    expect(&run(["verify".as_ref(), vkey.as_os_str(), public.as_os_str(), proof.as_os_str()]), 3);
}

#[test]
fn check_names_the_first_broken_constraint() {
    let good = case("poseidon2");
    let [zkey, wtns, r1cs] = ["circuit.zkey", "witness.wtns", "circuit.r1cs"].map(|file| good.join(file));
    let output = run(["check".as_ref(), zkey.as_os_str(), wtns.as_os_str(), "--r1cs".as_ref(), r1cs.as_os_str()]);
    expect(&output, 0);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("constraints hold") && text.contains("cpu") && text.contains("verifies"), "{text}");

    // One changed byte in the middle of the witness.
    let out = tempfile::tempdir().unwrap();
    let broken = path(out.path(), "broken.wtns");
    let mut bytes = fs::read(&wtns).unwrap();
    let middle = 76 + 32 * ((bytes.len() - 76) / 64);
    bytes[middle] ^= 1;
    fs::write(&broken, bytes).unwrap();
    let output = run(["check".as_ref(), zkey.as_os_str(), broken.as_os_str(), "--r1cs".as_ref(), r1cs.as_os_str()]);
    expect(&output, 1);
    assert!(stderr(&output).contains("constraint "), "{output:?}");
    expect(&run(["check".as_ref(), zkey.as_os_str(), broken.as_os_str()]), 1);

    // prove answers no as well, and writes nothing.
    let [proof, public] = ["proof.json", "public.json"].map(|name| path(out.path(), name));
    fs::write(&proof, "mine").unwrap();
    let args = ["prove".as_ref(), zkey.as_os_str(), broken.as_os_str(), proof.as_os_str(), public.as_os_str()];
    expect(&run(args), 1);
    assert_eq!(read(&proof), "mine", "an existing file stays as it was");
    assert!(!public.exists());
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 2, "no temporary file is left");
}

#[test]
fn development_keys_prove_in_both_bases_and_say_that_they_are_insecure() {
    let out = tempfile::tempdir().unwrap();
    let file = |name: &str| path(out.path(), name).into_os_string();
    for basis in ["snarkjs", "bellman"] {
        for shape in ["porep", "mixed", "dense"] {
            let (zkey, wtns) = (file("k.zkey"), file("w.wtns"));
            let setup = ["setup", "--synthetic", shape, "--log2", "8", "--seed", "5", "--basis", basis, "--witness"];
            let output = run(setup.iter().map(|s| s.into()).chain([wtns.clone(), zkey.clone()]));
            expect(&output, 0);
            assert!(stderr(&output).contains("INSECURE"), "{output:?}");
            let output = run(["prove".into(), zkey.clone(), wtns.clone(), file("proof.json"), file("public.json")]);
            expect(&output, 0);
            assert!(stderr(&output).contains("INSECURE"), "{output:?}");
            expect(&run(["export-vk".into(), zkey.clone(), file("vkey.json")]), 0);
            expect(&run(["verify".into(), file("vkey.json"), file("public.json"), file("proof.json")]), 0);
            let output = run(["inspect".into(), zkey]);
            expect(&output, 0);
            assert!(String::from_utf8_lossy(&output.stdout).contains("INSECURE"), "{output:?}");
        }
    }
    let r1cs = case("poseidon2").join("circuit.r1cs").into_os_string();
    expect(&run(["setup".into(), "--r1cs".into(), r1cs, file("p.zkey")]), 0);
    let wtns = case("poseidon2").join("witness.wtns").into_os_string();
    expect(&run(["prove".into(), file("p.zkey"), wtns, file("proof.json"), file("public.json")]), 0);
    assert_eq!(read(Path::new(&file("public.json"))), read(&case("poseidon2").join("public.json")));
}

#[test]
fn inspect_says_what_a_file_holds() {
    for (file, facts) in [
        ("circuit.zkey", vec!["groth16", "BLS12-381", "domain"]),
        ("witness.wtns", vec!["witness"]),
        ("circuit.r1cs", vec!["constraints"]),
    ] {
        let output = run(["inspect".into(), case("poseidon2").join(file)]);
        expect(&output, 0);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(facts.iter().all(|fact| text.contains(fact)), "{file}: {text}");
        let output = run(["inspect".into(), case("poseidon2").join(file).into_os_string(), "--json".into()]);
        expect(&output, 0);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
    }
    let zkey = case("poseidon2").join("circuit.zkey").into_os_string();
    expect(&run(["inspect".into(), "--deep".into(), zkey]), 0);
    expect(&run(["inspect".into(), case("poseidon2").join("vkey.json")]), 3);
}

#[test]
fn usage_files_and_backends_have_their_exit_codes() {
    expect(&run(["prove"]), 2);
    expect(&run(["no-such-command"]), 2);
    expect(&run(["--help"]), 0);
    expect(&run(["setup", "out.zkey"]), 2);
    expect(&run(["verify", "missing.json", "missing.json", "missing.json"]), 3);
    expect(&run(["inspect", "missing.zkey"]), 3);
    let folder = case("mul2");
    let prove = |extra: &[&str]| {
        let (zkey, wtns) = (folder.join("circuit.zkey"), folder.join("witness.wtns"));
        let out = tempfile::tempdir().unwrap();
        let [proof, public] = ["proof.json", "public.json"].map(|name| path(out.path(), name));
        let args = ["prove".as_ref(), zkey.as_os_str(), wtns.as_os_str(), proof.as_os_str(), public.as_os_str()];
        run(args.into_iter().chain(extra.iter().map(|e| e.as_ref())))
    };
    expect(&prove(&["--backend", "cpu"]), 0);
    expect(&prove(&["--backend", "no-such-backend"]), 4);
    expect(&prove(&["--backend", "/no/such/library.so"]), 4);
    expect(&prove(&["--device", "7"]), 4);
    expect(&prove(&["--vram-limit", "12GB"]), 2);
    // The CPU has no such option, and says so.
    expect(&prove(&["--vram-limit", "1GiB"]), 4);
    expect(&run(["kernels", "--arch", "sm_90"]), 2);
    let kernels = run(["kernels", "--backend", "cpu", "--arch", "sm_90", "--out", "/no/such/folder"]);
    expect(&kernels, 4);
    assert!(stderr(&kernels).contains("backend cpu has no kernels"), "{kernels:?}");
    expect(&prove(&["--insecure-blinding", "1"]), 2);
    expect(&prove(&["--insecure-blinding", "1,x"]), 2);
    let output = prove(&["--json"]);
    expect(&output, 0);
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(facts["variables"], 4);

    let output = run(["backends", "--json"]);
    expect(&output, 0);
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(listed.to_string().contains("\"cpu\""), "{listed}");
    // An output folder that doesn't exist is a file error, found before anything is written.
    let wtns = folder.join("witness.wtns");
    let output = run([
        "prove".as_ref(),
        folder.join("circuit.zkey").as_os_str(),
        wtns.as_os_str(),
        "/no/such/folder/proof.json".as_ref(),
        "/no/such/folder/public.json".as_ref(),
    ]);
    expect(&output, 3);
}

/// A `.params` key for a case's circuit.
fn params_key(folder: &Path, name: &str) -> PathBuf {
    let key = path(folder, "key.params");
    let r1cs = case(name).join("circuit.r1cs");
    let output = run(["setup".as_ref(), "--r1cs".as_ref(), r1cs.as_os_str(), key.as_os_str()]);
    expect(&output, 0);
    assert!(stderr(&output).contains("INSECURE"), "{output:?}");
    key
}

#[test]
fn keys_of_bellpersons_kind_prove_with_their_constraints() {
    let out = tempfile::tempdir().unwrap();
    let file = |name: &str| path(out.path(), name).into_os_string();
    let of_case = |name: &str| case("poseidon2").join(name).into_os_string();
    let key = params_key(out.path(), "poseidon2").into_os_string();
    let prove = |key: &std::ffi::OsString, extra: &[&std::ffi::OsStr]| {
        let mut args =
            vec!["prove".into(), key.clone(), of_case("witness.wtns"), file("proof.json"), file("public.json")];
        args.extend(extra.iter().map(|extra| extra.into()));
        run(args)
    };
    let r1cs = of_case("circuit.r1cs");
    expect(&run(["export-vk".into(), key.clone(), file("vkey.json")]), 0);
    for _ in 0..2 {
        let output = prove(&key, &["--r1cs".as_ref(), &r1cs]);
        expect(&output, 0);
        assert!(stderr(&output).contains("INSECURE"), "{output:?}");
        expect(&run(["verify".into(), file("vkey.json"), file("public.json"), file("proof.json")]), 0);
    }
    assert_eq!(read(Path::new(&file("public.json"))), read(Path::new(&of_case("public.json"))));
    expect(&run(["check".into(), key.clone(), of_case("witness.wtns"), "--r1cs".into(), r1cs.clone()]), 0);

    let output = run(["inspect".into(), key.clone(), "--deep".into()]);
    expect(&output, 0);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("bellperson") && text.contains("subgroup") && text.contains("INSECURE"), "{text}");

    // Without its constraints, or with another circuit's, such a key is of no use; a .zkey needs none.
    expect(&prove(&key, &[]), 2);
    let other = case("mul2").join("circuit.r1cs");
    let output = prove(&key, &["--r1cs".as_ref(), other.as_os_str()]);
    expect(&output, 3);
    assert!(stderr(&output).contains("as in the key"), "{output:?}");
    expect(&prove(&of_case("circuit.zkey"), &["--r1cs".as_ref(), &r1cs]), 2);
    expect(&run(["setup".into(), "--r1cs".into(), r1cs.clone(), "--basis".into(), "snarkjs".into(), key.clone()]), 2);

    // snarkjs's own key, exported: its rows go with its root of unity, and the proof verifies with its verification key.
    let exported = file("exported.params");
    let output = run(["export-params".into(), of_case("circuit.zkey"), exported.clone()]);
    expect(&output, 0);
    assert!(String::from_utf8_lossy(&output.stdout).contains("--root snarkjs"), "{output:?}");
    let output = prove(&exported, &["--r1cs".as_ref(), &r1cs, "--root".as_ref(), "snarkjs".as_ref()]);
    expect(&output, 0);
    assert!(!stderr(&output).contains("INSECURE"), "{output:?}");
    expect(&run(["verify".into(), of_case("vkey.json"), file("public.json"), file("proof.json")]), 0);
    expect(&prove(&exported, &["--r1cs".as_ref(), &r1cs]), 1);
}

#[test]
fn malformed_keys_of_bellpersons_kind_end_with_exit_code_3_and_one_line() {
    let out = tempfile::tempdir().unwrap();
    let good = fs::read(params_key(out.path(), "mul2")).unwrap();
    let bad = path(out.path(), "bad.params");
    let r1cs = case("mul2").join("circuit.r1cs");
    let mut variants =
        vec![Vec::new(), good[..863].to_vec(), good[..good.len() - 1].to_vec(), [&good[..], b"x"].concat()];
    for (at, bytes) in [(864, [0xff; 4]), (864, [0; 4]), (0, [0x9f; 4]), (868 + 50, [0; 4]), (good.len() - 9, [7; 4])] {
        let mut changed = good.clone();
        changed[at..at + 4].copy_from_slice(&bytes);
        variants.push(changed);
    }
    for (number, variant) in variants.iter().enumerate() {
        fs::write(&bad, variant).unwrap();
        let (proof, public) = (path(out.path(), "proof"), path(out.path(), "public"));
        let wtns = case("mul2").join("witness.wtns");
        let output = run([
            "prove".as_ref(),
            bad.as_os_str(),
            wtns.as_os_str(),
            proof.as_os_str(),
            public.as_os_str(),
            "--r1cs".as_ref(),
            r1cs.as_os_str(),
        ]);
        expect(&output, 3);
        let text = stderr(&output);
        let place = ["bad.params", "section ", "offset ", "expected "];
        assert!(place.iter().all(|part| text.contains(part)), "{number}: {text}");
        expect(&run(["inspect".as_ref(), bad.as_os_str()]), 3);
        expect(&run(["export-vk".as_ref(), bad.as_os_str(), proof.as_os_str()]), 3);
        assert!(!proof.exists());
    }
}

#[test]
fn compact_proofs_verify_alone_and_one_after_the_other() {
    let out = tempfile::tempdir().unwrap();
    let file = |name: &str| path(out.path(), name);
    let of_case = |name: &str| case("poseidon2").join(name);
    let (proof, public) = (file("proof"), file("public.json"));
    let prove = || {
        let args = ["prove".into(), of_case("circuit.zkey"), of_case("witness.wtns"), proof.clone(), public.clone()];
        let args = args.into_iter().map(PathBuf::into_os_string);
        expect(&run(args.chain(["--proof-format".into(), "bellman".into()])), 0);
        fs::read(&proof).unwrap()
    };
    let verify = |public: &Path| run(["verify".into(), of_case("vkey.json"), public.to_path_buf(), proof.clone()]);
    let one = prove();
    assert_eq!(one.len(), 192);
    expect(&verify(&public), 0);
    let two = prove();
    assert_ne!(one, two);

    // Three partitions, with an array of public inputs for each.
    let each = read(&public);
    let publics = file("publics.json");
    fs::write(&publics, format!("[{each},{each},{each}]")).unwrap();
    fs::write(&proof, [&one[..], &two, &one].concat()).unwrap();
    let output = verify(&publics);
    expect(&output, 0);
    assert!(String::from_utf8_lossy(&output.stdout).contains("all 3 proofs"), "{output:?}");
    expect(&verify(&public), 3);
    fs::write(&publics, format!("[{each},{each}]")).unwrap();
    expect(&verify(&publics), 3);

    // One of them for other inputs: it is named.
    let count = each.matches('"').count() / 2;
    let other = format!("[{}]", vec!["\"7\""; count].join(","));
    fs::write(&publics, format!("[{each},{other},{each}]")).unwrap();
    let output = verify(&publics);
    expect(&output, 1);
    assert!(stderr(&output).contains("not valid: 1"), "{output:?}");

    // Cut, extended, or not points: bad files.
    for bytes in [&one[..191], &[&one[..], &[0]].concat(), &[0x80; 192], &[0xc0; 192]] {
        fs::write(&proof, bytes).unwrap();
        expect(&verify(&public), 3);
    }
    // A and C changed for each other are points, but no proof.
    fs::write(&proof, [&one[144..], &one[48..144], &one[..48]].concat()).unwrap();
    expect(&verify(&public), 1);
}
