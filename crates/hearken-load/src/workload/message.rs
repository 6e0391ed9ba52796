//! Requests as bytes: made and checked before the first is sent, each kept once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::Arc;

use hearken_http::Method;
use thiserror::Error;

use super::Asking;
use super::expect::Expect;
use crate::config::LoadError;
use crate::url::{Url, UrlError};

/// All messages together have no more bytes.
const BYTES_MAX: u64 = 4 << 30;

/// What a method is called that HTTP itself does not define: nothing, since it does not say where
/// the reply ends.
const OTHER: Method<'static> = Method::Other(b"");

/// The methods that are known, but CONNECT.
const KNOWN: [Method<'static>; 8] = [
    Method::Get,
    Method::Head,
    Method::Options,
    Method::Post,
    Method::Put,
    Method::Delete,
    Method::Trace,
    Method::Patch,
];

/// A request, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) bytes: Box<[u8]>,
    /// Decides where the reply ends; [`Method::Other`] of nothing for what has no name here.
    pub(crate) method: Method<'static>,
    /// What the reply must be.
    pub(crate) expect: Option<Arc<Expect>>,
}

/// A request of a workload, where it differs from the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    /// A path, or a URL of the same server.
    pub(super) target: &'a str,
    pub(super) method: Option<&'a str>,
    pub(super) body: Option<&'a [u8]>,
    pub(super) expect: Option<&'a Expect>,
}

impl<'a> Request<'a> {
    /// As all others.
    pub(super) fn of(target: &'a str) -> Request<'a> {
        Request { target, method: None, body: None, expect: None }
    }
}

/// Why a request cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(super) enum Unsendable {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("{0}")]
    Other(&'static str),
}

/// Makes messages.
#[derive(Debug)]
pub(super) struct Maker<'a> {
    url: &'a Url,
    asking: &'a Asking,
    /// The fields that all requests have.
    fields: String,
    messages: Vec<Message>,
    /// Where to find each, by a hash; by the next number where that is taken.
    known: HashMap<u64, u32>,
    hashing: RandomState,
    expects: HashMap<Expect, Arc<Expect>>,
    bytes: u64,
    draft: Vec<u8>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(url: &'a Url, asking: &'a Asking) -> Result<Maker<'a>, LoadError> {
        let method = method(&asking.method).map_err(LoadError::Config)?;
        if asking.body.is_some() && method == Method::Trace {
            return Err(LoadError::Config(TRACE_BODY));
        }
        Ok(Maker {
            url,
            asking,
            fields: fields(url, &asking.headers)?,
            messages: Vec::new(),
            known: HashMap::new(),
            hashing: RandomState::new(),
            expects: HashMap::new(),
            bytes: 0,
            draft: Vec::new(),
        })
    }

    /// The index of the message for `request`.
    pub(super) fn add(&mut self, request: &Request<'_>) -> Result<u32, Unsendable> {
        let common = &*self.asking.method;
        let token = request.method.unwrap_or(common);
        let method = method(token).map_err(Unsendable::Other)?;
        let target = target(self.url, request.target, method)?;
        // The common body is of the common method.
        let body = request.body.or(self.asking.body.as_deref().filter(|_| token == common));
        if body.is_some() && method == Method::Trace {
            return Err(Unsendable::Other(TRACE_BODY));
        }
        let draft = &mut self.draft;
        draft.clear();
        for part in [token, " ", &target, " HTTP/1.1\r\n", &self.fields] {
            draft.extend_from_slice(part.as_bytes());
        }
        // Some servers refuse a request by a method that usually has a body if its length is not
        // said (411), be it 0.
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
        let expect = match (own, &self.asking.expect) {
            (None, None) => return None,
            (Some(one), None) => one.clone(),
            (None, Some(common)) => common.clone(),
            (Some(own), Some(common)) => own.with(common),
        };
        let expect = if method == Method::Head { expect.without_content() } else { expect };
        let shared = || Arc::new(expect.clone());
        expect.asks().then(|| Arc::clone(self.expects.entry(expect.clone()).or_insert_with(shared)))
    }

    /// Keeps the draft, if it is not yet kept.
    fn intern(
        &mut self,
        method: Method<'static>,
        expect: Option<Arc<Expect>>,
    ) -> Result<u32, Unsendable> {
        let mut hash = self.hashing.hash_one((&self.draft, &expect));
        loop {
            match self.known.entry(hash) {
                Entry::Occupied(place) => {
                    let index = *place.get();
                    let known = &self.messages[index as usize];
                    if *known.bytes == *self.draft && known.expect == expect {
                        return Ok(index);
                    }
                    hash = hash.wrapping_add(1);
                }
                Entry::Vacant(place) => {
                    self.bytes += self.draft.len() as u64;
                    let index = u32::try_from(self.messages.len()).ok();
                    let index = index
                        .filter(|_| self.bytes <= BYTES_MAX)
                        .ok_or(Unsendable::Other("the requests up to here have more than 4 GiB"))?;
                    let bytes = self.draft.as_slice().into();
                    self.messages.push(Message { bytes, method, expect });
                    return Ok(*place.insert(index));
                }
            }
        }
    }

    pub(super) fn finish(self) -> Box<[Message]> {
        self.messages.into_boxed_slice()
    }
}

const TRACE_BODY: &str = "a TRACE request has no body; leave one of both out";

fn is_token(text: &str) -> bool {
    let of_a_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(of_a_token)
}

fn method(token: &str) -> Result<Method<'static>, &'static str> {
    if !is_token(token) {
        return Err("the method has a character that no method has; write GET, POST or such");
    }
    let named = |method: &&Method<'_>| method.as_bytes().eq_ignore_ascii_case(token.as_bytes());
    match KNOWN.iter().find(named) {
        Some(&method) if method.as_bytes() == token.as_bytes() => Ok(method),
        Some(_) => Err("methods are written in capitals: GET, POST or such"),
        None if token.eq_ignore_ascii_case("CONNECT") => {
            Err("CONNECT makes a tunnel of the connection; ask for something else")
        }
        None => Ok(OTHER),
    }
}

/// What stands in the request line.
fn target<'t>(url: &Url, text: &'t str, method: Method<'_>) -> Result<Cow<'t, str>, Unsendable> {
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
        return Err(Unsendable::Other(
            "it asks for neither a path nor a URL; write /PATH or http://HOST:PORT/PATH",
        ));
    }
    let other = Url::parse(text)?;
    // What a server is known by: all but what is asked of it, and how it is spelled.
    let server = |url: &Url| Url {
        host: url.host.to_ascii_lowercase(),
        authority: String::new(),
        target: String::new(),
        ..url.clone()
    };
    match server(&other) == server(url) {
        true => Ok(Cow::Owned(other.target)),
        false => Err(Unsendable::Other(
            "it is of another server than the URL of the run; one run asks one server",
        )),
    }
}

/// The fields of all requests, with `Host` and `User-Agent` where they are not given.
fn fields(url: &Url, headers: &[String]) -> Result<String, LoadError> {
    let bad = |field: &String, reason| LoadError::Header { field: field.clone(), reason };
    let mut given = Vec::new();
    for field in headers {
        let (name, value) = field
            .split_once(':')
            .ok_or_else(|| bad(field, "it has no colon; write NAME: VALUE"))?;
        if !is_token(name) {
            return Err(bad(field, "its name has a character that no field name has"));
        }
        if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            return Err(bad(field, "its value has a control character"));
        }
        if name.eq_ignore_ascii_case("expect") {
            return Err(bad(field, "requests are sent whole, and wait for no 100 (Continue)"));
        }
        if ["content-length", "transfer-encoding"].iter().any(|no| name.eq_ignore_ascii_case(no)) {
            return Err(bad(
                field,
                "the length of a body is said where there is one; leave it out",
            ));
        }
        given.push((name, value.trim()));
    }
    let mut text = String::new();
    for (name, value) in [
        ("Host", &*url.authority),
        ("User-Agent", concat!("hearken-load/", env!("CARGO_PKG_VERSION"))),
    ] {
        if !given.iter().any(|(other, _)| name.eq_ignore_ascii_case(other)) {
            text.extend([name, ": ", value, "\r\n"]);
        }
    }
    for (name, value) in &given {
        text.extend([name, ": ", value, "\r\n"]);
    }
    Ok(text)
}
