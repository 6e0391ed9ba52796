//! Frames of servers: responses, resets, and the end of the connection.

use std::io;

use hearken::io::Relay;
use hearken_http::ResponseBody;
use hearken_http::h2::{ConnectionError, ErrorCode, Event, StreamId};

use crate::proxy::balance::RequestOutcome;
use crate::proxy::destination::Destination;
use crate::proxy::exchange::{Route, State, Usable};
use crate::proxy::handler::{Cx, Proxy};
use crate::proxy::upstream::{Connection, Flags};
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;

impl Proxy {
    /// Handles received bytes of a connection without an exchange: frames, or bytes that no request
    /// asked for.
    #[cold]
    pub(in crate::proxy) fn on_received_idle<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        mut bytes: &[u8],
    ) {
        let now = Self::now(cx);
        let Some(state) = self.http2.get(connection) else { return self.close(cx, connection) };
        state.received_at = now;
        let seconds = now.duration_since(state.elapsed_at).as_secs();
        if seconds > 0 {
            state.elapsed_at = now;
            state.frames.elapse(u32::try_from(seconds).unwrap_or(u32::MAX));
        }
        let mut head = self.http2.head.take().unwrap_or_default();
        let mut failure = None;
        while let Some(state) = self.http2.get(connection) {
            match state.frames.receive(&mut bytes, &mut head, &mut state.out) {
                Ok(Some(event)) => self.on_event(cx, connection, &event),
                Ok(None) => break,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        self.http2.head = Some(head);
        match failure {
            Some(error) => self.on_connection_error(cx, connection, error),
            None => self.http2.mark_pending(connection),
        }
    }

    fn on_event<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32, event: &Event<'_>) {
        match *event {
            Event::Response { stream, ref response, end } => {
                let Some(key) = self.find_stream(connection, stream) else { return };
                let mut response = *response;
                if response.body == ResponseBody::Chunked {
                    // Content is delivered without framing.
                    response.body = ResponseBody::UntilClose;
                }
                self.on_response(cx, key, &response);
                if end {
                    self.end_response(cx, connection, stream);
                }
            }
            Event::Data { stream, data, end } => {
                self.on_content(cx, connection, stream, data);
                if end {
                    self.end_response(cx, connection, stream);
                }
            }
            Event::Trailers { stream, fields } => {
                let Some(key) = self.find_stream(connection, stream) else { return };
                if let Some(key) = self.upstreams[key].exchange
                    && let State::Responding { download, .. } = &mut self.exchanges[key].state
                {
                    download.add_trailers(fields);
                }
                self.end_response(cx, connection, stream);
            }
            Event::Reset { stream, code, reason } => {
                self.on_reset(cx, connection, stream, code, reason);
            }
            Event::Goaway { .. } => self.http2.drain(connection),
            Event::Settings => {
                if let Some(state) = self.http2.get(connection) {
                    state.has_settings = true;
                    state.waiting_deadline = None;
                    self.http2.mark_pending(connection);
                }
            }
            _ => {}
        }
    }

    fn find_stream(&mut self, connection: u32, stream: StreamId) -> Option<u32> {
        self.http2.get(connection)?.find(stream)
    }

    fn on_content<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        id: StreamId,
        data: &[u8],
    ) {
        let Some(key) = self.find_stream(connection, id) else {
            if let Some(state) = self.http2.get(connection) {
                state.frames.release(id, data.len(), &mut state.out);
            }
            return;
        };
        let is_paused = self.upstreams[key].flags.contains(Flags::PAUSED);
        let stream = self.http2.stream(key);
        stream.unreleased += data.len();
        if is_paused || !stream.received.is_empty() {
            // Each piece would be an incomplete send to the client.
            stream.received.extend_from_slice(data);
        } else if !data.is_empty() {
            self.on_stream_bytes(cx, key, data);
        }
        // The exchange may have ended.
        if self.find_stream(connection, id) == Some(key) {
            self.release_content(key);
        }
    }

    /// Forwards the content of a stream that is no longer paused, at the end of the turn.
    pub(in crate::proxy) fn resume_stream(&mut self, key: u32) {
        let Some((connection, stream)) = self.http2.pair(key) else { return };
        if stream.unreleased > 0 {
            connection.resumed.push(key);
            let connection = stream.connection;
            self.http2.mark_pending(connection);
        }
    }

    /// Forwards content that was received while the stream was paused.
    pub(super) fn forward_stored<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let received = std::mem::take(&mut self.http2.stream(key).received);
        if !received.is_empty() {
            self.on_stream_bytes(cx, key, &received);
        }
    }

    /// Returns processed content to the window of the server, unless the stream is paused.
    pub(super) fn release_content(&mut self, key: u32) {
        let is_paused = self.upstreams[key].flags.contains(Flags::PAUSED);
        let Some((connection, stream)) = self.http2.pair(key).filter(|_| !is_paused) else {
            return;
        };
        let count = std::mem::take(&mut stream.unreleased);
        if let Some(id) = stream.id
            && count > 0
        {
            connection.frames.release(id, count, &mut connection.out);
            let connection = stream.connection;
            self.http2.mark_pending(connection);
        }
    }

    /// Handles the end of a response, which ends the stream.
    fn end_response<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32, id: StreamId) {
        if let Some(key) = self.find_stream(connection, id) {
            self.forward_stored(cx, key);
        }
        if let Some(key) = self.find_stream(connection, id) {
            self.on_end(cx, key);
        }
    }

    /// Handles a stream that the server has reset, or on which it violated the protocol.
    #[cold]
    fn on_reset<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        id: StreamId,
        code: ErrorCode,
        reason: &'static str,
    ) {
        let Some(key) = self.find_stream(connection, id) else { return };
        self.upstreams[key].flags.insert(Flags::ENDED | Flags::BROKEN);
        let Some(exchange) = self.upstreams[key].exchange else { return };
        let is_waiting = matches!(self.exchanges[exchange].state, State::Waiting { .. });
        match code {
            ErrorCode::REFUSED_STREAM | ErrorCode::HTTP_1_1_REQUIRED if is_waiting => {
                if code == ErrorCode::HTTP_1_1_REQUIRED {
                    self.exchanges[exchange].usable = Usable::NewHttp1;
                }
                self.on_refused(cx, exchange);
            }
            _ if !reason.is_empty() => self.on_invalid(cx, key, reason),
            _ => {
                let error = io::Error::other(format!("the server reset the stream with {code}"));
                self.on_receive_failed(cx, key, &error);
            }
        }
    }

    /// Sends a request again that the server did not process.
    fn on_refused<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let exchange = &self.exchanges[key];
        let Some(&attempt) = exchange.state.attempt() else { return };
        let max_attempts = match &self.destination {
            Destination::Reverse(to) => to.max_attempts,
            Destination::Forward(_) => 1,
        };
        let id = exchange.id;
        let is_complete = cx.front.is_uploaded(id) && !cx.front.has_uploaded(id);
        if !is_complete || exchange.sends > max_attempts {
            self.metrics().record_error(Error::ServerClosed);
            let reason = "the upstream server refused the request";
            return self.respond_error(cx, key, 502, reason, Outcome::Rejected);
        }
        if let Route::Server(server) = self.upstreams[attempt.connection].route
            && let Some(balancer) = self.destination.balancer()
            && balancer.has_alternative(server)
        {
            self.exchanges[key].tried.insert(server);
        }
        self.release_connection(cx, key, (false, State::Routing), RequestOutcome::Cancelled);
        self.retry(key);
    }

    /// Ends the exchange of a stream on which the server violated the protocol.
    fn on_invalid<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, reason: &'static str) {
        let Some(exchange) = self.upstreams[key].exchange else { return };
        match self.exchanges[exchange].state {
            State::Connecting(_) | State::Waiting { .. } => {
                self.bad_response(cx, exchange, reason);
            }
            _ => {
                self.metrics().record_error(Error::BadResponse);
                self.record_failure(exchange, reason);
                self.abort(cx, exchange, Outcome::BadResponse);
            }
        }
    }

    /// Ends a connection on which the server violated the protocol.
    fn on_connection_error<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        error: ConnectionError,
    ) {
        for key in self.take_streams(connection) {
            self.on_invalid(cx, key, error.reason);
        }
        self.close(cx, connection);
    }

    /// Ends a connection that could not be established.
    pub(super) fn fail_connecting<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        error: &io::Error,
    ) {
        for key in self.take_streams(connection) {
            let Connection { route, address, exchange, .. } = self.upstreams[key];
            if let Some(exchange) = exchange {
                self.connect_failed(cx, exchange, route, address, error);
            }
        }
        self.close(cx, connection);
    }

    /// Ends a connection on which the server's settings were not received in time.
    pub(super) fn time_out_connecting<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32) {
        let streams = self.http2.get(connection).map(|state| std::mem::take(&mut state.waiting));
        for key in streams.into_iter().flatten() {
            if let Some(exchange) = self.upstreams[key].exchange {
                self.connect_timed_out(cx, exchange, key);
            }
        }
        self.http2.drain(connection);
    }

    /// Handles the end of the stream of a connection without an exchange, or a failure of receiving.
    #[cold]
    pub(in crate::proxy) fn on_idle_ended<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        error: &io::Error,
    ) {
        for key in self.take_streams(connection) {
            self.on_receive_failed(cx, key, error);
        }
        self.close(cx, connection);
    }

    /// Takes all streams of a connection that has failed. Returns the keys of their entries.
    fn take_streams(&mut self, connection: u32) -> Vec<u32> {
        self.http2.drain(connection);
        let Some(state) = self.http2.get(connection) else { return Vec::new() };
        let streams = std::mem::take(&mut state.streams).into_iter().map(|(_, key)| key);
        let keys: Vec<u32> = streams.chain(std::mem::take(&mut state.waiting)).collect();
        for &key in &keys {
            self.http2.stream(key).end();
            self.upstreams[key].flags.insert(Flags::ENDED | Flags::BROKEN);
        }
        keys
    }
}
