//! Bodies of requests on their way to a server, and tunnels: bytes in both directions, after CONNECT
//! or a change of protocol.

use hearken::io::Relay;

use super::exchange::{Attempt, State};
use super::handler::{Cx, Proxy};
use super::upstream::Flags;
use crate::front::{Flow, Persistence};
use crate::runtime::access_log::Outcome;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

impl Proxy {
    /// Passes bytes of a client to its server.
    pub(super) fn upload<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, bytes: &[u8]) -> Flow {
        let exchange = &self.exchanges[key];
        let Some(attempt) = exchange.state.attempt() else { return Flow::Pause };
        let is_tunnel = matches!(exchange.state, State::Tunnel { .. });
        let connection = attempt.connection;
        let taken = self.send(cx, connection, bytes);
        let token = self.upstreams[connection].token;
        // In a tunnel, what fills a buffer is the beginning of much.
        let is_much = !is_tunnel || bytes.len() >= cx.io.pool().size();
        let may_relay = is_much && self.config.splice && !bytes.is_empty();
        if is_tunnel {
            self.extend_tunnel_deadline(cx, key);
        } else {
            self.update_upstream_deadline(cx, key);
        }
        match taken {
            _ if may_relay => Flow::Relay(token, taken),
            true => Flow::Continue,
            false => Flow::Pause,
        }
    }

    /// A server has taken all that it was sent.
    pub(super) fn on_sent<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32) {
        let upstream = &mut self.upstreams[connection];
        upstream.sends = upstream.sends.saturating_sub(1);
        let (0, Some(key)) = (upstream.sends, upstream.exchange) else { return };
        let exchange = &self.exchanges[key];
        let id = exchange.id;
        match exchange.state {
            State::Tunnel { .. } if cx.front.is_half_closed(id) => {
                self.on_client_ended_tunnel(cx, key)
            }
            State::Tunnel { .. } => {
                cx.front.resume_body(cx.io, id, None);
                self.extend_tunnel_deadline(cx, key);
            }
            State::Waiting { .. } | State::Responding { .. } => {
                cx.front.resume_body(cx.io, id, None);
                self.update_upstream_deadline(cx, key);
            }
            _ => {}
        }
    }

    /// Sending to a server failed.
    pub(super) fn on_send_failed<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32) {
        let upstream = &mut self.upstreams[connection];
        upstream.sends = 0;
        upstream.flags.insert(Flags::BROKEN);
        let Some(key) = upstream.exchange else { return self.close(cx, connection) };
        if let State::Tunnel { .. } = self.exchanges[key].state {
            return self.abort(cx, key, Outcome::UpstreamClosed);
        }
        // It may have answered before it closed, which receiving will tell.
        cx.front.drop_body(cx.io, self.exchanges[key].id);
        self.update_upstream_deadline(cx, key);
    }

    /// A client has taken all that it was sent.
    pub(super) fn on_client_drained<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let exchange = &self.exchanges[key];
        let Some(attempt) = exchange.state.attempt() else { return };
        let connection = attempt.connection;
        let is_tunnel = matches!(exchange.state, State::Tunnel { .. });
        if is_tunnel && self.upstreams[connection].flags.contains(Flags::ENDED) {
            return self.on_server_ended_tunnel(cx, key);
        }
        self.resume(cx, connection);
        if is_tunnel {
            self.extend_tunnel_deadline(cx, key);
        } else {
            self.update_upstream_deadline(cx, key);
        }
    }

    /// The server of a CONNECT request is connected to.
    pub(super) fn open_tunnel<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, attempt: Attempt) {
        let now = Self::now(cx);
        let exchange = &mut self.exchanges[key];
        exchange.times.sent = now;
        exchange.times.responded = now;
        let id = exchange.id;
        if !cx.front.write_head(cx.io, id, 200, Persistence::Close, ESTABLISHED, 0) {
            self.pause(cx, attempt.connection);
        }
        self.begin_tunnel(cx, key, attempt);
    }

    /// Passes everything on from now on.
    pub(super) fn begin_tunnel<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        attempt: Attempt,
    ) {
        self.metrics().tunnels_open.up();
        self.record_success(cx, attempt);
        self.exchanges[key].state = State::Tunnel { attempt, client_shut: false };
        let id = self.exchanges[key].id;
        let connection = attempt.connection;
        cx.io.set_deadline(self.upstreams[connection].token, None);
        let mut early = Vec::new();
        cx.front.start_tunnel(cx.io, id, &mut early);
        if self.send(cx, connection, &early) {
            cx.front.resume_body(cx.io, id, None);
        } else {
            cx.front.pause_body(cx.io, id);
        }
        // Either may have ended its side before.
        if cx.front.is_half_closed(id) {
            self.on_client_ended_tunnel(cx, key);
        }
        if self.exchanges[key].id == id && matches!(self.exchanges[key].state, State::Tunnel { .. })
        {
            if self.upstreams[connection].flags.contains(Flags::ENDED) {
                self.on_server_ended_tunnel(cx, key);
            } else {
                self.extend_tunnel_deadline(cx, key);
            }
        }
    }

    /// Passes bytes of a server on to the client of a tunnel.
    pub(super) fn download<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, bytes: &[u8]) {
        let exchange = &self.exchanges[key];
        let id = exchange.id;
        let Some(attempt) = exchange.state.attempt() else { return };
        let connection = attempt.connection;
        let taken = cx.front.write(cx.io, id, bytes, bytes.len() as u64);
        let is_much = bytes.len() >= cx.io.pool().size();
        if !(is_much && self.relay_to_client(cx, id, connection, u64::MAX)) {
            if taken {
                self.resume(cx, connection);
            } else {
                self.pause(cx, connection);
            }
        }
        self.extend_tunnel_deadline(cx, key);
    }

    /// Gives both sides of a tunnel their time again.
    pub(super) fn extend_tunnel_deadline<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let until = Self::now(cx) + self.config.timeouts.tunnel;
        cx.front.set_request_timer(cx.io, self.exchanges[key].id, Some(until));
    }

    /// The client has ended its side: the server is told, once it has taken what came before.
    pub(super) fn on_client_ended_tunnel<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let State::Tunnel { attempt, client_shut, .. } = self.exchanges[key].state else { return };
        let upstream = &mut self.upstreams[attempt.connection];
        if upstream.sends > 0 {
            return;
        }
        if !upstream.flags.contains(Flags::SHUT) {
            upstream.flags.insert(Flags::SHUT);
            cx.io.shutdown(upstream.token);
        }
        if client_shut {
            self.abort(cx, key, Outcome::Complete);
        } else {
            self.extend_tunnel_deadline(cx, key);
        }
    }

    /// The server has ended its side: the client is told, once it has taken what came before.
    pub(super) fn on_server_ended_tunnel<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let id = self.exchanges[key].id;
        if cx.front.is_blocked(id) {
            return;
        }
        let State::Tunnel { attempt, client_shut, .. } = &mut self.exchanges[key].state else {
            return;
        };
        if !std::mem::replace(client_shut, true) {
            cx.front.shut_down(cx.io, id);
        }
        if self.upstreams[attempt.connection].flags.contains(Flags::SHUT) {
            self.abort(cx, key, Outcome::Complete);
        } else {
            self.extend_tunnel_deadline(cx, key);
        }
    }
}
