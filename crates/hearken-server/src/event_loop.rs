//! The event loop over [`Io`](hearken::io::Io), which drives the front.
//!
//! A turn waits for completions. It passes completions of client connections to the front and other
//! completions to the handler. It accepts connections within the limits.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, CompletionKind, Relay};
use hearken::timer::Time;

use crate::front::{Context, Front, Handler, Owner};
use crate::runtime::acceptor::Acceptor;
use crate::runtime::event_loops::EventLoopConfig;
use crate::runtime::server::{self, WorkerContext};
use crate::runtime::wait_meter::WaitMeter;
use crate::sync::AtomicBool;

/// Interval at which an active worker updates counters and handlers retry.
const TICK: Duration = Duration::from_millis(250);

/// A worker with a front and a handler over an `Io`.
pub(crate) struct EventLoop<I: Relay, H: Handler<I>> {
    io: I,
    front: Front,
    handler: H,
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
}

impl<I: Relay, H: Handler<I>> EventLoop<I, H> {
    /// Creates a worker that accepts connections.
    pub(crate) fn new(
        mut io: I,
        front: Front,
        handler: H,
        context: &WorkerContext,
        loops: &EventLoopConfig,
        peers: bool,
    ) -> io::Result<EventLoop<I, H>> {
        let acceptor = Acceptor::open(&mut io, context, loops, peers)?;
        // The worker accepts one connection above the limit before it closes an idle one.
        io.reserve(context.limits.descriptors + 1);
        Ok(EventLoop {
            tick_at: io.now(),
            io,
            front,
            handler,
            acceptor,
            stop: context.stop.clone(),
            meter: loops.measure_waits.then(WaitMeter::default),
            is_active: false,
            needs_tick: false,
            wake_at: None,
            by_age: VecDeque::new(),
        })
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        let tick = self.needs_tick.then_some(self.tick_at);
        let until = [until, tick, self.wake_at].into_iter().flatten().min();
        match &mut self.meter {
            None => self.io.wait(until),
            Some(meter) => meter.wait(&mut self.io, until, self.front.metrics(), self.is_active),
        }
    }

    #[cold]
    fn tick(&mut self) {
        self.tick_at = self.io.now() + TICK;
        let metrics = self.front.metrics();
        metrics.set_wait_counters(&self.io.counters());
        metrics.connections_open.set(self.front.open());
        metrics.requests_in_flight.set(self.front.in_progress());
        self.needs_tick =
            self.handler.tick(&mut Context { front: &mut self.front, io: &mut self.io });
    }

    #[inline(always)]
    fn on_completion(&mut self, completion: Completion) {
        let token = completion.token;
        let EventLoop { io, front, handler, .. } = self;
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
                self.on_accepted(token, peer.map(|peer| *peer));
            }
            CompletionKind::AcceptFailed(error) => self.on_accept_failed(&error),
            CompletionKind::ReceiveFailed(error) if self.acceptor.is_listener(token) => {
                self.on_accept_failed(&error);
            }
            CompletionKind::End => front.on_ended(io, handler, token),
            CompletionKind::Deadline if self.acceptor.is_listener(token) => self.acceptor.retry(io),
            CompletionKind::Deadline => front.on_deadline(io, handler, token),
            CompletionKind::Sent(Err(_)) => front.on_send_failed(io, handler, token),
            CompletionKind::ReceiveFailed(_) => front.on_receive_failed(io, handler, token),
            CompletionKind::Relayed { moved, ended } => {
                front.on_relayed(io, handler, token, moved, &ended);
            }
            CompletionKind::Woken => handler.on_woken(&mut Context { front, io }),
            _ => {}
        }
    }

    #[inline(always)]
    fn update_accepting(&mut self) {
        let EventLoop { io, front, acceptor, .. } = self;
        if acceptor.needs_update(front.open()) {
            let has_closable = H::CLOSES_OLDEST || front.has_closable();
            acceptor.update(io, front.open(), has_closable);
        }
    }

    fn on_accepted(&mut self, token: Token, peer: Option<SocketAddr>) {
        let EventLoop { io, front, acceptor, .. } = self;
        front.metrics().connections_accepted.add(1);
        front.on_accepted(io, token, peer);
        if H::CLOSES_OLDEST {
            self.by_age.retain(|token| front.contains(*token));
            self.by_age.push_back(token);
        }
        if acceptor.on_accepted(front.open()) {
            self.close_one();
        }
    }

    /// Closes the connection that has been idle longest, or the oldest one if the handler permits it.
    fn close_one(&mut self) {
        let EventLoop { io, front, handler, .. } = self;
        if !front.close_longest_idle(io)
            && H::CLOSES_OLDEST
            && let Some(oldest) = self.by_age.iter().find(|token| front.contains(**token))
        {
            front.on_receive_failed(io, handler, *oldest);
        }
    }

    #[cold]
    fn on_accept_failed(&mut self, error: &io::Error) {
        let EventLoop { io, front, acceptor, .. } = self;
        let has_closable = H::CLOSES_OLDEST || front.has_closable();
        if acceptor.on_accept_failed(io, front.open(), has_closable, error) {
            self.close_one();
            self.acceptor.retry(&mut self.io);
        }
    }
}

impl<I: Relay, H: Handler<I>> server::Worker for EventLoop<I, H> {
    fn addr(&self) -> io::Result<SocketAddr> {
        self.acceptor.addr(&self.io)
    }

    fn now(&self) -> Time {
        self.io.now()
    }

    fn turn(&mut self, until: Option<Time>) -> io::Result<bool> {
        self.wait(until)?;
        let now = self.io.now();
        if !self.front.is_stopping() && self.stop.load(Ordering::Acquire) {
            self.begin_shutdown();
        }
        self.front.begin_turn(now, self.io.unix_time().as_secs());
        self.handler.begin_turn(now);
        if now >= self.tick_at {
            self.tick();
        }
        let mut any = false;
        loop {
            // A completion or the tick may have answered requests that others follow on their
            // connections.
            while let Some(client) = self.front.next_ready() {
                any = true;
                self.front.next_request(&mut self.io, &mut self.handler, client);
            }
            self.update_accepting();
            let Some(completion) = self.io.next() else { break };
            any = true;
            self.on_completion(completion);
        }
        self.is_active = any;
        self.needs_tick |= any;
        self.front.end_turn();
        self.wake_at = self.handler.end_turn(now);
        if self.acceptor.is_paused() && self.front.has_recently_idle() {
            // The connection can be closed for a new one two turns from now.
            self.wake_at = Some(now);
        }
        Ok(any)
    }

    fn begin_shutdown(&mut self) {
        self.acceptor.stop();
        self.front.stop();
    }

    fn close_idle(&mut self) {
        self.acceptor.close(&mut self.io);
        self.front.close_idle(&mut self.io);
        self.handler.close_idle(&mut Context { front: &mut self.front, io: &mut self.io });
    }

    fn is_idle(&self) -> bool {
        self.front.open() == 0
    }

    fn finish(&mut self) {
        self.front.cancel_all(&mut self.io, &mut self.handler);
        if let Some(meter) = &mut self.meter {
            meter.end_turn(&self.io.counters(), self.front.metrics(), self.is_active);
        }
        self.tick();
        self.front.end_turn();
        self.handler.end_turn(self.io.now());
    }
}
