//! Closing a socket, and dropping the instance.

use super::sending::send_request;
use super::socket::{NONE, State};
use super::submitting::{MAX_ENTERS, request_kind, user_data};
use super::{RingKernel, UringIo};
use crate::event::Token;
use crate::io::kernel::KernelSocket;
use crate::ring::{RingInterface, Sqe};

impl<R: RingInterface, K: RingKernel> UringIo<R, K> {
    /// Closes a token and its socket. The slot becomes free when the last request has ended.
    pub(super) fn retire(&mut self, token: Token) {
        let slot = token.slot();
        let Some(socket) = self.sockets.get(token) else {
            return;
        };
        if socket.state.intersects(State::RELAY_SOURCE | State::RELAY_TARGET) {
            let state = socket.state;
            self.end_relays_of(token, state);
        }
        let Some(socket) = self.sockets.get(token) else {
            return;
        };
        let (state, first) = (socket.state, socket.sends);
        if state.contains(State::SENDING) {
            self.sends.remove_after(first);
        } else {
            socket.sends = NONE;
            self.sends.remove_all(first);
        }
        // If a close is linked to a send, the kernel closes the descriptor unless the send fails.
        let fd = if state.contains(State::CLOSE_LINKED) { None } else { socket.fd.take() };
        self.wheel.cancel(slot);
        self.sockets.retire(slot);
        if state.contains(State::LISTENER) {
            self.accepted_early.retain(|(of, accepted)| {
                if *of == token {
                    accepted.reset_on_close();
                }
                *of != token
            });
        }
        let kind = if state.contains(State::LISTENER) {
            request_kind::ACCEPT
        } else {
            request_kind::RECEIVE
        };
        if state & (State::ARMED | State::CANCELLED) == State::ARMED {
            self.submit_silent(Sqe::cancel(user_data(kind, slot))); // (a)
        }
        if state.contains(State::SENDING) {
            self.submit_silent(Sqe::cancel(send_request(slot)));
        }
        if state.intersects(State::LISTENER) && state.contains(State::ARMED) {
            self.wait_for_listener(slot);
        } else if state.intersects(State::BUSY) {
            if let Some(fd) = fd {
                let number = self.kernel.release(fd);
                self.submit_silent(Sqe::close(number)); // (i)
            }
        } else {
            drop(fd);
            self.sockets.vacate(slot);
        }
    }

    /// Waits until a listener's accept has ended, so that the address is free when this returns.
    fn wait_for_listener(&mut self, slot: u32) {
        for _ in 0..MAX_ENTERS {
            self.enter(0, None);
            // They are handled in order later. Connections that they accepted are not reset before
            // that.
            while let Some(completion) = self.ring.next() {
                self.drained.push_back(completion);
            }
            let ended = |completion: &crate::ring::Cqe| {
                completion.user_data() == user_data(request_kind::ACCEPT, slot)
                    && !completion.has_more()
            };
            if self.drained.iter().any(ended) {
                return;
            }
        }
    }
}

impl<R: RingInterface, K: RingKernel> Drop for UringIo<R, K> {
    /// Ends all requests, since the kernel closes a ring asynchronously (f).
    fn drop(&mut self) {
        for slot in self.sockets.slots() {
            if let Some(token) = self.sockets.token_at(slot) {
                self.retire(token);
            }
        }
        self.submit_silent(Sqe::cancel_all());
        for _ in 0..MAX_ENTERS {
            self.reserve_submissions(1);
            self.enter(0, None);
            while let Some(completion) = self.drained.pop_front().or_else(|| self.ring.next()) {
                let _ = self.complete(completion);
            }
            if self.in_flight == 0 {
                return;
            }
        }
        self.buffers.leak();
        self.sends.leak();
    }
}
