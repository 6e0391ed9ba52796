//! Properties of the simulated network that no clause of the contract covers.

use std::net::SocketAddr;
use std::time::Duration;

use hearken::io::sim::{Decisions, NetworkSettings, SimIo, SimIoSettings, World};
use hearken::io::{CompletionKind, Io, ListenOptions, Outgoing};

use crate::suite::{Tests, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        equal_decisions_give_equal_histories
        every_failure_of_the_contract_occurs
        listener_stops_at_the_socket_limit
    }
}

/// Runs clients that send bytes to a server until the time is up. Returns the kinds of completions,
/// the consumed decisions, and the hash of the trace.
fn run(decisions: Decisions, with_faults: bool) -> (Vec<String>, Vec<u8>, u64) {
    let (mut network, mut settings) = (NetworkSettings::default(), SimIoSettings::default());
    if with_faults {
        (network.breaks, network.refusals, network.lost_requests) = (30, 100, 100);
        (network.overtaking_resets, network.max_backlog) = (500, 2);
        let faults = &mut settings.faults;
        (faults.accept_failures, faults.open_failures) = (100, 100);
        (faults.transfer_failures, faults.reordering) = (20, 500);
    }
    let world = World::new(decisions, network);
    let addr = SocketAddr::from(([10, 0, 0, 1], 80));
    let mut server = SimIo::new(&world.host(addr.ip()), settings);
    let mut client = SimIo::new(&world.host([10, 0, 0, 2].into()), settings);
    let listener = loop {
        if let Ok(listener) = server.listen(&addr.into(), &ListenOptions::default()) {
            break listener;
        }
    };
    let mut kinds = Vec::new();
    for round in 0..300 {
        server.start(listener);
        if round % 10 == 0
            && let Err(error) = client.connect(&addr.into(), None)
        {
            kinds.push(format!("connect {error}"));
        }
        for io in [&mut client, &mut server] {
            let until = io.now() + Duration::from_millis(20);
            io.wait(Some(until)).unwrap();
            while let Some(completion) = io.next() {
                let token = completion.token;
                match &completion.kind {
                    CompletionKind::Accepted { token, .. } => io.start(*token),
                    CompletionKind::Connected(Ok(())) | CompletionKind::Received(_) => {
                        io.start(token);
                        let outgoing = Outgoing::copy(io.pool(), &[7; 3000]);
                        io.send(token, outgoing);
                    }
                    CompletionKind::ReceiveFailed(_) => {
                        // The failed connection takes no more bytes.
                        let outgoing = Outgoing::copy(io.pool(), b"late");
                        io.send(token, outgoing);
                    }
                    CompletionKind::Sent(Err(_)) | CompletionKind::Connected(Err(_)) => {
                        io.close(token);
                    }
                    CompletionKind::Sent(Ok(())) if round % 50 == 49 => io.abort(token),
                    _ => {}
                }
                kinds.push(match completion.kind {
                    CompletionKind::Received(bytes) => format!("received {}", bytes.len()),
                    other => format!("{other:?}"),
                });
            }
        }
    }
    drop((client, server));
    (kinds, world.decisions().consumed().to_vec(), world.trace_hash())
}

/// Checks that a history follows from its decisions, whether a seed or bytes gave them.
fn equal_decisions_give_equal_histories() {
    let (kinds, bytes, hash) = run(Decisions::from_seed(3), true);
    for decisions in [Decisions::from_seed(3), Decisions::from_bytes(&bytes)] {
        let again = run(decisions, true);
        assert_eq!(again.0, kinds);
        assert_eq!(again.2, hash);
    }
    assert_ne!(run(Decisions::from_seed(4), true).2, hash);
}

/// Checks that faults produce every failure that the contract allows, and that none occurs without
/// faults.
fn every_failure_of_the_contract_occurs() {
    let all: Vec<_> = (0..40).flat_map(|seed| run(Decisions::from_seed(seed), true).0).collect();
    for failure in [
        "AcceptFailed(Os { code: 24",
        "AcceptFailed(Os { code: 105",
        "connect ",
        "Connected(Err(Os { code: 111",
        "Connected(Err(Os { code: 110",
        "ReceiveFailed(Os { code: 104",
        "ReceiveFailed(Os { code: 110",
        "Sent(Err(Os { code: 32",
        "Sent(Err(Os { code: 105",
    ] {
        assert!(all.iter().any(|kind| kind.starts_with(failure)), "{failure} never occurred");
    }
    let calm = run(Decisions::from_bytes(&[]), true).0;
    for failure in ["AcceptFailed", "connect ", "Connected(Err", "Sent(Err(Os { code: 105"] {
        assert!(!calm.iter().any(|kind| kind.starts_with(failure)), "{failure} without faults");
    }
}

/// Checks that a listener whose host reached its limit of sockets reports one failure and stops.
/// Restarted below the limit, it accepts the waiting connections.
fn listener_stops_at_the_socket_limit() {
    let world = World::new(Decisions::from_bytes(&[]), NetworkSettings::default());
    let addr = SocketAddr::from(([10, 0, 0, 1], 80));
    let host = world.host(addr.ip());
    let mut server = SimIo::new(&host, SimIoSettings::default());
    let mut client = SimIo::new(&world.host([10, 0, 0, 2].into()), SimIoSettings::default());
    let listener = server.listen(&addr.into(), &ListenOptions::default()).unwrap();
    host.limit_sockets(3);
    for _ in 0..4 {
        client.connect(&addr.into(), None).unwrap();
    }
    let mut accepted = Vec::new();
    let turns = |server: &mut SimIo, accepted: &mut Vec<_>| {
        let mut failures = Vec::new();
        for _ in 0..10 {
            let until = server.now() + Duration::from_millis(1);
            server.wait(Some(until)).unwrap();
            while let Some(completion) = server.next() {
                match completion.kind {
                    CompletionKind::Accepted { token, .. } => accepted.push(token),
                    CompletionKind::AcceptFailed(error) => failures.push(error.raw_os_error()),
                    other => panic!("{other:?}"),
                }
            }
        }
        failures
    };
    server.start(listener);
    assert_eq!(turns(&mut server, &mut accepted), [Some(24)]);
    assert_eq!(accepted.len(), 2);
    server.close(accepted[0]);
    server.start(listener);
    assert_eq!(turns(&mut server, &mut accepted), [Some(24)]);
    host.limit_sockets(usize::MAX);
    server.start(listener);
    assert_eq!(turns(&mut server, &mut accepted), []);
    assert_eq!(accepted.len(), 4);
}
