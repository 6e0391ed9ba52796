//! Comparison of the parser with a simple, slow reference parser.

use hearken_http::{Limits, RequestParser};
use proptest::prelude::*;
use proptest::sample::Index;

mod outcome;
mod parser;

use outcome::outcome;
use parser::Failure;

/// Returns a strategy for one of `words`, unchanged.
fn one(words: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(words).prop_map(|word| word.as_bytes().to_vec())
}

/// Returns a strategy for one of `words`, in upper, lower or original case.
fn word(words: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    (prop::sample::select(words), 0..8).prop_map(|(word, spelling)| match spelling {
        0 => word.to_ascii_uppercase().into_bytes(),
        1 => word.to_ascii_lowercase().into_bytes(),
        _ => word.as_bytes().to_vec(),
    })
}

/// Generates bytes of a class, including runs longer than the SIMD blocks of the parser.
fn run(class: &'static str) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![3 => Just(0..12), 2 => Just(12..20), 1 => Just(20..70)].prop_flat_map(
        move |length| prop::collection::vec(prop::sample::select(class.as_bytes()), length),
    )
}

fn start() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![
        9 => one(&["GET"]),
        9 => one(&["HEAD", "OPTIONS", "POST", "PURGE", "get"]),
        1 => one(&["", "CONNECT", "G(T", "MUCH-LONGER-THAN-A-METHOD-MAY-BE-X"]),
    ];
    let target = prop_oneof![
        6 => run("abz019/-._~%!$&'()*+,;=:@").prop_map(|path| [b"/", &path[..]].concat()),
        2 => (run("abz/"), run("az?&=")).prop_map(|(path, query)| {
            [b"/", &path[..], b"?", &query].concat()
        }),
        1 => one(&["http://a", "http://a:1/b?c", "HTTPS://[::1]/", "*", "a:80"]),
        1 => one(&["ftp://a/", "http:/", "", "?", "/#", "http://a b/", "http://:1"]),
    ];
    let version = prop_oneof![
        18 => one(&["HTTP/1.1"]),
        5 => one(&["HTTP/1.0", "HTTP/1.2"]),
        1 => one(&["HTTP/2.0", "HTTP/1", "http/1.1", "HTTP/1.1 "]),
    ];
    (one(&["", "", "", "\r\n"]), method, target, version).prop_map(
        |(before, method, target, version)| {
            [&before, &method, &b" "[..], &target, b" ", &version, b"\r\n"].concat()
        },
    )
}

fn host() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        6 => one(&["a", "[::1]:80", "127.0.0.1:8080", "a:", "www.example.org"]),
        3 => run("abz019-."),
        3 => (run("az09-."), 0..70_000u32).prop_map(|(host, port)| {
            [host, format!(":{port}").into_bytes()].concat()
        }),
        1 => run("az09-._~!$&'()*+,;=[]:"),
        1 => one(&[":1", "a:65536", "a:59999", "a:60000", "a:65535", "a:99999", "a:00080", "a:000080", "a b", "[::1", "a:1:1"]),
    ];
    let name = prop_oneof![9 => one(&["Host: "]), 1 => word(&["Host:", "Host:  ", "Host: \t"])];
    (name, value).prop_map(|(name, value)| [name, value].concat())
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        9 => word(&[
            "Range", "If-Match", "If-Modified-Since", "If-None-Match", "If-Unmodified-Since",
            "If-Range", "Upgrade", "User-Agent", "Accept-Encoding", "Referer", "Cookie",
            "Content-Type", "Transfer-Encodings", "If_Match", "Hosts", "Sec-CH-UA-Platform",
        ]),
        2 => run("abzABZ-").prop_map(|name| [b"X", &name[..]].concat()),
        1 => run("abz-09!#$%&'*+.^_`|~"),
    ];
    let colon = prop_oneof![19 => one(&[":", ": ", ": ", ":  ", ": \t"]), 1 => one(&[" :", ""])];
    let value = prop_oneof![4 => run("abz019 ;,=/\"*\t"), 1 => run("abz \u{e9}")];
    let framing = prop_oneof![
        5 => word(&[
            "Content-Length: 0", "Content-Length: 12", "Transfer-Encoding: chunked",
            "Expect: 100-continue", "Connection: close", "Connection: keep-alive",
            "Connection: x, Upgrade", "Connection: te,HTTP2-Settings,,,,,,,,,,", "Connection: ,close ,", "Connection: keep-alive,close",
        ]),
        1 => word(&[
            "Content-Length: x", "Content-Length: +1", "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: x", "Expect: other", "Content-Length: 99999999999999999999",
        ]),
    ];
    prop_oneof![
        1 => host(),
        20 => (name, colon, value).prop_map(|(name, colon, value)| [name, colon, value].concat()),
        6 => framing,
    ]
}

/// Generates requests that are mostly valid.
fn head() -> impl Strategy<Value = Vec<u8>> {
    let blanks = || prop_oneof![5 => one(&[""]), 1 => one(&[" ", "\t "])];
    let line = |field| {
        (field, blanks()).prop_map(|(field, blanks)| [&field, &blanks, &b"\r\n"[..]].concat())
    };
    let host = prop_oneof![9 => line(host().boxed()), 1 => Just(Vec::new())];
    let fields =
        || prop::collection::vec(line(field().boxed()), 0..4).prop_map(|lines| lines.concat());
    let before = prop_oneof![3 => Just(Vec::new()), 1 => fields()];
    let end = prop_oneof![9 => one(&["\r\n"]), 1 => one(&["", "\r", "\n"])];
    (start(), before, host, fields(), end)
        .prop_map(|(start, before, host, after, end)| [start, before, host, after, end].concat())
}

#[derive(Debug, Clone)]
enum Change {
    Put(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Cut(Index),
    Append(Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    let byte = prop_oneof![
        2 => any::<u8>(),
        3 => prop::sample::select(&b"\r\n\t :?#/\x7f\0\x1f\x80\xff,a1@`[{"[..]),
    ];
    prop_oneof![
        3 => (any::<Index>(), byte.clone()).prop_map(|(at, byte)| Change::Put(at, byte)),
        2 => (any::<Index>(), byte).prop_map(|(at, byte)| Change::Insert(at, byte)),
        1 => any::<Index>().prop_map(Change::Remove),
        1 => any::<Index>().prop_map(Change::Cut),
        2 => prop_oneof![Just(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()), run("a\r\n: ")].prop_map(Change::Append),
    ]
}

fn apply(mut bytes: Vec<u8>, changes: Vec<Change>) -> Vec<u8> {
    for change in changes {
        let len = bytes.len();
        match change {
            Change::Append(more) => bytes.extend(more),
            Change::Insert(at, byte) => bytes.insert(at.index(len + 1), byte),
            _ if len == 0 => {}
            Change::Put(at, byte) => bytes[at.index(len)] = byte,
            Change::Remove(at) => drop(bytes.remove(at.index(len))),
            Change::Cut(at) => bytes.truncate(at.index(len)),
        }
    }
    bytes
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    (head(), prop_oneof![Just(Vec::new()), prop::collection::vec(change(), 1..3)])
        .prop_map(|(bytes, changes)| apply(bytes, changes))
}

fn limits() -> impl Strategy<Value = Limits> {
    prop_oneof![
        4 => Just(Limits::default()),
        1 => (0usize..200, 0usize..5, 0usize..40).prop_map(|(head, lines, target)| {
            Limits { max_head_bytes: head, max_fields: lines, max_target_bytes: target }
        }),
    ]
}

proptest! {
    #![proptest_config(crate::cases(3000))]

    #[test]
    fn agrees_with_the_reference_for_complete_input(bytes in bytes(), limits in limits()) {
        let got = outcome(RequestParser::new().parse(&bytes, &limits));
        prop_assert_eq!(got, parser::parse(&bytes, &limits));
    }

    // A result for a part of the bytes equals the result for all bytes.
    #[test]
    fn agrees_with_the_reference_for_any_split(bytes in bytes(), limits in limits(), cuts in prop::collection::vec(any::<Index>(), 0..5)) {
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.sort_unstable();
        ends.push(bytes.len());
        let mut incremental = RequestParser::new();
        for end in ends {
            let got = outcome(incremental.parse(&bytes[..end], &limits));
            let want = parser::parse(&bytes[..end], &limits);
            if got == Err(Failure::Incomplete) {
                // The parser may report an error only at the end of the line or of the head.
                prop_assert!(want.is_err(), "{:?} is not reported at {}", want, end);
            } else {
                prop_assert_eq!(got, want);
                break;
            }
        }
    }
}

// The generated requests include many valid and many invalid ones.
#[test]
fn generates_valid_and_invalid_requests() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let good = (0..1000)
        .filter(|_| {
            let bytes = bytes().new_tree(&mut runner).unwrap().current();
            parser::parse(&bytes, &Limits::default()).is_ok()
        })
        .count();
    assert!((200..900).contains(&good), "{good} of 1000 are valid");
}
