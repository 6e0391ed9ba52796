//! Sends the frames of a turn; deadlines; the end of connections and streams.

use hearken::io::Relay;
use hearken::timer::Time;
use hearken_http::h2::ErrorCode;

use super::MAX_OUT;
use crate::proxy::exchange::State;
use crate::proxy::handler::{Cx, Proxy};
use crate::proxy::upstream::Flags;

/// Number of times that the frames of a connection are sent in a turn, so that others continue.
const MAX_SENDS: usize = 4;
/// Capacity in bytes of the buffer for frames that a connection retains.
const MAX_RETAINED_BYTES: usize = 16 * 1024;

impl Proxy {
    /// Continues the connections that have received something or have something to send.
    #[cold]
    pub(in crate::proxy) fn flush_http2<I: Relay>(&mut self, cx: &mut Cx<'_, I>) {
        for key in std::mem::take(&mut self.http2.pending) {
            if let Some(state) = self.http2.get(key) {
                state.is_pending = false;
                self.flush_connection(cx, key);
            }
        }
    }

    fn flush_connection<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let resumed = self.http2.get(key).map(|state| std::mem::take(&mut state.resumed));
        for stream in resumed.into_iter().flatten() {
            if !self.upstreams[stream].flags.contains(Flags::PAUSED) {
                self.forward_stored(cx, stream);
                self.release_content(stream);
            }
        }
        for count in 1.. {
            self.send_waiting(cx, key);
            self.continue_content(cx, key);
            let Some(state) = self.http2.get(key) else { return };
            if state.out.is_empty() || state.is_blocked || !state.is_connected {
                break;
            }
            let mut out = std::mem::take(&mut state.out);
            self.metrics().bytes_sent_upstream.add(out.len() as u64);
            let is_sent = cx.io.send_now(self.upstreams[key].token, &out);
            let Some(state) = self.http2.get(key) else { return };
            state.is_blocked = !is_sent;
            if is_sent {
                state.frames.output_sent();
            }
            out.clear();
            out.shrink_to(MAX_RETAINED_BYTES);
            state.out = out;
            if count == MAX_SENDS {
                self.http2.mark_pending(key);
                break;
            }
        }
        self.update_connection(cx, key);
    }

    /// Updates the receiving and the deadline of a connection, and closes it if it is not needed.
    fn update_connection<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let now = Self::now(cx);
        let token = self.upstreams[key].token;
        let is_kept = !self.stopping
            && !cx.front.is_stopping()
            && self.destination.keeps_alive(self.upstreams[key].route);
        let idle_timeout = self.idle_timeout(None);
        let Some(state) = self.http2.get(key) else { return };
        if state.is_idle() {
            if state.is_draining || !is_kept {
                return self.close(cx, key);
            }
            let deadline = *state.idle_deadline.get_or_insert(now + idle_timeout);
            self.upstreams[key].flags.remove(Flags::HAS_STREAMS);
            return self.set_connection_deadline(cx, key, deadline);
        }
        let must_pause = state.is_blocked && state.out.len() >= MAX_OUT;
        if must_pause != std::mem::replace(&mut state.is_paused, must_pause) {
            match must_pause {
                true => cx.io.stop(token),
                false => cx.io.start(token),
            }
        }
        if let Some(deadline) = state.waiting_deadline.filter(|_| !state.waiting.is_empty()) {
            self.set_connection_deadline(cx, key, deadline);
        }
    }

    /// Moves the deadline of a connection to an earlier time.
    fn set_connection_deadline<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, deadline: Time) {
        let Some(state) = self.http2.get(key) else { return };
        if state.deadline.is_none_or(|earliest| deadline < earliest) {
            state.deadline = Some(deadline);
            cx.io.set_deadline(self.upstreams[key].token, Some(deadline));
        }
    }

    /// Handles the completion of a send of a connection without an exchange.
    #[cold]
    pub(in crate::proxy) fn on_idle_sent(&mut self, key: u32) {
        if let Some(state) = self.http2.get(key) {
            state.is_blocked = false;
            state.frames.output_sent();
            self.http2.mark_pending(key);
        }
    }

    /// Handles a failure of sending on a connection without an exchange.
    #[cold]
    pub(in crate::proxy) fn on_idle_send_failed<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        match self.http2.get(key) {
            // The server may have responded before it closed the connection, so receiving continues.
            Some(state) if !state.is_idle() => {
                state.is_blocked = true;
                self.http2.drain(key);
            }
            _ => self.close(cx, key),
        }
    }

    /// Handles the deadline of a connection without an exchange.
    #[cold]
    pub(in crate::proxy) fn on_idle_deadline<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let now = Self::now(cx);
        let is_past = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        let Some(state) = self.http2.get(key) else { return self.close(cx, key) };
        state.deadline = None;
        if state.is_idle() && is_past(state.idle_deadline) {
            return self.close(cx, key);
        }
        if !state.waiting.is_empty() && is_past(state.waiting_deadline) {
            self.time_out_connecting(cx, key);
        }
        let Some(state) = self.http2.get(key) else { return };
        for (id, stream) in state.streams.clone() {
            if self.http2.stream(stream).id == Some(id)
                && is_past(self.http2.stream(stream).deadline)
            {
                self.http2.stream(stream).deadline = None;
                self.drain_if_silent(key, stream);
                self.on_deadline(cx, stream);
            }
        }
        let Some(state) = self.http2.get(key) else { return };
        let streams = state.streams.clone();
        let own =
            [state.idle_deadline, state.waiting_deadline.filter(|_| !state.waiting.is_empty())];
        let deadlines = streams.iter().map(|(_, stream)| self.http2.stream(*stream).deadline);
        let next = deadlines.chain(own).flatten().min();
        if let Some(next) = next {
            self.set_connection_deadline(cx, key, next);
        }
        self.http2.mark_pending(key);
    }

    /// Sends no further requests on a connection that has received nothing since a request was sent that
    /// timed out. The server may be unreachable.
    fn drain_if_silent(&mut self, key: u32, stream: u32) {
        let Some(exchange) = self.upstreams[stream].exchange else { return };
        let exchange = &self.exchanges[exchange];
        let (is_waiting, sent) =
            (matches!(exchange.state, State::Waiting { .. }), exchange.times.sent);
        if is_waiting && self.http2.get(key).is_some_and(|state| state.received_at < sent) {
            self.http2.drain(key);
        }
    }

    /// Sets the deadline of a connection or of a stream.
    #[inline]
    pub(in crate::proxy) fn set_upstream_deadline<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        deadline: Option<Time>,
    ) {
        let upstream = &self.upstreams[key];
        if !upstream.flags.contains(Flags::STREAM) {
            cx.io.set_deadline(upstream.token, deadline);
        } else if let Some(earlier) = self.http2.set_deadline(key, deadline) {
            cx.io.set_deadline(upstream.token, Some(earlier));
        }
    }

    /// Ends and removes a stream, or closes and removes a connection.
    #[cold]
    pub(in crate::proxy) fn close_http2<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let upstream = &self.upstreams[key];
        if upstream.flags.contains(Flags::STREAM) {
            self.close_stream(key);
            return self.upstreams.remove(key);
        }
        let token = upstream.token;
        if let Some(mut state) = self.http2.remove(key)
            && state.is_connected
            && !state.is_blocked
        {
            if !state.frames.is_finished() {
                state.frames.shut_down(&mut state.out);
            }
            cx.io.send_now(token, &state.out);
        }
        cx.front.close_handler(cx.io, token);
        self.upstreams.remove(key);
    }

    /// Ends a stream.
    fn close_stream(&mut self, key: u32) {
        let Some((connection, stream)) = self.http2.pair(key) else { return };
        let (id, unreleased) = stream.end();
        connection.forget(id, key);
        if let Some(id) = id {
            connection.frames.release(id, unreleased, &mut connection.out);
            connection.frames.close_stream(id, ErrorCode::CANCEL, &mut connection.out);
        }
        let connection = stream.connection;
        self.http2.mark_pending(connection);
    }
}
