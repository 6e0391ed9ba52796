//! The client side of connections: requests in, responses out.
//!
//! [`Front`] parses requests, hands them to a [`Handler`], and turns what that writes into bytes:
//! pipelining, `Expect`, keep-alive, bodies with backpressure, lingering close, slow clients,
//! deadlines and the access log are dealt with here, for all handlers.
//!
//! It performs no I/O. A driver tells it what happened (accepted, received, ended, sent, deadline)
//! and performs the operations of [`Transport`]. So the same front works under an event loop, a
//! blocking thread, a task or a simulation.
//!
//! | part | contents |
//! |---|---|
//! | `transport` | the operations that a driver performs |
//! | `handler` | the interface of handlers |
//! | `connection` | the table of connections; which has been idle longest |
//! | `request` | a request in progress |
//! | `receive` | bytes of clients: heads, bodies, tunnels |
//! | `respond` | responses: at once, later, as a stream; errors |
//! | `deadline` | slow clients |

mod connection;
mod deadline;
mod handler;
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
use hearken_http::{DateCache, Limits, Request};

pub(crate) use connection::Owner;
use connection::{Connections, Flags, Phase};
pub use handler::Answer;
pub(crate) use handler::{Context, Deferred, Flow, Handled, Handler, Incoming};
use request::{ActiveRequests, Facts};
pub(crate) use request::{RequestId, UpstreamEntry};
pub(crate) use respond::Persistence;
pub(crate) use transport::Transport;

use crate::runtime::access_log::AccessLog;
use crate::runtime::metrics::{self, Error};
use crate::runtime::network::Network;

/// How long, and for how many bytes, a connection that was shut down may go on sending.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 256 * 1024;
/// How many connections are spared at a time when one is to be closed.
const MAX_SKIPPED: usize = 16;
/// Bytes that are received ahead of their use. Up to here a client is received from even if its
/// request is in progress, because that shows that it disconnects.
const MAX_READ_AHEAD: usize = 16 * 1024;

/// How clients are treated.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Timeouts.
    pub(crate) timeouts: Timeouts,
    /// Minimum rate in bytes per second at which a client takes a response and sends a body.
    pub(crate) min_rate: u64,
    /// Maximum size of a request's head.
    pub(crate) limits: Limits,
    /// How to treat a client that half-closes the connection.
    pub(crate) half_close: HalfClose,
    /// Networks whose connections begin with a PROXY protocol header.
    pub(crate) proxy_protocol: Vec<Network>,
    /// Whether clients' addresses are needed.
    pub(crate) needs_peers: bool,
}

/// Timeouts of the client side, all on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// A request's head, from its first byte or from the accept (408).
    pub head: Duration,
    /// The time over which the rate of a body is measured (408).
    pub body: Duration,
    /// A request's body as a whole (408).
    pub request: Duration,
    /// The next request on a kept connection.
    pub idle: Duration,
    /// The time over which the rate of sending is measured.
    pub send: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            request: Duration::from_secs(3600),
            idle: Duration::from_secs(60),
            // A window that was full opens in large steps, which may be far apart.
            send: Duration::from_secs(30),
        }
    }
}

/// How to treat a client that half-closes the connection while its request is in progress. It
/// cannot be told whether the client waits for the response or has disconnected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HalfClose {
    /// It waits for the response.
    Waits,
    /// It has disconnected: the request is given up.
    Left,
}

/// The client side of all connections of one driver. See the [module](self).
pub(crate) struct Front {
    settings: Settings,
    connections: Connections,
    /// Addresses of clients, by slot, if they are needed.
    peers: Vec<[u8; 16]>,
    requests: ActiveRequests,
    /// Clients whose next request has been received.
    ready: VecDeque<Token>,
    /// Responses that are sent together. Empty except while requests are being answered.
    out: Vec<u8>,
    date: DateCache,
    log: Option<AccessLog>,
    metrics: Arc<metrics::Worker>,
    /// Responses by class of their status, and bytes sent, since the last turn.
    answered: [u64; 6],
    sent: u64,
    /// Until when a connection may be idle that becomes idle in this turn.
    idle_until: Time,
    /// No connection is kept open after its response.
    stopping: bool,
    /// Nothing is accepted any more: connections without a request are closed.
    closing: bool,
}

impl Front {
    /// Creates a front for so many connections, which counts in `figures`.
    pub(crate) fn new(
        settings: Settings,
        connections: usize,
        log: Option<AccessLog>,
        figures: Arc<metrics::Worker>,
    ) -> Front {
        Front {
            connections: Connections::with_capacity(connections),
            peers: Vec::new(),
            requests: ActiveRequests::default(),
            ready: VecDeque::new(),
            out: Vec::new(),
            date: DateCache::new(0),
            log,
            metrics: figures,
            answered: [0; 6],
            sent: 0,
            idle_until: Time::default(),
            stopping: false,
            closing: false,
            settings,
        }
    }

    /// Begins a turn, at `now` and so many seconds after 1970.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Time, unix_seconds: u64) {
        self.date.update(unix_seconds);
        self.connections.begin_turn();
        self.idle_until = now + self.settings.timeouts.idle;
    }

    /// Ends a turn: publishes what was counted and writes the log.
    #[inline]
    pub(crate) fn end_turn(&mut self) {
        if self.answered != [0; 6] {
            let figures = &self.metrics;
            figures.record_responses(&self.answered);
            figures.bytes_sent_client.add(self.sent);
            self.answered = [0; 6];
            self.sent = 0;
        }
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }

    /// Adds a connection that was accepted.
    pub(crate) fn on_accepted<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        peer: Option<SocketAddr>,
    ) {
        self.connections.insert_client(token);
        if self.settings.needs_peers {
            self.set_peer(token, peer);
        }
        let peer = peer.map(|peer| peer.ip().to_canonical());
        let sends_header = |network: &Network| peer.is_some_and(|peer| network.contains(peer));
        if self.settings.proxy_protocol.iter().any(sends_header) {
            self.connections.get(token).flags.insert(Flags::HEADER);
        }
        io.set_timer(token, Some(io.turn_time() + self.settings.timeouts.head));
        io.resume_reading(token);
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

    /// Returns who owns a connection.
    #[inline]
    pub(crate) fn owner(&self, token: Token) -> Owner {
        self.connections.owner(token)
    }

    /// Adds a connection that a handler made.
    pub(crate) fn insert_handler(&mut self, token: Token, key: u32, route: u32) {
        self.connections.insert_handler(token, key, route);
    }

    /// Forgets a connection that a handler made, and closes it.
    pub(crate) fn close_handler<T: Transport>(&mut self, io: &mut T, token: Token) {
        self.connections.remove(token);
        io.close_connection(token);
    }

    /// Returns the number of clients.
    #[inline]
    pub(crate) fn open(&self) -> usize {
        self.connections.open()
    }

    /// Returns the number of requests in progress.
    pub(crate) fn in_progress(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether a client is idle that [`close_idle_longest`](Front::close_idle_longest)
    /// closes.
    #[inline]
    pub(crate) fn has_closable(&self) -> bool {
        self.connections.idle_longest().is_some()
    }

    /// Returns whether clients are idle, but were used too recently to be closed.
    pub(crate) fn has_recently_idle(&self) -> bool {
        self.connections.has_idle() && !self.has_closable()
    }

    /// Closes the connection that has been idle longest, to make room for another, in O(1). One that
    /// was used in the last turn or in this one is spared, and so is one whose next request has come.
    /// Returns whether there was one.
    #[cold]
    pub(crate) fn close_longest_idle<T: Transport>(&mut self, io: &mut T) -> bool {
        for _ in 0..MAX_SKIPPED {
            let Some(token) = self.connections.idle_longest() else { return false };
            if !io.has_input(token) {
                self.metrics().connections_evicted.add(1);
                self.close(io, token);
                return true;
            }
            self.connections.set_idle(token);
        }
        false
    }

    /// Keeps no connection open after its response from now on.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Closes connections without a request, because nothing more is accepted.
    pub(crate) fn close_idle<T: Transport>(&mut self, io: &mut T) {
        self.closing = true;
        for token in self.connections.in_phase(Phase::Idle) {
            self.close(io, token);
        }
    }

    /// Returns whether the server is stopping.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Returns a client whose next request was received, to be passed to
    /// [`next_request`](Front::next_request).
    #[inline]
    pub(crate) fn next_ready(&mut self) -> Option<Token> {
        self.ready.pop_front()
    }

    /// Returns the counters of this worker.
    #[inline]
    pub(crate) fn metrics(&self) -> &metrics::Worker {
        &self.metrics
    }

    /// Counts an error.
    #[cold]
    pub(crate) fn record_error(&self, error: Error) {
        self.metrics().error(error);
    }

    /// Forgets a client's connection, and closes it.
    fn close<T: Transport>(&mut self, io: &mut T, token: Token) {
        self.connections.remove(token);
        io.close_connection(token);
    }

    /// Closes a connection whose last response was sent.
    #[inline]
    fn end_connection<T: Transport>(&mut self, io: &mut T, token: Token) {
        let flags = self.connections.get(token).flags;
        if flags & (Flags::LINGER | Flags::ENDED | Flags::TRANSPORT_CLOSES) == Flags::LINGER {
            self.linger(io, token);
        } else {
            self.close(io, token);
        }
    }

    /// Shuts a connection down and lets the client finish: closing at once would reset the
    /// connection for what the client still sends, and the reset may overtake the response.
    fn linger<T: Transport>(&mut self, io: &mut T, token: Token) {
        let connection = self.connections.get(token);
        if connection.flags.contains(Flags::ENDED) {
            return self.close(io, token);
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

    /// Resumes receiving, unless the transport moves what the client sends.
    #[inline]
    fn resume<T: Transport>(&mut self, io: &mut T, token: Token) {
        let flags = &mut self.connections.get(token).flags;
        if *flags & (Flags::PAUSED | Flags::RELAYED) == Flags::PAUSED {
            flags.remove(Flags::PAUSED);
            io.resume_reading(token);
        }
    }

    // What handlers ask about a request.

    /// Returns the client's connection, for what only the connection tells.
    #[inline]
    pub(crate) fn client(&self, id: RequestId) -> Option<Token> {
        self.requests.find(id).map(|index| self.requests[index].token)
    }

    /// Returns the client's address, if it is needed.
    #[inline]
    pub(crate) fn client_address(&self, id: RequestId) -> Option<IpAddr> {
        self.client(id).and_then(|token| self.peer(token))
    }

    /// Returns the request, which is not parsed again.
    #[inline]
    pub(crate) fn request(&self, id: RequestId) -> Option<Request<'_>> {
        self.requests.find(id).and_then(|index| self.requests[index].request())
    }

    /// Returns whether all of the request's body was received.
    #[inline]
    pub(crate) fn is_uploaded(&self, id: RequestId) -> bool {
        self.requests.find(id).is_none_or(|index| self.requests[index].is_uploaded())
    }

    /// Returns whether part of the request's body was passed to the handler.
    pub(crate) fn has_uploaded(&self, id: RequestId) -> bool {
        let facts = self.requests.find(id).map(|index| self.requests[index].facts);
        facts.is_some_and(|facts| facts.contains(Facts::UPLOADED))
    }

    /// Returns whether the client has yet to send part of the body, and knows that it may.
    pub(crate) fn waits_for_body(&self, id: RequestId) -> bool {
        self.requests.find(id).is_some_and(|index| self.requests[index].waits_for_body())
    }

    /// Returns whether the client has yet to take part of what was written.
    #[inline]
    pub(crate) fn is_blocked(&mut self, id: RequestId) -> bool {
        match self.client(id) {
            Some(token) => self.connections.get(token).sends > 0,
            None => false,
        }
    }

    /// Returns whether the client has ended its side.
    pub(crate) fn is_half_closed(&mut self, id: RequestId) -> bool {
        match self.client(id) {
            Some(token) => self.connections.get(token).flags.contains(Flags::ENDED),
            None => true,
        }
    }

    /// Returns whether the transport moves the request's body.
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

    /// Adds what is logged of the upstream server.
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
