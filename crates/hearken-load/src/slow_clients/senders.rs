//! Clients that send their requests in small pieces, as in the attack slowloris.

use std::sync::Arc;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, Io};
use hearken::timer::Time;

use super::exchanges::{Exchange, Exchanges};
use super::{SlowGroup, SlowOptions};
use crate::population::{Loss, Population};
use crate::target::Target;
use crate::workload::Workload;

/// Maximum number of pieces per second on a connection. At higher rates, pieces have several bytes.
const PIECES_PER_SECOND: f64 = 10.0;

/// The slow senders of a thread.
#[derive(Debug)]
pub(crate) struct SlowSenders {
    exchanges: Exchanges<Sending>,
    /// Size of a piece in bytes, and the time from one to the next.
    piece: usize,
    gap: Duration,
}

/// The progress of a sender.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// Number of bytes of the request that were sent.
    sent: usize,
    /// Earliest time of the next piece, which may belong to the next request.
    next_piece: Time,
}

impl SlowSenders {
    /// Creates the set of `count` senders of a thread.
    pub(crate) fn new(
        target: Target,
        workload: &Arc<Workload>,
        options: SlowOptions,
        count: usize,
    ) -> SlowSenders {
        let piece = (options.rate / PIECES_PER_SECOND).max(1.0) as usize;
        let exchanges = Exchanges::new(target, workload, options, count);
        SlowSenders { exchanges, piece, gap: options.time_of(piece) }
    }

    /// Handles a completion on one of the connections.
    pub(crate) fn on_completion(&mut self, io: &mut impl Io, completion: Completion) {
        let token = completion.token;
        let (events, complete) = self.exchanges.on_completion(io, completion);
        if events.connected {
            self.exchanges.begin(token);
            self.send_piece(io, token);
        }
        let is_early = self.exchanges.progress(token).sent < self.exchanges.request().bytes.len();
        if let Some(reply) = complete {
            self.exchanges.count_reply(reply, is_early);
            if reply.keep_alive && !is_early && events.end.is_none() {
                let next_piece = self.exchanges.progress(token).next_piece;
                self.exchanges.begin(token);
                io.set_deadline(token, Some(next_piece));
            } else {
                self.exchanges.population.close(io, token, false);
            }
        } else if let Some(loss) = events.end {
            self.exchanges.fail(io, token, &loss);
        } else if events.deadline {
            match is_early {
                true => self.send_piece(io, token),
                false => self.exchanges.fail(io, token, &Loss::TimedOut),
            }
        }
    }

    /// Sends the next piece, and schedules its successor or the timeout of the reply.
    fn send_piece(&mut self, io: &mut impl Io, token: Token) {
        let length = self.exchanges.request().bytes.len();
        let start = self.exchanges.progress(token).sent;
        let end = length.min(start + self.piece);
        let next_piece = io.now() + self.gap;
        *self.exchanges.progress(token) = Sending { sent: end, next_piece };
        self.exchanges.results.bytes += (end - start) as u64;
        self.exchanges.send(io, token, start..end);
        let timeout = io.now() + self.exchanges.population.timeout();
        io.set_deadline(token, Some(if end < length { next_piece } else { timeout }));
    }

    /// Opens some of the remaining connections. Returns true if more can be opened immediately.
    pub(crate) fn open_some(&mut self, io: &mut impl Io) -> bool {
        self.exchanges.open_some(io)
    }

    /// Returns the connections.
    pub(crate) fn population(&self) -> &Population<Exchange<Sending>> {
        &self.exchanges.population
    }

    /// Returns the results so far.
    pub(crate) fn results(&self) -> SlowGroup {
        self.exchanges.results()
    }
}
