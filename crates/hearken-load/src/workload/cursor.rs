//! What a thread asks for next.

use std::sync::Arc;
use std::time::Duration;

use super::wsesslog::Burst;
use super::{Kind, List, Workload};

/// A thread's way through a workload. Nothing is allocated on it.
///
/// Of n shards, that at i has every n-th from i on of what has an order; of what is drawn, it
/// draws its own.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    workload: Arc<Workload>,
    random: fastrand::Rng,
    /// Where the next is, in the order of the list or of the sessions; and how far to the one after.
    next: u64,
    stride: u64,
    /// The session that requests are taken from where they arrive one by one, and how many of its
    /// burst are left.
    session: Option<(Script, u32)>,
}

/// What is left of a session, or of a connection's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Script {
    /// Bursts of a session that was read; requests of any other, but for those of the burst.
    left: u32,
    /// The next burst of a session that was read.
    burst: u32,
    /// Where the next message is, in the steps or in the list.
    at: u64,
    /// Requests of a list that are kept for the first burst, so that it has some.
    kept: u32,
    /// Whether no burst was had yet.
    fresh: bool,
}

impl Cursor {
    pub(super) fn new(workload: Arc<Workload>, shard: u32, shards: u32, seed: u64) -> Cursor {
        // Seeds that are near each other may give sequences that overlap.
        let mut seeds = fastrand::Rng::with_seed(seed);
        let seed = (0..=shard).fold(0, |_, _| seeds.u64(..));
        Cursor {
            workload,
            random: fastrand::Rng::with_seed(seed),
            next: shard.into(),
            stride: shards.max(1).into(),
            session: None,
        }
    }

    /// For arrivals by requests: the next one's message; nothing once the list has ended.
    pub(crate) fn next_request(&mut self) -> Option<u32> {
        match self.workload.kind {
            Kind::List(_) => {
                let (at, _) = self.take(1)?;
                Some(self.message(at))
            }
            Kind::Sessions(_) => loop {
                let (mut script, left) = match self.session.take() {
                    Some(session) => session,
                    None => (self.begin()?, 0),
                };
                if left > 0 {
                    let message = self.next_in_burst(&mut script);
                    self.session = Some((script, left - 1));
                    return Some(message);
                }
                let burst = self.next_burst(&mut script);
                self.session = burst.map(|burst| (script, burst.messages));
            },
            Kind::One | Kind::Weighted { .. } | Kind::Mix(_) => Some(self.message(0)),
        }
    }

    /// For arrivals by connections or sessions: the next one; nothing after the last.
    pub(crate) fn begin(&mut self) -> Option<Script> {
        let mut script = Script { left: 1, burst: 0, at: 0, kept: 0, fresh: true };
        match &self.workload.kind {
            Kind::Sessions(all) => {
                let number = self.next;
                if all.count.is_some_and(|count| number >= count) {
                    return None;
                }
                self.next = number.checked_add(self.stride)?;
                let session = all.sessions.get((number % all.sessions.len() as u64) as usize)?;
                (script.left, script.burst) = (session.bursts, session.burst);
                script.at = session.step.into();
                return Some(script);
            }
            Kind::Mix(mix) => script.left = mix.session_len(&mut self.random),
            Kind::One | Kind::Weighted { .. } | Kind::List(_) => {
                if let Some(count) = self.workload.per_connection {
                    script.left = count.sample(&mut self.random).get();
                }
            }
        }
        if let Kind::List(_) = self.workload.kind {
            (script.at, script.kept) = self.take(script.left.min(self.workload.pipeline))?;
        }
        Some(script)
    }

    /// The next burst of a session or connection; nothing after the last.
    pub(crate) fn next_burst(&mut self, script: &mut Script) -> Option<Burst> {
        if script.left == 0 {
            return None;
        }
        if let Kind::Sessions(all) = &self.workload.kind {
            let burst = all.bursts.get(script.burst as usize).copied();
            script.burst += 1;
            script.left -= 1;
            return burst;
        }
        let wanted = script.left.min(self.workload.pipeline);
        let mut messages = wanted;
        if let Kind::List(_) = self.workload.kind {
            (script.at, messages) = match std::mem::take(&mut script.kept) {
                0 => self.take(wanted).unwrap_or((0, 0)),
                kept => (script.at, kept),
            };
        }
        // Less than wanted is the end of the list.
        script.left = if messages == wanted { script.left - messages } else { 0 };
        let think = match (self.workload.think, std::mem::take(&mut script.fresh)) {
            (Some(think), false) => think.sample(&mut self.random),
            _ => Duration::ZERO,
        };
        (messages > 0).then_some(Burst { think, messages })
    }

    /// The next message of the burst that was had last. To be asked for exactly as often as that
    /// has messages, before the next burst.
    pub(crate) fn next_in_burst(&mut self, script: &mut Script) -> u32 {
        let at = script.at;
        script.at = match self.workload.kind {
            Kind::List(_) => at.wrapping_add(self.stride),
            _ => at.wrapping_add(1),
        };
        self.message(at)
    }

    /// The message there, or one drawn.
    fn message(&mut self, at: u64) -> u32 {
        let found = match &self.workload.kind {
            Kind::One => return 0,
            Kind::Weighted { alias, messages } => {
                messages.get(alias.sample(&mut self.random) as usize)
            }
            Kind::Mix(mix) => return mix.sample(&mut self.random),
            Kind::List(list) => list.get(at),
            Kind::Sessions(all) => all.steps.get(at as usize),
        };
        found.copied().unwrap_or_default()
    }

    /// Takes up to `wanted` of this shard's part of the list: where they begin, and how many
    /// there are, at least one.
    fn take(&mut self, wanted: u32) -> Option<(u64, u32)> {
        let Kind::List(List { steps, repeat, .. }) = &self.workload.kind else {
            return None;
        };
        let at = self.next;
        let left = if *repeat { u64::MAX } else { (steps.len() as u64).saturating_sub(at) };
        let count = u64::from(wanted).min(left.div_ceil(self.stride));
        self.next = at.checked_add(count.checked_mul(self.stride)?)?;
        (count > 0).then_some((at, count as u32))
    }
}
