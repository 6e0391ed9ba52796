//! What connections tell: that they are made, what they receive, when they are late.

use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, CompletionKind, Io};

use super::Active;
use crate::channel::Handshake;
use crate::connection::{Next, Stage};
use crate::failure::{Failure, Limit};
use crate::reply::Done;
use crate::tls::State;
use crate::workload::Check;

/// A deadline comes up to so much after its time.
const GRAIN: Duration = Duration::from_nanos(1 << 20);

impl Active {
    /// Something has happened to one of the connections.
    pub(crate) fn complete(&mut self, io: &mut impl Io, completion: Completion) {
        let Completion { token: on, kind } = completion;
        match kind {
            CompletionKind::Received(bytes) => {
                self.tally.counts.bytes.received += bytes.len() as u64;
                if self.connections[on.slot() as usize].channel.is_tls() {
                    self.under_tls(io, on, &bytes);
                } else {
                    self.hear(io, on, &bytes);
                }
            }
            CompletionKind::Connected(Ok(())) if self.target.is_itself(io, on) => {
                self.broken(io, on, Failure::ConnRefused, &"");
            }
            CompletionKind::Connected(Ok(())) => {
                io.start(on);
                let connection = &mut self.connections[on.slot() as usize];
                if connection.channel.is_tls() {
                    connection.channel.flush(io, on, &mut self.scratch);
                } else {
                    self.is_made(io, on);
                }
            }
            CompletionKind::End => self.ended(io, on),
            CompletionKind::Connected(Err(error)) => {
                self.broken(io, on, Failure::of(&error), &error);
            }
            CompletionKind::ReceiveFailed(error) | CompletionKind::Sent(Err(error)) => {
                self.handshake_ends(on);
                self.broken(io, on, Failure::of(&error), &error);
            }
            CompletionKind::Deadline => self.late(io, on),
            _ => {}
        }
    }

    /// Takes bytes that come under TLS.
    fn under_tls(&mut self, io: &mut impl Io, on: Token, bytes: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let connection = &mut self.connections[on.slot() as usize];
        let result = connection.channel.receive(io, on, bytes, &mut scratch);
        let plain = std::mem::take(&mut scratch.plain);
        self.scratch = scratch;
        match result {
            Ok((handshake, state)) => {
                if let Handshake::Over { resumed } = handshake {
                    self.tally.counts.handshakes.count(resumed);
                    self.is_made(io, on);
                }
                if !plain.is_empty() && self.owns(on) {
                    self.hear(io, on, &plain);
                }
                if state == State::Closed && self.owns(on) {
                    self.ended(io, on);
                }
            }
            Err(error) => {
                self.handshake_ends(on);
                // What came before it is whole.
                if !plain.is_empty() {
                    self.hear(io, on, &plain);
                }
                if self.owns(on) {
                    self.broken(io, on, Failure::Other, &error);
                }
            }
        }
        self.scratch.plain = plain;
    }

    /// Takes what was received.
    fn hear(&mut self, io: &mut impl Io, on: Token, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let connection = &mut self.connections[on.slot() as usize];
            let Some(request) = connection.asked.first() else {
                // What nobody asked for leaves the two sides out of step.
                return self.lost(io, on);
            };
            if std::mem::take(&mut connection.silent) && self.first_byte_timeout.is_some() {
                io.set_deadline(on, Some(request.intended + self.timeout));
            }
            let message = self.workload.message(request.message);
            let (status, check) = (&mut self.tally.counts.status, &mut connection.check);
            if check.is_none() {
                *check = message.expect.as_deref().map(Check::new);
            }
            let heard = connection.reply.next(
                &mut bytes,
                message.method,
                Some(&mut self.seen),
                |interim| status.count(interim),
                |content| {
                    if let Some(check) = check {
                        check.feed(content);
                    }
                },
            );
            match heard {
                Ok(None) => return,
                Ok(Some(done)) => self.replied(io, on, done, bytes.is_empty()),
                Err(malformed) => self.fail(io, on, Failure::Other, &malformed),
            }
            if !self.owns(on) {
                return;
            }
        }
    }

    /// A reply is complete; `alone` if nothing came behind it.
    fn replied(&mut self, io: &mut impl Io, on: Token, done: Done, alone: bool) {
        let now = io.now();
        let connection = &mut self.connections[on.slot() as usize];
        let Some(request) = connection.asked.pop() else { return };
        self.tally.counts.status.count(done.status);
        let expect = self.workload.message(request.message).expect.as_deref();
        let checked = expect
            .zip(connection.check.take())
            .map(|(expect, check)| check.end(expect, done.status));
        match checked {
            Some(Err(unmet)) => self.tally.fail_by(1, Failure::Check, &unmet),
            _ => self.tally.reply(request.intended, request.sent, now),
        }
        connection.served = connection.served.saturating_add(1);
        if let Some(next) = connection.asked.first() {
            if !done.keep_alive {
                return self.fail(io, on, Failure::ConnReset, &"");
            }
            connection.silent = true;
            let intended = next.intended;
            return io.set_deadline(on, Some(self.reply_due(intended, now)));
        }
        let keep = done.keep_alive && alone;
        if connection.script.is_some() {
            return self.go_on(io, on, keep);
        }
        connection.left = connection.left.saturating_sub(1);
        connection.stage = Stage::Free;
        if keep && connection.left > 0 && now < connection.until {
            self.reuse(io, on);
        } else {
            self.close(io, on);
        }
    }

    /// What is next of the script, here or on another connection if this one cannot be kept.
    fn go_on(&mut self, io: &mut impl Io, on: Token, keep: bool) {
        let now = io.now();
        let connection = &mut self.connections[on.slot() as usize];
        let Some(mut script) = connection.script.take() else { return };
        let Some(burst) = self.cursor.next_burst(&mut script) else {
            self.tally.counts.sessions.completed += 1;
            connection.stage = Stage::Free;
            if keep && connection.until > now && connection.until < super::NEVER {
                connection.stage = Stage::Resting;
                return io.set_deadline(on, Some(connection.until));
            }
            return self.close(io, on);
        };
        let due = now + burst.think;
        if due >= self.tally.end {
            // Its time was cut, not by the server.
            connection.stage = Stage::Free;
            self.close(io, on);
        } else if due >= connection.until {
            self.tally.counts.sessions.completed += 1;
            connection.stage = Stage::Resting;
            io.set_deadline(on, Some(connection.until));
        } else if keep {
            connection.script = Some(script);
            self.ask_burst(io, on, due, burst.messages, false);
        } else {
            let next = Next::Burst { due, messages: burst.messages, counted: false };
            self.drop_connection(io, on);
            self.connect(io, Some(script), next);
        }
    }

    /// The connection is of no more use; if its handshake was under way, that has failed.
    fn handshake_ends(&mut self, on: Token) {
        let under_way = self.connections[on.slot() as usize].stage == Stage::Connecting;
        self.tally.counts.handshakes.failed += u64::from(under_way);
    }

    /// The peer has ended the stream.
    fn ended(&mut self, io: &mut impl Io, on: Token) {
        self.handshake_ends(on);
        let connection = &mut self.connections[on.slot() as usize];
        if let Err(error) = connection.channel.end()
            && !connection.asked.is_empty()
        {
            return self.broken(io, on, Failure::ConnReset, &error);
        }
        let busy = !connection.asked.is_empty();
        match connection.reply.end() {
            Some(done) if busy => self.replied(io, on, done, true),
            _ => self.broken(io, on, Failure::ConnReset, &""),
        }
    }

    /// The connection is of no more use.
    fn broken(&mut self, io: &mut impl Io, on: Token, failure: Failure, why: &dyn ToString) {
        let connection = &self.connections[on.slot() as usize];
        if connection.outstanding() > 0 || connection.stage == Stage::Connecting {
            self.fail(io, on, failure, why);
        } else {
            self.lost(io, on);
        }
    }

    /// A connection without a request under way is lost.
    fn lost(&mut self, io: &mut impl Io, on: Token) {
        let connection = &mut self.connections[on.slot() as usize];
        if connection.script.is_none() {
            self.close(io, on);
        } else if connection.served > 0 {
            // As a user's agent would, it makes its next request on another one.
            let (script, next) = (connection.script, connection.next);
            self.drop_connection(io, on);
            self.connect(io, script, next);
        } else {
            self.fail(io, on, Failure::ConnReset, &"");
        }
    }

    /// A limit has run out, or it is time for the next request.
    fn late(&mut self, io: &mut impl Io, on: Token) {
        let now = io.now();
        let connection = &mut self.connections[on.slot() as usize];
        match connection.stage {
            Stage::Connecting => self.give_up(io, on, Limit::Connect),
            Stage::Busy => {
                let Some(request) = connection.asked.first() else { return };
                let whole = request.intended + self.timeout;
                if whole <= now {
                    return self.give_up(io, on, Limit::Reply);
                }
                match self.first_byte_timeout {
                    Some(first) if connection.silent && request.sent + first <= now => {
                        self.give_up(io, on, Limit::FirstByte);
                    }
                    // It was an earlier request's.
                    _ => io.set_deadline(on, Some(whole)),
                }
            }
            Stage::Thinking => {
                if let Next::Burst { due, messages, counted } = std::mem::take(&mut connection.next)
                {
                    self.ask_burst(io, on, now.min(due + GRAIN), messages, counted);
                }
            }
            Stage::Resting => self.close(io, on),
            // Else a past request's.
            Stage::Free if connection.until <= now => self.close(io, on),
            Stage::Free => {}
        }
    }
}
