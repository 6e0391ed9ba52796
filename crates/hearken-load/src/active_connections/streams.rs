//! Connections of HTTP/2, on which several requests are in flight.
//!
//! Events of streams only end requests. When all received bytes are processed, the connection sends what
//! its free streams allow, becomes available, or is replaced. Frames leave together at the end of a turn.

use hearken::Token;
use hearken::io::Io;
use hearken::timer::Time;
use hearken_http::h2::{ErrorCode, Event, StreamId};

use super::ActiveConnections;
use crate::connection::{NextAction, Request, Stage};
use crate::failure::{Failure, TimeoutKind};
use crate::http2::{Stream, Streams, WaitingRequest};
use crate::report::Model;
use crate::worker::NEVER;

/// Description of a server that does not select HTTP/2.
pub(super) const NOT_SELECTED: &str =
    "the server did not select HTTP/2 by ALPN; omit --http2 if it does not support it";

/// Description of a stream that the server reset.
struct ResetReason(ErrorCode, &'static str);

impl std::fmt::Display for ResetReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ResetReason(code, "") => write!(f, "the server reset the stream with {code}"),
            ResetReason(_, reason) => write!(f, "invalid response: {reason}"),
        }
    }
}

impl ActiveConnections {
    fn streams(&mut self, token: Token) -> Option<&mut Streams> {
        self.connections[token.slot() as usize].streams.as_deref_mut()
    }

    /// Sends a request on a stream and returns the time at which it was sent. `issued_at` is the start
    /// of its timeout, if it was issued before.
    pub(super) fn send_on_stream(
        &mut self,
        io: &mut impl Io,
        token: Token,
        scheduled: Option<Time>,
        issued_at: Option<Time>,
        message: u32,
    ) -> Time {
        let sent = io.clock();
        let request = Request { scheduled: scheduled.unwrap_or(sent), sent, message };
        let issued_at = issued_at.unwrap_or(sent);
        self.send_waiting(io, token, WaitingRequest::new(request, issued_at));
        self.list_if_free(io, token);
        sent
    }

    /// Adds requests that were issued together, and sends those for which there are streams.
    pub(super) fn send_together(
        &mut self,
        io: &mut impl Io,
        token: Token,
        requests: impl Iterator<Item = WaitingRequest>,
    ) {
        let connection = &mut self.connections[token.slot() as usize];
        connection.stage = Stage::AwaitingReply;
        if let Some(streams) = &mut connection.streams {
            streams.waiting.extend(requests);
        }
        self.use_streams(io, token);
    }

    /// Sends a request on a free stream.
    fn send_waiting(&mut self, io: &mut impl Io, token: Token, mut waiting: WaitingRequest) {
        let connection = &mut self.connections[token.slot() as usize];
        connection.stage = Stage::AwaitingReply;
        connection.remaining_requests = connection.remaining_requests.saturating_sub(1);
        let Some(streams) = &mut connection.streams else { return };
        if !waiting.is_resent {
            self.stats.counts.sent += 1;
        }
        let message = self.workload.message(waiting.request.message);
        let was_idle = !streams.has_streams();
        let is_sent = match &connection.cookies {
            None => streams.send(waiting, &message.bytes, &self.workload),
            Some(cookies) => {
                self.burst_buffer.clear();
                cookies.write_request(&message.bytes, waiting.request.sent, &mut self.burst_buffer);
                streams.send(waiting, &self.burst_buffer, &self.workload)
            }
        };
        if !is_sent {
            // The messages were checked, so the connection cannot be used any more.
            streams.is_draining = true;
            waiting.is_resent = true;
            streams.waiting.push_back(waiting);
        }
        let deadline = streams.deadline;
        let (issued_at, sent) = (waiting.issued_at, waiting.request.sent);
        // Usually the deadline of an earlier request is set.
        if was_idle || !is_sent || self.first_byte_deadline(issued_at, sent) < deadline {
            self.set_stream_deadline(io, token);
        }
        self.mark_unsent(token);
    }

    /// Adds the connection to those with frames to send.
    pub(super) fn mark_unsent(&mut self, token: Token) {
        let Some(streams) = self.streams(token) else { return };
        if !streams.out.is_empty() && !std::mem::replace(&mut streams.is_unsent, true) {
            self.unsent.push(token);
        }
    }

    /// Sends the frames of all connections.
    pub(crate) fn flush(&mut self, io: &mut impl Io) {
        while let Some(token) = self.unsent.pop() {
            if self.owns(token) {
                self.flush_connection(io, token);
            }
        }
    }

    /// Sends the frames of a connection in one call.
    pub(super) fn flush_connection(&mut self, io: &mut impl Io, token: Token) {
        let connection = &mut self.connections[token.slot() as usize];
        let Some(streams) = &mut connection.streams else { return };
        streams.is_unsent = false;
        if streams.out.is_empty() {
            return;
        }
        self.stats.counts.bytes.sent += streams.out.len() as u64;
        if !connection.channel.send(io, token, &streams.out, &mut self.scratch) {
            streams.pending_sends += 1;
        }
        streams.connection.output_sent();
        streams.out.clear();
        streams.out.shrink_to(RETAINED_CAPACITY);
    }

    /// Handles a completed send.
    pub(super) fn on_sent(&mut self, token: Token) {
        if let Some(streams) = &mut self.connections[token.slot() as usize].streams {
            // Messages of TLS itself are not counted.
            streams.pending_sends = streams.pending_sends.saturating_sub(1);
            streams.send_content(&self.workload);
        }
        self.mark_unsent(token);
    }

    /// Processes received bytes.
    pub(super) fn receive_streams(&mut self, io: &mut impl Io, token: Token, mut bytes: &[u8]) {
        let mut head = std::mem::take(&mut self.head_buffer);
        let now = io.now();
        let error = loop {
            let Some(streams) = self.streams(token) else { break None };
            streams.last_received = now;
            match streams.connection.receive(&mut bytes, &mut head, &mut streams.out) {
                Ok(Some(event)) => self.on_stream_event(io, token, &event, now),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        self.head_buffer = head;
        match error {
            None => self.use_streams(io, token),
            Some(error) => {
                self.flush_connection(io, token);
                self.on_connection_error(io, token, Failure::Other, &error);
            }
        }
    }

    fn on_stream_event(&mut self, io: &impl Io, token: Token, event: &Event<'_>, now: Time) {
        if let Event::Reset { stream, code, reason } = *event {
            return self.on_stream_reset(token, stream, code, reason);
        }
        let connection = &mut self.connections[token.slot() as usize];
        let Some(streams) = &mut connection.streams else { return };
        if let Event::Response { stream, response, .. } = event {
            if response.status < 200 {
                self.stats.counts.status.record(response.status);
            } else if let Some(jar) = &mut connection.cookies
                && let Some(stream) = streams.get(*stream)
            {
                let request = &self.workload.message(stream.sent.request.message).bytes;
                for value in response.field_values("Set-Cookie") {
                    jar.set(value, request, now, &|| io.unix_time());
                }
            }
        }
        let Some(Stream { sent, reply, check, .. }) = streams.on_event(event) else { return };
        connection.reply_count = connection.reply_count.saturating_add(1);
        self.record_outcome(sent.request, reply.status, check, true, now);
    }

    /// Handles the end of a stream without a reply.
    fn on_stream_reset(
        &mut self,
        token: Token,
        id: StreamId,
        code: ErrorCode,
        reason: &'static str,
    ) {
        let Some(streams) = self.streams(token) else { return };
        let Some(Stream { mut sent, .. }) = streams.remove(id) else { return };
        if code != ErrorCode::REFUSED_STREAM {
            let reason = ResetReason(code, reason);
            return self.stats.record_failure_with_reason(1, Failure::StreamReset, &reason);
        }
        // The server processed nothing on this connection either if it refused the first stream.
        if !streams.is_draining || (sent.is_resent && id.get() == FIRST_STREAM) {
            return self.stats.record_failure(1, Failure::StreamRefused);
        }
        // RFC 9113, section 6.8: requests after the last stream of GOAWAY can be repeated.
        sent.is_resent = true;
        // The newest stream is reported first.
        streams.waiting.push_front(sent);
        self.stats.counts.resent += 1;
    }

    /// Uses the free streams of a connection. Replaces a connection that is not needed or usable any
    /// more.
    pub(super) fn use_streams(&mut self, io: &mut impl Io, token: Token) {
        let connection = &mut self.connections[token.slot() as usize];
        let Some(streams) = &mut connection.streams else { return };
        streams.send_content(&self.workload);
        self.mark_unsent(token);
        let connection = &mut self.connections[token.slot() as usize];
        let (stage, has_script) = (connection.stage, connection.script.is_some());
        if !matches!(stage, Stage::Available | Stage::AwaitingReply) {
            return;
        }
        let Some(streams) = &mut connection.streams else { return };
        if streams.is_draining {
            // Makes the list of available connections skip this one.
            connection.stage = Stage::AwaitingReply;
            if !has_script {
                self.resend_elsewhere(io, token);
            }
            return self.replace_if_drained(io, token);
        }
        while let Some(waiting) = self.next_waiting(token) {
            self.send_waiting(io, token, waiting);
        }
        if has_script {
            self.continue_on_streams(io, token);
        } else if stage == Stage::AwaitingReply || self.is_free(token) {
            self.serve_streams(io, token);
        }
    }

    /// Takes the next waiting request if there is a free stream for it.
    fn next_waiting(&mut self, token: Token) -> Option<WaitingRequest> {
        let streams = self.streams(token)?;
        if streams.is_free() { streams.waiting.pop_front() } else { None }
    }

    fn is_free(&self, token: Token) -> bool {
        let streams = &self.connections[token.slot() as usize].streams;
        streams.as_ref().is_some_and(|streams| streams.is_free())
    }

    fn is_idle(&self, token: Token) -> bool {
        let streams = &self.connections[token.slot() as usize].streams;
        streams.as_ref().is_none_or(|streams| streams.is_idle())
    }

    /// Continues the script of a connection.
    fn continue_on_streams(&mut self, io: &mut impl Io, token: Token) {
        let now = io.now();
        while self.refills && now < self.stats.last_arrival && self.is_free(token) {
            let connection = &mut self.connections[token.slot() as usize];
            let Some(script) = &mut connection.script else { break };
            if connection.expires_at <= now || self.cursor.next_burst(script).is_none() {
                break;
            }
            let message = self.cursor.next_message(script);
            self.stats.counts.scheduled += 1;
            let sent = io.clock();
            let request = Request { scheduled: sent, sent, message };
            self.send_waiting(io, token, WaitingRequest::new(request, sent));
        }
        if self.is_idle(token) {
            self.continue_session(io, token, true);
        }
    }

    /// Sends arrivals from the queue on the free streams of a connection without a script.
    fn serve_streams(&mut self, io: &mut impl Io, token: Token) {
        let now = io.now();
        let connection = &self.connections[token.slot() as usize];
        if connection.remaining_requests == 0 || connection.expires_at <= now {
            if self.is_idle(token) {
                self.close_and_replace(io, token);
            }
            return;
        }
        match self.model {
            Model::Requests => {
                self.drop_expired(now);
                while self.connections[token.slot() as usize].remaining_requests > 0
                    && self.is_free(token)
                    && let Some((scheduled, message)) = self.queue.pop_message()
                {
                    let request = Request { scheduled, sent: io.clock(), message };
                    self.send_waiting(io, token, WaitingRequest::new(request, request.sent));
                }
                self.list_if_free(io, token);
            }
            Model::Closed if !self.started => self.list_if_free(io, token),
            Model::Closed if self.is_idle(token) => self.restart_session(io, token),
            // It has sent requests again that another connection could not.
            Model::Connections | Model::Sessions if self.is_idle(token) => {
                self.close_and_replace(io, token);
            }
            Model::Closed | Model::Connections | Model::Sessions => {}
        }
    }

    /// Makes a connection available if it has a free stream.
    fn list_if_free(&mut self, io: &mut impl Io, token: Token) {
        let is_free = self.is_free(token);
        let connection = &mut self.connections[token.slot() as usize];
        if connection.stage == Stage::Available || !is_free || connection.remaining_requests == 0 {
            return;
        }
        connection.stage = Stage::Available;
        self.available.push_back(token);
        if connection.expires_at < NEVER && connection.outstanding() == 0 {
            io.set_deadline(token, Some(connection.expires_at));
        }
    }

    /// Sends the requests that a draining connection cannot send on other connections.
    fn resend_elsewhere(&mut self, io: &mut impl Io, token: Token) {
        while self.streams(token).is_some_and(|streams| !streams.waiting.is_empty()) {
            let Some(other) = self.take_available(io) else { break };
            let waiting = self.streams(token).and_then(|streams| streams.waiting.pop_front());
            if let Some(waiting) = waiting {
                self.send_waiting(io, other, waiting);
                self.list_if_free(io, other);
            }
        }
        let Some(streams) = self.streams(token) else { return };
        if streams.has_streams() && !streams.waiting.is_empty() {
            let waiting = std::mem::take(&mut streams.waiting);
            if self.open_count < self.limit {
                self.carried_requests = waiting;
                self.connect(io, None, NextAction::Nothing);
            } else if let Some(streams) = self.streams(token) {
                streams.waiting = waiting;
            }
        }
    }

    /// Replaces a draining connection when no request is in flight on it.
    fn replace_if_drained(&mut self, io: &mut impl Io, token: Token) {
        let connection = &mut self.connections[token.slot() as usize];
        let Some(streams) = &connection.streams else { return };
        if streams.has_streams() {
            return;
        }
        let is_idle = streams.is_idle();
        match connection.script {
            Some(_) if !is_idle => {
                let script = connection.script.take();
                self.carried_cookies = connection.cookies.take();
                self.carry_requests(token);
                self.close_connection(io, token);
                self.connect(io, script, NextAction::Nothing);
            }
            Some(_) if connection.reply_count > 0 => self.continue_session(io, token, false),
            // All of its requests have failed.
            script => {
                self.stats.counts.sessions.failed += u64::from(script.is_some());
                connection.script = None;
                self.close_and_replace(io, token);
            }
        }
    }

    /// Takes the waiting requests of a connection for the next one that is opened. Returns whether
    /// there are any.
    pub(super) fn carry_requests(&mut self, token: Token) -> bool {
        let waiting = self.streams(token).map(|streams| std::mem::take(&mut streams.waiting));
        self.carried_requests = waiting.unwrap_or_default();
        !self.carried_requests.is_empty()
    }

    /// Announces the end of the connection.
    pub(super) fn close_streams(&mut self, io: &mut impl Io, token: Token) {
        let connection = &mut self.connections[token.slot() as usize];
        if let Some(streams) = &mut connection.streams
            && connection.stage != Stage::Connecting
        {
            streams.connection.shut_down(&mut streams.out);
            self.flush_connection(io, token);
        }
        self.connections[token.slot() as usize].streams = None;
    }

    fn stream_deadline(&self, stream: &Stream) -> Time {
        match stream.awaits_first_byte {
            true => self.first_byte_deadline(stream.sent.issued_at, stream.sent.request.sent),
            false => self.reply_deadline(stream.sent.issued_at),
        }
    }

    /// Sets the deadline of the request that times out first.
    fn set_stream_deadline(&mut self, io: &mut impl Io, token: Token) {
        let connection = &self.connections[token.slot() as usize];
        let Some(streams) = &connection.streams else { return };
        let deadline = streams.next_deadline(
            |stream| self.stream_deadline(stream),
            |waiting| self.reply_deadline(waiting.issued_at),
        );
        io.set_deadline(token, deadline);
        if let Some(streams) = self.streams(token) {
            streams.deadline = deadline.unwrap_or(NEVER);
        }
    }

    /// Times out requests whose deadline has passed, and resets their streams.
    pub(super) fn on_stream_deadline(&mut self, io: &mut impl Io, token: Token) {
        let now = io.now();
        if self.cut_at <= now {
            return self.cut(io, token);
        }
        let connection = &mut self.connections[token.slot() as usize];
        let Some(mut streams) = connection.streams.take() else { return };
        let mut timed_out = [0; 2];
        let last_received = streams.last_received;
        let mut is_silent = false;
        streams.cancel(
            |stream| self.stream_deadline(stream) <= now,
            |stream| {
                is_silent |= last_received < stream.sent.request.sent;
                timed_out[usize::from(stream.awaits_first_byte)] += 1;
            },
        );
        streams.waiting.retain(|waiting| {
            let is_expired = self.reply_deadline(waiting.issued_at) <= now;
            timed_out[1] += u64::from(is_expired);
            !is_expired
        });
        // A server that sends nothing at all may be unreachable.
        streams.is_draining |= is_silent;
        self.connections[token.slot() as usize].streams = Some(streams);
        self.stats.record_timeout(timed_out[0], TimeoutKind::Reply);
        self.stats.record_timeout(timed_out[1], TimeoutKind::FirstByte);
        self.set_stream_deadline(io, token);
        self.mark_unsent(token);
        self.use_streams(io, token);
    }
}

/// The identifier of the first stream of a connection.
const FIRST_STREAM: u32 = 1;
/// Capacity in bytes of the buffer for frames that an idle connection retains.
const RETAINED_CAPACITY: usize = 4096;
