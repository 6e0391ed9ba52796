//! The system calls of the implementations of [`Io`](super::Io), behind a trait.
//!
//! [`Linux`] makes the calls and has no size. A simulated kernel makes them fail, transfer fewer
//! bytes, or take effect late.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, sockopt};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use rustix::time::{ClockId, clock_gettime};

use super::peek::{self, PeekResult};
use super::{Address, ConnectOptions, FilePart, ListenOptions, StreamSocket, sockets};
use crate::mechanism::Source;
use crate::sys;
use crate::timer::Time;
use crate::waker::Wakeups;

/// A kernel: its clocks, and the calls that create sockets and pipes.
///
/// Implemented in this crate only.
pub trait Kernel: fmt::Debug {
    /// A socket. Dropping it closes it.
    type Socket: KernelSocket<Pipe = Self::Pipe>;
    /// A pipe. Dropping it closes both ends.
    type Pipe: fmt::Debug;

    /// Returns the current time: [`Io::clock`](super::Io::clock).
    fn clock(&self) -> Time;

    /// Returns the time of day: [`Io::unix_time`](super::Io::unix_time).
    fn unix_time(&self) -> Duration;

    /// Creates a non-blocking socket that listens on `address`.
    fn listen(&self, address: &Address, options: &ListenOptions) -> io::Result<Self::Socket>;

    /// Creates a non-blocking socket that connects to `address`. An IP socket is still connecting
    /// when this returns; a Unix socket is connected.
    fn connect(&self, address: &Address, options: &ConnectOptions) -> io::Result<Self::Socket>;

    /// Takes a connected socket: [`Io::adopt`](super::Io::adopt).
    fn take(&self, socket: StreamSocket) -> io::Result<Self::Socket> {
        let _ = socket;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Creates a non-blocking pipe.
    fn pipe(&self) -> Result<Self::Pipe, Errno>;
}

/// The calls of a non-blocking stream socket or listener.
///
/// Calls that transfer bytes return their number, which may be smaller than requested, and fail
/// with `EAGAIN` if they would block.
pub trait KernelSocket: Source + fmt::Debug + Sized + 'static {
    /// A pipe to splice to and from.
    type Pipe;

    /// Returns the descriptor. `None` for a simulated socket.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the descriptor itself. `None` for a simulated socket, which is closed.
    fn into_descriptor(self) -> Option<OwnedFd> {
        None
    }

    /// Accepts a connection. Returns its peer's address with it if requested and an IP address.
    fn accept(&self, peers: bool) -> Result<(Self, Option<SocketAddr>), Errno>;

    /// Takes the pending error: `SO_ERROR`.
    fn take_error(&self) -> Result<(), Errno>;

    /// Receives into the spare capacity of `buffer`. Returns zero at the end of the stream.
    fn receive(&self, buffer: &mut Vec<u8>) -> Result<usize, Errno>;

    /// Receives into `buffer`. Returns zero at the end of the stream.
    fn receive_into(&self, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Sends `bytes`.
    fn send(&self, bytes: &[u8], flags: SendFlags) -> Result<usize, Errno>;

    /// Sends `head` and `body` in one call.
    fn send_both(&self, head: &[u8], body: &[u8]) -> Result<usize, Errno>;

    /// Sends up to `max` bytes of a file from `part.offset` on, and advances `part.offset`. Returns
    /// zero at the end of the file.
    fn send_file(&self, part: &mut FilePart, max: usize) -> Result<usize, Errno>;

    /// Moves up to `max` received bytes into `pipe`. Returns zero at the end of the stream.
    fn splice_to(&self, pipe: &Self::Pipe, max: usize) -> Result<usize, Errno>;

    /// Sends up to `max` bytes from `pipe`.
    fn splice_from(&self, pipe: &Self::Pipe, max: usize) -> Result<usize, Errno>;

    /// Shuts down the sending side.
    fn shutdown(&self);

    /// Withholds partial packets (`TCP_CORK`), or sends them and ends that.
    fn set_cork(&self, on: bool);

    /// Makes closing the connection reset it.
    fn reset_on_close(&self);

    /// Returns the number of bytes that the socket has taken and the peer's host has not
    /// acknowledged.
    fn undelivered(&self) -> u64;

    /// Returns the local address.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Returns the address of the peer.
    fn peer_addr(&self) -> io::Result<SocketAddr>;

    /// Returns the state of the receiving side.
    fn peek(&self) -> PeekResult;

    /// Returns whether a descriptor of any kind is readable. False for a simulated socket.
    fn is_readable(&self) -> bool {
        false
    }

    /// Reads all pending wake-ups from the receiving end of a channel of wake-ups. Returns whether
    /// there were any.
    fn drain_wakeups(&self) -> bool;
}

/// The kernel that this process runs on.
#[derive(Clone, Copy, Debug)]
pub struct Linux;

/// The two ends of a pipe.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Kernel for Linux {
    type Socket = OwnedFd;
    type Pipe = Pipe;

    #[inline]
    fn clock(&self) -> Time {
        Time::now()
    }

    #[inline]
    fn unix_time(&self) -> Duration {
        Duration::try_from(clock_gettime(ClockId::RealtimeCoarse)).unwrap_or_default()
    }

    fn listen(&self, address: &Address, options: &ListenOptions) -> io::Result<OwnedFd> {
        sockets::create_listener(address, options)
    }

    fn connect(&self, address: &Address, options: &ConnectOptions) -> io::Result<OwnedFd> {
        sockets::connect(address, options)
    }

    fn take(&self, socket: StreamSocket) -> io::Result<OwnedFd> {
        Ok(socket.into())
    }

    fn pipe(&self) -> Result<Pipe, Errno> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Pipe { read, write })
    }
}

/// Without `MORE`, which would withhold the last bytes until more arrive.
const SPLICE: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

impl KernelSocket for OwnedFd {
    type Pipe = Pipe;

    #[inline]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn into_descriptor(self) -> Option<OwnedFd> {
        Some(self)
    }

    #[inline]
    fn accept(&self, peers: bool) -> Result<(OwnedFd, Option<SocketAddr>), Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        if !peers {
            return net::accept_with(self, flags).map(|fd| (fd, None));
        }
        let (fd, addr) = net::acceptfrom_with(self, flags)?;
        Ok((fd, addr.and_then(|addr| addr.try_into().ok())))
    }

    #[inline]
    fn take_error(&self) -> Result<(), Errno> {
        sockopt::socket_error(self)?
    }

    #[inline]
    fn receive(&self, buffer: &mut Vec<u8>) -> Result<usize, Errno> {
        // rustix returns the count in the buffer and the length before any truncation.
        net::recv(self, spare_capacity(buffer), RecvFlags::empty()).map(|(count, _)| count)
    }

    #[inline]
    fn receive_into(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        net::recv(self, buffer, RecvFlags::empty()).map(|(count, _)| count)
    }

    #[inline]
    fn send(&self, bytes: &[u8], flags: SendFlags) -> Result<usize, Errno> {
        net::send(self, bytes, flags)
    }

    #[inline]
    fn send_both(&self, head: &[u8], body: &[u8]) -> Result<usize, Errno> {
        let parts = [IoSlice::new(head), IoSlice::new(body)];
        let mut nothing = net::SendAncillaryBuffer::default();
        net::sendmsg(self, &parts, &mut nothing, SendFlags::NOSIGNAL)
    }

    #[inline]
    fn send_file(&self, part: &mut FilePart, max: usize) -> Result<usize, Errno> {
        rustix::fs::sendfile(self, &*part.file, Some(&mut part.offset), max)
    }

    #[inline]
    fn splice_to(&self, pipe: &Pipe, max: usize) -> Result<usize, Errno> {
        splice(self, None, &pipe.write, None, max, SPLICE)
    }

    #[inline]
    fn splice_from(&self, pipe: &Pipe, max: usize) -> Result<usize, Errno> {
        splice(&pipe.read, None, self, None, max, SPLICE)
    }

    fn shutdown(&self) {
        // It fails only if the peer has disconnected, which receiving reports.
        let _ = net::shutdown(self, net::Shutdown::Write);
    }

    fn set_cork(&self, on: bool) {
        // A Unix socket refuses it and has no packets.
        let _ = sockopt::set_tcp_cork(self, on);
    }

    fn reset_on_close(&self) {
        // If refused, it is an ordinary close.
        let _ = sockopt::set_socket_linger(self, Some(Duration::ZERO));
    }

    fn undelivered(&self) -> u64 {
        sys::unacknowledged_bytes(self).unwrap_or(0)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        sockets::local_addr(self)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        sockets::peer_addr(self)
    }

    fn peek(&self) -> PeekResult {
        peek::peek(self.as_fd())
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        // An error is found by the next operation on the descriptor.
        !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }

    fn drain_wakeups(&self) -> bool {
        Wakeups::drain(self)
    }
}
