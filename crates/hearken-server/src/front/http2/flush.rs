//! Sends the frames of a turn, and ends connections.

use hearken::Token;
use hearken::timer::Time;
use hearken_http::h2::ErrorCode;

use super::MAX_OUT;
use crate::front::Front;
use crate::front::connection::{Flags, Phase};
use crate::front::handler::{Context, Handler};
use crate::front::request::Stage;
use crate::front::transport::Transport;
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;
use crate::runtime::rate::{is_too_slow, min_bytes};

/// Number of times that the output of a connection is sent in a turn, so that others continue.
const MAX_SENDS: usize = 4;

impl Front {
    /// Returns the number of HTTP/2 connections that continue at the end of the turn: frames were written
    /// since they received something.
    #[inline]
    pub(crate) fn pending_streams(&self) -> usize {
        self.http2.pending()
    }

    /// Removes the first connection that continues at the end of the turn. A connection that continues
    /// in the next turn follows the others.
    #[cold]
    pub(crate) fn next_pending_streams(&mut self) -> Option<Token> {
        let token = self.http2.pending.pop_front()?;
        if let Some(connection) = self.http2.get(token) {
            connection.is_pending = false;
        }
        Some(token)
    }

    /// Continues an HTTP/2 connection at the end of a turn.
    #[cold]
    pub(crate) fn continue_streams<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        self.flush_http2(io, handler, token);
    }

    /// Sends the frames of a connection, and continues its streams as their windows permit.
    pub(in crate::front) fn flush_http2<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        for count in 1.. {
            let Some(connection) = self.http2.get(token) else { return };
            if connection.is_blocked {
                break;
            }
            if !connection.received.is_empty() && !connection.is_closing {
                let received = std::mem::take(&mut connection.received);
                self.process_frames(io, handler, token, &received);
            }
            if self.connections.get(token).flags.contains(Flags::ENDED) {
                self.end_input(io, handler, token);
            }
            self.fill(io, handler, token);
            let Some(connection) = self.http2.get(token) else { return };
            if connection.out.is_empty() || !self.send_output(io, token) {
                break;
            }
            if count == MAX_SENDS {
                self.http2.mark_pending(token);
                break;
            }
        }
        if self.http2.get(token).is_some_and(|connection| connection.is_congested) {
            self.release_held(io, handler, token);
        }
        self.update_http2(io, token);
    }

    /// Handles the end of a client's sending side, after its last frame was processed. Cancels requests
    /// that will stay incomplete, and tunnels. The connection closes after the other responses.
    #[cold]
    fn end_input<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        let Some(connection) = self.http2.get(token) else { return };
        if !connection.received.is_empty() || connection.frames.is_shutting_down() {
            return;
        }
        let streams = connection.streams.clone();
        for (_, index) in streams {
            if !self.http2.stream(index).is_received() {
                self.on_disconnected(io, handler, index);
            }
        }
        self.shut_down_http2(token);
    }

    /// Continues streams whose content waits, in the order of their priorities.
    fn fill<T: Transport, H: Handler<T>>(&mut self, io: &mut T, handler: &mut H, token: Token) {
        loop {
            self.http2.lend_buffer(token);
            let Some(connection) = self.http2.get(token) else { return };
            if connection.out.len() >= MAX_OUT {
                return;
            }
            let Some(id) = connection.frames.next_writable() else { return };
            let Some(index) = connection.find(id) else {
                connection.frames.reset(id, ErrorCode::INTERNAL_ERROR, &mut connection.out);
                continue;
            };
            if self.http2.continue_content(io, token, index).is_err() {
                // The file is shorter than announced.
                self.on_disconnected(io, handler, index);
            } else if !self.http2.stream(index).has_pending() {
                match self.requests[index].stage {
                    Stage::Sending => self.complete_stream(io, index),
                    _ => {
                        let deferred = self.deferred(index);
                        handler.on_drained(&mut Context { front: self, io }, deferred);
                    }
                }
            }
        }
    }

    /// Sends the frames of a connection. Returns whether the send is complete.
    pub(super) fn send_output<T: Transport>(&mut self, io: &mut T, token: Token) -> bool {
        let Some(connection) = self.http2.get(token) else { return false };
        if connection.is_blocked {
            return false;
        }
        let out = std::mem::take(&mut connection.out);
        let is_sent = self.write_to_client(io, token, &out);
        self.http2.keep_buffer(out);
        if let Some(connection) = self.http2.get(token) {
            connection.is_blocked = !is_sent;
            if is_sent {
                connection.frames.output_sent();
            }
        }
        is_sent
    }

    /// Handles the completion of all sends of a connection.
    pub(in crate::front) fn sent_http2<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        if let Some(connection) = self.http2.get(token) {
            connection.is_blocked = false;
            connection.frames.output_sent();
            self.flush_http2(io, handler, token);
        }
    }

    /// Updates the phase, the deadlines and the receiving of a connection.
    fn update_http2<T: Transport>(&mut self, io: &mut T, token: Token) {
        let now = io.turn_time();
        let timeouts = self.settings.timeouts;
        let Some(connection) = self.http2.get(token) else { return };
        connection.is_closing |= connection.frames.is_finished();
        if connection.is_closing && connection.out.is_empty() && !connection.is_blocked {
            return self.linger(io, token);
        }
        if !connection.waits_for_client() {
            (connection.send_deadline, connection.min_taken) = (None, None);
        } else if connection.send_deadline.is_none() {
            connection.send_deadline = Some(now + timeouts.send);
            self.is_slow_reader(io, token);
        }
        let Some(connection) = self.http2.get(token) else { return };
        let incomplete = match connection.is_closing {
            true => None,
            false => connection.frames.incomplete(),
        };
        if connection.incomplete != incomplete {
            connection.incomplete = incomplete;
            connection.head_deadline = incomplete.map(|_| now + timeouts.header);
        }
        let is_idle = connection.is_idle();
        if connection.received.is_empty() {
            self.resume(io, token);
        } else {
            self.pause(io, token);
        }
        if is_idle && self.connections.get(token).phase == Phase::Streams {
            self.connections.set_idle(token);
        }
        self.set_http2_timer(io, token);
    }

    fn set_http2_timer<T: Transport>(&mut self, io: &mut T, token: Token) {
        if let Some(connection) = self.http2.get(token) {
            let idle = connection.is_idle().then_some(connection.idle_deadline);
            let others =
                [connection.head_deadline, connection.send_deadline, connection.request_deadline];
            let deadline = others.into_iter().flatten().chain(idle).min();
            io.set_timer(token, deadline);
        }
    }

    /// Applies a new deadline of a request to its connection. Later deadlines take effect when the
    /// earlier one has passed.
    pub(in crate::front) fn update_stream_deadline<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        deadline: Option<Time>,
    ) {
        if let Some(deadline) = deadline
            && let Some(connection) = self.http2.get(token)
            && connection.request_deadline.is_none_or(|earliest| deadline < earliest)
        {
            connection.request_deadline = Some(deadline);
            self.set_http2_timer(io, token);
        }
    }

    /// Handles the deadline of a connection with streams.
    pub(in crate::front) fn on_http2_deadline<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        let now = io.turn_time();
        let past = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        let Some(connection) = self.http2.get(token) else { return };
        if past(connection.send_deadline) {
            if self.is_slow_reader(io, token) {
                self.record_error(Error::ClientTimeout);
                self.cancel_streams(io, handler, token, Outcome::ClientTimeout);
                self.connections.remove(token);
                self.http2.remove(token);
                return io.reset_connection(token);
            }
            if let Some(connection) = self.http2.get(token) {
                connection.send_deadline = Some(now + self.settings.timeouts.send);
            }
        }
        let Some(connection) = self.http2.get(token) else { return };
        if past(connection.head_deadline) {
            self.record_error(Error::ClientTimeout);
            self.cancel_streams(io, handler, token, Outcome::ClientTimeout);
            self.shut_down_http2(token);
        } else if past(connection.request_deadline) {
            let indices: Vec<u32> = connection.streams.iter().map(|(_, index)| *index).collect();
            let ids: Vec<_> = indices.iter().map(|index| self.requests.id(*index)).collect();
            for id in ids {
                if let Some(index) = self.requests.find(id)
                    && past(self.requests[index].next_deadline())
                {
                    self.on_request_deadline(io, handler, token, index);
                }
            }
            if let Some(connection) = self.http2.get(token) {
                let requests = connection.streams.iter();
                let deadlines = requests.map(|(_, index)| self.requests[*index].next_deadline());
                connection.request_deadline = deadlines.flatten().min();
            }
        }
        self.flush_http2(io, handler, token);
    }

    /// Returns whether the client takes responses too slowly, and updates the requirement.
    fn is_slow_reader<T: Transport>(&mut self, io: &T, token: Token) -> bool {
        let required = min_bytes(self.settings.min_rate, self.settings.timeouts.send);
        let Some(connection) = self.http2.get(token) else { return false };
        // Acknowledgements of control frames do not count while the windows are closed.
        let taken = match connection.is_blocked {
            true => io.acknowledged(token),
            false => connection.content_bytes,
        };
        if connection.measures_content == connection.is_blocked {
            connection.measures_content = !connection.is_blocked;
            connection.min_taken = None;
        }
        is_too_slow(&mut connection.min_taken, taken, required)
    }

    /// Cancels all requests of a connection.
    pub(in crate::front) fn cancel_streams<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        outcome: Outcome,
    ) {
        while let Some(connection) = self.http2.get(token)
            && let Some(&(_, index)) = connection.streams.last()
        {
            self.cancel(io, handler, index, outcome);
        }
    }

    /// Handles the disconnection of a client.
    #[cold]
    pub(in crate::front) fn disconnected_http2<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        while let Some(connection) = self.http2.get(token)
            && let Some(&(_, index)) = connection.streams.last()
        {
            self.on_disconnected(io, handler, index);
        }
        self.close(io, token);
    }

    /// Closes a connection because the shutdown timeout has expired.
    #[cold]
    pub(in crate::front) fn end_http2<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        self.cancel_streams(io, handler, token, Outcome::ShutdownTimeout);
        self.send_goaway(io, token);
        self.close(io, token);
    }

    /// Releases the requests of a connection without calls of the handler.
    #[cold]
    pub(in crate::front) fn release_streams(&mut self, token: Token) {
        while let Some(connection) = self.http2.get(token)
            && let Some(&(_, index)) = connection.streams.last()
        {
            self.release_stream(index, ErrorCode::INTERNAL_ERROR);
        }
    }

    /// Announces to the clients of all connections that the server stops.
    #[cold]
    pub(in crate::front) fn announce_stop(&mut self) {
        let mut tokens = Vec::new();
        for connection in self.http2.connections.iter_mut().flatten() {
            connection.frames.announce_shut_down(&mut connection.out);
            tokens.push(connection.token);
        }
        tokens.into_iter().for_each(|token| self.http2.mark_pending(token));
    }

    /// Accepts no new streams on a connection. It closes after its open streams.
    #[cold]
    pub(in crate::front) fn shut_down_http2(&mut self, token: Token) {
        if let Some(connection) = self.http2.get(token) {
            connection.frames.shut_down(&mut connection.out);
            self.http2.mark_pending(token);
        }
    }

    /// Sends GOAWAY on a connection that is about to be closed.
    #[cold]
    pub(in crate::front) fn send_goaway<T: Transport>(&mut self, io: &mut T, token: Token) {
        self.shut_down_http2(token);
        self.send_output(io, token);
    }
}
