//! An `Io` that checks each completion against the contract.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::event::Token;
use crate::io::{Address, CloseMode, Completion, CompletionKind, ConnectOptions, Io};
use crate::io::{
    ListenOptions, Outgoing, PeekResult, Pool, Relay, RelayEnd, Security, SendOutcome, StreamSocket,
};
use crate::mechanism::Counters;
use crate::timer::Time;
use crate::waker::Waker;

/// A wrapper of an [`Io`] that panics when the implementation violates the contract.
#[derive(Debug)]
pub struct Checked<I> {
    io: I,
    open_sockets: Records,
}

/// The records of open sockets, by the slots of their tokens.
#[derive(Debug, Default)]
struct Records {
    slots: Vec<Slot>,
    count: usize,
}

#[derive(Debug, Default)]
struct Slot {
    /// The record of the last generation, if its token is open.
    record: Option<Record>,
    /// All generations so far.
    generations: Vec<u32>,
}

impl Records {
    fn insert(&mut self, token: Token, record: Record) {
        let index = token.slot() as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let slot = &mut self.slots[index];
        assert!(!slot.generations.contains(&token.generation()), "{token:?} is reused");
        assert!(slot.record.is_none(), "the slot of {token:?} is in use");
        slot.generations.push(token.generation());
        slot.record = Some(record);
        self.count += 1;
    }

    fn slot_mut(&mut self, token: Token) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(token.slot() as usize)?;
        (slot.generations.last() == Some(&token.generation())).then_some(slot)
    }

    fn get_mut(&mut self, token: Token) -> Option<&mut Record> {
        self.slot_mut(token)?.record.as_mut()
    }

    fn remove(&mut self, token: Token) {
        let removed = self.slot_mut(token).and_then(|slot| slot.record.take());
        self.count -= usize::from(removed.is_some());
    }
}

/// The state of a listener or connection.
#[derive(Debug, Default)]
struct Record {
    listener: bool,
    connecting: bool,
    /// Whether it is a Unix socket, which is connected before this is reported.
    unix: bool,
    /// Whether it is started.
    started: bool,
    /// Whether it was ever started.
    was_started: bool,
    /// Whether `End` or `ReceiveFailed` was reported.
    ended: bool,
    /// Number of pending sends.
    sends: usize,
    /// Whether the implementation closes it after the last send.
    closes: bool,
    broken: bool,
    deadline: Option<Time>,
    /// Maximum number of bytes that a relay moves from it, and the target of the relay.
    relays: Option<(u64, Token)>,
}

impl<I: Io> Checked<I> {
    /// Wraps `io`.
    ///
    /// # Panics
    /// Panics if `io` has open sockets.
    pub fn new(io: I) -> Checked<I> {
        assert_eq!(io.open_count(), 0);
        Checked { io, open_sockets: Records::default() }
    }

    /// Returns the wrapped implementation.
    pub fn get_ref(&self) -> &I {
        &self.io
    }

    fn insert(&mut self, token: Token, record: Record) {
        self.open_sockets.insert(token, record);
        self.check_open_count();
    }

    fn record_immediate_send(&mut self, token: Token, done: bool) -> bool {
        match self.open_sockets.get_mut(token) {
            Some(record) if done => {
                assert!(
                    !record.broken && (record.unix || !record.connecting),
                    "sent without a connection"
                );
            }
            Some(record) => record.sends += 1,
            None => assert!(!done, "sent on a closed token"),
        }
        done
    }

    fn check_open_count(&self) {
        assert_eq!(self.io.open_count(), self.open_sockets.count, "open() returns a wrong number");
    }

    fn check(&mut self, Completion { token, kind }: &Completion) {
        if matches!(kind, CompletionKind::Woken) {
            return;
        }
        let now = self.io.now();
        let Some(record) = self.open_sockets.get_mut(*token) else {
            panic!("{kind:?} on {token:?}, which is closed or was never open");
        };
        if record.listener {
            match kind {
                CompletionKind::Accepted { .. } => {
                    assert!(record.started, "accepted while stopped");
                }
                CompletionKind::AcceptFailed(_) => assert!(std::mem::take(&mut record.started)),
                CompletionKind::Deadline => {}
                _ => panic!("{kind:?} on a listener"),
            }
        } else if record.connecting && !matches!(kind, CompletionKind::Deadline) {
            assert!(matches!(kind, CompletionKind::Connected(_)), "{kind:?} before Connected");
        }
        if matches!(
            kind,
            CompletionKind::Received(_) | CompletionKind::End | CompletionKind::ReceiveFailed(_)
        ) {
            record.relays = None; // It came instead of the relay's completion.
        }
        match kind {
            CompletionKind::Relayed { moved, ended } => {
                let (max, _) = record.relays.take().expect("no relay is active");
                assert!(!record.ended, "relayed after the end");
                match ended {
                    RelayEnd::Complete => assert_eq!(*moved, max),
                    RelayEnd::End | RelayEnd::ReceiveFailed(_) => record.ended = true,
                    RelayEnd::SendFailed(_) => {}
                }
                assert!(*moved <= max);
            }
            CompletionKind::Accepted { token, .. } => self.insert(*token, Record::default()),
            CompletionKind::Connected(_) => {
                assert!(std::mem::take(&mut record.connecting), "{kind:?}");
            }
            CompletionKind::Received(bytes) => {
                assert!(record.was_started, "received before start");
                assert!(!record.ended, "received after the end");
                assert!(!bytes.is_empty(), "received nothing");
            }
            CompletionKind::End | CompletionKind::ReceiveFailed(_) => {
                assert!(record.was_started, "{kind:?} before start");
                assert!(!std::mem::replace(&mut record.ended, true), "a second {kind:?}");
            }
            CompletionKind::Sent(result) => {
                assert!(!record.broken, "{kind:?} after a failed send");
                assert!(record.sends > 0, "{kind:?} without a pending send");
                record.sends -= 1;
                record.broken = result.is_err();
                if record.closes && record.sends == 0 && result.is_ok() {
                    self.open_sockets.remove(*token);
                }
            }
            CompletionKind::Readable => {
                assert!(std::mem::take(&mut record.started), "readable while stopped");
            }
            CompletionKind::Deadline => {
                let deadline = record.deadline.take().expect("no deadline was set");
                assert!(now >= deadline, "{:?} early", deadline - now);
            }
            _ => {}
        }
        self.check_open_count();
    }
}

impl<I: Io> Io for Checked<I> {
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Token> {
        let token = self.io.listen(address, options);
        match token {
            Ok(token) => {
                let listener = true;
                self.insert(token, Record { listener, ..Record::default() });
            }
            Err(_) => self.check_open_count(),
        }
        token
    }

    fn security(&self, token: Token) -> Option<Security<'_>> {
        self.io.security(token)
    }

    fn is_misdirected(&self, token: Token, host: &[u8]) -> bool {
        self.io.is_misdirected(token, host)
    }

    fn reserve(&mut self, connections: usize) {
        self.io.reserve(connections);
    }

    fn connect_with(&mut self, address: &Address, options: &ConnectOptions) -> io::Result<Token> {
        let token = self.io.connect_with(address, options);
        match token {
            Ok(token) => {
                let (connecting, unix) = (true, matches!(address, Address::Unix(_)));
                self.insert(token, Record { connecting, unix, ..Record::default() });
            }
            Err(_) => self.check_open_count(),
        }
        token
    }

    fn share_listener(&mut self, socket: OwnedFd, options: &ListenOptions) -> io::Result<Token> {
        let token = self.io.share_listener(socket, options)?;
        self.insert(token, Record { listener: true, ..Record::default() });
        Ok(token)
    }

    fn adopt(&mut self, socket: StreamSocket) -> io::Result<Token> {
        let token = self.io.adopt(socket)?;
        self.insert(token, Record::default());
        Ok(token)
    }

    fn watch(&mut self, descriptor: OwnedFd) -> io::Result<Token> {
        let token = self.io.watch(descriptor)?;
        self.insert(token, Record::default());
        Ok(token)
    }

    fn release(&mut self, token: Token) -> Option<StreamSocket> {
        let socket = self.io.release(token)?;
        self.open_sockets.remove(token);
        self.check_open_count();
        Some(socket)
    }

    fn start(&mut self, token: Token) {
        if let Some(record) = self.open_sockets.get_mut(token) {
            record.started = true;
            record.was_started = true;
        }
        self.io.start(token);
    }

    fn stop(&mut self, token: Token) {
        if let Some(record) = self.open_sockets.get_mut(token) {
            record.started = false;
        }
        self.io.stop(token);
    }

    fn send(&mut self, token: Token, outgoing: Outgoing) {
        if let Some(record) = self.open_sockets.get_mut(token) {
            record.sends += 1;
        }
        self.io.send(token, outgoing);
    }

    fn send_last(&mut self, token: Token, bytes: &[u8], then: CloseMode) -> SendOutcome {
        let last = self.io.send_last(token, bytes, then);
        self.record_immediate_send(token, last == SendOutcome::Complete);
        if let Some(record) = self.open_sockets.get_mut(token) {
            record.closes = last == SendOutcome::PendingClose;
        }
        last
    }

    fn send_now(&mut self, token: Token, bytes: &[u8]) -> bool {
        let done = self.io.send_now(token, bytes);
        self.record_immediate_send(token, done)
    }

    fn shutdown(&mut self, token: Token) {
        self.io.shutdown(token);
    }

    fn close(&mut self, token: Token) {
        self.open_sockets.remove(token);
        self.io.close(token);
        self.check_open_count();
    }

    fn abort(&mut self, token: Token) {
        self.open_sockets.remove(token);
        self.io.abort(token);
        self.check_open_count();
    }

    fn set_deadline(&mut self, token: Token, deadline: Option<Time>) {
        if let Some(record) = self.open_sockets.get_mut(token) {
            record.deadline = deadline;
        }
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

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        self.io.wait(until)
    }

    fn next(&mut self) -> Option<Completion> {
        let completion = self.io.next()?;
        self.check(&completion);
        Some(completion)
    }

    fn now(&self) -> Time {
        self.io.now()
    }

    fn clock(&self) -> Time {
        self.io.clock()
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

impl<I: Relay> Relay for Checked<I> {
    fn relay(&mut self, from: Token, to: Token, max: u64) -> bool {
        let relays = self.io.relay(from, to, max);
        if relays {
            assert!(self.open_sockets.get_mut(to).is_some(), "relay to a closed token");
            let record = self.open_sockets.get_mut(from).expect("relay from a closed token");
            assert!(!record.ended, "relay after the end");
            assert!(record.relays.replace((max, to)).is_none(), "a relay is active already");
        }
        relays
    }

    fn relayed(&self, from: Token) -> u64 {
        self.io.relayed(from)
    }

    fn relay_is_blocked(&self, to: Token) -> bool {
        self.io.relay_is_blocked(to)
    }
}
