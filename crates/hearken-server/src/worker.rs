//! One event loop: accepting, receiving, answering, deadlines, limits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hearken::Token;
use hearken::io::{Body, Buffer, CompletionKind, Io, Outgoing, SendOutcome, Then};
use hearken::timer::Time;
use hearken_http::{BodyReader, DateCache, Reject, RequestParser, ResponseHead};

use crate::config::Config;
use crate::connection::{Connection, Flags, Pending, Phase};
use crate::runtime::acceptor::Door;
use crate::runtime::access_log::{AccessLog, End, Outcome, Rejected};
use crate::runtime::clock::unix_seconds;
use crate::runtime::rate::{is_too_slow, least};
use crate::runtime::server::{self, Seat};
use crate::static_files::Site;

/// How long, and for how many bytes, a connection that was refused may go on sending.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 256 * 1024;
/// Answers to pipelined requests are gathered up to this size, in bytes.
const GATHER: usize = 12 * 1024;
/// How often files that are kept open are looked through for those that nobody asks for.
const TIDY: Duration = Duration::from_secs(5);

pub(crate) struct Worker<I: Io> {
    io: I,
    site: Site,
    config: Config,
    log: Option<AccessLog>,
    /// Client addresses by slot, if there is a log.
    peers: Vec<Option<IpAddr>>,
    date: DateCache,
    door: Door,
    /// By the slot of their tokens.
    connections: Vec<Connection>,
    stop: Arc<AtomicBool>,
    /// When the site is to be tidied next; never, while it has nothing to tidy.
    tidy_at: Option<Time>,
    /// Until when a connection may be idle that becomes so in this turn.
    idle_until: Time,
    /// Where answers are put together; empty but while that is done.
    out: Vec<u8>,
    /// Once it is to stop: when its patience ends.
    grace_ends: Option<Time>,
}

impl<I: Io> server::Worker for Worker<I> {
    fn addr(&self) -> io::Result<SocketAddr> {
        self.door.addr(&self.io)
    }

    fn now(&self) -> Time {
        self.io.now()
    }

    fn turn(&mut self, until: Option<Time>) -> io::Result<bool> {
        let mut any = false;
        self.io.wait([until, self.tidy_at].into_iter().flatten().min())?;
        if self.grace_ends.is_none() && self.stop.load(Ordering::Acquire) {
            self.begin_to_stop();
        }
        if self.tidy_at.is_some_and(|at| self.io.now() >= at) {
            self.tidy_at = self.site.tidy().then(|| self.io.now() + TIDY);
        }
        self.date.update(unix_seconds());
        self.idle_until = self.io.now() + self.config.timeouts.idle;
        self.site.new_turn();
        while let Some(completion) = self.io.next() {
            let on = completion.token;
            any = true;
            match completion.kind {
                CompletionKind::Received(bytes) => self.on_received(on, bytes),
                CompletionKind::Sent(Ok(())) => self.on_sent(on),
                CompletionKind::Accepted { token: connection, .. } => self.on_accepted(connection),
                CompletionKind::End => self.on_end(on),
                CompletionKind::Deadline => self.on_deadline(on),
                CompletionKind::AcceptFailed(error) | CompletionKind::ReceiveFailed(error)
                    if self.door.is(on) =>
                {
                    self.door.failed(&mut self.io, &error);
                }
                // A truncated file is among these: the length was promised, so all that is left is
                // to end before it.
                CompletionKind::Sent(Err(_)) | CompletionKind::ReceiveFailed(_) => self.close(on),
                _ => {}
            }
        }
        if let Some(log) = &mut self.log {
            log.flush();
        }
        if self.tidy_at.is_none() && self.site.cached().1 > 0 {
            self.tidy_at = Some(self.io.now() + TIDY);
        }
        Ok(any)
    }

    fn begin_to_stop(&mut self) -> Time {
        self.door.shut();
        *self.grace_ends.get_or_insert(self.io.now() + self.config.timeouts.grace)
    }

    fn let_go(&mut self) {
        self.door.close(&mut self.io);
        for slot in 0..self.connections.len() {
            let Connection { token, phase, .. } = self.connections[slot];
            if phase == Phase::Head && self.connections[slot].backlog() == 0 {
                self.close(token);
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.door.count() == 0
    }
}

impl<I: Io> Worker<I> {
    pub(crate) fn new(
        mut io: I,
        site: Site,
        log: Option<AccessLog>,
        config: &Config,
        seat: &Seat,
    ) -> io::Result<Worker<I>> {
        let share = seat.share;
        let door = Door::open(&mut io, seat, &config.loops, false)?;
        io.reserve(share.connections);
        Ok(Worker {
            idle_until: io.now(),
            out: Vec::new(),
            io,
            site,
            log,
            peers: Vec::new(),
            config: config.clone(),
            date: DateCache::new(unix_seconds()),
            door,
            connections: Vec::with_capacity(share.connections),
            stop: seat.stop.clone(),
            tidy_at: None,
            grace_ends: None,
        })
    }

    fn on_accepted(&mut self, on: Token) {
        let slot = on.slot() as usize;
        if slot >= self.connections.len() {
            let vacant = || Connection { phase: Phase::Vacant, ..Connection::new(on) };
            self.connections.resize_with(slot + 1, vacant);
        }
        self.connections[slot] = Connection::new(on);
        if self.log.is_some() {
            if slot >= self.peers.len() {
                self.peers.resize(slot + 1, None);
            }
            self.peers[slot] = self.io.peer_addr(on).ok().map(|peer| peer.ip());
        }
        self.door.entered(&mut self.io);
        self.io.set_deadline(on, Some(self.io.now() + self.config.timeouts.head));
        self.io.start(on);
    }

    fn close(&mut self, on: Token) {
        let connection = &mut self.connections[on.slot() as usize];
        connection.phase = Phase::Vacant;
        connection.pending = None;
        self.io.close(on);
        self.door.left(&mut self.io);
    }

    fn on_received(&mut self, on: Token, bytes: Buffer) {
        let connection = &mut self.connections[on.slot() as usize];
        match connection.phase {
            Phase::Head if connection.pending.is_none() => {
                let mut parser = RequestParser::new();
                let used = self.answer(on, &bytes, &mut parser);
                if used < bytes.len() {
                    let pending = self.connections[on.slot() as usize].pending();
                    pending.bytes.extend_from_slice(&bytes[used..]);
                    pending.parser = parser;
                }
                self.settle(on, true);
            }
            Phase::Head => {
                connection.pending().bytes.extend_from_slice(&bytes);
                drop(bytes);
                self.go_on(on, false);
            }
            Phase::Body => {
                connection.pending().bytes.extend_from_slice(&bytes);
                drop(bytes);
                self.discard_body(on);
            }
            Phase::Sending => {
                connection.pending().bytes.extend_from_slice(&bytes);
                connection.flags.insert(Flags::STOPPED | Flags::LINGER);
                self.io.stop(on);
            }
            Phase::Lingering => {
                let pending = connection.pending();
                pending.discarded += bytes.len();
                if pending.discarded > LINGER_BYTES {
                    self.close(on);
                }
            }
            Phase::Vacant => {}
        }
    }

    /// Goes on with what was kept; whose time begins now if it is `new`.
    fn go_on(&mut self, on: Token, new: bool) {
        let connection = &mut self.connections[on.slot() as usize];
        let Some(mut pending) = connection.pending.take() else { return };
        let Pending { bytes, parser, due, .. } = &mut *pending;
        *due = None;
        let used = self.answer(on, bytes, parser);
        if used < bytes.len() {
            bytes.drain(..used);
            self.connections[on.slot() as usize].pending = Some(pending);
        }
        self.settle(on, new || used > 0);
    }

    /// Answers the requests that are whole, and tells how many bytes they took.
    #[inline]
    fn answer(&mut self, on: Token, bytes: &[u8], parser: &mut RequestParser) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let parsed = parser.parse(&bytes[used..], &self.config.limits);
            // By reference, as it is large enough that a move is a copy.
            let request = match &parsed {
                Ok(Some(request)) => request,
                Ok(None) => break,
                Err(reject) => {
                    self.refuse(on, &bytes[used..], *reject);
                    return bytes.len();
                }
            };
            if request.body != hearken_http::Body::None {
                // What was asked before is answered before.
                if !self.out.is_empty() && !self.send(on, Body::None) {
                    return used;
                }
                let (head, body, expects) =
                    (request.head_len, request.body, request.expect_continue);
                self.begin_body(on, &bytes[used..], head, body, expects);
                return bytes.len();
            }
            used += request.head_len;
            let more = used < bytes.len();
            let keep_alive = request.keep_alive && self.grace_ends.is_none();
            let answer = self.site.answer(request, &self.date, keep_alive, &mut self.out);
            if let Some(log) = &mut self.log {
                let end = End {
                    peer: self.peers[on.slot() as usize],
                    status: answer.status,
                    sent: answer.length,
                    ..End::default()
                };
                log.request(&self.date, Some(request), None, &end);
            }
            let (ready, body) = (answer.ready, answer.body);
            let connection = &mut self.connections[on.slot() as usize];
            if !keep_alive {
                connection.close_after(request.keep_alive || more);
            }
            if !ready.is_empty() && self.out.is_empty() && !(keep_alive && more) {
                // By far the most common, and sent from where it is kept.
                let done = give(&mut self.io, on, ready, &mut connection.flags);
                self.sent_now(on, done);
                return bytes.len(); // What comes after the last answer is not looked at.
            }
            self.out.extend_from_slice(ready);
            if keep_alive && self.out.len() < GATHER && matches!(body, Body::None) {
                continue;
            }
            let goes_on = self.send(on, body);
            if !keep_alive {
                return bytes.len();
            }
            if !goes_on {
                return used;
            }
        }
        if !self.out.is_empty() {
            self.send(on, Body::None);
        }
        used
    }

    /// Sends what was put together and then `body`, and tells whether that is done and the connection
    /// is for the next request.
    fn send(&mut self, on: Token, body: Body) -> bool {
        if matches!(body, Body::None) {
            let flags = &mut self.connections[on.slot() as usize].flags;
            let done = give(&mut self.io, on, &self.out, flags);
            self.out.clear();
            return self.sent_now(on, done);
        }
        let mut head = self.io.pool().lend_beyond();
        head.as_vec().append(&mut self.out);
        self.send_completing(on, Outgoing { head, body });
        false
    }

    /// Sends what is told of when it is sent.
    fn send_completing(&mut self, on: Token, what: Outgoing) {
        let connection = &mut self.connections[on.slot() as usize];
        connection.phase = Phase::Sending;
        connection.sends += 1;
        self.io.set_deadline(on, Some(self.io.now() + self.config.timeouts.send));
        self.io.send(on, what);
    }

    #[inline(always)]
    fn sent_now(&mut self, on: Token, done: bool) -> bool {
        let connection = &mut self.connections[on.slot() as usize];
        if done {
            connection.flags.insert(Flags::SERVED);
            if !connection.flags.contains(Flags::CLOSE) {
                return true;
            }
            self.end(on);
        } else {
            connection.phase = Phase::Sending;
            connection.sends += 1;
        }
        false
    }

    /// Answers what cannot be understood, or not be served, and closes.
    #[cold]
    fn refuse(&mut self, on: Token, input: &[u8], reject: Reject) {
        refusal(reject, &self.date, &mut self.out);
        if let Some(log) = &mut self.log {
            let end = End {
                peer: self.peers[on.slot() as usize],
                status: reject.status,
                sent: reject.reason.len() as u64 + 1,
                how: Outcome::BadRequest,
                ..End::default()
            };
            log.request(&self.date, None, Some(Rejected { input, reason: reject.reason }), &end);
        }
        let connection = &mut self.connections[on.slot() as usize];
        connection.close_after(true);
        connection.pending = None;
        // It may have been refused because its deadline had passed.
        self.io.set_deadline(on, Some(self.io.now() + self.config.timeouts.send));
        self.send(on, Body::None);
    }

    /// Discards a request's body, which begins after the `head` bytes of `bytes`, before it is
    /// answered: a body that is malformed makes the request so.
    fn begin_body(
        &mut self,
        on: Token,
        bytes: &[u8],
        head: usize,
        body: hearken_http::Body,
        expects: bool,
    ) {
        let reader = match BodyReader::new(body, self.config.body_limit, &self.config.limits) {
            Ok(reader) => reader,
            Err(reject) => return self.refuse(on, bytes, reject),
        };
        let connection = &mut self.connections[on.slot() as usize];
        connection.phase = Phase::Body;
        let pending = connection.pending();
        pending.bytes.extend_from_slice(bytes);
        pending.body = Some((reader, head));
        self.io.set_deadline(on, Some(self.io.now() + self.config.timeouts.body));
        if expects && bytes.len() == head {
            connection.sends += 1;
            let mut head = self.io.pool().lend_beyond();
            head.as_vec().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            self.io.send(on, Outgoing { head, body: Body::None });
        }
        self.discard_body(on);
    }

    fn discard_body(&mut self, on: Token) {
        let connection = &mut self.connections[on.slot() as usize];
        let Some(Pending { bytes, body: Some((reader, head)), .. }) =
            connection.pending.as_deref_mut()
        else {
            return;
        };
        let head = *head;
        let mut at = head;
        while at < bytes.len() && !reader.is_done() {
            match reader.next(&bytes[at..]) {
                Ok(piece) => at += piece.consumed,
                Err(reject) => {
                    let input = std::mem::take(bytes);
                    return self.refuse(on, &input, reject);
                }
            }
        }
        bytes.drain(head..at);
        if reader.is_done() {
            self.answer_after_body(on, head);
        }
    }

    fn answer_after_body(&mut self, on: Token, head: usize) {
        let connection = &mut self.connections[on.slot() as usize];
        let Some(mut pending) = connection.pending.take() else { return };
        let Ok(Some(request)) =
            RequestParser::default().parse(&pending.bytes[..head], &self.config.limits)
        else {
            return self.close(on); // It was parsed before.
        };
        let more = head < pending.bytes.len();
        let keep_alive = request.keep_alive && self.grace_ends.is_none();
        let mut out = self.io.pool().lend_beyond();
        let out_vec = out.as_vec();
        let answer = self.site.answer(&request, &self.date, keep_alive, out_vec).append_to(out_vec);
        if let Some(log) = &mut self.log {
            let end = End {
                peer: self.peers[on.slot() as usize],
                status: answer.status,
                sent: answer.length,
                ..End::default()
            };
            log.request(&self.date, Some(&request), None, &end);
        }
        let connection = &mut self.connections[on.slot() as usize];
        if !keep_alive {
            connection.close_after(request.keep_alive || more);
        }
        let body = answer.body;
        pending.bytes.drain(..head);
        pending.body = None;
        connection.pending = more.then_some(pending);
        self.send_completing(on, Outgoing { head: out, body });
    }

    fn on_sent(&mut self, on: Token) {
        let connection = &mut self.connections[on.slot() as usize];
        connection.sends -= 1;
        if connection.sends > 0 || connection.phase != Phase::Sending {
            return;
        }
        if connection.flags.contains(Flags::CLOSE) {
            return self.end(on);
        }
        connection.phase = Phase::Head;
        connection.flags.insert(Flags::SERVED);
        if connection.backlog() > 0 {
            self.go_on(on, true);
        } else {
            connection.pending = None;
            self.settle(on, true);
        }
    }

    /// Waits for a request, or for the rest of one. Its time begins now if all that was asked is
    /// answered, or what is there of it is `new`.
    #[inline(always)]
    fn settle(&mut self, on: Token, new: bool) {
        let connection = &mut self.connections[on.slot() as usize];
        if !matches!(connection.phase, Phase::Head | Phase::Body) {
            return;
        }
        let in_body = connection.phase == Phase::Body;
        let idle = !in_body && connection.backlog() == 0;
        if connection.flags.intersects(Flags::ENDED | Flags::STOPPED) | self.grace_ends.is_some() {
            if connection.flags.contains(Flags::ENDED) {
                // What is missing will not come.
                return self.close(on);
            }
            if idle && self.door.is_closed() {
                return self.linger(on);
            }
            if connection.flags.contains(Flags::STOPPED) {
                connection.flags.remove(Flags::STOPPED);
                self.io.start(on);
            }
        }
        if in_body {
            return;
        }
        // A new connection's head has had its deadline since the accept.
        if new && self.connections[on.slot() as usize].flags.contains(Flags::SERVED) {
            let until =
                if idle { self.idle_until } else { self.io.now() + self.config.timeouts.head };
            self.io.set_deadline(on, Some(until));
        }
    }

    /// Ends a connection whose last answer was sent.
    fn end(&mut self, on: Token) {
        let flags = self.connections[on.slot() as usize].flags;
        let lingers = flags & (Flags::LINGER | Flags::ENDED | Flags::CLOSES) == Flags::LINGER;
        if lingers {
            self.linger(on);
        } else {
            self.close(on);
        }
    }

    /// Tells the client that there is no more, and lets it finish: closing at once would reset the
    /// connection for what it still sends, and the reset may overtake the answer.
    fn linger(&mut self, on: Token) {
        let connection = &mut self.connections[on.slot() as usize];
        connection.phase = Phase::Lingering;
        connection.pending = None;
        if connection.flags.contains(Flags::STOPPED) {
            self.io.start(on);
        }
        self.io.shutdown(on);
        self.io.set_deadline(on, Some(self.io.now() + LINGER));
    }

    fn on_end(&mut self, on: Token) {
        let connection = &mut self.connections[on.slot() as usize];
        connection.flags.insert(Flags::ENDED);
        // One that is half-closed still gets the whole of its answer.
        if connection.phase != Phase::Sending {
            self.close(on);
        }
    }

    fn on_deadline(&mut self, on: Token) {
        if self.door.is(on) {
            return self.door.retry(&mut self.io);
        }
        let connection = &mut self.connections[on.slot() as usize];
        match connection.phase {
            Phase::Head if connection.backlog() == 0 => self.close(on),
            Phase::Head | Phase::Body => {
                let late = Reject { status: 408, reason: "the request took too long" };
                let input = std::mem::take(&mut connection.pending().bytes);
                self.refuse(on, &input, late);
            }
            Phase::Sending => {
                let delivered = self.io.delivered(on);
                let span = self.config.timeouts.send;
                let least = least(self.config.min_rate, span);
                if is_too_slow(&mut connection.pending().due, delivered, least) {
                    self.io.abort(on);
                    self.close(on);
                } else {
                    self.io.set_deadline(on, Some(self.io.now() + span));
                }
            }
            Phase::Lingering => self.close(on),
            Phase::Vacant => {}
        }
    }
}

/// Gives `bytes` away, and tells whether that is done.
#[inline(always)]
fn give<I: Io>(io: &mut I, on: Token, bytes: &[u8], flags: &mut Flags) -> bool {
    if flags.contains(Flags::CLOSE) {
        return give_last(io, on, bytes, flags);
    }
    io.send_now(on, bytes)
}

#[inline(never)]
fn give_last<I: Io>(io: &mut I, on: Token, bytes: &[u8], flags: &mut Flags) -> bool {
    if flags.contains(Flags::LINGER) {
        return io.send_last(on, bytes, Then::Shutdown) == SendOutcome::Complete;
    }
    let last = io.send_last(on, bytes, Then::Close);
    flags.set(Flags::CLOSES, last == SendOutcome::PendingClose);
    last == SendOutcome::Complete
}

/// Appends the answer to what was no request.
fn refusal(reject: Reject, date: &DateCache, out: &mut Vec<u8>) {
    let text = reject.reason.as_bytes();
    ResponseHead::new(out, reject.status)
        .date(date)
        .field("Content-Type", "text/plain; charset=utf-8")
        .content_length(text.len() as u64 + 1)
        .connection_close()
        .end();
    out.extend_from_slice(text);
    out.push(b'\n');
}
