//! Bodies that are converted from one framing to another.

use hearken_http::forward::{HeaderPolicy, Relay, Rules};
use hearken_http::{BodyReader, Limits, Reject, ResponseBody};
use proptest::prelude::*;

use ResponseBody::{Chunked, Length, None as NoBody, UntilClose};

/// Forwards a body in pieces. Returns the output, the number of bytes consumed, and whether the body is
/// complete.
fn forward(
    from: ResponseBody,
    to: ResponseBody,
    max_bytes: u64,
    pieces: &[&[u8]],
    closes: bool,
) -> Result<(Vec<u8>, usize, bool), Reject> {
    let mut relay = Relay::new(from, to, max_bytes, &Limits::default())?;
    let mut out = Vec::new();
    let mut consumed = 0;
    for piece in pieces {
        let count = relay.forward(piece, &mut out)?;
        consumed += count;
        assert!(count == piece.len() || relay.is_done());
    }
    if closes {
        relay.finish(&mut out).map_err(|malformed| Reject::new(0, malformed.0))?;
    }
    Ok((out, consumed, relay.is_done()))
}

#[track_caller]
fn check(from: ResponseBody, to: ResponseBody, bytes: &str, want: Result<&str, u16>) {
    let closes = from == UntilClose;
    let got = forward(from, to, 1000, &[bytes.as_bytes()], closes);
    match want {
        Ok(want) => {
            let (out, consumed, done) = got.unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), want, "{bytes:?}");
            assert_eq!(&bytes[consumed..], if closes { "" } else { "GET" }, "{bytes:?}");
            assert!(done);
        }
        Err(status) => assert_eq!(got.unwrap_err().status, status, "{bytes:?}"),
    }
}

#[test]
fn converts_between_framings() {
    check(NoBody, NoBody, "GET", Ok(""));
    check(NoBody, Chunked, "GET", Ok(""));
    check(Length(5), Length(5), "helloGET", Ok("hello"));
    check(Length(5), UntilClose, "helloGET", Ok("hello"));
    check(Length(5), Chunked, "helloGET", Ok("5\r\nhello\r\n0\r\n\r\n"));
    check(UntilClose, UntilClose, "hello", Ok("hello"));
    check(UntilClose, Chunked, "hello", Ok("5\r\nhello\r\n0\r\n\r\n"));
    check(UntilClose, Chunked, "", Ok("0\r\n\r\n"));
    check(Chunked, UntilClose, "2\r\nhe\r\n03\r\nllo\r\n0\r\nA: b\r\n\r\nGET", Ok("hello"));
    check(Chunked, Length(5), "5\r\nhello\r\n0\r\n\r\nGET", Ok("hello"));
    check(Length(1001), Length(1001), "", Err(413));
    check(Chunked, Chunked, "3e9\r\n", Err(413));
}

#[test]
fn rewrites_chunks_in_canonical_form() {
    for (bytes, want) in [
        ("0\r\n\r\nGET", "0\r\n\r\n"),
        ("000\r\n\r\nGET", "0\r\n\r\n"),
        ("5;a=\"b\r\n0\"\r\nhello\r\n", "!"),
        ("0005 ;a=b\r\nhello\r\n0;x\r\n\r\nGET", "5\r\nhello\r\n0\r\n\r\n"),
        ("A\r\n0123456789\r\n1\r\na\r\n0\r\n\r\nGET", "a\r\n0123456789\r\n1\r\na\r\n0\r\n\r\n"),
        ("5\r\nhello\n", "!"),
        ("5\r\nhelloX", "!"),
        ("5\nhello\r\n", "!"),
    ] {
        check(Chunked, Chunked, bytes, if want == "!" { Err(400) } else { Ok(want) });
    }
}

#[test]
fn removes_trailer_fields_that_could_change_the_head() {
    for (trailer, want) in [
        ("A: b\r\n", "A: b\r\n"),
        ("grpc-status:0\r\nX_Y: \tz \r\n", "grpc-status:0\r\nX_Y: \tz \r\n"),
        ("A: b\r\nContent-Length: 5\r\nC:d\r\n", "A: b\r\nC:d\r\n"),
        ("TRANSFER_ENCODING: chunked\r\n", ""),
        ("Host: a\r\nConnection: x\r\nTE: x\r\nTrailer: y\r\n", ""),
        ("Content-Type: a\r\nContent-Encoding: a\r\nContent-Range: a\r\n", ""),
        ("Authorization: a\r\nSet-Cookie: a\r\nCache-Control: a\r\nVia: a\r\n", ""),
        (
            "x-forwarded-anything: a\r\nForwarded: a\r\nProxy-Authorization: a\r\nIf-Match: x\r\n",
            "",
        ),
    ] {
        let bytes = format!("1\r\na\r\n0\r\n{trailer}\r\nGET");
        check(Chunked, Chunked, &bytes, Ok(&format!("1\r\na\r\n0\r\n{want}\r\n")));
    }
    let many = "A: b\r\n".repeat(101);
    check(Chunked, Chunked, &format!("0\r\n{many}\r\n"), Err(431));
}

#[test]
fn reports_incomplete_bodies() {
    for (from, bytes) in [
        (Length(5), "hell"),
        (Chunked, ""),
        (Chunked, "5\r\nhell"),
        (Chunked, "5\r\nhello\r\n"),
        (Chunked, "5\r\nhello\r\n0\r\n"),
        (Chunked, "5\r\nhello\r\n0\r\nA: b\r\n"),
        (Chunked, "5\r\nhello\r\n0\r\n\r"),
    ] {
        for to in [Chunked, UntilClose] {
            let mut relay = Relay::new(from, to, 1000, &Limits::default()).unwrap();
            let mut out = Vec::new();
            relay.forward(bytes.as_bytes(), &mut out).unwrap();
            let before = out.len();
            assert!(relay.finish(&mut out).is_err(), "{from:?} {bytes:?}");
            assert_eq!(out.len(), before, "an incomplete body is not terminated");
            assert!(!out.ends_with(b"0\r\n\r\n"));
        }
    }
    let mut relay = Relay::new(Length(1), Chunked, 1000, &Limits::default()).unwrap();
    let mut out = Vec::new();
    relay.forward(b"a", &mut out).unwrap();
    relay.finish(&mut out).unwrap();
    assert_eq!(out, b"1\r\na\r\n0\r\n\r\n", "the end is written only once");
}

#[test]
fn clients_cannot_send_their_subject_in_trailers() {
    let rules = Rules::new("", HeaderPolicy::Remove, HeaderPolicy::Remove, false);
    let rules = rules.with_client_subject("X-Subject");
    let received = "0\r\nX-Subject: CN=a\r\nA: b\r\nx_subject: CN=a\r\n\r\n";
    let mut relay = Relay::new(Chunked, Chunked, 1000, &Limits::default()).unwrap();
    relay.protect(&rules);
    let mut out = Vec::new();
    relay.forward(received.as_bytes(), &mut out).unwrap();
    assert_eq!(out, b"0\r\nA: b\r\n\r\n");
}

#[test]
fn unchanged_bytes_can_be_skipped() {
    let limits = Limits::default();
    let mut out = Vec::new();
    let mut relay = Relay::new(Length(10), Length(10), 10, &limits).unwrap();
    assert_eq!(relay.passthrough_len(), 10);
    assert_eq!(relay.forward(b"abc", &mut out).unwrap(), 3);
    relay.skip(5);
    assert_eq!(relay.passthrough_len(), 2);
    assert_eq!(relay.forward(b"deGET", &mut out).unwrap(), 2);
    assert_eq!((relay.passthrough_len(), relay.is_done()), (0, true));
    assert_eq!(out, b"abcde");
    let mut relay = Relay::new(Length(10), UntilClose, 10, &limits).unwrap();
    relay.skip(10);
    assert!(relay.is_done());

    let mut relay = Relay::new(UntilClose, UntilClose, u64::MAX, &limits).unwrap();
    relay.skip(1 << 40);
    relay.forward(b"x", &mut out).unwrap();
    assert_eq!(relay.passthrough_len(), u64::MAX);
    assert!(!relay.is_done());
    let mut relay = Relay::new(UntilClose, UntilClose, 3, &limits).unwrap();
    assert_eq!(relay.passthrough_len(), 3);
    relay.skip(3);
    assert_eq!(relay.passthrough_len(), 0);
    assert!(!relay.is_done());
    assert_eq!(relay.forward(b"x", &mut out).unwrap_err().status, 413);

    for (from, to) in
        [(Length(10), Chunked), (UntilClose, Chunked), (Chunked, Chunked), (Chunked, UntilClose)]
    {
        let mut relay = Relay::new(from, to, 10, &limits).unwrap();
        assert_eq!(relay.passthrough_len(), 0);
        relay.skip(5);
        let _ = relay.forward(b"5\r\nhe", &mut out);
        assert_eq!(relay.passthrough_len(), 0);
    }
}

/// Returns the content and the trailer section of a body with this framing.
fn content(framing: ResponseBody, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut reader = BodyReader::new(framing, u64::MAX, &Limits::default()).unwrap();
    let (mut content, mut at, mut last) = (Vec::new(), 0, 0);
    while !reader.is_done() && at < bytes.len() {
        let segment = reader.read(&bytes[at..]).unwrap();
        if !segment.data.is_empty() {
            content.extend_from_slice(&bytes[at..][segment.data]);
            last = at + segment.consumed;
        }
        at += segment.consumed;
    }
    assert!(reader.is_complete_at_close(), "incomplete body");
    assert_eq!(at, bytes.len(), "bytes after the body");
    let trailer = match framing {
        Chunked => {
            let end = &bytes[last..];
            let start = end.windows(3).position(|three| three == b"0\r\n").unwrap() + 3;
            end[start..end.len() - 2].to_vec()
        }
        _ => Vec::new(),
    };
    (content, trailer)
}

#[derive(Debug, Clone)]
struct Sent {
    bytes: Vec<u8>,
    content: Vec<u8>,
    from: ResponseBody,
    trailer: Vec<u8>,
}

fn sent() -> impl Strategy<Value = Sent> {
    let chunks = prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..6);
    let field = prop::sample::select(
        &[
            "A: b\r\n",
            "x-y:\r\n",
            "Content-Length: 3\r\n",
            "Server-Timing: \t a;b\r\n",
            "X_Forwarded_For: 1\r\n",
            "Hos: t\r\n",
        ][..],
    );
    let trailer = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(field, 0..5)];
    let size = prop::sample::select(&["", "0", "000"][..]);
    let extension = prop::sample::select(&["", ";a=b", " ;x", ";\"0\""][..]);
    (chunks, trailer, size, extension, 0..3).prop_map(
        |(chunks, trailer, zeros, extension, from)| {
            let content = chunks.concat();
            match from {
                0 if !content.is_empty() => Sent {
                    bytes: content.clone(),
                    from: Length(content.len() as u64),
                    content,
                    trailer: Vec::new(),
                },
                1 => {
                    Sent { bytes: content.clone(), from: UntilClose, content, trailer: Vec::new() }
                }
                _ => {
                    let mut bytes = Vec::new();
                    for chunk in &chunks {
                        bytes.extend_from_slice(
                            format!("{zeros}{:X}{extension}\r\n", chunk.len()).as_bytes(),
                        );
                        bytes.extend_from_slice(chunk);
                        bytes.extend_from_slice(b"\r\n");
                    }
                    bytes.extend_from_slice(
                        format!("0{extension}\r\n{}\r\n", trailer.concat()).as_bytes(),
                    );
                    let is_forwardable =
                        |field: &&&str| !field.starts_with("Content") && !field.starts_with("X_F");
                    let forwarded: Vec<_> =
                        trailer.iter().filter(is_forwardable).copied().collect();
                    Sent { bytes, from: Chunked, content, trailer: forwarded.concat().into_bytes() }
                }
            }
        },
    )
}

proptest! {
    #[test]
    fn preserves_content_and_trailers_for_any_split(
        sent in sent(),
        to in 0..3,
        rest in prop::collection::vec(any::<u8>(), 0..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
        bytewise in prop::bool::weighted(0.1),
    ) {
        let to = match to {
            0 if !sent.content.is_empty() => Length(sent.content.len() as u64),
            1 => UntilClose,
            _ => Chunked,
        };
        let closes = sent.from == UntilClose;
        let mut bytes = sent.bytes.clone();
        if !closes {
            bytes.extend_from_slice(&rest);
        }
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        if bytewise {
            ends = (0..bytes.len()).collect();
        }
        ends.extend([0, bytes.len()]);
        ends.sort_unstable();
        let pieces: Vec<_> = ends.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
        let (out, consumed, done) = forward(sent.from, to, u64::MAX, &pieces, closes).unwrap();
        prop_assert!(done);
        prop_assert_eq!(consumed, sent.bytes.len());
        let (got, trailer) = content(to, &out);
        prop_assert_eq!(&got, &sent.content);
        if to == Chunked {
            prop_assert_eq!(trailer, sent.trailer);
            // One chunk for each run of content, with at most ten bytes of framing.
            prop_assert!(out.len() <= sent.bytes.len() + 10 * pieces.len() + 5);
        }
    }

    // Invalid and incomplete bodies are detected for any split, and are not terminated.
    #[test]
    fn the_split_into_pieces_does_not_change_the_result(
        pieces in prop::collection::vec(prop::sample::select(&[
            "\r\n", "0", "1\r\na\r\n", "2", ";", "\r", "\n", "A: b", "Host: x", " ", "ab", "\0", "0\r\n", "\r\n\r\n",
        ][..]), 0..12),
        step in 1usize..6,
        from in 0..3,
        to in 0..3,
    ) {
        let framing = |index| [Length(7), UntilClose, Chunked][index as usize];
        let bytes = pieces.concat().into_bytes();
        let whole = forward(framing(from), framing(to), 10, &[&bytes], true);
        let steps: Vec<_> = bytes.chunks(step).collect();
        let parts = forward(framing(from), framing(to), 10, &steps, true);
        match (whole, parts) {
            (Ok((whole, consumed, _)), Ok((parts, parts_consumed, _))) => {
                prop_assert_eq!(consumed, parts_consumed);
                let framing = if framing(to) == Length(7) { UntilClose } else { framing(to) };
                prop_assert_eq!(content(framing, &whole), content(framing, &parts));
            }
            (whole, parts) => prop_assert_eq!(whole.map(|_| ()), parts.map(|_| ())),
        }
    }
}
