//! The steps of a load: what the server did at each offered rate.

use std::fmt;

use crate::arrivals::Arrivals;
use crate::histogram::Histogram;
use crate::profile::{Piece, Profile};
use crate::report::{Interval, Quantiles, Report};
use crate::summary::{Grouped, HumanDuration};

/// Maximum number of equal parts into which a ramp is divided.
const RAMP_PARTS: usize = 10;
/// Maximum number of rows in the text summary.
const MAX_ROWS: usize = 60;

/// A step of a load, or a part of a ramp.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct LoadStep {
    /// Start of the step in seconds from [`Report::started_unix_ns`].
    pub offset_s: f64,
    /// Total length of its intervals in seconds.
    pub duration_s: f64,
    /// Whether this is the time after the last step, when the generator waits for outstanding replies.
    pub draining: bool,
    /// Configured arrivals per second at the start.
    pub rate_from: f64,
    /// Configured arrivals per second at the end. Differs from the start in a ramp.
    pub rate_to: f64,
    /// Number of requests scheduled.
    pub scheduled: u64,
    /// Number of replies received.
    pub replies: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// Latency of the replies received.
    pub latency_ns: Quantiles,
}

impl LoadStep {
    /// Returns the scheduled requests per second.
    pub fn offered_rate(&self) -> f64 {
        self.per_second(self.scheduled)
    }

    /// Returns the replies received per second. Not meaningful for a draining step, which may be short.
    pub fn reply_rate(&self) -> f64 {
        self.per_second(self.replies)
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.duration_s > 0.0 { count as f64 / self.duration_s } else { 0.0 }
    }

    /// Returns the configured rate as text, such as `1,500` or `1,000..2,000`.
    pub fn rate(&self) -> String {
        let one = |rate: f64| match rate {
            999_999.5.. => format!("{:.2}M", rate / 1e6),
            99.95.. => Grouped(rate.round() as u64).to_string(),
            _ => format!("{:.1}", (rate * 10.0).round() / 10.0).trim_end_matches(".0").to_owned(),
        };
        if self.rate_from == self.rate_to {
            one(self.rate_from)
        } else {
            format!("{}..{}", one(self.rate_from), one(self.rate_to))
        }
    }
}

impl Report {
    /// Returns the steps of the load in chronological order. A ramp is divided into up to ten equal
    /// parts. The list is empty if the offered rate was constant, or did not follow a profile.
    ///
    /// Each interval of the report belongs to the step that contains its middle. Steps without an
    /// interval are omitted. Replies and failures belong to the step in which they happen, even if
    /// their requests were scheduled earlier. Those after the last step form a draining step of
    /// their own. O(intervals).
    pub fn steps(&self) -> Vec<LoadStep> {
        let Ok(profile) = self.rate.parse::<Profile>() else { return Vec::new() };
        if self.arrivals == Arrivals::Trace || profile.is_constant() {
            return Vec::new();
        }
        // In a merged result, some generators may still send requests when others drain.
        let mut intervals: Vec<&Interval> = self.intervals.iter().collect();
        intervals.sort_by_key(|interval| interval.draining);
        let index =
            |interval: &&Interval| (!interval.draining).then(|| profile.index_at(middle(interval)));
        let mut steps = Vec::new();
        for same_piece in intervals.chunk_by(|a, b| index(a) == index(b)) {
            let piece = index(&same_piece[0]).and_then(|index| profile.pieces().get(index));
            let parts = same_piece.len().min(RAMP_PARTS);
            let part = |interval: &&Interval| {
                piece.map_or(0, |piece| part(piece, parts, middle(interval)))
            };
            for same_part in same_piece.chunk_by(|a, b| part(a) == part(b)) {
                let first = &same_part[0];
                let step = match piece {
                    Some(piece) => step_of(piece, parts, part(first)),
                    None => {
                        LoadStep { offset_s: first.offset_s, draining: true, ..LoadStep::default() }
                    }
                };
                steps.push(sum(step, same_part));
            }
        }
        steps
    }

    /// Writes the table of the steps, if there are any.
    pub(crate) fn write_steps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps();
        if steps.is_empty() {
            return Ok(());
        }
        write!(f, "  {:<7} {:>15} {:>10} {:>10}", "step at", "rate", "offered/s", "replies/s")?;
        writeln!(f, " {:>10} {:>10} {:>10}", "errors", "p50", "p99")?;
        for step in steps.iter().take(MAX_ROWS) {
            step.write_row(f)?;
        }
        if let Some(more @ 1..) = steps.len().checked_sub(MAX_ROWS) {
            writeln!(f, "  {} more steps", Grouped(more as u64))?;
        }
        writeln!(f)
    }
}

impl LoadStep {
    fn write_row(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = format!("{} s", (self.offset_s * 10.0).round() / 10.0);
        // Nothing is offered after the last step, and a rate depends on the longest timeout.
        let [rate, offered, replies] = match self.draining {
            true => ["draining".to_owned(), String::new(), String::new()],
            false => {
                let [offered, replies] =
                    [self.offered_rate(), self.reply_rate()].map(|rate| format!("{rate:.1}"));
                [self.rate(), offered, replies]
            }
        };
        let [p50, p99] = [self.latency_ns.p50, self.latency_ns.p99].map(|nanos| {
            if self.latency_ns.count > 0 {
                HumanDuration(nanos).to_string()
            } else {
                "-".to_owned()
            }
        });
        write!(f, "  {at:<7} {rate:>15} {offered:>10} {replies:>10}")?;
        writeln!(f, " {:>10} {p50:>10} {p99:>10}", Grouped(self.failed).to_string())
    }
}

fn middle(interval: &Interval) -> f64 {
    interval.offset_s + interval.duration_s / 2.0
}

/// Returns the part of a piece at a time. After the end of a ramp, its last rate is a further part.
fn part(piece: &Piece, parts: usize, time: f64) -> usize {
    if piece.from == piece.to {
        return 0;
    }
    let fraction = ((time - piece.start) / piece.length).max(0.0);
    // The conversion saturates.
    ((fraction * parts as f64) as usize).min(parts)
}

/// Creates the step of a part of a piece.
fn step_of(piece: &Piece, parts: usize, part: usize) -> LoadStep {
    let part_length = if piece.from == piece.to { 0.0 } else { piece.length / parts as f64 };
    let start = part_length * part as f64;
    LoadStep {
        offset_s: piece.start + start,
        rate_from: piece.rate_after(start),
        rate_to: piece.rate_after(start + part_length),
        ..LoadStep::default()
    }
}

/// Adds the intervals of a step.
fn sum(mut step: LoadStep, intervals: &[&Interval]) -> LoadStep {
    let mut latency = Histogram::new();
    for interval in intervals {
        step.duration_s += interval.duration_s;
        step.scheduled = step.scheduled.saturating_add(interval.scheduled);
        step.replies = step.replies.saturating_add(interval.replies);
        step.failed = step.failed.saturating_add(interval.failed);
        latency.add(&interval.histogram().unwrap_or_default());
    }
    LoadStep { latency_ns: latency.quantiles(), ..step }
}
