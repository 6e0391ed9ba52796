//! Bytes of a connection in, "the reply is complete" out.

use hearken_http::{BodyReader, Limits, Malformed, Method, ResponseParser};

/// What is accepted of servers is generous: they are to be measured, not judged.
const LIMITS: Limits = Limits { head_bytes: 64 * 1024, fields: 1000, target_bytes: 0 };

/// A reply on its way.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    parser: ResponseParser,
    /// What came of a head that is not complete yet; empty otherwise, and for all heads that come
    /// in one piece.
    head: Vec<u8>,
    body: Option<BodyReader>,
    done: Done,
}

/// A complete reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Done {
    pub(crate) status: u16,
    /// Whether the connection can carry another request.
    pub(crate) keep_alive: bool,
    /// How many bytes of content it had.
    pub(crate) content: u64,
}

impl Reply {
    /// Forgets what came so far. Not needed after a complete reply.
    pub(crate) fn reset(&mut self) {
        self.parser.reset();
        self.head.clear();
        self.body = None;
    }

    /// Takes the next bytes, up to the end of the reply to a request of `method`. `interim` is
    /// told the status of each reply that merely comes before it (1xx).
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        method: Method<'_>,
        interim: impl FnMut(u16),
    ) -> Result<Option<Done>, Malformed> {
        let mut done = self.next(&mut bytes, method, interim, |_| ())?;
        if let Some(done) = &mut done {
            // What nobody asked for leaves the two sides out of step.
            done.keep_alive &= bytes.is_empty();
        }
        Ok(done)
    }

    /// As [`feed`](Reply::feed), where several requests are under way: `bytes` keeps what comes
    /// after the reply. `content` is told what the reply contains, piece by piece.
    pub(crate) fn next(
        &mut self,
        bytes: &mut &[u8],
        method: Method<'_>,
        mut interim: impl FnMut(u16),
        mut content: impl FnMut(&[u8]),
    ) -> Result<Option<Done>, Malformed> {
        while self.body.is_none() {
            let carried = self.head.len();
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
            // A switch of protocols, which nobody asked for, is the last that is understood.
            if (100..200).contains(&status) && status != 101 {
                interim(status);
            } else {
                let keep_alive = response.keep_alive && status != 101;
                self.done = Done { status, keep_alive, content: 0 };
                self.body = Some(BodyReader::new(response.body, u64::MAX, &LIMITS)?);
            }
            *bytes = bytes.get(taken..).unwrap_or_default();
            self.head.clear();
        }
        let Some(body) = &mut self.body else {
            return Ok(None);
        };
        while !body.is_done() && !bytes.is_empty() {
            let piece = body.next(bytes)?;
            self.done.content += piece.data.len() as u64;
            content(bytes.get(piece.data).unwrap_or_default());
            *bytes = bytes.get(piece.consumed..).unwrap_or_default();
        }
        if !body.is_done() {
            return Ok(None);
        }
        self.body = None;
        Ok(Some(self.done))
    }

    /// The peer has ended the stream: is the reply complete by that?
    pub(crate) fn end(&mut self) -> Option<Done> {
        let body = self.body.take()?;
        body.may_close().then_some(Done { keep_alive: false, ..self.done })
    }
}

#[cfg(test)]
mod tests {
    use hearken_http::Method;
    use proptest::prelude::*;

    use super::{Done, Reply};

    const CASES: &[(&str, Method<'static>, Done)] = &[
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            Method::Get,
            Done { status: 200, keep_alive: true, content: 2 },
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
            Method::Head,
            Done { status: 200, keep_alive: true, content: 0 },
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 404 No\r\n\
             Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: x\r\n\r\n",
            Method::Get,
            Done { status: 404, keep_alive: true, content: 3 },
        ),
        (
            "HTTP/1.0 503 No\r\nContent-Length: 0\r\n\r\n",
            Method::Get,
            Done { status: 503, keep_alive: false, content: 0 },
        ),
        (
            "HTTP/1.1 204 No\r\nConnection: close\r\n\r\n",
            Method::Get,
            Done { status: 204, keep_alive: false, content: 0 },
        ),
    ];

    fn interims(text: &str) -> usize {
        text.matches("HTTP/1.1 1").count()
    }

    #[test]
    fn until_close() {
        let mut reply = Reply::default();
        let text = b"HTTP/1.1 200 OK\r\n\r\nany";
        assert_eq!(reply.feed(text, Method::Get, |_| ()).unwrap(), None);
        assert_eq!(reply.end(), Some(Done { status: 200, keep_alive: false, content: 3 }));
    }

    #[test]
    fn cut_short() {
        for text in ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh"] {
            let mut reply = Reply::default();
            assert_eq!(reply.feed(text.as_bytes(), Method::Get, |_| ()).unwrap(), None);
            assert_eq!(reply.end(), None);
        }
    }

    #[test]
    fn out_of_step() {
        let mut reply = Reply::default();
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore";
        let done = reply.feed(text, Method::Get, |_| ()).unwrap().unwrap();
        assert!(!done.keep_alive);
    }

    proptest! {
        #[test]
        fn comes_in_any_pieces(cuts in prop::collection::vec(1..40usize, 1..60)) {
            // One parser for all cases: it is ready for the next reply after each.
            let mut reply = Reply::default();
            for &(text, method, expected) in CASES {
                let (mut rest, mut seen, mut done) = (text.as_bytes(), 0, None);
                for cut in cuts.iter().cycle() {
                    prop_assert_eq!(done, None);
                    let (piece, after) = rest.split_at((*cut).min(rest.len()));
                    done = reply.feed(piece, method, |_| seen += 1).unwrap();
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
            let _ = reply.end();
        }
    }
}
