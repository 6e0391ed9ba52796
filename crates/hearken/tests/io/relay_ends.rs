//! Relaying: how it ends, and what it meets on the way.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use hearken::io::{Io, ListenOptions, Relay};
use rustix::net::{SendFlags, send};

use crate::Case;
use crate::hop::{ALL, Hop};
use crate::net::{Kind, LONG, Relayed, between, both, loopback, pattern};

/// An end, with the last bytes or later, is told when all before it is moved, and is the last.
pub(crate) fn end<I: Relay>(case: &Case<'_, I>) {
    for length in [0, 1, 70_000, LONG] {
        for (later, begun) in [(true, true), (false, true), (false, false)] {
            let mut hop = Hop::new(case);
            hop.outer.io.start(hop.sink);
            let bytes = pattern(4, length);
            if begun {
                hop.relay(ALL);
                hop.settle();
            }
            hop.outer.send_body(hop.source, Bytes::from(bytes.clone()));
            if length < LONG || begun {
                hop.run("it is sent", |hop| !hop.outer.seen(hop.source).sent.is_empty());
                if later {
                    hop.arrives(&bytes);
                    hop.settle();
                    hop.net.sleeps(case);
                }
                hop.outer.io.shutdown(hop.source);
            }
            if !begun {
                hop.relay(if length < LONG { ALL } else { length as u64 });
                hop.run("it is sent", |hop| !hop.outer.seen(hop.source).sent.is_empty());
                let how = if length < LONG { Relayed::End } else { Relayed::Most };
                assert_eq!(hop.end(), (length as u64, how));
                continue;
            }
            assert_eq!(hop.end(), (length as u64, Relayed::End));
            assert!(!hop.net.io.relay(hop.from, hop.to, ALL), "nothing more is received");
            hop.net.io.start(hop.from);
            hop.settle();
            hop.net.sleeps(case);
            hop.net.send(hop.to, b"tail");
            hop.net.sends(hop.to, 1);
            hop.net.io.shutdown(hop.to);
            hop.run("the end is met", |hop| hop.outer.seen(hop.sink).ended);
            hop.arrives(&[&bytes[..], b"tail"].concat());
        }
    }
}

/// A relay that was asked for just now; that waits; that has moved something; whose sink does not read.
fn at_stage<I: Relay>(case: &Case<'_, I>, stage: u32) -> Hop<I> {
    let mut hop = Hop::new(case);
    if stage < 3 {
        hop.outer.io.start(hop.sink);
    }
    hop.relay(ALL);
    match stage {
        0 => {}
        1 => hop.settle(),
        2 => {
            hop.outer.send(hop.source, b"first");
            hop.arrives(b"first");
            hop.settle();
        }
        _ => {
            for seed in 0..3 {
                hop.outer.send_body(hop.source, Bytes::from(pattern(seed, LONG)));
            }
            hop.settle();
        }
    }
    hop
}

/// A reset of either side ends it, at any point.
pub(crate) fn reset<I: Relay>(case: &Case<'_, I>) {
    for stage in 0..4 {
        for of_the_source in [true, false] {
            let mut hop = at_stage(case, stage);
            if of_the_source {
                hop.outer.io.abort(hop.source);
                if stage == 3 {
                    hop.outer.io.start(hop.sink);
                }
                let (_, how) = hop.end();
                assert_eq!(how, Relayed::ReceiveFailed(ErrorKind::ConnectionReset));
                assert!(!hop.net.io.relay(hop.from, hop.to, 1));
                let before = hop.outer.seen(hop.sink).received.len();
                hop.net.send(hop.to, b"still there");
                hop.run("it is", |hop| {
                    hop.outer.seen(hop.sink).received.len() >= before + b"still there".len()
                });
            } else {
                hop.outer.io.abort(hop.sink);
                hop.settle();
                if stage < 3 {
                    hop.outer.send(hop.source, b"to nobody");
                }
                let (_, how) = hop.end();
                let gone = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                assert!(gone.map(Relayed::SendFailed).contains(&how), "{how:?} at stage {stage}");
            }
            hop.net.io.close(hop.from);
            hop.net.io.close(hop.to);
            hop.settle();
            hop.net.sleeps(case);
        }
    }
}

/// Closing either side ends it: without a word, or as a failed send; and the other one is as good as
/// before.
pub(crate) fn closed<I: Relay>(case: &Case<'_, I>) {
    for stage in 0..4 {
        for (the_source, abort) in [(true, false), (true, true), (false, false), (false, true)] {
            let mut hop = at_stage(case, stage);
            let on = if the_source { hop.from } else { hop.to };
            if abort {
                hop.net.io.abort(on);
            } else {
                hop.net.io.close(on);
            }
            assert_eq!(hop.net.io.relayed(hop.from), 0);
            // Its number may come back meanwhile.
            let (other, another) = between(&mut hop.outer, &mut hop.net);
            hop.net.io.start(another);
            hop.outer.send(other, b"other");
            both(&mut hop.outer, &mut hop.net, "the other is heard", |_, net| {
                net.seen(another).received == b"other"
            });
            if the_source {
                hop.outer.io.start(hop.sink);
                let told = hop.outer.seen(hop.sink).received.len();
                hop.net.send(hop.to, b"still there");
                hop.run("it is", |hop| {
                    let received = &hop.outer.seen(hop.sink).received;
                    received.len() > told && received.ends_with(b"still there")
                });
                assert!(hop.net.seen(hop.from).relayed.is_empty());
                // And can be relayed to.
                hop.source = other;
                hop.from = another;
                hop.net.seen(another).received.clear();
                hop.outer.seen(hop.sink).received.clear();
                hop.relay(5);
                hop.outer.send(other, b"again");
                assert_eq!(hop.end(), (5, Relayed::Most));
                hop.arrives(b"again");
            } else {
                let (_, how) = hop.end();
                assert_eq!(how, Relayed::SendFailed(ErrorKind::NotConnected));
                hop.net.seen(hop.from).received.clear();
                hop.net.io.start(hop.from);
                hop.outer.send(hop.source, b"the rest");
                hop.run("it is received from", |hop| {
                    hop.net.seen(hop.from).received.ends_with(b"the rest")
                });
                assert!(hop.net.seen(hop.from).relayed.is_empty());
                // And can be relayed from.
                hop.net.seen(hop.from).received.clear();
                (hop.to, hop.sink) = (another, other);
                hop.outer.io.start(other);
                hop.relay(5);
                hop.outer.send(hop.source, b"again");
                assert_eq!(hop.end(), (5, Relayed::Most));
                hop.arrives(b"again");
            }
        }
    }
}

/// Where there can be no relay it says so, and nothing has changed.
pub(crate) fn refused<I: Relay>(case: &Case<'_, I>) {
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
    assert!(!hop.net.io.relay(connecting, to, 10), "two of them");
    assert!(!hop.net.io.relay(from, connecting, 10), "two of them");
    hop.outer.io.start(hop.sink);
    hop.outer.send(hop.source, b"data");
    hop.arrives(b"data");
}

/// Deadlines of both go on, and tell whether anything was moved meanwhile.
pub(crate) fn deadlines<I: Relay>(case: &Case<'_, I>) {
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
            hop.arrives(&sent);
        }
        hop.run("they come", |hop| {
            let come = |hop: &mut Hop<I>, on| hop.net.seen(on).deadlines as u64 == round;
            come(hop, from) && come(hop, to)
        });
        assert_eq!(hop.net.io.relayed(from) - before, 20_000 * u64::from(round % 2 == 0));
    }
    // In a flood.
    let bytes = pattern(6, LONG);
    hop.outer.send_body(hop.source, Bytes::from(bytes.clone()));
    hop.net.io.set_deadline(from, Some(hop.net.io.now()));
    sent.extend_from_slice(&bytes);
    hop.arrives(&sent);
    assert_eq!(hop.net.seen(from).deadlines, 5);
    // It ends a relay that rests.
    hop.net.io.set_deadline(from, Some(hop.net.io.now()));
    hop.net.drive("it comes", |net, on, kind| {
        if kind == Kind::Deadline {
            net.io.close(on);
        }
        kind == Kind::Deadline
    });
    hop.settle();
    hop.net.sleeps(case);
}

/// Urgent data, which splice(2) does not come past, is left out, as it is of what is received.
pub(crate) fn urgent<I: Relay>(case: &Case<'_, I>) {
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
            hop.arrives(&sent);
            hop.net.sleeps(case);
        }
    }
    client.write_all(b"tail").unwrap();
    sent.extend_from_slice(b"tail");
    hop.arrives(&sent);
}
