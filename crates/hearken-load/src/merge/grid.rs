//! Alignment of the intervals of several runs by time.

use std::collections::BTreeMap;

use crate::histogram::Histogram;
use crate::merge::MergeError;
use crate::report::{Interval, Report};

/// Maximum relative difference of interval lengths that are considered equal.
const TOLERANCE: f64 = 0.01;

/// The intervals of all parts, by their position on the grid of the part that started first.
/// Intervals of the draining phase are separate.
pub(super) struct Grid {
    pub(super) started_unix_ns: u64,
    slots: BTreeMap<(i64, bool), Slot>,
}

#[derive(Default)]
struct Slot {
    sum: Interval,
    latency: Histogram,
    /// Start of the interval in the part that started first.
    at_s: Option<f64>,
    /// Idle connections at the end of the last interval of the current part.
    last_idle: u64,
}

impl Grid {
    pub(super) fn from_parts(parts: &[Report]) -> Result<Grid, MergeError> {
        let length = interval_length(parts)?;
        let started_unix_ns = parts.iter().map(|part| part.started_unix_ns).min().unwrap_or(0);
        let mut slots = BTreeMap::<(i64, bool), Slot>::new();
        for part in parts {
            let later = (part.started_unix_ns - started_unix_ns) as f64 / 1e9;
            let mut own = BTreeMap::<(i64, bool), f64>::new();
            for interval in &part.intervals {
                // Select the slot by the middle of the interval, because parts of a long run may
                // have several intervals per slot. The draining phase has any length and follows
                // the other intervals.
                let key = match interval.draining {
                    true => (((interval.offset_s + later) / length).round() as i64, true),
                    false => {
                        let middle =
                            interval.offset_s + later + interval.duration_s.min(length) / 2.0;
                        ((middle / length).floor() as i64, false)
                    }
                };
                let slot = slots.entry(key).or_default();
                let seconds = own.entry(key).or_insert_with(|| {
                    slot.sum.idle_open = slot.sum.idle_open.saturating_add(slot.last_idle);
                    slot.last_idle = 0;
                    0.0
                });
                *seconds += interval.duration_s;
                slot.add(interval, *seconds);
                if later == 0.0 {
                    let at = slot.at_s.map_or(interval.offset_s, |at| at.min(interval.offset_s));
                    slot.at_s = Some(at);
                }
            }
        }
        for ((position, draining), slot) in &mut slots {
            slot.sum.offset_s = slot.at_s.unwrap_or(*position as f64 * length);
            slot.sum.draining = *draining;
            slot.sum.idle_open = slot.sum.idle_open.saturating_add(slot.last_idle);
        }
        Ok(Grid { started_unix_ns, slots })
    }

    pub(super) fn intervals(self) -> Vec<Interval> {
        let to_interval = |slot: Slot| Interval {
            latency_ns: slot.latency.quantiles(),
            latency: slot.latency.encode(),
            ..slot.sum
        };
        let mut intervals: Vec<_> = self.slots.into_values().map(to_interval).collect();
        intervals
            .sort_by(|a, b| a.offset_s.total_cmp(&b.offset_s).then(a.draining.cmp(&b.draining)));
        intervals
    }
}

impl Slot {
    fn add(&mut self, more: &Interval, seconds: f64) {
        let sum = &mut self.sum;
        for (sum, more) in [
            (&mut sum.scheduled, more.scheduled),
            (&mut sum.sent, more.sent),
            (&mut sum.replies, more.replies),
            (&mut sum.failed, more.failed),
            (&mut sum.connections_opened, more.connections_opened),
        ] {
            *sum = sum.saturating_add(more);
        }
        sum.duration_s = sum.duration_s.max(seconds);
        self.last_idle = more.idle_open;
        // Invalid histograms were rejected before.
        if let Ok(latency) = more.histogram() {
            self.latency.add(&latency);
        }
    }
}

/// Returns the length of the merged intervals: the longest of all parts. The intervals of other
/// parts may be a half, a third and so on of this length, because long runs combine intervals. A
/// part may also have a single shorter interval.
fn interval_length(parts: &[Report]) -> Result<f64, MergeError> {
    let longest = |part: &Report| {
        let sending = part.intervals.iter().filter(|interval| !interval.draining);
        let lengths: Vec<f64> = sending.map(|interval| interval.duration_s).collect();
        (lengths.iter().copied().fold(0.0, f64::max), lengths.len())
    };
    let all: Vec<_> = parts.iter().map(longest).collect();
    let length = all.iter().map(|(length, _)| *length).fold(0.0, f64::max);
    let fits = |own: f64| {
        let times = length / own;
        (times - times.round()).abs() <= TOLERANCE * times
    };
    let odd = |&(own, count): &(f64, usize)| count > 1 && !fits(own);
    if let Some(index) = all.iter().position(odd) {
        let (expected, found) = (format!("{length:.3}"), format!("{:.3}", all[index].0));
        return Err(MergeError::IntervalMismatch { index, expected, found });
    }
    // With draining intervals only, each keeps its position.
    Ok(if length > 0.0 { length } else { 1.0 })
}
