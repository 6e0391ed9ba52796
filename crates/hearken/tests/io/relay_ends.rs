//! Relaying: the end of relays, deadlines, and urgent data.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use hearken::io::{Io, ListenOptions, Relay};
use rustix::net::{SendFlags, send};

use crate::Case;
use crate::hop::{ALL, Hop};
use crate::net::{Kind, LONG, Relayed, between, both, loopback, pattern};

/// Checks that an end is reported after all bytes were moved, whether it arrives with the last
/// bytes or later. The connection receives nothing afterwards.
pub(crate) fn end_is_reported_after_all_bytes<I: Relay>(case: &Case<'_, I>) {
    // A small limit per turn makes long relays slow.
    let count = if case.turn_bytes.is_some() { 3 } else { 4 };
    for length in [0, 1, 70_000, LONG].into_iter().take(count) {
        for (later, begun) in [(true, true), (false, true), (false, false)] {
            let mut hop = Hop::new(case);
            hop.outer.io.start(hop.sink);
            let bytes = pattern(4, length);
            if begun {
                hop.relay(ALL);
                hop.run_until_idle();
            }
            hop.outer.send_body(hop.source, Bytes::from(bytes.clone()));
            if length < LONG || begun {
                hop.run("it is sent", |hop| !hop.outer.seen(hop.source).sent.is_empty());
                if later {
                    hop.expect_at_sink(&bytes);
                    hop.run_until_idle();
                    hop.net.assert_sleeps(case);
                }
                hop.outer.io.shutdown(hop.source);
            }
            if !begun {
                hop.relay(if length < LONG { ALL } else { length as u64 });
                hop.run("it is sent", |hop| !hop.outer.seen(hop.source).sent.is_empty());
                let reason = if length < LONG { Relayed::End } else { Relayed::Complete };
                assert_eq!(hop.wait_for_end(), (length as u64, reason));
                continue;
            }
            assert_eq!(hop.wait_for_end(), (length as u64, Relayed::End));
            assert!(
                !hop.net.io.relay(hop.from, hop.to, ALL),
                "a relay after the end is not refused"
            );
            hop.net.io.start(hop.from);
            hop.run_until_idle();
            hop.net.assert_sleeps(case);
            hop.net.send(hop.to, b"tail");
            hop.net.expect_sent(hop.to, 1);
            hop.net.io.shutdown(hop.to);
            hop.run("the end is reported", |hop| hop.outer.seen(hop.sink).ended);
            hop.expect_at_sink(&[&bytes[..], b"tail"].concat());
        }
    }
}

/// Creates a relay in a given stage. Stage 0 is a new relay, stage 1 a waiting one, and stage 2 one
/// that has moved bytes. In stage 3 the sink does not read, and blocks the relay.
fn at_stage<I: Relay>(case: &Case<'_, I>, stage: u32) -> Hop<I> {
    let mut hop = Hop::new(case);
    if stage < 3 {
        hop.outer.io.start(hop.sink);
    }
    hop.relay(ALL);
    match stage {
        0 => {}
        1 => hop.run_until_idle(),
        2 => {
            hop.outer.send(hop.source, b"first");
            hop.expect_at_sink(b"first");
            hop.run_until_idle();
        }
        _ => {
            for seed in 0..2 {
                hop.outer.send_body(hop.source, Bytes::from(pattern(seed, LONG)));
            }
            hop.run_until_idle();
        }
    }
    hop
}

/// Checks that a reset of either side ends the relay in any stage.
pub(crate) fn reset_of_either_side_ends_the_relay<I: Relay>(case: &Case<'_, I>) {
    for stage in 0..4 {
        for of_the_source in [true, false] {
            let mut hop = at_stage(case, stage);
            if of_the_source {
                hop.outer.io.abort(hop.source);
                if stage == 3 {
                    hop.outer.io.start(hop.sink);
                }
                let (_, reason) = hop.wait_for_end();
                assert_eq!(reason, Relayed::ReceiveFailed(ErrorKind::ConnectionReset));
                assert!(!hop.net.io.relay(hop.from, hop.to, 1));
                let before = hop.outer.seen(hop.sink).received.len();
                hop.net.send(hop.to, b"still there");
                hop.run("the bytes are received", |hop| {
                    hop.outer.seen(hop.sink).received.len() >= before + b"still there".len()
                });
            } else {
                hop.outer.io.abort(hop.sink);
                hop.run_until_idle();
                if stage < 3 {
                    hop.outer.send(hop.source, b"to nobody");
                }
                let (_, reason) = hop.wait_for_end();
                let disconnected = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                assert!(
                    disconnected.map(Relayed::SendFailed).contains(&reason),
                    "{reason:?} at stage {stage}"
                );
            }
            hop.net.io.close(hop.from);
            hop.net.io.close(hop.to);
            hop.run_until_idle();
            hop.net.assert_sleeps(case);
        }
    }
}

/// Checks that closing the source ends the relay silently, and that closing the target ends it as a
/// failed send. The other connection remains usable.
pub(crate) fn closing_either_side_ends_the_relay<I: Relay>(case: &Case<'_, I>) {
    for stage in 0..4 {
        for (the_source, abort) in [(true, false), (true, true), (false, false), (false, true)] {
            let mut hop = at_stage(case, stage);
            let token = if the_source { hop.from } else { hop.to };
            if abort {
                hop.net.io.abort(token);
            } else {
                hop.net.io.close(token);
            }
            assert_eq!(hop.net.io.relayed(hop.from), 0);
            // The descriptor number may be reused meanwhile.
            let (other, another) = between(&mut hop.outer, &mut hop.net);
            hop.net.io.start(another);
            hop.outer.send(other, b"other");
            both(&mut hop.outer, &mut hop.net, "the other connection receives", |_, net| {
                net.seen(another).received == b"other"
            });
            if the_source {
                hop.outer.io.start(hop.sink);
                let reported = hop.outer.seen(hop.sink).received.len();
                hop.net.send(hop.to, b"still there");
                hop.run("the bytes are received", |hop| {
                    let received = &hop.outer.seen(hop.sink).received;
                    received.len() > reported && received.ends_with(b"still there")
                });
                assert!(hop.net.seen(hop.from).relayed.is_empty());
                // It can be the target of another relay.
                hop.source = other;
                hop.from = another;
                hop.net.seen(another).received.clear();
                hop.outer.seen(hop.sink).received.clear();
                hop.relay(5);
                hop.outer.send(other, b"again");
                assert_eq!(hop.wait_for_end(), (5, Relayed::Complete));
                hop.expect_at_sink(b"again");
            } else {
                let (_, reason) = hop.wait_for_end();
                assert_eq!(reason, Relayed::SendFailed(ErrorKind::NotConnected));
                hop.net.seen(hop.from).received.clear();
                hop.net.io.start(hop.from);
                hop.outer.send(hop.source, b"the rest");
                hop.run("it is received from", |hop| {
                    hop.net.seen(hop.from).received.ends_with(b"the rest")
                });
                assert!(hop.net.seen(hop.from).relayed.is_empty());
                // It can be the source of another relay.
                hop.net.seen(hop.from).received.clear();
                (hop.to, hop.sink) = (another, other);
                hop.outer.io.start(other);
                hop.relay(5);
                hop.outer.send(hop.source, b"again");
                assert_eq!(hop.wait_for_end(), (5, Relayed::Complete));
                hop.expect_at_sink(b"again");
            }
        }
    }
}

/// Checks that impossible relays are refused and change nothing.
pub(crate) fn impossible_relays_are_refused<I: Relay>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    let (from, to) = (hop.from, hop.to);
    let connecting = hop.net.io.connect(&hop.outer.addr.into(), None).unwrap();
    let listener = hop.net.listener;
    let dead = hop.net.io.connect(&hop.outer.addr.into(), None).unwrap();
    hop.net.io.close(dead);
    hop.net.io.start(from);
    for other in [connecting, listener, dead] {
        assert!(!hop.net.io.relay(from, other, 10));
        assert!(!hop.net.io.relay(other, to, 10));
        assert_eq!(hop.net.io.relayed(other), 0);
    }
    assert!(!hop.net.io.relay(from, from, 10));
    hop.outer.send(hop.source, b"data");
    hop.run("it is received", |hop| hop.net.seen(hop.from).received == b"data");
    hop.net.seen(from).received.clear();
    hop.relay(ALL);
    hop.run("it is connected", |hop| hop.net.seen(connecting).connected.is_some());
    assert!(!hop.net.io.relay(connecting, to, 10), "a second relay is not refused");
    assert!(!hop.net.io.relay(from, connecting, 10), "a second relay is not refused");
    hop.outer.io.start(hop.sink);
    hop.outer.send(hop.source, b"data");
    hop.expect_at_sink(b"data");
}

/// Checks that deadlines of both connections expire during a relay, and that the number of moved
/// bytes is available then.
pub(crate) fn deadlines_continue_during_a_relay<I: Relay>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    hop.outer.io.start(hop.sink);
    hop.relay(ALL);
    let (from, to) = (hop.from, hop.to);
    let mut sent = Vec::new();
    for round in 1..5 {
        let before = hop.net.io.relayed(from);
        let after = Duration::from_millis(2 + round);
        hop.net.io.set_deadline(from, Some(hop.net.io.now() + after));
        hop.net.io.set_deadline(to, Some(hop.net.io.now() + after));
        if round % 2 == 0 {
            hop.outer.send(hop.source, &pattern(round, 20_000));
            sent.extend_from_slice(&pattern(round, 20_000));
            hop.expect_at_sink(&sent);
        }
        hop.run("both deadlines expire", |hop| {
            let come = |hop: &mut Hop<I>, token| hop.net.seen(token).deadlines as u64 == round;
            come(hop, from) && come(hop, to)
        });
        assert_eq!(hop.net.io.relayed(from) - before, 20_000 * u64::from(round % 2 == 0));
    }
    // During a flood.
    let bytes = pattern(6, LONG);
    hop.outer.send_body(hop.source, Bytes::from(bytes.clone()));
    hop.net.io.set_deadline(from, Some(hop.net.io.now()));
    sent.extend_from_slice(&bytes);
    hop.expect_at_sink(&sent);
    assert_eq!(hop.net.seen(from).deadlines, 5);
    // Closing the source at a deadline ends an idle relay.
    hop.net.io.set_deadline(from, Some(hop.net.io.now()));
    hop.net.drive("the deadline expires", |net, token, kind| {
        if kind == Kind::Deadline {
            net.io.close(token);
        }
        kind == Kind::Deadline
    });
    hop.run_until_idle();
    hop.net.assert_sleeps(case);
}

/// Checks that urgent data, at which splice(2) stops, are discarded, as they are when receiving.
pub(crate) fn urgent_data_is_discarded<I: Relay>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    hop.outer.io.start(hop.sink);
    let listener = hop.net.io.listen(&loopback().into(), &ListenOptions::default()).unwrap();
    hop.net.io.start(listener);
    let mut client = TcpStream::connect(hop.net.io.local_addr(listener).unwrap()).unwrap();
    let count = hop.net.accepted.len();
    hop.run("it is accepted", |hop| hop.net.accepted.len() > count);
    hop.from = hop.net.accepted[count];
    let mut sent = Vec::new();
    hop.relay(ALL);
    for length in [10, 100_000] {
        for round in 0..3 {
            let bytes = pattern(round, length);
            client.write_all(&bytes).unwrap();
            send(&client, b"!", SendFlags::OOB).unwrap();
            sent.extend_from_slice(&bytes);
            hop.expect_at_sink(&sent);
            hop.net.assert_sleeps(case);
        }
    }
    client.write_all(b"tail").unwrap();
    sent.extend_from_slice(b"tail");
    hop.expect_at_sink(&sent);
}
