//! The search for the knee: the maximum rate at which a server meets its objectives.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::LoadError;
use crate::report::{Model, Report};
use crate::slo::{ObjectiveResult, Objectives};
use crate::trial_runner::{Finished, generator_late, generator_saturated, run_trial};

mod posterior;
mod search;
mod table;

pub use crate::trial_runner::TrialRunner;
pub use search::{Search, Step};
pub(crate) use table::Rate;

/// The value of [`Knee::schema`].
pub const SCHEMA: &str = "hearken-knee/2";

/// Default objectives of a search.
pub const DEFAULT_OBJECTIVES: &str = "p99<50ms,errors<0.1%,rate>=99%";

/// Options of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct KneeOptions {
    /// Objectives of each trial.
    pub objectives: Objectives,
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
    /// Target precision: the search ends when each side of the 95 % interval is within this
    /// fraction of the rate.
    pub precision: f64,
    /// Maximum number of trials, not counting recovery trials.
    pub max_trials: u32,
    /// Maximum duration of the search.
    pub max_time: Duration,
    /// Seed of the order of rates.
    pub seed: u64,
}

impl Default for KneeOptions {
    fn default() -> KneeOptions {
        KneeOptions {
            objectives: DEFAULT_OBJECTIVES.parse().unwrap_or_default(),
            trial: Duration::from_secs(3),
            pause: Duration::from_secs(1),
            start: 100.0,
            min_rate: 1.0,
            max_rate: 1e6,
            precision: 0.02,
            max_trials: 60,
            max_time: Duration::from_secs(900),
            seed: 0,
        }
    }
}

impl KneeOptions {
    /// Checks that the options are consistent.
    ///
    /// # Errors
    /// Returns a description of the problem.
    pub fn check(&self) -> Result<(), LoadError> {
        let wrong = |reason| Err(LoadError::Config(reason));
        if !(0.001..=0.5).contains(&self.precision) {
            return wrong("the precision of a knee must be from 0.1% to 50%");
        }
        if !(1.0..=1e9).contains(&self.max_rate) {
            return wrong("the highest rate of a search must be from 1 to 1e9 requests per second");
        }
        if !(self.min_rate > 0.0 && self.min_rate <= self.max_rate && self.start > 0.0) {
            return wrong(
                "the start rate and the lowest rate of a search must be above 0, and the lowest rate at most \
                 the highest",
            );
        }
        if self.trial < Duration::from_millis(100) {
            return wrong("a trial must be at least 100 ms long");
        }
        Ok(())
    }
}

/// The result of a search. It serialises to the JSON result and displays as a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Knee {
    /// Name and version of the format: [`SCHEMA`].
    pub schema: String,
    /// URL of the server.
    pub url: String,
    /// Unit of arrival.
    pub model: Model,
    /// Whether the search ended by itself. False if it was stopped.
    pub complete: bool,
    /// Objectives of each trial.
    pub objectives: Objectives,
    /// Maximum rate that meets the objectives, in arrivals per second. Half of the trials at this
    /// rate would meet them.
    pub rate: f64,
    /// Lower bound of the rate with 97.5 % probability.
    pub rate_low: f64,
    /// Upper bound of the rate with 97.5 % probability, or `None` if it exceeds the rates that were
    /// tried.
    pub rate_high: Option<f64>,
    /// The limiting factor.
    pub limited_by: LimitedBy,
    /// Target precision, as a fraction of the rate to each side.
    pub precision: f64,
    /// Seed of the order of rates.
    pub seed: u64,
    /// Duration of the search in seconds.
    pub elapsed_s: f64,
    /// The trials in chronological order.
    pub trials: Vec<Trial>,
    /// Additional remarks.
    pub notes: Vec<String>,
}

/// The factor that limits the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LimitedBy {
    /// The server: this is its knee.
    Server,
    /// The generator, which cannot sustain a higher rate. The server's knee is higher.
    Generator,
    /// The maximum rate of the search. The server's knee is higher.
    MaxRate,
    /// None: no rate meets the objectives.
    NeverMet,
    /// Unknown: the search ended early.
    Unfinished,
}

/// The purpose of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Purpose {
    /// Find the order of magnitude of the knee.
    #[default]
    Bracket,
    /// Locate the knee.
    Refine,
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
    /// Whether all objectives were met.
    pub passed: bool,
    /// Results of the objectives.
    pub objective_results: Vec<ObjectiveResult>,
    /// Replies per second.
    pub reply_rate: f64,
    /// Median latency in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the latency in nanoseconds.
    pub p99_ns: u64,
    /// 99th percentile of the generator's lateness in nanoseconds.
    pub lateness_p99_ns: u64,
    /// Number of requests scheduled.
    pub scheduled: u64,
    /// Number of requests that found no available connection at their scheduled time.
    pub queued: u64,
    /// Number of replies.
    pub replies: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// CPU usage of the generator, as a fraction of one processor per thread.
    pub generator_cpu_utilisation: f64,
    /// Whether the generator limited the result. Either its lateness exceeded 1 ms and was a large
    /// part of the latency, or it ran out of CPU time, descriptors or ports.
    pub generator_limited: bool,
}

impl Trial {
    /// Creates a trial from the report of its run and the generator's CPU usage.
    pub fn from_report(report: &Report, objectives: &Objectives, busy: f64) -> Trial {
        let objective_results = objectives.evaluate(report);
        Trial {
            rate: report.offered_rate,
            purpose: Purpose::default(),
            passed: objective_results.iter().all(|judgement| judgement.passed),
            objective_results,
            reply_rate: report.reply_rate,
            p50_ns: report.latency_ns.p50,
            p99_ns: report.latency_ns.p99,
            lateness_p99_ns: report.lateness_ns.p99,
            scheduled: report.requests.scheduled,
            queued: report.requests.queued,
            replies: report.requests.replies,
            failed: report.requests.failed,
            generator_cpu_utilisation: busy,
            generator_limited: generator_late(report) || generator_saturated(report, busy),
        }
    }
}

/// Searches for the maximum rate that meets the objectives, see [`Search`].
///
/// # Errors
/// Invalid options, and errors of the trials.
pub fn find_knee(options: &KneeOptions, trials: &mut dyn TrialRunner) -> Result<Knee, LoadError> {
    options.check()?;
    let mut search = Search::new(options);
    let (mut url, mut model) = (String::new(), Model::default());
    let mut knee = loop {
        let (pause, rate, duration) = match search.step() {
            Step::Done(knee) => break *knee,
            Step::Try { pause, rate, duration, .. } => (pause, rate, duration),
        };
        let Some(Finished { report, busy, took }) = run_trial(trials, pause, rate, duration)?
        else {
            break search.result();
        };
        search.record(Trial::from_report(&report, &options.objectives, busy), took);
        (url, model) = (report.url, report.model);
        if let Some(trial) = search.last() {
            trials.on_trial(trial);
        }
    };
    (knee.url, knee.model) = (url, model);
    let near = |trial: &&Trial| !trial.passed && trial.rate <= knee.rate * 1.25;
    let failed = knee.trials.iter().filter(near).count();
    let waited = |trial: &&Trial| near(trial) && trial.queued * 10 > trial.scheduled;
    if failed > 0 && knee.trials.iter().filter(waited).count() * 2 > failed {
        knee.notes.push(
            "where the objectives were not met, most requests waited for an available connection; use \
             more connections if the server can handle more concurrent requests"
                .to_owned(),
        );
    }
    Ok(knee)
}
