use super::*;

/// Runs `body` where NVRTC can be loaded, and says so where it can't.
fn with_compiler(body: impl FnOnce()) {
    match compiler() {
        Ok(_) => body(),
        Err(reason) => println!("skipped, no NVRTC: {}", reason.lines().next().unwrap_or_default()),
    }
}

fn scratch() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("splitprover-kernels-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn small_families_compile_for_the_oldest_and_the_newest_architecture() {
    with_compiler(|| {
        for arch in ["sm_75", "sm_120"] {
            let built = build(Family::Vector, arch).unwrap();
            assert!(built.cubin.starts_with(ELF));
            assert!(
                built.resources.iter().any(|r| r.name == "sparse_product" && r.registers > 0),
                "{:?}",
                built.resources
            );
        }
    });
}

#[test]
fn a_refused_source_gives_the_compilers_words() {
    with_compiler(|| {
        let log =
            Nvrtc::get().unwrap().compile("bad.cu", "not C++", &[], &options("sm_90")).map(|c| c.log).unwrap_err();
        assert!(log.contains("bad.cu(1): error"), "{log}");
    });
}

/// A version no compiler has, and an image that passes for one.
const VERSION: (u32, u32) = (1, 2);

fn image() -> Vec<u8> {
    ELF.iter().copied().chain((0..200_000u32).map(|i| i as u8)).collect()
}

fn built() -> Built {
    Built { cubin: image(), resources: Vec::new() }
}

#[test]
fn an_entry_survives_only_whole_and_a_damaged_one_is_rebuilt() {
    let folder = scratch();
    let cache = Cache::at(&folder);
    let builds = std::cell::Cell::new(0);
    let cubin = || {
        let build = |_: Family, _: &str| {
            builds.set(builds.get() + 1);
            Ok(built())
        };
        cache.cubin_by(Family::Vector, "sm_90", Some(VERSION), build).unwrap()
    };
    assert_eq!(cubin(), image());
    assert_eq!(cubin(), image());
    assert_eq!(builds.get(), 1, "the second came from the cache");
    let entry = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let good = fs::read(&entry).unwrap();
    let middle = good.len() / 2;
    let mut flipped = good.clone();
    flipped[middle] ^= 1;
    for (i, bad) in [&good[..middle], &good[..20], &[][..], &flipped].into_iter().enumerate() {
        fs::write(&entry, bad).unwrap();
        assert!(read_entry(&entry).is_none());
        assert_eq!(cubin(), image());
        assert_eq!(builds.get(), 2 + i);
        assert_eq!(fs::read(&entry).unwrap(), good);
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_entry_is_used_for_its_own_source_architecture_and_compiler_alone() {
    let folder = scratch();
    let cache = Cache::at(&folder);
    cache.store(Family::Vector, "sm_90", VERSION, &image()).unwrap();
    assert!(cache.lookup(Family::Vector, "sm_90", Some(VERSION)).is_some());
    assert!(cache.lookup(Family::Ntt, "sm_90", Some(VERSION)).is_none());
    assert!(cache.lookup(Family::Vector, "sm_75", Some(VERSION)).is_none());
    assert!(cache.lookup(Family::Vector, "sm_90", Some((1, 3))).is_none());
    // Without a compiler any version's work will do, the newest that is whole first.
    let mut newer = image();
    newer.push(1);
    cache.store(Family::Vector, "sm_90", (1, 3), &newer).unwrap();
    assert_eq!(cache.lookup(Family::Vector, "sm_90", None).unwrap(), newer);
    fs::write(folder.join(entry_name(&stem(Family::Vector, "sm_90"), (1, 3))), b"damaged").unwrap();
    assert_eq!(cache.lookup(Family::Vector, "sm_90", None).unwrap(), image());
    fs::remove_dir_all(folder).unwrap();
}

const SHARED: &str = "SPLITPROVER_TEST_SHARED_CACHE";

/// A process that uses the cache of another test, if it is told to.
#[test]
fn one_of_many_processes() {
    let Some(folder) = std::env::var_os(SHARED) else { return };
    let cache = Cache::at(folder);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..30 {
                    let cubin = cache.cubin_by(Family::Ntt, "sm_90", Some(VERSION), |_, _| Ok(built())).unwrap();
                    assert_eq!(cubin, image());
                    if round % 3 == 0 {
                        cache.store(Family::Ntt, "sm_90", VERSION, &image()).unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn processes_that_share_a_cache_see_whole_entries_only() {
    let folder = scratch();
    let mut children: Vec<_> = (0..4)
        .map(|_| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "kernels::tests::one_of_many_processes"])
                .env(SHARED, &folder)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    // Meanwhile somebody damages the entry now and then.
    let entry = folder.join(entry_name(&stem(Family::Ntt, "sm_90"), VERSION));
    while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        let _ = fs::write(&entry, b"damaged");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
    let cache = Cache::at(&folder);
    assert_eq!(cache.cubin_by(Family::Ntt, "sm_90", Some(VERSION), |_, _| Ok(built())).unwrap(), image());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_unwritable_cache_is_an_error_that_names_it() {
    let file = scratch().join("file");
    fs::write(&file, b"").unwrap();
    let cache = Cache::at(file.join("below"));
    let error = cache.cubin_by(Family::Vector, "sm_90", Some(VERSION), |_, _| Ok(built())).unwrap_err();
    assert!(matches!(&error, CudaError::Cache { path, .. } if path.starts_with(&file)), "{error}");
}

#[test]
fn entry_names_tell_families_and_architectures_apart() {
    let mut names: Vec<_> = Family::ALL.iter().flat_map(|&f| ["sm_75", "sm_90"].map(|arch| stem(f, arch))).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 2 * Family::ALL.len());
}

#[test]
fn the_assemblers_report_is_read() {
    let log = "ptxas info    : Compiling entry function 'k' for 'sm_90'\n\
               ptxas info    : Function properties for k\n\
               ptxas         .     160 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n\
               ptxas info    : Used 38 registers, used 0 barriers, 160 bytes cumulative stack size\n";
    let expected = Resources { name: "k".into(), registers: 38, stack: 160, spills: 20 };
    assert_eq!(parse_report(log), [expected]);
}

#[test]
fn architectures_are_told_from_other_words() {
    for good in ["sm_75", "sm_90", "sm_90a", "sm_120", "sm_100f"] {
        assert!(is_architecture(good), "{good}");
    }
    for bad in ["", "90", "sm_", "sm_9", "sm_9x", "sm_90aa", "compute_90", "sm_1200", "sm_90 --help"] {
        assert!(!is_architecture(bad), "{bad}");
    }
}
