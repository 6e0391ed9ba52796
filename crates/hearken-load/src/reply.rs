//! Parses replies from received bytes.

use std::time::Duration;

use hearken::timer::Time;
use hearken_http::{BodyReader, Limits, Malformed, Method, ResponseBody, ResponseParser};

use crate::cookies::CookieJar;

/// Limits of the parser. They are generous, because servers are measured and not validated.
pub(crate) const LIMITS: Limits =
    Limits { max_head_bytes: 64 * 1024, max_fields: 1000, max_target_bytes: 0 };

/// A reply that is being received.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    parser: ResponseParser,
    /// The first part of an incomplete head. Empty if the head arrives in one piece.
    head: Vec<u8>,
    body: Option<BodyReader>,
    done: CompleteReply,
}

/// A complete reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CompleteReply {
    pub(crate) status: u16,
    /// Whether the connection can carry another request.
    pub(crate) keep_alive: bool,
    /// Content length in bytes.
    pub(crate) content_bytes: u64,
}

/// The last head that arrived in one piece, with its parsed form. Servers send the same head again
/// and again except for the date, so most heads need no parsing.
#[derive(Debug, Default)]
pub(crate) struct HeadCache {
    head: Vec<u8>,
    parsed: Option<(Method<'static>, CompleteReply, ResponseBody)>,
}

/// The handling of heads besides parsing.
pub(crate) enum Heads<'a> {
    /// Heads are only parsed.
    Parsed,
    /// Repeated heads need no parsing.
    Cached(&'a mut HeadCache),
    /// Cookies in the reply to the encoded `request` are stored.
    WithCookies {
        jar: &'a mut CookieJar,
        request: &'a [u8],
        now: Time,
        /// Returns the time of day.
        unix_time: &'a dyn Fn() -> Duration,
    },
}

impl HeadCache {
    /// Returns the parsed form if `bytes` begin with the same head and reply to a request with the
    /// same method.
    #[inline]
    fn lookup(
        &self,
        bytes: &[u8],
        method: Method<'static>,
    ) -> Option<(CompleteReply, ResponseBody)> {
        let (of, done, body) = self.parsed?;
        (of == method && bytes.starts_with(&self.head)).then_some((done, body))
    }

    fn store(
        &mut self,
        head: &[u8],
        method: Method<'static>,
        done: CompleteReply,
        body: ResponseBody,
    ) {
        self.head.clear();
        self.head.extend_from_slice(head);
        self.parsed = Some((method, done, body));
    }
}

impl Reply {
    /// Discards a partial reply. Not needed after a complete reply.
    pub(crate) fn reset(&mut self) {
        self.parser.reset();
        self.head.clear();
        self.body = None;
    }

    /// Parses received bytes up to the end of the reply to a request with `method`. Calls `interim`
    /// with the status of each interim response (1xx).
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        method: Method<'static>,
        interim: impl FnMut(u16),
    ) -> Result<Option<CompleteReply>, Malformed> {
        let mut done = self.feed_next(&mut bytes, method, Heads::Parsed, interim, |_| ())?;
        if let Some(done) = &mut done {
            // Unsolicited data desynchronises requests and replies.
            done.keep_alive &= bytes.is_empty();
        }
        Ok(done)
    }

    /// Parses received bytes like [`feed`](Reply::feed), for connections with several requests in
    /// flight. Afterwards `bytes` holds the data that follows the reply. Calls `content` with each
    /// piece of the content.
    pub(crate) fn feed_next(
        &mut self,
        bytes: &mut &[u8],
        method: Method<'static>,
        mut heads: Heads<'_>,
        mut interim: impl FnMut(u16),
        mut content: impl FnMut(&[u8]),
    ) -> Result<Option<CompleteReply>, Malformed> {
        while self.body.is_none() {
            let carried = self.head.len();
            if carried == 0
                && let Heads::Cached(seen) = &heads
                && let Some((done, body)) = seen.lookup(bytes, method)
            {
                self.done = done;
                self.body = Some(BodyReader::new(body, u64::MAX, &LIMITS)?);
                *bytes = bytes.get(seen.head.len()..).unwrap_or_default();
                break;
            }
            if carried > 0 {
                self.head.extend_from_slice(bytes);
            }
            let head = if carried > 0 { &self.head } else { *bytes };
            let Some(response) = self.parser.parse(head, method, &LIMITS)? else {
                if carried == 0 {
                    self.head.extend_from_slice(bytes);
                }
                return Ok(None);
            };
            let (status, taken) = (response.status, response.head_len - carried);
            // A switch of protocols, which was not requested, ends the use of the connection.
            if (100..200).contains(&status) && status != 101 {
                interim(status);
            } else {
                let keep_alive = response.keep_alive && status != 101;
                self.done = CompleteReply { status, keep_alive, content_bytes: 0 };
                self.body = Some(BodyReader::new(response.body, u64::MAX, &LIMITS)?);
                match &mut heads {
                    Heads::Cached(seen) if carried == 0 => {
                        seen.store(&head[..taken], method, self.done, response.body);
                    }
                    Heads::WithCookies { jar, request, now, unix_time } => {
                        for value in response.field_values("Set-Cookie") {
                            jar.set(value, request, *now, unix_time);
                        }
                    }
                    Heads::Parsed | Heads::Cached(_) => {}
                }
            }
            *bytes = bytes.get(taken..).unwrap_or_default();
            self.head.clear();
        }
        let Some(body) = &mut self.body else {
            return Ok(None);
        };
        while !body.is_done() && !bytes.is_empty() {
            let piece = body.read(bytes)?;
            self.done.content_bytes += piece.data.len() as u64;
            content(bytes.get(piece.data).unwrap_or_default());
            *bytes = bytes.get(piece.consumed..).unwrap_or_default();
        }
        if !body.is_done() {
            return Ok(None);
        }
        self.body = None;
        Ok(Some(self.done))
    }

    /// Handles the end of the stream. Returns the reply if it is complete by that.
    pub(crate) fn on_end_of_stream(&mut self) -> Option<CompleteReply> {
        let body = self.body.take()?;
        body.is_complete_at_close().then_some(CompleteReply { keep_alive: false, ..self.done })
    }
}

#[cfg(test)]
mod tests {
    use hearken_http::Method;
    use proptest::prelude::*;

    use super::{CompleteReply, HeadCache, Heads, Reply};

    const CASES: &[(&str, Method<'static>, CompleteReply)] = &[
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            Method::Get,
            CompleteReply { status: 200, keep_alive: true, content_bytes: 2 },
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
            Method::Head,
            CompleteReply { status: 200, keep_alive: true, content_bytes: 0 },
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 404 No\r\n\
             Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: x\r\n\r\n",
            Method::Get,
            CompleteReply { status: 404, keep_alive: true, content_bytes: 3 },
        ),
        (
            "HTTP/1.0 503 No\r\nContent-Length: 0\r\n\r\n",
            Method::Get,
            CompleteReply { status: 503, keep_alive: false, content_bytes: 0 },
        ),
        (
            "HTTP/1.1 204 No\r\nConnection: close\r\n\r\n",
            Method::Get,
            CompleteReply { status: 204, keep_alive: false, content_bytes: 0 },
        ),
    ];

    fn interims(text: &str) -> usize {
        text.matches("HTTP/1.1 1").count()
    }

    #[test]
    fn the_end_of_the_stream_completes_a_reply_without_length() {
        let mut reply = Reply::default();
        let text = b"HTTP/1.1 200 OK\r\n\r\nany";
        assert_eq!(reply.feed(text, Method::Get, |_| ()).unwrap(), None);
        assert_eq!(
            reply.on_end_of_stream(),
            Some(CompleteReply { status: 200, keep_alive: false, content_bytes: 3 })
        );
    }

    #[test]
    fn the_end_of_the_stream_does_not_complete_a_partial_reply() {
        for text in ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh"] {
            let mut reply = Reply::default();
            assert_eq!(reply.feed(text.as_bytes(), Method::Get, |_| ()).unwrap(), None);
            assert_eq!(reply.on_end_of_stream(), None);
        }
    }

    #[test]
    fn data_after_the_reply_ends_the_use_of_the_connection() {
        let mut reply = Reply::default();
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore";
        let done = reply.feed(text, Method::Get, |_| ()).unwrap().unwrap();
        assert!(!done.keep_alive);
    }

    /// Checks that a head that is a prefix of another, or that belongs to another method, is not
    /// used.
    #[test]
    fn the_head_cache_distinguishes_heads_and_methods() {
        let mut last = HeadCache::default();
        let mut of = |text: &str, method| {
            let mut bytes = text.as_bytes();
            Reply::default()
                .feed_next(&mut bytes, method, Heads::Cached(&mut last), |_| (), |_| ())
                .unwrap()
        };
        let done =
            |content| Some(CompleteReply { status: 200, keep_alive: true, content_bytes: content });
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(of(text, Method::Get), done(2));
        assert_eq!(of(text, Method::Get), done(2));
        assert_eq!(of(text, Method::Head), done(0));
        assert_eq!(of(text, Method::Get), done(2));
        let longer = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhi";
        assert_eq!(of(longer, Method::Get), None);
    }

    proptest! {
        #[test]
        fn parses_replies_in_any_pieces(cuts in prop::collection::vec(1..40usize, 1..60)) {
            // One parser for all cases, because it must be ready for the next reply after each.
            let (mut reply, mut last) = (Reply::default(), HeadCache::default());
            for &(text, method, expected) in CASES.iter().chain(CASES).chain(CASES) {
                let (mut rest, mut seen, mut done) = (text.as_bytes(), 0, None);
                for cut in cuts.iter().cycle() {
                    prop_assert_eq!(done, None);
                    let (mut piece, after) = rest.split_at((*cut).min(rest.len()));
                    let count = |_| seen += 1;
                    done = reply.feed_next(&mut piece, method, Heads::Cached(&mut last), count, |_| ()).unwrap();
                    rest = after;
                    if rest.is_empty() {
                        break;
                    }
                }
                prop_assert_eq!(done, Some(expected));
                prop_assert_eq!(seen, interims(text));
            }
        }

        #[test]
        fn never_panics(pieces in prop::collection::vec("(HTTP/1.1 [0-9]{3} |\r\n|chunked|.)*", 0..5)) {
            let mut reply = Reply::default();
            for piece in pieces {
                if reply.feed(piece.as_bytes(), Method::Get, |_| ()).is_err() {
                    break;
                }
            }
            let _ = reply.on_end_of_stream();
        }
    }
}
