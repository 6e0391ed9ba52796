//! The client side of connections: requests in, responses out.
//!
//! [`Front`] parses requests, passes them to a [`Handler`], and sends the responses. For all handlers,
//! it implements pipelining, `Expect`, keep-alive, bodies with backpressure, lingering close,
//! timeouts and the access log.
//!
//! It performs no I/O. A driver reports events to it (accepted, received, ended, sent, deadline) and
//! performs the operations of [`Transport`]. The same front therefore works with an event loop, a
//! blocking thread, a task or a simulation.
//!
//! | part | contents |
//! |---|---|
//! | `transport` | the operations that a driver performs |
//! | `handler` | the interface of handlers |
//! | `connection` | the table of connections and the list of idle ones |
//! | `request` | a request in progress |
//! | `receive` | received bytes: heads, bodies, tunnels |
//! | `respond` | immediate, deferred and streamed responses; errors |
//! | `deadline` | timeouts of clients |
//! | `http2` | HTTP/2 connections, whose streams are requests |

mod connection;
mod deadline;
mod handler;
mod http2;
mod receive;
mod request;
mod respond;
mod transport;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hearken::Token;
use hearken::timer::Time;
use hearken_http::{DateCache, Limits, Request, h2};

use connection::{Connections, Flags, Phase};
pub(crate) use connection::{Owner, TableChange};
pub use handler::Answer;
pub(crate) use handler::{Context, Deferred, Flow, Handled, Handler, Incoming};
use http2::Http2;
use request::{ActiveRequests, Facts, Stage};
pub(crate) use request::{RequestId, UpstreamEntry};
pub(crate) use respond::Persistence;
pub(crate) use transport::Transport;

use crate::runtime::access_log::{AccessLog, Outcome};
use crate::runtime::group::Idle;
use crate::runtime::metrics::{self, Error};
use crate::runtime::network::Network;

/// Maximum time for which a client may continue to send after the connection was shut down.
const LINGER: Duration = Duration::from_secs(2);
/// Maximum number of bytes that a client may send after the connection was shut down.
const LINGER_BYTES: usize = 256 * 1024;
/// Maximum number of connections to skip in the search for one to close.
const MAX_SKIPPED: usize = 16;
/// Maximum number of bytes received ahead of their use. The server receives ahead while a request is
/// in progress, in order to detect that the client disconnects.
const MAX_READ_AHEAD: usize = 16 * 1024;

/// Settings of the client side.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Timeouts.
    pub(crate) timeouts: Timeouts,
    /// Minimum rate in bytes per second at which a client takes a response and sends a body.
    pub(crate) min_rate: u64,
    /// Maximum size of the head of a request.
    pub(crate) limits: Limits,
    /// Treatment of a client that half-closes the connection.
    pub(crate) half_close: HalfClose,
    /// Networks whose connections start with a PROXY protocol header.
    pub(crate) proxy_protocol: Vec<Network>,
    /// Whether the addresses of clients are needed.
    pub(crate) needs_peers: bool,
    /// Time in seconds in Strict-Transport-Security of error responses.
    pub(crate) hsts: Option<u64>,
    /// Settings of HTTP/2, if clients may use it.
    pub(crate) http2: Option<h2::Config>,
}

/// Timeouts of the client side.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time to receive the head of a request, from its first byte, or from the accept for the first
    /// request of a connection (408).
    pub header: Duration,
    /// Period over which the rate of a request body is measured (408).
    pub body: Duration,
    /// Time to receive a complete request body (408).
    pub upload: Duration,
    /// Time for which an idle connection stays open between requests.
    pub keepalive: Duration,
    /// Period over which the rate of a response is measured.
    pub send: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            header: Duration::from_secs(10),
            body: Duration::from_secs(30),
            upload: Duration::from_secs(3600),
            keepalive: Duration::from_secs(60),
            // A receive window that was full opens in large steps, which may be far apart.
            send: Duration::from_secs(30),
        }
    }
}

/// The treatment of a client that half-closes the connection while its request is in progress.
///
/// The server cannot detect whether such a client waits for the response or has disconnected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HalfClose {
    /// The server sends the response.
    Respond,
    /// The server cancels the request and closes the connection.
    Cancel,
}

/// The client side of all connections of a driver. See the [module](self).
pub(crate) struct Front {
    settings: Settings,
    connections: Connections,
    /// Addresses of clients by slot, if they are needed.
    peers: Vec<[u8; 16]>,
    requests: ActiveRequests,
    http2: Http2,
    /// Clients with a further received request.
    ready: VecDeque<Token>,
    /// Responses to send together. Empty except while requests are being answered.
    out: Vec<u8>,
    date: DateCache,
    log: Option<AccessLog>,
    metrics: Arc<metrics::WorkerMetrics>,
    /// Responses by status class, and bytes sent, in this turn.
    answered: [u64; 6],
    sent: u64,
    /// Deadline of connections that become idle in this turn.
    idle_until: Time,
    /// Whether connections are closed after their response.
    stopping: bool,
    /// Whether connections without a request are closed.
    closing: bool,
    /// Whether all requests were cancelled.
    has_ended: bool,
}

impl Front {
    /// Creates a front with capacity for `connections` connections, which counts in `metrics`.
    pub(crate) fn new(
        settings: Settings,
        connections: usize,
        log: Option<AccessLog>,
        metrics: Arc<metrics::WorkerMetrics>,
    ) -> Front {
        Front {
            connections: Connections::with_capacity(connections),
            peers: Vec::new(),
            requests: ActiveRequests::default(),
            http2: Http2::new(settings.http2.clone()),
            ready: VecDeque::new(),
            out: Vec::new(),
            date: DateCache::new(0),
            log,
            metrics,
            answered: [0; 6],
            sent: 0,
            idle_until: Time::default(),
            stopping: false,
            closing: false,
            has_ended: false,
            settings,
        }
    }

    /// Begins a turn. `unix_seconds` is the time of day.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Time, unix_seconds: u64) {
        self.date.update(unix_seconds);
        self.connections.begin_turn();
        self.idle_until = now + self.settings.timeouts.keepalive;
    }

    /// Ends a turn: publishes counters and flushes the log.
    #[inline]
    pub(crate) fn end_turn(&mut self) {
        if self.answered != [0; 6] {
            let metrics = &self.metrics;
            metrics.record_responses(&self.answered);
            metrics.bytes_sent_client.add(self.sent);
            self.answered = [0; 6];
            self.sent = 0;
        }
        if let Some(log) = &mut self.log {
            log.flush();
        }
        #[cfg(feature = "simulation")]
        self.record_usage();
    }

    /// Records the sizes of the tables and buffers.
    #[cfg(feature = "simulation")]
    fn record_usage(&self) {
        let usage = &self.metrics.usage;
        usage.connections.set(self.connections.open());
        usage.connection_slots.set(self.connections.slots());
        usage.requests.set(self.requests.len());
        usage.request_slots.set(self.requests.slots());
        let buffered = self.requests.buffered_bytes() + self.http2.buffered_bytes();
        usage.buffered_bytes.set(buffered);
    }

    /// Handles an accepted connection.
    pub(crate) fn on_accepted<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        peer: Option<SocketAddr>,
    ) {
        self.insert(token, peer);
        let peer = peer.map(|peer| peer.ip().to_canonical());
        let sends_header = |network: &Network| peer.is_some_and(|peer| network.contains(peer));
        if self.settings.proxy_protocol.iter().any(sends_header) {
            self.connections.get(token).flags.insert(Flags::HEADER);
        }
        io.set_timer(token, Some(io.turn_time() + self.settings.timeouts.header));
        io.resume_reading(token);
    }

    /// Adds an idle connection that another worker has removed by [`take_idle`](Front::take_idle).
    pub(crate) fn insert_idle<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        peer: Option<SocketAddr>,
    ) {
        self.insert(token, peer);
        self.connections.get(token).flags.insert(Flags::SERVED);
        io.set_timer(token, Some(self.idle_until));
        io.resume_reading(token);
    }

    fn insert(&mut self, token: Token, peer: Option<SocketAddr>) {
        self.connections.insert_client(token);
        if self.settings.needs_peers {
            self.set_peer(token, peer);
        }
    }

    fn set_peer(&mut self, token: Token, peer: Option<SocketAddr>) {
        let slot = token.slot() as usize;
        if slot >= self.peers.len() {
            self.peers.resize(slot + 1, [0; 16]);
        }
        self.peers[slot] = match peer.map(|peer| peer.ip()) {
            Some(IpAddr::V4(v4)) => v4.to_ipv6_mapped().octets(),
            Some(IpAddr::V6(v6)) => v6.octets(),
            None => [0; 16],
        };
    }

    fn peer(&self, token: Token) -> Option<IpAddr> {
        let octets = self.peers.get(token.slot() as usize)?;
        let address = Ipv6Addr::from(*octets);
        (!address.is_unspecified()).then(|| address.to_canonical())
    }

    /// Starts to record changes of the table of connections, for
    /// [`next_table_change`](Front::next_table_change).
    pub(crate) fn record_table_changes(&mut self) {
        self.connections.record_changes();
    }

    /// Returns whether there are recorded changes of the table.
    #[inline]
    pub(crate) fn has_table_changes(&self) -> bool {
        self.connections.has_changes()
    }

    /// Removes and returns the oldest recorded change of the table.
    pub(crate) fn next_table_change(&mut self) -> Option<TableChange> {
        self.connections.next_change()
    }

    /// Returns the owner of a connection.
    #[inline]
    pub(crate) fn owner(&self, token: Token) -> Owner {
        self.connections.owner(token)
    }

    /// Returns whether a connection is open.
    pub(crate) fn contains(&self, token: Token) -> bool {
        self.connections.contains(token)
    }

    /// Adds a connection that a handler opened.
    pub(crate) fn insert_handler(&mut self, token: Token, key: u32, route: u32) {
        self.connections.insert_handler(token, key, route);
    }

    /// Removes and closes a connection that a handler opened.
    pub(crate) fn close_handler<T: Transport>(&mut self, io: &mut T, token: Token) {
        self.connections.remove(token);
        io.close_connection(token);
    }

    /// Returns the number of connected clients.
    #[inline]
    pub(crate) fn open(&self) -> usize {
        self.connections.open()
    }

    /// Returns the number of requests in progress.
    pub(crate) fn in_progress(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether a connection is idle, and whether the one that has been idle longest is new.
    #[inline]
    pub(crate) fn idle(&self) -> Idle {
        match self.connections.oldest_idle() {
            None => Idle::None,
            Some(oldest) if oldest.flags.contains(Flags::SERVED) => Idle::Served,
            Some(_) => Idle::New,
        }
    }

    /// Returns up to `max` connections that can be [taken](Front::take_idle), first those that have been
    /// idle longest.
    #[cold]
    pub(crate) fn movable_idle(&self, max: usize) -> Vec<Token> {
        self.connections.movable_idle().take(max).collect()
    }

    /// Removes an idle connection without closing it. Returns the client's address, if it is known.
    pub(crate) fn take_idle(&mut self, token: Token) -> Option<SocketAddr> {
        let peer = self.peer(token).map(|peer| SocketAddr::new(peer, 0));
        self.connections.remove(token);
        peer
    }

    /// Returns whether an idle connection can be closed for a new one.
    #[inline]
    pub(crate) fn has_closable(&self) -> bool {
        self.connections.idle_longest().is_some()
    }

    /// Returns whether all idle connections were used too recently to be closed, and there are some.
    pub(crate) fn has_recently_idle(&self) -> bool {
        self.connections.has_idle() && !self.has_closable()
    }

    /// Closes the connection that has been idle longest, in O(1). Skips connections that were used in
    /// the last turn or in this one, and those with pending input. Prefers connections whose client
    /// has acknowledged its response: a request sent after the close would make the client's kernel
    /// discard the rest of the response. Returns whether one was closed.
    #[cold]
    pub(crate) fn close_longest_idle<T: Transport>(&mut self, io: &mut T) -> bool {
        let mut found = None;
        for _ in 0..MAX_SKIPPED {
            let Some(token) = self.connections.idle_longest() else { break };
            if !io.has_input(token) {
                if io.unacknowledged(token) == 0 {
                    found = Some(token);
                    break;
                }
                found.get_or_insert(token);
            }
            self.connections.set_idle(token);
        }
        let Some(token) = found else { return false };
        self.metrics().connections_evicted.add(1);
        self.send_goaway(io, token);
        self.close(io, token);
        true
    }

    /// Discards responses that were gathered when a handler panicked, and records the panic.
    #[cold]
    pub(crate) fn on_panic(&mut self) {
        self.out.clear();
        self.record_error(Error::Panic);
    }

    /// Closes a connection and releases its state, without a call of the handler.
    #[cold]
    pub(crate) fn force_close<T: Transport>(&mut self, io: &mut T, token: Token) {
        if !self.connections.contains(token) {
            return;
        }
        self.release_streams(token);
        if self.connections.get(token).phase == Phase::Active {
            let index = self.connections.exchange(token);
            let request = &self.requests[index];
            if request.token == token && request.stage != Stage::Free {
                self.requests.end(index);
            }
        }
        self.close(io, token);
    }

    /// Begins to stop: closes each connection after its current response.
    pub(crate) fn stop(&mut self) {
        if !std::mem::replace(&mut self.stopping, true) {
            self.announce_stop();
        }
    }

    /// Closes connections without a request and without pending input, because the server is stopping.
    pub(crate) fn close_idle<T: Transport>(&mut self, io: &mut T) {
        self.closing = true;
        for token in self.connections.in_phase(Phase::Idle) {
            // A mechanism that scans may not have reported a request yet.
            if !io.has_input(token) {
                self.end_idle(io, token);
            }
        }
        for token in self.connections.in_phase(Phase::Streams) {
            self.shut_down_http2(token);
        }
    }

    /// Closes an idle connection, or lingers if its client has not acknowledged the last response: a
    /// request that is on its way would make the client lose the rest of it.
    fn end_idle<T: Transport>(&mut self, io: &mut T, token: Token) {
        self.send_goaway(io, token);
        if io.unacknowledged(token) > 0 {
            self.linger(io, token);
        } else {
            self.close(io, token);
        }
    }

    /// Cancels all requests in progress, because the shutdown timeout has expired.
    pub(crate) fn cancel_all<T: Transport, H: Handler<T>>(&mut self, io: &mut T, handler: &mut H) {
        self.has_ended = true;
        for token in self.connections.in_phase(Phase::Streams) {
            self.end_http2(io, handler, token);
        }
        for token in self.connections.in_phase(Phase::Active) {
            let index = self.connections.exchange(token);
            if self.requests[index].stage == Stage::Head {
                self.requests.end(index);
                self.close(io, token);
            } else {
                self.cancel(io, handler, index, Outcome::ShutdownTimeout);
            }
        }
    }

    /// Returns whether all requests were cancelled, so that handlers begin no more work.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns whether the server is stopping.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Returns whether there is a client with a further received request.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns a client with a further received request, for [`next_request`](Front::next_request).
    #[inline]
    pub(crate) fn next_ready(&mut self) -> Option<Token> {
        self.ready.pop_front()
    }

    /// Returns the counters of this worker.
    #[inline]
    pub(crate) fn metrics(&self) -> &metrics::WorkerMetrics {
        &self.metrics
    }

    /// Records an error.
    #[cold]
    pub(crate) fn record_error(&self, error: Error) {
        self.metrics().record_error(error);
    }

    /// Removes and closes a client connection.
    fn close<T: Transport>(&mut self, io: &mut T, token: Token) {
        if self.connections.get(token).flags.contains(Flags::HTTP2) {
            self.http2.remove(token);
        }
        self.connections.remove(token);
        io.close_connection(token);
    }

    /// Closes a connection after its last response was sent.
    #[inline]
    fn end_connection<T: Transport>(&mut self, io: &mut T, token: Token) {
        let flags = self.connections.get(token).flags;
        if flags & (Flags::LINGER | Flags::ENDED | Flags::TRANSPORT_CLOSES) == Flags::LINGER {
            self.linger(io, token);
        } else {
            self.close(io, token);
        }
    }

    /// Shuts a connection down and discards further input before it closes the connection. If it
    /// closed the connection immediately, further input would cause a reset, which may overtake the
    /// response.
    fn linger<T: Transport>(&mut self, io: &mut T, token: Token) {
        let connection = self.connections.get(token);
        if connection.flags.contains(Flags::ENDED) {
            return self.close(io, token);
        }
        if connection.flags.contains(Flags::HTTP2) {
            self.http2.remove(token);
        }
        self.resume(io, token);
        self.connections.set_lingering(token);
        io.shut_down(token);
        io.set_timer(token, Some(io.turn_time() + LINGER));
    }

    /// Pauses receiving.
    fn pause<T: Transport>(&mut self, io: &mut T, token: Token) {
        let flags = &mut self.connections.get(token).flags;
        if !flags.contains(Flags::PAUSED) {
            flags.insert(Flags::PAUSED);
            io.pause_reading(token);
        }
    }

    /// Resumes receiving, unless the transport relays the input.
    #[inline]
    fn resume<T: Transport>(&mut self, io: &mut T, token: Token) {
        let flags = &mut self.connections.get(token).flags;
        if *flags & (Flags::PAUSED | Flags::RELAYED) == Flags::PAUSED {
            flags.remove(Flags::PAUSED);
            io.resume_reading(token);
        }
    }

    // Queries of handlers about a request.

    /// Returns the token of the client connection.
    #[inline]
    pub(crate) fn client(&self, id: RequestId) -> Option<Token> {
        self.requests.find(id).map(|index| self.requests[index].token)
    }

    /// Returns the address of the client, if addresses are needed.
    #[inline]
    pub(crate) fn client_address(&self, id: RequestId) -> Option<IpAddr> {
        self.client(id).and_then(|token| self.peer(token))
    }

    /// Returns the request, without parsing it again.
    #[inline]
    pub(crate) fn request(&self, id: RequestId) -> Option<Request<'_>> {
        self.requests.find(id).and_then(|index| self.requests[index].request())
    }

    /// Returns whether the complete request body was received.
    #[inline]
    pub(crate) fn is_uploaded(&self, id: RequestId) -> bool {
        self.requests.find(id).is_none_or(|index| self.requests[index].is_uploaded())
    }

    /// Returns whether part of the request body was passed to the handler.
    pub(crate) fn has_uploaded(&self, id: RequestId) -> bool {
        let facts = self.requests.find(id).map(|index| self.requests[index].facts);
        facts.is_some_and(|facts| facts.contains(Facts::UPLOADED))
    }

    /// Returns whether the server waits for the client to send more of the body.
    pub(crate) fn waits_for_body(&self, id: RequestId) -> bool {
        self.requests.find(id).is_some_and(|index| self.requests[index].waits_for_body())
    }

    /// Returns whether sends to the client are incomplete.
    #[inline]
    pub(crate) fn is_blocked(&mut self, id: RequestId) -> bool {
        match self.requests.find(id) {
            Some(index) if self.requests[index].is_stream() => {
                let stream = self.http2.stream(index);
                stream.has_pending() || stream.is_held
            }
            Some(index) => self.connections.get(self.requests[index].token).sends > 0,
            None => false,
        }
    }

    /// Returns whether the client has closed its sending side.
    pub(crate) fn is_half_closed(&mut self, id: RequestId) -> bool {
        match self.requests.find(id) {
            Some(index) if self.requests[index].is_stream() => {
                self.http2.stream(index).is_received()
            }
            Some(index) => {
                self.connections.get(self.requests[index].token).flags.contains(Flags::ENDED)
            }
            None => true,
        }
    }

    /// Returns whether the transport relays the request body.
    pub(crate) fn is_body_relayed(&mut self, id: RequestId) -> bool {
        match self.client(id) {
            Some(token) => self.connections.get(token).flags.contains(Flags::RELAYED),
            None => false,
        }
    }

    /// Returns whether requests are logged.
    #[inline]
    pub(crate) fn is_logging(&self) -> bool {
        self.log.is_some()
    }

    /// Sets the logged data about the upstream server.
    pub(crate) fn set_upstream_entry(&mut self, id: RequestId, entry: UpstreamEntry) {
        if let Some(index) = self.requests.find(id) {
            self.requests[index].upstream = Some(Box::new(entry));
        }
    }
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front")
            .field("open", &self.open())
            .field("in_progress", &self.in_progress())
            .finish_non_exhaustive()
    }
}
