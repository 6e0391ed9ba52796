//! Origin servers: state machines over one `Io`, which answer in every way that a server may.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io::Write;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use hearken::io::sim::{SimIo, SimIoSettings, World};
use hearken::io::{Address, Completion, CompletionKind, Io, ListenOptions};
use hearken::timer::Time;
use hearken::{Token, Waker};
use hearken_http::{Body, BodyReader, Limits, Method, RequestParser};
use hearken_server::runtime::proxy_protocol::{self, Parsed};

use crate::client::RequestId;
use crate::content;
use crate::report::Report;
use crate::scheduler::{Program, earlier};

/// Name of the field that identifies a response.
pub const IDENTITY: &str = "x-sim";
/// Path of health checks.
pub const HEALTH_PATH: &str = "/health";

/// The identity of a response, as its head states it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The request.
    pub request: RequestId,
    /// Number of the origin.
    pub origin: usize,
    /// Start of the body in the sequence of [`content`].
    pub phase: usize,
    /// Length of the body.
    pub length: u64,
}

impl Identity {
    /// Parses the value of the field.
    pub fn parse(value: &str) -> Option<Identity> {
        let mut words = value.split(' ');
        let request = RequestId::find(words.next()?)?;
        Some(Identity {
            request,
            origin: words.next()?.parse().ok()?,
            phase: words.next()?.parse().ok()?,
            length: words.next()?.parse().ok()?,
        })
    }
}

/// Returns where in the sequence of [`content`] the body of a request starts.
pub fn request_phase(id: RequestId) -> usize {
    let number = usize::from(id.client) * 961 + usize::from(id.connection) * 31;
    (number + usize::from(id.number) + 1).wrapping_mul(7919) % content::PERIOD
}

/// A request that arrived at an origin.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The identity.
    pub id: RequestId,
    /// Number of the origin.
    pub origin: usize,
    /// Whether the method is safe.
    pub is_safe: bool,
    /// Time at which the head was complete.
    pub at: Time,
    /// Number of received bytes of the body.
    pub received: u64,
    /// Whether the request was received completely.
    pub is_complete: bool,
    /// Address of the client according to the PROXY protocol header of the connection.
    pub client: Option<IpAddr>,
}

/// Settings of all origins of a history.
#[derive(Clone, Debug)]
pub struct OriginSettings {
    /// Address of each origin.
    pub addresses: Vec<Address>,
    /// Probability in thousandths that a response is wrong, incomplete or missing.
    pub misbehave: u32,
    /// Whether origins close connections without announcing it, and stop listening for some time.
    pub disconnect: bool,
    /// Whether origins are slow.
    pub delay: bool,
    /// A typical timeout of the proxy: origins wait less and more than that.
    pub timeout: Duration,
    /// Maximum length of a body.
    pub max_length: u64,
    /// Number of the first origin that is no HTTP server and echoes what it receives.
    pub first_echo: usize,
    /// Whether connections start with a PROXY protocol header.
    pub proxy_protocol: bool,
}

/// The state of origins that other programs use.
#[derive(Debug, Default)]
pub struct Origins {
    /// The requests that arrived, in order.
    pub arrivals: RefCell<Vec<Arrival>>,
    is_stopping: Cell<bool>,
    waker: OnceCell<Waker>,
}

impl Origins {
    /// Ends the program of the origins.
    pub fn stop(&self) {
        self.is_stopping.set(true);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}

/// A step of a response.
#[derive(Debug)]
enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    Close,
    Abort,
    Shutdown,
    /// Nothing happens any more.
    Hang,
}

enum State {
    /// Before the PROXY protocol header.
    Preamble,
    /// A tunnel, whose bytes are sent back until this many were.
    Echo(u64),
    /// Between requests, or within a head.
    Head,
    Body {
        reader: BodyReader,
        arrival: usize,
        /// Whether the response waits for the end of the request.
        is_pending: bool,
        is_head: bool,
    },
}

/// Maximum time for which an origin pauses in a tunnel.
const MAX_PAUSED: Duration = Duration::from_secs(600);

struct Connection {
    token: Token,
    origin: usize,
    input: Vec<u8>,
    parser: RequestParser,
    state: State,
    /// The response in progress.
    steps: VecDeque<Step>,
    /// Time of the next step, after a pause.
    act_at: Option<Time>,
    /// Total length of all pauses in a tunnel.
    paused: Duration,
    /// Time at which receiving continues.
    receive_at: Option<Time>,
    sends: usize,
    requests: u32,
    /// Whether the client has ended its side.
    has_ended: bool,
    /// Whether a 100 (Continue) may be useful.
    expects: bool,
    /// Address of the client according to the PROXY protocol header.
    client: Option<IpAddr>,
}

/// An origin's listener.
struct Listener {
    token: Option<Token>,
    /// Time at which it stops or starts to listen.
    toggle_at: Option<Time>,
    is_healthy: bool,
}

/// All origins of a history.
struct Servers<'y> {
    settings: OriginSettings,
    world: World,
    report: &'y Report,
    host: usize,
    shared: Rc<Origins>,
    listeners: Vec<Listener>,
    connections: Vec<Option<Connection>>,
    limits: Limits,
    phases: usize,
}

/// Responses that a proxy must reject.
const MALFORMED: [&str; 10] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\na",
    "HTTP/1.1 20 OK\r\n\r\n",
    "HTTP/2.0 200 OK\r\n\r\n",
    "HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "\0\0\0\0",
    "SSH-2.0-sim\r\n",
];

/// Runs all origins until [`Origins::stop`].
pub fn run(program: Program<'_>, io: SimIoSettings, settings: OriginSettings, shared: Rc<Origins>) {
    let world = program.host().world().clone();
    let mut io = program.io(SimIo::new(program.host(), io));
    let _ = shared.waker.set(io.waker());
    let mut all = Servers {
        listeners: Vec::new(),
        connections: Vec::new(),
        limits: Limits { max_head_bytes: 64 * 1024, ..Limits::default() },
        phases: 0,
        world,
        report: program.report(),
        host: program.host().index(),
        shared,
        settings,
    };
    all.start(&mut io);
    while !all.shared.is_stopping.get() {
        let now = io.now();
        let until = all.act(&mut io, now);
        if io.wait(until).is_err() {
            return;
        }
        while let Some(completion) = io.next() {
            all.on_completion(&mut io, completion);
        }
    }
    for listener in &all.listeners {
        listener.token.into_iter().for_each(|token| io.close(token));
    }
    for connection in all.connections.iter().flatten() {
        io.abort(connection.token);
    }
}

impl Servers<'_> {
    fn decide(&self, limit: u32) -> u32 {
        self.world.decide(limit)
    }

    fn draw<T: Copy>(&self, values: &[T]) -> T {
        values[self.decide(values.len() as u32) as usize]
    }

    /// Draws a pause, which may be longer than the proxy's timeouts.
    fn draw_pause(&self) -> Duration {
        let ms = Duration::from_millis;
        let timeout = self.settings.timeout;
        match self.settings.delay {
            false => self.draw(&[Duration::ZERO, Duration::ZERO, ms(1), ms(20)]),
            true => self.draw(&[ms(0), ms(1), ms(20), timeout / 2, timeout, timeout * 2]),
        }
    }

    /// Records an action of an origin in the trace.
    fn trace(&self, origin: usize, code: u64, text: impl FnOnce() -> String) {
        let numbers = [code, origin as u64, 0];
        self.world.record(self.host, numbers, || format!("origin {origin} {}", text()));
    }

    fn start(&mut self, io: &mut impl Io) {
        let now = io.now();
        for index in 0..self.settings.addresses.len() {
            self.listeners.push(Listener { token: None, toggle_at: None, is_healthy: true });
            self.listen(io, index);
            self.plan_toggle(index, now + Duration::from_secs(2));
        }
    }

    fn listen(&mut self, io: &mut impl Io, index: usize) {
        let address = &self.settings.addresses[index];
        if let Address::Unix(path) = address {
            self.world.unlink(path);
        }
        match io.listen(address, &ListenOptions::default()) {
            Ok(token) => {
                io.start(token);
                self.listeners[index].token = Some(token);
            }
            Err(error) => self.report.fail("origin cannot listen", error.to_string()),
        }
    }

    /// Plans when an origin stops or starts to listen.
    fn plan_toggle(&mut self, index: usize, now: Time) {
        if self.settings.disconnect {
            let after: u64 = self.draw(&[0, 0, 10, 100, 1_000, 5_000]);
            let toggle_at = (after > 0).then(|| now + Duration::from_millis(after));
            self.listeners[index].toggle_at = toggle_at;
        }
    }

    /// Performs the actions that are due. Returns the time of the next one.
    fn act(&mut self, io: &mut impl Io, now: Time) -> Option<Time> {
        let is_due = |at: &mut Option<Time>| at.take_if(|at| *at <= now).is_some();
        for index in 0..self.listeners.len() {
            if !is_due(&mut self.listeners[index].toggle_at) {
                continue;
            }
            match self.listeners[index].token.take() {
                Some(token) => {
                    io.close(token);
                    // It always listens again, so that every history ends.
                    let after = Duration::from_millis(self.draw(&[10, 100, 3_000]));
                    self.listeners[index].toggle_at = Some(now + after);
                }
                None => {
                    self.listen(io, index);
                    self.listeners[index].is_healthy = self.draw(&[true, true, false]);
                }
            }
        }
        let mut until: Option<Time> = None;
        for index in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[index] else { continue };
            if is_due(&mut connection.receive_at) {
                io.start(connection.token);
            }
            if is_due(&mut connection.act_at) {
                self.continue_response(io, index, now);
            }
            let Some(connection) = &self.connections[index] else { continue };
            until = earlier(until, earlier(connection.receive_at, connection.act_at));
        }
        self.listeners.iter().fold(until, |until, listener| earlier(until, listener.toggle_at))
    }

    fn on_completion(&mut self, io: &mut impl Io, Completion { token, kind }: Completion) {
        let now = io.now();
        if let CompletionKind::Accepted { token: accepted, .. } = kind {
            let origin = self.listeners.iter().position(|of| of.token == Some(token));
            return self.accept(io, accepted, origin.unwrap_or_default());
        }
        let index = token.slot() as usize;
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        match kind {
            CompletionKind::Received(bytes) => {
                connection.input.extend_from_slice(&bytes);
                self.read(io, index, now);
            }
            CompletionKind::End => {
                connection.has_ended = true;
                // The rest of an echo is sent first.
                let is_sending = connection.sends > 0 && matches!(connection.state, State::Echo(_));
                if connection.steps.is_empty() && !is_sending {
                    self.close(io, index, false);
                }
            }
            CompletionKind::ReceiveFailed(_) | CompletionKind::Sent(Err(_)) => {
                self.close(io, index, false);
            }
            CompletionKind::Sent(Ok(())) => {
                connection.sends -= 1;
                if connection.sends == 0 && connection.act_at.is_none() {
                    self.continue_response(io, index, now);
                }
            }
            _ => {}
        }
    }

    fn accept(&mut self, io: &mut impl Io, token: Token, origin: usize) {
        let index = token.slot() as usize;
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(Connection {
            token,
            origin,
            input: Vec::new(),
            parser: RequestParser::new(),
            state: match () {
                () if origin >= self.settings.first_echo => State::Echo(u64::MAX),
                () if self.settings.proxy_protocol => State::Preamble,
                () => State::Head,
            },
            steps: VecDeque::new(),
            act_at: None,
            paused: Duration::ZERO,
            receive_at: None,
            sends: 0,
            requests: 0,
            has_ended: false,
            expects: false,
            client: None,
        });
        io.start(token);
    }

    fn close(&mut self, io: &mut impl Io, index: usize, is_abort: bool) {
        let Some(connection) = self.connections[index].take() else { return };
        self.trace(connection.origin, 30, || format!("closes {:?}, {is_abort}", connection.token));
        match is_abort {
            true => io.abort(connection.token),
            false => io.close(connection.token),
        }
    }

    /// Reads received bytes.
    fn read(&mut self, io: &mut impl Io, index: usize, now: Time) {
        while let Some(connection) = &mut self.connections[index]
            && !connection.input.is_empty()
        {
            match &mut connection.state {
                // The next request waits for the response.
                State::Head if !connection.steps.is_empty() || connection.sends > 0 => return,
                State::Head => {
                    let input = std::mem::take(&mut connection.input);
                    let is_head = self.read_head(io, index, &input, now);
                    if let Some(connection) = &mut self.connections[index] {
                        connection.input = input;
                        match is_head {
                            Some(used) => drop(connection.input.drain(..used)),
                            None => return,
                        }
                    }
                }
                State::Body { .. } => {
                    if !self.read_body(io, index) {
                        return;
                    }
                }
                State::Preamble => match proxy_protocol::parse(&connection.input) {
                    Ok(Parsed::Header { len, source, .. }) => {
                        drop(connection.input.drain(..len));
                        connection.client = source.map(|source| source.ip());
                        connection.state = State::Head;
                    }
                    Ok(Parsed::Incomplete) => return,
                    Err(error) => {
                        return self.report.fail("malformed header at an origin", error);
                    }
                },
                State::Echo(_) => return self.echo(io, index, now),
            }
            if let Some(connection) = &self.connections[index]
                && let State::Head = connection.state
                && connection.act_at.is_none()
            {
                self.continue_response(io, index, now);
            }
        }
    }

    /// Reads a head. Returns its length if it is complete.
    fn read_head(
        &mut self,
        io: &mut impl Io,
        index: usize,
        input: &[u8],
        now: Time,
    ) -> Option<usize> {
        let connection = self.connections[index].as_mut()?;
        let request = match connection.parser.parse(input, &self.limits) {
            Ok(None) => return None,
            Ok(Some(request)) => request,
            Err(reject) => {
                let text = String::from_utf8_lossy(&input[..input.len().min(200)]);
                let detail = format!("{}: {text:?}", reject.reason);
                self.report.fail("malformed request at an origin", detail);
                return None;
            }
        };
        connection.requests += 1;
        let (is_reused, origin) = (connection.requests > 1, connection.origin);
        let target = String::from_utf8_lossy(request.raw_target).into_owned();
        if target == HEALTH_PATH {
            self.respond_to_check(index);
            return Some(request.head_len);
        }
        let Some(id) = RequestId::find(&target) else {
            self.report.fail("unknown request at an origin", target);
            return None;
        };
        let is_safe = matches!(request.method, Method::Get | Method::Head | Method::Options);
        let is_complete = request.body == Body::None;
        let is_head = request.method == Method::Head;
        let mut arrivals = self.shared.arrivals.borrow_mut();
        let client = connection.client;
        arrivals.push(Arrival { id, origin, is_safe, at: now, received: 0, is_complete, client });
        let arrival = arrivals.len() - 1;
        drop(arrivals);
        if is_reused && self.settings.disconnect && self.decide(8) == 7 {
            // The origin had decided to close the idle connection as the request arrived.
            let is_abort = self.draw(&[false, true]);
            self.close(io, index, is_abort);
            return None;
        }
        if request.field("upgrade").is_some() && self.switch_protocol(index, id) {
            self.continue_response(io, index, now);
            return Some(request.head_len);
        }
        let is_pending = !is_complete && self.draw(&[true, true, true, false]);
        let is_slow = self.settings.delay && !is_complete && self.draw(&[false, true]);
        let pause = if is_slow { self.draw_pause() } else { Duration::ZERO };
        let connection = self.connections[index].as_mut()?;
        connection.expects = request.expect_continue;
        if !is_complete {
            let reader = BodyReader::new(request.body, u64::MAX, &self.limits).ok()?;
            connection.state = State::Body { reader, arrival, is_pending, is_head };
        }
        if !pause.is_zero() {
            io.stop(connection.token);
            connection.receive_at = Some(now + pause);
        }
        if connection.expects && is_pending {
            let is_done = io.send_now(connection.token, b"HTTP/1.1 100 Continue\r\n\r\n");
            connection.sends += usize::from(!is_done);
        }
        if !is_pending {
            self.respond(index, id, is_head);
            if !is_complete {
                self.continue_response(io, index, now);
            }
        }
        Some(request.head_len)
    }

    /// Sends received bytes of a tunnel back.
    fn echo(&mut self, io: &mut impl Io, index: usize, now: Time) {
        let is_broken =
            self.settings.misbehave > 0 && self.decide(1000) >= 1000 - self.settings.misbehave;
        let pause = self.draw_pause() / 8;
        let Some(connection) = &mut self.connections[index] else { return };
        // Unix sockets have no resets.
        let is_unix = matches!(self.settings.addresses[connection.origin], Address::Unix(_));
        let State::Echo(left) = &mut connection.state else { return };
        let mut bytes = std::mem::take(&mut connection.input);
        if *left == 0 {
            return;
        }
        bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= bytes.len() as u64;
        let is_last = *left == 0;
        if is_broken {
            connection.steps.push_back(if is_unix { Step::Hang } else { Step::Abort });
        }
        if !pause.is_zero() && connection.paused + pause <= MAX_PAUSED {
            connection.paused += pause;
            connection.steps.push_back(Step::Pause(pause));
        }
        connection.steps.push_back(Step::Send(bytes));
        if is_last {
            connection.steps.push_back(Step::Shutdown);
        }
        self.continue_response(io, index, now);
    }

    /// Switches to a protocol that echoes. Returns false if the origin refuses.
    fn switch_protocol(&mut self, index: usize, id: RequestId) -> bool {
        if self.draw(&[false, false, false, true]) {
            return false;
        }
        let pause = self.draw_pause();
        let length = self.draw(&[u64::MAX, u64::MAX, u64::MAX, 0, 100, 5_000]);
        let fields = "Connection: Upgrade\r\nUpgrade: echo\r\n";
        let Some(connection) = &mut self.connections[index] else { return false };
        let (origin, phase) = (connection.origin, request_phase(id));
        let identity = format!("X-Sim: {id} {origin} {phase} {length}\r\n");
        let head = format!("HTTP/1.1 101 Switching Protocols\r\n{fields}{identity}\r\n");
        connection.state = State::Echo(length);
        connection.steps.extend([Step::Pause(pause), Step::Send(head.into_bytes())]);
        if length == 0 {
            connection.steps.push_back(Step::Shutdown);
        }
        true
    }

    /// Reads a part of a body. Returns whether there may be more to read.
    fn read_body(&mut self, io: &mut impl Io, index: usize) -> bool {
        let Some(connection) = &mut self.connections[index] else { return false };
        let State::Body { reader, arrival, is_pending, is_head } = &mut connection.state else {
            return false;
        };
        let segment = match reader.read(&connection.input) {
            Ok(segment) => segment,
            Err(reject) => {
                self.report.fail("malformed request body at an origin", reject.reason);
                self.close(io, index, true);
                return false;
            }
        };
        let mut arrivals = self.shared.arrivals.borrow_mut();
        let of = &mut arrivals[*arrival];
        let data = &connection.input[segment.data.clone()];
        if !content::contains(request_phase(of.id), of.received, data) {
            self.report.fail("wrong request body at an origin", format!("{of:?}"));
        }
        of.received += data.len() as u64;
        of.is_complete = segment.done;
        let id = of.id;
        drop(arrivals);
        drop(connection.input.drain(..segment.consumed));
        if segment.done {
            let (is_pending, is_head) = (*is_pending, *is_head);
            connection.state = State::Head;
            if is_pending {
                self.respond(index, id, is_head);
            }
        }
        true
    }

    fn respond_to_check(&mut self, index: usize) {
        let behaviour = if self.settings.disconnect { self.decide(12) } else { 0 };
        let Some(connection) = &mut self.connections[index] else { return };
        let is_healthy = self.listeners[connection.origin].is_healthy;
        let status = if is_healthy { "200 OK" } else { "503 Service Unavailable" };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        connection.steps.push_back(match behaviour {
            10 => Step::Hang,
            11 => Step::Abort,
            _ => Step::Send(head.into_bytes()),
        });
    }

    /// Plans a response.
    fn respond(&mut self, index: usize, id: RequestId, is_head: bool) {
        self.phases += 1;
        let phase = self.phases.wrapping_mul(6007) % content::PERIOD;
        let is_wrong =
            self.settings.misbehave > 0 && self.decide(1000) >= 1000 - self.settings.misbehave;
        let latency = self.draw_pause();
        let mut steps = VecDeque::new();
        if !latency.is_zero() {
            steps.push_back(Step::Pause(latency));
        }
        if is_wrong && self.decide(4) == 0 {
            steps.push_back(match self.decide(4) {
                0 => Step::Close,
                1 => Step::Abort,
                2 => Step::Hang,
                _ => Step::Send(self.draw(&MALFORMED).as_bytes().to_vec()),
            });
            steps.push_back(Step::Hang);
            return self.set_steps(index, steps);
        }
        let mut out = Vec::new();
        for _ in 0..self.draw(&[0, 0, 0, 1, 2]) {
            out.extend_from_slice(
                self.draw(&[
                    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
                    "HTTP/1.1 102 Processing\r\n\r\n",
                ])
                .as_bytes(),
            );
        }
        let status = self.draw(&[200, 200, 200, 200, 200, 404, 204, 304, 500, 503]);
        let mut length: u64 =
            self.draw(&[700, 0, 1, 100, 5_000, 20_000, 70_000]).min(self.settings.max_length);
        let framing = self.draw(&[0, 0, 0, 1, 1, 2]);
        let is_empty = is_head || matches!(status, 204 | 304);
        let origin = self.connections[index].as_ref().map_or(0, |connection| connection.origin);
        if is_empty {
            length = 0;
        }
        let _ = write!(out, "HTTP/1.1 {status} Sim\r\nX-Sim: {id} {origin} {phase} {length}\r\n");
        let announces = self.draw(&[false, false, false, true]);
        if announces {
            out.extend_from_slice(b"Connection: close\r\n");
        }
        let ends = announces || (framing == 2 && !is_empty);
        let mut trailer = "";
        match framing {
            _ if is_empty && is_head => out.extend_from_slice(b"Content-Length: 4711\r\n"),
            _ if is_empty => {}
            0 => drop(write!(out, "Content-Length: {length}\r\n")),
            1 => {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                trailer = self.draw(&["", "", "X-Trailer: a\r\n"]);
            }
            _ => {}
        }
        out.extend_from_slice(b"\r\n");
        if is_empty {
        } else if framing == 1 {
            let mut body = Vec::new();
            content::append(phase, length, &mut body);
            for chunk in body.chunks(self.draw(&[4096, 1000, 16 * 1024])) {
                let _ = write!(out, "{:x}\r\n", chunk.len());
                out.extend_from_slice(chunk);
                out.extend_from_slice(b"\r\n");
            }
            let _ = write!(out, "0\r\n{trailer}\r\n");
        } else {
            content::append(phase, length, &mut out);
        }
        let mut last = None;
        if is_wrong {
            // A response that is not complete. The end of a connection would complete one without a
            // length, and Unix sockets have no resets.
            let at = self.decide(out.len() as u32);
            let is_unix = matches!(self.settings.addresses[origin], Address::Unix(_));
            let ends: &[_] = match framing {
                2 if is_unix => &[2],
                2 => &[1, 2],
                _ => &[0, 1, 2],
            };
            last = Some(match self.draw(ends) {
                0 => Step::Close,
                1 => Step::Abort,
                _ => Step::Hang,
            });
            out.truncate(at as usize);
        } else if ends {
            last = Some(Step::Close);
        } else if self.settings.disconnect && self.draw(&[false, false, false, true]) {
            // It closes the connection without announcing it.
            steps.push_back(Step::Send(std::mem::take(&mut out)));
            steps.push_back(Step::Pause(self.draw_pause()));
            last = Some(if self.draw(&[false, true]) { Step::Abort } else { Step::Close });
        }
        let piece = self.draw(&[0, 0, 0, 0, 0, 1000, 100]);
        let pause = if piece == 0 { Duration::ZERO } else { self.draw_pause() / 16 };
        match piece {
            0 => steps.push_back(Step::Send(out)),
            _ => {
                for (number, piece) in out.chunks(piece.max(out.len() / 20)).enumerate() {
                    if number > 0 && !pause.is_zero() {
                        steps.push_back(Step::Pause(pause));
                    }
                    steps.push_back(Step::Send(piece.to_vec()));
                }
            }
        }
        steps.extend(last);
        self.set_steps(index, steps);
    }

    fn set_steps(&mut self, index: usize, steps: VecDeque<Step>) {
        if let Some(connection) = &mut self.connections[index] {
            connection.steps.extend(steps);
        }
    }

    /// Performs steps until one has to wait.
    fn continue_response(&mut self, io: &mut impl Io, index: usize, now: Time) {
        while let Some(connection) = &mut self.connections[index]
            && connection.sends == 0
            && connection.act_at.is_none()
        {
            match connection.steps.front() {
                None if connection.has_ended => return self.close(io, index, false),
                None => break,
                Some(Step::Hang) => return,
                _ => {}
            }
            match connection.steps.pop_front() {
                Some(Step::Send(bytes)) => {
                    let is_pending = !bytes.is_empty() && !io.send_now(connection.token, &bytes);
                    connection.sends += usize::from(is_pending);
                }
                Some(Step::Pause(pause)) => connection.act_at = Some(now + pause),
                Some(Step::Close) => return self.close(io, index, false),
                Some(Step::Abort) => return self.close(io, index, true),
                Some(Step::Shutdown) => io.shutdown(connection.token),
                _ => {}
            }
        }
        if let Some(connection) = &self.connections[index]
            && connection.steps.is_empty()
            && connection.sends == 0
            && connection.act_at.is_none()
            && !connection.input.is_empty()
            && matches!(connection.state, State::Head)
        {
            self.read(io, index, now);
        }
    }
}
