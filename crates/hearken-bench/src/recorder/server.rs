//! A server of one thread that answers all with one byte and notes when each request arrived.
//!
//! a) The time is the kernel's: when it took the segment that ended the request, which on loopback is
//!    within the generator's send(2). So it does not matter when this program is run. Where the kernel
//!    gives none, it is the time after recvmsg(2), and that is counted.
//! b) A request is what an empty line ends: bodies are not understood.
//! c) Nothing is kept of a request but how far the empty line has come.

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

/// It says that the connection stays, for those who speak HTTP/1.0.
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx";
const END: [u8; 4] = *b"\r\n\r\n";
/// The listener's, among the numbers of connections.
const LISTENER: u64 = u64::MAX;
/// How often it is looked at whether to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// What it does besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// After so many requests it ends.
    pub(crate) most: usize,
    /// How long it works on a request, which bounds how many it can answer.
    pub(crate) work: Duration,
    /// It does not sleep.
    pub(crate) spin: bool,
    /// Connections at a time; more are left to the kernel.
    pub(crate) connections: usize,
    /// Connections that the kernel keeps until they are accepted.
    pub(crate) backlog: i32,
}

/// What it has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When each request arrived, in nanoseconds since 1970; in the order of being read.
    pub(crate) arrivals: Vec<u64>,
    /// Of these, by the program's clock. (a)
    pub(crate) by_own_clock: u64,
    /// Replies that the kernel took.
    pub(crate) replies: u64,
    pub(crate) connections: u64,
    /// Connections that were closed with a request unanswered, or could not be accepted.
    pub(crate) lost: u64,
}

/// A connection, and how much of an empty line its last bytes are.
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
    seen: Seen,
}

impl Server {
    /// Binds and listens.
    pub(crate) fn listen(at: SocketAddr, settings: Settings) -> io::Result<Server> {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
        options::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &at)?;
        // What it accepts has the option from it, so that what comes first is stamped, too.
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        rustix::net::listen(&socket, settings.backlog)?;
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)?;
        let (connections, free, seen) = (Vec::new(), Vec::new(), Seen::default());
        Ok(Server { settings, epoll, listener, connections, free, open: 0, seen })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until it is to stop, or has had enough.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> io::Result<Seen> {
        let mut batch: Vec<epoll::Event> = Vec::with_capacity(256);
        let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if self.settings.spin { nothing } else { LOOK };
        while !stop.load(Ordering::Relaxed) && self.seen.arrivals.len() < self.settings.most {
            batch.clear();
            let room = rustix::buffer::spare_capacity(&mut batch);
            match epoll::wait(&self.epoll, room, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            for event in &batch {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    index => self.hear(index as usize),
                }
            }
        }
        Ok(self.seen)
    }

    /// Takes what waits, some of it: those who have asked are to be answered meanwhile.
    fn accept(&mut self) {
        for _ in 0..16 {
            if self.open >= self.settings.connections {
                return self.listen_for(epoll::EventFlags::empty());
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // It waits in the kernel, or is gone.
                Err(_) => {
                    self.seen.lost += 1;
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
                self.seen.lost += 1;
                continue;
            }
            if index == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[index] = Some(Connection { stream, matched: 0 });
            self.open += 1;
            self.seen.connections += 1;
        }
    }

    fn listen_for(&self, events: epoll::EventFlags) {
        let data = epoll::EventData::new_u64(LISTENER);
        // It is registered, so that only a lack of memory is left to refuse it.
        let _ = epoll::modify(&self.epoll, &self.listener, data, events);
    }

    /// Reads what has come on a connection, and answers; closes it where that fails.
    fn hear(&mut self, index: usize) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        let mut room = [0; 16 * 1024];
        let (got, stamp) = match receive(&connection.stream, &mut room) {
            Ok((got, stamp)) if got > 0 => (got, stamp),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(_) | Err(_) => return self.close(index),
        };
        let mut asked = 0;
        for &byte in &room[..got] {
            let matched = &mut connection.matched;
            *matched = match byte {
                byte if byte == END[*matched] => *matched + 1,
                b'\r' => 1,
                _ => 0,
            };
            if *matched == END.len() {
                *matched = 0;
                asked += 1;
            }
        }
        for _ in 0..asked {
            self.seen.by_own_clock += u64::from(stamp.is_none());
            self.seen.arrivals.push(stamp.unwrap_or_else(now));
            work(self.settings.work);
            if !matches!(connection.stream.write(REPLY), Ok(written) if written == REPLY.len()) {
                self.seen.lost += 1;
                return self.close(index);
            }
            self.seen.replies += 1;
        }
    }

    fn close(&mut self, index: usize) {
        self.connections[index] = None;
        self.free.push(index);
        if self.open == self.settings.connections {
            self.listen_for(epoll::EventFlags::IN);
        }
        self.open -= 1;
    }
}

/// Keeps the processor for so long.
fn work(length: Duration) {
    let began = std::time::Instant::now();
    while !length.is_zero() && began.elapsed() < length {
        std::hint::spin_loop();
    }
}

/// Real time, in nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    nanos(clock_gettime(ClockId::Realtime))
}

/// Real time less monotonic time: what changes it is a step of the clock.
pub(crate) fn offset() -> i64 {
    let before = nanos(clock_gettime(ClockId::Monotonic));
    let real = now();
    let after = nanos(clock_gettime(ClockId::Monotonic));
    real.wrapping_sub(before / 2 + after / 2).cast_signed()
}

fn nanos(time: Timespec) -> u64 {
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Reads, and tells when the last of it came.
fn receive(mut from: &TcpStream, room: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(room)];
    let flags = MsgFlags::empty();
    match recvmsg::<()>(from.as_raw_fd(), &mut parts, Some(&mut control), flags) {
        Ok(message) => {
            let stamp = message.cmsgs().ok().into_iter().flatten().find_map(|part| match part {
                ControlMessageOwned::ScmTimestampns(time) => Some(
                    time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_nsec().cast_unsigned(),
                ),
                _ => None,
            });
            Ok((message.bytes, stamp))
        }
        // A kernel that has no such messages reads none the less.
        Err(nix::errno::Errno::ENOPROTOOPT) => Ok((from.read(parts[0].as_mut())?, None)),
        Err(errno) => Err(errno.into()),
    }
}
