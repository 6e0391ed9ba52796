//! Connecting, closing, and tokens.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use hearken::io::Io;

use crate::Case;
use crate::net::{Kind, LONG, Net, between, both, pattern};

/// Each side's address is the other's.
pub(crate) fn both_addresses<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let near = net.io.local_addr(from).unwrap();
    assert_eq!(net.io.peer_addr(to).unwrap(), near);
    assert_eq!(net.io.peer_addr(from).unwrap(), net.addr);
    let socket = net.io.socket(from).unwrap();
    assert!(rustix::net::sockopt::tcp_nodelay(socket).unwrap());
    assert_eq!(net.io.local_addr(to).unwrap(), net.addr);
}

/// Nobody listens.
pub(crate) fn refused<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.io.close(net.listener);
    match net.io.connect(&net.addr.into(), None) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        Ok(from) => {
            net.io.start(from);
            net.run("it is refused", |net| net.seen(from).connected.is_some());
            let connected = net.seen(from).connected;
            assert_eq!(connected, Some(Err(ErrorKind::ConnectionRefused)));
            net.io.close(from);
        }
    }
    net.settle();
    assert_eq!(net.io.open(), 0);
}

/// From another of this host's addresses.
pub(crate) fn from_a_source<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let source = SocketAddr::from(([127, 0, 0, 2], 0));
    let from = net.io.connect(&net.addr.into(), Some(source)).unwrap();
    net.run("it is accepted", |net| !net.accepted.is_empty());
    let peer = net.io.peer_addr(net.accepted[0]).unwrap();
    assert_eq!(peer.ip(), source.ip());
    assert_eq!(net.io.local_addr(from).unwrap(), peer);
}

/// From an address that no host has (RFC 5737).
pub(crate) fn from_a_bad_source<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let source = SocketAddr::from(([192, 0, 2, 1], 0));
    let error = net.io.connect(&net.addr.into(), Some(source)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    assert_eq!(net.io.open(), 1);
}

/// Started before it is connected, a connection hears a peer who speaks first and at once.
pub(crate) fn started_before_connected<I: Io>(case: &Case<'_, I>) {
    let (mut a, mut b) = (Net::new(case), Net::new(case));
    for ended in [false, true] {
        let from = a.io.connect(&b.addr.into(), None).unwrap();
        a.io.start(from);
        b.accepted.clear();
        b.run("it is accepted", |b| !b.accepted.is_empty());
        let to = b.accepted[0];
        b.send(to, b"welcome");
        b.sends(to, 1);
        if ended {
            b.io.shutdown(to);
        }
        // By now it is connected, and there are data, in one event.
        a.receives(from, b"welcome");
        if ended {
            a.ends(from, b"welcome");
        }
    }
}

/// An operation on a token that is no more does nothing.
pub(crate) fn dead_tokens<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.io.close(to);
    // Its number may come back meanwhile, and its new owner is not to be touched.
    let (other, _) = net.started_pair();
    for dead in [to, to] {
        net.io.start(dead);
        net.send(dead, b"nothing");
        net.io.set_deadline(dead, Some(net.io.now()));
        net.io.shutdown(dead);
        net.io.stop(dead);
        net.io.close(dead);
        net.io.abort(dead);
        assert_eq!(net.io.delivered(dead), 0);
        assert!(net.io.socket(dead).is_none());
        let error = net.io.local_addr(dead).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConnected);
        let error = net.io.peer_addr(dead).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConnected);
        assert_eq!(net.io.open(), 4);
    }
    net.ends(from, b"");
    net.settle();
    assert_eq!(net.io.pool().lent(), 0);
    let accepted = *net.accepted.last().unwrap();
    net.send(accepted, b"still here");
    net.receives(other, b"still here");
    net.send(other, b"so am I");
    net.receives(accepted, b"so am I");
}

/// Closed by whom it was just given, whatever that was, it has no other completion, though many
/// were under way.
pub(crate) fn closed_while_handled<I: Io>(case: &Case<'_, I>) {
    let is: [fn(Kind) -> bool; 4] = [
        |kind| matches!(kind, Kind::Received(_)),
        |kind| kind == Kind::Sent,
        |kind| kind == Kind::Deadline,
        |_| true,
    ];
    for is in is {
        for abort in [false, true] {
            let mut net = Net::new(case);
            let (from, to) = net.pair();
            net.send(from, &pattern(1, 40_000));
            net.sends(from, 1);
            net.io.shutdown(from);
            net.settle();
            net.io.start(from);
            net.io.start(to);
            net.io.set_deadline(to, Some(net.io.now()));
            for _ in 0..3 {
                net.send(to, b"answer");
            }
            net.send_body(to, Bytes::from(pattern(2, 100_000)));
            net.drive("the first completion", |net, on, kind| {
                let first = on == to && is(kind);
                if first && abort {
                    net.io.abort(on);
                } else if first {
                    net.io.close(on);
                }
                first
            });
            net.run("the other side is told", |net| {
                net.seen(from).ended || net.seen(from).failed.is_some()
            });
            net.settle(); // Checked finds what comes after.
            assert_eq!(net.io.open(), 2);
        }
    }
}

/// As above, closed while another is handled.
pub(crate) fn closed_by_another<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let pairs: Vec<_> = (0..6).map(|_| net.pair()).collect();
    for &(from, to) in &pairs {
        net.send(from, &pattern(3, 1000));
        net.sends(from, 1);
        net.io.shutdown(from);
        net.io.start(from);
        net.io.start(to);
    }
    net.settle();
    let (from, to) = net.pair();
    for &(_, to) in &pairs {
        net.io.set_deadline(to, Some(net.io.now()));
        net.send(to, b"answer");
    }
    net.send(from, b"data");
    net.io.start(to);
    net.drive("any completion", |net, _, _| {
        for &(_, to) in &pairs {
            net.io.close(to);
        }
        true
    });
    net.receives(to, b"data");
    for &(from, _) in &pairs {
        net.run("the other sides are told", |net| {
            net.seen(from).ended || net.seen(from).failed.is_some()
        });
    }
    net.settle();
    assert_eq!(net.io.open(), 1 + 6 + 2);
}

/// What was under way for a closed connection is not taken for the next one's, which may have its
/// slot, and its descriptor's number.
pub(crate) fn slots_return<I: Io>(case: &Case<'_, I>) {
    let (mut a, mut b) = (Net::new(case), Net::new(case));
    let (mut from, mut to) = between(&mut a, &mut b);
    for round in 0..30 {
        let bytes = pattern(round, 200);
        a.io.start(from);
        a.send(from, &bytes);
        a.sends(from, 1);
        b.io.start(to);
        b.send(to, b"to nobody");
        let mut made = None;
        b.drive("something is received", |b, on, kind| {
            let received = on == to && matches!(kind, Kind::Received(_));
            if received {
                assert!(bytes.starts_with(&b.seen(on).received));
                b.io.close(on);
                made = Some(b.io.connect(&a.addr.into(), None).unwrap());
                b.io.start(made.unwrap());
                b.send(made.unwrap(), &bytes);
            }
            received
        });
        a.io.close(from);
        let made = made.unwrap();
        let before = a.accepted.len();
        both(&mut a, &mut b, "the next is accepted", |a, _| a.accepted.len() > before);
        let taken = a.accepted[before];
        a.io.start(taken);
        both(&mut a, &mut b, "the next is heard", |a, _| {
            a.seen(taken).received.len() >= bytes.len()
        });
        assert_eq!(a.seen(taken).received, bytes);
        assert_eq!(b.seen(made).received, b"");
        a.io.close(taken);
        b.io.close(made);
        (from, to) = between(&mut a, &mut b);
    }
}

/// To abort resets the connection, though there be something to send.
pub(crate) fn aborted<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    for queued in [false, true] {
        let (from, to) = net.started_pair();
        net.settle();
        if queued {
            net.io.stop(from);
            net.settle();
            net.send_body(to, Bytes::from(pattern(4, LONG)));
            net.settle();
        }
        net.io.abort(to);
        net.io.start(from);
        net.run("it is reset", |net| net.seen(from).failed.is_some());
        let failed = net.seen(from).failed;
        assert_eq!(failed, Some(ErrorKind::ConnectionReset));
    }
    // One that is not yet made.
    let from = net.io.connect(&net.addr.into(), None).unwrap();
    net.io.abort(from);
    net.io.abort(net.listener);
    net.settle();
}

/// `open()` counts listeners and connections, until they are closed.
pub(crate) fn counted<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    assert_eq!(net.io.open(), 1);
    let (from, to) = net.started_pair();
    assert_eq!(net.io.open(), 3);
    net.io.shutdown(from);
    net.ends(to, b"");
    assert_eq!(net.io.open(), 3);
    net.io.close(to);
    assert_eq!(net.io.open(), 2);
    net.run("it ends", |net| net.seen(from).ended || net.seen(from).failed.is_some());
    net.io.abort(from);
    net.io.close(net.listener);
    assert_eq!(net.io.open(), 0);
    net.turn(Duration::ZERO);
    assert_eq!(net.io.open(), 0);
}
