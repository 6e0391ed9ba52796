//! The snapshot of the servers in a balancer: which servers get requests, and their weights.

use hearken::timer::Time;

use super::Balancer;
use super::policy::Policy;

/// Denominator of the part of its weight that a server has during slow start.
pub(super) const WEIGHT_SCALE: u64 = 1024;
/// Part at the beginning of slow start: a tenth of the weight.
const INITIAL_PART: u64 = WEIGHT_SCALE / 10 + 1;

/// A group of servers from which one is selected.
#[derive(Default)]
pub(super) struct Group {
    pub(super) members: Vec<u32>,
    /// Whether all servers have the same weight.
    pub(super) equal_weights: bool,
    /// Whether round-robin is a simple rotation, because the weights are equal.
    pub(super) simple_rotation: bool,
}

impl Balancer {
    /// Refreshes the snapshot of the servers.
    #[cold]
    pub(super) fn refresh(&mut self, now: Time) {
        self.version = self.servers.version();
        self.servers.synchronise();
        let mut refresh_at = u64::MAX;
        self.trials.clear();
        for group in [&mut self.active, &mut self.fallback] {
            group.members.clear();
        }
        for (index, local) in self.states.iter_mut().enumerate() {
            let condition = self.servers.condition(index);
            local.weight = local.full_weight;
            if !condition.is_available || condition.paused_until != 0 {
                // Resets round-robin, so that a recovered server does not get a burst of requests.
                local.current_weight = 0;
            }
            if !condition.is_available {
                continue;
            }
            if condition.paused_until > now.as_nanos() {
                refresh_at = refresh_at.min(condition.paused_until);
            } else if condition.paused_until != 0 {
                self.trials.push(index as u32);
            } else {
                if condition.up_since != 0 {
                    let (part, next) =
                        slow_start_part(condition.up_since, self.slow_start, now.as_nanos());
                    local.weight = local.full_weight / WEIGHT_SCALE * part;
                    refresh_at = refresh_at.min(next);
                }
                let group = if local.backup { &mut self.fallback } else { &mut self.active };
                group.members.push(index as u32);
            }
        }
        if self.active.members.is_empty() {
            std::mem::swap(&mut self.active, &mut self.fallback);
        } else {
            self.trials.retain(|&server| !self.states[server as usize].backup);
        }
        for group in [&mut self.active, &mut self.fallback] {
            let weight = |&server: &u32| self.states[server as usize].weight;
            let mut weights = group.members.iter().map(weight);
            let first = weights.next();
            group.equal_weights = weights.all(|weight| Some(weight) == first);
            group.simple_rotation =
                group.equal_weights && self.selector.policy == Policy::RoundRobin;
        }
        self.refresh_at = Time::from_nanos(refresh_at);
    }
}

/// Returns the part of its weight that a server has, which recovered at `since`, and the time of the
/// next increase.
fn slow_start_part(since: u64, span: u64, now: u64) -> (u64, u64) {
    let passed = now.saturating_sub(since);
    if passed >= span {
        return (WEIGHT_SCALE, u64::MAX);
    }
    let part = u128::from(WEIGHT_SCALE - INITIAL_PART) * u128::from(passed) / u128::from(span);
    (INITIAL_PART + part as u64, now.saturating_add((span / 128).max(1_000_000)))
}
