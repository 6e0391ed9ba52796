//! Exchanges: requests that are being forwarded, each as a state machine.

use std::net::SocketAddr;

use hearken::timer::Time;
use hearken_http::forward::Relay;
use hearken_http::{Method, Request, ResponseParser};

use super::balance::Tried;
use crate::front::RequestId;

/// A destination of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// The upstream server of this number.
    Server(usize),
    /// The server at this address, which a request to a forward proxy names.
    Address(SocketAddr),
}

/// The kind of a method, as far as it matters to a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MethodKind {
    /// A safe method: the request may be sent twice (RFC 9110 section 9.2.1).
    Safe,
    /// HEAD: safe, and the response has no body.
    Head,
    Connect,
    Other,
}

/// A use of an upstream connection by an exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// The upstream connection. If it is one to an upstream server, the request counts as in flight
    /// there.
    pub(super) connection: u32,
    /// The connection was used before.
    pub(super) reused: bool,
    /// What went wrong counts against the server.
    pub(super) failed: bool,
}

/// The state of an exchange. Each state carries its own data.
#[derive(Debug)]
pub(super) enum State {
    /// The table's slot holds no exchange.
    Free,
    /// A server is to be found.
    Routing,
    /// Waiting for the addresses of the server that the request names.
    Resolving,
    /// Waiting for a server to have room.
    Queued,
    /// Connecting to a server.
    Connecting(Attempt),
    /// The request is being sent, and the response's head awaited.
    Waiting {
        attempt: Attempt,
        parser: ResponseParser,
        /// Received bytes of a head that is incomplete.
        received: Vec<u8>,
        interims: u16,
    },
    /// The response's body is being passed on.
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
        /// The client was told that the server has ended its side.
        client_shut: bool,
    },
}

impl State {
    /// Returns the use of an upstream connection.
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

/// When an exchange reached its stages, for the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// The request's head was complete.
    pub(super) started: Time,
    /// A server was found.
    pub(super) selected: Time,
    /// The request was sent.
    pub(super) sent: Time,
    /// The response's head had come.
    pub(super) responded: Time,
}

/// A request that is being forwarded.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) id: RequestId,
    pub(super) state: State,
    pub(super) kind: MethodKind,
    /// Servers that the request was tried on.
    pub(super) tried: Tried,
    /// How often a server was found for it, and how often it was sent.
    pub(super) attempts: u8,
    pub(super) sends: u8,
    /// The next attempt must use a connection of its own.
    pub(super) needs_new_connection: bool,
    /// Bytes that the transport had moved when its progress was checked last.
    pub(super) relayed_bytes: u64,
    /// The last destination, for the log.
    pub(super) last_route: Option<Route>,
    pub(super) times: Times,
    /// Further addresses of the server that a request to a forward proxy names, the next one last.
    pub(super) addresses: Vec<SocketAddr>,
}

/// All exchanges of a worker, by their keys.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    all: Vec<Exchange>,
    free: Vec<u32>,
}

impl Exchanges {
    /// Returns the key that [`begin`](Exchanges::begin) is to be given next.
    #[inline(always)]
    pub(super) fn reserve(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(Exchange::vacant());
            self.all.len() as u32 - 1
        })
    }

    /// Gives a key back that was not used, or whose exchange is in [`State::Free`].
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
        exchange.tried = Tried::default();
        exchange.attempts = 0;
        exchange.sends = 0;
        exchange.needs_new_connection = false;
        exchange.relayed_bytes = 0;
        exchange.last_route = None;
        exchange.times = Times { started: now, selected: now, sent: now, responded: now };
        exchange.addresses.clear();
    }

    /// Returns whether the exchange is that of this request, and in the queue.
    pub(super) fn is_queued(&self, key: u32, id: RequestId) -> bool {
        let exchange = &self[key];
        exchange.id == id && matches!(exchange.state, State::Queued)
    }

    /// Returns the key of the exchange of a request whose server's name is being looked up.
    pub(super) fn find_resolving(&self, id: RequestId) -> Option<u32> {
        let is_it = |it: &Exchange| it.id == id && matches!(it.state, State::Resolving);
        self.all.iter().position(is_it).map(|key| key as u32)
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
            tried: Tried::default(),
            attempts: 0,
            sends: 0,
            needs_new_connection: false,
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

    /// Returns a method of the kind.
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
