//! Deadlines, and how long a wait lasts. That none is early, and none comes that was not set,
//! `Checked` asserts wherever one comes.

use std::time::Duration;

use hearken::io::Io;

use crate::Case;
use crate::net::{Kind, Net};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Each comes once, on a listener too, whatever the order in which they were set.
pub(crate) fn never_early<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let mut all = vec![net.listener];
    for _ in 0..5 {
        let (from, to) = net.pair();
        all.extend([from, to]);
    }
    for (index, &on) in all.iter().enumerate() {
        let after = Duration::from_micros(7919 * index as u64 % 15_000);
        net.io.set_deadline(on, Some(net.io.now() + after));
    }
    net.run("all have come", |net| all.iter().all(|&on| net.seen(on).deadlines > 0));
    net.settle();
    assert!(all.iter().all(|&on| net.seen(on).deadlines == 1));
    // And again.
    net.io.set_deadline(all[1], Some(net.io.now() + ms(2)));
    net.run("it comes", |net| net.seen(all[1]).deadlines == 2);
}

/// Moved later it comes later, moved earlier it comes earlier.
pub(crate) fn moved<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let start = net.io.now();
    net.io.set_deadline(from, Some(start + ms(3)));
    net.io.set_deadline(from, Some(start + ms(20)));
    net.io.set_deadline(to, Some(start + Duration::from_secs(3600)));
    net.io.set_deadline(to, Some(start + ms(5)));
    // Moved again when it is nearly there, as a server does at every request.
    net.run("the moved one", |net| {
        if net.io.now() < start + ms(15) {
            net.io.set_deadline(from, Some(net.io.now() + ms(10)));
        }
        net.seen(from).deadlines > 0
    });
    assert_eq!(net.seen(to).deadlines, 1);
}

/// Taken back it does not come.
pub(crate) fn cancelled<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    net.io.set_deadline(from, None);
    net.io.set_deadline(from, Some(net.io.now() + ms(2)));
    net.io.set_deadline(to, Some(net.io.now() + ms(6)));
    net.io.set_deadline(from, None);
    net.run("the other comes", |net| net.seen(to).deadlines > 0);
    net.settle();
    assert_eq!(net.seen(from).deadlines, 0);
    // By whom another's was just given, in the turn in which it was due.
    net.io.set_deadline(from, Some(net.io.now()));
    net.io.set_deadline(to, Some(net.io.now()));
    net.drive("one of both", |net, on, _| {
        net.io.set_deadline(if on == from { to } else { from }, None);
        true
    });
    net.settle();
    assert_eq!(net.seen(from).deadlines + net.seen(to).deadlines, 2);
}

/// Closed, a connection leaves none to the next that has its slot.
pub(crate) fn gone_with_its_owner<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    for close in [true, false] {
        let (from, to) = net.pair();
        for on in [from, to] {
            net.io.set_deadline(on, Some(net.io.now() + ms(3)));
            if close {
                net.io.close(on);
            } else {
                net.io.abort(on);
            }
        }
        let (from, to) = net.pair();
        let until = net.io.now() + ms(6);
        while net.io.now() < until {
            net.turn(ms(2));
        }
        assert_eq!(net.seen(from).deadlines + net.seen(to).deadlines, 0);
    }
}

/// One that has passed already comes at once.
pub(crate) fn past<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.turn(ms(2));
    let now = net.io.now();
    net.io.set_deadline(net.listener, Some(now));
    net.run("it comes", |net| net.seen(net.listener).deadlines == 1);
    net.io.set_deadline(net.listener, Some(hearken::timer::Time::default()));
    net.run("it comes", |net| net.seen(net.listener).deadlines == 2);
}

/// It comes although there is always something else to do.
pub(crate) fn amid_traffic<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let on = traffic(&mut net);
    net.drive("the deadline comes", |net, who, kind| {
        answer(net, who, kind);
        net.seen(on).deadlines > 0
    });
}

/// As above, where each turn is left after one completion.
pub(crate) fn amid_traffic_one_at_a_time<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let on = traffic(&mut net);
    let began = std::time::Instant::now();
    while net.seen(on).deadlines == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "waited in vain");
        net.wait(ms(100));
        if let Some((who, kind)) = net.next() {
            answer(&mut net, who, kind);
        }
    }
}

/// Connections that never rest, and one with a deadline.
fn traffic<I: Io>(net: &mut Net<I>) -> hearken::Token {
    for _ in 0..3 {
        let (from, to) = net.started_pair();
        for on in [from, to] {
            net.send(on, b"ball");
            net.send(on, b"another");
        }
    }
    let (on, _) = net.pair();
    net.io.set_deadline(on, Some(net.io.now() + ms(5)));
    on
}

fn answer<I: Io>(net: &mut Net<I>, on: hearken::Token, kind: Kind) {
    if matches!(kind, Kind::Received(_)) {
        net.send(on, b"ball");
    }
}

/// A wait with nothing to do lasts until its end, and no longer than to a deadline.
pub(crate) fn until<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.started_pair();
    net.settle();
    for millis in [0, 1, 3, 10] {
        let until = net.io.now() + ms(millis);
        loop {
            net.io.wait(Some(until)).unwrap();
            assert_eq!(net.next(), None);
            if !case.spins || net.io.now() >= until {
                break;
            }
        }
        assert!(net.io.now() >= until, "{:?} early", until - net.io.now());
    }
    net.io.set_deadline(net.listener, Some(net.io.now() + ms(3)));
    while net.seen(net.listener).deadlines == 0 {
        net.io.wait(None).unwrap();
        while net.next().is_some() {}
    }
}

/// With nothing to do, however it came to that, it sleeps.
pub(crate) fn sleeps<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.sleeps(case);
    let (from, to) = net.started_pair();
    net.sleeps(case);
    net.send(from, b"data");
    net.receives(to, b"data");
    net.sleeps(case);
    // Ended and open.
    net.io.shutdown(from);
    net.ends(to, b"data");
    net.sleeps(case);
    net.io.shutdown(to);
    net.ends(from, b"");
    net.sleeps(case);
    // Not made, and not closed.
    let listener = net.listener;
    net.io.close(listener);
    if let Ok(from) = net.io.connect(&net.addr.into(), None) {
        net.io.start(from);
        net.run("it is refused", |net| net.seen(from).connected.is_some());
        net.sleeps(case);
    }
}
