//! The fields of a request that a server or an intermediary asks for.

use crate::authority;
use crate::class::{same_name, trim};
use crate::error::Reject;
use crate::forward;
use crate::framing::{Body, Framing, Options, is_canonical_length};
use crate::hop_span::HopSpan;
use crate::lengths::Lengths;
use crate::version::Version;

/// Which fields there are, and what was found of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Known(u16);

impl Known {
    pub(crate) const RANGE: Known = Known(1);
    pub(crate) const IF_MATCH: Known = Known(1 << 1);
    pub(crate) const IF_MODIFIED_SINCE: Known = Known(1 << 2);
    pub(crate) const IF_NONE_MATCH: Known = Known(1 << 3);
    pub(crate) const IF_UNMODIFIED_SINCE: Known = Known(1 << 4);
    pub(crate) const IF_RANGE: Known = Known(1 << 5);
    pub(crate) const UPGRADE: Known = Known(1 << 6);
    /// An expectation of `100-continue`, and of anything else.
    const EXPECT: Known = Known(1 << 7);
    const EXPECT_OTHER: Known = Known(1 << 8);
    /// Content-Length or Transfer-Encoding.
    const FRAMING: Known = Known(1 << 9);
    /// A Host field; one that is still to be checked; more than one.
    const HOST: Known = Known(1 << 10);
    const HOST_UNCHECKED: Known = Known(1 << 11);
    const HOSTS: Known = Known(1 << 12);
    /// The Connection field names others than those that are always of the connection only.
    pub(crate) const NOMINATES: Known = Known(1 << 13);
    /// It has more options than are looked at.
    const TOO_MANY_OPTIONS: Known = Known(1 << 14);
    /// Via, X-Forwarded-For, Forwarded or CDN-Loop, which intermediaries add to.
    pub(crate) const HOPS: Known = Known(1 << 15);

    /// The fields that ask for something else than a whole representation whatever its state.
    pub(crate) const SELECTING: Known = Known::all(&[
        Known::RANGE,
        Known::IF_MATCH,
        Known::IF_MODIFIED_SINCE,
        Known::IF_NONE_MATCH,
        Known::IF_UNMODIFIED_SINCE,
    ]);

    /// What in nearly all heads is [`Known::HOST`] alone, and in the others has to be judged.
    const JUDGED: Known = Known::all(&[
        Known::UPGRADE,
        Known::EXPECT,
        Known::EXPECT_OTHER,
        Known::FRAMING,
        Known::HOST,
        Known::HOST_UNCHECKED,
        Known::HOSTS,
        Known::TOO_MANY_OPTIONS,
    ]);

    const fn all(them: &[Known]) -> Known {
        let (mut all, mut at) = (0, 0);
        while at < them.len() {
            all |= them[at].0;
            at += 1;
        }
        Known(all)
    }

    /// Whether any of `other` is there.
    #[inline(always)]
    pub(crate) fn has(self, other: Known) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the first field is a Host field as nearly all clients write it, and the only one, and there
    /// is nothing that is judged but what tells of a body.
    #[inline(always)]
    pub(crate) fn is_simple(self) -> bool {
        self.0 & (Known::JUDGED.0 | Known::NOMINATES.0) & !Known::FRAMING.0 == Known::HOST.0
    }

    /// Whether the first field is such a Host field.
    #[inline(always)]
    pub(crate) fn host_is_first(self) -> bool {
        self.0 & (Known::HOST.0 | Known::HOST_UNCHECKED.0) == Known::HOST.0
    }

    #[inline(always)]
    fn insert(&mut self, other: Known) {
        self.0 |= other.0;
    }
}

/// What is gathered from the fields of a request before any of it is judged.
#[derive(Debug)]
pub(crate) struct Gathered<'b> {
    pub(crate) known: Known,
    pub(crate) options: Options,
    /// The lines that are not passed on as they are, but for a usual Host line before all others.
    pub(crate) hop_span: HopSpan,
    host: &'b [u8],
    framing: Framing<'b>,
}

/// What the fields of a request come to.
pub(crate) struct Meaning<'b> {
    pub(crate) host: Option<&'b [u8]>,
    pub(crate) body: Body,
    pub(crate) expect_continue: bool,
}

impl<'b> Gathered<'b> {
    /// What a head starts with that has a valid `host` in its first field, or something else there.
    #[inline(always)]
    pub(crate) fn new(version: Version, host: Option<&'b [u8]>) -> Self {
        Self {
            known: if host.is_some() { Known::HOST } else { Known::default() },
            options: Options::new(version),
            hop_span: HopSpan::default(),
            host: host.unwrap_or_default(),
            framing: Framing::default(),
        }
    }

    /// Takes in a field line, if it is one that matters; so many bytes follow it.
    #[inline(never)]
    pub(crate) fn take(&mut self, line: &'b [u8], name_len: usize, after: usize) {
        let Some((name, [_, value @ ..])) = line.split_at_checked(name_len) else {
            return;
        };
        let found = match name_len {
            3 if name.eq_ignore_ascii_case(b"via") => Known::HOPS,
            5 if same_name(name, b"range") => Known::RANGE,
            8 if same_name(name, b"if-match") => Known::IF_MATCH,
            8 if same_name(name, b"if-range") => Known::IF_RANGE,
            8 if same_name(name, b"cdn-loop") => Known::HOPS,
            10 if same_name(name, b"connection") => {
                if self.options.add(value) {
                    self.known.insert(Known::NOMINATES);
                }
                if self.options.are_too_many() {
                    self.known.insert(Known::TOO_MANY_OPTIONS);
                }
                return self.hop_span.add_dropped(line.len(), after);
            }
            13 if same_name(name, b"if-none-match") => Known::IF_NONE_MATCH,
            17 if same_name(name, b"if-modified-since") => Known::IF_MODIFIED_SINCE,
            19 if same_name(name, b"if-unmodified-since") => Known::IF_UNMODIFIED_SINCE,
            _ => return self.take_value(line, name, value, after),
        };
        self.known.insert(found);
    }

    /// Takes in a field of which more matters than that it is there, or that is not passed on.
    #[inline(never)]
    fn take_value(&mut self, line: &[u8], name: &[u8], value: &'b [u8], after: usize) {
        let value = trim(value);
        let is_length = name.len() == 14 && same_name(name, b"content-length");
        let is_coding = name.len() == 17 && same_name(name, b"transfer-encoding");
        if is_coding {
            self.hop_span.add_dropped(line.len(), after);
        } else if !(is_length && is_canonical_length(line)) && forward::is_looked_at(name) {
            self.hop_span.add(line.len(), after);
        }
        let found = match name.len() {
            4 if same_name(name, b"host") => {
                if self.known.has(Known::HOST) {
                    self.known.insert(Known::HOSTS);
                }
                self.known.insert(Known::HOST_UNCHECKED);
                self.host = value;
                Known::HOST
            }
            6 if same_name(name, b"expect") => match value.eq_ignore_ascii_case(b"100-continue") {
                true => Known::EXPECT,
                false => Known::EXPECT_OTHER,
            },
            7 if same_name(name, b"upgrade") => Known::UPGRADE,
            9 if same_name(name, b"forwarded") => Known::HOPS,
            15 if same_name(name, b"x-forwarded-for") => Known::HOPS,
            _ if is_length => {
                self.framing.content_length(value);
                Known::FRAMING
            }
            _ if is_coding => {
                self.framing.transfer_encoding(value);
                Known::FRAMING
            }
            _ => return,
        };
        self.known.insert(found);
    }

    /// Judges what was gathered.
    #[inline(always)]
    pub(crate) fn judge(&mut self, version: Version) -> Result<Meaning<'b>, Reject> {
        if self.known.0 & Known::JUDGED.0 == Known::HOST.0 {
            return Ok(Meaning { host: Some(self.host), body: Body::None, expect_continue: false });
        }
        self.judge_any(version)
    }

    /// [`Gathered::judge`] where there is more than a Host field that was found good.
    #[cold]
    #[inline(never)]
    fn judge_any(&mut self, version: Version) -> Result<Meaning<'b>, Reject> {
        let is_11 = version == Version::Http11;
        if self.known.has(Known::HOSTS) {
            return Err(Reject::bad("several Host fields"));
        }
        if self.known.has(Known::TOO_MANY_OPTIONS) {
            return Err(Reject::bad("too many Connection options"));
        }
        let host = self.known.has(Known::HOST).then_some(self.host);
        match host {
            Some(host) if !host.is_empty() && authority::split(host).is_none() => {
                return Err(Reject::bad("malformed Host field"));
            }
            None if is_11 => return Err(Reject::bad("no Host field")),
            _ => {}
        }
        let body = self.framing.body(version)?.unwrap_or(Body::None);
        // HTTP/1.0 knows neither Expect nor Upgrade: RFC 9110 sections 7.8 and 10.1.1.
        if is_11 && self.known.has(Known::EXPECT_OTHER) {
            return Err(Reject::new(417, "expectation other than 100-continue"));
        }
        if !(is_11 && self.options.names_upgrade()) {
            self.known.0 &= !Known::UPGRADE.0;
        }
        let expect_continue = is_11 && self.known.has(Known::EXPECT) && body != Body::None;
        Ok(Meaning { host, body, expect_continue })
    }
}

/// The names that [`Gathered::take`] knows, and those it takes in for an intermediary.
pub(crate) static NAMES: Lengths = Lengths::of(&[
    "host",
    "range",
    "expect",
    "upgrade",
    "if-match",
    "if-range",
    "connection",
    "if-none-match",
    "content-length",
    "transfer-encoding",
    "if-modified-since",
    "if-unmodified-since",
    // What follows matters to intermediaries only.
    "te",
    "proxy",
    "keep-alive",
    "http2-settings",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-authentication-info",
    "max-forwards",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-port",
    "x-forwarded-scheme",
    "x-forwarded-ssl",
    "x-forwarded-prefix",
    "x-forwarded-server",
    "x-real-ip",
    "true-client-ip",
    "via",
    "cdn-loop",
]);
