//! The time of day, which jumps.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hearken::io::sim::Host;
use hearken::timer::Time;

use crate::scheduler::Program;

/// The time of day in the course of a history. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Clock(Rc<RefCell<Vec<Step>>>);

/// A time of day from which the clock runs evenly until the next step.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: Time,
    unix_time: Duration,
}

/// Maximum duration of a turn of a worker, which reads the time of day at its start.
const MAX_TURN: Duration = Duration::from_secs(1);

impl Clock {
    /// Returns the clock of a host that was not changed so far.
    pub(super) fn new(host: &Host) -> Clock {
        let first = Step { at: host.world().now(), unix_time: host.unix_time() };
        Clock(Rc::new(RefCell::new(vec![first])))
    }

    fn set(&self, host: &Host, unix_time: Duration) {
        host.world().set_unix_time(unix_time);
        self.0.borrow_mut().push(Step { at: host.world().now(), unix_time });
    }

    /// Returns whether the clock was ever changed.
    pub(super) fn has_jumped(&self) -> bool {
        self.0.borrow().len() > 1
    }

    /// Returns whether the time of day was `seconds` in a turn between `from` and `until`.
    pub(super) fn had(&self, seconds: u64, from: Time, until: Time) -> bool {
        let steps = self.0.borrow();
        let from = Duration::from_nanos(from.as_nanos()).saturating_sub(MAX_TURN);
        steps.iter().enumerate().any(|(index, step)| {
            let start = Duration::from_nanos(step.at.as_nanos());
            let next = steps.get(index + 1).map_or(until, |next| next.at.min(until));
            let end = Duration::from_nanos(next.as_nanos());
            let first = from.max(start);
            let seconds_at = |time: Duration| (step.unix_time + (time - start)).as_secs();
            first <= end && (seconds_at(first)..=seconds_at(end)).contains(&seconds)
        })
    }
}

/// Sets the time of day at drawn times.
pub(super) fn change(program: Program<'_>, clock: &Clock) {
    let (host, world) = (program.host(), program.host().world());
    let draw = |values: &[u64]| values[world.decide(values.len() as u32) as usize];
    for _ in 0..draw(&[0, 0, 0, 1, 4]) {
        program.sleep_until(world.now() + Duration::from_millis(draw(&[1, 20, 300, 5_000])));
        let jump = Duration::from_millis(draw(&[1_000, 1, 3_600_000, 400 * 24 * 3_600_000]));
        let now = host.unix_time();
        let is_forward = draw(&[0, 1]) == 0;
        clock.set(host, if is_forward { now + jump } else { now.saturating_sub(jump) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_times_of_day_of_a_period() {
        let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        let step = |time, unix| Step { at: at(time), unix_time: Duration::from_secs(unix) };
        let clock = Clock(Rc::new(RefCell::new(vec![step(10, 500), step(20, 100)])));
        assert!(clock.had(503, at(13), at(14)) && clock.had(504, at(13), at(14)));
        assert!(!clock.had(505, at(13), at(14)) && !clock.had(501, at(13), at(14)));
        assert!(clock.had(509, at(19), at(21)) && clock.had(101, at(19), at(21)));
        assert!(!clock.had(511, at(19), at(21)) && !clock.had(102, at(19), at(21)));
    }
}
