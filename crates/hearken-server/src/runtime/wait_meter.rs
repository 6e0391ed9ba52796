//! Measures the waits of an event loop.

use std::io;
use std::time::Duration;

use hearken::io::Io;
use hearken::mechanism::Counters;
use hearken::timer::Time;
use rustix::time::{ClockId, clock_gettime};

use super::metrics::{WaitOutcome, WorkerMetrics};

/// Measures the processor time of waits, and what each wait led to.
///
/// The events of a wait are counted as the turn handles them. Their number is therefore known when
/// the next wait begins.
#[derive(Debug, Default)]
pub(crate) struct WaitMeter {
    /// The counters when the last wait began.
    counters: Counters,
    /// Number of accepted connections when the last wait began.
    accepted: u64,
}

impl WaitMeter {
    /// Waits for events. `is_active` is whether operations completed in the turn before.
    pub(crate) fn wait(
        &mut self,
        io: &mut impl Io,
        until: Option<Time>,
        metrics: &WorkerMetrics,
        is_active: bool,
    ) -> io::Result<()> {
        self.end_turn(&io.counters(), metrics, is_active);
        let before = clock_gettime(ClockId::ThreadCPUTime);
        io.wait(until)?;
        let used = clock_gettime(ClockId::ThreadCPUTime) - before;
        metrics.record_wait_cpu(Duration::try_from(used).unwrap_or_default());
        Ok(())
    }

    /// Records the last wait at the end of its turn.
    pub(crate) fn end_turn(
        &mut self,
        counters: &Counters,
        metrics: &WorkerMetrics,
        is_active: bool,
    ) {
        let before = std::mem::replace(&mut self.counters, *counters);
        let total = metrics.connections_accepted.get();
        let accepts = total - std::mem::replace(&mut self.accepted, total);
        if counters.waits == before.waits {
            return; // This is the first turn.
        }
        let returned = |counters: &Counters| counters.events + counters.spurious;
        let events = returned(counters) - returned(&before);
        metrics.record_wait(&WaitOutcome { events, accepts, is_useful: is_active && events > 0 });
    }
}
