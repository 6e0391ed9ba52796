//! epoll(7) with the changes of interest collected, and told to the kernel together: Gammo, Brecht,
//! Shukla and Pariag's epoll_ctlv, by io_uring's EPOLL_CTL.
//!
//! Its traps, and what is done about each:
//!
//! a) A collected change names a number, and by the time it is told the number may be a stranger's.
//!    Until then a change is no more than a mark on the number's watch: what is told is the watch as it
//!    is at the wait, and several changes are one. `closing` takes the mark off.
//! b) A deletion that is told after the descriptor was closed deletes nothing if a duplicate keeps the
//!    open file, and its events go on. They are known by their generation and dropped; when there have
//!    been more of them than there are registrations, a new epoll instance takes over.
//! c) Whether a number that is declared again after it was revoked is the same open file cannot be
//!    seen. It is added, which is right for another file; if it is the same, the kernel says so
//!    (`EEXIST`), and it is deleted first. A chain of both would be done after the wait has begun.
//! d) What the kernel refuses is known at the wait only. What cannot be waited for (`EPERM`: a regular
//!    file) is always ready, and said to be, as poll(2) does; what there is no room for (`ENOSPC`,
//!    `ENOMEM`) is said to be ready as well, so that its owner tries, and told again.
//! e) A change may be put off by the kernel to a thread of its own, where another holds epoll's lock.
//!    No wait ends before all that it told has been done.
//! f) A wait in the ring (`wait=ring`) that is over by its timeout is still with the kernel, and would
//!    write into the batch: it is cancelled before the wait returns.
//! g) Where io_uring is refused each watch that has changed costs a call (`via=calls` chooses that);
//!    [`calls`](Mechanism::calls) shows it.

use std::collections::VecDeque;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;
use std::{fmt, io};

use rustix::event::epoll::{self as kernel, EventData, EventFlags};
use rustix::io::Errno;

use super::borrow;
use super::epoll;
use super::options::{Choice, Options, Values};
use super::{ChangeCost, Mechanism, Open, Semantics, Sharing, Trigger, Unavailable};
use crate::event::{Event, Interest, Readiness, Token};

mod ledger;
mod telling;

use ledger::{Ledger, State};
use telling::{Op, Telling, data};

/// epoll(7), told of changes in batches.
pub struct EpollBatched {
    // Before the batch, which it may write to: closed first.
    telling: Option<Telling>,
    epoll: OwnedFd,
    trigger: Trigger,
    waits_in_ring: bool,
    ledger: Ledger,
    refused: VecDeque<u32>,
    batch: Vec<libc::epoll_event>,
    /// Events of registrations that are gone.
    stale: usize,
    calls: u64,
    coarse: bool,
    turn: bool,
}

impl fmt::Debug for EpollBatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("epoll-batched")
            .field("via_ring", &self.telling.is_some())
            .field("waits_in_ring", &self.waits_in_ring)
            .field("registered", &self.ledger.registered())
            .finish_non_exhaustive()
    }
}

impl EpollBatched {
    /// Queues all changes for the kernel; where there is no ring, tells it at once.
    fn tell(&mut self) -> io::Result<()> {
        while let Some(number) = self.ledger.first_changed() {
            if let Some(telling) = &mut self.telling
                && telling.is_full()
            {
                telling.settle()?;
            }
            let Some(op) = self.ledger.step() else { continue };
            let watch = self.ledger.watch(number);
            if let Some(telling) = &mut self.telling {
                telling.push(&self.epoll, op, (number, watch.event(number)));
            } else if let Err(errno) = self.call(op, number) {
                self.refuse(op, number, errno.raw_os_error());
            }
        }
        Ok(())
    }

    /// Tells one change by a call of its own.
    fn call(&mut self, op: Op, number: u32) -> rustix::io::Result<()> {
        let watch = *self.ledger.watch(number);
        // SAFETY: what is registered is open. A deletion may name what is not, or a stranger's, and
        // does nothing then.
        let source = unsafe { borrow(number as RawFd) };
        let data = EventData::new_u64(data(number, watch.generation));
        self.calls += 1;
        match op {
            Op::Add => kernel::add(&self.epoll, source, data, watch.asked),
            Op::Modify => kernel::modify(&self.epoll, source, data, watch.asked),
            Op::Delete => {
                let _ = kernel::delete(&self.epoll, source);
                Ok(())
            }
        }
    }

    /// Looks at what the kernel said to a change.
    #[cold]
    fn refuse(&mut self, op: Op, number: u32, errno: i32) {
        let again = match (op, errno) {
            (Op::Add, libc::EEXIST) => self.call(Op::Delete, number).is_ok(), // (c)
            // It was closed, against what was promised.
            (Op::Modify, libc::ENOENT) => true,
            _ => false,
        };
        if again && self.call(Op::Add, number).is_ok() {
            return;
        }
        let watch = self.ledger.watch(number);
        watch.state.remove(State::PRESENT);
        watch.state.insert(State::REFUSED);
        watch.state.set(State::AGAIN, errno != libc::EPERM);
        if !watch.state.contains(State::LISTED) {
            watch.state.insert(State::LISTED);
            self.refused.push_back(number);
        }
    }

    /// Says that what was refused is ready (d).
    fn say_refused(&mut self, max: usize) {
        for _ in 0..self.refused.len() {
            if self.batch.len() >= max {
                break;
            }
            let Some(number) = self.refused.pop_front() else {
                break;
            };
            let watch = self.ledger.watch(number);
            watch.state.remove(State::LISTED);
            let flags = watch.asked & (EventFlags::IN | EventFlags::OUT);
            if !watch.state.contains(State::REFUSED) || flags.is_empty() {
                continue;
            }
            let event = libc::epoll_event { events: flags.bits(), u64: watch.token.to_bits() };
            self.batch.push(event);
            if watch.state.contains(State::AGAIN) {
                self.ledger.tell_later(number);
            } else if self.trigger == Trigger::Level {
                watch.state.insert(State::LISTED);
                self.refused.push_back(number);
            }
        }
    }

    /// Puts tokens in the place of numbers, and drops what is of no registration (b).
    fn sift(&mut self) {
        let EpollBatched { batch, ledger, stale, .. } = self;
        batch.retain_mut(|event| match ledger.token(event.u64) {
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

    /// Leaves behind what cannot be deleted (b).
    #[cold]
    fn renew(&mut self) {
        self.stale = 0;
        self.calls += 1;
        let Ok(epoll) = epoll::create() else {
            return; // Later, then.
        };
        self.epoll = epoll;
        self.ledger.start_over();
    }

    fn hear_refusals(&mut self) {
        while let Some((op, number, errno)) =
            self.telling.as_mut().and_then(|telling| telling.refused.pop())
        {
            self.refuse(op, number, errno);
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
    const SUMMARY: &'static str = "epoll(7), changes told together through io_uring(7)";
    const SEMANTICS: Semantics = semantics(Trigger::Edge);
    const OPTIONS: &'static [Choice] = &[
        Choice {
            name: "trigger",
            help: "edge- or level-triggered",
            values: Values::OneOf(&["edge", "level"]),
        },
        Choice {
            name: "wait",
            help: "by epoll_wait, or in the ring too, so that changes and wait are one call",
            values: Values::OneOf(&["epoll", "ring"]),
        },
        Choice {
            name: "via",
            help: "changes go through a ring where there can be one, or by a call each",
            values: Values::OneOf(&["ring", "calls"]),
        },
    ];

    fn open_with(options: &Options) -> Result<Self, Unavailable> {
        let waits_in_ring = options.get("wait") == "ring";
        let telling = match options.get("via") {
            "calls" if waits_in_ring => {
                let error = io::ErrorKind::InvalidInput.into();
                let remedy = "wait=ring needs via=ring";
                return Err(Unavailable { call: "io_uring_setup", error, remedy });
            }
            "calls" => None,
            _ if waits_in_ring => Some(Telling::open(true)?),
            _ => Telling::open(false).ok(), // (g)
        };
        Ok(EpollBatched {
            telling,
            epoll: epoll::create()?,
            trigger: if options.get("trigger") == "level" { Trigger::Level } else { Trigger::Edge },
            waits_in_ring,
            ledger: Ledger::default(),
            refused: VecDeque::new(),
            batch: Vec::new(),
            stale: 0,
            calls: 0,
            coarse: false,
            turn: false,
        })
    }
}

impl Mechanism for EpollBatched {
    fn semantics(&self) -> &'static Semantics {
        if self.trigger == Trigger::Level { &LEVEL } else { const { &Self::SEMANTICS } }
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        let asked = epoll::flags(interest, self.trigger);
        self.ledger.register(fd, token, asked, State::empty())
    }

    unsafe fn declare_exclusive(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        let asked = epoll::flags(interest, self.trigger) - EventFlags::RDHUP;
        self.ledger.register(fd, token, asked | EventFlags::EXCLUSIVE, State::EXCLUSIVE)
    }

    unsafe fn change(&mut self, fd: RawFd, _token: Token, interest: Interest) -> io::Result<()> {
        let asked = epoll::flags(interest, self.trigger);
        let watch = self.ledger.find(fd).ok_or(Errno::NOENT)?;
        watch.asked = if watch.state.contains(State::EXCLUSIVE) {
            (asked - EventFlags::RDHUP) | EventFlags::EXCLUSIVE
        } else {
            asked
        };
        self.ledger.tell_later(fd as u32);
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        if self.ledger.forget(fd)? {
            self.ledger.watch(fd as u32).state.insert(State::FORMER);
            self.ledger.tell_later(fd as u32);
        }
        Ok(())
    }

    unsafe fn closing(&mut self, fd: RawFd, _token: Token) {
        let _ = self.ledger.forget(fd); // (a)
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.batch.clear();
        let max = max.max(1);
        if self.stale > self.ledger.registered() {
            self.renew();
        }
        self.tell()?;
        if !self.waits_in_ring
            && let Some(telling) = &mut self.telling
        {
            telling.settle()?;
            self.hear_refusals();
        }
        // What was refused is given half of the room, or every other turn.
        let mut room = max;
        if !self.refused.is_empty() {
            self.turn = !self.turn;
            room -= if max == 1 { usize::from(self.turn) } else { self.refused.len().min(max / 2) };
        }
        let timeout = if self.refused.is_empty() { timeout } else { Some(Duration::ZERO) };
        if room > 0 {
            epoll::make_room(&mut self.batch, room);
            match &mut self.telling {
                Some(telling) if self.waits_in_ring => {
                    if let Err(error) = telling.wait(&self.epoll, &mut self.batch, timeout) {
                        // The kernel may still write to it.
                        std::mem::forget(std::mem::take(&mut self.batch));
                        return Err(error);
                    }
                }
                _ => {
                    self.calls += 1;
                    let waited =
                        epoll::wait(&self.epoll, &mut self.batch, timeout, &mut self.coarse);
                    if let Err(errno) = waited
                        && errno != Errno::INTR
                    {
                        return Err(errno.into());
                    }
                }
            }
            self.sift();
            self.hear_refusals();
        }
        self.say_refused(max);
        Ok(self.batch.len())
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        let Some(event) = self.batch.get(index) else {
            return super::NO_EVENT;
        };
        Event { who: Token::from_bits(event.u64), readiness: Readiness::from_poll(event.events) }
    }

    fn calls(&self) -> u64 {
        self.calls + self.telling.as_ref().map_or(0, Telling::calls)
    }
}
