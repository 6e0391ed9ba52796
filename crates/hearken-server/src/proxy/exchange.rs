//! Exchanges: the state machines of forwarded requests.

use std::net::SocketAddr;

use hearken::timer::Time;
use hearken_http::forward::Relay;
use hearken_http::{Method, Request, ResponseParser};

use super::balance::TriedServers;
use crate::front::RequestId;

/// The destination of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// The upstream server with this index.
    Server(usize),
    /// The address of the server that a request to a forward proxy names.
    Address(SocketAddr),
}

/// The kind of a method, as far as it matters to the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MethodKind {
    /// A safe method: the request may be sent twice (RFC 9110 section 9.2.1).
    Safe,
    /// HEAD, which is safe, and whose response has no body.
    Head,
    Connect,
    Other,
}

/// The connections that an attempt may use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Usable {
    /// Pooled and new connections.
    Any,
    /// New connections.
    New,
    /// New connections in HTTP/1.1, because the server requires it or cannot upgrade in HTTP/2.
    NewHttp1,
}

/// An attempt to send a request on an upstream connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// Key of the upstream connection, or of the stream in its place. The request counts as in flight at its server.
    pub(super) connection: u32,
    /// Whether the connection was used before.
    pub(super) reused: bool,
    /// Whether the attempt counts as a failure of the server.
    pub(super) failed: bool,
}

/// The state of an exchange, with the data of each state.
#[derive(Debug)]
pub(super) enum State {
    /// The table's slot holds no exchange.
    Free,
    /// A server must be selected.
    Routing,
    /// The name of the server is being resolved.
    Resolving,
    /// Waiting in the queue for a server.
    Queued,
    /// Connecting to a server.
    Connecting(Attempt),
    /// Sending the request and waiting for the head of the response.
    Waiting {
        attempt: Attempt,
        parser: ResponseParser,
        /// Received bytes of a head that is incomplete.
        received: Vec<u8>,
        interims: u16,
    },
    /// Forwarding the body of the response.
    Responding {
        attempt: Attempt,
        download: Relay,
        /// Whether the server keeps the connection open.
        keep: bool,
        status: u16,
    },
    /// Bytes pass in both directions.
    Tunnel {
        attempt: Attempt,
        /// Whether the client connection was shut down after the server had closed its side.
        client_shut: bool,
    },
}

impl State {
    /// Returns the current attempt.
    #[inline]
    pub(super) fn attempt(&self) -> Option<&Attempt> {
        match self {
            State::Connecting(attempt)
            | State::Waiting { attempt, .. }
            | State::Responding { attempt, .. }
            | State::Tunnel { attempt, .. } => Some(attempt),
            _ => None,
        }
    }

    pub(super) fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        match self {
            State::Connecting(attempt)
            | State::Waiting { attempt, .. }
            | State::Responding { attempt, .. }
            | State::Tunnel { attempt, .. } => Some(attempt),
            _ => None,
        }
    }
}

/// The times of the stages of an exchange, for the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// The request's head was complete.
    pub(super) started: Time,
    /// A server was selected.
    pub(super) selected: Time,
    /// The request was sent.
    pub(super) sent: Time,
    /// The head of the response was received.
    pub(super) responded: Time,
}

/// A forwarded request.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) id: RequestId,
    pub(super) state: State,
    pub(super) kind: MethodKind,
    /// Servers on which the request failed.
    pub(super) tried: TriedServers,
    /// Number of server selections, and of times the request was sent.
    pub(super) attempts: u8,
    pub(super) sends: u8,
    /// The connections that the next attempt may use.
    pub(super) usable: Usable,
    /// Number of relayed bytes at the last progress check.
    pub(super) relayed_bytes: u64,
    /// The last destination, for the log.
    pub(super) last_route: Option<Route>,
    pub(super) times: Times,
    /// Remaining addresses of the server that a request to a forward proxy names, in reverse order.
    pub(super) addresses: Vec<SocketAddr>,
}

/// All exchanges of a worker, by their keys.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    all: Vec<Exchange>,
    free: Vec<u32>,
}

impl Exchanges {
    /// Returns an unused key for [`begin`](Exchanges::begin).
    #[inline(always)]
    pub(super) fn reserve(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(Exchange::vacant());
            self.all.len() as u32 - 1
        })
    }

    /// Releases a key that was not used, or whose exchange is in [`State::Free`].
    #[inline]
    pub(super) fn end(&mut self, key: u32) {
        self.free.push(key);
    }

    /// Begins the exchange of a request.
    #[inline(always)]
    pub(super) fn begin(&mut self, key: u32, id: RequestId, request: &Request<'_>, now: Time) {
        let exchange = &mut self[key];
        exchange.id = id;
        exchange.state = State::Routing;
        exchange.kind = MethodKind::from_method(&request.method);
        exchange.tried = TriedServers::default();
        exchange.attempts = 0;
        exchange.sends = 0;
        exchange.usable = Usable::Any;
        exchange.relayed_bytes = 0;
        exchange.last_route = None;
        exchange.times = Times { started: now, selected: now, sent: now, responded: now };
        exchange.addresses.clear();
    }

    /// Returns whether the key identifies the exchange of this request, and the request is queued.
    pub(super) fn is_queued(&self, key: u32, id: RequestId) -> bool {
        let exchange = &self[key];
        exchange.id == id && matches!(exchange.state, State::Queued)
    }

    /// Finds the exchange of a request whose server's name is being resolved.
    pub(super) fn find_resolving(&self, id: RequestId) -> Option<u32> {
        let matches = |it: &Exchange| it.id == id && matches!(it.state, State::Resolving);
        self.all.iter().position(matches).map(|key| key as u32)
    }

    /// Returns the number of exchanges in progress, and of slots.
    #[cfg(feature = "simulation")]
    pub(super) fn count(&self) -> (usize, usize) {
        (self.all.len() - self.free.len(), self.all.len())
    }

    /// Returns the number of exchanges with a current attempt.
    #[cfg(feature = "simulation")]
    pub(super) fn count_attempts(&self) -> usize {
        self.all.iter().filter(|it| it.state.attempt().is_some()).count()
    }

    /// Returns the number of received bytes of incomplete response heads.
    #[cfg(feature = "simulation")]
    pub(super) fn buffered_bytes(&self) -> usize {
        let received = |it: &Exchange| match &it.state {
            State::Waiting { received, .. } => received.len(),
            _ => 0,
        };
        self.all.iter().map(received).sum()
    }
}

impl std::ops::Index<u32> for Exchanges {
    type Output = Exchange;

    #[inline]
    fn index(&self, key: u32) -> &Exchange {
        &self.all[key as usize]
    }
}

impl std::ops::IndexMut<u32> for Exchanges {
    #[inline]
    fn index_mut(&mut self, key: u32) -> &mut Exchange {
        &mut self.all[key as usize]
    }
}

impl Exchange {
    fn vacant() -> Exchange {
        Exchange {
            id: RequestId::from_bits(u64::MAX),
            state: State::Free,
            kind: MethodKind::Other,
            tried: TriedServers::default(),
            attempts: 0,
            sends: 0,
            usable: Usable::Any,
            relayed_bytes: 0,
            last_route: None,
            times: Times::default(),
            addresses: Vec::new(),
        }
    }
}

impl MethodKind {
    fn from_method(method: &Method<'_>) -> MethodKind {
        match method {
            Method::Head => MethodKind::Head,
            Method::Get | Method::Options | Method::Trace => MethodKind::Safe,
            Method::Connect => MethodKind::Connect,
            _ => MethodKind::Other,
        }
    }

    /// Returns a method of this kind.
    pub(super) fn method(self) -> Method<'static> {
        match self {
            MethodKind::Head => Method::Head,
            MethodKind::Connect => Method::Connect,
            MethodKind::Safe | MethodKind::Other => Method::Get,
        }
    }

    pub(super) fn is_safe(self) -> bool {
        matches!(self, MethodKind::Safe | MethodKind::Head)
    }
}
