//! Interest: READABLE is reported only with READ, WRITABLE only with WRITE, and nothing, not even a
//! hang-up, without interest. The descriptor stays registered.

use hearken::Readiness;

use super::support::*;

pub(crate) fn reports_only_requested_directions(mut watch: Watch) {
    for (interest, expected) in [
        (READ, Readiness::READABLE),
        (WRITE, Readiness::WRITABLE),
        (BOTH, Readiness::READABLE | Readiness::WRITABLE),
    ] {
        let (source, peer) = unix();
        write(&peer, b"x");
        let token = watch.add(source, interest);
        assert_eq!(watch.next(token), expected);
        watch.0.remove(token).unwrap();
    }
}

pub(crate) fn an_empty_interest_is_silent(mut watch: Watch) {
    for make in [unix, tcp, pipe] {
        let (source, peer) = make();
        // An empty interest after a change, and from the start.
        let changed = watch.add(source, READ);
        watch.change(changed, NEITHER);
        write(&peer, b"x");
        watch.quiet();
        drop(peer);
        watch.quiet();
        let (source, peer) = make();
        let declared = watch.add(source, NEITHER);
        write(&peer, b"x");
        watch.quiet();
        drop(peer);
        watch.quiet();

        // Both are still registered, and interest can be declared again.
        watch.change(changed, READ);
        assert!(watch.next(changed).is_readable());
        assert!(watch.0.remove(changed).is_some());
        assert!(watch.0.remove(declared).is_some());
    }
}

pub(crate) fn unrequested_readiness_does_not_end_every_wait(mut watch: Watch) {
    if watch.0.semantics().registers_both {
        return;
    }
    let (writable, _peer) = unix();
    let (readable, reader) = unix();
    fill(&readable);
    write(&reader, b"x");
    watch.add(writable, READ);
    watch.add(readable, WRITE);
    // A mechanism may remove its interest after the first unwanted event.
    watch.wakes(2);
    assert_eq!(watch.wakes(4), 0);
}

pub(crate) fn hang_up_does_not_end_every_wait_without_interest(mut watch: Watch) {
    if watch.0.semantics().registers_both {
        return;
    }
    for make in [unix, tcp, pipe] {
        let (source, peer) = make();
        let token = watch.add(source, READ);
        watch.change(token, NEITHER);
        drop(peer);
        watch.wakes(2);
        assert_eq!(watch.wakes(4), 0);
        watch.0.remove(token).unwrap();
    }
}

pub(crate) fn events_without_interest_are_reported_when_interest_returns(mut watch: Watch) {
    let (source, peer) = unix();
    let token = watch.add(source, NEITHER);
    watch.quiet();
    write(&peer, b"x");
    watch.quiet();
    watch.change(token, READ);
    assert_eq!(watch.next(token), Readiness::READABLE);
    watch.change(token, WRITE);
    assert_eq!(watch.next(token), Readiness::WRITABLE);
}

pub(crate) fn an_event_is_filtered_by_the_current_interest(mut watch: Watch) {
    let (source, peer) = unix();
    write(&peer, b"x");
    let token = watch.add(source, BOTH);
    while watch.0.wait(8, Some(std::time::Duration::ZERO)).unwrap() == 0 {}
    watch.change(token, WRITE);
    assert_eq!(watch.0.event(0).unwrap().readiness, Readiness::WRITABLE);
    watch.change(token, NEITHER);
    assert_eq!(watch.0.event(0), None);
}
