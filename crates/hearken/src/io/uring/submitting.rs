//! Handing requests to the kernel: what has changed in a turn, before the wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::UringIo;
use super::buffers::GROUP;
use super::socket::State;
use crate::event::Token;
use crate::io::bulk::Queue;
use crate::ring::Sqe;

/// What a completion is of, with the slot of its socket below.
pub(super) mod of {
    pub(in super::super) const RECEIVE: u32 = 0;
    pub(in super::super) const ACCEPT: u32 = 1;
    pub(in super::super) const SEND: u32 = 2;
    pub(in super::super) const WAKE: u32 = 3;
    /// A cancellation or a close that has failed: there was nothing to be cancelled, or it is done
    /// in another way.
    pub(in super::super) const NOTHING: u32 = 4;
}

/// What comes back with a request.
#[inline]
pub(super) const fn name(kind: u32, slot: u32) -> u64 {
    (kind as u64) << 32 | slot as u64
}

/// How often an enter is repeated that has not yet come to what it was made for: each does some.
pub(super) const PATIENCE: usize = 10_000;

impl UringIo {
    /// Makes what takes a descriptor.
    pub(super) fn with_descriptor(
        &mut self,
        make: impl Fn() -> io::Result<OwnedFd>,
    ) -> io::Result<OwnedFd> {
        match make() {
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                self.enter(0, None); // What is to be closed may be yet to be handed over.
                make()
            }
            other => other,
        }
    }

    /// Enters the ring, and keeps what fails for the next wait to tell.
    pub(super) fn enter(&mut self, least: u32, timeout: Option<Duration>) {
        match self.ring.enter(least, timeout) {
            Ok(true) => {}
            Ok(false) => {
                self.failed =
                    Some(io::Error::other("the kernel has lost completions for want of memory"));
            }
            Err(error) => self.failed = Some(error),
        }
    }

    /// Sees to it that so many submissions fit.
    #[inline]
    pub(super) fn make_room(&mut self, count: u32) {
        if self.ring.is_short_of(count) {
            self.make_room_slowly(count);
        }
    }

    #[cold]
    fn make_room_slowly(&mut self, count: u32) -> bool {
        for _ in 0..PATIENCE {
            self.enter(0, None);
            if !self.ring.is_short_of(count) {
                return true;
            }
            // It takes nothing while it has completions that do not fit.
            while let Some(completion) = self.ring.next() {
                self.spilled.push_back(completion);
            }
        }
        self.failed.get_or_insert_with(|| Errno::BUSY.into());
        false
    }

    /// Queues a submission.
    ///
    /// # Safety
    /// What the entry points to is as the kernel expects it until the operation has ended.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    unsafe fn push(&mut self, entry: Sqe) {
        if self.ring.is_short_of(1) && !self.make_room_slowly(1) {
            return; // The next wait fails.
        }
        // SAFETY: the caller's promise.
        unsafe { self.ring.push(entry) };
    }

    /// Queues a request that points to nothing of ours, or to what is kept until it has ended, and
    /// whose end is told.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    pub(super) fn begin(&mut self, name: u64, entry: Sqe) {
        self.under_way += 1;
        // SAFETY: what it points to is kept by whoever calls: sends are until they are completed.
        unsafe { self.push(entry.user_data(name)) };
    }

    /// Queues what is told of only if it fails.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    pub(super) fn order(&mut self, entry: Sqe) {
        // SAFETY: closes and cancellations point to nothing.
        unsafe { self.push(entry.user_data(name(of::NOTHING, 0)).skip_success()) };
    }

    /// Has the kernel told, before the wait, of what is wanted then.
    #[inline]
    pub(super) fn change_later(&mut self, token: Token) {
        if let Some(socket) = self.sockets.get(token)
            && !socket.state.contains(State::CHANGED)
        {
            socket.state.insert(State::CHANGED);
            self.changed.push(token);
        }
    }

    /// Queues what can go on without a completion.
    pub(super) fn go_on(&mut self, token: Token, queue: Queue) {
        if let Some(socket) = self.sockets.get(token)
            && !socket.state.contains(State::QUEUED)
        {
            socket.state.insert(State::QUEUED);
            match queue {
                Queue::Turn => self.turn.push_back(token),
                Queue::Bulk => self.bulk.push(token),
                Queue::Later => self.later.push_back(token),
            }
        }
    }

    /// Before a wait: buffers go back to the kernel, and what has changed is told.
    pub(super) fn prepare(&mut self) {
        self.buffers.provide();
        self.sends.keep_waiting();
        if !self.starved.is_empty() {
            self.feed();
        }
        while let Some(token) = self.changed.pop() {
            self.settle(token);
        }
        while let Some(token) = self.later.pop_front() {
            let state = self.sockets.state(token);
            if state.is_some_and(|state| state.contains(State::LISTENER)) {
                self.turn.push_back(token);
            } else {
                self.bulk.push(token);
            }
        }
        if !self.hears_wakeups {
            self.hears_wakeups = true;
            let poll =
                Sqe::poll(self.wakeups.as_fd().as_raw_fd(), PollFlags::IN.bits().into(), true);
            self.begin(name(of::WAKE, 0), poll);
        }
    }

    /// Deals out what there is to this turn.
    #[inline]
    pub(super) fn deal(&mut self) {
        let there = self.spilled.len() + self.ring.available() as usize;
        self.due = there.min(self.settings.batch.max(1)) as u32;
    }

    /// In a turn that has come to nothing: does what need not be waited for, and tells whether there
    /// was any. Who asks for a turn without a wait is told what there is.
    #[cold]
    pub(super) fn goes_on(&mut self) -> bool {
        self.again -= 1;
        let feeds = !self.starved.is_empty() && self.buffers.has_some();
        if self.changed.is_empty() && !feeds && !self.ring.stirs() {
            return false;
        }
        self.prepare();
        self.enter(0, None);
        self.deal();
        self.due > 0
    }

    /// Has as many go on receiving as there are buffers.
    fn feed(&mut self) {
        let mut left = self.buffers.provided();
        while left > 0
            && let Some(token) = self.starved.pop_front()
        {
            if let Some(socket) = self.sockets.get(token) {
                socket.state.remove(State::STARVED);
                left -= u32::from(socket.state.contains(State::STARTED));
                self.change_later(token);
            }
        }
    }

    /// Tells the kernel what is wanted of a socket, if that is not what it has.
    fn settle(&mut self, token: Token) {
        let Some(socket) = self.sockets.get(token) else {
            return;
        };
        socket.state.remove(State::CHANGED);
        let state = socket.state;
        if state.intersects(State::MOVES) {
            return;
        }
        let hindered =
            State::STARVED | State::ENDED | State::CONNECTING | State::LAST | State::RELAYS;
        let wanted = state & (State::STARTED | hindered) == State::STARTED;
        if wanted == state.contains(State::ARMED) || (!wanted && state.contains(State::CANCELLED)) {
            return;
        }
        self.counters.changes += 1;
        let kind = if state.contains(State::LISTENER) { of::ACCEPT } else { of::RECEIVE };
        let name = name(kind, token.slot());
        if !wanted {
            socket.state.insert(State::CANCELLED);
            return self.order(Sqe::cancel(name));
        }
        socket.state.insert(State::ARMED);
        let fd = socket.raw();
        if kind == of::ACCEPT {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let multishot = !self.is_careful();
            self.begin(name, Sqe::accept(fd, flags.bits(), multishot));
        } else {
            self.begin(name, Sqe::receive(fd, GROUP, state.contains(State::HEARD))); // (b)
        }
    }
}
