//! Requests to a forward proxy: which server they name, whether it may be reached, and where it is.

use std::net::SocketAddr;

use hearken::io::Relay;
use hearken_http::{Request, Target};

use super::connection::{Id, Kind, Route, Stage};
use super::resolver::Asked;
use super::route::Destination;
use super::worker::Worker;
use crate::runtime::metrics::Error;

/// How many addresses of a name are tried.
const ADDRESSES: usize = 4;

impl<I: Relay> Worker<I> {
    /// Finds out where a request goes.
    pub(super) fn look_up(&mut self, id: Id, request: &Request<'_>) {
        let now = self.io.now();
        let exchange = &mut self.exchanges[id];
        let Destination::Anywhere(to) = &mut self.to else { return };
        let Some((host, port)) = asked_for(request) else {
            return self.refuse(id, 400, "the request does not say which http server it is for");
        };
        let tunnel = exchange.kind == Kind::Connect;
        if to.access.name(host).is_err() || (tunnel && !to.access.tunnel_port(port)) {
            return self.forbid(id);
        }
        let ticket = id.index() as u64 | u64::from(exchange.serial) << 32;
        let Some(lookups) = &mut to.lookups else { return };
        match lookups.ask(host, port, ticket, now) {
            Asked::Known(addrs) => {
                let may = |addr: &&SocketAddr| to.access.address(host, addr.ip()).is_ok();
                exchange.addresses.extend(addrs.iter().filter(may).take(ADDRESSES));
                // The first is to be tried first.
                exchange.addresses.reverse();
            }
            Asked::Failed(_) => {
                self.figures().error(Error::NameNotFound);
                return self.refuse(id, 502, "the server's name could not be looked up");
            }
            Asked::Later => {
                exchange.stage = Stage::Resolving;
                return self.arm(id);
            }
            Asked::Busy => {
                self.figures().error(Error::QueueFull);
                return self.refuse(id, 503, "too many names wait to be looked up");
            }
        }
        match exchange.addresses.pop() {
            Some(addr) => {
                exchange.route = Some(Route::Address(addr));
                self.reach(id, request);
            }
            None => self.forbid(id),
        }
    }

    /// Names may have been looked up.
    #[cold]
    pub(super) fn looked_up(&mut self) {
        let Destination::Anywhere(to) = &mut self.to else { return };
        let Some(lookups) = &mut to.lookups else { return };
        let mut answers = Vec::new();
        lookups.answers(self.io.now(), |ticket, found| {
            answers.push((ticket, found.is_ok()));
        });
        for (ticket, found) in answers {
            let (index, serial) = (ticket as u32 as usize, (ticket >> 32) as u32);
            let Some(id) = self.exchanges.find(index, serial) else { continue };
            if self.exchanges[id].stage != Stage::Resolving {
                continue;
            }
            if found {
                // It is known now.
                self.with_request(id, Worker::look_up);
            } else {
                self.figures().error(Error::NameNotFound);
                self.refuse(id, 502, "the server's name could not be looked up");
            }
        }
    }

    #[cold]
    fn forbid(&mut self, id: Id) {
        self.figures().error(Error::Refused);
        self.refuse(id, 403, "this server is not to be reached through this proxy");
    }
}

/// The host and the port of the server that a request names.
fn asked_for<'b>(request: &Request<'b>) -> Option<(&'b str, u16)> {
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
