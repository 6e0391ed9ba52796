//! "READABLE only where READ was asked for, WRITABLE only where WRITE was, and nothing at all, a
//! hang-up included, where nothing was; the descriptor stays registered."

use hearken::Readiness;

use crate::support::*;

pub(crate) fn only_what_was_asked_for(mut watch: Watch) {
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
        // Declared so, and changed to it.
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

        // Still registered: it can be asked for again, and is owned.
        watch.change(changed, READ);
        assert!(watch.next(changed).is_readable());
        assert!(watch.0.remove(changed).is_some());
        assert!(watch.0.remove(declared).is_some());
    }
}

pub(crate) fn what_was_not_asked_for_does_not_wake_every_wait(mut watch: Watch) {
    if watch.0.semantics().registers_both {
        return;
    }
    let (writable, _peer) = unix();
    let (readable, reader) = unix();
    fill(&readable);
    write(&reader, b"x");
    watch.add(writable, READ);
    watch.add(readable, WRITE);
    // A mechanism may learn by waking once.
    watch.wakes(2);
    assert_eq!(watch.wakes(4), 0);
}

pub(crate) fn hang_up_does_not_wake_every_wait_of_an_empty_interest(mut watch: Watch) {
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

pub(crate) fn what_came_during_silence_is_reported_after(mut watch: Watch) {
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

pub(crate) fn an_event_answers_the_interest_of_the_moment(mut watch: Watch) {
    let (source, peer) = unix();
    write(&peer, b"x");
    let token = watch.add(source, BOTH);
    while watch.0.wait(8, Some(std::time::Duration::ZERO)).unwrap() == 0 {}
    watch.change(token, WRITE);
    assert_eq!(watch.0.event(0).unwrap().readiness, Readiness::WRITABLE);
    watch.change(token, NEITHER);
    assert_eq!(watch.0.event(0), None);
}
