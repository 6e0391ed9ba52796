//! The operations that [`Front`](super::Front) needs on client connections.

use std::io;

use hearken::Token;
use hearken::io::{
    Body, CloseMode, FilePart, Io, Outgoing, PeekResult, Relay, Security, SendOutcome,
};
use hearken::timer::Time;

/// Operations on client connections, each identified by a token.
///
/// A driver performs the I/O and reports events to the front. The drivers in
/// [`event_loop`](crate::event_loop) and [`task_loop`](crate::task_loop) use
/// [`Io`](hearken::io::Io). Sends are delivered in the order of the calls.
pub(crate) trait Transport {
    /// Returns the start time of this turn.
    fn turn_time(&self) -> Time;

    /// Sends `bytes`. Returns whether the send is complete. If not, the transport stores a copy of
    /// the rest, and the driver calls [`Front::on_sent`](super::Front::on_sent) later.
    fn send_bytes(&mut self, token: Token, bytes: &[u8]) -> bool;

    /// Sends the last bytes of a connection, which the caller shuts down or closes next.
    fn send_final(&mut self, token: Token, bytes: &[u8], then: CloseMode) -> SendOutcome;

    /// Sends `head`, which it empties, and then `body`. The driver calls
    /// [`Front::on_sent`](super::Front::on_sent) when the send is complete.
    fn send_body(&mut self, token: Token, head: &mut Vec<u8>, body: Body);

    /// Reads the first bytes of a part of a file, which remains as it is.
    ///
    /// # Errors
    /// The file cannot be read, or is shorter.
    fn read_file(&mut self, part: &FilePart, into: &mut [u8]) -> io::Result<()>;

    /// Starts or resumes receiving.
    fn resume_reading(&mut self, token: Token);

    /// Pauses receiving. Bytes that were already received may still be reported.
    fn pause_reading(&mut self, token: Token);

    /// Shuts down the sending side.
    fn shut_down(&mut self, token: Token);

    /// Closes the connection.
    fn close_connection(&mut self, token: Token);

    /// Closes the connection with a reset.
    fn reset_connection(&mut self, token: Token);

    /// Sets or clears the deadline of the connection.
    fn set_timer(&mut self, token: Token, deadline: Option<Time>);

    /// Returns the number of sent bytes that the client has acknowledged.
    fn acknowledged(&self, token: Token) -> u64;

    /// Returns the number of sent bytes that the client has not acknowledged.
    fn unacknowledged(&self, token: Token) -> u64;

    /// Returns whether received input is pending, as far as the transport knows.
    fn has_input(&self, token: Token) -> bool {
        let _ = token;
        false
    }

    /// Returns the parameters of a connection under TLS.
    fn security_of(&self, token: Token) -> Option<Security<'_>> {
        let _ = token;
        None
    }

    /// Returns whether a request for `host` belongs on another connection, because the client
    /// selected the certificate of another site.
    #[inline]
    fn is_misdirected(&self, token: Token, host: &[u8]) -> bool {
        let _ = (token, host);
        false
    }

    /// Starts a relay of up to `max_bytes` bytes from one connection to another, without passing them
    /// to the front. Returns false if the transport cannot do it. The driver calls
    /// [`Front::on_relayed`](super::Front::on_relayed) when the relay ends.
    fn relay_bytes(&mut self, from: Token, to: Token, max_bytes: u64) -> bool {
        let _ = (from, to, max_bytes);
        false
    }

    /// Returns the number of bytes that the relay from `from` has moved.
    fn relayed_bytes(&self, from: Token) -> u64 {
        let _ = from;
        0
    }

    /// Returns whether the relay to `to` waits until the client accepts more bytes.
    fn is_relay_blocked(&self, to: Token) -> bool {
        let _ = to;
        false
    }
}

impl<I: Relay> Transport for I {
    #[inline]
    fn turn_time(&self) -> Time {
        self.now()
    }

    #[inline(always)]
    fn send_bytes(&mut self, token: Token, bytes: &[u8]) -> bool {
        self.send_now(token, bytes)
    }

    #[inline]
    fn send_final(&mut self, token: Token, bytes: &[u8], then: CloseMode) -> SendOutcome {
        self.send_last(token, bytes, then)
    }

    fn send_body(&mut self, token: Token, head: &mut Vec<u8>, body: Body) {
        let mut buffer = self.pool().acquire_over_limit();
        buffer.as_vec().append(head);
        self.send(token, Outgoing { head: buffer, body });
    }

    fn read_file(&mut self, part: &FilePart, into: &mut [u8]) -> io::Result<()> {
        part.read(into)
    }

    #[inline]
    fn resume_reading(&mut self, token: Token) {
        self.start(token);
    }

    #[inline]
    fn pause_reading(&mut self, token: Token) {
        self.stop(token);
    }

    fn shut_down(&mut self, token: Token) {
        self.shutdown(token);
    }

    #[inline]
    fn close_connection(&mut self, token: Token) {
        self.close(token);
    }

    fn reset_connection(&mut self, token: Token) {
        self.abort(token);
    }

    #[inline(always)]
    fn set_timer(&mut self, token: Token, deadline: Option<Time>) {
        self.set_deadline(token, deadline);
    }

    fn acknowledged(&self, token: Token) -> u64 {
        self.delivered(token)
    }

    fn unacknowledged(&self, token: Token) -> u64 {
        self.undelivered(token)
    }

    fn has_input(&self, token: Token) -> bool {
        self.peek(token) == PeekResult::Bytes
    }

    fn security_of(&self, token: Token) -> Option<Security<'_>> {
        self.security(token)
    }

    #[inline]
    fn is_misdirected(&self, token: Token, host: &[u8]) -> bool {
        Io::is_misdirected(self, token, host)
    }

    fn relay_bytes(&mut self, from: Token, to: Token, max_bytes: u64) -> bool {
        self.relay(from, to, max_bytes)
    }

    fn relayed_bytes(&self, from: Token) -> u64 {
        self.relayed(from)
    }

    fn is_relay_blocked(&self, to: Token) -> bool {
        self.relay_is_blocked(to)
    }
}
