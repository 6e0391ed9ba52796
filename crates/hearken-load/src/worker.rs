//! The loop of one thread: what is due is done, what has happened is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use hearken::io::Io;
use hearken::timer::Time;

use crate::active_connections::ActiveConnections;
use crate::arrivals::Schedule;
use crate::config::LoadError;
use crate::histogram::Histogram;
use crate::idle_connections::IdleConnections;
use crate::recorder::{Slice, WorkerUpdate};
use crate::statistics::Statistics;
use crate::stop::Stop;

/// What the threads of a load have in common.
#[derive(Debug)]
pub(crate) struct SharedState {
    /// When the clock of the requests starts, in nanoseconds; 0 until that is known.
    pub(crate) start_nanos: AtomicU64,
    pub(crate) stop: Stop,
    /// What is asked for comes to an end; it has, for all threads.
    pub(crate) finite: bool,
    pub(crate) finished: AtomicBool,
    /// For how long requests are made; without it, until there is nothing left to ask.
    pub(crate) duration: Option<Duration>,
    pub(crate) report_interval: Duration,
    /// How long it may take to connect ahead of the requests.
    pub(crate) prepare_timeout: Duration,
}

/// A load under way.
#[derive(Debug)]
pub(crate) struct Worker<I> {
    pub(crate) io: I,
    /// Which thread's this is.
    pub(crate) index: usize,
    pub(crate) active: ActiveConnections,
    pub(crate) idle: IdleConnections,
    pub(crate) schedule: Schedule,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) updates: Sender<(usize, WorkerUpdate)>,
    /// Empty histograms, to take the place of those that are told.
    pub(crate) free_histograms: Receiver<Box<Histogram>>,
    /// When the clock of the requests was started.
    pub(crate) start: Option<Time>,
    /// What is next on it, and whether there is nothing left.
    pub(crate) next_arrival: Option<Time>,
    pub(crate) exhausted: bool,
    /// When the interval ends.
    pub(crate) interval_end: Time,
    pub(crate) reported_intervals: u32,
    /// It was told that all idle connections are held.
    pub(crate) reported_idle_held: bool,
}

/// How a thread's part of a load ended.
#[derive(Debug)]
pub(crate) struct WorkerResult {
    pub(crate) mechanism: &'static str,
    pub(crate) stats: Statistics,
    pub(crate) idle: IdleConnections,
    /// It was not stopped before its time.
    pub(crate) complete: bool,
    /// For how long requests were made.
    pub(crate) elapsed: Duration,
}

impl<I: Io> Worker<I> {
    /// Prepares the connections, makes requests, and waits for the last replies.
    pub(crate) fn run(mut self, mechanism: &'static str) -> Result<WorkerResult, LoadError> {
        let (complete, elapsed) = match self.prepare()? {
            Some(start) => self.run_load(start)?,
            None => (false, Duration::ZERO),
        };
        self.idle.bytes.add(&self.active.stats.counts.bytes);
        Ok(WorkerResult { mechanism, stats: self.active.stats, idle: self.idle, complete, elapsed })
    }

    /// Makes requests from `start` on. Whether that came to its end, and how long it took.
    fn run_load(&mut self, start: Time) -> Result<(bool, Duration), LoadError> {
        let end = self.shared.duration.map_or(Time::from_nanos(u64::MAX), |length| start + length);
        self.start = Some(start);
        self.interval_end = start + self.shared.report_interval;
        self.active.start(&mut self.io, end);
        self.schedule_next_arrival();
        let mut reported = false;
        // At least once: whoever comes late still makes all that was due.
        let (mut running, now) = loop {
            if !reported && self.is_finished() {
                reported = true;
                // The idle connections are held until the others are over, too.
                self.report(WorkerUpdate::Finished);
            }
            let running = self.turn(Some(end))?;
            let now = self.io.now();
            if !running || now >= end || self.shared.finished.load(Ordering::Acquire) {
                break (running, now);
            }
        };
        let until = now.min(end);
        let elapsed = until.since(start);
        let rest = elapsed.saturating_sub(self.shared.report_interval * self.reported_intervals);
        if !rest.is_zero() {
            self.report_slice(rest, false);
        }
        (self.next_arrival, self.interval_end) = (None, Time::from_nanos(u64::MAX));
        // Each has its deadline, so this ends.
        while running && self.active.stats.outstanding() > 0 {
            running = self.turn(None)?;
        }
        self.report_slice(self.io.now().since(until), true);
        let endless = self.shared.duration.is_none() && !self.shared.finite;
        Ok((running || endless, elapsed))
    }

    /// True once nothing is left to ask, and all that was asked is over.
    fn is_finished(&self) -> bool {
        self.exhausted && self.active.next_deadline().is_none() && self.active.stats.is_complete()
    }

    /// Opens connections ahead of the requests, for as long as that gets on, and waits for the start;
    /// nothing if it was stopped.
    fn prepare(&mut self) -> Result<Option<Time>, LoadError> {
        let timeout = self.shared.prepare_timeout;
        let (mut best, mut since) = (0, Time::now());
        while !(self.active.is_prepared() && self.idle.is_prepared()) {
            if !self.turn(Some(since + timeout))? {
                return Ok(None);
            }
            let now = self.io.now();
            let so_far = self.active.stats.counts.connections_opened + self.idle.counts.held;
            if so_far > best {
                (best, since) = (so_far, now);
            } else if now.since(since) >= timeout {
                break;
            }
        }
        self.report(WorkerUpdate::Prepared {
            missing: self.idle.counts.asked - self.idle.counts.held,
        });
        loop {
            let start = self.shared.start_nanos.load(Ordering::Acquire);
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
    fn schedule_next_arrival(&mut self) {
        let at = self.start.zip(self.schedule.next()).map(|(start, after)| start + after);
        self.next_arrival = at.filter(|&at| at < self.active.stats.last_arrival);
        self.exhausted |= at.is_none() && self.shared.finite;
    }

    /// Waits until something is due or has happened, `until` at most. False if it was stopped.
    fn turn(&mut self, until: Option<Time>) -> Result<bool, LoadError> {
        // Not `||`: both get their share.
        let more = self.active.prepare(&mut self.io) | self.idle.open_some(&mut self.io);
        let at_once = more.then(|| self.io.now());
        let due = [
            until,
            self.next_arrival,
            self.active.next_deadline(),
            self.idle.next_deadline(),
            at_once,
        ];
        let until = due.into_iter().flatten().fold(self.interval_end, Time::min);
        self.io
            .wait(Some(until))
            .map_err(|source| LoadError::System { action: "wait for events", source })?;
        let now = self.io.now();
        while now >= self.interval_end && self.interval_end <= self.active.stats.last_arrival {
            self.report_interval_end();
        }
        // First, so that they are late by no more than the wait. Those of later, in the next turn,
        // or replies would not get theirs under overload.
        while let Some(scheduled) = self.next_arrival.filter(|&next| next <= now) {
            if self.active.on_arrival(&mut self.io, scheduled) {
                self.schedule_next_arrival();
            } else {
                (self.next_arrival, self.exhausted) = (None, true);
            }
        }
        while let Some(completion) = self.io.next() {
            if self.active.owns(completion.token) {
                self.active.on_completion(&mut self.io, completion);
            } else if self.idle.owns(completion.token) {
                self.idle.on_completion(&mut self.io, completion);
            }
        }
        self.active.expire(&mut self.io, now);
        if !self.reported_idle_held && self.idle.counts.asked > 0 && self.idle.is_prepared() {
            self.reported_idle_held = true;
            self.report(WorkerUpdate::IdleHeld(self.idle.counts));
        }
        Ok(!self.shared.stop.is_raised())
    }

    fn report_interval_end(&mut self) {
        let interval = self.shared.report_interval;
        if self.start.is_some() {
            self.reported_intervals += 1;
            self.report_slice(interval, false);
        } else {
            self.report(WorkerUpdate::Preparing(self.idle.counts));
        }
        self.interval_end = self.interval_end + interval;
    }

    /// Tells what came in the interval that ends, which was of this length.
    fn report_slice(&mut self, length: Duration, draining: bool) {
        let tally = &mut self.active.stats;
        let latency = (!tally.latency.is_empty()).then(|| {
            let spare = self.free_histograms.try_recv().unwrap_or_default();
            std::mem::replace(&mut tally.latency, spare)
        });
        let slice = Slice {
            length,
            draining,
            counts: tally.counts,
            latency,
            idle: self.idle.counts,
            connections: self.active.open() as u64,
        };
        self.report(WorkerUpdate::Slice(Box::new(slice)));
    }

    fn report(&self, told: WorkerUpdate) {
        // Nobody listens only where the load has failed.
        let _ = self.updates.send((self.index, told));
    }
}
