//! Load balancing methods, which select a server of a group.

use super::snapshot::Group;
use super::{TriedServers, hash};

/// The state of a server in one worker.
#[derive(Default)]
pub(super) struct LocalState {
    pub(super) in_flight: u32,
    /// Maximum number of requests in flight.
    pub(super) limit: u32,
    /// Effective weight, which slow start reduces.
    pub(super) weight: u64,
    pub(super) full_weight: u64,
    /// Current weight in smooth weighted round-robin.
    pub(super) current_weight: i64,
    /// Seed of the server's hash values.
    pub(super) seed: u64,
    pub(super) backup: bool,
    pub(super) holds_trial: bool,
}

/// A load balancing method, as configured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    RoundRobin,
    LeastConnections,
    RandomTwo,
    Hash,
}

/// A load balancing method and its state.
pub(super) struct Selector {
    pub(super) policy: Policy,
    /// Position in the rotation of servers with equal weights.
    pub(super) turn: usize,
    pub(super) random: u64,
}

/// The result of the selection in a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupSelection {
    Server(u32),
    /// All servers in the group have reached their request limit.
    Full,
    /// The group has no server that was not tried.
    None,
}

impl LocalState {
    #[inline(always)]
    pub(super) fn has_capacity(&self) -> bool {
        self.in_flight < self.limit
    }

    /// Returns whether the server has fewer requests in flight relative to its weight.
    fn is_less_loaded(&self, other: &LocalState) -> bool {
        u64::from(self.in_flight) * other.weight < u64::from(other.in_flight) * self.weight
    }

    /// Returns the 52-bit hash of a key for this server. Among servers with equal weights, the
    /// highest hash has the highest score.
    fn hash_value(&self, key: u64) -> u64 {
        hash::mix(key ^ self.seed) >> 12
    }

    /// Returns the weighted score of a key. A server with twice the weight wins twice as many keys.
    fn score(&self, key: u64) -> f64 {
        // Strictly between 0 and 1.
        let uniform = (self.hash_value(key) as f64 + 0.5) / (1_u64 << 52) as f64;
        self.weight as f64 / -uniform.ln()
    }
}

impl Selector {
    /// Returns the next server in the rotation of servers with equal weights.
    #[inline(always)]
    pub(super) fn next_in_turn(&mut self, members: &[u32]) -> Option<u32> {
        let at = if self.turn < members.len() { self.turn } else { 0 };
        self.turn = at + 1;
        members.get(at).copied()
    }

    /// Selects a server of `group` that was not tried.
    pub(super) fn select(
        &mut self,
        states: &mut [LocalState],
        group: &Group,
        key: u64,
        tried: TriedServers,
    ) -> GroupSelection {
        let members = &*group.members;
        let fresh = |server: u32| !tried.contains(server as usize);
        if !members.iter().any(|&server| fresh(server)) {
            return GroupSelection::None;
        }
        let fits = |server: u32, local: &LocalState| fresh(server) && local.has_capacity();
        let selected = match self.policy {
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
        selected.map_or(GroupSelection::Full, GroupSelection::Server)
    }

    /// Draws two servers by weight and returns the less loaded one.
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

    /// Draws a server for which `fits` returns true, by weight.
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

/// Selects a server by smooth weighted round-robin, as in nginx.
///
/// The weight of each server is added to its current weight. The server with the highest current
/// weight is selected, and the sum of the weights is subtracted from its current weight. Over a cycle,
/// each server is selected as often as its weight, evenly distributed.
pub(super) fn smooth_round_robin(
    states: &mut [LocalState],
    members: &[u32],
    fits: impl Fn(u32, &LocalState) -> bool,
) -> Option<u32> {
    let (mut next, mut max, mut total) = (None, i64::MIN, 0);
    for &server in members {
        let local = &mut states[server as usize];
        if fits(server, local) {
            local.current_weight += local.weight as i64;
            total += local.weight as i64;
            if local.current_weight > max {
                (next, max) = (Some(server), local.current_weight);
            }
        }
    }
    let next = next?;
    states[next as usize].current_weight -= total;
    Some(next)
}

/// Selects the least loaded server, relative to its weight. Uses round-robin among equals.
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

/// Selects a server by highest random weight (rendezvous hashing; Thaler and Ravishankar, 1998).
///
/// The key and the name of a server determine its score, and the highest score wins. When a server
/// is added or removed, only its own keys move.
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

/// Returns whether `server` would have the highest score if it were one of `members`.
pub(super) fn is_highest(
    states: &[LocalState],
    members: &[u32],
    server: u32,
    key: u64,
    tried: TriedServers,
) -> bool {
    let score = |server: u32| states[server as usize].score(key);
    highest_score(members, |other| !tried.contains(other as usize), score)
        .is_none_or(|other| score(server) > score(other))
}
