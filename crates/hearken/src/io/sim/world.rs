//! A simulated network as a scheduler sees it: its settings, its clock and its trace.

use std::cell::RefCell;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::Decisions;
use super::host::Host;
use super::network::Network;
use crate::timer::Time;

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

impl World {
    /// Creates a network without hosts.
    pub fn new(decisions: Decisions, settings: NetworkSettings) -> World {
        World(Rc::new(RefCell::new(Network::new(decisions, settings))))
    }

    /// Adds a host. Several hosts may have the same address: they are programs of one machine.
    pub fn host(&self, address: IpAddr) -> Host {
        let index = self.0.borrow_mut().add_host(address);
        Host::new(self.clone(), index)
    }

    /// Returns the time.
    pub fn now(&self) -> Time {
        self.0.borrow().now
    }

    /// Returns the time of the next event of the network.
    pub fn next_event(&self) -> Option<Time> {
        self.0.borrow().next_event()
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
        self.0.borrow_mut().set_unix_time(time);
    }

    /// Returns the number of open sockets, including connections that wait to be accepted.
    pub fn open_sockets(&self) -> usize {
        self.0.borrow().open_sockets()
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
