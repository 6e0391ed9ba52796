//! Reports of a history while it runs: a finding, events and coverage.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use hearken::timer::Time;

use crate::finding::Finding;

/// The state of a program's `Io` when the program ended.
#[derive(Clone, Copy, Debug)]
pub struct ProgramEnd {
    /// Index of the host.
    pub host: usize,
    /// The time.
    pub at: Time,
    /// Number of open sockets.
    pub open: usize,
    /// Number of buffers in use, without those lent to a ring.
    pub buffers: usize,
}

/// The report of a running history, shared by its programs.
#[derive(Debug, Default)]
pub struct Report {
    finding: RefCell<Option<Finding>>,
    events: Cell<u64>,
    features: RefCell<Vec<u32>>,
    ends: RefCell<Vec<ProgramEnd>>,
    max_lateness: Cell<Duration>,
}

impl Report {
    /// Reports a finding, which ends the history. Only the first one counts.
    pub fn fail(&self, kind: impl Into<String>, detail: impl Into<String>) {
        self.finding.borrow_mut().get_or_insert_with(|| Finding::new(kind, detail));
    }

    /// Records that the history reached a state: up to four small numbers that describe it.
    pub fn cover(&self, state: [u8; 4]) {
        self.features.borrow_mut().push(u32::from_be_bytes(state));
    }

    /// Returns the ends of programs so far.
    pub fn ends(&self) -> Vec<ProgramEnd> {
        self.ends.borrow().clone()
    }

    pub(crate) fn add_end(&self, end: ProgramEnd) {
        self.ends.borrow_mut().push(end);
    }

    /// Returns the maximum time by which a program continued after the end of its wait.
    pub(crate) fn max_lateness(&self) -> Duration {
        self.max_lateness.get()
    }

    pub(crate) fn add_lateness(&self, lateness: Duration) {
        self.max_lateness.set(self.max_lateness.get().max(lateness));
    }

    pub(crate) fn count_event(&self) {
        self.events.set(self.events.get() + 1);
    }

    pub(crate) fn take_finding(&self) -> Option<Finding> {
        self.finding.take()
    }

    /// Returns the number of completions that programs received.
    pub fn events(&self) -> u64 {
        self.events.get()
    }

    pub(crate) fn take_features(&self) -> Vec<u32> {
        self.features.take()
    }
}
