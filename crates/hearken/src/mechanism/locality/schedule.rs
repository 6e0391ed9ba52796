//! The schedule: when each set is polled, and how long a wait sleeps on the active set alone.
//!
//! **Fixed**, as in the paper: it polls the doze set in every N-th wait and the idle set in every
//! N²-th. A wait without results sleeps on the active set for at most the threshold, then on all
//! sets.
//!
//! **Adaptive** derives the schedule from the cost of polling, which is the number of descriptors:
//!
//! * *When.* A poll of all sets is due after half a microsecond per inactive descriptor, and at the
//!   latest after the threshold. Polling takes an eighth of that, and thus an eighth of the time
//!   for any number of descriptors. With few descriptors the delay is negligible. The doze set is
//!   due by the same rule.
//! * *Sleeping.* If the active set has had events recently, a wait sleeps on it until the next poll
//!   of all sets is due. Then it sleeps on all sets. If the active set has had events since the
//!   last poll of all, it instead polls all and sleeps on the active set once more. Sleeping on all
//!   costs four times a poll. Under low load every wait is therefore on all sets and nothing is
//!   delayed.
//! * *N.* It doubles if more than one event in 65 was outside the active set, and polling the
//!   active set costs less than half of polling the others. It falls by a quarter if it costs more
//!   and has fewer than one event per 16 descriptors. It is adjusted at a poll of all sets, after
//!   at least N waits.
//!
//! Each wait reads the clock once, and only if there are many inactive descriptors.

use std::cell::Cell;
use std::ops::RangeInclusive;

use super::sets::{Depth, Rule};
use crate::timer::Time;

/// Up to this number, inactive descriptors are always polled: that costs less than the decision.
const MAX_ALWAYS_POLLED: usize = 16;
/// Up to this number, a wait sleeps on inactive descriptors: that costs no more than sleeping
/// again.
const MAX_SLEPT_ON: usize = 128;
/// The time between polls per polled descriptor, in nanoseconds.
const NANOS_PER_DESCRIPTOR: u64 = 512;
/// The maximum number of waits between polls of all sets, independent of load and clock.
const MAX_WAITS: u32 = 1024;
/// The valid values of N.
pub(super) const N: RangeInclusive<u32> = 2..=4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tuning {
    Adaptive,
    Fixed,
}

#[derive(Debug)]
pub(super) struct Schedule {
    tuning: Tuning,
    n: Cell<u32>,
    /// The maximum sleep on the active set alone, in nanoseconds.
    sleep: u64,
    /// The number of waits since the doze set, and since all sets, were polled.
    waits_since: [u32; 2],
    /// The times at which these polls are due, or 0 if not yet determined. The wait after a poll
    /// sets them: time that the caller spends between waits delays events with any mechanism.
    due: [u64; 2],
    now: u64,
    /// Whether this wait has slept on the active set.
    slept: bool,
    /// The depth of the last poll.
    last: Depth,
    /// Whether a partial poll has found active descriptors since the last poll of all sets.
    busy: bool,
    /// The value of `busy` before the last poll of all sets.
    was_busy: bool,
    /// Whether the last batch contained active descriptors, or `was_busy` was set.
    recently_active: bool,
    stats: Stats,
}

/// The statistics since N was last adjusted.
#[derive(Clone, Copy, Debug, Default)]
struct Stats {
    waits: u32,
    hits: u64,
    misses: u64,
    /// Descriptors polled in the active set and in the others.
    inside: u64,
    outside: u64,
}

/// The next action of a wait: a poll of a part of the list, with a timeout in nanoseconds.
pub(super) struct Step {
    pub(super) depth: Depth,
    /// `None` is the caller's timeout. The wait ends with this step.
    pub(super) pause: Option<u64>,
}

impl Step {
    fn poll_now(depth: Depth) -> Step {
        Step { depth, pause: Some(0) }
    }

    const FINAL: Step = Step { depth: Depth::All, pause: None };
}

/// Returns the time between polls of `count` descriptors, in nanoseconds.
pub(super) fn poll_interval(sleep: u64, count: usize) -> u64 {
    sleep.min(NANOS_PER_DESCRIPTOR * count as u64)
}

fn outside(sizes: [usize; 3]) -> usize {
    sizes[1] + sizes[2]
}

impl Schedule {
    pub(super) fn new(tuning: Tuning, n: u32, sleep: u64) -> Schedule {
        Schedule {
            tuning,
            n: Cell::new(n),
            sleep,
            waits_since: [0; 2],
            due: [0; 2],
            now: 0,
            slept: false,
            last: Depth::All,
            busy: false,
            was_busy: false,
            recently_active: false,
            stats: Stats::default(),
        }
    }

    pub(super) fn n(&self) -> u32 {
        self.n.get()
    }

    /// Sets N to the nearest valid value.
    pub(super) fn set_n(&self, n: u32) {
        self.n.set(n.clamp(*N.start(), *N.end()));
    }

    /// Returns the maximum number of waits until a poll of all sets.
    pub(super) fn within(&self) -> u32 {
        match self.tuning {
            Tuning::Fixed => self.n() * self.n(),
            Tuning::Adaptive => MAX_WAITS,
        }
    }

    pub(super) fn rule(&self) -> Rule {
        Rule {
            active: self.n() - 1,
            doze: self.n() * (self.n() - 1),
            on_trial: self.tuning == Tuning::Fixed,
        }
    }

    /// Returns the rule for a helper thread, which polls the inactive ones of `count` descriptors.
    pub(super) fn helper_rule(&self, count: usize) -> Rule {
        let rule = self.rule();
        match self.tuning == Tuning::Adaptive && count <= MAX_ALWAYS_POLLED {
            true => Rule { active: u32::MAX, ..rule },
            false => rule,
        }
    }

    /// Handles the beginning of a wait.
    pub(super) fn begin(&mut self, sizes: [usize; 3]) {
        for waits_since in &mut self.waits_since {
            *waits_since += 1;
        }
        self.slept = false;
        if self.tuning == Tuning::Adaptive && outside(sizes) > MAX_ALWAYS_POLLED {
            self.now = Time::now().as_nanos();
        }
    }

    /// Returns the next action. `blocking` is false if the caller's timeout is zero.
    pub(super) fn next_step(&mut self, sizes: [usize; 3], blocking: bool) -> Step {
        match self.tuning {
            Tuning::Fixed => self.next_fixed(sizes, blocking),
            Tuning::Adaptive => self.next_adaptive(sizes, blocking),
        }
    }

    fn next_fixed(&mut self, sizes: [usize; 3], blocking: bool) -> Step {
        if outside(sizes) == 0 {
            Step::FINAL
        } else if self.waits_since[1] >= self.n() * self.n() {
            Step::poll_now(Depth::All)
        } else if self.waits_since[0] >= self.n() {
            Step::poll_now(Depth::Doze)
        } else if !blocking {
            Step::poll_now(Depth::Active)
        } else if !self.slept {
            self.slept = true;
            Step { depth: Depth::Active, pause: Some(self.sleep) }
        } else {
            Step::FINAL
        }
    }

    fn next_adaptive(&mut self, sizes: [usize; 3], blocking: bool) -> Step {
        let [active, doze, idle] = sizes;
        let others = doze + idle;
        if others <= MAX_ALWAYS_POLLED {
            return Step::FINAL;
        }
        for (due, count) in self.due.iter_mut().zip([doze, others]) {
            if *due == 0 {
                *due = self.now + poll_interval(self.sleep, count);
            }
        }
        // A doze set no larger than the active set is always polled with it.
        let least = if doze <= active.max(MAX_ALWAYS_POLLED) { Depth::Doze } else { Depth::Active };
        let depth = if self.now >= self.due[1] || self.waits_since[1] >= MAX_WAITS {
            Depth::All
        } else if self.now >= self.due[0] {
            Depth::Doze
        } else {
            least
        };
        if !blocking {
            return Step::poll_now(depth);
        }
        let again = depth < Depth::All || (self.busy && others > MAX_SLEPT_ON);
        if !self.recently_active || !again || (self.slept && others <= MAX_SLEPT_ON) {
            Step::FINAL
        } else if depth > least {
            Step::poll_now(depth)
        } else {
            self.slept = true;
            let pause = if others > MAX_SLEPT_ON { self.due[1] - self.now } else { 0 };
            Step { depth, pause: Some(pause) }
        }
    }

    /// Records a poll, which took the time `pause` if it found nothing.
    pub(super) fn on_polled(&mut self, depth: Depth, pause: u64) {
        self.now = self.now.saturating_add(pause);
        self.last = depth;
        let sets = match depth {
            Depth::Active => 0,
            Depth::Doze => 1,
            Depth::All => 2,
        };
        for set in 0..sets {
            self.waits_since[set] = 0;
            self.due[set] = 0;
        }
        if depth == Depth::All {
            self.was_busy = std::mem::take(&mut self.busy);
        }
    }

    /// Records the results of a wait: its depth, the sizes of the sets before it, and the number of
    /// ready descriptors in each set.
    pub(super) fn update(&mut self, depth: Depth, sizes: [usize; 3], found: [usize; 3]) {
        if self.tuning == Tuning::Fixed {
            return;
        }
        self.busy |= found[0] > 0 && self.last < Depth::All;
        self.recently_active = found[0] > 0 || self.was_busy;
        let stats = &mut self.stats;
        stats.waits += 1;
        stats.hits += found[0] as u64;
        stats.misses += (found[1] + found[2]) as u64;
        stats.inside += sizes[0] as u64;
        stats.outside += match depth {
            Depth::Active => 0,
            Depth::Doze => sizes[1] as u64,
            Depth::All => outside(sizes) as u64,
        };
        if depth == Depth::All && stats.waits >= self.n.get() {
            let Stats { hits, misses, inside, outside, .. } = std::mem::take(stats);
            let costly = inside > outside / 2;
            if misses > hits / 64 && !costly {
                self.set_n(self.n() * 2);
            } else if costly && inside > 16 * hits {
                self.set_n(self.n() - self.n() / 4);
            }
        }
    }
}
