//! C interface of Hearken: `include/hearken.h` describes it, `scripts/install-c` builds and installs it.
//!
//! Each function returns a negative error number on failure. A panic does not leave it: it becomes
//! `-EIO`.

// The functions receive pointers from C. Their contract is the header.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use hearken::mechanism::{AUTO, SelectError, SignalMask, TABLE, Trigger};
use hearken::queue::Poller;
use hearken::{Event, Interest};

pub mod papers;

/// The environment variable that selects the mechanism if the caller does not.
const VARIABLE: &str = "HEARKEN_EVENTS";

/// `HEARKEN_LEVEL`: level-triggered over any mechanism.
const LEVEL: c_uint = 1;

/// `struct hearken`.
#[derive(Debug)]
pub struct Handle {
    poller: Poller,
}

/// `struct hearken_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CEvent {
    data: u64,
    events: u32,
    reserved: u32,
}

/// `struct hearken_counters`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CCounters {
    waits: u64,
    empty_waits: u64,
    events: u64,
    spurious: u64,
    changes: u64,
    overflows: u64,
    signals: u64,
    calls: u64,
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs a function of the interface. Converts errors and panics to negative error numbers.
fn guard(function: impl FnOnce() -> Result<c_int, c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(value)) => value,
        Ok(Err(errno)) => -errno,
        Err(_) => -libc::EIO,
    }
}

/// Returns the error number of an error.
fn errno(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    })
}

fn done(result: io::Result<()>) -> Result<c_int, c_int> {
    result.map(|()| 0).map_err(|error| errno(&error))
}

/// Returns the object behind a pointer of the caller.
///
/// # Safety
/// `pointer` is null or points to a valid `T` for the duration of the call.
unsafe fn object<'a, T>(pointer: *const T) -> Result<&'a T, c_int> {
    // SAFETY: the caller passes a valid pointer unless it is null.
    unsafe { pointer.as_ref() }.ok_or(libc::EINVAL)
}

fn interest(bits: u32) -> Result<Interest, c_int> {
    u8::try_from(bits).ok().and_then(Interest::from_bits).ok_or(libc::EINVAL)
}

/// Stores the text that `hearken_open_error` returns.
fn set_message(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    MESSAGE.with(|message| *message.borrow_mut() = text);
}

/// Returns the name of the mechanism to open.
///
/// # Safety
/// `events` is null or points to a string.
unsafe fn spec(events: *const c_char) -> Result<String, c_int> {
    if events.is_null() {
        return match std::env::var(VARIABLE) {
            Ok(value) => Ok(value),
            Err(std::env::VarError::NotPresent) => Ok(AUTO.to_owned()),
            Err(_) => Err(libc::EINVAL),
        };
    }
    // SAFETY: the caller passes a string.
    let events = unsafe { CStr::from_ptr(events) };
    events.to_str().map(str::to_owned).map_err(|_| libc::EINVAL)
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_open(
    events: *const c_char,
    flags: c_uint,
    out: *mut *mut Handle,
) -> c_int {
    guard(|| {
        set_message("");
        if out.is_null() || flags & !LEVEL != 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller passes a pointer that may be written.
        unsafe { out.write(ptr::null_mut()) };
        // SAFETY: the caller passes null or a string.
        let spec = unsafe { spec(events)? };
        let open = if flags & LEVEL == 0 { Poller::open } else { Poller::open_level };
        let poller = open(&spec).map_err(|error| {
            set_message(&error.to_string());
            match error {
                SelectError::Unavailable { reason, .. } => errno(&reason.error),
                _ => libc::EINVAL,
            }
        })?;
        let handle = Box::new(Handle { poller });
        // SAFETY: as above.
        unsafe { out.write(Box::into_raw(handle)) };
        Ok(0)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn hearken_open_error() -> *const c_char {
    catch_unwind(|| MESSAGE.with(|message| message.borrow().as_ptr())).unwrap_or(c"".as_ptr())
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_close(handle: *mut Handle) {
    guard(|| {
        if !handle.is_null() {
            // SAFETY: it came from `hearken_open`, and the caller does not use it again.
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(0)
    });
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_set(
    handle: *const Handle,
    fd: c_int,
    events: u32,
    data: u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes null or a handle.
        let handle = unsafe { object(handle)? };
        // SAFETY: the caller keeps the descriptor open until it removes it.
        done(unsafe { handle.poller.set(fd, interest(events)?, data) })
    })
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_remove(handle: *const Handle, fd: c_int) -> c_int {
    // SAFETY: the caller passes null or a handle.
    guard(|| done(unsafe { object(handle)? }.poller.remove(fd)))
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_would_block(
    handle: *const Handle,
    fd: c_int,
    events: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes null or a handle.
        let handle = unsafe { object(handle)? };
        handle.poller.would_block(fd, interest(events)?);
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_wait(
    handle: *const Handle,
    out: *mut CEvent,
    max: c_int,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes null or a handle.
        let handle = unsafe { object(handle)? };
        let max = usize::try_from(max).ok().filter(|max| *max > 0 && !out.is_null());
        let max = max.ok_or(libc::EINVAL)?;
        // SAFETY: the caller passes null or a timeout, and null or a mask.
        let (timeout, mask) = unsafe { (timeout.as_ref(), mask.as_ref()) };
        let timeout = timeout.map(duration).transpose()?;
        let mask = mask.map(|set| SignalMask::from(*set));
        let mut next = out;
        let waited = handle.poller.wait_with(max, timeout, mask.as_ref(), |event| {
            let Event { token: data, readiness } = event;
            // SAFETY: there is space for `max` events, and a wait passes no more.
            unsafe {
                next.write(CEvent { data, events: readiness.bits().into(), reserved: 0 });
                next = next.add(1);
            }
        });
        waited.map(|count| count as c_int).map_err(|error| errno(&error))
    })
}

/// Converts a timeout.
fn duration(time: &libc::timespec) -> Result<Duration, c_int> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| libc::EINVAL)?;
    let nanoseconds = u32::try_from(time.tv_nsec).map_err(|_| libc::EINVAL)?;
    if nanoseconds >= 1_000_000_000 {
        return Err(libc::EINVAL);
    }
    Ok(Duration::new(seconds, nanoseconds))
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_wake(handle: *const Handle) -> c_int {
    guard(|| {
        // SAFETY: the caller passes null or a handle.
        unsafe { object(handle)? }.poller.wake();
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_fd(handle: *const Handle) -> c_int {
    // SAFETY: the caller passes null or a handle.
    guard(|| unsafe { object(handle)? }.poller.descriptor().ok_or(libc::EOPNOTSUPP))
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_trigger(handle: *const Handle) -> c_int {
    guard(|| {
        // SAFETY: the caller passes null or a handle.
        Ok(match unsafe { object(handle)? }.poller.semantics().trigger {
            Trigger::Level => 0,
            Trigger::Edge => 1,
            Trigger::OneShot => 2,
        })
    })
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_counters(
    handle: *const Handle,
    out: *mut CCounters,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes null or a handle.
        let counters = unsafe { object(handle)? }.poller.counters();
        if out.is_null() {
            return Err(libc::EINVAL);
        }
        let counters = CCounters {
            waits: counters.waits,
            empty_waits: counters.empty_waits,
            events: counters.events,
            spurious: counters.spurious,
            changes: counters.changes,
            overflows: counters.overflows,
            signals: counters.signals,
            calls: counters.calls,
        };
        let length = size.min(size_of::<CCounters>());
        // SAFETY: the caller passes `size` bytes that may be written. Later versions of the
        // structure are longer, and begin with these fields.
        unsafe { ptr::from_ref(&counters).cast::<u8>().copy_to_nonoverlapping(out.cast(), length) };
        Ok(0)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn hearken_mechanisms() -> *const *const c_char {
    struct Names {
        pointers: Vec<*const c_char>,
        _names: Vec<CString>,
    }
    // SAFETY: the pointers refer to the strings next to them, which never change.
    unsafe impl Send for Names {}
    // SAFETY: as above.
    unsafe impl Sync for Names {}
    static NAMES: OnceLock<Names> = OnceLock::new();
    static NONE: &[usize] = &[0];
    let names = catch_unwind(|| {
        NAMES.get_or_init(|| {
            let names: Vec<CString> =
                TABLE.iter().filter_map(|entry| CString::new(entry.name).ok()).collect();
            let end = std::iter::once(ptr::null());
            let pointers = names.iter().map(|name| name.as_ptr()).chain(end).collect();
            Names { pointers, _names: names }
        })
    });
    names.map_or(NONE.as_ptr().cast(), |names| names.pointers.as_ptr())
}
