//! Requests encoded as bytes, validated before the first is sent and stored once each.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::Arc;

use hearken_http::Method;
use thiserror::Error;

use super::RequestTemplate;
use super::checks::Expect;
use crate::config::LoadError;
use crate::url::{Url, UrlError};

/// Maximum total size of all messages in bytes.
const MAX_TOTAL_BYTES: u64 = 4 << 30;

/// A method that HTTP does not define. Its name is irrelevant, because it does not affect the reply.
const EXTENSION_METHOD: Method<'static> = Method::Other(b"");

/// Methods defined by HTTP, except CONNECT.
const METHODS: [Method<'static>; 8] = [
    Method::Get,
    Method::Head,
    Method::Options,
    Method::Post,
    Method::Put,
    Method::Delete,
    Method::Trace,
    Method::Patch,
];

/// An encoded request.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) bytes: Box<[u8]>,
    /// Method, which determines the framing of the reply. Extension methods are `Method::Other(b"")`.
    pub(crate) method: Method<'static>,
    /// Checks of the reply.
    pub(crate) expect: Option<Arc<Expect>>,
}

/// A request of a workload, where it differs from the template.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    /// Path, or URL of the same server.
    pub(super) target: &'a str,
    pub(super) method: Option<&'a str>,
    pub(super) body: Option<&'a [u8]>,
    /// Names and values of header fields. Those of the template replace fields of the same name.
    pub(super) fields: &'a [(&'a str, &'a str)],
    pub(super) expect: Option<&'a Expect>,
}

impl<'a> Request<'a> {
    /// Creates a request that only overrides the target.
    pub(super) fn new(target: &'a str) -> Request<'a> {
        Request { target, method: None, body: None, fields: &[], expect: None }
    }
}

/// The reason for which a request is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(super) enum RequestError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("{0}")]
    Other(&'static str),
}

/// A builder of messages.
#[derive(Debug)]
pub(super) struct MessageBuilder<'a> {
    url: &'a Url,
    template: &'a RequestTemplate,
    /// Header fields of the template.
    custom: Vec<(&'a str, &'a str)>,
    /// Encoded header fields of requests without fields of their own.
    fields: String,
    messages: Vec<Message>,
    /// Index of each message by hash. On a collision, the next number is used.
    indices: HashMap<u64, u32>,
    hasher: RandomState,
    checks: HashMap<Expect, Arc<Expect>>,
    bytes: u64,
    draft: Vec<u8>,
}

impl<'a> MessageBuilder<'a> {
    pub(super) fn new(
        url: &'a Url,
        template: &'a RequestTemplate,
    ) -> Result<MessageBuilder<'a>, LoadError> {
        let method = parse_method(&template.method).map_err(LoadError::Config)?;
        if template.body.is_some() && method == Method::Trace {
            return Err(LoadError::Config(TRACE_BODY));
        }
        let custom = parse_fields(template)?;
        Ok(MessageBuilder {
            url,
            template,
            fields: encode_fields(url, &custom, &[]),
            custom,
            messages: Vec::new(),
            indices: HashMap::new(),
            hasher: RandomState::new(),
            checks: HashMap::new(),
            bytes: 0,
            draft: Vec::new(),
        })
    }

    /// Returns the index of the message for `request`, creating it if necessary.
    pub(super) fn add(&mut self, request: &Request<'_>) -> Result<u32, RequestError> {
        let common = &*self.template.method;
        let token = request.method.unwrap_or(common);
        let method = parse_method(token).map_err(RequestError::Other)?;
        let target = parse_target(self.url, request.target, method)?;
        // The common body applies only to the common method.
        let body = request.body.or(self.template.body.as_deref().filter(|_| token == common));
        if body.is_some() && method == Method::Trace {
            return Err(RequestError::Other(TRACE_BODY));
        }
        for (name, value) in request.fields {
            check_field(name, value).map_err(RequestError::Other)?;
        }
        let fields = match request.fields {
            [] => Cow::Borrowed(&*self.fields),
            // Sessions send their own cookies.
            own if self.template.cookies => {
                let is_cookie = |(name, _): &&(&str, _)| name.eq_ignore_ascii_case("cookie");
                let own: Vec<_> = own.iter().filter(|field| !is_cookie(field)).copied().collect();
                encode_fields(self.url, &self.custom, &own).into()
            }
            own => encode_fields(self.url, &self.custom, own).into(),
        };
        let draft = &mut self.draft;
        draft.clear();
        for part in [token, " ", &target, " HTTP/1.1\r\n", &fields] {
            draft.extend_from_slice(part.as_bytes());
        }
        // Some servers reject methods that usually have a body with 411 if the length is missing, even if
        // it is 0.
        if body.is_some() || [Method::Post, Method::Put, Method::Patch].contains(&method) {
            let length = body.unwrap_or_default().len();
            draft.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
        draft.extend_from_slice(b"\r\n");
        draft.extend_from_slice(body.unwrap_or_default());
        let expect = self.expect(request.expect, method);
        self.intern(method, expect)
    }

    fn expect(&mut self, own: Option<&Expect>, method: Method<'_>) -> Option<Arc<Expect>> {
        let expect = match (own, &self.template.expect) {
            (None, None) => return None,
            (Some(own), None) => own.clone(),
            (None, Some(common)) => common.clone(),
            (Some(own), Some(common)) => own.with_defaults(common),
        };
        let expect = if method == Method::Head { expect.without_content() } else { expect };
        let new = || Arc::new(expect.clone());
        expect
            .has_checks()
            .then(|| Arc::clone(self.checks.entry(expect.clone()).or_insert_with(new)))
    }

    /// Stores the draft unless an equal message exists. Returns the index of the message.
    fn intern(
        &mut self,
        method: Method<'static>,
        expect: Option<Arc<Expect>>,
    ) -> Result<u32, RequestError> {
        let mut hash = self.hasher.hash_one((&self.draft, &expect));
        loop {
            match self.indices.entry(hash) {
                Entry::Occupied(entry) => {
                    let index = *entry.get();
                    let existing = &self.messages[index as usize];
                    if *existing.bytes == *self.draft && existing.expect == expect {
                        return Ok(index);
                    }
                    hash = hash.wrapping_add(1);
                }
                Entry::Vacant(entry) => {
                    self.bytes += self.draft.len() as u64;
                    let index = u32::try_from(self.messages.len()).ok();
                    let index = index.filter(|_| self.bytes <= MAX_TOTAL_BYTES).ok_or(
                        RequestError::Other("requests up to this line exceed 4 GiB in total"),
                    )?;
                    let bytes = self.draft.as_slice().into();
                    self.messages.push(Message { bytes, method, expect });
                    return Ok(*entry.insert(index));
                }
            }
        }
    }

    pub(super) fn finish(self) -> Box<[Message]> {
        self.messages.into_boxed_slice()
    }
}

const TRACE_BODY: &str = "a TRACE request cannot have a body; omit the body or change the method";

fn is_token(text: &str) -> bool {
    let is_token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token_byte)
}

fn parse_method(token: &str) -> Result<Method<'static>, &'static str> {
    if !is_token(token) {
        return Err("invalid character in the method; expected a token such as GET");
    }
    let has_name = |method: &&Method<'_>| method.as_bytes().eq_ignore_ascii_case(token.as_bytes());
    match METHODS.iter().find(has_name) {
        Some(&method) if method.as_bytes() == token.as_bytes() => Ok(method),
        Some(_) => Err("invalid method; methods are case-sensitive, write it in capitals"),
        None if token.eq_ignore_ascii_case("CONNECT") => {
            Err("CONNECT is not supported as a method")
        }
        None => Ok(EXTENSION_METHOD),
    }
}

/// Returns the request-target for the request line.
fn parse_target<'t>(
    url: &Url,
    text: &'t str,
    method: Method<'_>,
) -> Result<Cow<'t, str>, RequestError> {
    if text.starts_with('/') {
        let path = text.split('#').next().unwrap_or_default();
        return match path.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Cow::Borrowed(path)),
            false => Err(UrlError::Path.into()),
        };
    }
    if text == "*" && method == Method::Options {
        return Ok(Cow::Borrowed(text));
    }
    if !text.contains("://") {
        return Err(RequestError::Other(
            "invalid target; expected '/PATH' or 'http://HOST:PORT/PATH'",
        ));
    }
    let other = Url::parse(text)?;
    match other.is_same_server(url) {
        true => Ok(Cow::Owned(other.target)),
        false => Err(RequestError::Other(
            "URL of another server; all requests must go to the server of the run's URL",
        )),
    }
}

/// Parses the header fields of the template into names and values.
fn parse_fields(template: &RequestTemplate) -> Result<Vec<(&str, &str)>, LoadError> {
    fn parse(field: &str, cookies: bool) -> Result<(&str, &str), &'static str> {
        let (name, value) = field.split_once(':').ok_or("no colon; expected 'NAME: VALUE'")?;
        check_field(name, value)?;
        match name.eq_ignore_ascii_case("cookie") && cookies {
            true => Err("the field is set from the cookies of each session; omit it"),
            false => Ok((name, value.trim())),
        }
    }
    let error = |field: &String, reason| LoadError::Header { field: field.clone(), reason };
    let fields = template.headers.iter();
    fields
        .map(|field| parse(field, template.cookies).map_err(|reason| error(field, reason)))
        .collect()
}

/// Checks that a header field can be sent and is not set automatically.
fn check_field(name: &str, value: &str) -> Result<(), &'static str> {
    if !is_token(name) {
        return Err("invalid character in the name; expected a token");
    }
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return Err("control character in the value");
    }
    if name.eq_ignore_ascii_case("expect") {
        return Err("the field is not supported; requests are sent without waiting for 100");
    }
    let automatic = ["content-length", "transfer-encoding"];
    match automatic.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
        true => Err("the field is set automatically; omit it"),
        false => Ok(()),
    }
}

/// Encodes header fields, with default values for `Host` and `User-Agent`. Fields in `custom` replace those of
/// the same name in `own`.
fn encode_fields(url: &Url, custom: &[(&str, &str)], own: &[(&str, &str)]) -> String {
    let defaults = [
        ("Host", &*url.authority),
        ("User-Agent", concat!("hearken-load/", env!("CARGO_PKG_VERSION"))),
    ];
    let contains = |fields: &[(&str, &str)], name: &str| {
        fields.iter().any(|(other, _)| name.eq_ignore_ascii_case(other))
    };
    let defaults = defaults.iter().filter(|(name, _)| !contains(own, name));
    let replaceable = defaults.chain(own).filter(|(name, _)| !contains(custom, name));
    let mut text = String::new();
    for (name, value) in replaceable.chain(custom) {
        text.extend([name, ": ", value, "\r\n"]);
    }
    text
}
