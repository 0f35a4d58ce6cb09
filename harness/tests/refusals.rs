//! What `splitprover verify` refuses: other spellings of a valid proof and of its public inputs, and input without end.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use splitprover_tests::cases;

const Q: &str = "4002409555221667393417789825735904156556882819939007885332058136124031650490837864442687629129015664037894272559787";
const R: &str = "52435875175126190479447740508185965837690552500527637822603658699938581184513";

/// The sum of two decimal numbers.
fn plus(a: &str, b: &str) -> String {
    let digits = |text: &str| text.bytes().rev().map(|digit| digit - b'0').collect::<Vec<_>>();
    let (a, b) = (digits(a), digits(b));
    let (mut sum, mut carry) = (Vec::new(), 0);
    for i in 0..=a.len().max(b.len()) {
        let digit = a.get(i).unwrap_or(&0) + b.get(i).unwrap_or(&0) + carry;
        sum.push(b'0' + digit % 10);
        carry = digit / 10;
    }
    let text: String = sum.iter().rev().map(|&digit| char::from(digit)).collect();
    text.trim_start_matches('0').to_owned()
}

/// q − y, for a y that isn't 0.
fn negated(y: &str) -> String {
    // The nines' complement of y, plus q, plus 1, without the leading 1.
    let nines: String = y.bytes().map(|digit| char::from(b'9' - (digit - b'0'))).collect();
    let padded = "9".repeat(Q.len() - y.len()) + &nines;
    plus(&plus(&padded, Q), "1")[1..].trim_start_matches('0').to_owned()
}

/// A valid proof's three files, to be changed.
#[derive(Clone)]
struct Files {
    key: Value,
    public: Value,
    proof: Value,
}

impl Files {
    fn of(case: &str) -> Self {
        let read = |name: &str| {
            let path = cases::root().join(case).join(name);
            serde_json::from_slice(&fs::read(&path).expect("a case's file")).expect("JSON")
        };
        Self { key: read("vkey.json"), public: read("public.json"), proof: read("proof_rs.json") }
    }

    fn texts(&self) -> [String; 3] {
        [&self.key, &self.public, &self.proof].map(|value| format!("{value:#}"))
    }
}

fn verify(folder: &Path, texts: &[String; 3]) -> Output {
    let paths = ["vkey.json", "public.json", "proof.json"].map(|name| folder.join(name));
    for (path, text) in paths.iter().zip(texts) {
        fs::write(path, text).unwrap();
    }
    Command::new(env!("CARGO_BIN_EXE_splitprover")).arg("verify").args(paths).output().expect("the program runs")
}

fn text_at(value: &mut Value, pointer: &str, change: impl FnOnce(&str) -> Value) {
    let place = value.pointer_mut(pointer).expect("a place in the file");
    *place = change(place.as_str().expect("a number as text"));
}

#[test]
fn other_spellings_of_a_valid_proof_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = Files::of("mul2");
    assert_eq!(verify(folder.path(), &good.texts()).status.code(), Some(0));

    let mut cases: Vec<(String, Files, i32)> = Vec::new();
    let mut add = |name: &str, code, change: &dyn Fn(&mut Files)| {
        let mut files = good.clone();
        change(&mut files);
        cases.push((name.to_owned(), files, code));
    };
    // The same proof, with both signs changed, is valid: Groth16 is malleable. One sign alone isn't.
    let negate = |value: &mut Value, pointer: &str| text_at(value, pointer, |y| json!(negated(y)));
    add("A and B negated", 0, &|f| {
        for pointer in ["/pi_a/1", "/pi_b/1/0", "/pi_b/1/1"] {
            negate(&mut f.proof, pointer);
        }
    });
    add("A negated", 1, &|f| negate(&mut f.proof, "/pi_a/1"));
    add("C negated", 1, &|f| negate(&mut f.proof, "/pi_c/1"));
    for pointer in ["/pi_a/0", "/pi_a/1", "/pi_b/0/0", "/pi_b/0/1", "/pi_b/1/0", "/pi_b/1/1", "/pi_c/0", "/pi_c/1"] {
        add(&format!("{pointer} + q"), 3, &|f| text_at(&mut f.proof, pointer, |x| json!(plus(x, Q))));
        add(&format!("{pointer} + 1"), 3, &|f| text_at(&mut f.proof, pointer, |x| json!(plus(x, "1"))));
        add(&format!("-{pointer}"), 3, &|f| text_at(&mut f.proof, pointer, |x| json!(format!("-{x}"))));
        add(&format!("0{pointer}"), 3, &|f| text_at(&mut f.proof, pointer, |x| json!(format!("0{x}"))));
        add(&format!("0x{pointer}"), 3, &|f| text_at(&mut f.proof, pointer, |x| json!(format!("0x{x}"))));
        add(&format!("[{pointer}]"), 3, &|f| text_at(&mut f.proof, pointer, |x| json!([x])));
    }
    for pointer in ["/vk_alpha_1/0", "/vk_beta_2/0/1", "/vk_gamma_2/1/0", "/vk_delta_2/0/0", "/IC/1/1"] {
        add(&format!("key's {pointer} + q"), 3, &|f| text_at(&mut f.key, pointer, |x| json!(plus(x, Q))));
        add(&format!("key's {pointer} + 1"), 3, &|f| text_at(&mut f.key, pointer, |x| json!(plus(x, "1"))));
    }
    add("another input", 1, &|f| text_at(&mut f.public, "/0", |x| json!(plus(x, "1"))));
    add("input + r", 3, &|f| text_at(&mut f.public, "/0", |x| json!(plus(x, R))));
    add("input + 2r", 3, &|f| text_at(&mut f.public, "/0", |x| json!(plus(&plus(x, R), R))));
    add("negative input", 3, &|f| text_at(&mut f.public, "/0", |x| json!(format!("-{x}"))));
    add("hexadecimal input", 3, &|f| f.public = json!(["0x21"]));
    add("input as a number", 3, &|f| f.public = json!([33]));
    add("nested inputs", 3, &|f| f.public = json!([["33"]]));
    add("an object of inputs", 3, &|f| f.public = json!({"0": "33"}));
    add("no input", 3, &|f| f.public = json!([]));
    add("two inputs", 3, &|f| f.public = json!(["33", "0"]));
    add("an empty input", 3, &|f| f.public = json!([""]));
    add("a proof's curve", 3, &|f| f.proof["curve"] = json!("bn128"));
    add("a key's curve", 3, &|f| f.key["curve"] = json!("bn128"));
    add("a proof's protocol", 3, &|f| f.proof["protocol"] = json!("plonk"));
    add("a key's protocol", 3, &|f| f.key["protocol"] = json!("fflonk"));
    add("fewer IC", 3, &|f| drop(f.key["IC"].as_array_mut().map(Vec::pop)));
    add("A at infinity", 1, &|f| f.proof["pi_a"] = json!(["0", "1", "0"]));
    add("B at infinity", 1, &|f| f.proof["pi_b"] = json!([["0", "0"], ["1", "0"], ["0", "0"]]));
    add("A of all zeros", 3, &|f| f.proof["pi_a"] = json!(["0", "0", "0"]));
    // (0, 2) is on the curve and of order 3: a part of the cofactor.
    add("A of order 3", 3, &|f| f.proof["pi_a"] = json!(["0", "2", "1"]));
    add("C of order 3", 3, &|f| f.proof["pi_c"] = json!(["0", "2", "1"]));
    add("the generator for A", 1, &|f| f.proof["pi_a"] = f.key["vk_alpha_1"].clone());
    let other = Files::of("poseidon2");
    add("another circuit's key", 1, &|f| f.key = other.key.clone());
    add("another circuit's proof", 1, &|f| f.proof = other.proof.clone());

    let mut wrong = Vec::new();
    for (name, files, code) in cases {
        let output = verify(folder.path(), &files.texts());
        let message = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(code) || message.lines().count() > 1 {
            wrong.push(format!("{name}: {} instead of {code}: {message}", output.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn bytes_after_the_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = Files::of("mul2").texts();
    for file in 0..3 {
        for (tail, code) in [("\n \t\r\n", 0), ("x", 3), ("]", 3), ("}", 3), ("\0", 3), ("{}", 3), ("\u{feff}", 3)] {
            let mut texts = good.clone();
            texts[file].push_str(tail);
            let output = verify(folder.path(), &texts);
            assert_eq!(output.status.code(), Some(code), "file {file}, {tail:?}: {output:?}");
        }
        let mut texts = good.clone();
        texts[file].insert(0, '\u{feff}');
        assert_eq!(verify(folder.path(), &texts).status.code(), Some(3), "file {file}, a byte order mark");
    }
}

/// A gigabyte of brackets, and of other things that make parsers go deep or long, is refused before most of it has been read.
#[test]
fn a_gigabyte_of_brackets_is_refused_at_once() {
    let case = cases::root().join("mul2");
    let files = ["vkey.json", "public.json", "proof_rs.json"].map(|name| case.join(name));
    for filler in ["[", "{\"a\":", "\"", "1", " ", "[\"1\",", "\\u0041"] {
        for file in 0..3 {
            let mut paths: [PathBuf; 3] = files.clone();
            paths[file] = "/dev/stdin".into();
            let mut child = Command::new(env!("CARGO_BIN_EXE_splitprover"))
                .arg("verify")
                .args(&paths)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the program runs");
            let block = filler.repeat((1 << 16) / filler.len());
            let mut pipe = child.stdin.take().expect("a pipe");
            // It ends when the program goes away.
            let blocks = (0..1 << 14).take_while(|_| pipe.write_all(block.as_bytes()).is_ok()).count();
            drop(pipe);
            assert_eq!(child.wait().unwrap().code(), Some(3), "{filler:?} as file {file}");
            assert!(blocks < 64, "{filler:?} as file {file}: {blocks} blocks were read");
        }
    }
}
