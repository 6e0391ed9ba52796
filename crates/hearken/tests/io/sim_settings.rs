//! The simulated `Io` as another implementation, calm and with faults that the contract allows.

use std::fmt;

use hearken::io::sim::{Decisions, NetworkSettings, SimIo, SimIoSettings, World};
use hearken::mechanism::Unavailable;

use crate::suite::Target;
use crate::{Case, Clause};

/// Settings with their name.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    name: &'static str,
    change: fn(&mut NetworkSettings, &mut SimIoSettings),
    /// See [`Case`].
    turn_bytes: Option<usize>,
}

/// The settings, under each of which every clause runs.
pub(crate) const ALL: &[Setting] = &[
    Setting { name: "calm", change: |_, _| {}, turn_bytes: None },
    Setting { name: "tiny", change: tiny, turn_bytes: Some(1000) },
    Setting { name: "erratic", change: erratic, turn_bytes: None },
];

/// Sets few small buffers and small windows.
fn tiny(network: &mut NetworkSettings, io: &mut SimIoSettings) {
    (network.min_window, network.max_window) = (128 * 1024, 128 * 1024);
    (io.buffers, io.buffer_size, io.turn_bytes) = (2, 64, 1000);
}

/// Sets all faults that are no errors.
fn erratic(network: &mut NetworkSettings, io: &mut SimIoSettings) {
    (network.min_window, network.max_window) = (64 * 1024, 1 << 20);
    io.buffer_size = 4096;
    network.jitter = std::time::Duration::from_micros(100);
    (network.short_sends, network.stalls) = (300, 100);
    let faults = &mut io.faults;
    (faults.short_receives, faults.deferred_sends, faults.reordering) = (500, 300, 500);
    (faults.early_waits, faults.linked_closes) = (100, 500);
}

/// Runs `clause` over simulated networks from several seeds.
pub(crate) fn over_sim(setting: &Setting, clause: Clause<SimIo>) {
    for seed in 0..3 {
        let (mut network, mut io) = (NetworkSettings::default(), SimIoSettings::default());
        (setting.change)(&mut network, &mut io);
        let world = World::new(Decisions::from_seed(seed), network);
        clause(&Case {
            io: &|| SimIo::new(&world.host([127, 0, 0, 1].into()), io),
            wakes_when_idle: io.faults.early_waits > 0,
            turn_bytes: setting.turn_bytes,
            bulk_bytes: None,
            accept_limit: None,
            max_waits: 1,
            keeps_interest: true,
            has_handshake: false,
        });
    }
}

/// Clauses that a simulation cannot run, with the reason.
const EXCLUDED: &[(&str, &str)] = &[
    ("unix::accepts_clients_of_the_standard_library", CLIENTS),
    ("relay_ends::urgent_data_is_discarded", CLIENTS),
    ("machine::serves_clients_of_the_standard_library", CLIENTS),
    ("machine::instances_share_a_listener", "it uses the process's descriptors"),
    ("machine::adopts_sockets_of_the_standard_library", "it uses the process's descriptors"),
    ("machine::reports_watched_descriptors_once_per_start", "it uses the process's descriptors"),
    ("machine::receives_from_an_active_peer_after_exhaustion", CLIENTS),
    ("machine::listener_stops_without_free_descriptors", "it limits the process's descriptors"),
];

const CLIENTS: &str = "its clients use sockets of the kernel";

/// Returns whether a simulation cannot run a clause.
pub(crate) fn is_excluded(clause: &str) -> bool {
    EXCLUDED.iter().any(|(excluded, _)| *excluded == clause)
}

impl Target for Setting {
    fn probe(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    fn is_privileged(&self) -> bool {
        false
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sim::{}", self.name)
    }
}
