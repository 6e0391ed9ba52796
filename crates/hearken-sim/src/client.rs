//! Clients: state machines over one `Io`, which send requests in every way that a peer may.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use hearken::Token;
use hearken::io::sim::World;
use hearken::io::{Address, Completion, CompletionKind, Io};
use hearken::timer::Time;

use crate::connector::Connector;
use crate::http2::Http2Facts;
use crate::report::Report;
use crate::response::{Head, Part, ResponseReader};
use crate::scheduler::{Program, earlier};
use crate::swarm::Swarm;

/// The identity of a request in a history. Its text occurs in the request's target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct RequestId {
    /// Number of the client.
    pub client: u16,
    /// Number of the client's connection.
    pub connection: u16,
    /// Number of the request on the connection.
    pub number: u16,
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "id{}-{}-{}.", self.client, self.connection, self.number)
    }
}

impl RequestId {
    /// Finds the text of an identity.
    pub fn find(text: &str) -> Option<RequestId> {
        text.match_indices("id").find_map(|(at, _)| {
            let (numbers, _) = text[at + 2..].split_once('.')?;
            let mut numbers = numbers.split('-').map(|number| number.parse().ok());
            let mut next = || numbers.next().flatten();
            Some(RequestId { client: next()?, connection: next()?, number: next()? })
        })
    }
}

/// The version of HTTP that a connection uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpVersion {
    /// HTTP/1.1, or HTTP/1.0.
    Http1,
    /// HTTP/2, whose requests are valid, and do not decide about the connection.
    Http2,
}

/// A request as sent.
#[derive(Debug)]
pub struct Planned<R> {
    /// The kind's own data.
    pub request: R,
    /// Length of the head in bytes. The client waits for 100 (Continue) after it, if `expects`.
    pub head_length: usize,
    /// Whether the client waits for 100 (Continue).
    pub expects: bool,
    /// Whether the response may have a body.
    pub has_body: bool,
    /// Whether another request may follow on the connection.
    pub keep_alive: bool,
}

/// A request and what the client saw of its response.
#[derive(Debug)]
pub struct Exchange<R> {
    /// The identity.
    pub id: RequestId,
    /// The request.
    pub planned: Planned<R>,
    /// Position in the stream after the request.
    pub end: u64,
    /// Position in the stream after the content. Padding and trailers of HTTP/2 follow it.
    pub content_end: u64,
    /// Whether the content was passed to the transport.
    pub has_sent_content: bool,
    /// Position in the stream at which the request starts.
    pub start: u64,
    /// Time at which the first byte was sent.
    pub started_at: Option<Time>,
    /// Time at which the last byte was passed to the transport.
    pub sent_at: Option<Time>,
    /// Time at which the transport had taken the last byte.
    pub taken_at: Option<Time>,
    /// The head of the response.
    pub head: Option<Head>,
    /// Number of received bytes of the body.
    pub received: u64,
    /// The longest time for which the client did not receive, and the number of bytes of the body
    /// before.
    pub pause: (Duration, u64),
    /// Time at which the response was complete.
    pub answered_at: Option<Time>,
}

impl<R> Exchange<R> {
    /// Creates the exchange of a request between two positions in the stream.
    pub(crate) fn new(id: RequestId, planned: Planned<R>, start: u64, end: u64) -> Exchange<R> {
        Exchange {
            id,
            planned,
            end,
            content_end: end,
            has_sent_content: false,
            start,
            started_at: None,
            sent_at: None,
            taken_at: None,
            head: None,
            received: 0,
            pause: (Duration::ZERO, 0),
            answered_at: None,
        }
    }

    /// Records that the stream was sent up to a position.
    pub(crate) fn on_sent(&mut self, position: u64, now: Time) {
        if position > self.start {
            self.started_at.get_or_insert(now);
        }
        self.has_sent_content |= position >= self.content_end;
        if position >= self.end {
            self.sent_at.get_or_insert(now);
        }
    }
}

/// The first cause for the end of a connection, as the client saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The connection could not be established.
    NotConnected,
    /// The server ended its side.
    ByServer,
    /// Receiving or sending failed, as after a reset.
    Failed,
    /// The client closed the connection.
    ByClient,
}

/// Actions of the client that may make the server end the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnActions {
    /// Whether the client stopped sending within a request.
    pub has_stalled: bool,
    /// Whether the client half-closed the connection.
    pub has_half_closed: bool,
    /// Whether the client reset or closed the connection early.
    pub has_quit: bool,
    /// Whether the client stopped receiving for some time.
    pub has_paused: bool,
}

/// A connection after its end.
#[derive(Debug)]
pub struct ConnectionRecord<R> {
    /// Number of the client, and of its connection.
    pub client: u16,
    /// Number of the client's connection.
    pub connection: u16,
    /// Time of the first attempt to connect.
    pub opened_at: Time,
    /// Time at which the connection was established.
    pub connected_at: Option<Time>,
    /// The requests, in order.
    pub exchanges: Vec<Exchange<R>>,
    /// Number of requests that have a complete response.
    pub answered: usize,
    /// Whether a part of a response was received that is not complete.
    pub is_cut: bool,
    /// The cause of the end.
    pub ended: Ended,
    /// Time of the end.
    pub ended_at: Time,
    /// The client's own actions.
    pub own: OwnActions,
    /// Facts about a connection that uses HTTP/2. Its requests are answered in any order.
    pub http2: Option<Http2Facts>,
}

impl<R> ConnectionRecord<R> {
    /// Returns whether TLS explains that the connection was not established: the handshake, whose timeout
    /// is that of a head, took too long, or the server needed room for other connections.
    pub(crate) fn has_lost_handshake(
        &self,
        swarm: &Swarm,
        header: Duration,
        is_limited: bool,
    ) -> bool {
        let lasted = self.ended_at.duration_since(self.opened_at);
        swarm.protocols.tls && (is_limited || lasted >= header)
    }
}

/// The requests of clients and the checks of responses, by kind of history.
pub trait Script {
    /// Data about a request.
    type Request: Debug;

    /// Appends bytes that a connection starts with.
    fn preamble(&mut self, client: u16, out: &mut Vec<u8>);

    /// Appends a request in the form of HTTP/1.1. `is_last` is whether no other one follows on the
    /// connection.
    fn request(
        &mut self,
        id: RequestId,
        version: HttpVersion,
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Planned<Self::Request>;

    /// Returns the status that opens a tunnel, if the request asks for one. The client sends what
    /// follows the head of the request through the tunnel.
    fn tunnel_status(&self, request: &Self::Request) -> Option<u16> {
        let _ = request;
        None
    }

    /// Handles that the transport has taken the last byte of a request.
    fn on_taken(&mut self, now: Time) {
        let _ = now;
    }

    /// Checks the head of a response.
    ///
    /// # Errors
    /// The response is wrong.
    fn on_head(&mut self, now: Time, exchange: &mut Exchange<Self::Request>) -> Result<(), String>;

    /// Checks a piece of a body, which follows `exchange.received` bytes.
    ///
    /// # Errors
    /// The body is wrong.
    fn on_body(
        &mut self,
        exchange: &mut Exchange<Self::Request>,
        bytes: &[u8],
    ) -> Result<(), String>;

    /// Checks a complete response.
    ///
    /// # Errors
    /// The body is wrong.
    fn on_complete(&mut self, exchange: &mut Exchange<Self::Request>) -> Result<(), String>;
}

/// Settings of all clients of a history.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Address of the server.
    pub server: Address,
    /// Number of clients.
    pub clients: u16,
    /// Maximum number of requests per connection.
    pub max_requests: u16,
    /// Whether clients stop half-way, reset connections, or pause.
    pub misbehave: bool,
    /// A typical timeout of the server: clients wait less and more than that.
    pub timeout: Duration,
    /// Maximum time without progress, after which the client reports a finding.
    pub patience: Duration,
}

impl ClientSettings {
    /// Draws a pause, which may be shorter or longer than the server's timeouts.
    pub(crate) fn draw_pause(&self, world: &World) -> Duration {
        let timeout = self.timeout;
        let ms = Duration::from_millis;
        let pauses = [
            Duration::ZERO,
            Duration::ZERO,
            ms(1),
            ms(20),
            ms(300),
            timeout / 2,
            timeout,
            timeout * 2,
        ];
        pauses[world.decide(pauses.len() as u32) as usize]
    }
}

/// The action at the end of sending or receiving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Close,
    /// Wait until the server closes the connection.
    Wait,
    HalfClose,
    Abort,
}

/// The behaviour of a client on one connection.
#[derive(Debug)]
struct Behaviour {
    requests: u16,
    /// Maximum number of requests without a response.
    depth: usize,
    /// Maximum size of a piece, or 0 to send everything at once.
    piece: u32,
    piece_delay: Duration,
    /// Pause before a request.
    think_time: Duration,
    /// Probability in thousandths to pause receiving, and the length of the pause.
    pauses: (u32, Duration),
    end: End,
    /// Number of bytes after which the client stops to send, and what it does then.
    cut: Option<(u64, End)>,
    /// Number of received bytes after which the client leaves.
    quit: Option<(u64, End)>,
}

/// Maximum time for which a client does not receive on a connection.
pub(crate) const MAX_PAUSED: Duration = Duration::from_secs(3600);

struct Client<R> {
    number: u16,
    connection: u16,
    connections_left: u16,
    token: Option<Token>,
    behaviour: Behaviour,
    reader: ResponseReader,
    record: ConnectionRecord<R>,
    planned: u16,
    output: Vec<u8>,
    /// Number of bytes of `output` that were sent, and of the whole stream.
    position: usize,
    sent: u64,
    /// Number of sends in progress, and the position in the stream after all of them.
    sends: usize,
    received: u64,
    /// Position in the stream at which the client waits for 100 (Continue).
    hold: Option<u64>,
    /// Position in the stream at which the client waits for a tunnel.
    tunnel: Option<u64>,
    has_stopped_sending: bool,
    /// Whether sending failed.
    has_failed: bool,
    connect_at: Option<Time>,
    send_at: Option<Time>,
    receive_at: Option<Time>,
    /// Total length of all pauses of receiving.
    paused: Duration,
    progress_at: Time,
}

/// The finished connections of all clients.
pub type Records<R> = Rc<RefCell<Vec<ConnectionRecord<R>>>>;

/// All clients of a history.
struct Clients<'y, S: Script> {
    settings: ClientSettings,
    script: S,
    world: World,
    report: &'y Report,
    host: usize,
    connector: Connector,
    by_slot: Vec<Option<usize>>,
    records: Records<S::Request>,
}

/// Runs all clients until their connections have ended.
pub(crate) fn run<S: Script>(
    program: Program<'_>,
    connector: Connector,
    settings: ClientSettings,
    script: S,
    records: Records<S::Request>,
) {
    let world = program.host().world().clone();
    let mut io = program.io(connector.io(program.host()));
    let now = world.now();
    let mut all = Clients {
        script,
        world,
        report: program.report(),
        host: program.host().index(),
        connector,
        by_slot: Vec::new(),
        records,
        settings,
    };
    let mut clients: Vec<_> = (0..all.settings.clients).map(|n| all.create(n, now)).collect();
    loop {
        let now = io.now();
        let mut until: Option<Time> = None;
        for (index, client) in clients.iter_mut().enumerate() {
            all.act(&mut io, client, index, now);
            until = earlier(until, all.wake_at(client));
        }
        let Some(until) = until else { return };
        if io.wait(Some(until)).is_err() {
            return;
        }
        while let Some(completion) = io.next() {
            let slot = completion.token.slot() as usize;
            if let Some(index) = all.by_slot.get(slot).copied().flatten() {
                all.on_completion(&mut io, &mut clients[index], index, completion);
            }
        }
    }
}

impl<S: Script> Clients<'_, S> {
    fn decide(&self, limit: u32) -> u32 {
        self.world.decide(limit)
    }

    fn draw<T: Copy>(&self, values: &[T]) -> T {
        values[self.decide(values.len() as u32) as usize]
    }

    fn draw_pause(&self) -> Duration {
        self.settings.draw_pause(&self.world)
    }

    fn create(&self, number: u16, now: Time) -> Client<S::Request> {
        let connections_left = self.draw(&[0, 0, 1, 3]);
        let behaviour = self.draw_behaviour();
        let delay = self.draw_pause() / 2;
        Client {
            number,
            connection: 0,
            connections_left,
            token: None,
            behaviour,
            reader: ResponseReader::default(),
            record: new_record(number, 0, now),
            planned: 0,
            output: Vec::new(),
            position: 0,
            sent: 0,
            sends: 0,
            received: 0,
            hold: None,
            tunnel: None,
            has_stopped_sending: false,
            has_failed: false,
            connect_at: Some(now + delay),
            send_at: None,
            receive_at: None,
            paused: Duration::ZERO,
            progress_at: now,
        }
    }

    fn draw_behaviour(&self) -> Behaviour {
        let requests = 1 + self.decide(self.settings.max_requests.into()) as u16;
        let depth = self.draw(&[1, 1, 2, 4, 16]);
        let piece = self.draw(&[0, 0, 0, 0, 1000, 100, 20, 1]);
        let is_long = self.draw(&[false, false, false, true]);
        let piece_delay =
            if piece == 0 || !is_long { Duration::ZERO } else { self.draw_pause() / 8 };
        let mut behaviour = Behaviour {
            requests,
            depth,
            piece,
            piece_delay,
            think_time: self.draw_pause(),
            pauses: (0, Duration::ZERO),
            end: self.draw(&[End::Close, End::Wait, End::HalfClose]),
            cut: None,
            quit: None,
        };
        if self.settings.misbehave {
            let ends = [End::Abort, End::Close, End::HalfClose, End::Wait];
            match self.decide(8) {
                4 => behaviour.cut = Some((self.draw_bytes(), self.draw(&ends))),
                5 => behaviour.quit = Some((self.draw_bytes(), self.draw(&ends[..2]))),
                6 => {
                    let pause = self.draw_pause() * self.draw(&[1, 8]);
                    behaviour.pauses = (self.draw(&[10, 100, 500]), pause);
                }
                7 => behaviour.requests = 0,
                _ => {}
            }
        }
        behaviour
    }

    fn draw_bytes(&self) -> u64 {
        let max = self.draw(&[64, 256, 4096, 65_536]);
        self.decide(max).into()
    }

    /// Returns the time at which a connection without progress is stuck.
    fn give_up_at(&self, client: &Client<S::Request>) -> Time {
        client.receive_at.unwrap_or_default().max(client.progress_at) + self.settings.patience
    }

    /// Returns the time at which a client acts without a completion. `None` after its end.
    fn wake_at(&self, client: &Client<S::Request>) -> Option<Time> {
        let patience = client.token.map(|_| self.give_up_at(client));
        let sends = earlier(client.connect_at, client.send_at);
        earlier(sends, earlier(client.receive_at, patience))
    }

    /// Records an action of a client in the trace.
    fn trace(&self, client: &Client<S::Request>, code: u64, text: impl FnOnce() -> String) {
        let numbers = [code, client.number.into(), client.sent];
        self.world.record(self.host, numbers, || {
            format!("client {}-{} {}", client.number, client.connection, text())
        });
    }

    fn fail(&self, client: &Client<S::Request>, kind: &str, detail: impl std::fmt::Display) {
        let id = format!("client {}-{}", client.number, client.connection);
        self.report.fail(kind, format!("{id}: {detail}"));
    }

    fn act(&mut self, io: &mut impl Io, client: &mut Client<S::Request>, index: usize, now: Time) {
        let is_due = |at: &mut Option<Time>| at.take_if(|at| *at <= now).is_some();
        if is_due(&mut client.connect_at) {
            self.connect(io, client, index, now);
        }
        let Some(token) = client.token else { return };
        if is_due(&mut client.receive_at) {
            io.start(token);
            client.progress_at = now;
        }
        if is_due(&mut client.send_at) {
            client.hold = None;
            self.send(io, client, now);
        }
        if client.token.is_some() && now >= self.give_up_at(client) {
            let waited = self.settings.patience.as_secs_f64();
            let open = client.record.exchanges.len() - client.record.answered;
            let detail = format!("no progress for {waited} s, {open} requests without a response");
            self.fail(client, "stuck connection", detail);
            self.end(io, client, Ended::ByClient, now);
        }
    }

    fn connect(
        &mut self,
        io: &mut impl Io,
        client: &mut Client<S::Request>,
        index: usize,
        now: Time,
    ) {
        client.record.opened_at = now;
        client.progress_at = now;
        match self.connector.connect(io, &self.settings.server, HttpVersion::Http1) {
            Ok(token) => {
                let slot = token.slot() as usize;
                if slot >= self.by_slot.len() {
                    self.by_slot.resize(slot + 1, None);
                }
                self.by_slot[slot] = Some(index);
                client.token = Some(token);
                self.trace(client, 20, || "connects".to_owned());
            }
            // The backlog of a Unix socket is full.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                client.connect_at = Some(now + Duration::from_millis(10));
            }
            Err(_) => self.end(io, client, Ended::NotConnected, now),
        }
    }

    fn on_completion(
        &mut self,
        io: &mut impl Io,
        client: &mut Client<S::Request>,
        index: usize,
        Completion { token, kind }: Completion,
    ) {
        debug_assert_eq!(self.by_slot[token.slot() as usize], Some(index));
        let now = io.now();
        client.progress_at = now;
        match kind {
            CompletionKind::Connected(Ok(())) => {
                client.record.connected_at = Some(now);
                self.script.preamble(client.number, &mut client.output);
                io.start(token);
                client.send_at = Some(now + client.behaviour.think_time);
            }
            CompletionKind::Connected(Err(_)) => self.end(io, client, Ended::NotConnected, now),
            CompletionKind::Received(bytes) => self.on_received(io, client, &bytes, now),
            CompletionKind::End => self.on_end(io, client, now),
            CompletionKind::ReceiveFailed(_) => self.end(io, client, Ended::Failed, now),
            CompletionKind::Sent(Err(_)) => {
                // Responses may still arrive, and then the end.
                client.has_failed = true;
                client.has_stopped_sending = true;
                (client.send_at, client.hold) = (None, None);
            }
            CompletionKind::Sent(Ok(())) => {
                client.sends -= 1;
                if client.sends == 0 {
                    self.mark_taken(client, now);
                    self.continue_sending(io, client, now);
                }
            }
            _ => {}
        }
    }

    /// Sends the next piece, or lets the client pause before.
    fn continue_sending(&mut self, io: &mut impl Io, client: &mut Client<S::Request>, now: Time) {
        if client.token.is_none() || client.send_at.is_some() || client.hold.is_some() {
            return;
        }
        let is_between = client.position == client.output.len();
        let pause =
            if is_between { client.behaviour.think_time } else { client.behaviour.piece_delay };
        if pause.is_zero() {
            self.send(io, client, now);
        } else {
            client.send_at = Some(now + pause);
        }
    }

    /// Sends what the client may send now.
    fn send(&mut self, io: &mut impl Io, client: &mut Client<S::Request>, now: Time) {
        while let Some(token) = client.token
            && client.sends == 0
            && !client.has_stopped_sending
        {
            if client.position == client.output.len() && !self.plan(client) {
                return self.finish_sending(io, client, now);
            }
            let mut end = client.output.len();
            if client.behaviour.piece > 0 {
                let size = 1 + self.decide(client.behaviour.piece) as usize;
                end = end.min(client.position + size);
            }
            let base = client.sent - client.position as u64;
            if let Some((cut, then)) = client.behaviour.cut {
                end = end.min(cut.saturating_sub(base) as usize);
                if end <= client.position {
                    return self.stop_sending(io, client, then, now);
                }
            }
            if let Some(hold) = client.hold {
                end = end.min((hold - base) as usize);
                if end <= client.position {
                    // The server need not send 100 (Continue).
                    client.send_at.get_or_insert(now + Duration::from_secs(1));
                    return;
                }
            }
            if let Some(tunnel) = client.tunnel {
                end = end.min((tunnel - base) as usize);
                if end <= client.position {
                    return;
                }
            }
            let is_done = io.send_now(token, &client.output[client.position..end]);
            client.sent += (end - client.position) as u64;
            client.position = end;
            if self.is_in_tunnel(client) {
                client.progress_at = now;
            }
            for exchange in client.record.exchanges.iter_mut().rev() {
                if exchange.sent_at.is_some() {
                    break;
                }
                exchange.on_sent(client.sent, now);
            }
            if !is_done {
                client.sends += 1;
                return;
            }
            self.mark_taken(client, now);
            let is_between = client.position == client.output.len();
            let pause =
                if is_between { client.behaviour.think_time } else { client.behaviour.piece_delay };
            if !pause.is_zero() {
                client.send_at = Some(now + pause);
                return;
            }
        }
    }

    /// Returns whether the client sends through a tunnel, whose timeout each byte extends.
    fn is_in_tunnel(&self, client: &Client<S::Request>) -> bool {
        let open = client.record.exchanges.get(client.record.answered);
        open.is_some_and(|open| {
            let status = open.head.as_ref().map(|head| head.status);
            status.is_some() && status == self.script.tunnel_status(&open.planned.request)
        })
    }

    /// Records that the transport has taken all sent bytes.
    fn mark_taken(&mut self, client: &mut Client<S::Request>, now: Time) {
        for exchange in client.record.exchanges.iter_mut().rev() {
            if exchange.taken_at.is_some() {
                break;
            }
            if exchange.sent_at.is_some() {
                exchange.taken_at = Some(now);
                self.script.on_taken(now);
            }
        }
    }

    /// Plans the next requests. Returns false if none may be sent now.
    fn plan(&mut self, client: &mut Client<S::Request>) -> bool {
        client.output.clear();
        client.position = 0;
        let record = &mut client.record;
        let can_continue = record.exchanges.last().is_none_or(|last| last.planned.keep_alive);
        while can_continue
            && client.planned < client.behaviour.requests
            && record.exchanges.len() - record.answered < client.behaviour.depth
        {
            let id = RequestId {
                client: client.number,
                connection: client.connection,
                number: client.planned,
            };
            client.planned += 1;
            let is_last = client.planned == client.behaviour.requests;
            let before = client.output.len();
            let planned = self.script.request(id, HttpVersion::Http1, is_last, &mut client.output);
            let start = client.sent + before as u64;
            let end = client.sent + client.output.len() as u64;
            let is_tunnel = self.script.tunnel_status(&planned.request).is_some();
            client.tunnel = is_tunnel.then_some(start + planned.head_length as u64);
            if planned.expects {
                client.hold = Some(start + planned.head_length as u64);
            }
            let (expects, keeps) = (planned.expects, planned.keep_alive);
            record.exchanges.push(Exchange::new(id, planned, start, end));
            if expects || !keeps {
                break;
            }
        }
        !client.output.is_empty()
    }

    /// Acts when no request is left to send.
    fn finish_sending(&mut self, io: &mut impl Io, client: &mut Client<S::Request>, now: Time) {
        let record = &client.record;
        let is_planned = client.planned >= client.behaviour.requests
            || record.exchanges.last().is_some_and(|last| !last.planned.keep_alive);
        if !is_planned {
            return; // The next request waits for a response.
        }
        match client.behaviour.end {
            End::HalfClose => self.stop_sending(io, client, End::HalfClose, now),
            End::Close | End::Abort if record.answered == record.exchanges.len() => {
                self.end(io, client, Ended::ByClient, now);
            }
            _ => {}
        }
    }

    fn stop_sending(
        &mut self,
        io: &mut impl Io,
        client: &mut Client<S::Request>,
        then: End,
        now: Time,
    ) {
        let Some(token) = client.token else { return };
        client.has_stopped_sending = true;
        let is_within = client.record.exchanges.last().is_some_and(|last| client.sent < last.end);
        client.record.own.has_stalled |= is_within;
        match then {
            End::HalfClose => {
                self.trace(client, 21, || "half-closes".to_owned());
                client.record.own.has_half_closed = true;
                io.shutdown(token);
            }
            End::Close => {
                client.record.own.has_quit = true;
                self.end(io, client, Ended::ByClient, now);
            }
            End::Abort => {
                client.record.own.has_quit = true;
                io.abort(token);
                self.by_slot[token.slot() as usize] = None;
                client.token = None;
                self.end(io, client, Ended::ByClient, now);
            }
            End::Wait => self.trace(client, 22, || "stops sending".to_owned()),
        }
    }

    fn on_received(
        &mut self,
        io: &mut impl Io,
        client: &mut Client<S::Request>,
        mut bytes: &[u8],
        now: Time,
    ) {
        client.received += bytes.len() as u64;
        while !bytes.is_empty() || client.reader.is_within_response() {
            let record = &mut client.record;
            let answered = record.answered;
            let Some(exchange) = record.exchanges.get_mut(answered) else {
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
                // A server may send 408 before a request.
                return self.on_unrequested(io, client, &text, now);
            };
            // Without a complete head, the server does not know that the method is HEAD.
            let has_body = exchange.planned.has_body;
            let checked = match client.reader.read(&mut bytes, |status| has_body || status == 408) {
                Ok(None) => break,
                Ok(Some(Part::Interim(_))) => {
                    client.hold = None;
                    client.send_at.get_or_insert(now);
                    Ok(())
                }
                Ok(Some(Part::Head(head))) => {
                    // An incomplete preamble leads to 408, too.
                    let is_timeout = head.status == 408 && answered == 0 && client.sent > 0;
                    if exchange.started_at.is_none() && !is_timeout {
                        Err(format!("response {} before the request", head.status))
                    } else {
                        let tunnel = self.script.tunnel_status(&exchange.planned.request);
                        if let Some(status) = tunnel {
                            client.has_stopped_sending |= head.status != status;
                            client.tunnel = None;
                            client.send_at.get_or_insert(now);
                        }
                        exchange.head = Some(head);
                        self.script.on_head(now, exchange)
                    }
                }
                Ok(Some(Part::Body(piece))) => {
                    let checked = self.script.on_body(exchange, piece);
                    exchange.received += piece.len() as u64;
                    checked
                }
                Ok(Some(Part::End)) => {
                    exchange.answered_at = Some(now);
                    let checked = self.script.on_complete(exchange);
                    record.answered += 1;
                    let exchange = &record.exchanges[answered];
                    let status = exchange.head.as_ref().map_or(0, |head| head.status);
                    let (id, length) = (exchange.id, exchange.received);
                    self.trace(client, 23, || format!("has response {status} to {id} {length} B"));
                    checked
                }
                Err(error) => Err(error),
            };
            if let Err(error) = checked {
                let exchange = client.record.exchanges.get(answered);
                let detail = format!("{error}; exchange: {exchange:?}");
                self.fail(client, "wrong response", detail);
                return self.end(io, client, Ended::ByClient, now);
            }
        }
        if let Some((quit, then)) = client.behaviour.quit
            && client.received >= quit
        {
            return self.stop_sending(io, client, then, now);
        }
        let (probability, pause) = client.behaviour.pauses;
        if !pause.is_zero()
            && client.receive_at.is_none()
            && self.decide(1000) >= 1000 - probability
            && client.paused + pause <= MAX_PAUSED
            && let Some(token) = client.token
        {
            io.stop(token);
            client.record.own.has_paused = true;
            client.receive_at = Some(now + pause);
            client.paused += pause;
            let answered = client.record.answered;
            if let Some(open) = client.record.exchanges.get_mut(answered)
                && pause > open.pause.0
            {
                open.pause = (pause, open.received);
            }
        }
        self.continue_sending(io, client, now);
    }

    fn on_unrequested(
        &mut self,
        io: &mut impl Io,
        client: &mut Client<S::Request>,
        text: &str,
        now: Time,
    ) {
        const TIMEOUT: &str = "HTTP/1.1 408";
        let is_timeout = TIMEOUT.starts_with(text) || text.starts_with(TIMEOUT);
        if client.sent == 0 || !client.record.exchanges.is_empty() || !is_timeout {
            self.fail(client, "unrequested bytes", format!("{text:?}"));
        }
        self.end(io, client, Ended::ByClient, now);
    }

    fn on_end(&mut self, io: &mut impl Io, client: &mut Client<S::Request>, now: Time) {
        // After a failure, the end is not that of the response.
        if client.reader.ends_with_connection()
            && !client.has_failed
            && let Some(exchange) = client.record.exchanges.get_mut(client.record.answered)
        {
            exchange.answered_at = Some(now);
            let checked = self.script.on_complete(exchange);
            client.record.answered += 1;
            client.reader = ResponseReader::default();
            if let Err(error) = checked {
                let detail = format!("{error}; exchange: {:?}", client.record.exchanges.last());
                self.fail(client, "wrong response", detail);
            }
        }
        let ended = if client.has_failed { Ended::Failed } else { Ended::ByServer };
        self.end(io, client, ended, now);
    }

    /// Ends the connection, and starts the next one.
    fn end(&mut self, io: &mut impl Io, client: &mut Client<S::Request>, ended: Ended, now: Time) {
        if let Some(token) = client.token.take() {
            self.by_slot[token.slot() as usize] = None;
            io.close(token);
        }
        self.trace(client, 24, || format!("ends: {ended:?}"));
        let next = new_record(client.number, client.connection + 1, now);
        let mut record = std::mem::replace(&mut client.record, next);
        (record.ended, record.ended_at) = (ended, now);
        record.is_cut = client.reader.is_within_response();
        self.records.borrow_mut().push(record);
        (client.send_at, client.receive_at, client.hold) = (None, None, None);
        if client.connections_left == 0 {
            return;
        }
        client.connections_left -= 1;
        client.connection += 1;
        client.behaviour = self.draw_behaviour();
        client.reader = ResponseReader::default();
        client.output.clear();
        (client.position, client.sent, client.received) = (0, 0, 0);
        (client.planned, client.sends) = (0, 0);
        client.paused = Duration::ZERO;
        client.has_stopped_sending = false;
        client.has_failed = false;
        client.tunnel = None;
        client.connect_at = Some(now + self.draw_pause() / 2);
    }
}

/// Creates the record of a connection that begins.
pub(crate) fn new_record<R>(client: u16, connection: u16, now: Time) -> ConnectionRecord<R> {
    ConnectionRecord {
        client,
        connection,
        opened_at: now,
        connected_at: None,
        exchanges: Vec::new(),
        answered: 0,
        is_cut: false,
        ended: Ended::ByClient,
        ended_at: now,
        own: OwnActions::default(),
        http2: None,
    }
}
