//! The part that slow readers and slow senders share: successive requests on each connection, and
//! their outcomes.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, Io};

use super::{SlowGroup, SlowOptions};
use crate::population::{Events, Loss, Population};
use crate::reply::{CompleteReply, Reply};
use crate::target::Target;
use crate::workload::{Message, Workload};

/// The requests of the slow clients of a thread.
#[derive(Debug)]
pub(super) struct Exchanges<S> {
    pub(super) population: Population<Exchange<S>>,
    pub(super) options: SlowOptions,
    pub(super) results: SlowGroup,
    workload: Arc<Workload>,
    received: Vec<u8>,
}

/// The request in progress on a connection.
#[derive(Debug, Default)]
pub(crate) struct Exchange<S> {
    /// Boxed, because unused slots of the table have none.
    reply: Option<Box<Reply>>,
    pub(super) progress: S,
}

impl<S: Default> Exchanges<S> {
    pub(super) fn new(
        target: Target,
        workload: &Arc<Workload>,
        options: SlowOptions,
        count: usize,
    ) -> Exchanges<S> {
        Exchanges {
            population: Population::new(target, count, Duration::ZERO),
            options,
            results: SlowGroup { rate: options.rate, ..SlowGroup::default() },
            workload: workload.clone(),
            received: Vec::new(),
        }
    }

    /// Opens some of the remaining connections. Returns true if more can be opened immediately.
    pub(super) fn open_some(&mut self, io: &mut impl Io) -> bool {
        let failures = &mut self.results.failures;
        self.population.open_some(io, |error: &io::Error| failures.record(&error.to_string()))
    }

    /// Returns the results so far.
    pub(super) fn results(&self) -> SlowGroup {
        let counts = self.population.counts;
        SlowGroup { requested: counts.requested, open: counts.open, ..self.results.clone() }
    }

    /// Returns the request.
    pub(super) fn request(&self) -> &Message {
        self.workload.message(0)
    }

    /// Sends a part of the request.
    pub(super) fn send(&mut self, io: &mut impl Io, token: Token, part: Range<usize>) {
        let request = &self.workload.message(0).bytes;
        self.population.send(io, token, request.get(part).unwrap_or_default());
    }

    /// Returns the progress of the request of a connection.
    pub(super) fn progress(&mut self, token: Token) -> &mut S {
        &mut self.population.state(token).progress
    }

    /// Counts a new request, and returns the progress of the connection.
    pub(super) fn begin(&mut self, token: Token) -> &mut S {
        self.results.requests += 1;
        *self.population.state(token) = Exchange::default();
        self.progress(token)
    }

    /// Handles a completion on one of the connections. Returns what has happened, with the reply if it is
    /// complete.
    pub(super) fn on_completion(
        &mut self,
        io: &mut impl Io,
        completion: Completion,
    ) -> (Events, Option<CompleteReply>) {
        let token = completion.token;
        let mut received = std::mem::take(&mut self.received);
        let mut events = self.population.on_completion(io, completion, &mut received);
        if events.connected {
            self.population.establish(io, token);
        }
        let method = self.request().method;
        let reply = self.population.state(token).reply.get_or_insert_default();
        let mut complete = None;
        if !received.is_empty() {
            match reply.feed(&received, method, |_| ()) {
                Ok(reply) => complete = reply,
                Err(malformed) => events.end = Some(Loss::Other(malformed.to_string().into())),
            }
        }
        if complete.is_none() && matches!(events.end, Some(Loss::Closed)) {
            complete = reply.on_end_of_stream();
        }
        self.received = received;
        (events, complete)
    }

    /// Counts a complete reply.
    pub(super) fn count_reply(&mut self, reply: CompleteReply, is_early: bool) {
        *(match is_early || reply.status >= 400 {
            true => &mut self.results.refused,
            false => &mut self.results.completed,
        }) += 1;
    }

    /// Closes a connection whose request has no complete reply.
    pub(super) fn fail(&mut self, io: &mut impl Io, token: Token, loss: &Loss) {
        let established = self.population.is_established(token);
        match loss {
            loss if established && loss.is_by_server() => self.results.closed_by_server += 1,
            Loss::TimedOut if established => self.results.timed_out += 1,
            loss => self.results.failures.record(&loss.reason()),
        }
        self.population.close(io, token, true);
    }
}
