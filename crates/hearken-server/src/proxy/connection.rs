//! What the proxy remembers of a connection, to a client or to a server, and of an exchange: a
//! request in flight with what comes of it.

use std::net::{IpAddr, SocketAddr};

use hearken::Token;
use hearken::timer::Time;
use hearken_http::forward::Relay;
use hearken_http::{Method, RequestParser, ResponseParser, Version};

use super::balance::Tried;
use crate::runtime::access_log::Outcome;

/// A connection, in as little memory as an idle one needs.
#[derive(Debug)]
pub(super) struct Connection {
    /// Its name; that of an earlier holder of the slot where the role is [`Role::Vacant`].
    pub(super) token: Token,
    /// What it is in the middle of.
    pub(super) exchange: Option<Id>,
    pub(super) role: Role,
    pub(super) flags: Flags,
    /// Sends that are not complete.
    pub(super) sends: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// There is none.
    Vacant,
    Client,
    /// A client that is told of the end; what it still sends is discarded, so that a reset does not
    /// take the answer from it.
    Lingering,
    /// A connection to a server.
    Server,
}

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) struct Flags: u8 {
        /// Receiving from it was stopped.
        const STOPPED = 1;
        /// Its peer has ended its side.
        const ENDED = 2;
        /// It was told of the end.
        const SHUT = 4;
        /// A client that is to be closed once it was sent what it is sent.
        const CLOSE = 8;
        /// It has carried an exchange before.
        const USED = 16;
        /// Nothing more can be sent on it.
        const BROKEN = 32;
        /// What it receives is moved on by the kernel.
        const RELAYED = 64;
        /// It begins with a PROXY protocol header, which has not come yet.
        const HEADER = 128;
    }
}

/// The number of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Id(std::num::NonZeroU32);

/// What an exchange is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Nothing: it is free.
    Free,
    /// Waiting for the rest of a request's head, or of a PROXY protocol header.
    Head,
    /// Waiting for the addresses of the server.
    Resolving,
    /// Waiting for a server to have room.
    Queued,
    /// Connecting to a server.
    Connecting,
    /// Waiting for the response's head.
    Asked,
    /// Passing the response's body on.
    Answering,
    /// Passing bytes on, both ways.
    Tunnel,
    /// The server is done with; the client is being sent the rest.
    Delivering,
}

/// What is to be passed on of a request's body.
#[derive(Debug)]
pub(super) enum Upload {
    /// All was.
    Done,
    /// It is being passed on.
    Flowing(Relay),
    /// The rest is of no use to anybody.
    Dropped,
}

/// Whom a request goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// The server of this number.
    Server(usize),
    /// Whoever is at that address.
    Address(SocketAddr),
}

/// What kind of a method it is, as far as a proxy cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// May be asked twice (RFC 9110 section 9.2.1).
    Safe,
    /// As that, with an answer that has no body.
    Head,
    Connect,
    Other,
}

/// A request in flight, and what comes of it. It is used again for another, with its memory.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) stage: Stage,
    pub(super) client: Token,
    pub(super) server: Option<Token>,
    /// Where it goes; if it is a server, it counts as in flight there.
    pub(super) route: Option<Route>,
    pub(super) tried: Tried,
    /// How often a server was found for it, and how often it was sent.
    pub(super) tries: u8,
    pub(super) asks: u8,

    /// How far a head was looked at that is not whole.
    pub(super) request_parser: RequestParser,
    /// Received from the client, and neither passed on nor part of `head`.
    pub(super) received: Vec<u8>,
    /// The request's head as it came, for another try and for the log.
    pub(super) head: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) version: Version,
    pub(super) facts: Facts,
    pub(super) upload: Upload,

    pub(super) response_parser: ResponseParser,
    /// Received from the server, and not passed on: a head that is not whole.
    pub(super) reply: Vec<u8>,
    pub(super) download: Option<Relay>,
    pub(super) status: u16,
    pub(super) interims: u16,

    /// Where it was sent last, for the log, and at which address that is.
    pub(super) last: Option<Route>,
    pub(super) at: Option<SocketAddr>,
    /// When its head was whole, when there was a server for it, when it was sent, and when the
    /// response's head had come.
    pub(super) began: Time,
    pub(super) reached: Time,
    pub(super) asked: Time,
    pub(super) answered: Time,
    /// Until when it must have ended.
    pub(super) until: Option<Time>,
    /// Bytes of the client's body, and of the answer's, heads not included.
    pub(super) uploaded: u64,
    pub(super) downloaded: u64,
    /// How many bytes the kernel had moved when that was looked at.
    pub(super) moved: u64,
    /// What the client is to have taken when its rate is looked at next.
    pub(super) due: Option<u64>,
    /// How it ended, for the log.
    pub(super) how: Outcome,
    /// Reason for which it was rejected.
    pub(super) rejected: Option<&'static str>,
    /// Where it may be connected to, for a forward proxy, the next one first.
    pub(super) addresses: Vec<SocketAddr>,
    /// Tells it from others that have had its number.
    pub(super) serial: u32,
}

bitflags::bitflags! {
    /// What is known of a request and its answer.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) struct Facts: u16 {
        /// The client wants the connection kept.
        const KEEP_CLIENT = 1;
        /// The server wants it kept.
        const KEEP_SERVER = 2;
        /// Another protocol was asked for.
        const UPGRADE = 4;
        /// The client waits for 100 before it sends the body.
        const EXPECTS = 8;
        /// The connection to the server was used before.
        const REUSED = 16;
        /// The next try is to be made on a connection of its own.
        const FRESH = 32;
        /// Some of the body was passed on: it cannot be asked again.
        const UPLOADED = 128;
        /// The client is told of the answer's end by that of the connection.
        const UNTIL_CLOSE = 1024;
        /// What went wrong counts against the server.
        const FAILED = 2048;
    }
}

impl Connection {
    pub(super) fn new(token: Token, role: Role) -> Connection {
        Connection { token, exchange: None, role, flags: Flags::empty(), sends: 0 }
    }
}

impl Id {
    pub(super) fn of(index: usize) -> Id {
        // One too many is one less descriptor than there can be.
        let number = u32::try_from(index + 1).ok().and_then(std::num::NonZeroU32::new);
        Id(number.unwrap_or(std::num::NonZeroU32::MAX))
    }

    pub(super) fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl Kind {
    pub(super) fn of(method: &Method<'_>) -> Kind {
        match method {
            Method::Head => Kind::Head,
            Method::Get | Method::Options | Method::Trace => Kind::Safe,
            Method::Connect => Kind::Connect,
            _ => Kind::Other,
        }
    }

    /// A method of the kind.
    pub(super) fn method(self) -> Method<'static> {
        match self {
            Kind::Head => Method::Head,
            Kind::Connect => Method::Connect,
            Kind::Safe | Kind::Other => Method::Get,
        }
    }

    pub(super) fn is_safe(self) -> bool {
        matches!(self, Kind::Safe | Kind::Head)
    }
}

impl Exchange {
    pub(super) fn new(client: Token, now: Time) -> Exchange {
        Exchange {
            stage: Stage::Free,
            client,
            server: None,
            route: None,
            tried: Tried::default(),
            tries: 0,
            asks: 0,
            request_parser: RequestParser::new(),
            received: Vec::new(),
            head: Vec::new(),
            kind: Kind::Safe,
            version: Version::Http11,
            facts: Facts::empty(),
            upload: Upload::Done,
            response_parser: ResponseParser::new(),
            reply: Vec::new(),
            download: None,
            status: 0,
            interims: 0,
            last: None,
            at: None,
            began: now,
            reached: now,
            asked: now,
            answered: now,
            until: None,
            uploaded: 0,
            downloaded: 0,
            moved: 0,
            due: None,
            how: Outcome::Done,
            rejected: None,
            addresses: Vec::new(),
            serial: 0,
        }
    }
}

/// Exchanges, by number.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    all: Vec<Exchange>,
    free: Vec<Id>,
}

/// Memory of an exchange that is kept for the next one, at most.
const KEPT: usize = 4096;
/// How much of what a client has sent is kept for later, but for what comes with the last receive.
const AHEAD: usize = 16 * 1024;

impl Exchanges {
    /// One for that client.
    #[inline]
    pub(super) fn begin(&mut self, client: Token, now: Time) -> Id {
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.all.push(Exchange::new(client, now));
                Id::of(self.all.len() - 1)
            }
        };
        let exchange = &mut self.all[id.index()];
        exchange.stage = Stage::Head;
        exchange.client = client;
        // One that is refused before its head is whole has no other times.
        exchange.begins(now);
        id
    }

    /// It has ended. Nothing refers to it any more.
    pub(super) fn end(&mut self, id: Id) {
        let exchange = &mut self.all[id.index()];
        exchange.stage = Stage::Free;
        exchange.clear();
        for memory in [&mut exchange.received, &mut exchange.head, &mut exchange.reply] {
            memory.clear();
            if memory.capacity() > KEPT {
                *memory = Vec::new();
            }
        }
        self.free.push(id);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// That one, if it is still the one with this serial number.
    pub(super) fn find(&self, index: usize, serial: u32) -> Option<Id> {
        let exchange = self.all.get(index)?;
        (exchange.serial == serial && exchange.stage != Stage::Free).then(|| Id::of(index))
    }
}

impl std::ops::Index<Id> for Exchanges {
    type Output = Exchange;

    #[inline]
    fn index(&self, id: Id) -> &Exchange {
        &self.all[id.index()]
    }
}

impl std::ops::IndexMut<Id> for Exchanges {
    #[inline]
    fn index_mut(&mut self, id: Id) -> &mut Exchange {
        &mut self.all[id.index()]
    }
}

impl Exchange {
    /// Its times count from `now`, until more is known.
    pub(super) fn begins(&mut self, now: Time) {
        self.began = now;
        self.reached = now;
        self.asked = now;
        self.answered = now;
    }

    /// A deadline at `at`, or when the whole must have ended, if that is sooner.
    pub(super) fn within(&self, at: Time) -> Time {
        self.until.map_or(at, |until| until.min(at))
    }

    /// Whether the client has yet to send some of the body, and knows that it may.
    pub(super) fn waits_for_body(&self) -> bool {
        matches!(self.upload, Upload::Flowing(_)) && !self.facts.contains(Facts::EXPECTS)
    }

    /// Whether it is that one, and still in the queue.
    pub(super) fn waits_in_queue(&self, serial: u32) -> bool {
        self.serial == serial && self.stage == Stage::Queued
    }

    /// Whether enough is kept of what the client has sent for later. Up to here it is received from, as that
    /// tells when it leaves.
    #[inline]
    pub(super) fn is_far_ahead(&self) -> bool {
        self.received.len() >= AHEAD
    }

    /// Whether it can be asked again, which is done once: nobody can tell that it was asked before.
    pub(super) fn is_repeatable(&self) -> bool {
        self.kind.is_safe()
            && matches!(self.upload, Upload::Done)
            && !self.facts.contains(Facts::UPLOADED)
            && self.reply.is_empty()
            && self.interims == 0
            && self.asks < 2
    }

    /// What concerns one request alone, on a connection that may carry another.
    pub(super) fn clear(&mut self) {
        self.serial = self.serial.wrapping_add(1);
        // What a request is refused by that nothing was read of.
        self.kind = Kind::Other;
        self.version = Version::Http11;
        self.server = None;
        self.route = None;
        self.tried = Tried::default();
        self.tries = 0;
        self.asks = 0;
        self.request_parser = RequestParser::new();
        self.head.clear();
        self.facts = Facts::empty();
        self.upload = Upload::Done;
        self.response_parser = ResponseParser::new();
        self.reply.clear();
        self.download = None;
        self.last = None;
        self.at = None;
        self.status = 0;
        self.interims = 0;
        self.until = None;
        self.uploaded = 0;
        self.downloaded = 0;
        self.moved = 0;
        self.due = None;
        self.how = Outcome::Done;
        self.rejected = None;
        self.addresses.clear();
    }
}

/// The address of a client, in sixteen bytes; all zero if it has none.
pub(super) fn packed(addr: Option<IpAddr>) -> [u8; 16] {
    match addr {
        Some(IpAddr::V4(v4)) => v4.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(v6)) => v6.octets(),
        None => [0; 16],
    }
}

/// The address that was packed.
pub(super) fn unpacked(bytes: [u8; 16]) -> Option<IpAddr> {
    let addr = std::net::Ipv6Addr::from(bytes);
    (!addr.is_unspecified()).then(|| addr.to_canonical())
}
