//! `Io` over a simulated ring and a simulated kernel, in every manner in which kernels complete
//! requests without an error that ends a connection.

use std::fmt;

use hearken::io::sim::{Decisions, NetworkSettings, RingFaults, SimKernel, SimRing, World, uring};
use hearken::io::uring::UringIo;
use hearken::mechanism::Unavailable;

use crate::suite::{self, Target, Tests, tests};
use crate::{Case, Clause, sending, sim_kernel, uring_settings};

/// The implementation under test.
pub(crate) type SimUring = UringIo<SimRing, SimKernel>;

/// Settings with the behaviour of the ring, and its name.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    settings: uring_settings::Setting,
    name: &'static str,
    change: fn(&mut NetworkSettings, &mut RingFaults),
}

/// Returns all settings with all behaviours.
pub(crate) fn all() -> impl Iterator<Item = Setting> {
    uring_settings::ALL.iter().flat_map(|&settings| {
        BEHAVIOURS.iter().map(move |&(name, change)| Setting { settings, name, change })
    })
}

/// Returns whether a behaviour breaks an assumption of a trial: that a receive in progress yields no
/// more bytes than the relay that it cancels may move.
pub(crate) fn is_excluded(setting: &Setting, trial: &str) -> bool {
    setting.name != "calm" && trial.ends_with("relaying::relays_exactly_the_requested_bytes")
}

/// Returns whether a clause, given by its index, runs under `setting` by default: once under each
/// of the settings and under each of the behaviours.
pub(crate) fn is_selected(setting: &Setting, clause: usize) -> bool {
    let behaviour = BEHAVIOURS.iter().position(|(name, _)| *name == setting.name);
    let settings = uring_settings::ALL.iter().position(|of| of.name == setting.settings.name);
    let (Some(behaviour), Some(settings)) = (behaviour, settings) else { return true };
    suite::pairwise(settings, clause, BEHAVIOURS.len()) == behaviour
}

/// A change of a calm network and a calm ring.
type Change = fn(&mut NetworkSettings, &mut RingFaults);

const BEHAVIOURS: &[(&str, Change)] = &[
    ("calm", |_, _| {}),
    // As without DEFER_TASKRUN.
    ("cooperative", |_, ring| ring.cooperative = true),
    ("overflowing", |_, ring| ring.completions = 2),
    ("erratic", |network, ring| {
        *network = sim_kernel::erratic_network();
        *ring = RingFaults::transparent(200);
        ring.kernel = sim_kernel::erratic_kernel();
    }),
    ("overflowing-erratic", |network, ring| {
        *network = sim_kernel::erratic_network();
        *ring = RingFaults::transparent(100);
        (ring.completions, ring.cooperative) = (3, true);
    }),
];

/// Runs `clause` over a simulated ring, from several seeds.
pub(crate) fn over_sim(setting: &Setting, clause: Clause<SimUring>) {
    over_network(setting, sim_kernel::calm_network(), clause);
}

fn over_network(setting: &Setting, network: NetworkSettings, clause: Clause<SimUring>) {
    for seed in 0..2 {
        let (mut network, mut faults) = (network, RingFaults::default());
        (setting.change)(&mut network, &mut faults);
        let world = World::new(Decisions::from_seed(seed), network);
        let io = || {
            let host = world.host([127, 0, 0, 1].into());
            uring(&host, (setting.settings.make)(), faults).unwrap()
        };
        clause(&Case {
            io: &io,
            wakes_when_idle: faults.interrupted_waits > 0,
            turn_bytes: setting.settings.turn_bytes,
            bulk_bytes: setting.settings.bulk_bytes,
            accept_limit: None,
            // A wait may return without a completion.
            max_waits: if faults.interrupted_waits > 0 { 20 } else { 1 },
            keeps_interest: faults.interrupted_waits == 0,
            has_handshake: false,
        });
    }
}

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        delivered_bytes_do_not_shrink
    }
}

/// Checks that the number of delivered bytes does not shrink while the completion of a send waits
/// for space in the completion queue.
fn delivered_bytes_do_not_shrink() {
    let is_narrow =
        |setting: &Setting| (setting.settings.name, setting.name) == ("tiny", "overflowing");
    let setting = all().find(is_narrow).unwrap();
    over_network(&setting, NetworkSettings::default(), sending::delivered_bytes_grow_to_all_bytes);
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
        write!(f, "sim-ring::{}-{}", self.settings.name, self.name)
    }
}
