//! The address of the server: from the resolver, from the settings, or the path of a Unix socket.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, io};

use hearken::io::Address;

use crate::config::{Config, LoadError};
use crate::url::Url;

/// Maximum length of the path of a Unix socket in bytes, without the terminating zero byte.
const MAX_SOCKET_PATH: usize = 107;

/// An IP address that replaces the lookup of a host name, as text: `HOST:ADDR`.
///
/// ```
/// use hearken_load::HostAddress;
///
/// let parsed: HostAddress = "example.com:[::1]".parse()?;
/// assert_eq!(parsed.to_string(), "example.com:::1");
/// assert!("example.com:80:127.0.0.1".parse::<HostAddress>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostAddress {
    /// Host name, in any case.
    pub host: String,
    /// Its address.
    pub address: IpAddr,
}

impl FromStr for HostAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<HostAddress, String> {
        let (host, address) = match text.strip_prefix('[') {
            Some(_) => return Err("expected a host name, not an IPv6 address".to_owned()),
            None => {
                text.split_once(':').ok_or("expected HOST:ADDR, as in 'example.com:127.0.0.1'")?
            }
        };
        if host.is_empty() {
            return Err("missing host; expected HOST:ADDR".to_owned());
        }
        let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let parsed = match bare {
            Some(bare) => bare.parse().map(IpAddr::V6).ok(),
            None => address.parse().ok(),
        };
        let address = parsed.ok_or_else(|| {
            // curl's form has a port.
            let has_port =
                address.split_once(':').is_some_and(|(port, _)| port.parse::<u16>().is_ok());
            let hint = if has_port { "; omit the port" } else { "" };
            format!("invalid IP address '{address}': expected HOST:ADDR{hint}")
        })?;
        Ok(HostAddress { host: host.to_owned(), address })
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.address)
    }
}

/// Checks the settings of the address that do not depend on a resolver.
pub(crate) fn check(config: &Config, url: &Url) -> Result<(), LoadError> {
    if let Some(path) = &config.unix_socket {
        let error = |reason| LoadError::UnixSocket { path: path.clone(), reason };
        let length = path.as_os_str().len();
        if !config.source_addresses.is_empty() {
            return Err(error(
                "connections to it have no source address; omit the source addresses",
            ));
        }
        if !config.resolve.is_empty() {
            return Err(error("connections to it need no address of the host; omit the address"));
        }
        if length == 0 || path.as_os_str() == "@" {
            return Err(error("the path is empty"));
        }
        if length > MAX_SOCKET_PATH {
            return Err(error("the path exceeds 107 bytes; use a shorter path"));
        }
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(error("the path contains a zero byte"));
        }
    }
    let unused = config.resolve.iter().find(|given| !given.host.eq_ignore_ascii_case(&url.host));
    match unused {
        Some(given) => Err(LoadError::UnusedHost {
            host: given.host.clone(),
            used: HostAddress { host: url.host.clone(), address: given.address },
        }),
        None => Ok(()),
    }
}

/// Returns the address of the server at `url`.
pub(crate) fn find(config: &Config, url: &Url) -> Result<Address, LoadError> {
    check(config, url)?;
    if let Some(path) = &config.unix_socket {
        return Ok(Address::Unix(socket_path(path).as_path().into()));
    }
    // The last one overrides others, like options on a command line.
    match config.resolve.last() {
        Some(given) => Ok(SocketAddr::new(given.address, url.port).into()),
        None => resolve(url).map(Address::Inet),
    }
}

/// Returns the path in the form of [`Address::Unix`]: an abstract name follows a zero byte.
fn socket_path(path: &Path) -> PathBuf {
    match path.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => OsStr::from_bytes(&[b"\0", name].concat()).into(),
        None => path.to_owned(),
    }
}

fn resolve(url: &Url) -> Result<SocketAddr, LoadError> {
    let failed = |source| LoadError::Resolve { host: url.host.clone(), source };
    let found: Vec<_> = (url.host.as_str(), url.port).to_socket_addrs().map_err(failed)?.collect();
    // "localhost" has both kinds of addresses, and more servers listen on 127.0.0.1 than on ::1.
    let first = found.iter().find(|addr| addr.is_ipv4()).or_else(|| found.first());
    first.copied().ok_or_else(|| failed(io::Error::other("the name has no address")))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{HostAddress, find};
    use crate::config::Config;
    use crate::url::Url;

    fn address(config: &Config) -> Result<String, String> {
        let url = Url::parse(&config.url).unwrap();
        find(config, &url).map(|address| address.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn parses_addresses_of_hosts() {
        for (text, formatted) in [
            ("h:127.0.0.1", "h:127.0.0.1"),
            ("h:::1", "h:::1"),
            ("h:[::1]", "h:::1"),
            ("a-b.example:10.0.0.1", "a-b.example:10.0.0.1"),
        ] {
            assert_eq!(text.parse::<HostAddress>().unwrap().to_string(), formatted);
        }
        for (text, reason) in [
            ("", "expected HOST:ADDR"),
            ("h", "expected HOST:ADDR"),
            (":127.0.0.1", "missing host"),
            ("h:other", "invalid IP address 'other'"),
            ("h:80:127.0.0.1", "omit the port"),
            ("h:[127.0.0.1]", "invalid IP address"),
            ("[::1]:127.0.0.1", "expected a host name"),
        ] {
            let error = text.parse::<HostAddress>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_given_address_replaces_the_lookup() {
        let given = |hosts: &[&str]| Config {
            url: "http://Host.invalid:81/".to_owned(),
            resolve: hosts.iter().map(|text| text.parse().unwrap()).collect(),
            ..Config::default()
        };
        assert_eq!(address(&given(&["host.invalid:127.0.0.5"])).unwrap(), "127.0.0.5:81");
        let twice = given(&["host.invalid:127.0.0.5", "host.invalid:[::1]"]);
        assert_eq!(address(&twice).unwrap(), "[::1]:81");
        let error = address(&given(&["hosst.invalid:127.0.0.5"])).unwrap_err();
        assert!(error.contains("'hosst.invalid'"), "{error}");
        assert!(error.contains("did you mean 'Host.invalid:127.0.0.5'?"), "{error}");
    }

    #[test]
    fn a_unix_socket_replaces_the_lookup() {
        let at = |path: &str| Config {
            url: "http://host.invalid/".to_owned(),
            unix_socket: Some(PathBuf::from(path)),
            ..Config::default()
        };
        assert_eq!(address(&at("/run/x")).unwrap(), "unix:/run/x");
        assert_eq!(address(&at("@x")).unwrap(), "unix:@x");
        for (path, reason) in [("", "empty"), ("@", "empty"), (&*"x".repeat(108), "107 bytes")] {
            assert!(address(&at(path)).unwrap_err().contains(reason), "{path}");
        }
        let source = Config { source_addresses: vec![[127, 0, 0, 1].into()], ..at("x") };
        assert!(address(&source).unwrap_err().contains("omit the source addresses"));
    }
}
