//! Properties of forwarded heads: they keep their meaning and contain no hop-by-hop fields of the
//! received head.

use std::net::IpAddr;

use hearken_http::conditional::Preconditions;
use hearken_http::forward::{self, HeaderPolicy, MAX_HOPS, RequestOptions, ResponseOptions, Rules};
use hearken_http::{
    Body, DateCache, Limits, Method, Request, RequestParser, Response, ResponseBody,
    ResponseParser, Target, Version,
};
use proptest::prelude::*;

const LIMITS: Limits =
    Limits { max_head_bytes: 1 << 20, max_fields: 1000, max_target_bytes: 1 << 16 };

const HOP_BY_HOP: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-authentication-info",
    "te",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "content-length",
];
const REQUEST_FIELDS: [&str; 14] = [
    "host",
    "expect",
    "proxy",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "true-client-ip",
    "x-forwarded-port",
    "x-forwarded-scheme",
    "x-forwarded-ssl",
    "x-forwarded-prefix",
    "x-forwarded-server",
];

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn owned<'b>(fields: impl Iterator<Item = (&'b [u8], &'b [u8])>) -> Fields {
    fields.map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// Returns a name as an origin interprets it that maps fields to CGI variables.
fn variable(name: &[u8]) -> String {
    String::from_utf8(name.to_ascii_lowercase()).unwrap().replace('_', "-")
}

fn values(fields: &Fields, name: &str) -> Vec<String> {
    let matching = fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
    matching.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect()
}

/// Returns the options of the Connection fields in lower case.
fn options(fields: &Fields) -> Vec<String> {
    let all = values(fields, "connection").join(",").to_ascii_lowercase();
    all.split(',').map(|option| option.trim_matches([' ', '\t']).to_owned()).collect()
}

/// Returns the end-to-end fields of a message. `others` are the names of fields that a proxy replaces.
fn end_to_end(fields: &Fields, others: &[&str], nominated: &[String]) -> Fields {
    let is_end_to_end = |(name, _): &&(Vec<u8>, Vec<u8>)| {
        let plain = String::from_utf8(name.to_ascii_lowercase()).unwrap();
        let canonical = variable(name);
        let is_removed = HOP_BY_HOP.contains(&&*canonical) || others.contains(&&*canonical);
        !is_removed && (plain == "max-forwards" || !nominated.contains(&plain))
    };
    fields.iter().filter(is_end_to_end).cloned().collect()
}

fn any_case(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    (prop::sample::select(words), 0..8).prop_map(|(word, spelling)| match spelling {
        0 => word.to_ascii_uppercase(),
        1 => word.to_ascii_lowercase(),
        2 => word.replace('-', "_"),
        _ => word.to_owned(),
    })
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => any_case(&[
            "User-Agent", "Accept", "Cookie", "Via", "Trailer", "Set-Cookie", "Content-Type",
            "If-None-Match", "Range", "X-A", "Date", "Proxy", "X-Forwarded-Port", "Upgrade-Insecure-Requests", "Server",
            "Content-Lengths", "Connections", "Sec-WebSocket-Protocol-And-More-Of-It",
        ]),
        2 => any_case(&[
            "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
            "Proxy-Authentication-Info", "TE", "Upgrade", "HTTP2-Settings", "X-Forwarded-For",
            "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "Max-Forwards", "Connection",
            "Upgrade",
        ]),
        1 => any_case(&[
            "X-Real-IP", "True-Client-IP", "X-Forwarded-Port", "X-Forwarded-Scheme", "X-Forwarded-Ssl",
            "X-Forwarded-Prefix", "X-Forwarded-Server", "X-Api-Key", "X-Requested-With", "CDN-Loop",
        ]),
        1 => "[a-zA-Z0-9!#$%&'*+.^_`|~-]{1,40}",
    ]
}

fn field() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        4 => "[ -~]{0,30}",
        2 => prop::sample::select(&[
            "trailers", "gzip, trailers;q=1", "websocket", "h2c", "1.1 x", "5", "007", "for=a", "a\tb",
            "for=\"", "10.0.0.1", "\u{e9}", "",
        ][..]).prop_map(str::to_owned),
    ];
    let blanks = || prop::sample::select(&["", " ", " ", " ", "\t", " \t "][..]);
    let framing = any_case(&[
        "Content-Length: 0",
        "Content-Length: 12",
        "Content-Length: 0012",
        "Content-Length:7",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding:CHUNKED\t",
        "Expect: 100-continue",
        "Max-Forwards: 5",
        "Max-Forwards: 0",
    ]);
    let connection = any_case(&[
        "Connection: close",
        "Connection: keep-alive",
        "Connection: Upgrade",
        "Connection: TE",
        "Connection: X-A, cookie",
        "Connection: content-length,host , transfer-encoding",
        "Connection: x-forwarded-for, ,via",
        "Connection: max-forwards, expect, upgrade",
    ]);
    prop_oneof![
        6 => (name(), blanks(), value, blanks())
            .prop_map(|(name, before, value, after)| format!("{name}:{before}{value}{after}\r\n")),
        1 => framing.prop_map(|line| format!("{line}\r\n")),
        2 => connection.prop_map(|line| format!("{line}\r\n")),
    ]
}

fn fields() -> impl Strategy<Value = String> {
    prop::collection::vec(field(), 0..7).prop_map(|fields| fields.concat())
}

fn request_head() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        3 => Just("GET /a?b HTTP/1.1"),
        1 => Just("OPTIONS / HTTP/1.1"),
        1 => prop::sample::select(&[
            "\r\nPOST /%2f/ HTTP/1.1", "PUT / HTTP/1.0", "OPTIONS * HTTP/1.1", "OPTIONS http://b HTTP/1.1",
            "OPTIONS /x HTTP/1.0", "TRACE /t HTTP/1.1", "GET http://b:8/c?d HTTP/1.1", "PURGE /? HTTP/1.3",
            "GET http://[::1]?q HTTP/1.1", "HEAD //x HTTP/1.1",
        ][..]),
    ];
    let host = prop_oneof![
        4 => Just("Host: a.example\r\n"),
        1 => prop::sample::select(&["host:a:80\r\n", "Host: \r\n", "Host: [::1]:80 \r\n", ""][..]),
    ];
    let before = prop_oneof![3 => Just(String::new()), 1 => fields()];
    (line, before, host, fields())
        .prop_map(|(line, before, host, after)| format!("{line}\r\n{before}{host}{after}\r\n"))
}

fn policy() -> impl Strategy<Value = HeaderPolicy> {
    prop::sample::select(
        &[HeaderPolicy::Replace, HeaderPolicy::Append, HeaderPolicy::Keep, HeaderPolicy::Remove][..],
    )
}

#[derive(Debug, Clone)]
struct Setting {
    x_forwarded: HeaderPolicy,
    forwarded: HeaderPolicy,
    via: &'static str,
    preserve_host: bool,
    keep_alive: bool,
    client: Option<IpAddr>,
}

impl Setting {
    fn rules(&self) -> Rules {
        Rules::new(self.via, self.x_forwarded, self.forwarded, self.preserve_host)
    }

    fn forward(&self, request: &Request<'_>) -> Vec<u8> {
        let to = RequestOptions {
            authority: b"o:9",
            client: self.client,
            is_secure: false,
            subject: None,
            keep_alive: self.keep_alive,
        };
        let mut out = Vec::new();
        forward::request(&self.rules(), &mut out, request, &to);
        out
    }
}

fn setting() -> impl Strategy<Value = Setting> {
    let common = (
        Just(HeaderPolicy::Replace),
        Just(HeaderPolicy::Remove),
        Just("me"),
        Just(true),
        Just(true),
    );
    let others =
        (policy(), policy(), prop::sample::select(&["", "me"][..]), any::<bool>(), any::<bool>());
    let client = prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| Some(IpAddr::from(octets))),
        any::<[u8; 16]>().prop_map(|octets| Some(IpAddr::from(octets))),
        (any::<[u8; 4]>())
            .prop_map(|octets| Some(std::net::Ipv4Addr::from(octets).to_ipv6_mapped().into())),
        Just(None),
    ];
    (prop_oneof![common, others], client).prop_map(
        |((x_forwarded, forwarded, via, preserve_host, keep_alive), client)| Setting {
            x_forwarded,
            forwarded,
            via,
            preserve_host,
            keep_alive,
            client,
        },
    )
}

/// Parses a request. Returns `None` if it is invalid or incomplete.
fn read(bytes: &[u8]) -> Option<Request<'_>> {
    RequestParser::new().parse(bytes, &LIMITS).ok().flatten()
}

fn read_response<'b>(bytes: &'b [u8], method: Method<'_>) -> Option<Response<'b>> {
    ResponseParser::new().parse(bytes, method, &LIMITS).ok().flatten()
}

/// Returns the expected values of a field about the client after forwarding.
fn expected_values(
    policy: HeaderPolicy,
    received: Vec<String>,
    own: Option<String>,
    joins: bool,
) -> Vec<String> {
    match policy {
        HeaderPolicy::Keep => received,
        HeaderPolicy::Remove => Vec::new(),
        HeaderPolicy::Replace => own.into_iter().collect(),
        HeaderPolicy::Append if joins => {
            let all: Vec<_> =
                received.into_iter().filter(|value| !value.is_empty()).chain(own).collect();
            if all.is_empty() { Vec::new() } else { vec![all.join(", ")] }
        }
        HeaderPolicy::Append if received.is_empty() => own.into_iter().collect(),
        HeaderPolicy::Append => received,
    }
}

/// Returns whether a protocol is valid and neither HTTP nor TLS.
fn is_forwardable(protocol: &[u8]) -> bool {
    let text = String::from_utf8_lossy(protocol).to_lowercase();
    let mut parts = text.split('/');
    let is_token = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let name = parts.next().unwrap();
    let version = parts.next().is_none_or(is_token);
    is_token(name)
        && version
        && parts.next().is_none()
        && !["h2", "h2c", "http", "tls"].contains(&name)
}

/// Formats all properties of a request.
fn describe(request: &Request<'_>, setting: &Setting) -> Vec<String> {
    let fields = owned(request.fields());
    let named = ["host", "cookie", "X-A", "upgrade", "via"];
    let values = named.map(|name| owned(request.field_values(name).map(|value| (&[][..], value))));
    vec![
        format!("{request:?} {:?} {:?}", request.raw_target, request.is_plain()),
        format!("{fields:?} {values:?} {:?}", request.field("range")),
        format!("{:?} {:?}", request.if_match(), request.if_none_match()),
        format!("{:?} {:?}", request.if_modified_since(), request.if_unmodified_since()),
        format!("{:?} {:?} {:?}", request.if_range(), request.range(), request.upgrade()),
        format!("{:?} {:?}", forward::max_forwards(request), Preconditions::from(request)),
        format!(
            "{} {}",
            forward::count_hops(request),
            forward::names_this_proxy(&setting.rules(), request)
        ),
        format!("{:?}", request.upgrade_protocols().collect::<Vec<_>>()),
        String::from_utf8_lossy(&setting.forward(request)).into_owned(),
    ]
}

proptest! {
    #[test]
    fn a_request_restored_from_parts_equals_the_original(
        bytes in request_head(),
        setting in setting(),
        suffix in "[ -~]{0,9}",
        other in prop_oneof![Just(String::new()), request_head(), "[ -~\r\n]{0,90}"],
    ) {
        let bytes = [bytes, suffix].concat().into_bytes();
        let Some(request) = read(&bytes) else {
            return Ok(());
        };
        let parts = request.parts();
        let copy = bytes[..parts.head_len()].to_vec();
        let restored = parts.request(&copy);
        prop_assert_eq!(describe(&restored, &setting), describe(&request, &setting));
        let again = restored.parts().request(&bytes);
        prop_assert_eq!(describe(&again, &setting), describe(&request, &setting));

        // With other bytes, the content is unspecified but nothing panics.
        for len in [0, other.len() / 2, other.len()] {
            describe(&parts.request(&other.as_bytes()[..len]), &setting);
        }
        for len in (copy.len() % 3..copy.len()).step_by(3) {
            describe(&parts.request(&copy[..len]), &setting);
        }
    }

    #[test]
    fn a_forwarded_request_has_the_same_meaning(bytes in request_head(), setting in setting()) {
        let mut bytes = bytes.into_bytes();
        bytes.extend_from_slice(b"next message");
        let Some(received) = read(&bytes) else {
            return Ok(());
        };
        let out = setting.forward(&received);
        let shown = String::from_utf8_lossy(&out).into_owned();
        let Some(sent) = read(&out) else {
            return Err(TestCaseError::fail(format!("invalid request: {shown:?}")));
        };
        prop_assert_eq!(sent.head_len, out.len());
        prop_assert_eq!(sent.version, Version::Http11);
        prop_assert_eq!(sent.method, received.method);
        match (received.target(), sent.target()) {
            (Target::Absolute { path: [], query: None, .. }, Target::Asterisk) => {
                prop_assert_eq!(received.method, Method::Options);
            }
            (_, Target::Absolute { .. }) => prop_assert!(false, "absolute: {}", shown),
            _ => prop_assert_eq!(sent.target().path_and_query(), received.target().path_and_query()),
        }
        prop_assert_eq!(sent.body, received.body);
        prop_assert_eq!(sent.expect_continue, received.expect_continue);
        let (before, after) = (owned(received.fields()), owned(sent.fields()));
        let nominated: Vec<_> = options(&before);

        let wanted: Vec<_> = received.upgrade_protocols().filter(|protocol| is_forwardable(protocol)).collect();
        let upgrade = (!wanted.is_empty()).then_some(());
        prop_assert!(sent.upgrade_protocols().eq(wanted));
        prop_assert_eq!(forward::forwards_upgrade(&received), upgrade.is_some());
        prop_assert_eq!(sent.keep_alive, setting.keep_alive || upgrade.is_some());

        prop_assert_eq!(variable(&after[0].0), "host");
        let host = if setting.preserve_host { received.host.unwrap_or(b"o:9") } else { b"o:9" };
        prop_assert_eq!(sent.host, Some(host));

        // Framing fields are present once and in canonical form.
        let count = |name: &str| after.iter().filter(|(other, _)| variable(other) == name).count();
        prop_assert_eq!(count("host"), 1);
        prop_assert_eq!(count("transfer-encoding"), usize::from(received.body == Body::Chunked));
        prop_assert_eq!(count("content-length"), values(&before, "content-length").len());
        if let Body::Length(length) = received.body {
            prop_assert_eq!(values(&after, "content-length"), [length.to_string()]);
        }
        prop_assert!(!shown.contains("Content-Length: 0\r\n") || received.body == Body::None);

        // The proxy sets its own hop-by-hop fields.
        let accepts_trailers = values(&before, "te").join(",").split(',').any(|coding| {
            coding.trim_matches([' ', '\t']).eq_ignore_ascii_case("trailers")
        });
        prop_assert_eq!(values(&after, "te"), if accepts_trailers { vec!["trailers"] } else { vec![] });
        let mut own: Vec<_> = options(&after).into_iter().filter(|option| !option.is_empty()).collect();
        own.sort_unstable();
        let mut wanted = Vec::new();
        if !setting.keep_alive && upgrade.is_none() { wanted.push("close"); }
        if accepts_trailers { wanted.push("te"); }
        if upgrade.is_some() { wanted.push("upgrade"); }
        prop_assert_eq!(own, wanted);
        for removed in ["keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
            "proxy-authentication-info", "http2-settings"] {
            prop_assert_eq!(count(removed), 0, "{}", removed);
        }

        // End-to-end fields are unchanged and in their original order.
        let mut others = REQUEST_FIELDS.to_vec();
        others.push("max-forwards");
        let mut wanted = end_to_end(&before, &others, &nominated);
        if !setting.via.is_empty() {
            let version = if received.version == Version::Http10 { "1.0" } else { "1.1" };
            wanted.push((b"Via".to_vec(), format!("{version} {}", setting.via).into_bytes()));
        }
        prop_assert_eq!(end_to_end(&after, &others, &[]), wanted);

        match forward::max_forwards(&received) {
            Some(remaining) => prop_assert_eq!(forward::max_forwards(&sent), Some(remaining.saturating_sub(1))),
            None => prop_assert_eq!(values(&after, "max-forwards"), values(&before, "max-forwards")),
        }

        // Fields about the client.
        let client = setting.client.map(|client| client.to_canonical());
        let requested = received.host.filter(|host| !host.is_empty()).map(|host| String::from_utf8(host.to_vec()).unwrap());
        let received = |name: &str| if nominated.iter().any(|option| option == name) { Vec::new() } else { values(&before, name) };
        let x = setting.x_forwarded;
        for (name, own, joins) in [
            ("x-forwarded-for", client.map(|client| client.to_string()), true),
            ("x-forwarded-proto", Some("http".to_owned()), false),
            ("x-forwarded-host", requested.clone(), false),
        ] {
            prop_assert_eq!(values(&after, name), expected_values(x, received(name), own, joins), "{}", name);
            prop_assert_eq!(count(name), values(&after, name).len());
        }
        for name in &REQUEST_FIELDS[7..] {
            let is_forwarded = matches!(x, HeaderPolicy::Keep | HeaderPolicy::Append);
            prop_assert_eq!(values(&after, name), if is_forwarded { received(name) } else { Vec::new() }, "{}", name);
            prop_assert_eq!(count(name), values(&after, name).len());
        }
        let client = match client {
            None => "unknown".to_owned(),
            Some(IpAddr::V4(client)) => client.to_string(),
            Some(IpAddr::V6(client)) => format!("\"[{client}]\""),
        };
        let mut own = format!("for={client};proto=http");
        if let Some(host) = requested {
            let quote = if host.contains([':', '[']) { "\"" } else { "" };
            own += &format!(";host={quote}{host}{quote}");
        }
        let mut elements = received("forwarded");
        if setting.forwarded == HeaderPolicy::Append {
            elements.retain(|value| has_balanced_quotes(value));
        }
        prop_assert_eq!(values(&after, "forwarded"), expected_values(setting.forwarded, elements, Some(own), true));
    }

    // The loop is detected with any forwarding policy.
    #[test]
    fn detects_forwarding_loops(bytes in request_head(), setting in setting()) {
        let rules = setting.rules().with_hop_count();
        let mut bytes = bytes.into_bytes();
        for passes in 0.. {
            let Some(request) = read(&bytes) else {
                return Ok(());
            };
            let (hops, named) = (forward::count_hops(&request), forward::names_this_proxy(&rules, &request));
            prop_assert_eq!(forward::is_loop(&rules, &request), named || hops > MAX_HOPS);
            if hops > MAX_HOPS {
                return Ok(());
            }
            if passes > 0 && !setting.via.is_empty() {
                prop_assert!(named);
            }
            prop_assert!(passes <= MAX_HOPS);
            let to = RequestOptions { authority: b"o:9", client: setting.client, is_secure: false, subject: None, keep_alive: true };
            let mut out = Vec::new();
            forward::request(&rules, &mut out, &request, &to);
            bytes = out;
        }
    }

    #[test]
    fn forwarding_is_idempotent(bytes in request_head(), setting in setting()) {
        let Some(request) = read(bytes.as_bytes()) else {
            return Ok(());
        };
        if [setting.x_forwarded, setting.forwarded].contains(&HeaderPolicy::Append)
            || forward::max_forwards(&request).is_some()
            // The second proxy receives the host that the first proxy set.
            || !setting.preserve_host || request.host.is_none()
        {
            return Ok(());
        }
        let setting = Setting { via: "", ..setting };
        let once = setting.forward(&request);
        let twice = setting.forward(&read(&once).unwrap());
        prop_assert_eq!(String::from_utf8_lossy(&once), String::from_utf8_lossy(&twice));
    }

    #[test]
    fn a_forwarded_response_has_a_date(fields in fields()) {
        let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\nbody").into_bytes();
        let Some(received) = read_response(&bytes, Method::Get) else {
            return Ok(());
        };
        let now = DateCache::new(0);
        let date = forward::needs_date(&received).then_some(&now);
        let rules = Rules::new("", HeaderPolicy::Replace, HeaderPolicy::Replace, true);
        let mut out = Vec::new();
        let to = ResponseOptions { version: Version::Http11, keep_alive: true, date };
        forward::response(&rules, &mut out, &received, &to);
        let Some(sent) = read_response(&out, Method::Get) else {
            return Err(TestCaseError::fail("invalid response"));
        };
        let dates = values(&owned(sent.fields()), "date");
        prop_assert_eq!(date.is_some(), dates == [String::from_utf8_lossy(now.as_bytes())]);
        prop_assert!(!dates.is_empty());
    }

    #[test]
    fn a_forwarded_response_has_the_same_meaning(
        line in prop::sample::select(&[
            "HTTP/1.1 200 OK", "HTTP/1.1 200 OK", "HTTP/1.1 200 OK", "HTTP/1.1 404", "HTTP/1.0 200 OK",
            "HTTP/1.1 304 ", "HTTP/1.1 204 x y", "HTTP/1.9 599 \u{e9}\t", "HTTP/1.1 206 Partial Content",
        ][..]),
        fields in fields(),
        method in prop::sample::select(&[Method::Get, Method::Get, Method::Head, Method::Post][..]),
        version in prop::sample::select(&[Version::Http10, Version::Http11, Version::Http11][..]),
        keep_alive in any::<bool>(),
        via in prop::sample::select(&["", "me"][..]),
    ) {
        let bytes = format!("{line}\r\n{fields}\r\nbody").into_bytes();
        let Some(received) = read_response(&bytes, method) else {
            return Ok(());
        };
        let rules = Rules::new(via, HeaderPolicy::Replace, HeaderPolicy::Replace, true);
        let mut out = Vec::new();
        let body = forward::response(&rules, &mut out, &received, &ResponseOptions { version, keep_alive, date: None });
        let shown = String::from_utf8_lossy(&out).into_owned();
        let Some(sent) = read_response(&out, method) else {
            return Err(TestCaseError::fail(format!("invalid response: {shown:?}")));
        };
        prop_assert_eq!(sent.head_len, out.len());
        prop_assert_eq!((sent.version, sent.status, sent.reason), (Version::Http11, received.status, received.reason));
        prop_assert_eq!(sent.body, body, "{}", shown);
        match (received.body, version) {
            (ResponseBody::None | ResponseBody::Length(_), _) => prop_assert_eq!(body, received.body),
            (_, Version::Http11 | Version::Http2) => prop_assert_eq!(body, ResponseBody::Chunked),
            (_, Version::Http10) => prop_assert_eq!(body, ResponseBody::UntilClose),
        }
        let (before, after) = (owned(received.fields()), owned(sent.fields()));
        let has_keep_alive = options(&after).contains(&"keep-alive".to_owned());
        let has_close = options(&after).contains(&"close".to_owned());
        prop_assert_eq!(values(&after, "connection").len(), usize::from(has_close || has_keep_alive));
        prop_assert_eq!(has_close, !keep_alive || body == ResponseBody::UntilClose);
        prop_assert_eq!(has_keep_alive, !has_close && version == Version::Http10);

        let count = |name: &str| after.iter().filter(|(other, _)| variable(other) == name).count();
        for removed in HOP_BY_HOP.iter().filter(|name| !["connection", "transfer-encoding", "content-length"].contains(name)) {
            prop_assert_eq!(count(removed), 0, "{}", removed);
        }
        prop_assert_eq!(count("transfer-encoding"), usize::from(body == ResponseBody::Chunked));
        let lengths = if received.status == 204 { 0 } else { values(&before, "content-length").len() };
        prop_assert_eq!(count("content-length"), lengths);

        let mut wanted = end_to_end(&before, &[], &options(&before));
        // Fields that are special only in requests are forwarded unless they are nominated.
        wanted.retain(|(name, _)| !(name.eq_ignore_ascii_case(b"max-forwards") && options(&before).contains(&"max-forwards".to_owned())));
        if !via.is_empty() {
            let version = if received.version == Version::Http10 { "1.0" } else { "1.1" };
            wanted.push((b"Via".to_vec(), format!("{version} {via}").into_bytes()));
        }
        prop_assert_eq!(end_to_end(&after, &[], &[]), wanted);

        if !via.is_empty() {
            return Ok(());
        }
        let mut again = Vec::new();
        let to = ResponseOptions { version, keep_alive, date: None };
        prop_assert_eq!(forward::response(&rules, &mut again, &sent, &to), body);
        prop_assert_eq!(String::from_utf8_lossy(&again), shown);
    }
}

/// Returns whether all quoted strings are terminated.
fn has_balanced_quotes(value: &str) -> bool {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for byte in value.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
    }
    !is_quoted
}

// The generated heads are mostly valid and of every kind.
#[test]
fn most_generated_heads_are_valid() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let heads: Vec<_> =
        (0..1000).map(|_| request_head().new_tree(&mut runner).unwrap().current()).collect();
    let good: Vec<_> = heads.iter().filter_map(|head| read(head.as_bytes())).collect();
    assert!(good.len() > 500, "{}", good.len());
    assert!(good.iter().filter(|request| request.upgrade().is_some()).count() > 5);
    assert!(good.iter().filter(|request| request.body == Body::Chunked).count() > 20);
    assert!(good.iter().filter(|request| forward::max_forwards(request).is_some()).count() > 1);
}
