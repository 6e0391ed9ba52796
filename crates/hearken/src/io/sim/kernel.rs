//! A simulated kernel: descriptors and system calls over the sockets of a [`Host`].
//!
//! It refuses, interrupts and shortens calls wherever Linux may. What it does not simulate: bytes
//! that `MSG_MORE` withholds, and urgent data.

use std::cell::{Cell, RefCell, RefMut};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SendFlags;

use super::host::{Host, SocketId};
use crate::event::Readiness;
use crate::io::kernel::{Kernel, KernelSocket};
use crate::io::{Address, ConnectOptions, FilePart, ListenOptions, PeekResult};
use crate::mechanism::{Source, sealed};
use crate::timer::Time;

/// Probabilities, in thousandths, of what a kernel may do to a call. The default is that nothing of
/// this happens.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct KernelFaults {
    /// A call is interrupted (`EINTR`).
    pub interrupts: u32,
    /// A call takes up to 100 µs, in which the network continues.
    pub slow_calls: u32,
    /// Bytes, or a connection to accept, arrive just after the call that would have returned them.
    pub late_arrivals: u32,
    /// Received bytes, or a connection to accept, turn out to be unusable after the socket was
    /// reported as readable, and arrive again later: a wrong checksum.
    pub stalled_receives: u32,
    /// A splice moves fewer bytes than possible, or fails with `EAGAIN` although a receive would
    /// not.
    pub short_splices: u32,
    /// The socket does not support splice(2).
    pub refused_splices: u32,
    /// Creating a pipe fails with `EMFILE`, `ENFILE` or `ENOMEM`.
    pub pipe_failures: u32,
    /// A connection that waits to be accepted is lost.
    pub aborted_accepts: u32,
    /// Accepting fails with `EMFILE`, `ENFILE`, `ENOBUFS` or `ENOMEM`.
    pub accept_failures: u32,
    /// Listening or connecting fails at once with `EMFILE`, `ENFILE`, `ENOBUFS` or
    /// `EADDRNOTAVAIL`.
    pub open_failures: u32,
    /// A receive or a send fails with `ENOBUFS`, `ENOMEM` or `EHOSTUNREACH`, and a send of a file
    /// also with `EIO`.
    pub transfer_failures: u32,
}

/// A simulated kernel. Cheap to clone.
#[derive(Clone)]
pub struct SimKernel(Rc<Inner>);

struct Inner {
    host: Host,
    faults: KernelFaults,
    table: RefCell<Table>,
    /// Bytes of a file that is being sent.
    file_buffer: RefCell<Vec<u8>>,
}

/// The descriptor table.
#[derive(Default)]
struct Table {
    entries: Vec<Option<Entry>>,
    /// Unused numbers below the length of the table.
    free: BinaryHeap<Reverse<RawFd>>,
    open_pipes: usize,
}

/// An open descriptor.
struct Entry {
    file: Rc<OpenFile>,
    /// The time at which the next received bytes arrive again.
    stalled_until: Option<Time>,
    /// Number of changes for reading that this kernel adds to those of the network.
    read_edges: u64,
    /// Whether the pending wake-up is counted in `read_edges`.
    counts_wake_up: bool,
}

/// An open socket. Descriptors and requests of a ring hold it. It is closed when none does.
#[derive(Debug)]
pub(super) struct OpenFile {
    host: Host,
    /// `None` for the receiving end of the channel of wake-ups.
    socket: Option<SocketId>,
    /// Whether closing resets the connection.
    resets: Cell<bool>,
}

impl OpenFile {
    pub(super) fn socket(&self) -> Option<SocketId> {
        self.socket
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        match self.socket {
            Some(socket) if self.resets.get() => self.host.reset(socket),
            Some(socket) => self.host.close(socket),
            None => {}
        }
    }
}

/// Bytes that a pipe holds at most, and in a pipe of a user who owns many.
const PIPE_SIZES: [usize; 2] = [64 * 1024, 4096];
/// Maximum time of a slow call in nanoseconds.
const SLOW_CALL: u32 = 100_000;
/// Maximum time of a stall in nanoseconds.
const STALL: u32 = 2_000_000;

impl fmt::Debug for SimKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimKernel").field("host", &self.0.host).finish_non_exhaustive()
    }
}

impl SimKernel {
    /// Creates a kernel over a host, which nothing else uses.
    pub fn new(host: &Host, faults: KernelFaults) -> SimKernel {
        let (table, file_buffer) = Default::default();
        SimKernel(Rc::new(Inner { host: host.clone(), faults, table, file_buffer }))
    }

    /// Returns the host.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// Returns the number of open descriptors: sockets, the channel of wake-ups, and two for each
    /// pipe.
    pub fn open_descriptors(&self) -> usize {
        let table = self.0.table.borrow();
        table.entries.iter().flatten().count() + 2 * table.open_pipes
    }

    /// Creates the receiving end of the channel of the host's [waker](Host::waker).
    pub(in crate::io) fn wakeups(&self) -> SimSocket {
        self.open(None)
    }

    /// Creates a descriptor.
    fn open(&self, socket: Option<SocketId>) -> SimSocket {
        let (number, file) = self.insert(socket);
        SimSocket { kernel: self.clone(), number, file, is_released: false }
    }

    /// Creates a descriptor, and returns its number.
    pub(super) fn install(&self, socket: SocketId) -> RawFd {
        self.insert(Some(socket)).0
    }

    fn insert(&self, socket: Option<SocketId>) -> (RawFd, Rc<OpenFile>) {
        let (host, resets) = (self.0.host.clone(), Cell::new(false));
        let file = Rc::new(OpenFile { host, socket, resets });
        let mut table = self.0.table.borrow_mut();
        let entry = Some(Entry {
            file: Rc::clone(&file),
            stalled_until: None,
            read_edges: 0,
            counts_wake_up: false,
        });
        let number = match table.free.pop() {
            Some(Reverse(number)) => number,
            None => {
                table.entries.push(None);
                table.entries.len() as RawFd - 1
            }
        };
        table.entries[number as usize] = entry;
        (number, file)
    }

    /// Closes a descriptor, whose number is free afterwards.
    pub(super) fn close(&self, number: RawFd) -> Result<(), Errno> {
        let mut table = self.0.table.borrow_mut();
        let entry = usize::try_from(number).ok().and_then(|index| table.entries.get_mut(index));
        let closed = entry.and_then(Option::take).ok_or(Errno::BADF)?;
        table.free.push(Reverse(number));
        drop(table);
        drop(closed);
        Ok(())
    }

    /// Returns the socket of an open descriptor, which closes it.
    ///
    /// # Panics
    /// If the descriptor is not open.
    pub(super) fn adopt(&self, number: RawFd) -> SimSocket {
        let file = self.file(number).expect("the descriptor is open");
        SimSocket { kernel: self.clone(), number, file, is_released: false }
    }

    /// Returns the open file that a descriptor refers to.
    pub(super) fn file(&self, number: RawFd) -> Option<Rc<OpenFile>> {
        Some(Rc::clone(&self.entry(number)?.file))
    }

    fn entry(&self, number: RawFd) -> Option<RefMut<'_, Entry>> {
        let table = self.0.table.borrow_mut();
        RefMut::filter_map(table, |table| {
            table.entries.get_mut(usize::try_from(number).ok()?)?.as_mut()
        })
        .ok()
    }

    /// Returns whether a descriptor is open and refers to `socket`.
    pub(super) fn refers_to(&self, number: RawFd, socket: Option<SocketId>) -> bool {
        self.entry(number).is_some_and(|entry| entry.file.socket == socket)
    }

    /// Returns the socket of an open descriptor, or `None` for the channel of wake-ups.
    pub(super) fn socket(&self, number: RawFd) -> Option<SocketId> {
        self.entry(number)?.file.socket
    }

    /// Returns the conditions that hold for a descriptor.
    pub(super) fn readiness(&self, number: RawFd) -> Readiness {
        let entry = self.entry(number).map(|entry| (entry.file.socket, entry.stalled_until));
        let Some((socket, stalled_until)) = entry else { return Readiness::empty() };
        let Some(socket) = socket else {
            let mut readiness = Readiness::WRITABLE;
            readiness.set(Readiness::READABLE, self.0.host.is_woken());
            return readiness;
        };
        let mut readiness = self.0.host.readiness(socket);
        let stalls = stalled_until.is_some_and(|until| self.0.host.world().now() < until);
        // The end of the stream comes after all bytes, so they cannot arrive again.
        if stalls && !readiness.contains(Readiness::READ_CLOSED) {
            readiness.remove(Readiness::READABLE);
        }
        readiness
    }

    /// Returns the numbers of changes for reading and for writing that an edge-triggered mechanism
    /// reports.
    pub(super) fn edges(&self, number: RawFd) -> [u64; 2] {
        let now = self.0.host.world().now();
        let Some(mut entry) = self.entry(number) else { return [0; 2] };
        if entry.stalled_until.is_some_and(|until| now >= until) {
            entry.stalled_until = None;
            entry.read_edges += 1;
        }
        let Some(socket) = entry.file.socket else {
            if self.0.host.is_woken() && !std::mem::replace(&mut entry.counts_wake_up, true) {
                entry.read_edges += 1;
            }
            return [entry.read_edges, 0];
        };
        let [read, write] = self.0.host.edges(socket);
        [read + entry.read_edges, write]
    }

    /// Returns the time at which the next stall ends.
    pub(super) fn next_change(&self) -> Option<Time> {
        let (now, table) = (self.0.host.world().now(), self.0.table.borrow());
        let ends = table.entries.iter().flatten().filter_map(|entry| entry.stalled_until);
        ends.filter(|&end| end > now).min()
    }

    fn has_fault(&self, per_mille: u32) -> bool {
        per_mille > 0 && self.0.host.world().has_fault(per_mille)
    }

    /// Decides on one of `errors`.
    fn select<const N: usize>(&self, errors: [Errno; N]) -> Errno {
        errors[self.0.host.world().decide(N as u32) as usize]
    }

    /// Returns a number of bytes from 1 to `count`.
    fn shorten(&self, count: usize) -> usize {
        let most = u32::try_from(count.saturating_sub(1)).unwrap_or(u32::MAX);
        1 + self.0.host.world().decide(most) as usize
    }

    /// Begins a call, which may take long or be interrupted.
    fn begin_call(&self) -> Result<(), Errno> {
        let faults = &self.0.faults;
        if self.has_fault(faults.slow_calls) {
            let world = self.0.host.world();
            let time = Duration::from_nanos(1 + u64::from(world.decide(SLOW_CALL)));
            world.advance(world.now() + time);
        }
        if self.has_fault(faults.interrupts) { Err(Errno::INTR) } else { Ok(()) }
    }

    fn begin_transfer(&self) -> Result<(), Errno> {
        self.begin_call()?;
        if self.has_fault(self.0.faults.transfer_failures) {
            return Err(self.select([Errno::NOBUFS, Errno::NOMEM, Errno::HOSTUNREACH]));
        }
        Ok(())
    }

    fn begin_open(&self) -> Result<(), Errno> {
        if self.has_fault(self.0.faults.open_failures) {
            let errors = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::ADDRNOTAVAIL];
            return Err(self.select(errors));
        }
        Ok(())
    }
}

impl Kernel for SimKernel {
    type Socket = SimSocket;
    type Pipe = SimPipe;

    fn clock(&self) -> Time {
        self.0.host.clock()
    }

    fn unix_time(&self) -> Duration {
        self.0.host.unix_time()
    }

    fn listen(&self, address: &Address, options: &ListenOptions) -> io::Result<SimSocket> {
        self.begin_open()?;
        Ok(self.open(Some(self.0.host.listen(address, options)?)))
    }

    fn connect(&self, address: &Address, options: &ConnectOptions) -> io::Result<SimSocket> {
        self.begin_open()?;
        Ok(self.open(Some(self.0.host.connect(address, options)?)))
    }

    fn pipe(&self) -> Result<SimPipe, Errno> {
        if self.has_fault(self.0.faults.pipe_failures) {
            return Err(self.select([Errno::MFILE, Errno::NFILE, Errno::NOMEM]));
        }
        let is_small = self.has_fault(self.0.faults.short_splices);
        self.0.table.borrow_mut().open_pipes += 1;
        let capacity = PIPE_SIZES[usize::from(is_small)];
        Ok(SimPipe { kernel: self.clone(), capacity, bytes: RefCell::default() })
    }
}

/// A simulated pipe.
pub struct SimPipe {
    kernel: SimKernel,
    capacity: usize,
    bytes: RefCell<VecDeque<u8>>,
}

impl fmt::Debug for SimPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimPipe({} of {} bytes)", self.bytes.borrow().len(), self.capacity)
    }
}

impl Drop for SimPipe {
    fn drop(&mut self) {
        self.kernel.0.table.borrow_mut().open_pipes -= 1;
    }
}

/// A simulated socket, which has a number as a descriptor does.
pub struct SimSocket {
    kernel: SimKernel,
    number: RawFd,
    file: Rc<OpenFile>,
    /// Whether the descriptor belongs to a ring, which closes it.
    is_released: bool,
}

impl fmt::Debug for SimSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimSocket({}, {:?})", self.number, self.file.socket)
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        if !self.is_released {
            let _ = self.kernel.close(self.number);
        }
    }
}

impl sealed::Sealed for SimSocket {}

impl Source for SimSocket {
    fn raw(&self) -> RawFd {
        self.number
    }
}

impl SimSocket {
    /// Returns the number of the descriptor, which stays open.
    pub(super) fn release(mut self) -> RawFd {
        self.is_released = true;
        self.number
    }

    fn host(&self) -> &Host {
        &self.kernel.0.host
    }

    fn id(&self) -> Result<SocketId, Errno> {
        self.file.socket.ok_or(Errno::INVAL)
    }

    /// Returns whether the end of the stream has arrived, after which no bytes arrive.
    fn has_ended(&self, id: SocketId) -> bool {
        self.host().readiness(id).contains(Readiness::READ_CLOSED)
    }

    /// Begins a call that takes what has arrived. Fails with `EAGAIN` if that arrives later.
    fn begin_read(&self, id: SocketId) -> Result<(), Errno> {
        let (host, faults) = (self.host(), &self.kernel.0.faults);
        let now = host.world().now();
        let stalled_until = self.kernel.entry(self.number).and_then(|entry| entry.stalled_until);
        if self.has_ended(id) || !host.readiness(id).contains(Readiness::READABLE) {
            return Ok(());
        }
        if stalled_until.is_some_and(|until| now < until) {
            return Err(Errno::AGAIN);
        }
        let until = if self.kernel.has_fault(faults.late_arrivals) {
            now
        } else if self.kernel.has_fault(faults.stalled_receives) {
            now + Duration::from_nanos(1 + u64::from(host.world().decide(STALL)))
        } else {
            return Ok(());
        };
        if let Some(mut entry) = self.kernel.entry(self.number) {
            entry.stalled_until = Some(until);
        }
        Err(Errno::AGAIN)
    }

    /// Returns the number of the available bytes that a receive of up to `max` returns; at least 1.
    fn length_to_receive(&self, id: SocketId, max: usize) -> usize {
        let available = self.host().readable_bytes(id).min(max);
        if available > 1
            && !self.has_ended(id)
            && self.kernel.has_fault(self.kernel.0.faults.late_arrivals)
            && let Some(mut entry) = self.kernel.entry(self.number)
        {
            // The others arrive after the call.
            entry.read_edges += 1;
            drop(entry);
            return self.kernel.shorten(available);
        }
        available.max(1)
    }

    /// Returns the number of bytes that a splice of up to `max` moves.
    fn length_to_splice(&self, max: usize) -> usize {
        let is_short = max > 1 && self.kernel.has_fault(self.kernel.0.faults.short_splices);
        if is_short { self.kernel.shorten(max) } else { max }
    }
}

impl KernelSocket for SimSocket {
    type Pipe = SimPipe;

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn accept(&self, peers: bool) -> Result<(SimSocket, Option<SocketAddr>), Errno> {
        let (id, faults) = (self.id()?, &self.kernel.0.faults);
        self.kernel.begin_call()?;
        // Linux allocates the descriptor first.
        if self.kernel.has_fault(faults.accept_failures) {
            let errors = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
            return Err(self.kernel.select(errors));
        }
        self.begin_read(id)?;
        let (accepted, peer) = self.host().accept(id)?;
        if self.kernel.has_fault(faults.aborted_accepts) {
            self.host().reset(accepted);
            return Err(self.kernel.select([Errno::CONNABORTED, Errno::PROTO, Errno::NETDOWN]));
        }
        Ok((self.kernel.open(Some(accepted)), peer.filter(|_| peers)))
    }

    fn take_error(&self) -> Result<(), Errno> {
        self.host().connect_result(self.id()?).unwrap_or(Ok(()))
    }

    fn receive(&self, buffer: &mut Vec<u8>) -> Result<usize, Errno> {
        let (start, room) = (buffer.len(), buffer.capacity() - buffer.len());
        let room = self.file.socket.map_or(0, |id| self.host().readable_bytes(id).max(1)).min(room);
        buffer.resize(start + room, 0);
        let received = self.receive_into(&mut buffer[start..]);
        buffer.truncate(start + *received.as_ref().unwrap_or(&0));
        received
    }

    fn receive_into(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let id = self.id()?;
        self.kernel.begin_transfer()?;
        self.begin_read(id)?;
        let length = self.length_to_receive(id, buffer.len()).min(buffer.len());
        self.host().recv(id, &mut buffer[..length])
    }

    fn send(&self, bytes: &[u8], _flags: SendFlags) -> Result<usize, Errno> {
        let id = self.id()?;
        self.kernel.begin_transfer()?;
        self.host().send(id, bytes)
    }

    fn send_both(&self, head: &[u8], body: &[u8]) -> Result<usize, Errno> {
        let id = self.id()?;
        self.kernel.begin_transfer()?;
        let sent = self.host().send(id, head)?;
        if sent < head.len() {
            return Ok(sent);
        }
        Ok(sent + self.host().send(id, body).unwrap_or(0))
    }

    fn send_file(&self, part: &mut FilePart, max: usize) -> Result<usize, Errno> {
        let id = self.id()?;
        self.kernel.begin_transfer()?;
        if self.kernel.has_fault(self.kernel.0.faults.transfer_failures) {
            return Err(Errno::IO);
        }
        let length = self.host().send_space(id).clamp(1, PIPE_SIZES[0]).min(max);
        let mut bytes = self.kernel.0.file_buffer.borrow_mut();
        let size = bytes.len().max(length);
        bytes.resize(size, 0);
        let count = rustix::io::pread(&*part.file, &mut bytes[..length], part.offset)?;
        if count == 0 {
            return Ok(0);
        }
        let sent = self.host().send(id, &bytes[..count])?;
        part.offset += sent as u64;
        Ok(sent)
    }

    fn splice_to(&self, pipe: &SimPipe, max: usize) -> Result<usize, Errno> {
        let (id, faults) = (self.id()?, &self.kernel.0.faults);
        self.kernel.begin_transfer()?;
        if self.kernel.has_fault(faults.refused_splices) {
            return Err(Errno::INVAL);
        }
        self.begin_read(id)?;
        if self.kernel.has_fault(faults.short_splices) {
            return Err(Errno::AGAIN);
        }
        let mut held = pipe.bytes.borrow_mut();
        let space = pipe.capacity.saturating_sub(held.len()).min(max);
        if space == 0 {
            return Err(Errno::AGAIN);
        }
        let available = self.host().readable_bytes(id).min(space);
        let mut bytes = vec![0; self.length_to_splice(available.max(1))];
        let count = self.host().recv(id, &mut bytes)?;
        held.extend(&bytes[..count]);
        Ok(count)
    }

    fn splice_from(&self, pipe: &SimPipe, max: usize) -> Result<usize, Errno> {
        let id = self.id()?;
        self.kernel.begin_transfer()?;
        let mut held = pipe.bytes.borrow_mut();
        let count = self.length_to_splice(held.len().min(max));
        if count == 0 {
            return Err(Errno::AGAIN);
        }
        let sent = self.host().send(id, &held.make_contiguous()[..count])?;
        held.drain(..sent);
        Ok(sent)
    }

    fn shutdown(&self) {
        if let Some(id) = self.file.socket {
            self.host().shutdown(id);
        }
    }

    /// Does nothing: the simulated network has no packets.
    fn set_cork(&self, _: bool) {}

    fn reset_on_close(&self) {
        self.file.resets.set(true);
    }

    fn undelivered(&self) -> u64 {
        self.file.socket.map_or(0, |id| self.host().undelivered(id))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.host().local_addr(self.id()?)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.host().peer_addr(self.id()?)
    }

    fn peek(&self) -> PeekResult {
        self.file.socket.map_or(PeekResult::Ended, |id| self.host().peek(id))
    }

    fn drain_wakeups(&self) -> bool {
        if let Some(mut entry) = self.kernel.entry(self.number) {
            entry.counts_wake_up = false;
        }
        self.host().take_wake_up()
    }
}
