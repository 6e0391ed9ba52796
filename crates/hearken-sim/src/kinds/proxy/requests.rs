//! Requests for origins, and the checks of their responses.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use hearken::io::sim::World;
use hearken::timer::Time;
use hearken_server::runtime::proxy_protocol;

use super::form::{self, Access, Form};
use super::{Limits, Subject};
use crate::client::{Exchange, HttpVersion, Planned, RequestId, Script};
use crate::content;
use crate::origin::{IDENTITY, Identity, request_phase};

/// Maximum length of an explanation in a response of the proxy.
const MAX_TEXT: usize = 256;

/// A request and what is known of its response.
#[derive(Debug)]
pub(super) struct Requested {
    pub(super) is_safe: bool,
    pub(super) body: Option<u64>,
    is_http10: bool,
    /// The identity of the response, if an origin sent it.
    pub(super) identity: Option<Identity>,
    /// The body of the proxy's own response.
    pub(super) text: Vec<u8>,
    /// The status that opens the tunnel that the request asks for.
    pub(super) tunnel: Option<u16>,
    /// Number of bytes to send through the tunnel.
    pub(super) tunnel_bytes: u64,
    pub(super) access: Access,
}

impl Requested {
    /// Returns whether the proxy itself answers with this status.
    pub(super) fn is_rejected_with(&self, status: u16) -> bool {
        self.access == Access::Rejected(status)
            || (self.access == Access::Resolved && status == 403)
    }
}

/// The requests of all clients.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) world: World,
    pub(super) limits: Limits,
    pub(super) max_length: u64,
    /// Number of origins that are HTTP servers.
    pub(super) origins: usize,
    pub(super) subject: Rc<Subject>,
}

/// Returns the address of a client in the PROXY protocol headers that it sends.
pub(super) fn header_address(client: u16) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, client as u8).into()
}

impl Requests {
    fn draw<T: Copy>(&self, values: &[T]) -> T {
        values[self.world.decide(values.len() as u32) as usize]
    }
}

impl Script for Requests {
    type Request = Requested;

    fn preamble(&mut self, client: u16, out: &mut Vec<u8>) {
        if let Some(version) = self.limits.client_header {
            let source = SocketAddr::new(header_address(client), 4711);
            proxy_protocol::write(version, Some(source), Some(source), out);
        }
    }

    fn tunnel_status(&self, request: &Requested) -> Option<u16> {
        request.tunnel
    }

    fn request(
        &mut self,
        id: RequestId,
        version: HttpVersion,
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Planned<Requested> {
        let before = out.len();
        let form = self.limits.form;
        let is_http2 = version == HttpVersion::Http2;
        if form != Form::Reverse && is_last && !is_http2 && self.draw(&[true, false]) {
            return self.tunnel(id, out);
        }
        let method = self.draw(&["GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]);
        let may_have_body = matches!(method, "POST" | "PUT");
        let (version, connection, keep_alive) = match self.world.decide(10) {
            _ if is_http2 => ("HTTP/1.1", "", true),
            8 => ("HTTP/1.0", "", false),
            9 => ("HTTP/1.0", "Connection: keep-alive\r\n", true),
            _ if is_last && self.draw(&[false, true]) => {
                ("HTTP/1.1", "Connection: close\r\n", false)
            }
            _ => ("HTTP/1.1", "", true),
        };
        let is_http10 = version == "HTTP/1.0";
        let body: Option<u64> = (may_have_body || self.draw(&[false, false, false, false, true]))
            .then(|| self.draw(&[700, 0, 1, 100, 5_000, 20_000, 70_000]).min(self.max_length));
        let is_chunked = body.is_some() && !is_http10 && self.draw(&[false, true]);
        let expects =
            body.is_some_and(|length| length > 0) && !is_http10 && self.draw(&[false, false, true]);
        let mut access = Access::Allowed;
        if form == Form::Forward && is_http2 {
            // Requests of HTTP/2 have no absolute form.
            access = Access::Rejected(400);
            let _ = write!(out, "{method} /{id} {version}\r\nHost: sim\r\n");
        } else if form == Form::Reverse {
            let _ = write!(out, "{method} /{id} {version}\r\nHost: sim\r\n{connection}");
        } else {
            access = self.write_target(id, method, version, out);
            out.extend_from_slice(connection.as_bytes());
        }
        let _ = write!(out, "X-Key: {}\r\n", id.client);
        match body {
            Some(_) if is_chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Some(length) => drop(write!(out, "Content-Length: {length}\r\n")),
            None => {}
        }
        if expects {
            out.extend_from_slice(b"Expect: 100-continue\r\n");
        }
        out.extend_from_slice(b"\r\n");
        let head_length = out.len() - before;
        let mut content = Vec::new();
        content::append(request_phase(id), body.unwrap_or(0), &mut content);
        if is_chunked {
            for chunk in content.chunks(self.draw(&[4096, 1000, 16 * 1024])) {
                let _ = write!(out, "{:x}\r\n", chunk.len());
                out.extend_from_slice(chunk);
                out.extend_from_slice(b"\r\n");
            }
            let trailer = self.draw(&["", "", "X-Trailer: a\r\n"]);
            let _ = write!(out, "0\r\n{trailer}\r\n");
        } else {
            out.extend_from_slice(&content);
        }
        let request = Requested {
            is_safe: matches!(method, "GET" | "HEAD" | "OPTIONS"),
            body,
            is_http10,
            identity: None,
            text: Vec::new(),
            tunnel: None,
            tunnel_bytes: 0,
            access,
        };
        Planned { request, head_length, expects, has_body: method != "HEAD", keep_alive }
    }

    fn on_head(&mut self, now: Time, exchange: &mut Exchange<Requested>) -> Result<(), String> {
        let Some(head) = &exchange.head else { return Ok(()) };
        self.subject.check_usage(&self.limits)?;
        let requested = &mut exchange.planned.request;
        if requested.tunnel == Some(200) && head.status == 200 {
            if let Access::Rejected(_) = requested.access {
                return Err("tunnel to a denied server".to_owned());
            }
            let (phase, length) = (request_phase(exchange.id), u64::MAX);
            requested.identity = Some(Identity { request: exchange.id, origin: 0, phase, length });
            return Ok(());
        }
        if requested.is_http10 && head.field("transfer-encoding").is_some() {
            return Err("chunked response to HTTP/1.0".to_owned());
        }
        let Some(value) = head.field(IDENTITY) else {
            let waited = now.duration_since(exchange.started_at.unwrap_or_default());
            return self.check_own_response(head.status, waited, exchange);
        };
        let identity = Identity::parse(value).ok_or_else(|| format!("identity '{value}'"))?;
        if let Access::Rejected(_) = requested.access {
            return Err("response of a denied server".to_owned());
        }
        if identity.request != exchange.id {
            return Err(format!("response to {}", identity.request));
        }
        let arrivals = self.subject.origins.arrivals.borrow();
        let has_arrived = arrivals
            .iter()
            .any(|arrival| arrival.id == identity.request && arrival.origin == identity.origin);
        if !has_arrived {
            return Err("response without a request at the origin".to_owned());
        }
        requested.identity = Some(identity);
        Ok(())
    }

    fn on_body(&mut self, exchange: &mut Exchange<Requested>, bytes: &[u8]) -> Result<(), String> {
        let at = exchange.received;
        let requested = &mut exchange.planned.request;
        let Some(Identity { phase, length, .. }) = requested.identity else {
            let rest = MAX_TEXT.saturating_sub(requested.text.len()).min(bytes.len());
            requested.text.extend_from_slice(&bytes[..rest]);
            return Ok(());
        };
        if at + bytes.len() as u64 > length || !content::contains(phase, at, bytes) {
            return Err(format!("the body at {at} is not that of the response"));
        }
        Ok(())
    }

    fn on_complete(&mut self, exchange: &mut Exchange<Requested>) -> Result<(), String> {
        self.subject.check_usage(&self.limits)?;
        let requested = &mut exchange.planned.request;
        let is_open = requested.tunnel.is_some()
            && requested.tunnel == exchange.head.as_ref().map(|head| head.status);
        match requested.identity {
            // The log states why a tunnel ended.
            Some(_) if is_open => Ok(()),
            Some(identity) if identity.length != exchange.received => {
                Err(format!("body of {} bytes ends after {}", identity.length, exchange.received))
            }
            Some(_) => Ok(()),
            None => self.check_text(exchange),
        }
    }
}

impl Requests {
    /// Writes the start of a request to a proxy that is not only a reverse proxy, up to its Host
    /// field. Returns the access to the server that it names.
    fn write_target(
        &self,
        id: RequestId,
        method: &str,
        version: &str,
        out: &mut Vec<u8>,
    ) -> Access {
        let is_forward = self.limits.form == Form::Forward;
        let origin = self.world.decide(self.origins as u32) as u16;
        let (host, mut access) = match is_forward {
            true => form::authority(self.world.decide(12), origin, false),
            false => (format!("sim{origin}"), Access::Allowed),
        };
        let target = if is_forward { format!("http://{host}/{id}") } else { format!("/{id}") };
        let (target, line) = match self.world.decide(16) {
            13 if method == "OPTIONS" => {
                access = Access::Rejected(200);
                (target, "Max-Forwards: 0\r\n")
            }
            14 => {
                access = Access::Rejected(508);
                (target, "Via: 1.1 sim\r\n")
            }
            15 if is_forward => {
                access = Access::Rejected(400);
                (format!("/{id}"), "")
            }
            _ => (target, ""),
        };
        let _ = write!(out, "{method} {target} {version}\r\nHost: {host}\r\n{line}");
        access
    }

    /// Appends a request for a tunnel and the content to send through it.
    fn tunnel(&self, id: RequestId, out: &mut Vec<u8>) -> Planned<Requested> {
        let before = out.len();
        let length = self.draw(&[700, 0, 1, 100, 5_000, 20_000, 70_000]).min(self.max_length);
        let mut access = Access::Allowed;
        let mut status = 200;
        if self.limits.form == Form::Forward {
            let origin = self.world.decide(self.origins as u32) as u16;
            let host;
            (host, access) = form::authority(self.world.decide(12), origin, true);
            let line = match self.world.decide(16) {
                14 => {
                    access = Access::Rejected(508);
                    "Via: 1.1 sim\r\n"
                }
                15 => {
                    access = Access::Rejected(400);
                    "Content-Length: 3\r\n"
                }
                _ => "",
            };
            // The identity occurs in the log as that of the user agent.
            let _ = write!(out, "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{line}");
            let _ = write!(out, "User-Agent: {id}\r\n\r\n");
        } else if self.world.decide(8) == 7 {
            access = Access::Rejected(405);
            let _ =
                write!(out, "CONNECT sim:80 HTTP/1.1\r\nHost: sim:80\r\nUser-Agent: {id}\r\n\r\n");
        } else {
            status = 101;
            let _ = write!(out, "GET /{id} HTTP/1.1\r\nHost: sim\r\n");
            out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: echo\r\n\r\n");
        }
        let head_length = out.len() - before;
        content::append(request_phase(id), length, out);
        let request = Requested {
            is_safe: true,
            body: None,
            is_http10: false,
            identity: None,
            text: Vec::new(),
            tunnel: Some(status),
            tunnel_bytes: length,
            access,
        };
        Planned { request, head_length, expects: false, has_body: true, keep_alive: false }
    }

    /// Checks the status of a response that the proxy itself sent.
    fn check_own_response(
        &self,
        status: u16,
        waited: Duration,
        exchange: &Exchange<Requested>,
    ) -> Result<(), String> {
        let Limits { client, max_body, .. } = &self.limits;
        match status {
            408 => {
                let minimum = client.header.min(client.body).min(client.upload);
                let is_early = waited < minimum && exchange.id.number > 0;
                if is_early { Err(format!("408 after {waited:?}")) } else { Ok(()) }
            }
            413 if exchange.planned.request.body.is_some_and(|body| body > *max_body) => Ok(()),
            502..=504 => Ok(()),
            _ if exchange.planned.request.is_rejected_with(status) => Ok(()),
            _ => Err(format!("status {status} without an identity")),
        }
    }

    /// Checks that a timeout did not expire early.
    fn check_text(&self, exchange: &Exchange<Requested>) -> Result<(), String> {
        let text = String::from_utf8_lossy(&exchange.planned.request.text);
        let of = &self.limits.server;
        let status = exchange.head.as_ref().map_or(0, |head| head.status);
        let mut minimum = match status {
            503 if text.contains("timed out in the queue") => of.queue,
            504 if text.contains("did not respond in time") => of.response_header.min(of.send),
            504 if text.contains("connecting to an upstream server timed out")
                || text.contains("the name lookup of the server timed out") =>
            {
                of.connect
            }
            504 if !text.is_empty() => of.request,
            504 => of.connect.min(of.send).min(of.response_header),
            _ => Duration::ZERO,
        };
        if !of.request.is_zero() {
            minimum = minimum.min(of.request);
        }
        let waited = self.world.now().duration_since(exchange.started_at.unwrap_or_default());
        match waited < minimum {
            true => Err(format!("'{}' after {waited:?}, not {minimum:?}", text.trim())),
            false => Ok(()),
        }
    }
}
