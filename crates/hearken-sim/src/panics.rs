//! Turns panics of programs into findings.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use crate::finding::Finding;

thread_local! {
    /// Number of calls of [`catch`] on the stack of this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static LAST: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// A caught panic.
#[derive(Debug, Default)]
pub(crate) struct Panic {
    message: String,
    /// File and line.
    location: String,
    /// The calls that led to it, if `RUST_BACKTRACE` requests that.
    backtrace: String,
}

impl Panic {
    /// Describes the panic of a program.
    pub(crate) fn into_finding(self, program: &str) -> Finding {
        let Panic { message, location, backtrace } = self;
        let detail = format!("{program} panicked at {location}: {message}\n{backtrace}");
        Finding::new(format!("panic at {location}"), detail.trim_end())
    }
}

/// Calls `body` and catches a panic, without a message to standard error. A panic that `body` catches
/// itself counts as well: a server that continues after one has a bug nevertheless.
pub(crate) fn catch<T>(body: impl FnOnce() -> T) -> Result<T, Panic> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if DEPTH.get() == 0 {
                return default(info);
            }
            let payload = info.payload();
            let message = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let message = message.or_else(|| payload.downcast_ref::<String>().cloned());
            let location = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
            let trace = Backtrace::capture();
            let is_captured = trace.status() == BacktraceStatus::Captured;
            let panic = Panic {
                message: message.unwrap_or_default(),
                location: location.unwrap_or_default(),
                backtrace: if is_captured { trace.to_string() } else { String::new() },
            };
            // A panic during the unwinding of another one is a consequence of the first.
            LAST.with_borrow_mut(|last| {
                last.get_or_insert(panic);
            });
        }));
    });
    DEPTH.set(DEPTH.get() + 1);
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    DEPTH.set(DEPTH.get() - 1);
    match (result, LAST.take()) {
        (Ok(value), None) => Ok(value),
        (_, panic) => Err(panic.unwrap_or_default()),
    }
}
