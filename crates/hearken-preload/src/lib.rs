//! `libhearken-preload.so`: runs unmodified programs over any mechanism. `docs/run.md` describes it.
//!
//! It defines functions of libc under their names, so that the dynamic linker binds a program to
//! them. Calls that concern no emulated descriptor, and those of the library itself, continue in
//! libc.
//!
//! Pitfalls, and how the code handles them:
//!
//! a) Symbols with a version intercept nothing. rustc exports them without one.
//! b) A program with fortification calls `__poll_chk` and `__open64_2`. They are defined too.
//! c) A signal handler may call `close` or `write`. For descriptors that the library does not know,
//!    they read an atomic variable and call libc.
//! d) A child of vfork(2) shares the memory of its parent. The process number is compared before a
//!    table is changed.
//! e) The calls of the library's own mechanisms would arrive here again. A flag of the thread lets
//!    them pass.

// The functions receive pointers from C. Their contract is that of libc.
#![allow(unsafe_code)]
// They are exported by name.
#![allow(unreachable_pub)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use hearken::mechanism::{AUTO, SelectError, Semantics, auto, find};
use hearken::queue::Poller;

mod descriptors;
mod device;
mod epoll;
mod files;
mod own_poller;
mod poll;
mod real;
mod select;
mod set;

/// The interfaces that the library provides, from `HEARKEN_PRELOAD`.
#[derive(Clone, Copy, Default)]
struct Provided {
    dev_poll: bool,
    poll: bool,
    epoll: bool,
}

/// The mechanism and what is known of it.
struct Mechanism {
    spec: String,
    semantics: &'static Semantics,
    /// Whether an instance belongs to the thread that opened it.
    is_bound: bool,
}

thread_local! {
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Marks calls of libc in its scope as calls of the library itself.
struct Inside;

impl Inside {
    fn enter() -> Inside {
        INSIDE.set(INSIDE.get() + 1);
        Inside
    }

    fn is_current() -> bool {
        INSIDE.get() > 0
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

/// Writes a message to standard error. Each kind of message, by its number, is written once.
fn report(kind: u8, message: &str) {
    static REPORTED: AtomicU64 = AtomicU64::new(0);
    if REPORTED.fetch_or(1 << kind, Ordering::Relaxed) & 1 << kind == 0 {
        let _inside = Inside::enter();
        let _ = writeln!(std::io::stderr(), "hearken: {message}");
    }
}

/// Ends the program because of a setting.
fn fail(message: &str) -> ! {
    report(0, message);
    // SAFETY: it ends the process.
    unsafe { libc::_exit(2) }
}

/// Returns the interfaces to provide.
fn provided() -> Provided {
    static PROVIDED: OnceLock<Provided> = OnceLock::new();
    *PROVIDED.get_or_init(|| {
        let _inside = Inside::enter();
        let mut provided = Provided::default();
        let value = std::env::var("HEARKEN_PRELOAD").unwrap_or_default();
        for name in value.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "devpoll" => provided.dev_poll = true,
                "poll" => provided.poll = true,
                "epoll" => provided.epoll = true,
                _ => fail(&format!(
                    "HEARKEN_PRELOAD: unknown interface '{name}' (known: devpoll, poll, epoll)"
                )),
            }
        }
        provided
    })
}

/// Returns the mechanism that `HEARKEN_EVENTS` selects.
fn mechanism() -> &'static Mechanism {
    static MECHANISM: OnceLock<Mechanism> = OnceLock::new();
    MECHANISM.get_or_init(|| {
        let _inside = Inside::enter();
        let name = std::env::var("HEARKEN_EVENTS").unwrap_or_else(|_| AUTO.to_owned());
        let spec = match name.as_str() {
            AUTO | "" => Ok(auto::ranking().best().clone()),
            name => find(name),
        };
        let spec = spec.unwrap_or_else(|error| fail(&format!("HEARKEN_EVENTS: {error}")));
        let spec = spec.to_string();
        // In a thread of its own: when a ring is closed, the kernel interrupts the thread that
        // created it.
        let open = || Poller::open(&spec).map(|poller| (poller.semantics(), poller.is_bound()));
        let opened = without_signals(|| thread::scope(|scope| scope.spawn(open).join()));
        match opened {
            Ok(Ok((semantics, is_bound))) => Mechanism { spec, semantics, is_bound },
            Ok(Err(error)) => fail(&error.to_string()),
            Err(_) => fail(&format!("mechanism {spec} cannot be opened")),
        }
    })
}

/// Runs a function with all signals blocked, also in threads that it creates.
fn without_signals<T>(run: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call fills the set, and the second writes the mask of this thread.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = run();
    // SAFETY: the mask is that of this thread before the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

/// Returns the error number of an error.
fn errno(error: &std::io::Error) -> c_int {
    error.raw_os_error().unwrap_or(match error.kind() {
        std::io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    })
}

/// Reports that the mechanism cannot be opened again, and returns the error number.
fn cannot_open(error: &SelectError) -> c_int {
    report(8, &error.to_string());
    match error {
        SelectError::Unavailable { reason, .. } => errno(&reason.error),
        _ => libc::EINVAL,
    }
}

/// Runs an emulated call: returns its value, or -1 with the error number in `errno`. Keeps `errno`
/// otherwise. A panic becomes `EIO`.
fn emulate(function: impl FnOnce() -> Result<c_int, c_int>) -> c_int {
    let inside = Inside::enter();
    // SAFETY: the pointer refers to the thread's error number.
    let before = unsafe { *libc::__errno_location() };
    let result = catch_unwind(AssertUnwindSafe(function)).unwrap_or(Err(libc::EIO));
    drop(inside);
    let (value, errno) = match result {
        Ok(value) => (value, before),
        Err(errno) => (-1, errno),
    };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    value
}

/// Returns the last error number of libc.
fn last_errno() -> c_int {
    // SAFETY: the pointer refers to the thread's error number.
    unsafe { *libc::__errno_location() }
}

extern "C" fn initialise() {
    files::watch_forks();
    provided();
    // Reports an unknown mechanism now.
    if let Ok(name) = std::env::var("HEARKEN_EVENTS")
        && !["", AUTO].contains(&name.as_str())
        && let Err(error) = find(&name)
    {
        fail(&format!("HEARKEN_EVENTS: {error}"));
    }
}

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static INITIALISE: extern "C" fn() = initialise;

/// Refuses the io_uring of a program that batches its changes of epoll interest with it (libuv),
/// which the library cannot see.
///
/// # Safety
/// The contract of syscall(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: libc::c_long,
    a: *mut c_void,
    b: *mut c_void,
    c: *mut c_void,
    d: *mut c_void,
    e: *mut c_void,
    f: *mut c_void,
) -> libc::c_long {
    if number == libc::SYS_io_uring_setup && !Inside::is_current() && provided().epoll {
        report(1, "io_uring_setup is refused: io_uring would change epoll sets unseen");
        return emulate(|| Err(libc::ENOSYS)).into();
    }
    // SAFETY: the caller's contract.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}
