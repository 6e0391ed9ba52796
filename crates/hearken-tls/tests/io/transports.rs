//! The transports under TLS.

use std::fmt;
use std::time::Duration;

use hearken::io::readiness::{InterestPolicy, Order, Policy, ReadinessIo};
use hearken::io::sim::{Decisions, NetworkSettings, SimIo, SimIoSettings, World};
use hearken::io::uring::{SendsBy, Settings, UringIo};
use hearken::io::{Io, Relay};
use hearken::mechanism::{Trigger, Unavailable};
use hearken_tls::{TlsIo, TlsLimits, TlsVersion};
use libtest_mimic::Trial;

use crate::clauses::{Case, Clause, clauses};
use crate::identity::Sessions;
use crate::suite::{self, AnyMechanism, Subject, Target};

const TLS13: Sessions = Sessions { version: TlsVersion::Tls13, max_fragment: None };
const TLS12: Sessions = Sessions { version: TlsVersion::Tls12, max_fragment: None };
/// Sessions whose records fit into the buffers of the simulation.
const FITTING_RECORDS: Sessions = Sessions { version: TlsVersion::Tls13, max_fragment: Some(4096) };
/// Sessions with many records.
const SHORT_RECORDS: Sessions = Sessions { version: TlsVersion::Tls13, max_fragment: Some(64) };

/// A transport with its sessions, and a name.
#[derive(Clone, Copy)]
struct Transport {
    name: &'static str,
    kind: Kind,
    /// `None` for plain connections.
    sessions: Option<Sessions>,
}

#[derive(Clone, Copy)]
enum Kind {
    /// A mechanism by its name, and a policy.
    Readiness(&'static str, fn(&mut Policy)),
    Uring(fn(&mut Settings)),
    Sim(fn(&mut NetworkSettings, &mut SimIoSettings)),
}

const fn transport(name: &'static str, kind: Kind, sessions: Sessions) -> Transport {
    Transport { name, kind, sessions: Some(sessions) }
}

/// The transports. By default, every clause runs over the first ones of real and simulated networks,
/// and over one of the others.
const ALL: &[Transport] = &[
    transport("epoll-edge", Kind::Readiness("epoll-edge", |_| {}), TLS13),
    transport("sim::erratic", Kind::Sim(erratic), FITTING_RECORDS),
    transport("uring", Kind::Uring(|_| {}), TLS13),
    transport("uring::ring", Kind::Uring(|settings| settings.sends = SendsBy::Ring), TLS12),
    transport("epoll-level::hurried", Kind::Readiness("epoll-level", hurried), TLS13),
    transport("poll::wait_first", Kind::Readiness("poll", wait_first), TLS12),
    transport("epoll-level::short_records", Kind::Readiness("epoll-level", |_| {}), SHORT_RECORDS),
    transport("sim::calm", Kind::Sim(calm), TLS12),
    transport("sim::short_records", Kind::Sim(erratic), SHORT_RECORDS),
    Transport { name: "plain", kind: Kind::Readiness("epoll-edge", |_| {}), sessions: None },
];

/// Number of transports over which every clause runs by default.
const ALWAYS: usize = 2;

fn hurried(policy: &mut Policy) {
    (policy.turn_bytes, policy.turn_time) = (64 * 1024, Duration::from_nanos(1));
}

fn wait_first(policy: &mut Policy) {
    (policy.order, policy.interest) = (Order::WaitFirst, InterestPolicy::EveryState);
}

/// Makes the windows longer than what some clauses expect them to hold, with its records.
fn calm(network: &mut NetworkSettings, _: &mut SimIoSettings) {
    (network.min_window, network.max_window) = (256 * 1024, 512 * 1024);
}

/// Sets all faults that are no errors.
fn erratic(network: &mut NetworkSettings, io: &mut SimIoSettings) {
    (network.min_window, network.max_window) = (128 * 1024, 512 * 1024);
    io.buffer_size = 4096;
    network.jitter = Duration::from_micros(100);
    (network.short_sends, network.stalls) = (300, 100);
    let faults = &mut io.faults;
    (faults.short_receives, faults.deferred_sends, faults.reordering) = (500, 300, 500);
    (faults.early_waits, faults.linked_closes) = (100, 500);
}

/// Clauses that do not apply to TLS, with the reason.
const EXCLUDED_UNDER_TLS: &[(&str, &str)] = &[
    ("relaying::", RELAYS),
    ("relay_ends::", RELAYS),
    ("machine::relays_need_and_leak_no_descriptors", RELAYS),
    ("machine::released_connections_continue_in_another_instance", "a session is not released"),
    ("machine::serves_clients_of_the_standard_library", CLIENTS),
    ("machine::adopts_sockets_of_the_standard_library", CLIENTS),
    ("machine::receives_from_an_active_peer_after_exhaustion", CLIENTS),
    ("machine::instances_share_a_listener", CLIENTS),
    ("unix::accepts_clients_of_the_standard_library", CLIENTS),
    ("listeners::deferred_connections_are_accepted_with_their_first_bytes", HELLOS),
    ("listeners::closing_resets_connections_in_the_backlog", ACCEPTS),
    ("machine::listener_stops_without_free_descriptors", ACCEPTS),
    ("connections::receives_immediately_if_started_before_connected", ACCEPTS),
    ("unix::abort_closes_the_connection", "a stream without close_notify has no end"),
];

const RELAYS: &str = "encrypted connections are not relayed";
const CLIENTS: &str = "its clients do not speak TLS";
const HELLOS: &str = "clients send bytes at once";
const ACCEPTS: &str = "it connects, or sends, while the other side does nothing";

/// Clauses that a simulation cannot run: they use sockets or descriptors of the kernel.
const EXCLUDED_IN_SIMULATION: &[&str] = &[
    "machine::instances_share_a_listener",
    "machine::listener_stops_without_free_descriptors",
    "machine::reports_watched_descriptors_once_per_start",
];

/// Returns the trials over all transports.
pub(crate) fn trials() -> Vec<Trial> {
    suite::trials_over("", ALL.iter().copied(), |transport| match transport.kind {
        Kind::Readiness(..) => trials_over(transport, over_readiness),
        Kind::Uring(_) => trials_over(transport, over_uring),
        Kind::Sim(_) => trials_over(transport, over_sim),
    })
}

/// Returns a trial for each clause that applies to the transport.
fn trials_over<I: Relay + 'static>(
    transport: &Transport,
    run: fn(&Transport, Clause<I>),
) -> Vec<Trial> {
    let rank = ALL.iter().position(|other| other.name == transport.name).unwrap_or(0);
    let is_sim = matches!(transport.kind, Kind::Sim(_));
    let mut trials = Vec::new();
    for (index, (name, clause)) in clauses().into_iter().enumerate() {
        let excluded = |(prefix, _): &(&str, &str)| name.starts_with(prefix);
        let is_excluded = transport.sessions.is_some() && EXCLUDED_UNDER_TLS.iter().any(excluded)
            || is_sim && EXCLUDED_IN_SIMULATION.contains(&name);
        if is_excluded {
            continue;
        }
        let selected = ALWAYS + suite::pairwise(index, 0, ALL.len() - ALWAYS) == rank;
        trials.extend(suite::product_trial(rank < ALWAYS || selected, || {
            suite::trial("", transport, name, move |transport| run(transport, clause))
        }));
    }
    trials
}

/// Creates an instance under the sessions of a transport.
fn tls<I: Io>(io: I, transport: &Transport, limits: TlsLimits) -> TlsIo<I> {
    let mut io = TlsIo::new(io, limits);
    io.set_accepts(transport.sessions.map(Sessions::server));
    io.set_connects(transport.sessions.map(Sessions::client));
    io
}

fn over_readiness(transport: &Transport, clause: Clause<TlsIo<ReadinessIo<AnyMechanism>>>) {
    let Kind::Readiness(mechanism, change) = transport.kind else { return };
    let mut policy = Policy::default();
    change(&mut policy);
    let subject = Subject::Listed(hearken::mechanism::find(mechanism).unwrap());
    let semantics = suite::open(&subject).semantics();
    let mut limits = TlsLimits::default();
    limits.turn_time = policy.turn_time;
    clause(&Case {
        io: &|| tls(ReadinessIo::new(suite::open(&subject), policy).unwrap(), transport, limits),
        wakes_when_idle: semantics.registers_both,
        turn_bytes: None,
        bulk_bytes: (policy.turn_time.as_nanos() == 1).then_some(policy.turn_bytes),
        max_waits: 1,
        accept_limit: policy.accept_limit.map(std::num::NonZeroU32::get),
        keeps_interest: policy.order != Order::WaitFirst
            && policy.interest != InterestPolicy::EveryState
            && semantics.trigger != Trigger::OneShot,
        has_handshake: transport.sessions.is_some(),
    });
}

fn over_uring(transport: &Transport, clause: Clause<TlsIo<UringIo>>) {
    let Kind::Uring(change) = transport.kind else { return };
    let mut settings = Settings::default();
    change(&mut settings);
    clause(&Case {
        io: &|| tls(UringIo::new(settings).unwrap(), transport, TlsLimits::default()),
        wakes_when_idle: false,
        turn_bytes: None,
        bulk_bytes: None,
        accept_limit: None,
        max_waits: 1,
        keeps_interest: true,
        has_handshake: transport.sessions.is_some(),
    });
}

fn over_sim(transport: &Transport, clause: Clause<TlsIo<SimIo>>) {
    let Kind::Sim(change) = transport.kind else { return };
    for seed in 0..2 {
        let (mut network, mut settings) = (NetworkSettings::default(), SimIoSettings::default());
        change(&mut network, &mut settings);
        let world = World::new(Decisions::from_seed(seed), network);
        let io = || SimIo::new(&world.host([127, 0, 0, 1].into()), settings);
        clause(&Case {
            io: &|| tls(io(), transport, TlsLimits::default()),
            wakes_when_idle: settings.faults.early_waits > 0,
            turn_bytes: None,
            bulk_bytes: None,
            accept_limit: None,
            max_waits: 1,
            keeps_interest: true,
            has_handshake: transport.sessions.is_some(),
        });
    }
}

impl Target for Transport {
    fn probe(&self) -> Result<(), Unavailable> {
        match self.kind {
            Kind::Readiness(mechanism, _) => hearken::mechanism::find(mechanism).unwrap().probe(),
            Kind::Uring(_) => {
                let thread = std::thread::spawn(|| UringIo::new(Settings::default()).map(drop));
                thread.join().unwrap()
            }
            Kind::Sim(_) => Ok(()),
        }
    }

    fn is_privileged(&self) -> bool {
        false
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
