//! Real-time signals: the kernel queue that rt-signal, signal-per-fd and kernel-queue share
//! (Chandra and Mosberger, USENIX 2001).
//!
//! Pitfalls, and how the code handles them:
//!
//! a) An unblocked real-time signal ends the process. It is blocked in the thread that opens a
//!    queue, to which it is directed, and stays blocked after the queue is closed. Threads and
//!    processes started by this thread inherit the mask, and no such signal is directed to them.
//! b) Two queues of a thread that share a signal would take each other's events. Each uses its own,
//!    of about thirty per thread.
//! c) F_SETSIG with a signal below SIGRTMIN merges the signals of different descriptors. It is not
//!    used.
//! d) Every kind of file accepts O_ASYNC, and most ignore it (eventfd, timerfd, epoll, regular
//!    files). FIOASYNC fails on those, so it is used to set the flag.
//! e) When the user's limit of queued signals is reached, the kernel drops events and raises SIGIO
//!    once. SIGIO has a lower number and is delivered first. Taking SIGIO, then all queued signals,
//!    and then checking all descriptors finds every event dropped before. Later drops raise SIGIO
//!    again. SIGIO does not identify the descriptor, so every queue of the thread recovers.
//! f) A queued signal outlives the registration that raised it, and its number may have been
//!    reused: see `signal/table.rs`.
//! g) The kernel reports POLLHUP and POLLERR together for a plain close, and only POLLIN for the
//!    end of a stream. A signal therefore reports readability and writability only.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{SignalMask, Unavailable, timespec};
use crate::event::Readiness;
use allocation::{release, reserve, signal_set};

mod allocation;
pub(crate) mod dispatcher;
pub(crate) mod table;

/// The maximum number of signals taken in one system call.
pub(crate) const MAX_SIGNALS: usize = 64;

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

/// The beginning of a `siginfo_t` for signals of descriptors.
#[repr(C)]
#[derive(Clone, Copy)]
struct SigInfoPrefix {
    signal: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    band: libc::c_long,
    fd: libc::c_int,
}

thread_local! {
    /// The number of overflows detected by queues of this thread.
    static OVERFLOWS: Cell<u64> = const { Cell::new(0) };
}

/// Sets the limit of queued signals (`RLIMIT_SIGPENDING`) of this process, up to its hard limit,
/// for experiments with overflows. Signals queued for other processes of the same user count.
///
/// # Errors
/// `n` exceeds the hard limit.
pub fn set_queue_limit(n: u64) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Sigpending);
    Ok(setrlimit(Resource::Sigpending, Rlimit { current: Some(n), maximum })?)
}

/// A real-time signal of the thread that opened it, and the queue of raised signals.
#[derive(Debug)]
pub(crate) struct Signals {
    signal: libc::c_int,
    /// This signal and SIGIO.
    set: libc::sigset_t,
    /// A signalfd: it reads many signals at a time, and is readable if there are any.
    queue: OwnedFd,
    thread: libc::pid_t,
    /// Whether signals are taken with sigtimedwait(2), one per system call.
    one_at_a_time: bool,
    batch: Box<[libc::signalfd_siginfo; MAX_SIGNALS]>,
    /// The number of signals taken.
    pub(crate) taken: u64,
    /// The thread's number of overflows when this queue last checked.
    overflows: u64,
    pub(crate) calls: u64,
    /// A queue belongs to a thread.
    local: PhantomData<*const ()>,
}

/// The readiness that a signal reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SignalInfo {
    /// The descriptor number that was armed, or a negative number if there is none.
    pub(crate) fd: RawFd,
    pub(crate) readiness: Readiness,
    /// Whether it stands for several arrivals, of which only one queued a signal.
    pub(crate) merged: bool,
}

/// The number of signals taken, and whether the queue was empty after them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) count: usize,
    pub(crate) queue_empty: bool,
}

impl Signals {
    /// Allocates a signal and blocks it in this thread.
    pub(crate) fn open(one_at_a_time: bool) -> Result<Signals, Unavailable> {
        let signal = reserve().ok_or_else(|| Unavailable {
            call: "sigaction",
            error: Errno::AGAIN.into(),
            remedy: "every real-time signal has a handler or a queue of this thread: close one",
        })?;
        Signals::from_signal(signal, one_at_a_time).inspect_err(|_| release(signal))
    }

    fn from_signal(signal: libc::c_int, one_at_a_time: bool) -> Result<Signals, Unavailable> {
        let set = signal_set(&[signal, libc::SIGIO]);
        // SAFETY: the set is initialised. The old mask is not requested.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
        if blocked != 0 {
            let error = io::Error::from_raw_os_error(blocked);
            let remedy = "allow the call in the seccomp filter";
            return Err(Unavailable { call: "pthread_sigmask", error, remedy }); // (a)
        }
        // SAFETY: the set is initialised. -1 requests a new descriptor.
        let queue = unsafe { libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if queue < 0 {
            return Err(Unavailable {
                call: "signalfd",
                error: io::Error::last_os_error(),
                remedy: "raise the limit of open files, or allow the call in the seccomp filter",
            });
        }
        // SAFETY: the struct consists of numbers, for which zero is valid.
        let nothing: libc::signalfd_siginfo = unsafe { MaybeUninit::zeroed().assume_init() };
        let mut signals = Signals {
            signal,
            set,
            // SAFETY: the descriptor was just opened, and nothing else owns it.
            queue: unsafe { OwnedFd::from_raw_fd(queue) },
            thread: rustix::thread::gettid().as_raw_nonzero().get(),
            one_at_a_time,
            batch: Box::new([nothing; MAX_SIGNALS]),
            taken: 0,
            overflows: OVERFLOWS.get(),
            calls: 0,
            local: PhantomData,
        };
        signals.discard(|_| {});
        Ok(signals)
    }

    /// Returns the signal's number.
    pub(crate) fn signal(&self) -> libc::c_int {
        self.signal
    }

    /// Makes `fd` raise the signal from now on. Existing readiness raises none.
    ///
    /// # Errors
    /// `EPERM` for files that raise no signals: eventfds, timerfds, epolls, regular files.
    ///
    /// # Safety
    /// `fd` is open.
    pub(crate) unsafe fn arm(&mut self, fd: RawFd) -> io::Result<()> {
        let owner = Owner { kind: F_OWNER_TID, id: self.thread };
        self.calls += 3;
        // SAFETY: the first call takes a number, the second reads an `f_owner_ex`. `fd` is open.
        let done = unsafe {
            libc::fcntl(fd, F_SETSIG, self.signal) == 0 && libc::fcntl(fd, F_SETOWN_EX, &owner) == 0
        };
        if !done {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the caller keeps `fd` open.
        unsafe { set_async(fd, true) }.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTTY) => Errno::PERM.into(), // (d)
            _ => error,
        })
    }

    /// Makes `fd` raise no more signals. Signals already raised stay queued.
    ///
    /// # Safety
    /// `fd` is open.
    pub(crate) unsafe fn disarm(&mut self, fd: RawFd) -> io::Result<()> {
        self.calls += 1;
        // SAFETY: the caller keeps `fd` open.
        unsafe { set_async(fd, false) }
    }

    /// Takes at most `max` queued signals (and at most [`MAX_SIGNALS`]) without waiting.
    pub(crate) fn take(&mut self, max: usize) -> io::Result<Taken> {
        let max = max.clamp(1, MAX_SIGNALS);
        if self.one_at_a_time {
            let mut count = 0;
            while count < max {
                match self.next(count, Some(Duration::ZERO)) {
                    Ok(()) => count += 1,
                    Err(Errno::AGAIN) => return Ok(Taken { count, queue_empty: true }),
                    Err(Errno::INTR) => break,
                    Err(errno) => return Err(errno.into()),
                }
            }
            return Ok(Taken { count, queue_empty: false });
        }
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let buffer = self.batch[..max].as_mut_ptr().cast();
        self.calls += 1;
        // SAFETY: `buffer` has `max` elements, for which every bit pattern is valid.
        let length = unsafe { libc::read(self.queue.as_raw_fd(), buffer, max * SIZE) };
        let count = match usize::try_from(length) {
            Ok(length) => length / SIZE,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => 0,
                error => return Err(error),
            },
        };
        self.taken += count as u64;
        for info in &self.batch[..count] {
            if info.ssi_signo == libc::SIGIO as u32 {
                OVERFLOWS.set(OVERFLOWS.get() + 1);
            }
        }
        // The kernel returns fewer only if there are no more.
        Ok(Taken { count, queue_empty: count < max })
    }

    /// Waits for one signal and takes it. Returns false after the timeout. Fails with `EINTR` after
    /// a signal handler.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        match self.next(0, timeout) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes one signal and stores it at `index`.
    fn next(&mut self, index: usize, timeout: Option<Duration>) -> Result<(), Errno> {
        let timeout = timeout.map(timespec);
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref).cast();
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        self.calls += 1;
        // SAFETY: the set is initialised, `info` has space for a siginfo_t, and the timeout is null
        // or a timespec.
        let signal = unsafe { libc::sigtimedwait(&self.set, info.as_mut_ptr(), timeout) };
        if signal < 0 {
            let error = io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
        }
        // SAFETY: a siginfo_t is larger than this prefix, has the same alignment, and was zeroed.
        let info = unsafe { info.as_ptr().cast::<SigInfoPrefix>().read() };
        if signal == libc::SIGIO {
            OVERFLOWS.set(OVERFLOWS.get() + 1);
        }
        self.taken += 1;
        let taken = &mut self.batch[index];
        taken.ssi_signo = signal as u32;
        taken.ssi_code = info.code;
        taken.ssi_fd = info.fd;
        taken.ssi_band = info.band as u32;
        Ok(())
    }

    /// Returns the readiness reported by the signal at `index` of those just taken.
    #[inline]
    pub(crate) fn info(&self, index: usize) -> SignalInfo {
        let info = &self.batch[index];
        // A signal queued by another process (a code of 0 or less) has no meaning here.
        if info.ssi_signo != self.signal as u32 || info.ssi_code <= 0 {
            return SignalInfo { fd: -1, readiness: Readiness::empty(), merged: false };
        }
        let band = info.ssi_band as i32;
        let ended = band & i32::from(libc::POLLHUP | libc::POLLERR) != 0;
        let mut readiness = Readiness::empty();
        readiness.set(Readiness::READABLE, ended || band & i32::from(libc::POLLIN) != 0);
        readiness.set(Readiness::WRITABLE, ended || band & i32::from(libc::POLLOUT) != 0);
        SignalInfo { fd: info.ssi_fd, readiness, merged: false } // (g)
    }

    /// Returns whether events were dropped since the last call. If so, all descriptors must be
    /// checked after [`discard`](Signals::discard).
    pub(crate) fn overflowed(&mut self) -> bool {
        let overflows = OVERFLOWS.get();
        std::mem::replace(&mut self.overflows, overflows) != overflows // (e)
    }

    /// Takes all queued signals and passes them to `each`. They may include signals that arrive
    /// meanwhile.
    pub(crate) fn discard(&mut self, mut each: impl FnMut(SignalInfo)) {
        // Bounded by the size of the queue, because others may raise signals as fast as they are
        // taken.
        for _ in 0..1 << 16 {
            let Ok(took) = self.take(MAX_SIGNALS) else {
                return;
            };
            for index in 0..took.count {
                each(self.info(index));
            }
            if took.queue_empty {
                return;
            }
        }
    }

    /// Returns a mask for waits, in which the signals of this queue stay blocked.
    pub(crate) fn extend_mask(&self, mask: &SignalMask) -> io::Result<SignalMask> {
        let mut mask = *mask;
        mask.block(self.signal)?;
        mask.block(libc::SIGIO)?;
        Ok(mask)
    }

    /// Returns a descriptor that is readable while signals are queued.
    pub(crate) fn queue(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

impl Drop for Signals {
    /// Releases the signal. The owner disarms its descriptors first.
    fn drop(&mut self) {
        self.discard(|_| {});
        release(self.signal);
    }
}

/// Sets or clears O_ASYNC.
///
/// # Safety
/// `fd` is open.
unsafe fn set_async(fd: RawFd, enable: bool) -> io::Result<()> {
    let enable = libc::c_int::from(enable);
    // SAFETY: FIOASYNC reads one int. The caller keeps `fd` open.
    let done = unsafe { libc::ioctl(fd, libc::FIOASYNC, &enable) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
