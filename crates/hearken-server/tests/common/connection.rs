//! A non-blocking connection that receives while it sends, in one thread.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::TEST_TIMEOUT;
use super::wire::{Kind, Message, Reader};

/// The end of a connection, as its reader sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Closed,
    Reset,
    /// Nothing was received for [`TEST_TIMEOUT`].
    Hangs,
    /// The received bytes are not a message.
    Malformed(String),
}

/// A TCP or Unix socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(into),
            Socket::Unix(stream) => stream.read(into),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }
}

/// A connection and the parser of its messages.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    pub(crate) reader: Reader,
    /// Set once nothing more can be received.
    pub(crate) end: Option<End>,
    /// Whether sending has failed.
    pub(crate) broken: bool,
    /// Number of bytes received and sent.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// All received bytes, if they are recorded.
    record: Option<Vec<u8>>,
}

impl Connection {
    pub(crate) fn connect(addr: SocketAddr, kind: Kind) -> Connection {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            match TcpStream::connect(addr) {
                Ok(stream) => return Connection::tcp(stream, kind),
                Err(error) => assert!(
                    error.kind() == ErrorKind::ConnectionReset && Instant::now() < deadline,
                    "cannot connect to {addr}: {error}"
                ),
            }
        }
    }

    pub(crate) fn tcp(stream: TcpStream, kind: Kind) -> Connection {
        let _ = stream.set_nodelay(true);
        stream.set_nonblocking(true).unwrap();
        Connection::of(Socket::Tcp(stream), kind)
    }

    pub(crate) fn unix(stream: UnixStream, kind: Kind) -> Connection {
        stream.set_nonblocking(true).unwrap();
        Connection::of(Socket::Unix(stream), kind)
    }

    fn of(socket: Socket, kind: Kind) -> Connection {
        let reader = Reader::new(kind);
        Connection { socket, reader, end: None, broken: false, received: 0, sent: 0, record: None }
    }

    /// Records all received bytes.
    pub(crate) fn record(&mut self) {
        self.record = Some(Vec::new());
    }

    /// Returns the recorded bytes.
    pub(crate) fn recorded(&self) -> &[u8] {
        self.record.as_deref().unwrap_or_default()
    }

    /// Sets the size of the receive buffer. The kernel doubles it.
    pub(crate) fn with_receive_buffer(self, bytes: usize) -> Connection {
        sockopt::set_socket_recv_buffer_size(self.socket.fd(), bytes).unwrap();
        self
    }

    pub(crate) fn local(&self) -> SocketAddr {
        match &self.socket {
            Socket::Tcp(stream) => stream.local_addr().unwrap(),
            Socket::Unix(_) => panic!("no address"),
        }
    }

    pub(crate) fn shutdown_write(&self) {
        let _ = match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// Delays partial segments until the connection is closed (TCP_CORK).
    pub(crate) fn cork(&self) {
        sockopt::set_tcp_cork(self.socket.fd(), true).unwrap();
    }

    /// Closes the connection with a reset.
    pub(crate) fn reset(self) {
        let _ = sockopt::set_socket_linger(self.socket.fd(), Some(Duration::ZERO));
    }

    /// Sends all bytes in pieces of at most `piece` bytes, and receives at the same time.
    pub(crate) fn send_in_pieces(&mut self, bytes: &[u8], piece: usize) {
        self.pump(bytes, piece, |_| true);
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.send_in_pieces(bytes.as_ref(), usize::MAX);
    }

    /// Returns whether something can be sent within `timeout`.
    pub(crate) fn is_writable_within(&self, timeout: Duration) -> bool {
        let gone = PollFlags::ERR | PollFlags::HUP;
        let ready = wait(self.socket.fd(), PollFlags::OUT, timeout);
        ready.contains(PollFlags::OUT) && !ready.intersects(gone) && !self.broken
    }

    /// Sends as many bytes as the socket accepts at once, and receives nothing.
    pub(crate) fn send_some(&mut self, bytes: &[u8]) {
        match self.socket.write(bytes) {
            Ok(sent) => self.sent += sent as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.broken = true,
        }
    }

    /// Sends the first 400 and the last 60 bytes one by one, and the bytes between in pieces.
    pub(crate) fn send_slowly(&mut self, bytes: &[u8]) {
        let first = bytes.len().min(400);
        let last = bytes.len().saturating_sub(60).max(first);
        self.send_in_pieces(&bytes[..first], 1);
        self.send_in_pieces(&bytes[first..last], 1371);
        self.send_in_pieces(&bytes[last..], 1);
    }

    /// Receives until `enough` returns true or the connection ends.
    pub(crate) fn receive_until(&mut self, enough: impl FnMut(&mut Reader) -> bool) {
        self.pump(&[], 1, enough);
    }

    /// Returns the next message, unless the connection ends within it.
    pub(crate) fn message(&mut self) -> Option<Message> {
        self.step().then(|| self.reader.take())
    }

    /// Receives up to the end of a message. Returns whether the message is complete.
    pub(crate) fn step(&mut self) -> bool {
        self.pump(&[], 1, |reader| !matches!(reader.advance(), Ok(false)));
        self.is_complete()
    }

    /// Returns whether a complete message was received.
    pub(crate) fn is_complete(&mut self) -> bool {
        match self.reader.advance() {
            Ok(true) => true,
            Ok(false) => self.end == Some(End::Closed) && self.reader.close(),
            Err(wrong) => {
                self.end.get_or_insert(End::Malformed(wrong));
                false
            }
        }
    }

    /// Returns the next final response, and discards interim responses.
    pub(crate) fn final_response(&mut self, kind: Kind) -> Option<Message> {
        self.reader.kind = kind;
        loop {
            let message = self.message()?;
            if message.status() >= 200 || message.status() == 101 {
                return Some(message);
            }
        }
    }

    /// Returns the next response. Panics if there is none.
    #[track_caller]
    pub(crate) fn expect_response(&mut self) -> Message {
        let answer = self.final_response(Kind::Response);
        answer.unwrap_or_else(|| panic!("no response: {:?}, {:?}", self.end, self.reader))
    }

    /// Returns the end of the connection. Further bytes are an error.
    pub(crate) fn read_end(&mut self) -> Result<End, String> {
        self.receive_until(|reader| !reader.is_idle());
        match &self.end {
            Some(end) if self.reader.is_idle() => Ok(end.clone()),
            _ => Err(format!("unexpected bytes: {:?}", super::wire::latin1(self.reader.rest()))),
        }
    }

    #[track_caller]
    pub(crate) fn assert_closed(&mut self) {
        let end = self.read_end().unwrap();
        assert!(matches!(end, End::Closed | End::Reset), "{end:?}");
    }

    /// Returns the next `count` bytes that belong to no message, or fewer at the end.
    pub(crate) fn read_raw(&mut self, count: usize) -> Vec<u8> {
        self.receive_until(|reader| reader.rest().len() >= count);
        let mut rest = self.reader.take_rest();
        let more = rest.split_off(count.min(rest.len()));
        self.reader.push(&more);
        rest
    }

    /// Receives and discards until the end. Returns the number of bytes and the end.
    pub(crate) fn drain(&mut self) -> (u64, End) {
        let before = self.received - self.reader.rest().len() as u64;
        while self.end.is_none() {
            self.receive_until(|reader| !reader.rest().is_empty());
            self.reader.take_rest();
        }
        (self.received - before, self.end.clone().unwrap_or(End::Hangs))
    }

    /// Waits until the connection is closed or reset, without receiving. Returns whether it was.
    pub(crate) fn wait_closed(&self) -> bool {
        let gone = PollFlags::ERR | PollFlags::HUP;
        wait(self.socket.fd(), PollFlags::empty(), TEST_TIMEOUT).intersects(gone)
    }

    /// Returns whether bytes or the end of the connection arrive within `timeout`.
    pub(crate) fn is_readable_within(&self, timeout: Duration) -> bool {
        !self.reader.rest().is_empty()
            || wait(self.socket.fd(), PollFlags::IN, timeout).intersects(PollFlags::all())
    }

    /// Sends `out` and receives, until all is sent and `enough` returns true or the connection ends.
    fn pump(&mut self, mut out: &[u8], piece: usize, mut enough: impl FnMut(&mut Reader) -> bool) {
        let mut buffer = [0; 1 << 16];
        loop {
            if self.broken {
                out = &[];
            }
            if out.is_empty() && (self.end.is_some() || enough(&mut self.reader)) {
                return;
            }
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, self.end.is_none());
            wanted.set(PollFlags::OUT, !out.is_empty());
            let ready = wait(self.socket.fd(), wanted, TEST_TIMEOUT);
            if ready.is_empty() {
                self.end.get_or_insert(End::Hangs);
                self.broken = true;
                return;
            }
            if !out.is_empty() && ready.intersects(PollFlags::OUT | PollFlags::ERR | PollFlags::HUP)
            {
                match self.socket.write(&out[..piece.min(out.len())]) {
                    Ok(sent) => {
                        out = &out[sent..];
                        self.sent += sent as u64;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => self.broken = true,
                }
            }
            if self.end.is_none()
                && ready.intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP)
            {
                match self.socket.read(&mut buffer) {
                    Ok(0) => self.end = Some(End::Closed),
                    Ok(got) => {
                        self.reader.push(&buffer[..got]);
                        if let Some(record) = &mut self.record {
                            record.extend_from_slice(&buffer[..got]);
                        }
                        self.received += got as u64;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                    Err(_) => self.end = Some(End::Reset),
                }
            }
        }
    }
}

fn wait(fd: BorrowedFd<'_>, wanted: PollFlags, timeout: Duration) -> PollFlags {
    let timeout = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap(),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut polled = [PollFd::from_borrowed_fd(fd, wanted)];
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) => polled[0].revents(),
        Err(rustix::io::Errno::INTR) => PollFlags::IN,
        Err(error) => panic!("poll: {error}"),
    }
}
