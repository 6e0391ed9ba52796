//! Addresses of upstream servers.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU16;

use hearken_server::proxy::config::{Address, Server};

/// Maximum length of a socket's path in bytes: `sun_path` without the final NUL.
const MAX_PATH: usize = 107;

/// Parses `http://HOST[:PORT]`, `https://HOST[:PORT]`, `h2c://HOST[:PORT]`, `HOST:PORT` or `unix:/PATH`, followed by
/// `;weight=N` and `;backup`.
pub(crate) fn server(text: &str) -> Result<Server, String> {
    let mut parts = text.split(';');
    let text = parts.next().unwrap_or_default();
    let mut server = Server::new(address(text)?);
    let has_scheme =
        |name: &str| text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    (server.tls, server.http2) = (has_scheme("https://"), has_scheme("h2c://"));
    let mut has_weight = false;
    for part in parts {
        match part.split_once('=') {
            Some(("weight", _)) if has_weight => return Err("duplicate parameter 'weight'".into()),
            Some(("weight", value)) => (server.weight, has_weight) = (weight(value)?, true),
            None if part == "backup" && server.backup => {
                return Err("duplicate parameter 'backup'".into());
            }
            None if part == "backup" => server.backup = true,
            _ => return Err(format!("unknown parameter '{part}' (expected weight=N or backup)")),
        }
    }
    Ok(server)
}

/// Prints a server in the form that [`server`] parses.
pub(super) fn print_server(server: &Server) -> String {
    let scheme = match server {
        Server { tls: true, .. } => "https",
        Server { http2: true, .. } => "h2c",
        _ => "http",
    };
    let address = match &server.address {
        Address::Inet(address) => format!("{scheme}://{address}"),
        Address::Name(host, port) => format!("{scheme}://{host}:{port}"),
        Address::Unix(path) => format!("unix:{}", path.display()),
    };
    let weight = match server.weight.get() {
        1 => String::new(),
        weight => format!(";weight={weight}"),
    };
    format!("{address}{weight}{}", if server.backup { ";backup" } else { "" })
}

pub(super) fn weight(text: &str) -> Result<NonZeroU16, String> {
    text.parse().map_err(|_| "weight must be from 1 to 65535".to_owned())
}

pub(super) fn address(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return unix(path);
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return bare(text);
    };
    let default = match scheme.to_ascii_lowercase().as_str() {
        "http" | "h2c" => 80,
        "https" => 443,
        _ => {
            return Err(format!(
                "unknown scheme '{scheme}' (use http://, https://, h2c:// or unix:)"
            ));
        }
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    if authority.contains('@') {
        return Err("user names are not supported (use http://HOST:PORT)".to_owned());
    }
    if !matches!(after, "" | "/") {
        return Err(format!("a path or query is not supported (remove '{after}')"));
    }
    host_port(authority, Some(default)).map_err(|reason| format!("{reason} (use http://HOST:PORT)"))
}

/// Parses `HOST:PORT`.
fn bare(text: &str) -> Result<Address, String> {
    let reason = match text.find(['/', '?', '#', '@']) {
        Some(end) => Err(format!("unexpected '{}'", &text[end..])),
        None => host_port(text, None),
    };
    reason.map_err(|reason| format!("{reason} (use http://HOST:PORT or unix:/PATH)"))
}

/// Parses `HOST:PORT`, or `HOST` if there is a default port.
pub(super) fn host_port(text: &str, default: Option<u16>) -> Result<Address, String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest.split_once(']').ok_or("missing ']'")?;
        let (address, scope) = ipv6(inside)?;
        let port = match (after.strip_prefix(':'), after, default) {
            (Some(digits), ..) => port(digits)?,
            (None, "", Some(default)) => default,
            (None, "", None) => return Err("missing port".to_owned()),
            _ => return Err(format!("unexpected '{after}' after ']'")),
        };
        return Ok(Address::Inet(SocketAddrV6::new(address, port, 0, scope).into()));
    }
    if text.matches(':').count() > 1 {
        return Err("IPv6 addresses must be enclosed in brackets".to_owned());
    }
    let (host, port) = match (text.split_once(':'), default) {
        (Some((host, digits)), _) => (host, port(digits)?),
        (None, Some(default)) => (text, default),
        (None, None) => return Err("missing port".to_owned()),
    };
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Address::Inet(SocketAddr::new(address, port)));
    }
    check_name(host)?;
    Ok(Address::Name(host.to_ascii_lowercase(), port))
}

fn ipv6(text: &str) -> Result<(Ipv6Addr, u32), String> {
    let (address, scope) = match text.split_once('%') {
        Some((address, scope)) => {
            let scope = scope.parse().map_err(|_| {
                format!("interface '{scope}' must be given as its index (see 'ip link')")
            })?;
            (address, scope)
        }
        None => (text, 0),
    };
    let address = address.parse().map_err(|_| format!("invalid IPv6 address '{text}'"))?;
    Ok((address, scope))
}

fn port(text: &str) -> Result<u16, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port: Option<NonZeroU16> = text.parse().ok().filter(|_| digits);
    port.map(NonZeroU16::get).ok_or_else(|| "port must be from 1 to 65535".to_owned())
}

/// Rejects invalid host names (RFC 1123 section 2.1). Underscores are in use and allowed.
pub(super) fn check_name(host: &str) -> Result<(), String> {
    if host.is_empty() {
        return Err("missing host".to_owned());
    }
    // A fully qualified name may end with a dot.
    let name = host.strip_suffix('.').unwrap_or(host);
    if name.len() > 253 {
        return Err("host names have at most 253 characters".to_owned());
    }
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    for label in name.split('.') {
        if let Some(c) = label.chars().find(|&c| !is_valid(c)) {
            return Err(format!("{c:?} is not allowed in a host name"));
        }
        let has_outer_hyphen = label.starts_with('-') || label.ends_with('-');
        if !(1..=63).contains(&label.len()) || has_outer_hyphen {
            return Err(format!("invalid host name '{host}'"));
        }
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    match last.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Err(format!("'{host}' is neither an IPv4 address nor a host name")),
        false => Ok(()),
    }
}

fn unix(path: &str) -> Result<Address, String> {
    if !path.starts_with('/') {
        return Err("the path of a socket must be absolute (use unix:/PATH)".to_owned());
    }
    if path.contains('\0') || path.ends_with('/') {
        return Err("invalid path of a socket (use unix:/PATH)".to_owned());
    }
    match path.len() > MAX_PATH {
        true => Err(format!("the path of a socket has at most {MAX_PATH} bytes")),
        false => Ok(Address::Unix(path.into())),
    }
}
