//! Timeouts of upstream servers. Every wait for a server is bounded.

use std::time::Duration;

use hearken::io::Relay;

use super::exchange::State;
use super::handler::{Cx, Proxy};
use super::upstream::Flags;
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;

impl Proxy {
    /// Sets the deadline of the upstream connection according to the state of an exchange.
    pub(super) fn update_upstream_deadline<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let timeouts = &self.config.timeouts;
        let exchange = &self.exchanges[key];
        let id = exchange.id;
        let Some(&attempt) = exchange.state.attempt() else { return };
        let upstream = &self.upstreams[attempt.connection];
        // The transport does not report the progress of a relay, so the deadline checks it.
        let is_sending = upstream.sends > 0 || cx.front.is_body_relayed(id);
        let is_relayed = upstream.flags.contains(Flags::RELAYED);
        let span = match exchange.state {
            State::Connecting(_) => Some(timeouts.connect),
            State::Waiting { .. } | State::Responding { .. } => match () {
                () if is_sending => Some(timeouts.send),
                () if is_relayed => Some(timeouts.response_body),
                () if cx.front.waits_for_body(id) || cx.front.is_blocked(id) => None,
                () if matches!(exchange.state, State::Waiting { .. }) => {
                    Some(timeouts.response_header)
                }
                () => Some(timeouts.response_body),
            },
            _ => None,
        };
        let now = Self::now(cx);
        self.set_upstream_deadline(cx, attempt.connection, span.map(|span| now + span));
    }

    /// Handles the deadline of an upstream connection.
    pub(super) fn on_deadline<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32) {
        let upstream = &self.upstreams[connection];
        let Some(key) = upstream.exchange else { return self.on_idle_deadline(cx, connection) };
        let is_relayed = upstream.flags.contains(Flags::RELAYED);
        let is_sending = upstream.sends > 0;
        let exchange = &self.exchanges[key];
        let id = exchange.id;
        let is_uploading = cx.front.is_body_relayed(id);
        let is_waiting = match exchange.state {
            State::Connecting(_) => return self.connect_timed_out(cx, key, connection),
            State::Waiting { .. } => true,
            State::Responding { .. } => false,
            _ => return,
        };
        if self.has_progressed(cx, key) {
            return self.update_upstream_deadline(cx, key);
        }
        if let Some(span) = self.extension(cx, key, is_uploading, is_relayed) {
            let deadline = Self::now(cx) + span;
            return self.set_upstream_deadline(cx, connection, Some(deadline));
        }
        let is_blocked = is_sending || is_uploading;
        let waits_for_body = cx.front.waits_for_body(id);
        if is_waiting && (is_blocked || !waits_for_body) {
            let error = if is_blocked { Error::SendTimeout } else { Error::ResponseTimeout };
            self.metrics().record_error(error);
            self.record_failure(key, "the request timed out");
            let reason = "the upstream server did not respond in time";
            self.respond_error(cx, key, 504, reason, Outcome::UpstreamTimeout);
        } else if !is_waiting
            && (is_blocked || is_relayed || !(cx.front.is_blocked(id) || waits_for_body))
        {
            let error = if is_blocked { Error::SendTimeout } else { Error::ResponseBodyTimeout };
            self.metrics().record_error(error);
            self.record_failure(key, "the response body timed out");
            self.abort(cx, key, Outcome::UpstreamTimeout);
        }
    }

    /// Returns whether a relay has moved bytes for an exchange since the last call.
    fn has_progressed<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) -> bool {
        let exchange = &mut self.exchanges[key];
        let client = cx.front.client(exchange.id);
        let Some(attempt) = exchange.state.attempt() else { return false };
        let server = self.upstreams[attempt.connection].token;
        let sum = cx.io.relayed(server) + client.map_or(0, |client| cx.io.relayed(client));
        std::mem::replace(&mut exchange.relayed_bytes, sum) != sum
    }

    /// Returns the time by which the deadline of a server is extended, if a relay made no progress
    /// because of the client.
    fn extension<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        is_uploading: bool,
        is_relayed: bool,
    ) -> Option<Duration> {
        let exchange = &self.exchanges[key];
        let server = self.upstreams[exchange.state.attempt()?.connection].token;
        let client = cx.front.client(exchange.id)?;
        let timeouts = &self.config.timeouts;
        // If sent bytes are not acknowledged, the receiving side is slow; otherwise the sending side.
        if is_uploading {
            return (cx.io.undelivered(server) == 0).then_some(timeouts.send);
        }
        (is_relayed && cx.io.undelivered(client) > 0).then_some(timeouts.response_body)
    }

    /// Handles the timer of a request.
    pub(super) fn on_request_timer<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let (error, status, reason) = match self.exchanges[key].state {
            State::Queued => (Error::QueueTimeout, 503, "the request timed out in the queue"),
            State::Resolving => {
                (Error::NameNotFound, 504, "the name lookup of the server timed out")
            }
            State::Tunnel { .. } => {
                return match self.has_progressed(cx, key) {
                    true => self.extend_tunnel_deadline(cx, key),
                    false => self.abort(cx, key, Outcome::IdleTimeout),
                };
            }
            _ => return,
        };
        self.metrics().record_error(error);
        self.respond_error(cx, key, status, reason, Outcome::Rejected);
    }
}
