//! How exchanges end: by their response, by an answer of the proxy's own, or cut off.

use std::time::Duration;

use hearken::io::Relay;
use hearken_http::{RequestParser, ResponseHead, Version, reason};

use super::balance::Ended;
use super::connection::{Facts, Flags, Id, Kind, Stage, Upload};
use super::worker::Worker;
use crate::runtime::access_log::{End, Outcome, Rejected};
use crate::runtime::clock::unix_seconds;

impl<I: Relay> Worker<I> {
    /// The client has been sent all of the answer.
    pub(super) fn finish(&mut self, id: Id) {
        self.tell_of(id);
        let exchange = &mut self.exchanges[id];
        let client = exchange.client;
        let last = self.door.is_closed() && exchange.received.is_empty();
        let connection = &mut self.connections[client.slot() as usize];
        let flags = connection.flags;
        if flags.contains(Flags::CLOSE) || last {
            let more = exchange.facts.contains(Facts::KEEP_CLIENT)
                || !matches!(exchange.upload, Upload::Done)
                || !exchange.received.is_empty()
                || flags.contains(Flags::STOPPED)
                // Nothing was read of it that could be understood.
                || exchange.head.is_empty();
            self.exchanges.end(id);
            return if more { self.linger(client) } else { self.close(client) };
        }
        connection.flags.insert(Flags::USED);
        if !exchange.received.is_empty() {
            exchange.clear();
            exchange.stage = Stage::Head;
            return self.again.push_back(client);
        }
        connection.exchange = None;
        self.exchanges.end(id);
        if flags.contains(Flags::ENDED) {
            return self.close(client);
        }
        self.resume(client);
        self.io.set_deadline(client, Some(self.idle_until));
    }

    /// Answers in the server's place.
    #[cold]
    pub(super) fn refuse(&mut self, id: Id, status: u16, why: &'static str) {
        self.release(id, false, Ended::Cancelled);
        if self.exchanges[id].stage == Stage::Free {
            return;
        }
        self.deserted += usize::from(self.exchanges[id].stage == Stage::Queued);
        self.date.update(unix_seconds());
        let stopping = self.grace_ends.is_some();
        let exchange = &mut self.exchanges[id];
        exchange.status = status;
        exchange.answered = self.io.now();
        // That it has taken too long as a whole may be what it says.
        exchange.until = None;
        if exchange.how == Outcome::Done && status != 200 {
            exchange.how = Outcome::Refused;
        }
        let whole = matches!(exchange.upload, Upload::Done);
        let keep_alive = exchange.facts.contains(Facts::KEEP_CLIENT) && whole && !stopping;
        if !whole {
            exchange.upload = Upload::Dropped;
        }
        let text = if why.is_empty() {
            String::new()
        } else {
            format!("{status} {}: {why}\n", reason(status))
        };
        self.out.clear();
        let mut head = ResponseHead::new(&mut self.out, status);
        head.date(&self.date)
            .field("Content-Type", "text/plain; charset=utf-8")
            .content_length(text.len() as u64);
        if status == 405 {
            head.field("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
        }
        if status == 503 {
            head.field("Retry-After", "1");
        }
        if !keep_alive {
            head.connection_close();
        } else if exchange.version == Version::Http10 {
            head.connection_keep_alive();
        }
        head.end();
        if exchange.kind != Kind::Head {
            self.out.extend_from_slice(text.as_bytes());
            exchange.downloaded = text.len() as u64;
        }
        let client = exchange.client;
        exchange.stage = Stage::Delivering;
        if !keep_alive {
            self.connection(client).flags.insert(Flags::CLOSE);
        }
        self.give_out(client);
        if self.is_behind(client) {
            self.arm(id);
        } else {
            self.finish(id);
        }
    }

    /// Answers with `status` if there was no answer yet; else cuts the client off.
    pub(super) fn give_up(&mut self, id: Id, status: u16, why: &'static str, how: Outcome) {
        let exchange = &mut self.exchanges[id];
        exchange.how = how;
        match exchange.stage {
            Stage::Answering | Stage::Tunnel | Stage::Delivering => self.cut(id, how),
            _ => self.refuse(id, status, why),
        }
    }

    /// Ends an exchange whose answer cannot be completed, so that the client can tell.
    pub(super) fn cut(&mut self, id: Id, how: Outcome) {
        let exchange = &self.exchanges[id];
        let client = exchange.client;
        let broken =
            exchange.stage == Stage::Tunnel && how != Outcome::Done && how != Outcome::Idle;
        // An end of the connection would be taken for that of the answer.
        if broken || exchange.facts.contains(Facts::UNTIL_CLOSE) {
            self.io.abort(client);
        }
        self.cancel(id, how);
    }

    /// Ends an exchange whose client has left.
    pub(super) fn cancel(&mut self, id: Id, how: Outcome) {
        let exchange = &mut self.exchanges[id];
        exchange.how = how;
        self.deserted += usize::from(exchange.stage == Stage::Queued);
        self.release(id, false, Ended::Cancelled);
        self.tell_of(id);
        let exchange = &self.exchanges[id];
        let client = exchange.client;
        self.exchanges.end(id);
        self.close(client);
    }

    /// Counts an exchange that ends, and writes its line.
    fn tell_of(&mut self, id: Id) {
        let now = self.io.now();
        let exchange = &self.exchanges[id];
        let figures = &self.metrics.workers[self.index];
        if exchange.stage == Stage::Tunnel {
            figures.tunnels_open.down();
        }
        figures.answered(exchange.status);
        let whole = now.since(exchange.began);
        figures.took(whole);
        if self.log.is_some() {
            self.log(id, whole);
        }
    }

    #[cold]
    fn log(&mut self, id: Id, whole: Duration) {
        self.date.update(unix_seconds());
        let exchange = &self.exchanges[id];
        let request = RequestParser::new().parse(&exchange.head, &self.config.limits);
        let request = request.ok().flatten();
        let rejected =
            exchange.rejected.map(|reason| Rejected { input: &exchange.received, reason });
        let name = exchange.last.map(|route| self.to.name(route));
        let end = End {
            peer: self.client_addr(exchange.client),
            status: exchange.status,
            sent: exchange.downloaded,
            received: exchange.uploaded,
            server: name.as_deref(),
            tries: exchange.tries.into(),
            queued: exchange.reached.since(exchange.began),
            connected: exchange.asked.since(exchange.reached),
            answered: exchange.answered.since(exchange.began),
            whole,
            how: exchange.how,
        };
        if let Some(log) = &mut self.log {
            log.request(&self.date, request.as_ref(), rejected, &end);
        }
    }
}
