//! Timeouts of clients. Every wait for a client is bounded.

use hearken::Token;
use hearken_http::Reject;

use super::Front;
use super::connection::Phase;
use super::handler::{Context, Handler};
use super::request::{Facts, Stage, Wait};
use super::transport::Transport;
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;
use crate::runtime::rate::{is_too_slow, min_bytes};

const HEAD_TIMEOUT: Reject = Reject::new(408, "the request head timed out");
const BODY_TIMEOUT: Reject = Reject::new(408, "the request body timed out");
const REQUEST_TIMEOUT: Reject = Reject::new(504, "the request timed out");

impl Front {
    /// Starts to wait for an event of the client, or for none with [`Wait::Nothing`].
    pub(super) fn wait_for<T: Transport>(&mut self, io: &mut T, index: u32, wait: Wait) {
        let timeouts = &self.settings.timeouts;
        let span = match wait {
            Wait::Nothing => None,
            Wait::Head => Some(timeouts.header),
            Wait::Body => Some(timeouts.body),
            Wait::Send => Some(timeouts.send),
        };
        if wait == Wait::Body {
            self.has_sent_enough(io, index);
        }
        let request = &mut self.requests[index];
        request.wait = wait;
        request.wait_deadline = span.map(|span| io.turn_time() + span);
        self.update_deadline(io, index);
    }

    /// Starts to wait for an event of the client, unless such a wait is in progress. The rate of a
    /// body is measured over complete periods.
    pub(super) fn wait_for_client<T: Transport>(&mut self, io: &mut T, index: u32, wait: Wait) {
        let before = self.requests[index].wait;
        let is_sending = before == Wait::Send
            && (self.connections.get(self.requests[index].token).sends > 0
                || self.requests[index].facts.contains(Facts::RELAYED));
        if before != wait && !is_sending {
            self.wait_for(io, index, wait);
        }
    }

    /// Sets the deadline of the connection to the earliest deadline of its request, or of its streams.
    #[inline]
    pub(super) fn update_deadline<T: Transport>(&mut self, io: &mut T, index: u32) {
        let request = &self.requests[index];
        let deadline = request.next_deadline();
        if request.is_stream() {
            return self.update_stream_deadline(io, request.token, deadline);
        }
        io.set_timer(request.token, deadline);
    }

    /// Handles the deadline of a client connection.
    pub(crate) fn on_deadline<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        match self.connections.get(token).phase {
            Phase::Idle => self.end_idle(io, token),
            Phase::Lingering => self.close(io, token),
            Phase::Active => {
                let index = self.connections.exchange(token);
                self.on_request_deadline(io, handler, token, index);
            }
            Phase::Streams => self.on_http2_deadline(io, handler, token),
            Phase::Vacant | Phase::Handler => {}
        }
    }

    /// Handles the deadline of a request in progress.
    pub(super) fn on_request_deadline<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        index: u32,
    ) {
        let now = io.turn_time();
        let id = self.requests.id(index);
        let request = &mut self.requests[index];
        let past = |deadline: Option<hearken::timer::Time>| deadline.is_some_and(|it| it <= now);
        if past(request.deadline) {
            self.record_error(Error::RequestTimeout);
            return self.abandon(io, handler, index, REQUEST_TIMEOUT, Outcome::RequestTimeout);
        }
        if past(request.body_deadline) {
            self.record_error(Error::ClientTimeout);
            return self.abandon(io, handler, index, BODY_TIMEOUT, Outcome::ClientTimeout);
        }
        if past(request.timer) {
            request.timer = None;
            let deferred = self.deferred(index);
            handler.on_timer(&mut Context { front: self, io }, deferred);
        } else if past(request.wait_deadline) {
            match (request.stage, request.wait) {
                (Stage::Head, _) if request.received.is_empty() => {
                    self.requests.end(index);
                    return self.close(io, token);
                }
                (_, Wait::Head) => {
                    self.record_error(Error::ClientTimeout);
                    return self.reject_slow_head(io, index);
                }
                (_, Wait::Body) => self.check_body_rate(io, handler, index),
                (_, Wait::Send) => self.check_send_rate(io, handler, token, index),
                (_, Wait::Nothing) => {}
            }
        } else if request.stage == Stage::Head && request.wait == Wait::Nothing {
            // The timeout of the first head of a connection starts at the accept.
            if request.received.is_empty() {
                self.requests.end(index);
                return self.close(io, token);
            }
            self.record_error(Error::ClientTimeout);
            return self.reject_slow_head(io, index);
        }
        if self.requests.find(id).is_some() {
            self.update_deadline(io, index);
        }
    }

    fn reject_slow_head<T: Transport>(&mut self, io: &mut T, index: u32) {
        let request = &mut self.requests[index];
        request.facts.remove(Facts::KEEP_ALIVE);
        request.reason = Some(HEAD_TIMEOUT.reason);
        let input = request.received.len().min(256);
        request.head.extend_from_slice(&request.received[..input]);
        self.respond_error_at(
            io,
            index,
            HEAD_TIMEOUT.status,
            HEAD_TIMEOUT.reason,
            Outcome::BadRequest,
        );
    }

    /// Checks the rate at which a client sends a body.
    fn check_body_rate<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        index: u32,
    ) {
        // The upstream server may be the slow side.
        let is_excused = self.requests[index].relay_to.is_some_and(|to| io.unacknowledged(to) > 0);
        if !self.has_sent_enough(io, index) && !is_excused {
            self.record_error(Error::ClientTimeout);
            return self.abandon(io, handler, index, BODY_TIMEOUT, Outcome::ClientTimeout);
        }
        self.wait_for(io, index, Wait::Body);
    }

    /// Returns whether the client has sent enough of the body, and updates the requirement.
    fn has_sent_enough<T: Transport>(&mut self, io: &T, index: u32) -> bool {
        let request = &self.requests[index];
        let relayed = request.relay_to.map_or(0, |_| io.relayed_bytes(request.token));
        let received = request.uploaded + relayed;
        let required = min_bytes(self.settings.min_rate, self.settings.timeouts.body);
        !is_too_slow(&mut self.requests[index].min_uploaded, received, required)
    }

    /// Checks the rate at which a client receives a response.
    fn check_send_rate<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        index: u32,
    ) {
        let has_pending_writes = self.connections.get(token).sends > 0;
        let is_relayed = self.requests[index].facts.contains(Facts::RELAYED);
        let taken = io.acknowledged(token);
        let relay_to = self.requests[index].relay_to;
        if is_relayed && !has_pending_writes && io.unacknowledged(token) == 0 {
            // The client has received everything. But if it must also send a body, the two waits
            // must not extend each other indefinitely.
            let is_excused = match relay_to {
                None => true,
                Some(to) => io.unacknowledged(to) > 0 || self.has_sent_enough(io, index),
            };
            if is_excused {
                self.requests[index].min_acknowledged = None;
                return self.wait_for(io, index, Wait::Send);
            }
        }
        // Without a backlog, the upstream server may be the slow side, and bytes in flight take time.
        let has_backlog = has_pending_writes || io.is_relay_blocked(token);
        let min_rate = if has_backlog { self.settings.min_rate } else { 0 };
        let required = min_bytes(min_rate, self.settings.timeouts.send);
        if is_too_slow(&mut self.requests[index].min_acknowledged, taken, required) {
            self.record_error(Error::ClientTimeout);
            io.reset_connection(token);
            return self.cancel(io, handler, index, Outcome::ClientTimeout);
        }
        self.wait_for(io, index, Wait::Send);
    }
}
