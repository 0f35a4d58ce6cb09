//! `splitprover inspect`: what a file holds, and whether it is sound.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use splitprover_core::{HBasis, HostMemory};

use super::key_file::{open_params, open_zkey};
use super::{Failure, print, print_json};
use crate::formats::params::is_params;
use crate::formats::zkey::PointsChecked;
use crate::formats::{R1csFile, first_bytes, read_wtns};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A .zkey, .params, .wtns or .r1cs file
    file: PathBuf,
    /// Check that every point of a key is in the subgroup. Slow
    #[arg(long)]
    deep: bool,
    /// Check a key's points again although they have been checked before
    #[arg(long)]
    recheck: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let facts = match &first_bytes(path).unwrap_or_default() {
        // Such a file has no magic: its name says what it is.
        _ if is_params(path) => params(path, arguments)?,
        b"zkey" => zkey(path, arguments)?,
        b"wtns" => wtns(path)?,
        b"r1cs" => r1cs(path)?,
        // What can't be opened, or is none of these, gets its error from the reader of keys.
        _ => zkey(path, arguments)?,
    };
    if arguments.json {
        print_json(&Value::Object(facts.into_iter().map(|(name, value)| (name.replace(' ', "_"), value)).collect()));
    } else {
        for (name, value) in facts {
            let text = match value {
                Value::String(text) => text,
                Value::Array(lines) => lines
                    .iter()
                    .map(|line| line.as_str().map_or_else(|| line.to_string(), str::to_owned))
                    .collect::<Vec<_>>()
                    .join("\n                      "),
                other => other.to_string(),
            };
            print(&format!("{name:<20}  {text}\n"));
        }
    }
    Ok(())
}

type Facts = Vec<(&'static str, Value)>;

fn zkey(path: &Path, arguments: &Arguments) -> Result<Facts, Failure> {
    let file = open_zkey(path, arguments.recheck, arguments.deep)?;
    let (key, shape) = (&file.key, file.key.shape());
    let mut facts: Facts = vec![
        ("file", json!("zkey: groth16 proving key")),
        ("curve", json!("BLS12-381")),
        ("variables", json!(shape.num_variables)),
        ("public", json!(shape.num_public)),
        ("domain", json!(shape.domain_size())),
        (
            "H basis",
            json!(match key.h_basis() {
                HBasis::OddLagrange => "odd Lagrange polynomials, root of unity 5^((r-1)/2^32) (snarkjs)",
                HBasis::Monomial => "monomials, root of unity 7^((r-1)/2^32) (bellman)",
            }),
        ),
        ("dense in A", json!(key.a().num_dense())),
        ("dense in B", json!(key.b_g2().num_dense())),
        ("dense in L", json!(key.l().num_dense())),
        ("coefficients", json!(file.num_coefficients)),
        ("points", points(file.points_checked)),
    ];
    match &file.contributions {
        Some(contributions) => {
            let names = contributions.list.iter().enumerate().map(|(i, c)| {
                let kind = if c.beacon { "beacon" } else { "contribution" };
                format!("{kind} {}: {}", i + 1, c.name.as_deref().unwrap_or("without a name").escape_debug())
            });
            facts.push(("contributions", json!(contributions.list.len())));
            if !contributions.list.is_empty() {
                facts.push(("contributors", Value::Array(names.map(Value::String).collect())));
            }
        }
        None => facts.push(("contributions", json!("no such section"))),
    }
    if let Some(mark) = &file.mark {
        let what = if mark.insecure { "INSECURE development key" } else { "marked" };
        facts.push(("mark", json!(format!("{what}: {}", mark.text.escape_debug()))));
    }
    Ok(facts)
}

fn points(checked: PointsChecked) -> Value {
    json!(match checked {
        PointsChecked::ByStamp => "checked when the file was opened before: on the curve (--recheck does it again)",
        PointsChecked::OnCurve => "checked: on the curve",
        PointsChecked::InSubgroup => "checked: on the curve and in the subgroup",
    })
}

fn params(path: &Path, arguments: &Arguments) -> Result<Facts, Failure> {
    let file = open_params(path, arguments.recheck, arguments.deep)?;
    let (shape, counts) = (file.shape(), file.counts());
    let mut facts: Facts = vec![
        ("file", json!("params: groth16 proving key of bellperson's, without its constraints")),
        ("curve", json!("BLS12-381")),
        ("variables", json!(shape.num_variables)),
        ("public", json!(shape.num_public)),
        ("domain", json!(shape.domain_size())),
        ("H basis", json!("monomials; the file doesn't say to which root of unity's powers rows belong")),
        ("dense in A", json!(counts.a)),
        ("dense in B", json!(counts.b)),
        ("points", points(file.points_checked)),
    ];
    if file.is_insecure() {
        facts.push(("mark", json!("INSECURE development key: its gamma is the one of splitprover's setup")));
    }
    Ok(facts)
}

fn wtns(path: &Path) -> Result<Facts, Failure> {
    let witness = read_wtns(path, &HostMemory::default())?;
    let (zero, one) = (splitprover_core::Scalar::from(0), splitprover_core::Scalar::from(1));
    let count = |value| witness.iter().filter(|w| **w == value).count();
    Ok(vec![
        ("file", json!("wtns: witness")),
        ("curve", json!("BLS12-381")),
        ("values", json!(witness.len())),
        ("zeros", json!(count(zero))),
        ("ones", json!(count(one))),
    ])
}

fn r1cs(path: &Path) -> Result<Facts, Failure> {
    let header = R1csFile::open(path)?.header();
    Ok(vec![
        ("file", json!("r1cs: constraints")),
        ("curve", json!("BLS12-381")),
        ("constraints", json!(header.num_constraints)),
        ("variables", json!(header.num_wires)),
        ("public outputs", json!(header.num_outputs)),
        ("public inputs", json!(header.num_public_inputs)),
        ("private inputs", json!(header.num_private_inputs)),
        ("labels", json!(header.num_labels)),
    ])
}
