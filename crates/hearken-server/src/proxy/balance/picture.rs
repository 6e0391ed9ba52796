//! A balancer's picture of the servers: who gets requests now, and with what weight.

use hearken::timer::Time;

use super::Balancer;
use super::choose::Policy;

/// The part of its weight that a server has is in so many parts.
pub(super) const FULL: u64 = 1024;
/// What one has that came back just now: a tenth.
const FIRST: u64 = FULL / 10 + 1;

/// Servers among which one is chosen.
#[derive(Default)]
pub(super) struct Group {
    pub(super) members: Vec<u32>,
    /// Whether all have the same weight.
    pub(super) even: bool,
    /// Whether they are simply taken in turn for that.
    pub(super) in_turn: bool,
}

impl Balancer {
    /// Makes a picture of the servers.
    #[cold]
    pub(super) fn look(&mut self, now: Time) {
        self.version = self.servers.version();
        self.servers.catch_up();
        let mut due = u64::MAX;
        self.trials.clear();
        for group in [&mut self.active, &mut self.spare] {
            group.members.clear();
        }
        for (index, local) in self.locals.iter_mut().enumerate() {
            let condition = self.servers.condition(index);
            local.weight = local.full_weight;
            if !condition.fit || condition.paused_until != 0 {
                // It is not owed anything when it comes back.
                local.current = 0;
            }
            if !condition.fit {
                continue;
            }
            if condition.paused_until > now.as_nanos() {
                due = due.min(condition.paused_until);
            } else if condition.paused_until != 0 {
                self.trials.push(index as u32);
            } else {
                if condition.up_since != 0 {
                    let (part, next) = ramp(condition.up_since, self.slow_start, now.as_nanos());
                    local.weight = local.full_weight / FULL * part;
                    due = due.min(next);
                }
                let group = if local.backup { &mut self.spare } else { &mut self.active };
                group.members.push(index as u32);
            }
        }
        if self.active.members.is_empty() {
            std::mem::swap(&mut self.active, &mut self.spare);
        } else {
            self.trials.retain(|&server| !self.locals[server as usize].backup);
        }
        for group in [&mut self.active, &mut self.spare] {
            let weight = |&server: &u32| self.locals[server as usize].weight;
            let mut weights = group.members.iter().map(weight);
            let first = weights.next();
            group.even = weights.all(|weight| Some(weight) == first);
            group.in_turn = group.even && self.chooser.policy == Policy::RoundRobin;
        }
        self.due = Time::from_nanos(due);
    }
}

/// Which part of its weight a server has that came back at `since`, and when it has more.
fn ramp(since: u64, span: u64, now: u64) -> (u64, u64) {
    let passed = now.saturating_sub(since);
    if passed >= span {
        return (FULL, u64::MAX);
    }
    let part = u128::from(FULL - FIRST) * u128::from(passed) / u128::from(span);
    (FIRST + part as u64, now.saturating_add((span / 128).max(1_000_000)))
}
