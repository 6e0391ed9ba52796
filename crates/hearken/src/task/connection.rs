//! Operations on a connection, as polls: the common part of streams of all kinds.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use super::core::{SharedCore, State};
use super::source::{Flags, Source, closed};
use crate::event::Token;
use crate::io::{Buffer, CloseMode, Outgoing, Relay, SendOutcome};

/// Maximum number of bytes that a write takes. It limits the memory of bytes that the transport
/// does not take.
pub(super) const MAX_WRITE: usize = 64 * 1024;

/// A handle of a listener or connection, which closes with its last handle.
pub(super) struct Connection {
    pub(super) core: SharedCore,
    pub(super) token: Token,
}

impl Connection {
    /// Creates the first handle.
    pub(super) fn new(core: SharedCore, token: Token, flags: Flags) -> Connection {
        core.state.borrow_mut().sources.insert(token, flags);
        Connection { core, token }
    }

    /// Calls a function with the `Io`.
    pub(super) fn with_io<R>(&self, call: impl FnOnce(&mut dyn Relay, Token) -> R) -> R {
        call(&mut self.core.state.borrow_mut().io, self.token)
    }

    /// Closes the connection by a function, although it may have other handles: their operations
    /// fail.
    pub(super) fn close_by(&self, close: impl FnOnce(&mut dyn Relay, Token)) {
        let state = &mut *self.core.state.borrow_mut();
        if state.sources.get(self.token).is_some() {
            close(&mut state.io, self.token);
            state.fail(self.token);
        }
    }

    /// Waits until the connection is established.
    pub(super) fn poll_connected(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let State { sources, foreign, .. } = &mut *self.core.state.borrow_mut();
        let Some(source) = sources.get(self.token) else { return Poll::Ready(Err(closed())) };
        if source.flags.contains(Flags::CONNECTING) {
            return source.wait_to_write(context, foreign);
        }
        Poll::Ready(match source.flags.contains(Flags::RECEIVE_FAILED) {
            true => Err(source.receive_error()),
            false => Ok(()),
        })
    }

    /// Waits for received bytes, and applies `take` to them. `take` receives no bytes at the end of
    /// the stream.
    #[inline]
    pub(super) fn poll_receive<T>(
        &self,
        context: &Context<'_>,
        take: impl FnOnce(&mut Buffer) -> T,
    ) -> Poll<io::Result<T>> {
        self.poll_receive_with(context, |received, _| take(received))
    }

    /// Waits like [`poll_receive`](Connection::poll_receive), and passes `take` the `Io` as well.
    #[inline]
    fn poll_receive_with<T>(
        &self,
        context: &Context<'_>,
        take: impl FnOnce(&mut Buffer, &dyn Relay) -> T,
    ) -> Poll<io::Result<T>> {
        let State { sources, foreign, io, .. } = &mut *self.core.state.borrow_mut();
        let Some(source) = sources.get(self.token) else { return Poll::Ready(Err(closed())) };
        if !source.received.is_empty() {
            let result = take(&mut source.received, io);
            if source.received.is_empty() {
                source.received.release();
            }
            return Poll::Ready(Ok(result));
        }
        let ends = Flags::ENDED | Flags::RECEIVE_FAILED | Flags::EXPIRED;
        if source.flags.intersects(ends) {
            return Poll::Ready(source.end_of_stream().map(|()| take(&mut source.received, io)));
        }
        if !source.flags.intersects(Flags::STARTED | Flags::RELAY_SOURCE) {
            source.flags.insert(Flags::STARTED);
            io.start(self.token);
        }
        source.wait_to_read(context, foreign)
    }

    /// Waits for received bytes, and copies as many as fit into `buffer`.
    pub(super) fn poll_read(
        &self,
        context: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_receive(context, |received| {
            let count = received.len().min(buffer.len());
            buffer[..count].copy_from_slice(&received[..count]);
            received.consume(count);
            count
        })
    }

    /// Waits for received bytes, and takes them. They are empty at the end of the stream.
    #[inline]
    pub(super) fn poll_take(&self, context: &Context<'_>) -> Poll<io::Result<Buffer>> {
        self.poll_receive_with(context, |received, io| {
            // Tasks that hold their bytes for long do not exhaust the pool.
            if io.pool().is_scarce() {
                received.detach();
            }
            std::mem::take(received)
        })
    }

    /// Waits until there are bytes, the end of the stream or an error.
    pub(super) fn poll_readable(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll_receive(context, |_| ())
    }

    /// Returns bytes to the front of those that were received.
    pub(super) fn put_back(&self, mut bytes: Buffer) {
        let mut state = self.core.state.borrow_mut();
        if let Some(source) = state.sources.get(self.token) {
            if !source.received.is_empty() {
                bytes.as_vec().extend_from_slice(&source.received);
            }
            bytes.detach();
            source.received = bytes;
        }
    }

    /// Returns whether a write has to wait, and registers the waker if so.
    #[inline]
    pub(super) fn poll_may_send(
        source: &mut Source,
        context: &Context<'_>,
        foreign: &mut Vec<Waker>,
    ) -> Poll<io::Result<()>> {
        if source.flags.intersects(Flags::SEND_FAILED | Flags::EXPIRED) {
            return Poll::Ready(Err(source.send_failure()));
        }
        if source.is_sending() || source.flags.intersects(Flags::RELAY_TARGET | Flags::CONNECTING) {
            return source.wait_to_write(context, foreign);
        }
        Poll::Ready(Ok(()))
    }

    /// Waits for earlier sends, and then sends up to [`MAX_WRITE`] bytes. Bytes that the transport
    /// does not take at once are copied. Returns the number of bytes that are sent or copied.
    #[inline]
    pub(super) fn poll_write(
        &self,
        context: &Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let State { sources, foreign, io, .. } = &mut *self.core.state.borrow_mut();
        let Some(source) = sources.get(self.token) else { return Poll::Ready(Err(closed())) };
        ready!(Self::poll_may_send(source, context, foreign))?;
        let bytes = &bytes[..bytes.len().min(MAX_WRITE)];
        if !bytes.is_empty() && !io.send_now(self.token, bytes) {
            source.started_sends = source.started_sends.wrapping_add(1);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    /// Writes all of `rest`, which becomes shorter, and waits until the transport has taken it.
    #[inline]
    pub(super) fn poll_write_all(
        &self,
        context: &Context<'_>,
        rest: &mut &[u8],
    ) -> Poll<io::Result<()>> {
        let State { sources, foreign, io, .. } = &mut *self.core.state.borrow_mut();
        let Some(source) = sources.get(self.token) else { return Poll::Ready(Err(closed())) };
        loop {
            ready!(Self::poll_may_send(source, context, foreign))?;
            // A send that the transport takes at once needs no other check.
            while !rest.is_empty() {
                let (bytes, after) = rest.split_at(rest.len().min(MAX_WRITE));
                *rest = after;
                if !io.send_now(self.token, bytes) {
                    source.started_sends = source.started_sends.wrapping_add(1);
                    break;
                }
            }
            if rest.is_empty() && !source.is_sending() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Waits for earlier sends, and then writes as many of the pieces as fit into a buffer.
    pub(super) fn poll_write_vectored(
        &self,
        context: &Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut pieces = pieces.iter().filter(|piece| !piece.is_empty());
        let Some(first) = pieces.next() else { return Poll::Ready(Ok(0)) };
        let mut gathered = self.core.state.borrow().io.pool().acquire_over_limit();
        if first.len() >= gathered.spare_capacity() {
            return self.poll_write(context, first);
        }
        gathered.as_vec().extend_from_slice(first);
        for piece in pieces {
            let count = piece.len().min(gathered.spare_capacity());
            gathered.as_vec().extend_from_slice(&piece[..count]);
        }
        self.poll_write(context, &gathered)
    }

    /// Waits for earlier sends, and then starts to send. Takes `outgoing` when it starts.
    pub(super) fn poll_start_send(
        &self,
        context: &Context<'_>,
        outgoing: &mut Option<Outgoing>,
    ) -> Poll<io::Result<()>> {
        let State { sources, foreign, io, .. } = &mut *self.core.state.borrow_mut();
        let Some(source) = sources.get(self.token) else { return Poll::Ready(Err(closed())) };
        ready!(Self::poll_may_send(source, context, foreign))?;
        if let Some(outgoing) = outgoing.take() {
            source.started_sends = source.started_sends.wrapping_add(1);
            io.send(self.token, outgoing);
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until the transport has taken all bytes.
    #[inline]
    pub(super) fn poll_flush(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let State { sources, foreign, .. } = &mut *self.core.state.borrow_mut();
        let Some(source) = sources.get(self.token) else { return Poll::Ready(Err(closed())) };
        Self::poll_may_send(source, context, foreign)
    }

    /// Waits until the transport has taken all bytes, and then shuts down the sending side.
    pub(super) fn poll_shutdown(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(context))?;
        self.with_io(|io, token| io.shutdown(token));
        Poll::Ready(Ok(()))
    }

    /// Waits for earlier sends, and then sends the last bytes. Returns what remains to be done.
    pub(super) fn poll_send_last(
        &self,
        context: &Context<'_>,
        bytes: &[u8],
        mode: CloseMode,
    ) -> Poll<io::Result<SendOutcome>> {
        let State { sources, foreign, io, .. } = &mut *self.core.state.borrow_mut();
        let Some(source) = sources.get(self.token) else { return Poll::Ready(Err(closed())) };
        ready!(Self::poll_may_send(source, context, foreign))?;
        let outcome = io.send_last(self.token, bytes, mode);
        if outcome != SendOutcome::Complete {
            source.started_sends = source.started_sends.wrapping_add(1);
        }
        Poll::Ready(Ok(outcome))
    }
}

impl Source {
    /// Returns whether the stream ended, and the error if it failed.
    #[cold]
    fn end_of_stream(&mut self) -> io::Result<()> {
        if self.flags.contains(Flags::ENDED) {
            Ok(())
        } else if self.flags.contains(Flags::RECEIVE_FAILED) {
            Err(self.receive_error())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    /// Returns the reason why nothing can be sent.
    #[cold]
    fn send_failure(&mut self) -> io::Error {
        match self.flags.contains(Flags::SEND_FAILED) {
            true => self.send_error(),
            false => io::ErrorKind::TimedOut.into(),
        }
    }
}

impl Clone for Connection {
    fn clone(&self) -> Connection {
        if let Some(source) = self.core.state.borrow_mut().sources.get(self.token) {
            source.handles += 1;
        }
        Connection { core: Rc::clone(&self.core), token: self.token }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.core.state.borrow_mut();
        let removed = state.release(self.token);
        drop(state);
        // Its wakers may be foreign.
        drop(removed);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.token.fmt(f)
    }
}
