//! From the server: reading responses, and passing them on.

use std::io;

use hearken::Token;
use hearken_http::forward::{self, Relay, ResponseTo};
use hearken_http::{Response, ResponseBody, Version};

use super::balance::Ended;
use super::connection::{Facts, Flags, Id, Route, Stage, Upload};
use super::splice::take;
use super::worker::Worker;
use crate::runtime::access_log::Outcome;
use crate::runtime::clock::unix_seconds;
use crate::runtime::metrics::Error;

/// How many interim responses there may be to a request.
const INTERIMS: u16 = 100;

impl<I: hearken::io::Relay> Worker<I> {
    /// A server has sent something.
    #[inline]
    pub(super) fn server_sent(&mut self, on: Token, id: Id, bytes: &[u8]) {
        let exchange = &mut self.exchanges[id];
        match exchange.stage {
            Stage::Answering => self.pass_on(on, id, bytes),
            Stage::Tunnel => self.tunnel(on, id, bytes),
            _ if exchange.reply.is_empty() => self.read_response(on, id, bytes),
            _ => {
                let mut reply = std::mem::take(&mut exchange.reply);
                reply.extend_from_slice(bytes);
                self.read_response(on, id, &reply);
            }
        }
    }

    fn read_response(&mut self, on: Token, id: Id, bytes: &[u8]) {
        let mut at = 0;
        loop {
            let exchange = &mut self.exchanges[id];
            let (rest, mut parser) = (&bytes[at..], exchange.response_parser);
            let method = exchange.kind.method();
            match parser.parse(rest, method, &self.config.limits) {
                Ok(Some(response)) if response.status >= 200 => {
                    let rest = &rest[response.head_len..];
                    return self.answer(id, &response, rest);
                }
                Ok(Some(response)) if response.status == 101 => {
                    let rest = &rest[response.head_len..];
                    return self.switch(on, id, &response, rest);
                }
                Ok(Some(response)) => {
                    exchange.response_parser = hearken_http::ResponseParser::new();
                    exchange.interims += 1;
                    if exchange.interims > INTERIMS {
                        return self.bad_response(id, "too many interim responses");
                    }
                    at += response.head_len;
                    self.interim(id, &response);
                }
                Ok(None) => {
                    exchange.response_parser = parser;
                    exchange.reply.clear();
                    exchange.reply.extend_from_slice(rest);
                    let client = exchange.client;
                    if !self.give_out(client) {
                        self.hold(on);
                    }
                    return;
                }
                Err(malformed) => return self.bad_response(id, malformed.0),
            }
        }
    }

    /// Passes an interim response on.
    fn interim(&mut self, id: Id, response: &Response<'_>) {
        let exchange = &mut self.exchanges[id];
        if response.status == 100 {
            // From now on it is the client's to send its body.
            exchange.facts.remove(Facts::EXPECTS);
        }
        if exchange.version == Version::Http11 {
            forward::interim(&self.rules, &mut self.out, response);
        }
        self.arm(id);
    }

    /// The response's head has come; `rest` follows it.
    fn answer(&mut self, id: Id, response: &Response<'_>, rest: &[u8]) {
        let now = self.io.now();
        let stopping = self.grace_ends.is_some();
        let exchange = &mut self.exchanges[id];
        let (client, server) = (exchange.client, exchange.server);
        exchange.answered = now;
        exchange.status = response.status;
        exchange.facts.set(Facts::KEEP_SERVER, response.keep_alive);
        // Where the request is not whole yet, what follows it on the connection may never come.
        let whole = matches!(exchange.upload, Upload::Done);
        let keep_alive = exchange.facts.contains(Facts::KEEP_CLIENT) && whole && !stopping;
        let date = forward::needs_date(response).then(|| {
            self.date.update(unix_seconds());
            &self.date
        });
        let to = ResponseTo { version: exchange.version, keep_alive, date };
        let framing = forward::response(&self.rules, &mut self.out, response, &to);
        let until_close = framing == ResponseBody::UntilClose;
        exchange.facts.set(Facts::UNTIL_CLOSE, until_close);
        if !keep_alive || until_close {
            self.connections[client.slot() as usize].flags.insert(Flags::CLOSE);
        }
        let (used, done) = match response.body {
            ResponseBody::None => (0, true),
            ResponseBody::Length(length) if length <= rest.len() as u64 => {
                // By far the most common: all of it is here.
                let length = length as usize;
                self.out.extend_from_slice(&rest[..length]);
                (length, true)
            }
            body => match self.begin_download(id, body, framing, rest) {
                Some(begun) => begun,
                None => return,
            },
        };
        let exchange = &mut self.exchanges[id];
        exchange.downloaded += used as u64;
        if !done {
            exchange.stage = Stage::Answering;
            self.goes_well(id);
        }
        let figures = self.figures();
        figures.responded(now.since(self.exchanges[id].asked));
        figures.bytes_sent_client.add(self.out.len() as u64);
        let taken = self.give_out(client);
        if done {
            return self.answered(id, used < rest.len());
        }
        if let (false, false, Some(server)) = (self.splice_download(id), taken, server) {
            self.hold(server);
        }
        self.arm(id);
    }

    /// Begins with a body that has not wholly come, or has to be framed anew; tells how much of `rest` it
    /// took and whether that was all. None if it is malformed, which was answered.
    fn begin_download(
        &mut self,
        id: Id,
        body: ResponseBody,
        framing: ResponseBody,
        rest: &[u8],
    ) -> Option<(usize, bool)> {
        let passed =
            Relay::new(body, framing, u64::MAX, &self.config.limits).and_then(|mut relay| {
                let used = relay.pass(rest, &mut self.out)?;
                Ok((relay, used))
            });
        match passed {
            Ok((relay, used)) => {
                let done = relay.is_done();
                self.exchanges[id].download = Some(relay);
                Some((used, done))
            }
            Err(reject) => {
                self.out.clear();
                let client = self.exchanges[id].client;
                self.connection(client).flags.remove(Flags::CLOSE);
                self.bad_response(id, reject.reason);
                None
            }
        }
    }

    /// Passes a part of a body on.
    fn pass_on(&mut self, on: Token, id: Id, bytes: &[u8]) {
        let exchange = &mut self.exchanges[id];
        let client = exchange.client;
        let Some(relay) = &mut exchange.download else { return };
        let Ok((used, plain)) = take(relay, bytes, &mut self.out) else {
            self.figures().error(Error::BadResponse);
            self.note_failure(id, "its response's body is malformed");
            return self.cut(id, Outcome::BadResponse);
        };
        let done = relay.is_done();
        exchange.downloaded += used as u64;
        self.figures().bytes_sent_client.add(if plain { used } else { self.out.len() } as u64);
        let taken = if plain { self.give(client, &bytes[..used]) } else { self.give_out(client) };
        if done {
            return self.answered(id, used < bytes.len());
        }
        if !self.splice_download(id) {
            if taken { self.resume(on) } else { self.hold(on) }
        }
        self.arm(id);
    }

    /// The server answers; what follows may take long.
    pub(super) fn goes_well(&mut self, id: Id) {
        let now = self.io.now();
        if let (Some(Route::Server(server)), Some(balancer)) =
            (self.exchanges[id].route, self.to.balancer())
        {
            balancer.goes_well(server, now);
        }
    }

    /// All of the response has come, and if `more`, something that nobody asked for.
    #[inline]
    pub(super) fn answered(&mut self, id: Id, more: bool) {
        let exchange = &self.exchanges[id];
        let well = !matches!(exchange.status, 502..=504);
        let whole = matches!(exchange.upload, Upload::Done);
        let keep = exchange.facts.contains(Facts::KEEP_SERVER) && whole && !more;
        let client = exchange.client;
        self.release(id, keep, if well { Ended::Well } else { Ended::Failed });
        if self.connections[client.slot() as usize].sends == 0 {
            self.finish(id);
        } else {
            self.exchanges[id].stage = Stage::Delivering;
            self.arm(id);
        }
    }

    /// Another protocol follows.
    fn switch(&mut self, on: Token, id: Id, response: &Response<'_>, rest: &[u8]) {
        let exchange = &mut self.exchanges[id];
        let whole = matches!(exchange.upload, Upload::Done);
        if !exchange.facts.contains(Facts::UPGRADE) || !whole {
            return self.bad_response(id, "another protocol than was asked for");
        }
        exchange.status = 101;
        exchange.answered = self.io.now();
        let client = exchange.client;
        forward::switching(&self.rules, &mut self.out, response);
        self.out.extend_from_slice(rest);
        self.exchanges[id].downloaded += rest.len() as u64;
        if !self.give_out(client) {
            self.hold(on);
        }
        self.begin_tunnel(id);
    }

    /// A server has ended its side, in the middle of an exchange.
    pub(super) fn server_ended(&mut self, on: Token, id: Id) {
        match self.exchanges[id].stage {
            Stage::Tunnel => self.tunnel_ended(on, id),
            Stage::Answering => {
                let exchange = &mut self.exchanges[id];
                let client = exchange.client;
                let ended = exchange.download.as_mut().map(|relay| relay.end(&mut self.out));
                if let Some(Ok(())) = ended {
                    exchange.facts.remove(Facts::KEEP_SERVER);
                    self.give_out(client);
                    return self.answered(id, false);
                }
                self.out.clear();
                self.figures().error(Error::Truncated);
                self.note_failure(id, "it closed within its response");
                self.cut(id, Outcome::ServerCut);
            }
            _ => self.server_left(id),
        }
    }

    /// Receiving from a server has failed.
    pub(super) fn server_broke(&mut self, id: Id, error: &io::Error) {
        match self.exchanges[id].stage {
            Stage::Answering | Stage::Tunnel => {
                self.figures().error(Error::Truncated);
                self.note_failure(id, &format!("its connection broke: {error}"));
                self.cut(id, Outcome::ServerCut);
            }
            Stage::Connecting => self.connect_failed(id, error),
            _ => self.server_left(id),
        }
    }

    /// What a server has sent is no response.
    #[cold]
    pub(super) fn bad_response(&mut self, id: Id, why: &'static str) {
        self.out.clear();
        self.figures().error(Error::BadResponse);
        self.note_failure(id, &format!("its response is refused: {why}"));
        self.give_up(
            id,
            502,
            "the server's response could not be understood",
            Outcome::BadResponse,
        );
    }

    /// Has the exchange go on without the connection to its server, which is kept for another if it may
    /// be.
    pub(super) fn release(&mut self, id: Id, keep: bool, how: Ended) {
        let now = self.io.now();
        let exchange = &mut self.exchanges[id];
        let route = exchange.route.take();
        let how = if exchange.facts.contains(Facts::FAILED) { Ended::Failed } else { how };
        exchange.facts.remove(Facts::FAILED);
        if let Some(server) = exchange.server.take() {
            let connection = &mut self.connections[server.slot() as usize];
            connection.exchange = None;
            let as_new =
                connection.sends == 0 && !connection.flags.intersects(Flags::ENDED | Flags::BROKEN);
            let keeps = match route {
                Some(route) if keep && as_new && self.grace_ends.is_none() => {
                    connection.flags.insert(Flags::USED);
                    self.to.keeps(route) && self.idle.put(route, server, &self.connections)
                }
                _ => false,
            };
            if keeps {
                self.resume(server);
                self.io.set_deadline(server, Some(now + self.config.timeouts.keep));
            } else {
                self.close(server);
            }
        }
        if let (Some(Route::Server(server)), Some(balancer)) = (route, self.to.balancer()) {
            balancer.ended(server, now, how);
            if !self.queue.is_empty() {
                self.serve_queue();
            }
        }
    }
}
