//! io_uring(7): the ring that the mechanisms over it and `io::uring` share.
//!
//! Pitfalls, and how the code handles them:
//!
//! a) The features that make a ring efficient came with different kernel versions, and the kernel
//!    rejects an unknown flag with EINVAL. `open` retries with fewer flags until the kernel accepts
//!    them.
//! b) With DEFER_TASKRUN, completions appear only in an `io_uring_enter` with GETEVENTS by the
//!    thread that created the ring. Every enter here sets GETEVENTS, and a ring is not `Send`. The
//!    kernel queues events until then: a thread that rarely enters receives many at once.
//! c) A full submission queue is submitted early, without waiting.
//! d) A full completion queue loses nothing. The kernel keeps the excess (NODROP) and delivers it
//!    in later enters, each of which counts as an overflow here. It loses completions only without
//!    memory for that. It then reports EBADR once, and `enter` returns false.
//! e) The kernel adds a timeout to its clock, and a sum that overflows counts as passed. A timeout
//!    of more than a lifetime is therefore infinite.
//! f) If a signal or timeout ends an enter that has submitted entries, it returns their number, not
//!    an error. An enter that exceeds a resource limit fails with EAGAIN or EBUSY and is repeated
//!    later.

// Memory is shared with the kernel here. Each block states why that is sound.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
#[cfg(feature = "simulation")]
pub(crate) use entry::{cqe_flags, sqe_flags};
use queues::Queues;

/// The time at which the kernel posts completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CompletionMode {
    /// Only in `io_uring_enter`: in batches, without interrupting other work.
    Deferred,
    /// At the end of any system call: they are then in the ring without another call.
    Cooperative,
}

/// The shortest timeout that is treated as infinite.
const INFINITE: Duration = Duration::from_secs(1 << 32);

/// A ring. Only the thread that created it can use it.
pub struct Ring {
    queues: Queues,
    fd: OwnedFd,
    /// Whether the kernel sets a flag in the ring while an enter would post completions.
    flagged: bool,
    deferred: bool,
    had_overflow: bool,
    interrupted: bool,
    calls: u64,
    overflows: u64,
    not_send: PhantomData<*mut ()>, // (b)
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl Ring {
    /// Creates a ring with space for the given numbers of submissions and completions.
    pub(crate) fn open(work: CompletionMode, space: (u32, u32)) -> Result<Ring, Unavailable> {
        let shared = IoringSetupFlags::COOP_TASKRUN | IoringSetupFlags::TASKRUN_FLAG;
        let deferred = IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN
            | IoringSetupFlags::TASKRUN_FLAG;
        let cooperative = shared | IoringSetupFlags::SINGLE_ISSUER;
        let candidates = [deferred, cooperative, shared, IoringSetupFlags::empty()];
        let first = usize::from(work == CompletionMode::Cooperative);
        for flags in &candidates[first..] {
            for flags in [*flags | IoringSetupFlags::NO_SQARRAY, *flags] {
                match build(flags, space) {
                    Ok((fd, params)) => return Ring::from_fd(fd, &params).map_err(unavailable),
                    Err(Errno::INVAL) => {} // (a)
                    Err(errno) => return Err(unavailable(errno)),
                }
            }
        }
        Err(unavailable(Errno::INVAL))
    }

    fn from_fd(fd: OwnedFd, params: &io_uring_params) -> Result<Ring, Errno> {
        let needed = IoringFeatureFlags::SINGLE_MMAP
            | IoringFeatureFlags::EXT_ARG
            | IoringFeatureFlags::NODROP
            | IoringFeatureFlags::CQE_SKIP;
        if !params.features.contains(needed) {
            return Err(Errno::NOSYS);
        }
        Ok(Ring {
            queues: Queues::map(&fd, params)?,
            fd,
            flagged: params.flags.contains(IoringSetupFlags::TASKRUN_FLAG),
            deferred: params.flags.contains(IoringSetupFlags::DEFER_TASKRUN),
            had_overflow: false,
            interrupted: false,
            calls: 0,
            overflows: 0,
            not_send: PhantomData,
        })
    }

    /// Checks whether the kernel supports an operation.
    pub(crate) fn require_operation(
        &self,
        operation: u8,
        remedy: &'static str,
    ) -> Result<(), Unavailable> {
        /// `struct io_uring_probe`.
        #[repr(C)]
        struct Probe {
            last: u8,
            length: u8,
            reserved: [u16; 7],
            /// For each operation its number, a reserved byte, and its flags.
            operations: [[u16; 4]; 64],
        }
        const SUPPORTED: u16 = 1;
        let mut probe = Probe { last: 0, length: 0, reserved: [0; 7], operations: [[0; 4]; 64] };
        let space = probe.operations.len() as u32;
        let to: *mut Probe = &raw mut probe;
        // SAFETY: the kernel writes the header and at most `space` operations.
        let probed = unsafe {
            io_uring_register(&self.fd, IoringRegisterOp::RegisterProbe, to.cast(), space)
        };
        let entry = probe.operations.get(usize::from(operation));
        if probed.is_ok() && entry.is_some_and(|entry| entry[1] & SUPPORTED != 0) {
            return Ok(());
        }
        let error = probed.err().unwrap_or(Errno::OPNOTSUPP).into();
        Err(Unavailable { call: "io_uring_register", error, remedy })
    }

    /// Returns whether the kernel has completions that it has not posted to the ring.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.queues.flags().intersects(IoringSqFlags::TASKRUN | IoringSqFlags::CQ_OVERFLOW)
    }

    /// Returns the descriptor. It is readable while there are completions, unless they are deferred.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns whether there are entries that the next enter submits.
    #[inline]
    pub(crate) fn has_unsubmitted(&self) -> bool {
        self.queues.queued() > 0
    }

    /// Returns the number of completions taken, which wraps.
    pub(crate) fn taken(&self) -> u32 {
        self.queues.taken()
    }

    /// Releases the completions that were taken, which the next enter does too.
    pub(crate) fn publish(&mut self) {
        self.queues.publish();
    }

    /// Returns whether a signal handler has interrupted an enter since the last call. The kernel does
    /// not report that of an enter that also submitted entries.
    pub(crate) fn take_interrupted(&mut self) -> bool {
        std::mem::take(&mut self.interrupted)
    }

    /// Returns whether the completion queue was full before the last enter or is full now. The
    /// kernel then kept all completions in between.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.had_overflow || self.overflow_flag()
    }

    /// Enters the kernel like [`enter`](RingInterface::enter), with a signal mask.
    #[inline(never)]
    pub(crate) fn enter_with_mask(
        &mut self,
        min: u32,
        timeout: Option<Duration>,
        mask: &libc::sigset_t,
    ) -> io::Result<bool> {
        self.enter_with(min, timeout, Some(mask))
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "without a mask, nothing of it remains")]
    fn enter_with(
        &mut self,
        min: u32,
        timeout: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> io::Result<bool> {
        let unsubmitted = self.queues.queued();
        self.had_overflow = self.overflow_flag();
        self.calls += 1;
        self.overflows += u64::from(self.had_overflow);
        self.queues.publish();
        let mut flags = IoringEnterFlags::GETEVENTS;
        let result = match (timeout.filter(|timeout| min > 0 && *timeout < INFINITE), mask) {
            // SAFETY: callers of `push` guarantee the memory that the entries point to.
            (None, None) => unsafe { io_uring_enter(&self.fd, unsubmitted, min, flags) },
            (timeout, mask) => {
                let timespec = timeout.map(|timeout| Timespec {
                    tv_sec: timeout.as_secs() as i64, // (e)
                    tv_nsec: timeout.subsec_nanos().into(),
                });
                flags |= IoringEnterFlags::EXT_ARG;
                let mut arguments = io_uring_getevents_arg::default();
                if let Some(timespec) = &timespec {
                    arguments.ts =
                        io_uring_ptr::new(std::ptr::from_ref(timespec).cast_mut().cast());
                }
                if let Some(mask) = mask {
                    let set = std::ptr::from_ref(mask);
                    arguments.sigmask = io_uring_ptr::new(set.cast_mut().cast());
                    arguments.sigmask_sz = size_of::<u64>() as u32;
                }
                // SAFETY: as above. The timeout and the mask outlive the call.
                unsafe { io_uring_enter_arg(&self.fd, unsubmitted, min, flags, Some(&arguments)) }
            }
        };
        self.queues.refresh();
        match result {
            Ok(_) | Err(Errno::TIME | Errno::AGAIN | Errno::BUSY) => Ok(true), // (f)
            Err(Errno::INTR) => {
                self.interrupted = true;
                Ok(true)
            }
            Err(Errno::BADR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    #[inline]
    fn overflow_flag(&self) -> bool {
        self.queues.flags().contains(IoringSqFlags::CQ_OVERFLOW)
    }
}

/// The operations of a ring that [`UringIo`](crate::io::uring::UringIo) uses. Only this crate can
/// implement it: for the kernel's ring and for a simulated one.
pub trait RingInterface {
    /// Returns whether only an enter posts completions.
    fn is_deferred(&self) -> bool;

    /// Registers a ring of `entries` buffers, a power of two, as buffer group `group`.
    ///
    /// # Safety
    /// `addr` is the address of `entries` values of type `struct io_uring_buf`. It is valid as long
    /// as the ring exists. The buffers they name are valid until the last request of the group has
    /// ended.
    unsafe fn register_buffers(
        &mut self,
        addr: u64,
        entries: u32,
        group: u16,
    ) -> Result<(), Unavailable>;

    /// Returns the number of system calls made.
    fn calls(&self) -> u64;

    /// Returns the number of enters that found the completion queue overflowed.
    fn overflows(&self) -> u64;

    /// Returns whether there is space for fewer than `more` submissions.
    fn lacks_space_for(&self, more: u32) -> bool;

    /// Queues a submission. The caller has checked that there is space.
    ///
    /// # Safety
    /// The memory that the entry points to is valid for the operation until it has ended.
    unsafe fn push(&mut self, entry: Sqe);

    /// Returns whether an enter may submit entries or post completions.
    fn needs_enter(&self) -> bool;

    /// Returns whether the ring contains completions.
    fn has_completions(&mut self) -> bool;

    /// Returns the number of completions that [`next`](RingInterface::next) returns.
    fn available(&self) -> u32;

    /// Returns the next completion as of the last enter or call of `has_completions`. The next
    /// enter may overwrite the entry.
    fn next(&mut self) -> Option<Cqe>;

    /// Submits the queued entries and waits for `min` completions (0 does not wait) or the
    /// timeout. Returns false if completions were lost (d).
    ///
    /// # Errors
    /// The kernel's errors, except those after which the call is repeated later.
    fn enter(&mut self, min: u32, timeout: Option<Duration>) -> io::Result<bool>;
}

impl RingInterface for Ring {
    fn is_deferred(&self) -> bool {
        self.deferred
    }

    unsafe fn register_buffers(
        &mut self,
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
        let registration = Registration { addr, entries, group, flags: 0, reserved: [0; 3] };
        let operation = IoringRegisterOp::RegisterPbufRing;
        // SAFETY: the kernel reads the registration. The caller guarantees the memory that it
        // names.
        let result =
            unsafe { io_uring_register(&self.fd, operation, (&raw const registration).cast(), 1) };
        result.map(drop).map_err(|errno| {
            let remedy = match errno {
                Errno::NOMEM => "raise the limit of locked memory (ulimit -l), or free memory",
                _ => "it needs Linux 6.0 for rings of provided buffers",
            };
            Unavailable { call: "io_uring_register", error: errno.into(), remedy }
        })
    }

    #[inline]
    fn calls(&self) -> u64 {
        self.calls
    }

    fn overflows(&self) -> u64 {
        self.overflows
    }

    #[inline]
    fn lacks_space_for(&self, more: u32) -> bool {
        self.queues.space() < more
    }

    #[inline(always)]
    #[allow(clippy::inline_always)]
    unsafe fn push(&mut self, entry: Sqe) {
        self.queues.push(entry);
    }

    #[inline]
    fn needs_enter(&self) -> bool {
        !self.flagged || self.queues.queued() > 0 || self.has_more()
    }

    #[inline]
    fn has_completions(&mut self) -> bool {
        self.queues.has_completions()
    }

    #[inline]
    fn available(&self) -> u32 {
        self.queues.available()
    }

    #[inline]
    fn next(&mut self) -> Option<Cqe> {
        self.queues.take()
    }

    #[inline]
    fn enter(&mut self, min: u32, timeout: Option<Duration>) -> io::Result<bool> {
        self.enter_with(min, timeout, None)
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
    // SAFETY: the parameters name no other memory.
    let fd = unsafe { io_uring_setup(submissions, &mut params)? };
    Ok((fd, params))
}

/// Returns the error for a ring that cannot be created.
fn unavailable(errno: Errno) -> Unavailable {
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
