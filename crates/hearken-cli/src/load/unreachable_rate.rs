//! An early warning about a rate that the generator cannot reach.

use hearken_load::{Grouped, Snapshot};

/// Warns once.
#[derive(Default)]
pub(super) struct UnreachableRate {
    warned: bool,
    /// Number of connections at the end of the last interval.
    connections: u64,
}

/// Growth of the number of connections, relative to the requests sent, above which an interval does
/// not show what the machine can send: opening a connection takes longer than sending a request.
const MAX_GROWTH: f64 = 0.1;

impl UnreachableRate {
    /// Returns a warning after the first interval in which the generator skipped requests, although
    /// most of them needed no further connection.
    pub(super) fn check(&mut self, now: &Snapshot) -> Option<String> {
        let interval = &now.interval;
        let before = std::mem::replace(&mut self.connections, now.connections);
        let growth = now.connections.saturating_sub(before) as f64;
        let skipped = interval.missed > 0 && now.missed.generator > 0;
        if self.warned
            || !skipped
            || interval.duration_s <= 0.0
            || growth > interval.sent as f64 * MAX_GROWTH
        {
            return None;
        }
        self.warned = true;
        let [sent, offered] =
            [interval.sent, interval.scheduled].map(|count| count as f64 / interval.duration_s);
        let [sent, offered] = [sent, offered].map(|rate| Grouped(round(rate)));
        Some(format!("this machine can send about {sent} requests/s of the {offered}/s offered"))
    }
}

/// Rounds to two significant digits.
fn round(rate: f64) -> u64 {
    let rate = rate.round() as u64;
    let mut unit = 1;
    while rate / unit >= 100 {
        unit *= 10;
    }
    rate.saturating_add(unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_once_after_the_first_interval_with_skipped_requests() {
        let mut rate = UnreachableRate::default();
        let mut now = Snapshot::default();
        (now.interval.duration_s, now.interval.sent, now.interval.scheduled) =
            (2.0, 243_210, 601_234);
        assert_eq!(rate.check(&now), None);
        (now.missed.generator, now.interval.missed, now.connections) = (358_000, 358_000, 60_000);
        assert_eq!(rate.check(&now), None, "connections were opened");
        let expected = "this machine can send about 120,000 requests/s of the 300,000/s offered";
        assert_eq!(rate.check(&now).as_deref(), Some(expected));
        assert_eq!(rate.check(&now), None);
    }

    #[test]
    fn rates_are_rounded_to_two_digits() {
        assert_eq!([0.0, 7.4, 94.6, 149.0, 99_600.0].map(round), [0, 7, 95, 150, 100_000]);
        round(f64::INFINITY);
    }
}
