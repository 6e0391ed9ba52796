//! A single-threaded server that replies to every request with one byte and records its arrival time.
//!
//! a) Arrival times are kernel timestamps of the segment that completed the request. On loopback, this
//!    time lies within the send(2) of the generator, so scheduling of this program has no influence. If
//!    the kernel provides no timestamp, the time after recvmsg(2) is used and counted.
//! b) An empty line ends a request. Request bodies are not supported.
//! c) The only state of a partial request is how much of the empty line has been received.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketType, sockopt as options};
use rustix::time::{ClockId, clock_gettime};

/// Reply with keep-alive for HTTP/1.0 clients.
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx";
const END: [u8; 4] = *b"\r\n\r\n";
/// Event data of the listener, distinct from connection indices.
const LISTENER: u64 = u64::MAX;
/// Interval at which the server checks whether to stop.
const STOP_CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The settings of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Number of requests after which the server stops.
    pub(crate) max_requests: usize,
    /// CPU time to spend on each request.
    pub(crate) work: Duration,
    /// Whether to poll without sleeping.
    pub(crate) spin: bool,
    /// Maximum number of connections at a time. Others stay in the accept queue.
    pub(crate) connections: usize,
    /// Length of the accept queue in the kernel.
    pub(crate) backlog: i32,
}

/// The recorded data.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Arrival times in nanoseconds since 1970, in the order of reading.
    pub(crate) arrivals: Vec<u64>,
    /// Number of arrivals without a kernel timestamp. (a)
    pub(crate) without_kernel_timestamp: u64,
    /// Number of replies that the kernel accepted.
    pub(crate) replies: u64,
    pub(crate) connections: u64,
    /// Number of connections closed with an unanswered request, or not accepted because of an error.
    pub(crate) lost: u64,
}

/// A connection, and the number of bytes of the empty line received so far.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    matched: usize,
}

#[derive(Debug)]
pub(crate) struct Server {
    settings: Settings,
    epoll: OwnedFd,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    open: usize,
    recording: Recording,
}

impl Server {
    /// Binds the address and listens.
    pub(crate) fn listen(address: SocketAddr, settings: Settings) -> io::Result<Server> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
        options::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        // Accepted connections inherit the option, so that the first segment has a timestamp too.
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        rustix::net::listen(&socket, settings.backlog)?;
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)?;
        let (connections, free, recording) = (Vec::new(), Vec::new(), Recording::default());
        Ok(Server { settings, epoll, listener, connections, free, open: 0, recording })
    }

    /// Returns the address that the server listens on.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves requests until `stop` is set or the number of requests is reached.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> io::Result<Recording> {
        let mut batch: Vec<epoll::Event> = Vec::with_capacity(256);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if self.settings.spin { zero } else { STOP_CHECK_INTERVAL };
        while !stop.load(Ordering::Relaxed)
            && self.recording.arrivals.len() < self.settings.max_requests
        {
            batch.clear();
            let buffer = rustix::buffer::spare_capacity(&mut batch);
            match epoll::wait(&self.epoll, buffer, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            for event in &batch {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    index => self.handle_readable(index as usize),
                }
            }
        }
        Ok(self.recording)
    }

    /// Accepts a limited number of connections, so that pending requests are not delayed.
    fn accept(&mut self) {
        for _ in 0..16 {
            if self.open >= self.settings.connections {
                return self.set_listener_interest(epoll::EventFlags::empty());
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The connection stays in the queue, or was closed.
                Err(_) => {
                    self.recording.lost += 1;
                    return;
                }
            };
            let index = self.free.pop().unwrap_or(self.connections.len());
            let data = epoll::EventData::new_u64(index as u64);
            let ready = stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true))
                .and_then(|()| Ok(epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?));
            if ready.is_err() {
                self.free.push(index);
                self.recording.lost += 1;
                continue;
            }
            if index == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[index] = Some(Connection { stream, matched: 0 });
            self.open += 1;
            self.recording.connections += 1;
        }
    }

    fn set_listener_interest(&self, events: epoll::EventFlags) {
        let data = epoll::EventData::new_u64(LISTENER);
        // The listener is registered, so this can only fail for lack of memory.
        let _ = epoll::modify(&self.epoll, &self.listener, data, events);
    }

    /// Reads from a connection and replies. Closes the connection on failure.
    fn handle_readable(&mut self, index: usize) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        let mut buffer = [0; 16 * 1024];
        let (count, timestamp) = match receive(&connection.stream, &mut buffer) {
            Ok((count, timestamp)) if count > 0 => (count, timestamp),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(_) | Err(_) => return self.close(index),
        };
        let mut requests = 0;
        for &byte in &buffer[..count] {
            let matched = &mut connection.matched;
            *matched = match byte {
                byte if byte == END[*matched] => *matched + 1,
                b'\r' => 1,
                _ => 0,
            };
            if *matched == END.len() {
                *matched = 0;
                requests += 1;
            }
        }
        for _ in 0..requests {
            self.recording.without_kernel_timestamp += u64::from(timestamp.is_none());
            self.recording.arrivals.push(timestamp.unwrap_or_else(now));
            work(self.settings.work);
            if !matches!(connection.stream.write(REPLY), Ok(written) if written == REPLY.len()) {
                self.recording.lost += 1;
                return self.close(index);
            }
            self.recording.replies += 1;
        }
    }

    fn close(&mut self, index: usize) {
        self.connections[index] = None;
        self.free.push(index);
        if self.open == self.settings.connections {
            self.set_listener_interest(epoll::EventFlags::IN);
        }
        self.open -= 1;
    }
}

/// Uses the processor for this duration.
fn work(length: Duration) {
    let start = std::time::Instant::now();
    while !length.is_zero() && start.elapsed() < length {
        std::hint::spin_loop();
    }
}

/// Returns the real time in nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    nanos(clock_gettime(ClockId::Realtime))
}

/// Returns the real time minus the monotonic time. It changes when the clock is stepped.
pub(crate) fn offset() -> i64 {
    let before = nanos(clock_gettime(ClockId::Monotonic));
    let real = now();
    let after = nanos(clock_gettime(ClockId::Monotonic));
    real.wrapping_sub(before / 2 + after / 2).cast_signed()
}

fn nanos(time: Timespec) -> u64 {
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Reads from a socket. Returns the number of bytes and the kernel timestamp of the last one.
fn receive(mut from: &TcpStream, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::empty();
    match recvmsg::<()>(from.as_raw_fd(), &mut parts, Some(&mut control), flags) {
        Ok(message) => {
            let timestamp =
                message.cmsgs().ok().into_iter().flatten().find_map(|part| match part {
                    ControlMessageOwned::ScmTimestampns(time) => Some(
                        time.tv_sec().cast_unsigned() * 1_000_000_000
                            + time.tv_nsec().cast_unsigned(),
                    ),
                    _ => None,
                });
            Ok((message.bytes, timestamp))
        }
        // Kernels without control messages support plain reads.
        Err(nix::errno::Errno::ENOPROTOOPT) => Ok((from.read(parts[0].as_mut())?, None)),
        Err(errno) => Err(errno.into()),
    }
}
