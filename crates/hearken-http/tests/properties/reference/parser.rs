//! A slow parser that is simple enough to be verified by reading it.

use std::net::Ipv6Addr;

use hearken_http::{Body, Limits};

/// All properties of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) method: Vec<u8>,
    pub(crate) target: Vec<u8>,
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) is_11: bool,
    pub(crate) host: Option<Vec<u8>>,
    pub(crate) body: Body,
    pub(crate) keep_alive: bool,
    pub(crate) expect_continue: bool,
    pub(crate) upgrade: Option<Vec<u8>>,
    pub(crate) is_plain: bool,
    /// Values of [`FIELDS_WITH_METHODS`]: lists are joined, and other repeated fields are empty.
    pub(crate) field_values: Vec<Option<Vec<u8>>>,
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) head_len: usize,
}

/// Fields that `Request` has methods for. All except the last make a request conditional or partial.
pub(crate) const FIELDS_WITH_METHODS: [&str; 6] =
    ["range", "if-match", "if-modified-since", "if-none-match", "if-unmodified-since", "if-range"];

/// The reason for which there is no request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Incomplete,
    Rejected(u16),
}

const BAD: Failure = Failure::Rejected(400);

/// A reader that consumes bytes one by one.
struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    fn run(&mut self, fits: impl Fn(u8) -> bool) -> &'b [u8] {
        let length = self.rest.iter().take_while(|&&byte| fits(byte)).count();
        let (run, rest) = self.rest.split_at(length);
        self.rest = rest;
        run
    }

    /// Consumes exactly these bytes.
    fn expect(&mut self, wanted: &[u8]) -> Result<(), Failure> {
        for &byte in wanted {
            match self.rest.split_first() {
                None => return Err(Failure::Incomplete),
                Some((&next, rest)) if next == byte => self.rest = rest,
                Some(_) => return Err(BAD),
            }
        }
        Ok(())
    }

    fn next(&mut self, fits: impl Fn(u8) -> bool) -> Result<u8, Failure> {
        let &byte = self.rest.first().ok_or(Failure::Incomplete)?;
        self.expect(&[byte])?;
        if fits(byte) { Ok(byte) } else { Err(BAD) }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 127)
}

fn trim(bytes: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = bytes.iter().take_while(|byte| is_blank(byte)).count();
    let end = bytes.iter().rev().take_while(|byte| is_blank(byte)).count();
    bytes.get(start..bytes.len() - end).unwrap_or_default()
}

/// Parses `host [":" port]`. Returns whether the port contains digits.
fn authority(bytes: &[u8]) -> Option<bool> {
    let text = str::from_utf8(bytes).ok()?;
    let (host, port) = match text.strip_prefix('[') {
        Some(inner) => {
            let (address, after) = inner.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            ("v6", if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=".contains(c);
    if host.is_empty() || !host.chars().all(is_host) {
        return None;
    }
    let port = port.unwrap_or_default();
    let is_port = port.len() <= 5
        && port.chars().all(|c| c.is_ascii_digit())
        && (port.is_empty() || port.parse::<u32>().unwrap() < 65536);
    is_port.then_some(!port.is_empty())
}

/// The authority and the path of a target.
type Parts = (Option<Vec<u8>>, Option<Vec<u8>>);

fn target_parts(method: &[u8], target: &[u8]) -> Option<Parts> {
    if method == b"CONNECT" {
        return authority(target)?.then_some((None, None));
    }
    if target == b"*" && method == b"OPTIONS" {
        return Some((None, None));
    }
    let before_query = target.split(|&byte| byte == b'?').next()?;
    if before_query.starts_with(b"/") {
        return Some((None, Some(before_query.to_vec())));
    }
    let text = str::from_utf8(before_query).ok()?;
    let (scheme, rest) = text.split_once("://")?;
    if !["http", "https"].contains(&&*scheme.to_ascii_lowercase()) {
        return None;
    }
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    authority(host.as_bytes())?;
    let path = if path.is_empty() { "/" } else { path };
    Some((Some(host.as_bytes().to_vec()), Some(path.as_bytes().to_vec())))
}

fn body(is_11: bool, lengths: &[&[u8]], codings: &[&[u8]]) -> Result<Body, Failure> {
    match (lengths, codings) {
        ([], []) => Ok(Body::None),
        ([length], []) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
            match str::from_utf8(length).unwrap().parse() {
                Ok(0) => Ok(Body::None),
                Ok(length) => Ok(Body::Length(length)),
                Err(_) => Err(BAD),
            }
        }
        ([], [coding]) if is_11 => {
            let coding = coding.to_ascii_lowercase();
            let mut list: Vec<_> = coding.split(|&byte| byte == b',').map(trim).collect();
            let last = list.pop().unwrap();
            let is_other =
                |coding: &&[u8]| !coding.is_empty() && coding.iter().all(|&byte| is_token(byte));
            match last {
                b"chunked" if list.is_empty() => Ok(Body::Chunked),
                b"chunked" if list.iter().all(is_other) && !list.contains(&&b"chunked"[..]) => {
                    Err(Failure::Rejected(501))
                }
                _ => Err(BAD),
            }
        }
        _ => Err(BAD),
    }
}

/// Parses the request that `bytes` starts with.
pub(crate) fn parse(bytes: &[u8], limits: &Limits) -> Result<Parsed, Failure> {
    let window = &bytes[..bytes.len().min(limits.max_head_bytes)];
    match read(window, limits) {
        Err(Failure::Incomplete) if window.len() < bytes.len() => Err(Failure::Rejected(431)),
        result => result,
    }
}

fn read(bytes: &[u8], limits: &Limits) -> Result<Parsed, Failure> {
    let mut reader = Reader { rest: bytes };
    if bytes.starts_with(b"\r") {
        reader.expect(b"\r\n")?;
    }
    let method = reader.run(is_token);
    if method.len() > 32 {
        return Err(Failure::Rejected(501));
    }
    reader.expect(b" ")?;
    if method.is_empty() {
        return Err(BAD);
    }
    let target = reader.run(|byte| byte.is_ascii_graphic() && byte != b'#');
    if target.len() > limits.max_target_bytes {
        return Err(Failure::Rejected(414));
    }
    reader.expect(b" ")?;
    let (absolute, path) = match target_parts(method, target) {
        Some(parts) if !target.is_empty() => parts,
        _ => return Err(BAD),
    };
    reader.expect(b"HTTP/")?;
    let major = reader.next(|byte| byte.is_ascii_digit())?;
    reader.expect(b".")?;
    let is_11 = reader.next(|byte| byte.is_ascii_digit())? != b'0';
    reader.expect(b"\r\n")?;
    if major != b'1' {
        return Err(Failure::Rejected(505));
    }

    let mut fields = Vec::new();
    while !reader.rest.starts_with(b"\r") {
        let name = reader.run(is_token);
        reader.expect(b":")?;
        if name.is_empty() {
            return Err(BAD);
        }
        let value = trim(reader.run(is_text));
        reader.expect(b"\r\n")?;
        fields.push((name.to_vec(), value.to_vec()));
        if fields.len() > limits.max_fields {
            return Err(Failure::Rejected(431));
        }
    }
    reader.expect(b"\r\n")?;

    let all = |wanted: &str| -> Vec<&[u8]> {
        let is_wanted =
            |field: &&(Vec<u8>, Vec<u8>)| field.0.eq_ignore_ascii_case(wanted.as_bytes());
        fields.iter().filter(is_wanted).map(|field| &*field.1).collect()
    };
    let first = |wanted: &str| all(wanted).first().map(|value| value.to_vec());
    let host = match all("host")[..] {
        [] if is_11 => return Err(BAD),
        [] => None,
        [b""] => Some(Vec::new()),
        [host] if authority(host).is_some() => Some(host.to_vec()),
        _ => return Err(BAD),
    };
    if all("connection").join(&b","[..]).iter().filter(|&&byte| byte == b',').count() > 31 {
        return Err(BAD);
    }
    let body = body(is_11, &all("content-length"), &all("transfer-encoding"))?;
    let expectations = all("expect");
    if is_11 && expectations.iter().any(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
        return Err(Failure::Rejected(417));
    }
    let connection = all("connection").join(&b","[..]).to_ascii_lowercase();
    let has_option =
        |option: &[u8]| connection.split(|&byte| byte == b',').any(|other| trim(other) == option);
    let field_values: Vec<_> = FIELDS_WITH_METHODS
        .into_iter()
        .map(|name| match all(name)[..] {
            [] => None,
            [value] => Some(value.to_vec()),
            ref repeated if name.ends_with("match") => Some(repeated.join(&b","[..])),
            _ => Some(Vec::new()),
        })
        .collect();
    Ok(Parsed {
        method: method.to_vec(),
        target: target.to_vec(),
        path,
        is_11,
        host: absolute.or(host),
        body,
        keep_alive: !has_option(b"close") && (is_11 || has_option(b"keep-alive")),
        expect_continue: is_11 && body != Body::None && !expectations.is_empty(),
        upgrade: first("upgrade").filter(|_| is_11 && has_option(b"upgrade")),
        is_plain: field_values[..5].iter().all(Option::is_none),
        field_values,
        head_len: bytes.len() - reader.rest.len(),
        fields,
    })
}
