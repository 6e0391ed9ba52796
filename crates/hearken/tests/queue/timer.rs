//! The timing wheel and the scan of deadlines, compared with a map: the timers that fire, their
//! times, and the next expiry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hearken::timer::{Time, TimerPolicy, Wheel};
use proptest::prelude::*;

use crate::suite::{Tests, property, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        fires_once_at_the_first_tick_after_the_deadline
        a_slot_returns_only_timers_that_are_due
        a_deadline_beyond_the_span_of_the_wheel_waits
        the_maximum_deadline_never_fires
        a_past_deadline_fires_immediately
        following_next_reaches_a_distant_deadline_in_few_steps
        cancelling_returns_whether_a_timer_was_armed
        matches_the_model
    }
}

const TICK: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const YEAR: u64 = 365 * 24 * 3600 * SECOND;
/// Nanoseconds of a full rotation of the wheel.
const TURN: u64 = 1 << 56;

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

/// Takes all expired timers.
fn all_expired(wheel: &mut Wheel, now: u64) -> BTreeSet<u32> {
    let mut fired = BTreeSet::new();
    while let Some(key) = wheel.pop_expired(at(now)) {
        assert!(fired.insert(key), "{key} fired twice");
    }
    fired
}

fn fires_once_at_the_first_tick_after_the_deadline() {
    let start = 5 * SECOND + 1;
    for deadline in [start, start + 1, start + 3 * TICK, start + YEAR] {
        let fires = deadline.next_multiple_of(TICK);
        let mut wheel = Wheel::new(at(start));
        wheel.arm(3, at(deadline));
        assert_eq!(wheel.pop_expired(at(fires - 1)), None, "deadline {deadline}");
        assert_eq!(wheel.pop_expired(at(fires)), Some(3), "deadline {deadline}");
        assert_eq!(wheel.pop_expired(at(fires + YEAR)), None);
        assert_eq!(wheel.armed(), 0);
    }
}

/// Checks that two timers in one slot of a higher level fire separately.
fn a_slot_returns_only_timers_that_are_due() {
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
            assert!(wheel.next_deadline().unwrap() <= at(slot + 10 * TICK));
            assert_eq!(all_expired(&mut wheel, slot + 10 * TICK), BTreeSet::from([10]));
        }
    }
}

/// Checks that a deadline beyond the span of the wheel is not stored in the current slot, which
/// would be scanned repeatedly.
fn a_deadline_beyond_the_span_of_the_wheel_waits() {
    for start in [0, 1, TICK, 77 * SECOND, TURN - 1, TURN + 5 * SECOND] {
        for deadline in [start + TURN - TICK, start + TURN, start + 30 * YEAR] {
            let mut wheel = Wheel::new(at(start));
            wheel.arm(0, at(deadline));
            assert_eq!(wheel.pop_expired(at(start + SECOND)), None);
            assert!(
                wheel.next_deadline().unwrap() > at(start + SECOND),
                "start {start}, deadline {deadline}: a wait until the next expiry would not sleep"
            );
            assert_eq!(wheel.pop_expired(at(deadline.next_multiple_of(TICK))), Some(0));
        }
    }
}

fn the_maximum_deadline_never_fires() {
    let mut wheel = Wheel::new(at(SECOND));
    wheel.arm(0, at(SECOND) + Duration::MAX);
    assert_eq!(wheel.pop_expired(at(SECOND)), None);
    assert_eq!(wheel.pop_expired(at(u64::MAX - TICK)), None);
    assert_eq!(wheel.armed(), 1);
    assert_eq!(wheel.deadline(0), Some(at(u64::MAX)));
    wheel.arm(0, at(0));
    assert_eq!(wheel.pop_expired(at(u64::MAX)), Some(0));
}

fn a_past_deadline_fires_immediately() {
    let mut wheel = Wheel::new(at(YEAR));
    wheel.arm(1, at(0));
    assert!(wheel.next_deadline().unwrap() <= at(YEAR + TICK));
    assert_eq!(wheel.pop_expired(at(YEAR)), Some(1));
}

/// Checks that sleeping until `next` reaches any deadline in a few steps.
fn following_next_reaches_a_distant_deadline_in_few_steps() {
    let (start, deadline) = (123 * SECOND, 9 * YEAR);
    let mut wheel = Wheel::new(at(start));
    wheel.arm(0, at(deadline));
    let mut now = start;
    for steps in 0.. {
        assert!(steps < 32, "no expiry at {now}");
        let next = wheel.next_deadline().unwrap().as_nanos();
        assert!(next > now && next <= deadline.next_multiple_of(TICK));
        now = next;
        if wheel.pop_expired(at(now)).is_some() {
            break;
        }
    }
    assert!(now >= deadline);
}

fn cancelling_returns_whether_a_timer_was_armed() {
    let mut wheel = Wheel::new(at(0));
    assert!(!wheel.cancel(9));
    wheel.arm(9, at(SECOND));
    assert!(wheel.cancel(9));
    assert!(!wheel.cancel(9));
    assert_eq!(wheel.pop_expired(at(YEAR)), None);
    assert_eq!(wheel.next_deadline(), None);
}

#[derive(Clone, Debug)]
enum Step {
    Arm(u32, Deadline),
    Cancel(u32),
    /// Lets time pass without taking timers.
    Pass(u64),
    /// Takes one timer.
    Take,
    TakeAll,
}

#[derive(Clone, Debug)]
enum Deadline {
    Before(u64),
    After(u64),
    At(u64),
}

/// Generates durations from a nanosecond to centuries, each order of magnitude with equal
/// probability.
fn nanos() -> impl Strategy<Value = u64> {
    (0u32..63, any::<u64>()).prop_map(|(bits, any)| any & ((2 << bits) - 1))
}

/// Generates durations as in servers, up to minutes.
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

fn policy() -> impl Strategy<Value = TimerPolicy> {
    prop_oneof![Just(TimerPolicy::Wheel), Just(TimerPolicy::Scan)]
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

    fn matches_the_model(
        policy in policy(), start in start(), steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut now = start;
        let mut wheel = Wheel::with_policy(at(now), policy);
        // The ticks at which timers fire, by key.
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
                    let fired = wheel.pop_expired(at(now));
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
            prop_assert_eq!(wheel.next_deadline().is_some(), !model.is_empty());
            if let (Some(next), Some(&first)) = (wheel.next_deadline(), model.values().min()) {
                let latest = first.max(now / TICK).saturating_mul(TICK);
                prop_assert!(next.as_nanos() <= latest, "the next expiry is too late");
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
