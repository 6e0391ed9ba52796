//! The source of a worker's connections: a listening socket, or other threads.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Address, Io, ListenOptions};
use hearken::timer::Time;

use super::group::{HandedOver, Idle, Membership};
use super::limit_reached::LimitReporter;
use super::server::{Source, WorkerContext};
use crate::runtime::event_loops::EventLoopConfig;

/// Pause after an accept that failed, unless a connection closes before.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Accepts connections within the connection limit, and exchanges them with other workers.
#[derive(Debug)]
pub(crate) struct Acceptor {
    /// The listening socket, unless all connections come from another thread.
    listener: Option<Token>,
    /// The address of all listening sockets of the server.
    addr: SocketAddr,
    /// The membership in a group of workers that share or exchange connections.
    membership: Option<Membership>,
    /// Whether the listening socket is shared with other workers.
    is_shared: bool,
    /// Whether connections migrate to other workers.
    migrates: bool,
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
    /// Creates the listening socket of a worker and starts accepting, or joins the worker to its group.
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
        let listener = match &worker.source {
            Source::Listener | Source::Migrating => {
                Some(io.listen(&Address::Inet(worker.listen), &options)?)
            }
            Source::SharedListener(socket) => {
                Some(io.share_listener(socket.try_clone()?, &options)?)
            }
            Source::Inbox { .. } => None,
        };
        let mut addr = worker.listen;
        if let Some(listener) = listener {
            addr = io.local_addr(listener)?;
            io.start(listener);
        }
        let is_spare = matches!(worker.source, Source::Inbox { is_spare: true });
        let join = |group| Membership::new(group, worker.index, worker.worker_metrics(), is_spare);
        Ok(Acceptor {
            listener,
            addr,
            membership: worker.group.clone().map(join),
            is_shared: matches!(worker.source, Source::SharedListener(_)),
            migrates: matches!(worker.source, Source::Migrating),
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
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns whether the token identifies the listening socket.
    #[inline]
    pub(crate) fn is_listener(&self, token: Token) -> bool {
        Some(token) == self.listener
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

    /// Returns whether `open` connections exceed the limit because other threads handed some over.
    pub(crate) fn must_close(&self, open: usize) -> bool {
        self.listener.is_none() && open > self.max_connections
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
        let Some(listener) = self.listener else { return };
        if has_capacity != self.is_paused || self.is_stopping {
            return;
        }
        self.is_paused = !has_capacity;
        if has_capacity {
            io.set_deadline(listener, None);
            self.retry(io);
        } else {
            self.limits.report(io.now(), open, None);
            io.stop(listener);
            self.pass_on();
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
        if let Some(listener) = self.listener {
            io.set_deadline(listener, Some(io.now() + RETRY_DELAY));
        }
        self.pass_on();
        false
    }

    /// Resumes accepting.
    pub(crate) fn retry(&mut self, io: &mut impl Io) {
        self.is_paused = false;
        self.failed_at = None;
        if let Some(listener) = self.listener {
            io.start(listener);
        }
    }

    /// Wakes the workers that share the listening socket. The connection that woke this worker remains
    /// in the queue, and wakes no other.
    fn pass_on(&self) {
        if let Some(membership) = self.membership.as_ref().filter(|_| self.is_shared) {
            membership.wake_others();
        }
    }

    /// Handles a wake-up by another thread. Returns the connections that it handed over, and whether
    /// an idle connection must be closed.
    #[cold]
    pub(crate) fn on_woken(&mut self, io: &mut impl Io) -> (Vec<HandedOver>, bool) {
        if let Some(listener) = self.listener.filter(|_| self.is_shared)
            && !self.is_paused
            && !self.is_closed
        {
            io.start(listener);
        }
        self.membership.as_mut().map(Membership::take).unwrap_or_default()
    }

    /// Returns the worker that should get one of `open` connections, if they migrate.
    pub(crate) fn overflow(&self, open: usize) -> Option<usize> {
        let membership = self.membership.as_ref().filter(|_| self.migrates)?;
        membership.overflow(open)
    }

    /// Hands a connection to another worker.
    pub(crate) fn hand_over(&self, now: Time, to: usize, connection: HandedOver) {
        if let Some(membership) = &self.membership {
            membership.hand_over(now, to, connection);
        }
    }

    /// Begins a turn, before events are handled.
    #[inline]
    pub(crate) fn begin_turn(&self) {
        if let Some(membership) = &self.membership {
            membership.begin_turn();
        }
    }

    /// Ends a turn: reports the number of open connections, and whether one is idle, to the group.
    #[inline]
    pub(crate) fn end_turn(&mut self, now: Time, open: usize, idle: Idle) {
        if let Some(membership) = &mut self.membership {
            membership.publish(now, open, idle);
        }
    }

    /// Returns the time at which the thread ends, if it gets no connection before.
    pub(crate) fn ends_at(&self) -> Option<Time> {
        self.membership.as_ref().and_then(Membership::ends_at)
    }

    /// Returns whether the thread ends because it had no connection for some time.
    pub(crate) fn ends(&mut self, now: Time) -> bool {
        self.membership.as_mut().is_some_and(|membership| membership.end_if_spare(now))
    }

    /// Returns whether connections were handed over that the worker has not taken yet.
    pub(crate) fn has_waiting(&self) -> bool {
        self.membership.as_ref().is_some_and(Membership::has_waiting)
    }

    /// Stops changing the state of the socket. Connections in the accept queue are still accepted.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Closes the listening socket.
    pub(crate) fn close(&mut self, io: &mut impl Io) {
        self.stop();
        self.is_paused = false;
        if !std::mem::replace(&mut self.is_closed, true)
            && let Some(listener) = self.listener
        {
            io.close(listener);
        }
    }
}
