//! A worker's listening socket, and when it accepts.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Address, Io, ListenOptions};

use super::limit_reached::LimitReporter;
use super::server::WorkerContext;
use crate::runtime::event_loops::Loops;

/// How long the acceptor waits after it ran out of descriptors, if none was freed before.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// A listening socket that accepts while there is room.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: Token,
    max_connections: usize,
    /// Accepting is paused until there is room.
    is_paused: bool,
    /// The number of connections when accepting failed.
    failed_at: Option<usize>,
    /// An idle connection was closed for want of descriptors, and nothing was accepted since.
    has_closed_idle: bool,
    is_stopping: bool,
    is_closed: bool,
    limits: LimitReporter,
}

impl Acceptor {
    /// Listens where the worker is to listen, and accepts.
    pub(crate) fn open(
        io: &mut impl Io,
        worker: &WorkerContext,
        loops: &Loops,
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

    /// Returns the address that it listens on.
    pub(crate) fn addr(&self, io: &impl Io) -> io::Result<SocketAddr> {
        io.local_addr(self.listener)
    }

    /// Returns whether the token is the listening socket's.
    #[inline]
    pub(crate) fn is_listener(&self, token: Token) -> bool {
        token == self.listener
    }

    /// Returns whether [`adjust`](Acceptor::adjust) may have something to do.
    #[inline]
    pub(crate) fn needs_update(&self, open: usize) -> bool {
        self.is_paused | (open >= self.max_connections)
    }

    /// Returns whether accepting is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// A connection was accepted; so many are open. Returns whether one of them is too many.
    #[inline]
    pub(crate) fn on_accepted(&mut self, open: usize) -> bool {
        self.has_closed_idle = false;
        open > self.max_connections
    }

    /// Pauses or resumes accepting, as so many connections are open. Where all that there may be
    /// are open, accepting goes on while `has_idle`: an idle one is closed for a new one.
    #[cold]
    pub(crate) fn update(&mut self, io: &mut impl Io, open: usize, has_idle: bool) {
        let has_room = match self.failed_at {
            None => open < self.max_connections || (open == self.max_connections && has_idle),
            Some(before) => open < before || (has_idle && !self.has_closed_idle),
        };
        if has_room != self.is_paused || self.is_stopping {
            return;
        }
        self.is_paused = !has_room;
        if has_room {
            io.set_deadline(self.listener, None);
            self.retry(io);
        } else {
            self.limits.report(io.now(), open, None);
            io.stop(self.listener);
        }
    }

    /// Accepting failed, with so many connections open. Returns whether an idle connection is to be
    /// closed to make room, after which [`retry`](Acceptor::retry) follows.
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

    /// Accepts again.
    pub(crate) fn retry(&mut self, io: &mut impl Io) {
        self.is_paused = false;
        self.failed_at = None;
        io.start(self.listener);
    }

    /// Accepts nothing but what has connected already.
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
