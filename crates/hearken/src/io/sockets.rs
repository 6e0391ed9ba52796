//! Making sockets, however they are used then.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use super::ListenOptions;
use crate::sys;

/// A socket for a stream to or from `addr`.
fn stream(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
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
    fd.map_or(0, |fd| sent.saturating_sub(sys::unacknowledged(fd).unwrap_or(0)))
}

/// The address of this side.
pub(super) fn local_addr(fd: Option<impl AsFd>) -> io::Result<SocketAddr> {
    Ok(net::getsockname(fd.ok_or(io::ErrorKind::NotConnected)?)?.try_into()?)
}

/// The address of the other side.
pub(super) fn peer_addr(fd: Option<impl AsFd>) -> io::Result<SocketAddr> {
    let addr = net::getpeername(fd.ok_or(io::ErrorKind::NotConnected)?)?;
    Ok(addr.ok_or(io::ErrorKind::NotConnected)?.try_into()?)
}
