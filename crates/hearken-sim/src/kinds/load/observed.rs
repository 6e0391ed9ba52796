//! Records what a worker of the load does with its `Io`.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Address, CloseMode, Completion, CompletionKind, ConnectOptions, Io};
use hearken::io::{ListenOptions, Outgoing, PeekResult, Pool, SendOutcome};
use hearken::mechanism::Counters;
use hearken::timer::Time;
use hearken::waker::Waker;

/// An event of a connection of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Connected,
    NotConnected,
    /// A number of requests in a number of bytes. `at_once` is whether the worker sent them when
    /// the connection was established.
    Sent {
        requests: u32,
        bytes: u64,
        at_once: bool,
        order: u64,
    },
    Received(u64),
    End,
    Failed,
    Deadline,
    Closed,
}

/// A connection of the load.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) opened_at: Time,
    /// Position of the connection attempt among all connection attempts and sends.
    pub(super) order: u64,
    /// The local address, once the connection is established.
    pub(super) local: Option<SocketAddr>,
    /// The events, with the time of the turn, or of the clock for what was sent.
    pub(super) events: Vec<(Time, Event)>,
    /// Time at which the worker ended, if the connection was still open.
    pub(super) dropped_at: Option<Time>,
}

/// The operations of the workers.
#[derive(Debug, Default)]
pub(in crate::kinds) struct Observations {
    pub(super) connections: Vec<Observed>,
    /// Number of connection attempts and sends.
    pub(super) actions: u64,
    /// Maximum time by which a wait ended late.
    pub(in crate::kinds) max_overshoot: Duration,
    /// Number of connections that could not be opened at all.
    pub(super) unopened: u64,
    /// Number of open connections of all workers, and their maximum.
    pub(super) open: usize,
    pub(super) peak: usize,
    /// Time at which the last worker ended.
    pub(in crate::kinds) ended_at: Option<Time>,
}

impl Observations {
    fn next_action(&mut self) -> u64 {
        self.actions += 1;
        self.actions
    }
}

/// An `Io` that records what its user does.
#[derive(Debug)]
pub(super) struct Observer<I: Io> {
    io: I,
    all: Rc<RefCell<Observations>>,
    /// Index of the connection by slot.
    by_slot: Vec<Option<usize>>,
    /// The connection that the last completion established.
    just_connected: Option<Token>,
    /// The time that the worker read last. Each reading takes a moment.
    last_read: Cell<Time>,
}

impl<I: Io> Observer<I> {
    pub(super) fn new(io: I, all: &Rc<RefCell<Observations>>) -> Observer<I> {
        let last_read = Cell::new(io.now());
        Observer { io, all: all.clone(), by_slot: Vec::new(), just_connected: None, last_read }
    }

    fn record(&self, token: Token, at: Time, event: Event) {
        if let Some(Some(index)) = self.by_slot.get(token.slot() as usize) {
            self.all.borrow_mut().connections[*index].events.push((at, event));
        }
    }

    fn record_sent(&mut self, token: Token, bytes: &[u8]) {
        let requests = bytes.windows(4).filter(|window| window == b"\r\n\r\n").count() as u32;
        let at_once = self.just_connected == Some(token);
        let order = self.all.borrow_mut().next_action();
        let event = Event::Sent { requests, bytes: bytes.len() as u64, at_once, order };
        self.record(token, self.io.now().max(self.last_read.get()), event);
    }

    fn record_closed(&mut self, token: Token) {
        self.record(token, self.io.now(), Event::Closed);
        if let Some(slot) = self.by_slot.get_mut(token.slot() as usize)
            && slot.take().is_some()
        {
            self.all.borrow_mut().open -= 1;
        }
    }
}

impl<I: Io> Drop for Observer<I> {
    fn drop(&mut self) {
        let mut all = self.all.borrow_mut();
        for index in self.by_slot.iter().flatten() {
            all.connections[*index].dropped_at = Some(self.io.now().max(self.last_read.get()));
        }
    }
}

impl<I: Io> Io for Observer<I> {
    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        self.just_connected = None;
        let before = self.io.now().max(self.last_read.get());
        self.io.wait(until)?;
        if let Some(until) = until {
            let late = self.io.now().duration_since(until.max(before));
            let mut all = self.all.borrow_mut();
            all.max_overshoot = all.max_overshoot.max(late);
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Completion> {
        self.just_connected = None;
        let completion = self.io.next()?;
        let token = completion.token;
        let event = match &completion.kind {
            CompletionKind::Connected(Ok(())) => {
                self.just_connected = Some(token);
                if let Some(Some(index)) = self.by_slot.get(token.slot() as usize) {
                    self.all.borrow_mut().connections[*index].local =
                        self.io.local_addr(token).ok();
                }
                Some(Event::Connected)
            }
            CompletionKind::Connected(Err(_)) => Some(Event::NotConnected),
            CompletionKind::Received(bytes) => Some(Event::Received(bytes.len() as u64)),
            CompletionKind::End => Some(Event::End),
            CompletionKind::ReceiveFailed(_) | CompletionKind::Sent(Err(_)) => Some(Event::Failed),
            CompletionKind::Deadline => Some(Event::Deadline),
            _ => None,
        };
        if let Some(event) = event {
            self.record(token, self.io.now(), event);
        }
        Some(completion)
    }

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Token> {
        self.io.listen(address, options)
    }

    fn connect_with(&mut self, address: &Address, options: &ConnectOptions) -> io::Result<Token> {
        let connected = self.io.connect_with(address, options);
        let mut all = self.all.borrow_mut();
        match &connected {
            Ok(token) => {
                let slot = token.slot() as usize;
                if slot >= self.by_slot.len() {
                    self.by_slot.resize(slot + 1, None);
                }
                self.by_slot[slot] = Some(all.connections.len());
                let opened_at = self.io.now();
                let order = all.next_action();
                all.connections.push(Observed {
                    opened_at,
                    order,
                    local: None,
                    events: Vec::new(),
                    dropped_at: None,
                });
                all.open += 1;
                all.peak = all.peak.max(all.open);
            }
            Err(_) => all.unopened += 1,
        }
        drop(all);
        connected
    }

    fn start(&mut self, token: Token) {
        self.io.start(token);
    }

    fn stop(&mut self, token: Token) {
        self.io.stop(token);
    }

    fn send(&mut self, token: Token, outgoing: Outgoing) {
        self.record_sent(token, &outgoing.head);
        self.io.send(token, outgoing);
    }

    fn send_now(&mut self, token: Token, bytes: &[u8]) -> bool {
        self.record_sent(token, bytes);
        self.io.send_now(token, bytes)
    }

    fn send_last(&mut self, token: Token, bytes: &[u8], mode: CloseMode) -> SendOutcome {
        self.record_sent(token, bytes);
        self.io.send_last(token, bytes, mode)
    }

    fn shutdown(&mut self, token: Token) {
        self.io.shutdown(token);
    }

    fn close(&mut self, token: Token) {
        self.record_closed(token);
        self.io.close(token);
    }

    fn abort(&mut self, token: Token) {
        self.record_closed(token);
        self.io.abort(token);
    }

    fn set_deadline(&mut self, token: Token, deadline: Option<Time>) {
        self.io.set_deadline(token, deadline);
    }

    fn delivered(&self, token: Token) -> u64 {
        self.io.delivered(token)
    }

    fn undelivered(&self, token: Token) -> u64 {
        self.io.undelivered(token)
    }

    fn socket(&self, token: Token) -> Option<BorrowedFd<'_>> {
        self.io.socket(token)
    }

    fn local_addr(&self, token: Token) -> io::Result<SocketAddr> {
        self.io.local_addr(token)
    }

    fn peer_addr(&self, token: Token) -> io::Result<SocketAddr> {
        self.io.peer_addr(token)
    }

    fn peek(&self, token: Token) -> PeekResult {
        self.io.peek(token)
    }

    fn reserve(&mut self, connections: usize) {
        self.io.reserve(connections);
    }

    fn now(&self) -> Time {
        self.io.now()
    }

    fn clock(&self) -> Time {
        let now = self.io.clock();
        self.last_read.set(now);
        now
    }

    fn unix_time(&self) -> Duration {
        self.io.unix_time()
    }

    fn pool(&self) -> &Pool {
        self.io.pool()
    }

    fn waker(&self) -> Waker {
        self.io.waker()
    }

    fn counters(&self) -> Counters {
        self.io.counters()
    }

    fn open_count(&self) -> usize {
        self.io.open_count()
    }
}
