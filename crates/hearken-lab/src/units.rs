//! Number formatting: three significant digits, with a unit if the heading has none.

/// Formats a number with three significant digits and all digits of the integer part, grouped.
pub(crate) fn number(value: f64) -> String {
    with_decimals(value, decimals(value))
}

/// Formats a mean and its margin of error with the same number of decimals.
pub(crate) fn with_margin(mean: f64, margin: Option<f64>) -> String {
    let margin = margin.map(|m| format!(" ± {}", with_decimals(m, decimals(mean))));
    number(mean) + &margin.unwrap_or_default()
}

fn decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 99.95 || v == 0.0 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.995 => 2,
        _ => 3,
    }
}

fn with_decimals(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (integer, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    group(integer) + fraction
}

/// Groups thousands: 12345 becomes "12,345".
fn group(integer: &str) -> String {
    let (sign, digits) = integer.split_at(usize::from(integer.starts_with('-')));
    let mut grouped = String::from(sign);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a count with grouped thousands.
pub(crate) fn count(value: u64) -> String {
    group(&value.to_string())
}

/// Formats a time in milliseconds with three significant digits, also if it is short.
pub(crate) fn milliseconds(millis: f64) -> String {
    match millis.abs() {
        value if value > 0.0 && value < 0.0995 => {
            // Times have a resolution of a nanosecond.
            with_decimals(millis, ((2.0 - value.log10().floor()) as usize).min(6))
        }
        _ => number(millis),
    }
}

/// Formats an axis tick: 2000000 as "2M", 0.5 as "0.5".
pub(crate) fn tick(value: f64) -> String {
    for (unit, name) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value.abs() >= unit {
            return format!("{}{name}", round(value / unit));
        }
    }
    round(value)
}

/// Formats an axis tick without a unit prefix: 2000 as "2,000".
pub(crate) fn grouped_tick(value: f64) -> String {
    let text = round(value);
    let (integer, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    group(integer) + fraction
}

/// Formats with at most six decimals and no trailing zeros. Axis steps are 1, 2 or 5.
fn round(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Formats nanoseconds as a duration with its unit.
pub(crate) fn duration(nanos: f64) -> String {
    match nanos {
        ns if ns < 1e6 => format!("{} µs", number(micros(ns))),
        ns if ns < 1e9 => format!("{} ms", number(ns / 1e6)),
        ns => format!("{} s", number(ns / 1e9)),
    }
}

/// Converts nanoseconds to microseconds.
pub(crate) fn micros(ns: f64) -> f64 {
    ns / 1e3
}

/// Converts nanoseconds to milliseconds.
pub(crate) fn millis(ns: f64) -> f64 {
    ns / 1e6
}

/// Converts bytes to mebibytes.
pub(crate) fn mebibytes(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_numbers_with_three_digits() {
        let formatted =
            [0.0, 0.0123, 1.5, 12.34, 99.96, 123.4, 1234.5, 1_234_567.0, -1234.0].map(number);
        assert_eq!(
            formatted,
            ["0", "0.012", "1.50", "12.3", "100", "123", "1,234", "1,234,567", "-1,234"]
        );
        assert_eq!(count(8000), "8,000");
        assert_eq!(with_margin(34.93, Some(1.704)), "34.9 ± 1.7");
        assert_eq!(with_margin(34.93, None), "34.9");
    }

    #[test]
    fn formats_short_times_with_three_digits() {
        let formatted = [0.0, 0.000_001, 0.012_34, 0.0996, 0.5, 12.34, 12_345.6].map(milliseconds);
        assert_eq!(formatted, ["0", "0.000001", "0.0123", "0.100", "0.500", "12.3", "12,346"]);
        assert_eq!(
            [0.001, 0.5, 20.0, 20_000.0].map(grouped_tick),
            ["0.001", "0.5", "20", "20,000"]
        );
    }

    #[test]
    fn formats_ticks_with_unit_prefixes() {
        let formatted = [0.0, 0.5, 20.0, 1000.0, 2500.0, 5e6, 1e9].map(tick);
        assert_eq!(formatted, ["0", "0.5", "20", "1k", "2.5k", "5M", "1G"]);
    }
}
