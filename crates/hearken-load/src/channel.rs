//! Bytes to a server and from it: as they are, or under TLS.

use hearken::Token;
use hearken::io::Io;

use crate::tls::{Session, SessionError, State};

/// A connection's part of it.
#[derive(Debug, Default)]
pub(crate) struct Channel(Option<Box<Session>>);

/// Where bytes are put on their way through TLS; one serves all connections of a loop.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) plain: Vec<u8>,
    cipher: Vec<u8>,
}

/// What a handshake has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handshake {
    /// There was none, or it was over before.
    None,
    /// It goes on.
    InProgress,
    /// It is over just now, and has taken up an earlier session or not.
    Complete { resumed: bool },
}

impl Channel {
    /// Under TLS, if there is a session.
    pub(crate) fn new(session: Option<Box<Session>>) -> Channel {
        Channel(session)
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.0.is_some()
    }

    /// Sends `bytes`, or keeps them until the handshake is over.
    #[inline]
    pub(crate) fn send(
        &mut self,
        io: &mut impl Io,
        token: Token,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) {
        match &mut self.0 {
            None => {
                io.send_now(token, bytes);
            }
            Some(session) => {
                session.send(bytes);
                flush(io, token, session, scratch);
            }
        }
    }

    /// Sends what the session has to say of its own.
    pub(crate) fn flush(&mut self, io: &mut impl Io, token: Token, scratch: &mut Scratch) {
        if let Some(session) = &mut self.0 {
            flush(io, token, session, scratch);
        }
    }

    /// True until a handshake is over.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.0.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// Takes what came under TLS: the content is then in `scratch.plain`, also of what came before an
    /// error. Tells also whether more may come.
    pub(crate) fn receive(
        &mut self,
        io: &mut impl Io,
        token: Token,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> Result<(Handshake, State), SessionError> {
        scratch.plain.clear();
        let Some(session) = &mut self.0 else {
            return Ok((Handshake::None, State::Open));
        };
        let before = session.is_handshaking();
        let result = session.receive(bytes, &mut scratch.plain);
        // An alert is sent, too.
        flush(io, token, session, scratch);
        let state = result?;
        let handshake = match (before, session.is_handshaking()) {
            (false, _) => Handshake::None,
            (true, true) => Handshake::InProgress,
            (true, false) => Handshake::Complete { resumed: session.resumed().unwrap_or(false) },
        };
        Ok((handshake, state))
    }

    /// The stream has ended: under TLS, was that announced?
    pub(crate) fn on_end_of_stream(&mut self) -> Result<(), SessionError> {
        self.0.as_mut().map_or(Ok(()), |session| session.end())
    }

    /// Says that nothing more is sent, before a close.
    pub(crate) fn close(&mut self, io: &mut impl Io, token: Token, scratch: &mut Scratch) {
        if let Some(mut session) = self.0.take()
            && !session.is_handshaking()
        {
            session.close();
            flush(io, token, &mut session, scratch);
        }
    }
}

fn flush(io: &mut impl Io, token: Token, session: &mut Session, scratch: &mut Scratch) {
    scratch.cipher.clear();
    session.outgoing(&mut scratch.cipher);
    if !scratch.cipher.is_empty() {
        io.send_now(token, &scratch.cipher);
    }
}
