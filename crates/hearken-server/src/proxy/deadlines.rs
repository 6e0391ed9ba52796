//! Every wait has an end: deadlines, and what becomes of who is late.

use std::time::Duration;

use hearken::Token;
use hearken::io::Relay;

use super::connection::{Flags, Id, Role, Stage};
use super::worker::Worker;
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;
use crate::runtime::rate::{is_too_slow, least};

impl<I: Relay> Worker<I> {
    pub(super) fn on_deadline(&mut self, on: Token) {
        if self.door.is(on) {
            return self.door.retry(&mut self.io);
        }
        let connection = self.connection(on);
        match (connection.role, connection.exchange) {
            (Role::Vacant, _) => {}
            (Role::Client, Some(id)) => self.client_is_late(on, id),
            (Role::Server, Some(id)) => self.server_is_late(id),
            // Idle, or lingering.
            _ => self.close(on),
        }
    }

    /// Sets the deadlines of both sides of an exchange to what is waited for.
    pub(super) fn arm(&mut self, id: Id) {
        let timeouts = &self.config.timeouts;
        let exchange = &self.exchanges[id];
        let held_up = self.is_behind(exchange.client);
        let blocked = exchange.server.is_some_and(|server| self.is_behind(server));
        let waits_for_body = exchange.waits_for_body();
        // Nothing is told of what the kernel moves: both sides are looked at.
        let spliced_up = self.is_spliced(exchange.client);
        let spliced_down = exchange.server.is_some_and(|server| self.is_spliced(server));
        let (of_client, of_server) = match exchange.stage {
            Stage::Free => return,
            Stage::Head => (Some(timeouts.head), None),
            Stage::Resolving => (Some(timeouts.connect), None),
            Stage::Queued => (Some(timeouts.queue), None),
            Stage::Connecting => (None, Some(timeouts.connect)),
            Stage::Asked | Stage::Answering => {
                let asked = exchange.stage == Stage::Asked;
                let of_client = match () {
                    () if held_up || spliced_down => Some(timeouts.send),
                    () if waits_for_body && !blocked => Some(timeouts.body),
                    () => None,
                };
                let of_server = match () {
                    () if blocked || spliced_up => Some(timeouts.server_send),
                    () if spliced_down => Some(timeouts.response_body),
                    () if waits_for_body || held_up => None,
                    () if asked => Some(timeouts.response),
                    () => Some(timeouts.response_body),
                };
                (of_client, of_server)
            }
            Stage::Tunnel => (Some(timeouts.tunnel), None),
            Stage::Delivering => (Some(timeouts.send), None),
        };
        let now = self.io.now();
        let at = |span: Option<Duration>| {
            [span.map(|span| now + span), exchange.until].into_iter().flatten().min()
        };
        self.io.set_deadline(exchange.client, at(of_client));
        if let Some(server) = exchange.server {
            self.io.set_deadline(server, at(of_server));
        }
    }

    fn client_is_late(&mut self, on: Token, id: Id) {
        let by_kernel = self.is_answered_by_kernel(id);
        let moved = !by_kernel && self.has_moved(id);
        let excused = !moved && self.is_excused(on, id);
        let exchange = &self.exchanges[id];
        let held_up = self.is_behind(on);
        let overdue = exchange.until.is_some_and(|until| until <= self.io.now());
        let blocked = exchange.server.is_some_and(|server| self.is_behind(server));
        match exchange.stage {
            Stage::Head if exchange.received.is_empty() => self.drop_client(on, id),
            Stage::Head => {
                self.figures().error(Error::ClientTimeout);
                let reason = "the request took too long";
                self.exchanges[id].rejected = Some(reason);
                self.refuse(id, 408, reason);
            }
            Stage::Free => {}
            _ if overdue => self.is_overdue(id),
            Stage::Queued => {
                self.figures().error(Error::QueueTimeout);
                self.refuse(id, 503, "no server had room in time");
            }
            Stage::Resolving => {
                self.figures().error(Error::NameNotFound);
                self.refuse(id, 504, "the server's name could not be looked up in time");
            }
            Stage::Asked | Stage::Answering | Stage::Tunnel if moved => self.arm(id),
            Stage::Tunnel => self.cut(id, Outcome::Idle),
            Stage::Asked | Stage::Answering if excused => {}
            _ if held_up || by_kernel => self.judge_rate(on, id),
            Stage::Asked | Stage::Answering if exchange.waits_for_body() && !blocked => {
                self.figures().error(Error::ClientTimeout);
                self.give_up(id, 408, "the request's body took too long", Outcome::ClientLate);
            }
            _ => {}
        }
    }

    fn server_is_late(&mut self, id: Id) {
        let Some(server) = self.exchanges[id].server else { return };
        let moved = self.has_moved(id);
        let excused = !moved && self.is_excused(server, id);
        let exchange = &self.exchanges[id];
        let client = exchange.client;
        let overdue = exchange.until.is_some_and(|until| until <= self.io.now());
        let blocked = self.is_behind(server) || self.is_spliced(client);
        let held_up = self.is_behind(client);
        match exchange.stage {
            _ if overdue => self.is_overdue(id),
            // The client's rate is measured meanwhile.
            Stage::Answering if moved && self.is_answered_by_kernel(id) => {
                self.allow(server, id, self.config.timeouts.response_body);
            }
            Stage::Asked | Stage::Answering if moved => self.arm(id),
            Stage::Connecting => self.connect_timed_out(id),
            Stage::Asked | Stage::Answering if excused => {}
            Stage::Asked if blocked || !exchange.waits_for_body() => {
                let what = if blocked { Error::SendTimeout } else { Error::ResponseTimeout };
                self.figures().error(what);
                self.note_failure(id, "it did not take a request, or answer it, in time");
                self.give_up(id, 504, "the server did not answer in time", Outcome::ServerLate);
            }
            Stage::Answering
                if blocked
                    || self.is_spliced(server)
                    || !(held_up || exchange.waits_for_body()) =>
            {
                let what = if blocked { Error::SendTimeout } else { Error::BodyTimeout };
                self.figures().error(what);
                self.note_failure(id, "its response did not go on in time");
                self.cut(id, Outcome::ServerLate);
            }
            _ => {}
        }
    }

    /// Whether the kernel moves bytes to or from the connection, and it is the other side's fault that
    /// nothing was moved; then it has as much time again.
    fn is_excused(&mut self, on: Token, id: Id) -> bool {
        let timeouts = &self.config.timeouts;
        let exchange = &self.exchanges[id];
        let Some(server) = exchange.server else { return false };
        let late_is_client = on == exchange.client;
        let (up, down) = (self.is_spliced(exchange.client), self.is_spliced(server));
        // Who is sent to is to blame if it has not taken what it was sent; else who sends.
        let (excused, span) = match (late_is_client, up, down) {
            // One of the two has to be.
            (true, true, true) => {
                let idle = self.io.undelivered(on) == 0;
                (idle && self.io.undelivered(server) > 0, timeouts.send)
            }
            (true, _, true) => (self.io.undelivered(on) == 0, timeouts.send),
            (true, true, _) => (self.io.undelivered(server) > 0, timeouts.body),
            (false, true, _) => (self.io.undelivered(on) == 0, timeouts.server_send),
            (false, _, true) => (self.io.undelivered(exchange.client) > 0, timeouts.response_body),
            _ => return false,
        };
        if excused {
            if late_is_client {
                self.exchanges[id].due = None;
            }
            self.allow(on, id, span);
        }
        excused
    }

    /// Gives one side of an exchange so much more time, within that of the whole.
    fn allow(&mut self, on: Token, id: Id, span: Duration) {
        let until = self.exchanges[id].within(self.io.now() + span);
        self.io.set_deadline(on, Some(until));
    }

    /// Whether the kernel moves an answer to the client, and nothing else.
    fn is_answered_by_kernel(&self, id: Id) -> bool {
        let exchange = &self.exchanges[id];
        exchange.stage == Stage::Answering
            && exchange.server.is_some_and(|server| self.is_spliced(server))
            && !self.is_spliced(exchange.client)
    }

    /// Whether the kernel moves on what the connection receives.
    fn is_spliced(&self, on: Token) -> bool {
        self.connections[on.slot() as usize].flags.contains(Flags::RELAYED)
    }

    /// The whole of it has taken too long.
    fn is_overdue(&mut self, id: Id) {
        self.figures().error(Error::WholeTimeout);
        self.give_up(id, 504, "the request as a whole took too long", Outcome::Overdue);
    }

    /// Looks at how fast a client takes what it is sent.
    fn judge_rate(&mut self, on: Token, id: Id) {
        let delivered = self.io.delivered(on);
        // Where it has no backlog it may be the server that is slow, and what is on its way takes a while.
        let has_backlog = self.is_behind(on) || self.io.relay_is_blocked(on);
        let min_rate = if has_backlog { self.config.min_rate } else { 0 };
        let least = least(min_rate, self.config.timeouts.send);
        if is_too_slow(&mut self.exchanges[id].due, delivered, least) {
            self.figures().error(Error::ClientTimeout);
            self.io.abort(on);
            self.cancel(id, Outcome::ClientLate);
        } else {
            self.arm(id);
        }
    }
}
