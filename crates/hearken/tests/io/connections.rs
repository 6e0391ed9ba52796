//! Connecting, closing, and tokens.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use hearken::io::{ConnectOptions, Io};

use crate::Case;
use crate::net::{Kind, LONG, Net, between, both, pattern};

/// Checks that the local address of each side is the peer address of the other.
pub(crate) fn local_and_peer_addresses_match<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let near = net.io.local_addr(from).unwrap();
    assert_eq!(net.io.peer_addr(to).unwrap(), near);
    assert_eq!(net.io.peer_addr(from).unwrap(), net.addr);
    if let Some(socket) = net.io.socket(from) {
        assert!(rustix::net::sockopt::tcp_nodelay(socket).unwrap());
    }
    assert_eq!(net.io.local_addr(to).unwrap(), net.addr);
}

/// Checks that a connect without a listener is reported as refused.
pub(crate) fn refused_connect_is_reported<I: Io>(case: &Case<'_, I>) {
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
    net.run_until_idle();
    assert_eq!(net.io.open_count(), 0);
}

/// Checks connecting from another loopback address.
pub(crate) fn connects_from_a_source_address<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let source = SocketAddr::from(([127, 0, 0, 2], 0));
    let from = net.io.connect(&net.addr.into(), Some(source)).unwrap();
    net.run("it is accepted", |net| !net.accepted.is_empty());
    let peer = net.io.peer_addr(net.accepted[0]).unwrap();
    assert_eq!(peer.ip(), source.ip());
    assert_eq!(net.io.local_addr(from).unwrap(), peer);
}

/// Checks that the size of the receive buffer applies before the connection is established.
pub(crate) fn connects_with_a_small_receive_buffer<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let mut options = ConnectOptions::default();
    options.receive_buffer = Some(4096);
    let from = net.io.connect_with(&net.addr.into(), &options).unwrap();
    net.run("it is accepted", |net| !net.accepted.is_empty());
    if let Some(socket) = net.io.socket(from) {
        let size = rustix::net::sockopt::socket_recv_buffer_size(socket);
        // The kernel doubles the size, for its own data.
        assert_eq!(size, Ok(8192));
    }
}

/// Checks that a source address that no host uses (RFC 5737) is refused.
pub(crate) fn refuses_a_source_address_of_another_host<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let source = SocketAddr::from(([192, 0, 2, 1], 0));
    let error = net.io.connect(&net.addr.into(), Some(source)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    assert_eq!(net.io.open_count(), 1);
}

/// Checks that a connection that is started before it is established receives bytes that the peer
/// sends first.
pub(crate) fn receives_immediately_if_started_before_connected<I: Io>(case: &Case<'_, I>) {
    let (mut a, mut b) = (Net::new(case), Net::new(case));
    for ended in [false, true] {
        let from = a.io.connect(&b.addr.into(), None).unwrap();
        a.io.start(from);
        b.accepted.clear();
        b.run("it is accepted", |b| !b.accepted.is_empty());
        let to = b.accepted[0];
        b.send(to, b"welcome");
        b.expect_sent(to, 1);
        if ended {
            b.io.shutdown(to);
        }
        // One event reports that it is established and has data.
        a.expect_received(from, b"welcome");
        if ended {
            a.expect_end(from, b"welcome");
        }
    }
}

/// Checks that operations on closed tokens do nothing.
pub(crate) fn operations_on_closed_tokens_do_nothing<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.io.close(to);
    // The operations must not affect a new connection with the same descriptor number.
    let (other, _) = net.started_pair();
    let accepted = *net.accepted.last().unwrap();
    net.send(other, b"sent");
    net.expect_sent(other, 1);
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
        assert_eq!(net.io.open_count(), 4);
    }
    net.expect_end(from, b"");
    net.run_until_idle();
    assert_eq!(net.io.pool().in_use(), 0);
    net.send(accepted, b"still here");
    net.expect_received(other, b"still here");
    net.send(other, b"so am I");
    net.expect_received(accepted, b"sentso am I");
}

/// Checks that a connection that is closed in the handler of a completion has no further ones,
/// although many are pending.
pub(crate) fn no_completion_follows_a_close_in_its_handler<I: Io>(case: &Case<'_, I>) {
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
            net.expect_sent(from, 1);
            net.io.shutdown(from);
            net.run_until_idle();
            net.io.start(from);
            net.io.start(to);
            net.io.set_deadline(to, Some(net.io.now()));
            for _ in 0..3 {
                net.send(to, b"answer");
            }
            net.send_body(to, Bytes::from(pattern(2, 100_000)));
            net.drive("the first completion", |net, token, kind| {
                let first = token == to && is(kind);
                if first && abort {
                    net.io.abort(token);
                } else if first {
                    net.io.close(token);
                }
                first
            });
            net.run("the other side is notified", |net| {
                net.seen(from).ended || net.seen(from).failed.is_some()
            });
            net.run_until_idle(); // `Checked` detects later completions.
            assert_eq!(net.io.open_count(), 2);
        }
    }
}

/// Checks the same for connections that are closed in the handler of another connection's
/// completion.
pub(crate) fn no_completion_follows_a_close_in_another_handler<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let pairs: Vec<_> = (0..6).map(|_| net.pair()).collect();
    for &(from, to) in &pairs {
        net.send(from, &pattern(3, 1000));
        net.expect_sent(from, 1);
        net.io.shutdown(from);
        net.io.start(from);
        net.io.start(to);
    }
    net.run_until_idle();
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
    net.expect_received(to, b"data");
    for &(from, _) in &pairs {
        net.run("the other sides are notified", |net| {
            net.seen(from).ended || net.seen(from).failed.is_some()
        });
    }
    net.run_until_idle();
    assert_eq!(net.io.open_count(), 1 + 6 + 2);
}

/// Checks that pending operations of a closed connection do not affect the next one, which may
/// reuse its slot and its descriptor number.
pub(crate) fn reused_slots_receive_no_stale_completions<I: Io>(case: &Case<'_, I>) {
    let (mut a, mut b) = (Net::new(case), Net::new(case));
    let (mut from, mut to) = between(&mut a, &mut b);
    for round in 0..30 {
        let bytes = pattern(round, 200);
        a.io.start(from);
        a.send(from, &bytes);
        a.expect_sent(from, 1);
        b.io.start(to);
        b.send(to, b"to nobody");
        let mut made = None;
        b.drive("something is received", |b, token, kind| {
            let received = token == to && matches!(kind, Kind::Received(_));
            if received {
                assert!(bytes.starts_with(&b.seen(token).received));
                b.io.close(token);
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
        both(&mut a, &mut b, "the next one receives", |a, _| {
            a.seen(taken).received.len() >= bytes.len()
        });
        assert_eq!(a.seen(taken).received, bytes);
        assert_eq!(b.seen(made).received, b"");
        a.io.close(taken);
        b.io.close(made);
        (from, to) = between(&mut a, &mut b);
    }
}

/// Checks that abort resets the connection, also with pending sends.
pub(crate) fn abort_resets_the_connection<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    for queued in [false, true] {
        let (from, to) = net.started_pair();
        net.run_until_idle();
        if queued {
            net.io.stop(from);
            net.run_until_idle();
            net.send_body(to, Bytes::from(pattern(4, LONG)));
            net.run_until_idle();
        }
        net.io.abort(to);
        net.io.start(from);
        net.run("it is reset", |net| net.seen(from).failed.is_some());
        let failed = net.seen(from).failed;
        assert_eq!(failed, Some(ErrorKind::ConnectionReset));
    }
    // A connection that is not yet established.
    let from = net.io.connect(&net.addr.into(), None).unwrap();
    net.io.abort(from);
    net.io.abort(net.listener);
    net.run_until_idle();
}

/// Checks that `open()` counts listeners and connections until they are closed.
pub(crate) fn open_counts_listeners_and_connections<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    assert_eq!(net.io.open_count(), 1);
    let (from, to) = net.started_pair();
    assert_eq!(net.io.open_count(), 3);
    net.io.shutdown(from);
    net.expect_end(to, b"");
    assert_eq!(net.io.open_count(), 3);
    net.io.close(to);
    assert_eq!(net.io.open_count(), 2);
    net.run("it ends", |net| net.seen(from).ended || net.seen(from).failed.is_some());
    net.io.abort(from);
    net.io.close(net.listener);
    assert_eq!(net.io.open_count(), 0);
    net.turn(Duration::ZERO);
    assert_eq!(net.io.open_count(), 0);
}
