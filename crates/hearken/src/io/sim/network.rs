//! The state of a simulated network: its clock, its sockets and its addresses.

mod connections;
mod events;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::Decisions;
use super::host::SocketId;
use super::socket::{Kind, Listener, Socket, Stream};
use super::world::{NetworkSettings, TraceSink};
use crate::timer::Time;
use crate::waker::WakeFlag;
use events::{Event, Events};

/// Time that reading the clock takes, so that loops that wait for a time end.
const CLOCK_COST: u64 = 50;
/// Time of day at the start of a simulation, in seconds: 2027-01-15 08:00 UTC.
const UNIX_START: u64 = 1_800_000_000;
/// Start of the clock. A zero would mean "unknown" in some programs.
const START: u64 = 1_000_000_000_000;
/// First and last ephemeral port.
const PORTS: (u16, u16) = (32_768, 60_999);

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
    pub(super) faults_stopped: bool,
    unix_offset: Duration,
    events: Events,
    slots: Vec<Slot>,
    free: Vec<u32>,
    pub(super) hosts: Vec<HostState>,
    listeners: BTreeMap<SocketAddr, Vec<SocketId>>,
    unix_listeners: BTreeMap<Arc<Path>, SocketId>,
    /// Paths that were bound, which remain after their socket is closed.
    pub(super) unix_paths: BTreeSet<Arc<Path>>,
    next_port: u16,
    pub(super) trace_hash: u64,
    pub(super) trace_sink: Option<TraceSink>,
}

impl Network {
    pub(super) fn new(decisions: Decisions, settings: NetworkSettings) -> Network {
        Network {
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
            events: Events::default(),
            slots: Vec::new(),
            free: Vec::new(),
            hosts: Vec::new(),
            listeners: BTreeMap::new(),
            unix_listeners: BTreeMap::new(),
            unix_paths: BTreeSet::new(),
            next_port: PORTS.0,
            trace_hash: 0,
            trace_sink: None,
        }
    }

    /// Adds a host and returns its index.
    pub(super) fn add_host(&mut self, address: IpAddr) -> usize {
        self.hosts.push(HostState {
            address,
            changes: Vec::new(),
            wake_flag: Arc::default(),
            open: 0,
            max_open: usize::MAX,
            waiter: None,
        });
        self.hosts.len() - 1
    }

    // Time.

    fn elapsed(&self) -> Duration {
        self.now.duration_since(Time::from_nanos(START))
    }

    pub(super) fn unix_time(&self) -> Duration {
        self.unix_offset + self.elapsed()
    }

    pub(super) fn set_unix_time(&mut self, time: Duration) {
        self.unix_offset = time.saturating_sub(self.elapsed());
    }

    /// Returns the time and lets a moment pass.
    pub(super) fn read_clock(&mut self) -> Time {
        self.now = self.now + Duration::from_nanos(CLOCK_COST);
        self.now
    }

    pub(super) fn has_fault(&mut self, per_mille: u32) -> bool {
        !self.faults_stopped && self.decisions.chance(per_mille)
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        self.events.next_time()
    }

    /// Advances the clock to `time`, unless it is later already, and performs the events up to then.
    pub(super) fn advance(&mut self, time: Time) {
        while let Some((at, event)) = self.events.take_until(time.max(self.now)) {
            self.now = self.now.max(at);
            self.perform(event);
        }
        self.now = self.now.max(time);
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.events.schedule(at, event);
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

    pub(super) fn open_sockets(&self) -> usize {
        self.slots.len() - self.free.len()
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
}
