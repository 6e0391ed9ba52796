//! What the mechanisms over io_uring(7) share: a ring, entered with care.
//!
//! Its traps, and what is done about each:
//!
//! a) What makes a ring cheap came to the kernel bit by bit, and an unknown flag is EINVAL. The best
//!    that there is comes of asking for less until the kernel agrees.
//! b) Under DEFER_TASKRUN what has happened becomes completions only in an `io_uring_enter` with
//!    GETEVENTS, and only in that of the thread that made the ring. Every enter here has it, and a
//!    ring is not `Send`. Until then the kernel keeps what has happened: a thread that does not
//!    enter for long finds all of it when it does.
//! c) A full submission queue is handed over early, without waiting.
//! d) A full completion queue loses nothing: the kernel keeps what does not fit (NODROP) and hands
//!    it over in later enters, each of which counts as an overflow here. Only if it has no memory for
//!    that is something lost; it then says so once (EBADR), and so does `enter`.
//! e) The kernel adds a timeout to its clock, and a sum that overflows has passed. What is longer
//!    than a lifetime is for ever.
//! f) A signal, or the end of the timeout, ends an enter that has handed over submissions with their
//!    number, not with an error; one that was asked to do too much at once answers EAGAIN or EBUSY and
//!    is merely repeated later.

use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{CompletionQueue, IoUring, Probe, squeue};
use rustix::io::Errno;
use rustix::io_uring::{IoringEnterFlags, io_uring_enter, io_uring_enter_arg};
use rustix::io_uring::{io_uring_getevents_arg, io_uring_ptr};

use super::{Unavailable, borrow, timespec};

/// When the kernel turns what has happened into completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// In `io_uring_enter` only: many at once, and nothing interrupts other work.
    Deferred,
    /// At the end of any system call: those are then in the ring without another call.
    Cooperative,
}

/// Timeouts from here on are for ever.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// The flags to try, the best first.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Flags {
    deferred: bool,
    single_issuer: bool,
    cooperative: bool,
}

/// A ring, in the thread that made it.
pub(super) struct Ring {
    ring: IoUring,
    /// The kernel sets a flag in the ring while it has something that only an enter shows.
    flagged: bool,
    deferred: bool,
    calls: u64,
    was_overflown: bool,
    overflows: u64,
    in_one_thread: PhantomData<*mut ()>, // (b)
}

impl Ring {
    /// Asks for a ring with room for so many submissions and completions.
    pub(super) fn open(work: Work, room: (u32, u32)) -> Result<Ring, Unavailable> {
        let deferred = Flags { deferred: true, single_issuer: true, cooperative: false };
        let cooperative = Flags { deferred: false, single_issuer: true, cooperative: true };
        let shared = Flags { single_issuer: false, ..cooperative };
        let plain = Flags { cooperative: false, ..shared };
        let ladder = [deferred, cooperative, shared, plain];
        let from = usize::from(work == Work::Cooperative);
        let mut last = None;
        for flags in &ladder[from..] {
            match flags.build(room) {
                Ok(ring) => {
                    let has = ring.params();
                    if !has.is_feature_ext_arg()
                        || !has.is_feature_nodrop()
                        || !has.is_feature_skip_cqe_on_success()
                    {
                        return Err(refused(io::Error::from_raw_os_error(libc::ENOSYS)));
                    }
                    return Ok(Ring {
                        ring,
                        flagged: *flags != plain,
                        deferred: flags.deferred,
                        calls: 0,
                        was_overflown: false,
                        overflows: 0,
                        in_one_thread: PhantomData,
                    });
                }
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = Some(error), // (a)
                Err(error) => return Err(refused(error)),
            }
        }
        Err(refused(last.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))))
    }

    /// True if completions come of an enter only.
    pub(super) fn is_deferred(&self) -> bool {
        self.deferred
    }

    /// Says whether the kernel knows an operation.
    pub(super) fn require(&self, operation: u8, remedy: &'static str) -> Result<(), Unavailable> {
        let mut probe = Probe::new();
        let asked = self.ring.submitter().register_probe(&mut probe);
        if asked.is_ok() && probe.is_supported(operation) {
            return Ok(());
        }
        let unknown = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let error = asked.err().unwrap_or_else(unknown);
        Err(Unavailable { call: "io_uring_register", error, remedy })
    }

    /// System calls made.
    #[inline]
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Enters that found the completion queue overflown.
    pub(super) fn overflows(&self) -> u64 {
        self.overflows
    }

    /// True if there is no room for `more` submissions.
    #[inline]
    pub(super) fn is_short_of(&mut self, more: usize) -> bool {
        let queue = self.ring.submission();
        queue.capacity() - queue.len() < more
    }

    /// Queues a submission; the caller has seen that there is room.
    ///
    /// # Safety
    /// What the entry points to is as the kernel expects it until the operation has ended.
    #[inline]
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the caller's promise.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// True if an enter would do something, or might: hand over, or find more than is in the ring.
    #[inline]
    pub(super) fn stirs(&mut self) -> bool {
        let queue = self.ring.submission();
        !self.flagged || !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// True if there is something in the ring.
    #[inline]
    pub(super) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// True if the kernel is known to have more than it has put into the ring.
    #[inline]
    pub(super) fn has_more(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// True if the kernel kept completions for which there was no room, before the last enter or
    /// after it: all that it had to say in between went the same way.
    pub(super) fn is_overflown(&mut self) -> bool {
        self.was_overflown || self.ring.submission().cq_overflow()
    }

    /// What is in the ring; it is taken off as it is read.
    #[inline]
    pub(super) fn completions(&mut self) -> CompletionQueue<'_> {
        self.ring.completion()
    }

    /// Hands over what is queued and waits for `least` completions, or not at all, or for as long as
    /// the timeout says. False if completions were lost (d).
    ///
    /// # Errors
    /// The kernel's, but for those that mean "later".
    #[inline]
    pub(super) fn enter(&mut self, least: u32, timeout: Option<Duration>) -> io::Result<bool> {
        let queue = self.ring.submission();
        let unsubmitted = queue.len() as u32;
        self.was_overflown = queue.cq_overflow();
        drop(queue);
        self.calls += 1;
        self.overflows += u64::from(self.was_overflown);
        // SAFETY: the ring owns it, and outlives the call.
        let fd = unsafe { borrow(self.ring.as_raw_fd()) };
        let mut flags = IoringEnterFlags::GETEVENTS;
        let entered = match timeout.filter(|timeout| least > 0 && *timeout < FOR_EVER) {
            // SAFETY: what the entries point to is as the kernel expects it: `push`'s promise.
            None => unsafe { io_uring_enter(fd, unsubmitted, least, flags) },
            Some(timeout) => {
                let timespec = timespec(timeout);
                flags |= IoringEnterFlags::EXT_ARG;
                let arguments = io_uring_getevents_arg {
                    ts: io_uring_ptr::new((&raw const timespec).cast_mut().cast()),
                    ..io_uring_getevents_arg::default()
                };
                // SAFETY: as above; the timeout outlives the call.
                unsafe { io_uring_enter_arg(fd, unsubmitted, least, flags, Some(&arguments)) }
            }
        };
        match entered {
            Ok(_) | Err(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(true), // (f)
            Err(Errno::BADR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Flags {
    fn build(self, (submissions, completions): (u32, u32)) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_submit_all().setup_cqsize(completions);
        if self.deferred {
            builder.setup_defer_taskrun();
        }
        if self.single_issuer {
            builder.setup_single_issuer();
        }
        if self.cooperative {
            builder.setup_coop_taskrun();
        }
        if self.deferred || self.cooperative {
            builder.setup_taskrun_flag();
        }
        builder.build(submissions)
    }
}

/// Why there is no ring.
fn refused(error: io::Error) -> Unavailable {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "set the sysctl kernel.io_uring_disabled to 0 (or, where it is 1, add this group to \
             kernel.io_uring_group), and allow io_uring_setup and io_uring_enter in the seccomp filter"
        }
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files",
        Some(libc::ENOMEM) => "raise the limit of locked memory (ulimit -l), or free memory",
        _ => "it needs Linux 5.17 with CONFIG_IO_URING, and a seccomp filter that allows it",
    };
    Unavailable { call: "io_uring_setup", error, remedy }
}
