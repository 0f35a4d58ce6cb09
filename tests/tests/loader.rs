//! Backends as shared libraries: found, loaded, tested, or refused with a reason.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ff::Field;
use rand_core::OsRng;
use splitprover_core::abi::{Backend, OpenOptions};
use splitprover_core::{BackendError, Blinding, HBasis, HostMemory, Prover, Scalar};
use splitprover_harness::loader::{LibraryError, LoadError, Location, Registry, SearchPath, SelfTestError, file_name};
use splitprover_tests::naive::Setup;
use splitprover_tests::plugins;

fn by_path(path: &Path) -> Result<Backend, LoadError> {
    Registry::empty().load(path.to_str().unwrap())?.open(&OpenOptions::new(0).threads(1))
}

/// The reason why the last candidate of a search isn't used.
fn reason(result: Result<splitprover_harness::loader::Loaded, LoadError>) -> LibraryError {
    match result.unwrap_err() {
        LoadError::NoBackend { mut tried, .. } => tried.pop().unwrap().reason,
        other => panic!("{other}"),
    }
}

#[test]
fn loaded_backends_prove_what_the_definition_says() {
    let memory = HostMemory::default();
    for file in [plugins::cpu(), plugins::template(), plugins::misbehaving(), plugins::c()] {
        let prover = Prover::new(by_path(&file).unwrap());
        for basis in [HBasis::OddLagrange, HBasis::Monomial] {
            for (seed, (public, free, constraints)) in [(0, 0, 1), (2, 3, 9), (0, 20, 40)].into_iter().enumerate() {
                let setup = Setup::random(seed as u64, basis, public, free, constraints);
                let key = prover.load_key(setup.key.clone()).unwrap();
                for given in [false, true] {
                    let (r, s) = (Scalar::random(OsRng), Scalar::random(OsRng));
                    let w = setup.circuit.assignment(&mut OsRng);
                    let inputs = if given {
                        setup.inputs_with_evaluations(&memory, &w, seed == 0).unwrap()
                    } else {
                        setup.inputs(&memory, &w).unwrap()
                    };
                    let in_flight = prover.start(&key, inputs).unwrap();
                    assert_eq!(memory.ledger().now().total(), 0);
                    let proof = in_flight.finish_with(Blinding::insecure(r, s)).unwrap();
                    assert_eq!(proof, setup.proof_from_trapdoor(&w, r, s), "{}, {basis:?}", file.display());
                }
            }
        }
    }
}

#[test]
fn a_name_is_searched_for_in_order_and_what_is_passed_over_is_known() {
    let (cpu, template) = (plugins::cpu(), plugins::template());
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let place = folder.path().canonicalize().unwrap().join(name);
        std::fs::create_dir(&place).unwrap();
        place
    };
    let (empty, broken, wrong, good) = (place("empty"), place("broken"), place("wrong"), place("good"));
    let file = file_name("template");
    std::fs::write(broken.join(&file), "no library").unwrap();
    std::fs::copy(&cpu, wrong.join(&file)).unwrap();
    std::fs::copy(&template, good.join(&file)).unwrap();
    let places = [PathBuf::from("relative"), empty, broken, wrong, good.clone()];
    let registry = Registry::empty().search(SearchPath::new(places.clone()));

    let loaded = registry.load("template").unwrap();
    assert_eq!(*loaded.location(), Location::File(good.join(&file)));
    let reasons: Vec<_> = loaded.passed_over().iter().map(|r| r.reason.clone()).collect();
    let expected = [
        LibraryError::Relative,
        LibraryError::NoSuchFile,
        LibraryError::NotALibrary("too short"),
        LibraryError::OtherName { found: "cpu".into() },
    ];
    assert_eq!(reasons, expected);

    // Without the good one it is an error that lists them all, not another backend.
    let registry = Registry::new().search(SearchPath::new(places[..4].to_vec()));
    let error = registry.load("template").unwrap_err().to_string();
    for part in ["no backend \"template\":", "relative: not an absolute path", "no such file", "calls itself \"cpu\""] {
        assert!(error.contains(part), "{part} in {error}");
    }
    assert_eq!(error.lines().count(), 5);

    // What is linked in comes first, under its name.
    assert_eq!(*registry.load("cpu").unwrap().location(), Location::LinkedIn);
    let nowhere = Registry::empty().load("cpu").unwrap_err().to_string();
    assert_eq!(nowhere, "no backend \"cpu\": no place to look for it");
}

#[test]
fn files_that_are_no_backends_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let load = |path: &Path| reason(Registry::empty().load(path.to_str().unwrap()));
    assert_eq!(load(&folder.path().join("none.so")), LibraryError::NoSuchFile);
    assert_eq!(load(Path::new("relative.so")), LibraryError::NoSuchFile);
    assert_eq!(load(folder.path()), LibraryError::NotALibrary("not a file"));
    let file = |bytes: &[u8]| {
        let path = folder.path().join("file.so");
        std::fs::write(&path, bytes).unwrap();
        load(&path)
    };
    assert_eq!(file(b""), LibraryError::NotALibrary("too short"));
    assert_eq!(file(&[b'#'; 100]), LibraryError::NotALibrary("not a 64-bit little-endian ELF file"));
    let whole = std::fs::read(plugins::template()).unwrap();
    for len in [64, 100, 4096, whole.len() / 2] {
        assert_eq!(file(&whole[..len]), LibraryError::NotALibrary("the file is cut"), "{len} bytes");
    }
    let mut other = whole[..200].to_vec();
    other[18] = 243; // RISC-V
    assert_eq!(file(&other), LibraryError::NotALibrary("for another kind of processor"));
    other[16] = 1;
    assert_eq!(file(&other), LibraryError::NotALibrary("an ELF file of another kind"));
    // Damage behind the headers is the linker's to find, or nobody's.
    let name =
        std::process::Command::new("sh").arg("-c").arg("ls /lib/*/libm.so.6 /lib64/libm.so.6 2>/dev/null").output();
    let listed = String::from_utf8(name.unwrap().stdout).unwrap();
    let libm = listed.lines().next().expect("a libm");
    assert_eq!(load(Path::new(libm)), LibraryError::NoSymbol);
}

/// Not a test: what [`faulty_tables_are_refused_by_name`] runs in a process of its own, because the plug-in reads the environment.
#[test]
#[ignore = "run by faulty_tables_are_refused_by_name"]
fn load_in_a_child() {
    let result = Registry::empty().load(&std::env::var("SPLITPROVER_TEST_LIBRARY").unwrap());
    println!("refused: {}", reason(result));
}

#[test]
fn faulty_tables_are_refused_by_name() {
    let library = plugins::misbehaving();
    for (mode, expected) in [
        ("other-version", "the plug-in speaks ABI 1.1, this host 0.1"),
        ("short-table", "the table has 136 bytes, ABI 0.1 has 224"),
        ("missing-entry", "the table has no entry finish"),
        ("other-curve", "curve: the plug-in has \"bn254\", this host \"bls12-381\""),
        ("no-table", "sp_negotiate gave no table"),
        ("refuses", "sp_negotiate returned status 3"),
    ] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "load_in_a_child", "--ignored", "--nocapture"])
            .env("SPLITPROVER_MISBEHAVE", mode)
            .env("SPLITPROVER_TEST_LIBRARY", &library)
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(child.status.success(), "{mode}: {output}{}", String::from_utf8_lossy(&child.stderr));
        assert!(output.lines().any(|line| line.ends_with(&format!("refused: {expected}"))), "{mode}: {output}");
    }
}

#[test]
fn devices_that_compute_wrongly_or_not_at_all_are_not_offered() {
    let library = plugins::misbehaving();
    let load = |registry: Registry| registry.load(library.to_str().unwrap()).unwrap();
    let (loaded, impatient) =
        (load(Registry::empty()), load(Registry::empty().self_test_limit(Duration::from_secs(2))));
    let open_with = |loaded: &splitprover_harness::loader::Loaded, mode: &str| match loaded
        .open(&OpenOptions::new(0).threads(1).set("mode", mode))
    {
        Err(LoadError::SelfTest { source, .. }) => source,
        other => panic!("{mode}: {other:?}"),
    };
    let open = |mode: &str| open_with(&loaded, mode);
    for (mode, sum) in [("wrong-a", "a"), ("wrong-b-g1", "b_g1"), ("wrong-b-g2", "b_g2"), ("wrong-hl", "hl")] {
        match open(mode) {
            SelfTestError::WrongSum { sums, .. } => assert_eq!(sums, sum),
            other => panic!("{mode}: {other}"),
        }
    }
    assert!(matches!(open("non-deterministic"), SelfTestError::WrongSum { .. }));
    assert!(open("panic-in-start").to_string().contains("a planned panic in start"));
    assert!(open("panic-in-finish").to_string().contains("a planned panic in finish"));
    for mode in ["hang-in-start", "hang-in-finish", "slow"] {
        assert!(matches!(open_with(&impatient, mode), SelfTestError::Hangs(_)), "{mode}");
    }
    // What a tiny proof can't show is the conformance suite's.
    assert!(loaded.open(&OpenOptions::new(0).set("mode", "wrong-above-65536")).is_ok());
    // What the device says when it is opened is another error.
    let error = loaded.open(&OpenOptions::new(0).set("mode", "unheard-of")).unwrap_err();
    assert!(matches!(&error, LoadError::Open { source: BackendError::Unsupported(_), .. }), "{error}");
    let error = loaded.open(&OpenOptions::new(7)).unwrap_err();
    assert!(matches!(&error, LoadError::Open { device: 7, .. }), "{error}");
}

#[test]
fn a_survey_shows_every_candidate_and_every_device() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    std::fs::copy(plugins::template(), place.join(file_name("template"))).unwrap();
    std::fs::write(place.join(file_name("broken")), [0; 80]).unwrap();
    // A copy under another name is a backend too, but not by that name and not by its own.
    std::fs::copy(plugins::template(), place.join(file_name("other"))).unwrap();
    std::fs::write(place.join("unrelated.so"), "").unwrap();
    let gone = place.join("gone");
    let registry = Registry::new().search(SearchPath::new([place.clone(), gone.clone()]));

    let survey = registry.survey(true);
    assert!(survey.any_usable());
    let [cpu, broken, other, template, missing] = &survey.candidates[..] else { panic!("{survey}") };
    assert!(cpu.location == "linked in" && cpu.devices[0].self_test.as_ref().unwrap().passed);
    assert!(!broken.loaded && broken.reason.as_ref().unwrap().contains("ELF"));
    assert_eq!(template.backend.as_ref().unwrap().name, "template");
    assert_eq!(template.devices[0].kind, "cpu");
    assert_eq!([cpu, broken, template, missing].map(|candidate| candidate.by_path_only.as_deref()), [None; 4]);
    assert_eq!(other.backend, template.backend);
    assert_eq!(other.by_path_only, Some(file_name("template")));
    assert!(missing.location == gone.display().to_string() && missing.reason.as_deref() == Some("no such file"));
    let text = survey.to_string();
    assert_eq!(text.matches("self-test passed").count(), 3, "{text}");
    assert_eq!(text.matches("not loaded: ").count(), 2, "{text}");
    let lines: Vec<_> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains("libsplitprover_backend_other.so)")).expect("a line for it");
    assert!(lines[at + 1].contains("ask for it by path"), "{text}");
    assert_eq!(text.matches("ask for it by path").count(), 1, "{text}");

    let json: serde_json::Value = serde_json::to_value(registry.survey(false)).unwrap();
    assert_eq!(json["candidates"][3]["devices"][0]["index"], 0);
    assert!(json["candidates"][3]["devices"][0]["self_test"].is_null());
}
