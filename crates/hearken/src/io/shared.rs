//! Code that all implementations share.

use rustix::io::Errno;
use rustix::net::SendFlags;

use super::{Io, Outgoing, SendOutcome};
use crate::event::Token;

/// The source of a wake-up. No socket has this token.
pub(super) const NO_TOKEN: Token = Token::from_bits(u64::MAX);

/// The operations of an implementation that the shared functions use.
pub(super) trait Backend: Io {
    /// Sends `bytes` if the socket takes them immediately. Fails with the number of bytes that it
    /// took if it took only some, or if the attempt was not possible.
    fn try_send(&mut self, token: Token, bytes: &[u8], flags: SendFlags) -> Result<(), usize>;

    /// Returns whether a relay can receive from the connection.
    fn can_relay_from(&self, token: Token) -> bool;

    /// Returns whether a relay can send to the connection.
    fn can_relay_to(&self, token: Token) -> bool;

    /// Starts a relay between two connections that allow it.
    fn start_relay(&mut self, from: Token, to: Token, max: u64);
}

/// Sends what the socket takes immediately, and queues a copy of the rest. Returns whether there is
/// no rest.
#[inline]
pub(super) fn send_immediately(
    io: &mut impl Backend,
    token: Token,
    bytes: &[u8],
    flags: SendFlags,
) -> bool {
    let Err(taken) = io.try_send(token, bytes, flags) else {
        return true;
    };
    // An error, or EAGAIN, recurs in the queued send, which handles it.
    let rest = Outgoing::copy(io.pool(), &bytes[taken..]);
    io.send(token, rest);
    false
}

/// Sends like [`send_at_once`] and lets the kernel withhold the end of the bytes.
#[inline]
pub(super) fn send_last_immediately(
    io: &mut impl Backend,
    token: Token,
    bytes: &[u8],
) -> SendOutcome {
    if send_immediately(io, token, bytes, SendFlags::NOSIGNAL | SendFlags::MORE) {
        SendOutcome::Complete
    } else {
        SendOutcome::Pending
    }
}

/// Starts a relay if both connections allow it. Returns whether they do.
pub(super) fn relay(io: &mut impl Backend, from: Token, to: Token, max: u64) -> bool {
    let can = from != to && io.can_relay_from(from) && io.can_relay_to(to);
    if can {
        io.start_relay(from, to, max);
    }
    can
}

/// Returns whether a failed accept concerns only the connection that was to be accepted, or the
/// call, but not the listener: accept(2), "Error handling".
pub(super) fn is_transient(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::NETDOWN
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
    )
}
