//! Sweeps of the offered rate: reply rate, errors and latency of a server below and above its
//! saturation.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bottleneck::Bottleneck;
use crate::config::LoadError;
use crate::estimate::Estimate;
use crate::report::{Model, Report};
use crate::trial_runner::{Finished, generator_late, generator_saturated, run_trial};

mod bars;
mod points;
mod recovery;
mod saturation;
mod schedule;
mod table;

pub use crate::trial_runner::TrialRunner;
pub use schedule::{Schedule, Step};

/// The value of [`Sweep::schema`].
pub const SCHEMA: &str = "hearken-sweep/1";

/// Default loads of the points, as fractions of saturation. They are denser around saturation.
pub const DEFAULT_LOADS: [f64; 16] =
    [0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0];

/// Maximum number of trials of points.
const MAX_TRIALS: usize = 10_000;

/// The part of a trial after which reply rates are measured. Before that, a server with a long
/// latency has not sent its first replies.
const WARM_UP: f64 = 0.5;

/// Options of a sweep.
#[derive(Clone, PartialEq, Debug)]
pub struct SweepOptions {
    /// Duration of a trial.
    pub trial: Duration,
    /// Pause before each trial.
    pub pause: Duration,
    /// Rate of the first trial, in arrivals per second.
    pub start: f64,
    /// Minimum rate of a trial.
    pub min_rate: f64,
    /// Maximum rate of a trial.
    pub max_rate: f64,
    /// Loads of the points, as fractions of saturation.
    pub loads: Vec<f64>,
    /// Number of trials of each point.
    pub repetitions: u32,
    /// Seed of the order of trials.
    pub seed: u64,
}

impl Default for SweepOptions {
    fn default() -> SweepOptions {
        SweepOptions {
            trial: Duration::from_secs(3),
            pause: Duration::from_secs(1),
            start: 100.0,
            min_rate: 1.0,
            max_rate: 1e6,
            loads: DEFAULT_LOADS.to_vec(),
            repetitions: 3,
            seed: 0,
        }
    }
}

impl SweepOptions {
    /// Checks that the options are consistent.
    ///
    /// # Errors
    /// Returns a description of the problem.
    pub fn check(&self) -> Result<(), LoadError> {
        let wrong = |reason| Err(LoadError::Config(reason));
        if !(1.0..=1e9).contains(&self.max_rate) {
            return wrong("the highest rate of a sweep must be from 1 to 1e9 requests per second");
        }
        if !(self.min_rate > 0.0 && self.min_rate <= self.max_rate && self.start > 0.0) {
            return wrong(
                "the start rate and the lowest rate of a sweep must be above 0, and the lowest rate at most \
                 the highest",
            );
        }
        if self.trial < Duration::from_millis(100) {
            return wrong("a trial must be at least 100 ms long");
        }
        if self.loads.is_empty() || !self.loads.iter().all(|load| (0.01..=10.0).contains(load)) {
            return wrong("the loads of a sweep must be from 1 % to 1,000 % of saturation");
        }
        if self.repetitions == 0 {
            return wrong("a sweep needs at least one trial of each point");
        }
        if self.loads.len().saturating_mul(self.repetitions as usize) > MAX_TRIALS {
            return wrong(
                "a sweep can have at most 10,000 trials; use fewer points or repetitions",
            );
        }
        Ok(())
    }

    /// Returns the approximate duration of a sweep of a server that recovers at once.
    pub fn estimated_duration(&self) -> Duration {
        let points = (self.loads.len() as u32).saturating_mul(self.repetitions);
        let of_point = self.trial + self.pause + self.trial / recovery::PROBE_PART;
        let of_search = (self.trial + self.pause).saturating_mul(saturation::USUAL_TRIALS);
        of_point.saturating_mul(points).saturating_add(of_search)
    }
}

/// The result of a sweep. It serialises to the JSON result and displays as a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sweep {
    /// Name and version of the format: [`SCHEMA`].
    pub schema: String,
    /// URL of the server.
    pub url: String,
    /// Unit of arrival.
    pub model: Model,
    /// Whether all points were measured that the generator can offer. False if the sweep was stopped,
    /// or if the server did not recover.
    pub complete: bool,
    /// Maximum number of concurrent connections for requests.
    pub connections: u64,
    /// Rate at saturation in arrivals per second: the lowest rate that yields the highest reply
    /// rate. If saturation was not reached, the highest rate that was offered.
    pub saturation_rate: f64,
    /// The highest reply rate in the search for saturation.
    pub saturation_reply_rate: f64,
    /// The limiting factor at saturation.
    pub limited_by: LimitedBy,
    /// Duration of a trial in seconds.
    pub trial_s: f64,
    /// Number of trials of each point.
    pub repetitions: u32,
    /// Seed of the order of trials.
    pub seed: u64,
    /// Duration of the sweep in seconds.
    pub elapsed_s: f64,
    /// The points by ascending rate.
    pub points: Vec<Point>,
    /// The trials in chronological order.
    pub trials: Vec<Trial>,
    /// Additional remarks.
    pub notes: Vec<String>,
}

/// The factor that limits the highest reply rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LimitedBy {
    /// The server.
    Server,
    /// The maximum number of connections, by the settings, descriptors or ports.
    Connections,
    /// The generator, which cannot offer a higher rate. The saturation of the server is higher.
    Generator,
    /// The maximum rate of the sweep. The saturation of the server is higher.
    MaxRate,
    /// None: no replies were received.
    NoReplies,
    /// Unknown: the sweep ended early.
    #[default]
    Unfinished,
}

/// An offered rate, with means over its trials.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Point {
    /// Offered rate in arrivals per second.
    pub rate: f64,
    /// Offered rate as a fraction of [`Sweep::saturation_rate`].
    pub load: f64,
    /// Number of trials from which the means were computed. Trials before which the server had not
    /// recovered are excluded.
    pub trials: u64,
    /// Replies per second.
    pub reply_rate: Estimate,
    /// Failed requests as a fraction of the scheduled ones.
    pub error_share: Estimate,
    /// Requests that the generator could not send, as a fraction of the scheduled ones.
    pub missed_share: Estimate,
    /// Median latency of the replies in nanoseconds, if there were any.
    pub p50_ns: Option<Estimate>,
    /// 99th percentile of the latency of the replies in nanoseconds, if there were any.
    pub p99_ns: Option<Estimate>,
    /// Time in seconds until the server had recovered from a trial, if it always recovered.
    pub recovery_s: Option<Estimate>,
    /// Number of trials from which the server did not recover.
    pub unrecovered: u64,
    /// Whether the generator could not offer the rate in one of the trials.
    pub generator_limited: bool,
}

/// The purpose of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Purpose {
    /// Find the order of magnitude of saturation.
    #[default]
    Bracket,
    /// Locate saturation.
    Refine,
    /// Measure the server at a low rate, for comparison with recovery trials.
    Reference,
    /// Measure a point.
    Point,
    /// Check whether the server has recovered from the previous trial.
    Recovery,
}

/// A trial: a rate offered for some time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Trial {
    /// Offered rate in arrivals per second.
    pub rate: f64,
    /// Purpose of the trial.
    pub purpose: Purpose,
    /// Requests scheduled per second in the second half of the trial.
    pub request_rate: f64,
    /// Replies per second in the second half of the trial.
    pub reply_rate: f64,
    /// Median latency of the replies in nanoseconds.
    pub p50_ns: u64,
    /// 90th percentile of the latency of the replies in nanoseconds.
    pub p90_ns: u64,
    /// 99th percentile of the latency of the replies in nanoseconds.
    pub p99_ns: u64,
    /// 99th percentile of the generator's lateness in nanoseconds.
    pub lateness_p99_ns: u64,
    /// Number of requests scheduled.
    pub scheduled: u64,
    /// Number of replies.
    pub replies: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// Number of requests that the generator could not send.
    pub missed: u64,
    /// The part of the system that limited the reply rate.
    pub bottleneck: Bottleneck,
    /// CPU usage of the generator, as a fraction of one processor per thread.
    pub generator_cpu_utilisation: f64,
    /// Whether the generator could not offer the rate: it ran out of CPU time, descriptors or ports.
    pub generator_limited: bool,
    /// Whether the lateness of the generator was a large part of the latency.
    pub generator_late: bool,
    /// Whether the server had recovered before the trial. For a recovery trial, its result.
    pub recovered: bool,
    /// Time in seconds from the trial until the server had recovered, if it did. For points.
    pub recovery_s: Option<f64>,
}

impl Trial {
    /// Creates a trial from the report of its run and the generator's CPU usage.
    pub fn from_report(report: &Report, busy: f64) -> Trial {
        let (request_rate, reply_rate) = steady_rates(report);
        let latency = &report.latency_ns;
        Trial {
            rate: report.offered_rate,
            request_rate,
            reply_rate,
            p50_ns: latency.p50,
            p90_ns: latency.p90,
            p99_ns: latency.p99,
            lateness_p99_ns: report.lateness_ns.p99,
            scheduled: report.requests.scheduled,
            replies: report.requests.replies,
            failed: report.requests.failed,
            missed: report.requests.missed,
            bottleneck: report.bottleneck,
            generator_cpu_utilisation: busy.max(report.generator_cpu_utilisation),
            generator_limited: generator_saturated(report, busy),
            generator_late: generator_late(report),
            recovered: true,
            ..Trial::default()
        }
    }

    /// Returns `count` as a fraction of the scheduled requests.
    fn share(&self, count: u64) -> f64 {
        if self.scheduled == 0 { 0.0 } else { count as f64 / self.scheduled as f64 }
    }
}

/// Returns the requests and the replies per second in the second half of a load, from its intervals.
/// Without intervals, returns the rates of the whole load.
fn steady_rates(report: &Report) -> (f64, f64) {
    let start = report.duration_s * WARM_UP;
    let steady = || {
        // Half an interval of tolerance, because intervals do not end at exact times.
        let begins_late = |offset: f64, length: f64| offset + length / 2.0 >= start;
        let all = report.intervals.iter().filter(|interval| !interval.draining);
        all.filter(move |interval| begins_late(interval.offset_s, interval.duration_s))
    };
    let seconds: f64 = steady().map(|interval| interval.duration_s).sum();
    if seconds > 0.0 {
        let per_second = |count: u64| count as f64 / seconds;
        let requests = steady().map(|interval| interval.scheduled).sum();
        let replies = steady().map(|interval| interval.replies).sum();
        (per_second(requests), per_second(replies))
    } else {
        (report.offered_rate, report.reply_rate)
    }
}

/// Finds the saturation of a server and measures it at rates below and above, see [`Schedule`].
///
/// The rates of replies are measured in the second half of each trial from the intervals of its
/// report. A tenth of the trial is a suitable length of these intervals.
///
/// # Errors
/// Invalid options, and errors of the trials.
pub fn sweep(
    options: &SweepOptions,
    trials: &mut dyn TrialRunner<Trial>,
) -> Result<Sweep, LoadError> {
    options.check()?;
    let mut schedule = Schedule::new(options);
    let (mut url, mut model, mut connections) = (String::new(), Model::default(), 0);
    let mut sweep = loop {
        let (pause, rate, duration) = match schedule.step() {
            Step::Done(sweep) => break *sweep,
            Step::Try { pause, rate, duration, .. } => (pause, rate, duration),
        };
        let Some(Finished { report, busy, took }) = run_trial(trials, pause, rate, duration)?
        else {
            break schedule.result();
        };
        schedule.record(Trial::from_report(&report, busy), took);
        (url, model, connections) = (report.url, report.model, report.connections);
        if let Some(trial) = schedule.last() {
            trials.on_trial(trial);
        }
    };
    (sweep.url, sweep.model, sweep.connections) = (url, model, connections);
    Ok(sweep)
}
