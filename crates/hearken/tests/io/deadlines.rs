//! Deadlines, and the duration of waits. `Checked` asserts that no deadline expires early, and none
//! that was not set.

use std::time::Duration;

use hearken::io::Io;

use crate::Case;
use crate::net::{Kind, Net, PATIENCE};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Checks that each deadline expires once, in any order of setting them, also on a listener.
pub(crate) fn deadlines_expire_once_and_never_early<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let mut all = vec![net.listener];
    for _ in 0..5 {
        let (from, to) = net.pair();
        all.extend([from, to]);
    }
    for (index, &token) in all.iter().enumerate() {
        let after = Duration::from_micros(7919 * index as u64 % 15_000);
        net.io.set_deadline(token, Some(net.io.now() + after));
    }
    net.run("all deadlines expire", |net| all.iter().all(|&token| net.seen(token).deadlines > 0));
    net.run_until_idle();
    assert!(all.iter().all(|&token| net.seen(token).deadlines == 1));
    // And again.
    net.io.set_deadline(all[1], Some(net.io.now() + ms(2)));
    net.run("the deadline expires", |net| net.seen(all[1]).deadlines == 2);
}

/// Checks that deadlines that are moved to a later or earlier time expire then.
pub(crate) fn moved_deadlines_expire_at_their_new_time<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let start = net.io.now();
    net.io.set_deadline(from, Some(start + ms(3)));
    net.io.set_deadline(from, Some(start + ms(20)));
    net.io.set_deadline(to, Some(start + Duration::from_secs(3600)));
    net.io.set_deadline(to, Some(start + ms(5)));
    // Moved again shortly before it expires, as a server does at every request.
    net.run("the moved deadline expires", |net| {
        if net.io.now() < start + ms(15) {
            net.io.set_deadline(from, Some(net.io.now() + ms(10)));
        }
        net.seen(from).deadlines > 0
    });
    assert_eq!(net.seen(to).deadlines, 1);
}

/// Checks that a cancelled deadline does not expire.
pub(crate) fn cancelled_deadlines_do_not_expire<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    net.io.set_deadline(from, None);
    net.io.set_deadline(from, Some(net.io.now() + ms(2)));
    net.io.set_deadline(to, Some(net.io.now() + ms(6)));
    net.io.set_deadline(from, None);
    net.run("the other deadline expires", |net| net.seen(to).deadlines > 0);
    net.run_until_idle();
    assert_eq!(net.seen(from).deadlines, 0);
    // Cancelled in the handler of another deadline, in the turn in which both expire.
    net.io.set_deadline(from, Some(net.io.now()));
    net.io.set_deadline(to, Some(net.io.now()));
    net.drive("one deadline expires", |net, token, _| {
        net.io.set_deadline(if token == from { to } else { from }, None);
        true
    });
    net.run_until_idle();
    assert_eq!(net.seen(from).deadlines + net.seen(to).deadlines, 2);
}

/// Checks that the next connection in a slot does not inherit the deadline.
pub(crate) fn closing_cancels_the_deadline<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    for close in [true, false] {
        let (from, to) = net.pair();
        for token in [from, to] {
            net.io.set_deadline(token, Some(net.io.now() + ms(3)));
            if close {
                net.io.close(token);
            } else {
                net.io.abort(token);
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

/// Checks that a deadline in the past expires immediately.
pub(crate) fn past_deadlines_expire_immediately<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.turn(ms(2));
    let now = net.io.now();
    net.io.set_deadline(net.listener, Some(now));
    net.run("the deadline expires", |net| net.seen(net.listener).deadlines == 1);
    net.io.set_deadline(net.listener, Some(hearken::timer::Time::default()));
    net.run("the deadline expires", |net| net.seen(net.listener).deadlines == 2);
}

/// Checks that a deadline expires although other completions are always pending.
pub(crate) fn expires_during_constant_traffic<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let token = traffic(&mut net);
    net.drive("the deadline expires", |net, source, kind| {
        answer(net, source, kind);
        net.seen(token).deadlines > 0
    });
}

/// Checks the same if each turn is abandoned after one completion.
pub(crate) fn expires_during_traffic_with_one_completion_per_turn<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let token = traffic(&mut net);
    let began = std::time::Instant::now();
    while net.seen(token).deadlines == 0 {
        assert!(began.elapsed() < PATIENCE, "the deadline does not expire");
        net.wait(ms(100));
        if let Some((source, kind)) = net.next() {
            answer(&mut net, source, kind);
        }
    }
}

/// Creates connections with constant traffic, and one with a deadline, whose token it returns.
fn traffic<I: Io>(net: &mut Net<I>) -> hearken::Token {
    for _ in 0..3 {
        let (from, to) = net.started_pair();
        for token in [from, to] {
            net.send(token, b"ball");
            net.send(token, b"another");
        }
    }
    let (token, _) = net.pair();
    net.io.set_deadline(token, Some(net.io.now() + ms(5)));
    token
}

fn answer<I: Io>(net: &mut Net<I>, token: hearken::Token, kind: Kind) {
    if matches!(kind, Kind::Received(_)) {
        net.send(token, b"ball");
    }
}

/// Checks that an idle wait lasts until its end, or until a deadline.
pub(crate) fn waits_end_at_the_given_time<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.started_pair();
    net.run_until_idle();
    for millis in [0, 1, 3, 10] {
        let until = net.io.now() + ms(millis);
        loop {
            net.io.wait(Some(until)).unwrap();
            assert_eq!(net.next(), None);
            if !case.wakes_when_idle || net.io.now() >= until {
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

/// Checks that waits sleep in every kind of idle state.
pub(crate) fn idle_instances_sleep<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.assert_sleeps(case);
    let (from, to) = net.started_pair();
    net.assert_sleeps(case);
    net.send(from, b"data");
    net.expect_received(to, b"data");
    net.assert_sleeps(case);
    // Streams that ended on open connections.
    net.io.shutdown(from);
    net.expect_end(to, b"data");
    net.assert_sleeps(case);
    net.io.shutdown(to);
    net.expect_end(from, b"");
    net.assert_sleeps(case);
    // A connection that was refused and is not closed.
    let listener = net.listener;
    net.io.close(listener);
    if let Ok(from) = net.io.connect(&net.addr.into(), None) {
        net.io.start(from);
        net.run("it is refused", |net| net.seen(from).connected.is_some());
        net.assert_sleeps(case);
    }
}
