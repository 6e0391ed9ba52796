//! Choosing a connection for a request, and connecting.

use std::io;

use hearken::io::Relay;
use hearken_http::Request;
use hearken_http::forward::forwards_upgrade;
use hearken_http::h2;

use super::connection::ServerConnection;
use crate::proxy::config::Protocol;
use crate::proxy::destination::Destination;
use crate::proxy::exchange::{Attempt, Route, State, Usable};
use crate::proxy::handler::{Cx, Proxy};
use crate::proxy::upstream::{Connection, Flags};
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;

/// Number of connections beyond the maximum number of attempts on which a request may wait in vain.
const MAX_EXTRA_CONNECTIONS: u8 = 3;

impl Proxy {
    /// Returns whether a request is sent on a stream, if the server selects HTTP/2.
    #[cold]
    pub(in crate::proxy) fn prefers_http2<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        route: Route,
    ) -> bool {
        let exchange = &mut self.exchanges[key];
        if self.destination.protocol(route) == Protocol::Http1
            || exchange.usable == Usable::NewHttp1
        {
            return false;
        }
        let Some(request) = cx.front.request(exchange.id) else { return false };
        if is_upgrade(&request)
            && !request.upgrade_protocols().all(|name| name.eq_ignore_ascii_case(b"websocket"))
        {
            exchange.usable = Usable::NewHttp1;
        }
        exchange.usable != Usable::NewHttp1
    }

    /// Sends a request on an open connection, or makes it wait until the connection is established.
    /// Returns false if a new connection is needed.
    pub(in crate::proxy) fn join_http2<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        route: Route,
    ) -> bool {
        let Route::Server(server) = route else { return false };
        let connections = &self.http2.connections;
        let has_capacity = |key: &u32| {
            let connection = connections.get(*key as usize).and_then(Option::as_deref);
            connection.is_some_and(ServerConnection::has_capacity)
        };
        let open = self.http2.open.get(server).into_iter().flatten();
        let Some(connection) = open.copied().find(has_capacity) else { return false };
        let reused = self.http2.get(connection).is_some_and(|connection| connection.is_used);
        if reused {
            self.metrics().upstream_connections_reused.add(1);
        }
        self.add_stream(cx, connection, key, reused);
        self.send_waiting(cx, connection);
        true
    }

    /// Begins a connection that speaks HTTP/2 if the server selects it, for the request of an exchange.
    pub(in crate::proxy) fn begin_http2<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        key: u32,
    ) {
        let now = Self::now(cx);
        let upstream = &mut self.upstreams[connection];
        upstream.exchange = None;
        upstream.flags.insert(Flags::HTTP2);
        let route = upstream.route;
        let is_https = self.destination.protocol(route) == Protocol::Negotiated;
        let mut out = Vec::new();
        let config = self.http2.configs[usize::from(is_https)].clone();
        let frames = h2::Connection::client(config, &mut out);
        self.http2.insert(connection, ServerConnection::new(frames, out, now));
        if let Route::Server(server) = route
            && !self.http2.selects_http1[server]
        {
            self.offer_connection(connection, server);
        }
        self.add_stream(cx, connection, key, false);
    }

    /// Makes a connection available for other requests to the server, unless connections are used once.
    fn offer_connection(&mut self, connection: u32, server: usize) {
        let open = &mut self.http2.open[server];
        if !open.contains(&connection) && self.destination.keeps_alive(Route::Server(server)) {
            open.push(connection);
        }
    }

    /// Adds a stream, whose request waits.
    fn add_stream<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        key: u32,
        reused: bool,
    ) {
        let now = Self::now(cx);
        let exchange = &mut self.exchanges[key];
        let is_upgrade = cx.front.request(exchange.id).is_some_and(|request| is_upgrade(&request));
        let stream = self.upstreams.insert_stream(connection, key, now);
        exchange.state = State::Connecting(Attempt { connection: stream, reused, failed: false });
        self.upstreams[connection].flags.insert(Flags::HAS_STREAMS);
        self.http2.stream(stream).begin(connection, is_upgrade);
        if let Some(state) = self.http2.get(connection) {
            if state.waiting.is_empty() {
                state.waiting_deadline = Some(now + self.config.timeouts.connect);
            }
            state.waiting.push(stream);
            state.idle_deadline = None;
        }
        self.http2.mark_pending(connection);
    }

    /// Handles the end of a connection attempt.
    #[cold]
    pub(in crate::proxy) fn on_http2_connected<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        result: io::Result<()>,
    ) {
        let Connection { token, route, .. } = self.upstreams[connection];
        if self.http2.get(connection).is_none() {
            return self.close(cx, connection);
        }
        if let Err(error) = result {
            return self.fail_connecting(cx, connection, &error);
        }
        cx.io.start(token);
        let is_selected =
            cx.io.security(token).is_some_and(|security| security.protocol == Some(h2::ALPN));
        let speaks_http1 = self.destination.protocol(route) == Protocol::Negotiated && !is_selected;
        self.metrics().upstream_connections_opened.add(1);
        if let Route::Server(server) = route {
            self.http2.selects_http1[server] = speaks_http1;
            if !speaks_http1 {
                self.offer_connection(connection, server);
            }
        }
        if speaks_http1 {
            return self.use_http1(cx, connection);
        }
        self.metrics().upstream_http2_connections_opened.add(1);
        if let Some(state) = self.http2.get(connection) {
            state.is_connected = true;
        }
        self.send_waiting(cx, connection);
        self.http2.mark_pending(connection);
    }

    /// Uses a connection whose server selected HTTP/1.1 for the first request that waits. The others
    /// connect on their own.
    fn use_http1<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32) {
        let waiting = self.http2.remove(connection).map(|state| state.waiting).unwrap_or_default();
        let upstream = &mut self.upstreams[connection];
        upstream.flags.remove(Flags::HTTP2 | Flags::HAS_STREAMS);
        let mut waiting = waiting.into_iter();
        let first = waiting.next().and_then(|stream| self.remove_stream(stream));
        for stream in waiting {
            self.reroute(cx, stream);
        }
        let Some(key) = first else { return self.close(cx, connection) };
        self.upstreams[connection].exchange = Some(key);
        let attempt = Attempt { connection, reused: false, failed: false };
        self.send_request::<I, false>(cx, key, attempt, None);
    }

    /// Sends requests that wait, as far as the server permits. Others go to other connections.
    pub(super) fn send_waiting<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32) {
        while let Some(state) = self.http2.get(connection)
            && !state.waiting.is_empty()
        {
            let (can_send, has_settings) = (state.can_send(), state.has_settings);
            let is_draining = state.is_draining;
            if !can_send && !has_settings && !is_draining {
                return;
            }
            let waiting = state.waiting.clone();
            let is_ready = |stream: &u32| {
                has_settings || is_draining || !self.http2.streams[*stream as usize].is_upgrade
            };
            let Some(stream) = waiting.into_iter().find(is_ready) else { return };
            let Some((state, it)) = self.http2.pair(stream) else { return };
            if is_draining || !can_send {
                self.reroute(cx, stream);
            } else if it.is_upgrade && !state.frames.supports_websocket() {
                if let Some(key) = self.upstreams[stream].exchange {
                    self.exchanges[key].usable = Usable::NewHttp1;
                }
                self.reroute(cx, stream);
            } else {
                state.waiting.retain(|&waiting| waiting != stream);
                state.is_used = true;
                let Some(key) = self.upstreams[stream].exchange else { return };
                let State::Connecting(attempt) = self.exchanges[key].state else { return };
                self.send_request::<I, true>(cx, key, attempt, None);
            }
        }
    }

    /// Removes a stream whose request was not sent. Returns the key of its exchange.
    fn remove_stream(&mut self, stream: u32) -> Option<u32> {
        if let Some((connection, state)) = self.http2.pair(stream) {
            connection.forget(state.id, stream);
            let connection = state.connection;
            state.end();
            self.http2.mark_pending(connection);
        }
        let key = self.upstreams[stream].exchange;
        self.upstreams.remove(stream);
        key
    }

    /// Sends a request that waits on another connection to the same server.
    pub(super) fn reroute<I: Relay>(&mut self, cx: &mut Cx<'_, I>, stream: u32) {
        let route = self.upstreams[stream].route;
        let max_attempts = match &self.destination {
            Destination::Reverse(to) => to.max_attempts,
            Destination::Forward(_) => 1,
        };
        let Some(key) = self.upstreams[stream].exchange else { return };
        if self.exchanges[key].attempts >= max_attempts.saturating_add(MAX_EXTRA_CONNECTIONS) {
            self.metrics().record_error(Error::ConnectFailed);
            let reason = "the upstream server accepts no requests";
            return self.respond_error(cx, key, 502, reason, Outcome::Rejected);
        }
        self.remove_stream(stream);
        self.exchanges[key].state = State::Routing;
        self.forward_to(cx, key, route, None);
    }
}

/// Returns whether a request is forwarded with an Upgrade field.
fn is_upgrade(request: &Request<'_>) -> bool {
    request.upgrade().is_some() && forwards_upgrade(request)
}
