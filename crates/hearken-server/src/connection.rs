//! What a connection is doing.

use hearken::Token;
use hearken_http::{BodyReader, RequestParser};

/// One connection, in as little memory as an idle one needs.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Its name; that of an earlier holder of the slot where `phase` is [`Phase::Vacant`].
    pub(crate) token: Token,
    pub(crate) phase: Phase,
    pub(crate) flags: Flags,
    /// Sends that are not complete.
    pub(crate) sends: u8,
    /// What an idle connection does not have.
    pub(crate) pending: Option<Box<Pending>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// There is none.
    Vacant,
    /// Waiting for a head, or for the rest of one.
    Head,
    /// Discarding the body of a request that is answered after it.
    Body,
    /// Being sent an answer.
    Sending,
    /// Told of the end; what it still sends is discarded, so that a reset does not take the answer
    /// from it.
    Lingering,
}

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) struct Flags: u8 {
        /// It has had an answer: it is idle between requests, not new.
        const SERVED = 1;
        /// The client will send no more.
        const ENDED = 2;
        /// To be closed once what is being sent was sent.
        const CLOSE = 4;
        /// And to linger first, as there may be more to come.
        const LINGER = 8;
        /// Receiving was stopped while it is being sent to.
        const STOPPED = 16;
        /// It is closed behind what is sent, without being asked to.
        const CLOSES = 32;
    }
}

/// What has come and is not dealt with, and what is measured of a slow connection.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Received bytes, beginning with a request's head.
    pub(crate) bytes: Vec<u8>,
    /// How far that head was looked at.
    pub(crate) parser: RequestParser,
    /// The body being discarded, and the length of the head before it.
    pub(crate) body: Option<(BodyReader, usize)>,
    /// What is to be delivered when the rate is looked at next.
    pub(crate) due: Option<u64>,
    /// Bytes discarded while lingering.
    pub(crate) discarded: usize,
}

impl Connection {
    pub(crate) fn new(token: Token) -> Connection {
        Connection { token, phase: Phase::Head, flags: Flags::default(), sends: 0, pending: None }
    }

    /// Has it closed once what is being sent was sent; `more` tells that the client may send more.
    pub(crate) fn close_after(&mut self, more: bool) {
        self.flags.insert(Flags::CLOSE);
        self.flags.set(Flags::LINGER, more);
    }

    /// Bytes that wait to be dealt with.
    pub(crate) fn backlog(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| pending.bytes.len())
    }

    pub(crate) fn pending(&mut self) -> &mut Pending {
        self.pending.get_or_insert_default()
    }
}
