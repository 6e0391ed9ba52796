//! Where a server is, as `--to` and the file say it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU16;

use hearken_server::proxy::config::{Address, Server};

/// The longest path of a socket: the kernel's field, less the byte that ends it.
const LONGEST_PATH: usize = 107;

/// Parses `http://HOST[:PORT]`, `HOST:PORT` or `unix:/PATH`, and `;weight=N` and `;backup` after it.
pub(crate) fn server(text: &str) -> Result<Server, String> {
    let mut parts = text.split(';');
    let mut server = Server::new(address(parts.next().unwrap_or_default())?);
    let mut weighted = false;
    for part in parts {
        match part.split_once('=') {
            Some(("weight", _)) if weighted => return Err("weight is given twice".to_owned()),
            Some(("weight", value)) => (server.weight, weighted) = (weight(value)?, true),
            None if part == "backup" && server.backup => {
                return Err("backup is given twice".to_owned());
            }
            None if part == "backup" => server.backup = true,
            _ => {
                return Err(format!("unknown parameter \"{part}\"; known are weight=N and backup"));
            }
        }
    }
    Ok(server)
}

pub(crate) fn weight(text: &str) -> Result<NonZeroU16, String> {
    text.parse().map_err(|_| format!("\"{text}\" is no weight; write 1 to 65535"))
}

pub(crate) fn address(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return unix(path);
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return bare(text);
    };
    match scheme.to_ascii_lowercase().as_str() {
        "http" => {}
        "https" => {
            return Err(
                "TLS to servers is not supported; write http://, to a port without TLS".to_owned()
            );
        }
        _ => return Err(format!("scheme \"{scheme}\" is not supported; write http:// or unix:")),
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    if authority.contains('@') {
        return Err("a user's name is not sent to servers; write http://HOST:PORT".to_owned());
    }
    match after.chars().next() {
        // The empty path, as it is written in full.
        None => {}
        Some('/') if after == "/" => {}
        Some('/') => {
            return Err(format!("requests keep their own paths; leave \"{after}\" out"));
        }
        Some(_) => return Err(format!("requests keep their own queries; leave \"{after}\" out")),
    }
    host_port(authority, Some(80)).map_err(|what| format!("{what}; write http://HOST:PORT"))
}

/// `HOST:PORT`.
fn bare(text: &str) -> Result<Address, String> {
    if let Some(end) = text.find(['/', '?', '#', '@']) {
        let what = &text[end..];
        return Err(format!("\"{what}\" has no place in HOST:PORT; write http://HOST:PORT"));
    }
    host_port(text, None).map_err(|what| format!("{what}; write http://HOST:PORT or unix:/PATH"))
}

/// Parses `HOST:PORT`, or `HOST` where there is a port by default.
pub(crate) fn host_port(text: &str, default: Option<u16>) -> Result<Address, String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest.split_once(']').ok_or("a bracket is not closed")?;
        let (address, scope) = six(inside)?;
        let port = match (after.strip_prefix(':'), after, default) {
            (Some(digits), ..) => port(digits)?,
            (None, "", Some(default)) => default,
            (None, "", None) => return Err(format!("\"{text}\" has no port")),
            _ => return Err(format!("\"{after}\" stands after the bracket")),
        };
        return Ok(Address::Inet(SocketAddrV6::new(address, port, 0, scope).into()));
    }
    if text.matches(':').count() > 1 {
        return Err(format!("\"{text}\" has several colons; an IPv6 address stands in brackets"));
    }
    let (host, port) = match (text.split_once(':'), default) {
        (Some((host, digits)), _) => (host, port(digits)?),
        (None, Some(default)) => (text, default),
        (None, None) => return Err(format!("\"{text}\" has no port")),
    };
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Address::Inet(SocketAddr::new(address, port)));
    }
    name(host)?;
    Ok(Address::Name(host.to_ascii_lowercase(), port))
}

fn six(text: &str) -> Result<(Ipv6Addr, u32), String> {
    let (address, scope) = match text.split_once('%') {
        Some((address, scope)) => {
            let scope = scope.parse().map_err(|_| {
                format!("interface \"{scope}\" is no number; write its index (ip link)")
            })?;
            (address, scope)
        }
        None => (text, 0),
    };
    let address = address.parse().map_err(|_| format!("\"{text}\" is no IPv6 address"))?;
    Ok((address, scope))
}

fn port(text: &str) -> Result<u16, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port: Option<NonZeroU16> = text.parse().ok().filter(|_| digits);
    port.map(NonZeroU16::get).ok_or_else(|| format!("\"{text}\" is no port, which is 1 to 65535"))
}

/// Refuses what no host can be called (RFC 1123 section 2.1; underscores are in use).
pub(crate) fn name(host: &str) -> Result<(), String> {
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    // A dot at its end says that it is whole.
    let whole = host.strip_suffix('.').unwrap_or(host);
    if whole.len() > 253 {
        return Err("a host's name has 253 characters at most".to_owned());
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    for label in whole.split('.') {
        if let Some(c) = label.chars().find(|&c| !fine(c)) {
            return Err(format!("{c:?} cannot be in a host's name"));
        }
        let dashed = label.starts_with('-') || label.ends_with('-');
        if !(1..=63).contains(&label.len()) || dashed {
            return Err(format!("\"{host}\" is no host's name"));
        }
    }
    let last = whole.rsplit('.').next().unwrap_or(whole);
    match last.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Err(format!("\"{host}\" is neither an IPv4 address nor a name")),
        false => Ok(()),
    }
}

fn unix(path: &str) -> Result<Address, String> {
    if !path.starts_with('/') {
        return Err(format!("\"{path}\" is no absolute path; write unix:/PATH"));
    }
    if path.contains('\0') || path.ends_with('/') {
        return Err("that is no path of a socket; write unix:/PATH".to_owned());
    }
    match path.len() > LONGEST_PATH {
        true => Err(format!("a socket's path has {LONGEST_PATH} bytes at most")),
        false => Ok(Address::Unix(path.into())),
    }
}
