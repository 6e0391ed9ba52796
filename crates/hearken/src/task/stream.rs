//! Streams: connections over TCP and Unix sockets.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::task::ready;

use super::connection::Connection;
use super::core;
use super::source::Flags;
use crate::event::Token;
use crate::io::{Address, Buffer, CloseMode, ConnectOptions, Outgoing, PeekResult, SendOutcome};
use crate::timer::Time;

/// The kind of TCP streams.
#[derive(Debug)]
pub enum Tcp {}

/// The kind of streams over Unix sockets.
#[derive(Debug)]
pub enum Unix {}

/// A connection over TCP.
pub type TcpStream = Stream<Tcp>;

/// A connection over a Unix socket.
pub type UnixStream = Stream<Unix>;

/// A connection. It closes when its last clone is dropped.
///
/// At a time, one task should receive and one should send. Two tasks that wait for the same wake
/// each other until one of them can continue.
///
/// A stream reads only while a task waits for bytes. The kernel then holds back the peer of a task
/// that does something else.
///
/// # Cancellation
/// A future that is dropped before it is ready has no effect, with these exceptions:
///
/// * [`write_all`](Stream::write_all) has sent its bytes up to a multiple of 64 KiB. Bytes that it
///   has begun to send are delivered in any case, so shorter writes are sent as a whole or not at
///   all.
/// * [`send`](Stream::send) delivers its content once it has begun. It begins when earlier sends
///   are complete.
/// * [`relay_to`](Stream::relay_to) continues. Its result is that of the next call.
/// * [`connect`](TcpStream::connect) and [`finish`](Stream::finish) close the connection.
///
/// Received bytes are never lost: a future that takes bytes is then ready.
pub struct Stream<N> {
    connection: Connection,
    kind: PhantomData<fn() -> N>,
}

impl TcpStream {
    /// Connects to an address.
    ///
    /// # Errors
    /// Errors of the kernel: refused, timed out, unreachable, out of descriptors.
    ///
    /// # Panics
    /// Panics outside of a task.
    pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_with(address, &ConnectOptions::default()).await
    }

    /// Connects to an address like [`connect`](TcpStream::connect), with options.
    ///
    /// # Errors
    /// As [`connect`](TcpStream::connect).
    ///
    /// # Panics
    /// Panics outside of a task.
    pub async fn connect_with(
        address: SocketAddr,
        options: &ConnectOptions,
    ) -> io::Result<TcpStream> {
        Stream::open(&address.into(), options).await
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.connection.with_io(|io, token| io.local_addr(token))
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// Errors of the kernel. The connection may have failed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.connection.with_io(|io, token| io.peer_addr(token))
    }
}

impl UnixStream {
    /// Connects to the socket at a path.
    ///
    /// # Errors
    /// Errors of the kernel. `WouldBlock` if too many connections wait to be accepted: the caller
    /// decides when to retry.
    ///
    /// # Panics
    /// Panics outside of a task.
    pub async fn connect(path: &Path) -> io::Result<UnixStream> {
        Stream::open(&path.into(), &ConnectOptions::default()).await
    }
}

impl<N> Stream<N> {
    pub(super) fn new(connection: Connection) -> Stream<N> {
        Stream { connection, kind: PhantomData }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    async fn open(address: &Address, options: &ConnectOptions) -> io::Result<Stream<N>> {
        let core = core::current();
        let token = core.state.borrow_mut().io.connect_with(address, options)?;
        let stream = Stream::new(Connection::new(core, token, Flags::CONNECTING));
        poll_fn(|context| stream.connection.poll_connected(context)).await?;
        Ok(stream)
    }

    /// Waits for bytes and lends them from the buffer into which they were received. They are
    /// empty at the end of the stream.
    ///
    /// No bytes are copied, and a stream without bytes has no buffer.
    ///
    /// # Errors
    /// Errors of the kernel. `TimedOut` after the [deadline](Stream::set_deadline).
    pub async fn receive(&self) -> io::Result<Received> {
        poll_fn(|context| self.connection.poll_take(context)).await.map(Received)
    }

    /// Waits for bytes and copies up to `buffer.len()` of them. Returns zero at the end of the
    /// stream.
    ///
    /// # Errors
    /// As [`receive`](Stream::receive).
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.connection.poll_read(context, buffer)).await
    }

    /// Waits until there are bytes, the end of the stream or an error, and takes nothing.
    ///
    /// # Errors
    /// As [`receive`](Stream::receive).
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|context| self.connection.poll_readable(context)).await
    }

    /// Returns bytes to the stream, to be received again before all others.
    pub fn put_back(&self, bytes: Received) {
        if !bytes.is_empty() {
            self.connection.put_back(bytes.0);
        }
    }

    /// Returns whether bytes are available, as far as it is known without waiting.
    pub fn has_input(&self) -> bool {
        let state = &mut *self.connection.core.state.borrow_mut();
        let token = self.connection.token;
        state.sources.get(token).is_some_and(|source| !source.received.is_empty())
            || state.io.peek(token) == PeekResult::Bytes
    }

    /// Waits for earlier writes, and writes up to 64 KiB. Bytes that the transport does not take at
    /// once are copied and follow later. Returns the number of bytes that are sent or copied.
    ///
    /// # Errors
    /// The error of this or an earlier write. `TimedOut` after the
    /// [deadline](Stream::set_deadline).
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|context| self.connection.poll_write(context, bytes)).await
    }

    /// Writes like [`write`](Stream::write), from several pieces, as many as fit into one buffer.
    ///
    /// # Errors
    /// As [`write`](Stream::write).
    pub async fn write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        poll_fn(|context| self.connection.poll_write_vectored(context, pieces)).await
    }

    /// Writes all bytes, and waits until the transport has taken them.
    ///
    /// # Errors
    /// As [`write`](Stream::write).
    pub async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        poll_fn(|context| self.connection.poll_write_all(context, &mut rest)).await
    }

    /// Waits until the transport has taken all written bytes.
    ///
    /// # Errors
    /// As [`write`](Stream::write).
    pub async fn flush(&self) -> io::Result<()> {
        poll_fn(|context| self.connection.poll_flush(context)).await
    }

    /// Sends a head and a body, such as a file range, without a copy. Waits for earlier writes
    /// first, and until the transport has taken all.
    ///
    /// # Errors
    /// As [`write`](Stream::write). `UnexpectedEof` if the file is shorter than the range.
    pub async fn send(&self, outgoing: Outgoing) -> io::Result<()> {
        let mut outgoing = Some(outgoing);
        poll_fn(|context| {
            if outgoing.is_some() {
                ready!(self.connection.poll_start_send(context, &mut outgoing))?;
            }
            self.connection.poll_flush(context)
        })
        .await
    }

    /// Waits until the transport has taken all written bytes, and shuts down the sending side. The
    /// peer reads the end of the stream after them.
    ///
    /// # Errors
    /// As [`write`](Stream::write).
    pub async fn shutdown(&self) -> io::Result<()> {
        poll_fn(|context| self.connection.poll_shutdown(context)).await
    }

    /// Sends the last bytes, and then shuts down the sending side or closes the connection. The
    /// end may leave in the packet of the last bytes.
    ///
    /// # Errors
    /// As [`write`](Stream::write).
    pub async fn finish(self, bytes: &[u8], mode: CloseMode) -> io::Result<()> {
        let connection = &self.connection;
        let outcome = poll_fn(|context| connection.poll_send_last(context, bytes, mode)).await?;
        if outcome != SendOutcome::Complete {
            match poll_fn(|context| connection.poll_flush(context)).await {
                // The implementation has closed the connection, and another has its place.
                Err(error)
                    if outcome == SendOutcome::PendingClose
                        && error.kind() == io::ErrorKind::NotConnected => {}
                flushed => flushed?,
            }
        }
        match mode {
            CloseMode::Shutdown => connection.with_io(|io, token| io.shutdown(token)),
            CloseMode::Close => connection.close_by(|io, token| io.close(token)),
        }
        Ok(())
    }

    /// Closes the connection with a reset. Operations of other clones fail.
    pub fn reset(self) {
        self.connection.close_by(|io, token| io.abort(token));
    }

    /// Sets, moves or clears the deadline. After it, all operations that would wait fail with
    /// `TimedOut` until another deadline is set, except relays. One store if it moves to a later time.
    pub fn set_deadline(&self, deadline: Option<Time>) {
        let state = &mut *self.connection.core.state.borrow_mut();
        if let Some(source) = state.sources.get(self.connection.token) {
            source.flags.remove(Flags::EXPIRED);
            state.io.set_deadline(self.connection.token, deadline);
        }
    }

    /// Returns the number of sent bytes that the peer's host has acknowledged.
    pub fn delivered(&self) -> u64 {
        self.connection.with_io(|io, token| io.delivered(token))
    }

    /// Returns the number of sent bytes that the peer's host has not acknowledged.
    pub fn undelivered(&self) -> u64 {
        self.connection.with_io(|io, token| io.undelivered(token))
    }

    /// Calls a function with the socket, to read or set its options. See
    /// [`Io::socket`](crate::io::Io::socket). Returns `None` if the connection is closed.
    pub fn with_socket<R>(&self, call: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        self.connection.with_io(|io, token| io.socket(token).map(call))
    }

    /// Returns the token of the connection.
    pub fn token(&self) -> Token {
        self.connection.token
    }
}

impl<N> Clone for Stream<N> {
    fn clone(&self) -> Stream<N> {
        Stream::new(self.connection.clone())
    }
}

impl<N> fmt::Debug for Stream<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.connection)
    }
}

/// Received bytes, in the buffer into which they were received. The buffer returns on drop.
#[derive(Debug)]
pub struct Received(Buffer);

impl Received {
    /// Removes the first `count` bytes, or all if there are fewer.
    pub fn consume(&mut self, count: usize) {
        self.0.consume(count);
    }

    /// Returns the buffer, for example to send its bytes on without a copy.
    pub fn into_buffer(self) -> Buffer {
        self.0
    }
}

impl Deref for Received {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Received> for Outgoing {
    fn from(received: Received) -> Outgoing {
        Outgoing { head: received.0, body: crate::io::Body::None }
    }
}
