//! Forwarding of request heads.

use std::net::IpAddr;

use super::client_fields::ClientInfo;
use super::field_kind::{FieldKind, classify};
use super::lines::{self, Nominated};
use super::upgrade::{self, UpgradeAction};
use super::{HeaderPolicy, Rules};
use crate::class::trim;
use crate::field_line::{Line, parse_field_line};
use crate::framing::{Body, is_canonical_length, parse_decimal};
use crate::head;
use crate::method::Method;
use crate::request::Request;
use crate::request_fields::FieldSet;
use crate::target::Target;

/// The destination and origin of a forwarded request.
#[derive(Debug, Clone, Copy)]
pub struct RequestOptions<'a> {
    /// Valid `host[:port]` of the server. The Host field contains it if the rules do not keep the client's
    /// host, or if an HTTP/1.0 client sent none.
    pub authority: &'a [u8],
    /// Address of the client, if known.
    pub client: Option<IpAddr>,
    /// Whether the client uses TLS, so that the scheme of its request is `https`.
    pub is_secure: bool,
    /// Subject of the client's certificate, in printable ASCII, if it has one.
    pub subject: Option<&'a str>,
    /// Whether the connection to the server persists after the response.
    pub keep_alive: bool,
}

pub(super) const CHUNKED: &[u8] = b"\r\nTransfer-Encoding: chunked";
const CDN_LOOP: &[u8] = b"\r\nCDN-Loop: hearken";
pub(super) const CLOSE: &[u8] = b"\r\nConnection: close";

/// The relevant fields that were found while copying lines.
#[derive(Default)]
pub(super) struct FoundFields<'b> {
    /// Value of a Content-Length that is not in canonical form.
    length: Option<&'b [u8]>,
    /// Whether the client accepts trailer fields.
    trailers: bool,
    max_forwards: bool,
    pub(super) x_forwarded_for: bool,
    pub(super) x_forwarded_host: bool,
    pub(super) x_forwarded_proto: bool,
    pub(super) forwarded: bool,
}

impl FoundFields<'_> {
    #[inline(always)]
    pub(super) fn has_x_forwarded(&self) -> bool {
        self.x_forwarded_for | self.x_forwarded_host | self.x_forwarded_proto
    }
}

/// Appends the head of `request` as forwarded: in HTTP/1.1, with an origin-form target and the framing of
/// the received body.
pub fn request(rules: &Rules, out: &mut Vec<u8>, request: &Request<'_>, to: &RequestOptions<'_>) {
    let head = request.bytes.get(..request.head_len).unwrap_or_default();
    let host = request.host.unwrap_or_default();
    let info = ClientInfo { client: to.client, is_secure: to.is_secure, host };
    let span = &request.rewrite_span;
    // Nearly all requests need no second look at their lines.
    let is_simple = rules.preserve_host
        && rules.client_subject.is_empty()
        && request.present.is_simple()
        && has_common_first_line(request, head)
        && span.is_all_removed();
    if !is_simple {
        return rewrite_request(rules, out, request, to, &info);
    }
    if span.is_empty() {
        lines::copy_rest(out, head, 0);
    } else {
        lines::copy_outside(out, head, 0, span.range(request.bytes.len()));
    }
    if request.body == Body::Chunked {
        out.extend_from_slice(CHUNKED);
    }
    info.write(rules, out, request, &FoundFields::default());
    if rules.adds_cdn_loop {
        out.extend_from_slice(CDN_LOOP);
    }
    if !to.keep_alive {
        out.extend_from_slice(CLOSE);
    }
    out.extend_from_slice(rules.end(request.version));
}

/// Returns whether the request line is forwarded unchanged.
#[inline(always)]
fn has_common_first_line(request: &Request<'_>, head: &[u8]) -> bool {
    matches!(request.raw_target, [b'/', ..])
        && matches!(head, [first, ..] if *first != b'\r')
        && head.get(..request.fields_at as usize).is_some_and(|line| line.ends_with(b".1\r\n"))
}

/// Forwards any [`request`], line by line where necessary.
#[inline(never)]
fn rewrite_request(
    rules: &Rules,
    out: &mut Vec<u8>,
    request: &Request<'_>,
    to: &RequestOptions<'_>,
    info: &ClientInfo<'_>,
) {
    let head = request.bytes.get(..request.head_len).unwrap_or_default();
    let present = request.present;
    let keeps_start = rules.preserve_host
        && rules.client_subject.is_empty()
        && present.host_is_first()
        && !present.has(FieldSet::NOMINATED)
        && has_common_first_line(request, head);
    let from = if keeps_start { 0 } else { write_first_lines(rules, out, request, to) };

    let mut found = FoundFields::default();
    let upgrade = UpgradeAction::for_request(request);
    let nominated =
        present.has(FieldSet::NOMINATED).then(|| Nominated::from_fields(request.fields()));
    let span = match request.rewrite_span.range(request.bytes.len()) {
        _ if nominated.is_some() || !rules.client_subject.is_empty() => from..head.len(),
        _ if request.rewrite_span.is_empty() => head.len()..head.len(),
        span => span.start.max(from)..span.end,
    };
    lines::copy_filtered(out, head, from, span, |field| {
        let kind = classify(field.name());
        let is_nominated =
            || nominated.as_ref().is_some_and(|nominated| nominated.contains(field.name()));
        let keeps = |policy, was_present: &mut bool, is_appended: bool| match policy {
            HeaderPolicy::Keep => !is_nominated(),
            HeaderPolicy::Append if !is_nominated() => {
                *was_present = true;
                !is_appended
            }
            _ => false,
        };
        match kind {
            _ if rules.is_client_subject(field.name()) => false,
            FieldKind::Other => !is_nominated(),
            FieldKind::HopByHop | FieldKind::Host | FieldKind::Expect | FieldKind::Proxy => false,
            FieldKind::ContentLength if is_canonical_length(field.line) => true,
            FieldKind::ContentLength => {
                found.length = Some(trim(field.value()));
                false
            }
            FieldKind::Te => {
                found.trailers |= accepts_trailers(field.value());
                false
            }
            FieldKind::Upgrade => upgrade == UpgradeAction::Keep,
            FieldKind::MaxForwards => {
                let is_valid = max_forwards(request).is_some();
                found.max_forwards |= is_valid;
                !is_valid
            }
            FieldKind::Forwarded => keeps(rules.forwarded, &mut found.forwarded, true),
            FieldKind::XForwardedFor => keeps(rules.x_forwarded, &mut found.x_forwarded_for, true),
            FieldKind::XForwardedHost => {
                keeps(rules.x_forwarded, &mut found.x_forwarded_host, false)
            }
            FieldKind::XForwardedProto => {
                keeps(rules.x_forwarded, &mut found.x_forwarded_proto, false)
            }
            FieldKind::ClientInfo => {
                matches!(rules.x_forwarded, HeaderPolicy::Keep | HeaderPolicy::Append)
                    && !is_nominated()
            }
            FieldKind::Alias | FieldKind::RequestAlias => false,
        }
    });

    if upgrade == UpgradeAction::Filter {
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
        && let Some(remaining) = max_forwards(request)
    {
        out.extend_from_slice(b"\r\nMax-Forwards: ");
        head::write_decimal(out, remaining.saturating_sub(1));
    }
    info.write(rules, out, request, &found);
    if let Some(subject) = to.subject.filter(|_| !rules.client_subject.is_empty()) {
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&rules.client_subject);
        out.extend_from_slice(b": ");
        out.extend_from_slice(subject.as_bytes());
    }
    if rules.adds_cdn_loop {
        out.extend_from_slice(CDN_LOOP);
    }
    out.extend_from_slice(
        match (upgrade != UpgradeAction::Remove, found.trailers, to.keep_alive) {
            (false, false, true) => b"",
            (false, false, false) => CLOSE,
            (false, true, true) => b"\r\nTE: trailers\r\nConnection: TE",
            (false, true, false) => b"\r\nTE: trailers\r\nConnection: close, TE",
            (true, false, _) => b"\r\nConnection: upgrade",
            (true, true, _) => b"\r\nTE: trailers\r\nConnection: upgrade, TE",
        },
    );
    out.extend_from_slice(rules.end(request.version));
}

/// Writes the request line and the Host field. Returns the position of the lines to copy.
#[inline(never)]
fn write_first_lines(
    rules: &Rules,
    out: &mut Vec<u8>,
    request: &Request<'_>,
    to: &RequestOptions<'_>,
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
        Some(host) if rules.preserve_host => host,
        _ => to.authority,
    });
    out.extend_from_slice(b"\r\n");
    let fields = request.bytes.get(request.fields_at as usize..).unwrap_or_default();
    match parse_field_line(fields) {
        Ok(Line::Field { field, rest }) if classify(field.name()) == FieldKind::Host => {
            request.bytes.len() - rest.len()
        }
        _ => request.fields_at as usize,
    }
}

/// Writes a Content-Length without leading zeros.
#[cold]
pub(super) fn content_length(out: &mut Vec<u8>, digits: &[u8]) {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    out.extend_from_slice(b"\r\nContent-Length: ");
    out.extend_from_slice(match digits.get(zeros..) {
        Some(digits @ [_, ..]) => digits,
        _ => b"0",
    });
}

fn accepts_trailers(codings: &[u8]) -> bool {
    codings.split(|&byte| byte == b',').any(|coding| trim(coding).eq_ignore_ascii_case(b"trailers"))
}

/// Returns the Max-Forwards value of an OPTIONS or TRACE request (RFC 9110 section 7.6.2).
///
/// The proxy itself responds to a request with value 0. [`request`] writes the value decremented by one.
#[inline]
pub fn max_forwards(request: &Request<'_>) -> Option<u64> {
    match request.method {
        Method::Options | Method::Trace => {
            request.field_values("Max-Forwards").filter_map(parse_decimal).min()
        }
        _ => None,
    }
}
