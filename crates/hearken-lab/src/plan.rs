//! What is measured, and in which order.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hearken::descriptors;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::run::Planned;
use crate::warning::Warning;

/// Descriptors a process needs besides its connections: standard streams, files, the queue itself.
pub(crate) const SPARE_DESCRIPTORS: u64 = 64;
/// Starting and stopping the processes of one measurement takes about this long.
const SETUP: Duration = Duration::from_millis(350);

/// The settings of [`quick`](crate::quick).
#[derive(Clone, Debug)]
pub struct QuickConfig {
    /// The program that is run as `EXE serve` and `EXE load`: `std::env::current_exe()`.
    pub executable: PathBuf,
    /// What was typed, for the report.
    pub command_line: Vec<String>,
    /// The version for the report.
    pub version: String,
    /// What is compared, by name.
    pub settings: Settings,
}

/// The numbers of an experiment, as they stand in the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Names of mechanisms, as `serve --events` takes them.
    pub mechanisms: Vec<String>,
    /// Numbers of idle connections.
    pub idle: Vec<u64>,
    /// How often each pair of mechanism and idle connections is measured.
    pub repetitions: u32,
    /// Offered load, requests a second.
    pub rate: f64,
    /// Length of the pass that CPU time and latency are taken from, seconds.
    pub duration_s: f64,
    /// Length of each of the two passes before it, to which the counters are attached: one that
    /// warms the server up, and one with a connection for each request.
    pub counters_s: f64,
    /// Connections that carry the requests.
    pub connections: u64,
    /// The document asked for: `1b` (one byte) or `6k` (6 KiB).
    pub document: String,
    /// The mechanism that the others are compared with.
    pub reference: String,
    /// Seed of the order of measurements and of the arrivals.
    pub seed: u64,
}

impl Default for Settings {
    /// Two to three minutes on two processors, with every mechanism.
    fn default() -> Self {
        Settings {
            mechanisms: ["select", "poll", "epoll-level", "epoll-edge", "epoll-once"]
                .map(String::from)
                .to_vec(),
            idle: vec![0, 2000, 8000],
            repetitions: 3,
            // Low enough that poll with 8,000 idle connections still keeps up.
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
    /// An error if these numbers describe no experiment.
    pub fn check(&self) -> Result<(), LabError> {
        let positive = |x: f64| x.is_finite() && x > 0.0;
        let wrong = if self.mechanisms.is_empty() {
            "name at least one mechanism"
        } else if self.idle.is_empty() {
            "give at least one number of idle connections (0 is one)"
        } else if self.repetitions == 0 {
            "ask for at least one repetition"
        } else if !positive(self.rate) || !positive(self.duration_s) || !positive(self.counters_s) {
            "the rate and both durations must be greater than zero"
        } else if self.connections == 0 {
            "the load needs at least one connection"
        } else if !DOCUMENTS.iter().any(|(name, _)| *name == self.document) {
            "the document is `1b` or `6k`"
        } else {
            return Ok(());
        };
        Err(LabError::Config(wrong.into()))
    }

    /// How long the run will take, before anything was measured.
    pub fn expected(&self) -> Duration {
        let each = SETUP + Duration::from_secs_f64(self.duration_s + 2.0 * self.counters_s);
        each * u32::try_from(self.planned()).unwrap_or(u32::MAX)
    }

    /// How many measurements the experiment has.
    pub fn planned(&self) -> usize {
        self.mechanisms.len() * self.idle.len() * self.repetitions as usize
    }
}

/// The documents that the server is given, and their sizes.
pub(crate) const DOCUMENTS: [(&str, usize); 2] = [("1b", 1), ("6k", 6 * 1024)];

/// One measurement to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The mechanism that the server uses.
    pub mechanism: String,
    /// How many idle connections it holds.
    pub idle: u64,
    /// Which repetition this is, from 0.
    pub repetition: u32,
    /// Its place in the shuffled order, from 0.
    pub order: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} idle", self.mechanism, self.idle)
    }
}

impl Planned for Case {
    fn failed(&self, reason: String) -> Warning {
        Warning::Failed {
            mechanism: self.mechanism.clone(),
            idle: self.idle,
            repetition: self.repetition,
            reason,
        }
    }
}

/// Every case once, shuffled, so that a drift of the machine falls on all of them alike.
pub fn plan(settings: &Settings) -> Vec<Case> {
    let mut cases = Vec::with_capacity(settings.planned());
    for repetition in 0..settings.repetitions {
        for mechanism in &settings.mechanisms {
            for &idle in &settings.idle {
                cases.push(Case { mechanism: mechanism.clone(), idle, repetition, order: 0 });
            }
        }
    }
    fastrand::Rng::with_seed(settings.seed).shuffle(&mut cases);
    for (order, case) in cases.iter_mut().enumerate() {
        case.order = order;
    }
    cases
}

/// Raises the soft limit on descriptors to the hard one, which the children inherit, and lowers
/// the levels of idle connections that do not fit.
pub(crate) fn fit_descriptors(settings: &mut Settings, warnings: &mut Vec<Warning>) {
    if let Some(limit) = descriptors::raise_limit() {
        clamp_idle(&mut settings.idle, settings.connections, limit, warnings);
    }
}

pub(crate) fn clamp_idle(
    levels: &mut Vec<u64>,
    connections: u64,
    limit: u64,
    warnings: &mut Vec<Warning>,
) {
    let most = limit.saturating_sub(connections + SPARE_DESCRIPTORS);
    for idle in levels.iter_mut() {
        if *idle > most {
            warnings.push(Warning::IdleClamped { asked: *idle, used: most, limit });
            *idle = most;
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
        fn a_plan_is_a_permutation(seed: u64, mechanisms in 1usize..5, idle in 1u64..5, reps in 1u32..4) {
            let settings = Settings {
                mechanisms: (0..mechanisms).map(|i| format!("m{i}")).collect(),
                idle: (0..idle).collect(),
                repetitions: reps,
                seed,
                ..Settings::default()
            };
            let cases = plan(&settings);
            prop_assert_eq!(cases.len(), settings.planned());
            prop_assert!(cases.iter().enumerate().all(|(i, case)| case.order == i));
            let mut seen: Vec<_> =
                cases.iter().map(|c| (&c.mechanism, c.idle, c.repetition)).collect();
            seen.sort();
            seen.dedup();
            prop_assert_eq!(seen.len(), cases.len());
        }
    }

    #[test]
    fn the_seed_makes_the_order() {
        let one = Settings::default();
        let two = Settings { seed: 2, ..Settings::default() };
        assert_eq!(plan(&one), plan(&one));
        assert_ne!(plan(&one), plan(&two));
    }

    #[test]
    fn levels_that_do_not_fit_are_lowered_and_said() {
        let mut settings = Settings { idle: vec![0, 900, 2000, 4000], ..Settings::default() };
        let mut warnings = Vec::new();
        clamp_idle(&mut settings.idle, 36, 1100, &mut warnings);
        assert_eq!(settings.idle, [0, 900, 1000]);
        assert_eq!(warnings.len(), 2);
        assert_eq!(warnings[0], Warning::IdleClamped { asked: 2000, used: 1000, limit: 1100 });
    }

    #[test]
    fn nonsense_is_refused() {
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
    fn the_default_takes_about_two_minutes() {
        let expected = Settings::default().expected().as_secs();
        assert!((60..150).contains(&expected), "{expected} s");
    }
}
