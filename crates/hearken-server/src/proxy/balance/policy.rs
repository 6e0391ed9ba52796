//! The policies: which of a group of servers is next.

use super::snapshot::Group;
use super::{Tried, hash};

/// What a balancer knows of a server.
#[derive(Default)]
pub(super) struct LocalState {
    pub(super) in_flight: u32,
    /// How many may be.
    pub(super) limit: u32,
    /// What it has of its weight now.
    pub(super) weight: u64,
    pub(super) full_weight: u64,
    /// By how much it is behind in the cycle of smooth weighted round-robin.
    pub(super) current_weight: i64,
    /// What it has of its own in hashes.
    pub(super) seed: u64,
    pub(super) backup: bool,
    pub(super) holds_trial: bool,
}

/// As in the configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    RoundRobin,
    LeastConnections,
    RandomTwo,
    Hash,
}

/// A policy, and what it goes by beside the servers.
pub(super) struct Selector {
    pub(super) policy: Policy,
    /// Whose turn it is among servers of the same weight.
    pub(super) turn: usize,
    pub(super) random: u64,
}

/// What a policy has chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupSelection {
    Server(u32),
    Full,
    /// There was none to choose from.
    None,
}

impl LocalState {
    #[inline(always)]
    pub(super) fn has_capacity(&self) -> bool {
        self.in_flight < self.limit
    }

    /// Whether it has less to do for its weight.
    fn is_less_loaded(&self, other: &LocalState) -> bool {
        u64::from(self.in_flight) * other.weight < u64::from(other.in_flight) * self.weight
    }

    /// Its number for a key, of 52 bits. Of servers of the same weight, the highest has the highest
    /// score, too.
    fn hash_value(&self, key: u64) -> u64 {
        hash::mix(key ^ self.seed) >> 12
    }

    /// That number, by weight: of 100 keys, one with twice the weight has twice as many.
    fn score(&self, key: u64) -> f64 {
        // Between 0 and 1, never either of them.
        let drawn = (self.hash_value(key) as f64 + 0.5) / (1_u64 << 52) as f64;
        self.weight as f64 / -drawn.ln()
    }
}

impl Selector {
    /// The next of servers that have the same weight.
    #[inline(always)]
    pub(super) fn next_in_turn(&mut self, members: &[u32]) -> Option<u32> {
        let at = if self.turn < members.len() { self.turn } else { 0 };
        self.turn = at + 1;
        members.get(at).copied()
    }

    /// One of `group` that was not tried.
    pub(super) fn select(
        &mut self,
        states: &mut [LocalState],
        group: &Group,
        key: u64,
        tried: Tried,
    ) -> GroupSelection {
        let members = &*group.members;
        let fresh = |server: u32| !tried.contains(server as usize);
        if !members.iter().any(|&server| fresh(server)) {
            return GroupSelection::None;
        }
        let fits = |server: u32, local: &LocalState| fresh(server) && local.has_capacity();
        let chosen = match self.policy {
            Policy::RoundRobin => smooth_round_robin(states, members, fits),
            Policy::LeastConnections => least_loaded(states, members, fits),
            Policy::RandomTwo => self.random_two(states, group, fits),
            Policy::Hash => {
                let next = if group.equal_weights {
                    highest_score(members, fresh, |server| states[server as usize].hash_value(key))
                } else {
                    highest_score(members, fresh, |server| states[server as usize].score(key))
                };
                next.filter(|&server| states[server as usize].has_capacity())
            }
        };
        chosen.map_or(GroupSelection::Full, GroupSelection::Server)
    }

    /// The better of two that are drawn by weight.
    fn random_two(
        &mut self,
        states: &[LocalState],
        group: &Group,
        fits: impl Fn(u32, &LocalState) -> bool,
    ) -> Option<u32> {
        let members = &*group.members;
        let fits = |&server: &u32| fits(server, &states[server as usize]);
        let mut drawn = None;
        if group.equal_weights && members.len() > 1 {
            let count = members.len() as u64;
            let one = hash::below(&mut self.random, count);
            let other = (one + 1 + hash::below(&mut self.random, count - 1)) % count;
            drawn = Some((members[one as usize], members[other as usize]))
                .filter(|(one, other)| fits(one) && fits(other));
        }
        let (one, other) = match drawn {
            Some(drawn) => drawn,
            None => {
                let one = self.draw_weighted(states, members, fits)?;
                let other =
                    self.draw_weighted(states, members, |other| *other != one && fits(other));
                (one, other.unwrap_or(one))
            }
        };
        let is_better = states[other as usize].is_less_loaded(&states[one as usize]);
        Some(if is_better { other } else { one })
    }

    /// One of those that fit, by weight.
    fn draw_weighted(
        &mut self,
        states: &[LocalState],
        members: &[u32],
        fits: impl Fn(&u32) -> bool,
    ) -> Option<u32> {
        let weight = |server: &u32| if fits(server) { states[*server as usize].weight } else { 0 };
        let total: u64 = members.iter().map(weight).sum();
        let mut drawn = hash::below(&mut self.random, total.max(1));
        members.iter().copied().find(|server| {
            let weight = weight(server);
            let found = drawn < weight;
            drawn = drawn.saturating_sub(weight);
            found
        })
    }
}

/// Smooth weighted round-robin, as nginx has it: each is behind by its weight more, and the one that is
/// furthest behind is next, and ahead by all weights. Over a cycle each gets its weight, evenly spread.
pub(super) fn smooth_round_robin(
    states: &mut [LocalState],
    members: &[u32],
    fits: impl Fn(u32, &LocalState) -> bool,
) -> Option<u32> {
    let (mut next, mut most, mut total) = (None, i64::MIN, 0);
    for &server in members {
        let local = &mut states[server as usize];
        if fits(server, local) {
            local.current_weight += local.weight as i64;
            total += local.weight as i64;
            if local.current_weight > most {
                (next, most) = (Some(server), local.current_weight);
            }
        }
    }
    let next = next?;
    states[next as usize].current_weight -= total;
    Some(next)
}

/// The one with the least to do for its weight; those that have the same in turn, by weight.
fn least_loaded(
    states: &mut [LocalState],
    members: &[u32],
    fits: impl Fn(u32, &LocalState) -> bool,
) -> Option<u32> {
    let mut least: Option<&LocalState> = None;
    for &server in members {
        let local = &states[server as usize];
        if fits(server, local) && least.is_none_or(|least| local.is_less_loaded(least)) {
            least = Some(local);
        }
    }
    let least = least.map(|&LocalState { in_flight, weight, .. }| LocalState {
        in_flight,
        weight,
        ..LocalState::default()
    })?;
    smooth_round_robin(states, members, |server, local| {
        fits(server, local) && !least.is_less_loaded(local)
    })
}

/// Highest random weight (Thaler and Ravishankar, 1998): each has a number that the key and its name
/// make, and the highest is next. So one that leaves or comes moves its own keys only.
fn highest_score<S: PartialOrd>(
    members: &[u32],
    fits: impl Fn(u32) -> bool,
    score: impl Fn(u32) -> S,
) -> Option<u32> {
    let mut highest: Option<(u32, S)> = None;
    for &server in members {
        if fits(server) {
            let score = score(server);
            if highest.as_ref().is_none_or(|highest| score > highest.1) {
                highest = Some((server, score));
            }
        }
    }
    highest.map(|highest| highest.0)
}

/// Whether `server` would get the key if it were one of `members`.
pub(super) fn is_highest(
    states: &[LocalState],
    members: &[u32],
    server: u32,
    key: u64,
    tried: Tried,
) -> bool {
    let score = |server: u32| states[server as usize].score(key);
    highest_score(members, |other| !tried.contains(other as usize), score)
        .is_none_or(|other| score(server) > score(other))
}
