//! Recovery of the server from a trial: its latency and errors at a low rate return to the level before.

use std::time::Duration;

use super::Trial;

/// A recovery trial lasts a trial divided by this.
pub(super) const PROBE_PART: u32 = 4;

/// Rate of a recovery trial as a fraction of saturation.
pub(super) const PROBE_LOAD: f64 = 0.1;

/// Number of recovery trials after which the server has not recovered. The pause doubles before each.
pub(super) const MAX_PROBES: u32 = 5;

/// Number of requests of a recovery trial. Fewer tell too little about the latency.
const MIN_REQUESTS: f64 = 20.0;

/// Latency in nanoseconds that is small enough to be noise.
const NOISE_NS: u64 = 1_000_000;

/// Factors by which the median and the 90th percentile of few latencies may vary.
const MEDIAN_FACTOR: u64 = 2;
const P90_FACTOR: u64 = 4;

/// Latency and errors of a server at a low rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    p50_ns: u64,
    p90_ns: u64,
    failed_share: f64,
}

impl Level {
    /// Returns the level that a trial measured.
    pub(super) fn of(trial: &Trial) -> Level {
        let failed_share = trial.share(trial.failed + trial.missed);
        Level { p50_ns: trial.p50_ns, p90_ns: trial.p90_ns, failed_share }
    }

    /// Returns the higher level of each kind.
    pub(super) fn max(self, other: Level) -> Level {
        Level {
            p50_ns: self.p50_ns.max(other.p50_ns),
            p90_ns: self.p90_ns.max(other.p90_ns),
            failed_share: self.failed_share.max(other.failed_share),
        }
    }

    /// Returns whether a recovery trial has returned to this level.
    pub(super) fn is_reached(&self, trial: &Trial) -> bool {
        let failures = self.failed_share * trial.scheduled as f64;
        let usual = (trial.failed + trial.missed) as f64 <= failures + 2.0 * failures.sqrt();
        let quick = |now: u64, before: u64, factor: u64| {
            now <= before.saturating_mul(factor).saturating_add(NOISE_NS)
        };
        trial.replies > 0
            && usual
            && quick(trial.p50_ns, self.p50_ns, MEDIAN_FACTOR)
            && quick(trial.p90_ns, self.p90_ns, P90_FACTOR)
    }
}

/// The recovery from a trial.
#[derive(Debug)]
pub(super) struct Recovery {
    /// Index of the trial, if it measured a point.
    pub(super) point: Option<usize>,
    /// Number of recovery trials that found the server not recovered.
    pub(super) failures: u32,
    /// Time since the trial.
    pub(super) elapsed: Duration,
}

/// Returns the duration of a recovery trial.
pub(super) fn probe_duration(trial: Duration, rate: f64) -> Duration {
    let requests = Duration::try_from_secs_f64(MIN_REQUESTS / rate).unwrap_or(trial);
    (trial / PROBE_PART).max(requests).min(trial)
}
