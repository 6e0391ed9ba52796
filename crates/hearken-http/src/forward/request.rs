//! The heads of requests.

use std::net::IpAddr;

use super::given::Told;
use super::lines::{self, Nominated};
use super::name::{Name, name};
use super::upgrade::{self, Upgrade};
use super::{Given, Rules};
use crate::class::trim;
use crate::framing::{Body, decimal, is_canonical_length};
use crate::head;
use crate::known::Known;
use crate::line::{Line, field_line};
use crate::method::Method;
use crate::request::Request;
use crate::target::Target;

/// Where a request goes, and whom it is from.
#[derive(Debug, Clone, Copy)]
pub struct RequestTo<'a> {
    /// The server's own `host[:port]`, valid: what the Host field says if the client's host is not
    /// kept, or if a client of HTTP/1.0 named none.
    pub authority: &'a [u8],
    /// The client's address, if it has one.
    pub client: Option<IpAddr>,
    /// Whether the connection to the server is to be kept open.
    pub keep_alive: bool,
}

pub(super) const CHUNKED: &[u8] = b"\r\nTransfer-Encoding: chunked";
const HOP: &[u8] = b"\r\nCDN-Loop: hearken";
pub(super) const CLOSE: &[u8] = b"\r\nConnection: close";

/// What was found in the lines that were looked at.
#[derive(Default)]
pub(super) struct Found<'b> {
    /// The value of a Content-Length that has to be written anew.
    length: Option<&'b [u8]>,
    /// Whether the client takes trailer fields.
    trailers: bool,
    max_forwards: bool,
    pub(super) x_forwarded_for: bool,
    pub(super) x_forwarded_host: bool,
    pub(super) x_forwarded_proto: bool,
    pub(super) forwarded: bool,
}

impl Found<'_> {
    #[inline(always)]
    pub(super) fn has_x_forwarded(&self) -> bool {
        self.x_forwarded_for | self.x_forwarded_host | self.x_forwarded_proto
    }
}

/// Appends the head of `request` as it is passed on: in HTTP/1.1, its target in origin form, its body
/// framed as it came.
pub fn request(rules: &Rules, out: &mut Vec<u8>, request: &Request<'_>, to: &RequestTo<'_>) {
    let head = request.bytes.get(..request.head_len).unwrap_or_default();
    let told = Told { client: to.client, host: request.host.unwrap_or_default() };
    let span = &request.hop_span;
    // Nearly all need no look at their lines.
    let is_simple = rules.keep_host
        && request.known.is_simple()
        && has_usual_line(request, head)
        && span.is_dropped();
    if !is_simple {
        return request_with_care(rules, out, request, to, &told);
    }
    if span.is_empty() {
        lines::copy_rest(out, head, 0);
    } else {
        lines::copy_around(out, head, 0, span.within(request.bytes.len()));
    }
    if request.body == Body::Chunked {
        out.extend_from_slice(CHUNKED);
    }
    told.write(rules, out, request, &Found::default());
    if rules.counts_hops {
        out.extend_from_slice(HOP);
    }
    if !to.keep_alive {
        out.extend_from_slice(CLOSE);
    }
    out.extend_from_slice(rules.end(request.version));
}

/// Whether the request line is passed on as it came.
#[inline(always)]
fn has_usual_line(request: &Request<'_>, head: &[u8]) -> bool {
    matches!(request.raw_target, [b'/', ..])
        && matches!(head, [first, ..] if *first != b'\r')
        && head.get(..request.fields_at as usize).is_some_and(|line| line.ends_with(b".1\r\n"))
}

/// [`request`], whatever there is.
#[inline(never)]
fn request_with_care(
    rules: &Rules,
    out: &mut Vec<u8>,
    request: &Request<'_>,
    to: &RequestTo<'_>,
    told: &Told<'_>,
) {
    let head = request.bytes.get(..request.head_len).unwrap_or_default();
    let known = request.known;
    let keeps_start = rules.keep_host
        && known.host_is_first()
        && !known.has(Known::NOMINATES)
        && has_usual_line(request, head);
    let from = if keeps_start { 0 } else { first_lines(rules, out, request, to) };

    let mut found = Found::default();
    let upgrade = Upgrade::of(request);
    let nominated = known.has(Known::NOMINATES).then(|| Nominated::of(request.fields()));
    let span = match request.hop_span.within(request.bytes.len()) {
        _ if nominated.is_some() => from..head.len(),
        _ if request.hop_span.is_empty() => head.len()..head.len(),
        span => span.start.max(from)..span.end,
    };
    lines::copy(out, head, from, span, |field| {
        let name = name(field.name());
        let is_nominated =
            || nominated.as_ref().is_some_and(|nominated| nominated.has(field.name()));
        let told = |given, was_told: &mut bool, appended: bool| match given {
            Given::Keep => !is_nominated(),
            Given::Append if !is_nominated() => {
                *was_told = true;
                !appended
            }
            _ => false,
        };
        match name {
            Name::Other => !is_nominated(),
            Name::HopByHop | Name::Host | Name::Expect | Name::Proxy => false,
            Name::Length if is_canonical_length(field.line) => true,
            Name::Length => {
                found.length = Some(trim(field.value()));
                false
            }
            Name::Te => {
                found.trailers |= names_trailers(field.value());
                false
            }
            Name::Upgrade => upgrade == Upgrade::AsTheyCame,
            Name::MaxForwards => {
                let is_counted = max_forwards(request).is_some();
                found.max_forwards |= is_counted;
                !is_counted
            }
            Name::Forwarded => told(rules.forwarded, &mut found.forwarded, true),
            Name::XForwardedFor => told(rules.x_forwarded, &mut found.x_forwarded_for, true),
            Name::XForwardedHost => told(rules.x_forwarded, &mut found.x_forwarded_host, false),
            Name::XForwardedProto => told(rules.x_forwarded, &mut found.x_forwarded_proto, false),
            Name::AboutClient => {
                matches!(rules.x_forwarded, Given::Keep | Given::Append) && !is_nominated()
            }
            Name::Alias | Name::RequestAlias => false,
        }
    });

    if upgrade == Upgrade::Rewritten {
        upgrade::write(out, request);
    }
    if let Some(length) = found.length {
        content_length(out, length);
    }
    if request.body == Body::Chunked {
        out.extend_from_slice(CHUNKED);
    }
    if request.expect_continue {
        out.extend_from_slice(b"\r\nExpect: 100-continue");
    }
    if found.max_forwards
        && let Some(left) = max_forwards(request)
    {
        out.extend_from_slice(b"\r\nMax-Forwards: ");
        head::decimal(out, left.saturating_sub(1));
    }
    told.write(rules, out, request, &found);
    if rules.counts_hops {
        out.extend_from_slice(HOP);
    }
    out.extend_from_slice(match (upgrade != Upgrade::Dropped, found.trailers, to.keep_alive) {
        (false, false, true) => b"",
        (false, false, false) => CLOSE,
        (false, true, true) => b"\r\nTE: trailers\r\nConnection: TE",
        (false, true, false) => b"\r\nTE: trailers\r\nConnection: close, TE",
        (true, false, _) => b"\r\nConnection: upgrade",
        (true, true, _) => b"\r\nTE: trailers\r\nConnection: upgrade, TE",
    });
    out.extend_from_slice(rules.end(request.version));
}

/// Writes the request line and the Host field. Where the lines that follow start.
#[inline(never)]
fn first_lines(
    rules: &Rules,
    out: &mut Vec<u8>,
    request: &Request<'_>,
    to: &RequestTo<'_>,
) -> usize {
    out.extend_from_slice(request.method.as_bytes());
    out.push(b' ');
    match request.target() {
        Target::Absolute { path: [], query: None, .. } if request.method == Method::Options => {
            out.push(b'*');
        }
        Target::Absolute { path, query, .. } => {
            out.extend_from_slice(if path.is_empty() { b"/" } else { path });
            if let Some(query) = query {
                out.push(b'?');
                out.extend_from_slice(query);
            }
        }
        Target::Origin { .. } | Target::Authority(_) | Target::Asterisk => {
            out.extend_from_slice(request.raw_target);
        }
    }
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(match request.host {
        Some(host) if rules.keep_host => host,
        _ => to.authority,
    });
    out.extend_from_slice(b"\r\n");
    let fields = request.bytes.get(request.fields_at as usize..).unwrap_or_default();
    match field_line(fields) {
        Ok(Line::Field { field, rest }) if name(field.name()) == Name::Host => {
            request.bytes.len() - rest.len()
        }
        _ => request.fields_at as usize,
    }
}

/// Writes a Content-Length, without zeros before it.
#[cold]
pub(super) fn content_length(out: &mut Vec<u8>, digits: &[u8]) {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    out.extend_from_slice(b"\r\nContent-Length: ");
    out.extend_from_slice(match digits.get(zeros..) {
        Some(digits @ [_, ..]) => digits,
        _ => b"0",
    });
}

fn names_trailers(codings: &[u8]) -> bool {
    codings.split(|&byte| byte == b',').any(|coding| trim(coding).eq_ignore_ascii_case(b"trailers"))
}

/// How many times more an OPTIONS or TRACE request may be passed on (RFC 9110 section 7.6.2), if it
/// says. At 0 it is to be answered; [`request`] writes one less.
#[inline]
pub fn max_forwards(request: &Request<'_>) -> Option<u64> {
    match request.method {
        Method::Options | Method::Trace => {
            request.field_values("Max-Forwards").filter_map(decimal).min()
        }
        _ => None,
    }
}
