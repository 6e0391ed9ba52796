//! The handler of the admin address.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hearken::io::Relay;
use hearken::timer::Time;
use hearken_http::{Body, Method, Request, ResponseHead};

use crate::front::{Answer, Handled, Handler, Incoming};
use crate::runtime::access_log::json;
use crate::runtime::administration::{AdminSources, UpstreamCommand};
use crate::runtime::metrics::{CONTENT_TYPE, UpstreamStats};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// Content of responses to unknown requests.
const ENDPOINTS: &str = "\
GET /metrics
GET /upstreams
POST /upstreams/NAME/drain
POST /upstreams/NAME/ready
POST /upstreams/NAME/off
GET /healthz
";

/// The handler of requests to the admin address.
pub(crate) struct Admin {
    sources: Arc<AdminSources>,
}

/// The parts in which responses differ.
struct Response {
    status: u16,
    content_type: &'static str,
    allow: Option<&'static str>,
    content: Vec<u8>,
}

impl Admin {
    pub(super) fn new(sources: Arc<AdminSources>) -> Admin {
        Admin { sources }
    }

    /// Answers a request at `now`, on a connection to a loopback address or to another one.
    fn answer(&self, request: &Request<'_>, is_loopback: bool, now: Time) -> Response {
        if let Some(reason) = rejection(request, is_loopback) {
            return text(403, reason);
        }
        let path = request.target().path_and_query().map(|(path, _)| path).unwrap_or_default();
        let mut parts = path.split(|&byte| byte == b'/').skip(1);
        let page = match [parts.next(), parts.next(), parts.next(), parts.next()] {
            [Some(b"metrics"), None, ..] => metrics,
            [Some(b"upstreams"), None, ..] => upstreams,
            [Some(b"healthz"), None, ..] => health,
            [Some(b"upstreams"), Some(name), Some(order), None] => {
                let order = match order {
                    b"drain" => UpstreamCommand::Drain,
                    b"ready" => UpstreamCommand::Ready,
                    b"off" => UpstreamCommand::Off,
                    _ => return text(404, ENDPOINTS),
                };
                if request.method != Method::Post {
                    return Response { allow: Some("POST"), ..text(405, ENDPOINTS) };
                }
                return apply_command(&self.sources, name, order, now);
            }
            _ => return text(404, ENDPOINTS),
        };
        if !matches!(request.method, Method::Get | Method::Head) {
            return Response { allow: Some("GET, HEAD"), ..text(405, ENDPOINTS) };
        }
        page(&self.sources, now)
    }
}

impl<I: Relay> Handler<I> for Admin {
    // Clients that keep all connections busy must not lock the administrator out.
    const CLOSES_OLDEST: bool = true;

    fn on_request(&mut self, mut incoming: Incoming<'_, I>, request: &Request<'_>) -> Handled {
        if request.body != Body::None && !incoming.is_body_read() {
            // No endpoint accepts content.
            return Handled::AfterBody(0);
        }
        let local = incoming.local_addr().map(|addr| addr.ip().to_canonical());
        // If the address is unknown, the stricter rules apply.
        let is_loopback = local.map_or(true, |local| local.is_loopback());
        let Response { status, content_type, allow, content } =
            self.answer(request, is_loopback, incoming.now());
        let (date, keep_alive, out) = incoming.parts();
        let mut head = ResponseHead::new(out, status);
        head.date(date);
        if let Some(allow) = allow {
            head.field("Allow", allow);
        }
        head.field("Content-Type", content_type)
            .content_length(content.len() as u64)
            .field("Cache-Control", "no-store")
            .field("X-Content-Type-Options", "nosniff");
        head.persistence(keep_alive, request.version).end();
        let mut length = 0;
        if request.method != Method::Head {
            out.extend_from_slice(&content);
            length = content.len() as u64;
        }
        incoming.respond(request, Answer { ready: &[], body: Default::default(), status, length })
    }
}

/// Returns the reason to reject a request that a page of another site may have caused.
fn rejection(request: &Request<'_>, loopback: bool) -> Option<&'static str> {
    let host = request.host.unwrap_or_default();
    // HTTP/1.0 clients may omit the field, but browsers never do.
    if loopback && request.host.is_some() && !is_local(host) {
        return Some("the Host is a name other than localhost; use the IP address\n");
    }
    let own = |origin: &[u8]| {
        origin.strip_prefix(b"http://").is_some_and(|origin| origin.eq_ignore_ascii_case(host))
    };
    if !request.field_values("Origin").all(own) {
        return Some("the Origin is another site\n");
    }
    let sites = request.field_values("Sec-Fetch-Site");
    if !sites.into_iter().all(|site| matches!(site, b"same-origin" | b"none")) {
        return Some("the request was caused by another site\n");
    }
    None
}

/// Returns whether a host, with or without a port, is an IP address or `localhost`.
fn is_local(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    if let Some((inner, _)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok()
}

fn metrics(sources: &AdminSources, now: Time) -> Response {
    let mut page = String::new();
    (sources.metrics)(now, &mut page);
    Response { content_type: CONTENT_TYPE, ..text(200, page) }
}

fn health(sources: &AdminSources, _: Time) -> Response {
    if sources.stopping.load(Ordering::Acquire) {
        return text(503, "draining\n");
    }
    text(200, "ok\n")
}

fn upstreams(sources: &AdminSources, now: Time) -> Response {
    let mut out = b"{\"upstreams\":[".to_vec();
    for (at, stats) in sources.stats(now).iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"\n" } else { b",\n" });
        upstream(stats, &mut out);
    }
    out.extend_from_slice(b"\n]}\n");
    Response { content_type: JSON, ..text(200, out) }
}

fn upstream(it: &UpstreamStats, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"name\":");
    json::string(it.name.as_bytes(), out);
    out.extend_from_slice(b",\"state\":");
    json::string(it.state.as_bytes(), out);
    let numbers = [
        ("weight", u64::from(it.weight)),
        ("requests", it.requests),
        ("failures", it.failures),
        ("in_flight", it.in_flight),
        ("retries", it.retries),
        ("checks_failed", it.checks_failed),
    ];
    for (key, number) in numbers {
        // Writing to a vector does not fail.
        let _ = write!(out, ",\"{key}\":{number}");
    }
    out.extend_from_slice(b",\"last_failure\":");
    match &it.last_failure {
        Some(failure) => json::string(failure.as_bytes(), out),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

/// Applies a command to the upstream servers with this percent-encoded name.
fn apply_command(
    sources: &AdminSources,
    name: &[u8],
    order: UpstreamCommand,
    now: Time,
) -> Response {
    let Some(name) = decoded(name) else {
        return text(400, "the name is not percent-encoded UTF-8\n");
    };
    if sources.apply(&name, order, now).is_ok() {
        return text(
            200,
            match order {
                UpstreamCommand::Drain => "draining\n",
                UpstreamCommand::Ready => "ready\n",
                UpstreamCommand::Off => "off\n",
            },
        );
    }
    let mut content = b"no such upstream; the upstreams are:\n".to_vec();
    for upstream in sources.stats(now) {
        content.extend_from_slice(upstream.name.as_bytes());
        content.push(b'\n');
    }
    text(404, content)
}

/// Decodes percent-encoding. Returns `None` if it is malformed or the result is not UTF-8.
fn decoded(mut name: &[u8]) -> Option<String> {
    let mut out = Vec::with_capacity(name.len());
    while let [first, rest @ ..] = name {
        name = match (first, rest) {
            (b'%', [high, low, rest @ ..]) => {
                let digit = |digit: u8| char::from(digit).to_digit(16);
                out.push((digit(*high)? * 16 + digit(*low)?) as u8);
                rest
            }
            (b'%', _) => return None,
            (&byte, rest) => {
                out.push(byte);
                rest
            }
        };
    }
    String::from_utf8(out).ok()
}

fn text(status: u16, content: impl Into<Vec<u8>>) -> Response {
    Response { status, content_type: TEXT, allow: None, content: content.into() }
}
