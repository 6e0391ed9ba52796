//! Bodies with each framing.

use hearken_http::{Body, BodyReader, Limits, Reject};
use proptest::prelude::*;

/// Reads a chunked body in pieces of `step` bytes. Returns the content, or `None` if the body is
/// incomplete, and the number of bytes after the body.
fn read(bytes: &[u8], step: usize, max_bytes: u64) -> Result<(Option<Vec<u8>>, usize), Reject> {
    let mut reader = BodyReader::new(Body::Chunked, max_bytes, &Limits::default())?;
    let (mut content, mut at) = (Vec::new(), 0);
    while at < bytes.len() && !reader.is_done() {
        let window = &bytes[at..bytes.len().min(at + step)];
        let segment = reader.read(window)?;
        assert!(segment.consumed > 0, "no progress");
        assert!(segment.data.end <= segment.consumed);
        content.extend_from_slice(&window[segment.data]);
        at += segment.consumed;
        assert_eq!(segment.done, reader.is_done());
    }
    Ok((reader.is_done().then_some(content), bytes.len() - at))
}

/// Returns a strategy for exactly these bytes.
fn literal(bytes: &'static [u8]) -> Just<&'static [u8]> {
    Just(bytes)
}

#[test]
fn accepts_only_valid_chunks() {
    let ok = |content: &str| Ok(Some(content.to_owned()));
    for (bytes, want) in [
        ("5\r\nhello\r\n0\r\n\r\n", ok("hello")),
        ("1\r\na\r\n1\r\nb\r\n0\r\n\r\n", ok("ab")),
        ("a\r\n0123456789\r\n000\r\n\r\n", ok("0123456789")),
        ("A\r\n0123456789\r\n0\r\n\r\n", ok("0123456789")),
        ("0000000000000001\r\na\r\n0\r\n\r\n", ok("a")),
        ("1;x=y;z=\"q\"\r\na\r\n0\r\n\r\n", ok("a")),
        ("1 \t;x\r\na\r\n0;last\r\n\r\n", ok("a")),
        ("0\r\nA: b\r\nC:\r\n\r\n", ok("")),
        ("5\r\nhel", Ok(None)),
        ("0\r\n\r", Ok(None)),
        ("00000000000000001\r\na\r\n0\r\n\r\n", Err(400)),
        ("\r\n", Err(400)),
        (";x\r\n", Err(400)),
        (" 1\r\na\r\n", Err(400)),
        ("1 \r\na\r\n", Err(400)),
        ("+1\r\na\r\n", Err(400)),
        ("-1\r\na\r\n", Err(400)),
        ("0x1\r\na\r\n", Err(400)),
        ("1h\r\na\r\n", Err(400)),
        ("1_0\r\na\r\n", Err(400)),
        ("g\r\na\r\n", Err(400)),
        ("1\na\n0\n\n", Err(400)),
        ("1\ra\r\n", Err(400)),
        ("1\r\nab\r\n", Err(400)),
        ("1\r\na\n0\r\n\r\n", Err(400)),
        ("1\r\na\rX", Err(400)),
        ("1\r\na0\r\n\r\n", Err(400)),
        ("1;a\nb\r\na\r\n", Err(400)),
        ("1;a\rb\r\na\r\n", Err(400)),
        ("1;\0\r\na\r\n", Err(400)),
        ("0\r\nA : b\r\n\r\n", Err(400)),
        ("0\r\nA\r\n\r\n", Err(400)),
        ("0\r\n: b\r\n\r\n", Err(400)),
        ("0\r\n A: b\r\n\r\n", Err(400)),
        ("0\r\nA: b\r\n c\r\n\r\n", Err(400)),
        ("0\r\nA: b\nC: d\r\n\r\n", Err(400)),
        ("0\r\nA: b\rX", Err(400)),
        ("0\r\nA: \0\r\n\r\n", Err(400)),
        ("0\r\n\n", Err(400)),
        ("0\r\n\rX", Err(400)),
        ("ffffffffffffffff\r\n", Err(413)),
        ("3e9\r\n", Err(413)),
    ] {
        for step in [1, 2, 3, 1000] {
            let found = read(bytes.as_bytes(), step, 1000)
                .map(|(content, _)| content.map(|bytes| String::from_utf8(bytes).unwrap()))
                .map_err(|reject| reject.status);
            assert_eq!(found, want, "{bytes:?} by {step}");
        }
    }
}

#[test]
fn limits_the_size_of_extensions_trailers_and_content() {
    let extension = format!("1;{}\r\n", "x".repeat(5000));
    assert_eq!(read(extension.as_bytes(), 7, 1000).unwrap_err().status, 400);
    let extensions = format!("1;{}\r\na\r\n", "x".repeat(3000)).repeat(6);
    assert_eq!(read(extensions.as_bytes(), 7, 1000).unwrap_err().status, 400);
    let fields = format!("0\r\n{}\r\n", "A: b\r\n".repeat(101));
    assert_eq!(read(fields.as_bytes(), 7, 1000).unwrap_err().status, 431);
    let long = format!("0\r\nA: {}\r\n\r\n", "b".repeat(17_000));
    assert_eq!(read(long.as_bytes(), 7, 1000).unwrap_err().status, 431);
    // Many small chunks without extensions are accepted.
    let many = "1\r\na\r\n".repeat(100_000) + "0\r\n\r\n";
    assert_eq!(read(many.as_bytes(), 4096, 100_000).unwrap().0.unwrap().len(), 100_000);
    assert_eq!(read(many.as_bytes(), 4096, 99_999).unwrap_err().status, 413);
}

#[test]
fn a_body_with_a_length_ends_after_that_many_bytes() {
    let limits = Limits::default();
    let mut reader = BodyReader::new(Body::Length(5), 5, &limits).unwrap();
    let segment = reader.read(b"abc").unwrap();
    assert_eq!((segment.consumed, segment.data, segment.done), (3, 0..3, false));
    let segment = reader.read(b"").unwrap();
    assert_eq!((segment.consumed, segment.done), (0, false));
    let segment = reader.read(b"deGET /").unwrap();
    assert_eq!((segment.consumed, segment.data, segment.done), (2, 0..2, true));
    assert_eq!(reader.read(b"GET /").unwrap().consumed, 0);
    assert_eq!(BodyReader::new(Body::Length(6), 5, &limits).unwrap_err().status, 413);
    assert!(BodyReader::new(Body::None, 0, &limits).unwrap().is_done());
}

proptest! {
    #[test]
    fn chunked_bodies_round_trip(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
        extension in prop_oneof![Just(""), Just(";a=b"), Just(" ;x")],
        trailer in prop_oneof![Just(""), Just("A: b\r\n")],
        rest in prop::collection::vec(any::<u8>(), 0..8),
        step in 1usize..50,
    ) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            bytes.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
        bytes.extend_from_slice(&rest);
        let (content, remaining) = read(&bytes, step, 1000).unwrap();
        prop_assert_eq!(content, Some(chunks.concat()));
        prop_assert_eq!(remaining, rest.len());
    }

    #[test]
    fn the_split_into_pieces_does_not_change_the_result(
        pieces in prop::collection::vec(prop_oneof![
            literal(b"\r\n"), literal(b"0"), literal(b"1\r\na\r\n"), literal(b"2"), literal(b";"),
            literal(b"\r"), literal(b"\n"), literal(b"A: b"), literal(b" "), literal(b"ab"), literal(b"\0"),
        ], 0..12),
        step in 1usize..6,
    ) {
        let bytes = pieces.concat();
        prop_assert_eq!(read(&bytes, step, 20), read(&bytes, usize::MAX / 2, 20));
    }
}
