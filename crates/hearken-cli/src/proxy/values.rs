//! The values of a proxy's settings, as the command line and its file have them.

use std::fmt::Display;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use hearken_server::proxy::config::{Balance, HashKey, Passive, ProxyProtocol};
use hearken_server::runtime::network::Network;

use super::perhaps::Perhaps;
use super::to;
use crate::size::size;
use crate::time::patience;

/// The longest text that goes into a head of ours.
const LONGEST: usize = 1024;

pub(crate) fn policy(text: &str) -> Result<Balance, String> {
    let known = "round-robin, least-connections, random-two, hash:client, hash:target, hash:host, \
                 hash:field=NAME";
    match text {
        "round-robin" => Ok(Balance::RoundRobin),
        "least-connections" => Ok(Balance::LeastConnections),
        "random-two" => Ok(Balance::RandomTwo),
        "hash:client" => Ok(Balance::Hash(HashKey::Client)),
        "hash:target" => Ok(Balance::Hash(HashKey::Target)),
        "hash:host" => Ok(Balance::Hash(HashKey::Host)),
        _ => match text.strip_prefix("hash:field=") {
            Some(name) if is_token(name) => Ok(Balance::Hash(HashKey::Field(name.to_owned()))),
            Some(name) => {
                Err(format!("\"{name}\" is no name of a field; write as hash:field=Cookie"))
            }
            None => Err(format!("no policy \"{text}\"; known are {known}")),
        },
    }
}

/// `FAILURES/DURATION`, or `off`.
pub(crate) fn passive(text: &str) -> Result<Perhaps<Passive>, String> {
    if matches!(text, "off" | "none") {
        return Ok(Perhaps(None));
    }
    let (failures, pause) = text
        .split_once('/')
        .ok_or_else(|| format!("\"{text}\" is not FAILURES/DURATION; write as 3/10s, or off"))?;
    let failures: NonZeroU32 = number(failures, "failures")?;
    Ok(Perhaps(Some(Passive { failures, pause: patience(pause)? })))
}

pub(crate) fn proxy_protocol(text: &str) -> Result<ProxyProtocol, String> {
    match text {
        "v1" => Ok(ProxyProtocol::V1),
        "v2" => Ok(ProxyProtocol::V2),
        _ => Err(format!("\"{text}\" is no version of the PROXY protocol; write v1, v2 or none")),
    }
}

/// Some networks: one, all or none.
#[derive(Clone, Debug)]
pub(crate) struct Networks(pub(crate) Vec<Network>);

/// Parses `ADDRESS`, `ADDRESS/BITS`, `all` or `none`.
pub(crate) fn networks(text: &str) -> Result<Networks, String> {
    match text {
        "all" => Ok(Networks(Network::ALL.to_vec())),
        "none" => Ok(Networks(Vec::new())),
        _ => match text.parse() {
            Ok(network) => Ok(Networks(vec![network])),
            Err(_) => Err(format!("invalid network \"{text}\"; write as 10.0.0.0/8, all or none")),
        },
    }
}

/// A target in origin form, which goes into a request as it is.
pub(crate) fn path(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err(format!("\"{text}\" is no path; it begins with a slash, as /healthz"));
    }
    match text.chars().find(|c| !c.is_ascii_graphic() || *c == '#') {
        Some(c) => Err(format!("{c:?} cannot be in a path; write %XX for its bytes")),
        None => short(text),
    }
}

/// A Host field.
pub(crate) fn host(text: &str) -> Result<String, String> {
    to::host_port(text, Some(80)).map_err(|what| format!("{what}; write HOST or HOST:PORT"))?;
    Ok(text.to_owned())
}

/// A pseudonym, or a host with or without a port (RFC 9110 section 7.6.3).
pub(crate) fn via(text: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:[]".contains(c);
    match !text.is_empty() && text.chars().all(fine) {
        true => short(text),
        false => Err(format!("\"{text}\" is no name for Via; write letters and digits, or none")),
    }
}

/// The status of an answer that is no interim one; none for `200-399`.
pub(crate) fn status(text: &str) -> Result<Perhaps<u16>, String> {
    match (text, text.parse()) {
        ("200-399", _) => Ok(Perhaps(None)),
        (_, Ok(status @ 200..=599)) => Ok(Perhaps(Some(status))),
        _ => Err(format!("\"{text}\" is no status of an answer; write 200 to 599, or 200-399")),
    }
}

pub(crate) fn count(text: &str) -> Result<NonZeroUsize, String> {
    number(text, "one or more")
}

pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|error| format!("\"{text}\": {error}; write as 127.0.0.1:9090"))
}

pub(crate) fn file(text: &str) -> Result<PathBuf, String> {
    match text.is_empty() || text.contains('\0') {
        true => Err("no name of a file; write one, - or none".to_owned()),
        false => Ok(text.into()),
    }
}

pub(crate) fn head(text: &str) -> Result<usize, String> {
    within(text, size, 1024..=1 << 20, "1k to 1M")
}

pub(crate) fn target(text: &str) -> Result<usize, String> {
    within(text, size, 64..=1 << 20, "64 to 1M")
}

pub(crate) fn fields(text: &str) -> Result<usize, String> {
    within(text, |text| number(text, "1 to 1000"), 1..=1000, "1 to 1000")
}

fn within(
    text: &str,
    parse: impl Fn(&str) -> Result<u64, String>,
    range: RangeInclusive<u64>,
    write: &str,
) -> Result<usize, String> {
    let value = Some(parse(text)?).filter(|value| range.contains(value));
    value
        .and_then(|value| usize::try_from(value).ok())
        .ok_or_else(|| format!("{text} is out of range; write {write}"))
}

fn number<N: FromStr<Err: Display>>(text: &str, what: &str) -> Result<N, String> {
    text.parse().map_err(|error| format!("\"{text}\" is no number of {what}: {error}"))
}

/// As much as goes into a head beside the rest.
fn short(text: &str) -> Result<String, String> {
    match text.len() > LONGEST {
        true => Err(format!("longer than {LONGEST} bytes")),
        false => Ok(text.to_owned()),
    }
}

/// A token (RFC 9110 section 5.6.2), which names of fields are.
fn is_token(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    (1..=LONGEST).contains(&text.len()) && text.chars().all(fine)
}
