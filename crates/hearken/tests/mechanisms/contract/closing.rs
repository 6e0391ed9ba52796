//! Closing and revoking: a reused number is a new registration with a new token. No wait after
//! revoking or closing reports the old token. An earlier batch may still contain it.

use std::os::fd::AsRawFd;
use std::time::Duration;

use hearken::Readiness;

use super::support::*;

/// Registers a number, ends the registration by `end`, and registers the number again.
fn reuse_number(mut watch: Watch, end: fn(&mut Watch, hearken::Token)) {
    let Some(number) = number_of_my_own(1500..=16384) else {
        return;
    };
    for round in 0..6 {
        let (first, first_peer) = unix();
        let old = watch.add(renumber(first, number), READ);
        write(&first_peer, b"for the old");
        if round % 2 == 1 {
            assert_eq!(watch.next(old), Readiness::READABLE);
        }
        end(&mut watch, old);
        let (second, second_peer) = unix();
        let new = watch.add(renumber(second, number), READ);
        assert_ne!(old, new);
        watch.quiet();
        // The old socket's peer causes no events, and the new one's does.
        drop(first_peer);
        watch.quiet();
        write(&second_peer, b"for the new");
        assert_eq!(watch.next(new), Readiness::READABLE);
        assert!(watch.0.close(new));
    }
}

pub(crate) fn a_number_reused_after_closing_is_new(watch: Watch) {
    reuse_number(watch, |watch, old| assert!(watch.0.close(old)));
}

pub(crate) fn a_number_reused_after_revoking_is_new(watch: Watch) {
    reuse_number(watch, |watch, old| drop(watch.0.remove(old).unwrap()));
}

pub(crate) fn a_revoked_descriptor_is_silent_while_a_duplicate_is_open(mut watch: Watch) {
    let (source, peer) = unix();
    let duplicate = source.try_clone().unwrap();
    let token = watch.add(source, BOTH);
    write(&peer, b"x");
    watch.until(token, Readiness::READABLE);
    let source = watch.0.remove(token).unwrap();
    assert_eq!(watch.wakes(3), 0, "it is open under its number");
    write(&peer, b"y");
    drop(source);
    assert_eq!(watch.wakes(3), 0, "it is open under another number");
    drop(peer);
    assert_eq!(watch.wakes(3), 0, "the peer hung up");
    assert_eq!(drain(&duplicate), (2, true));
}

pub(crate) fn closing_one_does_not_affect_others(mut watch: Watch) {
    let mut pairs: Vec<_> = (0..9)
        .map(|_| {
            let (source, peer) = unix();
            (watch.add(source, READ), peer)
        })
        .collect();
    // First, last and middle: removal from a packed list is most error-prone at its ends.
    for at in [0, 7, 3, 0, 4] {
        let (token, peer) = pairs.remove(at);
        assert!(watch.0.close(token));
        assert_eq!(drain(&peer), (0, true), "it is closed");
        for (token, peer) in &pairs {
            write(peer, b"x");
            assert_eq!(watch.next(*token), Readiness::READABLE);
            drain(watch.fd(*token));
            watch.arm(*token);
        }
    }
    assert_eq!(watch.0.len(), 4);
}

pub(crate) fn a_batch_drops_events_of_removed_tokens(mut watch: Watch) {
    let (source, peer) = pipe();
    let token = watch.add(source, READ);
    write(&peer, b"x");
    while watch.0.wait(8, Some(Duration::ZERO)).unwrap() == 0 {}
    watch.0.remove(token).unwrap();
    assert_eq!(watch.0.event(0), None);
}

pub(crate) fn a_batch_drops_events_of_reused_slots(mut watch: Watch) {
    let (first, first_peer) = pipe();
    let old = watch.add(first, READ);
    write(&first_peer, b"x");
    while watch.0.wait(8, Some(Duration::ZERO)).unwrap() == 0 {}
    watch.0.remove(old).unwrap();
    let (second, _second_peer) = pipe();
    let new = watch.add(second, READ);
    assert_eq!(new.slot(), old.slot());
    assert_eq!(watch.0.event(0), None);
    watch.quiet();
}

pub(crate) fn dropping_the_registry_closes_its_sources(mut watch: Watch) {
    let (source, peer) = unix();
    let (silent, silent_peer) = unix();
    let number = source.as_raw_fd();
    watch.add(source, READ);
    watch.add(silent, NEITHER);
    assert_eq!(drain(&peer), (0, false), "{number} is open");
    drop(watch);
    for peer in [peer, silent_peer] {
        assert_eq!(drain(&peer), (0, true));
    }
}
