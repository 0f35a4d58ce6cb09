//! `sp_negotiate`, from both sides: any range of versions that a host may ask for, and any answer of a plug-in.

use std::cell::RefCell;
use std::sync::Arc;

use splitprover_core::abi::{
    BackendLibrary, BackendPlugin, DeviceInfo, Host, NegotiationError, OpenOptions, Options, SP_ABI_VERSION,
    SP_ABI_VERSION_MIN, SP_CURVE, SP_ERR_ARGUMENT, SP_ERR_VERSION, SP_OK, SP_POINT_LAYOUT, SP_SCALAR_LAYOUT,
    SpBackendTable, SpHost, SpStatus, SpStr, negotiate as of_plugin, table,
};
use splitprover_core::{BackendError, CircuitShape, LentInputs, PendingSums, ProvingKey, QuerySums, SplitProver};

use super::{Bytes, block};
use crate::Outcome;

/// A plug-in that opens device 0, and no more.
struct Opens;

struct Nothing;

impl PendingSums for Nothing {
    fn finish(self) -> Result<QuerySums, BackendError> {
        Err(BackendError::Cancelled)
    }
}

impl SplitProver for Opens {
    type Key = ();
    type Pending = Nothing;

    fn load_key(&self, _: &Arc<ProvingKey>) -> Result<(), BackendError> {
        Ok(())
    }

    fn start<'i>(&self, (): &(), _: LentInputs<'i>) -> Result<Nothing, BackendError> {
        Ok(Nothing)
    }

    fn retained_host_bytes(&self, _: &CircuitShape) -> u64 {
        0
    }
}

impl BackendPlugin for Opens {
    const NAME: &'static str = "opens";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = "1";
    type Prover = Self;

    fn devices(_: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        Ok(vec![DeviceInfo::new("one", "cpu")])
    }

    fn open(device: usize, _: &Options, _: Host) -> Result<Self, BackendError> {
        if device == 0 { Ok(Self) } else { Err(BackendError::device("open", "one device")) }
    }
}

/// A range of versions, and an answer to it. No bytes are neither.
///
/// * A Rust plug-in accepts a range exactly if it holds its version, and shows its table in any case.
/// * A host takes a table exactly if status, size, version, layouts and entries are what they must be; the error names the
///   first thing that isn't. A table that it takes can be used.
///
/// # Panics
/// If one of these doesn't hold.
pub fn negotiate(data: &[u8]) -> Outcome {
    if data.is_empty() {
        return Outcome::Refused;
    }
    let mut bytes = Bytes(data);
    plugin_side(&mut bytes);
    host_side(&mut bytes)
}

fn plugin_side(bytes: &mut Bytes<'_>) {
    let (min, max) = (bytes.mostly(SP_ABI_VERSION, Bytes::u32), bytes.mostly(SP_ABI_VERSION, Bytes::u32));
    let host = SpHost {
        struct_size: bytes.mostly(size_of::<SpHost>() as u64, Bytes::u64),
        abi_version: bytes.u32(),
        reserved: bytes.u32(),
        ctx: std::ptr::null_mut(),
        log: None,
        account: None,
    };
    let host = block(&host, host.struct_size);
    let host = if bytes.u8() == 255 { std::ptr::null() } else { host.as_ptr().cast() };
    let mut out = std::ptr::null();
    // SAFETY: null, or a host's table as large as it says; a writable pointer.
    let status = unsafe { of_plugin::<Opens>(min, max, host, &mut out) };
    let common = (min..=max).contains(&SP_ABI_VERSION);
    assert_eq!(status, if common { SP_OK } else { SP_ERR_VERSION }, "{min}..={max}");
    assert!(!out.is_null(), "a host of another version may look at the version");
    // SAFETY: nowhere to write is allowed.
    assert_eq!(unsafe { of_plugin::<Opens>(min, max, host, std::ptr::null_mut()) }, SP_ERR_ARGUMENT);
}

struct Answer {
    status: SpStatus,
    table: Option<Vec<u64>>,
}

thread_local! {
    static ANSWER: RefCell<Answer> = const { RefCell::new(Answer { status: SP_OK, table: None }) };
}

unsafe extern "C" fn answers(_: u32, _: u32, _: *const SpHost, out: *mut *const SpBackendTable) -> SpStatus {
    ANSWER.with_borrow(|answer| {
        if let Some(table) = &answer.table {
            // SAFETY: the host's pointer; the block lives until the next answer.
            unsafe { out.write(table.as_ptr().cast()) };
        }
        answer.status
    })
}

/// More than a host copies of a string.
const LONGEST: usize = (1 << 16) + 64;

/// The string that is usual there, none, or as many letters as the fuzzer says.
fn string(bytes: &mut Bytes<'_>, usual: &'static str) -> String {
    match bytes.u8() {
        0..240 => usual.to_owned(),
        240..245 => String::new(),
        245..250 => usual.chars().rev().collect(),
        _ => "x".repeat(bytes.u32() as usize % LONGEST),
    }
}

fn host_side(bytes: &mut Bytes<'_>) -> Outcome {
    let usual = *table::<Opens>();
    let texts = [
        string(bytes, Opens::NAME),
        string(bytes, Opens::VENDOR),
        string(bytes, Opens::VERSION),
        string(bytes, Opens::BUILD),
        string(bytes, SP_CURVE),
        string(bytes, SP_SCALAR_LAYOUT),
        string(bytes, SP_POINT_LAYOUT),
    ];
    let [name, vendor, version, build, curve, scalar_layout, point_layout] =
        texts.each_ref().map(|text| if text.is_empty() { SpStr::EMPTY } else { SpStr::new(text) });
    // Bit i: entry i is missing.
    let missing = bytes.mostly(0, Bytes::u32);
    fn entry<F>(missing: u32, i: u32, entry: Option<F>) -> Option<F> {
        entry.filter(|_| missing >> i & 1 == 0)
    }
    let given = SpBackendTable {
        struct_size: bytes.mostly(usual.struct_size, Bytes::u64),
        abi_version: bytes.mostly(SP_ABI_VERSION, Bytes::u32),
        reserved: bytes.u32(),
        name,
        vendor,
        version,
        build,
        curve,
        scalar_layout,
        point_layout,
        devices: entry(missing, 0, usual.devices),
        open: entry(missing, 1, usual.open),
        close: entry(missing, 2, usual.close),
        load_key: entry(missing, 3, usual.load_key),
        unload_key: entry(missing, 4, usual.unload_key),
        start: entry(missing, 5, usual.start),
        finish: entry(missing, 6, usual.finish),
        drop_pending: entry(missing, 7, usual.drop_pending),
        retained_host_bytes: entry(missing, 8, usual.retained_host_bytes),
        error_info: entry(missing, 9, usual.error_info),
        error_destroy: entry(missing, 10, usual.error_destroy),
        extension: entry(missing, 11, usual.extension),
    };
    let status = bytes.mostly(SP_OK, |bytes| bytes.u32().cast_signed());
    let nothing = bytes.u8() == 255;
    let block = (!nothing).then(|| block(&given, given.struct_size));
    ANSWER.with_borrow_mut(|answer| *answer = Answer { status, table: block });

    // SAFETY: a table as large as it says, its strings alive, its entries a real plug-in's.
    let result = unsafe { BackendLibrary::negotiate(answers) };
    let expected = model(status, nothing, &given, &texts, missing);
    match (result, expected) {
        (Err(error), Some(expected)) => {
            assert_eq!(error, expected);
            Outcome::Refused
        }
        (Ok(library), None) => {
            assert_eq!(library.info().name, texts[0][..texts[0].len().min(1 << 16)]);
            // Without `error_destroy` a plug-in stores no errors; this one does.
            let devices: &[usize] = if missing >> 10 & 1 == 0 { &[0, 1] } else { &[0] };
            for &device in devices {
                let opened = library.open(&OpenOptions::new(device));
                assert_eq!(opened.is_ok(), device == 0, "device {device}");
            }
            Outcome::Accepted
        }
        (result, expected) => panic!("{result:?}, expected {expected:?}"),
    }
}

/// Why the answer is refused; `None` if it is good.
fn model(
    status: SpStatus,
    nothing: bool,
    given: &SpBackendTable,
    texts: &[String; 7],
    missing: u32,
) -> Option<NegotiationError> {
    let version = |version: u32| format!("{}.{}", version >> 16, version & 0xffff);
    match (status, nothing) {
        (SP_ERR_VERSION, nothing) => {
            let known = !nothing && given.struct_size >= 16;
            let theirs = if known { version(given.abi_version) } else { "another version".to_owned() };
            return Some(NegotiationError::Version { theirs });
        }
        (SP_OK, true) => return Some(NegotiationError::NoTable),
        (SP_OK, false) => {}
        (status, _) => return Some(NegotiationError::Refused(status)),
    }
    let whole = size_of::<SpBackendTable>() as u64;
    if given.struct_size < whole {
        return Some(NegotiationError::ShortTable { found: given.struct_size, expected: whole });
    }
    if given.abi_version < SP_ABI_VERSION_MIN {
        return Some(NegotiationError::Version { theirs: version(given.abi_version) });
    }
    let layouts =
        [("curve", SP_CURVE), ("scalar layout", SP_SCALAR_LAYOUT), ("point layout", SP_POINT_LAYOUT)].into_iter();
    if let Some(((what, ours), theirs)) = layouts.zip(&texts[4..]).find(|((_, ours), theirs)| ours != theirs) {
        let theirs = theirs[..theirs.len().min(1 << 16)].to_owned();
        return Some(NegotiationError::Layout { what, theirs, ours });
    }
    let required = ["devices", "open", "close", "load_key", "unload_key", "start", "finish", "drop_pending"];
    let first = (0..required.len()).find(|i| missing >> i & 1 == 1);
    first.map(|i| NegotiationError::MissingEntry(required[i]))
}
