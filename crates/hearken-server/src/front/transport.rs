//! The operations that [`Front`](super::Front) needs of a client's connection.

use hearken::Token;
use hearken::io::{Body, Outgoing, Relay, SendOutcome, Then};
use hearken::timer::Time;

use crate::runtime::peek::{PeekResult, peek};

/// Operations on clients' connections, each of which is named by a token.
///
/// The front performs no I/O: a driver does, and tells the front what happened. The driver in
/// [`event_loop`](crate::event_loop) performs the operations over [`Io`](hearken::io::Io); [`admin`](crate::admin)
/// has another, over an event queue. Sends are delivered in the order of the calls.
pub(crate) trait Transport {
    /// Returns the time at which this turn began.
    fn turn_time(&self) -> Time;

    /// Sends `bytes` and returns whether the transport took all of them. If not, the transport
    /// keeps a copy of the rest, and the driver calls [`Front::sent`](super::Front::sent) later.
    fn send_bytes(&mut self, token: Token, bytes: &[u8]) -> bool;

    /// Sends the last bytes of a connection, which the caller shuts down or closes next.
    fn send_final(&mut self, token: Token, bytes: &[u8], then: Then) -> SendOutcome;

    /// Sends `head`, which it leaves empty, and then `body`. The driver calls
    /// [`Front::sent`](super::Front::sent) when it is done.
    fn send_body(&mut self, token: Token, head: &mut Vec<u8>, body: Body);

    /// Starts or resumes receiving.
    fn resume_reading(&mut self, token: Token);

    /// Stops receiving. What was received already may still be reported.
    fn pause_reading(&mut self, token: Token);

    /// Shuts down the sending side.
    fn shut_down(&mut self, token: Token);

    /// Closes the connection.
    fn close_connection(&mut self, token: Token);

    /// Closes the connection with a reset.
    fn reset_connection(&mut self, token: Token);

    /// Sets, moves or clears the connection's one deadline.
    fn set_timer(&mut self, token: Token, deadline: Option<Time>);

    /// Returns how many bytes of what was sent the client has acknowledged.
    fn acknowledged(&self, token: Token) -> u64;

    /// Returns how many bytes of what was sent the client has not acknowledged.
    fn unacknowledged(&self, token: Token) -> u64;

    /// Returns whether the client has sent something that was not received yet, as far as this is
    /// known.
    fn has_input(&self, token: Token) -> bool {
        let _ = token;
        false
    }

    /// Moves up to `most` bytes from one connection to another without showing them, if the
    /// transport can. The driver calls [`Front::relayed`](super::Front::relayed) when it ends.
    fn relay_bytes(&mut self, from: Token, to: Token, most: u64) -> bool {
        let _ = (from, to, most);
        false
    }

    /// Returns how many bytes the relay from `from` has moved.
    fn relayed_bytes(&self, from: Token) -> u64 {
        let _ = from;
        0
    }

    /// Returns whether the relay to `to` waits for the client to take more.
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
    fn send_final(&mut self, token: Token, bytes: &[u8], then: Then) -> SendOutcome {
        self.send_last(token, bytes, then)
    }

    fn send_body(&mut self, token: Token, head: &mut Vec<u8>, body: Body) {
        let mut buffer = self.pool().lend_beyond();
        buffer.as_vec().append(head);
        self.send(token, Outgoing { head: buffer, body });
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
        self.socket(token).is_some_and(|socket| peek(socket) == PeekResult::Bytes)
    }

    fn relay_bytes(&mut self, from: Token, to: Token, most: u64) -> bool {
        self.relay(from, to, most)
    }

    fn relayed_bytes(&self, from: Token) -> u64 {
        self.relayed(from)
    }

    fn is_relay_blocked(&self, to: Token) -> bool {
        self.relay_is_blocked(to)
    }
}
