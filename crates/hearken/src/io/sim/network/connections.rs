//! Connections of a simulated network: what programs do with them, and what happens to them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::Network;
use super::events::Event;
use crate::io::Address;
use crate::io::sim::host::SocketId;
use crate::io::sim::socket::{Kind, Phase, Socket, Stream};
use crate::timer::Time;

/// Time after which a lost or ignored connection request is sent again.
const RETRY_DELAY: u64 = 1_000_000_000;
/// Maximum number of connection requests: the client gives up after 15 seconds.
const MAX_REQUESTS: u32 = 4;

impl Network {
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

    pub(in crate::io::sim) fn connect(
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
        self.schedule_after(delay, Event::Request { client, attempt: 1 });
        Ok(client)
    }

    pub(in crate::io::sim) fn connect_unix(
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
    pub(in crate::io::sim) fn accept(
        &mut self,
        listener: SocketId,
        host: usize,
    ) -> Result<SocketId, Errno> {
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
    pub(in crate::io::sim) fn send(&mut self, id: SocketId, bytes: &[u8]) -> Result<usize, Errno> {
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
    pub(in crate::io::sim) fn recv(
        &mut self,
        id: SocketId,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
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

    pub(in crate::io::sim) fn shutdown(&mut self, id: SocketId) {
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
    pub(in crate::io::sim) fn close(&mut self, id: SocketId, resets: bool) {
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

    pub(super) fn perform(&mut self, event: Event) {
        match event {
            Event::Request { client, attempt } => self.on_request(client, attempt),
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

    fn on_request(&mut self, client: SocketId, attempt: u32) {
        let Some(stream) = self.stream(client) else { return }; // The client has given up.
        let (delay, limit, remote) = (stream.delay, stream.window, stream.local);
        let Some(to) = stream.remote else { return };
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
                let again = Event::Request { client, attempt: attempt + 1 };
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
