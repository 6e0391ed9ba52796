//! Events of connections: connected, received, failed, deadline passed.

use std::fmt;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, CompletionKind, Io};
use hearken::timer::Time;
use hearken_http::h2;

use super::ActiveConnections;
use super::streams::NOT_SELECTED;
use crate::channel::Handshake;
use crate::connection::{NextAction, Request, Stage};
use crate::failure::{Failure, TimeoutKind};
use crate::reply::{CompleteReply, Heads};
use crate::tls::{State, WithRemedy};
use crate::worker::NEVER;
use crate::workload::{Expect, ReplyCheck};

/// Maximum delay of a deadline.
const TIMER_RESOLUTION: Duration = Duration::from_nanos(1 << 20);

/// Description of bytes that no request asked for.
const SURPLUS: &str = "bytes after the end of the reply";

/// Description of a status that counts as an error.
struct StatusReason(u16);

impl fmt::Display for StatusReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}", self.0)
    }
}

impl ActiveConnections {
    /// Handles a completion on one of the connections.
    pub(crate) fn on_completion(&mut self, io: &mut impl Io, completion: Completion) {
        let Completion { token, kind } = completion;
        match kind {
            CompletionKind::Received(mut bytes) => {
                self.stats.counts.bytes.received += bytes.len() as u64;
                if self.connections[token.slot() as usize].channel.is_tls() {
                    self.receive_tls(io, token, bytes.bytes_mut());
                } else {
                    self.receive_plaintext(io, token, &bytes);
                }
            }
            CompletionKind::Connected(Ok(())) if self.target.is_self_connection(io, token) => {
                self.on_connection_error(io, token, Failure::ConnRefused, &"");
            }
            CompletionKind::Connected(Ok(())) => {
                io.start(token);
                let connection = &mut self.connections[token.slot() as usize];
                if connection.channel.is_tls() {
                    connection.channel.start(io, token, &mut self.scratch);
                } else {
                    self.on_connected(io, token);
                }
            }
            CompletionKind::End => self.on_end_of_stream(io, token),
            CompletionKind::Connected(Err(error)) => {
                self.on_connection_error(io, token, Failure::from_error(&error), &error);
            }
            CompletionKind::ReceiveFailed(error) | CompletionKind::Sent(Err(error)) => {
                self.count_failed_handshake(token);
                self.on_connection_error(io, token, Failure::from_error(&error), &error);
            }
            CompletionKind::Deadline => self.on_deadline(io, token),
            CompletionKind::Sent(Ok(())) if self.http2.is_some() => self.on_sent(token),
            _ => {}
        }
    }

    /// Decrypts received bytes and handles the plain text.
    fn receive_tls(&mut self, io: &mut impl Io, token: Token, bytes: &mut [u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let connection = &mut self.connections[token.slot() as usize];
        let result = connection.channel.receive(io, token, bytes, &mut scratch);
        let plain = std::mem::take(&mut scratch.plain);
        self.scratch = scratch;
        match result {
            Ok((handshake, state)) => {
                if let Handshake::Complete { resumed } = handshake {
                    self.stats.counts.handshakes.record(resumed);
                    let connection = &self.connections[token.slot() as usize];
                    if self.http2.is_some() && !connection.channel.speaks(h2::ALPN) {
                        let failure = Failure::Other;
                        return self.on_connection_error(io, token, failure, &NOT_SELECTED);
                    }
                    self.on_connected(io, token);
                }
                if !plain.is_empty() && self.owns(token) {
                    self.receive_plaintext(io, token, &plain);
                }
                if state == State::Closed && self.owns(token) {
                    self.on_end_of_stream(io, token);
                }
            }
            Err(error) => {
                self.count_failed_handshake(token);
                // Data received before the error is intact.
                if !plain.is_empty() {
                    self.receive_plaintext(io, token, &plain);
                }
                if self.owns(token) {
                    self.on_connection_error(io, token, Failure::Other, &WithRemedy(&error));
                }
            }
        }
        self.scratch.plain = plain;
    }

    /// Parses received bytes and handles each complete reply.
    fn receive_plaintext(&mut self, io: &mut impl Io, token: Token, mut bytes: &[u8]) {
        if self.http2.is_some() {
            return self.receive_streams(io, token, bytes);
        }
        while !bytes.is_empty() {
            let connection = &mut self.connections[token.slot() as usize];
            let Some(&request) = connection.in_flight.first() else {
                // Unsolicited data desynchronises requests and replies.
                return self.on_connection_lost(io, token);
            };
            if std::mem::take(&mut connection.awaits_first_byte)
                && self.first_byte_timeout.is_some()
            {
                io.set_deadline(
                    token,
                    Some((connection.issued_at + self.timeout).min(self.cut_at)),
                );
            }
            let message = self.workload.message(request.message);
            let (status, check) = (&mut self.stats.counts.status, &mut connection.check);
            if check.is_none() {
                *check = message.expect.as_deref().map(ReplyCheck::new);
            }
            let unix_time = || io.unix_time();
            let heads = match &mut connection.cookies {
                None => Heads::Cached(&mut self.head_cache),
                Some(jar) => Heads::WithCookies {
                    jar,
                    request: &message.bytes,
                    now: io.now(),
                    unix_time: &unix_time,
                },
            };
            let parsed = connection.reply.feed_next(
                &mut bytes,
                message.method,
                heads,
                |interim| status.record(interim),
                |content| {
                    if let Some(check) = check {
                        check.update(content);
                    }
                },
            );
            match parsed {
                Ok(None) => return,
                Ok(Some(done)) => self.on_reply(io, token, done, bytes.is_empty()),
                Err(malformed) => self.fail_requests(io, token, Failure::Other, &malformed),
            }
            if !self.owns(token) {
                return;
            }
        }
    }

    /// Handles a complete reply. `alone` is true if no further bytes follow it.
    fn on_reply(&mut self, io: &mut impl Io, token: Token, done: CompleteReply, alone: bool) {
        let now = io.now();
        let connection = &mut self.connections[token.slot() as usize];
        let Some(request) = connection.in_flight.pop() else { return };
        let check = connection.check.take();
        let is_exact = alone || !connection.in_flight.is_empty();
        self.record_outcome(request, done.status, check, is_exact, now);
        let connection = &mut self.connections[token.slot() as usize];
        connection.reply_count = connection.reply_count.saturating_add(1);
        if !connection.in_flight.is_empty() {
            if !done.keep_alive {
                return self.fail_requests(io, token, Failure::ConnReset, &"");
            }
            connection.awaits_first_byte = true;
            let issued_at = connection.issued_at;
            return io.set_deadline(token, Some(self.first_byte_deadline(issued_at, now)));
        }
        let keep = done.keep_alive && alone;
        if connection.script.is_some() {
            return self.continue_session(io, token, keep);
        }
        connection.remaining_requests = connection.remaining_requests.saturating_sub(1);
        connection.stage = Stage::Available;
        if keep && connection.remaining_requests > 0 && now < connection.expires_at {
            self.make_available(io, token);
        } else {
            self.close_and_replace(io, token);
        }
    }

    /// Records the outcome of a request with a complete reply. `is_exact` is false if bytes follow the
    /// reply that no request asked for.
    #[inline]
    pub(super) fn record_outcome(
        &mut self,
        request: Request,
        status: u16,
        check: Option<ReplyCheck>,
        is_exact: bool,
        now: Time,
    ) {
        self.stats.counts.status.record(status);
        let expect = self.workload.message(request.message).expect.as_deref();
        let checked = expect.zip(check).map(|(expect, check)| check.finish(expect, status));
        if let Some(Err(unmet)) = checked {
            self.stats.record_failure_with_reason(1, Failure::Check, &unmet);
        } else if status >= 400 && !expect.is_some_and(Expect::checks_status) {
            self.stats.record_failure_with_reason(1, Failure::Status, &StatusReason(status));
        } else if !is_exact {
            self.stats.record_failure_with_reason(1, Failure::Surplus, &SURPLUS);
        } else {
            self.stats.record_reply(request.scheduled, request.sent, now);
        }
    }

    /// Continues the session on this connection, or on a new one if this one cannot be reused.
    pub(super) fn continue_session(&mut self, io: &mut impl Io, token: Token, keep: bool) {
        let now = io.now();
        let connection = &mut self.connections[token.slot() as usize];
        let Some(mut script) = connection.script.take() else { return };
        let Some(burst) = self.cursor.next_burst(&mut script) else {
            self.stats.counts.sessions.completed += 1;
            connection.stage = Stage::Available;
            if keep && connection.expires_at > now && connection.expires_at < NEVER {
                connection.stage = Stage::Holding;
                return io.set_deadline(token, Some(connection.expires_at));
            }
            return self.close_and_replace(io, token);
        };
        let due = now + burst.think;
        if due >= self.stats.last_arrival {
            // The end of the run cut the session short, not the server.
            connection.stage = Stage::Available;
            self.close_and_replace(io, token);
        } else if due >= connection.expires_at {
            self.stats.counts.sessions.completed += 1;
            self.cursor.return_burst(burst);
            if !keep {
                connection.stage = Stage::Available;
                return self.close_and_replace(io, token);
            }
            connection.stage = Stage::Holding;
            io.set_deadline(token, Some(connection.expires_at));
        } else if keep {
            connection.script = Some(script);
            self.send_burst(io, token, due, burst.messages, false);
        } else {
            let next = NextAction::Burst { due, messages: burst.messages, counted: false };
            self.carried_cookies = connection.cookies.take();
            self.close_connection(io, token);
            self.connect(io, Some(script), next);
        }
    }

    /// Counts a failed TLS handshake if the connection was still connecting.
    fn count_failed_handshake(&mut self, token: Token) {
        let under_way = self.connections[token.slot() as usize].stage == Stage::Connecting;
        self.stats.counts.handshakes.failed += u64::from(under_way);
    }

    /// Handles the end of the stream.
    fn on_end_of_stream(&mut self, io: &mut impl Io, token: Token) {
        self.count_failed_handshake(token);
        let connection = &mut self.connections[token.slot() as usize];
        if let Err(error) = connection.channel.on_end_of_stream()
            && !connection.in_flight.is_empty()
        {
            return self.on_connection_error(io, token, Failure::ConnReset, &WithRemedy(&error));
        }
        let busy = !connection.in_flight.is_empty();
        match connection.reply.on_end_of_stream() {
            Some(done) if busy => self.on_reply(io, token, done, true),
            _ => self.on_connection_error(io, token, Failure::ConnReset, &""),
        }
    }

    /// Handles an error of the connection.
    pub(super) fn on_connection_error(
        &mut self,
        io: &mut impl Io,
        token: Token,
        failure: Failure,
        reason: &dyn ToString,
    ) {
        let connection = &self.connections[token.slot() as usize];
        if connection.outstanding() > 0 || connection.stage == Stage::Connecting {
            self.fail_requests(io, token, failure, reason);
        } else {
            self.on_connection_lost(io, token);
        }
    }

    /// Handles the loss of a connection that has no request in flight.
    fn on_connection_lost(&mut self, io: &mut impl Io, token: Token) {
        let connection = &mut self.connections[token.slot() as usize];
        if connection.script.is_none() {
            self.close_and_replace(io, token);
        } else if connection.reply_count > 0 {
            // Like a user agent, the session sends its next request on a new connection.
            let (script, next) = (connection.script, connection.next);
            self.carried_cookies = connection.cookies.take();
            self.close_connection(io, token);
            self.connect(io, script, next);
        } else {
            self.fail_requests(io, token, Failure::ConnReset, &"");
        }
    }

    /// Handles a deadline: a timeout expired, or the next request is due.
    fn on_deadline(&mut self, io: &mut impl Io, token: Token) {
        let now = io.now();
        let connection = &mut self.connections[token.slot() as usize];
        if connection.stage != Stage::Connecting
            && connection.streams.as_ref().is_some_and(|streams| !streams.is_idle())
        {
            return self.on_stream_deadline(io, token);
        }
        match connection.stage {
            Stage::Connecting => {
                let full = connection.opened_at + self.connect_timeout;
                if full <= now {
                    self.time_out(io, token, TimeoutKind::Connect);
                } else if self.cut_at <= now {
                    self.cut(io, token);
                } else {
                    io.set_deadline(token, Some(full.min(self.cut_at)));
                }
            }
            Stage::AwaitingReply => {
                let Some(request) = connection.in_flight.first() else { return };
                if connection.issued_at + self.timeout <= now {
                    let began = !connection.awaits_first_byte;
                    let kind = if began { TimeoutKind::Reply } else { TimeoutKind::FirstByte };
                    return self.time_out(io, token, kind);
                }
                if self.cut_at <= now {
                    return self.cut(io, token);
                }
                let issued_at = connection.issued_at;
                match self.first_byte_timeout {
                    Some(first) if connection.awaits_first_byte && request.sent + first <= now => {
                        self.time_out(io, token, TimeoutKind::FirstByte);
                    }
                    // The deadline belonged to an earlier request.
                    _ => io.set_deadline(token, Some(self.reply_deadline(issued_at))),
                }
            }
            Stage::Thinking => {
                if let NextAction::Burst { due, messages, counted } =
                    std::mem::take(&mut connection.next)
                {
                    self.send_burst(io, token, now.min(due + TIMER_RESOLUTION), messages, counted);
                }
            }
            Stage::Holding => self.close_and_replace(io, token),
            // Otherwise the deadline belonged to an earlier request.
            Stage::Available if connection.expires_at <= now => self.close_and_replace(io, token),
            Stage::Available => {}
        }
    }
}
