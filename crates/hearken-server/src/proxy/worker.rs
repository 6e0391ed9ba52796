//! One event loop of a proxy: accepting, deadlines, and who is told of what happens.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hearken::Token;
use hearken::io::{CompletionKind, Relay};
use hearken::timer::Time;
use hearken_http::DateCache;
use hearken_http::forward::Rules;
use rustix::time::{ClockId, clock_gettime};

use super::config::{Config, HalfClose};
use super::connection::{Connection, Exchanges, Flags, Id, Role, Stage, Upload, packed};
use super::idle::Idle;
use super::route::Destination;
use crate::runtime::acceptor::Door;
use crate::runtime::access_log::{AccessLog, Outcome};
use crate::runtime::clock::unix_seconds;
use crate::runtime::metrics::{Error, Metrics};
use crate::runtime::server::{self, Seat};

/// How long a client that was told of the end may go on sending.
const LINGER: Duration = Duration::from_secs(2);
/// How often the counters of the event mechanism are told, and waiting requests try again.
const TELL: Duration = Duration::from_millis(250);

pub(super) struct Worker<I: Relay> {
    pub(super) io: I,
    pub(super) config: Arc<Config>,
    pub(super) rules: Rules,
    pub(super) date: DateCache,
    pub(super) log: Option<AccessLog>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) index: usize,
    pub(super) to: Destination,
    pub(super) door: Door,
    /// By the slot of their tokens.
    pub(super) connections: Vec<Connection>,
    /// The addresses of clients, by the slot of their tokens; if they are told to anybody.
    pub(super) clients: Vec<[u8; 16]>,
    tells_clients: bool,
    pub(super) exchanges: Exchanges,
    pub(super) idle: Idle,
    /// Requests that wait for a server to have room, oldest first; with the serial number of the
    /// exchange, as some have given up.
    pub(super) queue: VecDeque<(Id, u32)>,
    /// The queue is being gone through.
    pub(super) serving: bool,
    /// How many have left the queue and still have their places there, at most.
    pub(super) deserted: usize,
    /// Clients whose next request has come already.
    pub(super) again: VecDeque<Token>,
    stop: Arc<AtomicBool>,
    /// Until when a client may be idle that becomes so in this turn.
    pub(super) idle_until: Time,
    tell_at: Time,
    /// Something has happened that was not told of yet.
    busy: bool,
    /// Where messages are put together.
    pub(super) out: Vec<u8>,
    /// Where a head is read again.
    pub(super) scratch: Vec<u8>,
    /// Once it is to stop: when its patience ends.
    pub(super) grace_ends: Option<Time>,
}

impl<I: Relay> server::Worker for Worker<I> {
    fn addr(&self) -> io::Result<SocketAddr> {
        self.door.addr(&self.io)
    }

    fn now(&self) -> Time {
        self.io.now()
    }

    fn turn(&mut self, until: Option<Time>) -> io::Result<bool> {
        // Once nothing happens any more, what was counted last is to be told; and requests that wait
        // may have a server that came back.
        let ticks = self.busy || !self.queue.is_empty();
        let until = [until, ticks.then_some(self.tell_at)].into_iter().flatten().min();
        if self.config.meter_waits {
            let before = clock_gettime(ClockId::ThreadCPUTime);
            self.io.wait(until)?;
            let used = clock_gettime(ClockId::ThreadCPUTime) - before;
            self.figures().waited(Duration::try_from(used).unwrap_or_default());
        } else {
            self.io.wait(until)?;
        }
        if self.grace_ends.is_none() && self.stop.load(Ordering::Acquire) {
            self.begin_to_stop();
        }
        let now = self.io.now();
        self.idle_until = now + self.config.timeouts.idle;
        if now >= self.tell_at {
            self.tell_counters();
            self.serve_queue();
        }
        while let Some(completion) = self.io.next() {
            let on = completion.token;
            self.busy = true;
            match completion.kind {
                CompletionKind::Received(bytes) => self.on_received(on, &bytes),
                CompletionKind::Sent(Ok(())) => self.on_sent(on),
                CompletionKind::Connected(result) => self.on_connected(on, result),
                CompletionKind::Accepted { token, peer } => self.on_accepted(token, peer),
                CompletionKind::End => self.on_end(on),
                CompletionKind::Deadline => self.on_deadline(on),
                CompletionKind::AcceptFailed(error) | CompletionKind::ReceiveFailed(error)
                    if self.door.is(on) =>
                {
                    self.door.failed(&mut self.io, &error);
                }
                CompletionKind::Sent(Err(_)) => self.on_send_failed(on),
                CompletionKind::ReceiveFailed(error) => self.on_receive_failed(on, &error),
                CompletionKind::Woken => self.on_woken(),
                CompletionKind::Relayed { moved, ended } => self.on_relayed(on, moved, ended),
                _ => {}
            }
            while let Some(client) = self.again.pop_front() {
                self.next_request(client, true);
            }
        }
        if let Some(log) = &mut self.log {
            log.flush();
        }
        Ok(self.busy)
    }

    fn begin_to_stop(&mut self) -> Time {
        self.door.shut();
        *self.grace_ends.get_or_insert(self.io.now() + self.config.timeouts.grace)
    }

    fn let_go(&mut self) {
        self.door.close(&mut self.io);
        for slot in 0..self.connections.len() {
            let Connection { token, exchange, role, .. } = self.connections[slot];
            if matches!(role, Role::Client | Role::Server) && exchange.is_none() {
                self.close(token);
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.door.count() == 0
    }

    fn end(&mut self) {
        self.tell_counters();
    }
}

impl<I: Relay> Worker<I> {
    pub(super) fn new(
        mut io: I,
        config: Arc<Config>,
        to: Destination,
        log: Option<AccessLog>,
        metrics: Arc<Metrics>,
        seat: &Seat,
    ) -> io::Result<Worker<I>> {
        let tells_clients = log.is_some() || to.needs_clients(&config);
        let door = Door::open(&mut io, seat, &config.loops, tells_clients)?;
        io.reserve(seat.share.descriptors);
        let fields = &config.fields;
        Ok(Worker {
            rules: Rules::new(&fields.via, fields.x_forwarded, fields.forwarded, fields.keep_host),
            tells_clients,
            idle: to.idle(),
            idle_until: io.now(),
            tell_at: io.now(),
            busy: false,
            io,
            config,
            date: DateCache::new(unix_seconds()),
            log,
            metrics,
            index: seat.index,
            to,
            door,
            connections: Vec::with_capacity(seat.share.descriptors),
            clients: Vec::new(),
            exchanges: Exchanges::default(),
            queue: VecDeque::new(),
            serving: false,
            deserted: 0,
            again: VecDeque::new(),
            stop: seat.stop.clone(),
            out: Vec::new(),
            scratch: Vec::new(),
            grace_ends: None,
        })
    }

    /// There is something for this worker to look at.
    #[cold]
    fn on_woken(&mut self) {
        self.looked_up();
    }

    fn tell_counters(&mut self) {
        self.tell_at = self.io.now() + TELL;
        self.busy = false;
        let figures = &self.metrics.workers[self.index];
        figures.events(&self.io.counters());
        figures.connections_open.set(self.door.count());
        figures.requests_in_flight.set(self.exchanges.in_flight());
        figures.queued.set(self.queue.len());
        figures.upstream_connections_idle.set(self.idle.len());
    }

    pub(super) fn connection(&mut self, on: Token) -> &mut Connection {
        &mut self.connections[on.slot() as usize]
    }

    /// Takes a connection in.
    pub(super) fn adopt(&mut self, on: Token, role: Role) {
        let slot = on.slot() as usize;
        if slot >= self.connections.len() {
            self.connections.resize_with(slot + 1, || Connection::new(on, Role::Vacant));
        }
        self.connections[slot] = Connection::new(on, role);
    }

    fn on_accepted(&mut self, on: Token, peer: Option<SocketAddr>) {
        self.adopt(on, Role::Client);
        if self.tells_clients {
            self.set_client(on, peer);
        }
        if self.config.accept_proxy_protocol {
            self.connection(on).flags.insert(Flags::HEADER);
        }
        self.figures().connections_accepted.add(1);
        self.door.entered(&mut self.io);
        self.io.set_deadline(on, Some(self.io.now() + self.config.timeouts.head));
        self.io.start(on);
    }

    /// Notes whom a client is.
    pub(super) fn set_client(&mut self, on: Token, addr: Option<SocketAddr>) {
        let slot = on.slot() as usize;
        if slot >= self.clients.len() {
            self.clients.resize(slot + 1, [0; 16]);
        }
        self.clients[slot] = packed(addr.map(|addr| addr.ip()));
    }

    /// The address of a client; none if it is told to nobody.
    pub(super) fn client_addr(&self, on: Token) -> Option<std::net::IpAddr> {
        self.clients.get(on.slot() as usize).copied().and_then(super::connection::unpacked)
    }

    pub(super) fn figures(&self) -> &crate::runtime::metrics::Worker {
        &self.metrics.workers[self.index]
    }

    /// Closes it, and that is all.
    pub(super) fn close(&mut self, on: Token) {
        let connection = self.connection(on);
        let role = std::mem::replace(&mut connection.role, Role::Vacant);
        connection.exchange = None;
        self.io.close(on);
        match role {
            Role::Client | Role::Lingering => {
                self.door.left(&mut self.io);
            }
            Role::Server | Role::Vacant => {}
        }
    }

    /// Has it receive no more for now.
    pub(super) fn hold(&mut self, on: Token) {
        let flags = &mut self.connection(on).flags;
        if !flags.contains(Flags::STOPPED) {
            flags.insert(Flags::STOPPED);
            self.io.stop(on);
        }
    }

    /// Has it receive again.
    pub(super) fn resume(&mut self, on: Token) {
        let flags = &mut self.connection(on).flags;
        if flags.contains(Flags::STOPPED) && !flags.contains(Flags::RELAYED) {
            flags.remove(Flags::STOPPED);
            self.io.start(on);
        }
    }

    /// Has the server of an exchange be received from again.
    fn resume_server(&mut self, id: Id) {
        if let Some(server) = self.exchanges[id].server {
            self.resume(server);
        }
    }

    /// Whether it has yet to take some of what it was given.
    pub(super) fn is_behind(&self, on: Token) -> bool {
        self.connections[on.slot() as usize].sends > 0
    }

    /// Gives it `bytes`, and tells whether it has taken all.
    #[inline]
    pub(super) fn give(&mut self, on: Token, bytes: &[u8]) -> bool {
        let done = self.io.send_now(on, bytes);
        if !done {
            let connection = self.connection(on);
            connection.sends = connection.sends.saturating_add(1);
        }
        done
    }

    /// Gives it what was put together.
    #[inline]
    pub(super) fn give_out(&mut self, on: Token) -> bool {
        if self.out.is_empty() {
            return true;
        }
        let out = std::mem::take(&mut self.out);
        let done = self.give(on, &out);
        self.out = out;
        self.out.clear();
        done
    }

    fn on_received(&mut self, on: Token, bytes: &[u8]) {
        let connection = &mut self.connections[on.slot() as usize];
        // It was under way when the kernel was to move what follows.
        connection.flags.remove(Flags::RELAYED);
        match (connection.role, connection.exchange) {
            (Role::Client, None) => self.begin(on, bytes),
            (Role::Server, Some(id)) => {
                self.figures().bytes_received_upstream.add(bytes.len() as u64);
                self.server_sent(on, id, bytes);
            }
            (Role::Client, Some(id)) => self.client_sent(on, id, bytes),
            // Nobody asked it.
            (Role::Server, None) => self.close(on),
            // It ends in time, however much that is: to close would reset it, before it had its answer.
            (Role::Lingering, _) => {}
            (Role::Vacant, _) => {}
        }
    }

    fn on_sent(&mut self, on: Token) {
        let connection = &mut self.connections[on.slot() as usize];
        if connection.role == Role::Lingering {
            return;
        }
        connection.sends = connection.sends.saturating_sub(1);
        let (role, sends, exchange) = (connection.role, connection.sends, connection.exchange);
        let (0, Some(id)) = (sends, exchange) else { return };
        let exchange = &self.exchanges[id];
        match (exchange.stage, role) {
            (Stage::Delivering, _) => self.finish(id),
            (Stage::Tunnel, _) => self.tunnel_taken(on, id),
            (Stage::Asked | Stage::Answering, Role::Client) => {
                self.exchanges[id].due = None;
                self.resume_server(id);
                self.arm(id);
            }
            (Stage::Asked | Stage::Answering, _) => {
                if matches!(exchange.upload, Upload::Flowing(_)) {
                    let client = exchange.client;
                    self.resume(client);
                }
                self.arm(id);
            }
            _ => {}
        }
    }

    pub(super) fn on_send_failed(&mut self, on: Token) {
        let connection = self.connection(on);
        connection.sends = 0;
        connection.flags.insert(Flags::BROKEN);
        match (connection.role, connection.exchange) {
            (Role::Client, Some(id)) => self.cancel(id, Outcome::ClientLeft),
            (Role::Client | Role::Lingering, _) | (Role::Server, None) => self.close(on),
            (Role::Server, Some(id)) if self.exchanges[id].stage == Stage::Tunnel => {
                self.cut(id, Outcome::ServerCut);
            }
            (Role::Server, Some(id)) => {
                // It may have answered before it closed, which receiving will tell.
                if let Upload::Flowing(_) = self.exchanges[id].upload {
                    self.exchanges[id].upload = Upload::Dropped;
                    let client = self.exchanges[id].client;
                    self.resume(client);
                }
                self.arm(id);
            }
            (Role::Vacant, _) => {}
        }
    }

    pub(super) fn on_receive_failed(&mut self, on: Token, error: &io::Error) {
        let connection = self.connection(on);
        connection.flags.remove(Flags::RELAYED);
        connection.flags.insert(Flags::ENDED | Flags::BROKEN);
        match (connection.role, connection.exchange) {
            (Role::Client, Some(id)) => self.client_left(id),
            (Role::Server, Some(id)) => self.server_broke(id, error),
            (Role::Vacant, _) => {}
            _ => self.close(on),
        }
    }

    pub(super) fn on_end(&mut self, on: Token) {
        let connection = self.connection(on);
        connection.flags.remove(Flags::RELAYED);
        connection.flags.insert(Flags::ENDED);
        match (connection.role, connection.exchange) {
            (Role::Client, Some(id)) => self.client_ended(on, id),
            (Role::Server, Some(id)) => self.server_ended(on, id),
            (Role::Vacant, _) => {}
            // An idle one, or one that has read its answer.
            _ => self.close(on),
        }
    }

    /// A client will send no more, in the middle of an exchange.
    fn client_ended(&mut self, on: Token, id: Id) {
        let exchange = &self.exchanges[id];
        let left = self.config.half_close == HalfClose::Left;
        match exchange.stage {
            // What is missing will not come.
            Stage::Head => self.drop_client(on, id),
            Stage::Tunnel => self.tunnel_ended(on, id),
            Stage::Asked | Stage::Answering if matches!(exchange.upload, Upload::Flowing(_)) => {
                self.client_left(id);
            }
            Stage::Delivering | Stage::Free => {}
            _ if left => self.client_left(id),
            _ => {}
        }
    }

    /// A client has left that has a request in flight.
    pub(super) fn client_left(&mut self, id: Id) {
        self.figures().error(Error::ClientLeft);
        self.cancel(id, Outcome::ClientLeft);
    }

    /// Closes a client that has asked for nothing yet.
    pub(super) fn drop_client(&mut self, on: Token, id: Id) {
        self.exchanges.end(id);
        self.close(on);
    }

    /// Tells a client that there is no more, and lets it finish: closing at once would reset the
    /// connection for what it still sends, and the reset may overtake the answer.
    pub(super) fn linger(&mut self, on: Token) {
        self.resume(on);
        let connection = self.connection(on);
        connection.role = Role::Lingering;
        connection.exchange = None;
        connection.sends = 0;
        if connection.flags.contains(Flags::ENDED) {
            return self.close(on);
        }
        self.io.shutdown(on);
        self.io.set_deadline(on, Some(self.io.now() + LINGER));
    }
}
