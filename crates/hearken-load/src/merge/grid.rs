//! Intervals of several runs, put together by the time at which they were.

use std::collections::BTreeMap;

use crate::histogram::Histogram;
use crate::merge::MergeError;
use crate::report::{Interval, Report};

/// Lengths within this factor are the same.
const SAME: f64 = 1.01;

/// The intervals of all parts, by their place on the grid of the part that started first. What was
/// told in draining stays apart from what was told while requests were made.
pub(super) struct Grid {
    pub(super) started_unix_ns: u64,
    slots: BTreeMap<(i64, bool), Slot>,
}

#[derive(Default)]
struct Slot {
    sum: Interval,
    latency: Histogram,
    /// When it begins in the part that started first.
    at_s: Option<f64>,
}

impl Grid {
    pub(super) fn of(parts: &[Report]) -> Result<Grid, MergeError> {
        let length = length(parts)?;
        let started_unix_ns = parts.iter().map(|part| part.started_unix_ns).min().unwrap_or(0);
        let mut slots = BTreeMap::<(i64, bool), Slot>::new();
        for part in parts {
            let later = (part.started_unix_ns - started_unix_ns) as f64 / 1e9;
            for interval in &part.intervals {
                let place = ((interval.at_s + later) / length).round() as i64;
                let slot = slots.entry((place, interval.draining)).or_default();
                slot.add(interval);
                if later == 0.0 {
                    // Several parts may have started first, and two short intervals be in one place.
                    let at = slot.at_s.map_or(interval.at_s, |at| at.min(interval.at_s));
                    slot.at_s = Some(at);
                }
            }
        }
        for ((place, draining), slot) in &mut slots {
            slot.sum.at_s = slot.at_s.unwrap_or(*place as f64 * length);
            slot.sum.draining = *draining;
        }
        Ok(Grid { started_unix_ns, slots })
    }

    pub(super) fn intervals(self) -> Vec<Interval> {
        let whole = |slot: Slot| Interval {
            latency_ns: slot.latency.quantiles(),
            latency: if slot.latency.is_empty() { String::new() } else { slot.latency.encode() },
            ..slot.sum
        };
        let mut intervals: Vec<_> = self.slots.into_values().map(whole).collect();
        intervals.sort_by(|a, b| a.at_s.total_cmp(&b.at_s).then(a.draining.cmp(&b.draining)));
        intervals
    }
}

impl Slot {
    fn add(&mut self, more: &Interval) {
        let sum = &mut self.sum;
        for (sum, more) in [
            (&mut sum.intended, more.intended),
            (&mut sum.sent, more.sent),
            (&mut sum.replies, more.replies),
            (&mut sum.failed, more.failed),
            (&mut sum.connections_opened, more.connections_opened),
            (&mut sum.idle_held, more.idle_held),
        ] {
            *sum = sum.saturating_add(more);
        }
        sum.length_s = sum.length_s.max(more.length_s);
        // What cannot be read was refused before.
        if let Ok(latency) = more.histogram() {
            self.latency.add(&latency);
        }
    }
}

/// How long the intervals are: the same in all parts, but for one that has no more than a piece of one.
fn length(parts: &[Report]) -> Result<f64, MergeError> {
    let longest = |part: &Report| {
        let made = part.intervals.iter().filter(|interval| !interval.draining);
        let lengths: Vec<f64> = made.map(|interval| interval.length_s).collect();
        (lengths.iter().copied().fold(0.0, f64::max), lengths.len())
    };
    let all: Vec<_> = parts.iter().map(longest).collect();
    let length = all.iter().map(|(length, _)| *length).fold(0.0, f64::max);
    let shorter = |&(own, count): &(f64, usize)| count > 1 && own * SAME < length;
    if let Some(at) = all.iter().position(shorter) {
        let (one, other) = (format!("{length:.3}"), format!("{:.3}", all[at].0));
        return Err(MergeError::IntervalLengths { at, one, other });
    }
    // Of nothing but draining, each is where it is.
    Ok(if length > 0.0 { length } else { 1.0 })
}
