//! Event-dispatch mechanisms: the trait, and the one table of them.
//!
//! A mechanism tells which of many descriptors can be read or written now. Each is one file
//! here, behind [`Mechanism`], and one line in [`for_each_mechanism!`](crate::for_each_mechanism),
//! from which names, probing, tests, benches and command lines are made. To add one, copy
//! `skeleton.rs`, which compiles and says what goes where.
//!
//! This module and its files are the only part of the readiness path that holds raw descriptors;
//! [`Registry`] is the safe door to them.

// The kernel is told numbers of descriptors here; each block says why they are open.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;
use std::{fmt, io};

use rustix::event::Timespec;

use crate::event::{Event, Interest, Readiness, Token};

pub mod auto;
pub mod bpf;
mod cache;
pub mod dev_poll;
pub mod epoll;
pub mod epoll_batched;
pub mod kernel_queue;
pub mod locality;
mod options;
pub mod poll;
mod registry;
pub mod rt_signal;
pub mod select;
pub mod signal;
pub mod signal_per_fd;
#[cfg(test)]
mod skeleton;
mod table;
pub mod trigger;
pub mod uring_poll;

pub use options::{Choice, Options, Values};
pub use registry::{Counters, Registry};
pub(crate) use table::apart;
pub use table::{AUTO, Entry, SelectError, Spec, TABLE, Visitor, find, visit};

pub use crate::unavailable::Unavailable;

/// How a mechanism repeats what it said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// Every wait reports every descriptor that is ready.
    Level,
    /// A wait reports a descriptor when something new has arrived since it was last reported.
    Edge,
    /// A descriptor that was reported is silent until [`Mechanism::change`] arms it again.
    OneShot,
}

/// What a change of interest costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeCost {
    /// A store to memory.
    Memory,
    /// A system call.
    SystemCall,
    /// Nothing by itself: it rides on the next wait.
    Wait,
}

/// What one wait costs, as a function of the descriptors registered (n) and ready (k).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitCost {
    /// Grows with the highest descriptor number.
    HighestDescriptor,
    /// Grows with the number registered.
    Registered,
    /// Grows with the number that were ready lately.
    Active,
    /// Grows with the number ready only.
    Ready,
}

/// Which descriptors a mechanism can watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watches {
    /// All that poll(2) can wait for.
    Any,
    /// Those that raise signals when O_ASYNC is set: sockets, pipes, FIFOs and terminals. Others
    /// are refused with `EPERM`.
    Signalling,
}

/// What becomes of an event where several instances, as a rule in as many threads, watch the same
/// open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Each of them hears of it, or only as many as are needed, where it was declared by
    /// [`declare_exclusive`](Mechanism::declare_exclusive).
    Exclusive,
    /// Each of them hears of it.
    Each,
    /// Only the last to declare does: who is told belongs to the open file.
    Owner,
}

/// What differs between mechanisms, as data for those who must know.
///
/// More fields may follow. A mechanism outside this crate starts from [`COMMON`](Semantics::COMMON):
///
/// ```
/// use hearken::Semantics;
/// use hearken::mechanism::Trigger;
///
/// const EDGE: Semantics = {
///     let mut semantics = Semantics::COMMON;
///     semantics.trigger = Trigger::Edge;
///     semantics
/// };
/// assert!(EDGE.tells_state());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Semantics {
    /// When a ready descriptor is reported again.
    pub trigger: Trigger,
    /// What a change of interest costs.
    pub change: ChangeCost,
    /// What a wait costs.
    pub wait: WaitCost,
    /// The flags that it can tell; the others are never set by it.
    pub reports: Readiness,
    /// True if the kernel forgets a descriptor by itself when the last reference to its open file
    /// is closed.
    pub close_revokes: bool,
    /// True if both directions are registered once, and what was not asked for is dropped after
    /// the wait: a change costs nothing, and a descriptor that is always writable wakes every wait.
    pub registers_both: bool,
    /// True if it holds a queue that can overflow and be recovered.
    pub overflows: bool,
    /// Which descriptors it can watch.
    pub watches: Watches,
    /// What becomes of an event where several instances watch the same open file.
    pub sharing: Sharing,
    /// True if it needs privileges, which [`AUTO`] never asks for.
    pub privileged: bool,
}

impl Semantics {
    /// The semantics that most mechanisms have in common: level-triggered, with all flags of poll(2).
    pub const COMMON: Semantics = Semantics {
        trigger: Trigger::Level,
        change: ChangeCost::Memory,
        wait: WaitCost::Ready,
        reports: Readiness::READABLE
            .union(Readiness::WRITABLE)
            .union(Readiness::READ_CLOSED)
            .union(Readiness::HANGUP)
            .union(Readiness::ERROR),
        close_revokes: false,
        registers_both: false,
        overflows: false,
        watches: Watches::Any,
        sharing: Sharing::Each,
        privileged: false,
    };

    /// True if an event tells all that its descriptor is ready for, as it is when the wait returns.
    ///
    /// False if it tells what has arrived, as signals and a queue that can overflow do: not that there
    /// is room besides. The caller may have dealt with the arrival since, without waiting for the event.
    /// An arrival may also be reported twice, if it is still so. `READ_CLOSED` is set where the end of
    /// the stream came together with data. An end that came alone may be `READABLE` only.
    pub const fn tells_state(&self) -> bool {
        matches!(self.watches, Watches::Any) && !self.overflows
    }
}

/// An event-dispatch mechanism.
///
/// Callers in safe code use [`Registry`], [`EventQueue`](crate::EventQueue) or
/// [`io`](crate::io), which keep the promises that this trait asks of its caller.
///
/// # The contract
///
/// The conformance tests hold one test for each clause, and run over every mechanism.
///
/// **Registration.** A descriptor is registered from [`declare`](Mechanism::declare) until
/// [`revoke`](Mechanism::revoke) or [`closing`](Mechanism::closing), at most once at a time
/// (`EEXIST` otherwise). A refused call leaves everything as it was. What was already ready when it
/// was declared is reported by the next wait, as anything later would be. Slots of tokens are
/// dense, and descriptors' numbers are: a mechanism may keep an array indexed by either.
///
/// **Waiting.** [`wait`](Mechanism::wait) returns when at least one event is there, when the
/// timeout has passed (never sooner: a timeout that the clock cannot express is rounded up), when a
/// signal handler ran, or for no reason that the caller can see. It returns at most `max` events;
/// what did not fit comes from the next waits, and no descriptor is passed over for ever in favour
/// of others. Each descriptor appears at most once in a batch. The batch is read by
/// [`event`](Mechanism::event) until the next wait.
///
/// **Level, edge, one-shot.** [`Semantics::trigger`] says which holds.
/// *Level*: a descriptor is in every batch (subject to `max`) for as long as what its interest
/// asks for is so; a mechanism that does not look at all of them in every wait may come to one that
/// was quiet by any of the next [`within`](Mechanism::within) waits, and in a wait that goes on, in
/// bounded time. *Edge*: it is in a batch once after each arrival (of data, of room to
/// write, of the end of the stream), and after `declare` and `change` if it is ready then; a
/// caller reads or writes until `EAGAIN`, or until a read came back short and `READ_CLOSED`
/// was not set, before it relies on the next event, and says so by
/// [`would_block`](Mechanism::would_block). *One-shot*: as level, but once; `change` arms it again and
/// answers for what is ready then.
///
/// **Interest.** An event answers the interest: `READABLE` only where `READ` was asked for,
/// `WRITABLE` only where `WRITE` was, and nothing at all, a hang-up included, where nothing was; the
/// descriptor stays registered. A mechanism may say more than was asked for: [`Registry`] takes off
/// the rest. What it may not is to wake every wait for it, unless [`Semantics::registers_both`]
/// says so.
///
/// **End of stream, hang-up, error.** A peer's half-close makes a descriptor readable
/// (with `READ_CLOSED` where that can be told), and does not touch writability. Error, and hang-up
/// where the mechanism can tell it, make it ready for whatever its interest asks for, so that a
/// caller who only looks at `READABLE` and `WRITABLE` meets the condition in its next read or write;
/// a hang-up is readable with every mechanism. A refused or completed connect is writable.
///
/// **Closing and reuse.** A descriptor is revoked before it is closed (or announced by `closing`),
/// so a number that returns is a new registration with a new [`Token`]. No wait after `revoke` or
/// `closing` reports the old token. A batch taken *before* may still hold it: the caller drops it by
/// its generation, as the queues here do.
///
/// **What may be spurious.** An event promises that an operation was possible when the
/// kernel looked, not that it still is: another holder of the same open file may have taken the
/// data, or a checksum may have failed. Operations must be non-blocking. Where
/// [`Semantics::tells_state`] does not hold, the kernel looked when it arrived. A wait may return no
/// events before its timeout. Nothing else is spurious: in particular no token that was not
/// declared comes out.
///
/// **Errors.** `wait` treats `EINTR` as an early return of no events. Other errors mean
/// that the mechanism can no longer be used, and are the caller's to report.
pub trait Mechanism: fmt::Debug {
    /// What holds for this mechanism.
    fn semantics(&self) -> &'static Semantics;

    /// Registers `fd` under `token`. Amortised O(1).
    ///
    /// # Errors
    /// `EEXIST` if it is registered; `EPERM` if this kind of file cannot be waited for; what the
    /// kernel says of a full table (`ENOMEM`, `ENOSPC`).
    ///
    /// # Safety
    /// `fd` is open, and stays so until it was given to [`revoke`](Mechanism::revoke) or
    /// [`closing`](Mechanism::closing).
    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()>;

    /// As [`declare`](Mechanism::declare), for an open file that other instances watch as well: an
    /// event wakes as few of them as [`Semantics::sharing`] allows, and at least one. It is changed
    /// by revoking it and declaring it again.
    ///
    /// # Errors
    /// As [`declare`](Mechanism::declare).
    ///
    /// # Safety
    /// As for [`declare`](Mechanism::declare).
    unsafe fn declare_exclusive(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.declare(fd, token, interest) }
    }

    /// Replaces the interest in a registered descriptor, and arms it again where events are
    /// one-shot. O(1).
    ///
    /// # Errors
    /// `ENOENT`, where the mechanism can tell, if `fd` is not registered.
    ///
    /// # Safety
    /// `token` is the one under which `fd` was declared, and `fd` is still open.
    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()>;

    /// Ends the registration of a descriptor that stays open. O(1).
    ///
    /// # Errors
    /// `ENOENT`, where the mechanism can tell, if `fd` is not registered.
    ///
    /// # Safety
    /// As for [`change`](Mechanism::change).
    unsafe fn revoke(&mut self, fd: RawFd, token: Token) -> io::Result<()>;

    /// Ends the registration of a descriptor that its owner closes next, and of whose open file
    /// there is no duplicate: what the kernel then does by itself need not be asked for. O(1).
    ///
    /// # Safety
    /// As for [`change`](Mechanism::change), and the caller closes `fd` before the next wait.
    unsafe fn closing(&mut self, fd: RawFd, token: Token) {
        // SAFETY: the caller's promise covers revoke's. It can only fail for a descriptor that is
        // not registered, which is then what was asked for.
        let _ = unsafe { self.revoke(fd, token) };
    }

    /// Hears that in the directions of `interest` what was reported is used up: since the last wait
    /// an operation met `EAGAIN`, or, where the mechanism
    /// [`reports`](Semantics::reports) `READ_CLOSED` and no event had it, a read came back short.
    /// To be said before the next wait, and only if it is true: some mechanisms then spare themselves a
    /// look. O(1), no system call.
    fn would_block(&mut self, _fd: RawFd, _token: Token, _interest: Interest) {}

    /// Hears that `fd` is not to wait for its turn, however quiet it is: a wake-up from another
    /// thread. It holds until the interest in it is empty. What looks at all of them in every wait
    /// has nothing to do. O(1).
    fn keep_active(&mut self, _fd: RawFd, _token: Token) {}

    /// Waits for events, at most `max` (at least 1) and for at most `timeout` (for ever if none),
    /// and returns how many there are. The batch stands until the next wait.
    ///
    /// # Errors
    /// The kernel's, but for `EINTR`, which is an empty batch.
    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize>;

    /// The event at `index` of the last batch, or one with empty readiness where there is none:
    /// beyond the batch, or where nothing that was asked for is left.
    fn event(&self, index: usize) -> Event;

    /// By how many waits an event on a descriptor that was quiet is found, at the latest; those that a
    /// signal interrupted do not count. One, but where only some are looked at in a wait.
    fn within(&self) -> u32 {
        1
    }

    /// How often its queue has overflowed (and was recovered).
    fn overflows(&self) -> u64 {
        0
    }

    /// How many system calls it has made.
    fn calls(&self) -> u64;
}

/// A mechanism that can be opened by its type.
pub trait Open: Mechanism + Sized + 'static {
    /// Its name, as on every command line.
    const NAME: &'static str;
    /// One line on what it is.
    const SUMMARY: &'static str;
    /// What holds for it, with its options' defaults.
    const SEMANTICS: Semantics;
    /// What can be chosen about it.
    const OPTIONS: &'static [Choice] = &[];

    /// True if it needs privileges with these options.
    fn needs_privileges(_options: &Options) -> bool {
        Self::SEMANTICS.privileged
    }

    /// Asks the kernel for one.
    ///
    /// # Errors
    /// [`Unavailable`]: which call was refused, how, and what would allow it.
    fn open_with(options: &Options) -> Result<Self, Unavailable>;

    /// One with its options' defaults.
    ///
    /// # Errors
    /// As [`open_with`](Open::open_with).
    fn open() -> Result<Self, Unavailable> {
        Self::open_with(&Options::defaults(Self::OPTIONS))
    }
}

/// What [`Mechanism::event`] answers where there is none.
const NO_EVENT: Event = Event { who: Token::from_bits(u64::MAX), readiness: Readiness::empty() };

/// The descriptor as the system calls want it.
///
/// # Safety
/// `fd` is open, and stays so for as long as the result is used.
unsafe fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the caller's promise.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// A timeout as the system calls want it; what is too long for it is for ever.
fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX).min(i64::MAX / 4),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}

impl Mechanism for Box<dyn Mechanism> {
    fn semantics(&self) -> &'static Semantics {
        (**self).semantics()
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { (**self).declare(fd, token, interest) }
    }

    unsafe fn declare_exclusive(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { (**self).declare_exclusive(fd, token, interest) }
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { (**self).change(fd, token, interest) }
    }

    unsafe fn revoke(&mut self, fd: RawFd, token: Token) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { (**self).revoke(fd, token) }
    }

    unsafe fn closing(&mut self, fd: RawFd, token: Token) {
        // SAFETY: the caller's promise is passed on.
        unsafe { (**self).closing(fd, token) }
    }

    fn would_block(&mut self, fd: RawFd, token: Token, interest: Interest) {
        (**self).would_block(fd, token, interest);
    }

    fn keep_active(&mut self, fd: RawFd, token: Token) {
        (**self).keep_active(fd, token);
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        (**self).wait(max, timeout)
    }

    fn event(&self, index: usize) -> Event {
        (**self).event(index)
    }

    fn within(&self) -> u32 {
        (**self).within()
    }

    fn overflows(&self) -> u64 {
        (**self).overflows()
    }

    fn calls(&self) -> u64 {
        (**self).calls()
    }
}
