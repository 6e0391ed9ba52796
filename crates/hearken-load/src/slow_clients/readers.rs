//! Clients that read their replies slowly. They have a small receive buffer and stop reading after
//! each piece, so that the server finds the window full.

use std::sync::Arc;

use hearken::Token;
use hearken::io::{Completion, Io};
use hearken::timer::Time;

use super::exchanges::{Exchange, Exchanges};
use super::{SlowGroup, SlowOptions};
use crate::population::{Loss, Population};
use crate::reply::CompleteReply;
use crate::target::Target;
use crate::workload::Workload;

/// Bounds of the size of the receive buffer in bytes. Within them, it holds the bytes of a second.
const MIN_BUFFER: f64 = 1024.0;
const MAX_BUFFER: f64 = 65_536.0;

/// The slow readers of a thread.
#[derive(Debug)]
pub(crate) struct SlowReaders {
    exchanges: Exchanges<Reading>,
}

/// The progress of a reader.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// End of the pause after the last piece, during a pause.
    paused_until: Option<Time>,
    /// The complete reply, whose last piece the pause follows.
    complete: Option<CompleteReply>,
    /// Whether the server has closed the connection after the reply.
    ended: bool,
}

impl SlowReaders {
    /// Creates the set of `count` readers of a thread.
    pub(crate) fn new(
        target: Target,
        workload: &Arc<Workload>,
        options: SlowOptions,
        count: usize,
    ) -> SlowReaders {
        let target = target.with_receive_buffer(options.rate.clamp(MIN_BUFFER, MAX_BUFFER) as u32);
        SlowReaders { exchanges: Exchanges::new(target, workload, options, count) }
    }

    /// Handles a completion on one of the connections.
    pub(crate) fn on_completion(&mut self, io: &mut impl Io, completion: Completion) {
        let token = completion.token;
        let (events, complete) = self.exchanges.on_completion(io, completion);
        if events.connected {
            self.send_request(io, token);
        } else if events.received > 0 && self.exchanges.population.is_established(token) {
            self.pause(io, token, events.received);
        }
        let reading = self.exchanges.progress(token);
        reading.complete = reading.complete.or(complete);
        match events.end {
            Some(_) if reading.complete.is_some() => reading.ended = true,
            Some(loss) => return self.exchanges.fail(io, token, &loss),
            None => {}
        }
        if events.deadline {
            self.resume(io, token);
        } else if self.exchanges.progress(token).ended {
            // The end may have come without a pause.
            let until = self.exchanges.progress(token).paused_until;
            io.set_deadline(token, Some(until.unwrap_or(io.now())));
        }
    }

    fn send_request(&mut self, io: &mut impl Io, token: Token) {
        self.exchanges.begin(token);
        let length = self.exchanges.request().bytes.len();
        self.exchanges.send(io, token, 0..length);
        self.read(io, token);
    }

    /// Waits for the next piece.
    fn read(&mut self, io: &mut impl Io, token: Token) {
        self.exchanges.progress(token).paused_until = None;
        io.set_deadline(token, Some(io.now() + self.exchanges.population.timeout()));
        io.start(token);
    }

    /// Stops reading for as long as the received bytes take at the rate.
    fn pause(&mut self, io: &mut impl Io, token: Token, bytes: usize) {
        self.exchanges.results.bytes += bytes as u64;
        let time = self.exchanges.options.time_of(bytes);
        let reading = self.exchanges.progress(token);
        // A receive in progress may complete during a pause.
        let until = reading.paused_until.unwrap_or_else(|| io.clock()) + time;
        reading.paused_until = Some(until);
        io.stop(token);
        io.set_deadline(token, Some(until));
    }

    /// Ends a pause, or a wait without data.
    fn resume(&mut self, io: &mut impl Io, token: Token) {
        let reading = self.exchanges.progress(token);
        let (complete, ended) = (reading.complete, reading.ended);
        match complete {
            Some(reply) => {
                self.exchanges.count_reply(reply, false);
                if reply.keep_alive && !ended {
                    self.send_request(io, token);
                } else {
                    self.exchanges.population.close(io, token, false);
                }
            }
            None if reading.paused_until.is_some() => self.read(io, token),
            None => self.exchanges.fail(io, token, &Loss::TimedOut),
        }
    }

    /// Opens some of the remaining connections. Returns true if more can be opened immediately.
    pub(crate) fn open_some(&mut self, io: &mut impl Io) -> bool {
        self.exchanges.open_some(io)
    }

    /// Returns the connections.
    pub(crate) fn population(&self) -> &Population<Exchange<Reading>> {
        &self.exchanges.population
    }

    /// Returns the results so far.
    pub(crate) fn results(&self) -> SlowGroup {
        self.exchanges.results()
    }
}
