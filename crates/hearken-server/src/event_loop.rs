//! The event loop over [`Io`](hearken::io::Io), which drives the front.
//!
//! A turn waits for completions, and passes each to the front or the handler.

use std::io;
use std::net::SocketAddr;

use hearken::io::Relay;
use hearken::timer::Time;

use crate::engine::Engine;
use crate::front::{Front, Handler};
use crate::runtime::event_loops::EventLoopConfig;
use crate::runtime::server::{self, WorkerContext};

/// A worker that handles one completion after another.
pub(crate) struct EventLoop<I: Relay, H: Handler<I>> {
    io: I,
    engine: Engine<H>,
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
        let engine = Engine::new(&mut io, front, handler, context, loops, peers)?;
        io.reserve(context.max_open());
        Ok(EventLoop { io, engine })
    }
}

impl<I: Relay, H: Handler<I>> server::Worker for EventLoop<I, H> {
    fn addr(&self) -> SocketAddr {
        self.engine.addr()
    }

    fn now(&self) -> Time {
        self.io.now()
    }

    fn turn(&mut self, until: Option<Time>) -> io::Result<bool> {
        let EventLoop { io, engine } = self;
        engine.wait(io, until)?;
        engine.begin_turn(io);
        let mut any = false;
        loop {
            // A completion or the tick may have answered requests that others follow on their
            // connections.
            while let Some(client) = engine.front.next_ready() {
                any = true;
                engine.next_request(io, client);
            }
            engine.update_accepting(io);
            let Some(completion) = io.next() else { break };
            any = true;
            engine.on_completion(io, completion);
        }
        engine.continue_streams(io);
        engine.end_turn(io, any);
        Ok(any)
    }

    fn begin_shutdown(&mut self) {
        self.engine.begin_shutdown();
    }

    fn close_idle(&mut self) {
        self.engine.close_idle(&mut self.io);
    }

    fn is_idle(&self) -> bool {
        self.engine.is_idle()
    }

    fn has_ended(&self) -> bool {
        self.engine.has_ended()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.engine.finish(&mut self.io);
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
