//! Passive health checks: pauses and trials.
//!
//! Consecutive failed requests pause a server. After the pause, the server is on trial: it gets one
//! request at a time until one succeeds. All workers share this state, without locks.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use hearken::timer::Time;

use super::Servers;
use super::server_state::ServerState;

impl Servers {
    /// Records a successful request, which ends a trial. It ends a pause only if there are no `other`
    /// servers, because the request may have started before the pause.
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
            // If the server was paused concurrently, the count must not stay 0; see
            // `ServerState::failures`.
            shared.failures.swap(0, AcqRel);
            if shared.paused_until.load(Relaxed) != 0 {
                shared.failures.swap(1, Release);
            }
        } else if until <= now.as_nanos() || !other {
            shared.recover(now);
            self.increment_version();
        }
    }

    /// Records a failed request. `other` is whether other servers are up.
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
        // If another thread wins, it has recorded a concurrent failure.
        if pauses && shared.paused_until.compare_exchange(until, next, AcqRel, Relaxed).is_ok() {
            shared.failures.swap(self.failures, Release);
            self.increment_version();
        }
    }

    /// Starts a trial if the pause is over and no trial is in flight. Returns whether it started.
    pub(in crate::proxy) fn begin_trial(&self, server: usize, now: Time) -> bool {
        let shared = &self.servers[server];
        if shared.trial.load(Relaxed) || shared.trial.swap(true, Acquire) {
            return false;
        }
        // A trial that ended concurrently may have ended or renewed the pause.
        let until = shared.paused_until.load(Relaxed);
        let begins = until != 0 && until <= now.as_nanos();
        if !begins {
            self.end_trial(server);
        }
        begins
    }

    /// Ends the trial, after its result was recorded.
    pub(in crate::proxy) fn end_trial(&self, server: usize) {
        self.servers[server].trial.store(false, Release);
    }
}
