//! Closes connections and opens their replacements.

use hearken::Token;
use hearken::io::Io;

use super::{ActiveConnections, RETRY_DELAY};
use crate::PER_TURN;
use crate::connection::{NextAction, Stage};
use crate::failure::{Failure, TimeoutKind};
use crate::queue::{Waiting, Work};
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
        let requests = self.take_outstanding(token, true);
        self.stats.record_failure_with_reason(requests, failure, reason);
        self.close_and_replace(io, token);
    }

    /// Times out the requests in flight on the connection and closes it.
    pub(super) fn time_out(&mut self, io: &mut impl Io, token: Token, limit: TimeoutKind) {
        let requests = self.take_outstanding(token, false);
        self.stats.record_timeout(requests, limit);
        self.close_and_replace(io, token);
    }

    /// Ends the requests in flight on the connection, because the run ended before their timeout.
    pub(super) fn cut(&mut self, io: &mut impl Io, token: Token) {
        self.stats.counts.missed.end_of_run += self.take_outstanding(token, false);
        self.close_and_replace(io, token);
    }

    /// Removes all outstanding requests from the connection and returns their number. With
    /// `keeps_refused`, requests remain that the server refused without processing them.
    fn take_outstanding(&mut self, token: Token, keeps_refused: bool) -> u64 {
        let connection = &mut self.connections[token.slot() as usize];
        // Count requests that were never due, too. Otherwise the session would fail without a
        // failed request.
        let uncounted = connection.next.uncounted();
        self.stats.counts.scheduled += uncounted;
        let requests = connection.remove_failed(keeps_refused) + uncounted;
        let failed = connection.script.take().is_some();
        self.stats.counts.sessions.failed += u64::from(failed);
        requests
    }

    /// Closes the connection without a replacement.
    pub(super) fn close_connection(&mut self, io: &mut impl Io, token: Token) {
        self.close_streams(io, token);
        let connection = &mut self.connections[token.slot() as usize];
        connection.channel.close(io, token, &mut self.scratch);
        io.close(token);
        connection.token = None;
        connection.script = None;
        connection.next = NextAction::Nothing;
        self.open_count -= 1;
        self.connecting_count -= usize::from(connection.stage == Stage::Connecting);
    }

    /// Closes the connection and opens another one for a waiting arrival.
    pub(super) fn close_and_replace(&mut self, io: &mut impl Io, token: Token) {
        let carries_requests = self.carry_requests(token);
        self.close_connection(io, token);
        if carries_requests {
            return self.connect(io, None, NextAction::Nothing);
        }
        let served = self.connections[token.slot() as usize].reply_count > 0;
        let now = io.now();
        match self.model {
            Model::Closed if now >= self.stats.last_arrival => {}
            Model::Closed if served => {
                self.start_session(io, now);
            }
            // Delay the replacement: a server that never replies would cause a busy loop.
            Model::Closed => self.retry_times.push_back(now + RETRY_DELAY),
            Model::Requests | Model::Connections | Model::Sessions => {
                self.drop_expired(now);
                if let Some(next) = self.queue.pop() {
                    self.connect_for(io, next);
                } else if served && now < self.stats.last_arrival && self.open_count < self.ahead {
                    // Open one ahead of the next request, unless the closed connection carried no
                    // reply.
                    self.connect(io, None, NextAction::Nothing);
                }
            }
        }
    }

    /// Opens a connection for an arrival that waited.
    fn connect_for(&mut self, io: &mut impl Io, Waiting { scheduled, work }: Waiting) {
        match work {
            Work::Message(message) => {
                self.connect(io, None, NextAction::Message(scheduled, message));
            }
            Work::Session(script, messages) => {
                let next = NextAction::Burst { due: scheduled, messages, counted: true };
                self.connect(io, Some(script), next);
            }
        }
    }

    /// Opens connections for waiting arrivals, a few in each turn: connections that could not be
    /// opened have no replacement. Returns whether more can be opened immediately.
    pub(super) fn serve_queue(&mut self, io: &mut impl Io) -> bool {
        for _ in 0..PER_TURN {
            if self.queue.is_empty() || self.open_count >= self.limit {
                return false;
            }
            self.drop_expired(io.now());
            if let Some(next) = self.queue.pop() {
                self.connect_for(io, next);
            }
        }
        !self.queue.is_empty() && self.open_count < self.limit
    }
}
