//! Immediate, deferred and streamed responses; errors.

use hearken::Token;
use hearken::io::{Body, CloseMode, SendOutcome};
use hearken_http::h2::ErrorCode;
use hearken_http::{DateCache, Request, ResponseHead, Version, reason};

use super::Front;
use super::connection::{Flags, Phase};
use super::handler::{Answer, Context, Handled, Handler, Origin};
use super::request::{Facts, RequestId, Stage, Upload, Wait};
use super::transport::Transport;
use crate::runtime::access_log::{Outcome, Rejected, RequestRecord};

/// Maximum size in bytes of responses to pipelined requests that are sent together.
const MAX_GATHERED_BYTES: usize = 12 * 1024;

/// The persistence of a connection after a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Persistence {
    /// The connection is kept open.
    Keep,
    /// The connection is closed after the response.
    Close,
    /// The connection is closed, which delimits the response.
    UntilClose,
}

/// The data that a handler needs to write the head of a response.
#[derive(Debug)]
pub(crate) struct ResponseContext<'f> {
    /// HTTP version of the request.
    pub(crate) version: Version,
    /// Whether the connection can be kept open.
    pub(crate) keep_alive: bool,
    /// Value of the Date field.
    pub(crate) date: &'f DateCache,
}

impl Front {
    /// Answers a request on an idle connection, or one whose body was discarded.
    #[expect(clippy::too_many_arguments, reason = "the parts of one request, on the hot path")]
    #[inline(always)]
    pub(super) fn respond_at_once<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        origin: Origin,
        head: &[u8],
        request: &Request<'_>,
        answer: Answer<'_>,
        (keep_alive, more): (bool, bool),
    ) -> Handled {
        match origin {
            Origin::Connection => {}
            Origin::Stored { index } => return self.respond_stored(io, index, answer, keep_alive),
            Origin::Stream { id, is_received } => {
                return self.respond_stream(io, token, (id, is_received), request, answer);
            }
        }
        let Answer { ready, body, status, length } = answer;
        match status {
            200 => self.answered[2] += 1,
            _ => self.answered[usize::from(status / 100).min(5)] += 1,
        }
        if !keep_alive {
            let connection = self.connections.get(token);
            connection.flags.insert(Flags::CLOSE);
            connection.flags.set(Flags::LINGER, request.keep_alive || more);
        }
        if !ready.is_empty() && self.out.is_empty() && !(keep_alive && more) {
            // By far the most common case: sends the prepared response without copying it.
            self.sent += ready.len() as u64;
            let flags = &mut self.connections.get(token).flags;
            if !send(io, token, ready, flags) {
                self.await_client(io, token, head, request, status, length);
            } else {
                if self.log.is_some() {
                    self.log_now(io, token, request, status, length);
                }
                self.sent_at_once(io, token);
            }
            return Handled::Stop; // No input remains, or it follows the last response.
        }
        self.out.extend_from_slice(ready);
        if keep_alive && self.out.len() < MAX_GATHERED_BYTES && matches!(body, Body::None) {
            if self.log.is_some() {
                self.log_now(io, token, request, status, length);
            }
            return Handled::Answered;
        }
        self.sent += self.out.len() as u64;
        let done = if matches!(body, Body::None) {
            let flags = &mut self.connections.get(token).flags;
            let done = send(io, token, &self.out, flags);
            self.out.clear();
            done
        } else {
            self.sent += length;
            io.send_body(token, &mut self.out, body);
            self.out.clear();
            false
        };
        if !done {
            self.await_client(io, token, head, request, status, length);
            return if keep_alive { Handled::Sending } else { Handled::Stop };
        }
        if self.log.is_some() {
            self.log_now(io, token, request, status, length);
        }
        self.sent_at_once(io, token);
        if keep_alive { Handled::Answered } else { Handled::Stop }
    }

    /// Handles the completion of all responses on an idle connection.
    #[inline(always)]
    fn sent_at_once<T: Transport>(&mut self, io: &mut T, token: Token) {
        let flags = &mut self.connections.get(token).flags;
        flags.insert(Flags::SERVED);
        if flags.contains(Flags::CLOSE) {
            self.end_connection(io, token);
        }
    }

    /// Waits until a response is sent.
    #[cold]
    fn await_client<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        head: &[u8],
        request: &Request<'_>,
        status: u16,
        length: u64,
    ) {
        let index = self.await_sending(io, token);
        let active = &mut self.requests[index];
        active.facts.insert(Facts::RESPONDING);
        // The response was already counted.
        (active.status, active.sent) = (status, length);
        if self.log.is_some() {
            active.store(request, head);
        }
    }

    /// Makes an idle connection active until its responses are sent.
    fn await_sending<T: Transport>(&mut self, io: &mut T, token: Token) -> u32 {
        let index = self.requests.begin(token, io.turn_time());
        self.connections.activate(token, index);
        let connection = self.connections.get(token);
        connection.sends += 1;
        let keep_alive = !connection.flags.contains(Flags::CLOSE);
        let active = &mut self.requests[index];
        active.stage = Stage::Sending;
        // Immediate responses are counted in `answered`.
        active.facts.insert(Facts::COUNTED);
        active.facts.set(Facts::KEEP_ALIVE, keep_alive);
        self.wait_for(io, index, Wait::Send);
        index
    }

    /// Sends the gathered responses. Returns whether they were sent and the connection is idle.
    pub(super) fn flush<T: Transport>(&mut self, io: &mut T, token: Token) -> bool {
        self.sent += self.out.len() as u64;
        let flags = &mut self.connections.get(token).flags;
        let done = send(io, token, &self.out, flags);
        self.out.clear();
        if done {
            flags.insert(Flags::SERVED);
        } else {
            self.await_sending(io, token);
        }
        done
    }

    /// Answers a request whose body was discarded.
    #[cold]
    fn respond_stored<T: Transport>(
        &mut self,
        io: &mut T,
        index: u32,
        answer: Answer<'_>,
        keep_alive: bool,
    ) -> Handled {
        let mut out = std::mem::take(&mut self.out);
        let Answer { body, status, length, .. } = answer.append_to(&mut out);
        self.begin_response(
            index,
            status,
            if keep_alive { Persistence::Keep } else { Persistence::Close },
        );
        self.requests[index].sent = length;
        let token = self.requests[index].token;
        if matches!(body, Body::None) {
            self.write_response(io, index, &out);
        } else if self.requests[index].is_stream() {
            self.write_stream(index, &out);
            self.write_stream_body(index, body);
        } else {
            self.connections.get(token).sends += 1;
            io.send_body(token, &mut out, body);
        }
        out.clear();
        self.out = out;
        self.finish_at(io, index);
        Handled::Deferred
    }

    // Operations for deferred responses.

    /// Returns the data that the head of the response depends on.
    #[inline]
    pub(crate) fn response_context(&self, id: RequestId) -> Option<ResponseContext<'_>> {
        let index = self.requests.find(id)?;
        let request = &self.requests[index];
        // The rest of an incomplete body may never arrive, so no request could follow it.
        // Other streams do not depend on the shutdown.
        let keep_alive = request.facts.contains(Facts::KEEP_ALIVE)
            && request.is_uploaded()
            && (!self.stopping || request.is_stream());
        Some(ResponseContext { version: request.version, keep_alive, date: &self.date })
    }

    /// Sends an interim response. Returns whether the send is complete.
    pub(crate) fn write_interim<T: Transport>(
        &mut self,
        io: &mut T,
        id: RequestId,
        bytes: &[u8],
    ) -> bool {
        match self.requests.find(id) {
            Some(index) if !bytes.is_empty() => self.write_response(io, index, bytes),
            _ => true,
        }
    }

    /// Starts a response. `bytes` is its head and the first `body` bytes of its body. Returns whether
    /// the send is complete; otherwise [`Handler::on_drained`] follows.
    #[inline]
    pub(crate) fn write_head<T: Transport>(
        &mut self,
        io: &mut T,
        id: RequestId,
        status: u16,
        persistence: Persistence,
        bytes: &[u8],
        body: u64,
    ) -> bool {
        let Some(index) = self.requests.find(id) else { return true };
        self.begin_response(index, status, persistence);
        self.requests[index].sent = body;
        self.write_response(io, index, bytes)
    }

    /// Answers with a complete response, whose body has `body` bytes.
    #[inline]
    pub(crate) fn respond<T: Transport>(
        &mut self,
        io: &mut T,
        id: RequestId,
        status: u16,
        persistence: Persistence,
        bytes: &[u8],
        body: u64,
    ) {
        let Some(index) = self.requests.find(id) else { return };
        self.begin_response(index, status, persistence);
        let request = &mut self.requests[index];
        request.sent = body;
        let token = request.token;
        let connection = self.connections.get(token);
        let is_last = persistence == Persistence::Close
            && !request.facts.contains(Facts::KEEP_ALIVE)
            && request.is_uploaded()
            && request.received.is_empty()
            && connection.sends == 0
            && !request.is_stream();
        if is_last {
            // The transport can combine the last bytes with the end of the connection.
            connection.sends += u8::from(!send(io, token, bytes, &mut connection.flags));
            self.metrics.bytes_sent_client.add(bytes.len() as u64);
        } else {
            self.write_response(io, index, bytes);
        }
        self.finish_at(io, index);
    }

    /// Continues a response. `body` is the number of body bytes in `bytes`, which may contain framing.
    /// Returns whether the send is complete; otherwise [`Handler::on_drained`] follows.
    #[inline]
    pub(crate) fn write<T: Transport>(
        &mut self,
        io: &mut T,
        id: RequestId,
        bytes: &[u8],
        body: u64,
    ) -> bool {
        let Some(index) = self.requests.find(id) else { return true };
        self.requests[index].sent += body;
        if bytes.is_empty() {
            return true;
        }
        let taken = self.write_response(io, index, bytes);
        let request = &self.requests[index];
        if !taken && request.stage == Stage::Handler && !request.is_stream() {
            self.wait_for(io, index, Wait::Send);
        }
        taken
    }

    /// Starts a relay of up to `max_bytes` bytes of the response from another connection. Returns
    /// whether the transport does it.
    pub(crate) fn relay_response<T: Transport>(
        &mut self,
        io: &mut T,
        id: RequestId,
        from: Token,
        max_bytes: u64,
    ) -> bool {
        let Some(index) = self.requests.find(id) else { return false };
        let request = &self.requests[index];
        if max_bytes < super::receive::MIN_RELAY_BYTES
            || request.is_stream()
            || !io.relay_bytes(from, request.token, max_bytes)
        {
            return false;
        }
        if self.requests[index].stage == Stage::Handler {
            self.requests[index].facts.insert(Facts::RELAYED);
            self.wait_for(io, index, Wait::Send);
        }
        true
    }

    /// Handles the end of a relay to the client, which moved `moved` bytes.
    pub(crate) fn on_response_relayed<T: Transport>(
        &mut self,
        io: &mut T,
        id: RequestId,
        moved: u64,
    ) {
        let Some(index) = self.requests.find(id) else { return };
        let request = &mut self.requests[index];
        request.facts.remove(Facts::RELAYED);
        request.sent += moved;
        self.metrics().bytes_sent_client.add(moved);
        if self.requests[index].wait == Wait::Send {
            let waits = self.requests[index].waits_for_body();
            self.wait_for_client(io, index, if waits { Wait::Body } else { Wait::Nothing });
        }
    }

    /// Turns the connection into a tunnel, after the response was written. Appends bytes that the
    /// client has already sent to `early`.
    pub(crate) fn start_tunnel<T: Transport>(
        &mut self,
        io: &mut T,
        id: RequestId,
        early: &mut Vec<u8>,
    ) {
        let Some(index) = self.requests.find(id) else { return };
        let request = &mut self.requests[index];
        request.stage = Stage::Tunnel;
        request.deadline = None;
        request.body_deadline = None;
        request.wait = Wait::Nothing;
        request.wait_deadline = None;
        request.uploaded += request.received.len() as u64;
        early.append(&mut request.received);
        if !request.is_stream() {
            self.connections.get(request.token).flags.insert(Flags::CLOSE);
        }
        self.update_deadline(io, index);
    }

    /// Stops receiving from a client in a tunnel.
    pub(crate) fn pause_body<T: Transport>(&mut self, io: &mut T, id: RequestId) {
        if let Some(index) = self.requests.find(id) {
            self.pause_request(io, index);
        }
    }

    /// Shuts down the sending side of a client in a tunnel.
    pub(crate) fn shut_down<T: Transport>(&mut self, io: &mut T, id: RequestId) {
        if let Some(index) = self.requests.find(id) {
            match self.requests[index].is_stream() {
                true => self.shut_down_stream(index),
                false => io.shut_down(self.requests[index].token),
            }
        }
    }

    /// Sets or clears the handler's timer for the request.
    #[inline]
    pub(crate) fn set_request_timer<T: Transport>(
        &mut self,
        io: &mut T,
        id: RequestId,
        deadline: Option<hearken::timer::Time>,
    ) {
        if let Some(index) = self.requests.find(id)
            && self.requests[index].timer != deadline
        {
            self.requests[index].timer = deadline;
            self.update_deadline(io, index);
        }
    }

    /// Sets the deadline of the request.
    pub(crate) fn set_request_deadline<T: Transport>(
        &mut self,
        io: &mut T,
        id: RequestId,
        until: hearken::timer::Time,
    ) {
        if let Some(index) = self.requests.find(id) {
            self.requests[index].deadline = Some(until);
            self.update_deadline(io, index);
        }
    }

    /// Ends the request after the complete response was written.
    #[inline]
    pub(crate) fn finish<T: Transport>(&mut self, io: &mut T, id: RequestId) {
        if let Some(index) = self.requests.find(id) {
            self.finish_at(io, index);
        }
    }

    fn finish_at<T: Transport>(&mut self, io: &mut T, index: u32) {
        if self.requests[index].is_stream() {
            return self.finish_stream(io, index);
        }
        if self.connections.get(self.requests[index].token).sends == 0 {
            return self.complete(io, index);
        }
        let request = &mut self.requests[index];
        request.stage = Stage::Sending;
        request.timer = None;
        request.body_deadline = None;
        self.wait_for(io, index, Wait::Send);
    }

    /// Answers with an error, or closes the connection if a response has begun.
    #[cold]
    pub(crate) fn respond_error<T: Transport>(
        &mut self,
        io: &mut T,
        id: RequestId,
        status: u16,
        message: &'static str,
        outcome: Outcome,
    ) {
        if let Some(index) = self.requests.find(id) {
            self.respond_error_at(io, index, status, message, outcome);
        }
    }

    #[cold]
    pub(super) fn respond_error_at<T: Transport>(
        &mut self,
        io: &mut T,
        index: u32,
        status: u16,
        message: &'static str,
        outcome: Outcome,
    ) {
        let stopping = self.stopping;
        let request = &mut self.requests[index];
        request.outcome = outcome;
        if request.facts.contains(Facts::RESPONDING) {
            return self.abort_at(io, index, outcome);
        }
        let uploaded = request.is_uploaded() && request.discard.is_none();
        let keep_alive = request.facts.contains(Facts::KEEP_ALIVE) && uploaded && !stopping;
        if !uploaded {
            request.upload = Upload::Dropped;
            request.discard = None;
        }
        request.deadline = None;
        let text = match message {
            "" => String::new(),
            message => format!("{status} {}: {message}\n", reason(status)),
        };
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let mut head = ResponseHead::new(&mut out, status);
        head.date(&self.date)
            .field("Content-Type", "text/plain; charset=utf-8")
            .content_length(text.len() as u64);
        if let Some(seconds) = self.settings.hsts {
            head.field("Strict-Transport-Security", format!("max-age={seconds}"));
        }
        match status {
            405 => drop(head.field("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")),
            503 => drop(head.field("Retry-After", "1")),
            _ => {}
        }
        head.persistence(keep_alive, request.version).end();
        let mut length = 0;
        if !request.facts.contains(Facts::HEAD) {
            out.extend_from_slice(text.as_bytes());
            length = text.len() as u64;
        }
        self.begin_response(
            index,
            status,
            if keep_alive { Persistence::Keep } else { Persistence::Close },
        );
        self.requests[index].sent = length;
        self.write_response(io, index, &out);
        out.clear();
        self.out = out;
        self.finish_at(io, index);
    }

    /// Aborts a request whose response cannot be completed, so that the client detects it.
    pub(crate) fn abort<T: Transport>(&mut self, io: &mut T, id: RequestId, outcome: Outcome) {
        if let Some(index) = self.requests.find(id) {
            self.abort_at(io, index, outcome);
        }
    }

    fn abort_at<T: Transport>(&mut self, io: &mut T, index: u32, outcome: Outcome) {
        let request = &mut self.requests[index];
        request.outcome = outcome;
        if request.is_stream() {
            return self.end_stream(io, index, ErrorCode::INTERNAL_ERROR);
        }
        let is_sending = self.connections.get(request.token).sends > 0;
        let broken = request.stage == Stage::Tunnel
            && (is_sending || !matches!(outcome, Outcome::Complete | Outcome::IdleTimeout));
        // The client would take a regular close for the end of the response.
        let resets = broken || request.facts.contains(Facts::UNTIL_CLOSE);
        self.close_request(io, index, resets);
    }

    /// Cancels a request and closes its connection.
    pub(super) fn cancel<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        index: u32,
        outcome: Outcome,
    ) {
        self.notify_cancelled(io, handler, index);
        let request = &mut self.requests[index];
        request.outcome = outcome;
        if request.is_stream() {
            return self.end_stream(io, index, ErrorCode::CANCEL);
        }
        // The client may still receive, and would take a regular close for the end of the response.
        let is_cut = request.stage == Stage::Tunnel && outcome == Outcome::ShutdownTimeout;
        let resets = is_cut || request.facts.contains(Facts::UNTIL_CLOSE);
        self.close_request(io, index, resets);
    }

    /// Notifies the handler of a cancelled request.
    fn notify_cancelled<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        index: u32,
    ) {
        if matches!(self.requests[index].stage, Stage::Handler | Stage::Tunnel) {
            let deferred = self.deferred(index);
            handler.on_cancelled(&mut Context { front: self, io }, deferred);
        }
    }

    /// Cancels a request, and answers with an error if no response has begun.
    #[cold]
    pub(super) fn abandon<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        index: u32,
        reject: hearken_http::Reject,
        outcome: Outcome,
    ) {
        self.notify_cancelled(io, handler, index);
        if outcome == Outcome::BadRequest {
            return self.reject(io, index, reject);
        }
        self.respond_error_at(io, index, reject.status, reject.reason, outcome);
    }

    /// Ends a request and closes its connection, with a reset if `resets` is set.
    pub(super) fn close_request<T: Transport>(&mut self, io: &mut T, index: u32, resets: bool) {
        let token = self.requests[index].token;
        self.record_end(io, index);
        self.requests.end(index);
        self.connections.remove(token);
        if resets {
            io.reset_connection(token);
        } else {
            io.close_connection(token);
        }
    }

    /// Handles the completion of the oldest incomplete send to a client.
    pub(crate) fn on_sent<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        let connection = self.connections.get(token);
        if !matches!(connection.phase, Phase::Active | Phase::Streams) {
            return;
        }
        connection.sends = connection.sends.saturating_sub(1);
        if connection.sends > 0 {
            return;
        }
        if connection.phase == Phase::Streams {
            return self.sent_http2(io, handler, token);
        }
        let index = self.connections.exchange(token);
        match self.requests[index].stage {
            Stage::Sending => self.complete(io, index),
            Stage::Handler | Stage::Tunnel => {
                let request = &mut self.requests[index];
                request.min_acknowledged = None;
                if request.wait == Wait::Send {
                    let waits = request.waits_for_body();
                    self.wait_for_client(io, index, if waits { Wait::Body } else { Wait::Nothing });
                }
                let deferred = self.deferred(index);
                handler.on_drained(&mut Context { front: self, io }, deferred);
            }
            _ => {}
        }
    }

    /// Records the start of a response.
    #[inline]
    fn begin_response(&mut self, index: u32, status: u16, persistence: Persistence) {
        let request = &mut self.requests[index];
        request.status = status;
        request.facts.insert(Facts::RESPONDING);
        request.facts.set(Facts::UNTIL_CLOSE, persistence == Persistence::UntilClose);
        if persistence != Persistence::Keep && !request.is_stream() {
            self.connections.get(self.requests[index].token).flags.insert(Flags::CLOSE);
        }
    }

    /// Sends a part of the response of a request in progress. Returns whether the send is complete.
    #[inline]
    fn write_response<T: Transport>(&mut self, io: &mut T, index: u32, bytes: &[u8]) -> bool {
        let request = &self.requests[index];
        if request.is_stream() {
            return self.write_stream(index, bytes);
        }
        self.write_to_client(io, request.token, bytes)
    }

    /// Sends bytes to a client with a request in progress. Returns whether the send is complete.
    #[inline]
    pub(super) fn write_to_client<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        bytes: &[u8],
    ) -> bool {
        if bytes.is_empty() {
            return true;
        }
        self.metrics().bytes_sent_client.add(bytes.len() as u64);
        let taken = io.send_bytes(token, bytes);
        if !taken {
            let connection = self.connections.get(token);
            connection.sends = connection.sends.saturating_add(1);
        }
        taken
    }

    /// Completes a request after its response was sent.
    fn complete<T: Transport>(&mut self, io: &mut T, index: u32) {
        self.record_end(io, index);
        let request = &mut self.requests[index];
        let token = request.token;
        let connection = self.connections.get(token);
        let flags = connection.flags;
        let is_last = self.closing && request.received.is_empty();
        if flags.contains(Flags::CLOSE) || is_last {
            let more = request.facts.contains(Facts::KEEP_ALIVE)
                || !request.is_uploaded()
                || !request.received.is_empty()
                || flags.intersects(Flags::PAUSED | Flags::LINGER)
                || request.reason.is_some();
            self.requests.end(index);
            if more && !flags.contains(Flags::TRANSPORT_CLOSES) {
                return self.linger(io, token);
            }
            return self.close(io, token);
        }
        connection.flags.insert(Flags::SERVED);
        if !request.received.is_empty() {
            request.clear();
            request.stage = Stage::Head;
            return self.ready.push_back(token);
        }
        self.requests.end(index);
        self.connections.set_idle(token);
        if flags.intersects(Flags::ENDED | Flags::PAUSED) {
            return self.become_idle(io, token);
        }
        io.set_timer(token, Some(self.idle_until));
    }

    /// Counts and logs a request that ends.
    #[inline]
    pub(super) fn record_end<T: Transport>(&mut self, io: &mut T, index: u32) {
        let request = &self.requests[index];
        let duration = io.turn_time().as_nanos().saturating_sub(request.started_at.as_nanos());
        if !request.facts.contains(Facts::COUNTED) {
            let metrics = self.metrics();
            metrics.record_response(request.status);
            metrics.record_duration(duration);
        }
        if self.log.is_some() {
            self.log_ended(io, index, std::time::Duration::from_nanos(duration));
        }
    }

    #[cold]
    fn log_ended<T: Transport>(&mut self, io: &T, index: u32, duration: std::time::Duration) {
        let token = self.requests[index].token;
        let (peer, security) = (self.peer(token), io.security_of(token));
        let request = &self.requests[index];
        let Some(log) = &mut self.log else { return };
        let parsed = request.request();
        let rejected = request.reason.filter(|_| parsed.is_none());
        let rejected = rejected.map(|reason| Rejected { input: &request.head, reason });
        if parsed.is_none() && rejected.is_none() {
            return; // Gathered responses are already logged.
        }
        let upstream = request.upstream.as_deref();
        let zero = std::time::Duration::ZERO;
        let end = RequestRecord {
            peer,
            tls_version: security.map(|security| security.version),
            client_subject: security.and_then(|security| security.client_subject),
            status: request.status,
            bytes_sent: request.sent,
            bytes_received: request.uploaded,
            upstream: upstream.and_then(|upstream| upstream.upstream.as_deref()),
            attempts: upstream.map_or(0, |upstream| upstream.attempts),
            queue_time: upstream.map_or(zero, |upstream| upstream.queue_time),
            connect_time: upstream.map_or(zero, |upstream| upstream.connect_time),
            header_time: upstream.map_or(zero, |upstream| upstream.header_time),
            request_time: duration,
            is_http2: request.is_stream(),
            outcome: request.outcome,
        };
        log.request(&self.date, parsed.as_ref(), rejected, &end);
    }

    /// Logs a request that was answered immediately.
    #[cold]
    pub(super) fn log_now<T: Transport>(
        &mut self,
        io: &T,
        token: Token,
        request: &Request<'_>,
        status: u16,
        length: u64,
    ) {
        let (peer, security) = (self.peer(token), io.security_of(token));
        let Some(log) = &mut self.log else { return };
        let is_http2 = self.connections.get(token).flags.contains(Flags::HTTP2);
        let end = RequestRecord {
            peer,
            tls_version: security.map(|security| security.version),
            client_subject: security.and_then(|security| security.client_subject),
            status,
            bytes_sent: length,
            is_http2,
            ..RequestRecord::default()
        };
        log.request(&self.date, Some(request), None, &end);
    }
}

/// Sends `bytes`. Returns whether the send is complete.
#[inline(always)]
fn send<T: Transport>(io: &mut T, token: Token, bytes: &[u8], flags: &mut Flags) -> bool {
    if flags.contains(Flags::CLOSE) {
        return send_final(io, token, bytes, flags);
    }
    io.send_bytes(token, bytes)
}

#[inline(never)]
fn send_final<T: Transport>(io: &mut T, token: Token, bytes: &[u8], flags: &mut Flags) -> bool {
    let then = if flags.contains(Flags::LINGER) { CloseMode::Shutdown } else { CloseMode::Close };
    let outcome = io.send_final(token, bytes, then);
    flags.set(Flags::TRANSPORT_CLOSES, outcome == SendOutcome::PendingClose);
    outcome == SendOutcome::Complete
}
