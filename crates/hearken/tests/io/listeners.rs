//! Listeners.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::time::Duration;

use hearken::io::{Io, ListenOptions};

use crate::Case;
use crate::net::{Kind, Net, loopback};

fn listen_options(change: impl FnOnce(&mut ListenOptions)) -> ListenOptions {
    let mut options = ListenOptions::default();
    change(&mut options);
    options
}

/// Checks that port 0 selects a free port, which `local_addr` returns.
pub(crate) fn port_zero_selects_a_free_port<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let other = net.io.listen(&loopback().into(), &ListenOptions::default()).unwrap();
    let addr = net.io.local_addr(other).unwrap();
    assert!(addr.ip().is_loopback());
    assert_ne!(addr.port(), 0);
    assert_ne!(addr, net.addr);
    assert!(net.io.peer_addr(other).is_err());
}

/// Checks that an address is refused while another listener uses it, unless both share it.
pub(crate) fn refuses_an_address_in_use_unless_shared<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let refused = net.io.listen(&net.addr.into(), &ListenOptions::default());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::AddrInUse);

    let shared = listen_options(|options| options.reuse_port = true);
    let first = net.io.listen(&loopback().into(), &shared).unwrap();
    let addr = net.io.local_addr(first).unwrap();
    let second = net.io.listen(&addr.into(), &shared).unwrap();
    assert_eq!(net.io.local_addr(second).unwrap(), addr);

    // Closing a listener frees its address.
    net.io.close(net.listener);
    net.io.listen(&net.addr.into(), &ListenOptions::default()).unwrap();
}

/// Checks that a deferred connection is withheld until its first bytes arrive.
pub(crate) fn deferred_connections_are_accepted_with_their_first_bytes<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let options = listen_options(|options| options.defer = Duration::from_secs(100));
    let listener = net.io.listen(&loopback().into(), &options).unwrap();
    let addr = net.io.local_addr(listener).unwrap();
    net.io.start(listener);
    let from = net.io.connect(&addr.into(), None).unwrap();
    net.run("it is connected", |net| net.seen(from).connected.is_some());
    net.run_until_idle();
    assert_eq!(net.accepted, []);
    net.send(from, b"first");
    net.run("it is accepted", |net| !net.accepted.is_empty());
    let to = net.accepted[0];
    net.io.start(to);
    net.expect_received(to, b"first");
}

/// Checks that each of many connections, more than a batch or an accept limit allows, is accepted
/// once.
pub(crate) fn accepts_each_connection_once<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let from: Vec<_> = (0..40).map(|_| net.io.connect(&net.addr.into(), None).unwrap()).collect();
    net.run("all are accepted and connected", |net| {
        net.accepted.len() >= from.len()
            && from.iter().all(|&token| net.seen(token).connected.is_some())
    });
    net.run_until_idle();
    let mut ours = HashSet::new();
    for &token in &from {
        assert_eq!(net.io.peer_addr(token).unwrap(), net.addr);
        ours.insert(net.io.local_addr(token).unwrap());
    }
    let mut theirs = HashSet::new();
    for &token in &net.accepted {
        assert_eq!(net.io.local_addr(token).unwrap(), net.addr);
        theirs.insert(net.io.peer_addr(token).unwrap());
    }
    assert_eq!(net.accepted.len(), from.len());
    assert_eq!(ours, theirs);
}

/// Checks that a turn accepts no more connections than the limit, and that all are accepted.
pub(crate) fn accepts_no_more_than_the_limit_per_turn<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.io.stop(net.listener);
    for _ in 0..5 {
        net.io.connect(&net.addr.into(), None).unwrap();
    }
    net.run_until_idle();
    net.io.start(net.listener);
    while net.accepted.len() < 5 {
        let before = net.accepted.len();
        net.turn(Duration::from_secs(10));
        let accepted = (net.accepted.len() - before) as u32;
        assert!(accepted <= case.accept_limit.unwrap_or(5));
    }
}

/// Checks that a stopped listener accepts nothing, and accepts the waiting connections after a
/// restart.
pub(crate) fn accepts_nothing_while_stopped<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.io.stop(net.listener);
    for round in 1..4 {
        let before = net.accepted.len();
        for _ in 0..3 {
            net.io.connect(&net.addr.into(), None).unwrap();
        }
        net.run_until_idle();
        assert_eq!(net.accepted.len(), before, "in round {round}");
        net.assert_sleeps(case);
        net.io.start(net.listener);
        net.run("the waiting connections are accepted", |net| net.accepted.len() == before + 3);
        // It also accepts new connections then.
        net.pair();
        net.io.stop(net.listener);
    }
}

/// Checks that a listener that is stopped after each accepted connection accepts no other, and
/// loses none.
pub(crate) fn stopping_while_accepting_loses_no_connection<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.io.stop(net.listener);
    for _ in 0..6 {
        net.io.connect(&net.addr.into(), None).unwrap();
    }
    net.run_until_idle();
    for count in 1..=6 {
        net.io.start(net.listener);
        net.drive("another is accepted", |net, _, kind| {
            net.io.stop(net.listener);
            matches!(kind, Kind::Accepted(_))
        });
        net.run_until_idle();
        assert_eq!(net.accepted.len(), count);
    }
}

/// Checks that closing a listener resets the connections that it has not accepted.
pub(crate) fn closing_resets_connections_in_the_backlog<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.io.stop(net.listener);
    let waiting = net.io.connect(&net.addr.into(), None).unwrap();
    net.run("it is connected", |net| net.seen(waiting).connected == Some(Ok(())));
    net.io.start(waiting);
    net.io.close(net.listener);
    net.run("it is reset", |net| net.seen(waiting).failed.is_some());
    assert_eq!(net.seen(waiting).failed, Some(ErrorKind::ConnectionReset));
    assert!(net.accepted.is_empty());
}

/// Checks that a listener with the option reports the address of each peer.
pub(crate) fn reports_the_peer_address_on_request<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let options = listen_options(|options| options.peers = true);
    let asked = net.io.listen(&loopback().into(), &options).unwrap();
    let addr = net.io.local_addr(asked).unwrap();
    net.io.start(asked);
    for round in 1..4 {
        let (one, other) =
            (net.io.connect(&addr.into(), None), net.io.connect(&net.addr.into(), None));
        one.and(other).unwrap();
        let mut reported = 0;
        net.drive("both are accepted", |net, token, kind| {
            if let Kind::Accepted(connection) = kind {
                let peer = net.io.peer_addr(connection).ok().filter(|_| token == asked);
                assert_eq!(net.last_peer, peer, "in round {round}");
                reported += 1;
            }
            reported == 2
        });
    }
}
