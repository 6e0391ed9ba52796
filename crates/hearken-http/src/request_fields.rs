//! Collection and validation of the fields of a request.

use crate::authority;
use crate::class::{eq_ignore_case, trim};
use crate::error::Reject;
use crate::forward;
use crate::framing::{Body, ConnectionOptions, Framing, is_canonical_length};
use crate::name_filter::NameFilter;
use crate::rewrite_span::RewriteSpan;
use crate::version::Version;

/// The set of relevant fields that are present in a request, with properties of their values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FieldSet(u16);

impl FieldSet {
    pub(crate) const RANGE: FieldSet = FieldSet(1);
    pub(crate) const IF_MATCH: FieldSet = FieldSet(1 << 1);
    pub(crate) const IF_MODIFIED_SINCE: FieldSet = FieldSet(1 << 2);
    pub(crate) const IF_NONE_MATCH: FieldSet = FieldSet(1 << 3);
    pub(crate) const IF_UNMODIFIED_SINCE: FieldSet = FieldSet(1 << 4);
    pub(crate) const IF_RANGE: FieldSet = FieldSet(1 << 5);
    pub(crate) const UPGRADE: FieldSet = FieldSet(1 << 6);
    /// An expectation of `100-continue`.
    const EXPECT: FieldSet = FieldSet(1 << 7);
    /// An expectation other than `100-continue`.
    const EXPECT_OTHER: FieldSet = FieldSet(1 << 8);
    /// Content-Length or Transfer-Encoding.
    const FRAMING: FieldSet = FieldSet(1 << 9);
    /// A Host field.
    const HOST: FieldSet = FieldSet(1 << 10);
    /// A Host field that has not been validated.
    const HOST_UNCHECKED: FieldSet = FieldSet(1 << 11);
    /// More than one Host field.
    const HOSTS: FieldSet = FieldSet(1 << 12);
    /// Connection options that name fields which are not hop-by-hop fields in every message.
    pub(crate) const NOMINATED: FieldSet = FieldSet(1 << 13);
    /// More Connection options than the limit.
    const TOO_MANY_OPTIONS: FieldSet = FieldSet(1 << 14);
    /// Via, X-Forwarded-For, Forwarded or CDN-Loop, which intermediaries append to.
    pub(crate) const HOPS: FieldSet = FieldSet(1 << 15);

    /// Fields that select a part of a representation or make a request conditional.
    pub(crate) const SELECTIVE: FieldSet = FieldSet::union(&[
        FieldSet::RANGE,
        FieldSet::IF_MATCH,
        FieldSet::IF_MODIFIED_SINCE,
        FieldSet::IF_NONE_MATCH,
        FieldSet::IF_UNMODIFIED_SINCE,
    ]);

    /// Fields that require validation. In nearly all heads, only [`FieldSet::HOST`] is present.
    const VALIDATED: FieldSet = FieldSet::union(&[
        FieldSet::UPGRADE,
        FieldSet::EXPECT,
        FieldSet::EXPECT_OTHER,
        FieldSet::FRAMING,
        FieldSet::HOST,
        FieldSet::HOST_UNCHECKED,
        FieldSet::HOSTS,
        FieldSet::TOO_MANY_OPTIONS,
    ]);

    const fn union(sets: &[FieldSet]) -> FieldSet {
        let (mut bits, mut index) = (0, 0);
        while index < sets.len() {
            bits |= sets[index].0;
            index += 1;
        }
        FieldSet(bits)
    }

    /// Returns whether any of `other` is present.
    #[inline(always)]
    pub(crate) fn has(self, other: FieldSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether the first field is the only Host field and in its common form, and no fields other
    /// than framing fields require validation.
    #[inline(always)]
    pub(crate) fn is_simple(self) -> bool {
        self.0 & (FieldSet::VALIDATED.0 | FieldSet::NOMINATED.0) & !FieldSet::FRAMING.0
            == FieldSet::HOST.0
    }

    /// Returns whether the first field is a Host field in its common form.
    #[inline(always)]
    pub(crate) fn host_is_first(self) -> bool {
        self.0 & (FieldSet::HOST.0 | FieldSet::HOST_UNCHECKED.0) == FieldSet::HOST.0
    }

    #[inline(always)]
    fn insert(&mut self, other: FieldSet) {
        self.0 |= other.0;
    }
}

/// The fields of a request before validation.
#[derive(Debug)]
pub(crate) struct RequestFields<'b> {
    pub(crate) present: FieldSet,
    pub(crate) options: ConnectionOptions,
    /// Span of the lines that are not forwarded unchanged, except for a common Host line before all others.
    pub(crate) rewrite_span: RewriteSpan,
    host: &'b [u8],
    framing: Framing<'b>,
}

/// The validated fields of a request.
pub(crate) struct ValidFields<'b> {
    pub(crate) host: Option<&'b [u8]>,
    pub(crate) body: Body,
    pub(crate) expect_continue: bool,
}

impl<'b> RequestFields<'b> {
    /// Creates the state for a head, with the valid `host` of its first field if it is a common Host line.
    #[inline(always)]
    pub(crate) fn new(version: Version, host: Option<&'b [u8]>) -> Self {
        Self {
            present: if host.is_some() { FieldSet::HOST } else { FieldSet::default() },
            options: ConnectionOptions::new(version),
            rewrite_span: RewriteSpan::default(),
            host: host.unwrap_or_default(),
            framing: Framing::default(),
        }
    }

    /// Adds a field line if it is relevant. `after` bytes follow the line.
    #[inline(never)]
    pub(crate) fn add(&mut self, line: &'b [u8], name_len: usize, after: usize) {
        let Some((name, [_, value @ ..])) = line.split_at_checked(name_len) else {
            return;
        };
        let found = match name_len {
            3 if name.eq_ignore_ascii_case(b"via") => FieldSet::HOPS,
            5 if eq_ignore_case(name, b"range") => FieldSet::RANGE,
            8 if eq_ignore_case(name, b"if-match") => FieldSet::IF_MATCH,
            8 if eq_ignore_case(name, b"if-range") => FieldSet::IF_RANGE,
            8 if eq_ignore_case(name, b"cdn-loop") => FieldSet::HOPS,
            10 if eq_ignore_case(name, b"connection") => {
                if self.options.add(value) {
                    self.present.insert(FieldSet::NOMINATED);
                }
                if self.options.exceeds_limit() {
                    self.present.insert(FieldSet::TOO_MANY_OPTIONS);
                }
                return self.rewrite_span.add_removed(line.len(), after);
            }
            13 if eq_ignore_case(name, b"if-none-match") => FieldSet::IF_NONE_MATCH,
            17 if eq_ignore_case(name, b"if-modified-since") => FieldSet::IF_MODIFIED_SINCE,
            19 if eq_ignore_case(name, b"if-unmodified-since") => FieldSet::IF_UNMODIFIED_SINCE,
            _ => return self.add_value(line, name, value, after),
        };
        self.present.insert(found);
    }

    /// Adds a field whose value is relevant or that is not forwarded unchanged.
    #[inline(never)]
    fn add_value(&mut self, line: &[u8], name: &[u8], value: &'b [u8], after: usize) {
        let value = trim(value);
        let is_length = name.len() == 14 && eq_ignore_case(name, b"content-length");
        let is_coding = name.len() == 17 && eq_ignore_case(name, b"transfer-encoding");
        if is_coding {
            self.rewrite_span.add_removed(line.len(), after);
        } else if !(is_length && is_canonical_length(line)) && forward::is_rewritten(name) {
            self.rewrite_span.add(line.len(), after);
        }
        let found = match name.len() {
            4 if eq_ignore_case(name, b"host") => {
                if self.present.has(FieldSet::HOST) {
                    self.present.insert(FieldSet::HOSTS);
                }
                self.present.insert(FieldSet::HOST_UNCHECKED);
                self.host = value;
                FieldSet::HOST
            }
            6 if eq_ignore_case(name, b"expect") => {
                match value.eq_ignore_ascii_case(b"100-continue") {
                    true => FieldSet::EXPECT,
                    false => FieldSet::EXPECT_OTHER,
                }
            }
            7 if eq_ignore_case(name, b"upgrade") => FieldSet::UPGRADE,
            9 if eq_ignore_case(name, b"forwarded") => FieldSet::HOPS,
            15 if eq_ignore_case(name, b"x-forwarded-for") => FieldSet::HOPS,
            _ if is_length => {
                self.framing.set_content_length(value);
                FieldSet::FRAMING
            }
            _ if is_coding => {
                self.framing.set_transfer_encoding(value);
                FieldSet::FRAMING
            }
            _ => return,
        };
        self.present.insert(found);
    }

    /// Validates the collected fields.
    #[inline(always)]
    pub(crate) fn validate(&mut self, version: Version) -> Result<ValidFields<'b>, Reject> {
        if self.present.0 & FieldSet::VALIDATED.0 == FieldSet::HOST.0 {
            return Ok(ValidFields {
                host: Some(self.host),
                body: Body::None,
                expect_continue: false,
            });
        }
        self.validate_other(version)
    }

    /// Validates fields other than a single valid Host field.
    #[cold]
    #[inline(never)]
    fn validate_other(&mut self, version: Version) -> Result<ValidFields<'b>, Reject> {
        let is_11 = version == Version::Http11;
        if self.present.has(FieldSet::HOSTS) {
            return Err(Reject::bad("repeated Host field"));
        }
        if self.present.has(FieldSet::TOO_MANY_OPTIONS) {
            return Err(Reject::bad("more than 32 options in the Connection fields"));
        }
        let host = self.present.has(FieldSet::HOST).then_some(self.host);
        match host {
            Some(host) if !host.is_empty() && authority::split(host).is_none() => {
                return Err(Reject::bad("invalid Host field: expected 'host' or 'host:port'"));
            }
            None if is_11 => return Err(Reject::bad("missing Host field in an HTTP/1.1 request")),
            _ => {}
        }
        let body = self.framing.body(version)?.unwrap_or(Body::None);
        // HTTP/1.0 has neither Expect nor Upgrade: RFC 9110 sections 7.8 and 10.1.1.
        if is_11 && self.present.has(FieldSet::EXPECT_OTHER) {
            return Err(Reject::new(417, "unsupported expectation: expected '100-continue'"));
        }
        if !(is_11 && self.options.contains_upgrade()) {
            self.present.0 &= !FieldSet::UPGRADE.0;
        }
        let expect_continue = is_11 && self.present.has(FieldSet::EXPECT) && body != Body::None;
        Ok(ValidFields { host, body, expect_continue })
    }
}

/// Names of the fields that are relevant to [`RequestFields::add`] or to intermediaries.
pub(crate) static NAMES: NameFilter = NameFilter::new(&[
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
    // The names below are relevant to intermediaries only.
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
