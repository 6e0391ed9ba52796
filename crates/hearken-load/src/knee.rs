//! The knee: the highest rate at which a server still meets its objectives.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::config::LoadError;
use crate::report::{Model, Report};
use crate::slo::{ObjectiveResult, Objectives};
use crate::warning::MAX_LATENESS;

mod posterior;
mod search;
mod table;

pub use search::{Search, Step};

/// The value of [`Knee::schema`].
pub const SCHEMA: &str = "hearken-knee/1";

/// What a server is held to where nothing else is said.
pub const DEFAULT_OBJECTIVES: &str = "p99<50ms,errors<0.1%,rate>=99%";

/// The generator's lateness is a good part of the latency from one in so many.
const LATE_LATENCY_RATIO: u64 = 4;

/// A generator that uses so much of its processors has none left.
const MAX_CPU_USAGE: f64 = 0.95;

/// How a knee is searched for.
#[derive(Clone, PartialEq, Debug)]
pub struct KneeOptions {
    /// What each trial is to meet.
    pub objectives: Objectives,
    /// How long a trial is.
    pub trial: Duration,
    /// The rest before each.
    pub pause: Duration,
    /// The first rate that is tried, in arrivals per second.
    pub start: f64,
    /// The lowest.
    pub min_rate: f64,
    /// The highest.
    pub max_rate: f64,
    /// It ends when the 95 % interval is no wider than this part of the rate to each side.
    pub precision: f64,
    /// It ends after so many trials in any case, recoveries besides.
    pub max_trials: u32,
    /// It ends before it takes longer than this.
    pub max_time: Duration,
    /// Decides the order of the rates.
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
    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn check(&self) -> Result<(), LoadError> {
        let wrong = |reason| Err(LoadError::Config(reason));
        if !(0.001..=0.5).contains(&self.precision) {
            return wrong("the precision of a knee must be from 0.1% to 50%");
        }
        if !(1.0..=1e9).contains(&self.max_rate) {
            return wrong("the highest rate of a search must be from 1 to 1e9 requests per second");
        }
        if !(self.min_rate > 0.0 && self.min_rate <= self.max_rate && self.start > 0.0) {
            return wrong("a search must start above 0, and its lowest rate be below its highest");
        }
        if self.trial < Duration::from_millis(100) {
            return wrong("a trial must be at least 100 ms long");
        }
        Ok(())
    }
}

/// What was found. Serialises to the JSON result; displays as a table for people.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Knee {
    /// [`SCHEMA`].
    pub schema: String,
    /// The server that was asked, and for what.
    pub url: String,
    /// What arrives at its rate.
    pub model: Model,
    /// False if it was stopped before its time.
    pub complete: bool,
    /// What each trial was to meet.
    pub objectives: Objectives,
    /// The highest rate that meets them, in arrivals per second: half of the trials at it would.
    pub rate: f64,
    /// It is no lower than this with a probability of 97.5 %.
    pub low: f64,
    /// It is no higher than this with a probability of 97.5 %; nothing where it lies above what was
    /// tried.
    pub high: Option<f64>,
    /// What keeps it from being higher.
    pub limited_by: LimitedBy,
    /// How narrow the interval was to be, as a part of the rate to each side.
    pub precision: f64,
    /// What decided the order of the rates.
    pub seed: u64,
    /// How long it took, in seconds.
    pub elapsed_s: f64,
    /// What was tried, in the order of time.
    pub trials: Vec<Trial>,
    /// What else there is to say.
    pub notes: Vec<String>,
}

/// What keeps a rate from being higher.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitedBy {
    /// The server: this is its knee.
    Server,
    /// The generator, which cannot keep to a higher rate: the server's knee lies above.
    Generator,
    /// The highest rate that was to be tried: the server's knee lies above.
    MaxRate,
    /// Nothing: the objectives are not met at any rate.
    NeverMet,
    /// The search was ended before it was found out.
    Unfinished,
}

/// What a trial is to find out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Which order of magnitude it is.
    #[default]
    Bracket,
    /// Where the knee is.
    Edge,
    /// Whether the server has recovered from the trial before.
    Recovery,
}

/// A rate, offered for some time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Trial {
    /// Arrivals per second.
    pub rate: f64,
    /// What for.
    pub purpose: Purpose,
    /// Whether all objectives were met.
    pub met: bool,
    /// Each of them.
    pub judgements: Vec<ObjectiveResult>,
    /// Replies per second.
    pub reply_rate: f64,
    /// Half of the latencies are no longer, in nanoseconds.
    pub p50_ns: u64,
    /// 99 % are not.
    pub p99_ns: u64,
    /// 99 % of the requests were made no later than this after their time, in nanoseconds.
    pub lateness_p99_ns: u64,
    /// Requests whose time came.
    pub intended: u64,
    /// Requests that found no free connection at their time.
    pub waited: u64,
    /// Replies.
    pub replies: u64,
    /// Requests that failed.
    pub errors: u64,
    /// What part of its processors the generator used: of one for each of its threads.
    pub generator_busy: f64,
    /// Whether the generator is to blame for what it measured: it was later than it warns of, and
    /// that is a good part of the latency; or it had no processor, descriptor or port left.
    pub generator_late: bool,
}

impl Trial {
    /// What `report` says of it, and of a generator that used so much of its processors.
    pub fn from_report(report: &Report, objectives: &Objectives, busy: f64) -> Trial {
        let judgements = objectives.judge(report);
        let (lateness, latency) = (report.lateness_ns.p99, report.latency_ns.p99);
        let late = Duration::from_nanos(lateness) > MAX_LATENESS
            && lateness >= latency / LATE_LATENCY_RATIO;
        let short = report.errors.fd_unavail + report.errors.addr_unavail > 0;
        Trial {
            rate: report.offered_rate,
            purpose: Purpose::default(),
            met: judgements.iter().all(|judgement| judgement.met),
            judgements,
            reply_rate: report.reply_rate,
            p50_ns: report.latency_ns.p50,
            p99_ns: report.latency_ns.p99,
            lateness_p99_ns: report.lateness_ns.p99,
            intended: report.requests.intended,
            waited: report.requests.waited,
            replies: report.requests.replies,
            errors: report.requests.failed,
            generator_busy: busy,
            generator_late: late || short || busy >= MAX_CPU_USAGE,
        }
    }
}

/// Who offers the load of a search.
pub trait Trials {
    /// Offers `rate` arrivals per second for `duration`. A report that is not complete ends the
    /// search.
    ///
    /// # Errors
    /// Ends the search with the same error.
    fn run(&mut self, rate: f64, duration: Duration) -> Result<Report, LoadError>;

    /// Waits so long without load; false ends the search.
    fn pause(&mut self, time: Duration) -> bool;

    /// Is told what came of each.
    fn told(&mut self, trial: &Trial) {
        let _ = trial;
    }
}

/// Searches for the highest rate that meets the objectives, as [`Search`] describes.
///
/// # Errors
/// Options that make no sense, and what a trial fails with.
pub fn find_knee(options: &KneeOptions, trials: &mut dyn Trials) -> Result<Knee, LoadError> {
    options.check()?;
    let mut search = Search::new(options);
    let (mut url, mut model) = (String::new(), Model::default());
    let mut knee = loop {
        let (pause, rate, duration) = match search.step() {
            Step::Done(knee) => break *knee,
            Step::Try { pause, rate, duration, .. } => (pause, rate, duration),
        };
        let began = Instant::now();
        if !trials.pause(pause) {
            break search.result();
        }
        let (offered, used) = (Instant::now(), cpu_time());
        let report = trials.run(rate, duration)?;
        if !report.complete {
            break search.result();
        }
        let had = offered.elapsed().max(duration).as_secs_f64() * report.threads.max(1) as f64;
        let busy = cpu_time().saturating_sub(used).as_secs_f64() / had;
        search.record(Trial::from_report(&report, &options.objectives, busy), began.elapsed());
        (url, model) = (report.url, report.model);
        if let Some(trial) = search.last() {
            trials.told(trial);
        }
    };
    (knee.url, knee.model) = (url, model);
    let near = |trial: &&Trial| !trial.met && trial.rate <= knee.rate * 1.25;
    let failed = knee.trials.iter().filter(near).count();
    let waited = |trial: &&Trial| near(trial) && trial.waited * 10 > trial.intended;
    if failed > 0 && knee.trials.iter().filter(waited).count() * 2 > failed {
        knee.notes.push(
            "where it was not met, requests found no free connection and waited for one; where the \
             server could do more at a time, use more connections"
                .to_owned(),
        );
    }
    Ok(knee)
}

/// What this process has used so far.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}
