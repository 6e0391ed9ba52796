//! Text output of a sweep and its trials.

use std::fmt;

use super::bars::write_bars;
use super::{LimitedBy, Point, Purpose, Sweep, Trial};
use crate::estimate::Estimate;
use crate::knee::Rate;
use crate::report::Model;
use crate::summary::{Grouped, HumanDuration};

/// Width of the lines of notes.
const WIDTH: usize = 80;

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = match self.model {
            Model::Connections => "connections/s",
            Model::Sessions => "sessions/s",
            Model::Requests | Model::Closed => "requests/s",
        };
        let [rate, replies] = [self.saturation_rate, self.saturation_reply_rate].map(Rate);
        writeln!(f, "{}", self.url)?;
        match self.limited_by {
            LimitedBy::Server => {
                writeln!(
                    f,
                    "  saturation {rate} {each}: {replies} replies/s, limited by the server"
                )
            }
            LimitedBy::Connections => writeln!(
                f,
                "  saturation {rate} {each}: {replies} replies/s, limited by {} connections",
                Grouped(self.connections)
            ),
            LimitedBy::Generator => {
                writeln!(f, "  saturation above {rate} {each}: the generator was the limit")
            }
            LimitedBy::MaxRate => {
                writeln!(f, "  saturation above {rate} {each}, the maximum rate of the sweep")
            }
            LimitedBy::NoReplies => writeln!(f, "  saturation none: no replies"),
            LimitedBy::Unfinished => writeln!(f, "  saturation not found before the sweep ended"),
        }?;
        if let Some((rate, share)) = self.overload() {
            writeln!(
                f,
                "  overload   {:.0} % of the highest reply rate at {} {each}",
                share * 100.0,
                Rate(rate)
            )?;
        }
        let recoveries = self.trials.iter().filter(|of| of.purpose == Purpose::Recovery).count();
        write!(f, "  trials     {} of {:.1} s", self.trials.len() - recoveries, self.trial_s)?;
        write!(f, " and {recoveries} recovery trials, in {:.0} s", self.elapsed_s)?;
        writeln!(f, " (seed {})", self.seed)?;
        if !self.complete {
            writeln!(f, "  incomplete the sweep ended before all rates were measured")?;
        }
        if !self.points.is_empty() {
            write!(f, "\n   load  offered/s  replies/s       ±  errors  missed")?;
            writeln!(f, "     p50     p99  recovery")?;
            self.points.iter().try_for_each(|point| writeln!(f, "{point}"))?;
            write_bars(&self.points, f)?;
        }
        for note in &self.notes {
            write_note(note, f)?;
        }
        Ok(())
    }
}

impl Sweep {
    /// Returns the highest offered rate, if it is above saturation, and the reply rate there as a
    /// fraction of the highest reply rate.
    fn overload(&self) -> Option<(f64, f64)> {
        let last = self.points.last().filter(|point| point.load > 1.0)?;
        let highest = self.points.iter().map(|point| point.reply_rate.mean).fold(0.0, f64::max);
        (highest > 0.0).then(|| (last.rate, last.reply_rate.mean / highest))
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { rate, load, reply_rate, .. } = self;
        let margin = reply_rate.margin.map_or(String::new(), |margin| Rate(margin).to_string());
        let [rate, replies] = [*rate, reply_rate.mean].map(|rate| Rate(rate).to_string());
        let [errors, missed] = [self.error_share, self.missed_share].map(|of| Share(of.mean));
        let time = |of: Option<Estimate>| match of {
            Some(of) => HumanDuration(of.mean as u64).to_string(),
            None => String::new(),
        };
        write!(f, "  {:>3.0} % {rate:>10} {replies:>10} {margin:>7}", load * 100.0)?;
        write!(f, " {errors:>7} {missed:>7}")?;
        write!(f, " {:>7} {:>7}  ", time(self.p50_ns), time(self.p99_ns))?;
        match self.recovery_s {
            _ if self.generator_limited => f.write_str("generator"),
            Some(of) => write!(f, "{:.1} s", of.mean),
            None if self.unrecovered > 0 => f.write_str("none"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99] = [self.p50_ns, self.p99_ns].map(|nanos| HumanDuration(nanos).to_string());
        let [rate, replies] = [self.rate, self.reply_rate].map(|rate| Rate(rate).to_string());
        let [errors, missed] = [self.failed, self.missed].map(|count| Share(self.share(count)));
        let purpose = match self.purpose {
            Purpose::Bracket | Purpose::Refine => "search",
            Purpose::Reference => "reference",
            Purpose::Point => "point",
            Purpose::Recovery => "recovery",
        };
        write!(f, "  {purpose:<9} {rate:>10} {replies:>10} {errors:>7} {missed:>7}")?;
        write!(f, " {p50:>7} {p99:>7}")?;
        match self.purpose {
            Purpose::Recovery if self.recovered => f.write_str("  recovered"),
            Purpose::Recovery => f.write_str("  not recovered"),
            _ if self.generator_limited => f.write_str("  generator"),
            _ => Ok(()),
        }
    }
}

/// A share, displayed in percent with two or three digits.
struct Share(f64);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        let text = match percent {
            0.0 => "0 %".to_owned(),
            ..0.01 => "<0.01 %".to_owned(),
            ..1.0 => format!("{percent:.2} %"),
            ..99.95 => format!("{percent:.1} %"),
            _ => "100 %".to_owned(),
        };
        f.pad(&text)
    }
}

/// Writes a note in lines of limited width.
fn write_note(note: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let indent = 13;
    f.write_str("  note      ")?;
    let mut column = indent - 1;
    for word in note.split_whitespace() {
        if column > indent && column + 1 + word.len() > WIDTH {
            write!(f, "\n{:indent$}{word}", "")?;
            column = indent + word.len();
        } else {
            write!(f, " {word}")?;
            column += 1 + word.len();
        }
    }
    writeln!(f)
}
