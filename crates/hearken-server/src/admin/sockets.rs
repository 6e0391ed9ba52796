//! The transport of the admin address, over non-blocking sockets.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hearken::io::{Body, CloseMode, SendOutcome};
use hearken::timer::{Time, Wheel};
use hearken::{Interest, Registration, Token};
use rustix::net::sockopt::set_socket_linger;

use crate::front::Transport;

/// Maximum number of bytes of a file to read at a time.
const FILE_CHUNK: usize = 16 * 1024;

/// Connections by token slot. Token generations increase in the order of accepts.
pub(super) struct Sockets {
    connections: Vec<Option<Connection>>,
    /// Deadlines, by slot.
    pub(super) timers: Wheel,
    /// Start time of the turn.
    pub(super) now: Time,
}

struct Connection {
    token: Token,
    socket: Registration<TcpStream>,
    /// Whether the local address is a loopback address.
    is_loopback: bool,
    reading: bool,
    /// Whether receiving has ended or failed. The socket then stays readable.
    ended: bool,
    /// Incomplete sends: bytes, and the body that follows them.
    sends: VecDeque<(Bytes, Body)>,
    /// Total number of bytes passed to the transport, and of bytes written to the socket.
    queued: u64,
    sent: u64,
}

impl Sockets {
    pub(super) fn new(now: Time) -> Sockets {
        Sockets { connections: Vec::new(), timers: Wheel::new(now), now }
    }

    /// Returns the first slot without a connection.
    pub(super) fn vacant_slot(&self) -> u32 {
        let vacant = self.connections.iter().position(Option::is_none);
        vacant.unwrap_or(self.connections.len()) as u32
    }

    /// Adds a connection to whose socket interest in reading is declared.
    pub(super) fn insert(&mut self, token: Token, socket: Registration<TcpStream>) {
        let slot = token.slot() as usize;
        if slot >= self.connections.len() {
            self.connections.resize_with(slot + 1, || None);
        }
        let local = socket.local_addr().map(|addr| addr.ip().to_canonical());
        self.connections[slot] = Some(Connection {
            token,
            socket,
            // If the address is unknown, the stricter rules apply.
            is_loopback: local.map_or(true, |local| local.is_loopback()),
            reading: true,
            ended: false,
            sends: VecDeque::new(),
            queued: 0,
            sent: 0,
        });
    }

    /// Returns the connection in a slot.
    pub(super) fn token_at(&self, slot: u32) -> Option<Token> {
        Some(self.connections.get(slot as usize)?.as_ref()?.token)
    }

    /// Returns the connection that was accepted first.
    pub(super) fn oldest(&self) -> Option<Token> {
        let tokens = self.connections.iter().flatten().map(|connection| connection.token);
        tokens.min_by_key(|token| token.generation())
    }

    pub(super) fn is_loopback(&self, token: Token) -> bool {
        self.get(token).is_none_or(|connection| connection.is_loopback)
    }

    /// Receives bytes. Returns 0 at the end of the stream, and `None` if no bytes are available.
    pub(super) fn receive(&mut self, token: Token, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        let connection = self.get_mut(token).filter(|it| it.reading && !it.ended)?;
        let received = completed((&*connection.socket).read(buffer))?;
        if !matches!(received, Ok(1..)) {
            connection.ended = true;
            connection.update_interest();
        }
        Some(received)
    }

    /// Continues sending. Returns the result of the oldest send, or `None` if it is incomplete.
    pub(super) fn resume_sending(&mut self, token: Token) -> Option<io::Result<()>> {
        completed(self.get_mut(token)?.send_oldest())
    }

    fn get(&self, token: Token) -> Option<&Connection> {
        let connection = self.connections.get(token.slot() as usize)?.as_ref();
        connection.filter(|connection| connection.token == token)
    }

    fn get_mut(&mut self, token: Token) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(token.slot() as usize)?.as_mut();
        connection.filter(|connection| connection.token == token)
    }

    fn set_reading(&mut self, token: Token, reading: bool) {
        if let Some(connection) = self.get_mut(token) {
            connection.reading = reading;
            connection.update_interest();
        }
    }
}

impl Connection {
    /// Sends until the oldest send is complete.
    ///
    /// # Errors
    /// `WouldBlock` if the send is incomplete, or an error of the socket or file.
    fn send_oldest(&mut self) -> io::Result<()> {
        let Some((bytes, body)) = self.sends.front_mut() else {
            return Err(ErrorKind::WouldBlock.into());
        };
        loop {
            if !bytes.is_empty() {
                let count = (&*self.socket).write(bytes)?;
                bytes.advance(count);
                self.sent += count as u64;
                continue;
            }
            match body {
                Body::Bytes(more) if !more.is_empty() => *bytes = std::mem::take(more),
                Body::File(part) if part.length > 0 => {
                    let length = usize::try_from(part.length).unwrap_or(FILE_CHUNK).min(FILE_CHUNK);
                    let mut piece = vec![0; length];
                    let count = rustix::io::pread(&*part.file, &mut piece[..], part.offset)?;
                    if count == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                    piece.truncate(count);
                    part.offset += count as u64;
                    part.length -= count as u64;
                    *bytes = piece.into();
                }
                _ => break,
            }
        }
        self.sends.pop_front();
        self.update_interest();
        Ok(())
    }

    fn send_later(&mut self, bytes: Bytes, body: Body) {
        self.sends.push_back((bytes, body));
        self.update_interest();
    }

    fn update_interest(&self) {
        let mut interest = Interest::empty();
        interest.set(Interest::READ, self.reading && !self.ended);
        interest.set(Interest::WRITE, !self.sends.is_empty());
        // If this fails for lack of memory, the deadline closes the connection.
        let _ = self.socket.change_interest(interest);
    }
}

impl Transport for Sockets {
    fn turn_time(&self) -> Time {
        self.now
    }

    fn send_bytes(&mut self, token: Token, bytes: &[u8]) -> bool {
        let Some(connection) = self.get_mut(token) else { return true };
        connection.queued += bytes.len() as u64;
        let mut count = 0;
        if connection.sends.is_empty() {
            // The next send reports an error.
            count = (&*connection.socket).write(bytes).unwrap_or(0);
            connection.sent += count as u64;
        }
        if count < bytes.len() {
            connection.send_later(Bytes::copy_from_slice(&bytes[count..]), Body::None);
        }
        count == bytes.len()
    }

    fn send_final(&mut self, token: Token, bytes: &[u8], _: CloseMode) -> SendOutcome {
        if self.send_bytes(token, bytes) { SendOutcome::Complete } else { SendOutcome::Pending }
    }

    fn send_body(&mut self, token: Token, head: &mut Vec<u8>, body: Body) {
        let head = Bytes::from(std::mem::take(head));
        let length = match &body {
            Body::None => 0,
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::File(part) => part.length,
        };
        if let Some(connection) = self.get_mut(token) {
            connection.queued += head.len() as u64 + length;
            connection.send_later(head, body);
        }
    }

    fn resume_reading(&mut self, token: Token) {
        self.set_reading(token, true);
    }

    fn pause_reading(&mut self, token: Token) {
        self.set_reading(token, false);
    }

    fn shut_down(&mut self, token: Token) {
        if let Some(connection) = self.get(token) {
            // Receiving reports an error of the connection.
            let _ = connection.socket.shutdown(Shutdown::Write);
        }
    }

    fn close_connection(&mut self, token: Token) {
        if self.get(token).is_some() {
            self.connections[token.slot() as usize] = None;
            self.timers.cancel(token.slot());
        }
    }

    fn reset_connection(&mut self, token: Token) {
        if let Some(connection) = self.get(token) {
            let _ = set_socket_linger(&*connection.socket, Some(Duration::ZERO));
            self.close_connection(token);
        }
    }

    fn set_timer(&mut self, token: Token, deadline: Option<Time>) {
        if self.get(token).is_some() {
            self.timers.set(token.slot(), deadline);
        }
    }

    fn acknowledged(&self, token: Token) -> u64 {
        // The bytes in the socket's buffer count as acknowledged.
        self.get(token).map_or(0, |connection| connection.sent)
    }

    fn unacknowledged(&self, token: Token) -> u64 {
        self.get(token).map_or(0, |connection| connection.queued - connection.sent)
    }
}

/// Returns the result of an operation, or `None` if it must be retried.
fn completed<R>(outcome: io::Result<R>) -> Option<io::Result<R>> {
    let again =
        |error: &io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
    (!outcome.as_ref().is_err_and(again)).then_some(outcome)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::TcpListener;
    use std::rc::Rc;

    use hearken::EventQueue;
    use hearken::io::FilePart;

    use super::*;

    #[test]
    fn sends_are_delivered_in_order_and_short_files_fail() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut client = TcpStream::connect(listener.local_addr()?)?;
        let (stream, _) = listener.accept()?;
        let queue = EventQueue::<()>::new()?;
        let (socket, _) = queue.declare_interest(stream, Interest::READ, ())?;
        let (mut io, token) = (Sockets::new(Time::now()), Token::new(0, 1));
        io.insert(token, socket);

        let mut content = tempfile::tempfile()?;
        content.write_all(b"0123456789")?;
        let file = Rc::new(File::into(content));
        let part = |length| Body::File(FilePart { file: Rc::clone(&file), offset: 7, length });
        io.send_body(token, &mut b"head ".to_vec(), part(3));
        assert!(!io.send_bytes(token, b" bytes "));
        io.send_body(token, &mut Vec::new(), Body::Bytes(Bytes::from_static(b"body")));
        io.send_body(token, &mut b" short ".to_vec(), part(4));
        assert_eq!((io.acknowledged(token), io.unacknowledged(token)), (0, 8 + 7 + 4 + 11));
        for _ in 0..3 {
            assert!(matches!(io.resume_sending(token), Some(Ok(()))));
        }
        let failed = io.resume_sending(token).and_then(Result::err).map(|error| error.kind());
        assert_eq!(failed, Some(ErrorKind::UnexpectedEof));
        io.close_connection(token);
        assert!(io.resume_sending(token).is_none());

        let mut received = String::new();
        client.read_to_string(&mut received)?;
        assert_eq!(received, "head 789 bytes body short 789");
        Ok(())
    }
}
