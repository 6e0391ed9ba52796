//! The byte stream of a connection: plain or under TLS.

use hearken::Token;
use hearken::io::Io;
use hearken_tls::{TlsFailure, Wire};

use crate::tls::{Session, State};

/// The byte stream of a connection, with its TLS session if it has one.
#[derive(Debug, Default)]
pub(crate) struct Channel(Option<Box<Session>>);

/// Buffers for data on its way through TLS, shared by all connections of an event loop.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) plain: Vec<u8>,
    wire: Wire,
}

/// The state of the TLS handshake after data was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handshake {
    /// No handshake, or a handshake that had completed before.
    None,
    /// The handshake needs more data.
    InProgress,
    /// The handshake has just completed, with a resumed session or a new one.
    Complete { resumed: bool },
}

impl Channel {
    /// Creates a stream, under TLS if there is a session.
    pub(crate) fn new(session: Option<Box<Session>>) -> Channel {
        Channel(session)
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.0.is_some()
    }

    /// Sends `bytes`, or buffers them until the handshake is complete. Returns false if the transport
    /// has not taken all of its bytes, in which case a completion of the send follows.
    #[inline]
    pub(crate) fn send(
        &mut self,
        io: &mut impl Io,
        token: Token,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> bool {
        match &mut self.0 {
            None => io.send_now(token, bytes),
            Some(session) => {
                session.send(bytes, &mut scratch.wire);
                flush(io, token, &mut scratch.wire)
            }
        }
    }

    /// Begins the TLS handshake, if there is one.
    pub(crate) fn start(&mut self, io: &mut impl Io, token: Token, scratch: &mut Scratch) {
        if let Some(session) = &mut self.0 {
            session.start(&mut scratch.wire);
            flush(io, token, &mut scratch.wire);
        }
    }

    /// Returns whether the connection speaks an application protocol: without TLS by prior knowledge.
    pub(crate) fn speaks(&self, protocol: &[u8]) -> bool {
        self.0.as_ref().is_none_or(|session| session.has_selected(protocol))
    }

    /// Returns true until the handshake is complete.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.0.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// Decrypts `bytes` in place and copies the content to `scratch.plain`, which also holds data decrypted before an error.
    /// Returns the state of the handshake, and whether more data can follow.
    pub(crate) fn receive(
        &mut self,
        io: &mut impl Io,
        token: Token,
        bytes: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(Handshake, State), TlsFailure> {
        scratch.plain.clear();
        let Some(session) = &mut self.0 else {
            return Ok((Handshake::None, State::Open));
        };
        let before = session.is_handshaking();
        let result = session.receive(bytes, &mut scratch.plain, &mut scratch.wire);
        // Alerts are sent even after an error.
        flush(io, token, &mut scratch.wire);
        let state = result?;
        let handshake = match (before, session.is_handshaking()) {
            (false, _) => Handshake::None,
            (true, true) => Handshake::InProgress,
            (true, false) => Handshake::Complete { resumed: session.resumed().unwrap_or(false) },
        };
        Ok((handshake, state))
    }

    /// Handles the end of the stream.
    ///
    /// # Errors
    /// The peer closed a TLS connection without a `close_notify` alert.
    pub(crate) fn on_end_of_stream(&self) -> Result<(), TlsFailure> {
        self.0.as_ref().map_or(Ok(()), |session| session.end())
    }

    /// Sends a `close_notify` alert before the connection is closed.
    pub(crate) fn close(&mut self, io: &mut impl Io, token: Token, scratch: &mut Scratch) {
        if let Some(mut session) = self.0.take()
            && !session.is_handshaking()
        {
            session.close(&mut scratch.wire);
            flush(io, token, &mut scratch.wire);
        }
    }
}

/// Sends the encrypted bytes. Returns false if the transport has not taken all of them.
fn flush(io: &mut impl Io, token: Token, wire: &mut Wire) -> bool {
    let is_done = wire.is_empty() || io.send_now(token, wire.bytes());
    wire.clear();
    is_done
}
