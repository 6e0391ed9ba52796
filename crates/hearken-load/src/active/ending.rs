//! How connections end, and what takes their place.

use hearken::Token;
use hearken::io::Io;

use super::{Active, RETRY};
use crate::connection::{Next, Stage};
use crate::failure::{Failure, Limit};
use crate::report::Model;

impl Active {
    /// What is under way on the connection has failed.
    pub(super) fn fail(
        &mut self,
        io: &mut impl Io,
        on: Token,
        failure: Failure,
        why: &dyn ToString,
    ) {
        let requests = self.forget(on);
        self.tally.fail_by(requests, failure, why);
        self.close(io, on);
    }

    /// As [`fail`](Active::fail), as a limit has run out.
    pub(super) fn give_up(&mut self, io: &mut impl Io, on: Token, limit: Limit) {
        let requests = self.forget(on);
        self.tally.time_out(requests, limit);
        self.close(io, on);
    }

    /// Takes off what was under way, and tells how many requests that were.
    fn forget(&mut self, on: Token) -> u64 {
        let connection = &mut self.connections[on.slot() as usize];
        // What could not even be begun counts, too, or its session would fail for no reason.
        let uncounted = connection.next.uncounted();
        self.tally.counts.intended += uncounted;
        let requests = connection.outstanding() + uncounted;
        connection.asked.clear();
        connection.next = Next::Nothing;
        let failed = connection.script.take().is_some();
        self.tally.counts.sessions.failed += u64::from(failed);
        requests
    }

    /// Closes it, and that is all.
    pub(super) fn drop_connection(&mut self, io: &mut impl Io, on: Token) {
        let connection = &mut self.connections[on.slot() as usize];
        connection.channel.close(io, on, &mut self.scratch);
        io.close(on);
        connection.token = None;
        connection.script = None;
        connection.next = Next::Nothing;
        self.open -= 1;
        self.connecting -= usize::from(connection.stage == Stage::Connecting);
    }

    /// Closes it, and opens others for those who wait for one.
    pub(super) fn close(&mut self, io: &mut impl Io, on: Token) {
        self.drop_connection(io, on);
        let served = self.connections[on.slot() as usize].served > 0;
        let now = io.now();
        match self.model {
            Model::Closed if now >= self.tally.end => {}
            Model::Closed if served => {
                self.begin(io, now);
            }
            // One that was of no use would be replaced again and again, at once.
            Model::Closed => self.retries.push_back(now + RETRY),
            Model::Requests => {
                while self.open < self.limit
                    && let Some((intended, message)) = self.waiting.pop_front()
                {
                    self.connect(io, None, Next::Message(intended, message));
                }
                // Ahead of the next request; where it was of no use, that is left to the requests.
                let more = now < self.tally.end && self.limit < usize::MAX;
                if served && more && self.open < self.limit {
                    self.connect(io, None, Next::Nothing);
                }
            }
            Model::Connections | Model::Sessions => {}
        }
    }
}
