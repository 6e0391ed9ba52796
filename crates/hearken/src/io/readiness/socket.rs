//! The state of a socket, and sends.

use std::collections::VecDeque;
use std::io;

use bytes::Buf;
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::io::kernel::KernelSocket;
use crate::io::{Body, Outgoing};

#[derive(Debug, Default)]
pub(super) struct Socket {
    pub(super) state: State,
    /// Number of bytes that were transferred in this turn.
    pub(super) used: u32,
    pub(super) sent: u64,
    /// Sends that did not complete immediately; never empty.
    #[expect(clippy::box_collection, reason = "an idle connection pays for one word, not four")]
    pub(super) sends: Option<Box<VecDeque<Outgoing>>>,
}

impl Socket {
    #[inline]
    pub(super) fn has_sent(&mut self, bytes: usize) {
        self.used = self.used.saturating_add(bytes as u32);
        self.sent += bytes as u64;
    }
}

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) struct State: u32 {
        const LISTENER = 1;
        const CONNECTING = 2;
        /// Accepting or receiving is requested.
        const STARTED = 4;
        /// A read, or an accept, may succeed without another event.
        const READABLE = 8;
        /// A write may succeed without another event.
        const WRITABLE = 256;
        /// The end of the stream was reported, so a read must follow a short read.
        const END_PENDING = 16;
        /// In `turn` or `later`.
        const QUEUED = 32;
        /// In `undeclared`.
        const UNDECLARED = 64;
        /// A send failed, and all later sends with it.
        const SEND_FAILED = 128;
        /// In `waiting_for_buffer`.
        const NEEDS_BUFFER = 512;
        /// The end of the stream or a failure was reported.
        const RECEIVE_ENDED = 1024;
        /// The listener reports the addresses of peers.
        const REPORTS_PEERS = 2048;
        /// A relay receives from the socket.
        const RELAY_SOURCE = 4096;
        /// A relay sends to the socket.
        const RELAY_TARGET = 8192;
        /// The relay to the socket waits until the socket is writable.
        const NEEDS_SPACE = 16384;
        /// Other instances accept from the listener too.
        const SHARED = 131_072;
        /// The interest is revoked before the socket is closed.
        const REVOKED_TO_CLOSE = 32768;
        /// The descriptor is not a socket of this instance. Its readability is reported.
        const WATCHED = 262_144;
        /// A head and the file range after it are corked.
        const CORKED = 65536;
    }
}

/// The result of an attempt to send.
pub(super) enum Progress {
    Complete,
    WouldBlock,
    /// The connection reached its limit of this turn.
    Yielded,
    Failed(io::Error),
}

/// Sends as much of `outgoing` as the socket takes, until the connection reaches its limit of this
/// turn.
pub(super) fn transmit(
    fd: &impl KernelSocket,
    outgoing: &mut Outgoing,
    socket: &mut Socket,
    share: usize,
) -> Progress {
    if socket.used as usize >= share {
        return Progress::Yielded;
    }
    loop {
        let taken = match (&mut outgoing.body, outgoing.head.is_empty()) {
            (Body::None, true) => return Progress::Complete,
            (Body::None, false) => fd.send(&outgoing.head, SendFlags::NOSIGNAL),
            (Body::Bytes(bytes), true) if bytes.is_empty() => return Progress::Complete,
            (Body::Bytes(bytes), true) => fd.send(bytes, SendFlags::NOSIGNAL),
            (Body::Bytes(bytes), false) => fd.send_both(&outgoing.head, bytes),
            (Body::File(part), _) if part.length == 0 && outgoing.head.is_empty() => {
                if socket.state.contains(State::CORKED) {
                    fd.set_cork(false);
                }
                return Progress::Complete;
            }
            (Body::File(part), false) => {
                if socket.state.contains(State::CORKED) {
                    fd.set_cork(true);
                }
                let mut flags = SendFlags::NOSIGNAL;
                flags.set(SendFlags::MORE, part.length > 0);
                fd.send(&outgoing.head, flags)
            }
            (Body::File(part), true) => {
                let left = share.saturating_sub(socket.used as usize);
                if left == 0 {
                    return Progress::Yielded;
                }
                let count = usize::try_from(part.length).unwrap_or(usize::MAX).min(left);
                match fd.send_file(part, count) {
                    Ok(0) => return Progress::Failed(io::ErrorKind::UnexpectedEof.into()),
                    Ok(taken) => {
                        part.length -= taken as u64;
                        socket.has_sent(taken);
                        continue;
                    }
                    Err(errno) => Err(errno),
                }
            }
        };
        match taken {
            Ok(taken) => {
                socket.has_sent(taken);
                let of_head = taken.min(outgoing.head.len());
                outgoing.head.consume(of_head);
                if outgoing.head.is_empty() {
                    outgoing.head.release(); // The body may take long.
                }
                if let Body::Bytes(bytes) = &mut outgoing.body {
                    bytes.advance(taken - of_head);
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                socket.state.remove(State::WRITABLE);
                return Progress::WouldBlock;
            }
            Err(errno) => return Progress::Failed(errno.into()),
        }
    }
}
