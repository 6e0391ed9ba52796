//! When which set is looked at, and for how long the active one is slept on alone.
//!
//! **Fixed**, as in the paper: the doze set in every N-th wait, the idle set in every N²-th. A wait
//! that finds nothing sleeps on the active set for at most the threshold, then on all.
//!
//! **Adaptive** has the load decide, by what looking costs, which is the number of descriptors:
//!
//! * *When.* A look at all is due once half a microsecond has passed for each descriptor that is
//!   not active, and at the latest after the threshold. Looking takes an eighth of that, so it
//!   takes an eighth of the time however many there are; and a few delay nothing to speak of. The
//!   doze set is due by the same rule for itself.
//! * *Sleeping.* A wait sleeps on the active set, until the next look at all is due, if events have
//!   come from there lately. Then it sleeps on all; or, if there were such since the last look at
//!   all, looks and sleeps on the active set once more, for sleeping on all costs four times a
//!   look. So with little to do every wait is on all, and nothing is delayed.
//! * *N.* It doubles while events are missed (more than one in 65 was not found in the active set)
//!   and the active set takes less than half of the work of looking at the others; it falls by a
//!   quarter while it takes more than that and finds fewer than one event in 16 descriptors.
//!   It is judged at a look at all, when it has been in force for N waits.
//!
//! There is one look at the clock a wait, and none while there are few.

use super::sets::{Depth, Rule};
use crate::timer::Time;

/// What is looked at always, as it costs less than to think about it.
const FEW: usize = 16;
/// As many are slept on with no attempt to avoid it: it costs no more than to sleep once more.
const CHEAP: usize = 128;
/// Nanoseconds between looks, for each descriptor that is looked at.
const APART: u64 = 512;
/// However busy the active set is, and whatever the clock says, a look at all comes by then.
const MOST_WAITS: u32 = 1024;
const MOST_N: u32 = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tuning {
    Adaptive,
    Fixed,
}

#[derive(Debug)]
pub(super) struct Pace {
    tuning: Tuning,
    n: u32,
    /// The threshold, in nanoseconds.
    sleep: u64,
    /// Waits since the doze set and all were looked at.
    since: [u32; 2],
    /// When they are due; 0 is not known yet. Set by the wait after a look: what the caller did in
    /// between delays events with any mechanism.
    due: [u64; 2],
    now: u64,
    /// This wait has slept on the active set.
    slept: bool,
    /// The last look was at so much.
    last: Depth,
    /// Looks that were not at all have found something active, since the last that was at all, and
    /// before it.
    busy: bool,
    was_busy: bool,
    /// The last batch held something active, or it was busy before.
    warm: bool,
    record: Record,
}

/// What there was since N was judged.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    waits: u32,
    hits: u64,
    misses: u64,
    /// Descriptors looked at in the active set, and outside.
    inside: u64,
    outside: u64,
}

/// What to do next in a wait: ask about so much, for at most so many nanoseconds.
pub(super) struct Look {
    pub(super) depth: Depth,
    /// None is for as long as the caller's timeout allows; the wait ends with it.
    pub(super) pause: Option<u64>,
}

impl Look {
    fn at_once(depth: Depth) -> Look {
        Look { depth, pause: Some(0) }
    }

    const LAST: Look = Look { depth: Depth::All, pause: None };
}

fn outside(sizes: [usize; 3]) -> usize {
    sizes[1] + sizes[2]
}

impl Pace {
    pub(super) fn new(tuning: Tuning, n: u32, sleep: u64) -> Pace {
        Pace {
            tuning,
            n,
            sleep,
            since: [0; 2],
            due: [0; 2],
            now: 0,
            slept: false,
            last: Depth::All,
            busy: false,
            was_busy: false,
            warm: false,
            record: Record::default(),
        }
    }

    pub(super) fn n(&self) -> u32 {
        self.n
    }

    /// By how many waits a look at all has come.
    pub(super) fn within(&self) -> u32 {
        match self.tuning {
            Tuning::Fixed => self.n * self.n,
            Tuning::Adaptive => MOST_WAITS,
        }
    }

    pub(super) fn rule(&self) -> Rule {
        Rule {
            active: self.n - 1,
            doze: self.n * self.n - self.n,
            on_trial: self.tuning == Tuning::Fixed,
        }
    }

    /// A wait begins.
    pub(super) fn begin(&mut self, sizes: [usize; 3]) {
        for since in &mut self.since {
            *since += 1;
        }
        self.slept = false;
        if self.tuning == Tuning::Adaptive && outside(sizes) > FEW {
            self.now = Time::now().as_nanos();
        }
    }

    /// What to do next. The caller wants to wait if it is `patient`.
    pub(super) fn step(&mut self, sizes: [usize; 3], patient: bool) -> Look {
        match self.tuning {
            Tuning::Fixed => self.step_fixed(sizes, patient),
            Tuning::Adaptive => self.step_adaptive(sizes, patient),
        }
    }

    fn step_fixed(&mut self, sizes: [usize; 3], patient: bool) -> Look {
        if outside(sizes) == 0 {
            Look::LAST
        } else if self.since[1] >= self.n * self.n {
            Look::at_once(Depth::All)
        } else if self.since[0] >= self.n {
            Look::at_once(Depth::Doze)
        } else if !patient {
            Look::at_once(Depth::Active)
        } else if !self.slept {
            self.slept = true;
            Look { depth: Depth::Active, pause: Some(self.sleep) }
        } else {
            Look::LAST
        }
    }

    fn step_adaptive(&mut self, sizes: [usize; 3], patient: bool) -> Look {
        let [active, doze, idle] = sizes;
        let others = doze + idle;
        if others <= FEW {
            return Look::LAST;
        }
        for (due, count) in self.due.iter_mut().zip([doze, others]) {
            if *due == 0 {
                *due = self.now + self.sleep.min(APART * count as u64);
            }
        }
        // A doze set that is no larger than the active one comes with it.
        let least = if doze <= active.max(FEW) { Depth::Doze } else { Depth::Active };
        let depth = if self.now >= self.due[1] || self.since[1] >= MOST_WAITS {
            Depth::All
        } else if self.now >= self.due[0] {
            Depth::Doze
        } else {
            least
        };
        if !patient {
            return Look::at_once(depth);
        }
        let again = depth < Depth::All || (self.busy && others > CHEAP);
        if !self.warm || !again || (self.slept && others <= CHEAP) {
            Look::LAST
        } else if depth > least {
            Look::at_once(depth)
        } else {
            self.slept = true;
            let pause = if others > CHEAP { self.due[1] - self.now } else { 0 };
            Look { depth, pause: Some(pause) }
        }
    }

    /// The look was made, and took so long if it found nothing.
    pub(super) fn looked(&mut self, depth: Depth, pause: u64) {
        self.now = self.now.saturating_add(pause);
        self.last = depth;
        let sets = match depth {
            Depth::Active => 0,
            Depth::Doze => 1,
            Depth::All => 2,
        };
        for set in 0..sets {
            self.since[set] = 0;
            self.due[set] = 0;
        }
        if depth == Depth::All {
            self.was_busy = std::mem::take(&mut self.busy);
        }
    }

    /// A wait has ended that asked about `depth` of sets that were of these `sizes`, and has `found`
    /// so many in each.
    pub(super) fn learn(&mut self, depth: Depth, sizes: [usize; 3], found: [usize; 3]) {
        if self.tuning == Tuning::Fixed {
            return;
        }
        self.busy |= found[0] > 0 && self.last < Depth::All;
        self.warm = found[0] > 0 || self.was_busy;
        let record = &mut self.record;
        record.waits += 1;
        record.hits += found[0] as u64;
        record.misses += (found[1] + found[2]) as u64;
        record.inside += sizes[0] as u64;
        record.outside += match depth {
            Depth::Active => 0,
            Depth::Doze => sizes[1] as u64,
            Depth::All => outside(sizes) as u64,
        };
        if depth == Depth::All && record.waits >= self.n {
            let Record { hits, misses, inside, outside, .. } = std::mem::take(record);
            let costly = inside > outside / 2;
            if misses > hits / 64 && !costly {
                self.n = (self.n * 2).min(MOST_N);
            } else if costly && inside > 16 * hits {
                self.n = (self.n - self.n / 4).max(2);
            }
        }
    }
}
