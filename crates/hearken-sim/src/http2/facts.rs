//! Facts about an HTTP/2 connection at its end, as its client knows them.

use hearken::timer::Time;

use super::attack::{Attack, Malformation};

/// The end of a stream, as the client saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEnd {
    /// The stream was open at the end of the connection.
    Open,
    /// The response is complete.
    Complete,
    /// The server reset the stream with this code.
    Reset(u32),
    /// The client cancelled the request.
    Cancelled,
}

impl StreamEnd {
    /// Returns a small number for the end.
    pub(crate) fn number(self) -> u8 {
        match self {
            StreamEnd::Open => 0,
            StreamEnd::Complete => 1,
            StreamEnd::Cancelled => 2,
            StreamEnd::Reset(code) => 3 + (code % 32) as u8,
        }
    }
}

/// A stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamFacts {
    /// The identifier.
    pub id: u32,
    /// The end.
    pub end: StreamEnd,
    /// Time of the end, unless that of the connection ended it.
    pub ended_at: Option<Time>,
    /// The error in the request.
    pub malformation: Option<Malformation>,
}

/// The last GOAWAY frame of the server.
#[derive(Clone, Copy, Debug)]
pub struct Goaway {
    /// Identifier of the last stream that the server may have processed.
    pub last: u32,
    /// The error code.
    pub code: u32,
    /// Time at which it was received.
    pub at: Time,
}

/// The HTTP/2 part of the record of a connection.
#[derive(Debug, Default)]
pub struct Http2Facts {
    /// The streams of the exchanges, in order.
    pub streams: Vec<StreamFacts>,
    /// Whether the settings of the server were received.
    pub has_settings: bool,
    /// The last GOAWAY frame.
    pub goaway: Option<Goaway>,
    /// A violation of the protocol by the client, and the number of requests before it.
    pub attack: Option<(usize, Attack)>,
    /// Whether the client exceeds limits on streams.
    pub is_flooding: bool,
    /// Whether the client sent GOAWAY.
    pub has_said_goaway: bool,
    /// Whether the client had not sent all of its frames at the end.
    pub has_unsent: bool,
    /// Time at which the client last sent something.
    pub sent_at: Option<Time>,
    /// Whether the client delayed the increase of windows.
    pub has_closed_windows: bool,
}

impl Http2Facts {
    /// Returns whether the server ignored the stream at `index` because of its GOAWAY frame.
    pub fn is_refused(&self, index: usize) -> bool {
        let id = self.streams.get(index).map_or(0, |stream| stream.id);
        self.goaway.is_some_and(|goaway| id > goaway.last)
    }

    /// Returns whether no server behind a proxy receives the request at `index`.
    pub(crate) fn must_not_arrive(&self, index: usize) -> bool {
        let malformation = self.streams.get(index).and_then(|stream| stream.malformation);
        // The length is known to be wrong at the end.
        let is_malformed = malformation.is_some_and(|it| it != Malformation::Length);
        is_malformed || self.is_refused(index)
    }

    /// Returns the number of complete responses.
    pub fn complete(&self) -> usize {
        self.streams.iter().filter(|stream| stream.end == StreamEnd::Complete).count()
    }
}
