//! Writing a `.params`, as bellperson reads it.

use std::io::{self, Write};
use std::path::Path;

use blstrs::{G1Affine, G2Affine};
use splitprover_core::key::Storage;
use splitprover_core::{HBasis, PointRecord, ProvingKey, Query};

use super::super::error::{FormatResult, Place};
use super::super::output::OutputFile;
use super::points::{Encoding, encode_records};
use super::{is_infinity, kind};

/// Records that are encoded at a time.
const CHUNK: usize = 1 << 14;

/// Writes a key file, which appears whole or not at all.
///
/// What such a file can't hold is lost: the matrices, the densities, the domain's root of unity and the mark of a `.zkey`. bellman's provers take the root to be [`RootOfUnity::bellman`](splitprover_core::RootOfUnity::bellman).
///
/// # Errors
/// If H isn't in bellman's basis; if a private variable occurs in no constraint, or a public input's base is infinity, which
/// bellman's keys don't have; if A lacks a public input; if a count is 2^32 or more; if the file can't be written.
pub fn write_params(path: &Path, key: &ProvingKey) -> FormatResult<()> {
    check(key, &Place::file(path))?;
    let mut output = OutputFile::create(path)?;
    output.fill(|out| write(out, key))?;
    output.commit()
}

/// A key file in memory: what [`write_params`] writes.
///
/// # Errors
/// As [`write_params`]; `name` stands in messages.
pub fn params_to_bytes(name: &Path, key: &ProvingKey) -> FormatResult<Vec<u8>> {
    let place = Place::file(name);
    check(key, &place)?;
    let mut bytes = Vec::new();
    write(&mut bytes, key).map_err(|e| place.io("cannot write", e))?;
    Ok(bytes)
}

fn check(key: &ProvingKey, place: &Place) -> FormatResult<()> {
    let at = |kind: u32| place.section(kind, kind::name(kind));
    if key.h_basis() != HBasis::Monomial {
        return Err(at(kind::H).unexpected(
            None,
            "basis",
            "bellman's, powers of tau",
            "snarkjs's, Lagrange polynomials",
        ));
    }
    for (kind, length) in [
        (kind::IC, key.verifying_key().ic().len()),
        (kind::H, key.h().num_dense()),
        (kind::A, key.a().num_dense()),
        (kind::L, key.l().num_dense()),
    ] {
        if u32::try_from(length).is_err() {
            return Err(at(kind).unexpected(None, "number of points", "less than 2^32", length));
        }
    }
    if let Some(index) = key.verifying_key().ic().iter().position(is_infinity) {
        return Err(at(kind::IC).unexpected(None, format!("point {index}"), "a finite one", "infinity"));
    }
    for (kind, missing, what) in [
        (kind::L, first_missing(key.l(), key.l().num_variables()), "private variable"),
        (kind::A, first_missing(key.a(), key.verifying_key().ic().len()), "public input"),
        (kind::H, first_missing(key.h(), key.h().num_variables()), "power of tau"),
    ] {
        if let Some(index) = missing {
            let found = "infinity: it occurs in no constraint";
            return Err(at(kind).unexpected(None, format!("point of {what} {index}"), "a finite one", found));
        }
    }
    Ok(())
}

/// The first of the variables 0 .. `count` that isn't dense in a query.
fn first_missing<C: PointRecord>(query: &Query<C>, count: usize) -> Option<usize> {
    let density = query.density()?;
    (0..count.min(density.len())).find(|&variable| !density.get(variable))
}

fn write(out: &mut dyn Write, key: &ProvingKey) -> io::Result<()> {
    let vk = key.verifying_key();
    let mut constants = Vec::new();
    vk.alpha_g1().put_uncompressed(&mut constants);
    key.beta_g1().put_uncompressed(&mut constants);
    vk.beta_g2().put_uncompressed(&mut constants);
    vk.gamma_g2().put_uncompressed(&mut constants);
    key.delta_g1().put_uncompressed(&mut constants);
    vk.delta_g2().put_uncompressed(&mut constants);
    count(&mut constants, vk.ic().len());
    vk.ic().iter().for_each(|point| point.put_uncompressed(&mut constants));
    out.write_all(&constants)?;
    query::<G1Affine>(out, key.h())?;
    query::<G1Affine>(out, key.l())?;
    query::<G1Affine>(out, key.a())?;
    query::<G1Affine>(out, key.b_g1())?;
    query::<G2Affine>(out, key.b_g2())
}

fn count(out: &mut Vec<u8>, count: usize) {
    // `check` keeps counts below 2^32; B has at most as many points as A has variables.
    out.extend((count as u32).to_be_bytes());
}

/// The dense variables' points, and how many they are.
fn query<C: Encoding>(out: &mut dyn Write, query: &Query<C>) -> io::Result<()> {
    let mut length = Vec::new();
    count(&mut length, query.num_dense());
    out.write_all(&length)?;
    if query.density().is_none() || query.storage() == Storage::Compact {
        let chunk = CHUNK.saturating_mul(C::BYTES);
        return query.table().as_bytes().chunks(chunk).try_for_each(|c| out.write_all(&encode_records::<C>(c)));
    }
    for first in (0..query.num_dense()).step_by(CHUNK) {
        let records = CHUNK.min(query.num_dense().saturating_sub(first));
        let mut chunk = vec![0; records.saturating_mul(C::BYTES)];
        query.copy_dense(first, &mut chunk);
        out.write_all(&encode_records::<C>(&chunk))?;
    }
    Ok(())
}
