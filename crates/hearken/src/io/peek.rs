//! Inspects a socket without receiving from it.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// The state of the receiving side of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeekResult {
    /// Received bytes are available.
    Bytes,
    /// No bytes are available.
    Nothing,
    /// The peer has closed its sending side, or the connection failed.
    Ended,
}

/// Returns the state of the receiving side of a connected socket, using recv(2) with `MSG_PEEK`.
pub(super) fn peek(socket: BorrowedFd<'_>) -> PeekResult {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(socket, &mut [0_u8; 1][..], flags) {
        Ok((1.., _)) => PeekResult::Bytes,
        Err(Errno::AGAIN | Errno::INTR) => PeekResult::Nothing,
        _ => PeekResult::Ended,
    }
}
