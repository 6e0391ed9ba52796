//! epoll(7): the kernel keeps the interest set and a list of ready files.
//!
//! Pitfalls, and how the code handles them:
//!
//! a) It watches open files, not descriptors. A duplicate (dup, fork) keeps the registration of a
//!    closed descriptor alive, and its events carry the old data. The data is a [`Token`], so
//!    queues recognise a stale event by its generation. `revoke` always calls the kernel. Only
//!    `closing`, whose caller has no duplicate, leaves it to close(2).
//! b) EPOLLERR and EPOLLHUP cannot be masked. A level-triggered descriptor without interest would
//!    end every wait after its peer has disconnected. An empty interest is registered
//!    edge-triggered: it ends at most one wait, and the event is dropped.
//! c) EPOLLHUP alone does not name a direction. EPOLLHUP and EPOLLERR become `READABLE` and
//!    `WRITABLE`, so that the caller finds the condition in its next operation.
//! d) The end of the stream may arrive with the last data in one edge. EPOLLRDHUP is requested with
//!    every read interest, so that a caller that stops at a short read is notified.
//! e) epoll_wait(2) counts milliseconds. Other timeouts use epoll_pwait2(2) (Linux 5.11). If the
//!    kernel refuses it (an older kernel, a sandbox), the timeout is rounded up.
//! f) EPOLL_CTL_MOD rearms an edge: it reports current readiness again, which the contract allows.
//! g) Register-once, level-triggered (`epoll2` in the papers) wakes for every writable descriptor,
//!    even without interest. With one idle connection no wait sleeps. It exists for measurements
//!    only.
//! h) The kernel rejects regular files and directories with EPERM. They are always ready and need
//!    no mechanism.
//! i) EPOLLEXCLUSIVE excludes EPOLLRDHUP and EPOLLPRI (EINVAL) and cannot be modified. For an open
//!    file that several instances watch, the end of the stream is not distinguished from data, and
//!    a change registers it again.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;
use std::{fmt, io};

use rustix::event::epoll;
use rustix::io::Errno;

use super::{ChangeCost, Mechanism, Open, OptionSpec, Options, Semantics, Sharing, Trigger};
use super::{Unavailable, WaitCost, borrow, busy_poll, timespec};
use crate::event::{Event, Interest, Readiness, Token};

/// A way of using epoll.
pub trait Mode: fmt::Debug + 'static {
    /// The mechanism's name in this mode.
    const NAME: &'static str;
    /// A description in one line.
    const SUMMARY: &'static str;
    /// The condition under which it reports a ready descriptor again.
    const TRIGGER: Trigger;
    /// Whether both directions are registered once.
    const REGISTERS_BOTH: bool;
}

/// Level-triggered. A change of interest is a system call.
#[derive(Debug)]
pub struct Level;

/// Edge-triggered.
#[derive(Debug)]
pub struct Edge;

/// Level-triggered. Both directions are registered once.
#[derive(Debug)]
pub struct Once;

impl Mode for Level {
    const NAME: &'static str = "epoll-level";
    const SUMMARY: &'static str = "epoll(7), level-triggered";
    const TRIGGER: Trigger = Trigger::Level;
    const REGISTERS_BOTH: bool = false;
}

impl Mode for Edge {
    const NAME: &'static str = "epoll-edge";
    const SUMMARY: &'static str = "epoll(7), edge-triggered";
    const TRIGGER: Trigger = Trigger::Edge;
    const REGISTERS_BOTH: bool = false;
}

impl Mode for Once {
    const NAME: &'static str = "epoll-once";
    const SUMMARY: &'static str = "epoll(7), level-triggered, both directions registered once";
    const TRIGGER: Trigger = Trigger::Level;
    const REGISTERS_BOTH: bool = true;
}

/// The maximum batch size, which bounds the memory of a batch. The kernel has a limit too.
const MAX_BATCH: usize = 1 << 16;

/// epoll(7) in one of its [`Mode`]s.
pub struct Epoll<M: Mode> {
    epoll: OwnedFd,
    batch: Vec<libc::epoll_event>,
    /// Whether the kernel refused epoll_pwait2, so that timeouts have millisecond resolution.
    coarse: bool,
    calls: u64,
    mode: PhantomData<M>,
}

/// Creates an epoll instance.
pub(super) fn create() -> Result<OwnedFd, Unavailable> {
    epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| Unavailable {
        call: "epoll_create1",
        error: errno.into(),
        remedy: "raise the limit of open files, or allow the call in the seccomp filter",
    })
}

/// Returns the flags of epoll for an interest.
#[inline]
pub(crate) fn flags(interest: Interest, trigger: Trigger) -> epoll::EventFlags {
    // Both use the bits of poll(2).
    let mut flags = epoll::EventFlags::from_bits_retain(interest.bits().into());
    flags.set(epoll::EventFlags::RDHUP, interest.contains(Interest::READ));
    if trigger == Trigger::Edge || flags.is_empty() {
        flags |= epoll::EventFlags::ET; // (b)
    } else if trigger == Trigger::OneShot {
        flags |= epoll::EventFlags::ONESHOT;
    }
    flags
}

/// Clears a batch and sets its capacity to `max` events. The kernel fills the entire capacity.
#[inline]
pub(super) fn prepare_batch(batch: &mut Vec<libc::epoll_event>, max: usize) {
    batch.clear();
    let max = max.clamp(1, MAX_BATCH);
    if batch.capacity() != max {
        *batch = allocate_batch(max);
    }
}

/// Waits and fills the capacity of an empty batch. Sets `coarse` if the kernel refused
/// epoll_pwait2.
#[inline]
pub(super) fn wait(
    epoll: &OwnedFd,
    batch: &mut Vec<libc::epoll_event>,
    timeout: Option<Duration>,
    coarse: &mut bool,
) -> rustix::io::Result<usize> {
    let count = match timeout {
        None => wait_coarse(epoll, batch, -1),
        Some(timeout) => wait_timed(epoll, batch, timeout, coarse),
    };
    if let Ok(count) = usize::try_from(count) {
        // SAFETY: the kernel has written that many events.
        unsafe { batch.set_len(count) };
        return Ok(count);
    }
    Err(last_error())
}

/// Calls epoll_wait(2). -1 waits indefinitely. rustix calls epoll_pwait(2), which costs the kernel
/// some 50 instructions more.
#[inline]
fn wait_coarse(
    epoll: &OwnedFd,
    batch: &mut Vec<libc::epoll_event>,
    milliseconds: i32,
) -> libc::c_int {
    let capacity = batch.capacity().min(MAX_BATCH) as libc::c_int;
    // SAFETY: the kernel writes at most as many events as the capacity.
    unsafe { libc::epoll_wait(epoll.as_raw_fd(), batch.as_mut_ptr(), capacity, milliseconds) }
}

/// Calls epoll_pwait2(2), which has nanosecond resolution, or epoll_wait(2) if it is not available.
fn wait_timed(
    epoll: &OwnedFd,
    batch: &mut Vec<libc::epoll_event>,
    timeout: Duration,
    coarse: &mut bool,
) -> libc::c_int {
    if !timeout.subsec_nanos().is_multiple_of(1_000_000) && !*coarse {
        let (capacity, timeout) = (batch.capacity().min(MAX_BATCH), timespec(timeout));
        let no_mask = std::ptr::null::<libc::sigset_t>();
        // SAFETY: as in `wait_coarse`. The timeout outlives the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                epoll.as_raw_fd(),
                batch.as_mut_ptr(),
                capacity as libc::c_int,
                &raw const timeout,
                no_mask,
                0,
            )
        };
        let refused = || matches!(last_error(), Errno::NOSYS | Errno::PERM);
        if count >= 0 || !refused() {
            return count as libc::c_int; // At most MAX_BATCH.
        }
        *coarse = true; // (e)
    }
    let parts = u64::from(timeout.subsec_nanos().div_ceil(1_000_000));
    let milliseconds = timeout.as_secs().saturating_mul(1000).saturating_add(parts);
    // A timeout that does not fit is infinite.
    wait_coarse(epoll, batch, i32::try_from(milliseconds).unwrap_or(-1))
}

#[cold]
#[inline(never)]
fn allocate_batch(max: usize) -> Vec<libc::epoll_event> {
    Vec::with_capacity(max)
}

/// Returns the error of the last call of the C library.
#[cold]
#[inline(never)]
fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

impl<M: Mode> Epoll<M> {
    fn flags(interest: Interest) -> epoll::EventFlags {
        flags(if M::REGISTERS_BOTH { Interest::all() } else { interest }, M::TRIGGER)
    }

    /// Returns the epoll descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns the entry at `index` of the batch with the kernel's flags.
    pub(super) fn raw(&self, index: usize) -> Option<(Token, u32)> {
        let event = self.batch.get(index)?;
        Some((Token::from_bits(event.u64), event.events))
    }

    /// Waits and fills the batch.
    #[inline]
    pub(super) fn collect(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
    ) -> rustix::io::Result<usize> {
        self.calls += 1;
        prepare_batch(&mut self.batch, max);
        wait(&self.epoll, &mut self.batch, timeout, &mut self.coarse)
    }
}

impl<M: Mode> fmt::Debug for Epoll<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(M::NAME).field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl<M: Mode> Open for Epoll<M> {
    const NAME: &'static str = M::NAME;
    const SUMMARY: &'static str = M::SUMMARY;
    const SOURCE: Option<&'static str> = Some("Gammo et al. 2004");
    const SEMANTICS: Semantics = Semantics {
        trigger: M::TRIGGER,
        change: if M::REGISTERS_BOTH { ChangeCost::Memory } else { ChangeCost::SystemCall },
        wait: if M::REGISTERS_BOTH { WaitCost::Registered } else { WaitCost::Ready },
        close_revokes: true,
        registers_both: M::REGISTERS_BOTH,
        sharing: Sharing::Exclusive,
        ..Semantics::COMMON
    };
    const AUTO: bool = !M::REGISTERS_BOTH;

    const OPTIONS: &'static [OptionSpec] = busy_poll::OPTIONS;

    fn open_with(options: &Options) -> Result<Self, Unavailable> {
        let epoll = create()?;
        busy_poll::apply(&epoll, options)?;
        Ok(Epoll { epoll, batch: Vec::new(), coarse: false, calls: 0, mode: PhantomData })
    }
}

impl<M: Mode> Mechanism for Epoll<M> {
    fn semantics(&self) -> &'static Semantics {
        const { &Self::SEMANTICS }
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        // SAFETY: the caller keeps fd open.
        let source = unsafe { borrow(fd) };
        let data = epoll::EventData::new_u64(token.to_bits());
        self.calls += 1;
        Ok(epoll::add(&self.epoll, source, data, Self::flags(interest))?)
    }

    unsafe fn declare_exclusive(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        if M::TRIGGER == Trigger::OneShot {
            // The kernel refuses EPOLLEXCLUSIVE with EPOLLONESHOT (EINVAL), so all are woken.
            // SAFETY: the caller fulfils the requirements.
            return unsafe { self.declare(fd, token, interest) };
        }
        // SAFETY: the caller keeps fd open.
        let source = unsafe { borrow(fd) };
        let data = epoll::EventData::new_u64(token.to_bits());
        let excluded = epoll::EventFlags::RDHUP | epoll::EventFlags::PRI; // (i)
        let flags = Self::flags(interest) - excluded;
        self.calls += 1;
        Ok(epoll::add(&self.epoll, source, data, flags | epoll::EventFlags::EXCLUSIVE)?)
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        if M::REGISTERS_BOTH {
            return Ok(());
        }
        // SAFETY: the caller keeps fd open.
        let source = unsafe { borrow(fd) };
        let data = epoll::EventData::new_u64(token.to_bits());
        self.calls += 1;
        Ok(epoll::modify(&self.epoll, source, data, Self::flags(interest))?)
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        self.calls += 1;
        // SAFETY: the caller keeps fd open.
        Ok(epoll::delete(&self.epoll, unsafe { borrow(fd) })?)
    }

    unsafe fn closing(&mut self, _fd: RawFd, _token: Token) {} // (a)

    #[inline]
    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        Ok(self.collect(max, timeout)?)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd())
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        let Some(event) = self.batch.get(index) else {
            return super::NO_EVENT;
        };
        Event { token: Token::from_bits(event.u64), readiness: Readiness::from_poll(event.events) }
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}
