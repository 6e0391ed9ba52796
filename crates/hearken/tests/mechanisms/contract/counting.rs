//! The counters of the registry.

use std::time::Duration;

use hearken::Readiness;
use hearken::mechanism::{Counters, Watches};

use super::support::*;

/// Returns the counters that do not depend on the mechanism.
fn without_calls(watch: &Watch) -> Counters {
    Counters { calls: 0, signals: 0, ..watch.0.counters() }
}

pub(crate) fn counters_are_exact(mut watch: Watch) {
    let open = watch.0.counters().calls;
    let (source, peer) = pipe();
    let token = watch.add(source, READ);
    watch.change(token, NEITHER);
    watch.change(token, READ);
    let mut expected = Counters { changes: 3, ..Counters::default() };
    assert_eq!(without_calls(&watch), expected);
    if watch.0.declare(token, READ).is_ok() {
        // Declaring the same interest costs nothing, unless it arms a one-shot mechanism again.
        let rearms = watch.trigger() == hearken::mechanism::Trigger::OneShot;
        expected.changes += u64::from(rearms);
    }
    assert_eq!(without_calls(&watch), expected);

    assert!(watch.wait(8, Duration::ZERO).is_empty());
    expected.waits += 1;
    expected.empty_waits += 1;
    assert_eq!(without_calls(&watch), expected);

    write(&peer, b"x");
    assert_eq!(watch.wait(8, Duration::from_secs(20)).len(), 1);
    expected.waits += 1;
    expected.events += 1;
    assert_eq!(without_calls(&watch), expected);

    watch.0.remove(token).unwrap();
    expected.changes += 1;
    assert_eq!(without_calls(&watch), expected);
    if watch.0.semantics().watches == Watches::Any {
        assert_eq!(watch.0.counters().signals, 0);
    }
    let calls = watch.0.counters().calls - open;
    assert!((1..30).contains(&calls), "{calls} calls for two waits and four changes");
}

pub(crate) fn dropped_events_are_counted(mut watch: Watch) {
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
    assert_eq!((events[0].token, events[0].readiness), (kept, Readiness::READABLE));
    let counters = watch.0.counters();
    assert_eq!((counters.events, counters.spurious), (1, 1));
}

pub(crate) fn overflows_only_if_documented(mut watch: Watch) {
    let (source, peer) = unix();
    let token = watch.add(source, READ);
    // More arrivals at once than a queue of signals holds by default.
    for _ in 0..200 {
        write(&peer, b"x");
    }
    assert_eq!(watch.next(token), Readiness::READABLE);
    if !watch.0.semantics().overflows {
        assert_eq!(watch.0.counters().overflows, 0);
    }
}
