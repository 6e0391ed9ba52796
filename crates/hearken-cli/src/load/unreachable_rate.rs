//! An early warning about a rate that the generator cannot reach.

use hearken_load::{Grouped, Snapshot};

/// Warns once.
#[derive(Default)]
pub(super) struct UnreachableRate {
    warned: bool,
}

impl UnreachableRate {
    /// Returns a warning after the first interval in which the generator skipped requests.
    pub(super) fn check(&mut self, now: &Snapshot) -> Option<String> {
        let interval = &now.interval;
        if self.warned || now.missed.generator == 0 || interval.duration_s <= 0.0 {
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
        now.missed.generator = 358_000;
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
