//! Creation of sockets, and queries of their addresses.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{self, AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags};
use rustix::net::{SocketType, sockopt};

use super::{Address, ConnectOptions, ListenOptions};
use crate::sys;

/// Creates a stream socket of the family of `addr`.
fn stream(addr: SocketAddr) -> io::Result<OwnedFd> {
    of_family(if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })
}

fn of_family(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// Creates a socket that listens on `address`, to be [shared](super::Io::share_listener) by several
/// instances.
///
/// # Errors
/// As [`Io::listen`](super::Io::listen).
pub fn create_listener(address: &Address, options: &ListenOptions) -> io::Result<OwnedFd> {
    let fd = match address {
        Address::Inet(addr) => bound(*addr, options)?,
        Address::Unix(path) => {
            let addr = unix_address(path)?;
            let fd = of_family(AddressFamily::UNIX)?;
            net::bind(&fd, &addr)?;
            fd
        }
    };
    net::listen(&fd, i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    Ok(fd)
}

/// Creates a socket bound to `addr`, to listen there.
fn bound(addr: SocketAddr, options: &ListenOptions) -> io::Result<OwnedFd> {
    let fd = stream(addr)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    // Accepted sockets inherit the option, which saves a call for each.
    sockopt::set_tcp_nodelay(&fd, true)?;
    if !options.defer.is_zero() {
        sys::defer_accept(&fd, options.defer)?;
    }
    net::bind(&fd, &addr)?;
    Ok(fd)
}

/// Creates a socket that connects to `address`. An IP socket is still connecting when this returns;
/// a Unix socket is connected.
pub(super) fn connect(address: &Address, options: &ConnectOptions) -> io::Result<OwnedFd> {
    match (address, options.source) {
        (Address::Inet(addr), _) => connecting(*addr, options),
        (Address::Unix(path), None) => connected(path),
        (Address::Unix(_), Some(_)) => {
            Err(invalid("a Unix socket does not connect from a source address"))
        }
    }
}

fn connecting(addr: SocketAddr, options: &ConnectOptions) -> io::Result<OwnedFd> {
    let fd = stream(addr)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if let Some(size) = options.receive_buffer {
        sockopt::set_socket_recv_buffer_size(&fd, size as usize)?;
    }
    if let Some(source) = options.source {
        if source.port() == 0 {
            // If refused, each port of the source allows only one connection.
            let _ = sys::bind_without_port(&fd);
        }
        net::bind(&fd, &source)?;
    }
    match net::connect(&fd, &addr) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(fd),
        Err(errno) => Err(errno.into()),
    }
}

/// A stream socket that is non-blocking and close-on-exec, and sends small messages immediately
/// (`TCP_NODELAY`).
#[derive(Debug)]
pub struct StreamSocket(OwnedFd);

impl StreamSocket {
    /// Sets the options of the socket.
    ///
    /// # Errors
    /// Errors of the kernel: not a socket.
    pub fn new(socket: OwnedFd) -> io::Result<StreamSocket> {
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        ioctl_fionbio(&socket, true)?;
        if sockopt::socket_domain(&socket)? != AddressFamily::UNIX {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        Ok(StreamSocket(socket))
    }

    /// Creates it from a socket that has the options already.
    pub(super) fn prepared(socket: OwnedFd) -> StreamSocket {
        StreamSocket(socket)
    }
}

impl From<StreamSocket> for OwnedFd {
    fn from(socket: StreamSocket) -> OwnedFd {
        socket.0
    }
}

fn connected(path: &Path) -> io::Result<OwnedFd> {
    let addr = unix_address(path)?;
    let fd = of_family(AddressFamily::UNIX)?;
    loop {
        match net::connect(&fd, &addr) {
            Ok(()) => return Ok(fd),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let full = "the backlog of the Unix socket is full (EAGAIN)";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, full));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// Returns the address of the Unix socket at `path`. After a zero byte, it is an abstract name.
pub(super) fn unix_address(path: &Path) -> io::Result<SocketAddrUnix> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(invalid("the path of a Unix socket is empty"));
    }
    let addr = match bytes.strip_prefix(b"\0") {
        Some(name) => SocketAddrUnix::new_abstract_name(name),
        None => SocketAddrUnix::new(path),
    };
    addr.map_err(|errno| match errno {
        Errno::NAMETOOLONG => invalid("the path of a Unix socket is longer than 108 bytes"),
        _ => invalid("the path of a Unix socket contains a zero byte"),
    })
}

/// Returns the local address.
pub(super) fn local_addr(fd: impl AsFd) -> io::Result<SocketAddr> {
    of_ip(Some(net::getsockname(fd)?))
}

/// Returns the address of the peer.
pub(super) fn peer_addr(fd: impl AsFd) -> io::Result<SocketAddr> {
    of_ip(net::getpeername(fd)?)
}

fn of_ip(addr: Option<SocketAddrAny>) -> io::Result<SocketAddr> {
    let addr = addr.ok_or(io::ErrorKind::NotConnected)?;
    addr.try_into()
        .map_err(|_| io::Error::new(io::ErrorKind::Unsupported, "a Unix socket has no IP address"))
}
