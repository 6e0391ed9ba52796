//! Input in arbitrary pieces has the same events and the same output.

use hearken_http::h2::{Config, Limits};
use proptest::prelude::*;

use crate::raw::*;

/// Joins the content of consecutive events of one stream.
fn joined(events: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for event in events {
        if let Some(last) = joined.last_mut()
            && let Some((prefix, data)) = last.split_once(" end=false ")
            && prefix.starts_with("data ")
            && let Some(rest) = event.strip_prefix(prefix)
            && let Some((end, more)) = rest.strip_prefix(" end=").and_then(|r| r.split_once(' '))
        {
            *last = format!("{prefix} end={end} {data}{more}");
            continue;
        }
        joined.push(event);
    }
    joined
}

fn input() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => (0u32..6, any::<bool>()).prop_map(|(n, end)| headers(2 * n + 1, POST, end)),
        1 => (0u32..6).prop_map(|n| headers(2 * n + 1, &GET[1..], true)),
        1 => (0u32..6).prop_map(|n| headers(2 * n + 1, &[("x-sum", "1")], true)),
        4 => (0u32..6, 0u8..2, 0usize..40).prop_map(|(n, end, len)| {
            frame(DATA, end, 2 * n + 1, &vec![b'x'; len])
        }),
        2 => (0u32..6, 0u8..6, 1usize..20).prop_map(|(n, pad, len)| {
            frame(DATA, PADDED, 2 * n + 1, &[&[pad], &vec![b'y'; len][..]].concat())
        }),
        1 => (0u32..6).prop_map(|n| {
            let stream = 2 * n + 1;
            let (first, rest) = (&block(GET)[..7], &block(GET)[7..]);
            [frame(HEADERS, 0, stream, first), frame(CONTINUATION, 4, stream, rest)].concat()
        }),
        1 => (0u32..6).prop_map(|n| frame(RST_STREAM, 0, 2 * n + 1, &[0; 4])),
        1 => Just(frame(PING, 0, 0, &[1; 8])),
        1 => Just(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 5])),
        1 => (0u32..4, 0u32..3).prop_map(|(n, size)| frame(WINDOW_UPDATE, 0, n, &size.to_be_bytes())),
        1 => Just(frame(99, 1, 2, &[3; 30])),
        1 => Just(frame(GOAWAY, 0, 0, &[0; 20])),
        1 => prop::collection::vec(any::<u8>(), 0..30),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

fn outcome(input: &[u8], step: usize) -> (Vec<String>, Vec<u8>, String) {
    let limits = Limits { max_overhead_bytes: 300, max_resets: 3, ..Limits::default() };
    let mut server = Endpoint::server(Config { limits, ..Config::default() });
    let mut result = Ok(());
    for piece in input.chunks(step) {
        result = result.and(server.receive(piece));
    }
    (joined(server.events()), server.out, format!("{result:?}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_split_into_pieces_changes_nothing(input in input(), step in 1usize..30) {
        let whole = outcome(&input, input.len().max(1));
        prop_assert_eq!(outcome(&input, step), whole.clone());
        prop_assert_eq!(outcome(&input, 1), whole);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0u8..17,
        flags: u8,
        stream in 0u32..4,
    ) {
        let mut server = Endpoint::server(Config::default());
        let _ = server.receive(&[headers(1, POST, false), bytes.clone()].concat());
        let mut server = Endpoint::server(Config::default());
        let _ = server.receive(&[headers(1, POST, false), frame(kind, flags, stream, &bytes)].concat());
        let mut client = Endpoint::client(Config::default(), &[]);
        let _ = client.receive(&frame(kind, flags, stream, &bytes));
    }
}
