//! Whatever good head is passed on, it means the same behind as before, and nothing of one connection is
//! in it.

use std::net::IpAddr;

use hearken_http::conditional::Conditions;
use hearken_http::forward::{self, Given, MOST_HOPS, RequestTo, ResponseTo, Rules};
use hearken_http::{
    Body, DateCache, Limits, Method, Request, RequestParser, Response, ResponseBody,
    ResponseParser, Target, Version,
};
use proptest::prelude::*;

const LIMITS: Limits = Limits { head_bytes: 1 << 20, fields: 1000, target_bytes: 1 << 16 };

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
const OF_REQUESTS: [&str; 14] = [
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

/// A name as an origin reads it that hands it on as a variable.
fn variable(name: &[u8]) -> String {
    String::from_utf8(name.to_ascii_lowercase()).unwrap().replace('_', "-")
}

fn values(fields: &Fields, name: &str) -> Vec<String> {
    let them = fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
    them.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect()
}

/// The options of the Connection fields, in lower case.
fn options(fields: &Fields) -> Vec<String> {
    let all = values(fields, "connection").join(",").to_ascii_lowercase();
    all.split(',').map(|option| option.trim_matches([' ', '\t']).to_owned()).collect()
}

/// The fields that a message has for its last reader, where `others` are for the next one.
fn end_to_end(fields: &Fields, others: &[&str], nominated: &[String]) -> Fields {
    let is_for_the_last = |(name, _): &&(Vec<u8>, Vec<u8>)| {
        let plain = String::from_utf8(name.to_ascii_lowercase()).unwrap();
        let read_as = variable(name);
        let is_dropped = HOP_BY_HOP.contains(&&*read_as) || others.contains(&&*read_as);
        !is_dropped && (plain == "max-forwards" || !nominated.contains(&plain))
    };
    fields.iter().filter(is_for_the_last).cloned().collect()
}

fn spelled(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    (prop::sample::select(words), 0..8).prop_map(|(word, spelling)| match spelling {
        0 => word.to_ascii_uppercase(),
        1 => word.to_ascii_lowercase(),
        2 => word.replace('-', "_"),
        _ => word.to_owned(),
    })
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => spelled(&[
            "User-Agent", "Accept", "Cookie", "Via", "Trailer", "Set-Cookie", "Content-Type",
            "If-None-Match", "Range", "X-A", "Date", "Proxy", "X-Forwarded-Port", "Upgrade-Insecure-Requests", "Server",
            "Content-Lengths", "Connections", "Sec-WebSocket-Protocol-And-More-Of-It",
        ]),
        2 => spelled(&[
            "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
            "Proxy-Authentication-Info", "TE", "Upgrade", "HTTP2-Settings", "X-Forwarded-For",
            "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "Max-Forwards", "Connection",
            "Upgrade",
        ]),
        1 => spelled(&[
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
    let framing = spelled(&[
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
    let connection = spelled(&[
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

fn given() -> impl Strategy<Value = Given> {
    prop::sample::select(&[Given::Replace, Given::Append, Given::Keep, Given::Remove][..])
}

#[derive(Debug, Clone)]
struct Setting {
    x_forwarded: Given,
    forwarded: Given,
    via: &'static str,
    keep_host: bool,
    keep_alive: bool,
    client: Option<IpAddr>,
}

impl Setting {
    fn rules(&self) -> Rules {
        Rules::new(self.via, self.x_forwarded, self.forwarded, self.keep_host)
    }

    fn passed(&self, request: &Request<'_>) -> Vec<u8> {
        let to = RequestTo { authority: b"o:9", client: self.client, keep_alive: self.keep_alive };
        let mut out = Vec::new();
        forward::request(&self.rules(), &mut out, request, &to);
        out
    }
}

fn setting() -> impl Strategy<Value = Setting> {
    let usual = (Just(Given::Replace), Just(Given::Remove), Just("me"), Just(true), Just(true));
    let others =
        (given(), given(), prop::sample::select(&["", "me"][..]), any::<bool>(), any::<bool>());
    let client = prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| Some(IpAddr::from(octets))),
        any::<[u8; 16]>().prop_map(|octets| Some(IpAddr::from(octets))),
        (any::<[u8; 4]>())
            .prop_map(|octets| Some(std::net::Ipv4Addr::from(octets).to_ipv6_mapped().into())),
        Just(None),
    ];
    (prop_oneof![usual, others], client).prop_map(
        |((x_forwarded, forwarded, via, keep_host, keep_alive), client)| Setting {
            x_forwarded,
            forwarded,
            via,
            keep_host,
            keep_alive,
            client,
        },
    )
}

/// A good request, if it is one.
fn read(bytes: &[u8]) -> Option<Request<'_>> {
    RequestParser::new().parse(bytes, &LIMITS).ok().flatten()
}

fn read_response<'b>(bytes: &'b [u8], method: Method<'_>) -> Option<Response<'b>> {
    ResponseParser::new().parse(bytes, method, &LIMITS).ok().flatten()
}

/// What a list of values is to be behind the proxy, `None` for values that are not looked at here.
fn told(given: Given, came: Vec<String>, ours: Option<String>, joins: bool) -> Vec<String> {
    match given {
        Given::Keep => came,
        Given::Remove => Vec::new(),
        Given::Replace => ours.into_iter().collect(),
        Given::Append if joins => {
            let all: Vec<_> =
                came.into_iter().filter(|value| !value.is_empty()).chain(ours).collect();
            if all.is_empty() { Vec::new() } else { vec![all.join(", ")] }
        }
        Given::Append if came.is_empty() => ours.into_iter().collect(),
        Given::Append => came,
    }
}

/// Whether a protocol is named as it should be, and is another than HTTP and TLS.
fn may_pass(protocol: &[u8]) -> bool {
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

/// Everything that a request says, as text.
fn shown(request: &Request<'_>, setting: &Setting) -> Vec<String> {
    let fields = owned(request.fields());
    let named = ["host", "cookie", "X-A", "upgrade", "via"];
    let values = named.map(|name| owned(request.field_values(name).map(|value| (&[][..], value))));
    vec![
        format!("{request:?} {:?} {:?}", request.raw_target, request.is_plain()),
        format!("{fields:?} {values:?} {:?}", request.field("range")),
        format!("{:?} {:?}", request.if_match(), request.if_none_match()),
        format!("{:?} {:?}", request.if_modified_since(), request.if_unmodified_since()),
        format!("{:?} {:?} {:?}", request.if_range(), request.range(), request.upgrade()),
        format!("{:?} {:?}", forward::max_forwards(request), Conditions::from(request)),
        format!(
            "{} {}",
            forward::hops(request),
            forward::names_this_proxy(&setting.rules(), request)
        ),
        format!("{:?}", request.upgrade_protocols().collect::<Vec<_>>()),
        String::from_utf8_lossy(&setting.passed(request)).into_owned(),
    ]
}

proptest! {
    #[test]
    fn a_kept_request_equals_the_original(
        bytes in request_head(),
        setting in setting(),
        behind in "[ -~]{0,9}",
        other in prop_oneof![Just(String::new()), request_head(), "[ -~\r\n]{0,90}"],
    ) {
        let bytes = [bytes, behind].concat().into_bytes();
        let Some(request) = read(&bytes) else {
            return Ok(());
        };
        let parts = request.parts();
        let copy = bytes[..parts.head_len()].to_vec();
        let kept = parts.request(&copy);
        prop_assert_eq!(shown(&kept, &setting), shown(&request, &setting));
        let again = kept.parts().request(&bytes);
        prop_assert_eq!(shown(&again, &setting), shown(&request, &setting));

        // With other bytes it says anything, but does not panic.
        for len in [0, other.len() / 2, other.len()] {
            shown(&parts.request(&other.as_bytes()[..len]), &setting);
        }
        for len in 0..copy.len() {
            shown(&parts.request(&copy[..len]), &setting);
        }
    }

    #[test]
    fn a_request_means_the_same(bytes in request_head(), setting in setting()) {
        let mut bytes = bytes.into_bytes();
        bytes.extend_from_slice(b"rest: of it");
        let Some(came) = read(&bytes) else {
            return Ok(());
        };
        let out = setting.passed(&came);
        let shown = String::from_utf8_lossy(&out).into_owned();
        let Some(went) = read(&out) else {
            return Err(TestCaseError::fail(format!("refused: {shown:?}")));
        };
        prop_assert_eq!(went.head_len, out.len());
        prop_assert_eq!(went.version, Version::Http11);
        prop_assert_eq!(went.method, came.method);
        match (came.target(), went.target()) {
            (Target::Absolute { path: [], query: None, .. }, Target::Asterisk) => {
                prop_assert_eq!(came.method, Method::Options);
            }
            (_, Target::Absolute { .. }) => prop_assert!(false, "absolute: {}", shown),
            _ => prop_assert_eq!(went.target().path_and_query(), came.target().path_and_query()),
        }
        prop_assert_eq!(went.body, came.body);
        prop_assert_eq!(went.expect_continue, came.expect_continue);
        let (before, after) = (owned(came.fields()), owned(went.fields()));
        let nominated: Vec<_> = options(&before);

        let wanted: Vec<_> = came.upgrade_protocols().filter(|one| may_pass(one)).collect();
        let upgrade = (!wanted.is_empty()).then_some(());
        prop_assert!(went.upgrade_protocols().eq(wanted));
        prop_assert_eq!(forward::passes_upgrade(&came), upgrade.is_some());
        prop_assert_eq!(went.keep_alive, setting.keep_alive || upgrade.is_some());

        prop_assert_eq!(variable(&after[0].0), "host");
        let host = if setting.keep_host { came.host.unwrap_or(b"o:9") } else { b"o:9" };
        prop_assert_eq!(went.host, Some(host));

        // What frames is there once, and only in the way it is written here.
        let count = |name: &str| after.iter().filter(|(other, _)| variable(other) == name).count();
        prop_assert_eq!(count("host"), 1);
        prop_assert_eq!(count("transfer-encoding"), usize::from(came.body == Body::Chunked));
        prop_assert_eq!(count("content-length"), values(&before, "content-length").len());
        if let Body::Length(length) = came.body {
            prop_assert_eq!(values(&after, "content-length"), [length.to_string()]);
        }
        prop_assert!(!shown.contains("Content-Length: 0\r\n") || came.body == Body::None);

        // What is of the connection is ours.
        let takes_trailers = values(&before, "te").join(",").split(',').any(|coding| {
            coding.trim_matches([' ', '\t']).eq_ignore_ascii_case("trailers")
        });
        prop_assert_eq!(values(&after, "te"), if takes_trailers { vec!["trailers"] } else { vec![] });
        let mut ours: Vec<_> = options(&after).into_iter().filter(|option| !option.is_empty()).collect();
        ours.sort_unstable();
        let mut wanted = Vec::new();
        if !setting.keep_alive && upgrade.is_none() { wanted.push("close"); }
        if takes_trailers { wanted.push("te"); }
        if upgrade.is_some() { wanted.push("upgrade"); }
        prop_assert_eq!(ours, wanted);
        for gone in ["keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
            "proxy-authentication-info", "http2-settings"] {
            prop_assert_eq!(count(gone), 0, "{}", gone);
        }

        // What is for the last reader is as it came, in its order.
        let mut others = OF_REQUESTS.to_vec();
        others.push("max-forwards");
        let mut wanted = end_to_end(&before, &others, &nominated);
        if !setting.via.is_empty() {
            let version = if came.version == Version::Http10 { "1.0" } else { "1.1" };
            wanted.push((b"Via".to_vec(), format!("{version} {}", setting.via).into_bytes()));
        }
        prop_assert_eq!(end_to_end(&after, &others, &[]), wanted);

        match forward::max_forwards(&came) {
            Some(left) => prop_assert_eq!(forward::max_forwards(&went), Some(left.saturating_sub(1))),
            None => prop_assert_eq!(values(&after, "max-forwards"), values(&before, "max-forwards")),
        }

        // Who asks.
        let client = setting.client.map(|client| client.to_canonical());
        let named = came.host.filter(|host| !host.is_empty()).map(|host| String::from_utf8(host.to_vec()).unwrap());
        let came = |name: &str| if nominated.iter().any(|option| option == name) { Vec::new() } else { values(&before, name) };
        let x = setting.x_forwarded;
        for (name, ours, joins) in [
            ("x-forwarded-for", client.map(|client| client.to_string()), true),
            ("x-forwarded-proto", Some("http".to_owned()), false),
            ("x-forwarded-host", named.clone(), false),
        ] {
            prop_assert_eq!(values(&after, name), told(x, came(name), ours, joins), "{}", name);
            prop_assert_eq!(count(name), values(&after, name).len());
        }
        for name in &OF_REQUESTS[7..] {
            let kept = matches!(x, Given::Keep | Given::Append);
            prop_assert_eq!(values(&after, name), if kept { came(name) } else { Vec::new() }, "{}", name);
            prop_assert_eq!(count(name), values(&after, name).len());
        }
        let by = match client {
            None => "unknown".to_owned(),
            Some(IpAddr::V4(client)) => client.to_string(),
            Some(IpAddr::V6(client)) => format!("\"[{client}]\""),
        };
        let mut ours = format!("for={by};proto=http");
        if let Some(named) = named {
            let quote = if named.contains([':', '[']) { "\"" } else { "" };
            ours += &format!(";host={quote}{named}{quote}");
        }
        let mut elements = came("forwarded");
        if setting.forwarded == Given::Append {
            elements.retain(|value| is_whole(value));
        }
        prop_assert_eq!(values(&after, "forwarded"), told(setting.forwarded, elements, Some(ours), true));
    }

    /// However the fields are set, a request that goes in a circle is found out.
    #[test]
    fn loops_end(bytes in request_head(), setting in setting()) {
        let rules = setting.rules().counting_hops();
        let mut bytes = bytes.into_bytes();
        for passes in 0.. {
            let Some(request) = read(&bytes) else {
                return Ok(());
            };
            let (hops, named) = (forward::hops(&request), forward::names_this_proxy(&rules, &request));
            prop_assert_eq!(forward::is_loop(&rules, &request), named || hops > MOST_HOPS);
            if hops > MOST_HOPS {
                return Ok(());
            }
            if passes > 0 && !setting.via.is_empty() {
                prop_assert!(named);
            }
            prop_assert!(passes <= MOST_HOPS);
            let to = RequestTo { authority: b"o:9", client: setting.client, keep_alive: true };
            let mut out = Vec::new();
            forward::request(&rules, &mut out, &request, &to);
            bytes = out;
        }
    }

    #[test]
    fn to_pass_a_request_on_twice_changes_nothing_more(bytes in request_head(), setting in setting()) {
        let Some(request) = read(bytes.as_bytes()) else {
            return Ok(());
        };
        if [setting.x_forwarded, setting.forwarded].contains(&Given::Append)
            || forward::max_forwards(&request).is_some()
            // The host that the first names is the one that the second is told.
            || !setting.keep_host || request.host.is_none()
        {
            return Ok(());
        }
        let setting = Setting { via: "", ..setting };
        let once = setting.passed(&request);
        let twice = setting.passed(&read(&once).unwrap());
        prop_assert_eq!(String::from_utf8_lossy(&once), String::from_utf8_lossy(&twice));
    }

    #[test]
    fn a_response_has_a_date(fields in fields()) {
        let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\nbody").into_bytes();
        let Some(came) = read_response(&bytes, Method::Get) else {
            return Ok(());
        };
        let now = DateCache::new(0);
        let date = forward::needs_date(&came).then_some(&now);
        let rules = Rules::new("", Given::Replace, Given::Replace, true);
        let mut out = Vec::new();
        let to = ResponseTo { version: Version::Http11, keep_alive: true, date };
        forward::response(&rules, &mut out, &came, &to);
        let Some(went) = read_response(&out, Method::Get) else {
            return Err(TestCaseError::fail("refused"));
        };
        let dates = values(&owned(went.fields()), "date");
        prop_assert_eq!(date.is_some(), dates == [String::from_utf8_lossy(now.as_bytes())]);
        prop_assert!(!dates.is_empty());
    }

    #[test]
    fn a_response_means_the_same(
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
        let Some(came) = read_response(&bytes, method) else {
            return Ok(());
        };
        let rules = Rules::new(via, Given::Replace, Given::Replace, true);
        let mut out = Vec::new();
        let body = forward::response(&rules, &mut out, &came, &ResponseTo { version, keep_alive, date: None });
        let shown = String::from_utf8_lossy(&out).into_owned();
        let Some(went) = read_response(&out, method) else {
            return Err(TestCaseError::fail(format!("refused: {shown:?}")));
        };
        prop_assert_eq!(went.head_len, out.len());
        prop_assert_eq!((went.version, went.status, went.reason), (Version::Http11, came.status, came.reason));
        prop_assert_eq!(went.body, body, "{}", shown);
        match (came.body, version) {
            (ResponseBody::None | ResponseBody::Length(_), _) => prop_assert_eq!(body, came.body),
            (_, Version::Http11) => prop_assert_eq!(body, ResponseBody::Chunked),
            (_, Version::Http10) => prop_assert_eq!(body, ResponseBody::UntilClose),
        }
        let (before, after) = (owned(came.fields()), owned(went.fields()));
        let says_keep_alive = options(&after).contains(&"keep-alive".to_owned());
        let says_close = options(&after).contains(&"close".to_owned());
        prop_assert_eq!(values(&after, "connection").len(), usize::from(says_close || says_keep_alive));
        prop_assert_eq!(says_close, !keep_alive || body == ResponseBody::UntilClose);
        prop_assert_eq!(says_keep_alive, !says_close && version == Version::Http10);

        let count = |name: &str| after.iter().filter(|(other, _)| variable(other) == name).count();
        for gone in HOP_BY_HOP.iter().filter(|name| !["connection", "transfer-encoding", "content-length"].contains(name)) {
            prop_assert_eq!(count(gone), 0, "{}", gone);
        }
        prop_assert_eq!(count("transfer-encoding"), usize::from(body == ResponseBody::Chunked));
        let lengths = if came.status == 204 { 0 } else { values(&before, "content-length").len() };
        prop_assert_eq!(count("content-length"), lengths);

        let mut wanted = end_to_end(&before, &[], &options(&before));
        // Nothing is dropped that means something in requests only, unless it is named.
        wanted.retain(|(name, _)| !(name.eq_ignore_ascii_case(b"max-forwards") && options(&before).contains(&"max-forwards".to_owned())));
        if !via.is_empty() {
            let version = if came.version == Version::Http10 { "1.0" } else { "1.1" };
            wanted.push((b"Via".to_vec(), format!("{version} {via}").into_bytes()));
        }
        prop_assert_eq!(end_to_end(&after, &[], &[]), wanted);

        if !via.is_empty() {
            return Ok(());
        }
        let mut again = Vec::new();
        let to = ResponseTo { version, keep_alive, date: None };
        prop_assert_eq!(forward::response(&rules, &mut again, &went, &to), body);
        prop_assert_eq!(String::from_utf8_lossy(&again), shown);
    }
}

/// Whether no quoted string is open at the end.
fn is_whole(value: &str) -> bool {
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

/// The properties are tried on many heads that are good, and of every kind.
#[test]
fn most_heads_are_good() {
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
