//! What is answered to a request at the admin address.

use std::io::Write;
use std::net::Ipv6Addr;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use hearken_http::{Body, DateCache, Method, Reject, Request, ResponseHead};

use super::What;
use crate::proxy::servers::Order;
use crate::runtime::access_log::json;
use crate::runtime::metrics::{CONTENT_TYPE, UpstreamFigures};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// What there is, for those who ask for something else.
const ALL: &str = "\
GET /metrics
GET /upstreams
POST /upstreams/NAME/drain
POST /upstreams/NAME/ready
POST /upstreams/NAME/off
GET /healthz
";

/// An answer's status, type and content.
type Content = (u16, &'static str, Vec<u8>);

/// The answer to a request that came over a connection which is, or is not, of this machine.
pub(super) fn answer(request: &Request<'_>, loopback: bool, what: &What) -> Vec<u8> {
    let head_only = request.method == Method::Head;
    if let Some(why) = refused(request, loopback) {
        return response(403, TEXT, why.as_bytes(), None, head_only);
    }
    if !matches!(request.body, Body::None | Body::Length(0)) {
        return response(413, TEXT, b"no content is expected\n", None, head_only);
    }
    let path = request.target().path_and_query().map(|(path, _)| path).unwrap_or_default();
    let mut parts = path.split(|&byte| byte == b'/').skip(1);
    let parts = [parts.next(), parts.next(), parts.next(), parts.next()];
    let get: fn(&What) -> Content = match parts {
        [Some(b"metrics"), None, ..] => metrics,
        [Some(b"upstreams"), None, ..] => upstreams,
        [Some(b"healthz"), None, ..] => health,
        [Some(b"upstreams"), Some(name), Some(order), None] => {
            let order = match order {
                b"drain" => Order::Drain,
                b"ready" => Order::Ready,
                b"off" => Order::Off,
                _ => return response(404, TEXT, ALL.as_bytes(), None, head_only),
            };
            if request.method != Method::Post {
                return response(405, TEXT, ALL.as_bytes(), Some("POST"), head_only);
            }
            let (status, kind, content) = ordered(name, order, what);
            return response(status, kind, &content, None, false);
        }
        _ => return response(404, TEXT, ALL.as_bytes(), None, head_only),
    };
    if !matches!(request.method, Method::Get | Method::Head) {
        return response(405, TEXT, ALL.as_bytes(), Some("GET, HEAD"), false);
    }
    let (status, kind, content) = get(what);
    response(status, kind, &content, None, head_only)
}

/// The answer to what is no request.
pub(super) fn refuse(reject: Reject) -> Vec<u8> {
    response(reject.status, TEXT, format!("{}\n", reject.reason).as_bytes(), None, false)
}

/// Why a request is refused that a page of another site may have caused.
fn refused(request: &Request<'_>, loopback: bool) -> Option<&'static str> {
    let host = request.host.unwrap_or_default();
    // A client of HTTP/1.0 may leave it out; no browser does.
    if loopback && request.host.is_some() && !is_local(host) {
        return Some("the Host is a name other than localhost; write the address\n");
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

/// Whether a host, with or without a port, is an address or `localhost`.
fn is_local(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    if let Some((inner, _)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::Ipv4Addr>().is_ok()
}

fn metrics(what: &What) -> Content {
    let mut page = String::new();
    (what.metrics)(&mut page);
    (200, CONTENT_TYPE, page.into_bytes())
}

fn health(what: &What) -> Content {
    if what.stopping.load(Ordering::Acquire) {
        return (503, TEXT, b"draining\n".to_vec());
    }
    (200, TEXT, b"ok\n".to_vec())
}

fn upstreams(what: &What) -> Content {
    let mut out = b"{\"upstreams\":[".to_vec();
    for (at, figures) in (what.upstreams)().iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"\n" } else { b",\n" });
        upstream(figures, &mut out);
    }
    out.extend_from_slice(b"\n]}\n");
    (200, JSON, out)
}

fn upstream(it: &UpstreamFigures, out: &mut Vec<u8>) {
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

/// Gives an order; `name` is percent-encoded.
fn ordered(name: &[u8], order: Order, what: &What) -> Content {
    let Some(name) = decoded(name) else {
        return (400, TEXT, b"the name is not UTF-8, percent-encoded\n".to_vec());
    };
    if (what.order)(&name, order).is_ok() {
        let done = match order {
            Order::Drain => "draining",
            Order::Ready => "ready",
            Order::Off => "off",
        };
        return (200, TEXT, format!("{done}\n").into_bytes());
    }
    let mut text = b"there is no upstream of this name; there are\n".to_vec();
    for upstream in (what.upstreams)() {
        text.extend_from_slice(upstream.name.as_bytes());
        text.push(b'\n');
    }
    (404, TEXT, text)
}

/// Takes percent-encoding off.
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

fn response(
    status: u16,
    kind: &str,
    content: &[u8],
    allow: Option<&str>,
    head_only: bool,
) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut out = Vec::with_capacity(content.len() + 256);
    let mut head = ResponseHead::new(&mut out, status);
    head.date(&DateCache::new(now.as_secs()));
    if let Some(allow) = allow {
        head.field("Allow", allow);
    }
    head.field("Content-Type", kind)
        .content_length(content.len() as u64)
        .field("Cache-Control", "no-store")
        .field("X-Content-Type-Options", "nosniff")
        .connection_close()
        .end();
    if !head_only {
        out.extend_from_slice(content);
    }
    out
}
