//! Making sockets, however they are used then.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags};
use rustix::net::{SocketType, sockopt};

use super::ListenOptions;
use crate::sys;

/// A socket for a stream to or from `addr`.
fn stream(addr: SocketAddr) -> io::Result<OwnedFd> {
    of_family(if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })
}

fn of_family(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// A socket that listens on `addr`.
pub(super) fn listening(addr: SocketAddr, options: &ListenOptions) -> io::Result<OwnedFd> {
    let fd = stream(addr)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    // Inherited by what is accepted, which saves a call for each.
    sockopt::set_tcp_nodelay(&fd, true)?;
    if !options.defer.is_zero() {
        sys::defer_accept(&fd, options.defer)?;
    }
    net::bind(&fd, &addr)?;
    net::listen(&fd, i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    Ok(fd)
}

/// A socket that is to connect to `addr`, from `source` if given.
pub(super) fn connecting(addr: SocketAddr, source: Option<SocketAddr>) -> io::Result<OwnedFd> {
    let fd = stream(addr)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if let Some(source) = source {
        if source.port() == 0 {
            // Refused, there is but one connection for each port of the source.
            let _ = sys::choose_port_at_connect(&fd);
        }
        net::bind(&fd, &source)?;
    }
    Ok(fd)
}

/// A Unix socket that listens at `path`.
pub(super) fn listening_at(path: &Path, backlog: u32) -> io::Result<OwnedFd> {
    let addr = at(path)?;
    let fd = of_family(AddressFamily::UNIX)?;
    net::bind(&fd, &addr)?;
    net::listen(&fd, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(fd)
}

/// A Unix socket that is connected to the one at `path`: that never takes time.
pub(super) fn connected_to(path: &Path) -> io::Result<OwnedFd> {
    let addr = at(path)?;
    let fd = of_family(AddressFamily::UNIX)?;
    loop {
        match net::connect(&fd, &addr) {
            Ok(()) => return Ok(fd),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let full = "as many as may (its backlog) wait to be accepted there (EAGAIN)";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, full));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The address of the Unix socket at `path`.
fn at(path: &Path) -> io::Result<SocketAddrUnix> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
    if path.as_os_str().is_empty() {
        return Err(invalid("a Unix socket's path is empty"));
    }
    SocketAddrUnix::new(path).map_err(|errno| match errno {
        Errno::NAMETOOLONG => invalid("a Unix socket's path has at most 108 bytes"),
        _ => invalid("a Unix socket's path has a zero byte"),
    })
}

/// Accepts a connection; its peer's address comes with it if that is wanted, and is one of IP.
#[inline]
pub(super) fn accept(
    listener: impl AsFd,
    peers: bool,
) -> Result<(OwnedFd, Option<SocketAddr>), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    if !peers {
        return net::accept_with(listener, flags).map(|fd| (fd, None));
    }
    let (fd, addr) = net::acceptfrom_with(listener, flags)?;
    Ok((fd, addr.and_then(|addr| addr.try_into().ok())))
}

/// Ends the sending side of a connection.
pub(super) fn shutdown(fd: Option<impl AsFd>) {
    if let Some(fd) = fd {
        // It fails only where the peer is gone, which receiving will tell.
        let _ = net::shutdown(fd, net::Shutdown::Write);
    }
}

/// Has a connection end with a reset when it is closed.
pub(super) fn reset(fd: Option<impl AsFd>) {
    if let Some(fd) = fd {
        // Refused, it is an ordinary close.
        let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
    }
}

/// How many of the `sent` bytes the peer's host has acknowledged.
pub(super) fn delivered(fd: Option<impl AsFd>, sent: u64) -> u64 {
    sent.saturating_sub(undelivered(fd))
}

/// How many bytes that it was given it has not yet been acknowledged.
pub(super) fn undelivered(fd: Option<impl AsFd>) -> u64 {
    fd.map_or(0, |fd| sys::unacknowledged(fd).unwrap_or(0))
}

/// The address of this side.
pub(super) fn local_addr(fd: Option<impl AsFd>) -> io::Result<SocketAddr> {
    of_ip(Some(net::getsockname(fd.ok_or(io::ErrorKind::NotConnected)?)?))
}

/// The address of the other side.
pub(super) fn peer_addr(fd: Option<impl AsFd>) -> io::Result<SocketAddr> {
    of_ip(net::getpeername(fd.ok_or(io::ErrorKind::NotConnected)?)?)
}

fn of_ip(addr: Option<SocketAddrAny>) -> io::Result<SocketAddr> {
    let addr = addr.ok_or(io::ErrorKind::NotConnected)?;
    addr.try_into().map_err(|_| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "it is a Unix socket, which has no address of IP",
        )
    })
}
