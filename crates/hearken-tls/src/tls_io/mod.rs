//! Operations under TLS: an [`Io`] over an [`Io`].
//!
//! Each connection has a session without I/O. Received records are decrypted in place. Content is
//! encrypted into one buffer, which the transport sends at once; only what its socket does not take
//! is copied. Bodies are encrypted piece by piece as the transport takes them, so a slow reader
//! occupies the memory of one piece. Handshakes are limited per turn, since each takes the time of
//! many requests.
//!
//! Completions that are not reported at once are taken from the connection's state later: the
//! connection is in the queue `ready` while it has some.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hearken::io::{
    Address, CloseMode, Completion, CompletionKind, ConnectOptions, Io, ListenOptions, Outgoing,
    PeekResult, Pool, Relay, Security, SendOutcome, StreamSocket,
};
use hearken::mechanism::Counters;
use hearken::timer::Time;
use hearken::{Token, Waker};

use self::connection::{Closing, Connection, Handshake, Phase, Receiving};
use self::sending::Content;
use crate::session::Wire;
use crate::{ClientTls, ServerTls, SessionInfo, TlsFailure};

mod connection;
mod receiving;
mod sending;

/// Time for which a closed connection waits for its transport to take `close_notify`.
const LINGER: Duration = Duration::from_secs(1);

/// Limits of the work for handshakes and transfers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TlsLimits {
    /// Maximum duration of a handshake, from the connect or accept.
    pub handshake_timeout: Duration,
    /// Number of server handshakes per turn. The others wait until the events of the turn are
    /// handled.
    pub handshakes_per_turn: u32,
    /// Maximum number of server handshakes in progress. At the limit, the oldest one fails as if it had
    /// timed out.
    pub open_handshakes: usize,
    /// Time per turn for large sends.
    pub turn_time: Duration,
}

impl Default for TlsLimits {
    fn default() -> TlsLimits {
        TlsLimits {
            handshake_timeout: Duration::from_secs(10),
            handshakes_per_turn: 4,
            open_handshakes: 1024,
            turn_time: Duration::from_millis(1),
        }
    }
}

/// Operations under TLS over another [`Io`].
///
/// It keeps the contract of [`Io`] for plain connections and for those under TLS, next to each
/// other. These are the differences under TLS:
///
/// * [`Connected`](CompletionKind::Connected) follows the handshake. An accepted connection is
///   reported before its handshake, which needs no [`start`](Io::start).
/// * [`End`](CompletionKind::End) means that the peer sent `close_notify`. A stream that ends
///   without it fails with [`Truncated`](crate::TlsFailure::Truncated).
/// * [`shutdown`](Io::shutdown) and [`close`](Io::close) send `close_notify`, unless sends are
///   incomplete. [`abort`](Io::abort) does not.
/// * A failed handshake is a failed connect, or a failed receive of the accepted connection.
/// * [`release`](Io::release) and [`relay`](Relay::relay) are not possible.
pub struct TlsIo<I> {
    core: Core<I>,
    connections: Table,
    accepts: Option<ServerTls>,
    connects: Option<ClientTls>,
    /// TLS settings that connects select by number.
    profiles: Arc<[ClientTls]>,
    /// Listeners whose connections are under TLS.
    listeners: Vec<(Token, ServerTls)>,
    /// Number of connections that the caller has closed and the transport has not.
    lingering: usize,
    /// A connection that the transport has closed, until the caller has handled its last completion
    /// and may have logged its session.
    ended: Option<Token>,
}

/// The transport, and what all connections share.
struct Core<I> {
    io: I,
    limits: TlsLimits,
    wire: Wire,
    content: Content,
    /// Connections with completions to report.
    ready: VecDeque<Token>,
    /// Connections with large sends that can continue.
    transfers: VecDeque<Token>,
    /// Connections whose handshake can continue.
    handshakes: VecDeque<Token>,
    /// Server handshakes in the order of their accepts, with some that have ended.
    accepted: VecDeque<Token>,
    /// Its clones count the server handshakes in progress.
    open: Rc<()>,
    turn: Turn,
}

/// The state of a turn.
#[derive(Default)]
struct Turn {
    /// Number of handshakes that may continue.
    handshakes: u32,
    /// The end of the time for large sends.
    ends: Time,
    is_time_up: bool,
    /// Whether all completions of the transport were taken.
    is_transport_done: bool,
    /// Whether a queued completion comes before the transport's next one.
    prefers_ready: bool,
    /// Numbers of queued connections that are still served in this turn.
    ready: usize,
    transfers: usize,
    continued: usize,
}

/// The connections under TLS, by the slots of their tokens.
#[derive(Default)]
struct Table(Vec<Option<Box<Connection>>>);

impl Table {
    /// Returns the connection, also if the caller has closed it.
    #[inline]
    fn get_mut(&mut self, token: Token) -> Option<&mut Connection> {
        let connection = self.0.get_mut(token.slot() as usize)?.as_deref_mut()?;
        (connection.token == token).then_some(connection)
    }

    #[inline]
    fn get(&self, token: Token) -> Option<&Connection> {
        let connection = self.0.get(token.slot() as usize)?.as_deref()?;
        (connection.token == token).then_some(connection)
    }

    fn insert(&mut self, connection: Box<Connection>) {
        let slot = connection.token.slot() as usize;
        if slot >= self.0.len() {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some(connection);
    }

    fn remove(&mut self, token: Token) {
        if self.get(token).is_some() {
            self.0[token.slot() as usize] = None;
        }
    }
}

impl<I: Io> TlsIo<I> {
    /// Creates one over `io`. All connections are plain until
    /// [`set_accepts`](TlsIo::set_accepts) or [`set_connects`](TlsIo::set_connects).
    pub fn new(io: I, limits: TlsLimits) -> TlsIo<I> {
        let turn = Turn { handshakes: limits.handshakes_per_turn.max(1), ..Turn::default() };
        TlsIo {
            core: Core {
                io,
                limits,
                wire: Wire::default(),
                content: Content::default(),
                ready: VecDeque::new(),
                transfers: VecDeque::new(),
                handshakes: VecDeque::new(),
                accepted: VecDeque::new(),
                open: Rc::default(),
                turn,
            },
            connections: Table::default(),
            accepts: None,
            connects: None,
            profiles: Arc::default(),
            listeners: Vec::new(),
            lingering: 0,
            ended: None,
        }
    }

    /// Sets whether the connections of later listeners, and sockets that are adopted later, are
    /// under TLS.
    pub fn set_accepts(&mut self, tls: Option<ServerTls>) {
        self.accepts = tls;
    }

    /// Sets whether later connects are under TLS.
    pub fn set_connects(&mut self, tls: Option<ClientTls>) {
        self.connects = tls;
    }

    /// Sets the settings that later connects [select by number](ConnectOptions::tls), from 1.
    pub fn set_profiles(&mut self, profiles: Arc<[ClientTls]>) {
        self.profiles = profiles;
    }

    /// Returns the parameters of a connection's session, once its handshake is complete.
    pub fn session(&self, token: Token) -> Option<SessionInfo<'_>> {
        self.connections.get(token)?.session.info()
    }

    /// Adds an accepted connection, and starts its handshake.
    fn accept(&mut self, token: Token, tls: &ServerTls) -> io::Result<()> {
        let session = tls.session().map_err(io::Error::other)?;
        let mut connection = Connection::new(token, session, Phase::Handshake);
        let open = Rc::clone(&self.core.open);
        self.core.set_handshake_timeout(&mut connection, Some(open));
        self.core.update_receiving(&mut connection);
        self.connections.insert(connection);
        self.limit_handshakes(token);
        Ok(())
    }

    /// Ends the oldest handshake if there are too many with that of `token`.
    fn limit_handshakes(&mut self, token: Token) {
        let TlsIo { core, connections, .. } = self;
        let limit = core.limits.open_handshakes.max(1);
        if core.accepted.len() >= limit.saturating_mul(2) {
            let is_open = |token: &Token| {
                connections.get(*token).is_some_and(|connection| connection.handshake.is_some())
            };
            core.accepted.retain(is_open);
        }
        core.accepted.push_back(token);
        while Rc::strong_count(&core.open) > limit + 1
            && let Some(oldest) = core.accepted.pop_front()
        {
            if let Some(connection) = connections.get_mut(oldest)
                && connection.handshake.is_some()
            {
                core.fail(connection, TlsFailure::Timeout.into());
            }
        }
    }

    /// Removes a connection that the transport has closed.
    fn forget(&mut self, token: Token) {
        if let Some(connection) = self.connections.get(token) {
            self.lingering -= usize::from(connection.closing == Closing::Lingering);
            self.connections.remove(token);
        }
    }

    /// Handles a completion of the transport. Returns the one to report.
    fn on_completion(&mut self, completion: Completion) -> Option<Completion> {
        let Completion { token, kind } = completion;
        let Some(connection) = self.connections.get_mut(token) else {
            if let CompletionKind::Accepted { token: accepted, .. } = kind
                && let Some((_, tls)) = self.listeners.iter().find(|(tls, _)| *tls == token)
            {
                let tls = tls.clone();
                if self.accept(accepted, &tls).is_err() {
                    self.core.io.abort(accepted);
                    return None;
                }
            }
            return Some(Completion { token, kind });
        };
        let is_lingering = connection.closing == Closing::Lingering;
        let report = |kind| Some(Completion { token, kind });
        match kind {
            CompletionKind::Sent(result) => {
                let is_ok = result.is_ok();
                if self.core.on_sent(connection, result) {
                    if is_lingering {
                        self.forget(token);
                        return None;
                    }
                    self.ended = Some(token);
                    return report(CompletionKind::Sent(Ok(())));
                }
                debug_assert!(is_ok || !is_lingering);
                None
            }
            _ if is_lingering => {
                if matches!(kind, CompletionKind::Deadline) {
                    self.core.io.close(token);
                    self.forget(token);
                }
                None
            }
            CompletionKind::Received(buffer) => {
                self.core.on_received(connection, buffer).and_then(report)
            }
            CompletionKind::Connected(Ok(())) => {
                connection.phase = Phase::Handshake;
                self.core.process(connection, None).and_then(report)
            }
            CompletionKind::Connected(Err(error)) => {
                self.core.fail(connection, error);
                None
            }
            CompletionKind::End => {
                self.core.on_ended(connection, None);
                None
            }
            CompletionKind::ReceiveFailed(error) => {
                self.core.on_ended(connection, Some(error));
                None
            }
            CompletionKind::Deadline => {
                let now = self.core.io.now();
                let is_reported = self.core.on_deadline(connection, now);
                is_reported.then_some(Completion { token, kind: CompletionKind::Deadline })
            }
            kind => report(kind),
        }
    }

    /// Takes a completion of the first connection in the queue.
    fn next_ready(&mut self) -> Option<Completion> {
        let token = self.core.ready.pop_front()?;
        let connection = self.connections.get_mut(token)?;
        connection.queued.ready = false;
        let kind = connection.take_completion()?;
        if connection.has_completion() {
            self.core.mark_ready(connection);
        }
        Some(Completion { token, kind })
    }

    /// Continues the first large send in the queue.
    fn next_transfer(&mut self) {
        if let Some(token) = self.core.transfers.pop_front()
            && let Some(connection) = self.connections.get_mut(token)
        {
            connection.queued.transfers = false;
            self.core.send_queued(connection);
        }
    }

    /// Continues the first handshake in the queue.
    fn next_handshake(&mut self) -> Option<Completion> {
        let token = self.core.handshakes.pop_front()?;
        let connection = self.connections.get_mut(token)?;
        connection.queued.handshakes = false;
        let kind = self.core.process(connection, None);
        self.core.update_receiving(connection);
        kind.map(|kind| Completion { token, kind })
    }
}

impl<I: Io> Core<I> {
    fn set_handshake_timeout(&mut self, connection: &mut Connection, open: Option<Rc<()>>) {
        let ends = self.io.now() + self.limits.handshake_timeout;
        connection.handshake = Some(Box::new(Handshake { ends, deadline: None, _open: open }));
        self.io.set_deadline(connection.token, Some(ends));
    }

    /// Handles the end of the handshake.
    fn on_open(&mut self, connection: &mut Connection) {
        self.resume_sending(connection);
        self.notify_close(connection);
    }

    /// Adds the connection to the queue of those with completions.
    fn mark_ready(&mut self, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.queued.ready, true) {
            self.ready.push_back(connection.token);
        }
    }

    fn queue_transfer(&mut self, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.queued.transfers, true) {
            self.transfers.push_back(connection.token);
        }
    }

    /// Makes the handshake wait, and stops receiving meanwhile.
    fn queue_handshake(&mut self, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.queued.handshakes, true) {
            self.handshakes.push_back(connection.token);
        }
        self.update_receiving(connection);
    }
}

impl<I: Io> Io for TlsIo<I> {
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Token> {
        let token = self.core.io.listen(address, options)?;
        self.listeners.extend(self.accepts.clone().map(|tls| (token, tls)));
        Ok(token)
    }

    fn share_listener(&mut self, socket: OwnedFd, options: &ListenOptions) -> io::Result<Token> {
        let token = self.core.io.share_listener(socket, options)?;
        self.listeners.extend(self.accepts.clone().map(|tls| (token, tls)));
        Ok(token)
    }

    fn watch(&mut self, descriptor: OwnedFd) -> io::Result<Token> {
        self.core.io.watch(descriptor)
    }

    fn connect_with(&mut self, address: &Address, options: &ConnectOptions) -> io::Result<Token> {
        let tls = match (options.tls as usize).checked_sub(1) {
            None => self.connects.as_ref(),
            Some(number) => match self.profiles.get(number) {
                None => return Err(io::ErrorKind::InvalidInput.into()),
                profile => profile,
            },
        };
        let Some(tls) = tls else {
            return self.core.io.connect_with(address, options);
        };
        let session = tls.session().map_err(io::Error::other)?;
        let token = self.core.io.connect_with(address, options)?;
        let mut connection = Connection::new(token, session, Phase::Connecting);
        self.core.set_handshake_timeout(&mut connection, None);
        self.connections.insert(connection);
        Ok(token)
    }

    fn adopt(&mut self, socket: StreamSocket) -> io::Result<Token> {
        let token = self.core.io.adopt(socket)?;
        if let Some(tls) = self.accepts.clone()
            && let Err(error) = self.accept(token, &tls)
        {
            self.core.io.close(token);
            return Err(error);
        }
        Ok(token)
    }

    fn release(&mut self, token: Token) -> Option<StreamSocket> {
        match self.connections.get(token) {
            None => self.core.io.release(token),
            Some(_) => None,
        }
    }

    #[inline]
    fn start(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else {
            return self.core.io.start(token);
        };
        connection.is_started = true;
        self.core.update_receiving(connection);
        if connection.has_completion() {
            self.core.mark_ready(connection);
        }
    }

    #[inline]
    fn stop(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else {
            return self.core.io.stop(token);
        };
        connection.is_started = false;
        self.core.update_receiving(connection);
    }

    fn send(&mut self, token: Token, outgoing: Outgoing) {
        match self.connections.get_mut(token) {
            None => self.core.io.send(token, outgoing),
            Some(connection) if connection.closing == Closing::Lingering => {}
            Some(connection) => self.core.send(connection, outgoing),
        }
    }

    #[inline]
    fn send_now(&mut self, token: Token, bytes: &[u8]) -> bool {
        match self.connections.get_mut(token) {
            None => self.core.io.send_now(token, bytes),
            Some(connection) if connection.closing == Closing::Lingering => false,
            Some(connection) => self.core.send_now(connection, bytes),
        }
    }

    #[inline]
    fn send_last(&mut self, token: Token, bytes: &[u8], mode: CloseMode) -> SendOutcome {
        match self.connections.get_mut(token) {
            None => self.core.io.send_last(token, bytes, mode),
            Some(connection) if connection.closing == Closing::Lingering => SendOutcome::Pending,
            Some(connection) => self.core.send_last(connection, bytes, mode),
        }
    }

    fn shutdown(&mut self, token: Token) {
        match self.connections.get_mut(token) {
            None => self.core.io.shutdown(token),
            Some(connection) if connection.closing == Closing::Lingering => {}
            Some(connection) => self.core.shutdown(connection),
        }
    }

    fn close(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else {
            self.listeners.retain(|(listener, _)| *listener != token);
            return self.core.io.close(token);
        };
        if connection.closing == Closing::Lingering {
            return;
        }
        if self.core.close(connection) {
            self.connections.remove(token);
            return;
        }
        connection.received = VecDeque::new();
        connection.is_started = false;
        connection.receiving = Receiving::Over;
        self.lingering += 1;
        let until = self.core.io.now() + LINGER;
        self.core.io.set_deadline(token, Some(until));
        self.core.update_receiving(connection);
    }

    fn abort(&mut self, token: Token) {
        match self.connections.get(token) {
            Some(connection) if connection.closing == Closing::Lingering => {}
            _ => {
                self.connections.remove(token);
                self.listeners.retain(|(listener, _)| *listener != token);
                self.core.io.abort(token);
            }
        }
    }

    #[inline]
    fn set_deadline(&mut self, token: Token, deadline: Option<Time>) {
        let Some(connection) = self.connections.get_mut(token) else {
            return self.core.io.set_deadline(token, deadline);
        };
        if connection.closing == Closing::Lingering {
            return;
        }
        let deadline = match &mut connection.handshake {
            None => deadline,
            Some(handshake) => {
                handshake.deadline = deadline;
                Some(deadline.map_or(handshake.ends, |deadline| deadline.min(handshake.ends)))
            }
        };
        self.core.io.set_deadline(token, deadline);
    }

    fn delivered(&self, token: Token) -> u64 {
        let delivered = self.core.io.delivered(token);
        match self.connections.get(token) {
            None => delivered,
            Some(connection) if connection.closing == Closing::Lingering => 0,
            Some(connection) => connection.delivered(delivered),
        }
    }

    fn undelivered(&self, token: Token) -> u64 {
        if self.is_lingering(token) { 0 } else { self.core.io.undelivered(token) }
    }

    fn socket(&self, token: Token) -> Option<BorrowedFd<'_>> {
        if self.is_lingering(token) { None } else { self.core.io.socket(token) }
    }

    fn local_addr(&self, token: Token) -> io::Result<SocketAddr> {
        if self.is_lingering(token) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.core.io.local_addr(token)
    }

    fn peer_addr(&self, token: Token) -> io::Result<SocketAddr> {
        if self.is_lingering(token) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.core.io.peer_addr(token)
    }

    fn peek(&self, token: Token) -> PeekResult {
        let Some(connection) = self.connections.get(token) else {
            return self.core.io.peek(token);
        };
        match connection.receiving {
            _ if connection.closing == Closing::Lingering => PeekResult::Ended,
            _ if !connection.received.is_empty() => PeekResult::Bytes,
            Receiving::Open => self.core.io.peek(token),
            Receiving::Ended(_) | Receiving::Over => PeekResult::Ended,
        }
    }

    fn security(&self, token: Token) -> Option<Security<'_>> {
        let info = self.session(token)?;
        let mut security = Security::new(info.version.name());
        (security.resumed, security.protocol) = (info.resumed, info.alpn);
        security.client_subject = info.client_subject;
        Some(security)
    }

    fn is_misdirected(&self, token: Token, host: &[u8]) -> bool {
        let connection = self.connections.get(token);
        connection.is_some_and(|connection| connection.session.is_misdirected(host))
    }

    fn reserve(&mut self, connections: usize) {
        self.core.io.reserve(connections);
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        // If the caller abandoned the last turn, its large sends make progress nevertheless.
        if !self.core.transfers.is_empty() && !self.core.turn.is_transport_done {
            self.next_transfer();
        }
        let core = &mut self.core;
        let has_work =
            !(core.ready.is_empty() && core.transfers.is_empty() && core.handshakes.is_empty());
        let until = if has_work { Some(core.io.now()) } else { until };
        core.io.wait(until)?;
        core.turn = Turn {
            handshakes: core.limits.handshakes_per_turn.max(1),
            ends: core.io.now() + core.limits.turn_time,
            prefers_ready: core.turn.prefers_ready,
            ..Turn::default()
        };
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        if let Some(token) = self.ended.take() {
            self.forget(token);
        }
        while !self.core.turn.is_transport_done {
            if std::mem::take(&mut self.core.turn.prefers_ready)
                && let Some(completion) = self.next_ready()
            {
                return Some(completion);
            }
            let Some(completion) = self.core.io.next() else {
                let Core { turn, ready, transfers, handshakes, .. } = &mut self.core;
                turn.is_transport_done = true;
                (turn.ready, turn.transfers) = (ready.len(), transfers.len());
                turn.continued = handshakes.len();
                break;
            };
            self.core.turn.prefers_ready = true;
            if let Some(completion) = self.on_completion(completion) {
                return Some(completion);
            }
        }
        self.next_queued()
    }

    #[inline]
    fn now(&self) -> Time {
        self.core.io.now()
    }

    #[inline]
    fn clock(&self) -> Time {
        self.core.io.clock()
    }

    #[inline]
    fn unix_time(&self) -> Duration {
        self.core.io.unix_time()
    }

    #[inline]
    fn pool(&self) -> &Pool {
        self.core.io.pool()
    }

    fn waker(&self) -> Waker {
        self.core.io.waker()
    }

    fn counters(&self) -> Counters {
        self.core.io.counters()
    }

    fn open_count(&self) -> usize {
        self.core.io.open_count() - self.lingering
    }
}

impl<I: Io> TlsIo<I> {
    /// Serves the queues after the transport's completions: each connection once per turn.
    fn next_queued(&mut self) -> Option<Completion> {
        while self.core.turn.ready > 0 {
            self.core.turn.ready -= 1;
            if let Some(completion) = self.next_ready() {
                return Some(completion);
            }
        }
        while self.core.turn.continued > 0 && self.core.turn.handshakes > 0 {
            self.core.turn.continued -= 1;
            if let Some(completion) = self.next_handshake() {
                return Some(completion);
            }
        }
        while self.core.turn.transfers > 0 {
            self.core.turn.transfers -= 1;
            self.next_transfer();
            if self.core.turn.is_time_up {
                self.core.turn.transfers = 0;
            }
        }
        None
    }

    fn is_lingering(&self, token: Token) -> bool {
        let connection = self.connections.get(token);
        connection.is_some_and(|connection| connection.closing == Closing::Lingering)
    }
}

impl<I: Relay> Relay for TlsIo<I> {
    fn relay(&mut self, from: Token, to: Token, max: u64) -> bool {
        let is_plain = [from, to].iter().all(|token| self.connections.get(*token).is_none());
        is_plain && self.core.io.relay(from, to, max)
    }

    fn relayed(&self, from: Token) -> u64 {
        self.core.io.relayed(from)
    }

    fn relay_is_blocked(&self, to: Token) -> bool {
        self.core.io.relay_is_blocked(to)
    }
}

impl<I: fmt::Debug> fmt::Debug for TlsIo<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIo").field("io", &self.core.io).finish_non_exhaustive()
    }
}
