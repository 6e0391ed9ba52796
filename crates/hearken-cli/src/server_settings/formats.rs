//! Forms of values.

use std::ffi::OsStr;
use std::fmt::Display;
use std::net::SocketAddr;
use std::num::{IntErrorKind, NonZeroU16, NonZeroU32, NonZeroUsize, ParseIntError};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use hearken::io::readiness::{ClosePolicy, InterestPolicy, Order};
use hearken::timer::TimerPolicy;
use hearken_http::forward::HeaderPolicy;
use hearken_server::proxy::config::{Balance, HashKey, ProxyProtocol, Rule, Server};
use hearken_server::runtime::access_log::LogFormat;
use hearken_server::runtime::network::Network;
use hearken_server::{Distribution, HalfClose, Model};
use hearken_tls::TlsVersion;

use super::preset::Preset;
use super::tls::ClientAuth;
use super::{Networks, address, rule};
use crate::settings::{Format, Kind, Parameter};
use crate::size::{print_size, size};
use crate::time::{duration, positive_duration, print_duration};

/// Maximum length of text that becomes part of a message head, in bytes.
const MAX_TEXT: usize = 1024;

const fn format<T>(
    placeholder: &'static str,
    parse: fn(&str) -> Result<T, String>,
    print: fn(&T) -> Option<String>,
) -> Format<T> {
    Format { kind: Kind::Value, placeholder, choices: &[], parse, print }
}

/// Creates a [`Format`] whose values print themselves.
const fn plain<T: Display>(
    placeholder: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> Format<T> {
    format(placeholder, parse, |value| Some(value.to_string()))
}

/// Creates a [`Format`] for a value that has no default.
const fn unset<T: Display>(
    placeholder: &'static str,
    parse: fn(&str) -> Result<Option<T>, String>,
) -> Format<Option<T>> {
    format(placeholder, parse, |value| value.as_ref().map(ToString::to_string))
}

/// Returns the format for elements of a list, which commas separate on the command line.
const fn list<T>(format: &Format<T>) -> Format<T> {
    Format { kind: Kind::List(Some(',')), ..*format }
}

/// Creates a [`Format`] for an optional value, where a word stands for `None`.
macro_rules! optional {
    ($none:literal, $placeholder:literal, $parse:expr, $print:expr) => {
        format(
            $placeholder,
            |text| if text == $none { Ok(None) } else { $parse(text).map(Some) },
            |value| Some(value.as_ref().map_or_else(|| $none.to_owned(), $print)),
        )
    };
    ($none:literal, $placeholder:literal, $parse:expr) => {
        optional!($none, $placeholder, $parse, ToString::to_string)
    };
}

/// Creates a [`Format`] for an enum.
macro_rules! choice {
    ($placeholder:literal, $($name:literal => $value:pat = $make:expr),+) => {
        Format {
            choices: &[$($name),+],
            ..format(
                $placeholder,
                |text| match text {
                    $($name => Ok($make),)+
                    _ => Err(format!("expected {}", [$($name),+].join(", "))),
                },
                |value| match value {
                    $($value => Some($name.to_owned()),)+
                    #[allow(unreachable_patterns, reason = "the enum may get more variants")]
                    _ => None,
                },
            )
        }
    };
}

pub(super) const ADDRESS: Format<SocketAddr> = plain("ADDR:PORT", socket_address);
pub(super) const OPTIONAL_ADDRESS: Format<Option<SocketAddr>> =
    optional!("none", "ADDR:PORT", socket_address);
pub(super) const COUNT: Format<usize> = plain("N", number);
pub(super) const COUNT32: Format<u32> = plain("N", number);
pub(super) const POSITIVE: Format<NonZeroUsize> = plain("N", number);
pub(super) const POSITIVE32: Format<NonZeroU32> = plain("N", number);
pub(super) const OPTIONAL_POSITIVE: Format<Option<NonZeroUsize>> = optional!("none", "N", number);
pub(super) const IF_SET: Format<Option<NonZeroUsize>> = unset("N", |text| number(text).map(Some));
pub(super) const SIGNALS: Format<Option<u64>> = unset("N", |text| number(text).map(Some));
pub(super) const ACCEPT_LIMIT: Format<Option<NonZeroU32>> = optional!("all", "N|all", number);
pub(super) const PORTS: Format<u16> =
    list(&plain("PORT", |text| number(text).map(NonZeroU16::get)));
pub(super) const NAME: Format<String> = plain("NAME", |text| Ok(text.to_owned()));
pub(super) const BYTES: Format<u64> = format("BYTES", size, |size| Some(print_size(*size)));
pub(super) const OPTIONAL_BYTES: Format<Option<u64>> =
    optional!("none", "BYTES", size, |size| print_size(*size));
pub(super) const CACHE_BYTES: Format<usize> =
    sizes(|text| within(text, size, 0..=1 << 40, "at most 1024G"));
pub(super) const HEADER_BYTES: Format<usize> =
    sizes(|text| within(text, size, 1024..=1 << 20, "from 1k to 1M"));
pub(super) const TARGET_BYTES: Format<usize> =
    sizes(|text| within(text, size, 64..=1 << 20, "from 64 to 1M"));
pub(super) const FIELDS: Format<usize> =
    plain("N", |text| within(text, number, 1..=1000, "from 1 to 1000"));
pub(super) const DURATION: Format<Duration> = durations(duration);
pub(super) const OPTIONAL_DURATION: Format<Option<Duration>> =
    optional!("none", "DURATION", duration, |time| print_duration(*time));
/// A duration greater than zero.
pub(super) const TIMEOUT: Format<Duration> = durations(positive_duration);
pub(super) const OPTIONAL_FILE: Format<Option<PathBuf>> =
    optional!("none", "FILE", file, |path| path.display().to_string());
pub(super) const FILES: Format<PathBuf> = Format {
    kind: Kind::List(None),
    ..format("FILE", file, |path| Some(path.display().to_string()))
};
pub(super) const OPTIONAL_FILES: Format<Option<PathBuf>> =
    Format { kind: Kind::List(None), ..OPTIONAL_FILE };
pub(super) const LOG_FORMAT: Format<LogFormat> = choice!("FORMAT",
    "combined" => LogFormat::Combined = LogFormat::Combined,
    "json" => LogFormat::Json = LogFormat::Json);
pub(super) const TLS_VERSION: Format<TlsVersion> = choice!("VERSION",
    "1.2" => TlsVersion::Tls12 = TlsVersion::Tls12,
    "1.3" => TlsVersion::Tls13 = TlsVersion::Tls13);
pub(super) const CLIENT_AUTH: Format<ClientAuth> = choice!("CERTIFICATE",
    "required" => ClientAuth::Required = ClientAuth::Required,
    "optional" => ClientAuth::Optional = ClientAuth::Optional);
pub(super) const HALF_CLOSE: Format<HalfClose> = choice!("ACTION",
    "continue" => HalfClose::Respond = HalfClose::Respond,
    "abort" => HalfClose::Cancel = HalfClose::Cancel);
pub(super) const FORWARDING: Format<HeaderPolicy> = choice!("ACTION",
    "replace" => HeaderPolicy::Replace = HeaderPolicy::Replace,
    "append" => HeaderPolicy::Append = HeaderPolicy::Append,
    "keep" => HeaderPolicy::Keep = HeaderPolicy::Keep,
    "remove" => HeaderPolicy::Remove = HeaderPolicy::Remove);
/// Whether the host that the client named is kept.
pub(super) const KEEP_HOST: Format<bool> =
    choice!("HOST", "keep" => true = true, "upstream" => false = false);
pub(super) const ORDER: Format<Order> = choice!("ORDER",
    "try-first" => Order::TryFirst = Order::TryFirst,
    "wait-first" => Order::WaitFirst = Order::WaitFirst,
    "wait-to-receive" => Order::WaitToReceive = Order::WaitToReceive);
pub(super) const MODEL: Format<Model> = choice!("MODEL",
    "events" => Model::Events = Model::Events,
    "tasks" => Model::Tasks = Model::Tasks,
    "threads" => Model::Threads = Model::Threads,
    "pool" => Model::Pool = Model::Pool,
    "hybrid" => Model::Hybrid = Model::Hybrid);
pub(super) const DISTRIBUTION: Format<Distribution> = choice!("METHOD",
    "reuse-port" => Distribution::ReusePort = Distribution::ReusePort,
    "hand-over" => Distribution::HandOver = Distribution::HandOver,
    "shared" => Distribution::Shared = Distribution::Shared,
    "migrate" => Distribution::Migrate = Distribution::Migrate);
pub(super) const CLOSE: Format<ClosePolicy> = choice!("POLICY",
    "implicit" => ClosePolicy::Implicit = ClosePolicy::Implicit,
    "explicit" => ClosePolicy::Explicit = ClosePolicy::Explicit);
pub(super) const INTEREST: Format<InterestPolicy> = choice!("POLICY",
    "when-needed" => InterestPolicy::WhenNeeded = InterestPolicy::WhenNeeded,
    "every-state" => InterestPolicy::EveryState = InterestPolicy::EveryState,
    "once" => InterestPolicy::Once = InterestPolicy::Once);
pub(super) const PRESET: Format<Option<Preset>> = choice!("SERVER",
    "userver" => Some(Preset::Userver) = Some(Preset::Userver),
    "microserver" => Some(Preset::Microserver) = Some(Preset::Microserver),
    "dphttpd" => Some(Preset::Dphttpd) = Some(Preset::Dphttpd),
    "bmd-proxy" => Some(Preset::BmdProxy) = Some(Preset::BmdProxy));
pub(super) const TIMERS: Format<TimerPolicy> = choice!("POLICY",
    "wheel" => TimerPolicy::Wheel = TimerPolicy::Wheel,
    "scan" => TimerPolicy::Scan = TimerPolicy::Scan);
pub(super) const SEND_PROXY_PROTOCOL: Format<Option<ProxyProtocol>> = choice!("VERSION",
    "none" => None = None,
    "v1" => Some(ProxyProtocol::V1) = Some(ProxyProtocol::V1),
    "v2" => Some(ProxyProtocol::V2) = Some(ProxyProtocol::V2));
pub(super) const BALANCE: Format<Balance> = Format {
    choices: &[
        "round-robin",
        "least-connections",
        "random-two",
        "hash:client",
        "hash:target",
        "hash:host",
        "hash:field=NAME",
    ],
    ..format("METHOD", balance, |balance| Some(print_balance(balance)))
};
pub(super) const HEALTH_PATH: Format<Option<String>> = optional!("none", "PATH", path);
pub(super) const HEALTH_HOST: Format<Option<String>> = optional!("none", "HOST", host);
/// The name of a header field that the proxy adds.
pub(super) const OPTIONAL_FIELD: Format<Option<String>> = optional!("none", "NAME", field_name);
/// A status code, or `None` for the range of success and redirection.
pub(super) const HEALTH_STATUS: Format<Option<u16>> = optional!("200-399", "STATUS", status);
/// A name in `Via`; empty for none.
pub(super) const VIA: Format<Option<String>> = format(
    "NAME",
    |text| if text == "none" { Ok(Some(String::new())) } else { via(text).map(Some) },
    |via| via.as_ref().map(|via| if via.is_empty() { "none" } else { via }.to_owned()),
);
pub(super) const SERVERS: Format<Server> = Format {
    kind: Kind::Tables(SERVER_PARAMETERS),
    ..format("SERVER", address::server, |server| Some(address::print_server(server)))
};
pub(super) const RULES: Format<Rule> =
    list(&format("RULE", rule::rule, |rule| Some(rule::print_rule(rule))));
pub(super) const NETWORKS: Format<Networks> = list(&format("NETWORK", networks, |networks| {
    (!networks.networks.is_empty()).then(|| networks.text.clone())
}));

/// Parameters of an upstream server.
const SERVER_PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "to",
        example: "\"http://127.0.0.1:9000\"",
        check: |text| address::server(text).map(drop),
    },
    Parameter { name: "weight", example: "1", check: |text| address::weight(text).map(drop) },
    Parameter { name: "backup", example: "false", check: |_| Ok(()) },
];

const fn durations(parse: fn(&str) -> Result<Duration, String>) -> Format<Duration> {
    format("DURATION", parse, |time| Some(print_duration(*time)))
}

const fn sizes(parse: fn(&str) -> Result<usize, String>) -> Format<usize> {
    format("BYTES", parse, |size| Some(print_size(*size as u64)))
}

/// Parses a directory name, which need not be UTF-8.
pub(super) fn directory(text: &OsStr) -> Result<PathBuf, String> {
    match text.is_empty() {
        true => Err("expected a directory".to_owned()),
        false => Ok(text.into()),
    }
}

fn balance(text: &str) -> Result<Balance, String> {
    match text {
        "round-robin" => Ok(Balance::RoundRobin),
        "least-connections" => Ok(Balance::LeastConnections),
        "random-two" => Ok(Balance::RandomTwo),
        "hash:client" => Ok(Balance::Hash(HashKey::Client)),
        "hash:target" => Ok(Balance::Hash(HashKey::Target)),
        "hash:host" => Ok(Balance::Hash(HashKey::Host)),
        _ => match text.strip_prefix("hash:field=") {
            Some(name) if is_token(name) => Ok(Balance::Hash(HashKey::Field(name.to_owned()))),
            Some(_) => Err("expected a header field name, as in hash:field=Cookie".to_owned()),
            None => Err(format!("expected {}", BALANCE.choices.join(", "))),
        },
    }
}

pub(crate) fn print_balance(balance: &Balance) -> String {
    match balance {
        Balance::RoundRobin => "round-robin".to_owned(),
        Balance::LeastConnections => "least-connections".to_owned(),
        Balance::RandomTwo => "random-two".to_owned(),
        Balance::Hash(HashKey::Client) => "hash:client".to_owned(),
        Balance::Hash(HashKey::Target) => "hash:target".to_owned(),
        Balance::Hash(HashKey::Host) => "hash:host".to_owned(),
        Balance::Hash(HashKey::Field(name)) => format!("hash:field={name}"),
    }
}

/// Parses `ADDRESS`, `ADDRESS/BITS`, `all` or `none`.
fn networks(text: &str) -> Result<Networks, String> {
    let networks = match text {
        "all" => Network::ALL.to_vec(),
        "none" => Vec::new(),
        _ => match text.parse() {
            Ok(network) => vec![network],
            Err(_) => return Err("expected a network such as 10.0.0.0/8, all or none".to_owned()),
        },
    };
    Ok(Networks { text: text.to_owned(), networks })
}

/// Parses a target in origin form.
fn path(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err("expected a path that begins with a slash, such as /healthz".to_owned());
    }
    match text.chars().find(|c| !c.is_ascii_graphic() || *c == '#') {
        Some(c) => Err(format!("{c:?} is not allowed in a path (write %XX)")),
        None => short(text),
    }
}

/// Parses a Host field.
fn host(text: &str) -> Result<String, String> {
    address::host_port(text, Some(80))
        .map_err(|reason| format!("{reason}; expected HOST or HOST:PORT"))?;
    Ok(text.to_owned())
}

/// Parses a pseudonym, or a host with or without a port (RFC 9110 section 7.6.3).
fn via(text: &str) -> Result<String, String> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:[]".contains(c);
    match !text.is_empty() && text.chars().all(is_valid) {
        true => short(text),
        false => Err("expected a name of letters, digits and punctuation, or none".to_owned()),
    }
}

/// Parses the status code of a final response.
fn status(text: &str) -> Result<u16, String> {
    let status = text.parse().ok().filter(|status| (200..=599).contains(status));
    status.ok_or_else(|| "expected a status code from 200 to 599, or 200-399".to_owned())
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:8080".to_owned())
}

fn file(text: &str) -> Result<PathBuf, String> {
    match text.is_empty() || text.contains('\0') {
        true => Err("expected a file name, - or none".to_owned()),
        false => Ok(text.into()),
    }
}

fn within(
    text: &str,
    parse: impl Fn(&str) -> Result<u64, String>,
    range: RangeInclusive<u64>,
    limits: &str,
) -> Result<usize, String> {
    let value = Some(parse(text)?).filter(|value| range.contains(value));
    value.and_then(|value| usize::try_from(value).ok()).ok_or_else(|| format!("must be {limits}"))
}

/// Parses a number, whose type sets its range.
pub(crate) fn number<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
    text.parse().map_err(|error: ParseIntError| {
        match error.kind() {
            IntErrorKind::Zero => "must be at least 1",
            IntErrorKind::PosOverflow => "too large",
            _ => "expected a whole number",
        }
        .to_owned()
    })
}

/// Refuses text that is too long for a message head.
fn short(text: &str) -> Result<String, String> {
    match text.len() > MAX_TEXT {
        true => Err(format!("longer than {MAX_TEXT} bytes")),
        false => Ok(text.to_owned()),
    }
}

/// Parses the name of a field that does not control the message.
fn field_name(text: &str) -> Result<String, String> {
    const RESERVED: [&str; 9] = [
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    if !is_token(text) {
        return Err("expected a header field name, such as X-Client-Subject".to_owned());
    }
    match RESERVED.iter().any(|name| text.eq_ignore_ascii_case(name)) {
        true => Err("the field controls the message; use another name".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Returns whether the text is a token (RFC 9110 section 5.6.2), such as a field name.
fn is_token(text: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    (1..=MAX_TEXT).contains(&text.len()) && text.chars().all(is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_round_trip<T>(format: &Format<T>, text: &str) {
        let value = (format.parse)(text).unwrap();
        assert_eq!((format.print)(&value).as_deref(), Some(text));
    }

    #[test]
    fn formats_print_what_they_parse() {
        assert_round_trip(&plain::<u16>("N", number), "7");
        assert_round_trip(&unset::<u16>("N", |text| number(text).map(Some)), "7");
        assert_round_trip(&durations(duration), "5s");
        assert_round_trip(&sizes(|text| size(text).map(|size| size as usize)), "16k");
        for method in
            ["round-robin", "least-connections", "random-two", "hash:client", "hash:target"]
        {
            assert_round_trip(&BALANCE, method);
        }
        assert_round_trip(&BALANCE, "hash:host");
        assert_round_trip(&BALANCE, "hash:field=Cookie");
        let elements = list(&plain::<u16>("N", number));
        assert_round_trip(&elements, "7");
        assert!(matches!(elements.kind, Kind::List(Some(','))));
    }
}
