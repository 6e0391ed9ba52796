//! The table of watches, and the queue of those that the kernel does not know yet.
//! `epoll_batched.rs` explains the letters.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::submitter::{Op, data};
use crate::event::Token;
use crate::mechanism::NO_EVENT;

bitflags::bitflags! {
    #[derive(Clone, Copy, Default)]
    pub(super) struct State: u8 {
        const REGISTERED = 1;
        /// The watch is in the queue of changed watches.
        const CHANGED = 2;
        /// The kernel has the watch.
        const PRESENT = 4;
        /// The kernel may have a watch of a former registration (c).
        const STALE = 8;
        const EXCLUSIVE = 16;
        /// The kernel has rejected it (d).
        const REJECTED = 32;
        /// The kernel rejected it for lack of memory.
        const RETRY = 64;
        /// The watch is in the queue of rejected watches. It may have left the state `REJECTED`.
        const QUEUED = 128;
    }
}

#[derive(Clone, Copy)]
pub(super) struct Watch {
    pub(super) token: Token,
    pub(super) generation: u32,
    pub(super) events: EventFlags,
    pub(super) state: State,
}

const UNREGISTERED: Watch = Watch {
    token: NO_EVENT.token,
    generation: 0,
    events: EventFlags::empty(),
    state: State::empty(),
};

/// The watches, indexed by descriptor number.
#[derive(Default)]
pub(super) struct WatchTable {
    by_number: Vec<Watch>,
    registered: usize,
    changed: VecDeque<u32>,
}

impl Watch {
    /// Returns the argument of epoll_ctl(2).
    pub(super) fn event(&self, number: u32) -> libc::epoll_event {
        libc::epoll_event { events: self.events.bits(), u64: data(number, self.generation) }
    }
}

impl WatchTable {
    pub(super) fn registered(&self) -> usize {
        self.registered
    }

    /// Returns the watch of a registered descriptor.
    pub(super) fn find(&mut self, fd: RawFd) -> Option<&mut Watch> {
        let watch = self.by_number.get_mut(usize::try_from(fd).ok()?)?;
        watch.state.contains(State::REGISTERED).then_some(watch)
    }

    pub(super) fn register(
        &mut self,
        fd: RawFd,
        token: Token,
        events: EventFlags,
        flags: State,
    ) -> io::Result<()> {
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if self.find(fd).is_some() {
            return Err(Errno::EXIST.into());
        }
        if number >= self.by_number.len() {
            self.by_number.resize(number + 1, UNREGISTERED);
        }
        let watch = &mut self.by_number[number];
        watch.token = token;
        watch.generation = watch.generation.wrapping_add(1);
        watch.events = events;
        watch.state.insert(State::REGISTERED | flags);
        self.registered += 1;
        self.mark_changed(number as u32);
        Ok(())
    }

    pub(super) fn mark_changed(&mut self, number: u32) {
        let watch = &mut self.by_number[number as usize];
        if !watch.state.contains(State::CHANGED) {
            watch.state.insert(State::CHANGED);
            self.changed.push_back(number);
        }
    }

    /// Ends a registration. Returns whether the kernel has or may have a watch of the number.
    pub(super) fn unregister(&mut self, fd: RawFd) -> io::Result<bool> {
        let watch = self.find(fd).ok_or(Errno::NOENT)?;
        let known = watch.state.intersects(State::PRESENT | State::STALE);
        // Its entries in queues remain, and apply to the next registration of the number.
        watch.state &= State::CHANGED | State::QUEUED;
        watch.generation = watch.generation.wrapping_add(1);
        self.registered -= 1;
        Ok(known)
    }

    /// Returns the descriptor number of the first changed watch.
    pub(super) fn first_changed(&self) -> Option<u32> {
        self.changed.front().copied()
    }

    /// Removes the first changed watch from the queue and returns the operation that submits it.
    pub(super) fn next_change(&mut self) -> Option<Op> {
        let number = self.changed.pop_front()?;
        let watch = &mut self.by_number[number as usize];
        let state = watch.state;
        watch.state.remove(State::CHANGED | State::STALE | State::REJECTED | State::RETRY);
        watch.state.set(State::PRESENT, state.contains(State::REGISTERED));
        if !state.contains(State::REGISTERED) {
            return state.contains(State::STALE).then_some(Op::Delete);
        }
        // An exclusive registration cannot be modified.
        let modifies = state.contains(State::PRESENT) && !state.contains(State::EXCLUSIVE);
        Some(if modifies { Op::Modify } else { Op::Add })
    }

    /// Returns the watch of a number that has been registered before.
    pub(super) fn watch(&mut self, number: u32) -> &mut Watch {
        &mut self.by_number[number as usize]
    }

    /// Returns the token of an event, unless its registration has ended.
    #[inline]
    pub(super) fn token(&self, data: u64) -> Option<Token> {
        let watch = self.by_number.get(data as u32 as usize)?;
        (watch.generation == (data >> 32) as u32).then_some(watch.token)
    }

    /// Marks all registrations as changed, for a new epoll instance.
    pub(super) fn mark_all_changed(&mut self) {
        for number in 0..self.by_number.len() {
            let watch = &mut self.by_number[number];
            watch.state.remove(State::PRESENT | State::STALE);
            if watch.state.contains(State::REGISTERED) {
                self.mark_changed(number as u32);
            }
        }
    }
}
