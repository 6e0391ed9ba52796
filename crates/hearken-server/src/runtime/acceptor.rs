//! The listening socket of a worker.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Address, Io, ListenOptions};

use super::limit_reached::LimitReporter;
use super::server::WorkerContext;
use crate::runtime::event_loops::EventLoopConfig;

/// Pause after an accept that failed, unless a connection closes before.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// A listening socket that accepts connections within the connection limit.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: Token,
    max_connections: usize,
    /// Whether accepting is paused at the limit.
    is_paused: bool,
    /// Number of open connections when accept(2) failed.
    failed_at: Option<usize>,
    /// Whether an idle connection was closed to free a descriptor, and none was accepted since.
    has_closed_idle: bool,
    is_stopping: bool,
    is_closed: bool,
    limits: LimitReporter,
}

impl Acceptor {
    /// Creates the listening socket of a worker and starts accepting.
    pub(crate) fn open(
        io: &mut impl Io,
        worker: &WorkerContext,
        loops: &EventLoopConfig,
        peers: bool,
    ) -> io::Result<Acceptor> {
        let mut options = ListenOptions::default();
        options.reuse_port = worker.workers > 1;
        options.defer = loops.defer_accept;
        options.peers = peers;
        let listener = io.listen(&Address::Inet(worker.listen), &options)?;
        io.start(listener);
        Ok(Acceptor {
            listener,
            max_connections: worker.limits.connections,
            is_paused: false,
            failed_at: None,
            has_closed_idle: false,
            is_stopping: false,
            is_closed: false,
            limits: LimitReporter::new(loops.on_limit),
        })
    }

    /// Returns the address of the listening socket.
    pub(crate) fn addr(&self, io: &impl Io) -> io::Result<SocketAddr> {
        io.local_addr(self.listener)
    }

    /// Returns whether the token identifies the listening socket.
    #[inline]
    pub(crate) fn is_listener(&self, token: Token) -> bool {
        token == self.listener
    }

    /// Returns whether [`update`](Acceptor::update) must be called.
    #[inline]
    pub(crate) fn needs_update(&self, open: usize) -> bool {
        self.is_paused | (open >= self.max_connections)
    }

    /// Returns whether accepting is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Handles an accepted connection. Returns whether `open` connections exceed the limit.
    #[inline]
    pub(crate) fn on_accepted(&mut self, open: usize) -> bool {
        self.has_closed_idle = false;
        open > self.max_connections
    }

    /// Pauses or resumes accepting, given the number of open connections. At the limit, accepting
    /// continues while `has_idle`, because an idle connection is closed for each new one.
    #[cold]
    pub(crate) fn update(&mut self, io: &mut impl Io, open: usize, has_idle: bool) {
        let has_capacity = match self.failed_at {
            None => open < self.max_connections || (open == self.max_connections && has_idle),
            Some(before) => open < before || (has_idle && !self.has_closed_idle),
        };
        if has_capacity != self.is_paused || self.is_stopping {
            return;
        }
        self.is_paused = !has_capacity;
        if has_capacity {
            io.set_deadline(self.listener, None);
            self.retry(io);
        } else {
            self.limits.report(io.now(), open, None);
            io.stop(self.listener);
        }
    }

    /// Handles a failed accept. Returns whether the caller must close an idle connection and call
    /// [`retry`](Acceptor::retry).
    #[cold]
    pub(crate) fn on_accept_failed(
        &mut self,
        io: &mut impl Io,
        open: usize,
        has_idle: bool,
        error: &io::Error,
    ) -> bool {
        self.limits.report(io.now(), open, Some(error));
        if has_idle && !std::mem::replace(&mut self.has_closed_idle, true) {
            return true;
        }
        self.is_paused = true;
        self.failed_at = Some(open);
        let retry = io.now() + RETRY_DELAY;
        io.set_deadline(self.listener, Some(retry));
        false
    }

    /// Resumes accepting.
    pub(crate) fn retry(&mut self, io: &mut impl Io) {
        self.is_paused = false;
        self.failed_at = None;
        io.start(self.listener);
    }

    /// Stops changing the state of the socket. Connections in the accept queue are still accepted.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Closes the listening socket.
    pub(crate) fn close(&mut self, io: &mut impl Io) {
        self.stop();
        self.is_paused = false;
        if !std::mem::replace(&mut self.is_closed, true) {
            io.close(self.listener);
        }
    }
}
