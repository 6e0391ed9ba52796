//! A resolver without threads, whose lookups a simulation answers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hearken::io::Io;
use hearken::timer::Time;

use super::work::{Step, Task};
use super::{Resolver, Shared, THREAD_COUNT};
use crate::proxy::config::Upstreams;
use crate::proxy::servers::{Servers, lock};
use crate::proxy::simulation::LookupAnswer;

/// The loop that takes the place of the threads of a [`Resolver`]. It ends after the resolver is
/// stopped and all lookups in progress have ended.
pub(in crate::proxy) struct ResolverLoop(Arc<Shared>);

impl Resolver {
    /// Creates a resolver without threads, and the loop that performs its lookups.
    pub(in crate::proxy) fn simulated() -> (Resolver, ResolverLoop) {
        let resolver = Resolver::new();
        let shared = Arc::clone(&resolver.shared);
        (resolver, ResolverLoop(shared))
    }

    /// Resolves the names of servers periodically, from the start of the loop on.
    pub(in crate::proxy) fn watch_servers_from_start(
        &self,
        config: &Upstreams,
        servers: &Arc<Servers>,
    ) {
        lock(&self.shared.work).watch(config, servers, Time::default());
    }
}

impl Shared {
    /// Wakes the loop of a simulated resolver.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake();
        }
    }
}

impl ResolverLoop {
    /// Runs until the resolver is stopped. Up to [`THREAD_COUNT`] lookups take place concurrently.
    ///
    /// # Errors
    /// Errors of [`Io::wait`].
    pub(in crate::proxy) fn run(
        &self,
        io: &mut impl Io,
        mut lookup: impl FnMut(&str, u16) -> LookupAnswer,
    ) -> io::Result<()> {
        *lock(&self.0.waker) = Some(io.waker());
        let mut running: Vec<(Time, Task, io::Result<Vec<SocketAddr>>)> = Vec::new();
        loop {
            let now = io.now();
            while let Some(ended) = running.iter().position(|(end, ..)| *end <= now) {
                let (_, task, found) = running.remove(ended);
                self.0.complete(&task, found, now);
            }
            let mut until = None;
            while running.len() < THREAD_COUNT {
                let step = lock(&self.0.work).next_step(now);
                match step {
                    Step::LookUp(task) => {
                        let (delay, found) = lookup(&task.host, task.port);
                        running.push((now + delay, task, found));
                    }
                    Step::Wait(next) => {
                        until = next;
                        break;
                    }
                    Step::Stop if running.is_empty() => return Ok(()),
                    Step::Stop => break,
                }
            }
            let first_end = running.iter().map(|(end, ..)| *end).min();
            io.wait([until, first_end].into_iter().flatten().min())?;
            while io.next().is_some() {}
        }
    }
}
