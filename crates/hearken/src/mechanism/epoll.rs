//! epoll(7): the kernel keeps the interest set, and a list of what is ready.
//!
//! Its traps, and what is done about each:
//!
//! a) It watches open files, not descriptors. A duplicate (dup, fork) keeps a closed descriptor's
//!    registration alive, and its events come under the old data. Data is a [`Token`], so a queue
//!    tells the stale event by its generation; `revoke` always asks the kernel, and only
//!    `closing`, whose caller has no duplicate, leaves it to close(2).
//! b) EPOLLERR and EPOLLHUP cannot be masked, so that a level-triggered descriptor with no interest
//!    would wake every wait once its peer is gone. An empty interest is registered edge-triggered:
//!    it wakes one wait at most, and is dropped there.
//! c) EPOLLHUP alone says nothing of reading or writing. It and EPOLLERR are turned into
//!    `READABLE` and `WRITABLE`, so that the caller meets the condition in its next operation.
//! d) The end of the stream may arrive with the last data, in one edge. EPOLLRDHUP is asked for
//!    with every read interest, so that a caller who stops at a short read knows of it.
//! e) epoll_wait(2) counts milliseconds. What is not a whole number of them goes to epoll_pwait2(2)
//!    (Linux 5.11); where that is refused (an older kernel, a sandbox), it is rounded up.
//! f) EPOLL_CTL_MOD re-arms an edge: it reports again what is ready, which the contract allows.
//! g) Register-once, level-triggered (the papers' "epoll2") is woken by every descriptor that can
//!    be written, asked for or not: with one idle connection a wait never sleeps. That is
//!    what it is, and why it is here to be measured; use it only for that.
//! h) Regular files and directories are refused by the kernel with EPERM: always ready, they need
//!    no mechanism.
//! i) EPOLLEXCLUSIVE goes with no EPOLLRDHUP (EINVAL), and cannot be changed: what several instances
//!    watch is not told of the end of a stream apart from data, and is registered anew.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;
use std::{fmt, io};

use rustix::event::epoll;
use rustix::io::Errno;

use super::{ChangeCost, Mechanism, Open, Options, Semantics, Sharing, Trigger, Unavailable};
use super::{WaitCost, borrow, timespec};
use crate::event::{Event, Interest, Readiness, Token};

/// How epoll is used.
pub trait Mode: fmt::Debug + 'static {
    /// The mechanism's name in this mode.
    const NAME: &'static str;
    /// One line on it.
    const SUMMARY: &'static str;
    /// When it repeats itself.
    const TRIGGER: Trigger;
    /// Whether both directions are registered once.
    const BOTH: bool;
}

/// Level-triggered; a change of interest is a system call.
#[derive(Debug)]
pub struct Level;

/// Edge-triggered.
#[derive(Debug)]
pub struct Edge;

/// Level-triggered, read and write registered once.
#[derive(Debug)]
pub struct Once;

impl Mode for Level {
    const NAME: &'static str = "epoll-level";
    const SUMMARY: &'static str = "epoll(7), level-triggered";
    const TRIGGER: Trigger = Trigger::Level;
    const BOTH: bool = false;
}

impl Mode for Edge {
    const NAME: &'static str = "epoll-edge";
    const SUMMARY: &'static str = "epoll(7), edge-triggered";
    const TRIGGER: Trigger = Trigger::Edge;
    const BOTH: bool = false;
}

impl Mode for Once {
    const NAME: &'static str = "epoll-once";
    const SUMMARY: &'static str = "epoll(7), level-triggered, both directions registered once";
    const TRIGGER: Trigger = Trigger::Level;
    const BOTH: bool = true;
}

/// A batch is no larger, whatever is asked for: room is made for it, and the kernel has a limit too.
const MOST: usize = 1 << 16;

/// epoll(7) in one of its [`Mode`]s.
pub struct Epoll<M: Mode> {
    epoll: OwnedFd,
    batch: Vec<libc::epoll_event>,
    /// epoll_pwait2 was refused.
    coarse: bool,
    calls: u64,
    mode: PhantomData<M>,
}

/// A new epoll instance.
pub(super) fn create() -> Result<OwnedFd, Unavailable> {
    epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| Unavailable {
        call: "epoll_create1",
        error: errno.into(),
        remedy: "raise the limit of open files, or allow the call in the seccomp filter",
    })
}

/// What the kernel is asked for.
#[inline]
pub(super) fn flags(interest: Interest, trigger: Trigger) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    if interest.contains(Interest::READ) {
        flags |= epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    }
    if interest.contains(Interest::WRITE) {
        flags |= epoll::EventFlags::OUT;
    }
    if trigger == Trigger::Edge || flags.is_empty() {
        flags |= epoll::EventFlags::ET; // (b)
    } else if trigger == Trigger::OneShot {
        flags |= epoll::EventFlags::ONESHOT;
    }
    flags
}

/// Empties a batch and makes room in it for `max` events, as the kernel fills all that there is.
#[inline]
pub(super) fn make_room(batch: &mut Vec<libc::epoll_event>, max: usize) {
    batch.clear();
    let max = max.clamp(1, MOST);
    if batch.capacity() != max {
        *batch = room_for(max);
    }
}

/// Waits, into the whole room of an empty batch, and says if a signal came; `coarse` remembers that
/// epoll_pwait2 was refused.
#[inline]
pub(super) fn wait(
    epoll: &OwnedFd,
    batch: &mut Vec<libc::epoll_event>,
    timeout: Option<Duration>,
    coarse: &mut bool,
) -> rustix::io::Result<usize> {
    let got = match timeout {
        None => wait_coarse(epoll, batch, -1),
        Some(timeout) => wait_timed(epoll, batch, timeout, coarse),
    };
    if let Ok(got) = usize::try_from(got) {
        // SAFETY: the kernel has written that many.
        unsafe { batch.set_len(got) };
        return Ok(got);
    }
    Err(last_error())
}

/// epoll_wait(2); -1 waits for ever. Not by rustix, whose call is epoll_pwait(2): that costs the kernel
/// some 50 instructions more.
#[inline]
fn wait_coarse(
    epoll: &OwnedFd,
    batch: &mut Vec<libc::epoll_event>,
    milliseconds: i32,
) -> libc::c_int {
    let room = batch.capacity().min(MOST) as libc::c_int;
    // SAFETY: the kernel writes at most as many events as there is room for.
    unsafe { libc::epoll_wait(epoll.as_raw_fd(), batch.as_mut_ptr(), room, milliseconds) }
}

/// epoll_pwait2(2), which waits by the nanosecond, or what stands in for it.
fn wait_timed(
    epoll: &OwnedFd,
    batch: &mut Vec<libc::epoll_event>,
    timeout: Duration,
    coarse: &mut bool,
) -> libc::c_int {
    if !timeout.subsec_nanos().is_multiple_of(1_000_000) && !*coarse {
        let (room, timeout) = (batch.capacity().min(MOST), timespec(timeout));
        let no_mask = std::ptr::null::<libc::sigset_t>();
        // SAFETY: as in `wait_coarse`; the timeout outlives the call.
        let got = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                epoll.as_raw_fd(),
                batch.as_mut_ptr(),
                room as libc::c_int,
                &raw const timeout,
                no_mask,
                0,
            )
        };
        let refused = || matches!(last_error(), Errno::NOSYS | Errno::PERM);
        if got >= 0 || !refused() {
            return got as libc::c_int; // At most MOST.
        }
        *coarse = true; // (e)
    }
    let parts = u64::from(timeout.subsec_nanos().div_ceil(1_000_000));
    let milliseconds = timeout.as_secs().saturating_mul(1000).saturating_add(parts);
    // What is too long to say is for ever.
    wait_coarse(epoll, batch, i32::try_from(milliseconds).unwrap_or(-1))
}

#[cold]
#[inline(never)]
fn room_for(max: usize) -> Vec<libc::epoll_event> {
    Vec::with_capacity(max)
}

/// Why a call of the C library failed.
#[cold]
#[inline(never)]
fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

impl<M: Mode> Epoll<M> {
    fn flags(interest: Interest) -> epoll::EventFlags {
        flags(if M::BOTH { Interest::all() } else { interest }, M::TRIGGER)
    }

    /// Its own descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// What is at `index` of the batch, as the kernel gave it.
    pub(super) fn raw(&self, index: usize) -> Option<(Token, u32)> {
        let event = self.batch.get(index)?;
        Some((Token::from_bits(event.u64), event.events))
    }

    /// Waits, and says if a signal came.
    #[inline]
    pub(super) fn collect(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
    ) -> rustix::io::Result<usize> {
        self.calls += 1;
        make_room(&mut self.batch, max);
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
    const SEMANTICS: Semantics = Semantics {
        trigger: M::TRIGGER,
        change: if M::BOTH { ChangeCost::Memory } else { ChangeCost::SystemCall },
        wait: if M::BOTH { WaitCost::Registered } else { WaitCost::Ready },
        close_revokes: true,
        registers_both: M::BOTH,
        sharing: Sharing::Exclusive,
        ..Semantics::COMMON
    };

    fn open_with(_: &Options) -> Result<Self, Unavailable> {
        let epoll = create()?;
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
        // SAFETY: the caller keeps fd open.
        let source = unsafe { borrow(fd) };
        let data = epoll::EventData::new_u64(token.to_bits());
        let flags = Self::flags(interest) - epoll::EventFlags::RDHUP; // (i)
        self.calls += 1;
        Ok(epoll::add(&self.epoll, source, data, flags | epoll::EventFlags::EXCLUSIVE)?)
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        if M::BOTH {
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
        match self.collect(max, timeout) {
            Err(Errno::INTR) => Ok(0),
            waited => Ok(waited?),
        }
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        let Some(event) = self.batch.get(index) else {
            return super::NO_EVENT;
        };
        Event { who: Token::from_bits(event.u64), readiness: Readiness::from_poll(event.events) }
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}
