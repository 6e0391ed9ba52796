//! The `Io` of a program that a scheduler runs.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use hearken::Token;
use hearken::io::sim::Host;
use hearken::io::{Address, CloseMode, Completion, ConnectOptions, Io, ListenOptions};
use hearken::io::{Outgoing, PeekResult, Pool, Relay, Security, SendOutcome};
use hearken::mechanism::Counters;
use hearken::timer::Time;
use hearken::waker::Waker;

use crate::report::{ProgramEnd, Report};

/// Maximum number of waits that end at the same time. A program that waits more often never continues.
const MAX_WAITS: u32 = 100_000;

/// An `Io` whose completions and end are reported.
#[derive(Debug)]
pub struct ProgramIo<I: Io> {
    host: Host,
    report: Rc<Report>,
    io: I,
    /// Whether requests of closed connections may still use buffers.
    lends_buffers: bool,
    /// Time at which the last wait ended, and the number of waits that ended then.
    last_waits: (Time, u32),
}

impl<I: Io> ProgramIo<I> {
    pub(crate) fn new(
        host: &Host,
        report: &Rc<Report>,
        io: I,
        lends_buffers: bool,
    ) -> ProgramIo<I> {
        let (host, report) = (host.clone(), report.clone());
        ProgramIo { host, report, io, lends_buffers, last_waits: Default::default() }
    }
}

impl<I: Io> Drop for ProgramIo<I> {
    fn drop(&mut self) {
        self.report.add_end(ProgramEnd {
            host: self.host.index(),
            at: self.host.world().now(),
            open: self.io.open_count(),
            buffers: if self.lends_buffers { 0 } else { self.io.pool().in_use() },
        });
    }
}

impl<I: Io> Io for ProgramIo<I> {
    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        self.io.wait(until)?;
        let now = self.host.world().now();
        self.last_waits = match self.last_waits {
            (at, count) if at == now => (at, count + 1),
            _ => (now, 0),
        };
        assert!(self.last_waits.1 < MAX_WAITS, "endless: {MAX_WAITS} waits end at {now:?}");
        Ok(())
    }

    fn next(&mut self) -> Option<Completion> {
        let completion = self.io.next()?;
        self.report.count_event();
        Some(completion)
    }

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Token> {
        self.io.listen(address, options)
    }

    fn connect_with(&mut self, address: &Address, options: &ConnectOptions) -> io::Result<Token> {
        self.io.connect_with(address, options)
    }

    fn start(&mut self, token: Token) {
        self.io.start(token);
    }

    fn stop(&mut self, token: Token) {
        self.io.stop(token);
    }

    fn send(&mut self, token: Token, outgoing: Outgoing) {
        self.io.send(token, outgoing);
    }

    fn send_now(&mut self, token: Token, bytes: &[u8]) -> bool {
        self.io.send_now(token, bytes)
    }

    fn send_last(&mut self, token: Token, bytes: &[u8], mode: CloseMode) -> SendOutcome {
        self.io.send_last(token, bytes, mode)
    }

    fn shutdown(&mut self, token: Token) {
        self.io.shutdown(token);
    }

    fn close(&mut self, token: Token) {
        self.io.close(token);
    }

    fn abort(&mut self, token: Token) {
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

    fn security(&self, token: Token) -> Option<Security<'_>> {
        self.io.security(token)
    }

    fn is_misdirected(&self, token: Token, host: &[u8]) -> bool {
        self.io.is_misdirected(token, host)
    }

    fn reserve(&mut self, connections: usize) {
        self.io.reserve(connections);
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

impl<I: Relay> Relay for ProgramIo<I> {
    fn relay(&mut self, from: Token, to: Token, max: u64) -> bool {
        self.io.relay(from, to, max)
    }

    fn relayed(&self, from: Token) -> u64 {
        self.io.relayed(from)
    }

    fn relay_is_blocked(&self, to: Token) -> bool {
        self.io.relay_is_blocked(to)
    }
}
