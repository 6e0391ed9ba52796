//! Bodies on their way: in pieces; or, long ones and tunnels, moved by the kernel.
//!
//! While that does, nothing is told of what is moved: deadlines look at how far it has got.

use hearken::Token;
use hearken::io::{self as events, RelayEnd};
use hearken_http::Reject;
use hearken_http::forward::Relay;

use super::connection::{Flags, Id, Role, Stage, Upload};
use super::worker::Worker;

/// Of how many bytes a body is long: from here on the kernel does it for less, by
/// `examples/relay_cost.rs` of the library.
const LONG: u64 = 32 * 1024;

/// Takes what belongs to a body out of `bytes`: tells how much that is, and whether it is to be passed on
/// as it is; if not, what is passed on instead is appended to `out`, which is empty.
pub(super) fn take(
    relay: &mut Relay,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<(usize, bool), Reject> {
    let plain = usize::try_from(relay.plain()).unwrap_or(usize::MAX).min(bytes.len());
    if plain > 0 {
        relay.skip(plain as u64);
        return Ok((plain, true));
    }
    match relay.pass(bytes, out) {
        Ok(used) => Ok((used, false)),
        Err(reject) => {
            out.clear();
            Err(reject)
        }
    }
}

impl<I: events::Relay> Worker<I> {
    /// Has the kernel move up to `most` bytes, and tells whether it does.
    pub(super) fn splice(&mut self, from: Token, to: Token, most: u64) -> bool {
        if most < LONG || !self.config.splice || !self.io.relay(from, to, most) {
            return false;
        }
        self.connection(from).flags.insert(Flags::RELAYED | Flags::STOPPED);
        true
    }

    /// Has the kernel move the rest of a response's body, if it is long.
    pub(super) fn splice_download(&mut self, id: Id) -> bool {
        let exchange = &mut self.exchanges[id];
        let (client, server) = (exchange.client, exchange.server);
        let plain = exchange.download.as_ref().map_or(0, Relay::plain);
        exchange.moved = 0;
        server.is_some_and(|server| self.splice(server, client, plain))
    }

    /// Has the kernel move the rest of a request's body, if it is long.
    pub(super) fn splice_upload(&mut self, id: Id) -> bool {
        let exchange = &mut self.exchanges[id];
        let (client, server) = (exchange.client, exchange.server);
        let Upload::Flowing(relay) = &exchange.upload else { return false };
        let plain = relay.plain();
        exchange.moved = 0;
        server.is_some_and(|server| self.splice(client, server, plain))
    }

    /// Whether the kernel has moved anything for an exchange since that was asked last.
    pub(super) fn has_moved(&mut self, id: Id) -> bool {
        let exchange = &self.exchanges[id];
        let sides = [Some(exchange.client), exchange.server];
        let moved = sides.into_iter().flatten().map(|on| self.io.relayed(on)).sum();
        std::mem::replace(&mut self.exchanges[id].moved, moved) != moved
    }

    /// The kernel has moved what it was to move, or cannot go on.
    pub(super) fn on_relayed(&mut self, on: Token, moved: u64, ended: RelayEnd) {
        let connection = self.connection(on);
        connection.flags.remove(Flags::RELAYED);
        let (role, Some(id)) = (connection.role, connection.exchange) else { return };
        let figures = self.figures();
        figures.spliced_bytes.add(moved);
        if role == Role::Client {
            figures.bytes_received_client.add(moved);
            figures.bytes_sent_upstream.add(moved);
        } else {
            figures.bytes_received_upstream.add(moved);
            figures.bytes_sent_client.add(moved);
        }
        let exchange = &mut self.exchanges[id];
        let (client, server) = (exchange.client, exchange.server);
        match role {
            Role::Client => exchange.uploaded += moved,
            _ => exchange.downloaded += moved,
        }
        let tunnel = exchange.stage == Stage::Tunnel;
        match (role, &mut exchange.upload, &mut exchange.download) {
            _ if tunnel => {}
            (Role::Client, Upload::Flowing(relay), _) => {
                relay.skip(moved);
                if relay.is_done() {
                    exchange.upload = Upload::Done;
                }
            }
            (Role::Server, _, Some(relay)) => relay.skip(moved),
            _ => {}
        }
        match (ended, role) {
            (RelayEnd::Most, Role::Server) => self.answered(id, false),
            (RelayEnd::Most, _) => {
                self.resume(on);
                self.arm(id);
            }
            (RelayEnd::End, _) => self.on_end(on),
            (RelayEnd::ReceiveFailed(error), _) => self.on_receive_failed(on, &error),
            (RelayEnd::SendFailed(_), Role::Server) => self.on_send_failed(client),
            (RelayEnd::SendFailed(_), _) => {
                if let Some(server) = server {
                    self.on_send_failed(server);
                }
            }
        }
    }
}
