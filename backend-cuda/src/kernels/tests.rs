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

#[test]
fn an_entry_survives_only_whole_and_a_damaged_one_is_rebuilt() {
    with_compiler(|| {
        let folder = scratch();
        let cache = Cache::at(&folder);
        let cubin = cache.cubin(Family::Vector, "sm_90").unwrap();
        let entry = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        assert_eq!(read_entry(&entry).unwrap(), cubin);
        let good = fs::read(&entry).unwrap();
        let middle = good.len() / 2;
        let mut flipped = good.clone();
        flipped[middle] ^= 1;
        for bad in [&good[..middle], &good[..20], &[][..], &flipped] {
            fs::write(&entry, bad).unwrap();
            assert!(read_entry(&entry).is_none());
            assert_eq!(cache.cubin(Family::Vector, "sm_90").unwrap(), cubin);
            assert_eq!(fs::read(&entry).unwrap(), good);
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
        fs::remove_dir_all(folder).unwrap();
    });
}

#[test]
fn many_writers_of_one_entry_leave_one_whole_entry() {
    with_compiler(|| {
        let folder = scratch();
        let cache = Cache::at(&folder);
        let image: Vec<u8> = ELF.iter().copied().chain((0..200_000u32).map(|i| i as u8)).collect();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        cache.store(Family::Ntt, "sm_90", &image).unwrap();
                        assert_eq!(cache.lookup(Family::Ntt, "sm_90").unwrap(), image);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    });
}

#[test]
fn an_unwritable_cache_is_an_error_that_names_it() {
    with_compiler(|| {
        let file = scratch().join("file");
        fs::write(&file, b"").unwrap();
        let error = Cache::at(file.join("below")).cubin(Family::Vector, "sm_90").unwrap_err();
        assert!(matches!(&error, CudaError::Cache { path, .. } if path.starts_with(&file)), "{error}");
    });
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
