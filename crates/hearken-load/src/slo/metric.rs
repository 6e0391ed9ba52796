//! The metrics of objectives, and their limits.

use std::fmt;
use std::str::FromStr;

/// A metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Metric {
    /// A time.
    Time(TimeMetric, Statistic),
    /// The ratio of failed or unfinished requests.
    Errors,
    /// The ratio of requests that the generator could not send.
    Missed,
    /// Replies per second, or the ratio of requests with a reply.
    Rate,
    /// The ratio of idle connections that are established.
    Idle,
}

/// A measured time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimeMetric {
    /// Time from the scheduled time of a request to the end of its reply.
    Latency,
    /// Time from sending a request to the end of its reply.
    Service,
    /// Time to open a connection.
    Connect,
}

/// A statistic of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Statistic {
    /// A percentile.
    Percentile(Percentile),
    /// The mean.
    Mean,
    /// The maximum.
    Max,
}

/// A percentile above 0 and below 100, stored exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Percentile {
    /// Billionths of the total.
    billionths: u32,
}

/// Maximum number of decimals of a percentile.
const MAX_DECIMALS: usize = 7;
const SCALE: u32 = 1_000_000_000;

impl Percentile {
    /// Returns the rank of the percentile among `count` ordered values, from 1.
    pub(super) fn rank(self, count: u64) -> u64 {
        let rank = (u128::from(self.billionths) * u128::from(count)).div_ceil(SCALE.into());
        // The result is at most `count`.
        u64::try_from(rank).unwrap_or(u64::MAX)
    }
}

/// The unit of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// `ns`
    Nanos,
    /// `us`
    Micros,
    /// `ms`
    Millis,
    /// `s`
    Seconds,
    /// `%`
    Percent,
    /// No unit: a ratio of 1.
    Ratio,
    /// `/s`
    PerSecond,
}

impl Unit {
    const ALL: [(Unit, &str); 7] = [
        (Unit::Nanos, "ns"),
        (Unit::Micros, "us"),
        (Unit::Millis, "ms"),
        (Unit::Seconds, "s"),
        (Unit::Percent, "%"),
        (Unit::Ratio, ""),
        (Unit::PerSecond, "/s"),
    ];

    /// Converts to nanoseconds, a ratio, or a rate per second.
    pub(super) fn to_base(self, number: f64) -> f64 {
        match self {
            Unit::Nanos | Unit::Ratio | Unit::PerSecond => number,
            Unit::Micros => number * 1e3,
            Unit::Millis => number * 1e6,
            Unit::Seconds => number * 1e9,
            Unit::Percent => number / 100.0,
        }
    }
}

/// Maximum time that histograms record exactly, in nanoseconds.
const MAX_NANOS: f64 = 3.6e12;

impl Metric {
    /// Parses a limit of the metric.
    pub(super) fn parse_limit(self, text: &str) -> Result<(f64, Unit), String> {
        let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(at);
        if number.is_empty() {
            return Err(match text {
                "" => "missing limit after the comparison".to_owned(),
                _ => format!("invalid limit '{text}': expected a number first"),
            });
        }
        let value: f64 = match number.parse() {
            Ok(value) if number.len() <= 20 => value,
            _ => return Err(format!("invalid number '{number}'")),
        };
        let unit = unit.trim();
        let Some(&(unit, _)) = Unit::ALL.iter().find(|(_, name)| *name == unit) else {
            return Err(format!("unknown unit '{unit}'; {}", self.units()));
        };
        let fits = match self {
            Metric::Time(..) => {
                matches!(unit, Unit::Nanos | Unit::Micros | Unit::Millis | Unit::Seconds)
            }
            Metric::Errors | Metric::Missed | Metric::Idle => {
                matches!(unit, Unit::Percent | Unit::Ratio)
            }
            Metric::Rate => matches!(unit, Unit::Percent | Unit::Ratio | Unit::PerSecond),
        };
        let whole = unit.to_base(value);
        match unit {
            _ if !fits => Err(self.units().to_owned()),
            Unit::PerSecond => Ok((value, unit)),
            Unit::Percent | Unit::Ratio if whole > 1.0 => {
                Err(format!("{number} is more than 100 %; {}", self.units()))
            }
            Unit::Percent | Unit::Ratio => Ok((value, unit)),
            _ if whole >= MAX_NANOS => Err("times must be below one hour".to_owned()),
            _ => Ok((value, unit)),
        }
    }

    fn units(self) -> &'static str {
        match self {
            Metric::Time(..) => "expected a time with a unit: ns, us, ms or s",
            Metric::Errors | Metric::Missed | Metric::Idle => {
                "expected a ratio such as 0.1% or 0.001"
            }
            Metric::Rate => "expected a rate such as 990/s, or a ratio such as 99% or 0.99",
        }
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Metric, String> {
        let (times, statistic) = match text.split_once('.') {
            Some(("service", statistic)) => (TimeMetric::Service, statistic),
            Some(("connect", statistic)) => (TimeMetric::Connect, statistic),
            Some(("latency", statistic)) => (TimeMetric::Latency, statistic),
            _ => (TimeMetric::Latency, text),
        };
        let statistic = match (statistic, text) {
            ("mean", _) => Statistic::Mean,
            ("max", _) => Statistic::Max,
            (_, "errors") => return Ok(Metric::Errors),
            (_, "missed") => return Ok(Metric::Missed),
            (_, "rate") => return Ok(Metric::Rate),
            (_, "idle") => return Ok(Metric::Idle),
            _ => match statistic.strip_prefix('p') {
                Some(percent) if percent.starts_with(|c: char| c.is_ascii_digit()) => {
                    Statistic::Percentile(percent.parse()?)
                }
                _ => {
                    return Err(format!(
                        "unknown metric '{text}'; available are p50, p99, p99.9 and so on, mean, max, \
                         service.p99, connect.p99 and so on, errors, missed, rate, idle"
                    ));
                }
            },
        };
        Ok(Metric::Time(times, statistic))
    }
}

impl FromStr for Percentile {
    type Err = String;

    fn from_str(text: &str) -> Result<Percentile, String> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let part = part.trim_end_matches('0');
        if !all_digits(whole) || !all_digits(part) || whole.len() > 3 || text.ends_with('.') {
            return Err(format!("invalid percentile 'p{text}'; expected one such as p99 or p99.9"));
        }
        if part.len() > MAX_DECIMALS {
            return Err(format!("percentile 'p{text}' has more than {MAX_DECIMALS} decimals"));
        }
        // At most ten digits, because there are at most three before the point.
        let billionths: u64 = format!("{whole}{part:0<MAX_DECIMALS$}").parse().unwrap_or(u64::MAX);
        match u32::try_from(billionths) {
            Ok(billionths @ 1..SCALE) => Ok(Percentile { billionths }),
            Ok(0) => Err("percentile 0 is not defined; use a value above 0".to_owned()),
            _ => Err(format!("percentile 'p{text}' is not below 100; use max for the maximum")),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (times, statistic) = match self {
            Metric::Errors => return f.write_str("errors"),
            Metric::Missed => return f.write_str("missed"),
            Metric::Rate => return f.write_str("rate"),
            Metric::Idle => return f.write_str("idle"),
            Metric::Time(times, statistic) => (times, statistic),
        };
        f.write_str(match times {
            TimeMetric::Latency => "",
            TimeMetric::Service => "service.",
            TimeMetric::Connect => "connect.",
        })?;
        match statistic {
            Statistic::Mean => f.write_str("mean"),
            Statistic::Max => f.write_str("max"),
            Statistic::Percentile(percentile) => percentile.fmt(f),
        }
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.billionths / (SCALE / 100), self.billionths % (SCALE / 100));
        write!(f, "p{whole}")?;
        match part {
            0 => Ok(()),
            _ => write!(f, ".{}", format!("{part:0MAX_DECIMALS$}").trim_end_matches('0')),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Unit::ALL.iter().find(|(unit, _)| unit == self).map_or("", |(_, name)| name))
    }
}
