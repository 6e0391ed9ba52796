//! Samples of the reply rate by interval, as in httperf.

use crate::report::{Interval, Samples};

/// Minimum length of a sampled interval, as a fraction of the longest. Shorter ones, such as the
/// last, are not representative.
const MIN_LENGTH_RATIO: f64 = 0.5;

impl Samples {
    /// Summarises the replies per second in the intervals in which requests were scheduled.
    pub fn from_intervals(intervals: &[Interval]) -> Samples {
        let sending = || intervals.iter().filter(|piece| !piece.draining && piece.duration_s > 0.0);
        let longest = sending().map(|piece| piece.duration_s).fold(0.0, f64::max);
        let full = sending().filter(|piece| piece.duration_s >= longest * MIN_LENGTH_RATIO);
        Samples::from_values(full.map(|piece| piece.replies as f64 / piece.duration_s))
    }
}

#[cfg(test)]
mod tests {
    use crate::report::{Interval, Samples};

    #[test]
    fn short_and_draining_intervals_are_not_sampled() {
        let piece = |duration_s, replies, draining| Interval {
            duration_s,
            replies,
            draining,
            ..Interval::default()
        };
        let mut all = vec![piece(1.0, 100, false), piece(1.0, 300, false), piece(0.2, 1, false)];
        all.push(piece(5.0, 7, true));
        let of = Samples::from_intervals(&all);
        assert_eq!((of.count, of.mean), (2, 200.0));
        assert_eq!(Samples::from_intervals(&all[2..]).mean, 5.0);
        assert_eq!(Samples::from_intervals(&[piece(0.0, 1, false)]), Samples::default());
    }
}
