//! Routes requests to servers: selection, queueing, connecting, sending and retries.

use std::io;
use std::net::SocketAddr;

use hearken::io::{Address, ConnectOptions, PeekResult, Relay};
use hearken_http::forward::{self, RequestOptions};
use hearken_http::{Request, ResponseParser};

use super::balance::{Balancer, Endpoint, RequestOutcome, Selection};
use super::config::{HashKey, Protocol};
use super::destination::Destination;
use super::exchange::{Attempt, MethodKind, Route, State, Usable};
use super::handler::{Cx, Proxy, Task};
use super::upstream::{Connection, Flags};
use crate::front::RequestId;
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;
use crate::runtime::proxy_protocol;

/// The recorded failure of a server that closed a connection without a response.
const CLOSED_EARLY: &str = "the connection was closed before the response";

/// Flags of connections that are not used for another request.
const NOT_REUSABLE: Flags = Flags::ENDED.union(Flags::BROKEN).union(Flags::NOT_POOLED);

impl Proxy {
    /// Selects a server for a request.
    #[inline]
    pub(super) fn find_server<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        request: Option<&Request<'_>>,
    ) {
        let now = Self::now(cx);
        let Destination::Reverse(to) = &mut self.destination else {
            return self.resolve(cx, key);
        };
        let exchange = &self.exchanges[key];
        let hash = match &to.hash {
            None => 0,
            Some(HashKey::Client) => {
                let client = cx.front.client_address(exchange.id);
                client.map_or(0, |client| match client {
                    std::net::IpAddr::V4(v4) => Balancer::hash(&v4.to_ipv6_mapped().octets()),
                    std::net::IpAddr::V6(v6) => Balancer::hash(&v6.octets()),
                })
            }
            Some(of) => {
                let Some(request) = cx.front.request(exchange.id) else { return };
                Balancer::hash(match of {
                    HashKey::Target => request.raw_target,
                    HashKey::Host => request.host.unwrap_or_default(),
                    HashKey::Field(name) => request.field(name).unwrap_or_default(),
                    HashKey::Client => &[],
                })
            }
        };
        match to.balancer.select(now, hash, exchange.tried) {
            Selection::Server(server) => self.forward_to(cx, key, Route::Server(server), request),
            Selection::Full => {
                self.enqueue(cx, key, "all upstream servers are busy and the queue is full");
            }
            Selection::Down => {
                self.metrics().record_error(Error::NoServer);
                self.respond_error(
                    cx,
                    key,
                    503,
                    "no upstream server is available",
                    Outcome::Rejected,
                );
            }
        }
    }

    /// Puts a request into the queue, or answers it with an error if the queue is full.
    fn enqueue<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, reason: &'static str) {
        let max = match &self.destination {
            Destination::Reverse(to) => to.max_queue,
            Destination::Forward(_) => 0,
        };
        if self.queue.len() >= max && std::mem::take(&mut self.stale_entries) > 0 {
            let exchanges = &self.exchanges;
            self.queue.retain(|&(key, id)| exchanges.is_queued(key, id));
        }
        if self.queue.len() >= max {
            self.metrics().record_error(Error::QueueFull);
            return self.respond_error(cx, key, 503, reason, Outcome::Rejected);
        }
        let exchange = &mut self.exchanges[key];
        self.queue.push_back((key, exchange.id));
        // The timeout of a request that returns to the queue does not start again.
        if !matches!(exchange.state, State::Queued) {
            exchange.state = State::Queued;
            let until = Self::now(cx) + self.config.timeouts.queue;
            cx.front.set_request_timer(cx.io, exchange.id, Some(until));
        }
    }

    /// Selects servers for queued requests.
    pub(super) fn serve_queue<I: Relay>(&mut self, cx: &mut Cx<'_, I>) {
        if cx.front.has_ended() {
            return;
        }
        // Each request at most once, because some are put back.
        for _ in 0..self.queue.len() {
            let Some((key, id)) = self.queue.pop_front() else { return };
            if !self.exchanges.is_queued(key, id) {
                continue;
            }
            let before = self.queue.len();
            self.find_server(cx, key, None);
            if self.queue.len() > before {
                // The request returns to the front of the queue, and the others wait behind it.
                if let Some(back) = self.queue.pop_back() {
                    self.queue.push_front(back);
                }
                return;
            }
        }
    }

    /// Sends a request on an idle connection to its destination, or opens a connection.
    pub(super) fn forward_to<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        route: Route,
        request: Option<&Request<'_>>,
    ) {
        let now = Self::now(cx);
        let exchange = &mut self.exchanges[key];
        let (id, waited) = (exchange.id, !matches!(exchange.state, State::Routing));
        exchange.attempts = exchange.attempts.saturating_add(1);
        exchange.last_route = Some(route);
        exchange.times.selected = now;
        if exchange.usable == Usable::Any
            && exchange.kind != MethodKind::Connect
            && let Some(connection) = self.take_idle(cx, key, route)
        {
            let upstream = &mut self.upstreams[connection];
            upstream.exchange = Some(key);
            let attempt = Attempt { connection, reused: true, failed: false };
            self.metrics().upstream_connections_reused.add(1);
            if waited {
                cx.front.set_request_timer(cx.io, id, None);
            }
            return self.send_request::<I, false>(cx, key, attempt, request);
        }
        let is_http2 = self.prefers_http2(cx, key, route);
        if is_http2 && self.join_http2(cx, key, route) {
            if waited {
                cx.front.set_request_timer(cx.io, id, None);
            }
            return;
        }
        let mut address = None;
        let usable = self.exchanges[key].usable;
        let opened = self.connect(cx, route, usable, &mut address);
        let is_at_limit =
            opened.as_ref().err().is_some_and(|error| hearken::limit::describe(error).is_some());
        if waited && !is_at_limit {
            cx.front.set_request_timer(cx.io, id, None);
        }
        match opened {
            Ok(token) => {
                let connection = self.upstreams.insert(token, route, address, key);
                cx.front.insert_handler(token, connection, self.route);
                if is_http2 {
                    return self.begin_http2(cx, connection, key);
                }
                if self.destination.protocol(route) != Protocol::Http1 {
                    self.upstreams[connection].flags.insert(Flags::NOT_POOLED);
                }
                let attempt = Attempt { connection, reused: false, failed: false };
                self.exchanges[key].state = State::Connecting(attempt);
                cx.io.set_deadline(token, Some(now + self.config.timeouts.connect));
            }
            Err(_) if is_at_limit => {
                // The proxy has reached a limit. This is neither a failure of the server nor an
                // attempt, and no reason to process the queue.
                self.metrics().record_error(Error::ResourceLimit);
                if let (Route::Server(server), Some(balancer)) =
                    (route, self.destination.balancer())
                {
                    balancer.end_request(server, now, RequestOutcome::Cancelled);
                }
                let exchange = &mut self.exchanges[key];
                exchange.attempts = exchange.attempts.saturating_sub(1);
                self.enqueue(cx, key, "too many connections are open");
            }
            Err(error) => self.connect_failed(cx, key, route, address, &error),
        }
    }

    /// Starts to connect to a destination.
    fn connect<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        route: Route,
        usable: Usable,
        at: &mut Option<SocketAddr>,
    ) -> io::Result<hearken::Token> {
        let address = match (route, &mut self.destination) {
            (Route::Server(server), Destination::Reverse(to)) => {
                match to.balancer.next_endpoint(server) {
                    Some(Endpoint::Inet(addr)) => {
                        *at = Some(addr);
                        Address::Inet(addr)
                    }
                    Some(Endpoint::Unix(path)) => Address::Unix(path),
                    None => {
                        let none = "the name has no address";
                        return Err(io::Error::new(io::ErrorKind::NotFound, none));
                    }
                }
            }
            (Route::Address(addr), _) => Address::Inet(addr),
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        let mut options = ConnectOptions::default();
        if let (Route::Server(server), Destination::Reverse(to)) = (route, &self.destination) {
            let http1 = u32::from(usable == Usable::NewHttp1);
            options.tls = match to.servers.tls(server) {
                0 => 0,
                tls => self.tls_offset + tls + http1,
            };
        }
        match cx.io.connect_with(&address, &options) {
            Err(error) if hearken::limit::describe(&error).is_some() => {
                // Closes an idle connection to free its descriptor: an upstream connection, or else a
                // client connection if the request cannot wait for a connection in use.
                let can_wait = self.upstreams.is_in_use() && !self.destination.is_forward();
                match self.upstreams.idle().first().copied() {
                    Some(idle) => self.close(cx, idle),
                    None if !can_wait && cx.front.close_longest_idle(cx.io) => {}
                    None => return Err(error),
                }
                cx.io.connect_with(&address, &options)
            }
            opened => opened,
        }
    }

    /// Acquires an idle connection on which the request can be sent safely.
    #[inline]
    fn take_idle<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, route: Route) -> Option<u32> {
        loop {
            let connection = self.upstreams.acquire_idle(route)?;
            if self.exchanges[key].kind.is_safe() || self.is_open(cx, connection) {
                return Some(connection);
            }
            self.close(cx, connection);
        }
    }

    /// Returns whether an idle connection is probably open. This check is needed only for requests
    /// that cannot be retried.
    #[cold]
    fn is_open<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32) -> bool {
        let upstream = &self.upstreams[connection];
        let idle = Self::now(cx).duration_since(upstream.idle_since);
        // The event loop may not have processed a pending event yet.
        if cx.io.peek(upstream.token) != PeekResult::Nothing {
            self.lifetimes.record_closed(upstream.route, idle);
            return false;
        }
        self.lifetimes.is_safe(upstream.route, idle)
    }

    pub(super) fn on_connected<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        connection: u32,
        result: io::Result<()>,
    ) {
        let &Connection { token, route, address, exchange, .. } = &self.upstreams[connection];
        let Some(key) = exchange else { return self.on_http2_connected(cx, connection, result) };
        let State::Connecting(attempt) = self.exchanges[key].state else { return };
        match result {
            Ok(()) => {
                self.metrics().upstream_connections_opened.add(1);
                cx.io.start(token);
                if self.exchanges[key].kind == MethodKind::Connect {
                    return self.open_tunnel(cx, key, attempt);
                }
                self.send_request::<I, false>(cx, key, attempt, None);
            }
            Err(error) => self.connect_failed(cx, key, route, address, &error),
        }
    }

    /// Sends a request to its server, on a stream or on a connection. Uses the stored request if `request`
    /// is `None`.
    pub(super) fn send_request<I: Relay, const STREAM: bool>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        attempt: Attempt,
        request: Option<&Request<'_>>,
    ) {
        let now = Self::now(cx);
        let connection = attempt.connection;
        let route = self.upstreams[connection].route;
        let keep_alive = STREAM || self.destination.keeps_alive(route);
        let exchange = &mut self.exchanges[key];
        let id = exchange.id;
        let stored;
        let request = match request {
            Some(request) => request,
            None => {
                let Some(request) = cx.front.request(id) else { return };
                stored = request;
                &stored
            }
        };
        let client = cx.front.client_address(id);
        let authority = match (&self.destination, route) {
            (Destination::Reverse(to), Route::Server(server)) => {
                if let (Some(version), false) = (to.proxy_protocol, attempt.reused) {
                    let token = cx.front.client(id);
                    // The port is unknown if another proxy has reported the client address.
                    let peer = token.and_then(|token| cx.io.peer_addr(token).ok());
                    let source = client.map(|client| match peer {
                        Some(peer) if peer.ip().to_canonical() == client => peer,
                        _ => SocketAddr::new(client, 0),
                    });
                    let here = token.and_then(|token| cx.io.local_addr(token).ok());
                    proxy_protocol::write(version, source, here, &mut self.out);
                }
                to.servers.authority(server).as_bytes()
            }
            _ => request.host.unwrap_or_default(),
        };
        let token = cx.front.client(id);
        let security = token.and_then(|token| cx.io.security(token));
        let to = RequestOptions {
            authority,
            client,
            is_secure: security.is_some(),
            subject: security.and_then(|security| security.client_subject),
            keep_alive,
        };
        forward::request(&self.rules, &mut self.out, request, &to);
        exchange.state = State::Waiting {
            attempt,
            parser: ResponseParser::new(),
            received: Vec::new(),
            interims: 0,
        };
        exchange.sends = exchange.sends.saturating_add(1);
        exchange.times.sent = now;
        let is_held = cx.front.must_pause(id);
        if is_held {
            self.pause(cx, connection);
        }
        if cx.front.is_uploaded(id) {
            if self.send_buffered::<I, STREAM>(cx, connection) && !is_held {
                let until = now + self.config.timeouts.response_header;
                if STREAM {
                    return self.set_upstream_deadline(cx, connection, Some(until));
                }
                return cx.io.set_deadline(self.upstreams[connection].token, Some(until));
            }
            return self.update_upstream_deadline(cx, key);
        }
        if !cx.front.start_body(cx.io, id, &self.rules, &mut self.out) {
            // The body is malformed, and the front has rejected the request.
            self.out.clear();
            return self.cancel(cx, key);
        }
        let taken = self.send_buffered::<I, STREAM>(cx, connection);
        if !cx.front.is_uploaded(id) {
            if cx.front.is_half_closed(id) {
                self.metrics().record_error(Error::ClientDisconnected);
                return self.abort(cx, key, Outcome::ClientDisconnected);
            }
            if taken {
                let may_relay = self.config.splice && !STREAM;
                let relay_to = may_relay.then_some(self.upstreams[connection].token);
                cx.front.resume_body(cx.io, id, relay_to);
            }
        }
        self.update_upstream_deadline(cx, key);
    }

    /// Handles a failed connection attempt.
    pub(super) fn connect_failed<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        route: Route,
        address: Option<SocketAddr>,
        error: &io::Error,
    ) {
        self.metrics().record_error(Error::ConnectFailed);
        self.avoid_address(route, address);
        self.record_server_failure(route, &format!("connect: {error}"));
        self.retry_or_fail(cx, key, route, 502, "cannot connect to an upstream server");
    }

    /// Handles a connection attempt that timed out.
    pub(super) fn connect_timed_out<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        connection: u32,
    ) {
        let Connection { route, address, .. } = self.upstreams[connection];
        self.metrics().record_error(Error::ConnectTimeout);
        self.avoid_address(route, address);
        self.record_server_failure(route, "connect: timed out");
        let reason = "connecting to an upstream server timed out";
        self.retry_or_fail(cx, key, route, 504, reason);
    }

    /// Makes the balancer prefer other addresses of the server.
    fn avoid_address(&mut self, route: Route, address: Option<SocketAddr>) {
        if let (Route::Server(server), Some(address)) = (route, address)
            && let Some(balancer) = self.destination.balancer()
        {
            balancer.record_connect_failure(server, address);
        }
    }

    /// Handles a server that closed the connection before its response.
    pub(super) fn server_closed<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        attempt: Attempt,
    ) {
        let reason = "the upstream server closed the connection before its response";
        let route = self.upstreams[attempt.connection].route;
        let exchange = &mut self.exchanges[key];
        let id = exchange.id;
        // A request is sent again at most once, and only if its method is safe.
        let is_repeatable = exchange.kind.is_safe()
            && cx.front.is_uploaded(id)
            && !cx.front.has_uploaded(id)
            && matches!(&exchange.state, State::Waiting { received, interims: 0, .. }
                if received.is_empty())
            && exchange.sends < 2;
        if !is_repeatable {
            self.metrics().record_error(Error::ServerClosed);
            if !attempt.reused {
                self.record_failure(key, CLOSED_EARLY);
            }
            return self.respond_error(cx, key, 502, reason, Outcome::Rejected);
        }
        if !attempt.reused {
            self.record_failure(key, CLOSED_EARLY);
            return self.retry_or_fail(cx, key, route, 502, reason);
        }
        // RFC 9112 section 9.3.1: the server may have closed the connection before the request
        // arrived.
        exchange.usable = exchange.usable.max(Usable::New);
        exchange.attempts = exchange.attempts.saturating_sub(1);
        // The server may also be shutting down and close the next connection, too.
        if let (Route::Server(server), Some(balancer)) = (route, self.destination.balancer())
            && balancer.has_alternative(server)
        {
            self.exchanges[key].tried.insert(server);
        }
        self.release_connection(cx, key, (false, State::Routing), RequestOutcome::Cancelled);
        self.retry(key);
    }

    /// Records a failure of the current attempt.
    #[cold]
    pub(super) fn record_failure(&mut self, key: u32, reason: &str) {
        if let Some(attempt) = self.exchanges[key].state.attempt_mut() {
            attempt.failed = true;
            let connection = attempt.connection;
            self.record_server_failure(self.upstreams[connection].route, reason);
        }
    }

    /// Records the reason of a failure of a server.
    fn record_server_failure(&mut self, route: Route, reason: &str) {
        if let (Destination::Reverse(to), Route::Server(server)) = (&self.destination, route) {
            to.servers.set_last_failure(server, reason.to_owned());
        }
    }

    /// Retries a request on another server, or answers with an error.
    fn retry_or_fail<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        route: Route,
        status: u16,
        reason: &'static str,
    ) {
        let exchange = &mut self.exchanges[key];
        if let Route::Server(server) = route {
            exchange.tried.insert(server);
        }
        let has_more = match &self.destination {
            Destination::Reverse(to) => exchange.attempts < to.max_attempts,
            Destination::Forward(_) => !exchange.addresses.is_empty(),
        };
        if exchange.state.attempt().is_some() {
            self.release_connection(cx, key, (false, State::Routing), RequestOutcome::Failed);
        } else {
            self.end_request(cx, route, RequestOutcome::Failed);
        }
        if !has_more {
            return self.respond_error(cx, key, status, reason, Outcome::Rejected);
        }
        let exchange = &mut self.exchanges[key];
        exchange.usable = exchange.usable.max(Usable::New);
        self.retry(key);
    }

    /// Selects a server for a request again.
    pub(super) fn retry(&mut self, key: u32) {
        self.metrics().retries.add(1);
        let exchange = &mut self.exchanges[key];
        exchange.state = State::Routing;
        let id: RequestId = exchange.id;
        self.ready.push_back(match exchange.addresses.is_empty() {
            true => Task::Route(key, id),
            false => Task::NextAddress(key, id),
        });
    }

    /// Ends the use of an upstream connection, and keeps it open for another request if possible.
    /// The exchange enters the `next` state.
    pub(super) fn release_connection<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        (keep, next): (bool, State),
        outcome: RequestOutcome,
    ) {
        let state = &mut self.exchanges[key].state;
        let (attempt, is_tunnel) =
            (state.attempt().copied(), matches!(state, State::Tunnel { .. }));
        self.stale_entries += usize::from(matches!(state, State::Queued));
        *state = next;
        if is_tunnel {
            self.metrics().tunnels_open.decrement();
        }
        let Some(Attempt { connection, failed, .. }) = attempt else { return };
        let route = self.upstreams[connection].route;
        let now = Self::now(cx);
        let upstream = &mut self.upstreams[connection];
        upstream.exchange = None;
        let is_reusable = upstream.sends == 0 && !upstream.flags.intersects(NOT_REUSABLE);
        if keep
            && is_reusable
            && !self.stopping
            && !cx.front.is_stopping()
            && self.destination.keeps_alive(route)
            && self.upstreams.release_idle(connection)
        {
            let upstream = &mut self.upstreams[connection];
            upstream.flags.insert(Flags::USED);
            upstream.idle_since = now;
            let (token, announced) = (upstream.token, upstream.keepalive_timeout);
            self.resume(cx, connection);
            cx.io.set_deadline(token, Some(now + self.idle_timeout(announced)));
        } else {
            self.close(cx, connection);
        }
        self.end_request(cx, route, if failed { RequestOutcome::Failed } else { outcome });
    }

    /// Reports to the balancer the end of a request in flight.
    #[inline]
    pub(super) fn end_request<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        route: Route,
        outcome: RequestOutcome,
    ) {
        let now = Self::now(cx);
        if let (Route::Server(server), Some(balancer)) = (route, self.destination.balancer()) {
            balancer.end_request(server, now, outcome);
            if !self.queue.is_empty() {
                self.ready.push_back(Task::ServeQueue);
            }
        }
    }
}
