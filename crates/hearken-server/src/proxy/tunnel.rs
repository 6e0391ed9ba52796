//! Tunnels: bytes passed on both ways, after CONNECT or a change of protocol.

use hearken::Token;
use hearken::io::Relay;

use super::connection::{Flags, Id, Stage};
use super::worker::Worker;
use crate::runtime::access_log::Outcome;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

impl<I: Relay> Worker<I> {
    /// The server of a CONNECT request is connected to.
    pub(super) fn establish(&mut self, id: Id) {
        let exchange = &mut self.exchanges[id];
        let client = exchange.client;
        exchange.status = 200;
        exchange.asked = self.io.now();
        exchange.answered = self.io.now();
        let taken = self.give(client, ESTABLISHED);
        if let (false, Some(server)) = (taken, self.exchanges[id].server) {
            self.hold(server);
        }
        self.begin_tunnel(id);
    }

    /// From now on all that comes is passed on.
    pub(super) fn begin_tunnel(&mut self, id: Id) {
        self.figures().tunnels_open.up();
        self.goes_well(id);
        let exchange = &mut self.exchanges[id];
        exchange.stage = Stage::Tunnel;
        exchange.until = None;
        let (client, server) = (exchange.client, exchange.server);
        let early = std::mem::take(&mut exchange.received);
        exchange.uploaded += early.len() as u64;
        if let Some(server) = server {
            self.io.set_deadline(server, None);
            if early.is_empty() || self.give(server, &early) {
                self.resume(client);
            } else {
                self.hold(client);
            }
            // Either may have ended its side before.
            for on in [client, server] {
                if self.connection(on).flags.contains(Flags::ENDED) {
                    self.tunnel_ended(on, id);
                }
            }
        }
        if self.exchanges[id].stage == Stage::Tunnel {
            self.arm(id);
        }
    }

    /// The other side of a tunnel.
    fn other(&self, on: Token, id: Id) -> Option<Token> {
        let exchange = &self.exchanges[id];
        if on == exchange.client { exchange.server } else { Some(exchange.client) }
    }

    /// Passes bytes on that came from `on`.
    pub(super) fn tunnel(&mut self, on: Token, id: Id, bytes: &[u8]) {
        let Some(other) = self.other(on, id) else { return };
        let count = bytes.len() as u64;
        let exchange = &mut self.exchanges[id];
        if on == exchange.client {
            exchange.uploaded += count;
            self.figures().bytes_received_client.add(count);
            self.figures().bytes_sent_upstream.add(count);
        } else {
            exchange.downloaded += count;
            self.figures().bytes_sent_client.add(count);
        }
        let taken = self.give(other, bytes);
        // What fills a buffer is the beginning of much.
        let much = bytes.len() >= self.io.pool().size();
        if !(much && self.splice(on, other, u64::MAX)) {
            if taken { self.resume(on) } else { self.hold(on) }
        }
        let until = self.io.now() + self.config.timeouts.tunnel;
        let client = self.exchanges[id].client;
        self.io.set_deadline(client, Some(until));
    }

    /// `on` has taken all that it was given.
    pub(super) fn tunnel_taken(&mut self, on: Token, id: Id) {
        let Some(other) = self.other(on, id) else { return };
        if self.connection(other).flags.contains(Flags::ENDED) {
            self.tunnel_ended(other, id);
        } else {
            self.resume(other);
            self.arm(id);
        }
    }

    /// `on` has ended its side: the other is told, once it has taken what came before.
    pub(super) fn tunnel_ended(&mut self, on: Token, id: Id) {
        let Some(other) = self.other(on, id) else { return };
        let connection = self.connection(other);
        if connection.sends > 0 {
            return;
        }
        if !connection.flags.contains(Flags::SHUT) {
            connection.flags.insert(Flags::SHUT);
            self.io.shutdown(other);
        }
        // It was told of the other's end before.
        if self.connection(on).flags.contains(Flags::SHUT) {
            self.cut(id, Outcome::Done);
        } else {
            self.arm(id);
        }
    }
}
