//! Registration: a descriptor is registered from declare until revoke or closing, at most once at a
//! time.

use std::rc::Rc;

use hearken::Readiness;
use rustix::io::Errno;

use super::support::*;

fn errno<T>(result: std::io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

pub(crate) fn at_most_once_at_a_time(mut watch: Watch) {
    for interest in [READ, NEITHER] {
        let (source, peer) = unix();
        let source = Rc::new(source);
        let first = watch.0.insert(source.clone());
        let second = watch.0.insert(source);
        watch.0.declare(first, interest).unwrap();
        assert_eq!(errno(watch.0.declare(second, READ)), Some(Errno::EXIST));
        watch.0.remove(first).unwrap();
        // Once the first has removed, the number is free.
        watch.0.declare(second, READ).unwrap();
        write(&peer, b"x");
        assert_eq!(watch.next(second), Readiness::READABLE);
        watch.0.remove(second).unwrap();
    }
}

pub(crate) fn a_refused_call_changes_nothing(mut watch: Watch) {
    let (source, peer) = unix();
    let source = Rc::new(source);
    let first = watch.0.insert(source.clone());
    watch.0.declare(first, READ).unwrap();
    let changes = watch.0.counters().changes;
    let second = watch.0.insert(source);
    assert_eq!(errno(watch.0.declare(second, BOTH)), Some(Errno::EXIST));
    assert_eq!(watch.0.counters().changes, changes);

    // The interest and the token of the first registration are unchanged.
    watch.quiet();
    write(&peer, b"x");
    assert_eq!(watch.next(first), Readiness::READABLE);
    // Removing the refused registration does not revoke the first one.
    watch.0.remove(second).unwrap();
    drain(watch.fd(first));
    watch.arm(first);
    write(&peer, b"x");
    assert_eq!(watch.next(first), Readiness::READABLE);
}

/// Checks that a regular file is reported as ready, or refused without effect.
pub(crate) fn refuses_descriptors_that_it_cannot_watch(mut watch: Watch) {
    let file = Rc::new(tempfile::tempfile().unwrap().into());
    let token = watch.0.insert(file);
    match watch.0.declare(token, BOTH) {
        Ok(()) => {
            let both = Readiness::READABLE | Readiness::WRITABLE;
            assert!(watch.next(token).contains(both));
            watch.0.remove(token).unwrap();
        }
        Err(error) => {
            assert_eq!(Errno::from_io_error(&error), Some(Errno::PERM));
            assert_eq!(watch.0.counters().changes, 0);
            assert!(watch.0.interest(token).is_empty());
            watch.quiet();
            watch.0.remove(token).unwrap();
        }
    }
    let (source, peer) = pipe();
    let token = watch.add(source, READ);
    write(&peer, b"x");
    assert_eq!(watch.next(token), Readiness::READABLE);
}

pub(crate) fn ready_before_declare_is_reported(mut watch: Watch) {
    for make in [unix, tcp, pipe] {
        let (source, peer) = make();
        write(&peer, b"x");
        let token = watch.add(source, READ);
        assert!(watch.until(token, Readiness::READABLE).is_readable());
        watch.0.remove(token).unwrap();
    }
    let (source, _peer) = unix();
    let token = watch.add(source, WRITE);
    assert_eq!(watch.next(token), Readiness::WRITABLE);
    watch.0.remove(token).unwrap();

    let (source, peer) = unix();
    drop(peer);
    let token = watch.add(source, READ);
    assert!(watch.next(token).is_readable());
}

pub(crate) fn a_removed_token_is_refused(mut watch: Watch) {
    let (source, _peer) = unix();
    let (other, other_peer) = unix();
    let removed = watch.add(source, READ);
    watch.0.remove(removed).unwrap();
    let present = watch.add(other, READ);
    assert_eq!(removed.slot(), present.slot(), "slots are dense");

    assert_eq!(errno(watch.0.declare(removed, BOTH)), Some(Errno::NOENT));
    assert!(watch.0.get(removed).is_none());
    assert!(watch.0.interest(removed).is_empty());
    assert!(watch.0.remove(removed).is_none());
    assert!(!watch.0.close(removed));

    watch.quiet();
    write(&other_peer, b"x");
    assert_eq!(watch.next(present), Readiness::READABLE);
}
