//! A program's view of the simulated network: sockets, clock and wake-up.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use super::World;
use super::network::{HostState, Network};
use super::socket::{Kind, Listener, Phase};
use crate::event::Readiness;
use crate::io::{Address, ConnectOptions, ListenOptions, PeekResult, sockets};
use crate::timer::Time;
use crate::waker::Waker;

/// The number of a simulated socket. A number is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(u64);

impl SocketId {
    pub(super) fn new(index: u32, generation: u32) -> SocketId {
        SocketId(u64::from(generation) << 32 | u64::from(index))
    }

    /// Returns the index of the socket in the world, which is reused after it is closed.
    pub fn index(self) -> usize {
        self.0 as u32 as usize
    }

    pub(super) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Debug for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket {}.{}", self.index(), self.generation())
    }
}

/// A program's view of a [`World`]: non-blocking sockets as of socket(7), a clock, and a wake-up.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Host {
    world: World,
    index: usize,
}

impl Host {
    pub(super) fn new(world: World, index: usize) -> Host {
        Host { world, index }
    }

    /// Returns the world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns the index of the host, in the order of creation.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the address.
    pub fn address(&self) -> IpAddr {
        self.with(|network, host| network.hosts[host].address)
    }

    #[inline(always)]
    fn with<T>(&self, body: impl FnOnce(&mut Network, usize) -> T) -> T {
        body(&mut self.world.0.borrow_mut(), self.index)
    }

    #[inline(always)]
    fn with_state<T>(&self, body: impl FnOnce(&mut HostState) -> T) -> T {
        self.with(|network, host| body(&mut network.hosts[host]))
    }

    /// Limits the number of open sockets. Operations that need more fail with `EMFILE`.
    pub fn limit_sockets(&self, max: usize) {
        self.with_state(|state| state.max_open = max);
    }

    /// Returns the number of open sockets, without connections that wait to be accepted.
    pub fn open_sockets(&self) -> usize {
        self.with_state(|state| state.open)
    }

    /// Fails with `EMFILE` if the limit of sockets is reached, and otherwise counts another one.
    fn open(&self) -> Result<(), Errno> {
        self.with_state(|state| {
            if state.open >= state.max_open {
                return Err(Errno::MFILE);
            }
            state.open += 1;
            Ok(())
        })
    }

    /// Counts a socket that was opened only if `result` is a success.
    fn release_unless_opened<T, E>(&self, result: Result<T, E>) -> Result<T, E> {
        if result.is_err() {
            self.with_state(|state| state.open -= 1);
        }
        result
    }

    /// Creates a listening socket.
    ///
    /// # Errors
    /// As [`Io::listen`](crate::io::Io::listen).
    pub fn listen(&self, address: &Address, options: &ListenOptions) -> io::Result<SocketId> {
        if let Address::Unix(path) = address {
            sockets::unix_address(path)?;
        }
        self.open()?;
        let bound = self.with(|network, host| {
            let address = match address {
                Address::Inet(addr) if !network.is_local(host, addr.ip()) => {
                    return Err(Errno::ADDRNOTAVAIL);
                }
                Address::Inet(addr) if addr.port() == 0 => {
                    network.free_port(addr.ip()).ok_or(Errno::ADDRINUSE)?.into()
                }
                other => other.clone(),
            };
            let listener = Listener {
                address: address.clone(),
                backlog: options.backlog.min(network.settings.max_backlog) as usize,
                reuse_port: options.reuse_port,
                defers: !options.defer.is_zero() && matches!(address, Address::Inet(_)),
                queue: Default::default(),
                withheld: 0,
            };
            let id = network.insert(host, Kind::Listener(listener));
            let bound = match &address {
                Address::Inet(addr) => network.bind(id, *addr, options.reuse_port),
                Address::Unix(path) => network.bind_unix(id, path),
            };
            if bound.is_err() {
                network.discard(id);
            }
            bound.map(|()| id)
        });
        Ok(self.release_unless_opened(bound)?)
    }

    /// Creates a socket and starts to connect it.
    ///
    /// # Errors
    /// As [`Io::connect`](crate::io::Io::connect).
    pub fn connect(&self, address: &Address, options: &ConnectOptions) -> io::Result<SocketId> {
        if let Address::Unix(path) = address {
            sockets::unix_address(path)?;
            if options.source.is_some() {
                let reason = "a Unix socket does not connect from a source address";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
        }
        self.open()?;
        let buffer = options.receive_buffer.map(|size| (size as usize).max(1));
        let connected = self.with(|network, host| match address {
            Address::Inet(to) => network.connect(host, *to, options.source, buffer),
            Address::Unix(path) => network.connect_unix(host, path),
        });
        match self.release_unless_opened(connected) {
            Err(Errno::AGAIN) => {
                let full = "the backlog of the Unix socket is full (EAGAIN)";
                Err(io::Error::new(io::ErrorKind::WouldBlock, full))
            }
            other => Ok(other?),
        }
    }

    /// Returns the result of connecting, as `SO_ERROR` does, or `None` while it is in progress. An
    /// error is reported once.
    pub fn connect_result(&self, id: SocketId) -> Option<Result<(), Errno>> {
        self.with(|network, _| {
            let Some(stream) = network.stream_mut(id) else { return Some(Err(Errno::BADF)) };
            match (stream.phase, stream.error.take()) {
                (Phase::Connecting, _) => None,
                (_, Some(errno)) => Some(Err(errno)),
                (_, None) => Some(Ok(())),
            }
        })
    }

    /// Returns whether a connection is being established.
    pub fn is_connecting(&self, id: SocketId) -> bool {
        self.with(|network, _| {
            network.stream(id).is_some_and(|stream| stream.phase == Phase::Connecting)
        })
    }

    /// Accepts a connection, and returns its peer's address with it.
    ///
    /// # Errors
    /// `EAGAIN` if no connection waits, `EMFILE` if the limit of sockets is reached.
    pub fn accept(&self, listener: SocketId) -> Result<(SocketId, Option<SocketAddr>), Errno> {
        self.with(|network, host| {
            let id = network.accept(listener, host)?;
            Ok((id, network.stream(id).and_then(|stream| stream.remote)))
        })
    }

    /// Returns whether a connection waits to be accepted.
    pub fn peek_listener(&self, id: SocketId) -> bool {
        self.with(|network, _| network.listener_mut(id).is_some_and(|of| !of.queue.is_empty()))
    }

    /// Receives bytes; 0 is the end of the stream.
    ///
    /// # Errors
    /// `EAGAIN` if no byte is readable; the error of a failed connection, once.
    pub fn recv(&self, id: SocketId, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.with(|network, _| network.recv(id, buffer))
    }

    /// Returns the state of the receiving side without receiving.
    pub fn peek(&self, id: SocketId) -> PeekResult {
        self.with(|network, _| match network.stream(id) {
            Some(stream) if stream.readable > 0 => PeekResult::Bytes,
            Some(stream) if !stream.is_readable() => PeekResult::Nothing,
            _ => PeekResult::Ended,
        })
    }

    /// Returns the number of bytes that can be received.
    pub fn readable_bytes(&self, id: SocketId) -> usize {
        self.with(|network, _| network.stream(id).map_or(0, |stream| stream.readable))
    }

    /// Sends bytes, and returns how many the socket took.
    ///
    /// # Errors
    /// `EAGAIN` if it takes none at present. `EPIPE` after a shutdown or for a failed connection;
    /// the error of a failed connection, once.
    pub fn send(&self, id: SocketId, bytes: &[u8]) -> Result<usize, Errno> {
        self.with(|network, _| network.send(id, bytes))
    }

    /// Returns the number of bytes that the window of a connection allows to send.
    pub fn send_space(&self, id: SocketId) -> usize {
        self.with(|network, _| network.stream(id).map_or(0, super::socket::Stream::space))
    }

    /// Shuts down the sending side.
    pub fn shutdown(&self, id: SocketId) {
        self.with(|network, _| network.shutdown(id));
    }

    /// Closes a socket. A connection with unread bytes is reset.
    pub fn close(&self, id: SocketId) {
        self.with(|network, _| network.close(id, false));
    }

    /// Closes a connection with a reset.
    pub fn reset(&self, id: SocketId) {
        self.with(|network, _| network.close(id, true));
    }

    /// Returns the conditions that hold: readable, writable, end of stream, error.
    pub fn readiness(&self, id: SocketId) -> Readiness {
        self.with(|network, _| {
            let mut readiness = Readiness::empty();
            match network.socket(id).map(|socket| &socket.kind) {
                Some(Kind::Listener(listener)) => {
                    readiness.set(Readiness::READABLE, !listener.queue.is_empty());
                }
                Some(Kind::Stream(stream)) => {
                    readiness.set(Readiness::READABLE, stream.is_readable());
                    readiness.set(Readiness::WRITABLE, stream.is_writable());
                    let is_dead = stream.phase == Phase::Dead;
                    readiness.set(Readiness::READ_CLOSED, stream.has_ended || is_dead);
                    readiness.set(
                        Readiness::HANGUP,
                        is_dead || (stream.has_ended && stream.is_shut_down),
                    );
                    readiness.set(Readiness::ERROR, stream.error.is_some());
                }
                None => {}
            }
            readiness
        })
    }

    /// Returns the numbers of changes for reading and for writing since the socket was created. An
    /// edge-triggered mechanism reports each change.
    pub fn edges(&self, id: SocketId) -> [u64; 2] {
        self.with(|network, _| network.socket(id).map_or([0; 2], |socket| socket.edges))
    }

    /// Appends the sockets that have changed since the last call, in the order of their first
    /// change. Some may be closed by now.
    pub fn take_changes(&self, changes: &mut Vec<SocketId>) {
        self.with(|network, host| {
            let taken = std::mem::take(&mut network.hosts[host].changes);
            for &id in &taken {
                if let Some(socket) = network.socket_mut(id) {
                    socket.is_changed = false;
                }
            }
            // A connection is reported to the host that accepted it, not to the one that listens.
            changes.extend(taken.iter().filter(|&&id| {
                network.socket(id).is_some_and(|socket| {
                    socket.host == host
                        && !matches!(&socket.kind, Kind::Stream(of) if of.listener.is_some())
                })
            }));
            let mut empty = taken;
            empty.clear();
            network.hosts[host].changes = empty;
        });
    }

    /// Returns the number of sent bytes that the peer's host has not acknowledged. For a Unix
    /// socket: that the peer has not received.
    pub fn undelivered(&self, id: SocketId) -> u64 {
        self.with(|network, _| match network.stream(id) {
            Some(stream) if stream.is_unix => stream.outstanding as u64,
            Some(stream) => stream.in_flight as u64,
            None => 0,
        })
    }

    /// Returns the local address of a socket.
    ///
    /// # Errors
    /// As [`Io::local_addr`](crate::io::Io::local_addr).
    pub fn local_addr(&self, id: SocketId) -> io::Result<SocketAddr> {
        self.with(|network, _| match network.socket(id).map(|socket| &socket.kind) {
            None => Err(io::ErrorKind::NotConnected.into()),
            Some(Kind::Listener(Listener { address: Address::Inet(addr), .. })) => Ok(*addr),
            Some(Kind::Stream(stream)) if !stream.is_unix => {
                stream.local.ok_or_else(|| io::ErrorKind::NotConnected.into())
            }
            Some(_) => Err(unix_socket_has_no_address()),
        })
    }

    /// Returns the address of a connection's peer.
    ///
    /// # Errors
    /// As [`Io::local_addr`](crate::io::Io::local_addr).
    pub fn peer_addr(&self, id: SocketId) -> io::Result<SocketAddr> {
        self.with(|network, _| match network.stream(id) {
            Some(stream) if stream.is_unix => Err(unix_socket_has_no_address()),
            Some(stream) if stream.phase == Phase::Established => {
                stream.remote.ok_or_else(|| io::ErrorKind::NotConnected.into())
            }
            _ => Err(io::ErrorKind::NotConnected.into()),
        })
    }

    /// Returns the time. Each reading takes a moment.
    pub fn clock(&self) -> Time {
        self.with(|network, _| network.read_clock())
    }

    /// Returns the time of day, since 1970.
    pub fn unix_time(&self) -> Duration {
        self.with(|network, _| network.unix_time())
    }

    /// Returns a handle that ends the wait of this host's program, from any thread.
    pub fn waker(&self) -> Waker {
        Waker::from_flag(self.with_state(|state| state.wake_flag.clone()))
    }

    /// Returns whether the waker was used since the last call.
    pub fn take_wake_up(&self) -> bool {
        self.with_state(|state| state.wake_flag.take())
    }

    /// Returns whether the waker was used since the last [`take_wake_up`](Host::take_wake_up).
    pub fn is_woken(&self) -> bool {
        self.with_state(|state| state.wake_flag.is_raised())
    }

    /// Returns whether a program that waits on this host has something to do: a socket has changed,
    /// or the waker was used.
    pub fn is_ready(&self) -> bool {
        self.with_state(|state| !state.changes.is_empty() || state.wake_flag.is_raised())
    }

    /// Sets the function that [`block`](Host::block) calls. A scheduler uses it to run other
    /// programs, and lets it return when the host is [ready](Host::is_ready), when the given time
    /// has passed, or earlier.
    pub fn set_waiter(&self, waiter: impl Fn(Option<Time>) + 'static) {
        let previous = self.with_state(|state| state.waiter.replace(Rc::new(waiter)));
        drop(previous); // It may own sockets, which are closed now.
    }

    /// Waits until the host is [ready](Host::is_ready) or until `until`. Implementations call it in
    /// a wait that has nothing to do, and then look again. Without a [waiter](Host::set_waiter) it
    /// advances the clock. If nothing in the world can end the wait, it blocks the thread until
    /// another one uses the waker.
    pub fn block(&self, until: Option<Time>) {
        if let Some(waiter) = self.with_state(|state| state.waiter.clone()) {
            return waiter(until);
        }
        while !self.is_ready() && until.is_none_or(|until| self.world.now() < until) {
            match [self.world.next_event(), until].into_iter().flatten().min() {
                Some(next) => self.world.advance(next),
                None => {
                    let flag = self.with_state(|state| state.wake_flag.clone());
                    flag.wait();
                }
            }
        }
    }

    /// Begins a wait: lets the time of a wait pass, and performs the events of the network until
    /// then.
    pub fn begin_wait(&self) {
        self.with(|network, _| network.advance(network.now + network.settings.wait_cost));
    }
}

fn unix_socket_has_no_address() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a Unix socket has no IP address")
}
