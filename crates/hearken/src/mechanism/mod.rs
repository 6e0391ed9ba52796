//! Event-dispatch mechanisms: the trait that they implement, and the table that lists them.
//!
//! A mechanism reports which of many descriptors are ready for reading or writing. Each mechanism
//! is one file here, implements [`Mechanism`], and has one line in
//! [`for_each_mechanism!`](crate::for_each_mechanism). Names, probing, tests, benchmarks and
//! command lines are generated from that table. The documentation of `skeleton.rs` lists the steps
//! for adding a mechanism.
//!
//! This module is the only part of the readiness path that uses raw descriptors. [`Registry`] is
//! its safe interface.

// The kernel receives descriptor numbers here. Each block states why they are open.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;
use std::{fmt, io};

use rustix::event::Timespec;
use rustix::io::Errno;

use crate::event::{Event, Interest, Readiness, Token};

pub mod auto;
pub mod bpf;
mod busy_poll;
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
mod signal_mask;
pub mod signal_per_fd;
#[cfg(test)]
pub mod skeleton;
mod table;
pub mod trigger;
pub mod uring_poll;

pub use options::{OptionSpec, Options, Values};
#[cfg(feature = "simulation")]
pub(crate) use registry::sealed;
pub use registry::{Counters, Registry, Source};
pub use signal_mask::SignalMask;
pub use table::{AUTO, Entry, SelectError, Spec, TABLE, Visitor, find, visit};
pub(crate) use table::{in_new_thread, is_thread_bound};

pub use crate::unavailable::Unavailable;

/// The condition under which a mechanism reports a ready descriptor again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// Every wait reports every ready descriptor.
    Level,
    /// A wait reports a descriptor if something has arrived since its last report.
    Edge,
    /// A reported descriptor is not reported again until [`Mechanism::change`] rearms it.
    OneShot,
}

/// The cost of a change of interest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeCost {
    /// A write to memory.
    Memory,
    /// A system call.
    SystemCall,
    /// No extra call: the next wait submits it.
    Wait,
}

/// The cost of one wait, as a function of the number of descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitCost {
    /// Proportional to the highest descriptor number.
    HighestDescriptor,
    /// Proportional to the number of registered descriptors.
    Registered,
    /// Proportional to the number of recently ready descriptors.
    Active,
    /// Proportional to the number of ready descriptors.
    Ready,
}

/// The kinds of descriptors that a mechanism can watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watches {
    /// All kinds that poll(2) can wait for.
    Any,
    /// Kinds that raise signals if O_ASYNC is set: sockets, pipes, FIFOs and terminals. Others are
    /// rejected with `EPERM`.
    SignalDriven,
}

/// The instances that receive an event if several, usually in as many threads, watch the same open
/// file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// All of them, or only as many as necessary if they used
    /// [`declare_exclusive`](Mechanism::declare_exclusive).
    Exclusive,
    /// All of them.
    Each,
    /// The instance that declared last: the open file has a single owner.
    Owner,
}

/// The properties in which mechanisms differ.
///
/// More fields may follow. A mechanism outside this crate starts from
/// [`COMMON`](Semantics::COMMON):
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
/// assert!(EDGE.reports_state());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Semantics {
    /// The condition under which a ready descriptor is reported again.
    pub trigger: Trigger,
    /// The cost of a change of interest.
    pub change: ChangeCost,
    /// The cost of a wait.
    pub wait: WaitCost,
    /// The flags that the mechanism can report. It never sets others.
    pub reports: Readiness,
    /// Whether the kernel revokes a registration when the last reference to its open file is
    /// closed.
    pub close_revokes: bool,
    /// Whether both directions are registered once, and the wait drops those without interest. A
    /// change then costs nothing, but a descriptor that is always writable ends every wait.
    pub registers_both: bool,
    /// Whether the mechanism has a queue that can overflow.
    pub overflows: bool,
    /// Whether it finds the events that an overflow dropped. Otherwise a descriptor may stay silent
    /// after an overflow.
    pub recovers: bool,
    /// The kinds of descriptors that it can watch.
    pub watches: Watches,
    /// The instances that receive an event if several watch the same open file.
    pub sharing: Sharing,
    /// Whether it needs privileges. [`AUTO`] never selects such a mechanism.
    pub privileged: bool,
}

impl Semantics {
    /// The properties that most mechanisms share: level-triggered, with all flags of poll(2).
    pub const COMMON: Semantics = Semantics {
        trigger: Trigger::Level,
        change: ChangeCost::Memory,
        wait: WaitCost::Ready,
        reports: Readiness::READABLE
            .union(Readiness::PRIORITY)
            .union(Readiness::WRITABLE)
            .union(Readiness::READ_CLOSED)
            .union(Readiness::HANGUP)
            .union(Readiness::ERROR),
        close_revokes: false,
        registers_both: false,
        overflows: false,
        recovers: true,
        watches: Watches::Any,
        sharing: Sharing::Each,
        privileged: false,
    };

    /// Returns whether an event contains the complete readiness of its descriptor when the wait
    /// returns.
    ///
    /// If not, an event reports an arrival, as signals and queues that can overflow do. Its
    /// readiness may be incomplete: an arrival of data does not include writability. The caller may
    /// already have handled the arrival. An arrival that still holds may be reported twice.
    /// `READ_CLOSED` is set if the end of the stream arrived together with data. If it arrived
    /// alone, the event may be `READABLE` only.
    pub const fn reports_state(&self) -> bool {
        matches!(self.watches, Watches::Any) && !self.overflows
    }
}

/// An event-dispatch mechanism.
///
/// Safe code uses [`Registry`], [`EventQueue`](crate::EventQueue) or [`io`](crate::io). They fulfil
/// the requirements of this trait on its caller.
///
/// # The contract
///
/// The contract suite has one test for each clause and runs over every mechanism.
///
/// **Registration.** A descriptor is registered from [`declare`](Mechanism::declare) until
/// [`revoke`](Mechanism::revoke) or [`closing`](Mechanism::closing). It is registered at most once
/// at a time (`EEXIST` otherwise). A call that fails changes nothing. The next wait reports
/// conditions that already held at the time of `declare`, like later ones. Slots of tokens and
/// descriptor numbers are dense: a mechanism may keep an array indexed by either.
///
/// **Waiting.** [`wait`](Mechanism::wait) returns when there is at least one event, the timeout has
/// passed or a signal handler ran. It may also return early without a visible reason. It never
/// times out early: a timeout that the clock cannot express is rounded up. It returns at most `max`
/// events, and the next waits return the others. No descriptor is passed over indefinitely in
/// favour of others. Each descriptor appears at most once in a batch. [`event`](Mechanism::event)
/// reads the batch until the next wait.
///
/// **Triggers.** [`Semantics::trigger`] selects one of these behaviours:
///
/// * *Level*: a descriptor is in every batch (subject to `max`) while a condition of its interest
///   holds. A mechanism that does not check all descriptors in every wait may report a quiet one up
///   to [`scan_interval`](Mechanism::scan_interval) waits later. A wait that continues reports it within bounded
///   time.
/// * *Edge*: a descriptor is in one batch after each arrival of data, send-buffer space or the end
///   of the stream. It is also in one batch after `declare` and `change` if it is ready at that
///   time. Before it relies on the next event, a caller reads or writes until `EAGAIN`, or until a
///   short read without `READ_CLOSED`. It reports that with
///   [`would_block`](Mechanism::would_block).
/// * *One-shot*: like level, but only once. `change` rearms the descriptor and checks its current
///   readiness.
///
/// **Interest.** An event has `READABLE` only if the interest has `READ`, `WRITABLE` only if it has
/// `WRITE`, and `PRIORITY` only if it has `PRIORITY`. With an empty interest a descriptor stays registered and has no events, not even
/// hang-ups. A mechanism may report more, and [`Registry`] removes the excess. The excess must not
/// end every wait unless [`Semantics::registers_both`] is set.
///
/// **End of stream, hang-up, error.** A half-close by the peer makes a descriptor readable and does
/// not change its writability. It sets `READ_CLOSED` if the mechanism can report that. An error,
/// and a hang-up if the mechanism can report it, make a descriptor ready for reading and writing. A
/// caller that only checks `READABLE` and `WRITABLE` then finds the condition in its
/// next read or write. A hang-up is readable with every mechanism. A connect that was refused or
/// has completed is writable.
///
/// **Closing and reuse.** A descriptor is revoked before it is closed, or announced by `closing`. A
/// reused number is therefore a new registration with a new [`Token`]. No wait after `revoke` or
/// `closing` reports the old token. A batch taken *before* may still contain it. The caller drops
/// it by its generation, as the queues of this crate do.
///
/// **Spurious events.** An event states that an operation was possible when the kernel checked, not
/// that it still is. Another owner of the same open file may have taken the data, or a checksum may
/// have failed. Operations must therefore be non-blocking. Without [`Semantics::reports_state`], the
/// kernel checked at the time of the arrival. A wait may return no events before its timeout. There
/// are no other spurious events: in particular, tokens that were not declared never appear.
///
/// **Errors.** A wait that a signal handler ends without events fails with `EINTR`. The caller may
/// wait again. After any other error the mechanism is unusable, and the caller reports the error.
pub trait Mechanism: fmt::Debug {
    /// Returns the properties of this mechanism.
    fn semantics(&self) -> &'static Semantics;

    /// Registers `fd` under `token`. Amortised O(1).
    ///
    /// # Errors
    /// `EEXIST` if it is registered. `EPERM` if this kind of file cannot be watched. `ENOMEM` or
    /// `ENOSPC` if a table of the kernel is full.
    ///
    /// # Safety
    /// `fd` is open. It stays open until it is passed to [`revoke`](Mechanism::revoke) or
    /// [`closing`](Mechanism::closing).
    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()>;

    /// Registers an open file that other instances watch too. An event wakes as few of them as
    /// [`Semantics::sharing`] allows, and at least one. To change the interest, revoke and declare
    /// it again.
    ///
    /// # Errors
    /// The errors of [`declare`](Mechanism::declare).
    ///
    /// # Safety
    /// The requirements of [`declare`](Mechanism::declare).
    unsafe fn declare_exclusive(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        // SAFETY: the caller fulfils the requirements of `declare`.
        unsafe { self.declare(fd, token, interest) }
    }

    /// Replaces the interest in a registered descriptor. Rearms it if the mechanism is one-shot.
    /// O(1).
    ///
    /// # Errors
    /// `ENOENT` if `fd` is not registered and the mechanism can detect that.
    ///
    /// # Safety
    /// `fd` was declared under `token` and is still open.
    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()>;

    /// Ends the registration of a descriptor that stays open. O(1).
    ///
    /// # Errors
    /// `ENOENT` if `fd` is not registered and the mechanism can detect that.
    ///
    /// # Safety
    /// The requirements of [`change`](Mechanism::change).
    unsafe fn revoke(&mut self, fd: RawFd, token: Token) -> io::Result<()>;

    /// Ends the registration of a descriptor that its owner closes next. The open file has no
    /// duplicate, so a mechanism can omit calls that closing makes unnecessary. O(1).
    ///
    /// # Safety
    /// The requirements of [`change`](Mechanism::change). The caller closes `fd` before the next
    /// wait.
    unsafe fn closing(&mut self, fd: RawFd, token: Token) {
        // SAFETY: the caller fulfils the requirements of `revoke`. It fails only for a descriptor
        // that is not registered, which is the desired state.
        let _ = unsafe { self.revoke(fd, token) };
    }

    /// Reports that the caller has consumed the reported readiness in the directions of `interest`.
    /// Since the last wait, an operation returned `EAGAIN`. A short read also counts if the
    /// mechanism [`reports`](Semantics::reports) `READ_CLOSED` and no event had it.
    ///
    /// The caller reports it before the next wait, and only if it is true: some mechanisms then
    /// skip a check of the descriptor. O(1), no system call.
    fn would_block(&mut self, _fd: RawFd, _token: Token, _interest: Interest) {}

    /// Excludes `fd` from deferred checks. Wake-ups from other threads need this. It applies until
    /// the interest becomes empty. Mechanisms that check all descriptors in every wait ignore it.
    /// O(1).
    fn keep_active(&mut self, _fd: RawFd, _token: Token) {}

    /// Waits for at most `max` events (at least 1) and at most `timeout`, or indefinitely without
    /// one. Returns the number of events. The batch is valid until the next wait.
    ///
    /// # Errors
    /// `EINTR` if a signal handler ended the wait, or the kernel interrupted it for another reason.
    /// The batch is then empty. Other errors of the kernel.
    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize>;

    /// Waits like [`wait`](Mechanism::wait), with `mask` in place of the thread's signal mask. A
    /// pending signal that the mask does not contain ends the wait, unless there are events.
    /// Mechanisms of signals block their own signals in any case.
    ///
    /// # Errors
    /// The errors of [`wait`](Mechanism::wait). `EOPNOTSUPP` if the mechanism implements neither
    /// this nor [`descriptor`](Mechanism::descriptor).
    fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        if self.descriptor().is_none() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let count = self.wait(max, Some(Duration::ZERO))?;
        if count == 0
            && let Some(descriptor) = self.descriptor()
        {
            mask.poll(descriptor, timeout)?;
            return self.wait(max, Some(Duration::ZERO));
        }
        Ok(count)
    }

    /// Returns a descriptor by which another event loop can watch this mechanism, if it has one.
    ///
    /// After a wait without events, the descriptor becomes readable when a wait would return events.
    /// A loop that watches it therefore waits with a timeout of zero until there are no events:
    /// before it sleeps, after each change of interest, and each time the descriptor is readable.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the event at `index` of the last batch. Its readiness is empty if `index` is beyond
    /// the batch or no direction of the interest is ready.
    fn event(&self, index: usize) -> Event;

    /// Returns the maximum number of waits until an event on a quiet descriptor is reported, not
    /// counting waits that a signal interrupted. It is 1 unless a wait checks only some of the
    /// descriptors.
    fn scan_interval(&self) -> u32 {
        1
    }

    /// Returns how often its queue has overflowed. [`Semantics::recovers`] tells whether it
    /// recovered.
    fn overflows(&self) -> u64 {
        0
    }

    /// Returns the number of signals that it has taken from the kernel's queue. Those that report
    /// an overflow count. It is 0 if the mechanism does not use signals.
    fn signals(&self) -> u64 {
        0
    }

    /// Returns the number of system calls it has made.
    fn calls(&self) -> u64;
}

/// A mechanism that can be created by its type.
pub trait Open: Mechanism + Sized + 'static {
    /// The name on command lines.
    const NAME: &'static str;
    /// A description in one line.
    const SUMMARY: &'static str;
    /// The publication that introduced or compared it, if there is one. `docs/mechanisms.md` lists
    /// the references.
    const SOURCE: Option<&'static str> = None;
    /// The properties with default options.
    const SEMANTICS: Semantics;
    /// The options.
    const OPTIONS: &'static [OptionSpec] = &[];
    /// Whether [`auto`] measures the mechanism and may select it. Its default options must not need
    /// privileges, its waits must cost O(ready), and it must watch all kinds of descriptors.
    const AUTO: bool = false;

    /// Returns whether it needs privileges with these options.
    fn needs_privileges(_options: &Options) -> bool {
        Self::SEMANTICS.privileged
    }

    /// Creates an instance.
    ///
    /// # Errors
    /// [`Unavailable`] names the refused call, its error, and how to make it available.
    fn open_with(options: &Options) -> Result<Self, Unavailable>;

    /// Creates an instance with default options.
    ///
    /// # Errors
    /// The errors of [`open_with`](Open::open_with).
    fn open() -> Result<Self, Unavailable> {
        Self::open_with(&Options::defaults(Self::OPTIONS))
    }
}

/// The result of [`Mechanism::event`] if there is no event.
pub(crate) const NO_EVENT: Event =
    Event { token: Token::from_bits(u64::MAX), readiness: Readiness::empty() };

/// Treats a wait that a signal handler ended as one without events.
///
/// # Errors
/// The other errors of the wait.
#[inline]
pub fn ignore_interrupt(waited: io::Result<usize>) -> io::Result<usize> {
    match waited {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        waited => waited,
    }
}

/// Returns the descriptor in the form that system calls take.
///
/// # Safety
/// `fd` is open, and stays open while the result is used.
unsafe fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the caller keeps `fd` open.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Converts a timeout for system calls, saturating at a value that never passes.
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
        // SAFETY: the caller fulfils the same requirements.
        unsafe { (**self).declare(fd, token, interest) }
    }

    unsafe fn declare_exclusive(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { (**self).declare_exclusive(fd, token, interest) }
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { (**self).change(fd, token, interest) }
    }

    unsafe fn revoke(&mut self, fd: RawFd, token: Token) -> io::Result<()> {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { (**self).revoke(fd, token) }
    }

    unsafe fn closing(&mut self, fd: RawFd, token: Token) {
        // SAFETY: the caller fulfils the same requirements.
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

    fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        (**self).wait_with_mask(max, timeout, mask)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }

    fn event(&self, index: usize) -> Event {
        (**self).event(index)
    }

    fn scan_interval(&self) -> u32 {
        (**self).scan_interval()
    }

    fn overflows(&self) -> u64 {
        (**self).overflows()
    }

    fn signals(&self) -> u64 {
        (**self).signals()
    }

    fn calls(&self) -> u64 {
        (**self).calls()
    }
}

#[cfg(test)]
mod tests {
    use super::skeleton::Skeleton;
    use super::*;

    #[test]
    fn skeleton_reports_no_events() {
        let mut skeleton = Skeleton::open().unwrap();
        assert_eq!(skeleton.wait(8, Some(Duration::ZERO)).unwrap(), 0);
        assert!(skeleton.event(0).readiness.is_empty());
        const { assert!(!Skeleton::AUTO) };
    }
}
