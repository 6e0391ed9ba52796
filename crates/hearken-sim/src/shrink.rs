//! Shrinks a history: finds fewer and smaller decisions that lead to the same finding.
//!
//! Zero is the benign decision, and zeros follow the bytes. So shorter sequences of smaller bytes are
//! simpler histories.

use std::time::{Duration, Instant};

use crate::finding::Finding;
use crate::history::{self, Source};
use crate::kinds::Kind;

/// A shrunk history.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The decisions.
    pub decisions: Vec<u8>,
    /// The finding.
    pub finding: Finding,
    /// Number of histories that were run.
    pub runs: u64,
}

struct Shrinker<'k> {
    kind: &'k dyn Kind,
    best: Vec<u8>,
    finding: Finding,
    runs: u64,
    deadline: Instant,
}

impl Shrinker<'_> {
    /// Adopts the decisions if they lead to a finding of the same kind.
    fn accept(&mut self, decisions: Vec<u8>) -> bool {
        if decisions == self.best || self.is_late() {
            return false;
        }
        self.runs += 1;
        let mut outcome = history::run(self.kind, &Source::Bytes(decisions), None);
        match outcome.finding {
            Some(finding) if finding.kind == self.finding.kind => {
                while outcome.decisions.last() == Some(&0) {
                    outcome.decisions.pop();
                }
                // Bytes that were not used are removed at once.
                let is_simpler = outcome.decisions.len() < self.best.len()
                    || (outcome.decisions.len() == self.best.len()
                        && outcome.decisions < self.best);
                if is_simpler {
                    self.best = outcome.decisions;
                    self.finding = finding;
                }
                is_simpler
            }
            _ => false,
        }
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Applies `change` to blocks of decreasing size, from the end to the beginning.
    fn change_blocks(&mut self, change: fn(&mut Vec<u8>, std::ops::Range<usize>)) -> bool {
        let mut has_changed = false;
        let mut size = (self.best.len() / 2).max(1);
        loop {
            let mut end = self.best.len();
            while end > 0 && !self.is_late() {
                let start = end.saturating_sub(size);
                let mut decisions = self.best.clone();
                change(&mut decisions, start..end);
                has_changed |= self.accept(decisions);
                end = start.min(self.best.len());
            }
            if size == 1 || self.is_late() {
                return has_changed;
            }
            size /= 2;
        }
    }

    /// Reduces the values of single bytes.
    fn reduce_values(&mut self) -> bool {
        let mut has_changed = false;
        let mut index = 0;
        while index < self.best.len() && !self.is_late() {
            let (mut low, mut high) = (0, self.best[index]);
            // The smallest value that leads to the finding, if larger values do, too.
            while low < high {
                let middle = low + (high - low) / 2;
                let mut decisions = self.best.clone();
                decisions[index] = middle;
                if self.accept(decisions) && index < self.best.len() {
                    (high, has_changed) = (middle, true);
                } else {
                    low = middle + 1;
                }
            }
            index += 1;
        }
        has_changed
    }
}

/// Shrinks a history within `time`. Returns `None` if the history has no finding.
pub fn shrink(kind: &dyn Kind, source: &Source, time: Duration) -> Option<Shrunk> {
    let outcome = history::run(kind, source, None);
    let mut shrinker = Shrinker {
        kind,
        best: outcome.decisions,
        finding: outcome.finding?,
        runs: 1,
        deadline: Instant::now() + time,
    };
    loop {
        let mut has_changed = shrinker.change_blocks(|bytes, block| bytes.truncate(block.start));
        has_changed |= shrinker.change_blocks(|bytes, block| drop(bytes.drain(block)));
        has_changed |= shrinker.change_blocks(|bytes, block| bytes[block].fill(0));
        has_changed |= shrinker.reduce_values();
        if !has_changed || shrinker.is_late() {
            let Shrinker { best, finding, runs, .. } = shrinker;
            return Some(Shrunk { decisions: best, finding, runs });
        }
    }
}
