//! Submitting requests to the kernel: the changes of a turn, before the wait.

use std::io;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::buffers::GROUP;
use super::socket::State;
use super::{RingKernel, UringIo};
use crate::event::Token;
use crate::io::large_transfers::Queue;
use crate::mechanism::Source;
use crate::ring::{RingInterface, Sqe};
use crate::sys::poll_events;

/// Kinds of requests. The user data of a request contain its kind and the slot of its socket.
pub(super) mod request_kind {
    pub(in super::super) const RECEIVE: u32 = 0;
    pub(in super::super) const ACCEPT: u32 = 1;
    pub(in super::super) const SEND: u32 = 2;
    pub(in super::super) const WAKE: u32 = 3;
    /// A cancellation or a close, which completes only if it fails: the request had ended already.
    pub(in super::super) const NOTHING: u32 = 4;
}

/// Returns the user data of a request.
#[inline]
pub(super) const fn user_data(kind: u32, slot: u32) -> u64 {
    (kind as u64) << 32 | slot as u64
}

/// Maximum number of repetitions of an enter until its purpose is achieved. Each makes some
/// progress.
pub(super) const MAX_ENTERS: usize = 10_000;

impl<R: RingInterface, K: RingKernel> UringIo<R, K> {
    /// Calls `open`, which creates a descriptor, and retries once if the limit of descriptors is
    /// reached.
    pub(super) fn with_descriptor(
        &mut self,
        open: impl Fn(&K) -> io::Result<K::Socket>,
    ) -> io::Result<K::Socket> {
        match open(&self.kernel) {
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                self.enter(0, None); // Closes may not be submitted yet.
                open(&self.kernel)
            }
            other => other,
        }
    }

    /// Enters the ring. The next wait returns an error of this call.
    pub(super) fn enter(&mut self, least: u32, timeout: Option<Duration>) {
        match self.ring.enter(least, timeout) {
            Ok(true) => {}
            Ok(false) => {
                self.failed = Some(io::Error::other(
                    "the kernel lost completions because it is out of memory",
                ));
            }
            Err(error) => self.failed = Some(error),
        }
    }

    /// Ensures that `count` submissions fit.
    #[inline]
    pub(super) fn reserve_submissions(&mut self, count: u32) {
        if self.ring.lacks_space_for(count) {
            self.drain_completions(count);
        }
    }

    #[cold]
    fn drain_completions(&mut self, count: u32) -> bool {
        for _ in 0..MAX_ENTERS {
            self.enter(0, None);
            if !self.ring.lacks_space_for(count) {
                return true;
            }
            // The kernel accepts no submissions while it has completions that do not fit.
            while let Some(completion) = self.ring.next() {
                self.drained.push_back(completion);
            }
        }
        self.failed.get_or_insert_with(|| Errno::BUSY.into());
        false
    }

    /// Queues a submission.
    ///
    /// # Safety
    /// The memory that the entry points to must be valid for the operation until it has ended.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    unsafe fn push(&mut self, entry: Sqe) {
        if self.ring.lacks_space_for(1) && !self.drain_completions(1) {
            return; // The next wait fails.
        }
        // SAFETY: the caller's promise.
        unsafe { self.ring.push(entry) };
    }

    /// Queues a request whose end is reported. Its entry points to no memory, or to memory that
    /// lives until the request has ended.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    pub(super) fn submit(&mut self, data: u64, entry: Sqe) {
        self.in_flight += 1;
        // SAFETY: callers keep the memory of an entry: sends are kept until they have completed.
        unsafe { self.push(entry.user_data(data)) };
    }

    /// Queues a request whose end is reported only if it fails.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    pub(super) fn submit_silent(&mut self, entry: Sqe) {
        // SAFETY: closes and cancellations point to nothing.
        unsafe { self.push(entry.user_data(user_data(request_kind::NOTHING, 0)).skip_success()) };
    }

    /// Marks a socket whose request must be updated before the next wait.
    #[inline]
    pub(super) fn update_later(&mut self, token: Token) {
        if let Some(socket) = self.sockets.get(token)
            && !socket.state.contains(State::CHANGED)
        {
            socket.state.insert(State::CHANGED);
            self.changed.push(token);
        }
    }

    /// Queues a socket that can continue without a completion.
    pub(super) fn enqueue(&mut self, token: Token, queue: Queue) {
        if let Some(socket) = self.sockets.get(token)
            && !socket.state.contains(State::QUEUED)
        {
            socket.state.insert(State::QUEUED);
            match queue {
                Queue::ThisTurn => self.turn.push_back(token),
                Queue::LargeTransfers => self.large_transfers.push(token),
                Queue::NextTurn => self.later.push_back(token),
            }
        }
    }

    /// Prepares a wait: provides buffers to the kernel, and updates the requests of marked sockets.
    pub(super) fn prepare(&mut self) {
        self.buffers.provide();
        self.sends.detach_waiting();
        if !self.waiting_for_buffer.is_empty() {
            self.resume_receivers();
        }
        while let Some(token) = self.changed.pop() {
            self.update_request(token);
        }
        while let Some(token) = self.later.pop_front() {
            let state = self.sockets.state(token);
            if state.is_some_and(|state| state.contains(State::LISTENER)) {
                self.turn.push_back(token);
            } else {
                self.large_transfers.push(token);
            }
        }
        if !self.polls_wakeups {
            self.polls_wakeups = true;
            let poll = Sqe::poll(self.wakeups.raw(), poll_events(PollFlags::IN), true);
            self.submit(user_data(request_kind::WAKE, 0), poll);
        }
    }

    /// Starts the batch of this turn, which contains the completions that are available now.
    #[inline]
    pub(super) fn start_batch(&mut self) {
        let available = self.drained.len() + self.ring.available() as usize;
        self.batch_left = available.min(self.settings.batch.max(1)) as u32;
    }

    /// Submits the changes of a turn that has had no completion, without waiting. Returns whether
    /// there are completions now. A turn without a wait thereby reports what is available.
    #[cold]
    pub(super) fn submit_again(&mut self) -> bool {
        self.reentries_left -= 1;
        let has_buffers = !self.waiting_for_buffer.is_empty() && self.buffers.has_some();
        if self.changed.is_empty() && !has_buffers && !self.ring.needs_enter() {
            return false;
        }
        self.prepare();
        self.enter(0, None);
        self.start_batch();
        self.batch_left > 0
    }

    /// Resumes as many receivers that wait for a buffer as there are buffers.
    fn resume_receivers(&mut self) {
        let mut left = self.buffers.provided();
        while left > 0
            && let Some(token) = self.waiting_for_buffer.pop_front()
        {
            if let Some(socket) = self.sockets.get(token) {
                socket.state.remove(State::NEEDS_BUFFER);
                left -= u32::from(socket.state.contains(State::STARTED));
                self.update_later(token);
            }
        }
    }

    /// Submits or cancels the accept or receive of a socket, if the kernel's request differs from
    /// the wanted one.
    fn update_request(&mut self, token: Token) {
        let Some(socket) = self.sockets.get(token) else {
            return;
        };
        socket.state.remove(State::CHANGED);
        let state = socket.state;
        if state.intersects(State::RELAY_ACTIVE) {
            return;
        }
        let prevented_by = State::NEEDS_BUFFER
            | State::RECEIVE_ENDED
            | State::CONNECTING
            | State::CLOSE_LINKED
            | State::RELAY_SOURCE;
        let wanted = state & (State::STARTED | prevented_by) == State::STARTED;
        if wanted == state.contains(State::ARMED) || (!wanted && state.contains(State::CANCELLED)) {
            return;
        }
        self.counters.changes += 1;
        let kind = if state.contains(State::LISTENER) {
            request_kind::ACCEPT
        } else {
            request_kind::RECEIVE
        };
        let data = user_data(kind, token.slot());
        if !wanted {
            socket.state.insert(State::CANCELLED);
            return self.submit_silent(Sqe::cancel(data));
        }
        socket.state.insert(State::ARMED);
        let fd = socket.raw();
        if kind == request_kind::ACCEPT {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let multishot = !self.limits_accepts();
            self.submit(data, Sqe::accept(fd, flags.bits(), multishot));
        } else if state.contains(State::WATCHED) {
            self.submit(data, Sqe::poll(fd, poll_events(PollFlags::IN), false));
        } else {
            self.submit(data, Sqe::receive(fd, GROUP, state.contains(State::HAS_RECEIVED))); // (b)
        }
    }
}
