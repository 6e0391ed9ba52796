//! Requests for origins, and the checks of their responses.

use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use hearken::io::sim::World;
use hearken::timer::Time;

use super::{Limits, Subject};
use crate::client::{Exchange, Planned, RequestId, Script};
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
}

/// The requests of all clients.
pub(super) struct Requests {
    pub(super) world: World,
    pub(super) limits: Limits,
    pub(super) max_length: u64,
    pub(super) subject: Rc<Subject>,
}

impl Requests {
    fn draw<T: Copy>(&self, values: &[T]) -> T {
        values[self.world.decide(values.len() as u32) as usize]
    }
}

impl Script for Requests {
    type Request = Requested;

    fn preamble(&mut self, _: u16, _: &mut Vec<u8>) {}

    fn request(&mut self, id: RequestId, is_last: bool, out: &mut Vec<u8>) -> Planned<Requested> {
        let before = out.len();
        let method = self.draw(&["GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]);
        let may_have_body = matches!(method, "POST" | "PUT");
        let (version, connection, keep_alive) = match self.world.decide(10) {
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
        let _ = write!(out, "{method} /{id} {version}\r\nHost: sim\r\n{connection}");
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
        };
        Planned { request, head_length, expects, has_body: method != "HEAD", keep_alive }
    }

    fn on_head(&mut self, now: Time, exchange: &mut Exchange<Requested>) -> Result<(), String> {
        let Some(head) = &exchange.head else { return Ok(()) };
        let requested = &mut exchange.planned.request;
        if requested.is_http10 && head.field("transfer-encoding").is_some() {
            return Err("chunked response to HTTP/1.0".to_owned());
        }
        let Some(value) = head.field(IDENTITY) else {
            let waited = now.duration_since(exchange.started_at.unwrap_or_default());
            return self.check_own_response(head.status, waited, exchange);
        };
        let identity = Identity::parse(value).ok_or_else(|| format!("identity '{value}'"))?;
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
        let requested = &mut exchange.planned.request;
        match requested.identity {
            Some(identity) if identity.length != exchange.received => {
                Err(format!("body of {} bytes ends after {}", identity.length, exchange.received))
            }
            Some(_) => Ok(()),
            None => self.check_text(exchange),
        }
    }
}

impl Requests {
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
            504 if text.contains("connecting to an upstream server timed out") => of.connect,
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
