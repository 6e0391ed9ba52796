//! The loop of one thread: what is due is done, what has happened is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use hearken::io::Io;
use hearken::timer::Time;

use crate::active::Active;
use crate::arrivals::Schedule;
use crate::config::LoadError;
use crate::histogram::Histogram;
use crate::idle::Idlers;
use crate::record::{Slice, Told};
use crate::stop::Stop;
use crate::tally::Tally;

/// What the threads of a load have in common.
#[derive(Debug)]
pub(crate) struct Common {
    /// When the clock of the requests starts, in nanoseconds; 0 until that is known.
    pub(crate) start: AtomicU64,
    pub(crate) stop: Stop,
    /// What is asked for comes to an end; it has, for all threads.
    pub(crate) finite: bool,
    pub(crate) over: AtomicBool,
    /// For how long requests are made; without it, until there is nothing left to ask.
    pub(crate) duration: Option<Duration>,
    pub(crate) interval: Duration,
    /// How long it may take to connect ahead of the requests.
    pub(crate) patience: Duration,
}

/// A load under way.
#[derive(Debug)]
pub(crate) struct Drive<I> {
    pub(crate) io: I,
    /// Which thread's this is.
    pub(crate) index: usize,
    pub(crate) active: Active,
    pub(crate) idlers: Idlers,
    pub(crate) schedule: Schedule,
    pub(crate) common: Arc<Common>,
    pub(crate) tell: Sender<(usize, Told)>,
    /// Empty histograms, to take the place of those that are told.
    pub(crate) spares: Receiver<Box<Histogram>>,
    /// When the clock of the requests was started.
    pub(crate) start: Option<Time>,
    /// What is next on it, and whether there is nothing left.
    pub(crate) next: Option<Time>,
    pub(crate) exhausted: bool,
    /// When the interval ends.
    pub(crate) tick: Time,
    pub(crate) told_intervals: u32,
    /// It was told that all idle connections are held.
    pub(crate) told_holding: bool,
}

/// How a thread's part of a load ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) events: &'static str,
    pub(crate) tally: Tally,
    pub(crate) idlers: Idlers,
    /// It was not stopped before its time.
    pub(crate) complete: bool,
    /// For how long requests were made.
    pub(crate) elapsed: Duration,
}

impl<I: Io> Drive<I> {
    /// Prepares the connections, makes requests, and waits for the last replies.
    pub(crate) fn run(mut self, events: &'static str) -> Result<Ended, LoadError> {
        let (complete, elapsed) = match self.prepare()? {
            Some(start) => self.go(start)?,
            None => (false, Duration::ZERO),
        };
        self.idlers.bytes.add(&self.active.tally.counts.bytes);
        Ok(Ended { events, tally: self.active.tally, idlers: self.idlers, complete, elapsed })
    }

    /// Makes requests from `start` on. Whether that came to its end, and how long it took.
    fn go(&mut self, start: Time) -> Result<(bool, Duration), LoadError> {
        let end = self.common.duration.map_or(Time::from_nanos(u64::MAX), |length| start + length);
        self.start = Some(start);
        self.tick = start + self.common.interval;
        self.active.start(&mut self.io, end);
        self.arrive();
        let mut told = false;
        // At least once: whoever comes late still makes all that was due.
        let (mut going_on, now) = loop {
            if !told && self.is_over() {
                told = true;
                // The idle connections are held until the others are over, too.
                self.tell(Told::Over);
            }
            let going_on = self.turn(Some(end))?;
            let now = self.io.now();
            if !going_on || now >= end || self.common.over.load(Ordering::Acquire) {
                break (going_on, now);
            }
        };
        let until = now.min(end);
        let elapsed = until.since(start);
        let rest = elapsed.saturating_sub(self.common.interval * self.told_intervals);
        if !rest.is_zero() {
            self.tell_slice(rest, false);
        }
        (self.next, self.tick) = (None, Time::from_nanos(u64::MAX));
        // Each has its deadline, so this ends.
        while going_on && self.active.tally.outstanding() > 0 {
            going_on = self.turn(None)?;
        }
        self.tell_slice(self.io.now().since(until), true);
        let endless = self.common.duration.is_none() && !self.common.finite;
        Ok((going_on || endless, elapsed))
    }

    /// True once nothing is left to ask, and all that was asked is over.
    fn is_over(&self) -> bool {
        self.exhausted && self.active.until().is_none() && self.active.tally.is_settled()
    }

    /// Opens connections ahead of the requests, for as long as that gets on, and waits for the start;
    /// nothing if it was stopped.
    fn prepare(&mut self) -> Result<Option<Time>, LoadError> {
        let patience = self.common.patience;
        let (mut best, mut since) = (0, Time::now());
        while !(self.active.is_prepared() && self.idlers.is_prepared()) {
            if !self.turn(Some(since + patience))? {
                return Ok(None);
            }
            let now = self.io.now();
            let so_far = self.active.tally.counts.opened + self.idlers.counts.held;
            if so_far > best {
                (best, since) = (so_far, now);
            } else if now.since(since) >= patience {
                break;
            }
        }
        self.tell(Told::Prepared { missing: self.idlers.counts.asked - self.idlers.counts.held });
        loop {
            let start = self.common.start.load(Ordering::Acquire);
            let start = (start > 0).then_some(Time::from_nanos(start));
            if start.is_some_and(|start| start <= Time::now()) {
                return Ok(start);
            }
            if !self.turn(start)? {
                return Ok(None);
            }
        }
    }

    /// Notes when the next arrival is intended, unless that is past the end.
    fn arrive(&mut self) {
        let at = self.start.zip(self.schedule.next()).map(|(start, after)| start + after);
        self.next = at.filter(|&at| at < self.active.tally.end);
        self.exhausted |= at.is_none() && self.common.finite;
    }

    /// Waits until something is due or has happened, `until` at most. False if it was stopped.
    fn turn(&mut self, until: Option<Time>) -> Result<bool, LoadError> {
        // Not `||`: both get their share.
        let more = self.active.prepare(&mut self.io) | self.idlers.prepare(&mut self.io);
        let at_once = more.then(|| self.io.now());
        let due = [until, self.next, self.active.until(), self.idlers.until(), at_once];
        let until = due.into_iter().flatten().fold(self.tick, Time::min);
        self.io
            .wait(Some(until))
            .map_err(|source| LoadError::System { action: "wait for events", source })?;
        let now = self.io.now();
        while now >= self.tick && self.tick <= self.active.tally.end {
            self.end_interval();
        }
        // First, so that they are late by no more than the wait. Those of later, in the next turn,
        // or replies would not get theirs under overload.
        while let Some(intended) = self.next.filter(|&next| next <= now) {
            if self.active.arrive(&mut self.io, intended) {
                self.arrive();
            } else {
                (self.next, self.exhausted) = (None, true);
            }
        }
        while let Some(completion) = self.io.next() {
            if self.active.owns(completion.token) {
                self.active.complete(&mut self.io, completion);
            } else if self.idlers.owns(completion.token) {
                self.idlers.complete(&mut self.io, completion);
            }
        }
        self.active.expire(&mut self.io, now);
        if !self.told_holding && self.idlers.counts.asked > 0 && self.idlers.is_prepared() {
            self.told_holding = true;
            self.tell(Told::Holding(self.idlers.counts));
        }
        Ok(!self.common.stop.is_raised())
    }

    fn end_interval(&mut self) {
        let interval = self.common.interval;
        if self.start.is_some() {
            self.told_intervals += 1;
            self.tell_slice(interval, false);
        } else {
            self.tell(Told::Preparing(self.idlers.counts));
        }
        self.tick = self.tick + interval;
    }

    /// Tells what came in the interval that ends, which was of this length.
    fn tell_slice(&mut self, length: Duration, draining: bool) {
        let tally = &mut self.active.tally;
        let latency = (!tally.latency.is_empty()).then(|| {
            let spare = self.spares.try_recv().unwrap_or_default();
            std::mem::replace(&mut tally.latency, spare)
        });
        let slice = Slice {
            length,
            draining,
            counts: tally.counts,
            latency,
            idle: self.idlers.counts,
            connections: self.active.open() as u64,
        };
        self.tell(Told::Slice(Box::new(slice)));
    }

    fn tell(&self, told: Told) {
        // Nobody listens only where the load has failed.
        let _ = self.tell.send((self.index, told));
    }
}
