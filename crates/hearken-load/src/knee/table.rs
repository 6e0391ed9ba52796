//! Text output of a knee and its trials.

use std::fmt;

use super::{Knee, LimitedBy, Purpose, Trial};
use crate::report::Model;
use crate::summary::{Grouped, HumanDuration};

impl fmt::Display for Knee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Knee { objectives, rate, rate_low, rate_high, .. } = self;
        let recoveries = self.trials.iter().filter(|of| of.purpose == Purpose::Recovery).count();
        writeln!(f, "{}\n  meets      {objectives}", self.url)?;
        write!(f, "  trials     {} in {:.0} s", self.trials.len() - recoveries, self.elapsed_s)?;
        writeln!(f, ", and {recoveries} recovery trials (seed {})\n", self.seed)?;
        write!(f, "  {:>10} {:>10} {:>10}", "rate", "replies/s", "p50")?;
        writeln!(f, " {:>10} {:>10} {:>9}", "p99", "lateness", "failed")?;
        let mut trials: Vec<_> =
            self.trials.iter().filter(|of| of.purpose != Purpose::Recovery).collect();
        trials.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        for trial in trials {
            writeln!(f, "{trial}")?;
        }
        for note in &self.notes {
            writeln!(f, "  note       {note}")?;
        }
        let (rate, low, high) = (Rate(*rate), Rate(*rate_low), rate_high.map(Rate));
        let each = match self.model {
            Model::Connections => "connections/s",
            Model::Sessions => "sessions/s",
            Model::Requests | Model::Closed => "requests/s",
        };
        write!(f, "  knee       ")?;
        match (self.limited_by, high) {
            (LimitedBy::Server, Some(high)) => {
                writeln!(f, "{rate} {each}; 95 % interval {low} to {high}")
            }
            (LimitedBy::Server, None) => {
                writeln!(f, "{rate} {each}; 95 % interval from {low} to above the maximum rate")
            }
            (LimitedBy::Generator, _) => writeln!(
                f,
                "above {rate} {each}: the generator was the limit; give it dedicated processors or more \
                 threads, or use several machines"
            ),
            (LimitedBy::MaxRate, _) => {
                writeln!(f, "above {rate} {each}, the maximum rate of the search")
            }
            (LimitedBy::NeverMet, Some(high)) => {
                writeln!(f, "none: objectives not met at {high} {each}")
            }
            (LimitedBy::NeverMet, None) => writeln!(f, "none: objectives not met at any rate"),
            (LimitedBy::Unfinished, Some(high)) => {
                writeln!(f, "not found before the search ended; between {low} and {high} {each}")
            }
            (LimitedBy::Unfinished, None) => {
                writeln!(f, "not found before the search ended; above {low} {each}")
            }
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, late] = [self.p50_ns, self.p99_ns, self.lateness_p99_ns]
            .map(|nanos| HumanDuration(nanos).to_string());
        let (rate, replies) = (Rate(self.rate).to_string(), Rate(self.reply_rate).to_string());
        let failed = Grouped(self.failed).to_string();
        write!(f, "  {rate:>10} {replies:>10} {p50:>10} {p99:>10} {late:>10} {failed:>9}   ")?;
        f.write_str(if self.passed { "met" } else { "not met:" })?;
        for judgement in self.objective_results.iter().filter(|judgement| !judgement.passed) {
            write!(f, " {}", judgement.objective.metric())?;
        }
        if self.purpose == Purpose::Recovery {
            f.write_str(" (recovery)")?;
        }
        f.write_str(if self.generator_limited && !self.passed { " (the generator)" } else { "" })
    }
}

/// A rate, displayed with its significant digits.
#[derive(Clone, Copy)]
pub(crate) struct Rate(pub(crate) f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            small @ ..1000.0 => write!(f, "{small:.1}"),
            large => Grouped(large.round() as u64).fmt(f),
        }
    }
}
