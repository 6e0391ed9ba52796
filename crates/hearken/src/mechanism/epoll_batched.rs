//! epoll(7) with batched changes of interest: epoll_ctlv of Gammo, Brecht, Shukla and Pariag,
//! implemented with io_uring's EPOLL_CTL.
//!
//! Pitfalls, and flags the code handles them:
//!
//! a) A queued change names a descriptor number, which may refer to a different file when it is
//!    submitted. A change therefore only marks the watch of the number. The wait submits the watch
//!    in its current state, which also merges several changes into one. `closing` removes the mark.
//! b) A deletion that is submitted after the descriptor was closed has no effect. If a duplicate
//!    keeps the file open, its events continue. They are recognised by their generation and
//!    dropped. When there have been more of them than there are registrations, a new epoll instance
//!    replaces the old one.
//! c) If a number is declared again after it was revoked, it may refer to the same open file or a
//!    different one. It is added, which is right for a different file. For the same file the kernel
//!    reports `EEXIST`, and it is deleted first. A chain of both would run after the wait has
//!    begun.
//! d) Errors are known only at the wait. A file that cannot be watched (`EPERM`: a regular file) is
//!    reported as always ready, as poll(2) does. If there is no memory for a watch (`ENOSPC`,
//!    `ENOMEM`), the descriptor is also reported as ready, so that its owner tries it. It is then
//!    submitted again.
//! e) The kernel may defer a change to a worker thread if another thread holds epoll's lock. A wait
//!    ends only after all submitted changes have completed.
//! f) A wait in the ring (`wait=ring`) whose timeout has passed is still pending in the kernel,
//!    which would write to the batch. It is cancelled before the wait returns.
//! g) Without io_uring each changed watch costs a system call (`via=calls` selects that). The
//!    counter [`calls`](Mechanism::calls) includes them.

use std::collections::VecDeque;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;
use std::{fmt, io};

use rustix::event::epoll::{self as kernel, EventData, EventFlags};
use rustix::io::Errno;

use super::borrow;
use super::busy_poll;
use super::epoll;
use super::options::{OptionSpec, Options, Values};
use super::{ChangeCost, Mechanism, Open, Semantics, Sharing, SignalMask, Trigger, Unavailable};
use crate::event::{Event, Interest, Readiness, Token};

mod submitter;
mod watch_table;

use submitter::{Op, Submitter, data};
use watch_table::{State, WatchTable};

/// epoll(7) with batched changes.
pub struct EpollBatched {
    // Declared before the batch, which it may write to, so that it is closed first.
    submitter: Option<Submitter>,
    epoll: OwnedFd,
    trigger: Trigger,
    waits_in_ring: bool,
    watches: WatchTable,
    rejected: VecDeque<u32>,
    batch: Vec<libc::epoll_event>,
    /// The number of events of former registrations.
    stale: usize,
    calls: u64,
    coarse: bool,
    alternate: bool,
}

impl fmt::Debug for EpollBatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("epoll-batched")
            .field("via_ring", &self.submitter.is_some())
            .field("waits_in_ring", &self.waits_in_ring)
            .field("registered", &self.watches.registered())
            .finish_non_exhaustive()
    }
}

impl EpollBatched {
    /// Queues all changes, or makes one call for each if there is no ring.
    fn submit_changes(&mut self) -> io::Result<()> {
        while let Some(number) = self.watches.first_changed() {
            if let Some(submitter) = &mut self.submitter
                && submitter.is_full()
            {
                submitter.finish()?;
            }
            let Some(op) = self.watches.next_change() else { continue };
            let watch = self.watches.watch(number);
            if let Some(submitter) = &mut self.submitter {
                submitter.push(&self.epoll, op, (number, watch.event(number)));
            } else if let Err(errno) = self.epoll_ctl(op, number) {
                self.on_error(op, number, errno.raw_os_error());
            }
        }
        Ok(())
    }

    /// Makes one change by a system call.
    fn epoll_ctl(&mut self, op: Op, number: u32) -> rustix::io::Result<()> {
        let watch = *self.watches.watch(number);
        // SAFETY: registered descriptors are open. A deletion may name a closed descriptor or an
        // unrelated file, and then has no effect.
        let source = unsafe { borrow(number as RawFd) };
        let data = EventData::new_u64(data(number, watch.generation));
        self.calls += 1;
        match op {
            Op::Add => kernel::add(&self.epoll, source, data, watch.events),
            Op::Modify => kernel::modify(&self.epoll, source, data, watch.events),
            Op::Delete => {
                let _ = kernel::delete(&self.epoll, source);
                Ok(())
            }
        }
    }

    /// Handles an error of a change.
    #[cold]
    fn on_error(&mut self, op: Op, number: u32, errno: i32) {
        let again = match (op, errno) {
            (Op::Add, libc::EEXIST) => self.epoll_ctl(Op::Delete, number).is_ok(), // (c)
            // The descriptor was closed without notice.
            (Op::Modify, libc::ENOENT) => true,
            _ => false,
        };
        if again && self.epoll_ctl(Op::Add, number).is_ok() {
            return;
        }
        let watch = self.watches.watch(number);
        watch.state.remove(State::PRESENT);
        watch.state.insert(State::REJECTED);
        watch.state.set(State::RETRY, errno != libc::EPERM);
        if !watch.state.contains(State::QUEUED) {
            watch.state.insert(State::QUEUED);
            self.rejected.push_back(number);
        }
    }

    /// Reports rejected descriptors as ready (d).
    fn report_rejected(&mut self, max: usize) {
        for _ in 0..self.rejected.len() {
            if self.batch.len() >= max {
                break;
            }
            let Some(number) = self.rejected.pop_front() else {
                break;
            };
            let watch = self.watches.watch(number);
            watch.state.remove(State::QUEUED);
            let flags = watch.events & (EventFlags::IN | EventFlags::PRI | EventFlags::OUT);
            if !watch.state.contains(State::REJECTED) || flags.is_empty() {
                continue;
            }
            let event = libc::epoll_event { events: flags.bits(), u64: watch.token.to_bits() };
            self.batch.push(event);
            if watch.state.contains(State::RETRY) {
                self.watches.mark_changed(number);
            } else if self.trigger == Trigger::Level {
                watch.state.insert(State::QUEUED);
                self.rejected.push_back(number);
            }
        }
    }

    /// Replaces descriptor numbers by tokens, and drops events of former registrations (b).
    fn translate_batch(&mut self) {
        let EpollBatched { batch, watches, stale, .. } = self;
        batch.retain_mut(|event| match watches.token(event.u64) {
            Some(token) => {
                event.u64 = token.to_bits();
                true
            }
            None => {
                *stale += 1;
                false
            }
        });
    }

    /// Replaces the epoll instance to discard watches that cannot be deleted (b).
    #[cold]
    fn replace_epoll(&mut self) {
        self.stale = 0;
        self.calls += 1;
        let Ok(epoll) = epoll::create() else {
            return; // The next wait tries again.
        };
        self.epoll = epoll;
        self.watches.mark_all_changed();
    }

    fn handle_errors(&mut self) {
        while let Some((op, number, errno)) =
            self.submitter.as_mut().and_then(|submitter| submitter.errors.pop())
        {
            self.on_error(op, number, errno);
        }
    }
}

const fn semantics(trigger: Trigger) -> Semantics {
    Semantics {
        trigger,
        change: ChangeCost::Wait,
        close_revokes: true,
        sharing: Sharing::Exclusive,
        ..Semantics::COMMON
    }
}

static LEVEL: Semantics = semantics(Trigger::Level);

impl Open for EpollBatched {
    const NAME: &'static str = "epoll-batched";
    const SUMMARY: &'static str = "epoll(7), with changes submitted in batches through io_uring(7)";
    const SOURCE: Option<&'static str> = Some("Gammo et al. 2004");
    const SEMANTICS: Semantics = semantics(Trigger::Edge);
    const AUTO: bool = true;
    const OPTIONS: &'static [OptionSpec] = &[
        OptionSpec {
            name: "trigger",
            help: "edge-triggered or level-triggered",
            values: Values::OneOf(&["edge", "level"]),
        },
        OptionSpec {
            name: "wait",
            help: "wait with epoll_wait(2), or in the ring, which submits changes and waits in one call",
            values: Values::OneOf(&["epoll", "ring"]),
        },
        OptionSpec {
            name: "via",
            help: "submit changes through a ring if available, or with one call each",
            values: Values::OneOf(&["ring", "calls"]),
        },
        busy_poll::TIME,
        busy_poll::BUDGET,
        busy_poll::PREFER,
    ];

    fn open_with(options: &Options) -> Result<Self, Unavailable> {
        let waits_in_ring = options.get("wait") == "ring";
        let submitter = match options.get("via") {
            "calls" if waits_in_ring => {
                let error = io::ErrorKind::InvalidInput.into();
                let remedy = "wait=ring needs via=ring";
                return Err(Unavailable { call: "io_uring_setup", error, remedy });
            }
            "calls" => None,
            _ if waits_in_ring => Some(Submitter::open(true)?),
            _ => Submitter::open(false).ok(), // (g)
        };
        let epoll = epoll::create()?;
        busy_poll::apply(&epoll, options)?;
        Ok(EpollBatched {
            submitter,
            epoll,
            trigger: if options.get("trigger") == "level" { Trigger::Level } else { Trigger::Edge },
            waits_in_ring,
            watches: WatchTable::default(),
            rejected: VecDeque::new(),
            batch: Vec::new(),
            stale: 0,
            calls: 0,
            coarse: false,
            alternate: false,
        })
    }
}

impl Mechanism for EpollBatched {
    fn semantics(&self) -> &'static Semantics {
        if self.trigger == Trigger::Level { &LEVEL } else { const { &Self::SEMANTICS } }
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        let events = epoll::flags(interest, self.trigger);
        self.watches.register(fd, token, events, State::empty())
    }

    unsafe fn declare_exclusive(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        let events = epoll::flags(interest, self.trigger) - EventFlags::RDHUP;
        self.watches.register(fd, token, events | EventFlags::EXCLUSIVE, State::EXCLUSIVE)
    }

    unsafe fn change(&mut self, fd: RawFd, _token: Token, interest: Interest) -> io::Result<()> {
        let events = epoll::flags(interest, self.trigger);
        let watch = self.watches.find(fd).ok_or(Errno::NOENT)?;
        watch.events = if watch.state.contains(State::EXCLUSIVE) {
            (events - EventFlags::RDHUP) | EventFlags::EXCLUSIVE
        } else {
            events
        };
        self.watches.mark_changed(fd as u32);
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        if self.watches.unregister(fd)? {
            self.watches.watch(fd as u32).state.insert(State::STALE);
            self.watches.mark_changed(fd as u32);
        }
        Ok(())
    }

    unsafe fn closing(&mut self, fd: RawFd, _token: Token) {
        let _ = self.watches.unregister(fd); // (a)
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.batch.clear();
        let max = max.max(1);
        if self.stale > self.watches.registered() {
            self.replace_epoll();
        }
        self.submit_changes()?;
        if !self.waits_in_ring
            && let Some(submitter) = &mut self.submitter
        {
            submitter.finish()?;
            self.handle_errors();
        }
        // Rejected descriptors get half of the batch, or every other batch.
        let mut space = max;
        if !self.rejected.is_empty() {
            self.alternate = !self.alternate;
            space -= if max == 1 {
                usize::from(self.alternate)
            } else {
                self.rejected.len().min(max / 2)
            };
        }
        let timeout = if self.rejected.is_empty() { timeout } else { Some(Duration::ZERO) };
        let mut interrupted = false;
        if space > 0 {
            epoll::prepare_batch(&mut self.batch, space);
            match &mut self.submitter {
                Some(submitter) if self.waits_in_ring => {
                    match submitter.wait(&self.epoll, &mut self.batch, timeout) {
                        // The wait in the ring has ended.
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                            interrupted = true;
                        }
                        Err(error) => {
                            // The kernel may still write to it.
                            std::mem::forget(std::mem::take(&mut self.batch));
                            return Err(error);
                        }
                        Ok(()) => {}
                    }
                }
                _ => {
                    self.calls += 1;
                    let result =
                        epoll::wait(&self.epoll, &mut self.batch, timeout, &mut self.coarse);
                    match result {
                        Err(Errno::INTR) => interrupted = true,
                        result => drop(result?),
                    }
                }
            }
            self.translate_batch();
            self.handle_errors();
        }
        self.report_rejected(max);
        match self.batch.len() {
            0 if interrupted => Err(Errno::INTR.into()),
            count => Ok(count),
        }
    }

    fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        let count = self.wait(max, Some(Duration::ZERO))?;
        if count > 0 {
            return Ok(count);
        }
        // The instance may be replaced, so that it is not lent as the descriptor to watch.
        mask.poll(&self.epoll, timeout)?;
        self.wait(max, Some(Duration::ZERO))
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        let Some(event) = self.batch.get(index) else {
            return super::NO_EVENT;
        };
        Event { token: Token::from_bits(event.u64), readiness: Readiness::from_poll(event.events) }
    }

    fn calls(&self) -> u64 {
        self.calls + self.submitter.as_ref().map_or(0, Submitter::calls)
    }
}
