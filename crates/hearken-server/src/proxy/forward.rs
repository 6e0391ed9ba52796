//! Requests to a forward proxy: access check, name resolution, and connecting to the addresses.

use std::net::SocketAddr;

use hearken::io::Relay;
use hearken_http::{Request, Target};

use super::destination::Destination;
use super::exchange::{MethodKind, Route, State};
use super::handler::{Cx, Proxy};
use super::resolver::LookupResult;
use crate::front::RequestId;
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;

/// Maximum number of addresses of a name to try.
const MAX_ADDRESSES: usize = 4;

impl Proxy {
    /// Checks access to the server that a request names, and resolves its name.
    pub(super) fn resolve<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let now = Self::now(cx);
        let exchange = &mut self.exchanges[key];
        let id = exchange.id;
        let Destination::Forward(to) = &mut self.destination else { return };
        let request = cx.front.request(id);
        let Some((host, port)) = request.as_ref().and_then(named_server) else {
            let reason = "the request target does not name an http server";
            return self.respond_error(cx, key, 400, reason, Outcome::Rejected);
        };
        let is_tunnel = exchange.kind == MethodKind::Connect;
        if to.access.check_host(host).is_err() || (is_tunnel && !to.access.allows_tunnel_port(port))
        {
            return self.deny(cx, key);
        }
        match to.lookups.look_up(host, port, id.to_bits(), now) {
            LookupResult::Known(addrs) => {
                let may = |addr: &&SocketAddr| to.access.check_address(host, addr.ip()).is_ok();
                exchange.addresses.extend(addrs.iter().filter(may).take(MAX_ADDRESSES));
                // `connect_next` takes addresses from the end.
                exchange.addresses.reverse();
                self.connect_next(cx, key);
            }
            LookupResult::Failed(_) => {
                self.metrics().record_error(Error::NameNotFound);
                let reason = "cannot resolve the name of the server";
                self.respond_error(cx, key, 502, reason, Outcome::Rejected);
            }
            LookupResult::Pending => {
                exchange.state = State::Resolving;
                let until = now + self.config.timeouts.connect;
                cx.front.set_request_timer(cx.io, id, Some(until));
            }
            LookupResult::Busy => {
                self.metrics().record_error(Error::QueueFull);
                let reason = "too many names are being resolved";
                self.respond_error(cx, key, 503, reason, Outcome::Rejected);
            }
        }
    }

    /// Connects to the next address of the server.
    pub(super) fn connect_next<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        match self.exchanges[key].addresses.pop() {
            Some(addr) => self.forward_to(cx, key, Route::Address(addr), None),
            None => self.deny(cx, key),
        }
    }

    /// Handles completed name lookups.
    #[cold]
    pub(super) fn on_names_resolved<I: Relay>(&mut self, cx: &mut Cx<'_, I>) {
        let Destination::Forward(to) = &mut self.destination else { return };
        let mut answers = Vec::new();
        to.lookups.take_results(Self::now(cx), |ticket, found| {
            answers.push((ticket, found.is_ok()));
        });
        for (ticket, found) in answers {
            let id = RequestId::from_bits(ticket);
            let Some(key) = self.exchanges.find_resolving(id) else { continue };
            if found {
                // The lookup is answered from the cache now.
                self.resolve(cx, key);
            } else {
                self.metrics().record_error(Error::NameNotFound);
                let reason = "cannot resolve the name of the server";
                self.respond_error(cx, key, 502, reason, Outcome::Rejected);
            }
        }
    }

    /// Answers a request for a server to which access is denied.
    #[cold]
    fn deny<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        self.metrics().record_error(Error::AccessDenied);
        let reason = "access to this server is denied";
        self.respond_error(cx, key, 403, reason, Outcome::Rejected);
    }
}

/// Returns the host and the port of the server that a request names.
fn named_server<'b>(request: &Request<'b>) -> Option<(&'b str, u16)> {
    let target = request.target();
    let default = match target {
        Target::Authority(_) => None,
        Target::Absolute { scheme, .. } if scheme.eq_ignore_ascii_case(b"http") => Some(80),
        _ => return None,
    };
    let (host, port) = target.host_and_port()?;
    let host = std::str::from_utf8(host).ok()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = match port {
        None | Some([]) => default?,
        Some(digits) => std::str::from_utf8(digits).ok()?.parse().ok()?,
    };
    (port > 0).then_some((host, port))
}
