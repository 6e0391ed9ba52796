//! The timing wheel against a model that is only a map: what it fires, when, and what it promises
//! of the next look.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hearken::timer::{Time, Wheel};
use proptest::prelude::*;

use crate::suite::{Tests, property, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        fires_at_the_first_tick_after_its_deadline_and_once
        a_slot_with_timers_due_and_not_due_gives_those_due
        a_deadline_beyond_the_span_waits
        the_end_of_time_is_armed_and_never_comes
        a_past_deadline_fires_at_the_next_look
        following_next_reaches_a_far_deadline_in_few_looks
        cancelling_tells_whether_it_was_armed
        does_what_a_map_does
    }
}

const TICK: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const YEAR: u64 = 365 * 24 * 3600 * SECOND;
/// After this many nanoseconds the wheel has turned once.
const TURN: u64 = 1 << 56;

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

/// All that is due, which must end.
fn all_expired(wheel: &mut Wheel, now: u64) -> BTreeSet<u32> {
    let mut fired = BTreeSet::new();
    while let Some(key) = wheel.expired(at(now)) {
        assert!(fired.insert(key), "{key} fired twice");
    }
    fired
}

fn fires_at_the_first_tick_after_its_deadline_and_once() {
    let start = 5 * SECOND + 1;
    for deadline in [start, start + 1, start + 3 * TICK, start + YEAR] {
        let fires = deadline.next_multiple_of(TICK);
        let mut wheel = Wheel::new(at(start));
        wheel.arm(3, at(deadline));
        assert_eq!(wheel.expired(at(fires - 1)), None, "deadline {deadline}");
        assert_eq!(wheel.expired(at(fires)), Some(3), "deadline {deadline}");
        assert_eq!(wheel.expired(at(fires + YEAR)), None);
        assert_eq!(wheel.armed(), 0);
    }
}

/// Two timers that waited in one slot of a higher level: the one that is due is not hidden by the
/// one that is not.
fn a_slot_with_timers_due_and_not_due_gives_those_due() {
    for level in 1..6 {
        let slot = TICK << (6 * level);
        for order in [[5, 10], [10, 5]] {
            let mut wheel = Wheel::new(at(0));
            for ticks in order {
                wheel.arm(ticks as u32, at(slot + ticks * TICK));
            }
            assert_eq!(
                all_expired(&mut wheel, slot + 7 * TICK),
                BTreeSet::from([5]),
                "level {level}, armed in the order {order:?}"
            );
            assert!(wheel.next().unwrap() <= at(slot + 10 * TICK));
            assert_eq!(all_expired(&mut wheel, slot + 10 * TICK), BTreeSet::from([10]));
        }
    }
}

/// A deadline further off than the wheel spans must not come to lie in the present's slot, which
/// would be looked at without end.
fn a_deadline_beyond_the_span_waits() {
    for start in [0, 1, TICK, 77 * SECOND, TURN - 1, TURN + 5 * SECOND] {
        for deadline in [start + TURN - TICK, start + TURN, start + 30 * YEAR] {
            let mut wheel = Wheel::new(at(start));
            wheel.arm(0, at(deadline));
            assert_eq!(wheel.expired(at(start + SECOND)), None);
            assert!(
                wheel.next().unwrap() > at(start + SECOND),
                "start {start}, deadline {deadline}: a wait until the next look would spin"
            );
            assert_eq!(wheel.expired(at(deadline.next_multiple_of(TICK))), Some(0));
        }
    }
}

fn the_end_of_time_is_armed_and_never_comes() {
    let mut wheel = Wheel::new(at(SECOND));
    wheel.arm(0, at(SECOND) + Duration::MAX);
    assert_eq!(wheel.expired(at(SECOND)), None);
    assert_eq!(wheel.expired(at(u64::MAX - TICK)), None);
    assert_eq!(wheel.armed(), 1);
    assert_eq!(wheel.deadline(0), Some(at(u64::MAX)));
    wheel.arm(0, at(0));
    assert_eq!(wheel.expired(at(u64::MAX)), Some(0));
}

fn a_past_deadline_fires_at_the_next_look() {
    let mut wheel = Wheel::new(at(YEAR));
    wheel.arm(1, at(0));
    assert!(wheel.next().unwrap() <= at(YEAR + TICK));
    assert_eq!(wheel.expired(at(YEAR)), Some(1));
}

/// Whoever sleeps until `next` gets to the deadline in a few looks, however far it is.
fn following_next_reaches_a_far_deadline_in_few_looks() {
    let (start, deadline) = (123 * SECOND, 9 * YEAR);
    let mut wheel = Wheel::new(at(start));
    wheel.arm(0, at(deadline));
    let mut now = start;
    for looks in 0.. {
        assert!(looks < 32, "still looking at {now}");
        let next = wheel.next().unwrap().as_nanos();
        assert!(next > now && next <= deadline.next_multiple_of(TICK));
        now = next;
        if wheel.expired(at(now)).is_some() {
            break;
        }
    }
    assert!(now >= deadline);
}

fn cancelling_tells_whether_it_was_armed() {
    let mut wheel = Wheel::new(at(0));
    assert!(!wheel.cancel(9));
    wheel.arm(9, at(SECOND));
    assert!(wheel.cancel(9));
    assert!(!wheel.cancel(9));
    assert_eq!(wheel.expired(at(YEAR)), None);
    assert_eq!(wheel.next(), None);
}

#[derive(Clone, Debug)]
enum Step {
    Arm(u32, Deadline),
    Cancel(u32),
    /// Some time passes, and nobody looks.
    Pass(u64),
    /// Takes one, as a caller does who arms and cancels between.
    Take,
    TakeAll,
}

#[derive(Clone, Debug)]
enum Deadline {
    Before(u64),
    After(u64),
    At(u64),
}

/// From a nanosecond to centuries, each order of magnitude as likely as another.
fn nanos() -> impl Strategy<Value = u64> {
    (0u32..63, any::<u64>()).prop_map(|(bits, any)| any & ((2 << bits) - 1))
}

/// What a server has: up to minutes.
fn moderate() -> impl Strategy<Value = u64> {
    prop_oneof![0..4 * TICK, 0..SECOND, 0..300 * SECOND]
}

fn deadline() -> impl Strategy<Value = Deadline> {
    prop_oneof![
        4 => moderate().prop_map(Deadline::After),
        3 => nanos().prop_map(Deadline::After),
        1 => nanos().prop_map(Deadline::Before),
        1 => (0..3 * TICK).prop_map(|before| Deadline::At(u64::MAX - before)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u32..24, deadline()).prop_map(|(key, deadline)| Step::Arm(key, deadline)),
        2 => (0u32..26).prop_map(Step::Cancel),
        3 => moderate().prop_map(Step::Pass),
        1 => nanos().prop_map(Step::Pass),
        3 => Just(Step::Take),
        2 => Just(Step::TakeAll),
    ]
}

fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        nanos(),
        (0..1000 * SECOND).prop_map(|before| TURN - before),
        (0..1000 * SECOND).prop_map(|before| u64::MAX - before),
    ]
}

proptest! {
    #![proptest_config(property(400))]

    fn does_what_a_map_does(start in start(), steps in prop::collection::vec(step(), 1..60)) {
        let mut now = start;
        let mut wheel = Wheel::new(at(now));
        // For each key, the tick at which it fires.
        let mut model = BTreeMap::<u32, u64>::new();
        for step in steps {
            match step {
                Step::Arm(key, deadline) => {
                    let deadline = match deadline {
                        Deadline::Before(nanos) => now.saturating_sub(nanos),
                        Deadline::After(nanos) => now.saturating_add(nanos),
                        Deadline::At(nanos) => nanos,
                    };
                    wheel.arm(key, at(deadline));
                    model.insert(key, deadline.div_ceil(TICK));
                }
                Step::Cancel(key) => {
                    prop_assert_eq!(wheel.cancel(key), model.remove(&key).is_some());
                }
                Step::Pass(nanos) => now = now.saturating_add(nanos),
                Step::Take => {
                    let due = model.values().any(|&tick| tick <= now / TICK);
                    let fired = wheel.expired(at(now));
                    prop_assert_eq!(fired.is_some(), due);
                    if let Some(key) = fired {
                        let tick = model.remove(&key);
                        prop_assert!(tick.is_some_and(|tick| tick <= now / TICK), "{} early", key);
                    }
                }
                Step::TakeAll => {
                    let due = take_due(&mut model, now / TICK);
                    prop_assert_eq!(all_expired(&mut wheel, now), due);
                }
            }
            prop_assert_eq!(wheel.armed(), model.len());
            prop_assert_eq!(wheel.next().is_some(), !model.is_empty());
            if let (Some(next), Some(&first)) = (wheel.next(), model.values().min()) {
                let latest = first.max(now / TICK).saturating_mul(TICK);
                prop_assert!(next.as_nanos() <= latest, "looks too late");
            }
            for key in 0..26 {
                let expected = model.get(&key).map(|tick| at(tick.saturating_mul(TICK)));
                prop_assert_eq!(wheel.deadline(key), expected);
            }
        }
    }
}

fn take_due(model: &mut BTreeMap<u32, u64>, now: u64) -> BTreeSet<u32> {
    let due = model.iter().filter(|&(_, &tick)| tick <= now);
    let due = due.map(|(&key, _)| key).collect();
    model.retain(|_, &mut tick| tick > now);
    due
}
