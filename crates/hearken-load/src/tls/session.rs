//! The TLS session of one connection, without I/O: the caller transfers the encrypted bytes.

use std::mem;

use hearken_tls::{Progress, TlsFailure, ToSend, Wire};

/// Maximum size in bytes of an incomplete message: the longest handshake message, in records.
const MAX_INCOMPLETE: usize = 128 * 1024;

/// The state of the peer's sending side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The peer may send more.
    Open,
    /// The peer sent `close_notify`, so all of its content was received.
    Closed,
}

/// The session of one connection. Holds no buffers while it is idle. Encrypted bytes are appended to
/// the [`Wire`] of a call, even after an error.
#[derive(Debug)]
pub(crate) struct Session {
    session: hearken_tls::Session,
    /// Received bytes of an incomplete message.
    incoming: Vec<u8>,
    /// Content that waits for the end of the handshake.
    content: Vec<u8>,
    peer: State,
    closing: Closing,
    failed: Option<TlsFailure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    No,
    /// `close_notify` follows the content when the handshake is complete.
    Requested,
    Done,
}

impl Session {
    pub(super) fn new(session: hearken_tls::Session) -> Session {
        Session {
            session,
            incoming: Vec::new(),
            content: Vec::new(),
            peer: State::Open,
            closing: Closing::No,
            failed: None,
        }
    }

    /// Begins the handshake.
    pub(crate) fn start(&mut self, wire: &mut Wire) {
        self.write(ToSend::default(), wire);
    }

    /// Encrypts content, or queues it if the handshake is not complete.
    pub(crate) fn send(&mut self, content: &[u8], wire: &mut Wire) {
        if self.failed.is_some() || self.closing != Closing::No {
            return;
        }
        if self.is_handshaking() {
            self.content.extend_from_slice(content);
        } else {
            self.write(ToSend { content, closes: false }, wire);
        }
    }

    /// Decrypts received bytes in place and appends their content to `plain`. The content is never
    /// longer than `cipher`.
    pub(crate) fn receive(
        &mut self,
        cipher: &mut [u8],
        plain: &mut Vec<u8>,
        wire: &mut Wire,
    ) -> Result<State, TlsFailure> {
        if self.failed.is_none() && self.peer == State::Open {
            let mut incoming = mem::take(&mut self.incoming);
            if incoming.is_empty() {
                let consumed = self.process(cipher, plain, wire);
                incoming.extend_from_slice(cipher.get(consumed..).unwrap_or_default());
            } else {
                incoming.extend_from_slice(cipher);
                let consumed = self.process(&mut incoming, plain, wire);
                incoming.drain(..consumed);
            }
            if incoming.len() > MAX_INCOMPLETE {
                self.fail(TlsFailure::Protocol("a message of the server is too long".to_owned()));
            }
            if !incoming.is_empty() && self.failed.is_none() && self.peer == State::Open {
                self.incoming = incoming;
            }
        }
        match &self.failed {
            Some(failure) => Err(failure.clone()),
            None => Ok(self.peer),
        }
    }

    /// Returns whether the handshake is in progress.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Returns whether the session resumes an earlier one; `None` during the handshake.
    pub(crate) fn resumed(&self) -> Option<bool> {
        self.session.info().map(|info| info.resumed)
    }

    /// Returns whether the server selected the application protocol.
    pub(crate) fn has_selected(&self, protocol: &[u8]) -> bool {
        self.session.info().is_some_and(|info| info.alpn == Some(protocol))
    }

    /// Closes the sending side: `close_notify` follows the content, after the handshake.
    pub(crate) fn close(&mut self, wire: &mut Wire) {
        if self.closing != Closing::No || self.failed.is_some() {
            return;
        }
        self.closing = Closing::Requested;
        if !self.is_handshaking() {
            self.write(ToSend { content: &[], closes: true }, wire);
        }
    }

    /// Handles the end of the connection.
    ///
    /// # Errors
    /// The session failed before, or the peer did not close it with `close_notify`.
    pub(crate) fn end(&self) -> Result<(), TlsFailure> {
        match &self.failed {
            Some(failure) => Err(failure.clone()),
            None if self.peer == State::Closed => Ok(()),
            None if self.is_handshaking() => Err(TlsFailure::Handshake),
            None => Err(TlsFailure::Truncated),
        }
    }

    /// Processes received bytes and returns how many of them are no longer needed. Encrypts the
    /// queued content when the handshake is complete.
    fn process(&mut self, received: &mut [u8], plain: &mut Vec<u8>, wire: &mut Wire) -> usize {
        let content = mem::take(&mut self.content);
        let send = ToSend { content: &content, closes: self.closing == Closing::Requested };
        let progress =
            self.session.process(received, send, wire, |content| plain.extend_from_slice(content));
        let consumed = progress.consumed;
        let is_encrypted = progress.is_encrypted;
        self.finish(send.closes, progress);
        if !is_encrypted && self.failed.is_none() {
            self.content = content;
        }
        consumed
    }

    /// Processes what is to be sent.
    fn write(&mut self, send: ToSend<'_>, wire: &mut Wire) {
        // Complete records of `incoming` were decrypted when they arrived.
        let progress = self.session.process(&mut self.incoming, send, wire, |_| ());
        self.finish(send.closes, progress);
    }

    fn finish(&mut self, closes: bool, progress: Progress) {
        if closes && progress.is_encrypted {
            self.closing = Closing::Done;
        }
        if progress.peer_closed {
            self.peer = State::Closed;
        }
        if let Err(failure) = progress.result {
            self.fail(failure);
        }
    }

    fn fail(&mut self, failure: TlsFailure) {
        self.content = Vec::new();
        self.failed = Some(failure);
    }
}
