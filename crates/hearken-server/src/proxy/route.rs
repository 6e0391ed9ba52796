//! Where requests go: choosing a server, waiting for one, connecting, asking, and trying again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hearken::Token;
use hearken::io::{Address, Relay};
use hearken_http::forward::{self, RequestTo};
use hearken_http::{Request, RequestParser};

use super::access::Access;
use super::balance::{Balancer, Ended, Pick, Where};
use super::config::{Balance, Config, HashKey, ProxyProtocol, To};
use super::connection::{Exchange, Facts, Flags, Id, Kind, Role, Route, Stage, Upload};
use super::idle::Idle;
use super::resolver::Lookups;
use super::servers::Servers;
use super::worker::Worker;
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;
use crate::runtime::proxy_protocol;
use crate::runtime::server::Seat;

/// What is told of a server that closed a connection without an answer.
const LEFT: &str = "it closed before it answered";

/// Where requests go, for one worker.
pub(super) enum Destination {
    /// To servers that are named in the configuration.
    Servers(Box<ToServers>),
    /// To whatever server the request names.
    Anywhere(Box<Anywhere>),
}

pub(super) struct ToServers {
    pub(super) balancer: Balancer,
    pub(super) servers: Arc<Servers>,
    /// By what requests are hashed.
    hash: Option<HashKey>,
    keep: usize,
    queue: usize,
    tries: u8,
    header: Option<ProxyProtocol>,
}

pub(super) struct Anywhere {
    pub(super) access: Access,
    /// There are some.
    pub(super) lookups: Option<Lookups>,
    keep: usize,
}

impl Destination {
    /// That of a worker.
    pub(super) fn new(
        config: &Config,
        servers: &Arc<Servers>,
        lookups: Option<Lookups>,
        seat: &Seat,
        seed: u64,
    ) -> Destination {
        let share = |all: usize| all.div_ceil(seat.workers);
        let upstreams = match &config.to {
            To::Upstreams(upstreams) => upstreams,
            To::Anywhere(forward) => {
                let (access, keep) = (Access::new(forward), share(forward.keep));
                return Destination::Anywhere(Box::new(Anywhere { access, lookups, keep }));
            }
        };
        Destination::Servers(Box::new(ToServers {
            balancer: Balancer::new(upstreams, servers.clone(), seat.index, seat.workers, seed),
            servers: servers.clone(),
            hash: match &upstreams.policy {
                Balance::Hash(key) => Some(key.clone()),
                _ => None,
            },
            // A connection that tells of one client cannot carry another's requests.
            keep: match upstreams.send_proxy_protocol {
                Some(_) => 0,
                None => share(upstreams.keep),
            },
            queue: share(upstreams.queue),
            tries: u8::try_from(upstreams.tries.get()).unwrap_or(u8::MAX),
            header: upstreams.send_proxy_protocol,
        }))
    }

    pub(super) fn is_anywhere(&self) -> bool {
        matches!(self, Destination::Anywhere(_))
    }

    pub(super) fn balancer(&mut self) -> Option<&mut Balancer> {
        match self {
            Destination::Servers(to) => Some(&mut to.balancer),
            Destination::Anywhere(_) => None,
        }
    }

    /// Whether anybody is told the clients' addresses.
    pub(super) fn needs_clients(&self, config: &Config) -> bool {
        use hearken_http::forward::Given::{Append, Replace};
        let told = |given| matches!(given, Append | Replace);
        let fields = &config.fields;
        let by_key = match self {
            Destination::Servers(to) => to.hash == Some(HashKey::Client) || to.header.is_some(),
            Destination::Anywhere(_) => false,
        };
        by_key || told(fields.x_forwarded) || told(fields.forwarded) || config.accept_proxy_protocol
    }

    /// Where connections are kept.
    pub(super) fn idle(&self) -> Idle {
        match self {
            Destination::Servers(to) => Idle::of_servers(to.servers.len(), to.keep),
            Destination::Anywhere(to) => Idle::anywhere(to.keep),
        }
    }

    /// Whether connections there are kept.
    #[inline]
    pub(super) fn keeps(&self, route: Route) -> bool {
        match (self, route) {
            (Destination::Servers(to), Route::Server(server)) => {
                to.keep > 0 && to.servers.condition(server).fit
            }
            (Destination::Anywhere(to), _) => to.keep > 0,
            _ => false,
        }
    }

    /// What a server is called in the log.
    pub(super) fn name(&self, route: Route) -> std::borrow::Cow<'_, str> {
        match (self, route) {
            (Destination::Servers(to), Route::Server(server)) => to.servers.name(server).into(),
            (_, Route::Address(addr)) => addr.to_string().into(),
            _ => "".into(),
        }
    }
}

impl<I: Relay> Worker<I> {
    /// Finds a server for a request.
    #[inline]
    pub(super) fn route(&mut self, id: Id, request: &Request<'_>) {
        let now = self.io.now();
        let Destination::Servers(to) = &mut self.to else {
            return self.look_up(id, request);
        };
        let exchange = &mut self.exchanges[id];
        let key = match &to.hash {
            None => 0,
            Some(HashKey::Target) => Balancer::hash(request.raw_target),
            Some(HashKey::Host) => Balancer::hash(request.host.unwrap_or_default()),
            Some(HashKey::Field(name)) => Balancer::hash(request.field(name).unwrap_or_default()),
            Some(HashKey::Client) => {
                let client = self.clients.get(exchange.client.slot() as usize);
                Balancer::hash(client.map_or(&[], |addr| addr))
            }
        };
        match to.balancer.pick(now, key, exchange.tried) {
            Pick::Server(server) => {
                exchange.route = Some(Route::Server(server));
                self.reach(id, request);
            }
            Pick::Full => {
                self.enqueue(id, "no server has room, and too many requests wait for one");
            }
            Pick::Down => {
                self.figures().error(Error::NoServer);
                self.refuse(id, 503, "no server is up");
            }
        }
    }

    /// Has a request wait until there is room, if not too many do.
    fn enqueue(&mut self, id: Id, why: &'static str) {
        let most = match &self.to {
            Destination::Servers(to) => to.queue,
            Destination::Anywhere(_) => 0,
        };
        if self.queue.len() >= most && std::mem::take(&mut self.deserted) > 0 {
            let exchanges = &self.exchanges;
            self.queue.retain(|&(id, serial)| exchanges[id].waits_in_queue(serial));
        }
        if self.queue.len() < most {
            let exchange = &mut self.exchanges[id];
            self.queue.push_back((id, exchange.serial));
            // One that waits already has no more time than it had.
            if exchange.stage != Stage::Queued {
                exchange.stage = Stage::Queued;
                self.arm(id);
            }
            return;
        }
        self.figures().error(Error::QueueFull);
        self.refuse(id, 503, why);
    }

    /// A server may have room for a request that waits.
    pub(super) fn serve_queue(&mut self) {
        // Requests that end at once come here again.
        if std::mem::replace(&mut self.serving, true) {
            return;
        }
        // Each at most once: those for whom there is still no room are put back.
        for _ in 0..self.queue.len() {
            let Some((id, serial)) = self.queue.pop_front() else { break };
            if !self.exchanges[id].waits_in_queue(serial) {
                continue;
            }
            let before = self.queue.len();
            self.with_request(id, Worker::route);
            if self.queue.len() > before {
                // It keeps its place; by whatever policy, the others wait behind it.
                if let Some(back) = self.queue.pop_back() {
                    self.queue.push_front(back);
                }
                break;
            }
        }
        self.serving = false;
    }

    /// Reads the head of a request that was read before, and goes on with it.
    pub(super) fn with_request(&mut self, id: Id, go_on: fn(&mut Self, Id, &Request<'_>)) {
        let mut head = std::mem::take(&mut self.scratch);
        head.clear();
        head.extend_from_slice(&self.exchanges[id].head);
        match RequestParser::new().parse(&head, &self.config.limits) {
            Ok(Some(request)) => go_on(self, id, &request),
            // It was read before.
            _ => self.cancel(id, Outcome::BadRequest),
        }
        self.scratch = head;
    }

    /// Has a connection to where the request goes.
    pub(super) fn reach(&mut self, id: Id, request: &Request<'_>) {
        let now = self.io.now();
        let exchange = &mut self.exchanges[id];
        let Some(route) = exchange.route else { return };
        exchange.tries = exchange.tries.saturating_add(1);
        exchange.last = Some(route);
        exchange.reached = now;
        if !exchange.facts.contains(Facts::FRESH)
            && exchange.kind != Kind::Connect
            && let Some(token) = self.idle.take(route, &self.connections)
        {
            exchange.server = Some(token);
            exchange.facts.insert(Facts::REUSED);
            self.connections[token.slot() as usize].exchange = Some(id);
            self.figures().upstream_connections_reused.add(1);
            return self.ask(id, request);
        }
        exchange.facts.remove(Facts::REUSED);
        let opened = match (route, &mut self.to) {
            (Route::Server(server), Destination::Servers(to)) => {
                match to.balancer.connected_to(server) {
                    Some(Where::Inet(addr)) => {
                        exchange.at = Some(addr);
                        self.io.connect(&addr.into(), None)
                    }
                    Some(Where::Unix(path)) => self.io.connect(&Address::Unix(path), None),
                    None => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
                }
            }
            (Route::Address(addr), _) => self.io.connect(&addr.into(), None),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        match opened {
            Ok(token) => {
                self.adopt(token, Role::Server);
                self.connections[token.slot() as usize].exchange = Some(id);
                let exchange = &mut self.exchanges[id];
                exchange.server = Some(token);
                exchange.stage = Stage::Connecting;
                let until = exchange.within(now + self.config.timeouts.connect);
                self.io.set_deadline(token, Some(until));
            }
            Err(error) if hearken::limit::met(&error).is_some() => {
                // It is the proxy that has no room: it is not the server's fault, nor a try.
                self.figures().error(Error::Limit);
                self.release(id, false, Ended::Cancelled);
                let exchange = &mut self.exchanges[id];
                exchange.tries = exchange.tries.saturating_sub(1);
                self.enqueue(id, "there is no room for another connection to a server");
            }
            Err(error) => self.connect_failed(id, &error),
        }
    }

    pub(super) fn on_connected(&mut self, on: Token, result: io::Result<()>) {
        let connection = &self.connections[on.slot() as usize];
        let (Role::Server, Some(id)) = (connection.role, connection.exchange) else {
            return self.close(on);
        };
        match result {
            Ok(()) => {
                self.figures().upstream_connections_opened.add(1);
                self.io.start(on);
                if self.exchanges[id].kind == Kind::Connect {
                    return self.establish(id);
                }
                self.with_request(id, Worker::ask);
            }
            Err(error) => self.connect_failed(id, &error),
        }
    }

    /// Sends a request to its server.
    fn ask(&mut self, id: Id, request: &Request<'_>) {
        let now = self.io.now();
        let exchange = &mut self.exchanges[id];
        let (Some(server), Some(route)) = (exchange.server, exchange.route) else { return };
        let client = exchange.client;
        let keep_alive = self.to.keeps(route);
        let addr = self.client_addr(client);
        let exchange = &mut self.exchanges[id];
        let authority = match (&self.to, route) {
            (Destination::Servers(to), Route::Server(number)) => {
                let used = self.connections[server.slot() as usize].flags.contains(Flags::USED);
                if let (Some(version), false) = (to.header, used) {
                    // Its port is known but where another proxy told of it.
                    let peer = self.io.peer_addr(client).ok();
                    let addr = addr.map(|addr| match peer {
                        Some(peer) if peer.ip().to_canonical() == addr => peer,
                        _ => SocketAddr::new(addr, 0),
                    });
                    let here = self.io.local_addr(client).ok();
                    proxy_protocol::write(version, addr, here, &mut self.out);
                }
                to.servers.authority(number).as_bytes()
            }
            _ => request.host.unwrap_or_default(),
        };
        let to = RequestTo { authority, client: addr, keep_alive };
        forward::request(&self.rules, &mut self.out, request, &to);
        exchange.stage = Stage::Asked;
        exchange.asks = exchange.asks.saturating_add(1);
        exchange.asked = now;
        if matches!(exchange.upload, Upload::Done) {
            self.figures().bytes_sent_upstream.add(self.out.len() as u64);
            if self.give_out(server) {
                let until = self.exchanges[id].within(now + self.config.timeouts.response);
                return self.io.set_deadline(server, Some(until));
            }
            return self.arm(id);
        }
        if !self.upload_received(id) {
            return;
        }
        self.figures().bytes_sent_upstream.add(self.out.len() as u64);
        let taken = self.give_out(server);
        if matches!(self.exchanges[id].upload, Upload::Flowing(_)) {
            if self.connection(client).flags.contains(Flags::ENDED) {
                return self.client_left(id);
            }
            if !self.splice_upload(id) && taken {
                self.resume(client);
            }
        }
        self.arm(id);
    }

    /// It was not possible to connect.
    pub(super) fn connect_failed(&mut self, id: Id, error: &io::Error) {
        self.figures().error(Error::ConnectFailed);
        self.avoid_address(id);
        self.note_failure(id, &format!("connect: {error}"));
        self.try_again_or(id, 502, "no server could be connected to");
    }

    /// Other addresses of the server's name are to go first.
    fn avoid_address(&mut self, id: Id) {
        let Exchange { route, at, .. } = &self.exchanges[id];
        if let (Some(Route::Server(server)), &Some(at)) = (*route, at)
            && let Some(balancer) = self.to.balancer()
        {
            balancer.failed_at(server, at);
        }
    }

    pub(super) fn connect_timed_out(&mut self, id: Id) {
        self.figures().error(Error::ConnectTimeout);
        self.avoid_address(id);
        self.note_failure(id, "connect: not in time");
        self.try_again_or(id, 504, "no server could be connected to in time");
    }

    /// The server has closed before it answered.
    pub(super) fn server_left(&mut self, id: Id) {
        let exchange = &mut self.exchanges[id];
        let raced = exchange.facts.contains(Facts::REUSED);
        if exchange.is_repeatable() {
            // RFC 9112 section 9.3.1: it may have closed before it saw the request.
            if raced {
                exchange.facts.insert(Facts::FRESH);
                exchange.tries = exchange.tries.saturating_sub(1);
                // Or it is ending, and would close the next connection, too: it may still accept some.
                if let (Some(Route::Server(server)), Some(balancer)) =
                    (exchange.route, self.to.balancer())
                    && balancer.has_another(server)
                {
                    exchange.tried.insert(server);
                }
                self.release(id, false, Ended::Cancelled);
                return self.try_again(id);
            }
            self.note_failure(id, LEFT);
            return self.try_again_or(id, 502, "the server closed before it answered");
        }
        self.figures().error(Error::ServerLeft);
        if !raced {
            self.note_failure(id, LEFT);
        }
        self.refuse(id, 502, "the server closed before it answered");
    }

    /// What went wrong counts against the server.
    #[cold]
    pub(super) fn note_failure(&mut self, id: Id, why: &str) {
        let exchange = &mut self.exchanges[id];
        exchange.facts.insert(Facts::FAILED);
        if let (Destination::Servers(to), Some(Route::Server(server))) = (&self.to, exchange.route)
        {
            to.servers.note(server, why.to_owned());
        }
    }

    /// Has another server try, or answers with `status`.
    fn try_again_or(&mut self, id: Id, status: u16, reason: &'static str) {
        let most = match &self.to {
            Destination::Servers(to) => to.tries,
            Destination::Anywhere(_) => u8::MAX,
        };
        let exchange = &mut self.exchanges[id];
        if let Some(Route::Server(server)) = exchange.route {
            exchange.tried.insert(server);
        }
        let more = match &self.to {
            Destination::Servers(_) => exchange.tries < most,
            Destination::Anywhere(_) => !exchange.addresses.is_empty(),
        };
        if !more {
            return self.refuse(id, status, reason);
        }
        exchange.facts.insert(Facts::FRESH);
        self.release(id, false, Ended::Failed);
        self.try_again(id);
    }

    fn try_again(&mut self, id: Id) {
        self.figures().retries.add(1);
        let exchange = &mut self.exchanges[id];
        match exchange.addresses.pop() {
            Some(addr) => {
                exchange.route = Some(Route::Address(addr));
                self.with_request(id, Worker::reach);
            }
            None => self.with_request(id, Worker::route),
        }
    }
}
