//! The server, and what it is asked.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use hearken::Token;
use hearken::io::{Body, Io, Outgoing};
use hearken_http::Method;

use crate::config::{Config, LoadError};
use crate::sources::Sources;
use crate::url::Url;

/// What requests and idle connections have in common.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    addr: SocketAddr,
    sources: Sources,
    /// The request, as it is sent.
    message: Vec<u8>,
    pub(crate) method: Method<'static>,
    pub(crate) timeout: Duration,
}

impl Target {
    pub(crate) fn new(config: &Config) -> Result<Target, LoadError> {
        let url = Url::parse(&config.url)
            .map_err(|reason| LoadError::Url { url: config.url.clone(), reason })?;
        let addr = resolve(&url)?;
        if let Some(&source) = config.sources.iter().find(|ip| ip.is_ipv4() != addr.is_ipv4()) {
            return Err(LoadError::Source { ip: source, addr });
        }
        let method = if config.head { Method::Head } else { Method::Get };
        let connections = config.idle.saturating_add(config.connections.get());
        Ok(Target {
            addr,
            sources: Sources::new(addr.ip(), &config.sources, connections),
            message: message(&url, method, &config.headers)?,
            method,
            timeout: config.timeout,
        })
    }

    /// For the thread at `index` of those that hold `connections` each.
    pub(crate) fn of_holder(&self, index: usize, connections: usize) -> Target {
        Target { sources: self.sources.of_holder(index, connections), ..self.clone() }
    }

    /// The server's address.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The request, as it is sent.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }

    /// How long a request is, in bytes.
    pub(crate) fn request_len(&self) -> u64 {
        self.message.len() as u64
    }

    /// Begins to connect.
    pub(crate) fn connect(&mut self, io: &mut impl Io) -> io::Result<Token> {
        self.sources.connect(io, self.addr)
    }

    /// Sends a request.
    pub(crate) fn ask(&self, io: &mut impl Io, on: Token) {
        let mut head = io.pool().lend_beyond();
        head.as_vec().extend_from_slice(&self.message);
        io.send(on, Outgoing { head, body: Body::None });
    }
}

fn resolve(url: &Url) -> Result<SocketAddr, LoadError> {
    let failed = |source| LoadError::Resolve { host: url.host.clone(), source };
    let found: Vec<_> = (url.host.as_str(), url.port).to_socket_addrs().map_err(failed)?.collect();
    // "localhost" is both, and more servers listen on 127.0.0.1 than on ::1.
    let first = found.iter().find(|addr| addr.is_ipv4()).or_else(|| found.first());
    first.copied().ok_or_else(|| failed(io::Error::other("it has no address")))
}

fn message(url: &Url, method: Method<'_>, fields: &[String]) -> Result<Vec<u8>, LoadError> {
    let bad = |field: &String, reason| LoadError::Header { field: field.clone(), reason };
    let mut given = Vec::new();
    for field in fields {
        let (name, value) = field
            .split_once(':')
            .ok_or_else(|| bad(field, "it has no colon; write NAME: VALUE"))?;
        let of_a_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(of_a_token) {
            return Err(bad(field, "its name has a character that no field name has"));
        }
        if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            return Err(bad(field, "its value has a control character"));
        }
        let name = name.to_ascii_lowercase();
        if ["content-length", "transfer-encoding", "expect"].contains(&&*name) {
            return Err(bad(field, "it speaks of a body, and requests have none here"));
        }
        given.push((name, value.trim()));
    }
    let mut text = format!("{} {} HTTP/1.1\r\n", method_name(method), url.target);
    for (name, value) in [
        ("Host", &*url.authority),
        ("User-Agent", concat!("hearken-load/", env!("CARGO_PKG_VERSION"))),
    ] {
        if !given.iter().any(|(other, _)| name.eq_ignore_ascii_case(other)) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    for (name, value) in &given {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    Ok(text.into_bytes())
}

fn method_name(method: Method<'_>) -> &'static str {
    if method == Method::Head { "HEAD" } else { "GET" }
}

#[cfg(test)]
mod tests {
    use hearken_http::{Limits, Method, RequestParser};

    use super::{Url, message};

    fn text(url: &str, fields: &[&str]) -> Result<String, String> {
        let fields: Vec<_> = fields.iter().map(|&field| field.to_owned()).collect();
        let message = message(&Url::parse(url).unwrap(), Method::Get, &fields);
        let message = message.map_err(|error| error.to_string())?;
        let parsed = RequestParser::new().parse(&message, &Limits::default()).unwrap().unwrap();
        assert_eq!(parsed.head_len, message.len());
        Ok(String::from_utf8(message).unwrap())
    }

    #[test]
    fn a_request_is_what_it_should_be() {
        let plain = text("http://h:81/a?b", &[]).unwrap();
        assert!(plain.starts_with("GET /a?b HTTP/1.1\r\nHost: h:81\r\nUser-Agent: hearken-load/"));
        let own = text("http://h/", &["HOST: other", "X-A:  b "]).unwrap();
        assert!(!own.contains("Host: h\r\n"), "{own}");
        assert!(own.contains("host: other\r\nx-a: b\r\n\r\n"), "{own}");
    }

    #[test]
    fn bad_fields_are_refused() {
        for field in ["", "none", ": v", "a b: c", "a: b\r\nc: d", "Content-Length: 5", "é: x"] {
            let error = text("http://h/", &[field]).unwrap_err();
            assert!(error.contains("header"), "{error}");
        }
    }
}
