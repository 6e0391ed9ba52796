//! All attacks: what an attacker sends, and how the server ends it.

use super::frames::*;

/// An attack on one connection.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) server: Target,
    pub(crate) script: Script,
    pub(crate) then: Then,
    pub(crate) end: End,
    /// Maximum memory in bytes that a connection of the attack may occupy in the server.
    pub(crate) memory: u64,
}

/// The attacked server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Files,
    /// A server of files over TLS.
    Tls,
    /// A proxy of a server of files.
    Proxy,
}

/// The bytes that an attacker sends.
#[derive(Clone, Copy)]
pub(crate) enum Script {
    /// Frames after the preface with these settings, in rounds.
    Frames(&'static [(u16, u32)], fn(u32) -> Vec<u8>),
    /// Bytes in rounds, given a ClientHello in a record.
    Bytes(fn(&[u8], u32) -> Vec<u8>),
    /// Records of an established session with this content type and content.
    Records(Version, u8, &'static [u8]),
    /// Updates of the keys of an established session.
    KeyUpdates,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Tls12,
    Tls13,
}

/// The use that an attacker makes of a connection.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// Sends rounds until the server ends the connection, and receives meanwhile.
    Continue,
    /// Sends rounds until the server ends the connection, and receives nothing.
    Ignore,
    /// Sends this many rounds and keeps the connection open, without receiving.
    Hold(u32),
    /// Sends this many rounds, waits for the first response if there is one, and disconnects.
    Leave(u32),
}

/// The end of a connection by the server.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// A GOAWAY frame with this error code.
    Goaway(u32),
    /// A timeout.
    Timeout,
    /// A TLS alert.
    Alert,
    /// None: the attacker leaves.
    Open,
}

const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;
const CALM: End = End::Goaway(ENHANCE_YOUR_CALM);
const MAX_WINDOW: u32 = i32::MAX as u32;
const KIB: u64 = 1024;

/// The identifier of SETTINGS_INITIAL_WINDOW_SIZE.
const WINDOW: u16 = 4;
/// Content types of records.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

const fn stream(round: u32) -> u32 {
    2 * round + 1
}

/// Returns an attack by frames that the server ends with ENHANCE_YOUR_CALM.
const fn frames(name: &'static str, round: fn(u32) -> Vec<u8>) -> Attack {
    Attack {
        name,
        server: Target::Files,
        script: Script::Frames(&[], round),
        then: Then::Continue,
        end: CALM,
        memory: 128 * KIB,
    }
}

/// Returns an attack by frames of connections that stay open until a timeout.
const fn held(
    name: &'static str,
    server: Target,
    settings: &'static [(u16, u32)],
    rounds: u32,
    round: fn(u32) -> Vec<u8>,
    memory: u64,
) -> Attack {
    let script = Script::Frames(settings, round);
    Attack { name, server, script, then: Then::Hold(rounds), end: End::Timeout, memory }
}

/// Returns an attack by bytes on a server with TLS.
const fn bytes(
    name: &'static str,
    then: Then,
    end: End,
    round: fn(&[u8], u32) -> Vec<u8>,
) -> Attack {
    let script = Script::Bytes(round);
    Attack { name, server: Target::Tls, script, then, end, memory: 64 * KIB }
}

/// Returns an attack by records of an established session.
const fn records(name: &'static str, script: Script) -> Attack {
    let (then, end) = (Then::Continue, End::Alert);
    Attack { name, server: Target::Tls, script, then, end, memory: 64 * KIB }
}

/// Ordinary requests, with which attacks are compared.
pub(crate) const REQUESTS: Attack = Attack {
    end: End::Open,
    ..frames("requests", |round| {
        let window = frame(WINDOW_UPDATE, 0, 0, &(MAX_WINDOW - 65_535).to_be_bytes());
        let window = if round == 0 { window } else { Vec::new() };
        [window, request(stream(round), GET_SMALL)].concat()
    })
};

pub(crate) const ATTACKS: &[Attack] = &[
    // Streams.
    frames("streams", |round| frame(HEADERS, END_HEADERS, stream(round), POST)),
    frames("rapid-reset", |round| {
        let cancel = frame(RST_STREAM, 0, stream(round), &[0, 0, 0, 8]);
        [request(stream(round), GET_SMALL), cancel].concat()
    }),
    Attack {
        server: Target::Proxy,
        ..frames("rapid-reset-proxy", |round| {
            let cancel = frame(RST_STREAM, 0, stream(round), &[0, 0, 0, 8]);
            [request(stream(round), GET_LARGE), cancel].concat()
        })
    },
    // An increment of 0, and content beyond Content-Length, are errors of the stream.
    frames("provoked-reset-window", |round| {
        let open = frame(HEADERS, END_HEADERS, stream(round), POST);
        [open, frame(WINDOW_UPDATE, 0, stream(round), &[0; 4])].concat()
    }),
    frames("provoked-reset-length", |round| {
        let block = [POST, b"\x0f\x0d\x011"].concat();
        let open = frame(HEADERS, END_HEADERS, stream(round), &block);
        [open, frame(DATA, END_STREAM, stream(round), b"22")].concat()
    }),
    frames("provoked-reset-head", |round| request(stream(round), b"\x82\x82\x86")),
    // Field blocks.
    frames("continuation-small", |round| match round {
        0 => frame(HEADERS, 0, 1, GET_SMALL),
        _ => frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b"),
    }),
    frames("continuation-empty", |round| match round {
        0 => frame(HEADERS, 0, 1, GET_SMALL),
        _ => frame(CONTINUATION, 0, 1, &[]),
    }),
    frames("continuation-large", |round| match round {
        0 => frame(HEADERS, 0, 1, GET_SMALL),
        _ => frame(CONTINUATION, 0, 1, &[0; 16_000]),
    }),
    Attack {
        end: End::Goaway(FRAME_SIZE_ERROR),
        ..frames("large-frame", |_| frame(HEADERS, END_HEADERS, 1, &[0; 17_000]))
    },
    // A field of 4,000 bytes enters the table, and each following byte repeats it: 40 MB per request.
    Attack {
        end: End::Open,
        ..frames("hpack-bomb", |round| {
            let mut block = GET_SMALL.to_vec();
            block.extend(b"\x40\x01a\x7f\xa1\x1e");
            block.extend([b'x'; 4000]);
            block.extend([0xbe; 10_000]);
            request(stream(round), &block)
        })
    },
    Attack {
        end: End::Goaway(COMPRESSION_ERROR),
        ..frames("hpack-table-size", |round| {
            request(stream(round), &[b"\x20\x3f\xe1\x1f".repeat(3000), GET_SMALL.to_vec()].concat())
        })
    },
    // Frames without use.
    frames("ping", |_| frame(PING, 0, 0, &[0; 8]).repeat(30)),
    Attack {
        then: Then::Ignore,
        ..frames("ping-unread", |_| frame(PING, 0, 0, &[0; 8]).repeat(30))
    },
    frames("settings", |_| frame(SETTINGS, 0, 0, &[]).repeat(30)),
    frames("settings-values", |round| {
        // The windows of all streams change with each value.
        let values = (0..2700_u32).map(|at| [[0, 4, 0, 0, 0], [0, 4, 0, 0, 1]][at as usize % 2]);
        let values: Vec<u8> = values.flat_map(|value| [&value[..], &[0]].concat()).collect();
        [request(stream(round), GET_SMALL), frame(SETTINGS, 0, 0, &values)].concat()
    }),
    frames("unknown-frames", |_| frame(0xfe, 0, 0, &[0; 100]).repeat(30)),
    frames("empty-data", |round| match round {
        0 => frame(HEADERS, END_HEADERS, 1, POST),
        _ => frame(DATA, 0, 1, &[]).repeat(30),
    }),
    frames("padding", |round| match round {
        0 => frame(HEADERS, END_HEADERS, 1, POST),
        _ => frame(DATA, PADDED, 1, &[&[255][..], &[0; 255]].concat()).repeat(30),
    }),
    frames("priority", |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]).repeat(30)),
    frames("priority-update", |round| {
        frame(PRIORITY_UPDATE, 0, 0, &[&stream(round).to_be_bytes()[..], b"u=1"].concat())
            .repeat(30)
    }),
    frames("window-update", |round| match round {
        0 => frame(HEADERS, END_HEADERS, 1, POST),
        _ => frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(30),
    }),
    // Each byte of content takes a frame.
    Attack {
        script: Script::Frames(&[(WINDOW, 1)], |round| match round {
            0 => request(1, GET_LARGE),
            _ => frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        }),
        ..frames("tiny-windows", |_| Vec::new())
    },
    // Clients that take nothing, or send nothing.
    held(
        "zero-windows",
        Target::Files,
        &[(WINDOW, 0)],
        100,
        |round| request(stream(round), GET_LARGE),
        64 * KIB,
    ),
    held(
        "zero-windows-proxy",
        Target::Proxy,
        &[(WINDOW, 0)],
        100,
        |round| request(stream(round), GET_LARGE),
        640 * KIB,
    ),
    held("slow-reader", Target::Files, &[(WINDOW, MAX_WINDOW)], 100, large_windows, 384 * KIB),
    held(
        "slow-reader-proxy",
        Target::Proxy,
        &[(WINDOW, MAX_WINDOW)],
        100,
        large_windows,
        640 * KIB,
    ),
    held("idle", Target::Files, &[], 1, |_| Vec::new(), 16 * KIB),
    held(
        "incomplete-frame",
        Target::Files,
        &[],
        1,
        |_| frame(HEADERS, 0, 1, &[0; 16_000])[..15_000].to_vec(),
        64 * KIB,
    ),
    held(
        "incomplete-block",
        Target::Files,
        &[],
        2,
        |round| match round {
            0 => frame(HEADERS, 0, 1, GET_SMALL),
            _ => frame(CONTINUATION, 0, 1, &[0; 16_000]),
        },
        64 * KIB,
    ),
    // Handshakes.
    bytes("hello", Then::Leave(1), End::Open, |hello, _| hello.to_vec()),
    bytes("hello-held", Then::Hold(1), End::Timeout, |hello, _| hello.to_vec()),
    bytes("hello-cut", Then::Leave(1), End::Open, |hello, _| hello[..hello.len() / 2].to_vec()),
    bytes("silence", Then::Hold(1), End::Timeout, |_, _| Vec::new()),
    bytes("fragments", Then::Hold(1), End::Timeout, |hello, _| {
        hello[5..].iter().flat_map(|byte| [HANDSHAKE, 3, 1, 0, 1, *byte]).collect()
    }),
    bytes("empty-handshakes", Then::Continue, End::Alert, |_, _| {
        [HANDSHAKE, 3, 1, 0, 0].repeat(30)
    }),
    bytes("large-record", Then::Continue, End::Alert, |_, _| {
        [&[HANDSHAKE, 3, 1, 0xff, 0xff][..], &[0; 100]].concat()
    }),
    bytes("large-message", Then::Continue, End::Alert, |_, _| {
        let mut message = vec![HANDSHAKE, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
        message.resize(5 + 0x4000, 0);
        message
    }),
    bytes("not-tls", Then::Continue, End::Alert, |_, _| b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    bytes("cipher-changes", Then::Continue, End::Alert, |hello, round| match round {
        0 => hello.to_vec(),
        _ => [20, 3, 3, 0, 1, 1].repeat(30),
    }),
    // Established sessions. A HelloRequest is invalid, and a ClientHello asks for a renegotiation.
    records("renegotiation", Script::Records(Version::Tls12, HANDSHAKE, CLIENT_HELLO)),
    records("empty-records-1.2", Script::Records(Version::Tls12, APPLICATION_DATA, &[])),
    records("empty-records-1.3", Script::Records(Version::Tls13, APPLICATION_DATA, &[])),
    records("warnings", Script::Records(Version::Tls12, ALERT, &[1, 90])),
    records("key-updates", Script::KeyUpdates),
    Attack {
        then: Then::Leave(1),
        end: End::Open,
        ..records(
            "truncation",
            Script::Records(
                Version::Tls13,
                APPLICATION_DATA,
                b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
            ),
        )
    },
];

/// A ClientHello of TLS 1.2 with one suite and no extensions.
const CLIENT_HELLO: &[u8] = b"\x01\x00\x00\x29\x03\x03\
    01234567890123456789012345678901\x00\x00\x02\xc0\x2b\x01\x00";

/// Requests of a large file with the largest windows.
fn large_windows(round: u32) -> Vec<u8> {
    let window = frame(WINDOW_UPDATE, 0, 0, &(MAX_WINDOW - 65_535).to_be_bytes());
    let window = if round == 0 { window } else { Vec::new() };
    [window, request(stream(round), GET_LARGE)].concat()
}
