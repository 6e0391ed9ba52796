//! The loop: what is due is done, what has happened is counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hearken::Waker;
use hearken::io::{Io, What};
use hearken::timer::Time;

use crate::active::Active;
use crate::arrivals::Schedule;
use crate::config::LoadError;
use crate::holders::Holders;
use crate::idle::Idlers;
use crate::report;
use crate::target::Target;

/// Is told how the load goes. `()` does not listen.
pub trait Progress {
    /// Before anything else: `waker` ends a wait, so that the stop flag is seen at once. May be used
    /// in a signal handler's thread.
    fn started(&mut self, waker: Waker) {
        let _ = waker;
    }

    /// The connections that were to be opened ahead are open: the clock of the requests starts.
    fn prepared(&mut self) {}

    /// All idle connections are held, for the first time.
    fn holding(&mut self, connections: u64) {
        let _ = connections;
    }

    /// Once in a second.
    fn tick(&mut self, so_far: &Snapshot) {
        let _ = so_far;
    }
}

impl Progress for () {}

/// How far the load has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Since the first request could have been made; nothing while connections are still being
    /// prepared.
    pub elapsed: Duration,
    /// Requests that were sent.
    pub sent: u64,
    /// Replies to them.
    pub replies: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Idle connections that are held.
    pub idle: u64,
}

/// How often [`Progress::tick`] is called.
const TICK: Duration = Duration::from_secs(1);
/// How often it is looked at how far the holders are, while they prepare.
const GLANCE: Duration = Duration::from_millis(10);

/// A load under way.
pub(crate) struct Drive<'a, I> {
    pub(crate) io: I,
    pub(crate) target: Target,
    pub(crate) active: Active,
    pub(crate) idlers: Idlers,
    pub(crate) holders: Holders,
    pub(crate) schedule: Schedule,
    pub(crate) progress: &'a mut dyn Progress,
    pub(crate) stop: &'a AtomicBool,
    /// When the clock of the requests was started, and what is next on it.
    start: Option<Time>,
    next: Option<Time>,
    tick: Time,
    told: bool,
}

/// How a load ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// It was not stopped before its time.
    pub(crate) complete: bool,
    /// For how long requests were made.
    pub(crate) elapsed: Duration,
    /// Idle connections that were missing when the first request was made.
    pub(crate) missing: u64,
}

impl<'a, I: Io> Drive<'a, I> {
    pub(crate) fn new(
        io: I,
        (target, active, idlers, holders, schedule): (Target, Active, Idlers, Holders, Schedule),
        progress: &'a mut dyn Progress,
        stop: &'a AtomicBool,
    ) -> Drive<'a, I> {
        let tick = Time::now() + TICK;
        let (start, next, told) = (None, None, false);
        Drive {
            io,
            target,
            active,
            idlers,
            holders,
            schedule,
            progress,
            stop,
            start,
            next,
            tick,
            told,
        }
    }

    /// Prepares the connections, makes requests for `duration`, and waits for the last replies.
    pub(crate) fn run(&mut self, duration: Option<Duration>) -> Result<Outcome, LoadError> {
        self.progress.started(self.io.waker());
        let prepared = self.prepare()?;
        let idle = self.idle();
        let missing = idle.asked - idle.held;
        if !prepared {
            return Ok(Outcome { complete: false, elapsed: Duration::ZERO, missing });
        }
        self.progress.prepared();
        let start = Time::now();
        let end = duration.map(|duration| start + duration);
        self.start = Some(start);
        self.active.tally.end = end.unwrap_or(Time::from_nanos(u64::MAX));
        self.arrive();
        loop {
            let going_on = self.turn(end)?;
            let now = self.io.now();
            if end.is_some_and(|end| end <= now) {
                break;
            }
            if !going_on {
                return Ok(Outcome { complete: end.is_none(), elapsed: now.since(start), missing });
            }
        }
        let elapsed = duration.unwrap_or_default();
        // Each has its deadline, so this ends.
        while self.active.tally.outstanding() > 0 {
            if !self.turn(None)? {
                return Ok(Outcome { complete: false, elapsed, missing });
            }
        }
        Ok(Outcome { complete: true, elapsed, missing })
    }

    /// Opens connections ahead of the requests, for as long as that gets on. False if it was
    /// stopped.
    fn prepare(&mut self) -> Result<bool, LoadError> {
        let patience = self.target.timeout;
        let (mut best, mut since) = (0, Time::now());
        while !(self.active.is_prepared()
            && self.idlers.is_prepared()
            && self.holders.are_prepared())
        {
            // The holders cannot wake this thread: their descriptors are others.
            let glance = (!self.holders.are_prepared()).then(|| self.io.now() + GLANCE);
            let until = glance.map_or(since + patience, |glance| glance.min(since + patience));
            if !self.turn(Some(until))? {
                return Ok(false);
            }
            let now = self.io.now();
            let so_far = self.active.tally.opened + self.idle().held;
            if so_far > best {
                (best, since) = (so_far, now);
            } else if now.since(since) >= patience {
                break;
            }
        }
        Ok(true)
    }

    /// All idle connections, whoever holds them.
    pub(crate) fn idle(&self) -> report::Idle {
        let (own, held) = (self.idlers.counts, self.holders.counts());
        report::Idle {
            asked: own.asked + held.asked,
            held: own.held + held.held,
            lost: own.lost + held.lost,
            re_established: own.re_established + held.re_established,
            requests: own.requests + held.requests,
            replies: own.replies + held.replies,
            tables: held.tables,
        }
    }

    /// Notes when the next request is intended, unless that is past the end.
    fn arrive(&mut self) {
        let at = self.start.zip(self.schedule.next()).map(|(start, after)| start + after);
        self.next = at.filter(|&at| at < self.active.tally.end);
    }

    /// Waits until something is due or has happened, `until` at most. False if it was stopped.
    fn turn(&mut self, until: Option<Time>) -> Result<bool, LoadError> {
        // Not `||`: both get their share.
        let more = self.active.prepare(&mut self.io, &mut self.target)
            | self.idlers.prepare(&mut self.io, &mut self.target);
        let at_once = more.then(|| self.io.now());
        let due = [until, self.next, self.active.until(), self.idlers.until(), at_once];
        let until = due.into_iter().flatten().fold(self.tick, Time::min);
        self.io
            .wait(Some(until))
            .map_err(|source| LoadError::System { action: "wait for events", source })?;
        let now = self.io.now();
        // First, so that they are late by no more than the wait. Those of later, in the next turn,
        // or replies would not get theirs under overload.
        while let Some(intended) = self.next.filter(|&next| next <= now) {
            self.active.request(&mut self.io, &mut self.target, intended);
            self.arrive();
        }
        while let Some(completion) = self.io.next() {
            if matches!(completion.what, What::Woken) {
                continue;
            }
            if self.active.owns(completion.on) {
                self.active.complete(&mut self.io, &mut self.target, completion);
            } else if self.idlers.owns(completion.on) {
                self.idlers.complete(&mut self.io, &self.target, completion);
            }
        }
        self.active.expire(now);
        self.tell(now);
        Ok(!self.stop.load(Ordering::Relaxed))
    }

    fn tell(&mut self, now: Time) {
        let own = self.idlers.counts;
        if !self.told
            && own.asked + self.holders.asked() > 0
            && self.idlers.is_prepared()
            && self.holders.are_prepared()
        {
            self.told = true;
            self.progress.holding(own.asked + self.holders.asked());
        }
        if now < self.tick {
            return;
        }
        let (tally, idle) = (&self.active.tally, self.idle().held);
        self.tick = now + TICK;
        self.progress.tick(&Snapshot {
            elapsed: self.start.map_or(Duration::ZERO, |start| now.since(start)),
            sent: tally.sent,
            replies: tally.replies,
            errors: tally.errors.total(),
            idle,
        });
    }
}
