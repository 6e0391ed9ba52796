//! Looking at a socket without receiving from it.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// The state of a socket's receiving side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeekResult {
    /// Bytes can be received.
    Bytes,
    /// Nothing can be received yet.
    Nothing,
    /// The peer has ended its side, or the connection is broken.
    Ended,
}

/// Returns the state of a connected socket's receiving side, by recv(2) with `MSG_PEEK`.
pub(crate) fn peek(socket: BorrowedFd<'_>) -> PeekResult {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(socket, &mut [0_u8; 1][..], flags) {
        Ok((1.., _)) => PeekResult::Bytes,
        Err(Errno::AGAIN | Errno::INTR) => PeekResult::Nothing,
        _ => PeekResult::Ended,
    }
}
