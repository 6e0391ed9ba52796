//! Idle connections that one table of descriptors does not hold: threads with tables of their own,
//! each with an event loop that holds its part of them.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use hearken::Waker;
use hearken::descriptors::Table;
use hearken::io::{self as events, Io, Visitor};
use hearken::mechanism::Unavailable;

use crate::config::{Config, LoadError};
use crate::idle::Idlers;
use crate::misses::Misses;
use crate::report::{self, Bytes};
use crate::target::Target;
use crate::{MOST_CONNECTING, policy};

/// Descriptors of a table besides those of connections: standard streams, the mechanism, the waker.
pub(crate) const SPARE: u64 = 16;

/// The threads. Dropped, they end.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    threads: Vec<(JoinHandle<io::Result<Held>>, Waker)>,
    asked: u64,
    state: Vec<Arc<State>>,
    stop: Arc<AtomicBool>,
}

/// What a holder tells while it holds.
#[derive(Debug, Default)]
struct State {
    held: AtomicU64,
    lost: AtomicU64,
    re_established: AtomicU64,
}

/// What a holder tells at its end.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    pub(crate) misses: Misses,
}

/// How the idle connections are divided among tables of descriptors.
#[derive(Debug)]
pub(crate) struct Plan {
    /// How many threads hold them all; with none, they are held beside the requests.
    holders: usize,
    /// Why there are none, where there should be.
    pub(crate) refused: Option<Unavailable>,
}

impl Plan {
    /// For tables of so many descriptors.
    pub(crate) fn new(config: &Config, descriptors: u64) -> Result<Plan, LoadError> {
        let spec = events::find(&config.events)?;
        let room = usize::try_from(descriptors.saturating_sub(SPARE)).unwrap_or(usize::MAX).max(1);
        let own = config.idle > room.saturating_sub(config.connections.get())
            // Programs in the kernel tell descriptors by their number for the whole process.
            && !spec.needs_privileges();
        let refused = if own { Table::Own.probe().err() } else { None };
        let holders = if own && refused.is_none() { config.idle.div_ceil(room) } else { 0 };
        Ok(Plan { holders, refused })
    }

    /// How many are held beside the requests.
    pub(crate) fn beside(&self, config: &Config) -> usize {
        if self.holders > 0 { 0 } else { config.idle }
    }
}

impl Holders {
    /// Starts the threads, which begin to open their connections.
    pub(crate) fn start(plan: &Plan, config: &Config, target: &Target) -> io::Result<Holders> {
        let mut holders = Holders::default();
        let Some(count) = NonZeroUsize::new(plan.holders) else {
            return Ok(holders);
        };
        holders.asked = config.idle as u64;
        for index in 0..count.get() {
            let asked = config.idle / count.get() + usize::from(index < config.idle % count);
            let connecting = (MOST_CONNECTING / count).max(8);
            let state = Arc::<State>::default();
            let start = Start {
                events: config.events.clone(),
                target: target.of_holder(index, asked),
                idlers: Idlers::new(asked, config.idle_request, connecting),
                state: state.clone(),
                stop: holders.stop.clone(),
            };
            let thread = Builder::new().name(format!("holder-{index}"));
            let started = Table::Own.spawn(thread, start, |start, wakeups| {
                let name = start.events.clone();
                match events::visit(&name, &policy(), wakeups, start) {
                    Ok(held) => held,
                    Err(refused) => Err(io::Error::other(refused)),
                }
            });
            holders.threads.push(started?);
            holders.state.push(state);
        }
        Ok(holders)
    }

    pub(crate) fn counts(&self) -> report::Idle {
        let sum = |count: fn(&State) -> &AtomicU64| {
            self.state.iter().map(|state| count(state).load(Ordering::Relaxed)).sum()
        };
        report::Idle {
            asked: self.asked,
            held: sum(|state| &state.held),
            lost: sum(|state| &state.lost),
            re_established: sum(|state| &state.re_established),
            requests: 0,
            replies: 0,
            tables: self.state.len() as u64,
        }
    }

    pub(crate) fn asked(&self) -> u64 {
        self.asked
    }

    /// True if all are held, or there are none.
    pub(crate) fn are_prepared(&self) -> bool {
        self.asked == 0 || self.counts().held == self.asked
    }

    /// Ends the threads, and tells what they have to tell.
    pub(crate) fn end(&mut self) -> io::Result<Held> {
        self.stop.store(true, Ordering::Release);
        self.threads.iter().for_each(|(_, waker)| waker.wake());
        let (mut all, mut failed) = (Held::default(), None);
        for (thread, _) in self.threads.drain(..) {
            match thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))) {
                Ok(held) => {
                    all.bytes.received += held.bytes.received;
                    all.bytes.sent += held.bytes.sent;
                    all.misses.merge(held.misses);
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(all), Err)
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        // Whoever asks what came of it has called it.
        let _ = self.end();
    }
}

/// What a thread starts with: no descriptor, as its table is another.
struct Start {
    events: String,
    target: Target,
    idlers: Idlers,
    state: Arc<State>,
    stop: Arc<AtomicBool>,
}

impl Visitor for Start {
    type Output = io::Result<Held>;

    fn visit<I: Io>(self, _: &'static str, mut io: I) -> io::Result<Held> {
        let Start { mut target, mut idlers, state, stop, .. } = self;
        while !stop.load(Ordering::Acquire) {
            let more = idlers.prepare(&mut io, &mut target);
            io.wait(if more { Some(io.now()) } else { idlers.until() })?;
            while let Some(completion) = io.next() {
                if idlers.owns(completion.on) {
                    idlers.complete(&mut io, &target, completion);
                }
            }
            let counts = &idlers.counts;
            state.held.store(counts.held, Ordering::Relaxed);
            state.lost.store(counts.lost, Ordering::Relaxed);
            state.re_established.store(counts.re_established, Ordering::Relaxed);
        }
        Ok(Held { bytes: idlers.bytes, misses: idlers.misses })
    }
}
