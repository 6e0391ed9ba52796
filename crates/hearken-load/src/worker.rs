//! The event loop of a thread: sends what is due and records what has happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use hearken::io::Io;
use hearken::timer::Time;

use crate::active_connections::{ActiveConnections, cost};
use crate::arrivals::Schedule;
use crate::config::LoadError;
use crate::histogram::Histogram;
use crate::idle_connections::IdleConnections;
use crate::recorder::{Slice, UpdateSink, WorkerUpdate};
use crate::side_connections::{SideConnections, SideResults};
use crate::statistics::Statistics;
use crate::stop::StopSignal;

/// Maximum cost of the arrivals of a turn, so that replies do not starve under overload. It allows
/// for 256 requests on open connections.
const MAX_TURN_COST: u32 = 256 * cost::SENT;

/// Delay of the arrivals from which on the generator is behind its schedule, and the time for which
/// it may stay behind before it skips arrivals. A short interruption skips none.
pub(crate) const MAX_DELAY: Duration = Duration::from_millis(250);

/// Number of completions after which the loop checks whether the load was stopped.
const COMPLETIONS_PER_CHECK: u32 = 256;
/// Time limit of the close handshakes at the end of the load.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// State shared by the threads of a load.
#[derive(Debug)]
pub(crate) struct SharedState {
    /// Start of the load in nanoseconds, or 0 until it is known.
    pub(crate) start_nanos: AtomicU64,
    pub(crate) stop: StopSignal,
    /// Whether the workload is finite, and whether all threads have finished it.
    pub(crate) finite: bool,
    pub(crate) finished: AtomicBool,
    /// Duration of the arrivals, or `None` to send until the workload is exhausted.
    pub(crate) duration: Option<Duration>,
    pub(crate) report_interval: Duration,
    /// Maximum time without progress when opening connections before the start.
    pub(crate) prepare_timeout: Duration,
    /// Returns the CPU time of the current thread so far.
    pub(crate) cpu_time: fn() -> Duration,
}

/// A time later than all others.
pub(crate) const NEVER: Time = Time::from_nanos(u64::MAX);

/// A short time, to avoid a division by zero.
const CLOCK_TICK: Duration = Duration::from_nanos(1);

/// The event loop of a thread.
#[derive(Debug)]
pub(crate) struct Worker<I, U> {
    pub(crate) io: I,
    /// Index of the thread.
    pub(crate) index: usize,
    pub(crate) active: ActiveConnections,
    pub(crate) idle: IdleConnections,
    pub(crate) side: SideConnections,
    pub(crate) schedule: Schedule,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) updates: U,
    /// Empty histograms that replace reported ones.
    pub(crate) free_histograms: Receiver<Box<Histogram>>,
    /// Start of the load, once it has started.
    pub(crate) start: Option<Time>,
    /// Next arrival, and whether there are no more.
    pub(crate) next_arrival: Option<Time>,
    pub(crate) exhausted: bool,
    /// Time since which the generator has been behind its schedule.
    pub(crate) behind_since: Option<Time>,
    /// Time at which to measure the usual reply time.
    pub(crate) measure_at: Time,
    /// CPU usage of the thread while requests were scheduled, as a fraction of a processor.
    pub(crate) cpu_utilisation: f64,
    /// End of the current interval.
    pub(crate) interval_end: Time,
    pub(crate) reported_intervals: u32,
    /// Whether the thread has reported that all idle connections are established.
    pub(crate) reported_idle_held: bool,
}

/// The result of a thread.
#[derive(Debug)]
pub(crate) struct WorkerResult {
    pub(crate) mechanism: &'static str,
    pub(crate) stats: Statistics,
    pub(crate) idle: IdleConnections,
    pub(crate) side: SideResults,
    /// Whether the run ended by itself.
    pub(crate) complete: bool,
    /// Time during which requests were scheduled.
    pub(crate) elapsed: Duration,
    /// CPU usage of the thread during that time, as a fraction of a processor.
    pub(crate) cpu_utilisation: f64,
    /// Highest number of connections that carried requests.
    pub(crate) peak_connections: usize,
}

impl<I: Io, U: UpdateSink> Worker<I, U> {
    /// Opens the connections, sends requests, and waits for the last replies.
    pub(crate) fn run(mut self, mechanism: &'static str) -> Result<WorkerResult, LoadError> {
        let (complete, elapsed) = match self.prepare()? {
            Some(start) => self.run_load(start)?,
            None => {
                // Connections were opened nevertheless.
                self.report_slice(Duration::ZERO, true);
                (false, Duration::ZERO)
            }
        };
        let side = self.side.results();
        self.close_side()?;
        Ok(WorkerResult {
            mechanism,
            peak_connections: self.active.peak_count(),
            stats: self.active.stats,
            idle: self.idle,
            side,
            complete,
            elapsed,
            cpu_utilisation: self.cpu_utilisation,
        })
    }

    /// Sends requests from `start` on. Returns whether the run ended by itself, and its duration.
    fn run_load(&mut self, start: Time) -> Result<(bool, Duration), LoadError> {
        let end = self.shared.duration.map_or(NEVER, |length| start + length);
        self.start = Some(start);
        self.interval_end = start + self.shared.report_interval;
        self.measure_at = self.shared.duration.map_or(NEVER, |length| start + length / 4);
        let cpu_time = (self.shared.cpu_time)();
        self.active.start(&mut self.io, end);
        self.schedule_next_arrival();
        let mut reported = false;
        // At least one turn: a late thread still sends everything that was due.
        let (mut running, now) = loop {
            if !reported && self.is_finished() {
                reported = true;
                // Idle connections stay open until the other threads have finished.
                self.report(WorkerUpdate::Finished);
            }
            let running = self.turn(Some(end))?;
            let now = self.io.now();
            // Send what was due, unless the generator is too far behind.
            let has_ended = now >= end && (self.next_arrival.is_none() || now >= end + MAX_DELAY);
            if !running || has_ended || self.shared.finished.load(Ordering::Acquire) {
                break (running, now);
            }
        };
        let until = now.min(end);
        self.skip_arrivals_before(until);
        self.active.on_last_arrival(until, now);
        let elapsed = until.duration_since(start);
        let used = (self.shared.cpu_time)().saturating_sub(cpu_time);
        self.cpu_utilisation = used.div_duration_f64(now.duration_since(start).max(CLOCK_TICK));
        let rest = elapsed.saturating_sub(self.shared.report_interval * self.reported_intervals);
        if !rest.is_zero() {
            self.report_slice(rest, false);
        }
        (self.next_arrival, self.interval_end, self.measure_at) = (None, NEVER, NEVER);
        // The loop ends, because the run cuts all requests off after the timeout.
        while running && self.active.stats.outstanding() > 0 {
            running = self.turn(None)?;
        }
        self.report_slice(self.io.now().duration_since(until), true);
        let endless = self.shared.duration.is_none() && !self.shared.finite;
        Ok((running || endless, elapsed))
    }

    /// Returns true once the workload is exhausted and all requests have an outcome.
    fn is_finished(&self) -> bool {
        self.exhausted && self.active.next_deadline().is_none() && self.active.stats.is_complete()
    }

    /// Opens connections before the start, as long as there is progress, and waits for the start.
    /// Returns the start time, or `None` if the load was stopped.
    fn prepare(&mut self) -> Result<Option<Time>, LoadError> {
        let timeout = self.shared.prepare_timeout;
        let (mut best, mut since) = (0, self.io.clock());
        while !(self.active.is_prepared() && self.idle.is_prepared() && self.side.is_prepared()) {
            if !self.turn(Some(since + timeout))? {
                return Ok(None);
            }
            let now = self.io.now();
            let so_far = self.active.stats.counts.connections_opened
                + self.idle.counts().open
                + self.side.established();
            if so_far > best {
                (best, since) = (so_far, now);
            } else if now.duration_since(since) >= timeout {
                break;
            }
        }
        self.report(WorkerUpdate::Prepared {
            missing: self.idle.counts().requested - self.idle.counts().open,
        });
        loop {
            let start = self.shared.start_nanos.load(Ordering::Acquire);
            let start = (start > 0).then_some(Time::from_nanos(start));
            if start.is_some_and(|start| start <= self.io.clock()) {
                return Ok(start);
            }
            if !self.turn(start)? {
                return Ok(None);
            }
        }
    }

    /// Performs the close handshakes of the connections at the side of the load. Does not wait for the
    /// server if the load was stopped.
    fn close_side(&mut self) -> Result<(), LoadError> {
        self.side.close(&mut self.io);
        let until = self.io.clock() + CLOSE_TIMEOUT;
        // All other results are complete. Later replies would be in no interval.
        while !self.side.is_closed() && self.io.now() < until && !self.shared.stop.is_raised() {
            self.wait(until)?;
            while let Some(completion) = self.io.next() {
                self.side.on_completion(&mut self.io, completion);
            }
        }
        Ok(())
    }

    /// Calculates the next arrival. There is none after the end of the run.
    fn schedule_next_arrival(&mut self) {
        let at = self.start.zip(self.schedule.next()).map(|(start, after)| start + after);
        self.next_arrival = at.filter(|&at| at < self.active.stats.last_arrival);
        self.exhausted |= at.is_none() && self.shared.finite;
    }

    /// Skips arrivals if the generator has been behind its schedule for too long. Otherwise its
    /// delay, memory and run time would grow without bound.
    fn check_delay(&mut self, now: Time) {
        let is_late = |&next: &Time| now.duration_since(next) > MAX_DELAY;
        if self.next_arrival.filter(is_late).is_none() {
            self.behind_since = None;
        } else if now.duration_since(*self.behind_since.get_or_insert(now)) > MAX_DELAY {
            self.behind_since = None;
            self.skip_arrivals_before(now);
        }
    }

    /// Skips the arrivals before `time`.
    fn skip_arrivals_before(&mut self, time: Time) {
        let Some(start) = self.start else { return };
        if self.next_arrival.is_none_or(|next| next >= time) {
            return;
        }
        let time = time.min(self.active.stats.last_arrival);
        let skipped = self.schedule.skip_until(time.duration_since(start)) + 1;
        self.active.skip(skipped);
        self.schedule_next_arrival();
    }

    /// Waits for events or the next deadline, at most until `until`, and handles them. Returns
    /// false if the load was stopped.
    fn turn(&mut self, until: Option<Time>) -> Result<bool, LoadError> {
        // Not `||`: all must make progress.
        let more = self.active.open_some(&mut self.io)
            | self.idle.open_some(&mut self.io)
            | self.side.open_some(&mut self.io);
        let at_once = more.then(|| self.io.now());
        let due = [
            until,
            self.next_arrival,
            self.active.next_deadline(),
            self.idle.next_deadline(),
            self.side.next_deadline(),
            at_once,
        ];
        let until = due.into_iter().flatten().fold(self.interval_end, Time::min);
        self.active.flush(&mut self.io);
        self.wait(until)?;
        let now = self.io.now();
        while now >= self.interval_end && self.interval_end <= self.active.stats.last_arrival {
            self.report_interval_end();
        }
        // Arrivals come first, so that they are late by no more than the wait. Those that become
        // due meanwhile are handled in the next turn. Otherwise replies would starve under
        // overload.
        let mut cost = 0;
        while let Some(scheduled) = self.next_arrival.filter(|&next| next <= now) {
            let Some(more) = self.active.on_arrival(&mut self.io, scheduled) else {
                (self.next_arrival, self.exhausted) = (None, true);
                self.active.end_requests_after(now);
                break;
            };
            self.schedule_next_arrival();
            cost += more;
            if cost >= MAX_TURN_COST {
                self.check_delay(now);
                break;
            }
        }
        let mut completions = 0u32;
        while let Some(completion) = self.io.next() {
            completions += 1;
            if completions.is_multiple_of(COMPLETIONS_PER_CHECK) && self.shared.stop.is_raised() {
                break;
            }
            if self.active.owns(completion.token) {
                self.active.on_completion(&mut self.io, completion);
            } else if self.idle.owns(completion.token) {
                self.idle.on_completion(&mut self.io, completion);
            } else {
                self.side.on_completion(&mut self.io, completion);
            }
        }
        self.active.expire(&mut self.io, now);
        if now >= self.measure_at {
            self.measure_at = NEVER;
            self.active.measure_usual_reply_time();
        }
        if !self.reported_idle_held && self.idle.counts().requested > 0 && self.idle.is_prepared() {
            self.reported_idle_held = true;
            self.report(WorkerUpdate::IdleHeld(self.idle.counts()));
        }
        Ok(!self.shared.stop.is_raised())
    }

    fn wait(&mut self, until: Time) -> Result<(), LoadError> {
        let failed = |source| LoadError::System { action: "wait for events", source };
        self.io.wait(Some(until)).map_err(failed)
    }

    fn report_interval_end(&mut self) {
        let interval = self.shared.report_interval;
        if self.start.is_some() {
            self.reported_intervals += 1;
            self.report_slice(interval, false);
        } else {
            self.report(WorkerUpdate::Preparing(self.idle.counts()));
        }
        self.interval_end = self.interval_end + interval;
    }

    /// Reports the interval that ends, of the given length.
    fn report_slice(&mut self, length: Duration, draining: bool) {
        let stats = &mut self.active.stats;
        let latency = (!stats.latency.is_empty()).then(|| {
            let spare = self.free_histograms.try_recv().unwrap_or_default();
            std::mem::replace(&mut stats.latency, spare)
        });
        let slice = Slice {
            length,
            draining,
            counts: stats.counts,
            latency,
            idle: self.idle.counts(),
            connections: self.active.open_count() as u64,
        };
        self.report(WorkerUpdate::Slice(Box::new(slice)));
    }

    fn report(&self, update: WorkerUpdate) {
        self.updates.update(self.index, update, &self.io);
    }
}
