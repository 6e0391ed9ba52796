//! The search for saturation: the highest reply rate of a server. It uses no server and no clock.

use super::{LimitedBy, Purpose, Trial};
use crate::bottleneck::Bottleneck;

/// Usual number of trials of a search, in full trials.
pub(super) const USUAL_TRIALS: u32 = 12;

/// The server follows the offered rate if it replies to this part of the usual share of the requests.
const FOLLOWS: f64 = 0.95;

/// Share of the replies below which the start rate is too high.
const OVERLOADED: f64 = 0.8;

/// Growth of the reply rate, as a fraction of the growth of the offered rate, below which the server
/// is saturated.
const MIN_GROWTH: f64 = 0.25;

/// Ratio of two rates that are close enough.
const CLOSE_RATIO: f64 = 1.1;

/// Reply rates that differ by less than this fraction are equal.
const EQUAL: f64 = 0.02;

/// Reply rates within this fraction of the highest one contribute to the result. Their mean is less
/// biased than the maximum.
const TOP: f64 = 0.05;

/// The golden section.
const SECTION: f64 = 0.381_966;

/// A search for saturation.
///
/// The rate doubles until the reply rate stops growing in two trials. The highest reply rate then lies
/// between half the last rate with growth and the first rate without. A golden section search finds
/// it there, whether the reply rate stays constant or falls past saturation.
#[derive(Debug)]
pub(super) struct Saturation {
    min_rate: f64,
    max_rate: f64,
    phase: Phase,
    /// Rate that the generator cannot offer.
    ceiling: Option<f64>,
    /// Whether the last trial at this rate failed. A single failure may be chance.
    again: bool,
    /// Replies per second of the trials that the generator did not limit, with their purpose.
    replies: Vec<(Purpose, f64)>,
    /// Highest share of requests with a reply. It is below 1 if requests fail at any rate.
    usual_share: f64,
    /// Number of trials above saturation, and number of those that the connections limited.
    saturated: u32,
    by_connections: u32,
    /// Arrivals and replies of the trial with most replies and nearly no failures.
    light: Option<(f64, f64)>,
    outcome: Option<LimitedBy>,
}

#[derive(Debug)]
enum Phase {
    Bracket {
        next: f64,
        /// Highest rate at which the reply rate grew, with the reply rate.
        low: Option<(f64, f64)>,
        /// Whether the server followed that rate.
        followed: bool,
        /// Share of the replies at the last rate that was too high.
        share: f64,
    },
    Golden {
        /// Natural logarithms of the rates between which the highest reply rate lies.
        low: f64,
        high: f64,
        /// Reply rates at the two inner rates, and whether the server followed the lower one.
        inner: [Option<(f64, bool)>; 2],
    },
}

impl Saturation {
    pub(super) fn new(start: f64, min_rate: f64, max_rate: f64) -> Saturation {
        let next = start.clamp(min_rate, max_rate);
        Saturation {
            min_rate,
            max_rate,
            phase: Phase::Bracket { next, low: None, followed: false, share: 0.0 },
            ceiling: None,
            again: false,
            replies: Vec::new(),
            usual_share: 0.0,
            saturated: 0,
            by_connections: 0,
            light: None,
            outcome: None,
        }
    }

    /// Returns the rate and the purpose of the next trial.
    pub(super) fn next(&self) -> (f64, Purpose) {
        match &self.phase {
            Phase::Bracket { next, .. } => (*next, Purpose::Bracket),
            Phase::Golden { low, high, inner } => {
                let at = if inner[0].is_none() { SECTION } else { 1.0 - SECTION };
                ((low + (high - low) * at).exp().min(self.max_rate), Purpose::Refine)
            }
        }
    }

    /// Starts the search at another rate.
    pub(super) fn restart(&mut self, rate: f64) {
        self.phase = Phase::Bracket { next: rate, low: None, followed: false, share: 0.0 };
    }

    /// Records the trial at the rate that [`next`](Saturation::next) returned.
    pub(super) fn record(&mut self, trial: &Trial, seconds: f64) {
        if !trial.generator_limited {
            self.replies.push((trial.purpose, trial.reply_rate));
            self.usual_share = self.usual_share.max(share(trial)).min(1.0);
            if !self.follows(trial) {
                self.saturated += 1;
                let by_connections = matches!(
                    trial.bottleneck,
                    Bottleneck::Connections | Bottleneck::Ports | Bottleneck::Descriptors
                );
                self.by_connections += u32::from(by_connections);
            }
            let replies = trial.replies as f64;
            let usable = trial.replies > 0 && replies >= trial.scheduled as f64 * 0.99;
            if usable && self.light.is_none_or(|(_, most)| most < replies) {
                self.light = Some((trial.rate * seconds, replies));
            }
        }
        match self.phase {
            Phase::Bracket { .. } => self.bracket(trial),
            Phase::Golden { .. } => self.golden(trial),
        }
    }

    fn bracket(&mut self, trial: &Trial) {
        let (rate, replies) = (trial.rate, trial.reply_rate);
        let (share, follows) = (share(trial), self.follows(trial));
        let Phase::Bracket { next, low, followed, share: previous } = &mut self.phase else {
            return;
        };
        if trial.generator_limited {
            if !std::mem::replace(&mut self.again, true) {
                return;
            }
            self.ceiling = Some(rate);
        } else if let Some((low_rate, low_replies)) = *low {
            let growth = 1.0 + MIN_GROWTH * (rate / low_rate - 1.0);
            if replies > low_replies * growth || follows {
                (*low, *followed) = (Some((rate, replies)), follows);
            } else if !std::mem::replace(&mut self.again, true) {
                return;
            } else {
                self.refine(low_rate / 2.0, rate);
                return;
            }
        } else if trial.replies == 0 && rate <= self.min_rate {
            self.outcome = Some(LimitedBy::NoReplies);
            return;
        } else if trial.replies == 0 {
            *next = (rate / 10.0).max(self.min_rate);
            return;
        } else if share < OVERLOADED && share > *previous * 1.25 && rate > self.min_rate {
            // If a lower rate does not increase the share, the errors are independent of the rate.
            *previous = share;
            *next = (rate * share / 2.0).max(self.min_rate);
            return;
        } else {
            (*low, *followed) = (Some((rate, replies)), follows);
        }
        self.again = false;
        match (*low, self.ceiling) {
            (None, Some(ceiling)) if ceiling <= self.min_rate => {
                self.outcome = Some(LimitedBy::Generator);
            }
            (None, Some(ceiling)) => *next = (ceiling / 4.0).max(self.min_rate),
            // The reply rate has grown up to the limit, but less than the offered rate.
            (Some((low, _)), ceiling)
                if !*followed
                    && (low >= self.max_rate
                        || ceiling.is_some_and(|ceiling| ceiling / low <= CLOSE_RATIO)) =>
            {
                self.refine(low / 2.0, low);
            }
            (Some((low, _)), Some(ceiling)) if ceiling / low <= CLOSE_RATIO => {
                self.outcome = Some(LimitedBy::Generator);
            }
            (Some((low, _)), Some(ceiling)) => *next = (low * ceiling).sqrt(),
            (Some((low, _)), None) if low >= self.max_rate => {
                self.outcome = Some(LimitedBy::MaxRate);
            }
            (Some((low, _)), None) => *next = (low * 2.0).min(self.max_rate),
            (None, None) => {}
        }
    }

    /// Begins to search for the highest reply rate between two offered rates.
    fn refine(&mut self, low: f64, high: f64) {
        self.again = false;
        let low = low.max(self.min_rate).min(high);
        self.phase = Phase::Golden { low: low.ln(), high: high.ln(), inner: [None; 2] };
    }

    fn golden(&mut self, trial: &Trial) {
        let follows = self.follows(trial);
        let Phase::Golden { low, high, inner } = &mut self.phase else { return };
        // Above the rate that the generator can offer, nothing is known: search below.
        let replies = if trial.generator_limited { -1.0 } else { trial.reply_rate };
        let of_inner = if inner[0].is_none() { 0 } else { 1 };
        inner[of_inner] = Some((replies, follows));
        let [Some((left, follows)), Some((right, _))] = *inner else { return };
        let flat = !follows && left > 0.0 && (left - right).abs() <= EQUAL * left;
        let span = *high - *low;
        if left < right {
            *low += span * SECTION;
            *inner = [inner[1], None];
        } else {
            *high -= span * SECTION;
            // The next trial is at the lower inner rate.
            *inner = [None, inner[0]];
        }
        if flat || *high - *low <= CLOSE_RATIO.ln() {
            let connections = self.by_connections * 2 > self.saturated;
            self.outcome =
                Some(if connections { LimitedBy::Connections } else { LimitedBy::Server });
        }
    }

    /// Returns whether the server follows the offered rate.
    pub(super) fn follows(&self, trial: &Trial) -> bool {
        share(trial) >= self.usual_share * FOLLOWS
    }

    /// Returns the limiting factor when the search is over.
    pub(super) fn outcome(&self) -> Option<LimitedBy> {
        self.outcome
    }

    /// Returns the rate that the generator cannot offer, if it was found.
    pub(super) fn ceiling(&self) -> Option<f64> {
        self.ceiling
    }

    /// Returns the saturation found so far: the offered rate and the reply rate.
    pub(super) fn result(&self) -> (f64, f64) {
        let best = |all: &dyn Fn(Purpose) -> bool| {
            let of = || self.replies.iter().filter(|(purpose, _)| all(*purpose)).map(|(_, of)| *of);
            let highest = of().fold(0.0, f64::max);
            let top = || of().filter(|&replies| replies >= highest * (1.0 - TOP));
            top().sum::<f64>() / top().count().max(1) as f64
        };
        match (&self.phase, self.outcome) {
            (Phase::Bracket { low: Some((rate, replies)), .. }, _) => (*rate, *replies),
            (Phase::Bracket { low: None, .. }, _) => (0.0, 0.0),
            (Phase::Golden { .. }, _) => {
                let refined = best(&|purpose| purpose == Purpose::Refine);
                let replies = if refined > 0.0 { refined } else { best(&|_| true) };
                let each = self.light.map_or(1.0, |(arrivals, answered)| answered / arrivals);
                // Random arrivals differ from their mean. One request each is the usual case.
                let each = if (each - 1.0).abs() < 0.1 { 1.0 } else { each };
                ((replies / each).min(self.max_rate), replies)
            }
        }
    }
}

/// Returns the share of the requests with a reply.
fn share(trial: &Trial) -> f64 {
    trial.reply_rate / trial.request_rate.max(f64::MIN_POSITIVE)
}
