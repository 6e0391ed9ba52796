//! Idle connections, like most connections of a server. Optionally each sends a request from time
//! to time, so that the set of active connections changes.

use std::sync::Arc;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, Io};
use hearken::timer::Time;

use crate::config::Config;
use crate::idle_errors::IdleErrors;
use crate::population::{Loss, Population, Status};
use crate::reply::Reply;
use crate::report;
use crate::shard::Shard;
use crate::target::Target;
use crate::workload::{Distribution, Workload};

/// The idle connections of a thread.
#[derive(Debug)]
pub(crate) struct IdleConnections {
    pub(crate) errors: IdleErrors,
    /// The connections, each with the reply that it waits for.
    population: Population<Option<Box<Reply>>>,
    requests: u64,
    replies: u64,
    workload: Arc<Workload>,
    /// Whether each connection sends a request first.
    requests_first: bool,
    /// Time until a connection sends its next request.
    think: Option<Distribution>,
    random: fastrand::Rng,
    received: Vec<u8>,
}

impl IdleConnections {
    /// Creates the set of `target_count` connections of a thread. `holding` is the number of
    /// threads that share the rate of connection attempts.
    pub(crate) fn new(
        config: &Config,
        target: Target,
        workload: &Arc<Workload>,
        target_count: usize,
        holding: u64,
        share: Shard,
        seed: u64,
    ) -> IdleConnections {
        let gap = config.idle_rate.map_or(Duration::ZERO, |rate| {
            Duration::try_from_secs_f64(holding as f64 / rate).unwrap_or(Duration::MAX)
        });
        IdleConnections {
            errors: IdleErrors::default(),
            population: Population::new(target, target_count, gap),
            requests: 0,
            replies: 0,
            workload: workload.clone(),
            requests_first: config.idle_sends_request,
            think: config.idle_think_time,
            random: fastrand::Rng::with_seed(share.derive_seed(seed.rotate_left(32))),
            received: Vec::new(),
        }
    }

    /// Opens some of the remaining connections. Returns true if more can be opened immediately.
    pub(crate) fn open_some(&mut self, io: &mut impl Io) -> bool {
        let errors = &mut self.errors;
        self.population.open_some(io, |error| errors.record(error))
    }

    /// Returns true once all connections are established.
    pub(crate) fn is_prepared(&self) -> bool {
        let counts = &self.population.counts;
        counts.open == counts.requested
    }

    /// Returns the time of the next connection attempt.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.population.next_attempt()
    }

    /// Returns whether `token` identifies one of these connections.
    pub(crate) fn owns(&self, token: Token) -> bool {
        self.population.owns(token)
    }

    /// Returns the numbers of connections and requests.
    pub(crate) fn counts(&self) -> report::Idle {
        let counts = &self.population.counts;
        report::Idle {
            requested: counts.requested,
            open: counts.open,
            lost: counts.lost,
            reestablished: counts.reestablished,
            requests: self.requests,
            replies: self.replies,
            descriptor_tables: 0,
        }
    }

    /// Returns the status of the connections.
    pub(crate) fn status(&self) -> Status {
        self.population.status()
    }

    /// Handles a completion on one of the connections.
    pub(crate) fn on_completion(&mut self, io: &mut impl Io, completion: Completion) {
        let token = completion.token;
        let mut received = std::mem::take(&mut self.received);
        let events = self.population.on_completion(io, completion, &mut received);
        if events.connected {
            if self.requests_first {
                self.send_request(io, token);
            } else {
                self.hold(io, token);
            }
        }
        let mut result = self.receive(io, token, &received);
        if events.deadline && result.is_ok() {
            result = self.on_deadline(io, token);
        }
        if let Err(loss) = result.and(events.end.map_or(Ok(()), Err)) {
            match &loss {
                _ if self.population.is_established(token) => {}
                Loss::Error(error) => self.errors.record(error),
                loss => self.errors.record_text(&loss.reason()),
            }
            self.population.close(io, token, true);
        }
        self.received = received;
    }

    fn send_request(&mut self, io: &mut impl Io, token: Token) {
        *self.population.state(token) = Some(Box::default());
        self.requests += 1;
        io.set_deadline(token, Some(io.now() + self.population.timeout()));
        self.population.send(io, token, &self.workload.message(0).bytes);
    }

    fn on_deadline(&mut self, io: &mut impl Io, token: Token) -> Result<(), Loss> {
        if self.population.state(token).is_some() {
            return Err(Loss::TimedOut);
        }
        self.send_request(io, token);
        Ok(())
    }

    fn receive(&mut self, io: &mut impl Io, token: Token, bytes: &[u8]) -> Result<(), Loss> {
        // Unsolicited data, such as a final message, changes nothing: the connection is still open.
        let Some(reply) = self.population.state(token) else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        match reply.feed(bytes, self.workload.message(0).method, |_| ()) {
            Ok(None) => Ok(()),
            Ok(Some(done)) => {
                self.replies += 1;
                if done.keep_alive {
                    self.hold(io, token);
                    return Ok(());
                }
                Err(Loss::Other("the server does not keep the connection open".into()))
            }
            Err(malformed) => Err(Loss::Other(malformed.to_string().into())),
        }
    }

    fn hold(&mut self, io: &mut impl Io, token: Token) {
        *self.population.state(token) = None;
        if !self.population.is_established(token) {
            self.population.establish(io, token);
        }
        let random = &mut self.random;
        let next = self.think.as_ref().map(|think| io.now() + think.sample(random));
        io.set_deadline(token, next);
    }
}
