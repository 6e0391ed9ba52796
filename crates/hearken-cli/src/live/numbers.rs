//! Short forms of numbers.

use hearken_load::Grouped;

/// Formats the time since the start.
pub(super) fn elapsed(seconds: f64) -> String {
    match seconds {
        ..100.0 => format!("{seconds:.0} s"),
        ..6_000.0 => {
            format!("{:.0} m {:02.0} s", (seconds / 60.0).floor(), (seconds % 60.0).floor())
        }
        _ => {
            let minutes = seconds / 60.0;
            format!("{:.0} h {:02.0} m", (minutes / 60.0).floor(), (minutes % 60.0).floor())
        }
    }
}

/// Formats a rate per second.
pub(crate) fn rate(rate: f64) -> String {
    if rate >= 100.0 { Grouped(rate.round() as u64).to_string() } else { format!("{rate:.1}") }
}

/// Formats nanoseconds with three digits and a unit.
pub(crate) fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let digits = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        assert_eq!(
            [0, 999, 1_500, 45_600_000].map(time),
            ["0.00 us", "1.00 us", "1.50 us", "45.6 ms"]
        );
        assert_eq!(
            [5.0, 99.4, 125.0, 7_300.0].map(elapsed),
            ["5 s", "99 s", "2 m 05 s", "2 h 01 m"]
        );
    }
}
