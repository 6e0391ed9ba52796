//! A knee, and each of its trials, for people.

use std::fmt;

use super::{Knee, LimitedBy, Purpose, Trial};
use crate::report::Model;
use crate::summary::{Grouped, HumanDuration};

impl fmt::Display for Knee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Knee { objectives, rate, low, high, .. } = self;
        let recoveries = self.trials.iter().filter(|of| of.purpose == Purpose::Recovery).count();
        writeln!(f, "{}\n  meets      {objectives}", self.url)?;
        write!(f, "  trials     {} in {:.0} s", self.trials.len() - recoveries, self.elapsed_s)?;
        writeln!(f, ", and {recoveries} to see the server recover (seed {})\n", self.seed)?;
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
        let (rate, low, high) = (Rate(*rate), Rate(*low), high.map(Rate));
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
                writeln!(f, "{rate} {each}; 95 % interval from {low} to above what was allowed")
            }
            (LimitedBy::Generator, _) => writeln!(
                f,
                "above {rate} {each}: the generator was the limit, and the server's knee lies \
                 above; give it a processor of its own, more threads, or use several machines"
            ),
            (LimitedBy::MaxRate, _) => {
                writeln!(f, "above {rate} {each}, the highest that was allowed")
            }
            (LimitedBy::NeverMet, Some(high)) => {
                writeln!(f, "none: not met even at {high} {each}")
            }
            (LimitedBy::NeverMet, None) => writeln!(f, "none: never met"),
            (LimitedBy::Unfinished, Some(high)) => {
                writeln!(f, "not found before the end; between {low} and {high} {each}")
            }
            (LimitedBy::Unfinished, None) => {
                writeln!(f, "not found before the end; above {low} {each}")
            }
        }
    }
}

/// A line of the table.
impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, late] = [self.p50_ns, self.p99_ns, self.lateness_p99_ns]
            .map(|nanos| HumanDuration(nanos).to_string());
        let (rate, replies) = (Rate(self.rate).to_string(), Rate(self.reply_rate).to_string());
        let failed = Grouped(self.errors).to_string();
        write!(f, "  {rate:>10} {replies:>10} {p50:>10} {p99:>10} {late:>10} {failed:>9}   ")?;
        f.write_str(if self.met { "met" } else { "not met:" })?;
        for judgement in self.judgements.iter().filter(|judgement| !judgement.met) {
            write!(f, " {}", judgement.objective.metric())?;
        }
        if self.purpose == Purpose::Recovery {
            f.write_str(" (recovery)")?;
        }
        f.write_str(if self.generator_late && !self.met { " (the generator)" } else { "" })
    }
}

/// Requests per second, with as many digits as matter.
#[derive(Clone, Copy)]
struct Rate(f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            small @ ..1000.0 => write!(f, "{small:.1}"),
            large => Grouped(large.round() as u64).fmt(f),
        }
    }
}
