//! The host's callbacks: log and account.

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{class_number, class_of};
use super::types::*;
use super::{quietly, text};
use crate::memory::{Charge, MemoryClass, MemoryLedger};

/// How grave a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something is wrong, work goes on.
    Warn,
    /// For whoever runs it.
    Info,
    /// For whoever looks for a fault.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Error => SP_LOG_ERROR,
            Self::Warn => SP_LOG_WARN,
            Self::Info => SP_LOG_INFO,
            Self::Debug => SP_LOG_DEBUG,
            Self::Trace => SP_LOG_TRACE,
        }
    }

    fn of(number: u32) -> Self {
        match number {
            0 | SP_LOG_ERROR => Self::Error,
            SP_LOG_WARN => Self::Warn,
            SP_LOG_INFO => Self::Info,
            SP_LOG_DEBUG => Self::Debug,
            _ => Self::Trace,
        }
    }

    /// "error", "warn", …
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

type Line = dyn Fn(LogLevel, &str, &str) + Send + Sync;

/// Takes log lines of backends: level, target (the part of the backend that speaks), message. Called from any thread.
#[derive(Clone, Default)]
pub struct LogSink(Option<Arc<Line>>);

impl LogSink {
    /// Lines go to `sink`.
    pub fn new(sink: impl Fn(LogLevel, &str, &str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    /// Sends a line.
    pub fn line(&self, level: LogLevel, target: &str, message: &str) {
        if let Some(sink) = &self.0 {
            sink(level, target, message);
        }
    }
}

impl fmt::Debug for LogSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "LogSink" } else { "LogSink(silent)" })
    }
}

/// What `SpHost::ctx` points to. Boxed, so that its address stays while an instance is open.
pub(super) struct HostContext {
    log: LogSink,
    ledger: MemoryLedger,
    /// What the plug-in has on its account, by class.
    charges: Mutex<Vec<Charge>>,
    table: SpHost,
}

// SAFETY: the raw pointer in `table` points to this value itself; everything behind it is `Send` and `Sync`.
unsafe impl Send for HostContext {}
// SAFETY: as above; `charges` is under a lock.
unsafe impl Sync for HostContext {}

impl HostContext {
    pub(super) fn new(log: LogSink, ledger: MemoryLedger) -> Box<Self> {
        let table = SpHost {
            struct_size: size_of::<SpHost>() as u64,
            abi_version: SP_ABI_VERSION,
            reserved: 0,
            ctx: std::ptr::null_mut(),
            log: Some(log_line),
            account: Some(account),
        };
        let mut context = Box::new(Self { log, ledger, charges: Mutex::default(), table });
        context.table.ctx = std::ptr::from_mut(&mut *context).cast();
        context
    }

    /// The table to hand out. Valid as long as the box.
    pub(super) fn table(&self) -> *const SpHost {
        &self.table
    }

    pub(super) fn log(&self) -> &LogSink {
        &self.log
    }

    /// Bytes on the plug-in's account, by class, where there are any.
    pub(super) fn outstanding(&self) -> Vec<(MemoryClass, u64)> {
        let charges = self.charges.lock().unwrap_or_else(PoisonError::into_inner);
        charges.iter().filter(|c| c.bytes() > 0).map(|c| (c.class(), c.bytes())).collect()
    }

    fn account(&self, class: u32, delta: i64) -> SpStatus {
        let Some(class) = class_of(class) else { return SP_ERR_ARGUMENT };
        let mut charges = self.charges.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = delta.unsigned_abs();
        let at = charges.iter().position(|charge| charge.class() == class);
        if delta >= 0 {
            let result = match at {
                Some(at) => charges[at].grow(bytes),
                None => self.ledger.charge(class, bytes).map(|charge| charges.push(charge)),
            };
            return if result.is_ok() { SP_OK } else { SP_ERR_HOST_MEMORY };
        }
        let given = at.map_or(0, |at| charges[at].shrink(bytes));
        if given == bytes {
            return SP_OK;
        }
        drop(charges);
        let number = class_number(class);
        let message = format!("{bytes} bytes of memory class {number} given back, {given} were on the account");
        self.log.line(LogLevel::Error, "account", &message);
        SP_ERR_ARGUMENT
    }
}

/// # Safety
/// `ctx` is that of a live [`HostContext`]; the strings are readable.
unsafe extern "C" fn log_line(ctx: *mut c_void, level: u32, target: SpStr, message: SpStr) {
    quietly((), || {
        // SAFETY: by the caller's promise: `HostContext::new` made `ctx`, and it lives until `close` has returned.
        let Some(context) = (unsafe { ctx.cast::<HostContext>().as_ref() }) else { return };
        // SAFETY: readable for the duration of the call.
        let (target, message) = unsafe { (text(target), text(message)) };
        context.log.line(LogLevel::of(level), &target, &message);
    });
}

/// # Safety
/// `ctx` is that of a live [`HostContext`].
unsafe extern "C" fn account(ctx: *mut c_void, class: u32, delta: i64) -> SpStatus {
    quietly(SP_ERR_HOST_MEMORY, || {
        // SAFETY: by the caller's promise.
        match unsafe { ctx.cast::<HostContext>().as_ref() } {
            Some(context) => context.account(class, delta),
            None => SP_ERR_ARGUMENT,
        }
    })
}
