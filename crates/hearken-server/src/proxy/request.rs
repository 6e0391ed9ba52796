//! From the client: reading requests, and passing their bodies on.

use hearken::Token;
use hearken_http::forward::{self, Relay};
use hearken_http::{Body, Method, Reject, Request, RequestParser, Target};

use super::connection::{Facts, Flags, Id, Kind, Stage, Upload};
use super::splice::take;
use super::worker::Worker;
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;
use crate::runtime::proxy_protocol::{self, Parsed};

impl<I: hearken::io::Relay> Worker<I> {
    /// A client that was idle has sent something.
    #[inline]
    pub(super) fn begin(&mut self, on: Token, bytes: &[u8]) {
        let now = self.io.now();
        let id = self.exchanges.begin(on, now);
        let connection = &mut self.connections[on.slot() as usize];
        connection.exchange = Some(id);
        if connection.flags.contains(Flags::HEADER) {
            self.exchanges[id].received.extend_from_slice(bytes);
            return self.next_request(on, false);
        }
        let used = connection.flags.contains(Flags::USED);
        let mut parser = RequestParser::new();
        match parser.parse(bytes, &self.config.limits) {
            Ok(Some(request)) => {
                let (head, rest) = bytes.split_at(request.head_len);
                if !rest.is_empty() {
                    self.exchanges[id].received.extend_from_slice(rest);
                }
                self.requested(on, id, &request, head);
            }
            Ok(None) => {
                let exchange = &mut self.exchanges[id];
                exchange.received.extend_from_slice(bytes);
                exchange.request_parser = parser;
                // A new connection's first head has had its time since the accept.
                if used {
                    self.io.set_deadline(on, Some(now + self.config.timeouts.head));
                }
            }
            Err(reject) => {
                self.exchanges[id].received.extend_from_slice(bytes);
                self.reject(id, reject);
            }
        }
    }

    /// Goes on with what has come of the next request; whose time begins now if it is `new`.
    pub(super) fn next_request(&mut self, on: Token, new: bool) {
        let connection = &self.connections[on.slot() as usize];
        let Some(id) = connection.exchange.filter(|_| connection.token == on) else { return };
        if connection.flags.contains(Flags::HEADER) && !self.read_header(on, id) {
            return;
        }
        let received = std::mem::take(&mut self.exchanges[id].received);
        let mut parser = self.exchanges[id].request_parser;
        match parser.parse(&received, &self.config.limits) {
            Ok(Some(request)) => {
                let (head, rest) = received.split_at(request.head_len);
                self.exchanges[id].received.extend_from_slice(rest);
                self.requested(on, id, &request, head);
            }
            Ok(None) => {
                let exchange = &mut self.exchanges[id];
                exchange.received = received;
                exchange.request_parser = parser;
                let flags = self.connection(on).flags;
                if flags.contains(Flags::ENDED) {
                    return self.drop_client(on, id);
                }
                self.resume(on);
                // However it trickles, its time is from its first byte.
                if new {
                    self.arm(id);
                }
            }
            Err(reject) => {
                self.exchanges[id].received = received;
                self.reject(id, reject);
            }
        }
    }

    /// Reads a PROXY protocol header, and tells whether it is read.
    fn read_header(&mut self, on: Token, id: Id) -> bool {
        match proxy_protocol::parse(&self.exchanges[id].received) {
            Ok(Parsed::More) => {
                if self.connection(on).flags.contains(Flags::ENDED) {
                    self.drop_client(on, id);
                }
                false
            }
            Ok(Parsed::Header { len, source, .. }) => {
                self.exchanges[id].received.drain(..len);
                self.connection(on).flags.remove(Flags::HEADER);
                if source.is_some() {
                    self.set_client(on, source);
                }
                true
            }
            Err(_) => {
                self.figures().error(Error::BadProxyHeader);
                self.drop_client(on, id);
                false
            }
        }
    }

    /// A request's head is whole.
    fn requested(&mut self, on: Token, id: Id, request: &Request<'_>, head: &[u8]) {
        let now = self.io.now();
        let whole = self.config.timeouts.whole;
        let stopping = self.grace_ends.is_some();
        let exchange = &mut self.exchanges[id];
        exchange.head.extend_from_slice(head);
        exchange.begins(now);
        exchange.kind = Kind::of(&request.method);
        exchange.version = request.version;
        exchange.until = if whole.is_zero() { None } else { Some(now + whole) };
        let mut facts = Facts::empty();
        facts.set(Facts::KEEP_CLIENT, request.keep_alive && !stopping);
        facts.set(Facts::UPGRADE, request.upgrade().is_some());
        facts.set(Facts::EXPECTS, request.expect_continue);
        exchange.facts = facts;
        if request.body != Body::None {
            let most = self.config.body_limit.unwrap_or(u64::MAX);
            match Relay::new(request.body, request.body, most, &self.config.limits) {
                Ok(relay) => exchange.upload = Upload::Flowing(relay),
                Err(reject) => {
                    exchange.upload = Upload::Dropped;
                    return self.reject(id, reject);
                }
            }
        } else if exchange.is_far_ahead() {
            // The next request waits until this one is answered.
            self.hold(on);
        }
        if matches!(request.method, Method::Options | Method::Trace | Method::Connect)
            && !self.is_passed_on(id, request)
        {
            return;
        }
        self.route(id, request);
    }

    /// Answers what is for a proxy itself, and tells whether it is not.
    #[cold]
    fn is_passed_on(&mut self, id: Id, request: &Request<'_>) -> bool {
        match request.method {
            Method::Connect if !self.to.is_anywhere() => {
                self.refuse(id, 405, "there are no tunnels through this proxy");
                false
            }
            Method::Connect if request.body != Body::None => {
                self.refuse(id, 400, "CONNECT has no body");
                false
            }
            Method::Connect => true,
            // RFC 9110 section 7.6.2. What came is not sent back, as there may be secrets in it.
            Method::Trace if forward::max_forwards(request) == Some(0) => {
                self.refuse(id, 405, "TRACE is not answered here");
                false
            }
            _ if forward::max_forwards(request) == Some(0) => {
                self.refuse(id, 200, "");
                false
            }
            _ if matches!(request.target(), Target::Asterisk) && self.to.is_anywhere() => {
                self.refuse(id, 400, "the request does not say which server it is for");
                false
            }
            _ => true,
        }
    }

    /// What was sent cannot be understood, or is more than is allowed.
    #[cold]
    pub(super) fn reject(&mut self, id: Id, reject: Reject) {
        self.figures().error(Error::BadRequest);
        let exchange = &mut self.exchanges[id];
        exchange.facts.remove(Facts::KEEP_CLIENT);
        exchange.rejected = Some(reject.reason);
        self.give_up(id, reject.status, reject.reason, Outcome::BadRequest);
    }

    /// A client that is in the middle of an exchange has sent something.
    pub(super) fn client_sent(&mut self, on: Token, id: Id, bytes: &[u8]) {
        let exchange = &mut self.exchanges[id];
        match exchange.stage {
            Stage::Head => {
                exchange.received.extend_from_slice(bytes);
                self.next_request(on, false);
            }
            Stage::Asked | Stage::Answering if !matches!(exchange.upload, Upload::Done) => {
                self.upload(on, id, bytes);
            }
            Stage::Tunnel => self.tunnel(on, id, bytes),
            // For later: the body of a request that is not asked yet, or the next request.
            _ => {
                exchange.received.extend_from_slice(bytes);
                if exchange.is_far_ahead() {
                    self.hold(on);
                }
            }
        }
    }

    /// Passes a part of a body on.
    fn upload(&mut self, on: Token, id: Id, bytes: &[u8]) {
        let exchange = &mut self.exchanges[id];
        let Some(server) = exchange.server else { return };
        exchange.facts.remove(Facts::EXPECTS);
        let Upload::Flowing(relay) = &mut exchange.upload else {
            return; // It is of no use, and not kept.
        };
        let (used, plain) = match take(relay, bytes, &mut self.out) {
            Ok(taken) => taken,
            Err(reject) => return self.reject(id, reject),
        };
        // What follows the body is the next request's.
        exchange.received.extend_from_slice(&bytes[used..]);
        let far_ahead = exchange.is_far_ahead();
        self.uploaded(id, used);
        self.figures().bytes_sent_upstream.add(if plain { used } else { self.out.len() } as u64);
        let done = if plain { self.give(server, &bytes[..used]) } else { self.give_out(server) };
        if !self.splice_upload(id) {
            if done && !far_ahead { self.resume(on) } else { self.hold(on) }
        }
        self.arm(id);
    }

    /// Appends to what is put together what has come of the body. False if it is malformed, which was
    /// answered.
    pub(super) fn upload_received(&mut self, id: Id) -> bool {
        let exchange = &mut self.exchanges[id];
        let Upload::Flowing(relay) = &mut exchange.upload else { return true };
        if exchange.received.is_empty() {
            return true;
        }
        exchange.facts.remove(Facts::EXPECTS);
        match relay.pass(&exchange.received, &mut self.out) {
            Ok(used) => {
                exchange.received.drain(..used);
                self.uploaded(id, used);
                true
            }
            Err(reject) => {
                self.out.clear();
                self.reject(id, reject);
                false
            }
        }
    }

    /// So many bytes of a request's body are on their way.
    fn uploaded(&mut self, id: Id, count: usize) {
        let exchange = &mut self.exchanges[id];
        exchange.uploaded += count as u64;
        exchange.facts.insert(Facts::UPLOADED);
        if let Upload::Flowing(relay) = &exchange.upload
            && relay.is_done()
        {
            exchange.upload = Upload::Done;
        }
        self.figures().bytes_received_client.add(count as u64);
    }
}
