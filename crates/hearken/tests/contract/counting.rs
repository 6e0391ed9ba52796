//! What the registry counts of a mechanism.

use std::time::Duration;

use hearken::mechanism::Counters;
use hearken::{Mechanism, Readiness};

use crate::support::*;

pub(crate) fn counters_are_exact<M: Mechanism>(mut watch: Watch<M>) {
    assert_eq!(watch.0.counters(), Counters::default());
    let (source, peer) = pipe();
    let token = watch.add(source, READ);
    watch.change(token, NEITHER);
    watch.change(token, READ);
    let mut expected = Counters { changes: 3, ..Counters::default() };
    assert_eq!(watch.0.counters(), expected);
    if watch.0.declare(token, READ).is_ok() {
        // The same interest costs nothing, but where it arms again.
        let rearms = watch.trigger() == hearken::mechanism::Trigger::OneShot;
        expected.changes += u64::from(rearms);
    }
    assert_eq!(watch.0.counters(), expected);

    assert!(watch.wait(8, Duration::ZERO).is_empty());
    expected.waits += 1;
    expected.empty_waits += 1;
    assert_eq!(watch.0.counters(), expected);

    write(&peer, b"x");
    assert_eq!(watch.wait(8, Duration::from_secs(20)).len(), 1);
    expected.waits += 1;
    expected.events += 1;
    assert_eq!(watch.0.counters(), expected);

    watch.0.remove(token).unwrap();
    expected.changes += 1;
    assert_eq!(watch.0.counters(), expected);
}

pub(crate) fn what_was_dropped_is_counted<M: Mechanism>(mut watch: Watch<M>) {
    let (kept, kept_peer) = pipe();
    let (revoked, revoked_peer) = pipe();
    let kept = watch.add(kept, READ);
    let revoked = watch.add(revoked, READ);
    write(&kept_peer, b"x");
    write(&revoked_peer, b"x");
    let got = watch.0.wait(8, Some(Duration::from_secs(20))).unwrap();
    watch.0.remove(revoked).unwrap();
    let events: Vec<_> = (0..got).filter_map(|index| watch.0.event(index)).collect();
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].who, events[0].readiness), (kept, Readiness::READABLE));
    let counters = watch.0.counters();
    assert_eq!((counters.events, counters.spurious), (1, 1));
}

pub(crate) fn overflows_only_where_it_can<M: Mechanism>(mut watch: Watch<M>) {
    let (source, peer) = unix();
    let token = watch.add(source, READ);
    // More arrivals than a queue of signals has room for by default, in one go.
    for _ in 0..200 {
        write(&peer, b"x");
    }
    assert_eq!(watch.next(token), Readiness::READABLE);
    if !watch.0.semantics().overflows {
        assert_eq!(watch.0.counters().overflows, 0);
    }
}
