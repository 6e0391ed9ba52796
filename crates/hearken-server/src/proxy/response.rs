//! Responses, from a server to the client.

use std::io;
use std::time::Duration;

use hearken::io::{Relay, RelayEnd};
use hearken_http::forward::{self, Relay as BodyRelay, ResponseOptions};
use hearken_http::{Response, ResponseBody, Version};

use super::balance::RequestOutcome;
use super::exchange::{Attempt, Route, State};
use super::handler::{Cx, Proxy};
use super::upstream::{Connection, Flags};
use super::websocket;
use crate::front::{Persistence, RequestId};
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;

/// Maximum number of interim responses to a request.
const MAX_INTERIM_RESPONSES: u16 = 100;

impl Proxy {
    /// Handles received bytes of a server.
    #[inline]
    pub(super) fn on_received<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        bytes: &[u8],
    ) {
        self.metrics().bytes_received_upstream.add(bytes.len() as u64);
        let upstream = &mut self.upstreams[connection];
        // These bytes were received before the relay took effect.
        upstream.flags.remove(Flags::RELAYED);
        // No request is in flight on an idle connection.
        let Some(key) = upstream.exchange else {
            return self.on_received_idle(cx, connection, bytes);
        };
        match &mut self.exchanges[key].state {
            State::Waiting { received, .. } if received.is_empty() => {
                self.read_response(cx, key, bytes);
            }
            State::Waiting { received, .. } => {
                let mut received = std::mem::take(received);
                received.extend_from_slice(bytes);
                self.read_response(cx, key, &received);
            }
            State::Responding { .. } => self.forward_body(cx, key, bytes),
            State::Tunnel { .. } => self.download(cx, key, bytes),
            _ => {}
        }
    }

    fn read_response<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, bytes: &[u8]) {
        let mut at = 0;
        loop {
            let exchange = &mut self.exchanges[key];
            let (id, method) = (exchange.id, exchange.kind.method());
            let State::Waiting { attempt, parser, received, .. } = &mut exchange.state else {
                return;
            };
            let (attempt, rest) = (*attempt, &bytes[at..]);
            match parser.parse(rest, method, &self.config.limits) {
                Ok(Some(response)) if response.status >= 200 => {
                    let rest = &rest[response.head_len..];
                    return self.respond(cx, key, attempt, &response, rest);
                }
                Ok(Some(response)) if response.status == 101 => {
                    let rest = &rest[response.head_len..];
                    return self.switch_protocol(cx, key, attempt, &response, rest);
                }
                Ok(Some(response)) => {
                    at += response.head_len;
                    self.add_interim(cx, key, &response);
                }
                Ok(None) => {
                    received.clear();
                    received.extend_from_slice(rest);
                    return self.write_interims(cx, id, attempt.connection);
                }
                Err(malformed) => return self.bad_response(cx, key, malformed.0),
            }
        }
    }

    /// Handles the head of a response on a stream.
    pub(super) fn on_response<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        stream: u32,
        response: &Response<'_>,
    ) {
        let Some(key) = self.upstreams[stream].exchange else { return };
        let exchange = &self.exchanges[key];
        let id = exchange.id;
        let State::Waiting { attempt, .. } = exchange.state else { return };
        match response.status {
            200.. => self.respond(cx, key, attempt, response, &[]),
            101 => self.switch_protocol(cx, key, attempt, response, &[]),
            _ => {
                self.add_interim(cx, key, response);
                self.write_interims(cx, id, stream);
            }
        }
    }

    /// Handles content of a response on a stream.
    pub(super) fn on_stream_bytes<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        stream: u32,
        bytes: &[u8],
    ) {
        let Some(key) = self.upstreams[stream].exchange else { return };
        match self.exchanges[key].state {
            State::Responding { .. } => self.forward_body(cx, key, bytes),
            State::Tunnel { .. } => self.download(cx, key, bytes),
            _ => {}
        }
    }

    /// Adds an interim response to those to send.
    fn add_interim<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, response: &Response<'_>) {
        let exchange = &mut self.exchanges[key];
        let id = exchange.id;
        let State::Waiting { interims, .. } = &mut exchange.state else { return };
        *interims += 1;
        if *interims > MAX_INTERIM_RESPONSES {
            return self.bad_response(cx, key, "too many interim responses");
        }
        if response.status == 100 {
            // The client now sends its body.
            cx.front.expect_body(cx.io, id);
        }
        let version = cx.front.response_context(id).map(|context| context.version);
        if version != Some(Version::Http10) {
            forward::interim(&self.rules, &mut self.out, response);
        }
        self.update_upstream_deadline(cx, key);
    }

    /// Sends the interim responses.
    fn write_interims<I: Relay>(&mut self, cx: &mut Cx<'_, I>, id: RequestId, connection: u32) {
        if !cx.front.write_interim(cx.io, id, &self.out) {
            self.pause(cx, connection);
        }
        self.out.clear();
    }

    /// Handles the head of a response. `rest` follows it.
    fn respond<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        attempt: Attempt,
        response: &Response<'_>,
        rest: &[u8],
    ) {
        let now = Self::now(cx);
        let exchange = &mut self.exchanges[key];
        let id = exchange.id;
        exchange.times.responded = now;
        let sent = exchange.times.sent;
        let Some(context) = cx.front.response_context(id) else { return };
        let date = forward::needs_date(response).then_some(context.date);
        let to = ResponseOptions { version: context.version, keep_alive: context.keep_alive, date };
        let framing = forward::response(&self.rules, &mut self.out, response, &to);
        let persistence = match context.keep_alive {
            _ if framing == ResponseBody::UntilClose => Persistence::UntilClose,
            true => Persistence::Keep,
            false => Persistence::Close,
        };
        self.note_keep_alive(attempt, response, now);
        let mut download = None;
        let (used, content) = match response.body {
            ResponseBody::None => (0, 0),
            ResponseBody::Length(length) if length <= rest.len() as u64 => {
                // By far the most common case: the complete body was received.
                self.out.extend_from_slice(&rest[..length as usize]);
                (length as usize, length)
            }
            body => {
                // The body is incomplete or needs another framing.
                let relay = BodyRelay::new(body, framing, u64::MAX, &self.config.limits);
                let passed = relay.and_then(|mut relay| {
                    let counts = relay.forward_counted(rest, &mut self.out)?;
                    Ok((relay, counts))
                });
                match passed {
                    Ok((relay, counts)) => {
                        download = Some(relay).filter(|relay| !relay.is_done());
                        counts
                    }
                    Err(reject) => {
                        self.out.clear();
                        return self.bad_response(cx, key, reject.reason);
                    }
                }
            }
        };
        self.metrics().record_upstream_response(now.as_nanos().saturating_sub(sent.as_nanos()));
        let keep = response.keep_alive;
        let Some(relay) = download else {
            let more = used < rest.len();
            let status = response.status;
            let mut out = std::mem::take(&mut self.out);
            // If the client connection is kept open, the request is complete.
            let is_complete = persistence == Persistence::Keep || cx.front.is_uploaded(id);
            let keep = keep && !more && is_complete;
            self.complete(cx, key, keep, status);
            cx.front.respond(cx.io, id, status, persistence, &out, content);
            out.clear();
            self.out = out;
            if cx.front.has_stored_content() {
                self.pause_others(cx, id);
            }
            return;
        };
        let status = response.status;
        self.exchanges[key].state = State::Responding { attempt, download: relay, keep, status };
        self.record_success(cx, attempt);
        let taken = cx.front.write_head(cx.io, id, status, persistence, &self.out, content);
        self.out.clear();
        if !self.relay_download(cx, key) && !taken {
            self.pause(cx, attempt.connection);
            self.pause_others(cx, id);
        }
        self.update_upstream_deadline(cx, key);
    }

    /// Records how long the server keeps idle connections open, as announced and as observed.
    #[inline]
    fn note_keep_alive(
        &mut self,
        attempt: Attempt,
        response: &Response<'_>,
        now: hearken::timer::Time,
    ) {
        let upstream = &mut self.upstreams[attempt.connection];
        if attempt.reused {
            let idle = now.duration_since(upstream.idle_since);
            self.lifetimes.record_reused(upstream.route, idle);
        }
        if response.keep_alive
            && let Some(announced) = response.keep_alive_timeout()
        {
            // A request sent in the last moment could arrive too late.
            upstream.keepalive_timeout = Some(announced.saturating_sub(Duration::from_millis(100)));
        }
    }

    /// Forwards a part of a body.
    fn forward_body<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, bytes: &[u8]) {
        let exchange = &mut self.exchanges[key];
        let id = exchange.id;
        let State::Responding { attempt, download, .. } = &mut exchange.state else { return };
        let connection = attempt.connection;
        let plain =
            usize::try_from(download.passthrough_len()).unwrap_or(usize::MAX).min(bytes.len());
        let passed = if plain > 0 {
            download.skip(plain as u64);
            Ok((plain, plain as u64))
        } else {
            download.forward_counted(bytes, &mut self.out)
        };
        let Ok((used, content)) = passed else {
            self.out.clear();
            self.metrics().record_error(Error::BadResponse);
            self.record_failure(key, "malformed response body");
            return self.abort(cx, key, Outcome::BadResponse);
        };
        let is_done = download.is_done();
        let piece = if plain > 0 { &bytes[..plain] } else { &self.out[..] };
        let taken = cx.front.write(cx.io, id, piece, content);
        self.out.clear();
        if is_done {
            return self.finish(cx, key, used < bytes.len());
        }
        if !self.relay_download(cx, key) {
            if taken {
                self.resume(cx, connection);
            } else {
                self.pause(cx, connection);
                self.pause_others(cx, id);
            }
        }
        self.update_upstream_deadline(cx, key);
    }

    /// Starts a relay of the rest of a response body, if it is long. Returns whether the transport
    /// does it.
    fn relay_download<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) -> bool {
        let exchange = &mut self.exchanges[key];
        let State::Responding { attempt, download, .. } = &exchange.state else {
            return false;
        };
        let (connection, plain, id) = (attempt.connection, download.passthrough_len(), exchange.id);
        self.relay_to_client(cx, id, connection, plain)
    }

    /// Starts a relay of up to `max_bytes` bytes to the client. Returns whether the transport does it.
    pub(super) fn relay_to_client<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        id: RequestId,
        connection: u32,
        max_bytes: u64,
    ) -> bool {
        let upstream = &mut self.upstreams[connection];
        let may_relay = self.config.splice && !upstream.flags.contains(Flags::STREAM);
        if !may_relay || !cx.front.relay_response(cx.io, id, upstream.token, max_bytes) {
            return false;
        }
        upstream.flags.insert(Flags::RELAYED | Flags::PAUSED);
        true
    }

    /// Handles the end of a relay to the client.
    pub(super) fn on_relayed<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        moved: u64,
        ended: RelayEnd,
    ) {
        let upstream = &mut self.upstreams[connection];
        upstream.flags.remove(Flags::RELAYED);
        let Some(key) = upstream.exchange else { return };
        let metrics = &self.metrics;
        metrics.spliced_bytes.add(moved);
        metrics.bytes_received_upstream.add(moved);
        let exchange = &mut self.exchanges[key];
        cx.front.on_response_relayed(cx.io, exchange.id, moved);
        if let State::Responding { download, .. } = &mut exchange.state {
            download.skip(moved);
        }
        match ended {
            RelayEnd::End => self.on_end(cx, connection),
            RelayEnd::ReceiveFailed(error) => self.on_receive_failed(cx, connection, &error),
            RelayEnd::SendFailed(_) => self.abort(cx, key, Outcome::ClientDisconnected),
            _ => self.finish(cx, key, false),
        }
    }

    /// Reports a success to the balancer, although the response may take long.
    pub(super) fn record_success<I: Relay>(&mut self, cx: &mut Cx<'_, I>, attempt: Attempt) {
        let now = Self::now(cx);
        let route = self.upstreams[attempt.connection].route;
        if let (Route::Server(server), Some(balancer)) = (route, self.destination.balancer()) {
            balancer.record_success(server, now);
        }
    }

    /// Handles a 101 (Switching Protocols) response.
    fn switch_protocol<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        attempt: Attempt,
        response: &Response<'_>,
        rest: &[u8],
    ) {
        let exchange = &mut self.exchanges[key];
        let id = exchange.id;
        let request = cx.front.request(id).filter(|_| cx.front.is_uploaded(id));
        let Some(request) = request.filter(|request| forward::may_switch(request, response)) else {
            return self.bad_response(cx, key, "the protocol was not requested");
        };
        let is_stream = response.version == Version::Http2;
        if request.version == Version::Http2
            && !is_stream
            && !websocket::is_accepted(&request, response)
        {
            return self.bad_response(cx, key, "invalid Sec-WebSocket-Accept field");
        }
        exchange.times.responded = Self::now(cx);
        forward::switching_protocols(&self.rules, &mut self.out, response);
        if let Some(value) = websocket::accept_value(&request).filter(|_| is_stream) {
            // Before the empty line.
            self.out.truncate(self.out.len() - 2);
            for part in ["Sec-WebSocket-Accept: ", &value, "\r\n\r\n"] {
                self.out.extend_from_slice(part.as_bytes());
            }
        }
        self.out.extend_from_slice(rest);
        let length = rest.len() as u64;
        let taken = cx.front.write_head(cx.io, id, 101, Persistence::Close, &self.out, length);
        self.out.clear();
        if !taken {
            self.pause(cx, attempt.connection);
        }
        self.begin_tunnel(cx, key, attempt);
    }

    /// Handles the end of the stream from a server.
    pub(super) fn on_end<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32) {
        let upstream = &mut self.upstreams[connection];
        upstream.flags.remove(Flags::RELAYED);
        upstream.flags.insert(Flags::ENDED);
        let Some(key) = upstream.exchange else {
            return self.close_stale(cx, connection, &io::ErrorKind::UnexpectedEof.into());
        };
        let exchange = &mut self.exchanges[key];
        let id = exchange.id;
        match &mut exchange.state {
            State::Tunnel { .. } => self.on_server_ended_tunnel(cx, key),
            State::Responding { download, keep, .. } => {
                // A failed send takes the error of a reset connection. What then looks like the end of
                // the response may be the place where the reset cut it.
                let is_complete = !upstream.flags.contains(Flags::BROKEN);
                if is_complete && download.finish(&mut self.out).is_ok() {
                    *keep = false;
                    cx.front.write(cx.io, id, &self.out, 0);
                    self.out.clear();
                    return self.finish(cx, key, false);
                }
                self.out.clear();
                self.metrics().record_error(Error::Truncated);
                self.record_failure(key, "the connection was closed within the response");
                self.abort(cx, key, Outcome::UpstreamClosed);
            }
            State::Waiting { attempt, .. } => {
                let attempt = *attempt;
                self.server_closed(cx, key, attempt);
            }
            _ => {}
        }
    }

    /// Handles a failure of receiving from a server.
    pub(super) fn on_receive_failed<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        error: &io::Error,
    ) {
        let upstream = &mut self.upstreams[connection];
        upstream.flags.remove(Flags::RELAYED);
        upstream.flags.insert(Flags::ENDED | Flags::BROKEN);
        let Some(key) = upstream.exchange else { return self.close_stale(cx, connection, error) };
        match self.exchanges[key].state {
            State::Responding { .. } | State::Tunnel { .. } => {
                self.metrics().record_error(Error::Truncated);
                self.record_failure(key, &format!("receive: {error}"));
                self.abort(cx, key, Outcome::UpstreamClosed);
            }
            State::Connecting(_) => {
                let Connection { route, address, .. } = self.upstreams[connection];
                self.connect_failed(cx, key, route, address, error);
            }
            State::Waiting { attempt, .. } => self.server_closed(cx, key, attempt),
            _ => {}
        }
    }

    /// Closes a connection without an exchange that the server has closed.
    fn close_stale<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32, error: &io::Error) {
        let upstream = &self.upstreams[connection];
        if upstream.flags.contains(Flags::HTTP2) {
            return self.on_idle_ended(cx, connection, error);
        }
        let idle = Self::now(cx).duration_since(upstream.idle_since);
        let route = upstream.route;
        self.lifetimes.record_closed(route, idle);
        self.close(cx, connection);
    }

    /// Handles a malformed or unacceptable response.
    #[cold]
    pub(super) fn bad_response<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        reason: &'static str,
    ) {
        self.out.clear();
        self.metrics().record_error(Error::BadResponse);
        self.record_failure(key, &format!("invalid response: {reason}"));
        let reason = "the upstream server sent an invalid response";
        self.respond_error(cx, key, 502, reason, Outcome::BadResponse);
    }

    /// Handles the end of a response. `more` is whether the server sent bytes after it.
    fn finish<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, more: bool) {
        let exchange = &self.exchanges[key];
        let id = exchange.id;
        let (keep, status) = match exchange.state {
            State::Responding { keep, status, .. } => (keep && !more, status),
            _ => (false, 0),
        };
        let keep = keep && cx.front.is_uploaded(id);
        self.complete(cx, key, keep, status);
        cx.front.finish(cx.io, id);
    }

    /// Ends an exchange with a response.
    #[inline(always)]
    fn complete<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, keep: bool, status: u16) {
        let is_success = !matches!(status, 502..=504);
        if cx.front.is_logging() {
            self.set_log_entry(cx, key);
        }
        self.release_connection(
            cx,
            key,
            (keep, State::Free),
            if is_success { RequestOutcome::Succeeded } else { RequestOutcome::Failed },
        );
        self.exchanges.end(key);
    }
}
