//! What has arrived: completions taken off the ring, joined by descriptor, and given out in batches.

use std::collections::VecDeque;

use rustix::event::epoll::EventFlags;

use crate::event::Token;
use crate::ring::Ring;

bitflags::bitflags! {
    #[derive(Clone, Copy, Default)]
    pub(super) struct State: u8 {
        const REGISTERED = 1;
        /// A request of the present generation is with the kernel.
        const ARMED = 2;
        /// It is among those to be told to the kernel.
        const CHANGED = 4;
        /// It is among those that did not fit into a batch.
        const QUEUED = 8;
        const EXCLUSIVE = 16;
        /// A one-shot request would end for what was not asked for.
        const STUBBORN = 32;
    }
}

/// What is known of a descriptor.
#[derive(Clone, Copy)]
pub(super) struct Watch {
    pub(super) token: Token,
    pub(super) generation: u32,
    /// Where it is in the batch, if it is there.
    at: u32,
    /// The number of the call before the one that armed it.
    pub(super) armed: u32,
    /// What a request asks for, what is listened to at present, and what has not been told.
    pub(super) asked: u16,
    pub(super) heard: u16,
    pub(super) untold: u16,
    pub(super) state: State,
}

impl Watch {
    pub(super) const UNREGISTERED: Watch = Watch {
        token: crate::mechanism::NO_EVENT.who,
        generation: 0,
        at: 0,
        armed: 0,
        asked: 0,
        heard: 0,
        untold: 0,
        state: State::empty(),
    };
}

/// What comes back with a request.
pub(super) fn name(number: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(number)
}

/// The batch, and what did not fit into it.
pub(super) struct Arrivals {
    /// One event silences.
    pub(super) one_shot: bool,
    pub(super) batch: Vec<(Token, u32)>,
    later: VecDeque<u32>,
    /// Requests that have not ended.
    pub(super) outstanding: usize,
    /// The request whose end is awaited.
    pub(super) awaited: u64,
    /// Requests that have ended and perhaps should not have, with what they said.
    pub(super) ended: Vec<(u32, i32)>,
}

impl Arrivals {
    pub(super) fn new(one_shot: bool) -> Arrivals {
        Arrivals {
            one_shot,
            batch: Vec::new(),
            later: VecDeque::new(),
            outstanding: 0,
            awaited: super::NOBODY,
            ended: Vec::new(),
        }
    }

    /// Takes completions: into the batch as long as it has room, or for later waits.
    #[inline]
    pub(super) fn take(&mut self, ring: &mut Ring, watches: &mut [Watch], room: usize) {
        let keeps = if self.one_shot { 0 } else { u16::MAX };
        while let Some(completion) = ring.next() {
            let who = completion.user_data();
            let number = who as u32;
            let Some(watch) = watches.get_mut(number as usize) else {
                continue; // Of no request.
            };
            let mut said = completion.result();
            if !completion.has_more() {
                said = self.on_end(watch, who, said);
            }
            let flags = said as u16 & watch.heard;
            if watch.generation != (who >> 32) as u32 || flags == 0 {
                continue;
            }
            watch.heard &= keeps;
            let length = self.batch.len();
            if watch.state.contains(State::QUEUED) {
                watch.untold |= flags;
            } else if (watch.at as usize) < length
                && room > 0
                && self.batch[watch.at as usize].0 == watch.token
            {
                self.batch[watch.at as usize].1 |= u32::from(flags);
            } else if length < room {
                watch.at = length as u32;
                self.batch.push((watch.token, flags.into()));
            } else {
                watch.untold = flags;
                watch.state.insert(State::QUEUED);
                self.later.push_back(number);
            }
        }
    }

    /// Notes that a request has ended, and says what that says of the descriptor.
    #[inline]
    fn on_end(&mut self, watch: &mut Watch, who: u64, said: i32) -> i32 {
        self.outstanding = self.outstanding.saturating_sub(1);
        if who == self.awaited {
            self.awaited = super::NOBODY;
        }
        if watch.generation != (who >> 32) as u32 {
            return said;
        }
        watch.state.remove(State::ARMED);
        let flags = if said < 0 { EventFlags::ERR.bits() as i32 } else { said };
        if !self.one_shot || flags as u16 & watch.heard == 0 {
            self.ended.push((who as u32, said));
        }
        flags
    }

    /// Takes what did not fit before.
    #[inline]
    pub(super) fn take_later(&mut self, watches: &mut [Watch], room: usize) {
        if !self.later.is_empty() {
            self.take_some_later(watches, room);
        }
    }

    fn take_some_later(&mut self, watches: &mut [Watch], room: usize) {
        while self.batch.len() < room {
            let Some(number) = self.later.pop_front() else {
                break;
            };
            let watch = &mut watches[number as usize];
            watch.state.remove(State::QUEUED);
            if watch.untold != 0 {
                watch.at = self.batch.len() as u32;
                self.batch.push((watch.token, watch.untold.into()));
                watch.untold = 0;
            }
        }
    }
}
