//! Attacks, each with the limit that ends it.

use hearken_http::h2::{Config, ErrorCode, Limits};

use crate::raw::*;

/// Sends `attack(n)` for n = 0, 1, … until the connection ends. Returns how often it was sent and the
/// reason.
fn repeat(config: Config, attack: impl FnMut(u32) -> Vec<u8>) -> (u32, &'static str) {
    repeat_on(&mut Endpoint::server(config), attack)
}

fn repeat_on(server: &mut Endpoint, mut attack: impl FnMut(u32) -> Vec<u8>) -> (u32, &'static str) {
    for count in 0..100_000 {
        server.out.clear();
        server.connection.output_sent();
        if let Err(error) = server.receive(&attack(count)) {
            assert_eq!(error.code, ErrorCode::ENHANCE_YOUR_CALM, "{error}");
            let last = frames(&server.out).pop().unwrap();
            assert_eq!(last.kind, GOAWAY);
            return (count, error.reason);
        }
        assert!(server.connection.buffered_bytes() <= 64 * 1024);
        assert!(server.out.len() < 1000, "output of {} bytes", server.out.len());
    }
    panic!("the attack continues");
}

/// Returns the frames of a round, from its number.
type Attack = fn(u32) -> Vec<u8>;

const RESETS: &str = "too many reset streams";
const OVERHEAD: &str = "too many control frames, empty frames or padding";

// CVE-2023-44487.
#[test]
fn rapid_resets_end_the_connection() {
    let attack = |count| {
        let stream = 2 * count + 1;
        [headers(stream, GET, true), frame(RST_STREAM, 0, stream, &[0; 4])].concat()
    };
    assert_eq!(repeat(Config::default(), attack), (100, RESETS));
    let limits = Limits { max_resets: 7, ..Limits::default() };
    assert_eq!(repeat(Config { limits, ..Config::default() }, attack), (7, RESETS));
}

// CVE-2025-8671.
#[test]
fn provoked_resets_end_the_connection() {
    let provocations: [Attack; 5] = [
        |stream| frame(WINDOW_UPDATE, 0, stream, &[0; 4]),
        |stream| frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff]),
        |stream| frame(DATA, 0, stream, b"x"),
        |stream| frame(PRIORITY, 0, stream, &[0; 4]),
        |stream| headers(stream, GET, true),
    ];
    for provocation in provocations {
        let attack = |count| {
            let stream = 2 * count + 1;
            [headers(stream, GET, true), provocation(stream)].concat()
        };
        assert_eq!(repeat(Config::default(), attack), (100, RESETS));
    }
    let malformed = |count| headers(2 * count + 1, &GET[1..], true);
    assert_eq!(repeat(Config::default(), malformed), (100, RESETS));
}

#[test]
fn finished_streams_permit_as_many_resets() {
    let mut server = Endpoint::server(Config::default());
    for count in 0..1000 {
        let stream = 4 * count + 1;
        let id = server.request(&headers(stream, GET, true));
        server.answer(id, b"x");
        server.receive(&headers(stream + 2, GET, true)).unwrap();
        server.receive(&frame(RST_STREAM, 0, stream + 2, &[0; 4])).unwrap();
    }
}

#[test]
fn streams_beyond_the_maximum_are_refused() {
    let mut server = Endpoint::server(Config::default());
    for count in 0..100 {
        server.request(&headers(2 * count + 1, GET, true));
    }
    server.sent();
    server.receive(&headers(201, GET, true)).unwrap();
    assert_eq!(server.events(), [""; 0]);
    assert_eq!(reset_code(&server.sent()), Some(ErrorCode::REFUSED_STREAM));
    assert_eq!(server.connection.active_streams(), 100);
    let (count, reason) = repeat_on(&mut server, |count| headers(203 + 2 * count, GET, true));
    assert_eq!((count, reason), (99, RESETS));
}

#[test]
fn continuation_frames_are_limited() {
    let attack = |count| match count {
        0 => frame(HEADERS, 0, 1, &[0x82]),
        _ => frame(CONTINUATION, 0, 1, &[]),
    };
    assert_eq!(repeat(Config::default(), attack), (9, "too many CONTINUATION frames"));
    let attack = |count| match count {
        0 => frame(HEADERS, 0, 1, &[0; 16_384]),
        _ => frame(CONTINUATION, 0, 1, &[0; 16_384]),
    };
    assert_eq!(repeat(Config::default(), attack), (2, "field block exceeds the maximum size"));
}

// A field of 4 KB enters the dynamic table, and each byte that follows repeats it.
#[test]
fn compression_bombs_are_rejected_without_being_stored() {
    let mut server = Endpoint::server(Config::default());
    let value = "v".repeat(4000);
    let mut bomb = block(GET);
    let mut field = block(&[("bomb", &value)]);
    field[0] = 0x40;
    bomb.extend(field);
    bomb.resize(16_000, 0x80 | 62);
    server.receive(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb)).unwrap();
    assert_eq!(server.events(), ["rejected 1 431"]);
    // The same by cookies, which are joined.
    let mut field = block(&[("cookie", &value)]);
    field[0] = 0x40;
    let mut bomb = [block(GET), field].concat();
    bomb.resize(16_000, 0x80 | 62);
    server.receive(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &bomb)).unwrap();
    assert_eq!(server.events(), ["rejected 3 431"]);
    // Many small fields.
    let bomb = [block(GET), [0x80 | 19].repeat(16_000)].concat();
    server.receive(&frame(HEADERS, END_HEADERS | END_STREAM, 5, &bomb)).unwrap();
    assert_eq!(server.events(), ["rejected 5 431"]);
}

#[test]
fn control_frames_are_limited() {
    let attacks: [(Attack, u32); 7] = [
        (|_| frame(PING, 0, 0, &[0; 8]), 3855),
        (|_| frame(PING, ACK, 0, &[0; 8]), 3855),
        (|_| frame(SETTINGS, 0, 0, &[]), 7281),
        (|_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 1, 0]), 4369),
        (|_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]), 5041),
        (|_| frame(PRIORITY, 0, 1, &[0; 5]), 4681),
        (|_| frame(99, 0, 0, &[0; 1000]), 64),
    ];
    for (attack, want) in attacks {
        let (count, reason) = repeat(Config::default(), attack);
        assert_eq!(reason, OVERHEAD);
        // The preface contains two frames.
        assert!((want - 5..=want).contains(&count), "{count} frames instead of {want}");
    }
    let limits = Limits { max_overhead_bytes: 1000, ..Limits::default() };
    let (count, _) = repeat(Config { limits, ..Config::default() }, attacks[0].0);
    assert!(count < 60);
}

#[test]
fn acknowledgements_that_wait_are_limited() {
    for attack in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[])] {
        let mut server = Endpoint::server(Config::default());
        server.connection.output_sent();
        for _ in 0..32 {
            server.receive(&attack).unwrap();
        }
        let error = server.fail(&attack);
        assert_eq!(error.code, ErrorCode::ENHANCE_YOUR_CALM);
        assert_eq!(error.reason, "too many frames to acknowledge");
    }
}

#[test]
fn empty_frames_and_padding_are_limited() {
    for (data, want) in [(frame(DATA, 0, 1, &[]), 7281), (frame(DATA, PADDED, 1, &[255; 256]), 247)]
    {
        let attack = |count| match count {
            0 => headers(1, POST, false),
            _ => data.clone(),
        };
        let (count, reason) = repeat(Config::default(), attack);
        assert_eq!(reason, OVERHEAD);
        assert!((want - 5..=want + 5).contains(&count), "{count} frames instead of {want}");
    }
}

#[test]
fn priority_updates_are_limited_and_not_stored() {
    let attack = |count: u32| {
        let stream = 2 * count + 1001;
        frame(PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes()[..], b"u=1"].concat())
    };
    let (count, reason) = repeat(Config::default(), attack);
    assert_eq!(reason, OVERHEAD);
    assert!(count < 4100);
}

#[test]
fn useful_bytes_and_time_restore_the_budget() {
    let mut server = Endpoint::server(Config::default());
    server.receive(&headers(1, POST, false)).unwrap();
    // One WINDOW_UPDATE for each 20 bytes of content is not an attack.
    for _ in 0..20_000 {
        server.receive(&frame(DATA, 0, 1, &[0; 20])).unwrap();
        server.receive(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])).unwrap();
        server.out.clear();
    }
    // A PING per second is not, either.
    for _ in 0..20_000 {
        server.receive(&frame(PING, 0, 0, &[0; 8])).unwrap();
        server.out.clear();
        server.connection.output_sent();
        server.connection.elapse(1);
    }
}

#[test]
fn a_client_that_opens_no_window_causes_no_output() {
    let mut server = Endpoint::server(Config::default());
    server.receive(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
    for count in 0..100 {
        let stream = server.request(&headers(2 * count + 1, GET, true));
        server.out.clear();
        assert_eq!(server.answer(stream, &[0; 10_000]), 0);
        assert!(server.out.len() < 20);
    }
    assert!(server.connection.is_waiting() && server.connection.next_writable().is_none());
}

// RFC 7541 section 4.2.
#[test]
fn blocks_begin_with_at_most_two_table_sizes() {
    let plain = headers(1, GET, true);
    for (count, is_valid) in [(2, true), (3, false)] {
        let mut server = Endpoint::server(Config::default());
        let block = [b"\x20".repeat(count), plain[9..].to_vec()].concat();
        let result = server.receive(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
        let code = result.err().map(|error| error.code);
        assert_eq!(code, (!is_valid).then_some(ErrorCode::COMPRESSION_ERROR), "{count} sizes");
    }
}

#[test]
fn incomplete_frames_have_numbers() {
    let mut server = Endpoint::server(Config::default());
    assert_eq!(server.connection.incomplete(), None);
    let bytes: Vec<u8> = (0..5).flat_map(|at| headers(2 * at + 1, GET, true)).collect();
    let length = bytes.len() / 5;
    let mut before = None;
    // Each part ends within the next frame.
    for part in [&bytes[..length + 3], &bytes[length + 3..2 * length + 12]] {
        server.receive(part).unwrap();
        let number = server.connection.incomplete();
        assert!(number.is_some() && number != before);
        before = number;
    }
    server.receive(&bytes[2 * length + 12..2 * length + 14]).unwrap();
    assert_eq!(server.connection.incomplete(), before);
    server.receive(&bytes[2 * length + 14..]).unwrap();
    assert_eq!(server.connection.incomplete(), None);
    // The frames of a block have one number.
    server.receive(&frame(HEADERS, END_STREAM, 11, &bytes[9..length])).unwrap();
    let number = server.connection.incomplete();
    assert!(number.is_some());
    for part in frame(CONTINUATION, 0, 11, &[]).chunks(2) {
        server.receive(part).unwrap();
        assert_eq!(server.connection.incomplete(), number);
    }
    server.receive(&frame(CONTINUATION, END_HEADERS, 11, &[])).unwrap();
    assert_eq!(server.connection.incomplete(), None);
}
