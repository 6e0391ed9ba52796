//! Processes completions: merges them by descriptor and returns them in batches.

use std::collections::VecDeque;

use rustix::event::epoll::EventFlags;

use crate::event::Token;
use crate::ring::{Ring, RingInterface};

bitflags::bitflags! {
    #[derive(Clone, Copy, Default)]
    pub(super) struct State: u8 {
        const REGISTERED = 1;
        /// The kernel has a request of the current generation.
        const ARMED = 2;
        /// The watch is in the queue of changed watches.
        const CHANGED = 4;
        /// The watch is in the queue of those that did not fit into a batch.
        const QUEUED = 8;
        const EXCLUSIVE = 16;
        /// A one-shot request would end immediately for events that no interest covers.
        const FORCE_MULTISHOT = 32;
    }
}

/// The state of a descriptor.
#[derive(Clone, Copy)]
pub(super) struct Watch {
    pub(super) token: Token,
    pub(super) generation: u32,
    /// The index of its event in the batch, if it has one.
    batch_index: u32,
    /// The number of system calls made before it was armed.
    pub(super) armed: u32,
    /// The flags that a request contains, those of current interest, and those not yet reported.
    pub(super) requested: u16,
    pub(super) active: u16,
    pub(super) unreported: u16,
    pub(super) state: State,
}

impl Watch {
    pub(super) const UNREGISTERED: Watch = Watch {
        token: crate::mechanism::NO_EVENT.token,
        generation: 0,
        batch_index: 0,
        armed: 0,
        requested: 0,
        active: 0,
        unreported: 0,
        state: State::empty(),
    };
}

/// Returns the user data of a request.
pub(super) fn user_data(number: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(number)
}

/// The batch, and the events that did not fit into it.
pub(super) struct Completions {
    /// Whether one event disarms a descriptor.
    pub(super) one_shot: bool,
    pub(super) batch: Vec<(Token, u32)>,
    deferred: VecDeque<u32>,
    /// The number of requests that have not ended.
    pub(super) outstanding: usize,
    /// The user data of the request whose end is awaited.
    pub(super) awaited: u64,
    /// The descriptor numbers and results of requests that may have ended unexpectedly.
    pub(super) ended: Vec<(u32, i32)>,
}

impl Completions {
    pub(super) fn new(one_shot: bool) -> Completions {
        Completions {
            one_shot,
            batch: Vec::new(),
            deferred: VecDeque::new(),
            outstanding: 0,
            awaited: super::IGNORED,
            ended: Vec::new(),
        }
    }

    /// Moves completions to the batch while it has space, and then to the queue.
    #[inline]
    pub(super) fn take(&mut self, ring: &mut Ring, watches: &mut [Watch], space: usize) {
        let kept_flags = if self.one_shot { 0 } else { u16::MAX };
        while let Some(completion) = ring.next() {
            let user_data = completion.user_data();
            let number = user_data as u32;
            let Some(watch) = watches.get_mut(number as usize) else {
                continue; // Not a poll request.
            };
            let mut result = completion.result();
            if !completion.has_more() {
                result = self.on_request_end(watch, user_data, result);
            }
            let flags = result as u16 & watch.active;
            if watch.generation != (user_data >> 32) as u32 || flags == 0 {
                continue;
            }
            watch.active &= kept_flags;
            let length = self.batch.len();
            if watch.state.contains(State::QUEUED) {
                watch.unreported |= flags;
            } else if (watch.batch_index as usize) < length
                && space > 0
                && self.batch[watch.batch_index as usize].0 == watch.token
            {
                self.batch[watch.batch_index as usize].1 |= u32::from(flags);
            } else if length < space {
                watch.batch_index = length as u32;
                self.batch.push((watch.token, flags.into()));
            } else {
                watch.unreported = flags;
                watch.state.insert(State::QUEUED);
                self.deferred.push_back(number);
            }
        }
    }

    /// Records the end of a request and returns the poll flags that it reports.
    #[inline]
    fn on_request_end(&mut self, watch: &mut Watch, user_data: u64, result: i32) -> i32 {
        self.outstanding = self.outstanding.saturating_sub(1);
        if user_data == self.awaited {
            self.awaited = super::IGNORED;
        }
        if watch.generation != (user_data >> 32) as u32 {
            return result;
        }
        watch.state.remove(State::ARMED);
        let flags = if result < 0 { EventFlags::ERR.bits() as i32 } else { result };
        if !self.one_shot || flags as u16 & watch.active == 0 {
            self.ended.push((user_data as u32, result));
        }
        flags
    }

    /// Moves queued events to the batch.
    #[inline]
    pub(super) fn take_deferred(&mut self, watches: &mut [Watch], space: usize) {
        if !self.deferred.is_empty() {
            self.take_some_deferred(watches, space);
        }
    }

    fn take_some_deferred(&mut self, watches: &mut [Watch], space: usize) {
        while self.batch.len() < space {
            let Some(number) = self.deferred.pop_front() else {
                break;
            };
            let watch = &mut watches[number as usize];
            watch.state.remove(State::QUEUED);
            if watch.unreported != 0 {
                watch.batch_index = self.batch.len() as u32;
                self.batch.push((watch.token, watch.unreported.into()));
                watch.unreported = 0;
            }
        }
    }
}
