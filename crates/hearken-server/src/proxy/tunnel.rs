//! Request bodies, and tunnels after CONNECT or a protocol upgrade.

use hearken::io::Relay;

use super::exchange::{Attempt, State};
use super::handler::{Cx, Proxy};
use super::upstream::Flags;
use crate::front::{Flow, Persistence};
use crate::runtime::access_log::Outcome;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

impl Proxy {
    /// Forwards bytes of a client to its server.
    pub(super) fn upload<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, bytes: &[u8]) -> Flow {
        let exchange = &self.exchanges[key];
        let Some(attempt) = exchange.state.attempt() else { return Flow::Pause };
        let is_tunnel = matches!(exchange.state, State::Tunnel { .. });
        let connection = attempt.connection;
        let taken = self.send(cx, connection, bytes);
        let token = self.upstreams[connection].token;
        // In a tunnel, a full buffer indicates that much data follows.
        let is_bulk = !is_tunnel || bytes.len() >= cx.io.pool().size();
        let is_stream = self.upstreams[connection].flags.contains(Flags::STREAM);
        let may_relay = is_bulk && self.config.splice && !bytes.is_empty() && !is_stream;
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

    /// Handles the completion of a send to a server.
    pub(super) fn on_sent<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32) {
        let upstream = &mut self.upstreams[connection];
        upstream.sends = upstream.sends.saturating_sub(1);
        let Some(key) = upstream.exchange else { return self.on_idle_sent(connection) };
        if upstream.sends > 0 {
            return;
        }
        let exchange = &self.exchanges[key];
        let id = exchange.id;
        match exchange.state {
            State::Tunnel { .. } if cx.front.is_half_closed(id) => {
                self.on_client_ended_tunnel(cx, key);
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

    /// Handles a failure of sending to a server.
    pub(super) fn on_send_failed<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32) {
        let upstream = &mut self.upstreams[connection];
        upstream.sends = 0;
        upstream.flags.insert(Flags::BROKEN);
        let Some(key) = upstream.exchange else {
            return self.on_idle_send_failed(cx, connection);
        };
        if let State::Tunnel { .. } = self.exchanges[key].state {
            return self.abort(cx, key, Outcome::UpstreamClosed);
        }
        // The server may have responded before it closed the connection, so receiving continues.
        cx.front.drop_body(cx.io, self.exchanges[key].id);
        self.update_upstream_deadline(cx, key);
    }

    /// Handles the completion of all sends to a client.
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

    /// Answers a CONNECT request after the connection to its server is established.
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

    /// Starts a tunnel between the client and the server.
    pub(super) fn begin_tunnel<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        attempt: Attempt,
    ) {
        self.metrics().tunnels_open.increment();
        self.record_success(cx, attempt);
        self.exchanges[key].state = State::Tunnel { attempt, client_shut: false };
        let id = self.exchanges[key].id;
        let connection = attempt.connection;
        self.set_upstream_deadline(cx, connection, None);
        let mut early = Vec::new();
        cx.front.start_tunnel(cx.io, id, &mut early);
        if self.send(cx, connection, &early) {
            cx.front.resume_body(cx.io, id, None);
        } else {
            cx.front.pause_body(cx.io, id);
        }
        // Either peer may already have closed its sending side.
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

    /// Forwards bytes of a server to the client of a tunnel.
    pub(super) fn download<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, bytes: &[u8]) {
        let exchange = &self.exchanges[key];
        let id = exchange.id;
        let Some(attempt) = exchange.state.attempt() else { return };
        let connection = attempt.connection;
        let taken = cx.front.write(cx.io, id, bytes, bytes.len() as u64);
        let is_bulk = bytes.len() >= cx.io.pool().size();
        if !(is_bulk && self.relay_to_client(cx, id, connection, u64::MAX)) {
            if taken {
                self.resume(cx, connection);
            } else {
                self.pause(cx, connection);
            }
        }
        self.extend_tunnel_deadline(cx, key);
    }

    /// Extends the idle deadline of a tunnel.
    pub(super) fn extend_tunnel_deadline<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let until = Self::now(cx) + self.config.timeouts.tunnel;
        cx.front.set_request_timer(cx.io, self.exchanges[key].id, Some(until));
    }

    /// Handles a client that closed its sending side. Shuts down the connection to the server after
    /// all bytes are sent.
    pub(super) fn on_client_ended_tunnel<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let State::Tunnel { attempt, client_shut, .. } = self.exchanges[key].state else { return };
        let upstream = &mut self.upstreams[attempt.connection];
        if upstream.sends > 0 {
            return;
        }
        if !upstream.flags.contains(Flags::SHUT) {
            upstream.flags.insert(Flags::SHUT);
            match upstream.flags.contains(Flags::STREAM) {
                true => self.shut_down_stream(attempt.connection),
                false => cx.io.shutdown(upstream.token),
            }
        }
        if client_shut {
            self.abort(cx, key, Outcome::Complete);
        } else {
            self.extend_tunnel_deadline(cx, key);
        }
    }

    /// Handles a server that closed its sending side. Shuts down the client connection after all
    /// bytes are sent.
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
