//! Settings and plan of the quick experiment.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hearken::descriptors;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::run::PlannedTrial;
use crate::warning::Warning;

/// Descriptors reserved for standard streams, files and the event queue.
pub(crate) const RESERVED_DESCRIPTORS: u64 = 64;
/// Approximate time to start and stop the processes of a measurement.
const SETUP_TIME: Duration = Duration::from_millis(350);

/// Configuration of [`quick`](crate::quick).
#[derive(Clone, Debug)]
pub struct QuickConfig {
    /// Path of `hearken`, usually `std::env::current_exe()`.
    pub executable: PathBuf,
    /// Command line, for the report.
    pub command_line: Vec<String>,
    /// Version of Hearken, for the report.
    pub version: String,
    /// Settings of the experiment.
    pub settings: Settings,
}

/// Parameters of the experiment, as stored in the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Names of mechanisms, as accepted by `serve --events`.
    pub mechanisms: Vec<String>,
    /// Numbers of idle connections.
    pub idle: Vec<u64>,
    /// Number of measurements of each pair of mechanism and idle connections.
    pub repetitions: u32,
    /// Offered load in requests per second.
    pub rate: f64,
    /// Duration in seconds of the pass that measures CPU time and latency.
    pub duration_s: f64,
    /// Duration in seconds of each of the two passes with counters: the warm-up, and the pass with one
    /// connection per request.
    pub counters_s: f64,
    /// Number of connections that carry requests.
    pub connections: u64,
    /// Requested document: `1b` (one byte) or `6k` (6 KiB).
    pub document: String,
    /// Mechanism that the others are compared with.
    pub reference: String,
    /// Seed of the order of measurements and of the arrivals.
    pub seed: u64,
}

impl Default for Settings {
    /// Returns settings for a run of two to three minutes with every mechanism on two processors.
    fn default() -> Self {
        Settings {
            mechanisms: ["select", "poll", "epoll-level", "epoll-edge", "epoll-once"]
                .map(String::from)
                .to_vec(),
            idle: vec![0, 2000, 8000],
            repetitions: 3,
            // Low enough for poll with 8,000 idle connections.
            rate: 1000.0,
            duration_s: 0.7,
            counters_s: 0.25,
            connections: 50,
            document: "1b".into(),
            reference: "epoll-edge".into(),
            seed: 1,
        }
    }
}

impl Settings {
    /// Checks the settings and returns an error if they are invalid.
    pub fn check(&self) -> Result<(), LabError> {
        let positive = |x: f64| x.is_finite() && x > 0.0;
        let wrong = if self.mechanisms.is_empty() {
            "at least one mechanism is required"
        } else if self.idle.is_empty() {
            "at least one number of idle connections is required (0 is allowed)"
        } else if self.repetitions == 0 {
            "at least one repetition is required"
        } else if !positive(self.rate) || !positive(self.duration_s) || !positive(self.counters_s) {
            "the rate and both durations must be positive"
        } else if self.connections == 0 {
            "at least one connection is required"
        } else if !DOCUMENTS.iter().any(|(name, _)| *name == self.document) {
            "the document must be '1b' or '6k'"
        } else {
            return Ok(());
        };
        Err(LabError::Config(wrong.into()))
    }

    /// Estimates the duration of the run.
    pub fn expected_duration(&self) -> Duration {
        let each = SETUP_TIME + Duration::from_secs_f64(self.duration_s + 2.0 * self.counters_s);
        each * u32::try_from(self.count_trials()).unwrap_or(u32::MAX)
    }

    /// Returns the number of trials.
    pub fn count_trials(&self) -> usize {
        self.mechanisms.len() * self.idle.len() * self.repetitions as usize
    }
}

/// Documents served, with their lengths in bytes.
pub(crate) const DOCUMENTS: [(&str, usize); 2] = [("1b", 1), ("6k", 6 * 1024)];

/// A planned measurement: a mechanism, a number of idle connections and a repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Mechanism of the server.
    pub mechanism: String,
    /// Number of idle connections.
    pub idle: u64,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Position in the random order, from 0.
    pub order: usize,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} idle", self.mechanism, self.idle)
    }
}

impl PlannedTrial for Trial {
    fn failure_warning(&self, reason: String) -> Warning {
        Warning::MeasurementFailed {
            mechanism: self.mechanism.clone(),
            idle: self.idle,
            repetition: self.repetition,
            reason,
        }
    }
}

/// Returns all trials in random order, so that a drift of the machine affects them equally.
pub fn plan(settings: &Settings) -> Vec<Trial> {
    let mut trials = Vec::with_capacity(settings.count_trials());
    for repetition in 0..settings.repetitions {
        for mechanism in &settings.mechanisms {
            for &idle in &settings.idle {
                trials.push(Trial { mechanism: mechanism.clone(), idle, repetition, order: 0 });
            }
        }
    }
    fastrand::Rng::with_seed(settings.seed).shuffle(&mut trials);
    for (order, trial) in trials.iter_mut().enumerate() {
        trial.order = order;
    }
    trials
}

/// Raises the soft limit on descriptors, which child processes inherit, and reduces the numbers of
/// idle connections to what fits.
pub(crate) fn fit_descriptors(settings: &mut Settings, warnings: &mut Vec<Warning>) {
    if let Some(limit) = descriptors::raise_limit() {
        clamp_idle(&mut settings.idle, settings.connections, limit, warnings);
    }
}

/// Reduces the numbers of idle connections to what `limit` permits.
pub(crate) fn clamp_idle(
    levels: &mut Vec<u64>,
    connections: u64,
    limit: u64,
    warnings: &mut Vec<Warning>,
) {
    let max = limit.saturating_sub(connections + RESERVED_DESCRIPTORS);
    for idle in levels.iter_mut() {
        if *idle > max {
            warnings.push(Warning::IdleClamped { requested: *idle, used: max, limit });
            *idle = max;
        }
    }
    levels.sort_unstable();
    levels.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plan_is_a_permutation(seed: u64, mechanisms in 1usize..5, idle in 1u64..5, reps in 1u32..4) {
            let settings = Settings {
                mechanisms: (0..mechanisms).map(|i| format!("m{i}")).collect(),
                idle: (0..idle).collect(),
                repetitions: reps,
                seed,
                ..Settings::default()
            };
            let trials = plan(&settings);
            prop_assert_eq!(trials.len(), settings.count_trials());
            prop_assert!(trials.iter().enumerate().all(|(i, trial)| trial.order == i));
            let mut seen: Vec<_> =
                trials.iter().map(|c| (&c.mechanism, c.idle, c.repetition)).collect();
            seen.sort();
            seen.dedup();
            prop_assert_eq!(seen.len(), trials.len());
        }
    }

    #[test]
    fn seed_determines_the_order() {
        let one = Settings::default();
        let two = Settings { seed: 2, ..Settings::default() };
        assert_eq!(plan(&one), plan(&one));
        assert_ne!(plan(&one), plan(&two));
    }

    #[test]
    fn clamps_idle_connections_with_a_warning() {
        let mut settings = Settings { idle: vec![0, 900, 2000, 4000], ..Settings::default() };
        let mut warnings = Vec::new();
        clamp_idle(&mut settings.idle, 36, 1100, &mut warnings);
        assert_eq!(settings.idle, [0, 900, 1000]);
        assert_eq!(warnings.len(), 2);
        assert_eq!(warnings[0], Warning::IdleClamped { requested: 2000, used: 1000, limit: 1100 });
    }

    #[test]
    fn rejects_invalid_settings() {
        assert!(Settings::default().check().is_ok());
        for wrong in [
            Settings { mechanisms: vec![], ..Settings::default() },
            Settings { idle: vec![], ..Settings::default() },
            Settings { repetitions: 0, ..Settings::default() },
            Settings { rate: f64::NAN, ..Settings::default() },
            Settings { duration_s: -1.0, ..Settings::default() },
            Settings { document: "../etc".into(), ..Settings::default() },
        ] {
            assert!(matches!(wrong.check(), Err(LabError::Config(_))), "{wrong:?}");
        }
    }

    #[test]
    fn default_settings_take_about_two_minutes() {
        let expected = Settings::default().expected_duration().as_secs();
        assert!((60..150).contains(&expected), "{expected} s");
    }
}
