//! The simulated network: its clock, its events and its settings.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::Decisions;
use super::host::{Host, SocketId};
use super::socket::{Kind, Listener, Phase, Socket, Stream};
use crate::io::Address;
use crate::timer::Time;
use crate::waker::WakeFlag;

/// The settings of a simulated network. Probabilities are in thousandths.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NetworkSettings {
    /// Minimum delay of a packet.
    pub min_delay: Duration,
    /// Maximum delay of a packet. Each connection selects its delay between the two.
    pub max_delay: Duration,
    /// Additional delay of a packet, selected up to this maximum for each packet.
    pub jitter: Duration,
    /// Minimum number of bytes in transit in one direction of a connection.
    pub min_window: usize,
    /// Maximum number of bytes in transit. Each connection selects its window between the two.
    pub max_window: usize,
    /// Maximum number of connections that wait to be accepted, as `net.core.somaxconn`.
    pub max_backlog: u32,
    /// Time that a wait takes at least, so that the clock advances while programs are busy.
    pub wait_cost: Duration,
    /// Probability that a packet ends its connection: both sides see a timeout or a reset.
    pub breaks: u32,
    /// Probability that a connection request is lost and sent again after a second.
    pub lost_requests: u32,
    /// Probability that a connection request is refused although a socket listens.
    pub refusals: u32,
    /// Probability that a send transfers fewer bytes than possible.
    pub short_sends: u32,
    /// Probability that a send fails with `EAGAIN` although there is space, as for lack of memory.
    pub stalls: u32,
    /// Probability that a reset overtakes bytes on their way.
    pub overtaking_resets: u32,
}

impl Default for NetworkSettings {
    /// Returns settings without faults: short delays and large windows.
    fn default() -> NetworkSettings {
        NetworkSettings {
            min_delay: Duration::from_micros(20),
            max_delay: Duration::from_micros(50),
            jitter: Duration::ZERO,
            min_window: 128 * 1024,
            max_window: 128 * 1024,
            max_backlog: 4096,
            wait_cost: Duration::from_micros(1),
            breaks: 0,
            lost_requests: 0,
            refusals: 0,
            short_sends: 0,
            stalls: 0,
            overtaking_resets: 0,
        }
    }
}

/// Time after which a lost or ignored connection request is sent again.
const RETRY_DELAY: u64 = 1_000_000_000;
/// Maximum number of connection requests: the client gives up after 15 seconds.
const MAX_REQUESTS: u32 = 4;
/// Time that reading the clock takes, so that loops that wait for a time end.
const CLOCK_COST: u64 = 50;
/// Time of day at the start of a simulation, in seconds: 2027-01-15 08:00 UTC.
const UNIX_START: u64 = 1_800_000_000;
/// Start of the clock. A zero would mean "unknown" in some programs.
const START: u64 = 1_000_000_000_000;
/// First and last ephemeral port.
const PORTS: (u16, u16) = (32_768, 60_999);

/// An entry of a trace: what a program observed.
#[derive(Clone, Debug)]
pub struct TraceEntry {
    /// The time.
    pub time: Time,
    /// Index of the host, in the order of creation.
    pub host: usize,
    /// Description of the event.
    pub text: String,
}

/// A function that receives the entries of a trace.
pub(super) type TraceSink = Box<dyn FnMut(TraceEntry)>;

/// A simulated network. Cheap to clone.
#[derive(Clone)]
pub struct World(pub(super) Rc<RefCell<Network>>);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// An event of the network.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A connection request arrives, the `attempt`th.
    Request { client: SocketId, to: SocketAddr, attempt: u32 },
    /// The connection of a client is established.
    Established { client: SocketId, server: SocketId },
    /// The connection request of a client fails.
    Failed { client: SocketId, errno: Errno },
    /// Bytes arrive.
    Bytes { from: SocketId, to: SocketId, count: usize },
    /// The end of the stream arrives.
    End { to: SocketId },
    /// A reset arrives.
    Reset { to: SocketId, errno: Errno },
    /// The peer has read bytes.
    Window { to: SocketId, count: usize },
    /// A stalled sender has space again.
    Space { to: SocketId },
    /// A withheld connection is accepted without bytes.
    DeferExpired { listener: SocketId, server: SocketId },
}

/// The sockets of one port of the world, a slab entry.
#[derive(Debug)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

/// The state of a host.
pub(super) struct HostState {
    pub(super) address: IpAddr,
    /// Sockets with changes that the host has not taken.
    pub(super) changes: Vec<SocketId>,
    pub(super) wake_flag: Arc<WakeFlag>,
    /// Number of open sockets, and their maximum.
    pub(super) open: usize,
    pub(super) max_open: usize,
    pub(super) waiter: Option<Rc<dyn Fn(Option<Time>)>>,
}

/// The state of a [`World`].
pub(super) struct Network {
    pub(super) now: Time,
    pub(super) settings: NetworkSettings,
    pub(super) decisions: Decisions,
    faults_stopped: bool,
    unix_offset: Duration,
    events: BinaryHeap<Reverse<(Time, u64, EventBox)>>,
    sequence: u64,
    slots: Vec<Slot>,
    free: Vec<u32>,
    pub(super) hosts: Vec<HostState>,
    listeners: BTreeMap<SocketAddr, Vec<SocketId>>,
    unix_listeners: BTreeMap<Arc<Path>, SocketId>,
    /// Paths that were bound, which remain after their socket is closed.
    unix_paths: BTreeSet<Arc<Path>>,
    next_port: u16,
    trace_hash: u64,
    trace_sink: Option<TraceSink>,
}

/// An event, which the order of events ignores.
struct EventBox(Event);

impl PartialEq for EventBox {
    fn eq(&self, _: &EventBox) -> bool {
        true
    }
}
impl Eq for EventBox {}
impl PartialOrd for EventBox {
    fn partial_cmp(&self, other: &EventBox) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for EventBox {
    fn cmp(&self, _: &EventBox) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl World {
    /// Creates a network without hosts.
    pub fn new(decisions: Decisions, settings: NetworkSettings) -> World {
        World(Rc::new(RefCell::new(Network {
            now: Time::from_nanos(START),
            settings: NetworkSettings {
                min_window: settings.min_window.max(1),
                max_window: settings.max_window.max(settings.min_window).max(1),
                max_delay: settings.max_delay.max(settings.min_delay),
                ..settings
            },
            decisions,
            faults_stopped: false,
            unix_offset: Duration::from_secs(UNIX_START),
            events: BinaryHeap::new(),
            sequence: 0,
            slots: Vec::new(),
            free: Vec::new(),
            hosts: Vec::new(),
            listeners: BTreeMap::new(),
            unix_listeners: BTreeMap::new(),
            unix_paths: BTreeSet::new(),
            next_port: PORTS.0,
            trace_hash: 0,
            trace_sink: None,
        })))
    }

    /// Adds a host. Several hosts may have the same address: they are programs of one machine.
    pub fn host(&self, address: IpAddr) -> Host {
        let mut network = self.0.borrow_mut();
        network.hosts.push(HostState {
            address,
            changes: Vec::new(),
            wake_flag: Arc::default(),
            open: 0,
            max_open: usize::MAX,
            waiter: None,
        });
        Host::new(self.clone(), network.hosts.len() - 1)
    }

    /// Returns the time.
    pub fn now(&self) -> Time {
        self.0.borrow().now
    }

    /// Returns the time of the next event of the network.
    pub fn next_event(&self) -> Option<Time> {
        self.0.borrow().events.peek().map(|Reverse((time, ..))| *time)
    }

    /// Advances the clock to `time`, unless it is later already, and performs the events up to then.
    pub fn advance(&self, time: Time) {
        self.0.borrow_mut().advance(time);
    }

    /// Decides on a number below `limit`: see [`Decisions::below`].
    pub fn decide(&self, limit: u32) -> u32 {
        self.0.borrow_mut().decisions.below(limit)
    }

    /// Decides whether a fault occurs that has a probability of `per_mille` thousandths. There is
    /// none after [`stop_faults`](World::stop_faults).
    pub fn has_fault(&self, per_mille: u32) -> bool {
        self.0.borrow_mut().has_fault(per_mille)
    }

    /// Ends all faults. Lost packets are still sent again.
    pub fn stop_faults(&self) {
        self.0.borrow_mut().faults_stopped = true;
    }

    /// Returns a copy of the decisions and their state.
    pub fn decisions(&self) -> Decisions {
        self.0.borrow().decisions.clone()
    }

    /// Sets the time of day.
    pub fn set_unix_time(&self, time: Duration) {
        let mut network = self.0.borrow_mut();
        let elapsed = network.elapsed();
        network.unix_offset = time.saturating_sub(elapsed);
    }

    /// Returns the number of open sockets, including connections that wait to be accepted.
    pub fn open_sockets(&self) -> usize {
        let network = self.0.borrow();
        network.slots.len() - network.free.len()
    }

    /// Removes the path of a Unix socket, as unlink(2) does.
    pub fn unlink(&self, path: &Path) {
        self.0.borrow_mut().unix_paths.remove(path);
    }

    /// Adds an observation to the trace: `numbers` to its hash, and `text` to its sink.
    pub fn record(&self, host: usize, numbers: [u64; 3], text: impl FnOnce() -> String) {
        let mut network = self.0.borrow_mut();
        let time = network.now;
        for number in [time.as_nanos(), host as u64].into_iter().chain(numbers) {
            network.trace_hash =
                (network.trace_hash.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        if let Some(mut sink) = network.trace_sink.take() {
            drop(network);
            sink(TraceEntry { time, host, text: text() });
            self.0.borrow_mut().trace_sink.get_or_insert(sink);
        }
    }

    /// Returns the hash of all observations so far.
    pub fn trace_hash(&self) -> u64 {
        self.0.borrow().trace_hash
    }

    /// Passes all further observations to `sink`.
    pub fn set_trace(&self, sink: impl FnMut(TraceEntry) + 'static) {
        self.0.borrow_mut().trace_sink = Some(Box::new(sink));
    }
}

impl Network {
    fn elapsed(&self) -> Duration {
        self.now.duration_since(Time::from_nanos(START))
    }

    pub(super) fn unix_time(&self) -> Duration {
        self.unix_offset + self.elapsed()
    }

    /// Returns the time and lets a moment pass.
    pub(super) fn read_clock(&mut self) -> Time {
        self.now = self.now + Duration::from_nanos(CLOCK_COST);
        self.now
    }

    pub(super) fn has_fault(&mut self, per_mille: u32) -> bool {
        !self.faults_stopped && self.decisions.chance(per_mille)
    }

    pub(super) fn advance(&mut self, time: Time) {
        while let Some(Reverse((at, ..))) = self.events.peek()
            && *at <= time.max(self.now)
            && let Some(Reverse((at, _, event))) = self.events.pop()
        {
            self.now = self.now.max(at);
            self.perform(event.0);
        }
        self.now = self.now.max(time);
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, EventBox(event))));
    }

    fn schedule_after(&mut self, nanos: u64, event: Event) {
        self.schedule(self.now + Duration::from_nanos(nanos), event);
    }

    // Sockets.

    pub(super) fn insert(&mut self, host: usize, kind: Kind) -> SocketId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, socket: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.socket = Some(Socket { host, kind, edges: [0; 2], is_changed: false });
        SocketId::new(index, slot.generation)
    }

    pub(super) fn socket(&self, id: SocketId) -> Option<&Socket> {
        let slot = self.slots.get(id.index())?;
        slot.socket.as_ref().filter(|_| slot.generation == id.generation())
    }

    pub(super) fn socket_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        let slot = self.slots.get_mut(id.index())?;
        slot.socket.as_mut().filter(|_| slot.generation == id.generation())
    }

    pub(super) fn stream(&self, id: SocketId) -> Option<&Stream> {
        match &self.socket(id)?.kind {
            Kind::Stream(stream) => Some(stream),
            Kind::Listener(_) => None,
        }
    }

    pub(super) fn stream_mut(&mut self, id: SocketId) -> Option<&mut Stream> {
        match &mut self.socket_mut(id)?.kind {
            Kind::Stream(stream) => Some(stream),
            Kind::Listener(_) => None,
        }
    }

    pub(super) fn listener_mut(&mut self, id: SocketId) -> Option<&mut Listener> {
        match &mut self.socket_mut(id)?.kind {
            Kind::Listener(listener) => Some(listener),
            Kind::Stream(_) => None,
        }
    }

    /// Removes a socket that was never in use.
    pub(super) fn discard(&mut self, id: SocketId) {
        self.remove(id);
    }

    fn remove(&mut self, id: SocketId) -> Option<Socket> {
        self.socket(id)?;
        let slot = &mut self.slots[id.index()];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index() as u32);
        slot.socket.take()
    }

    /// Reports a change for reading (0) or writing (1) to the socket's host.
    fn notify(&mut self, id: SocketId, direction: usize) {
        let Some(socket) = self.socket_mut(id) else { return };
        socket.edges[direction] += 1;
        if !std::mem::replace(&mut socket.is_changed, true) {
            let host = socket.host;
            self.hosts[host].changes.push(id);
        }
    }

    // Addresses.

    /// Returns an unused port of an address.
    pub(super) fn free_port(&mut self, ip: IpAddr) -> Option<SocketAddr> {
        for _ in PORTS.0..=PORTS.1 {
            let port = self.next_port;
            self.next_port = if port >= PORTS.1 { PORTS.0 } else { port + 1 };
            let address = SocketAddr::new(ip, port);
            if !self.listeners.contains_key(&address) {
                return Some(address);
            }
        }
        None
    }

    /// Returns whether an address belongs to a host.
    pub(super) fn is_local(&self, host: usize, ip: IpAddr) -> bool {
        ip.is_loopback() || ip.is_unspecified() || ip == self.hosts[host].address
    }

    pub(super) fn bind(
        &mut self,
        listener: SocketId,
        address: SocketAddr,
        reuse_port: bool,
    ) -> Result<(), Errno> {
        let others = self.listeners.get(&address).cloned().unwrap_or_default();
        for other in others {
            if !(reuse_port && self.listener_mut(other).is_some_and(|other| other.reuse_port)) {
                return Err(Errno::ADDRINUSE);
            }
        }
        self.listeners.entry(address).or_default().push(listener);
        Ok(())
    }

    pub(super) fn bind_unix(&mut self, listener: SocketId, path: &Arc<Path>) -> Result<(), Errno> {
        if !self.unix_paths.insert(path.clone()) {
            return Err(Errno::ADDRINUSE);
        }
        self.unix_listeners.insert(path.clone(), listener);
        Ok(())
    }

    /// Returns the listener to which the network assigns a connection to `to`.
    fn find_listener(&mut self, to: SocketAddr) -> Option<SocketId> {
        let unspecified: IpAddr = match to {
            SocketAddr::V4(_) => [0; 4].into(),
            SocketAddr::V6(_) => [0; 16].into(),
        };
        let all = self
            .listeners
            .get(&to)
            .or_else(|| self.listeners.get(&SocketAddr::new(unspecified, to.port())))?;
        let count = all.len() as u32;
        let all = all.clone();
        all.get(self.decisions.below(count) as usize).copied()
    }

    // Connections.

    fn draw_delay(&mut self) -> u64 {
        let (min, max) = (self.settings.min_delay, self.settings.max_delay);
        let spread = u32::try_from((max - min).as_nanos()).unwrap_or(u32::MAX - 1);
        min.as_nanos() as u64
            + u64::from(if spread == 0 { 0 } else { self.decisions.below(spread + 1) })
    }

    /// Selects a window, small and large ones with equal probability.
    fn draw_window(&mut self) -> usize {
        let (min, max) = (self.settings.min_window, self.settings.max_window);
        let doublings = (max / min).ilog2();
        // The benign choice is the largest.
        let scale = self.decisions.below(doublings + 1);
        (max >> scale).max(min)
    }

    pub(super) fn connect(
        &mut self,
        host: usize,
        to: SocketAddr,
        source: Option<SocketAddr>,
        max_window: Option<usize>,
    ) -> Result<SocketId, Errno> {
        let ip = match source {
            Some(source) if !self.is_local(host, source.ip()) => return Err(Errno::ADDRNOTAVAIL),
            Some(source) if !source.ip().is_unspecified() => source.ip(),
            _ if to.ip().is_loopback() => to.ip(),
            _ => self.hosts[host].address,
        };
        let local = match source {
            Some(source) if source.port() != 0 => SocketAddr::new(ip, source.port()),
            _ => self.free_port(ip).ok_or(Errno::ADDRNOTAVAIL)?,
        };
        let delay = self.draw_delay();
        // The window of this side is that of the peer's receive buffer, selected on arrival. Until
        // then this field holds the limit of the own receive buffer.
        let window = max_window.unwrap_or(usize::MAX);
        let mut stream = Stream::new(Phase::Connecting, window, delay);
        (stream.local, stream.remote) = (Some(local), Some(to));
        let client = self.insert(host, Kind::Stream(Box::new(stream)));
        self.schedule_after(delay, Event::Request { client, to, attempt: 1 });
        Ok(client)
    }

    pub(super) fn connect_unix(
        &mut self,
        host: usize,
        path: &Arc<Path>,
    ) -> Result<SocketId, Errno> {
        let Some(&listener) = self.unix_listeners.get(path) else {
            let exists = self.unix_paths.contains(path);
            return Err(if exists { Errno::CONNREFUSED } else { Errno::NOENT });
        };
        if self.is_backlog_full(listener) {
            return Err(Errno::AGAIN);
        }
        let (window, other_window) = (self.draw_window(), self.draw_window());
        let mut stream = Stream::new(Phase::Established, window, 0);
        stream.is_unix = true;
        let client = self.insert(host, Kind::Stream(Box::new(stream)));
        let mut stream = Stream::new(Phase::Established, other_window, 0);
        (stream.is_unix, stream.peer, stream.listener) = (true, Some(client), Some(listener));
        let server_host = self.socket(listener).map_or(host, |socket| socket.host);
        let server = self.insert(server_host, Kind::Stream(Box::new(stream)));
        if let Some(stream) = self.stream_mut(client) {
            stream.peer = Some(server);
        }
        self.enqueue(listener, server);
        Ok(client)
    }

    fn is_backlog_full(&mut self, listener: SocketId) -> bool {
        // The kernel allows one more than the backlog.
        self.listener_mut(listener).is_some_and(|of| of.queue.len() + of.withheld > of.backlog)
    }

    /// Adds an established connection to the queue of its listener.
    fn enqueue(&mut self, listener: SocketId, server: SocketId) {
        if let Some(listener) = self.listener_mut(listener) {
            listener.queue.push_back(server);
        }
        self.notify(listener, 0);
    }

    /// Removes the next connection from the queue of a listener.
    pub(super) fn accept(&mut self, listener: SocketId, host: usize) -> Result<SocketId, Errno> {
        let queue = &mut self.listener_mut(listener).ok_or(Errno::INVAL)?.queue;
        if queue.is_empty() {
            return Err(Errno::AGAIN);
        }
        if self.hosts[host].open >= self.hosts[host].max_open {
            return Err(Errno::MFILE);
        }
        let queue = &mut self.listener_mut(listener).ok_or(Errno::INVAL)?.queue;
        let id = queue.pop_front().ok_or(Errno::AGAIN)?;
        self.hosts[host].open += 1;
        let socket = self.socket_mut(id).ok_or(Errno::CONNABORTED)?;
        socket.host = host;
        if let Kind::Stream(stream) = &mut socket.kind {
            stream.listener = None;
        }
        // Bytes that arrived before the accept are a change for the new owner.
        socket.is_changed = false;
        self.notify(id, 0);
        self.notify(id, 1);
        Ok(id)
    }

    /// Sends up to `count` bytes. Returns the number of bytes that the window takes.
    pub(super) fn send(&mut self, id: SocketId, bytes: &[u8]) -> Result<usize, Errno> {
        let stream = self.stream_mut(id).ok_or(Errno::BADF)?;
        if let Some(errno) = stream.error.take() {
            return Err(errno);
        }
        match stream.phase {
            Phase::Connecting => return Err(Errno::AGAIN),
            Phase::Dead => return Err(Errno::PIPE),
            Phase::Established if stream.is_shut_down => return Err(Errno::PIPE),
            Phase::Established => {}
        }
        let mut count = stream.space().min(bytes.len());
        if bytes.is_empty() {
            return Ok(0);
        }
        if count == 0 {
            return Err(Errno::AGAIN);
        }
        if self.has_fault(self.settings.stalls) {
            if let Some(stream) = self.stream_mut(id) {
                stream.is_stalled = true;
            }
            let delay = 1 + u64::from(self.decisions.below(1_000_000));
            self.schedule_after(delay, Event::Space { to: id });
            return Err(Errno::AGAIN);
        }
        if count > 1 && self.has_fault(self.settings.short_sends) {
            let limit = u32::try_from(count - 1).unwrap_or(u32::MAX);
            count = 1 + self.decisions.below(limit) as usize;
        }
        let stream = self.stream_mut(id).ok_or(Errno::BADF)?;
        stream.outstanding += count;
        stream.in_flight += count;
        let (peer, is_unix) = (stream.peer.ok_or(Errno::PIPE)?, stream.is_unix);
        if is_unix && self.stream(peer).is_none() {
            return Err(Errno::PIPE);
        }
        if let Some(peer) = self.stream_mut(peer) {
            peer.incoming.extend(&bytes[..count]);
        }
        if self.has_fault(self.settings.breaks) {
            let errno = [Errno::CONNRESET, Errno::TIMEDOUT, Errno::HOSTUNREACH]
                [self.decisions.below(3) as usize];
            let at = self.next_arrival(id);
            self.schedule(at, Event::Reset { to: peer, errno });
            self.schedule(at, Event::Reset { to: id, errno });
        }
        if is_unix {
            self.perform(Event::Bytes { from: id, to: peer, count });
        } else {
            let at = self.next_arrival(id);
            self.schedule(at, Event::Bytes { from: id, to: peer, count });
        }
        Ok(count)
    }

    /// Returns the time at which a packet sent now arrives: after all packets before it.
    fn next_arrival(&mut self, id: SocketId) -> Time {
        let jitter = u32::try_from(self.settings.jitter.as_nanos()).unwrap_or(u32::MAX);
        let jitter = u64::from(self.decisions.below(jitter));
        let now = self.now;
        let Some(stream) = self.stream_mut(id) else { return now };
        let at = now + Duration::from_nanos(stream.delay + jitter);
        let at = stream.last_arrival.max(at);
        stream.last_arrival = at;
        if let Some(peer) = stream.peer.and_then(|peer| self.stream_mut(peer)) {
            peer.last_incoming = at;
        }
        at
    }

    /// Receives into `buffer`.
    pub(super) fn recv(&mut self, id: SocketId, buffer: &mut [u8]) -> Result<usize, Errno> {
        let stream = self.stream_mut(id).ok_or(Errno::BADF)?;
        let count = stream.readable.min(buffer.len());
        if count == 0 {
            if let Some(errno) = stream.error.take() {
                return Err(errno);
            }
            let ended = stream.has_ended || stream.phase == Phase::Dead;
            return if ended { Ok(0) } else { Err(Errno::AGAIN) };
        }
        let (front, back) = stream.incoming.as_slices();
        let of_front = front.len().min(count);
        buffer[..of_front].copy_from_slice(&front[..of_front]);
        buffer[of_front..count].copy_from_slice(&back[..count - of_front]);
        stream.incoming.drain(..count);
        stream.readable -= count;
        let (peer, delay) = (stream.peer, stream.delay);
        let holds_back = stream.held_back > 0;
        if let Some(peer) = peer {
            let window = Event::Window { to: peer, count };
            if delay == 0 {
                self.perform(window);
            } else {
                self.schedule_after(delay, window);
            }
            if holds_back {
                self.schedule_after(2 * delay, Event::Bytes { from: peer, to: id, count: 0 });
            }
        }
        Ok(count)
    }

    pub(super) fn shutdown(&mut self, id: SocketId) {
        let Some(stream) = self.stream_mut(id) else { return };
        if stream.phase != Phase::Established || std::mem::replace(&mut stream.is_shut_down, true) {
            return;
        }
        self.send_end(id);
        self.notify(id, 1);
    }

    fn send_end(&mut self, id: SocketId) {
        let at = self.next_arrival(id);
        let Some(stream) = self.stream(id) else { return };
        let Some(peer) = stream.peer else { return };
        let end = Event::End { to: peer };
        if stream.is_unix { self.perform(end) } else { self.schedule(at, end) }
    }

    /// Closes a socket, with a reset if requested or if received bytes were not read.
    pub(super) fn close(&mut self, id: SocketId, resets: bool) {
        let Some(socket) = self.socket(id) else { return };
        let host = socket.host;
        match &socket.kind {
            Kind::Listener(_) => {
                let Some(Socket { kind: Kind::Listener(listener), .. }) = self.remove(id) else {
                    return;
                };
                self.hosts[host].open -= 1;
                match &listener.address {
                    Address::Inet(address) => {
                        if let Some(all) = self.listeners.get_mut(address) {
                            all.retain(|&other| other != id);
                            if all.is_empty() {
                                self.listeners.remove(address);
                            }
                        }
                    }
                    Address::Unix(path) => {
                        self.unix_listeners.remove(path);
                    }
                }
                let withheld: Vec<SocketId> = self.withheld_by(id);
                for server in listener.queue.into_iter().chain(withheld) {
                    self.end_connection(server, true);
                    self.remove(server);
                }
            }
            Kind::Stream(stream) => {
                let is_owned = stream.listener.is_none();
                let resets = resets && !stream.is_unix;
                self.end_connection(id, resets);
                self.remove(id);
                if is_owned {
                    self.hosts[host].open -= 1;
                }
            }
        }
    }

    /// Returns the connections that a listener withholds.
    fn withheld_by(&self, listener: SocketId) -> Vec<SocketId> {
        let ids = self.slots.iter().enumerate().filter_map(|(index, slot)| match &slot.socket {
            Some(Socket { kind: Kind::Stream(stream), .. })
                if stream.listener == Some(listener) =>
            {
                Some(SocketId::new(index as u32, slot.generation))
            }
            _ => None,
        });
        ids.collect()
    }

    /// Informs the peer that a connection is closed.
    fn end_connection(&mut self, id: SocketId, resets: bool) {
        let Some(stream) = self.stream(id) else { return };
        if stream.phase != Phase::Established {
            return;
        }
        let resets = resets || stream.readable > 0;
        let (peer, is_unix, was_shut_down) = (stream.peer, stream.is_unix, stream.is_shut_down);
        let Some(peer) = peer else { return };
        if resets {
            let overtakes = self.has_fault(self.settings.overtaking_resets);
            let at = if overtakes { self.now } else { self.next_arrival(id) };
            let reset = Event::Reset { to: peer, errno: Errno::CONNRESET };
            if is_unix { self.perform(reset) } else { self.schedule(at, reset) }
        } else if !was_shut_down {
            self.send_end(id);
        }
        if is_unix && let Some(stream) = self.stream_mut(peer) {
            // A Unix socket learns at once that its peer is closed: sends fail, and receives return
            // the remaining bytes and the end.
            stream.is_shut_down = true;
            self.notify(peer, 1);
        }
    }

    fn perform(&mut self, event: Event) {
        match event {
            Event::Request { client, to, attempt } => self.on_request(client, to, attempt),
            Event::Established { client, server } => self.on_established(client, server),
            Event::Failed { client, errno } | Event::Reset { to: client, errno } => {
                self.on_reset(client, errno);
            }
            Event::Bytes { from, to, count } => self.on_bytes(from, to, count),
            Event::End { to } => self.on_end(to),
            Event::Window { to, count } => {
                let Some(stream) = self.stream_mut(to) else { return };
                stream.outstanding = stream.outstanding.saturating_sub(count);
                self.notify(to, 1);
            }
            Event::Space { to } => {
                let Some(stream) = self.stream_mut(to) else { return };
                stream.is_stalled = false;
                self.notify(to, 1);
            }
            Event::DeferExpired { listener, server } => self.release_withheld(listener, server),
        }
    }

    fn on_request(&mut self, client: SocketId, to: SocketAddr, attempt: u32) {
        let Some((delay, limit, remote)) =
            self.stream(client).map(|stream| (stream.delay, stream.window, stream.local))
        else {
            return; // The client has given up.
        };
        let Some(listener) = self.find_listener(to) else {
            let refused = Event::Failed { client, errno: Errno::CONNREFUSED };
            return self.schedule_after(delay, refused);
        };
        if self.has_fault(self.settings.refusals) {
            let errno =
                [Errno::CONNREFUSED, Errno::TIMEDOUT, Errno::HOSTUNREACH, Errno::NETUNREACH]
                    [self.decisions.below(4) as usize];
            return self.schedule_after(delay, Event::Failed { client, errno });
        }
        if self.is_backlog_full(listener) || self.has_fault(self.settings.lost_requests) {
            return if attempt < MAX_REQUESTS {
                let again = Event::Request { client, to, attempt: attempt + 1 };
                self.schedule_after(RETRY_DELAY << (attempt - 1), again);
            } else {
                self.schedule_after(delay, Event::Failed { client, errno: Errno::TIMEDOUT });
            };
        }
        let (window, of_client) = (self.draw_window(), self.draw_window());
        // The other half is the buffer of the sender.
        let (of_receiver, of_server) = (window.div_ceil(2).min(limit), of_client.div_ceil(2));
        let window = window.min(limit.saturating_mul(2));
        let mut stream = Stream::new(Phase::Established, window, delay);
        (stream.local, stream.remote) = (Some(to), remote);
        (stream.peer, stream.listener) = (Some(client), Some(listener));
        stream.receive_limit = of_server;
        let host = self.socket(listener).map_or(0, |socket| socket.host);
        let server = self.insert(host, Kind::Stream(Box::new(stream)));
        if let Some(stream) = self.stream_mut(client) {
            stream.peer = Some(server);
            (stream.window, stream.receive_limit) = (of_client, of_receiver);
        }
        self.schedule_after(delay, Event::Established { client, server });
        let Some(state) = self.listener_mut(listener) else { return };
        if state.defers {
            state.withheld += 1;
            let expired = Event::DeferExpired { listener, server };
            return self.schedule_after(RETRY_DELAY, expired);
        }
        self.enqueue(listener, server);
    }

    /// Passes a withheld connection to its listener.
    fn release_withheld(&mut self, listener: SocketId, server: SocketId) {
        let is_withheld = self.stream(server).is_some_and(|of| of.listener == Some(listener));
        let Some(state) = self.listener_mut(listener) else { return };
        if is_withheld && state.defers && !state.queue.contains(&server) {
            state.withheld = state.withheld.saturating_sub(1);
            self.enqueue(listener, server);
        }
    }

    fn on_established(&mut self, client: SocketId, server: SocketId) {
        let Some(stream) = self.stream_mut(client) else {
            // The client has closed its socket: its host answers with a reset.
            return self.perform(Event::Reset { to: server, errno: Errno::CONNRESET });
        };
        if stream.phase == Phase::Connecting {
            stream.phase = Phase::Established;
            self.notify(client, 1);
            let is_readable = self.stream(client).is_some_and(Stream::is_readable);
            if is_readable {
                self.notify(client, 0);
            }
        }
    }

    fn on_bytes(&mut self, from: SocketId, to: SocketId, count: usize) {
        let Some(receiver) = self.stream_mut(to) else {
            // The receiver is closed: its host answers with a reset, which follows all it has sent.
            let Some(sender) = self.stream(from).filter(|_| count > 0) else { return };
            let at = (self.now + Duration::from_nanos(sender.delay)).max(sender.last_incoming);
            return self.schedule(at, Event::Reset { to: from, errno: Errno::CONNRESET });
        };
        if receiver.phase == Phase::Dead {
            return;
        }
        let waiting = receiver.held_back + count;
        let arrived = waiting.min(receiver.receive_limit.saturating_sub(receiver.readable));
        receiver.held_back = waiting - arrived;
        receiver.readable = (receiver.readable + arrived).min(receiver.incoming.len());
        if receiver.held_back == 0 && std::mem::take(&mut receiver.end_follows) {
            receiver.has_ended = true;
        } else if arrived == 0 {
            return;
        }
        let listener = receiver.listener;
        if let Some(sender) = self.stream_mut(from) {
            sender.in_flight = sender.in_flight.saturating_sub(arrived);
        }
        self.notify(to, 0);
        if let Some(listener) = listener {
            self.release_withheld(listener, to);
        }
    }

    fn on_end(&mut self, to: SocketId) {
        let Some(stream) = self.stream_mut(to) else { return };
        if stream.phase == Phase::Dead {
            return;
        }
        if stream.held_back > 0 {
            stream.end_follows = true;
            return;
        }
        stream.has_ended = true;
        let listener = stream.listener;
        self.notify(to, 0);
        if let Some(listener) = listener {
            self.release_withheld(listener, to);
        }
    }

    fn on_reset(&mut self, id: SocketId, errno: Errno) {
        let Some(stream) = self.stream_mut(id) else { return };
        if stream.phase == Phase::Dead {
            return;
        }
        // A connection whose peer half-closed it fails with EPIPE: tcp_reset() in the kernel.
        let is_half_closed = stream.has_ended && errno == Errno::CONNRESET;
        stream.error = Some(if is_half_closed { Errno::PIPE } else { errno });
        stream.phase = Phase::Dead;
        stream.incoming.truncate(stream.readable);
        (stream.outstanding, stream.in_flight) = (0, 0);
        let listener = stream.listener;
        self.notify(id, 0);
        self.notify(id, 1);
        if let Some(listener) = listener {
            self.release_withheld(listener, id);
        }
    }
}
