//! The parts of a worker that all drivers over [`Io`](hearken::io::Io) share: the front, the handler,
//! the acceptor, and the beginning and end of a turn.
//!
//! Completions of client connections go to the front and other completions to the handler. The
//! acceptor accepts connections within the limits.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, CompletionKind, Io, Relay};
use hearken::timer::Time;

use crate::front::{Context, Front, Handler, Owner};
use crate::runtime::acceptor::Acceptor;
use crate::runtime::event_loops::EventLoopConfig;
use crate::runtime::group::HandedOver;
use crate::runtime::server::WorkerContext;
use crate::runtime::wait_meter::WaitMeter;
use crate::sync::AtomicBool;

/// Interval at which an active worker updates counters and handlers retry.
const TICK: Duration = Duration::from_millis(250);
/// Maximum number of idle connections that are handed to other workers at a time.
const MAX_MIGRATED: usize = 256;

/// The front, the handler and the acceptor of a worker.
pub(crate) struct Engine<H> {
    pub(crate) front: Front,
    pub(crate) handler: H,
    acceptor: Acceptor,
    stop: Arc<AtomicBool>,
    /// The meter, if waits are measured.
    meter: Option<WaitMeter>,
    /// Whether anything happened in the last turn.
    is_active: bool,
    /// Time of the next tick.
    tick_at: Time,
    /// Whether anything has happened since the last tick.
    needs_tick: bool,
    /// Time by which the handler or the acceptor needs the next turn.
    wake_at: Option<Time>,
    /// Open connections in the order of their accepts, if [`Handler::CLOSES_OLDEST`].
    by_age: VecDeque<Token>,
    /// Whether the thread is no longer needed.
    has_ended: bool,
}

impl<H> Engine<H> {
    /// Creates an engine that accepts connections from `io`.
    pub(crate) fn new(
        io: &mut impl Io,
        front: Front,
        handler: H,
        context: &WorkerContext,
        loops: &EventLoopConfig,
        peers: bool,
    ) -> io::Result<Engine<H>> {
        Ok(Engine {
            acceptor: Acceptor::open(io, context, loops, peers)?,
            tick_at: io.now(),
            front,
            handler,
            stop: context.stop.clone(),
            meter: loops.measure_waits.then(WaitMeter::default),
            is_active: false,
            needs_tick: false,
            wake_at: None,
            by_age: VecDeque::new(),
            has_ended: false,
        })
    }

    /// Returns the address of the listening socket.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.acceptor.addr()
    }

    /// Waits for events until `until`, or until something is due.
    #[inline]
    pub(crate) fn wait(&mut self, io: &mut impl Io, until: Option<Time>) -> io::Result<()> {
        let tick = self.needs_tick.then_some(self.tick_at);
        let until =
            [until, tick, self.wake_at, self.acceptor.ends_at()].into_iter().flatten().min();
        match &mut self.meter {
            None => io.wait(until),
            Some(meter) => meter.wait(io, until, self.front.metrics(), self.is_active),
        }
    }

    /// Begins a turn, after a wait.
    #[inline]
    pub(crate) fn begin_turn<I: Relay>(&mut self, io: &mut I)
    where
        H: Handler<I>,
    {
        let now = io.now();
        if !self.front.is_stopping() && self.stop.load(Ordering::Acquire) {
            self.begin_shutdown();
        }
        self.acceptor.begin_turn();
        self.front.begin_turn(now, io.unix_time().as_secs());
        self.handler.begin_turn(now);
        if now >= self.tick_at {
            self.tick(io);
        }
    }

    #[cold]
    fn tick<I: Relay>(&mut self, io: &mut I)
    where
        H: Handler<I>,
    {
        self.tick_at = io.now() + TICK;
        let metrics = self.front.metrics();
        metrics.set_wait_counters(&io.counters());
        metrics.connections_open.set(self.front.open());
        metrics.requests_in_flight.set(self.front.in_progress());
        self.needs_tick = self.handler.tick(&mut Context { front: &mut self.front, io });
        self.migrate_idle(io);
    }

    /// Hands idle connections to other workers while this one has more than its share.
    fn migrate_idle<I: Relay>(&mut self, io: &mut I) {
        if self.acceptor.overflow(self.front.open()).is_none() {
            return;
        }
        for token in self.front.movable_idle(MAX_MIGRATED) {
            let Some(to) = self.acceptor.overflow(self.front.open()) else { return };
            let Some(socket) = io.release(token) else { continue };
            let peer = self.front.take_idle(token);
            self.acceptor.hand_over(io.now(), to, HandedOver { socket, peer, is_served: true });
        }
    }

    /// Handles a completion.
    #[inline(always)]
    pub(crate) fn on_completion<I: Relay>(&mut self, io: &mut I, completion: Completion)
    where
        H: Handler<I>,
    {
        let token = completion.token;
        let Engine { front, handler, .. } = self;
        match completion.kind {
            // First because it is by far the most common.
            CompletionKind::Received(bytes) => match front.owner(token) {
                Owner::Handler { key, route } if H::CONNECTS => {
                    handler.on_own_received(&mut Context { front, io }, (key, route), &bytes);
                }
                _ => front.on_received(io, handler, token, &bytes),
            },
            CompletionKind::Sent(_)
            | CompletionKind::End
            | CompletionKind::Deadline
            | CompletionKind::ReceiveFailed(_)
            | CompletionKind::Relayed { .. }
            | CompletionKind::Connected(_)
                if H::CONNECTS
                    && let Owner::Handler { key, route } = front.owner(token) =>
            {
                handler.on_own_completion(&mut Context { front, io }, (key, route), completion);
            }
            CompletionKind::Sent(Ok(())) => front.on_sent(io, handler, token),
            CompletionKind::Accepted { token, peer } => {
                self.on_accepted(io, token, peer.map(|peer| *peer));
            }
            CompletionKind::AcceptFailed(error) => self.on_accept_failed(io, &error),
            CompletionKind::ReceiveFailed(error) if self.acceptor.is_listener(token) => {
                self.on_accept_failed(io, &error);
            }
            CompletionKind::End => front.on_ended(io, handler, token),
            CompletionKind::Deadline if self.acceptor.is_listener(token) => self.acceptor.retry(io),
            CompletionKind::Deadline => front.on_deadline(io, handler, token),
            CompletionKind::Sent(Err(_)) => front.on_send_failed(io, handler, token),
            CompletionKind::ReceiveFailed(_) => front.on_receive_failed(io, handler, token),
            CompletionKind::Relayed { moved, ended } => {
                front.on_relayed(io, handler, token, moved, &ended);
            }
            CompletionKind::Woken => {
                handler.on_woken(&mut Context { front, io });
                self.on_woken(io);
            }
            _ => {}
        }
    }

    /// Processes the next request of a client for which [`Front::next_ready`] reported one.
    #[inline]
    pub(crate) fn next_request<I: Relay>(&mut self, io: &mut I, client: Token)
    where
        H: Handler<I>,
    {
        self.front.next_request(io, &mut self.handler, client);
    }

    /// Returns whether HTTP/2 connections continue at the end of the turn.
    #[inline]
    pub(crate) fn has_pending_streams<I: Relay>(&self) -> bool
    where
        H: Handler<I>,
    {
        self.front.pending_streams() > 0 || self.handler.has_pending()
    }

    /// Continues HTTP/2 connections at the end of a turn.
    #[inline]
    pub(crate) fn continue_streams<I: Relay>(&mut self, io: &mut I)
    where
        H: Handler<I>,
    {
        for _ in 0..self.front.pending_streams() {
            if let Some(token) = self.front.next_pending_streams() {
                self.continue_one(io, token);
            }
        }
        self.flush_handler(io);
    }

    /// Continues the handler's own HTTP/2 connections.
    #[inline]
    pub(crate) fn flush_handler<I: Relay>(&mut self, io: &mut I)
    where
        H: Handler<I>,
    {
        if self.handler.has_pending() {
            self.handler.flush(&mut Context { front: &mut self.front, io });
        }
    }

    /// Continues an HTTP/2 connection.
    #[inline]
    pub(crate) fn continue_one<I: Relay>(&mut self, io: &mut I, token: Token)
    where
        H: Handler<I>,
    {
        self.front.continue_streams(io, &mut self.handler, token);
    }

    /// Pauses or resumes accepting. The driver calls it after each completion.
    #[inline(always)]
    pub(crate) fn update_accepting<I: Relay>(&mut self, io: &mut I)
    where
        H: Handler<I>,
    {
        let Engine { front, acceptor, .. } = self;
        if acceptor.needs_update(front.open()) {
            let has_closable = H::CLOSES_OLDEST || front.has_closable();
            acceptor.update(io, front.open(), has_closable);
            if acceptor.must_close(front.open()) {
                self.close_one(io);
            }
        }
    }

    /// Adds the connections that other threads have handed over.
    #[cold]
    fn on_woken<I: Relay>(&mut self, io: &mut I)
    where
        H: Handler<I>,
    {
        let (connections, must_evict) = self.acceptor.on_woken(io);
        for HandedOver { socket, peer, is_served } in connections {
            // If it fails, the peer has reset the connection or no memory is left.
            let Ok(token) = io.adopt(socket) else { continue };
            match is_served {
                true => self.front.insert_idle(io, token, peer),
                false => self.add_connection(io, token, peer),
            }
        }
        if must_evict {
            self.close_one(io);
        }
    }

    fn on_accepted<I: Relay>(&mut self, io: &mut I, token: Token, peer: Option<SocketAddr>)
    where
        H: Handler<I>,
    {
        if let Some(to) = self.acceptor.overflow(self.front.open() + 1)
            && let Some(socket) = io.release(token)
        {
            let connection = HandedOver { socket, peer, is_served: false };
            self.acceptor.hand_over(io.now(), to, connection);
        } else {
            self.add_connection(io, token, peer);
        }
    }

    fn add_connection<I: Relay>(&mut self, io: &mut I, token: Token, peer: Option<SocketAddr>)
    where
        H: Handler<I>,
    {
        let Engine { front, acceptor, .. } = self;
        front.metrics().connections_accepted.add(1);
        front.on_accepted(io, token, peer);
        if H::CLOSES_OLDEST {
            self.by_age.retain(|token| front.contains(*token));
            self.by_age.push_back(token);
        }
        if acceptor.on_accepted(front.open()) {
            self.close_one(io);
        }
    }

    /// Closes the connection that has been idle longest, or the oldest one if the handler permits it.
    fn close_one<I: Relay>(&mut self, io: &mut I)
    where
        H: Handler<I>,
    {
        let Engine { front, handler, .. } = self;
        if !front.close_longest_idle(io)
            && H::CLOSES_OLDEST
            && let Some(oldest) = self.by_age.iter().find(|token| front.contains(**token))
        {
            front.on_receive_failed(io, handler, *oldest);
        }
    }

    #[cold]
    fn on_accept_failed<I: Relay>(&mut self, io: &mut I, error: &io::Error)
    where
        H: Handler<I>,
    {
        let Engine { front, acceptor, .. } = self;
        let has_closable = H::CLOSES_OLDEST || front.has_closable();
        if acceptor.on_accept_failed(io, front.open(), has_closable, error) {
            self.close_one(io);
            self.acceptor.retry(io);
        }
    }

    /// Closes a connection after a panic while one of its completions was handled. The front and the
    /// handler release its state, as if receiving had failed.
    #[cold]
    pub(crate) fn on_panic<I: Relay>(&mut self, io: &mut I, token: Token)
    where
        H: Handler<I>,
    {
        self.front.on_panic();
        let kind = CompletionKind::ReceiveFailed(io::Error::other("a task panicked"));
        let handle = || self.on_completion(io, Completion { token, kind });
        // The handler may panic again.
        let _ = catch_unwind(AssertUnwindSafe(handle));
        self.front.force_close(io, token);
    }

    /// Ends a turn. `is_active` is whether anything happened in it.
    #[inline]
    pub(crate) fn end_turn<I: Relay>(&mut self, io: &I, is_active: bool)
    where
        H: Handler<I>,
    {
        let now = io.now();
        self.is_active = is_active;
        self.needs_tick |= is_active;
        self.front.end_turn();
        self.wake_at = self.handler.end_turn(now);
        let open = self.front.open();
        if (self.acceptor.is_paused() || self.acceptor.must_close(open))
            && self.front.has_recently_idle()
        {
            // The connection can be closed for a new one two turns from now.
            self.wake_at = Some(now);
        }
        if self.has_pending_streams() {
            self.wake_at = Some(now);
        }
        self.acceptor.end_turn(now, open, self.front.idle());
        self.has_ended = self.acceptor.ends(now);
    }

    /// Begins to stop: closes connections after their current response.
    pub(crate) fn begin_shutdown(&mut self) {
        self.acceptor.stop();
        self.front.stop();
    }

    /// Closes the listening socket and all connections without a request.
    pub(crate) fn close_idle<I: Relay>(&mut self, io: &mut I)
    where
        H: Handler<I>,
    {
        self.acceptor.close(io);
        self.front.close_idle(io);
        self.handler.close_idle(&mut Context { front: &mut self.front, io });
        self.continue_streams(io);
    }

    /// Returns whether no client connection is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.front.open() == 0 && !self.acceptor.has_waiting()
    }

    /// Returns whether the thread is no longer needed.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Cancels all requests, publishes counters and flushes the log, after the last turn.
    pub(crate) fn finish<I: Relay>(&mut self, io: &mut I)
    where
        H: Handler<I>,
    {
        self.front.cancel_all(io, &mut self.handler);
        if let Some(meter) = &mut self.meter {
            meter.end_turn(&io.counters(), self.front.metrics(), self.is_active);
        }
        self.tick(io);
        self.front.end_turn();
        self.handler.end_turn(io.now());
    }
}
