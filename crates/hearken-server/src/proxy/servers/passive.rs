//! What requests tell of a server: pauses and trials.
//!
//! Failures in a row pause a server for a while; then it is on trial, with one request at a time, until
//! one goes well. All workers go by the same, without a lock.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use hearken::timer::Time;

use super::Servers;
use super::server_state::ServerState;

impl Servers {
    /// A request went well. That ends a trial, but not a pause, as it may have begun before that;
    /// unless the server is used all the same, as there is no `other`.
    #[inline(always)]
    pub(in crate::proxy) fn record_success(&self, server: usize, now: Time, other: bool) {
        let shared = &self.servers[server];
        if shared.failures.load(Relaxed) != 0 {
            self.recover_after_success(shared, now, other);
        }
    }

    #[cold]
    fn recover_after_success(&self, shared: &ServerState, now: Time, other: bool) {
        let until = shared.paused_until.load(Relaxed);
        if until == 0 {
            // One that was paused meanwhile would not get up again without: see `Shared::failures`.
            shared.failures.swap(0, AcqRel);
            if shared.paused_until.load(Relaxed) != 0 {
                shared.failures.store(1, Release);
            }
        } else if until <= now.as_nanos() || !other {
            shared.recover(now);
            self.increment_version();
        }
    }

    /// A request failed. Whether there are others to use is as in [`well`](Servers::well).
    #[cold]
    pub(in crate::proxy) fn record_failure(&self, server: usize, now: Time, other: bool) {
        if self.failures == 0 {
            return;
        }
        let shared = &self.servers[server];
        let until = shared.paused_until.load(Acquire);
        let pauses = if until == 0 {
            let count = |failures: u32| Some(failures.saturating_add(1));
            let before = shared.failures.fetch_update(Relaxed, Relaxed, count);
            before.unwrap_or_default() >= self.failures - 1
        } else {
            until <= now.as_nanos() || !other
        };
        let next = now.as_nanos().saturating_add(self.pause).max(1);
        // Who comes second has failed at the same time.
        if pauses && shared.paused_until.compare_exchange(until, next, AcqRel, Relaxed).is_ok() {
            shared.failures.store(self.failures, Release);
            self.increment_version();
        }
    }

    /// Begins a trial, if its pause is over and none is in flight.
    pub(in crate::proxy) fn begin_trial(&self, server: usize, now: Time) -> bool {
        let shared = &self.servers[server];
        if shared.trial.load(Relaxed) || shared.trial.swap(true, Acquire) {
            return false;
        }
        // One that ended just now may have decided what becomes of it.
        let until = shared.paused_until.load(Relaxed);
        let begins = until != 0 && until <= now.as_nanos();
        if !begins {
            self.end_trial(server);
        }
        begins
    }

    /// The trial is over, once what came of it was told.
    pub(in crate::proxy) fn end_trial(&self, server: usize) {
        self.servers[server].trial.store(false, Release);
    }
}
