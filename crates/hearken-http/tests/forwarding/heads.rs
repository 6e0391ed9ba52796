//! Forwarded heads, with an example for every rule.

use std::net::IpAddr;

use hearken_http::forward::{self, HeaderPolicy, RequestOptions, ResponseOptions, Rules};
use hearken_http::{
    DateCache, Limits, Method, Request, RequestParser, Response, ResponseBody, ResponseParser,
    Version,
};

fn parse(bytes: &[u8]) -> Request<'_> {
    RequestParser::new().parse(bytes, &Limits::default()).unwrap().unwrap()
}

fn parse_response<'b>(bytes: &'b [u8], method: Method<'_>) -> Response<'b> {
    ResponseParser::new().parse(bytes, method, &Limits::default()).unwrap().unwrap()
}

/// Returns rules that add no fields.
fn transparent() -> Rules {
    Rules::new("", HeaderPolicy::Keep, HeaderPolicy::Keep, true)
}

fn to(client: Option<IpAddr>) -> RequestOptions<'static> {
    RequestOptions {
        authority: b"origin:81",
        client,
        is_secure: false,
        keep_alive: true,
        subject: None,
    }
}

fn client() -> Option<IpAddr> {
    Some([192, 0, 2, 7].into())
}

fn forward_request(rules: &Rules, bytes: &str, to: &RequestOptions<'_>) -> String {
    let mut out = b"before".to_vec();
    forward::request(rules, &mut out, &parse(bytes.as_bytes()), to);
    String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned()
}

/// Checks the forwarded form of the request with this line and these fields, separated by `|`.
#[track_caller]
fn check(line: &str, fields: &str, want_line: &str, want_fields: &str) {
    let lines = |fields: &str| -> String {
        fields
            .split('|')
            .filter(|field| !field.is_empty())
            .map(|field| format!("{field}\r\n"))
            .collect()
    };
    let bytes = format!("{line}\r\n{}\r\nrest", lines(fields));
    let want = format!("{want_line}\r\n{}\r\n", lines(want_fields));
    assert_eq!(forward_request(&transparent(), &bytes, &to(client())), want, "{bytes:?}");
}

/// Checks the forwarded form of fields after a Host field.
#[track_caller]
fn check_fields(fields: &str, want: &str) {
    check(
        "POST /a?b HTTP/1.1",
        &format!("Host: a|{fields}"),
        "POST /a?b HTTP/1.1",
        &format!("Host: a|{want}"),
    );
}

#[test]
fn request_lines_are_in_origin_form() {
    for (line, want) in [
        ("GET /a%20b?c=%2f HTTP/1.1", "GET /a%20b?c=%2f HTTP/1.1"),
        ("GET / HTTP/1.2", "GET / HTTP/1.1"),
        ("GET / HTTP/1.0", "GET / HTTP/1.1"),
        ("\r\nGET / HTTP/1.1", "GET / HTTP/1.1"),
        ("PURGE //x HTTP/1.1", "PURGE //x HTTP/1.1"),
        ("OPTIONS * HTTP/1.1", "OPTIONS * HTTP/1.1"),
        ("OPTIONS http://a HTTP/1.1", "OPTIONS * HTTP/1.1"),
        ("OPTIONS http://a?x HTTP/1.1", "OPTIONS /?x HTTP/1.1"),
        ("OPTIONS http://a/ HTTP/1.1", "OPTIONS / HTTP/1.1"),
        ("GET http://a HTTP/1.1", "GET / HTTP/1.1"),
        ("GET HTTP://a?b HTTP/1.1", "GET /?b HTTP/1.1"),
        ("GET http://a/b?c?d HTTP/1.1", "GET /b?c?d HTTP/1.1"),
    ] {
        check(line, "Host: a|X: y", want, "Host: a|X: y");
    }
}

#[test]
fn a_forwarded_request_has_one_host_field_and_it_is_first() {
    let get = "GET / HTTP/1.1";
    check(get, "X: y|host:\ta:8 |Y: z", get, "Host: a:8|X: y|Y: z");
    check(get, "host: a", get, "Host: a");
    check(get, "Host:", get, "Host: ");
    check("GET http://b:80/ HTTP/1.1", "Host: a|X: y", get, "Host: b:80|X: y");
    check("GET http://b/ HTTP/1.1", "X: y|Host: a|Y: z", get, "Host: b|X: y|Y: z");
    check("GET / HTTP/1.0", "X: y", get, "Host: origin:81|X: y");
    check("GET / HTTP/1.0", "Host: a", get, "Host: a");
    let rules = Rules::new("", HeaderPolicy::Keep, HeaderPolicy::Keep, false);
    for head in [
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\r\nHost: a\r\n\r\n",
        "GET http://b/ HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
    ] {
        let want = "GET / HTTP/1.1\r\nHost: origin:81\r\nX: y\r\n\r\n";
        assert_eq!(forward_request(&rules, head, &to(None)), want);
    }
}

#[test]
fn removes_hop_by_hop_fields() {
    for field in [
        "Connection: keep-alive",
        "connection:close",
        "Connection:",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "Proxy-Authenticate: Basic",
        "PROXY-AUTHORIZATION: Basic eA==",
        "Proxy-Authentication-Info: x",
        "TE: gzip",
        "TE:",
        "Upgrade: websocket",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
        "Connection: HTTP2-Settings, te",
    ] {
        check_fields(field, "");
        check_fields(&format!("A: b|{field}|C: d"), "A: b|C: d");
        check_fields(&format!("{field}|A: b|{field}|C: d|{field}"), "A: b|C: d");
    }
    check_fields("A: b|Connection: x-a, C ,,close|X-A: 1|C: d|c: e|D: f", "A: b|D: f");
    check_fields("X-A: 1|A: b|Connection: x-a|Connection: c|C: d", "A: b");
    check_fields("X_A: 1|Connection: x-a", "X_A: 1");
}

#[test]
fn removes_the_proxy_field() {
    for field in ["Proxy: http://evil.example/", "proxy:", "PROXY: a"] {
        check_fields(&format!("A: b|{field}|Proxies: d"), "A: b|Proxies: d");
    }
}

#[test]
fn connection_options_cannot_remove_framing_fields() {
    check_fields("Connection: content-length, host|Content-Length: 3", "Content-Length: 3");
    check_fields("Content-Length: 3|Connection: Content-Length", "Content-Length: 3");
    check_fields(
        "Connection: transfer-encoding|Transfer-Encoding: chunked",
        "Transfer-Encoding: chunked",
    );
    check_fields(
        "Connection: Expect|Content-Length: 3|Expect: 100-continue",
        "Content-Length: 3|Expect: 100-continue",
    );
    check(
        "TRACE / HTTP/1.1",
        "Host: a|Connection: Max-Forwards|Max-Forwards: 2",
        "TRACE / HTTP/1.1",
        "Host: a|Max-Forwards: 1",
    );
}

#[test]
fn framing_is_written_once_in_canonical_form() {
    check_fields("Content-Length: 12|A: b", "Content-Length: 12|A: b");
    check_fields("content-length: 0|A: b", "content-length: 0|A: b");
    for odd in [
        "Content-Length:12",
        "Content-Length: 0012",
        "Content-Length:  12",
        "Content-Length: 12\t",
        "content-length:\t12",
    ] {
        check_fields(&format!("{odd}|A: b"), "A: b|Content-Length: 12");
    }
    check_fields("Content-Length: 000", "Content-Length: 0");
    check_fields("transfer-encoding:CHUNKED|A: b", "A: b|Transfer-Encoding: chunked");
    check_fields("A: b", "A: b");
}

#[test]
fn te_trailers_is_rewritten() {
    check_fields("TE: trailers|Connection: TE", "TE: trailers|Connection: TE");
    check_fields("te: gzip;q=0.5 , Trailers", "TE: trailers|Connection: TE");
    check_fields("TE: xtrailers", "");
    check_fields("Trailer: X", "Trailer: X");
}

#[test]
fn forwards_upgrades_except_to_http_and_tls() {
    check_fields(
        "Connection: Upgrade|Upgrade: websocket|A: b",
        "Upgrade: websocket|A: b|Connection: upgrade",
    );
    check_fields(
        "Upgrade: websocket|Connection: keep-alive, upgrade, TE|TE: trailers",
        "Upgrade: websocket|TE: trailers|Connection: upgrade, TE",
    );
    check_fields("Connection: Upgrade", "");
    check_fields("Connection: Upgrade, HTTP2-Settings|Upgrade: h2c|HTTP2-Settings: A", "");
    // Upgrades to other versions of HTTP and to TLS are hop-by-hop.
    for excluded in
        ["H2C", "HTTP/2.0", "http/3", "TLS/1.0", "tls/1.2", "h2", "a b", "h2c;q=1", "x/"]
    {
        check_fields(&format!("Connection: Upgrade|Upgrade: {excluded}|A: b"), "A: b");
        check_fields(
            &format!("Connection: Upgrade|Upgrade: websocket ,{excluded}|A: b|upgrade: c/1"),
            "A: b|Upgrade: websocket, c/1|Connection: upgrade",
        );
    }
    check_fields("Connection: Upgrade|Upgrade:|Upgrade: ,", "");
    check_fields(
        "Connection: Upgrade|Upgrade: h2cx, x/h2c|Upgrade: https",
        "Upgrade: h2cx, x/h2c|Upgrade: https|Connection: upgrade",
    );
    check(
        "GET / HTTP/1.0",
        "Host: a|Connection: Upgrade|Upgrade: websocket",
        "GET / HTTP/1.1",
        "Host: a",
    );
}

#[test]
fn connection_close_is_written_if_the_connection_does_not_persist() {
    let to = RequestOptions { keep_alive: false, ..to(None) };
    for (fields, want) in [
        ("", "Connection: close\r\n"),
        ("Connection: keep-alive\r\n", "Connection: close\r\n"),
        ("TE: trailers\r\n", "TE: trailers\r\nConnection: close, TE\r\n"),
        ("Connection: upgrade\r\nUpgrade: x\r\n", "Upgrade: x\r\nConnection: upgrade\r\n"),
    ] {
        let got = forward_request(
            &transparent(),
            &format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"),
            &to,
        );
        assert_eq!(got, format!("GET / HTTP/1.1\r\nHost: a\r\n{want}\r\n"));
    }
}

#[test]
fn expectations_are_rewritten() {
    check_fields(
        "Expect: 100-Continue|Content-Length: 1",
        "Content-Length: 1|Expect: 100-continue",
    );
    check_fields(
        "Expect: 100-continue|Expect: 100-continue|Content-Length: 1",
        "Content-Length: 1|Expect: 100-continue",
    );
    check_fields("Expect: 100-continue", "");
    check(
        "POST / HTTP/1.0",
        "Host: a|Expect: x|Content-Length: 1",
        "POST / HTTP/1.1",
        "Host: a|Content-Length: 1",
    );
}

#[test]
fn removes_aliases_of_special_fields() {
    for name in [
        "Content_Length",
        "TRANSFER_encoding",
        "Transfer-Encoding_",
        "x_forwarded_for",
        "X-Forwarded_For",
        "X_Forwarded-Proto",
        "x_forwarded_host",
        "proxy_authorization",
    ] {
        let want = if name.ends_with('_') { format!("{name}: 1|A: b") } else { "A: b".to_owned() };
        check_fields(&format!("{name}: 1|A: b"), &want);
    }
    check_fields("X_Y: 1|_: 2|content_type: 3", "X_Y: 1|_: 2|content_type: 3");
}

#[test]
fn max_forwards_is_decremented() {
    for (line, value, want) in [
        ("OPTIONS / HTTP/1.1", "5", Some(5)),
        ("TRACE / HTTP/1.1", "0", Some(0)),
        ("OPTIONS * HTTP/1.1", "007", Some(7)),
        ("GET / HTTP/1.1", "5", None),
        ("TRACE / HTTP/1.1", "x", None),
    ] {
        let bytes = format!("{line}\r\nHost: a\r\nMax-Forwards: {value}\r\n\r\n");
        assert_eq!(forward::max_forwards(&parse(bytes.as_bytes())), want, "{bytes:?}");
    }
    check(
        "OPTIONS / HTTP/1.1",
        "Host: a|max-forwards: 010|X: y",
        "OPTIONS / HTTP/1.1",
        "Host: a|X: y|Max-Forwards: 9",
    );
    check(
        "TRACE / HTTP/1.1",
        "Host: a|Max-Forwards: 3|Max-Forwards: 2",
        "TRACE / HTTP/1.1",
        "Host: a|Max-Forwards: 1",
    );
    check(
        "TRACE / HTTP/1.1",
        "Host: a|Max-Forwards: x",
        "TRACE / HTTP/1.1",
        "Host: a|Max-Forwards: x",
    );
    check_fields("Max-Forwards: 5", "Max-Forwards: 5");
}

#[test]
fn via_contains_the_received_version() {
    let rules = Rules::new("me", HeaderPolicy::Keep, HeaderPolicy::Keep, true);
    for (version, want) in [("1.0", "1.0"), ("1.1", "1.1"), ("1.2", "1.1")] {
        let got = forward_request(
            &rules,
            &format!("GET / HTTP/{version}\r\nHost: a\r\nVia: 1.1 x\r\n\r\n"),
            &to(None),
        );
        assert_eq!(
            got,
            format!("GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 x\r\nVia: {want} me\r\n\r\n")
        );
    }
    for (name, want) in [
        ("a:80", "a:80"),
        ("a b\r\nX: y", "a_b__X__y"),
        ("[::1]:80", "___1_:80"),
        ("a:", "a_"),
        ("a,b", "a_b"),
        ("\u{e9}", "__"),
    ] {
        let rules = Rules::new(name, HeaderPolicy::Keep, HeaderPolicy::Keep, true);
        let got = forward_request(&rules, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", &to(None));
        assert_eq!(got, format!("GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 {want}\r\n\r\n"));
    }
}

#[test]
fn a_response_may_switch_only_to_offered_protocols() {
    for (offered, selected, may) in [
        ("websocket", "websocket", true),
        ("websocket", "WebSocket", true),
        ("websocket, a/1|Upgrade: b", "b", true),
        ("websocket, a/1|Upgrade: b", "A/1|Upgrade: B", true),
        ("websocket, a/1", " , a/1,", true),
        // Another protocol or another version.
        ("websocket", "h2c", false),
        ("websocket", "websocket, h2c", false),
        ("websocket", "websocket|Upgrade: b", false),
        ("websocket", "web", false),
        ("a/1", "a", false),
        ("a/1", "a/2", false),
        ("a/x", "a/X", false),
        ("a", "a/1", false),
        // No protocol.
        ("websocket", "", false),
        ("", "", false),
        ("", "websocket", false),
        // A protocol that was not forwarded.
        ("websocket, h2c", "h2c", false),
        ("HTTP/2.0", "HTTP/2.0", false),
        ("tls/1.0", "TLS/1.0", false),
    ] {
        let lines = |list: &str| format!("Upgrade: {}\r\n", list.replace('|', "\r\n"));
        let status = "101 Switching Protocols\r\nConnection: upgrade";
        let response = format!("HTTP/1.1 {status}\r\n{}\r\n", lines(selected));
        let response = parse_response(response.as_bytes(), Method::Get);
        for (version, connection, possible) in
            [("1.1", "upgrade", true), ("1.1", "close", false), ("1.0", "upgrade", false)]
        {
            let fields = format!("Host: a\r\nConnection: {connection}\r\n{}", lines(offered));
            let head = format!("GET / HTTP/{version}\r\n{fields}\r\n");
            let request = parse(head.as_bytes());
            let want = may && possible;
            assert_eq!(
                forward::may_switch(&request, &response),
                want,
                "{offered} {selected} {version}"
            );
            let forwarded = forward_request(&transparent(), &head, &to(None));
            assert_eq!(forwarded.contains("\r\nUpgrade:"), forward::forwards_upgrade(&request));
        }
    }
    let request = parse(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n");
    for head in ["HTTP/1.1 101 \r\n\r\n", "HTTP/1.1 200 \r\nUpgrade: a\r\n\r\n"] {
        assert!(!forward::may_switch(&request, &parse_response(head.as_bytes(), Method::Get)));
    }
    // Very long lists.
    let many = "a,".repeat(5_000);
    let request =
        format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: {many}b\r\n\r\n");
    let response = format!("HTTP/1.1 101 \r\nUpgrade: {many}\r\n\r\n");
    let (request, response) =
        (parse(request.as_bytes()), parse_response(response.as_bytes(), Method::Get));
    assert_eq!(
        (request.upgrade_protocols().count(), response.upgrade_protocols().count()),
        (5_001, 5_000)
    );
    assert!(!forward::may_switch(&request, &response));
}

#[test]
fn loops_are_detected_by_name() {
    let rules = |via: &str| Rules::new(via, HeaderPolicy::Keep, HeaderPolicy::Keep, true);
    for (fields, via, names) in [
        ("", "me", false),
        ("Via: 1.1 me", "me", true),
        ("Via: 1.1 ME:80", "me:80", true),
        ("Via: 1.1 me:80", "me", false),
        ("Via: HTTP/1.1 me (some comment), 1.0 you", "me", true),
        ("Via: 1.0 you,1.1\tme(x)", "me", true),
        ("Via: 1.1 you|A: b|via: |vIA: 2 them, 1.1  me", "me", true),
        ("Via: 1.1 you|A: me", "me", false),
        ("Via: 1.1 you (me)", "me", false),
        ("Via: me", "me", false),
        ("Via: 1.1 menu, 1.1 me2", "me", false),
        ("Viaduct: 1.1 me|vib: 1.1 me|X-Forwarded-For: 1.1 me", "me", false),
        ("Via: 1.1 a_b", "a b", true),
        ("Via: 1.1 ", "", false),
        ("Via: 1.1", "", false),
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n\r\n", fields.replace('|', "\r\n"));
        let head = head.replace("\r\n\r\n\r\n", "\r\n\r\n");
        let found = forward::names_this_proxy(&rules(via), &parse(head.as_bytes()));
        assert_eq!(found, names, "{fields} {via}");
    }
}

#[test]
fn hops_are_counted() {
    for (fields, hops) in [
        ("A: b", 0),
        ("Via: 1.1 a", 1),
        ("Via: 1.1 a, , 1.1 b|VIA: 1.1 c|via:", 3),
        ("X-Forwarded-For: ::1, 1.1.1.1", 2),
        ("Forwarded: for=a;by=b, for=c", 2),
        ("CDN-Loop: a, b; x=y|cdn-loop: a", 3),
        ("Via: 1.1 a|X-Forwarded-For: a, b|Forwarded: for=a|CDN-Loop: x, y", 2),
        ("X-Forwarded-Host: a, b|Vib: a, b|If-Range: a, b", 0),
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n\r\n", fields.replace('|', "\r\n"));
        assert_eq!(forward::count_hops(&parse(head.as_bytes())), hops, "{fields}");
    }
}

// Without a name in Via and without another field that grows, CDN-Loop counts hops.
#[test]
fn hops_are_counted_without_via() {
    let uncounted = Rules::new("", HeaderPolicy::Replace, HeaderPolicy::Remove, true);
    let rules = uncounted.clone().with_hop_count();
    let head = "GET / HTTP/1.1\r\nHost: a\r\nCDN-Loop: x\r\n\r\n";
    let forwarded = forward_request(&rules, head, &to(None));
    assert_eq!(forward::count_hops(&parse(forwarded.as_bytes())), 2, "{forwarded}");
    assert!(forwarded.contains("\r\nCDN-Loop: hearken\r\n"));
    for rules in [
        uncounted,
        Rules::new("me", HeaderPolicy::Keep, HeaderPolicy::Keep, true).with_hop_count(),
        Rules::new("", HeaderPolicy::Keep, HeaderPolicy::Append, true).with_hop_count(),
    ] {
        assert!(
            !forward_request(&rules, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", &to(None))
                .contains("CDN")
        );
    }
    // Responses get no CDN-Loop field.
    let response = parse_response(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Method::Get);
    let to = ResponseOptions { version: Version::Http11, keep_alive: true, date: None };
    let mut out = Vec::new();
    forward::response(&rules, &mut out, &response, &to);
    assert_eq!(out, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
}

/// Returns the forwarded fields about the client, each followed by `|`.
fn client_fields(
    x: HeaderPolicy,
    forwarded: HeaderPolicy,
    host: &str,
    fields: &str,
    client: Option<IpAddr>,
) -> String {
    let rules = Rules::new("", x, forwarded, true);
    let lines = fields.replace('|', "\r\n");
    let bytes = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n");
    let got = forward_request(&rules, &bytes, &to(client));
    let (_, rest) = got.split_once("\r\nHost: ").unwrap();
    let (_, rest) = rest.split_once("\r\n").unwrap();
    rest.strip_suffix("\r\n").unwrap().replace("\r\n", "|")
}

#[test]
fn x_forwarded_fields_follow_the_policy() {
    use HeaderPolicy::{Append, Keep, Remove, Replace};
    let received = "X-Forwarded-For: 1.1.1.1|A: b|x-forwarded-proto: https|X-Forwarded-Host: h|";
    for (policy, fields, want) in [
        (
            Replace,
            received,
            "A: b|X-Forwarded-For: 192.0.2.7|X-Forwarded-Proto: http|X-Forwarded-Host: a|",
        ),
        (
            Append,
            received,
            "A: b|x-forwarded-proto: https|X-Forwarded-Host: h|X-Forwarded-For: 1.1.1.1, 192.0.2.7|",
        ),
        (Keep, received, received),
        (Remove, received, "A: b|"),
        (Append, "", "X-Forwarded-For: 192.0.2.7|X-Forwarded-Proto: http|X-Forwarded-Host: a|"),
        (
            Append,
            "X-Forwarded-For: 1.1.1.1|X-Forwarded-For:|x_forwarded_for: 6.6.6.6|X-Forwarded-For: 2.2.2.2, ::1|",
            "X-Forwarded-For: 1.1.1.1, 2.2.2.2, ::1, 192.0.2.7|X-Forwarded-Proto: http|X-Forwarded-Host: a|",
        ),
        (
            Append,
            "Connection: x-forwarded-for, x-forwarded-proto|X-Forwarded-For: 1.1.1.1|X-Forwarded-Proto: https|",
            "X-Forwarded-For: 192.0.2.7|X-Forwarded-Proto: http|X-Forwarded-Host: a|",
        ),
        (Keep, "Connection: x-forwarded-for|X-Forwarded-For: 1.1.1.1|", ""),
    ] {
        assert_eq!(client_fields(policy, Keep, "a", fields, client()), want, "{policy:?} {fields}");
    }
    for (policy, fields, want) in [
        (Replace, received, "A: b|X-Forwarded-Proto: http|X-Forwarded-Host: a|"),
        (
            Append,
            "X-Forwarded-For: 1.1.1.1|",
            "X-Forwarded-For: 1.1.1.1|X-Forwarded-Proto: http|X-Forwarded-Host: a|",
        ),
        (Append, "", "X-Forwarded-Proto: http|X-Forwarded-Host: a|"),
    ] {
        assert_eq!(client_fields(policy, Keep, "a", fields, None), want, "{policy:?} {fields}");
    }
    // Other fields about the client follow the same policy.
    let others = "X-Real-IP: 6.6.6.6|A: b|true-client-ip: 6.6.6.6|X-Forwarded-Port: 1|X-FORWARDED-SCHEME: https|\
        X-Forwarded-Ssl: on|X-Forwarded-Prefix: /x|X-Forwarded-Server: s|";
    let own = "X-Forwarded-For: 192.0.2.7|X-Forwarded-Proto: http|X-Forwarded-Host: a|";
    for (policy, want) in [
        (Replace, format!("A: b|{own}")),
        (Remove, "A: b|".to_owned()),
        (Append, format!("{others}{own}")),
        (Keep, others.to_owned()),
    ] {
        assert_eq!(client_fields(policy, Keep, "a", others, client()), want, "{policy:?}");
        let aliases = others.replace("-", "_");
        let want = want.replace(others, "A: b|");
        assert_eq!(client_fields(policy, Keep, "a", &aliases, client()), want, "{policy:?}");
        let nominated = format!("Connection: x-real-ip, X-Forwarded-Port|{others}");
        let got = client_fields(policy, Keep, "a", &nominated, client());
        assert!(!got.contains("X-Real-IP") && !got.contains("X-Forwarded-Port"), "{got}");
    }
    let alike = "X-Api-Key: 1|X-Requested-With: 2|X-Forwarded-Other: 3|";
    assert_eq!(client_fields(Remove, Remove, "a", alike, client()), alike);
    let v6 = "2001:db8::1".parse().ok();
    assert_eq!(
        client_fields(Replace, Keep, "", "", v6),
        "X-Forwarded-For: 2001:db8::1|X-Forwarded-Proto: http|"
    );
    let mapped = "::ffff:255.10.0.99".parse().ok();
    let want = "X-Forwarded-For: 255.10.0.99|X-Forwarded-Proto: http|X-Forwarded-Host: [::1]:80|";
    assert_eq!(client_fields(Replace, Keep, "[::1]:80", "", mapped), want);
}

#[test]
fn the_scheme_of_clients_over_tls_is_https() {
    use HeaderPolicy::{Append, Keep, Replace};
    let secure = RequestOptions { is_secure: true, ..to(None) };
    let with_host = "X-Forwarded-Proto: https|X-Forwarded-Host: a|";
    for (x, forwarded, fields, want) in [
        (Replace, Keep, "Host: a|", with_host),
        (Append, Keep, "Host: a|", with_host),
        (
            Append,
            Keep,
            "Host: a|X-Forwarded-Host: b|",
            "X-Forwarded-Host: b|X-Forwarded-Proto: https|",
        ),
        (Replace, Keep, "Host:|", "X-Forwarded-Proto: https|"),
        (Keep, Replace, "Host: a|", "Forwarded: for=unknown;proto=https;host=a|"),
    ] {
        let bytes = format!("GET / HTTP/1.1|{fields}|").replace('|', "\r\n");
        let got = forward_request(&Rules::new("", x, forwarded, true), &bytes, &secure);
        assert!(got.ends_with(&format!("|{want}|").replace('|', "\r\n")), "{got}");
    }
}

#[test]
fn the_subject_of_the_client_replaces_received_ones() {
    let subject = Some("CN=a");
    let with = |name: &str, subject, fields: &str| {
        let rules = transparent().with_client_subject(name);
        let bytes = format!("GET / HTTP/1.1|Host: a|{fields}|").replace('|', "\r\n");
        forward_request(&rules, &bytes, &RequestOptions { subject, ..to(None) })
            .replace("\r\n", "|")
    };
    let start = "GET / HTTP/1.1|Host: a|";
    for fields in ["", "X-Subject: CN=b|", "x_subject: CN=b|A: b|X-SUBJECT: c|"] {
        let rest = if fields.contains('A') && fields.contains("A: b") { "A: b|" } else { "" };
        let want = format!("{start}{rest}X-Subject: CN=a||");
        assert_eq!(with("X-Subject", subject, fields), want);
        assert_eq!(with("X-Subject", None, fields), format!("{start}{rest}|"));
    }
    // Without a name, fields are not changed.
    assert_eq!(with("", subject, "X-Subject: b|"), format!("{start}X-Subject: b||"));
}

#[test]
fn strict_transport_security_is_added_to_responses_without_it() {
    let rules = transparent().with_hsts(Some(60));
    let line = "Strict-Transport-Security: max-age=60\r\n";
    for (fields, want) in [("", line), ("strict-transport-security: max-age=1\r\n", "")] {
        let bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
        let response = parse_response(bytes.as_bytes(), Method::Get);
        let mut out = Vec::new();
        forward::response(&rules, &mut out, &response, &TO_11);
        let want = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}{want}\r\n");
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}

#[test]
fn forwarded_follows_the_policy() {
    use HeaderPolicy::{Append, Keep, Remove, Replace};
    let received = "Forwarded: for=x|A: b|";
    let v6 = "2001:db8::1".parse().ok();
    for (policy, host, fields, client, want) in [
        (Replace, "a", received, client(), "A: b|Forwarded: for=192.0.2.7;proto=http;host=a|"),
        (
            Replace,
            "a:8",
            received,
            v6,
            "A: b|Forwarded: for=\"[2001:db8::1]\";proto=http;host=\"a:8\"|",
        ),
        (Replace, "", "", None, "Forwarded: for=unknown;proto=http|"),
        (
            Append,
            "a",
            received,
            client(),
            "A: b|Forwarded: for=x, for=192.0.2.7;proto=http;host=a|",
        ),
        (
            Append,
            "a",
            "Forwarded: for=\"x|forwarded: for=y;by=\"\\\"\", for=z|Forwarded:|",
            client(),
            "Forwarded: for=y;by=\"\\\"\", for=z, for=192.0.2.7;proto=http;host=a|",
        ),
        (Append, "a", "Forwarded: for=\"\\\"|", None, "Forwarded: for=unknown;proto=http;host=a|"),
        (Keep, "a", received, client(), received),
        (Remove, "a", received, client(), "A: b|"),
    ] {
        assert_eq!(client_fields(Keep, policy, host, fields, client), want, "{policy:?} {fields}");
    }
}

/// Returns the forwarded head of a response and the framing of its body.
fn forward_response(
    rules: &Rules,
    bytes: &str,
    to: &ResponseOptions<'_>,
    method: Method<'_>,
) -> (String, ResponseBody) {
    let mut out = Vec::new();
    let body = forward::response(rules, &mut out, &parse_response(bytes.as_bytes(), method), to);
    (String::from_utf8(out).unwrap(), body)
}

const TO_11: ResponseOptions<'_> =
    ResponseOptions { version: Version::Http11, keep_alive: true, date: None };
const TO_10: ResponseOptions<'_> =
    ResponseOptions { version: Version::Http10, keep_alive: true, date: None };

#[test]
fn status_lines_keep_their_reason_phrase() {
    for (line, want) in [
        ("HTTP/1.1 200 OK", "HTTP/1.1 200 OK"),
        ("HTTP/1.1 200", "HTTP/1.1 200 "),
        ("HTTP/1.1 299 ", "HTTP/1.1 299 "),
        ("HTTP/1.0 404 Gone fishing", "HTTP/1.1 404 Gone fishing"),
        ("HTTP/1.7 200 a\tb", "HTTP/1.1 200 a\tb"),
    ] {
        let bytes = format!("{line}\r\nContent-Length: 1\r\n\r\n");
        let (head, body) = forward_response(&transparent(), &bytes, &TO_11, Method::Get);
        assert_eq!(head, format!("{want}\r\nContent-Length: 1\r\n\r\n"));
        assert_eq!(body, ResponseBody::Length(1));
    }
}

#[test]
fn framing_of_responses_follows_the_client_version() {
    use ResponseBody::{Chunked, Length, None, UntilClose};
    let chunked = "Transfer-Encoding: chunked\r\n";
    let close = "Connection: close\r\n";
    let keep_alive = "Connection: keep-alive\r\n";
    for (method, status, fields, to, want, want_body) in [
        (Method::Get, 200, "Content-Length: 5\r\n", TO_11, "Content-Length: 5\r\n", Length(5)),
        (Method::Get, 200, "content-length:05\r\n", TO_11, "Content-Length: 5\r\n", Length(5)),
        (Method::Get, 200, "Content-Length: 0\r\n", TO_11, "Content-Length: 0\r\n", None),
        (
            Method::Get,
            200,
            "Content-Length: 5\r\n",
            TO_10,
            &format!("Content-Length: 5\r\n{keep_alive}"),
            Length(5),
        ),
        (Method::Get, 200, chunked, TO_11, chunked, Chunked),
        (Method::Get, 200, chunked, TO_10, close, UntilClose),
        (Method::Get, 200, "", TO_11, chunked, Chunked),
        (Method::Get, 200, close, TO_11, chunked, Chunked),
        (Method::Get, 200, "", TO_10, close, UntilClose),
        (Method::Head, 200, "Content-Length: 5\r\n", TO_11, "Content-Length: 5\r\n", None),
        (Method::Head, 200, "Content-Length: 05\r\n", TO_11, "Content-Length: 5\r\n", None),
        (Method::Head, 200, chunked, TO_11, "", None),
        (Method::Get, 304, "Content-Length: 5\r\n", TO_11, "Content-Length: 5\r\n", None),
        (Method::Get, 204, "Content-Length: 0\r\nA: b\r\n", TO_11, "A: b\r\n", None),
        (Method::Get, 204, chunked, TO_11, "", None),
        (Method::Get, 204, "", TO_10, keep_alive, None),
    ] {
        let bytes = format!("HTTP/1.1 {status} x\r\n{fields}\r\n");
        let (head, body) = forward_response(&transparent(), &bytes, &to, method);
        assert_eq!(head, format!("HTTP/1.1 {status} x\r\n{want}\r\n"), "{method:?} {bytes:?}");
        assert_eq!(body, want_body, "{method:?} {bytes:?}");
    }
    let closing = ResponseOptions { keep_alive: false, ..TO_10 };
    let (head, _) = forward_response(
        &transparent(),
        "HTTP/1.1 200 x\r\nContent-Length: 1\r\n\r\n",
        &closing,
        Method::Get,
    );
    assert_eq!(head, format!("HTTP/1.1 200 x\r\nContent-Length: 1\r\n{close}\r\n"));
}

#[test]
fn responses_without_a_date_get_one() {
    let now = DateCache::new(0);
    let with = "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    for (fields, want) in [
        ("A: b\r\n", Some("A: b\r\n")),
        ("Date: then\r\n", None),
        ("dAtE:\r\nA: b\r\n", None),
        ("Data: b\r\nUpdate: c\r\n", Some("Data: b\r\nUpdate: c\r\n")),
        // The Connection field declares Date a hop-by-hop field.
        ("Connection: date\r\nDate: then\r\n", Some("")),
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 1\r\n\r\n");
        let response = parse_response(bytes.as_bytes(), Method::Get);
        assert_eq!(forward::needs_date(&response), want.is_some(), "{fields:?}");
        let to = ResponseOptions { date: want.map(|_| &now), ..TO_11 };
        let (head, _) = forward_response(&transparent(), &bytes, &to, Method::Get);
        let (fields, with) = want.map_or((fields, ""), |fields| (fields, with));
        assert_eq!(head, format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 1\r\n{with}\r\n"));
    }
}

#[test]
fn removes_hop_by_hop_fields_of_responses() {
    let rules = Rules::new("me", HeaderPolicy::Replace, HeaderPolicy::Replace, true);
    let bytes = "HTTP/1.0 200 OK\r\nServer: x\r\nConnection: keep-alive, x-y\r\nKeep-Alive: 5\r\n\
        Content-Length: 1\r\nX-Y: 1\r\nUpgrade: h2c\r\nTrailer: T\r\nProxy-Authenticate: x\r\n\
        content_length: 7\r\nX_Forwarded_For: x\r\nX-Forwarded-For: y\r\nHost: z\r\n\
        Forwarded: for=a\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\n";
    let want = "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 1\r\nTrailer: T\r\n\
        X_Forwarded_For: x\r\nX-Forwarded-For: y\r\nHost: z\r\nForwarded: for=a\r\nSet-Cookie: a\r\n\
        Set-Cookie: b\r\nVia: 1.0 me\r\n\r\n";
    assert_eq!(forward_response(&rules, bytes, &TO_11, Method::Get).0, want);
}

#[test]
fn forwards_interim_responses() {
    let rules = Rules::new("me", HeaderPolicy::Replace, HeaderPolicy::Replace, true);
    let mut out = Vec::new();
    let bytes =
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    forward::interim(&rules, &mut out, &parse_response(bytes, Method::Get));
    assert_eq!(out, b"HTTP/1.1 103 Early Hints\r\nLink: x\r\nVia: 1.1 me\r\n\r\n");
    out.clear();
    let bytes = b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade, x\r\nX: y\r\n\
        Sec-WebSocket-Accept: z\r\n\r\n";
    forward::switching_protocols(&rules, &mut out, &parse_response(bytes, Method::Get));
    let want = "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: z\r\n\
        Connection: upgrade\r\nVia: 1.1 me\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), want);
}
