//! The schedule of a sweep, which selects the next trial. It uses no server and no clock.

use std::time::Duration;

use super::recovery::{Level, MAX_PROBES, PROBE_LOAD, Recovery, probe_duration};
use super::saturation::Saturation;
use super::{LimitedBy, Purpose, SCHEMA, Sweep, SweepOptions, Trial, points};
use crate::report::Model;
use crate::trial_runner;

/// A trial that only finds the order of magnitude lasts a trial divided by this.
const BRACKET_PART: u32 = 3;

/// A trial lasts this many times the latency of the server. Its second half then contains replies, even
/// if they come in waves.
const LATENCIES: u32 = 6;

/// Maximum duration to which trials are extended for a long latency.
const MAX_TRIAL: Duration = Duration::from_secs(60);

/// Number of reference trials. The highest level counts, because short trials differ by chance.
const REFERENCES: u32 = 3;

/// Number of trials in sequence from which the server does not recover, after which the sweep ends.
const MAX_UNRECOVERED: u32 = 2;

/// Number of trials in which the generator cannot offer a rate, after which the sweep ends there.
const MAX_LIMITED: usize = 2;

/// The next step of a sweep.
pub type Step = trial_runner::Step<Purpose, Sweep>;

/// A sweep of the offered rate in three phases.
///
/// The first phase finds saturation: the rate doubles until the reply rate stops growing, then a
/// golden section search locates the highest reply rate. The second phase measures the server at a
/// tenth of saturation, as the reference for its recovery. The third phase measures the points. Each
/// repetition runs all of them in random order, so that changes over time are not attributed to the
/// rate.
///
/// After a trial of a point and after each overload, the schedule pauses and runs a recovery trial at
/// a tenth of saturation. It repeats that with growing pauses until latency and errors are back at the
/// level of the reference.
///
/// ```
/// use hearken_load::sweep::{Schedule, Step, SweepOptions, Trial};
///
/// let mut schedule = Schedule::new(&SweepOptions::default());
/// let sweep = loop {
///     match schedule.step() {
///         Step::Try { pause, rate, duration, .. } => {
///             let reply_rate = rate.min(5000.0);
///             let [scheduled, replies] =
///                 [rate, reply_rate].map(|rate| (rate * duration.as_secs_f64()) as u64);
///             let trial = Trial { request_rate: rate, reply_rate, scheduled, replies, ..Trial::default() };
///             schedule.record(trial, pause + duration);
///         }
///         Step::Done(sweep) => break sweep,
///     }
/// };
/// assert!((4900.0..5100.0).contains(&sweep.saturation_rate));
/// assert_eq!(sweep.points.len(), 16);
/// ```
#[derive(Debug)]
pub struct Schedule {
    options: SweepOptions,
    phase: Phase,
    saturation: Saturation,
    /// Duration of a trial that only finds the order of magnitude.
    short_trial: Duration,
    /// Whether the trials are long enough for the latency of the server, once it is known.
    calibrated: bool,
    /// Latency of the last trial before that, which was at a higher rate.
    latency: Option<Duration>,
    /// Level at which the server has recovered, once it is known.
    level: Option<Level>,
    recovery: Option<Recovery>,
    /// Number of trials in sequence from which the server did not recover.
    unrecovered: u32,
    /// Rates of the trials of points, the next one last.
    remaining: Vec<f64>,
    /// The trial whose result is awaited.
    pending: Option<Pending>,
    trials: Vec<Trial>,
    elapsed: Duration,
    notes: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Search,
    /// Measures the reference for the recovery; the number of trials done.
    Reference(u32),
    Points,
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    pause: Duration,
    rate: f64,
    duration: Duration,
    purpose: Purpose,
}

impl Schedule {
    /// Creates the schedule of a sweep.
    pub fn new(options: &SweepOptions) -> Schedule {
        let SweepOptions { start, min_rate, max_rate, trial, .. } = *options;
        Schedule {
            options: options.clone(),
            phase: Phase::Search,
            saturation: Saturation::new(start, min_rate, max_rate),
            short_trial: (trial / BRACKET_PART).max(Duration::from_millis(100)).min(trial),
            calibrated: false,
            latency: None,
            level: None,
            recovery: None,
            unrecovered: 0,
            remaining: Vec::new(),
            pending: None,
            trials: Vec::new(),
            elapsed: Duration::ZERO,
            notes: Vec::new(),
        }
    }

    /// Returns the next step. It stays the same until [`record`](Schedule::record) is called.
    pub fn step(&mut self) -> Step {
        if self.phase == Phase::Over {
            return Step::Done(Box::new(self.result()));
        }
        let Pending { pause, rate, duration, purpose } = match self.pending {
            Some(pending) => pending,
            None => self.next(),
        };
        self.pending = Some(Pending { pause, rate, duration, purpose });
        Step::Try { pause, rate, duration, purpose }
    }

    fn next(&self) -> Pending {
        let SweepOptions { pause, trial, .. } = self.options;
        let low_rate = (self.saturation.result().0 * PROBE_LOAD).max(self.options.min_rate);
        if let Some(recovery) = &self.recovery {
            return Pending {
                pause: pause * 2u32.saturating_pow(recovery.failures),
                rate: low_rate,
                duration: probe_duration(trial, low_rate),
                purpose: Purpose::Recovery,
            };
        }
        match self.phase {
            Phase::Search => {
                let (rate, purpose) = self.saturation.next();
                let duration = if purpose == Purpose::Bracket { self.short_trial } else { trial };
                Pending { pause, rate, duration, purpose }
            }
            Phase::Reference(_) => {
                let duration = probe_duration(trial, low_rate);
                Pending { pause, rate: low_rate, duration, purpose: Purpose::Reference }
            }
            Phase::Points | Phase::Over => {
                // The reference or a recovery trial came before.
                let rate = self.remaining.last().copied().unwrap_or(low_rate);
                Pending { pause: Duration::ZERO, rate, duration: trial, purpose: Purpose::Point }
            }
        }
    }

    /// Records the result of the last step, which took `took` including its pause. The rate, the
    /// purpose and the recovery of `trial` are filled in.
    pub fn record(&mut self, mut trial: Trial, took: Duration) {
        let Some(Pending { pause, rate, duration, purpose }) = self.pending.take() else { return };
        self.elapsed += took;
        (trial.rate, trial.purpose, trial.recovery_s) = (rate, purpose, None);
        trial.recovered = self.unrecovered == 0;
        match purpose {
            Purpose::Recovery => self.record_recovery(&mut trial, pause, took),
            Purpose::Bracket if !self.is_calibrated(&trial) => {}
            Purpose::Bracket | Purpose::Refine => {
                self.saturation.record(&trial, duration.as_secs_f64());
                let follows = self.saturation.follows(&trial);
                if self.level.is_none() && follows && trial.replies > 0 {
                    self.level = Some(Level::of(&trial));
                } else if self.level.is_some() && !follows {
                    self.recover(None);
                }
                match self.saturation.outcome() {
                    None => {}
                    Some(_) if self.saturation.result().0 > 0.0 => {
                        self.phase = Phase::Reference(0);
                    }
                    Some(_) => self.phase = Phase::Over,
                }
            }
            Purpose::Reference => {
                let done = if let Phase::Reference(done) = self.phase { done } else { 0 };
                let earlier = self.level.filter(|_| done > 0);
                let level = Level::of(&trial);
                self.level = Some(earlier.map_or(level, |earlier| earlier.max(level)));
                self.phase = Phase::Reference(done + 1);
                if done + 1 == REFERENCES {
                    self.plan_points();
                    self.phase = Phase::Points;
                }
            }
            Purpose::Point => {
                self.remaining.pop();
                self.recover(Some(self.trials.len()));
            }
        }
        let ceiling = purpose == Purpose::Point && trial.generator_limited;
        self.trials.push(trial);
        if ceiling {
            self.end_at_ceiling(rate);
        }
        if self.phase == Phase::Points && self.remaining.is_empty() && self.recovery.is_none() {
            self.phase = Phase::Over;
        }
    }

    /// Returns whether trials are long enough for the latency of the server. Otherwise, selects a lower
    /// rate, at which a server that is overloaded has a shorter latency, or extends the trials.
    fn is_calibrated(&mut self, trial: &Trial) -> bool {
        let latency = Duration::from_nanos(trial.p90_ns);
        let needed = latency.saturating_mul(LATENCIES).min(MAX_TRIAL);
        if self.calibrated || trial.replies == 0 {
            return true;
        }
        if needed <= self.short_trial {
            self.calibrated = true;
            return true;
        }
        let min_rate = self.options.min_rate;
        let overloaded = self.latency.is_none_or(|earlier| latency < earlier / 2);
        if overloaded && trial.rate > min_rate {
            self.latency = Some(latency);
            self.saturation.restart((trial.rate / 10.0).max(min_rate));
            return false;
        }
        self.calibrated = true;
        self.short_trial = needed;
        self.saturation.restart(trial.rate);
        if needed > self.options.trial {
            self.notes.push(format!(
                "trials were extended from {:.1} s to {:.1} s, because the latency of the server is {:.1} s",
                self.options.trial.as_secs_f64(),
                needed.as_secs_f64(),
                latency.as_secs_f64()
            ));
            self.options.trial = needed;
        }
        false
    }

    fn recover(&mut self, point: Option<usize>) {
        self.recovery = Some(Recovery { point, failures: 0, elapsed: Duration::ZERO });
    }

    fn record_recovery(&mut self, trial: &mut Trial, pause: Duration, took: Duration) {
        let Some(recovery) = &mut self.recovery else { return };
        trial.recovered = self.level.is_some_and(|level| level.is_reached(trial));
        if trial.recovered {
            let time = (recovery.elapsed + pause).as_secs_f64();
            if let Some(point) = recovery.point.and_then(|point| self.trials.get_mut(point)) {
                point.recovery_s = Some(time);
            }
            self.unrecovered = 0;
            self.recovery = None;
            return;
        }
        recovery.elapsed += took;
        recovery.failures += 1;
        if recovery.failures == MAX_PROBES {
            let seconds = recovery.elapsed.as_secs_f64();
            self.recovery = None;
            self.unrecovered += 1;
            if self.unrecovered == MAX_UNRECOVERED {
                self.notes.push(format!(
                    "the sweep ended early: after {MAX_UNRECOVERED} trials in sequence, the server did \
                     not recover within {seconds:.0} s"
                ));
                self.phase = Phase::Over;
            }
        }
    }

    /// Plans the trials of the points, each repetition in random order.
    fn plan_points(&mut self) {
        let mut random = fastrand::Rng::with_seed(self.options.seed);
        let base = self.saturation.result().0;
        let reached =
            matches!(self.saturation.outcome(), Some(LimitedBy::Server | LimitedBy::Connections));
        let top = if reached { self.options.max_rate } else { base };
        let ceiling = self.saturation.ceiling().unwrap_or(f64::INFINITY);
        let rates = self.options.loads.iter().map(|load| load * base);
        let mut rates: Vec<f64> = rates.filter(|&rate| rate <= top && rate < ceiling).collect();
        if reached && rates.len() < self.options.loads.len() {
            let limit = top.min(ceiling);
            self.notes.push(format!(
                "points from {limit:.0} per second on are omitted, because the {}",
                if ceiling <= top {
                    "generator cannot offer such rates"
                } else {
                    "maximum rate is lower"
                }
            ));
        }
        for _ in 0..self.options.repetitions {
            random.shuffle(&mut rates);
            self.remaining.extend(&rates);
        }
    }

    /// Ends the sweep below a rate if the generator could not offer it repeatedly.
    fn end_at_ceiling(&mut self, rate: f64) {
        let is_limited = |trial: &&Trial| {
            trial.purpose == Purpose::Point && trial.rate == rate && trial.generator_limited
        };
        let limited = self.trials.iter().filter(is_limited).count();
        if limited >= MAX_LIMITED.min(self.options.repetitions as usize) {
            self.remaining.retain(|&other| other < rate);
            self.notes.push(format!(
                "the generator cannot offer {rate:.0} per second; the sweep ends there"
            ));
        }
    }

    /// Returns the last recorded trial.
    pub fn last(&self) -> Option<&Trial> {
        self.trials.last()
    }

    /// Returns the sweep as far as it has run.
    pub fn result(&self) -> Sweep {
        let (rate, reply_rate) = self.saturation.result();
        let limited_by = self.saturation.outcome().unwrap_or_default();
        let mut notes = self.notes.clone();
        notes.extend(points::notes(&self.trials, limited_by, self.options.trial));
        Sweep {
            schema: SCHEMA.to_owned(),
            url: String::new(),
            model: Model::default(),
            complete: self.phase == Phase::Over && self.unrecovered < MAX_UNRECOVERED,
            connections: 0,
            saturation_rate: rate,
            saturation_reply_rate: reply_rate,
            limited_by,
            trial_s: self.options.trial.as_secs_f64(),
            repetitions: self.options.repetitions,
            seed: self.options.seed,
            elapsed_s: self.elapsed.as_secs_f64(),
            points: points::points(&self.trials, rate),
            trials: self.trials.clone(),
            notes,
        }
    }
}
