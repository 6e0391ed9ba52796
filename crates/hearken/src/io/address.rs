//! Addresses that sockets listen on and connect to.

use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// The prefix of a Unix socket's path.
const UNIX: &str = "unix:";

/// The address of a stream socket. It is written `127.0.0.1:80`, `[::1]:80` or
/// `unix:/run/app.sock`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// An IP address and a TCP port.
    Inet(SocketAddr),
    /// The path of a Unix socket, or an abstract name after a zero byte.
    Unix(Arc<Path>),
}

impl Address {
    /// Returns whether this is an IP address.
    pub(super) fn is_inet(&self) -> bool {
        matches!(self, Address::Inet(_))
    }
}

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Address {
        Address::Inet(addr)
    }
}

impl From<&Path> for Address {
    fn from(path: &Path) -> Address {
        Address::Unix(path.into())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Inet(addr) => addr.fmt(f),
            Address::Unix(path) => match path.as_os_str().as_bytes().strip_prefix(b"\0") {
                Some(name) => write!(f, "{UNIX}@{}", OsStr::from_bytes(name).display()),
                None => write!(f, "{UNIX}{}", path.display()),
            },
        }
    }
}

/// The error for text that is no [`Address`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid address '{0}': expected IP:PORT, [IPv6]:PORT or unix:PATH")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    /// Parses an address.
    ///
    /// ```
    /// use hearken::io::Address;
    ///
    /// assert_eq!("[::1]:80".parse(), Ok(Address::Inet(([0, 0, 0, 0, 0, 0, 0, 1], 80).into())));
    /// assert_eq!("unix:/run/app".parse::<Address>()?.to_string(), "unix:/run/app");
    /// assert!("localhost".parse::<Address>().is_err());
    /// # Ok::<(), hearken::io::AddressError>(())
    /// ```
    fn from_str(text: &str) -> Result<Address, AddressError> {
        match text.strip_prefix(UNIX) {
            Some(path) if !path.is_empty() => Ok(Path::new(path).into()),
            Some(_) => Err(AddressError(text.to_owned())),
            None => text.parse().map(Address::Inet).map_err(|_| AddressError(text.to_owned())),
        }
    }
}
