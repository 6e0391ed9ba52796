//! io_uring(7) as a source of readiness: one poll request for each descriptor.
//!
//! Its traps, and what is done about each:
//!
//! a) A poll request holds the open file: until it has ended, a closed socket is not closed and its
//!    peer hears of no end. `closing` and `revoke` cancel it at once and see it end, which costs a
//!    system call where one is armed; so does dropping the mechanism.
//! b) A completion may be in the ring when its registration has gone. Each request has a generation
//!    of its own, which comes back with it; what is not of the present one is dropped.
//! c) A multishot request tells of arrivals, but each with what woke it only, and several may be in
//!    the ring. They are joined by descriptor as they are taken off; what does not fit into the batch
//!    waits in a queue in which each descriptor is at most once.
//! d) A request cannot be changed while something has just happened to it (EALREADY). A change cancels
//!    it and makes another, which tells of what is ready then; both ride on the next wait.
//! e) Errors, hang-ups and the end of the stream are reported asked for or not. What answers no
//!    interest is dropped here; nothing at all is armed for an empty one. A one-shot request that was
//!    ended by such an answer would be so again at once: the next one is multishot, which is not.
//! f) A multishot request ends early when the ring overflows, and at once where a file is always
//!    ready (a regular file). The former is armed again; the latter is silent until it is changed.
//! g) An exclusive multishot request would be woken before all others for ever. It is a one-shot
//!    request, which goes to the end of the line when it is armed again, in the next wait.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use self::arrivals::{Arrivals, State, Watch, name};
use super::options::{Choice, Options, Values};
use super::{ChangeCost, Mechanism, Open, Semantics, Sharing, Trigger, Unavailable};
use crate::event::{Event, Interest, Readiness, Token};
use crate::ring::{Ring, Sqe, Work};

mod arrivals;

/// Room for submissions: more are handed over in several calls.
const SUBMISSIONS: u32 = 256;
/// A batch is no larger, whatever is asked for.
const MOST: usize = 1 << 16;
/// Comes back with what is no poll request; no descriptor has this number.
const NOBODY: u64 = u64::MAX;
/// How often an enter is repeated that has not yet come to what it was made for: each does some.
const PATIENCE: usize = 10_000;

/// io_uring's poll requests.
pub struct UringPoll {
    ring: Ring,
    /// By number of descriptor.
    watches: Vec<Watch>,
    /// Those of which the kernel is yet to be told, in the order in which they were changed.
    changed: VecDeque<u32>,
    arrivals: Arrivals,
}

impl fmt::Debug for UringPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("uring-poll")
            .field("deferred", &self.ring.is_deferred())
            .field("outstanding", &self.arrivals.outstanding)
            .finish_non_exhaustive()
    }
}

/// What is listened to for an interest.
fn flags(interest: Interest) -> u16 {
    let mut flags = EventFlags::empty();
    if interest.contains(Interest::READ) {
        flags |= EventFlags::IN | EventFlags::RDHUP;
    }
    if interest.contains(Interest::WRITE) {
        flags |= EventFlags::OUT;
    }
    if !flags.is_empty() {
        flags |= EventFlags::ERR | EventFlags::HUP;
    }
    flags.bits() as u16
}

impl UringPoll {
    fn registered(&mut self, fd: RawFd) -> Option<&mut Watch> {
        let watch = self.watches.get_mut(usize::try_from(fd).ok()?)?;
        watch.state.contains(State::REGISTERED).then_some(watch)
    }

    fn register(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
        how: State,
    ) -> io::Result<()> {
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if self.registered(fd).is_some() {
            return Err(Errno::EXIST.into());
        }
        if number >= self.watches.len() {
            self.watches.resize(number + 1, Watch::UNREGISTERED);
        }
        let watch = &mut self.watches[number];
        watch.token = token;
        watch.state.insert(State::REGISTERED | how);
        self.listen(number as u32, interest);
        Ok(())
    }

    /// Has the kernel told of an interest in the next wait.
    fn listen(&mut self, number: u32, interest: Interest) {
        let watch = &mut self.watches[number as usize];
        watch.asked = flags(interest);
        watch.heard = watch.asked;
        watch.untold = 0;
        watch.state.remove(State::STUBBORN);
        arm_later(watch, number, &mut self.changed);
    }

    /// Tells the kernel of what has changed.
    fn submit(&mut self) -> io::Result<()> {
        while let Some(&number) = self.changed.front() {
            if self.ring.is_short_of(2) {
                self.enter(0, None, 0)?;
                if self.ring.is_short_of(2) {
                    return Ok(()); // It has no memory now; the next wait tries again.
                }
            }
            self.changed.pop_front();
            let watch = &mut self.watches[number as usize];
            watch.state.remove(State::CHANGED);
            if watch.state.contains(State::ARMED) {
                let old = name(number, watch.generation);
                watch.state.remove(State::ARMED);
                self.cancel(old); // (d)
            }
            self.arm(number);
        }
        Ok(())
    }

    fn arm(&mut self, number: u32) {
        let watch = &mut self.watches[number as usize];
        watch.generation = watch.generation.wrapping_add(1);
        if watch.asked == 0 {
            return; // (e)
        }
        let mut flags = u32::from(watch.asked);
        let mut multishot = !self.arrivals.one_shot || watch.state.contains(State::STUBBORN);
        if watch.state.contains(State::EXCLUSIVE) {
            flags |= EventFlags::EXCLUSIVE.bits();
            multishot = false; // (g)
        }
        watch.state.insert(State::ARMED);
        watch.armed = self.ring.calls() as u32;
        let request = Sqe::poll(number as RawFd, flags, multishot);
        let request = request.user_data(name(number, watch.generation));
        self.arrivals.outstanding += 1;
        // SAFETY: a poll request points to nothing.
        unsafe { self.ring.push(request) };
    }

    fn cancel(&mut self, request: u64) {
        // SAFETY: a cancellation points to nothing.
        unsafe { self.ring.push(Sqe::cancel(request).user_data(NOBODY).skip_success()) };
    }

    /// Ends a registration, and has the kernel let go of the open file (a).
    fn forget(&mut self, fd: RawFd) -> io::Result<()> {
        let watch = self.registered(fd).ok_or(Errno::NOENT)?;
        let (request, armed) = (name(fd as u32, watch.generation), watch.state & State::ARMED);
        // Its places in queues are left to whoever has the number next.
        watch.state &= State::CHANGED | State::QUEUED;
        watch.generation = watch.generation.wrapping_add(1);
        (watch.asked, watch.heard, watch.untold) = (0, 0, 0);
        if armed.is_empty() {
            return Ok(());
        }
        if self.ring.is_short_of(1) {
            self.enter(0, None, 0)?;
        }
        self.arrivals.awaited = request;
        self.cancel(request);
        for _ in 0..PATIENCE {
            self.enter(0, None, 0)?;
            if self.arrivals.awaited == NOBODY {
                break;
            }
        }
        self.arrivals.awaited = NOBODY;
        Ok(())
    }

    /// Takes off what is in the ring.
    #[inline]
    fn take(&mut self, room: usize) {
        let UringPoll { ring, watches, arrivals, .. } = self;
        arrivals.take(ring, watches, room);
    }

    /// Enters, and takes off what has come of it.
    #[inline]
    fn enter(&mut self, least: u32, timeout: Option<Duration>, room: usize) -> io::Result<()> {
        let kept = self.ring.enter(least, timeout)?;
        self.take(room);
        if !self.arrivals.ended.is_empty() {
            self.look_at_ended(true);
        }
        if !kept {
            self.renew();
        }
        Ok(())
    }

    /// Arms again what has ended and should not have; after an enter, what it armed can have ended at
    /// once.
    #[cold]
    fn look_at_ended(&mut self, entered: bool) {
        let overflown = self.ring.is_overflown();
        let calls = self.ring.calls() as u32;
        while let Some((number, said)) = self.arrivals.ended.pop() {
            let watch = &mut self.watches[number as usize];
            let at_once = entered && calls.wrapping_sub(watch.armed) == 1 && !overflown;
            let again = if said < 0 {
                said != -libc::EBADF // No memory for it, or the file has gone from under it.
            } else if self.arrivals.one_shot {
                watch.state.insert(State::STUBBORN); // (e)
                watch.heard != 0
            } else {
                !at_once || watch.state.contains(State::EXCLUSIVE) // (f), (g)
            };
            if again {
                arm_later(watch, number, &mut self.changed);
            }
        }
    }

    /// Arms all again: some of what was said was lost.
    #[cold]
    fn renew(&mut self) {
        for (number, watch) in (0..).zip(&mut self.watches) {
            if watch.heard != 0 {
                arm_later(watch, number, &mut self.changed);
            }
        }
    }
}

fn arm_later(watch: &mut Watch, number: u32, changed: &mut VecDeque<u32>) {
    if !watch.state.contains(State::CHANGED) {
        watch.state.insert(State::CHANGED);
        changed.push_back(number);
    }
}

const fn semantics(trigger: Trigger) -> Semantics {
    Semantics {
        trigger,
        change: ChangeCost::Wait,
        overflows: true,
        sharing: Sharing::Exclusive,
        ..Semantics::COMMON
    }
}

static ONE_SHOT: Semantics = semantics(Trigger::OneShot);

impl Open for UringPoll {
    const NAME: &'static str = "uring-poll";
    const SUMMARY: &'static str = "io_uring(7) poll requests: completions read from shared memory";
    const SEMANTICS: Semantics = semantics(Trigger::Edge);
    const OPTIONS: &'static [Choice] = &[
        Choice {
            name: "shots",
            help: "multishot requests (edge-triggered), or one request an event (one-shot)",
            values: Values::OneOf(&["multi", "one"]),
        },
        Choice {
            name: "work",
            help: "completions are made in the wait only, or at the end of any system call",
            values: Values::OneOf(&["deferred", "cooperative"]),
        },
        Choice {
            name: "completions",
            help: "room in the queue of completions; rounded up to a power of two",
            values: Values::Number { default: 8192, least: 16, most: 32768 },
        },
    ];

    fn open_with(options: &Options) -> Result<Self, Unavailable> {
        let work = match options.get("work") {
            "cooperative" => Work::Cooperative,
            _ => Work::Deferred,
        };
        let completions = options.number("completions") as u32;
        Ok(UringPoll {
            ring: Ring::open(work, (completions.min(SUBMISSIONS), completions))?,
            watches: Vec::new(),
            changed: VecDeque::new(),
            arrivals: Arrivals::new(options.get("shots") == "one"),
        })
    }
}

impl Mechanism for UringPoll {
    fn semantics(&self) -> &'static Semantics {
        if self.arrivals.one_shot { &ONE_SHOT } else { const { &Self::SEMANTICS } }
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.register(fd, token, interest, State::empty())
    }

    unsafe fn declare_exclusive(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.register(fd, token, interest, State::EXCLUSIVE)
    }

    unsafe fn change(&mut self, fd: RawFd, _token: Token, interest: Interest) -> io::Result<()> {
        self.registered(fd).ok_or(Errno::NOENT)?;
        self.listen(fd as u32, interest);
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        self.forget(fd)
    }

    #[inline]
    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        let max = max.clamp(1, MOST);
        self.arrivals.batch.clear();
        self.arrivals.take_later(&mut self.watches, max);
        if self.ring.has_completions() {
            self.take(max);
            if !self.arrivals.ended.is_empty() {
                self.look_at_ended(false);
            }
        }
        if !self.changed.is_empty() {
            self.submit()?;
            // What came of handing over a part.
            self.arrivals.take_later(&mut self.watches, max);
        }
        let sleeps = self.arrivals.batch.is_empty() && timeout != Some(Duration::ZERO);
        if sleeps || self.ring.stirs() {
            self.enter(sleeps.into(), timeout, max)?;
            // One enter of newer kernels does no more than some of the work that was deferred.
            for _ in 0..64 {
                if self.arrivals.batch.len() >= max || !self.ring.has_more() {
                    break;
                }
                self.enter(0, None, max)?;
            }
        }
        Ok(self.arrivals.batch.len())
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        match self.arrivals.batch.get(index) {
            Some(&(who, flags)) => Event { who, readiness: Readiness::from_poll(flags) },
            None => super::NO_EVENT,
        }
    }

    fn overflows(&self) -> u64 {
        self.ring.overflows()
    }

    fn calls(&self) -> u64 {
        self.ring.calls()
    }
}

impl Drop for UringPoll {
    /// The kernel closes a ring when it finds the time; what it watches is closed before (a).
    fn drop(&mut self) {
        for number in 0..self.watches.len() {
            let watch = self.watches[number];
            if watch.state.contains(State::ARMED) {
                if self.ring.is_short_of(1) && self.enter(0, None, 0).is_err() {
                    return;
                }
                self.cancel(name(number as u32, watch.generation));
            }
        }
        for _ in 0..PATIENCE {
            if self.arrivals.outstanding == 0 || self.enter(0, None, 0).is_err() {
                break;
            }
        }
    }
}
