//! A client that reads only when it is called to.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::{TEST_TIMEOUT, ms};

/// Returns a request head without content. `line` is the method and the target, `fields` are lines.
pub(crate) fn request(line: &str, fields: &str) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\nHost: test\r\n{fields}\r\n").into_bytes()
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    request(&format!("GET {path}"), "")
}

/// A connection to a server.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Bytes that were received, but belong to no response yet.
    received: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn length(&self) -> u64 {
        self.field("Content-Length").map_or(0, |length| length.parse().unwrap())
    }
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Client {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        Client { stream, received: Vec::new() }
    }

    /// Sets the size of the receive buffer. The kernel doubles it.
    pub(crate) fn with_receive_buffer(self, bytes: usize) -> Client {
        sockopt::set_socket_recv_buffer_size(&self.stream, bytes).unwrap();
        self
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends bytes and pauses, so that the server can read them before the next ones.
    pub(crate) fn send_piece(&mut self, bytes: impl AsRef<[u8]>) {
        self.send(bytes);
        thread::sleep(ms(1));
    }

    pub(crate) fn shutdown_write(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Closes the connection with a reset.
    pub(crate) fn reset(self) {
        sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    /// Reads the head of the next response.
    pub(crate) fn head(&mut self) -> Response {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.receive() > 0, "closed within a head: {:?}", self.text());
        };
        let head = String::from_utf8(self.received.drain(..end).collect()).unwrap();
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not a status line: {head:?}"));
        Response { status, head, body: Vec::new() }
    }

    /// Reads the next response to a request other than HEAD.
    pub(crate) fn response(&mut self) -> Response {
        let mut response = self.head();
        if response.status >= 200 && !matches!(response.status, 204 | 304) {
            let length = usize::try_from(response.length()).unwrap();
            let present = length.min(self.received.len());
            let rest = self.received.split_off(present);
            response.body = std::mem::replace(&mut self.received, rest);
            response.body.resize(length, 0);
            self.stream.read_exact(&mut response.body[present..]).unwrap_or_else(|error| {
                panic!("a body of {length} bytes, {present} with the head: {error}")
            });
        }
        response
    }

    /// Sends a GET request and reads the response.
    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.send(get(path));
        self.response()
    }

    /// Reads and discards `count` bytes.
    pub(crate) fn skip(&mut self, mut count: u64) {
        let mut buffer = vec![0; 1 << 18];
        let present = self.received.len().min(usize::try_from(count).unwrap());
        self.received.drain(..present);
        count -= present as u64;
        while count > 0 {
            let space = buffer.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            let got = self.stream.read(&mut buffer[..space]).unwrap();
            assert!(got > 0, "closed {count} bytes too early");
            count -= got as u64;
        }
    }

    /// Asserts that the server closes the connection next, without a reset.
    #[track_caller]
    pub(crate) fn assert_closed(&mut self) {
        assert_eq!(self.text(), "", "unexpected bytes");
        assert_eq!(self.receive(), 0, "unexpected bytes: {:?}", self.text());
    }

    /// Reads until the connection is closed or reset. Returns the number of bytes.
    pub(crate) fn drain(&mut self) -> u64 {
        let mut buffer = vec![0; 1 << 18];
        let mut count = std::mem::take(&mut self.received).len() as u64;
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return count,
                Ok(got) => count += got as u64,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return count,
                Err(error) => panic!("after {count} bytes: {error}"),
            }
        }
    }

    /// Returns whether the socket has bytes or an end of stream within `timeout`.
    pub(crate) fn is_readable_within(&self, timeout: Duration) -> bool {
        self.poll(PollFlags::IN, timeout)
    }

    /// Returns whether the connection is reset within `timeout`. Received bytes need not be read.
    pub(crate) fn is_reset_within(&self, timeout: Duration) -> bool {
        self.poll(PollFlags::empty(), timeout)
    }

    fn poll(&self, flags: PollFlags, timeout: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap(),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        poll(&mut [PollFd::new(&self.stream, flags)], Some(&timeout)).unwrap() > 0
    }

    #[track_caller]
    fn receive(&mut self) -> usize {
        let mut buffer = [0; 1 << 16];
        let got = self.stream.read(&mut buffer).unwrap_or_else(|error| {
            panic!("after {:?}: {error}", self.text());
        });
        self.received.extend_from_slice(&buffer[..got]);
        got
    }

    fn text(&self) -> String {
        let shown = &self.received[..self.received.len().min(500)];
        String::from_utf8_lossy(shown).into_owned()
    }
}
