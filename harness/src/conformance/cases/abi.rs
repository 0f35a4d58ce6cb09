//! What a plug-in's C interface promises beyond the trait, checked on the raw table.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use splitprover_core::SplitProver;
use splitprover_core::abi::{
    OpenOptions, SP_ABI_VERSION, SP_ERR_UNSUPPORTED, SP_ERR_VERSION, SP_OK, SpBackendTable, SpDevice, SpError,
    SpErrorInfo, SpHost, SpInstance, SpNegotiate, SpOpen, SpOption, SpStatus, SpStr,
};

use crate::conformance::Capability;
use crate::conformance::case::{Case, Context, Failure, Group, ensure};

pub(super) fn cases<P: SplitProver>() -> Vec<Case<P>> {
    let case = |name: &str, body: fn(&Context<'_, P>) -> Result<(), Failure>| {
        Case::new(Group::Abi, name, body).requires(&[Capability::Abi])
    };
    vec![
        case("opens", |context| context.open().map(drop)).gate().seconds(300),
        case("versions", |context| with_plugin(context, versions)),
        case("devices", |context| with_plugin(context, devices)),
        case("silent-host", |context| with_plugin(context, silent_host)),
        case("newer-host", |context| with_plugin(context, newer_host)),
        case("refused-open", |context| with_plugin(context, refused_open)),
        case("unknown-extension", |context| with_plugin(context, unknown_extension)),
    ]
}

/// A plug-in's function and table, good for the life of the process.
pub(super) struct Plugin {
    negotiate: SpNegotiate,
    pub(super) table: SpBackendTable,
    /// How the suite opens a device.
    pub(super) options: OpenOptions,
}

impl Plugin {
    /// The table as the plug-in hands it out, whether it was linked in or loaded.
    pub(super) fn of<P: SplitProver>(context: &Context<'_, P>) -> Result<Self, Failure> {
        let library = context.subject().library().ok_or("this backend isn't reached through a table")?;
        let (library, options) = library.map_err(Failure)?;
        let negotiate = library.entry_point();
        let mut table = null();
        let host = Host::new(0);
        // SAFETY: a host's table and a writable pointer.
        let status = unsafe { negotiate(SP_ABI_VERSION, SP_ABI_VERSION, host.pointer(), &mut table) };
        ensure!(status == SP_OK && !table.is_null(), "sp_negotiate of the host's version returned {status}");
        // SAFETY: the loader has checked that the table has the size of this version at least; it is static.
        Ok(Self { negotiate, table: unsafe { table.read() }, options })
    }
}

fn with_plugin<P: SplitProver>(
    context: &Context<'_, P>,
    body: impl FnOnce(&Plugin) -> Result<(), Failure>,
) -> Result<(), Failure> {
    body(&Plugin::of(context)?)
}

/// A host's table without callbacks, followed by bytes that this version doesn't know.
#[repr(C)]
pub(super) struct Host {
    known: SpHost,
    unknown: [u8; 64],
}

impl Host {
    /// `more` bytes longer than this version's.
    pub(super) fn new(more: u64) -> Self {
        let known = SpHost {
            struct_size: size_of::<SpHost>() as u64 + more,
            abi_version: SP_ABI_VERSION,
            reserved: 0,
            ctx: null_mut(),
            log: None,
            account: None,
        };
        Self { known, unknown: [0xff; 64] }
    }

    pub(super) fn pointer(&self) -> *const SpHost {
        std::ptr::from_ref(self).cast()
    }
}

/// The arguments of `open`, followed by bytes that this version doesn't know.
#[repr(C)]
struct Open {
    known: SpOpen,
    unknown: [u8; 64],
}

/// An error as the plug-in describes it.
struct Described {
    status: SpStatus,
    code: SpStatus,
    message: String,
}

impl Plugin {
    /// Reads an error and destroys it.
    fn describe(&self, status: SpStatus, error: *mut SpError) -> Described {
        let mut info = SpErrorInfo {
            struct_size: size_of::<SpErrorInfo>() as u64,
            code: status,
            memory_class: 0,
            what: SpStr::EMPTY,
            message: SpStr::EMPTY,
            requested: 0,
            available: 0,
        };
        let mut message = String::new();
        if !error.is_null() {
            if let Some(entry) = self.table.error_info {
                // SAFETY: a handle that the plug-in has just stored, and a struct that gives its size. The text is valid until
                // the handle is destroyed, below.
                unsafe {
                    entry(error, &mut info);
                    if !info.message.data.is_null() {
                        let bytes = std::slice::from_raw_parts(info.message.data, info.message.len as usize);
                        message = String::from_utf8_lossy(bytes).into_owned();
                    }
                }
            }
            if let Some(entry) = self.table.error_destroy {
                // SAFETY: the handle is alive, and isn't used again.
                unsafe { entry(error) };
            }
        }
        Described { status, code: info.code, message }
    }

    /// Opens and closes a device.
    fn open_and_close(&self, host: &Host, device: u32, more: u64, options: &[SpOption]) -> Result<(), Described> {
        let args = Open {
            known: SpOpen {
                struct_size: size_of::<SpOpen>() as u64 + more,
                host: host.pointer(),
                device,
                threads: 1,
                options: options.as_ptr(),
                num_options: options.len() as u64,
            },
            unknown: [0xff; 64],
        };
        let (mut instance, mut error): (*mut SpInstance, *mut SpError) = (null_mut(), null_mut());
        let (open, close) = match (self.table.open, self.table.close) {
            (Some(open), Some(close)) => (open, close),
            _ => return Err(self.describe(SP_ERR_UNSUPPORTED, error)),
        };
        // SAFETY: arguments, host and options live in this frame until the instance is closed; both results are writable.
        let status = unsafe { open(std::ptr::from_ref(&args).cast(), &mut instance, &mut error) };
        if status != SP_OK {
            return Err(self.describe(status, error));
        }
        // SAFETY: the handle of `open`, ended once.
        let status = unsafe { close(instance, &mut error) };
        if status == SP_OK { Ok(()) } else { Err(self.describe(status, error)) }
    }

    fn opens(&self, host: &Host, more: u64, what: &str) -> Result<(), Failure> {
        self.open_and_close(host, 0, more, &[])
            .map_err(|e| Failure(format!("{what}: open or close returned {}: {}", e.status, e.message)))
    }

    fn list(&self, host: &Host) -> Result<Vec<(String, String)>, Failure> {
        /// # Safety
        /// `ctx` is the vector below, `device` a device as the ABI describes it.
        unsafe extern "C" fn visit(ctx: *mut c_void, device: *const SpDevice) {
            // SAFETY: by the caller's promise; the strings live during the call.
            unsafe {
                let text = |text: SpStr| match text.data.is_null() {
                    true => String::new(),
                    false => String::from_utf8_lossy(std::slice::from_raw_parts(text.data, text.len as usize)).into(),
                };
                let devices = &mut *ctx.cast::<Vec<(String, String)>>();
                devices.push((text((*device).name), text((*device).kind)));
            }
        }
        let entry = self.table.devices.ok_or("the table has no entry devices")?;
        let (mut devices, mut error) = (Vec::new(), null_mut());
        let ctx = std::ptr::from_mut(&mut devices).cast();
        // SAFETY: host and vector live during the call; the vector is only touched by the visitor.
        let status = unsafe { entry(host.pointer(), Some(visit), ctx, &mut error) };
        if status != SP_OK {
            let error = self.describe(status, error);
            return Err(Failure(format!("devices returned {}: {}", error.status, error.message)));
        }
        Ok(devices)
    }
}

/// The version that both sides speak is found, and none where there is none.
fn versions(plugin: &Plugin) -> Result<(), Failure> {
    const NEXT_MAJOR: u32 = 2 << 16;
    let host = Host::new(0);
    for (min, max, expected) in [
        (SP_ABI_VERSION, SP_ABI_VERSION, SP_OK),
        (SP_ABI_VERSION, u32::MAX, SP_OK),
        (NEXT_MAJOR, NEXT_MAJOR, SP_ERR_VERSION),
        (NEXT_MAJOR, u32::MAX, SP_ERR_VERSION),
        (0, 0, SP_ERR_VERSION),
    ] {
        let mut table = null();
        // SAFETY: a host's table and a writable pointer.
        let status = unsafe { (plugin.negotiate)(min, max, host.pointer(), &mut table) };
        ensure!(status == expected, "sp_negotiate({min:#x}, {max:#x}) returned {status}, expected {expected}");
        ensure!(expected != SP_OK || !table.is_null(), "sp_negotiate({min:#x}, {max:#x}) gave no table");
    }
    Ok(())
}

/// Devices have names and kinds, and are listed in the same order every time.
fn devices(plugin: &Plugin) -> Result<(), Failure> {
    let host = Host::new(0);
    let first = plugin.list(&host)?;
    ensure!(!first.is_empty(), "no device is listed");
    for (index, (name, kind)) in first.iter().enumerate() {
        ensure!(!name.is_empty() && !kind.is_empty(), "device {index} is named {name:?}, of kind {kind:?}");
    }
    ensure!(plugin.list(&host)? == first, "the second listing differs from the first");
    Ok(())
}

/// A host without log and account: both may be null.
fn silent_host(plugin: &Plugin) -> Result<(), Failure> {
    plugin.opens(&Host::new(0), 0, "a host without callbacks")
}

/// Structs that are longer than this version's: what comes after is for others.
fn newer_host(plugin: &Plugin) -> Result<(), Failure> {
    let host = Host::new(64);
    plugin.list(&host)?;
    plugin.opens(&host, 64, "a host of a later version")?;
    let unchanged = host.unknown.iter().all(|&byte| byte == 0xff);
    ensure!(unchanged, "bytes beyond the known part of the host's table were written");
    Ok(())
}

/// Options and devices that aren't there are refused, with an error that says so; the next `open` works.
fn refused_open(plugin: &Plugin) -> Result<(), Failure> {
    let host = Host::new(0);
    let option = SpOption { key: SpStr::new("no-such-option"), value: SpStr::new("1") };
    match plugin.open_and_close(&host, 0, 0, &[option]) {
        Ok(()) => return Err("an option that no backend has was accepted".into()),
        Err(error) => {
            let status = error.status;
            ensure!(
                status == SP_ERR_UNSUPPORTED,
                "an unknown option was refused with {status} and not 4 (unsupported)"
            );
            ensure!(error.code == status, "open returned {status}, and its error says {}", error.code);
            ensure!(!error.message.is_empty(), "the error about an unknown option has no message");
        }
    }
    let devices = plugin.list(&host)?.len();
    for device in [u32::try_from(devices).unwrap_or(u32::MAX), u32::MAX] {
        let opened = plugin.open_and_close(&host, device, 0, &[]).is_ok();
        ensure!(!opened, "device {device} of {devices} could be opened");
    }
    plugin.opens(&host, 0, "after refusals")
}

fn unknown_extension(plugin: &Plugin) -> Result<(), Failure> {
    let Some(entry) = plugin.table.extension else { return Ok(()) };
    for name in ["no.such.extension", ""] {
        // SAFETY: the string lives during the call.
        let table = unsafe { entry(SpStr::new(name)) };
        ensure!(table.is_null(), "extension {name:?} exists");
    }
    Ok(())
}
