//! A socket: its state, and giving it bytes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use bytes::Buf;
use rustix::io::Errno;
use rustix::net::{self, SendFlags};

use crate::io::{Body, Outgoing};

#[derive(Debug, Default)]
pub(super) struct Socket {
    pub(super) state: State,
    /// Bytes of this turn's share that are used.
    pub(super) used: u32,
    pub(super) sent: u64,
    /// What was not sent at once; never empty.
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
    pub(super) struct State: u16 {
        const LISTENER = 1;
        const CONNECTING = 2;
        /// Accepting or receiving is wanted.
        const STARTED = 4;
        /// A read, or an accept, may succeed without another event.
        const READABLE = 8;
        /// So may a write.
        const WRITABLE = 256;
        /// The end of the stream is on its way: a short read is not the last.
        const ENDING = 16;
        /// In `turn` or `later`.
        const QUEUED = 32;
        /// In `undeclared`.
        const UNDECLARED = 64;
        /// A failed send leaves nothing to be sent.
        const BROKEN = 128;
        /// In `starved`.
        const STARVED = 512;
        /// Nothing more is received: the end was told, or a failure.
        const ENDED = 1024;
        /// Of a listener: it is to tell who connects.
        const PEERS = 2048;
        /// A relay receives from it; one sends to it, and waits for it to have room.
        const RELAYS = 4096;
        const FED = 8192;
        const ROOM = 16384;
    }
}

/// How far a send got.
pub(super) enum Progress {
    Complete,
    WouldBlock,
    /// It has had its share of this turn.
    Yielded,
    Failed(io::Error),
}

/// Gives the transport what it takes of `what`, if it has some of its share left.
pub(super) fn transmit(
    fd: BorrowedFd<'_>,
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
            (Body::None, false) => net::send(fd, &outgoing.head, SendFlags::NOSIGNAL),
            (Body::Bytes(bytes), true) if bytes.is_empty() => return Progress::Complete,
            (Body::Bytes(bytes), true) => net::send(fd, bytes, SendFlags::NOSIGNAL),
            (Body::Bytes(bytes), false) => {
                let parts = [IoSlice::new(&outgoing.head), IoSlice::new(bytes)];
                let mut nothing = net::SendAncillaryBuffer::default();
                net::sendmsg(fd, &parts, &mut nothing, SendFlags::NOSIGNAL)
            }
            (Body::File(part), _) if part.length == 0 && outgoing.head.is_empty() => {
                return Progress::Complete;
            }
            (Body::File(part), false) => {
                let mut flags = SendFlags::NOSIGNAL;
                flags.set(SendFlags::MORE, part.length > 0);
                net::send(fd, &outgoing.head, flags)
            }
            (Body::File(part), true) => {
                let left = share.saturating_sub(socket.used as usize);
                if left == 0 {
                    return Progress::Yielded;
                }
                let count = usize::try_from(part.length).unwrap_or(usize::MAX).min(left);
                match rustix::fs::sendfile(fd, &*part.file, Some(&mut part.offset), count) {
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
