//! A worker's listening socket: who is let in, and when nobody is.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Io, ListenOptions};

use crate::config::Loops;
use crate::runtime::limit_reached::LimitReporter;
use crate::runtime::server::Seat;

/// How long after it ran out of descriptors it tries again, if none was freed before.
const RETRY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Door {
    listener: Token,
    /// How many are in, and how many may be.
    open: usize,
    max: usize,
    /// Accepting waits for one to leave.
    full: bool,
    shut: bool,
    closed: bool,
    limits: LimitReporter,
}

impl Door {
    /// Listens where the seat says, and accepts.
    pub(crate) fn open(
        io: &mut impl Io,
        seat: &Seat,
        loops: &Loops,
        peers: bool,
    ) -> io::Result<Door> {
        let mut options = ListenOptions::default();
        options.reuse_port = seat.workers > 1;
        options.defer = loops.defer_accept;
        options.peers = peers;
        let listener = io.listen(&seat.listen.into(), &options)?;
        io.start(listener);
        let (max, limits) = (seat.share.connections, LimitReporter::new(loops.on_limit));
        Ok(Door { listener, open: 0, max, full: false, shut: false, closed: false, limits })
    }

    /// Where it is.
    pub(crate) fn addr(&self, io: &impl Io) -> io::Result<SocketAddr> {
        io.local_addr(self.listener)
    }

    /// Whether that is its token.
    #[inline]
    pub(crate) fn is(&self, on: Token) -> bool {
        on == self.listener
    }

    /// How many are in.
    pub(crate) fn count(&self) -> usize {
        self.open
    }

    /// One came in.
    #[inline]
    pub(crate) fn entered(&mut self, io: &mut impl Io) {
        self.open += 1;
        if self.open >= self.max {
            self.limits.report(io.now(), self.open, None);
            self.full = true;
            io.stop(self.listener);
        }
    }

    /// One has left: there is room for another.
    #[inline]
    pub(crate) fn left(&mut self, io: &mut impl Io) {
        self.open -= 1;
        if std::mem::take(&mut self.full) && !self.shut {
            io.set_deadline(self.listener, None);
            io.start(self.listener);
        }
    }

    /// Nobody can be let in for now.
    pub(crate) fn failed(&mut self, io: &mut impl Io, error: &io::Error) {
        self.limits.report(io.now(), self.open, Some(error));
        self.full = true;
        let retry = io.now() + RETRY;
        io.set_deadline(self.listener, Some(retry));
    }

    /// Tries again.
    pub(crate) fn retry(&mut self, io: &mut impl Io) {
        self.full = false;
        io.start(self.listener);
    }

    /// Lets nobody in any more, but for those who had come by now.
    pub(crate) fn shut(&mut self) {
        self.shut = true;
    }

    /// Listens no more.
    pub(crate) fn close(&mut self, io: &mut impl Io) {
        self.shut();
        self.closed = true;
        io.close(self.listener);
    }

    /// Whether all is taken in that had come before the end: who is idle now has asked for nothing.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}
