//! [`Io`] over simulated sockets, with every freedom that the contract of [`Io`] allows.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bytes::Buf;
use rustix::io::Errno;

use super::World;
use super::host::{Host, SocketId};
use crate::event::Token;
use crate::io::shared::NO_TOKEN;
use crate::io::{Address, Body, CloseMode, Completion, CompletionKind, ConnectOptions, Io};
use crate::io::{ListenOptions, Outgoing, PeekResult, Pool, Relay, RelayEnd, SendOutcome};
use crate::mechanism::Counters;
use crate::timer::{Time, Wheel};
use crate::waker::Waker;

/// Settings of a [`SimIo`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SimIoSettings {
    /// Maximum number of buffers in use.
    pub buffers: usize,
    /// Size of a buffer in bytes.
    pub buffer_size: usize,
    /// Number of bytes of a connection per turn after which it continues in the next turn.
    pub turn_bytes: usize,
    /// The faults.
    pub faults: Faults,
}

impl Default for SimIoSettings {
    fn default() -> SimIoSettings {
        SimIoSettings {
            buffers: 4096,
            buffer_size: 16 * 1024,
            turn_bytes: 64 * 1024,
            faults: Faults::default(),
        }
    }
}

/// Probabilities, in thousandths, of what the contract of [`Io`] allows an implementation to do.
/// The default is that nothing of this happens.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Faults {
    /// A receive yields fewer bytes than are available.
    pub short_receives: u32,
    /// A send that could be performed at once is queued, or only partly performed.
    pub deferred_sends: u32,
    /// The next of several ready sockets is not the first.
    pub reordering: u32,
    /// A wait returns without a completion.
    pub early_waits: u32,
    /// After [`stop`](Io::stop), one more receive completes.
    pub receives_after_stop: u32,
    /// Accepting fails with `EMFILE`, `ENFILE`, `ENOBUFS` or `ENOMEM`.
    pub accept_failures: u32,
    /// Listening or connecting fails at once with `EMFILE`, `ENOBUFS`, `EADDRNOTAVAIL` or similar.
    pub open_failures: u32,
    /// A receive or a send fails with `ENOBUFS`, `ENOMEM` or `ETIMEDOUT`.
    pub transfer_failures: u32,
    /// A relay is cancelled by a receive that was in progress.
    pub cancelled_relays: u32,
    /// The implementation closes the connection after the last send.
    pub linked_closes: u32,
}

/// An [`Io`] over a simulated [`Host`].
#[derive(Debug)]
pub struct SimIo {
    host: Host,
    settings: SimIoSettings,
    slots: Vec<Slot>,
    free: Vec<u32>,
    open: usize,
    /// The tokens of sockets, by the index of the socket.
    tokens: Vec<Option<Token>>,
    pool: Pool,
    wheel: Wheel,
    now: Time,
    counters: Counters,
    /// Completions of operations that completed immediately.
    done: VecDeque<Completion>,
    /// Sockets that may continue in this turn, and in the next.
    turn: VecDeque<Token>,
    later: VecDeque<Token>,
    /// Connections that wait for a buffer.
    waiting_for_buffer: VecDeque<Token>,
    turn_ended: bool,
    changes: Vec<SocketId>,
    /// Bytes of a file that is being sent.
    file_buffer: Vec<u8>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

/// The state of a listener or connection.
#[derive(Debug)]
struct Socket {
    id: SocketId,
    is_listener: bool,
    reports_peers: bool,
    is_connecting: bool,
    is_started: bool,
    /// Whether one more receive completes although the connection was stopped.
    receives_once: bool,
    /// Whether the end of the stream or a failure was reported.
    has_ended: bool,
    has_send_failed: bool,
    is_queued: bool,
    waits_for_buffer: bool,
    /// Number of bytes transferred in this turn.
    used: usize,
    sent: u64,
    sends: VecDeque<Outgoing>,
    /// Whether the connection is closed after the last send.
    closes_after_sends: bool,
    relay: Option<RelayState>,
    /// The connection from which a relay sends to this one.
    relay_source: Option<Token>,
}

/// A relay that receives from a connection.
#[derive(Debug)]
struct RelayState {
    to: Token,
    remaining: u64,
    moved: u64,
    /// Received bytes that the target has not taken.
    held: VecDeque<u8>,
    is_blocked: bool,
}

/// Maximum number of bytes that are read from a file at a time.
const FILE_BUFFER: usize = 64 * 1024;
/// Maximum number of bytes that a relay holds.
const RELAY_BUFFER: usize = 64 * 1024;

impl Socket {
    fn new(id: SocketId) -> Socket {
        Socket {
            id,
            is_listener: false,
            reports_peers: false,
            is_connecting: false,
            is_started: false,
            receives_once: false,
            has_ended: false,
            has_send_failed: false,
            is_queued: false,
            waits_for_buffer: false,
            used: 0,
            sent: 0,
            sends: VecDeque::new(),
            closes_after_sends: false,
            relay: None,
            relay_source: None,
        }
    }

    fn receives(&self) -> bool {
        (self.is_started || self.receives_once) && !self.has_ended && self.relay.is_none()
    }
}

/// The progress of a send.
enum Progress {
    Complete,
    Blocked,
    /// The connection reached its limit of this turn.
    Yielded,
    Failed(io::Error),
}

impl SimIo {
    /// Creates an instance over a host, which nothing else uses.
    pub fn new(host: &Host, settings: SimIoSettings) -> SimIo {
        let now = host.clock();
        SimIo {
            host: host.clone(),
            settings: SimIoSettings { turn_bytes: settings.turn_bytes.max(1), ..settings },
            slots: Vec::new(),
            free: Vec::new(),
            open: 0,
            tokens: Vec::new(),
            pool: Pool::new(settings.buffers, settings.buffer_size),
            wheel: Wheel::new(now),
            now,
            counters: Counters::default(),
            done: VecDeque::new(),
            turn: VecDeque::new(),
            later: VecDeque::new(),
            waiting_for_buffer: VecDeque::new(),
            turn_ended: true,
            changes: Vec::new(),
            file_buffer: Vec::new(),
        }
    }

    /// Returns the host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    fn world(&self) -> &World {
        self.host.world()
    }

    fn has_fault(&self, per_mille: u32) -> bool {
        per_mille > 0 && self.world().has_fault(per_mille)
    }

    fn insert(&mut self, socket: Socket) -> Token {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, socket: None });
            self.slots.len() as u32 - 1
        });
        let token = Token::new(slot, self.slots[slot as usize].generation);
        let index = socket.id.index();
        if index >= self.tokens.len() {
            self.tokens.resize(index + 1, None);
        }
        self.tokens[index] = Some(token);
        self.slots[slot as usize].socket = Some(socket);
        self.open += 1;
        token
    }

    fn get(&self, token: Token) -> Option<&Socket> {
        let slot = self.slots.get(token.slot() as usize)?;
        slot.socket.as_ref().filter(|_| slot.generation == token.generation())
    }

    fn get_mut(&mut self, token: Token) -> Option<&mut Socket> {
        let slot = self.slots.get_mut(token.slot() as usize)?;
        slot.socket.as_mut().filter(|_| slot.generation == token.generation())
    }

    fn remove(&mut self, token: Token) -> Option<Socket> {
        self.get(token)?;
        let slot = &mut self.slots[token.slot() as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let socket = slot.socket.take()?;
        self.free.push(token.slot());
        self.tokens[socket.id.index()] = None;
        self.wheel.cancel(token.slot());
        self.open -= 1;
        Some(socket)
    }

    /// Queues a socket that may be able to continue.
    fn enqueue(&mut self, token: Token) {
        let Some(socket) = self.get_mut(token) else { return };
        if !std::mem::replace(&mut socket.is_queued, true) {
            self.turn.push_back(token);
        }
    }

    /// Queues a socket for the next turn.
    fn enqueue_later(&mut self, token: Token) {
        let Some(socket) = self.get_mut(token) else { return };
        if !std::mem::replace(&mut socket.is_queued, true) {
            self.later.push_back(token);
        }
    }

    fn take_changes(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        self.host.take_changes(&mut changes);
        for id in changes.drain(..) {
            if let Some(token) = self.tokens.get(id.index()).copied().flatten()
                && self.get(token).is_some_and(|socket| socket.id == id)
            {
                self.enqueue(token);
            }
        }
        self.changes = changes;
    }

    /// Returns whether this turn yields a completion without waiting, as far as that is known.
    fn has_work(&self) -> bool {
        let has_buffer = !self.waiting_for_buffer.is_empty() && !self.pool.is_exhausted();
        !self.done.is_empty() || !self.turn.is_empty() || has_buffer
    }

    fn complete(&mut self, token: Token, kind: CompletionKind) {
        self.done.push_back(Completion { token, kind });
    }

    /// Records a completion in the trace of the world.
    fn trace(&self, Completion { token, kind }: &Completion) {
        let (code, number) = match kind {
            CompletionKind::Accepted { token, .. } => (1, token.to_bits()),
            CompletionKind::AcceptFailed(_) => (2, 0),
            CompletionKind::Connected(result) => (3, u64::from(result.is_ok())),
            CompletionKind::Received(bytes) => (4, bytes.len() as u64),
            CompletionKind::End => (5, 0),
            CompletionKind::ReceiveFailed(_) => (6, 0),
            CompletionKind::Sent(result) => (7, u64::from(result.is_ok())),
            CompletionKind::Relayed { moved, .. } => (8, *moved),
            CompletionKind::Deadline => (9, 0),
            CompletionKind::Woken => (10, 0),
            CompletionKind::Readable => (11, 0),
        };
        self.world().record(self.host.index(), [code, token.to_bits(), number], || {
            format!("{token:?} {kind:?}")
        });
    }

    // Sending.

    /// Sends as much of the pending sends as the socket takes.
    fn resume_sending(&mut self, token: Token) {
        let limit = self.settings.turn_bytes;
        while let Some(socket) = self.get_mut(token)
            && let Some(mut outgoing) = socket.sends.pop_front()
        {
            if socket.is_connecting {
                socket.sends.push_front(outgoing);
                return;
            }
            let progress = if socket.used >= limit {
                Progress::Yielded
            } else {
                self.transmit(token, &mut outgoing)
            };
            match progress {
                Progress::Complete => self.complete(token, CompletionKind::Sent(Ok(()))),
                Progress::Failed(error) => return self.fail_sends(token, error),
                Progress::Blocked | Progress::Yielded => {
                    if let Some(socket) = self.get_mut(token) {
                        socket.sends.push_front(outgoing);
                    }
                    if matches!(progress, Progress::Yielded) {
                        self.enqueue_later(token);
                    }
                    return;
                }
            }
        }
    }

    fn fail_sends(&mut self, token: Token, error: io::Error) {
        let Some(socket) = self.get_mut(token) else { return };
        socket.has_send_failed = true;
        socket.sends.clear();
        socket.closes_after_sends = false;
        self.complete(token, CompletionKind::Sent(Err(error)));
    }

    fn transmit(&mut self, token: Token, outgoing: &mut Outgoing) -> Progress {
        if self.has_fault(self.settings.faults.transfer_failures) {
            return Progress::Failed(self.transfer_error().into());
        }
        loop {
            let Some(socket) = self.get(token) else { return Progress::Blocked };
            let (id, used) = (socket.id, socket.used);
            if used >= self.settings.turn_bytes {
                return Progress::Yielded;
            }
            let sent = if !outgoing.head.is_empty() {
                self.host.send(id, &outgoing.head)
            } else {
                match &outgoing.body {
                    Body::None => return Progress::Complete,
                    Body::Bytes(bytes) if bytes.is_empty() => return Progress::Complete,
                    Body::Bytes(bytes) => self.host.send(id, bytes),
                    Body::File(part) if part.length == 0 => return Progress::Complete,
                    Body::File(part) => {
                        let space = self.host.send_space(id).min(FILE_BUFFER) as u64;
                        let most = space.min(part.length).max(1) as usize;
                        self.file_buffer.resize(self.file_buffer.len().max(most), 0);
                        let buffer = &mut self.file_buffer[..most];
                        match rustix::io::pread(&*part.file, &mut *buffer, part.offset) {
                            Ok(0) => {
                                return Progress::Failed(io::ErrorKind::UnexpectedEof.into());
                            }
                            Ok(count) => self.host.send(id, &buffer[..count]),
                            Err(errno) => Err(errno),
                        }
                    }
                }
            };
            match sent {
                Ok(count) => {
                    if let Some(socket) = self.get_mut(token) {
                        socket.sent += count as u64;
                        socket.used += count;
                    }
                    if outgoing.head.is_empty() {
                        match &mut outgoing.body {
                            Body::None => {}
                            Body::Bytes(bytes) => bytes.advance(count),
                            Body::File(part) => {
                                part.offset += count as u64;
                                part.length -= count as u64;
                            }
                        }
                    } else {
                        outgoing.head.consume(count);
                        if outgoing.head.is_empty() {
                            outgoing.head.release(); // The body may take long.
                        }
                    }
                }
                Err(Errno::AGAIN) => return Progress::Blocked,
                Err(errno) => return Progress::Failed(errno.into()),
            }
        }
    }

    fn transfer_error(&self) -> Errno {
        [Errno::NOBUFS, Errno::NOMEM, Errno::TIMEDOUT][self.world().decide(3) as usize]
    }

    /// Sends `bytes` now, as far as the socket takes them. Returns the number of bytes taken.
    fn try_send(&mut self, token: Token, bytes: &[u8]) -> usize {
        let deferred = self.has_fault(self.settings.faults.deferred_sends);
        let most =
            if deferred { self.world().decide(bytes.len() as u32) as usize } else { bytes.len() };
        let limit = self.settings.turn_bytes;
        let Some(socket) = self.get(token) else { return 0 };
        let is_prevented = socket.is_connecting
            || socket.has_send_failed
            || socket.closes_after_sends
            || !socket.sends.is_empty()
            || socket.used >= limit;
        if is_prevented || most == 0 {
            return 0;
        }
        let taken = self.host.send(socket.id, &bytes[..most]).unwrap_or(0);
        if let Some(socket) = self.get_mut(token) {
            socket.sent += taken as u64;
            socket.used += taken;
        }
        taken
    }

    // Turns.

    /// Continues a socket. It may yield a completion, and more of them into `done`.
    fn resume(&mut self, token: Token) -> Option<Completion> {
        let socket = self.get_mut(token)?;
        socket.is_queued = false;
        if socket.is_listener {
            return if socket.is_started { self.accept(token) } else { None };
        }
        if socket.is_connecting {
            let id = socket.id;
            let result = self.host.connect_result(id)?;
            if let Some(socket) = self.get_mut(token) {
                socket.is_connecting = false;
            }
            self.enqueue(token);
            let kind = CompletionKind::Connected(result.map_err(Into::into));
            return Some(Completion { token, kind });
        }
        if !socket.sends.is_empty() {
            self.resume_sending(token);
        }
        if let Some(source) = self.get(token).and_then(|socket| socket.relay_source) {
            self.resume_relay(source);
        }
        let socket = self.get(token)?;
        if socket.relay.is_some() {
            self.resume_relay(token);
            return None;
        }
        if socket.receives() { self.receive(token) } else { None }
    }

    fn accept(&mut self, token: Token) -> Option<Completion> {
        let socket = self.get(token)?;
        let (id, reports_peers) = (socket.id, socket.reports_peers);
        let accepted = if self.host.peek_listener(id)
            && self.has_fault(self.settings.faults.accept_failures)
        {
            let errors = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
            Err(errors[self.world().decide(4) as usize])
        } else {
            self.host.accept(id)
        };
        let kind = match accepted {
            Ok((id, peer)) => {
                let accepted = self.insert(Socket::new(id));
                // More connections may be waiting.
                self.enqueue(token);
                let peer = peer.filter(|_| reports_peers).map(Box::new);
                CompletionKind::Accepted { token: accepted, peer }
            }
            Err(Errno::AGAIN | Errno::CONNABORTED) => return None,
            Err(errno) => {
                self.get_mut(token)?.is_started = false;
                CompletionKind::AcceptFailed(errno.into())
            }
        };
        Some(Completion { token, kind })
    }

    fn receive(&mut self, token: Token) -> Option<Completion> {
        let limit = self.settings.turn_bytes;
        let socket = self.get_mut(token)?;
        if socket.used >= limit {
            self.enqueue_later(token);
            return None;
        }
        let id = socket.id;
        let available = match self.host.peek(id) {
            PeekResult::Nothing => return None,
            PeekResult::Bytes => self.host.readable_bytes(id),
            PeekResult::Ended => 0,
        };
        let kind = if available > 0 {
            if self.has_fault(self.settings.faults.transfer_failures) {
                CompletionKind::ReceiveFailed(self.transfer_error().into())
            } else {
                let Some(mut buffer) = self.pool.acquire() else {
                    self.wait_for_buffer(token);
                    return None;
                };
                let mut count = available.min(self.pool.size());
                if count > 1 && self.has_fault(self.settings.faults.short_receives) {
                    count = 1 + self.world().decide(count as u32 - 1) as usize;
                }
                let bytes = buffer.as_vec();
                bytes.resize(count, 0);
                let count = self.host.recv(id, bytes).unwrap_or(0);
                bytes.truncate(count);
                let socket = self.get_mut(token)?;
                socket.used += count;
                CompletionKind::Received(buffer)
            }
        } else {
            match self.host.recv(id, &mut [0]) {
                Ok(_) => CompletionKind::End,
                Err(errno) => CompletionKind::ReceiveFailed(errno.into()),
            }
        };
        let socket = self.get_mut(token)?;
        socket.receives_once = false;
        if matches!(kind, CompletionKind::Received(_)) {
            self.enqueue(token);
        } else {
            (socket.is_started, socket.has_ended) = (false, true);
        }
        Some(Completion { token, kind })
    }

    fn wait_for_buffer(&mut self, token: Token) {
        let Some(socket) = self.get_mut(token) else { return };
        if !std::mem::replace(&mut socket.waits_for_buffer, true) {
            self.waiting_for_buffer.push_back(token);
        }
    }

    /// Returns the first connection that waits for a buffer, if a buffer is available.
    fn next_with_buffer(&mut self) -> Option<Token> {
        while !self.pool.is_exhausted()
            && let Some(token) = self.waiting_for_buffer.pop_front()
        {
            if let Some(socket) = self.get_mut(token) {
                socket.waits_for_buffer = false;
                if socket.receives() && !socket.is_listener {
                    return Some(token);
                }
            }
        }
        None
    }

    /// Removes the next socket of this turn from the queue.
    fn next_in_turn(&mut self) -> Option<Token> {
        if self.turn.len() > 1 && self.has_fault(self.settings.faults.reordering) {
            let index = self.world().decide(self.turn.len() as u32) as usize;
            return self.turn.remove(index);
        }
        self.turn.pop_front()
    }

    // Relays.

    /// Continues the relay that receives from `from`.
    fn resume_relay(&mut self, from: Token) {
        let Some(mut relay) = self.get_mut(from).and_then(|socket| socket.relay.take()) else {
            return;
        };
        let ended = self.advance_relay(from, &mut relay);
        match ended {
            Some(ended) => {
                if let Some(target) = self.get_mut(relay.to) {
                    target.relay_source = None;
                }
                if let Some(source) = self.get_mut(from) {
                    source.has_ended |= matches!(ended, RelayEnd::End | RelayEnd::ReceiveFailed(_));
                }
                self.complete(from, CompletionKind::Relayed { moved: relay.moved, ended });
            }
            None => {
                if let Some(source) = self.get_mut(from) {
                    source.relay = Some(relay);
                }
            }
        }
    }

    fn advance_relay(&mut self, from: Token, relay: &mut RelayState) -> Option<RelayEnd> {
        let (source, limit) = (self.get(from)?.id, self.settings.turn_bytes);
        loop {
            let Some(target) = self.get(relay.to) else { return Some(target_closed()) };
            if target.has_send_failed {
                return Some(RelayEnd::SendFailed(Errno::PIPE.into()));
            }
            let (to, is_busy) = (target.id, !target.sends.is_empty());
            relay.is_blocked = false;
            while !relay.held.is_empty() {
                if is_busy {
                    return None; // Previous sends come first.
                }
                match self.host.send(to, relay.held.make_contiguous()) {
                    Ok(count) => {
                        relay.held.drain(..count);
                        relay.moved += count as u64;
                        if let Some(target) = self.get_mut(relay.to) {
                            target.sent += count as u64;
                        }
                    }
                    Err(Errno::AGAIN) => {
                        relay.is_blocked = true;
                        return None;
                    }
                    Err(errno) => return Some(RelayEnd::SendFailed(errno.into())),
                }
            }
            if relay.remaining == 0 {
                return Some(RelayEnd::Complete);
            }
            if self.get(from)?.used >= limit {
                self.enqueue_later(from);
                return None;
            }
            let most = relay.remaining.min(RELAY_BUFFER.min(limit) as u64) as usize;
            let mut bytes = vec![0; most];
            match self.host.recv(source, &mut bytes) {
                Ok(0) => return Some(RelayEnd::End),
                Ok(count) => {
                    relay.held.extend(&bytes[..count]);
                    relay.remaining -= count as u64;
                    if let Some(socket) = self.get_mut(from) {
                        socket.used += count;
                    }
                }
                Err(Errno::AGAIN) => return None,
                Err(errno) => return Some(RelayEnd::ReceiveFailed(errno.into())),
            }
        }
    }

    fn close_with(&mut self, token: Token, resets: bool) {
        let Some(socket) = self.remove(token) else { return };
        if resets {
            self.host.reset(socket.id);
        } else {
            self.host.close(socket.id);
        }
        if let Some(relay) = socket.relay
            && let Some(target) = self.get_mut(relay.to)
        {
            target.relay_source = None;
        }
        if let Some(source) = socket.relay_source {
            let relay = self.get_mut(source).and_then(|source| source.relay.take());
            let moved = relay.map_or(0, |relay| relay.moved);
            self.complete(source, CompletionKind::Relayed { moved, ended: target_closed() });
        }
    }

    fn open_fault(&self) -> io::Result<()> {
        if self.has_fault(self.settings.faults.open_failures) {
            let errors = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::ADDRNOTAVAIL];
            return Err(errors[self.world().decide(4) as usize].into());
        }
        Ok(())
    }
}

impl Drop for SimIo {
    /// Closes all sockets, as the end of a process does.
    fn drop(&mut self) {
        for socket in self.slots.iter_mut().filter_map(|slot| slot.socket.take()) {
            self.host.close(socket.id);
        }
    }
}

/// Returns the reason for the end of a relay whose target was closed.
fn target_closed() -> RelayEnd {
    RelayEnd::SendFailed(io::ErrorKind::NotConnected.into())
}

impl Io for SimIo {
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Token> {
        self.open_fault()?;
        let id = self.host.listen(address, options)?;
        let reports_peers = options.peers && address.is_inet();
        Ok(self.insert(Socket { is_listener: true, reports_peers, ..Socket::new(id) }))
    }

    fn connect_with(&mut self, address: &Address, options: &ConnectOptions) -> io::Result<Token> {
        self.open_fault()?;
        let id = self.host.connect(address, options)?;
        let is_connecting = address.is_inet();
        let token = self.insert(Socket { is_connecting, ..Socket::new(id) });
        if !is_connecting {
            self.complete(token, CompletionKind::Connected(Ok(())));
        }
        Ok(token)
    }

    fn start(&mut self, token: Token) {
        let Some(socket) = self.get_mut(token) else { return };
        if !socket.has_ended && socket.relay.is_none() {
            socket.is_started = true;
            self.enqueue(token);
        }
    }

    fn stop(&mut self, token: Token) {
        let more = self.has_fault(self.settings.faults.receives_after_stop);
        let Some(socket) = self.get_mut(token) else { return };
        if socket.is_started {
            socket.is_started = false;
            socket.receives_once = more && !socket.is_listener;
            self.enqueue(token);
        }
    }

    fn send(&mut self, token: Token, mut outgoing: Outgoing) {
        let Some(socket) = self.get_mut(token) else { return };
        if socket.has_send_failed || socket.closes_after_sends {
            return;
        }
        // Bytes that wait take no place in the pool.
        outgoing.head.detach();
        let is_first = socket.sends.is_empty();
        socket.sends.push_back(outgoing);
        if !is_first {
            return;
        }
        if self.has_fault(self.settings.faults.deferred_sends) {
            self.enqueue(token);
        } else {
            self.resume_sending(token);
        }
    }

    fn send_now(&mut self, token: Token, bytes: &[u8]) -> bool {
        let taken = self.try_send(token, bytes);
        if taken == bytes.len() && self.get(token).is_some() && taken > 0 {
            return true;
        }
        let rest = Outgoing::copy(&self.pool, &bytes[taken..]);
        self.send(token, rest);
        false
    }

    fn send_last(&mut self, token: Token, bytes: &[u8], mode: CloseMode) -> SendOutcome {
        let is_open = self.get(token).is_some_and(|socket| !socket.has_send_failed);
        if mode == CloseMode::Close && is_open && self.has_fault(self.settings.faults.linked_closes)
        {
            let outgoing = Outgoing::copy(&self.pool, bytes);
            self.send(token, outgoing);
            if let Some(socket) = self.get_mut(token)
                && !socket.has_send_failed
            {
                socket.closes_after_sends = true;
                return SendOutcome::PendingClose;
            }
            return SendOutcome::Pending;
        }
        if self.send_now(token, bytes) { SendOutcome::Complete } else { SendOutcome::Pending }
    }

    fn shutdown(&mut self, token: Token) {
        let Some(id) = self.get(token).map(|socket| socket.id) else { return };
        self.host.shutdown(id);
        self.enqueue(token);
    }

    fn close(&mut self, token: Token) {
        self.close_with(token, false);
    }

    fn abort(&mut self, token: Token) {
        self.close_with(token, true);
    }

    fn set_deadline(&mut self, token: Token, deadline: Option<Time>) {
        if self.get(token).is_some() {
            self.wheel.set(token.slot(), deadline);
        }
    }

    fn delivered(&self, token: Token) -> u64 {
        let sent = self.get(token).map_or(0, |socket| socket.sent);
        sent.saturating_sub(self.undelivered(token))
    }

    fn undelivered(&self, token: Token) -> u64 {
        self.get(token).map_or(0, |socket| self.host.undelivered(socket.id))
    }

    /// Returns `None`: a simulated socket has no descriptor.
    fn socket(&self, _token: Token) -> Option<BorrowedFd<'_>> {
        None
    }

    fn local_addr(&self, token: Token) -> io::Result<SocketAddr> {
        let socket = self.get(token).ok_or(io::ErrorKind::NotConnected)?;
        self.host.local_addr(socket.id)
    }

    fn peer_addr(&self, token: Token) -> io::Result<SocketAddr> {
        let socket = self.get(token).ok_or(io::ErrorKind::NotConnected)?;
        self.host.peer_addr(socket.id)
    }

    fn peek(&self, token: Token) -> PeekResult {
        self.get(token).map_or(PeekResult::Ended, |socket| self.host.peek(socket.id))
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        if !self.turn_ended {
            return Ok(());
        }
        self.turn_ended = false;
        self.counters.waits += 1;
        self.host.begin_wait();
        for _ in 0..self.later.len() {
            if let Some(token) = self.later.pop_front()
                && self.get(token).is_some()
            {
                self.turn.push_back(token);
            }
        }
        self.take_changes();
        let deadline = [self.wheel.next_deadline(), until].into_iter().flatten().min();
        if !self.has_work()
            && !self.host.is_ready()
            && deadline.is_none_or(|deadline| self.world().now() < deadline)
            && !self.has_fault(self.settings.faults.early_waits)
        {
            self.host.block(deadline);
            self.take_changes();
        }
        for index in 0..self.turn.len() {
            let token = self.turn[index];
            if let Some(socket) = self.get_mut(token) {
                socket.used = 0;
            }
        }
        self.now = self.host.clock();
        self.counters.empty_waits += u64::from(!self.has_work());
        if self.host.take_wake_up() {
            self.done.push_back(Completion { token: NO_TOKEN, kind: CompletionKind::Woken });
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            while let Some(completion) = self.done.pop_front() {
                let Completion { token, kind } = &completion;
                if *token != NO_TOKEN && self.get(*token).is_none() {
                    continue;
                }
                if let CompletionKind::Sent(Ok(())) = kind
                    && let Some(socket) = self.get(*token)
                    && socket.closes_after_sends
                    && socket.sends.is_empty()
                    && !self.done.iter().any(|other| {
                        other.token == *token && matches!(other.kind, CompletionKind::Sent(_))
                    })
                {
                    self.close_with(*token, false);
                }
                self.counters.events += 1;
                self.trace(&completion);
                return Some(completion);
            }
            let completion = if let Some(token) = self.next_with_buffer() {
                self.receive(token)
            } else if let Some(token) = self.next_in_turn() {
                self.resume(token)
            } else if let Some(slot) = self.wheel.pop_expired(self.now) {
                let generation = self.slots[slot as usize].generation;
                let token = Token::new(slot, generation);
                Some(Completion { token, kind: CompletionKind::Deadline })
            } else {
                self.turn_ended = true;
                return None;
            };
            if let Some(completion) = completion {
                // Completions of the same step come in the order in which they were made.
                self.done.push_back(completion);
            }
        }
    }

    fn now(&self) -> Time {
        self.now
    }

    fn clock(&self) -> Time {
        self.host.clock()
    }

    fn unix_time(&self) -> Duration {
        self.host.unix_time()
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn waker(&self) -> Waker {
        self.host.waker()
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn open_count(&self) -> usize {
        self.open
    }
}

impl Relay for SimIo {
    fn relay(&mut self, from: Token, to: Token, max: u64) -> bool {
        let (Some(source), Some(target)) = (self.get(from), self.get(to)) else { return false };
        let is_possible = from != to
            && !source.is_listener
            && !source.is_connecting
            && !source.has_ended
            && source.relay.is_none()
            && !target.is_listener
            && !target.is_connecting
            && !target.has_send_failed
            && !target.closes_after_sends
            && target.relay_source.is_none();
        if !is_possible {
            return false;
        }
        let has_received = self.done.iter().any(|Completion { token, kind }| {
            *token == from && matches!(kind, CompletionKind::Received(_))
        });
        let cancels = source.is_started
            && !has_received
            && self.has_fault(self.settings.faults.cancelled_relays);
        if let Some(source) = self.get_mut(from) {
            source.is_started = false;
            // The receive that is complete or in progress is reported instead.
            if has_received {
                return true;
            }
            if cancels {
                source.receives_once = true;
                self.enqueue(from);
                return true;
            }
            source.receives_once = false;
            let held = VecDeque::new();
            source.relay =
                Some(RelayState { to, remaining: max, moved: 0, held, is_blocked: false });
        }
        if let Some(target) = self.get_mut(to) {
            target.relay_source = Some(from);
        }
        self.enqueue(from);
        true
    }

    fn relayed(&self, from: Token) -> u64 {
        self.get(from).and_then(|socket| socket.relay.as_ref()).map_or(0, |relay| relay.moved)
    }

    fn relay_is_blocked(&self, to: Token) -> bool {
        let source = self.get(to).and_then(|target| target.relay_source);
        let relay = source.and_then(|source| self.get(source)?.relay.as_ref());
        relay.is_some_and(|relay| relay.is_blocked)
    }
}
