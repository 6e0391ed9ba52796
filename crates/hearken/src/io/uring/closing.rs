//! Closing a socket, and the whole.

use std::os::fd::IntoRawFd;

use super::UringIo;
use super::sending::request;
use super::socket::{NONE, State};
use super::submitting::{PATIENCE, name, of};
use crate::event::Token;
use crate::io::sockets;
use crate::ring::Sqe;

impl UringIo {
    /// Ends a token: its socket is closed, and the slot goes to another when the kernel has let go.
    pub(super) fn retire(&mut self, token: Token) {
        let slot = token.slot();
        let Some(socket) = self.sockets.get(token) else {
            return;
        };
        if socket.state.intersects(State::RELAYS | State::FED) {
            let state = socket.state;
            self.leave_relays(token, state);
        }
        let Some(socket) = self.sockets.get(token) else {
            return;
        };
        let (state, first) = (socket.state, socket.sends);
        if state.contains(State::SENDING) {
            self.sends.remove_behind(first);
        } else {
            socket.sends = NONE;
            self.sends.remove_all(first);
        }
        // Where a close is linked to a send, who has closed it is known when that has ended.
        let fd = if state.contains(State::LAST) { None } else { socket.fd.take() };
        self.wheel.cancel(slot);
        self.sockets.retire(slot);
        if state.contains(State::LISTENER) {
            self.kept.retain(|(of, accepted)| {
                if *of == token {
                    sockets::reset(Some(accepted));
                }
                *of != token
            });
        }
        let kind = if state.contains(State::LISTENER) { of::ACCEPT } else { of::RECEIVE };
        if state & (State::ARMED | State::CANCELLED) == State::ARMED {
            self.order(Sqe::cancel(name(kind, slot))); // (a)
        }
        if state.contains(State::SENDING) {
            self.order(Sqe::cancel(request(slot)));
        }
        if state.intersects(State::LISTENER) && state.contains(State::ARMED) {
            self.await_listener(slot);
        } else if state.intersects(State::BUSY) {
            if let Some(fd) = fd {
                self.order(Sqe::close(fd.into_raw_fd())); // (i)
            }
        } else {
            drop(fd);
            self.sockets.vacate(slot);
        }
    }

    /// Lets a listener's accept end, as its address is free for another when this returns.
    fn await_listener(&mut self, slot: u32) {
        for _ in 0..PATIENCE {
            self.enter(0, None);
            // Looked at when it is their turn; until then connections in them are not reset.
            while let Some(completion) = self.ring.next() {
                self.spilled.push_back(completion);
            }
            let ended = |completion: &crate::ring::Cqe| {
                completion.user_data() == name(of::ACCEPT, slot) && !completion.has_more()
            };
            if self.spilled.iter().any(ended) {
                return;
            }
        }
    }
}

impl Drop for UringIo {
    /// The kernel closes a ring when it finds the time: what it does is ended before (f).
    fn drop(&mut self) {
        for slot in self.sockets.slots() {
            if let Some(token) = self.sockets.token_at(slot) {
                self.retire(token);
            }
        }
        self.order(Sqe::cancel_all());
        for _ in 0..PATIENCE {
            self.make_room(1);
            self.enter(0, None);
            while let Some(completion) = self.spilled.pop_front().or_else(|| self.ring.next()) {
                let _ = self.complete(completion);
            }
            if self.under_way == 0 {
                return;
            }
        }
        self.buffers.leak();
        self.sends.leak();
    }
}
