//! io_uring(7), entered with care: what the mechanisms over it and `io::uring` share.
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

// Memory is shared with the kernel here; each block says why that is sound.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::io_uring::{IoringEnterFlags, IoringFeatureFlags, IoringSetupFlags, IoringSqFlags};
use rustix::io_uring::{IoringRegisterOp, io_uring_params, io_uring_register, io_uring_setup};
use rustix::io_uring::{io_uring_enter, io_uring_enter_arg, io_uring_getevents_arg, io_uring_ptr};

use crate::unavailable::Unavailable;

mod entry;
mod queues;

pub(crate) use entry::{Cqe, Sqe, op};
use queues::Queues;

/// When the kernel turns what has happened into completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// In `io_uring_enter` only: many at once, and nothing interrupts other work.
    Deferred,
    /// At the end of any system call: those are then in the ring without another call.
    Cooperative,
}

/// Timeouts from here on are for ever.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// A ring, in the thread that made it.
pub(crate) struct Ring {
    queues: Queues,
    fd: OwnedFd,
    /// The kernel sets a flag in the ring while it has something that only an enter shows.
    flagged: bool,
    deferred: bool,
    was_overflown: bool,
    calls: u64,
    overflows: u64,
    in_one_thread: PhantomData<*mut ()>, // (b)
}

impl Ring {
    /// Asks for a ring with room for so many submissions and completions.
    pub(crate) fn open(work: Work, room: (u32, u32)) -> Result<Ring, Unavailable> {
        let shared = IoringSetupFlags::COOP_TASKRUN | IoringSetupFlags::TASKRUN_FLAG;
        let deferred = IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN
            | IoringSetupFlags::TASKRUN_FLAG;
        let cooperative = shared | IoringSetupFlags::SINGLE_ISSUER;
        let ladder = [deferred, cooperative, shared, IoringSetupFlags::empty()];
        let from = usize::from(work == Work::Cooperative);
        for flags in &ladder[from..] {
            for flags in [*flags | IoringSetupFlags::NO_SQARRAY, *flags] {
                match build(flags, room) {
                    Ok((fd, has)) => return Ring::over(fd, &has).map_err(refused),
                    Err(Errno::INVAL) => {} // (a)
                    Err(errno) => return Err(refused(errno)),
                }
            }
        }
        Err(refused(Errno::INVAL))
    }

    fn over(fd: OwnedFd, has: &io_uring_params) -> Result<Ring, Errno> {
        let needed = IoringFeatureFlags::SINGLE_MMAP
            | IoringFeatureFlags::EXT_ARG
            | IoringFeatureFlags::NODROP
            | IoringFeatureFlags::CQE_SKIP;
        if !has.features.contains(needed) {
            return Err(Errno::NOSYS);
        }
        Ok(Ring {
            queues: Queues::map(&fd, has)?,
            fd,
            flagged: has.flags.contains(IoringSetupFlags::TASKRUN_FLAG),
            deferred: has.flags.contains(IoringSetupFlags::DEFER_TASKRUN),
            was_overflown: false,
            calls: 0,
            overflows: 0,
            in_one_thread: PhantomData,
        })
    }

    /// True if completions come of an enter only.
    pub(crate) fn is_deferred(&self) -> bool {
        self.deferred
    }

    /// Says whether the kernel knows an operation.
    pub(crate) fn require(&self, operation: u8, remedy: &'static str) -> Result<(), Unavailable> {
        /// `struct io_uring_probe`.
        #[repr(C)]
        struct Probe {
            last: u8,
            length: u8,
            reserved: [u16; 7],
            /// Each with its number, a reserved byte, and its flags.
            operations: [[u16; 4]; 64],
        }
        const SUPPORTED: u16 = 1;
        let mut probe = Probe { last: 0, length: 0, reserved: [0; 7], operations: [[0; 4]; 64] };
        let room = probe.operations.len() as u32;
        let to: *mut Probe = &raw mut probe;
        // SAFETY: the kernel writes the header and at most so many operations.
        let asked = unsafe {
            io_uring_register(&self.fd, IoringRegisterOp::RegisterProbe, to.cast(), room)
        };
        let known = probe.operations.get(usize::from(operation));
        match asked {
            Ok(_) if known.is_some_and(|of| of[1] & SUPPORTED != 0) => return Ok(()),
            _ => {}
        }
        let error = asked.err().unwrap_or(Errno::OPNOTSUPP).into();
        Err(Unavailable { call: "io_uring_register", error, remedy })
    }

    /// Gives the kernel a ring of `entries` buffers, a power of two, to be chosen from by `group`.
    ///
    /// # Safety
    /// At `addr` there is memory for as many `struct io_uring_buf`, which stays there for as long as
    /// the ring; and what they name, until the last request that chooses from them has ended.
    pub(crate) unsafe fn provide(
        &self,
        addr: u64,
        entries: u32,
        group: u16,
    ) -> Result<(), Unavailable> {
        /// `struct io_uring_buf_reg`.
        #[repr(C)]
        struct Registration {
            addr: u64,
            entries: u32,
            group: u16,
            flags: u16,
            reserved: [u64; 3],
        }
        let asked = Registration { addr, entries, group, flags: 0, reserved: [0; 3] };
        let operation = IoringRegisterOp::RegisterPbufRing;
        // SAFETY: the kernel reads the registration; what it names is the caller's promise.
        let answer =
            unsafe { io_uring_register(&self.fd, operation, (&raw const asked).cast(), 1) };
        let refused = |errno| {
            let remedy = match errno {
                Errno::NOMEM => "raise the limit of locked memory (ulimit -l), or free memory",
                _ => "it needs Linux 6.0, for rings of provided buffers",
            };
            Unavailable { call: "io_uring_register", error: Errno::into(errno), remedy }
        };
        answer.map(drop).map_err(refused)
    }

    /// System calls made.
    #[inline]
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Enters that found the completion queue overflown.
    pub(crate) fn overflows(&self) -> u64 {
        self.overflows
    }

    /// True if there is no room for `more` submissions.
    #[inline]
    pub(crate) fn is_short_of(&self, more: u32) -> bool {
        self.queues.room() < more
    }

    /// Queues a submission; the caller has seen that there is room.
    ///
    /// # Safety
    /// What the entry points to is as the kernel expects it until the operation has ended.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    pub(crate) unsafe fn push(&mut self, entry: Sqe) {
        self.queues.push(entry);
    }

    /// True if an enter would do something, or might: hand over, or find more than is in the ring.
    #[inline]
    pub(crate) fn stirs(&self) -> bool {
        !self.flagged || self.queues.queued() > 0 || self.has_more()
    }

    /// True if there is something in the ring.
    #[inline]
    pub(crate) fn has_completions(&mut self) -> bool {
        self.queues.has_completions()
    }

    /// True if the kernel is known to have more than it has put into the ring.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.queues.flags().intersects(IoringSqFlags::TASKRUN | IoringSqFlags::CQ_OVERFLOW)
    }

    /// True if the kernel kept completions for which there was no room, before the last enter or
    /// after it: all that it had to say in between went the same way.
    pub(crate) fn is_overflown(&self) -> bool {
        self.was_overflown || self.overflows_now()
    }

    #[inline]
    fn overflows_now(&self) -> bool {
        self.queues.flags().contains(IoringSqFlags::CQ_OVERFLOW)
    }

    /// How many completions [`next`](Ring::next) yields.
    #[inline]
    pub(crate) fn available(&self) -> u32 {
        self.queues.available()
    }

    /// The next of the completions that were there after the last enter, or when it was last asked
    /// whether there are any. It may be written over in the next enter.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Cqe> {
        self.queues.take()
    }

    /// Hands over what is queued and waits for `least` completions, or not at all, or for as long as
    /// the timeout says. False if completions were lost (d).
    ///
    /// # Errors
    /// The kernel's, but for those that mean "later".
    #[inline]
    pub(crate) fn enter(&mut self, least: u32, timeout: Option<Duration>) -> io::Result<bool> {
        let unsubmitted = self.queues.queued();
        self.was_overflown = self.overflows_now();
        self.calls += 1;
        self.overflows += u64::from(self.was_overflown);
        self.queues.show();
        let mut flags = IoringEnterFlags::GETEVENTS;
        let entered = match timeout.filter(|timeout| least > 0 && *timeout < FOR_EVER) {
            // SAFETY: what the entries point to is as the kernel expects it: `push`'s promise.
            None => unsafe { io_uring_enter(&self.fd, unsubmitted, least, flags) },
            Some(timeout) => {
                let timespec = Timespec {
                    tv_sec: timeout.as_secs() as i64, // (e)
                    tv_nsec: timeout.subsec_nanos().into(),
                };
                flags |= IoringEnterFlags::EXT_ARG;
                let arguments = io_uring_getevents_arg {
                    ts: io_uring_ptr::new((&raw const timespec).cast_mut().cast()),
                    ..io_uring_getevents_arg::default()
                };
                // SAFETY: as above; the timeout outlives the call.
                unsafe { io_uring_enter_arg(&self.fd, unsubmitted, least, flags, Some(&arguments)) }
            }
        };
        self.queues.look();
        match entered {
            Ok(_) | Err(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(true), // (f)
            Err(Errno::BADR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn build(
    flags: IoringSetupFlags,
    (submissions, completions): (u32, u32),
) -> Result<(OwnedFd, io_uring_params), Errno> {
    let mut params = io_uring_params::default();
    let always = IoringSetupFlags::CLAMP | IoringSetupFlags::SUBMIT_ALL | IoringSetupFlags::CQSIZE;
    params.flags = flags | always;
    params.cq_entries = completions;
    // SAFETY: no memory of ours is named.
    let fd = unsafe { io_uring_setup(submissions, &mut params)? };
    Ok((fd, params))
}

/// Why there is no ring.
fn refused(errno: Errno) -> Unavailable {
    let remedy = match errno {
        Errno::PERM | Errno::ACCESS => {
            "set the sysctl kernel.io_uring_disabled to 0 (or, where it is 1, add this group to \
             kernel.io_uring_group), and allow io_uring_setup and io_uring_enter in the seccomp filter"
        }
        Errno::MFILE | Errno::NFILE => "raise the limit of open files",
        Errno::NOMEM => "raise the limit of locked memory (ulimit -l), or free memory",
        _ => "it needs Linux 5.17 with CONFIG_IO_URING, and a seccomp filter that allows it",
    };
    Unavailable { call: "io_uring_setup", error: errno.into(), remedy }
}
