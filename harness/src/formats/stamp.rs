//! Stamps: what was learned when a key file was first opened, so that the next start is fast.
//!
//! Checking that every point of a key is on the curve takes longer than proving with it. A stamp in the user's cache says
//! that it has been done for *this* file: canonical path, device, inode, size, times of modification and change in
//! nanoseconds, table of sections. Any difference, or a damaged stamp, means that the points are checked again. The stamp
//! also keeps the density maps, which otherwise need a look at every record.
//!
//! A stamp is as good as the user's own cache folder: whoever can write there can already act as the user. It is no
//! protection against somebody who can change a file and set all its times back, which on common systems needs control over
//! the clock or the disk.
//!
//! The file: 8 bytes of magic, 32 bytes of BLAKE3 over the rest, u32 length of the key and the key (path, identity, sections),
//! then five density maps as (u64 bits, words), all little-endian. (Of a `.params` file: the hash of its contents, and device,
//! inode, size and times of its conversion.)

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use splitprover_core::Bitmap;

use super::container::Section;
use super::source::FileIdentity;
use super::zkey::Densities;

const MAGIC: [u8; 8] = *b"SPstamp1";
/// A file that has changed this recently isn't stamped: another change within the clock's resolution would leave its times
/// the same.
const SETTLED_NS: i128 = 100_000_000;

/// Where stamps are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps<'a> {
    /// Nowhere: points are checked at every opening.
    #[default]
    Off,
    /// In the user's cache: `$XDG_CACHE_HOME/splitprover`, or `~/.cache/splitprover`.
    User,
    /// In this folder.
    In(&'a Path),
}

impl Stamps<'_> {
    /// The folder, if there is one.
    pub fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::Off => None,
            Self::In(folder) => Some(folder.to_path_buf()),
            Self::User => {
                let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
                let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
                Some(cache.join("splitprover"))
            }
        }
    }
}

/// The stamp of one file as it is now.
#[derive(Debug)]
pub(super) struct Stamp {
    path: PathBuf,
    key: Vec<u8>,
    identity: FileIdentity,
}

impl Stamp {
    /// The stamp's place in a folder, and what it must say. `None` if the file's canonical path can't be had.
    pub(super) fn new(folder: &Path, file: &Path, identity: &FileIdentity, sections: &[Section]) -> Option<Self> {
        let canonical = std::fs::canonicalize(file).ok()?;
        let name = blake3::hash(canonical.as_os_str().as_bytes()).to_hex();
        let name = name.get(..32)?;
        let mut key = Vec::new();
        put_bytes(&mut key, canonical.as_os_str());
        key.extend(identity.to_bytes());
        for section in sections {
            key.extend(section.kind.to_le_bytes());
            key.extend(section.offset.to_le_bytes());
            key.extend(section.size.to_le_bytes());
        }
        Some(Self { path: folder.join(format!("{name}.stamp")), key, identity: *identity })
    }

    /// Reads the density maps. `lengths` are the lengths they must have: A, B in G1, B in G2, L, H.
    ///
    /// `None` if there is no stamp, it is damaged, or it is for another file or another state of this one.
    pub(super) fn read(&self, lengths: [usize; 5]) -> Option<Densities> {
        let words = lengths.iter().try_fold(0usize, |sum, length| sum.checked_add(length.div_ceil(64)));
        let payload = self.read_payload(words?.checked_mul(8)?.checked_add(5 * 8)?)?;
        let mut maps = payload.as_slice();
        let [a, b_g1, b_g2, l, h] = lengths;
        let densities = Densities {
            a: take_map(&mut maps, a)?,
            b_g1: take_map(&mut maps, b_g1)?,
            b_g2: take_map(&mut maps, b_g2)?,
            l: take_map(&mut maps, l)?,
            h: take_map(&mut maps, h)?,
        };
        maps.is_empty().then_some(densities)
    }

    /// Reads what a stamp says beside which file it is for: exactly `length` bytes.
    ///
    /// `None` if there is no stamp, it is damaged, or it is for another file or another state of this one.
    pub(super) fn read_payload(&self, length: usize) -> Option<Vec<u8>> {
        let size = (8 + 32 + 4usize).checked_add(self.key.len())?.checked_add(length)?;
        let file = File::open(&self.path).ok()?;
        if file.metadata().ok()?.len() != size as u64 {
            return None;
        }
        let mut bytes = Vec::with_capacity(size);
        file.take(size as u64).read_to_end(&mut bytes).ok()?;
        let body = bytes.strip_prefix(&MAGIC)?;
        let (checksum, body) = body.split_first_chunk::<32>()?;
        if blake3::hash(body) != *checksum {
            return None;
        }
        let (key_length, body) = body.split_first_chunk::<4>()?;
        let (key, payload) = body.split_at_checked(u32::from_le_bytes(*key_length) as usize)?;
        (key == self.key && payload.len() == length).then(|| payload.to_vec())
    }

    /// Writes the stamp, for a file whose points have been checked. What can't be written is no error: the points are checked
    /// again next time. Says why it wasn't.
    pub(super) fn write(&self, densities: &Densities) -> Result<(), String> {
        let mut payload = Vec::new();
        for map in [&densities.a, &densities.b_g1, &densities.b_g2, &densities.l, &densities.h] {
            payload.extend((map.len() as u64).to_le_bytes());
            map.words().iter().for_each(|word| payload.extend(word.to_le_bytes()));
        }
        self.write_payload(&payload)
    }

    /// Writes the stamp with this payload, unless the file has only just changed. Says why it wasn't written.
    pub(super) fn write_payload(&self, payload: &[u8]) -> Result<(), String> {
        let changed = self.identity.modified_ns.max(self.identity.changed_ns);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as i128);
        if now.saturating_sub(changed) < SETTLED_NS {
            return Err("the file has only just changed".to_owned());
        }
        let mut body = Vec::new();
        put_bytes(&mut body, OsStr::from_bytes(&self.key));
        body.extend(payload);
        self.put(&body).map_err(|e| format!("{}: {e}", self.path.display()))
    }

    fn put(&self, body: &[u8]) -> io::Result<()> {
        let folder = self.path.parent().ok_or(io::ErrorKind::NotFound)?;
        create_folder(folder)?;
        let mut file = tempfile::Builder::new().prefix(".stamp-").tempfile_in(folder)?;
        file.write_all(&MAGIC)?;
        file.write_all(blake3::hash(body).as_bytes())?;
        file.write_all(body)?;
        file.flush()?;
        file.persist(&self.path)?;
        Ok(())
    }
}

/// Makes the cache's folder, which is the user's alone.
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn put_bytes(out: &mut Vec<u8>, bytes: &OsStr) {
    // Paths and keys are far shorter than 4 GiB.
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes.as_bytes());
}

fn take_map(rest: &mut &[u8], length: usize) -> Option<Bitmap> {
    let (bits, after) = rest.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*bits) != length as u64 {
        return None;
    }
    let (words, after) = after.split_at_checked(length.div_ceil(64).checked_mul(8)?)?;
    *rest = after;
    let words = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    Bitmap::from_words(words, length)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    fn densities() -> Densities {
        let map = |length: usize, modulus: usize| Bitmap::from_fn(length, |i| i % modulus == 0);
        Densities { a: map(100, 1), b_g1: map(100, 3), b_g2: map(100, 3), l: map(0, 1), h: map(128, 7) }
    }

    const LENGTHS: [usize; 5] = [100, 100, 100, 0, 128];

    #[test]
    fn a_stamp_is_read_back_and_any_difference_or_damage_voids_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "x").unwrap();
        let mut identity = FileIdentity::of(&File::open(&file).unwrap()).unwrap();
        (identity.modified_ns, identity.changed_ns) = (1, 2);
        let sections = [Section { kind: 1, offset: 24, size: 4 }];
        let stamp = |identity: &FileIdentity, sections: &[Section]| {
            Stamp::new(&folder.path().join("cache/deep"), &file, identity, sections).unwrap()
        };
        let good = stamp(&identity, &sections);
        assert_eq!(good.read(LENGTHS), None);
        good.write(&densities()).unwrap();
        assert_eq!(good.read(LENGTHS), Some(densities()));
        assert_eq!(good.read([100, 100, 100, 1, 128]), None);

        let differing = [
            FileIdentity { device: identity.device + 1, ..identity },
            FileIdentity { inode: identity.inode + 1, ..identity },
            FileIdentity { size: 2, ..identity },
            FileIdentity { modified_ns: 2, ..identity },
            FileIdentity { changed_ns: 3, ..identity },
        ];
        for other in &differing {
            assert_eq!(stamp(other, &sections).read(LENGTHS), None);
        }
        assert_eq!(stamp(&identity, &[Section { kind: 1, offset: 24, size: 5 }]).read(LENGTHS), None);

        let bytes = std::fs::read(&good.path).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&good.path, &damaged).unwrap();
            assert_eq!(good.read(LENGTHS), None, "byte {at}");
        }
        std::fs::write(&good.path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(good.read(LENGTHS), None);
    }

    #[test]
    fn a_file_that_has_just_changed_is_not_stamped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "x").unwrap();
        let mut identity = FileIdentity::of(&File::open(&file).unwrap()).unwrap();
        identity.changed_ns += 3_600_000_000_000; // a clock that is ahead counts as recent, too
        let stamp = Stamp::new(folder.path(), &file, &identity, &[]).unwrap();
        assert!(stamp.write(&densities()).unwrap_err().contains("just changed"));
        assert_eq!(stamp.read(LENGTHS), None);
    }
}
