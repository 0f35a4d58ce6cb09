//! Readers that trust nothing: tables of sections, sizes near 2^64, files beyond 4 GiB, random damage, strict JSON, stamps,
//! marks of development keys.

use std::fs::{File, FileTimes};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use blstrs::{G1Affine, Scalar};
use group::prime::PrimeCurveAffine;
use rand_chacha::ChaCha8Rng;
use rand_core::{OsRng, RngCore, SeedableRng};
use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_core::{HBasis, HostMemory, Inputs, PointRecord, Prover, RootOfUnity};
use splitprover_harness::formats::json::{proof_from_bytes, public_from_bytes, read_proof, verifying_key_from_bytes};
use splitprover_harness::formats::r1cs::R1csFile;
use splitprover_harness::formats::zkey::{DevelopmentMark, Extras, PointsChecked};
use splitprover_harness::formats::{
    FormatError, FormatResult, OpenOptions, Problem, Stamps, ZkeyFile, read_wtns, survive_shrinking, write_zkey,
    wtns_from_bytes, zkey_to_bytes,
};
use splitprover_harness::setup::{CpuFixedBase, Resources, Shape, Synthetic, Trapdoor, generate};
use splitprover_tests::cases;

fn case(name: &str, file: &str) -> Vec<u8> {
    std::fs::read(cases::root().join(name).join(file)).unwrap()
}

/// The three formats with a table of sections, and what reading one says.
const CONTAINERS: [&str; 3] = ["circuit.zkey", "witness.wtns", "circuit.r1cs"];

fn read(file: &str, bytes: Vec<u8>) -> FormatResult<()> {
    let path = Path::new(file);
    match file {
        "circuit.zkey" => ZkeyFile::from_bytes(path, bytes, OpenOptions::default()).map(drop),
        "witness.wtns" => wtns_from_bytes(path, &bytes, &HostMemory::default()).map(drop),
        "circuit.r1cs" => R1csFile::from_bytes(path, bytes).map(drop),
        other => panic!("{other}"),
    }
}

fn open(path: &Path, file: &str) -> FormatResult<()> {
    match file {
        "circuit.zkey" => ZkeyFile::open(path, OpenOptions::default()).map(drop),
        "witness.wtns" => read_wtns(path, &HostMemory::default()).map(drop),
        "circuit.r1cs" => R1csFile::open(path).map(drop),
        other => panic!("{other}"),
    }
}

/// A container taken apart.
#[derive(Clone)]
struct Parts {
    head: [u8; 8],
    sections: Vec<(u32, Vec<u8>)>,
}

impl Parts {
    fn of(bytes: &[u8]) -> Self {
        let mut sections = Vec::new();
        let mut at = 12;
        while at < bytes.len() {
            let kind = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let size = u64::from_le_bytes(bytes[at + 4..at + 12].try_into().unwrap()) as usize;
            sections.push((kind, bytes[at + 12..at + 12 + size].to_vec()));
            at += 12 + size;
        }
        Self { head: bytes[..8].try_into().unwrap(), sections }
    }

    fn section(&mut self, kind: u32) -> &mut Vec<u8> {
        &mut self.sections.iter_mut().find(|(k, _)| *k == kind).unwrap().1
    }

    /// Put together; `sizes` may say something else about a section's size than is true.
    fn bytes_with(&self, sizes: impl Fn(usize, u64) -> u64) -> Vec<u8> {
        let mut bytes = self.head.to_vec();
        bytes.extend((self.sections.len() as u32).to_le_bytes());
        for (index, (kind, data)) in self.sections.iter().enumerate() {
            bytes.extend(kind.to_le_bytes());
            bytes.extend(sizes(index, data.len() as u64).to_le_bytes());
            bytes.extend(data);
        }
        bytes
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes_with(|_, size| size)
    }
}

fn zkey_error(parts: &Parts) -> FormatError {
    ZkeyFile::from_bytes(Path::new("key"), parts.bytes(), OpenOptions::default()).unwrap_err()
}

#[test]
fn sections_may_come_in_any_order_and_unknown_ones_are_skipped() {
    for file in CONTAINERS {
        let mut parts = Parts::of(&case("mul2", file));
        read(file, parts.bytes()).unwrap();
        parts.sections.reverse();
        read(file, parts.bytes()).unwrap();
        parts.sections.insert(1, (0xdead_beef, vec![1, 2, 3]));
        parts.sections.push((78, Vec::new()));
        read(file, parts.bytes()).unwrap();
    }
}

#[test]
fn a_section_that_is_missing_or_comes_twice_is_refused() {
    for file in CONTAINERS {
        let parts = Parts::of(&case("mul2", file));
        for (index, (kind, data)) in parts.sections.iter().enumerate() {
            let mut twice = parts.clone();
            twice.sections.push((*kind, data.clone()));
            let error = read(file, twice.bytes()).unwrap_err();
            assert_eq!(error.section().unwrap().0, *kind, "{error}");
            assert!(error.to_string().contains("another"), "{error}");

            let mut without = parts.clone();
            without.sections.remove(index);
            let result = read(file, without.bytes());
            // A key without contributions and a system without labels can be used; nothing else can be missing.
            match (file, kind) {
                ("circuit.zkey", 10) | ("circuit.r1cs", 3) => result.unwrap(),
                _ => assert_eq!(result.unwrap_err().section().unwrap().0, *kind),
            }
        }
        let mut twice_unknown = parts.clone();
        twice_unknown.sections.extend([(99, vec![]), (99, vec![])]);
        assert!(read(file, twice_unknown.bytes()).is_err());
    }
}

#[test]
fn sizes_that_are_wrong_wrap_or_pass_the_end_are_refused() {
    for file in CONTAINERS {
        let parts = Parts::of(&case("mul2", file));
        for index in 0..parts.sections.len() {
            let sizes: [&dyn Fn(u64) -> u64; 9] = [
                &|size| size + 1,
                &|size| size.wrapping_sub(1),
                &|_| 0,
                &|_| u64::MAX,
                &|_| u64::MAX - 11,
                &|size| size.wrapping_sub(1 << 40),
                &|_| 1 << 63,
                &|size| size | 1 << 32,
                &|size| (1 << 62) | size,
            ];
            for (which, change) in sizes.iter().enumerate() {
                let bytes = parts.bytes_with(|i, size| if i == index { change(size) } else { size });
                let error = read(file, bytes).expect_err(&format!("{file}: section {index}, change {which}"));
                assert!(error.offset().is_some(), "{error}");
            }
        }
        let mut longer = parts.bytes();
        longer.push(0);
        assert!(read(file, longer).unwrap_err().to_string().contains("end of the last section"));
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    for file in CONTAINERS {
        let bytes = case("mul2", file);
        for length in 0..bytes.len() {
            assert!(read(file, bytes[..length].to_vec()).is_err(), "{file} cut to {length}");
        }
    }
}

#[test]
fn versions_and_counts_of_sections_are_taken_strictly() {
    for file in CONTAINERS {
        let good = case("mul2", file);
        let version = u32::from_le_bytes(good[4..8].try_into().unwrap());
        for other in [0, version - 1, version + 1, u32::MAX] {
            let mut bytes = good.clone();
            bytes[4..8].copy_from_slice(&other.to_le_bytes());
            assert_eq!(read(file, bytes).unwrap_err().offset(), Some(4));
        }
        let count = u32::from_le_bytes(good[8..12].try_into().unwrap());
        for other in [0, 1, count - 1, count + 1, 64, 65, u32::MAX] {
            let mut bytes = good.clone();
            bytes[8..12].copy_from_slice(&other.to_le_bytes());
            assert!(read(file, bytes).is_err(), "{file}: {other} sections");
        }
    }
}

#[test]
fn files_beyond_four_gigabytes_are_read() {
    // An unknown section of 5 GiB, a hole in the file, before everything else.
    const HOLE: u64 = 5 << 30;
    for file in CONTAINERS {
        let parts = Parts::of(&case("mul2", file));
        let mut sparse = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&sparse)));
        let mut start = parts.head.to_vec();
        start.extend((parts.sections.len() as u32 + 1).to_le_bytes());
        start.extend(0x7777u32.to_le_bytes());
        start.extend(HOLE.to_le_bytes());
        sparse.write_all(&start).unwrap();
        sparse.seek(SeekFrom::Current(HOLE as i64)).unwrap();
        sparse.write_all(&parts.bytes()[12..]).unwrap();
        open(&path, file).unwrap();

        // A size that is right in its lower 32 bits only.
        sparse.seek(SeekFrom::Start(16)).unwrap();
        sparse.write_all(&(HOLE & 0xffff_ffff).to_le_bytes()).unwrap();
        assert!(open(&path, file).is_err());
        sparse.seek(SeekFrom::Start(16)).unwrap();
        sparse.write_all(&(HOLE + (1 << 32)).to_le_bytes()).unwrap();
        let error = open(&path, file).unwrap_err();
        assert!(error.to_string().contains("to the end of the file"), "{error}");
    }
}

/// One to four random bytes, 32-bit or 64-bit numbers overwritten.
fn damage(bytes: &mut [u8], rng: &mut ChaCha8Rng) {
    for _ in 0..1 + rng.next_u32() % 4 {
        let at = rng.next_u32() as usize % bytes.len();
        let value = match rng.next_u32() % 4 {
            0 => rng.next_u64(),
            1 => 0,
            2 => u64::MAX,
            _ => u64::from(bytes[at]) ^ 1 << (rng.next_u32() % 8),
        };
        let width = [1, 1, 4, 8][rng.next_u32() as usize % 4].min(bytes.len() - at);
        bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
}

#[test]
fn random_damage_is_an_error_or_harmless() {
    let seed = OsRng.next_u64();
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for file in CONTAINERS {
        let good = case("mul2", file);
        let mut refused = 0;
        for _ in 0..1500 {
            let mut bytes = good.clone();
            damage(&mut bytes, &mut rng);
            refused += usize::from(read(file, bytes).is_err());
        }
        assert!(refused > 300, "{file}: only {refused} refused");
    }
    for file in ["vkey.json", "public.json", "proof_rs.json"] {
        let good = case("e_zero_output", file);
        for _ in 0..1500 {
            let mut text = good.clone();
            damage(&mut text, &mut rng);
            let path = Path::new(file);
            let changed = match file {
                "vkey.json" => verifying_key_from_bytes(path, &text).is_err(),
                "public.json" => public_from_bytes(path, &text, 3).is_err(),
                _ => proof_from_bytes(path, &text).is_err(),
            };
            // Damage to text that is still taken must be in spacing, case of the curve's name or the unused pairing.
            if !changed && file == "proof_rs.json" {
                let squeeze = |text: &[u8]| -> Vec<u8> {
                    text.iter().filter(|b| !b.is_ascii_whitespace()).map(u8::to_ascii_lowercase).collect()
                };
                let plain = |text: &[u8]| -> Vec<u8> { squeeze(text).into_iter().filter(u8::is_ascii_digit).collect() };
                assert_eq!(plain(&text), plain(&good), "{}", String::from_utf8_lossy(&text));
            }
        }
    }
}

#[test]
fn headers_of_keys_are_taken_strictly() {
    let good = Parts::of(&case("mul2", "circuit.zkey"));
    // Fields of section 2: number of variables, of public inputs, domain size.
    for (at, values) in [(88, [0u32, 1, 3, 5]), (92, [0, 2, 4, u32::MAX]), (96, [0, 2, 8, 3])] {
        for value in values {
            let mut parts = good.clone();
            parts.section(2)[at..at + 4].copy_from_slice(&value.to_le_bytes());
            zkey_error(&parts);
        }
    }
    let points = [("alpha in G1", 100, 96), ("beta in G1", 196, 96), ("beta in G2", 292, 192)];
    let points =
        points.into_iter().chain([("gamma in G2", 484, 192), ("delta in G1", 676, 96), ("delta in G2", 772, 192)]);
    for (name, at, size) in points {
        let mut parts = good.clone();
        parts.section(2)[at..at + size].fill(0);
        let message = zkey_error(&parts).to_string();
        assert!(message.contains(name) && message.contains("infinity"), "{message}");
        let mut parts = good.clone();
        parts.section(2)[at] ^= 1;
        let message = zkey_error(&parts).to_string();
        assert!(message.contains(name) && message.contains("not on the curve"), "{message}");
        let mut parts = good.clone();
        parts.section(2)[at..at + 48].fill(0xff);
        let message = zkey_error(&parts).to_string();
        assert!(message.contains(name) && message.contains("not below q"), "{message}");
        if size == 96 {
            let mut parts = good.clone();
            outside_subgroup().write_record(&mut parts.section(2)[at..at + size]);
            let message = zkey_error(&parts).to_string();
            assert!(message.contains(name) && message.contains("outside the subgroup"), "{message}");
        }
    }
    let mut parts = good.clone();
    outside_subgroup().write_record(&mut parts.section(3)[96..192]);
    let error = zkey_error(&parts);
    assert!(error.section() == Some((3, "IC")) && error.to_string().contains("point 1"), "{error}");
}

/// A point of the curve with cofactor torsion.
fn outside_subgroup() -> G1Affine {
    let points = (1u8..).filter_map(|x| {
        let mut bytes = [0; 48];
        (bytes[0], bytes[47]) = (0x80, x);
        Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
    });
    points.into_iter().find(|point| !point.in_subgroup()).unwrap()
}

#[test]
fn a_deep_check_sees_what_the_curve_equation_does_not() {
    let good = Parts::of(&case("mul2", "circuit.zkey"));
    let deep = OpenOptions { deep: true, ..OpenOptions::default() };
    let opened = ZkeyFile::from_bytes(Path::new("key"), good.bytes(), deep).unwrap();
    assert_eq!(opened.points_checked, PointsChecked::InSubgroup);
    for (section, record) in [(5, 1), (6, 0), (8, 1), (9, 3)] {
        let mut parts = good.clone();
        outside_subgroup().write_record(&mut parts.section(section)[record * 96..][..96]);
        let shallow = ZkeyFile::from_bytes(Path::new("key"), parts.bytes(), OpenOptions::default()).unwrap();
        assert_eq!(shallow.points_checked, PointsChecked::OnCurve);
        let error = ZkeyFile::from_bytes(Path::new("key"), parts.bytes(), deep).unwrap_err();
        assert_eq!(error.section().unwrap().0, section);
        assert!(error.to_string().contains(&format!("point {record}")), "{error}");
    }
    for (name, at) in [("beta", 196), ("delta", 676)] {
        let mut parts = good.clone();
        G1Affine::generator().write_record(&mut parts.section(2)[at..at + 96]);
        ZkeyFile::from_bytes(Path::new("key"), parts.bytes(), OpenOptions::default()).unwrap();
        let error = ZkeyFile::from_bytes(Path::new("key"), parts.bytes(), deep).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("the same logarithm"), "{error}");
    }
}

#[test]
fn counts_in_constraint_systems_and_contributions_are_taken_strictly() {
    let good = Parts::of(&case("mul2", "circuit.r1cs"));
    let read = |parts: &Parts| R1csFile::from_bytes(Path::new("r1cs"), parts.bytes());
    // Section 1 after the prime: wires, outputs, public inputs, private inputs, labels, constraints.
    for (at, value) in
        [(36, 2u32), (36, 1), (36, 3), (40, 4), (44, u32::MAX), (60, 0), (60, 2), (60, u32::MAX), (52, 1)]
    {
        let mut parts = good.clone();
        parts.section(1)[at..at + 4].copy_from_slice(&value.to_le_bytes());
        assert!(read(&parts).is_err(), "{at}: {value}");
    }
    // The first term: its combination's length, its wire, its coefficient.
    for (at, bytes) in [(0, &[9u8, 0, 0, 0][..]), (0, &[255; 4]), (4, &[4, 0, 0, 0]), (8, &[255; 32])] {
        let mut parts = good.clone();
        parts.section(2)[at..at + bytes.len()].copy_from_slice(bytes);
        let error = read(&parts).unwrap_err();
        assert_eq!(error.section(), Some((2, "constraints")), "{error}");
    }
    let mut gates = good.clone();
    gates.sections.push((4, 0u32.to_le_bytes().to_vec()));
    read(&gates).unwrap();
    gates.section(4)[0] = 1;
    assert!(read(&gates).unwrap_err().to_string().contains("no such constraints"));

    let good = Parts::of(&case("mul2", "circuit.zkey"));
    let opened = ZkeyFile::from_bytes(Path::new("key"), good.bytes(), OpenOptions::default()).unwrap();
    let contributions = opened.contributions.unwrap();
    assert!(contributions.list.last().unwrap().beacon);
    assert_eq!(contributions.list.last().unwrap().name.as_deref(), Some("final beacon"));
    let mut parts = good.clone();
    for value in [0u32, 2, u32::MAX] {
        parts.section(10)[64..68].copy_from_slice(&value.to_le_bytes());
        assert_eq!(zkey_error(&parts).section(), Some((10, "contributions")));
    }
}

#[test]
fn json_is_taken_strictly() {
    let public = |text: &str, count| public_from_bytes(Path::new("public.json"), text.as_bytes(), count);
    assert_eq!(public("[]", 0).unwrap(), []);
    assert_eq!(public(" [ \"0\" ,\r\n\t\"12\" ] \n", 2).unwrap(), [Scalar::from(0), Scalar::from(12)]);
    let r_less_one = "52435875175126190479447740508185965837690552500527637822603658699938581184512";
    assert_eq!(public(&format!("[\"{r_less_one}\"]"), 1).unwrap(), [-Scalar::from(1)]);
    let r = "52435875175126190479447740508185965837690552500527637822603658699938581184513";
    let long = "1".repeat(10_000_000);
    for number in ["", "00", "01", "-0", "-1", "+1", "0x1", "1e1", "1.0", " 1", "1 ", "1_0", "١", r, &long, "\\u0031"]
    {
        assert!(public(&format!("[\"{number}\"]"), 1).is_err(), "{:.40}", number);
    }
    for text in
        ["", "[", "[\"1\"", "[\"1\",]", "[,\"1\"]", "[\"1\"]]", "[\"1\"]x", "[1]", "[[\"1\"]]", "[null]", "{}", "\"1\""]
    {
        assert!(public(text, 1).is_err(), "{text}");
    }
    for (text, count) in [("[]", 1), ("[\"1\"]", 0), ("[\"1\"]", 2), ("[\"1\",\"2\"]", 1)] {
        assert!(public(text, count).is_err(), "{text} for {count}");
    }

    // Fields: none twice, none unknown, none missing; any order.
    let proof = String::from_utf8(case("mul2", "proof_rs.json")).unwrap();
    let read = |text: &str| proof_from_bytes(Path::new("proof.json"), text.as_bytes());
    let good = read(&proof).unwrap();
    let value: serde_json::Value = serde_json::from_str(&proof).unwrap();
    let fields: Vec<(String, String)> =
        value.as_object().unwrap().iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    let object = |fields: &[(String, String)]| {
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", fields.join(","))
    };
    let mut reversed = fields.clone();
    reversed.reverse();
    assert_eq!(read(&object(&reversed)).unwrap(), good);
    for index in 0..fields.len() {
        let mut without = fields.clone();
        let field = without.remove(index);
        assert!(read(&object(&without)).is_err());
        let mut twice = fields.clone();
        twice.push(field);
        assert!(read(&object(&twice)).is_err());
    }
    let mut unknown = fields.clone();
    unknown.push(("more".to_owned(), "1".to_owned()));
    assert!(read(&object(&unknown)).is_err());

    // Spellings of the curve, other protocols, other third coordinates.
    for name in ["BLS12-381", "bls12_381", "Bls12381"] {
        read(&proof.replace("bls12381", name)).unwrap();
    }
    for (from, to) in
        [("bls12381", "bls12377"), ("groth16", "plonk"), ("\"1\"\n ]", "\"2\"\n ]"), ("\"0\"\n  ]", "\"1\"\n  ]")]
    {
        assert!(proof.contains(from));
        assert!(read(&proof.replacen(from, to, 1)).is_err(), "{from} -> {to}");
    }
}

#[test]
fn endless_input_is_refused_at_once() {
    for filler in [b'[', b'{', b'"', b'1', b' ', b'\\', 0, 0xff] {
        let text = vec![filler; 16 << 20];
        let path = Path::new("endless");
        let errors = [
            public_from_bytes(path, &text, 1).unwrap_err(),
            proof_from_bytes(path, &text).unwrap_err(),
            verifying_key_from_bytes(path, &text).unwrap_err(),
        ];
        for error in errors {
            assert!(error.offset().unwrap() <= 4096, "{error}");
        }
    }
    assert!(read_proof(Path::new("/dev/zero")).is_err());
}

/// A key file of its own, old enough to be stamped.
fn settled_key(folder: &Path) -> PathBuf {
    let path = folder.join("circuit.zkey");
    std::fs::write(&path, case("mul2", "circuit.zkey")).unwrap();
    settle();
    path
}

/// A file that has only just changed isn't stamped.
fn settle() {
    std::thread::sleep(Duration::from_millis(150));
}

#[test]
fn a_stamp_spares_the_second_opening_until_the_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = settled_key(folder.path());
    let stamps = folder.path().join("stamps");
    let options = OpenOptions { stamps: Stamps::In(&stamps), ..OpenOptions::default() };
    let checked = |options| {
        let opened = ZkeyFile::open(&path, options).unwrap();
        assert_eq!(opened.not_stamped, None);
        opened.points_checked
    };
    let first = ZkeyFile::open(&path, options).unwrap();
    assert_eq!(first.points_checked, PointsChecked::OnCurve);
    let second = ZkeyFile::open(&path, options).unwrap();
    assert_eq!(second.points_checked, PointsChecked::ByStamp);
    let bytes = |file: &ZkeyFile| zkey_to_bytes(&path, &file.key, Extras::default()).unwrap();
    assert_eq!(bytes(&first), bytes(&second));
    assert_eq!(first.key.b_g2().density(), second.key.b_g2().density());

    assert_eq!(checked(OpenOptions { recheck: true, ..options }), PointsChecked::OnCurve);
    assert_eq!(checked(OpenOptions { deep: true, ..options }), PointsChecked::InSubgroup);
    assert_eq!(checked(options), PointsChecked::ByStamp);

    // A point off the curve, with the modification time set back.
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let mut file = File::options().write(true).open(&path).unwrap();
    let length = file.metadata().unwrap().len();
    let at = second.sections.iter().find(|section| section.kind == 9).unwrap().offset;
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&[0x55]).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), length);
    assert!(ZkeyFile::open(&path, options).unwrap_err().to_string().contains("not on the curve"));

    // Damaged stamps are no stamps.
    std::fs::write(&path, case("mul2", "circuit.zkey")).unwrap();
    settle();
    assert_eq!(checked(options), PointsChecked::OnCurve);
    assert_eq!(checked(options), PointsChecked::ByStamp);
    let stamp = std::fs::read_dir(&stamps).unwrap().next().unwrap().unwrap().path();
    let mut damaged = std::fs::read(&stamp).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&stamp, damaged).unwrap();
    assert_eq!(checked(options), PointsChecked::OnCurve);
}

#[test]
fn a_key_that_changes_after_it_was_opened_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = settled_key(folder.path());
    let opened = ZkeyFile::open(&path, OpenOptions::default()).unwrap();
    opened.check_unchanged().unwrap();
    // Another file under the name is another file.
    let other = folder.path().join("other");
    std::fs::write(&other, "x").unwrap();
    std::fs::rename(&path, folder.path().join("kept")).unwrap();
    std::fs::rename(&other, &path).unwrap();
    opened.check_unchanged().unwrap();
    let file = File::options().write(true).open(folder.path().join("kept")).unwrap();
    file.set_len(100).unwrap();
    assert!(matches!(opened.check_unchanged().unwrap_err().problem(), Problem::Changed));
}

#[test]
fn a_key_that_is_cut_under_a_proof_gives_an_error_and_no_crash() {
    survive_shrinking().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("circuit.zkey");
    std::fs::write(&path, case("poseidon2", "circuit.zkey")).unwrap();
    let opened = ZkeyFile::open(&path, OpenOptions::default()).unwrap();
    let witness = cases::root().join("poseidon2/witness.wtns");
    let witness = opened.read_witness(&witness, &HostMemory::default()).unwrap();
    let prover = Prover::new(CpuBackend::new(CpuOptions::default()).unwrap());
    let key = prover.load_key(opened.key.clone()).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(8192).unwrap();
    let proof = prover.start(&key, Inputs::new(witness)).map(|in_flight| in_flight.finish());
    assert!(!matches!(proof, Ok(Ok(_))), "a proof from points that are gone");
    assert!(matches!(opened.check_unchanged().unwrap_err().problem(), Problem::Changed));
}

#[test]
fn development_keys_keep_their_mark_and_basis() {
    let circuit = Synthetic::new(Shape::Mixed, 5).unwrap();
    let memory = HostMemory::default();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dev.zkey");
    for basis in [HBasis::OddLagrange, HBasis::Monomial] {
        let fixed_base = CpuFixedBase::new(1 << 5);
        let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
        let key = generate(&circuit, basis, &Trapdoor::from_seed(3, basis), &resources).unwrap().key;
        let monomial_h = basis == HBasis::Monomial;
        let mark = DevelopmentMark { insecure: true, monomial_h, text: "seed 3, mixed, τ known".to_owned() };
        write_zkey(&path, &key, Extras { contributions: None, mark: Some(&mark) }).unwrap();
        let opened = ZkeyFile::open(&path, OpenOptions { deep: true, ..OpenOptions::default() }).unwrap();
        assert!(opened.is_insecure());
        assert_eq!(opened.mark, Some(mark.clone()));
        assert_eq!(opened.key.h_basis(), basis);
        assert_eq!(opened.key.domain(), key.domain());
        assert_eq!(opened.key.domain().root() == RootOfUnity::bellman(), monomial_h);
        assert_eq!(opened.key.verifying_key(), key.verifying_key());
        for row in 0..key.matrices().unwrap().a.num_rows() {
            assert!(opened.key.matrices().unwrap().a.row(row).eq(key.matrices().unwrap().a.row(row)));
            assert!(opened.key.matrices().unwrap().b.row(row).eq(key.matrices().unwrap().b.row(row)));
        }
        let extras = Extras { contributions: opened.contributions.as_ref(), mark: opened.mark.as_ref() };
        assert_eq!(zkey_to_bytes(&path, &opened.key, extras).unwrap(), std::fs::read(&path).unwrap());

        let mut parts = Parts::of(&std::fs::read(&path).unwrap());
        let good = parts.section(0x5350_4b31).clone();
        for (at, value) in [(0, 2), (0, 0), (4, 4), (4, 0xff), (8, 0xff)] {
            let mark = parts.section(0x5350_4b31);
            mark[at] = value;
            assert!(zkey_error(&parts).to_string().contains("development mark"), "{at}: {value}");
            *parts.section(0x5350_4b31) = good.clone();
        }
        // Read in the other basis, the H section has the wrong length.
        parts.section(0x5350_4b31)[4] ^= 2;
        assert_eq!(zkey_error(&parts).section(), Some((9, "H")));
    }
}
