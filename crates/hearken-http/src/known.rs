//! The fields of a request that a server asks for.

use crate::authority;
use crate::class::{same_name, trim};
use crate::error::Reject;
use crate::framing::{Body, Framing, Options};
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
            host: host.unwrap_or_default(),
            framing: Framing::default(),
        }
    }

    /// Takes in a field line, if it is one that matters.
    #[inline(never)]
    pub(crate) fn take(&mut self, line: &'b [u8], name_len: usize) {
        let Some((name, [_, value @ ..])) = line.split_at_checked(name_len) else {
            return;
        };
        let found = match name_len {
            5 if same_name(name, b"range") => Known::RANGE,
            7 if same_name(name, b"upgrade") => Known::UPGRADE,
            8 if same_name(name, b"if-match") => Known::IF_MATCH,
            8 if same_name(name, b"if-range") => Known::IF_RANGE,
            10 if same_name(name, b"connection") => return self.options.add(value),
            13 if same_name(name, b"if-none-match") => Known::IF_NONE_MATCH,
            17 if same_name(name, b"if-modified-since") => Known::IF_MODIFIED_SINCE,
            19 if same_name(name, b"if-unmodified-since") => Known::IF_UNMODIFIED_SINCE,
            _ => return self.take_value(name, value),
        };
        self.known.insert(found);
    }

    /// Takes in a field of which more matters than that it is there.
    #[inline(never)]
    fn take_value(&mut self, name: &[u8], value: &'b [u8]) {
        let value = trim(value);
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
            14 if same_name(name, b"content-length") => {
                self.framing.content_length(value);
                Known::FRAMING
            }
            17 if same_name(name, b"transfer-encoding") => {
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

/// Whether the name that is the first `len` bytes of `line` may be one that [`Gathered::take`] knows:
/// by its first letter and its length, which rule out nearly all others.
#[inline(always)]
pub(crate) fn may_matter(line: &[u8], len: usize) -> bool {
    line.first().is_some_and(|first| LENGTHS[usize::from(first & 31)] >> (len & 31) & 1 != 0)
}

/// For each letter, whatever its case, the lengths of the names that start with it.
static LENGTHS: [u32; 32] = {
    let mut lengths = [0; 32];
    let mut at = 0;
    while at < NAMES.len() {
        let name = NAMES[at].as_bytes();
        lengths[(name[0] & 31) as usize] |= 1 << name.len();
        at += 1;
    }
    lengths
};

const NAMES: [&str; 12] = [
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
];
