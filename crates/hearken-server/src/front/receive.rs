//! Processes received bytes of clients: heads, bodies, tunnels, and the end of the stream.

use hearken::Token;
use hearken::io::RelayEnd;
use hearken_http::forward::{Relay, Rules};
use hearken_http::h2::is_preface;
use hearken_http::{Body, BodyReader, Reject, Request, RequestParser};

use super::connection::{Flags, Phase};
use super::handler::{Context, Deferred, Flow, Handled, Handler, Incoming, Origin};
use super::request::{Facts, RequestId, Stage, Upload, Wait};
use super::transport::Transport;
use super::{Front, HalfClose, LINGER_BYTES, MAX_READ_AHEAD};
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;
use crate::runtime::proxy_protocol::{self, Parsed};

/// Minimum length in bytes of a body that the transport relays. For shorter bodies, copying is
/// cheaper, as measured by `examples/relay_cost.rs` of the library.
pub(super) const MIN_RELAY_BYTES: u64 = 32 * 1024;
/// Maximum number of bytes of rejected input that are stored for the log.
const MAX_LOGGED_INPUT: usize = 256;
const MISDIRECTED: &str = "the TLS connection is for another host";
pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Passes a request to the handler, unless it was sent on a TLS connection for another host.
#[inline(always)]
pub(super) fn handle<T: Transport, H: Handler<T>>(
    handler: &mut H,
    incoming: Incoming<'_, T>,
    request: &Request<'_>,
) -> Handled {
    match request.host {
        Some(host) if incoming.io.is_misdirected(incoming.token, host) => {
            incoming.respond_error(request, 421, MISDIRECTED)
        }
        _ => handler.on_request(incoming, request),
    }
}

impl Front {
    /// Handles received bytes of a client.
    #[inline]
    pub(crate) fn on_received<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        bytes: &[u8],
    ) {
        let connection = self.connections.get(token);
        match connection.phase {
            Phase::Idle if !connection.flags.intersects(Flags::HEADER | Flags::HTTP2) => {
                self.process_input(io, handler, token, bytes, RequestParser::new(), true);
            }
            Phase::Idle if connection.flags.contains(Flags::HTTP2) => {
                self.received_http2(io, handler, token, bytes);
            }
            Phase::Idle => {
                let index = self.activate(io, token);
                self.requests[index].received.extend_from_slice(bytes);
                self.read_proxy_header(io, handler, token, index);
            }
            Phase::Active => self.received_active(io, handler, token, bytes),
            Phase::Streams => self.received_http2(io, handler, token, bytes),
            Phase::Lingering => {
                if self.connections.add_discarded(token, bytes.len()) > LINGER_BYTES {
                    self.close(io, token);
                }
            }
            Phase::Vacant | Phase::Handler => {}
        }
    }

    /// Processes the next request of a client, which was received with the previous one.
    pub(crate) fn next_request<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        let connection = self.connections.get(token);
        if connection.phase == Phase::Active {
            let index = self.connections.exchange(token);
            if self.requests[index].token == token && self.requests[index].stage == Stage::Head {
                self.process_buffered(io, handler, token, index, true);
            }
        }
    }

    /// Begins a request on an idle connection.
    #[inline(always)]
    fn activate<T: Transport>(&mut self, io: &mut T, token: Token) -> u32 {
        let index = self.requests.begin(token, io.turn_time());
        self.connections.activate(token, index);
        index
    }

    /// Parses and answers requests from buffered input.
    fn process_buffered<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        index: u32,
        new: bool,
    ) {
        let request = &mut self.requests[index];
        let (received, parser) = (std::mem::take(&mut request.received), request.parser);
        self.requests.end(index);
        self.connections.set_idle(token);
        self.process_input(io, handler, token, &received, parser, new);
    }

    /// Parses and answers requests on an idle connection. If the input starts a `new` request that
    /// is incomplete, its timeout starts now.
    #[inline]
    fn process_input<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        bytes: &[u8],
        mut parser: RequestParser,
        new: bool,
    ) {
        let used = self.process_requests(io, handler, token, bytes, &mut parser);
        let connection = self.connections.get(token);
        if connection.phase != Phase::Idle {
            if used < bytes.len() && connection.phase == Phase::Active {
                self.buffer_rest(io, token, &bytes[used..]);
            }
            return;
        }
        let flags = connection.flags;
        if used < bytes.len() {
            if flags.contains(Flags::ENDED) {
                return self.close(io, token); // The request will stay incomplete.
            }
            let index = self.activate(io, token);
            let request = &mut self.requests[index];
            request.received.extend_from_slice(&bytes[used..]);
            request.parser = parser;
            self.resume(io, token);
            // The timeout of the first head of a connection starts at the accept.
            if (new || used > 0) && flags.contains(Flags::SERVED) {
                self.wait_for(io, index, Wait::Head);
            }
            return;
        }
        self.connections.set_idle(token);
        if flags.intersects(Flags::ENDED | Flags::PAUSED) | self.closing {
            return self.become_idle(io, token);
        }
        if flags.contains(Flags::SERVED) {
            io.set_timer(token, Some(self.idle_until));
        }
    }

    /// Closes a connection that became idle, or resumes receiving.
    #[cold]
    pub(super) fn become_idle<T: Transport>(&mut self, io: &mut T, token: Token) {
        if self.connections.get(token).flags.contains(Flags::ENDED) {
            return self.close(io, token);
        }
        if self.closing {
            return self.linger(io, token);
        }
        self.resume(io, token);
        io.set_timer(token, Some(self.idle_until));
    }

    /// Buffers bytes that follow a request in progress.
    fn buffer_rest<T: Transport>(&mut self, io: &mut T, token: Token, bytes: &[u8]) {
        let index = self.connections.exchange(token);
        self.buffer(io, index, bytes);
    }

    /// Buffers bytes that the request does not need yet.
    fn buffer<T: Transport>(&mut self, io: &mut T, index: u32, bytes: &[u8]) {
        let request = &mut self.requests[index];
        request.received.extend_from_slice(bytes);
        if request.received.len() >= MAX_READ_AHEAD {
            self.pause_request(io, index);
        }
    }

    /// Pauses receiving the body of a request.
    pub(super) fn pause_request<T: Transport>(&mut self, io: &mut T, index: u32) {
        let request = &self.requests[index];
        // The window of a stream closes by itself.
        if !request.is_stream() {
            self.pause(io, request.token);
        }
    }

    /// Resumes receiving the body of a request.
    #[inline]
    pub(super) fn resume_request<T: Transport>(&mut self, io: &mut T, index: u32) {
        let request = &self.requests[index];
        if request.is_stream() {
            return self.release_content(index);
        }
        self.resume(io, request.token);
    }

    /// Answers complete requests and returns their length in bytes.
    #[inline]
    fn process_requests<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        bytes: &[u8],
        parser: &mut RequestParser,
    ) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let parsed = parser.parse(&bytes[used..], &self.settings.limits);
            // A reference, because a move would copy the large value.
            let request = match &parsed {
                Ok(Some(request)) => request,
                Ok(None) => break,
                Err(reject) => {
                    self.reject_new(io, token, (&bytes[used..], used == 0), *reject);
                    return bytes.len();
                }
            };
            let head = &bytes[used..used + request.head_len];
            used += request.head_len;
            let incoming = Incoming {
                io,
                token,
                origin: Origin::Connection,
                head,
                keep_alive: request.keep_alive && !self.stopping,
                rest: &bytes[used..],
                route: 0,
                front: self,
            };
            match handle(handler, incoming, request) {
                Handled::Answered => {}
                // A deferred request stores the bytes that follow it.
                Handled::Stop | Handled::Deferred => return bytes.len(),
                Handled::Sending => return used,
                Handled::AfterBody(limit) => {
                    self.discard_body(io, handler, token, head, request, limit, &bytes[used..]);
                    return bytes.len();
                }
            }
        }
        if !self.out.is_empty() {
            self.flush(io, token);
        }
        used
    }

    /// Starts to discard a request body, of which `rest` was received. The handler gets the request
    /// again afterwards, because a malformed body makes the request malformed.
    #[expect(clippy::too_many_arguments, reason = "the parts of one request")]
    #[cold]
    fn discard_body<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        head: &[u8],
        request: &Request<'_>,
        limit: u64,
        rest: &[u8],
    ) {
        // Earlier requests are answered first.
        if !self.out.is_empty() && !self.flush(io, token) {
            if self.connections.get(token).phase == Phase::Active {
                // The request is processed again after these responses were sent.
                self.buffer_rest(io, token, head);
                self.buffer_rest(io, token, rest);
            }
            return;
        }
        let index = self.activate(io, token);
        let reader = BodyReader::new(request.body, limit, &self.settings.limits);
        let active = &mut self.requests[index];
        active.store(request, head);
        active.body_deadline = Some(io.turn_time() + self.settings.timeouts.upload);
        let reader = match reader {
            Ok(reader) => reader,
            Err(reject) => return self.reject(io, index, reject),
        };
        active.stage = Stage::Body;
        active.discard = Some(reader);
        if request.expect_continue && rest.is_empty() {
            self.write_to_client(io, token, CONTINUE);
        }
        self.wait_for(io, index, Wait::Body);
        self.discard(io, handler, token, index, rest);
    }

    /// Discards a part of a body. Passes the request to the handler when the body is complete.
    pub(super) fn discard<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        index: u32,
        bytes: &[u8],
    ) {
        let request = &mut self.requests[index];
        let Some(reader) = &mut request.discard else { return };
        let mut at = 0;
        while at < bytes.len() && !reader.is_done() {
            match reader.read(&bytes[at..]) {
                Ok(piece) => at += piece.consumed,
                Err(reject) => return self.reject(io, index, reject),
            }
        }
        request.uploaded += at as u64;
        if !reader.is_done() {
            if self.connections.get(token).flags.contains(Flags::ENDED) {
                self.requests.end(index);
                return self.close(io, token); // The body will stay incomplete.
            }
            return self.resume_request(io, index);
        }
        request.received.extend_from_slice(&bytes[at..]);
        request.discard = None;
        request.body_deadline = None;
        request.wait = Wait::Nothing;
        request.wait_deadline = None;
        request.stage = Stage::Handler;
        // A copy, because the handler borrows the front, which needs the head for the log.
        let head = request.head.clone();
        let Some(parts) = request.parts else { return };
        let parsed = parts.request(&head);
        let incoming = Incoming {
            io,
            token,
            origin: Origin::Stored { index },
            head: &head,
            keep_alive: parsed.keep_alive && !self.stopping,
            rest: &[],
            route: 0,
            front: self,
        };
        let _ = handler.on_request(incoming, &parsed);
    }

    /// Handles received bytes of a client with a request in progress.
    fn received_active<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        bytes: &[u8],
    ) {
        let index = self.connections.exchange(token);
        let connection = self.connections.get(token);
        // These bytes were received before the relay took effect.
        connection.flags.remove(Flags::RELAYED);
        let header = connection.flags.contains(Flags::HEADER);
        let request = &mut self.requests[index];
        if request.stage != Stage::Head {
            return self.receive_body(io, handler, token, index, bytes);
        }
        request.received.extend_from_slice(bytes);
        if header {
            self.read_proxy_header(io, handler, token, index);
        } else {
            self.process_buffered(io, handler, token, index, false);
        }
    }

    /// Handles received bytes of a request after its head.
    pub(super) fn receive_body<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        index: u32,
        bytes: &[u8],
    ) {
        let request = &mut self.requests[index];
        match request.stage {
            Stage::Body => self.discard(io, handler, token, index, bytes),
            Stage::Handler if matches!(request.upload, Upload::Flowing { started: true, .. }) => {
                self.upload(io, handler, token, index, bytes);
            }
            Stage::Handler if matches!(request.upload, Upload::Dropped) => {}
            Stage::Tunnel => {
                request.uploaded += bytes.len() as u64;
                self.metrics().bytes_received_client.add(bytes.len() as u64);
                self.deliver(io, handler, token, index, bytes, u64::MAX);
            }
            _ => self.buffer(io, index, bytes),
        }
    }

    /// Parses a PROXY protocol header, and then the request after it.
    #[cold]
    fn read_proxy_header<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        index: u32,
    ) {
        match proxy_protocol::parse(&self.requests[index].received) {
            Ok(Parsed::Incomplete) => {}
            Ok(Parsed::Header { len, source, .. }) => {
                self.requests[index].received.drain(..len);
                self.connections.get(token).flags.remove(Flags::HEADER);
                if source.is_some() {
                    self.set_peer(token, source);
                }
                if !self.requests[index].received.is_empty() {
                    self.process_buffered(io, handler, token, index, false);
                }
            }
            Err(_) => {
                self.record_error(Error::BadProxyHeader);
                self.requests.end(index);
                self.close(io, token);
            }
        }
    }

    /// Begins a request that a handler answers later. `rest` was received after its head. Returns
    /// `None` if the request was rejected.
    #[inline(always)]
    pub(super) fn defer<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        (head, rest): (&[u8], &[u8]),
        request: &Request<'_>,
        (route, key): (u32, u32),
        body_limit: u64,
    ) -> Option<RequestId> {
        if !self.out.is_empty() {
            self.write_gathered(io, token);
        }
        let index = self.activate(io, token);
        let active = &mut self.requests[index];
        active.store(request, head);
        active.stage = Stage::Handler;
        (active.route, active.key) = (route, key);
        active.received.extend_from_slice(rest);
        if rest.len() >= MAX_READ_AHEAD {
            self.pause(io, token);
        }
        if request.body != Body::None && !self.expect_upload(io, index, request, body_limit) {
            return None;
        }
        Some(self.requests.id(index))
    }

    /// Prepares for the body of a deferred request. Returns false if the request was rejected,
    /// because its body is too long.
    #[cold]
    pub(super) fn expect_upload<T: Transport>(
        &mut self,
        io: &mut T,
        index: u32,
        request: &Request<'_>,
        body_limit: u64,
    ) -> bool {
        let active = &mut self.requests[index];
        match Relay::new(request.body, request.body, body_limit, &self.settings.limits) {
            Ok(relay) => active.upload = Upload::Flowing { relay, started: false },
            Err(reject) => {
                active.upload = Upload::Dropped;
                self.reject(io, index, reject);
                return false;
            }
        }
        active.body_deadline = Some(io.turn_time() + self.settings.timeouts.upload);
        self.update_deadline(io, index);
        true
    }

    /// Sends the gathered responses before a deferred request.
    #[cold]
    fn write_gathered<T: Transport>(&mut self, io: &mut T, token: Token) {
        let mut out = std::mem::take(&mut self.out);
        self.write_to_client(io, token, &out);
        out.clear();
        self.out = out;
    }

    /// Appends the received part of the body to `out`, and passes further parts to
    /// [`Handler::on_body`]. `rules` remove fields of the trailer section. Returns false if the request
    /// was rejected, because its body is malformed.
    pub(crate) fn start_body<T: Transport>(
        &mut self,
        io: &mut T,
        id: RequestId,
        rules: &Rules,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(index) = self.requests.find(id) else { return false };
        let request = &mut self.requests[index];
        let Upload::Flowing { relay, started } = &mut request.upload else { return true };
        relay.protect(rules);
        *started = true;
        if request.received.is_empty() {
            return true;
        }
        request.facts.remove(Facts::EXPECTS_CONTINUE);
        match relay.forward(&request.received, out) {
            Ok(used) => {
                request.received.drain(..used);
                self.record_uploaded(index, used);
                true
            }
            Err(reject) => {
                self.reject(io, index, reject);
                false
            }
        }
    }

    /// Resumes receiving the body, after [`start_body`](Front::start_body) or [`Flow::Pause`]. If
    /// `relay_to` is set and the rest is long, the transport relays it to that connection.
    pub(crate) fn resume_body<T: Transport>(
        &mut self,
        io: &mut T,
        id: RequestId,
        relay_to: Option<Token>,
    ) {
        let Some(index) = self.requests.find(id) else { return };
        let request = &self.requests[index];
        let token = request.token;
        let is_flowing = matches!(request.upload, Upload::Flowing { .. });
        if !is_flowing && request.stage != Stage::Tunnel {
            return;
        }
        if relay_to.is_none_or(|to| !self.relay_body(io, token, index, to)) {
            self.resume_request(io, index);
        }
        if is_flowing {
            self.wait_for(io, index, Wait::Body);
        }
    }

    /// Starts to wait for the body, after the upstream server sent 100 (Continue).
    pub(crate) fn expect_body<T: Transport>(&mut self, io: &mut T, id: RequestId) {
        if let Some(index) = self.requests.find(id) {
            self.requests[index].facts.remove(Facts::EXPECTS_CONTINUE);
            if self.requests[index].waits_for_body() {
                self.wait_for(io, index, Wait::Body);
            }
        }
    }

    /// Discards the rest of the body.
    pub(crate) fn drop_body<T: Transport>(&mut self, io: &mut T, id: RequestId) {
        if let Some(index) = self.requests.find(id)
            && !self.requests[index].is_uploaded()
        {
            self.requests[index].upload = Upload::Dropped;
            self.resume_request(io, index);
            self.wait_for(io, index, Wait::Nothing);
        }
    }

    /// Passes a part of a body to the handler.
    pub(super) fn upload<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        index: u32,
        bytes: &[u8],
    ) {
        let request = &mut self.requests[index];
        request.facts.remove(Facts::EXPECTS_CONTINUE);
        let Upload::Flowing { relay, .. } = &mut request.upload else { return };
        let plain = usize::try_from(relay.passthrough_len()).unwrap_or(usize::MAX).min(bytes.len());
        let mut framed = std::mem::take(&mut self.out);
        let used = if plain > 0 {
            relay.skip(plain as u64);
            Ok(plain)
        } else {
            relay.forward(bytes, &mut framed)
        };
        match used {
            Ok(used) => {
                let rest = relay.passthrough_len();
                // Further bytes belong to the next request.
                request.received.extend_from_slice(&bytes[used..]);
                self.record_uploaded(index, used);
                let piece = if plain > 0 { &bytes[..plain] } else { &framed[..] };
                self.deliver(io, handler, token, index, piece, rest);
            }
            Err(reject) => self.abandon(io, handler, index, reject, Outcome::BadRequest),
        }
        framed.clear();
        self.out = framed;
    }

    /// Passes bytes to the handler. At least `rest` further bytes follow without framing.
    fn deliver<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        index: u32,
        bytes: &[u8],
        rest: u64,
    ) {
        let deferred = self.deferred(index);
        let flow = handler.on_body(&mut Context { front: self, io }, deferred, bytes);
        if self.requests.find(deferred.id).is_none() {
            return;
        }
        let takes_more = match flow {
            Flow::Continue => true,
            Flow::Pause => false,
            Flow::Relay(to, _)
                if rest >= MIN_RELAY_BYTES && self.relay_body(io, token, index, to) =>
            {
                if self.requests[index].stage == Stage::Handler {
                    self.wait_for(io, index, Wait::Body);
                }
                return handler.on_relay_started(&mut Context { front: self, io }, deferred);
            }
            Flow::Relay(_, takes_more) => takes_more,
        };
        let request = &self.requests[index];
        let waits = matches!(request.upload, Upload::Flowing { .. }) && takes_more;
        if takes_more && request.received.len() < MAX_READ_AHEAD {
            self.resume_request(io, index);
        } else {
            self.pause_request(io, index);
        }
        if self.requests[index].stage == Stage::Handler {
            let wait = if waits { Wait::Body } else { Wait::Nothing };
            self.wait_for_client(io, index, wait);
        }
    }

    /// Starts a relay of the rest of a body, if it is long. Returns whether the transport does it.
    fn relay_body<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        index: u32,
        to: Token,
    ) -> bool {
        let request = &mut self.requests[index];
        let max_bytes = match &request.upload {
            _ if request.stage == Stage::Tunnel => u64::MAX,
            Upload::Flowing { relay, .. } => relay.passthrough_len(),
            _ => 0,
        };
        if max_bytes < MIN_RELAY_BYTES
            || request.is_stream()
            || !request.received.is_empty()
            || !io.relay_bytes(token, to, max_bytes)
        {
            return false;
        }
        request.relay_to = Some(to);
        self.connections.get(token).flags.insert(Flags::RELAYED | Flags::PAUSED);
        true
    }

    /// Handles the end of a relay from a client.
    pub(crate) fn on_relayed<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        moved: u64,
        ended: &RelayEnd,
    ) {
        let connection = self.connections.get(token);
        connection.flags.remove(Flags::RELAYED);
        if connection.phase != Phase::Active {
            return;
        }
        let index = self.connections.exchange(token);
        let request = &mut self.requests[index];
        request.relay_to = None;
        request.uploaded += moved;
        if let Upload::Flowing { relay, .. } = &mut request.upload {
            relay.skip(moved);
            if relay.is_done() {
                request.upload = Upload::Done;
                request.body_deadline = None;
            }
        }
        let metrics = self.metrics();
        metrics.spliced_bytes.add(moved);
        metrics.bytes_received_client.add(moved);
        metrics.bytes_sent_upstream.add(moved);
        let deferred = self.deferred(index);
        match ended {
            RelayEnd::End => self.on_ended(io, handler, token),
            RelayEnd::ReceiveFailed(_) => self.on_receive_failed(io, handler, token),
            RelayEnd::SendFailed(_) => {
                handler.on_relay_failed(&mut Context { front: self, io }, deferred);
            }
            _ => {
                self.resume(io, token);
                // Notifies the handler, which has the complete body now.
                let _ = handler.on_body(&mut Context { front: self, io }, deferred, &[]);
                if self.requests.find(deferred.id).is_some() {
                    let waits = self.requests[index].waits_for_body();
                    let wait = if waits { Wait::Body } else { Wait::Nothing };
                    self.wait_for_client(io, index, wait);
                }
            }
        }
    }

    /// Records that `count` bytes of a request body were passed on.
    fn record_uploaded(&mut self, index: u32, count: usize) {
        let request = &mut self.requests[index];
        request.uploaded += count as u64;
        request.facts.insert(Facts::UPLOADED);
        if let Upload::Flowing { relay, .. } = &request.upload
            && relay.is_done()
        {
            request.upload = Upload::Done;
            request.body_deadline = None;
            if request.is_stream() {
                self.release_content(index);
            }
        }
        self.metrics().bytes_received_client.add(count as u64);
    }

    pub(super) fn deferred(&self, index: u32) -> Deferred {
        let request = &self.requests[index];
        Deferred { id: self.requests.id(index), key: request.key, route: request.route }
    }

    /// Handles the end of the stream from a client.
    pub(crate) fn on_ended<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        let connection = self.connections.get(token);
        connection.flags.remove(Flags::RELAYED);
        connection.flags.insert(Flags::ENDED);
        match connection.phase {
            Phase::Idle | Phase::Lingering => return self.close(io, token),
            Phase::Vacant | Phase::Handler => return,
            Phase::Streams if self.settings.half_close == HalfClose::Respond => {
                return self.flush_http2(io, handler, token);
            }
            Phase::Streams => return self.disconnected_http2(io, handler, token),
            Phase::Active => {}
        }
        let index = self.connections.exchange(token);
        let request = &self.requests[index];
        match request.stage {
            // The request will stay incomplete.
            Stage::Head | Stage::Body => {
                self.requests.end(index);
                self.close(io, token);
            }
            Stage::Tunnel => {
                let deferred = self.deferred(index);
                handler.on_tunnel_ended(&mut Context { front: self, io }, deferred);
            }
            Stage::Handler
                // A body that the handler has not started may have been received completely.
                if matches!(request.upload, Upload::Flowing { started: true, .. })
                    || self.settings.half_close == HalfClose::Cancel =>
            {
                self.on_disconnected(io, handler, index);
            }
            Stage::Sending | Stage::Handler | Stage::Free => {}
        }
    }

    /// Handles a failure of receiving from a client.
    pub(crate) fn on_receive_failed<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        self.connections.get(token).flags.remove(Flags::RELAYED);
        self.on_send_failed(io, handler, token);
    }

    /// Handles a failure of sending to a client. A file that is shorter than announced is such a
    /// failure, too.
    pub(crate) fn on_send_failed<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        match self.connections.get(token).phase {
            Phase::Active => {
                let index = self.connections.exchange(token);
                match self.requests[index].stage {
                    Stage::Head | Stage::Body => {
                        self.requests.end(index);
                        self.close(io, token);
                    }
                    _ => self.on_disconnected(io, handler, index),
                }
            }
            Phase::Streams => self.disconnected_http2(io, handler, token),
            Phase::Vacant | Phase::Handler => {}
            Phase::Idle | Phase::Lingering => self.close(io, token),
        }
    }

    /// Handles the disconnection of a client with a request in progress.
    pub(super) fn on_disconnected<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        index: u32,
    ) {
        self.record_error(Error::ClientDisconnected);
        self.cancel(io, handler, index, Outcome::ClientDisconnected);
    }

    /// Rejects input on an idle connection, unless it is the preface of HTTP/2. `is_first` is whether no
    /// other input precedes it.
    #[cold]
    fn reject_new<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        (input, is_first): (&[u8], bool),
        reject: Reject,
    ) {
        let is_served = self.connections.get(token).flags.contains(Flags::SERVED);
        if is_first && !is_served && self.settings.http2.is_some() {
            match is_preface(input) {
                Some(true) => return self.begin_http2(io, token, input),
                Some(false) => {}
                None => {
                    let index = self.activate(io, token);
                    return self.requests[index].received.extend_from_slice(input);
                }
            }
        }
        // Earlier requests are answered first.
        let out = std::mem::take(&mut self.out);
        if !out.is_empty() {
            self.write_to_client(io, token, &out);
        }
        let index = self.activate(io, token);
        let input = input.get(..MAX_LOGGED_INPUT).unwrap_or(input);
        self.requests[index].head.extend_from_slice(input);
        self.reject(io, index, reject);
    }

    /// Rejects a malformed or too large request.
    #[cold]
    pub(super) fn reject<T: Transport>(&mut self, io: &mut T, index: u32, reject: Reject) {
        self.record_error(Error::BadRequest);
        let request = &mut self.requests[index];
        request.facts.remove(Facts::KEEP_ALIVE);
        request.reason = Some(reject.reason);
        self.respond_error_at(io, index, reject.status, reject.reason, Outcome::BadRequest);
    }
}
