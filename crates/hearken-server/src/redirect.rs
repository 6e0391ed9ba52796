//! Redirects clients without TLS to the address with TLS.

use std::net::SocketAddr;

use hearken::io::Relay;
use hearken_http::{Body, Method, Request, ResponseHead, Target};

use crate::front::{Answer, Handled, Handler, Incoming};
use crate::runtime::server::{Service, StartError, Worker, WorkerContext};
use crate::side_server::{SideServer, worker};

/// Maximum number of connections. At the limit, the oldest is closed for a new one.
const MAX_CONNECTIONS: usize = 1024;
/// Maximum size in bytes of a request body, which is discarded.
const MAX_BODY_BYTES: u64 = 64 * 1024;

/// Listens on `addr` and redirects all requests to `https` and a port.
///
/// # Errors
/// Listening on the address failed, or the thread cannot be started.
pub(crate) fn start(addr: SocketAddr, port: u16) -> Result<SideServer, StartError> {
    SideServer::start("redirect", addr, &Redirect { port }, MAX_CONNECTIONS)
}

/// The handler that redirects requests, and the service that creates its event loop.
#[derive(Clone)]
struct Redirect {
    /// Port with TLS.
    port: u16,
}

impl Service for Redirect {
    fn worker<I: Relay + 'static>(
        self,
        io: I,
        context: &WorkerContext,
    ) -> Result<Box<dyn Worker>, StartError> {
        worker(io, self, context)
    }
}

impl Redirect {
    /// Returns the value of Location for a request, or `None` if it names no host.
    fn location(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        let host = request.host.map(without_port).filter(|host| !host.is_empty())?;
        let mut location = [b"https://", host].concat();
        if self.port != 443 {
            location.extend_from_slice(format!(":{}", self.port).as_bytes());
        }
        match request.target() {
            Target::Origin { .. } => location.extend_from_slice(request.raw_target),
            target => {
                let (path, query) = target.path_and_query()?;
                location.extend_from_slice(if path.is_empty() { b"/" } else { path });
                if let Some(query) = query {
                    location.push(b'?');
                    location.extend_from_slice(query);
                }
            }
        }
        Some(location)
    }
}

/// Returns a host without its port.
fn without_port(host: &[u8]) -> &[u8] {
    let colon = host.iter().rposition(|&byte| byte == b':');
    match colon {
        // The colons of an IPv6 address are in brackets.
        Some(colon) if !host[colon..].contains(&b']') => &host[..colon],
        _ => host,
    }
}

impl<I: Relay> Handler<I> for Redirect {
    const CLOSES_OLDEST: bool = true;

    fn on_request(&mut self, mut incoming: Incoming<'_, I>, request: &Request<'_>) -> Handled {
        if request.body != Body::None && !incoming.is_body_read() {
            return Handled::AfterBody(MAX_BODY_BYTES);
        }
        let location = self.location(request);
        let (date, keep_alive, out) = incoming.parts();
        // 308 keeps the method, so that the client repeats a POST request with its body.
        let status = match location {
            Some(_) => 308,
            None => 400,
        };
        let text = match location {
            Some(_) => "",
            None => "400 Bad Request: the request has no host to redirect to\n",
        };
        let mut head = ResponseHead::new(out, status);
        head.date(date);
        if let Some(location) = location {
            head.field("Location", location);
        }
        head.content_length(text.len() as u64);
        head.persistence(keep_alive, request.version).end();
        let mut length = 0;
        if request.method != Method::Head {
            out.extend_from_slice(text.as_bytes());
            length = text.len() as u64;
        }
        incoming.respond(request, Answer { ready: &[], body: Default::default(), status, length })
    }
}
