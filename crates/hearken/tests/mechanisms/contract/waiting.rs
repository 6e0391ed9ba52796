//! Waiting: a wait returns when there is an event or when the timeout has passed, never sooner. It
//! returns at most `max` events. No descriptor is passed over indefinitely in favour of others.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use hearken::mechanism::Trigger;
use hearken::{Readiness, Token};

use super::support::*;

pub(crate) fn a_timeout_is_never_early(mut watch: Watch) {
    let (source, _peer) = pipe();
    watch.add(source, READ);
    for nanos in [1, 999, 1_000, 300_000, 999_999, 1_000_001, 1_500_000, 7_300_000] {
        let timeout = Duration::from_nanos(nanos);
        let start = Instant::now();
        assert!(watch.wait(8, timeout).is_empty());
        assert!(start.elapsed() >= timeout, "{timeout:?} ended early");
    }
}

pub(crate) fn with_nothing_registered_it_sleeps(mut watch: Watch) {
    let timeout = Duration::from_millis(4);
    // Also after a descriptor was registered.
    for _ in 0..2 {
        let start = Instant::now();
        assert!(watch.wait(8, timeout).is_empty());
        assert!(start.elapsed() >= timeout);
        let (source, _peer) = pipe();
        let token = watch.add(source, READ);
        watch.0.remove(token).unwrap();
    }
}

pub(crate) fn without_a_timeout_it_waits_for_an_event(mut watch: Watch) {
    let (source, peer) = unix();
    let token = watch.add(source, READ);
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        write(&peer, b"x");
        peer
    });
    let readiness = loop {
        let got = watch.0.wait(8, None).unwrap();
        if let Some(event) = (0..got).find_map(|index| watch.0.event(index)) {
            assert_eq!(event.token, token);
            break event.readiness;
        }
    };
    assert_eq!(readiness, Readiness::READABLE);
    writer.join().unwrap();
}

pub(crate) fn a_timeout_beyond_the_clock_waits_indefinitely(mut watch: Watch) {
    let (source, peer) = unix();
    let token = watch.add(source, READ);
    for timeout in [Duration::MAX, Duration::from_secs(1 << 40)] {
        let peer = peer.try_clone().unwrap();
        let writer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(10));
            write(&peer, b"x");
        });
        let mut events = Vec::new();
        while events.is_empty() {
            events = watch.wait(8, timeout);
        }
        assert_eq!(events[0].token, token);
        writer.join().unwrap();
        drain(watch.fd(token));
        watch.arm(token);
    }
}

/// Registers `count` readable sources. Returns their tokens and peers.
fn ready(watch: &mut Watch, count: usize) -> Vec<(Token, std::os::fd::OwnedFd)> {
    let pairs = (0..count).map(|_| {
        let (source, peer) = pipe();
        write(&peer, b"x");
        (watch.add(source, READ), peer)
    });
    pairs.collect()
}

pub(crate) fn at_most_max(mut watch: Watch) {
    let sources = ready(&mut watch, 10);
    for max in [1, 3, 9] {
        // `wait` checks that there are at most `max` events. A level-triggered mechanism returns
        // exactly `max`.
        let events = watch.next_batch(max);
        if watch.trigger() == Trigger::Level {
            assert_eq!(events.len(), max);
        }
    }
    drop(sources);
}

pub(crate) fn any_max_is_accepted(mut watch: Watch) {
    let sources = ready(&mut watch, 3);
    let got = watch.0.wait(0, Some(Duration::ZERO)).unwrap();
    assert!(got <= 1, "0 counts as 1");
    let mut seen: HashSet<Token> =
        (0..got).filter_map(|index| watch.0.event(index)).map(|event| event.token).collect();
    for max in [usize::MAX, usize::MAX / 2, u32::MAX as usize, 1 << 20] {
        let events = watch.wait(max, Duration::from_millis(1));
        seen.extend(events.iter().map(|event| event.token));
    }
    assert_eq!(seen.len(), sources.len());
}

pub(crate) fn none_starves(mut watch: Watch) {
    for max in [1, 7] {
        let sources = ready(&mut watch, 60);
        let mut seen = HashSet::new();
        for _ in 0..60_usize.div_ceil(max) {
            seen.extend(watch.next_batch(max).iter().map(|event| event.token));
        }
        assert_eq!(seen.len(), 60, "after n events, with {max} in a batch");
        for (token, _) in sources {
            watch.0.remove(token).unwrap();
        }
    }
}

pub(crate) fn none_starves_while_others_are_added_and_removed(mut watch: Watch) {
    let mut sources = ready(&mut watch, 20);
    let unread: HashSet<Token> = sources[..10].iter().map(|(token, _)| *token).collect();
    let mut seen = HashSet::new();
    for round in 0..100 {
        seen.extend(watch.next_batch(2).iter().map(|event| event.token));
        let (token, _) = sources.remove(10 + round % 10);
        watch.0.remove(token).unwrap();
        sources.extend(ready(&mut watch, 1));
    }
    assert!(unread.is_subset(&seen));
}

pub(crate) fn a_batch_contains_each_descriptor_once(mut watch: Watch) {
    let both = Readiness::READABLE | Readiness::WRITABLE;
    let pairs: Vec<_> = (0..20)
        .map(|_| {
            let (source, peer) = unix();
            let token = watch.add(source, BOTH);
            // Several arrivals, and space to write.
            write(&peer, b"x");
            write(&peer, b"y");
            (token, peer)
        })
        .collect();
    let mut seen = HashSet::new();
    while seen.len() < pairs.len() {
        // `wait` checks that no descriptor occurs twice.
        for event in watch.next_batch(64) {
            assert_eq!(event.readiness, both, "one event reports both directions");
            seen.insert(event.token);
        }
    }
}

pub(crate) fn a_batch_is_valid_until_the_next_wait(mut watch: Watch) {
    let sources = ready(&mut watch, 2);
    let events = watch.next_batch(64);
    let late = ready(&mut watch, 1);
    drain(watch.fd(sources[1].0));
    for (index, event) in events.iter().enumerate() {
        assert_eq!(watch.0.event(index), Some(*event));
    }
    for beyond in [events.len(), usize::MAX] {
        assert_eq!(watch.0.event(beyond), None);
    }
    drop(late);
}
