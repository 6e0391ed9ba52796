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

/// Port 0 is any that is free, and `local_addr` tells which.
pub(crate) fn a_free_port<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let other = net.io.listen(&loopback().into(), &ListenOptions::default()).unwrap();
    let addr = net.io.local_addr(other).unwrap();
    assert!(addr.ip().is_loopback());
    assert_ne!(addr.port(), 0);
    assert_ne!(addr, net.addr);
    assert!(net.io.peer_addr(other).is_err());
}

/// An address is in use, unless all who listen on it share it.
pub(crate) fn an_address_in_use<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let refused = net.io.listen(&net.addr.into(), &ListenOptions::default());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::AddrInUse);

    let shared = listen_options(|options| options.reuse_port = true);
    let first = net.io.listen(&loopback().into(), &shared).unwrap();
    let addr = net.io.local_addr(first).unwrap();
    let second = net.io.listen(&addr.into(), &shared).unwrap();
    assert_eq!(net.io.local_addr(second).unwrap(), addr);

    // A closed listener leaves its address.
    net.io.close(net.listener);
    net.io.listen(&net.addr.into(), &ListenOptions::default()).unwrap();
}

/// A connection that says nothing is kept back, and accepted with its first bytes.
pub(crate) fn deferred<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let options = listen_options(|options| options.defer = Duration::from_secs(100));
    let listener = net.io.listen(&loopback().into(), &options).unwrap();
    let addr = net.io.local_addr(listener).unwrap();
    net.io.start(listener);
    let from = net.io.connect(&addr.into(), None).unwrap();
    net.run("it is connected", |net| net.seen(from).connected.is_some());
    net.settle();
    assert_eq!(net.accepted, []);
    net.send(from, b"first");
    net.run("it is accepted", |net| !net.accepted.is_empty());
    let to = net.accepted[0];
    net.io.start(to);
    net.receives(to, b"first");
}

/// Of many connections, more than a batch or an accept limit has, each is accepted once.
pub(crate) fn each_connection_once<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let from: Vec<_> = (0..40).map(|_| net.io.connect(&net.addr.into(), None).unwrap()).collect();
    net.run("all are accepted and connected", |net| {
        net.accepted.len() >= from.len() && from.iter().all(|&on| net.seen(on).connected.is_some())
    });
    net.settle();
    let mut ours = HashSet::new();
    for &on in &from {
        assert_eq!(net.io.peer_addr(on).unwrap(), net.addr);
        ours.insert(net.io.local_addr(on).unwrap());
    }
    let mut theirs = HashSet::new();
    for &on in &net.accepted {
        assert_eq!(net.io.local_addr(on).unwrap(), net.addr);
        theirs.insert(net.io.peer_addr(on).unwrap());
    }
    assert_eq!(net.accepted.len(), from.len());
    assert_eq!(ours, theirs);
}

/// A limit on how many are accepted in a turn is kept, and leaves none out.
pub(crate) fn in_turns<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.io.stop(net.listener);
    for _ in 0..5 {
        net.io.connect(&net.addr.into(), None).unwrap();
    }
    net.settle();
    net.io.start(net.listener);
    while net.accepted.len() < 5 {
        let before = net.accepted.len();
        net.turn(Duration::from_secs(10));
        let accepted = (net.accepted.len() - before) as u32;
        assert!(accepted <= case.accepts.unwrap_or(5));
    }
}

/// Nothing is accepted while a listener is stopped, and what came then is accepted after.
pub(crate) fn nothing_while_stopped<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.io.stop(net.listener);
    for round in 1..4 {
        let before = net.accepted.len();
        for _ in 0..3 {
            net.io.connect(&net.addr.into(), None).unwrap();
        }
        net.settle();
        assert_eq!(net.accepted.len(), before, "in round {round}");
        net.sleeps(case);
        net.io.start(net.listener);
        net.run("those that waited are accepted", |net| net.accepted.len() == before + 3);
        // Started, it accepts what comes, too.
        net.pair();
        net.io.stop(net.listener);
    }
}

/// A listener that is stopped by whom it has just given a connection gives no more, and loses
/// none.
pub(crate) fn stopped_amid_accepting<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.io.stop(net.listener);
    for _ in 0..6 {
        net.io.connect(&net.addr.into(), None).unwrap();
    }
    net.settle();
    for count in 1..=6 {
        net.io.start(net.listener);
        net.drive("another is accepted", |net, _, kind| {
            net.io.stop(net.listener);
            matches!(kind, Kind::Accepted(_))
        });
        net.settle();
        assert_eq!(net.accepted.len(), count);
    }
}

/// To close a listener resets what it has not accepted, and refuses what comes.
pub(crate) fn closed_with_connections_waiting<I: Io>(case: &Case<'_, I>) {
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

/// Who connects is told with each connection, of a listener that was asked to.
pub(crate) fn who_connects<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let options = listen_options(|options| options.peers = true);
    let asked = net.io.listen(&loopback().into(), &options).unwrap();
    let addr = net.io.local_addr(asked).unwrap();
    net.io.start(asked);
    for round in 1..4 {
        let (one, other) =
            (net.io.connect(&addr.into(), None), net.io.connect(&net.addr.into(), None));
        one.and(other).unwrap();
        let mut told = 0;
        net.drive("both are accepted", |net, on, kind| {
            if let Kind::Accepted(connection) = kind {
                let peer = net.io.peer_addr(connection).ok().filter(|_| on == asked);
                assert_eq!(net.last_peer, peer, "in round {round}");
                told += 1;
            }
            told == 2
        });
    }
}
