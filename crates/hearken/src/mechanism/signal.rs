//! What is said by real-time signals: the queue of the kernel that rt-signal, signal-per-fd and
//! kernel-queue share (Chandra and Mosberger, USENIX 2001).
//!
//! Its traps, and what is done about each:
//!
//! a) A real-time signal that is not blocked ends the process. It is blocked for the thread that
//!    opens a queue, to which it is directed, and stays so when the queue is closed. Threads and
//!    processes that this thread starts inherit that, and never have one directed to them.
//! b) Two queues of a thread with one signal would take each other's. Each has its own, of the thirty
//!    or so that a thread has.
//! c) F_SETSIG with a signal below SIGRTMIN merges those of different descriptors: not used.
//! d) O_ASYNC is taken by every kind of file, and does nothing on most (eventfd, timerfd, epoll,
//!    regular files). FIOASYNC is refused there, so it is FIOASYNC that sets it.
//! e) When the user's limit of queued signals is reached, events are dropped, and SIGIO is raised,
//!    once. It has a lower number, so it comes first: whoever takes it, takes what is queued, and
//!    then asks, finds all that was dropped before it was taken; what is dropped after raises it
//!    again. SIGIO does not say whose event it was, so every queue of the thread is told.
//! f) A queued signal survives the registration that raised it, and names a number that may have a
//!    new holder: see `signal/table.rs`.
//! g) The kernel says POLLHUP together with POLLERR for a plain close, and POLLIN alone for the end of
//!    a stream: a signal tells readable and writable, and no more.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Unavailable, timespec};
use crate::event::Readiness;
use number::{release, reserve, set_of};

pub(crate) mod dispatch;
mod number;
pub(crate) mod table;

/// Signals taken in one system call.
pub(crate) const MOST: usize = 64;

/// `F_SETSIG`, `F_SETOWN_EX` and `F_OWNER_TID` (asm-generic/fcntl.h).
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// `struct f_owner_ex` (asm-generic/fcntl.h).
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// The beginning of a `siginfo_t`, as it is for signals of descriptors.
#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    signal: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    band: libc::c_long,
    fd: libc::c_int,
}

thread_local! {
    /// How often a queue of this thread was told that events were dropped.
    static OVERFLOWS: Cell<u64> = const { Cell::new(0) };
}

/// Lowers the number of signals that may be queued (`RLIMIT_SIGPENDING`) for this process, or raises
/// it as far as its hard limit: for experiments with overflow. What is queued for other processes
/// of the same user counts.
///
/// # Errors
/// The kernel's: `n` is above the hard limit.
pub fn limit_queue(n: u64) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Sigpending);
    Ok(setrlimit(Resource::Sigpending, Rlimit { current: Some(n), maximum })?)
}

/// One real-time signal of the thread that opened it, and the queue of those raised.
#[derive(Debug)]
pub(crate) struct Signals {
    signal: libc::c_int,
    /// This signal and SIGIO.
    set: libc::sigset_t,
    /// Reads many at a time, and is readable where there are some.
    queue: OwnedFd,
    thread: libc::pid_t,
    /// Taken one at a time.
    singly: bool,
    taken: Box<[libc::signalfd_siginfo; MOST]>,
    /// The thread's count of overflows, as it was when this queue last asked.
    overflows: u64,
    pub(crate) calls: u64,
    /// It belongs to a thread.
    local: PhantomData<*const ()>,
}

/// What a signal says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Raised {
    /// The number under which the descriptor was armed; negative if it says nothing of one.
    pub(crate) fd: RawFd,
    pub(crate) readiness: Readiness,
    /// It stands for others that were not queued.
    pub(crate) merged: bool,
}

/// How many signals were taken, and whether the queue was seen to be empty after them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Took {
    pub(crate) count: usize,
    pub(crate) emptied: bool,
}

impl Signals {
    /// A signal that is free in this thread, blocked.
    pub(crate) fn open(singly: bool) -> Result<Signals, Unavailable> {
        let signal = reserve().ok_or_else(|| Unavailable {
            call: "sigaction",
            error: Errno::AGAIN.into(),
            remedy: "every real-time signal has a handler or a queue of this thread: close one",
        })?;
        Signals::over(signal, singly).inspect_err(|_| release(signal))
    }

    fn over(signal: libc::c_int, singly: bool) -> Result<Signals, Unavailable> {
        let set = set_of(&[signal, libc::SIGIO]);
        // SAFETY: the set is initialised; the old mask is not asked for.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
        if blocked != 0 {
            let error = io::Error::from_raw_os_error(blocked);
            let remedy = "allow the call in the seccomp filter";
            return Err(Unavailable { call: "pthread_sigmask", error, remedy }); // (a)
        }
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let queue = unsafe { libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if queue < 0 {
            return Err(Unavailable {
                call: "signalfd",
                error: io::Error::last_os_error(),
                remedy: "raise the limit of open files, or allow the call in the seccomp filter",
            });
        }
        // SAFETY: plain numbers, for which zero is a value.
        let nothing: libc::signalfd_siginfo = unsafe { MaybeUninit::zeroed().assume_init() };
        let mut signals = Signals {
            signal,
            set,
            // SAFETY: just opened, and nobody else's.
            queue: unsafe { OwnedFd::from_raw_fd(queue) },
            thread: rustix::thread::gettid().as_raw_nonzero().get(),
            singly,
            taken: Box::new([nothing; MOST]),
            overflows: OVERFLOWS.get(),
            calls: 0,
            local: PhantomData,
        };
        signals.discard(|_| {});
        Ok(signals)
    }

    /// Its signal.
    pub(crate) fn signal(&self) -> libc::c_int {
        self.signal
    }

    /// Has `fd` raise the signal from now on. What it was ready for before raises nothing.
    ///
    /// # Errors
    /// `EPERM` for what raises no signals: eventfds, timerfds, epolls, regular files.
    ///
    /// # Safety
    /// `fd` is open.
    pub(crate) unsafe fn arm(&mut self, fd: RawFd) -> io::Result<()> {
        let owner = Owner { kind: F_OWNER_TID, id: self.thread };
        self.calls += 3;
        // SAFETY: the first takes a number, the second reads an `f_owner_ex`; fd is open.
        let told = unsafe {
            libc::fcntl(fd, F_SETSIG, self.signal) == 0 && libc::fcntl(fd, F_SETOWN_EX, &owner) == 0
        };
        if !told {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the caller's promise.
        unsafe { raises(fd, true) }.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTTY) => Errno::PERM.into(), // (d)
            _ => error,
        })
    }

    /// Has `fd` raise nothing any more. What it raised before stays queued.
    ///
    /// # Safety
    /// `fd` is open.
    pub(crate) unsafe fn disarm(&mut self, fd: RawFd) -> io::Result<()> {
        self.calls += 1;
        // SAFETY: the caller's promise.
        unsafe { raises(fd, false) }
    }

    /// Takes at most `most` signals (and at most [`MOST`]) of those that are queued, without waiting.
    pub(crate) fn take(&mut self, most: usize) -> io::Result<Took> {
        let most = most.clamp(1, MOST);
        if self.singly {
            let mut count = 0;
            while count < most {
                match self.next(count, Some(Duration::ZERO)) {
                    Ok(()) => count += 1,
                    Err(Errno::AGAIN) => return Ok(Took { count, emptied: true }),
                    Err(Errno::INTR) => break,
                    Err(errno) => return Err(errno.into()),
                }
            }
            return Ok(Took { count, emptied: false });
        }
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let room = self.taken[..most].as_mut_ptr().cast();
        self.calls += 1;
        // SAFETY: `room` has `most` elements, of which every bit pattern is a value.
        let got = unsafe { libc::read(self.queue.as_raw_fd(), room, most * SIZE) };
        let count = match usize::try_from(got) {
            Ok(got) => got / SIZE,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => 0,
                error => return Err(error),
            },
        };
        for info in &self.taken[..count] {
            if info.ssi_signo == libc::SIGIO as u32 {
                OVERFLOWS.set(OVERFLOWS.get() + 1);
            }
        }
        // The kernel stops short where there are no more.
        Ok(Took { count, emptied: count < most })
    }

    /// Waits for one signal and takes it; false if none came in time, or a handler ran.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        match self.next(0, timeout) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes one signal to `place`.
    fn next(&mut self, place: usize, timeout: Option<Duration>) -> Result<(), Errno> {
        let timeout = timeout.map(timespec);
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref).cast();
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        self.calls += 1;
        // SAFETY: the set is initialised, `info` has room for a siginfo_t, and the timeout is null
        // or a timespec.
        let signal = unsafe { libc::sigtimedwait(&self.set, info.as_mut_ptr(), timeout) };
        if signal < 0 {
            let error = io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
        }
        // SAFETY: a siginfo_t is larger than its beginning, as aligned, and was zeroed.
        let info = unsafe { info.as_ptr().cast::<Info>().read() };
        if signal == libc::SIGIO {
            OVERFLOWS.set(OVERFLOWS.get() + 1);
        }
        let taken = &mut self.taken[place];
        taken.ssi_signo = signal as u32;
        taken.ssi_code = info.code;
        taken.ssi_fd = info.fd;
        taken.ssi_band = info.band as u32;
        Ok(())
    }

    /// What the signal at `index` of those just taken says.
    #[inline]
    pub(crate) fn raised(&self, index: usize) -> Raised {
        let info = &self.taken[index];
        // What another process queued (a negative code, or 0) says nothing.
        if info.ssi_signo != self.signal as u32 || info.ssi_code <= 0 {
            return Raised { fd: -1, readiness: Readiness::empty(), merged: false };
        }
        let band = info.ssi_band as i32;
        let ended = band & i32::from(libc::POLLHUP | libc::POLLERR) != 0;
        let mut readiness = Readiness::empty();
        readiness.set(Readiness::READABLE, ended || band & i32::from(libc::POLLIN) != 0);
        readiness.set(Readiness::WRITABLE, ended || band & i32::from(libc::POLLOUT) != 0);
        Raised { fd: info.ssi_fd, readiness, merged: false } // (g)
    }

    /// True, once, if events were dropped: all that is watched must be asked, after
    /// [`discard`](Signals::discard).
    pub(crate) fn overflowed(&mut self) -> bool {
        let overflows = OVERFLOWS.get();
        std::mem::replace(&mut self.overflows, overflows) != overflows // (e)
    }

    /// Takes all that is queued and gives it to `each`; what comes meanwhile may be among it.
    pub(crate) fn discard(&mut self, mut each: impl FnMut(Raised)) {
        // Bounded, since others may raise them as fast as they are taken: by what can be queued.
        for _ in 0..1 << 16 {
            let Ok(took) = self.take(MOST) else {
                return;
            };
            for index in 0..took.count {
                each(self.raised(index));
            }
            if took.emptied {
                return;
            }
        }
    }

    /// What is readable where a signal is queued.
    pub(crate) fn queue(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

impl Drop for Signals {
    /// Who has armed descriptors, disarms them before.
    fn drop(&mut self) {
        self.discard(|_| {});
        release(self.signal);
    }
}

/// Sets or takes back O_ASYNC.
///
/// # Safety
/// `fd` is open.
unsafe fn raises(fd: RawFd, on: bool) -> io::Result<()> {
    let on = libc::c_int::from(on);
    // SAFETY: FIOASYNC reads one int; the caller keeps fd open.
    let done = unsafe { libc::ioctl(fd, libc::FIOASYNC, &on) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
