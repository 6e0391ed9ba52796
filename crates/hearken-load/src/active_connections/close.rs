//! Closes connections and opens their replacements.

use hearken::Token;
use hearken::io::Io;

use super::{ActiveConnections, RETRY_DELAY};
use crate::connection::{NextAction, Stage};
use crate::failure::{Failure, TimeoutKind};
use crate::report::Model;

impl ActiveConnections {
    /// Fails the requests in flight on the connection and closes it.
    pub(super) fn fail_requests(
        &mut self,
        io: &mut impl Io,
        token: Token,
        failure: Failure,
        reason: &dyn ToString,
    ) {
        let requests = self.take_outstanding(token);
        self.stats.record_failure_with_reason(requests, failure, reason);
        self.close_and_replace(io, token);
    }

    /// Times out the requests in flight on the connection and closes it.
    pub(super) fn time_out(&mut self, io: &mut impl Io, token: Token, limit: TimeoutKind) {
        let requests = self.take_outstanding(token);
        self.stats.record_timeout(requests, limit);
        self.close_and_replace(io, token);
    }

    /// Removes all outstanding requests from the connection and returns their number.
    fn take_outstanding(&mut self, token: Token) -> u64 {
        let connection = &mut self.connections[token.slot() as usize];
        // Count requests that were never due, too. Otherwise the session would fail without a
        // failed request.
        let uncounted = connection.next.uncounted();
        self.stats.counts.scheduled += uncounted;
        let requests = connection.outstanding() + uncounted;
        connection.in_flight.clear();
        connection.next = NextAction::Nothing;
        let failed = connection.script.take().is_some();
        self.stats.counts.sessions.failed += u64::from(failed);
        requests
    }

    /// Closes the connection without a replacement.
    pub(super) fn close_connection(&mut self, io: &mut impl Io, token: Token) {
        let connection = &mut self.connections[token.slot() as usize];
        connection.channel.close(io, token, &mut self.scratch);
        io.close(token);
        connection.token = None;
        connection.script = None;
        connection.next = NextAction::Nothing;
        self.open_count -= 1;
        self.connecting_count -= usize::from(connection.stage == Stage::Connecting);
    }

    /// Closes the connection and opens connections for queued requests.
    pub(super) fn close_and_replace(&mut self, io: &mut impl Io, token: Token) {
        self.close_connection(io, token);
        let served = self.connections[token.slot() as usize].reply_count > 0;
        let now = io.now();
        match self.model {
            Model::Closed if now >= self.stats.last_arrival => {}
            Model::Closed if served => {
                self.start_session(io, now);
            }
            // Delay the replacement: a server that never replies would cause a busy loop.
            Model::Closed => self.retry_times.push_back(now + RETRY_DELAY),
            Model::Requests => {
                while self.open_count < self.limit
                    && let Some((scheduled, message)) = self.queue.pop_front()
                {
                    self.connect(io, None, NextAction::Message(scheduled, message));
                }
                // Open one ahead of the next request, unless the closed connection carried no
                // reply.
                let more = now < self.stats.last_arrival && self.limit < usize::MAX;
                if served && more && self.open_count < self.limit {
                    self.connect(io, None, NextAction::Nothing);
                }
            }
            Model::Connections | Model::Sessions => {}
        }
    }
}
