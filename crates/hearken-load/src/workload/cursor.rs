//! Iteration over a workload by one thread.

use std::sync::Arc;
use std::time::Duration;

use super::wsesslog::Burst;
use super::{Limits, List, Selection, Workload};
use crate::shard::Shard;

/// An iterator over the part of a workload that belongs to one thread. It never allocates.
///
/// Of n shards, shard i takes every n-th element of an ordered workload, starting at i. Each
/// shard draws from random workloads independently.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    workload: Arc<Workload>,
    random: fastrand::Rng,
    /// Index of the next element of the list or of the next session.
    next: u64,
    /// Distance between the elements of this shard.
    stride: u64,
    /// Numbers of requests and sessions that this shard may still take.
    remaining: Limits,
    /// Current session and the number of remaining requests in its burst, for arrivals of single requests.
    session: Option<(SessionState, u32)>,
}

/// The remaining part of a session, or of the requests of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SessionState {
    /// Number of remaining bursts of a session file, or of remaining requests of a connection.
    remaining: u32,
    /// Index of the next burst of a session file.
    burst: u32,
    /// Index of the next message in the steps or in the list.
    position: u64,
    /// Number of requests reserved for the first burst, so that no connection is opened without a request.
    reserved: u32,
    /// Whether no burst has been returned yet.
    is_first: bool,
}

impl Cursor {
    pub(super) fn new(workload: Arc<Workload>, shard: u32, shards: u32, seed: u64) -> Cursor {
        // Similar seeds could result in overlapping sequences.
        let mut seeds = fastrand::Rng::with_seed(seed);
        let seed = (0..=shard).fold(0, |_, _| seeds.u64(..));
        let part = Shard { index: shard.into(), count: shards.max(1).into() };
        let share_of = |total| if total == u64::MAX { total } else { part.share_of_count(total) };
        let Limits { requests, sessions } = workload.limits;
        Cursor {
            workload,
            remaining: Limits { requests: share_of(requests), sessions: share_of(sessions) },
            random: fastrand::Rng::with_seed(seed),
            next: shard.into(),
            stride: shards.max(1).into(),
            session: None,
        }
    }

    /// Returns the message of the next request, or `None` at the end of the list.
    pub(crate) fn next_request(&mut self) -> Option<u32> {
        match self.workload.selection {
            Selection::List(_) => {
                let (position, _) = self.take_steps(1)?;
                Some(self.message(position))
            }
            Selection::Sessions(_) => loop {
                let (mut script, remaining) = match self.session.take() {
                    Some(session) => session,
                    None => (self.next_session()?, 0),
                };
                if remaining > 0 {
                    let message = self.next_message(&mut script);
                    self.session = Some((script, remaining - 1));
                    return Some(message);
                }
                let burst = self.next_burst(&mut script);
                self.session = burst.map(|burst| (script, burst.messages));
            },
            Selection::Single | Selection::Weighted { .. } | Selection::Mix(_) => {
                Some(self.message(0))
            }
        }
    }

    /// Skips up to `count` arrivals of requests, or of connections or sessions, and returns their
    /// number. Elements of a list or of a session file are skipped with them.
    pub(crate) fn skip(&mut self, count: u64, requests: bool) -> u64 {
        let limit = match &self.workload.selection {
            Selection::List(list) if !list.repeat => list.steps.len() as u64,
            Selection::List(_) => u64::MAX,
            Selection::Sessions(all) if !requests => all.count.unwrap_or(u64::MAX),
            Selection::Single
            | Selection::Weighted { .. }
            | Selection::Mix(_)
            | Selection::Sessions(_) => return count,
        };
        let remaining = limit.saturating_sub(self.next).div_ceil(self.stride);
        let skipped = count.min(remaining);
        self.next = self.next.saturating_add(skipped.saturating_mul(self.stride));
        skipped
    }

    /// Starts the next connection or session. Returns `None` after the last.
    pub(crate) fn next_session(&mut self) -> Option<SessionState> {
        let mut script =
            SessionState { remaining: 1, burst: 0, position: 0, reserved: 0, is_first: true };
        self.remaining.sessions = self.remaining.sessions.checked_sub(1)?;
        match &self.workload.selection {
            Selection::Sessions(all) => {
                let number = self.next;
                if all.count.is_some_and(|count| number >= count) {
                    return None;
                }
                self.next = number.checked_add(self.stride)?;
                let session = all.sessions.get((number % all.sessions.len() as u64) as usize)?;
                (script.remaining, script.burst) = (session.bursts, session.burst);
                script.position = session.step.into();
                return Some(script);
            }
            Selection::Mix(mix) => {
                script.remaining = mix.session_len(&mut self.random);
                return Some(script);
            }
            Selection::Single | Selection::Weighted { .. } | Selection::List(_) => {
                if let Some(count) = self.workload.per_connection {
                    script.remaining = count.sample(&mut self.random).get();
                }
            }
        }
        (script.position, script.reserved) =
            self.take_steps(script.remaining.min(self.workload.pipeline))?;
        Some(script)
    }

    /// Returns the next burst of a connection or session, or `None` after the last.
    pub(crate) fn next_burst(&mut self, script: &mut SessionState) -> Option<Burst> {
        if script.remaining == 0 {
            return None;
        }
        if let Selection::Sessions(all) = &self.workload.selection {
            let burst = all.bursts.get(script.burst as usize).copied();
            script.burst += 1;
            script.remaining -= 1;
            return burst;
        }
        let wanted = script.remaining.min(self.workload.pipeline);
        let mut messages = wanted;
        if !matches!(self.workload.selection, Selection::Mix(_)) {
            (script.position, messages) = match std::mem::take(&mut script.reserved) {
                0 => self.take_steps(wanted).unwrap_or((0, 0)),
                reserved => (script.position, reserved),
            };
        }
        // Fewer than wanted means the end of the list, or of the requests of this shard.
        script.remaining = if messages == wanted { script.remaining - messages } else { 0 };
        let think = match (self.workload.think, std::mem::take(&mut script.is_first)) {
            (Some(think), false) => think.sample(&mut self.random),
            _ => Duration::ZERO,
        };
        (messages > 0).then_some(Burst { think, messages })
    }

    /// Returns a burst of which no message was sent, so that other connections of this shard send as many
    /// requests.
    pub(crate) fn return_burst(&mut self, burst: Burst) {
        let requests = &mut self.remaining.requests;
        *requests = requests.saturating_add(burst.messages.into());
    }

    /// Returns the next message of the current burst. Must be called once for each message of a burst before
    /// the next burst.
    pub(crate) fn next_message(&mut self, script: &mut SessionState) -> u32 {
        let position = script.position;
        script.position = match self.workload.selection {
            Selection::List(_) => position.wrapping_add(self.stride),
            _ => position.wrapping_add(1),
        };
        self.message(position)
    }

    /// Returns the message at a position, or a random one.
    fn message(&mut self, position: u64) -> u32 {
        let found = match &self.workload.selection {
            Selection::Single => return 0,
            Selection::Weighted { alias, messages } => {
                messages.get(alias.sample(&mut self.random) as usize)
            }
            Selection::Mix(mix) => return mix.sample(&mut self.random),
            Selection::List(list) => list.find(position),
            Selection::Sessions(all) => all.steps.get(position as usize),
        };
        found.copied().unwrap_or_default()
    }

    /// Takes up to `wanted` requests, or elements of the list, for this shard. Returns the index of the first
    /// element and their number, which is at least one.
    fn take_steps(&mut self, wanted: u32) -> Option<(u64, u32)> {
        let mut count = u64::from(wanted).min(self.remaining.requests);
        let mut position = 0;
        if let Selection::List(List { steps, repeat, .. }) = &self.workload.selection {
            position = self.next;
            let remaining =
                if *repeat { u64::MAX } else { (steps.len() as u64).saturating_sub(position) };
            count = count.min(remaining.div_ceil(self.stride));
            self.next = position.checked_add(count.checked_mul(self.stride)?)?;
        }
        self.remaining.requests -= count;
        (count > 0).then_some((position, count as u32))
    }
}
