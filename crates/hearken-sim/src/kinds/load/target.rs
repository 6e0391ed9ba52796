//! A scripted server: it records each request, and what it sends for it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use hearken::Token;
use hearken::io::sim::{SimIo, SimIoSettings, World};
use hearken::io::{Completion, CompletionKind, Io, ListenOptions};
use hearken::timer::Time;
use hearken::waker::Waker;

use crate::scheduler::Program;

/// Maximum number of bytes of a request.
const MAX_REQUEST: usize = 64 * 1024;
/// Maximum number of connections that the target serves. It closes others at once.
const MAX_CONNECTIONS: usize = 1000;

/// The kind of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ItemKind {
    /// An interim response.
    Interim,
    /// A response with a length.
    Response {
        /// Whether another request may follow.
        keep_alive: bool,
    },
    /// A response that ends with the connection.
    UntilClose,
    /// Bytes that are no HTTP response.
    Malformed,
    /// Bytes that no request asked for.
    Surplus,
}

/// A part of the stream that the target sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) kind: ItemKind,
    pub(super) status: u16,
    /// Position in the stream after the head, and after the item.
    pub(super) head_end: u64,
    pub(super) end: u64,
}

/// The requests that the target received on a connection, and its plan.
#[derive(Debug, Default)]
pub(super) struct TargetConnection {
    /// Times of complete requests.
    pub(super) requests: Vec<Time>,
    /// Number of received bytes.
    pub(super) received: u64,
    /// The parts of its stream, in order. The connection may end before their end.
    pub(super) items: Vec<Item>,
    /// Number of bytes that were passed to the transport.
    pub(super) sent: u64,
}

/// The observations of the target, by the client's address.
#[derive(Debug, Default)]
pub(super) struct TargetRecord {
    pub(super) connections: BTreeMap<SocketAddr, TargetConnection>,
    /// Whether two connections had the same address, so that their records cannot be told apart.
    pub(super) is_ambiguous: bool,
}

/// The behaviour of a target.
#[derive(Clone, Debug)]
pub(super) struct TargetSettings {
    pub(super) address: SocketAddr,
    /// A typical timeout of the load: the target answers earlier and later.
    pub(super) timeout: Duration,
    /// Whether responses may be late, in pieces, or missing.
    pub(super) is_slow: bool,
    /// Whether responses may be errors, malformed, or cut.
    pub(super) is_faulty: bool,
    /// Maximum length of a response body.
    pub(super) max_body: u32,
    /// Time before the target listens, and time after which it does not for a while.
    pub(super) listens_after: Duration,
    pub(super) pauses_after: Option<Duration>,
    /// Whether the target accepts connections late.
    pub(super) accepts_late: bool,
    pub(super) backlog: u32,
}

/// The signal that ends the target, and what it recorded.
#[derive(Debug, Default)]
pub(super) struct TargetShared {
    pub(super) is_done: Cell<bool>,
    pub(super) record: RefCell<TargetRecord>,
    waker: RefCell<Option<Waker>>,
}

impl TargetShared {
    /// Sets what wakes the target.
    pub(super) fn set_waker(&self, waker: Waker) {
        self.waker.replace(Some(waker));
    }

    /// Ends the target.
    pub(super) fn stop(&self) {
        self.is_done.set(true);
        self.waker.borrow().iter().for_each(Waker::wake);
    }
}

#[derive(Debug)]
enum Action {
    Send(Vec<u8>),
    Shutdown,
    Close,
    Reset,
}

#[derive(Debug)]
struct Connection {
    token: Token,
    peer: SocketAddr,
    input: Vec<u8>,
    /// Actions with their times, in order.
    actions: VecDeque<(Time, Action)>,
    /// Length of the planned stream.
    planned: u64,
    /// Whether no response follows those that are planned.
    is_over: bool,
}

struct Target<'a> {
    settings: TargetSettings,
    world: World,
    shared: &'a TargetShared,
    connections: Vec<Option<Connection>>,
    open: usize,
}

/// Time for which a target that accepts late, or pauses, does so.
const ABSENCE: Duration = Duration::from_millis(150);

/// Runs a target until it is done.
pub(super) fn run(
    program: Program<'_>,
    io: SimIoSettings,
    settings: TargetSettings,
    shared: &Rc<TargetShared>,
) {
    let world = program.host().world().clone();
    let started = world.now();
    let mut io = program.io(SimIo::new(program.host(), io));
    let mut options = ListenOptions::default();
    options.backlog = settings.backlog;
    let mut target = Target { settings, world, shared, connections: Vec::new(), open: 0 };
    let mut listener = None;
    let mut listens_at = Some(started + target.settings.listens_after);
    let mut pauses_at = target.settings.pauses_after.map(|after| started + after);
    let mut starts_at = None;
    while !shared.is_done.get() {
        let now = io.now();
        if pauses_at.take_if(|at| *at <= now).is_some() {
            listener.take().into_iter().for_each(|token| io.close(token));
            listens_at = Some(now + ABSENCE);
        }
        if listens_at.take_if(|at| *at <= now).is_some() {
            match io.listen(&target.settings.address.into(), &options) {
                Ok(token) => {
                    listener = Some(token);
                    let late = if target.settings.accepts_late { ABSENCE } else { Duration::ZERO };
                    starts_at = Some(now + late);
                }
                Err(error) => return program.report().fail("target", error.to_string()),
            }
        }
        if starts_at.take_if(|at| *at <= now).is_some() {
            listener.into_iter().for_each(|token| io.start(token));
        }
        target.act(&mut io, now);
        let next = [target.next_action(), listens_at, pauses_at, starts_at];
        if io.wait(next.into_iter().flatten().min()).is_err() {
            return;
        }
        while let Some(Completion { token, kind }) = io.next() {
            if Some(token) == listener {
                match kind {
                    CompletionKind::Accepted { token, .. } => target.accept(&mut io, token),
                    CompletionKind::AcceptFailed(_) => {
                        starts_at = Some(io.now() + Duration::from_millis(1));
                    }
                    _ => {}
                }
            } else {
                target.on_completion(&mut io, token, kind);
            }
        }
    }
    listener.into_iter().for_each(|token| io.close(token));
    for connection in target.connections.into_iter().flatten() {
        io.close(connection.token);
    }
}

impl Target<'_> {
    fn draw<T: Copy>(&self, values: &[T]) -> T {
        values[self.world.decide(values.len() as u32) as usize]
    }

    fn accept(&mut self, io: &mut impl Io, token: Token) {
        let Ok(peer) = io.peer_addr(token) else { return io.close(token) };
        if self.open >= MAX_CONNECTIONS {
            return io.close(token);
        }
        let mut record = self.shared.record.borrow_mut();
        if record.connections.insert(peer, TargetConnection::default()).is_some() {
            record.is_ambiguous = true;
        }
        drop(record);
        let slot = token.slot() as usize;
        if slot >= self.connections.len() {
            self.connections.resize_with(slot + 1, || None);
        }
        let mut connection = Connection {
            token,
            peer,
            input: Vec::new(),
            actions: VecDeque::new(),
            planned: 0,
            is_over: false,
        };
        if self.settings.is_faulty {
            let now = io.now();
            match self.world.decide(32) {
                29 => connection.plan_end(now, Action::Close),
                30 => connection.plan_end(now, Action::Reset),
                31 => {
                    let length = connection.planned + 3;
                    connection.planned = length;
                    connection.actions.push_back((now, Action::Send(b"HTT".to_vec())));
                    self.record(peer, |record| {
                        record.items.push(Item {
                            kind: ItemKind::Surplus,
                            status: 0,
                            head_end: length,
                            end: length,
                        });
                    });
                    connection.is_over = true;
                }
                _ => {}
            }
        }
        self.connections[slot] = Some(connection);
        self.open += 1;
        io.start(token);
    }

    fn record(&self, peer: SocketAddr, change: impl FnOnce(&mut TargetConnection)) {
        if let Some(record) = self.shared.record.borrow_mut().connections.get_mut(&peer) {
            change(record);
        }
    }

    fn next_action(&self) -> Option<Time> {
        self.connections
            .iter()
            .flatten()
            .filter_map(|connection| connection.actions.front())
            .map(|(at, _)| *at)
            .min()
    }

    /// Performs the actions that are due.
    fn act(&mut self, io: &mut impl Io, now: Time) {
        for slot in 0..self.connections.len() {
            while let Some(connection) = &mut self.connections[slot]
                && connection.actions.front().is_some_and(|(at, _)| *at <= now)
                && let Some((_, action)) = connection.actions.pop_front()
            {
                let (token, peer) = (connection.token, connection.peer);
                match action {
                    Action::Send(bytes) => {
                        self.record(peer, |record| record.sent += bytes.len() as u64);
                        io.send_now(token, &bytes);
                    }
                    Action::Shutdown => io.shutdown(token),
                    Action::Close => self.end(token, |token| io.close(token)),
                    Action::Reset => self.end(token, |token| io.abort(token)),
                }
            }
        }
    }

    fn end(&mut self, token: Token, close: impl FnOnce(Token)) {
        if let Some(slot) = self.connections.get_mut(token.slot() as usize)
            && slot.take_if(|connection| connection.token == token).is_some()
        {
            self.open -= 1;
            close(token);
        }
    }

    fn on_completion(&mut self, io: &mut impl Io, token: Token, kind: CompletionKind) {
        match kind {
            CompletionKind::Received(bytes) => {
                let slot = token.slot() as usize;
                let Some(Some(mut connection)) = self.connections.get_mut(slot).map(Option::take)
                else {
                    return;
                };
                self.record(connection.peer, |record| record.received += bytes.len() as u64);
                connection.input.extend_from_slice(&bytes);
                while let Some(length) = request_length(&connection.input) {
                    connection.input.drain(..length);
                    let now = io.now();
                    self.record(connection.peer, |record| record.requests.push(now));
                    if !connection.is_over {
                        self.plan(&mut connection, now);
                    }
                }
                let is_long = connection.input.len() > MAX_REQUEST;
                self.connections[slot] = Some(connection);
                if is_long {
                    self.end(token, |token| io.close(token));
                }
            }
            CompletionKind::End
            | CompletionKind::ReceiveFailed(_)
            | CompletionKind::Sent(Err(_)) => self.end(token, |token| io.close(token)),
            _ => {}
        }
        self.act(io, io.now());
    }

    /// Draws the response to a request.
    fn plan(&self, connection: &mut Connection, now: Time) {
        let TargetSettings { timeout, is_slow, is_faulty, max_body, .. } = self.settings;
        let ms = Duration::from_millis;
        let zero = Duration::ZERO;
        let mut delay = zero;
        let mut pause = zero;
        if is_slow {
            delay =
                self.draw(&[zero, zero, zero, ms(1), ms(20), timeout / 2, timeout, timeout * 2]);
            pause = self.draw(&[zero, zero, zero, ms(1), ms(20), timeout / 2]);
            if self.world.decide(64) == 63 {
                connection.is_over = true; // Never answers.
                return;
            }
        }
        let mut status = 200;
        let mut shape = 0;
        let mut fault = 0;
        if is_faulty {
            status = self.draw(&[200, 200, 200, 200, 204, 304, 301, 404, 503, 999]);
            fault = self.world.decide(32);
        }
        if self.world.decide(2) > 0 {
            shape = self.world.decide(4);
        }
        let mut items: Vec<Item> = Vec::new();
        let mut text = String::new();
        let planned = connection.planned;
        let position = |text: &str| planned + text.len() as u64;
        if self.world.decide(16) == 15 {
            text.push_str("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n");
            let end = position(&text);
            items.push(Item { kind: ItemKind::Interim, status: 103, head_end: end, end });
        }
        let has_body = !matches!(status, 204 | 304);
        let body = if has_body { self.world.decide(max_body + 1) as usize } else { 0 };
        let asks_close = self.world.decide(8) == 7;
        let close = if asks_close { "Connection: close\r\n" } else { "" };
        let _ = write!(text, "HTTP/1.1 {status} X\r\n{close}");
        let mut kind = ItemKind::Response { keep_alive: !asks_close };
        let head_end;
        match shape {
            _ if !has_body => {
                text.push_str("\r\n");
                head_end = position(&text);
            }
            1 => {
                text.push_str("Transfer-Encoding: chunked\r\n\r\n");
                head_end = position(&text);
                let mut left = body;
                while left > 0 {
                    let chunk = left.min(1 + self.world.decide(200) as usize);
                    let _ = write!(text, "{chunk:x}\r\n{}\r\n", "c".repeat(chunk));
                    left -= chunk;
                }
                text.push_str("0\r\n\r\n");
            }
            2 => {
                text.push_str("\r\n");
                head_end = position(&text);
                text.push_str(&"u".repeat(body));
                kind = ItemKind::UntilClose;
            }
            _ => {
                let _ = write!(text, "Content-Length: {body}\r\n\r\n");
                head_end = position(&text);
                text.push_str(&"b".repeat(body));
            }
        }
        let end = position(&text);
        items.push(Item { kind, status, head_end, end });
        let mut ending = None;
        match fault {
            26 => {
                // Cuts the response.
                let keep = self.world.decide(text.len() as u32) as usize;
                text.truncate(keep);
                ending = Some(self.draw_ending());
            }
            27 => {
                text = self
                    .draw(&["HTTP/3.0 200 X\r\n\r\n", "X\r\n\r\n", "HTTP/1.1 200 X\r\n: a\r\n\r\n"])
                    .to_owned();
                let end = position(&text);
                items = vec![Item { kind: ItemKind::Malformed, status: 0, head_end: end, end }];
                connection.is_over = true;
            }
            28 if kind != ItemKind::UntilClose => {
                text.push_str("HTTP");
                let end = position(&text);
                items.push(Item { kind: ItemKind::Surplus, status: 0, head_end: end, end });
                connection.is_over = true;
            }
            29 => ending = Some(self.draw_ending()),
            30 => ending = Some(Action::Shutdown),
            31 => {
                text.clear();
                items.clear();
                ending = Some(self.draw_ending());
            }
            _ => {}
        }
        if ending.is_none() {
            ending = match kind {
                ItemKind::UntilClose => Some(Action::Close),
                _ if asks_close => match self.world.decide(3) {
                    0 => Some(Action::Close),
                    1 => Some(Action::Shutdown),
                    _ => None,
                },
                _ => None,
            };
        }
        connection.is_over |= ending.is_some() || asks_close;
        let mut at = connection.actions.back().map_or(now, |(at, _)| *at).max(now) + delay;
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let is_cut = !pause.is_zero() && connection.actions.len() < 16;
            let length =
                if is_cut { 1 + self.world.decide(rest.len() as u32) as usize } else { rest.len() };
            let (piece, after) = rest.split_at(length.min(rest.len()));
            connection.actions.push_back((at, Action::Send(piece.to_vec())));
            at = at + pause;
            rest = after;
        }
        connection.planned += text.len() as u64;
        if let Some(ending) = ending {
            connection.plan_end(at, ending);
        }
        self.record(connection.peer, |record| record.items.extend(items));
    }

    fn draw_ending(&self) -> Action {
        match self.world.decide(3) {
            0 => Action::Close,
            1 => Action::Reset,
            _ => Action::Shutdown,
        }
    }
}

impl Connection {
    fn plan_end(&mut self, at: Time, action: Action) {
        self.actions.push_back((at, action));
        self.is_over = true;
    }
}

/// Returns the length of the request that `input` starts with, if it is complete.
fn request_length(input: &[u8]) -> Option<usize> {
    let head = input.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&input[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let body: usize = length.and_then(|value| value.trim().parse().ok()).unwrap_or(0);
    (input.len() >= head + body).then_some(head + body)
}
