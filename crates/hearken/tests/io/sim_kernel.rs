//! `Io` over readiness, with a simulated mechanism and a simulated kernel: mechanisms with many
//! properties, calm and with faults that are no errors.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use hearken::Readiness;
use hearken::io::Io;
use hearken::io::readiness::{InterestPolicy, Order, Policy, ReadinessIo};
use hearken::io::sim::{Decisions, KernelFaults, MechanismSettings, NetworkSettings};
use hearken::io::sim::{SimKernel, SimMechanism, World, readiness};
use hearken::mechanism::{ChangeCost, Trigger, Unavailable, Watches};

use crate::suite::{Target, Tests, tests};
use crate::{Case, Clause, sim_settings};

/// The implementation under test.
pub(crate) type SimReadiness = ReadinessIo<SimMechanism, SimKernel>;

/// A simulated mechanism, with its name.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    name: &'static str,
    change: fn(&mut MechanismSettings),
    is_erratic: bool,
}

/// Returns the mechanisms, calm ones first.
pub(crate) fn all() -> impl Iterator<Item = Setting> {
    let with = |is_erratic| {
        MECHANISMS.iter().map(move |&(name, change)| Setting { name, change, is_erratic })
    };
    with(false).chain(with(true))
}

/// A mechanism's name, and what distinguishes it.
type Named = (&'static str, fn(&mut MechanismSettings));

const MECHANISMS: &[Named] = &[
    ("level", |_| {}),
    ("edge", |settings| settings.semantics.trigger = Trigger::Edge),
    ("one-shot", |settings| {
        settings.semantics.trigger = Trigger::OneShot;
        settings.semantics.change = ChangeCost::Wait;
    }),
    ("level-both", |settings| settings.semantics.registers_both = true),
    ("edge-both", |settings| {
        settings.semantics.trigger = Trigger::Edge;
        settings.semantics.registers_both = true;
        settings.semantics.close_revokes = true;
    }),
    // As select(2).
    ("level-directions", |settings| settings.semantics.reports = DIRECTIONS),
    // As signals.
    ("edge-directions", |settings| {
        settings.semantics.trigger = Trigger::Edge;
        settings.semantics.reports = DIRECTIONS;
        settings.semantics.watches = Watches::SignalDriven;
    }),
    ("edge-arrivals", |settings| {
        settings.semantics.trigger = Trigger::Edge;
        settings.semantics.watches = Watches::SignalDriven;
    }),
    ("edge-queue", |settings| overflows(settings, Trigger::Edge)),
    ("one-shot-queue", |settings| overflows(settings, Trigger::OneShot)),
    ("level-scan", |settings| settings.scan_interval = 25),
];

const DIRECTIONS: Readiness = Readiness::READABLE.union(Readiness::WRITABLE);

/// Gives the mechanism a queue of two arrivals.
fn overflows(settings: &mut MechanismSettings, trigger: Trigger) {
    (settings.semantics.trigger, settings.semantics.overflows) = (trigger, true);
    settings.queue_length = 2;
}

/// Turns on all that a mechanism may do without an error.
fn make_erratic(settings: &mut MechanismSettings) {
    (settings.short_batches, settings.reordering, settings.excess) = (500, 500, 200);
    (settings.early_waits, settings.spurious_events) = (100, 100);
    (settings.repetitions, settings.overflows) = (200, 100);
}

/// Returns all that a kernel may do without an error that ends a connection.
pub(crate) fn erratic_kernel() -> KernelFaults {
    let mut faults = KernelFaults::default();
    (faults.interrupts, faults.slow_calls) = (100, 100);
    (faults.late_arrivals, faults.stalled_receives) = (200, 50);
    (faults.short_splices, faults.refused_splices, faults.pipe_failures) = (300, 100, 200);
    faults
}

/// Returns a network in which bytes arrive before the next wait, as on the loopback interface.
pub(crate) fn calm_network() -> NetworkSettings {
    let mut network = NetworkSettings::default();
    network.wait_cost = Duration::from_micros(50);
    (network.min_delay, network.max_delay) = (Duration::ZERO, network.wait_cost / 2);
    network
}

/// Returns a network whose sockets hold as many bytes as the clauses assume: 128 KiB and more, but
/// less than 1 MiB.
pub(crate) fn erratic_network() -> NetworkSettings {
    let mut network = NetworkSettings::default();
    (network.min_window, network.max_window) = (128 * 1024, 512 * 1024);
    (network.jitter, network.wait_cost) = (Duration::from_micros(100), Duration::from_micros(20));
    (network.short_sends, network.stalls) = (300, 100);
    network
}

/// Runs `clause` over a simulated mechanism under `policy`.
pub(crate) fn over_sim(setting: &Setting, policy: Policy, clause: Clause<SimReadiness>) {
    let mut mechanism = MechanismSettings::default();
    (setting.change)(&mut mechanism);
    let (mut network, mut faults) = (calm_network(), KernelFaults::default());
    if setting.is_erratic {
        (network, faults) = (erratic_network(), erratic_kernel());
        make_erratic(&mut mechanism);
    }
    let semantics = mechanism.semantics;
    let is_edge = semantics.trigger == Trigger::Edge;
    let world = World::new(Decisions::from_seed(1), network);
    let io = || {
        let host = world.host([127, 0, 0, 1].into());
        readiness(&host, mechanism, faults, policy).unwrap()
    };
    clause(&Case {
        io: &io,
        wakes_when_idle: semantics.registers_both
            || setting.is_erratic
            || (policy.interest == InterestPolicy::Once && !is_edge),
        turn_bytes: (policy.turn_bytes < 10_000).then_some(policy.turn_bytes),
        bulk_bytes: (policy.turn_time.as_nanos() == 1).then_some(policy.turn_bytes),
        max_waits: mechanism.scan_interval,
        accept_limit: policy.accept_limit.map(NonZeroU32::get),
        keeps_interest: !setting.is_erratic
            && policy.order != Order::WaitFirst
            && policy.interest != InterestPolicy::EveryState
            && semantics.trigger != Trigger::OneShot,
        has_handshake: false,
    });
}

impl Setting {
    /// Returns whether the setting cannot run a clause.
    pub(crate) fn excludes(&self, clause: &str) -> bool {
        sim_settings::is_excluded(clause) || (self.is_erratic && UNTIMELY.contains(&clause))
    }
}

/// Clauses for which bytes must arrive before the next wait, as only those of the calm network do.
const UNTIMELY: &[&str] =
    &["turns::ended_flood_does_not_starve_others", "turns::requests_precede_downloads"];

/// Returns the tests of properties that no clause covers.
pub(crate) fn tests() -> Tests {
    tests! { one_shot_mechanism_reports_each_wake_up_once }
}

/// Checks that a wake-up over a one-shot mechanism is reported once if interest is declared once for
/// both directions: its channel, which is always writable, has interest in one.
fn one_shot_mechanism_reports_each_wake_up_once() {
    let world = World::new(Decisions::from_seed(1), NetworkSettings::default());
    let mut mechanism = MechanismSettings::default();
    mechanism.semantics.trigger = Trigger::OneShot;
    let mut policy = Policy::default();
    policy.interest = InterestPolicy::Once;
    let host = world.host([127, 0, 0, 1].into());
    let mut io = readiness(&host, mechanism, KernelFaults::default(), policy).unwrap();
    for round in 1..4 {
        io.waker().wake();
        let mut woken = 0;
        for _ in 0..10 {
            io.wait(Some(io.now() + Duration::from_millis(1))).unwrap();
            woken += std::iter::from_fn(|| io.next()).count();
        }
        assert_eq!(woken, 1, "wake-up {round}");
    }
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
        write!(f, "sim-kernel::{}{}", self.name, if self.is_erratic { "-erratic" } else { "" })
    }
}
