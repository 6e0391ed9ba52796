//! What is watched, and what of it the kernel is yet to be told. What the letters mean stands in
//! `epoll_batched.rs`.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::telling::{Op, data};
use crate::event::Token;
use crate::mechanism::NO_EVENT;

bitflags::bitflags! {
    #[derive(Clone, Copy, Default)]
    pub(super) struct State: u8 {
        const REGISTERED = 1;
        /// It is among those to be told to the kernel.
        const CHANGED = 2;
        /// The kernel has it.
        const PRESENT = 4;
        /// The kernel has it of a former registration, or had (c).
        const FORMER = 8;
        const EXCLUSIVE = 16;
        /// The kernel has refused it (d).
        const REFUSED = 32;
        /// For want of room.
        const AGAIN = 64;
        /// It is among those that were refused, and perhaps are no more.
        const LISTED = 128;
    }
}

#[derive(Clone, Copy)]
pub(super) struct Watch {
    pub(super) token: Token,
    pub(super) generation: u32,
    pub(super) asked: EventFlags,
    pub(super) state: State,
}

const UNREGISTERED: Watch =
    Watch { token: NO_EVENT.who, generation: 0, asked: EventFlags::empty(), state: State::empty() };

/// The watches, by number of descriptor.
#[derive(Default)]
pub(super) struct Ledger {
    by_number: Vec<Watch>,
    registered: usize,
    changed: VecDeque<u32>,
}

impl Watch {
    /// As the kernel is told of it.
    pub(super) fn event(&self, number: u32) -> libc::epoll_event {
        libc::epoll_event { events: self.asked.bits(), u64: data(number, self.generation) }
    }
}

impl Ledger {
    pub(super) fn registered(&self) -> usize {
        self.registered
    }

    /// The watch of what is registered.
    pub(super) fn find(&mut self, fd: RawFd) -> Option<&mut Watch> {
        let watch = self.by_number.get_mut(usize::try_from(fd).ok()?)?;
        watch.state.contains(State::REGISTERED).then_some(watch)
    }

    pub(super) fn register(
        &mut self,
        fd: RawFd,
        token: Token,
        asked: EventFlags,
        how: State,
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
        watch.asked = asked;
        watch.state.insert(State::REGISTERED | how);
        self.registered += 1;
        self.tell_later(number as u32);
        Ok(())
    }

    pub(super) fn tell_later(&mut self, number: u32) {
        let watch = &mut self.by_number[number as usize];
        if !watch.state.contains(State::CHANGED) {
            watch.state.insert(State::CHANGED);
            self.changed.push_back(number);
        }
    }

    /// Ends a registration; says whether the kernel had it, or may have.
    pub(super) fn forget(&mut self, fd: RawFd) -> io::Result<bool> {
        let watch = self.find(fd).ok_or(Errno::NOENT)?;
        let known = watch.state.intersects(State::PRESENT | State::FORMER);
        // Its places in queues are left to whoever has the number next.
        watch.state &= State::CHANGED | State::LISTED;
        watch.generation = watch.generation.wrapping_add(1);
        self.registered -= 1;
        Ok(known)
    }

    /// Whose changes are to be told first.
    pub(super) fn first_changed(&self) -> Option<u32> {
        self.changed.front().copied()
    }

    /// What there is to be told of the first; it is then taken as told.
    pub(super) fn step(&mut self) -> Option<Op> {
        let number = self.changed.pop_front()?;
        let watch = &mut self.by_number[number as usize];
        let state = watch.state;
        watch.state.remove(State::CHANGED | State::FORMER | State::REFUSED | State::AGAIN);
        watch.state.set(State::PRESENT, state.contains(State::REGISTERED));
        if !state.contains(State::REGISTERED) {
            return state.contains(State::FORMER).then_some(Op::Delete);
        }
        // An exclusive registration cannot be modified.
        let modifies = state.contains(State::PRESENT) && !state.contains(State::EXCLUSIVE);
        Some(if modifies { Op::Modify } else { Op::Add })
    }

    /// The watch of a number that has been registered.
    pub(super) fn watch(&mut self, number: u32) -> &mut Watch {
        &mut self.by_number[number as usize]
    }

    /// Whose event it is, unless its registration has gone.
    #[inline]
    pub(super) fn token(&self, who: u64) -> Option<Token> {
        let watch = self.by_number.get(who as u32 as usize)?;
        (watch.generation == (who >> 32) as u32).then_some(watch.token)
    }

    /// Has all be told again, to an epoll instance that knows nothing.
    pub(super) fn start_over(&mut self) {
        for number in 0..self.by_number.len() {
            let watch = &mut self.by_number[number];
            watch.state.remove(State::PRESENT | State::FORMER);
            if watch.state.contains(State::REGISTERED) {
                self.tell_later(number as u32);
            }
        }
    }
}
