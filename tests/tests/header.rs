//! The C header is what cbindgen makes of the Rust structs.
//!
//! After a change of the ABI, `SPLITPROVER_BLESS=1 cargo test -p splitprover-tests --test header` writes it anew.

use std::path::Path;

const TOP: &str = "/* The C interface of splitprover's backends, generated from core/src/abi/types.rs and extensions.rs.
   A backend is a shared library that exports sp_negotiate. Rules 1 to 6 below hold everywhere; docs/abi.md has the policies,
   docs/adding-a-backend.md the way to a backend that conforms. */";

const HANDLES: &str = "/* Handles: opaque, the plug-in's own. */
typedef struct SpInstance SpInstance;
typedef struct SpLoadedKey SpLoadedKey;
typedef struct SpPending SpPending;
typedef struct SpError SpError;
typedef struct SpPinned SpPinned;
";

/// Rules are the module's own words.
fn rules(source: &str) -> String {
    let rules: String = source
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .skip_while(|line| !line.starts_with(" Rules"))
        .map(|line| format!("{}\n", format!("  {line}").trim_end()).replace('`', "").replace("[SP_OK]", "SP_OK"))
        .collect();
    format!("/*{}*/\n", rules.trim_start_matches(' ').replacen("Rules", " Rules", 1))
}

fn strings() -> String {
    use splitprover_core::abi::*;
    [
        ("SP_CURVE", SP_CURVE),
        ("SP_SCALAR_LAYOUT", SP_SCALAR_LAYOUT),
        ("SP_POINT_LAYOUT", SP_POINT_LAYOUT),
        ("SP_EXT_PINNED", SP_EXT_PINNED),
        ("SP_EXT_FIXED_BASE", SP_EXT_FIXED_BASE),
        ("SP_EXT_STATISTICS", SP_EXT_STATISTICS),
        ("SP_EXT_KERNELS", SP_EXT_KERNELS),
    ]
    .map(|(name, value)| format!("#define {name} {value:?}\n"))
    .concat()
}

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let source = |name: &str| root.join("core/src/abi").join(name);
    let types = std::fs::read_to_string(source("types.rs")).unwrap();
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        include_guard: Some("SPLITPROVER_H".into()),
        header: Some(TOP.into()),
        after_includes: Some(format!("\n{}\n{HANDLES}\n{}", rules(&types), strings())),
        trailer: Some(
            "/* The exported function. */\n#ifdef __cplusplus\nextern \"C\"\n#endif\nSpStatus sp_negotiate(uint32_t min, \
             uint32_t max, const SpHost *host, const SpBackendTable **out);"
                .into(),
        ),
        documentation_style: cbindgen::DocumentationStyle::C,
        line_length: 120,
        no_includes: true,
        sys_includes: vec!["stdint.h".into()],
        export: cbindgen::ExportConfig {
            exclude: ["SpInstance", "SpLoadedKey", "SpPending", "SpError", "SpPinned"].map(Into::into).into(),
            item_types: [
                cbindgen::ItemType::Constants,
                cbindgen::ItemType::Structs,
                cbindgen::ItemType::Typedefs,
                cbindgen::ItemType::OpaqueItems,
            ]
            .into(),
            include: ["SpBackendTable", "SpPinnedTable", "SpPinnedBuffer", "SpFixedBaseTable", "SpStatisticsTable", "SpKernelsTable", "SpNegotiate"]
                .map(Into::into)
                .into(),
            ..Default::default()
        },
        ..Default::default()
    };
    let mut header = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(source("types.rs"))
        .with_src(source("extensions.rs"))
        .generate()
        .unwrap()
        .write(&mut header);
    // Links are Rust's; C readers know the names.
    let header = String::from_utf8(header).unwrap().replace("[`", "").replace("`]", "").replace('`', "");
    let file = root.join("core/include/splitprover.h");
    if std::env::var_os("SPLITPROVER_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &header).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap();
    assert!(committed == header, "core/include/splitprover.h is out of date; this module says how to write it anew");
}
