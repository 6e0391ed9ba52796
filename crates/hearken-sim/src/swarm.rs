//! The configuration that a history draws for itself: the network, its faults, and the mode.

use std::time::Duration;

use hearken::io::sim::{Decisions, Faults, NetworkSettings, SimIoSettings};

use crate::io_level::IoLevel;
use crate::scheduler::Stalls;
use crate::selection::{Protocols, Selection};

/// The aim of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Faults may occur at any time.
    Safety,
    /// Faults stop at some time. Then everything must end by its deadlines.
    Liveness,
}

/// The kinds of faults that a history contains.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FaultLevel {
    /// No faults.
    None,
    /// Faults that delay but lose nothing: short transfers, reordering, early waits, lost requests.
    Harmless,
    /// Also failures of operations, of connections, and of accepting.
    Any,
}

/// The sizes of an implementation of `Io`.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes per turn and connection.
    pub turn_bytes: usize,
    /// Size of a buffer in bytes.
    pub buffer_size: usize,
    /// Maximum number of buffers in use.
    pub buffers: usize,
}

/// The drawn configuration that all kinds share.
#[derive(Clone, Copy, Debug)]
pub struct Swarm {
    /// The aim.
    pub mode: Mode,
    /// The kinds of faults.
    pub level: FaultLevel,
    /// The protocols of clients.
    pub protocols: Protocols,
    /// The network.
    pub network: NetworkSettings,
    /// The implementation of `Io` under the programs under test.
    pub io: IoLevel,
    /// Its sizes.
    pub sizes: Sizes,
    /// Delays of programs.
    pub stalls: Stalls,
    /// Time after which faults stop, in liveness mode.
    pub faults_end: Duration,
}

/// Draws one of the values. The first is the benign one.
pub fn draw<T: Copy>(decisions: &mut Decisions, values: &[T]) -> T {
    values[decisions.below(values.len() as u32) as usize]
}

/// Draws the probability of a fault, in thousandths. Half of the faults do not occur.
pub(crate) fn probability(decisions: &mut Decisions) -> u32 {
    draw(decisions, &[0, 0, 0, 0, 1, 10, 50, 200])
}

/// Delays of packets: minimum, maximum and jitter in microseconds.
const DELAYS: [(u64, u64, u64); 6] = [
    (20, 50, 0),
    (0, 0, 0),
    (20, 50, 1000),
    (500, 5_000, 0),
    (1_000, 1_000, 20_000),
    (20_000, 200_000, 5_000),
];

/// Minimum and maximum windows. Small ones cost many events.
const WINDOWS: [(usize, usize); 8] = [
    (128 * 1024, 128 * 1024),
    (128 * 1024, 128 * 1024),
    (128 * 1024, 128 * 1024),
    (1 << 20, 1 << 20),
    (1, 1 << 20),
    (1024, 64 * 1024),
    (4096, 4096),
    (1, 256),
];

/// Sizes of buffers. Small ones cost many events, too.
const BUFFER_SIZES: [usize; 8] =
    [16 * 1024, 16 * 1024, 16 * 1024, 16 * 1024, 16 * 1024, 4096, 512, 64];

/// Bytes per turn and connection.
const TURN_BYTES: [usize; 8] = [1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 4096, 1];

impl Swarm {
    /// Returns whether each byte costs events, so that a history should transfer few.
    pub fn is_slow(&self) -> bool {
        let Sizes { turn_bytes, buffer_size, .. } = self.sizes;
        self.network.min_window < 64 || turn_bytes < 64 || buffer_size <= 64
    }

    /// Returns whether nothing delays programs or connections.
    pub(crate) fn has_no_delays(&self) -> bool {
        self.level == FaultLevel::None && !self.is_slow() && self.network.max_backlog > 1000
    }

    /// Draws a configuration.
    pub fn draw(decisions: &mut Decisions) -> Swarm {
        let (io_level, protocols) = Selection::draw(decisions);
        let mode = draw(decisions, &[Mode::Safety, Mode::Liveness]);
        use FaultLevel::{Any, Harmless, None};
        let level = draw(decisions, &[None, None, Harmless, Any]);
        let mut network = NetworkSettings::default();
        let (min, max, jitter) = draw(decisions, &DELAYS);
        network.min_delay = Duration::from_micros(min);
        network.max_delay = Duration::from_micros(max);
        network.jitter = Duration::from_micros(jitter);
        (network.min_window, network.max_window) = draw(decisions, &WINDOWS);
        network.max_backlog = draw(decisions, &[4096, 4096, 16, 1]);
        let mut io = SimIoSettings::default();
        io.buffers = draw(decisions, &[4096, 4096, 16, 2, 1]);
        io.buffer_size = draw(decisions, &BUFFER_SIZES);
        io.turn_bytes = draw(decisions, &TURN_BYTES);
        let mut stalls = Stalls::default();
        let faults = &mut io.faults;
        if level >= Harmless {
            harmless(decisions, faults, &mut network);
            stalls.per_mille = probability(decisions);
            stalls.max = Duration::from_millis(draw(decisions, &[1, 10, 100]));
        }
        if level >= Any {
            for fault in [
                &mut faults.accept_failures,
                &mut faults.transfer_failures,
                &mut network.breaks,
                &mut network.refusals,
                &mut network.overtaking_resets,
            ] {
                *fault = probability(decisions);
            }
        }
        let faults_end = Duration::from_millis(draw(decisions, &[0, 10, 1_000, 20_000]));
        let SimIoSettings { turn_bytes, buffer_size, buffers, .. } = io;
        let sizes = Sizes { turn_bytes, buffer_size, buffers };
        let io = IoLevel::draw(io_level, decisions, level, io);
        Swarm { mode, level, protocols, network, io, sizes, stalls, faults_end }
    }
}

fn harmless(decisions: &mut Decisions, faults: &mut Faults, network: &mut NetworkSettings) {
    for fault in [
        &mut faults.short_receives,
        &mut faults.deferred_sends,
        &mut faults.reordering,
        &mut faults.early_waits,
        &mut faults.receives_after_stop,
        &mut faults.cancelled_relays,
        &mut faults.linked_closes,
        &mut network.short_sends,
        &mut network.stalls,
        &mut network.lost_requests,
    ] {
        *fault = probability(decisions);
    }
}
