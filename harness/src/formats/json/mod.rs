//! snarkjs's JSON: proofs, public inputs, verification keys.
//!
//! Written byte for byte as snarkjs writes them: one space of indentation, its order of fields, no line break at the end. Read
//! strictly: canonical decimal numbers below their modulus, affine points of the subgroup (or infinity as snarkjs writes it),
//! the exact number of public inputs, protocol and curve as expected, no field twice, unknown or missing. Spacing and the
//! order of fields are free; the curve's name may be spelled in any way.

mod pairing;
mod parse;
mod values;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use blstrs::Scalar;
use splitprover_core::{Proof, VerifyingKey};

use super::error::{FormatResult, Place};
use super::source::open_stream;
use parse::Reader;

pub use values::scalar_text;

/// Verification keys with more public inputs are refused.
const MAX_PUBLIC: usize = 1 << 20;

fn open<T>(path: &Path, read: impl FnOnce(&mut Reader<BufReader<File>>) -> FormatResult<T>) -> FormatResult<T> {
    let place = Place::file(path);
    let file = open_stream(&place, path)?;
    whole(BufReader::new(file), place, read)
}

fn whole<R: BufRead, T>(
    input: R,
    place: Place,
    read: impl FnOnce(&mut Reader<R>) -> FormatResult<T>,
) -> FormatResult<T> {
    let mut reader = Reader::new(input, place);
    let value = read(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Reads a proof.
///
/// # Errors
/// [`FormatError`](super::FormatError) names the first field that isn't as it should be.
pub fn read_proof(path: &Path) -> FormatResult<Proof> {
    open(path, proof)
}

/// Reads a proof from text. `name` stands in messages.
///
/// # Errors
/// As [`read_proof`].
pub fn proof_from_bytes(name: &Path, text: &[u8]) -> FormatResult<Proof> {
    whole(text, Place::file(name), proof)
}

/// Reads public inputs; exactly `count` of them.
///
/// # Errors
/// [`FormatError`](super::FormatError) names the first value that isn't as it should be.
pub fn read_public(path: &Path, count: usize) -> FormatResult<Vec<Scalar>> {
    open(path, |reader| public(reader, count))
}

/// Reads public inputs from text. `name` stands in messages.
///
/// # Errors
/// As [`read_public`].
pub fn public_from_bytes(name: &Path, text: &[u8], count: usize) -> FormatResult<Vec<Scalar>> {
    whole(text, Place::file(name), |reader| public(reader, count))
}

/// Reads the public inputs of several proofs: an array of `proofs` arrays of exactly `count`.
///
/// # Errors
/// [`FormatError`](super::FormatError) names the first value that isn't as it should be.
pub fn read_public_sets(path: &Path, proofs: usize, count: usize) -> FormatResult<Vec<Vec<Scalar>>> {
    open(path, |reader| public_sets(reader, proofs, count))
}

/// Reads the public inputs of several proofs from text. `name` stands in messages.
///
/// # Errors
/// As [`read_public_sets`].
pub fn public_sets_from_bytes(name: &Path, text: &[u8], proofs: usize, count: usize) -> FormatResult<Vec<Vec<Scalar>>> {
    whole(text, Place::file(name), |reader| public_sets(reader, proofs, count))
}

/// Reads a verification key.
///
/// # Errors
/// [`FormatError`](super::FormatError) names the first field that isn't as it should be.
pub fn read_verifying_key(path: &Path) -> FormatResult<VerifyingKey> {
    open(path, verifying_key)
}

/// Reads a verification key from text. `name` stands in messages.
///
/// # Errors
/// As [`read_verifying_key`].
pub fn verifying_key_from_bytes(name: &Path, text: &[u8]) -> FormatResult<VerifyingKey> {
    whole(text, Place::file(name), verifying_key)
}

fn required<R: BufRead, T>(reader: &Reader<R>, name: &str, value: Option<T>) -> FormatResult<T> {
    value.ok_or_else(|| reader.error(name, "the field", "none"))
}

fn proof<R: BufRead>(reader: &mut Reader<R>) -> FormatResult<Proof> {
    let (mut a, mut b, mut c, mut protocol, mut curve) = (None, None, None, None, None);
    reader.object("proof", &["pi_a", "pi_b", "pi_c", "protocol", "curve"], |reader, name| {
        match name {
            "pi_a" => a = Some(values::g1(reader, name)?),
            "pi_b" => b = Some(values::g2(reader, name)?),
            "pi_c" => c = Some(values::g1(reader, name)?),
            "protocol" => protocol = Some(values::protocol(reader)?),
            _ => curve = Some(values::curve(reader)?),
        }
        Ok(())
    })?;
    required(reader, "protocol", protocol)?;
    required(reader, "curve", curve)?;
    let place = reader.place();
    let a = required(reader, "pi_a", a)?.point(place, "pi_a")?;
    let b = required(reader, "pi_b", b)?.point(place, "pi_b")?;
    let c = required(reader, "pi_c", c)?.point(place, "pi_c")?;
    Proof::new(a, b, c).map_err(|e| reader.error("proof", "points of the subgroup", e))
}

fn public<R: BufRead>(reader: &mut Reader<R>, count: usize) -> FormatResult<Vec<Scalar>> {
    reader.list("public inputs", count, count, values::scalar)
}

fn public_sets<R: BufRead>(reader: &mut Reader<R>, proofs: usize, count: usize) -> FormatResult<Vec<Vec<Scalar>>> {
    reader.list("public inputs", proofs, proofs, |reader, what| reader.list(what, count, count, values::scalar))
}

fn verifying_key<R: BufRead>(reader: &mut Reader<R>) -> FormatResult<VerifyingKey> {
    let names = [
        "protocol",
        "curve",
        "nPublic",
        "vk_alpha_1",
        "vk_beta_2",
        "vk_gamma_2",
        "vk_delta_2",
        "vk_alphabeta_12",
        "IC",
    ];
    let (mut protocol, mut curve, mut num_public, mut ic) = (None, None, None, None);
    let (mut alpha, mut beta, mut gamma, mut delta) = (None, None, None, None);
    reader.object("verification key", &names, |reader, name| {
        match name {
            "protocol" => protocol = Some(values::protocol(reader)?),
            "curve" => curve = Some(values::curve(reader)?),
            "nPublic" => num_public = Some(reader.number(name)?),
            "vk_alpha_1" => alpha = Some(values::g1(reader, name)?),
            "vk_beta_2" => beta = Some(values::g2(reader, name)?),
            "vk_gamma_2" => gamma = Some(values::g2(reader, name)?),
            "vk_delta_2" => delta = Some(values::g2(reader, name)?),
            // Follows from the other fields and isn't used; it must be well-formed.
            "vk_alphabeta_12" => {
                reader.array::<_, 2>(name, |reader, what| {
                    reader.array::<_, 3>(what, |reader, what| reader.array::<_, 2>(what, values::fp))
                })?;
            }
            _ => ic = Some(reader.list(name, 1, MAX_PUBLIC.saturating_add(1), values::g1)?),
        }
        Ok(())
    })?;
    required(reader, "protocol", protocol)?;
    required(reader, "curve", curve)?;
    let ic = required(reader, "IC", ic)?;
    let num_public = required(reader, "nPublic", num_public)?;
    let expected = (num_public as usize).saturating_add(1);
    if ic.len() != expected {
        return Err(reader.error("IC", format!("{expected} points (nPublic and one)"), ic.len()));
    }
    let place = reader.place();
    let mut bases = Vec::with_capacity(ic.len());
    for (index, base) in ic.iter().enumerate() {
        bases.push(base.point(place, &format!("IC[{index}]"))?);
    }
    let key = VerifyingKey::new(
        required(reader, "vk_alpha_1", alpha)?.point(place, "vk_alpha_1")?,
        required(reader, "vk_beta_2", beta)?.point(place, "vk_beta_2")?,
        required(reader, "vk_gamma_2", gamma)?.point(place, "vk_gamma_2")?,
        required(reader, "vk_delta_2", delta)?.point(place, "vk_delta_2")?,
        bases,
    );
    key.map_err(|e| reader.error("verification key", "points of the subgroup, not infinity", e))
}

/// Text in the making: arrays and objects of strings, indented as `JSON.stringify(value, null, 1)` does.
#[derive(Default)]
struct Writer {
    text: String,
    depth: usize,
}

impl Writer {
    fn line(&mut self) {
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n(' ', self.depth));
    }

    fn group<T>(&mut self, open: char, close: char, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.text.push(open);
        self.depth = self.depth.saturating_add(1);
        for (index, value) in items.iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            self.line();
            item(self, value);
        }
        self.depth = self.depth.saturating_sub(1);
        // snarkjs breaks the line of an empty array, too.
        self.line();
        self.text.push(close);
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        self.text.push_str(text);
        self.text.push('"');
    }

    fn strings(&mut self, items: &[String]) {
        self.group('[', ']', items, |writer, item| writer.string(item));
    }

    fn pairs(&mut self, items: &[[String; 2]]) {
        self.group('[', ']', items, |writer, item| writer.strings(item));
    }
}

/// A field of an object, as it is written.
enum Value<'a> {
    Text(&'a str),
    Number(usize),
    G1([String; 3]),
    G2([[String; 2]; 3]),
    G1s(Vec<[String; 3]>),
    Fq12([[[String; 2]; 3]; 2]),
}

fn object(fields: &[(&str, Value<'_>)]) -> String {
    let mut writer = Writer::default();
    writer.group('{', '}', fields, |writer, (name, value)| {
        writer.string(name);
        writer.text.push_str(": ");
        match value {
            Value::Text(text) => writer.string(text),
            Value::Number(number) => writer.text.push_str(&number.to_string()),
            Value::G1(point) => writer.strings(point),
            Value::G2(point) => writer.pairs(point),
            Value::G1s(points) => writer.group('[', ']', points, |writer, point| writer.strings(point)),
            Value::Fq12(value) => writer.group('[', ']', value, |writer, half| writer.pairs(half)),
        }
    });
    writer.text
}

/// The text of `proof.json`.
pub fn proof_to_json(proof: &Proof) -> String {
    object(&[
        ("pi_a", Value::G1(values::g1_text(&proof.a()))),
        ("pi_b", Value::G2(values::g2_text(&proof.b()))),
        ("pi_c", Value::G1(values::g1_text(&proof.c()))),
        ("protocol", Value::Text("groth16")),
        ("curve", Value::Text("bls12381")),
    ])
}

/// The text of `public.json`: the public inputs, without the constant 1.
pub fn public_to_json(public: &[Scalar]) -> String {
    let mut writer = Writer::default();
    writer.group('[', ']', public, |writer, scalar| writer.string(&scalar_text(scalar)));
    writer.text
}

/// The text of `verification_key.json`.
pub fn verifying_key_to_json(key: &VerifyingKey) -> String {
    object(&[
        ("protocol", Value::Text("groth16")),
        ("curve", Value::Text("bls12381")),
        ("nPublic", Value::Number(key.num_public())),
        ("vk_alpha_1", Value::G1(values::g1_text(&key.alpha_g1()))),
        ("vk_beta_2", Value::G2(values::g2_text(&key.beta_g2()))),
        ("vk_gamma_2", Value::G2(values::g2_text(&key.gamma_g2()))),
        ("vk_delta_2", Value::G2(values::g2_text(&key.delta_g2()))),
        ("vk_alphabeta_12", Value::Fq12(pairing::alpha_beta_text(key))),
        ("IC", Value::G1s(key.ic().iter().map(values::g1_text).collect())),
    ])
}
