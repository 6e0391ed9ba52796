//! What an objective can be about, and the limits that it can have.

use std::fmt;
use std::str::FromStr;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// A time.
    Times(Times, Statistic),
    /// The share of the requests that have no reply.
    Errors,
    /// Replies per second, or the share of the requests that they answer.
    Rate,
    /// The share of the idle connections that were held.
    Idle,
}

/// Which times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// From when a request was intended to the end of its reply.
    Latency,
    /// From when it was sent.
    Service,
    /// To connect.
    Connect,
}

/// What of their distribution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Statistic {
    /// The time that a share of them does not exceed.
    Percentile(Percentile),
    /// Their mean.
    Mean,
    /// The longest.
    Max,
}

/// More than 0 and less than 100 %, exactly as it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Percentile {
    /// In billionths of the whole.
    billionths: u32,
}

/// Digits after the point that a percentile may have.
const DIGITS: usize = 7;
const WHOLE: u32 = 1_000_000_000;

impl Percentile {
    /// Which of `count` values, from 1 on and in order, is the least that so many do not exceed.
    pub(super) fn rank(self, count: u64) -> u64 {
        let rank = (u128::from(self.billionths) * u128::from(count)).div_ceil(WHOLE.into());
        // No more than the count.
        u64::try_from(rank).unwrap_or(u64::MAX)
    }
}

/// What a limit is given in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
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
    /// None: of 1.
    Share,
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
        (Unit::Share, ""),
        (Unit::PerSecond, "/s"),
    ];

    /// In nanoseconds, as a share, or per second.
    pub(super) fn whole(self, number: f64) -> f64 {
        match self {
            Unit::Nanos | Unit::Share | Unit::PerSecond => number,
            Unit::Micros => number * 1e3,
            Unit::Millis => number * 1e6,
            Unit::Seconds => number * 1e9,
            Unit::Percent => number / 100.0,
        }
    }
}

/// What is longer is recorded as this.
const HOUR_NS: f64 = 3.6e12;

impl Figure {
    /// Reads a limit of it.
    pub(super) fn limit(self, text: &str) -> Result<(f64, Unit), String> {
        let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(at);
        if number.is_empty() {
            return Err(match text {
                "" => "it has no limit after the comparison".to_owned(),
                _ => format!("{text:?} is no limit: it does not begin with a number"),
            });
        }
        let value: f64 = match number.parse() {
            Ok(value) if number.len() <= 20 => value,
            _ => return Err(format!("{number:?} is no number that could be a limit")),
        };
        let unit = unit.trim();
        let Some(&(unit, _)) = Unit::ALL.iter().find(|(_, name)| *name == unit) else {
            return Err(format!("unknown unit {unit:?}; {}", self.units()));
        };
        let fits = match self {
            Figure::Times(..) => {
                matches!(unit, Unit::Nanos | Unit::Micros | Unit::Millis | Unit::Seconds)
            }
            Figure::Errors | Figure::Idle => matches!(unit, Unit::Percent | Unit::Share),
            Figure::Rate => matches!(unit, Unit::Percent | Unit::Share | Unit::PerSecond),
        };
        let whole = unit.whole(value);
        match unit {
            _ if !fits => Err(self.units().to_owned()),
            Unit::PerSecond => Ok((value, unit)),
            Unit::Percent | Unit::Share if whole > 1.0 => {
                Err(format!("{number} is more than the whole; {}", self.units()))
            }
            Unit::Percent | Unit::Share => Ok((value, unit)),
            _ if whole >= HOUR_NS => Err("times are told apart up to an hour".to_owned()),
            _ => Ok((value, unit)),
        }
    }

    fn units(self) -> &'static str {
        match self {
            Figure::Times(..) => "a time has a unit: ns, us, ms or s",
            Figure::Errors | Figure::Idle => "a share is written as 0.1% or 0.001",
            Figure::Rate => "a rate is written as 990/s, or as a share: 99% or 0.99",
        }
    }
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(text: &str) -> Result<Figure, String> {
        let (times, statistic) = match text.split_once('.') {
            Some(("service", statistic)) => (Times::Service, statistic),
            Some(("connect", statistic)) => (Times::Connect, statistic),
            Some(("latency", statistic)) => (Times::Latency, statistic),
            _ => (Times::Latency, text),
        };
        let statistic = match (statistic, text) {
            ("mean", _) => Statistic::Mean,
            ("max", _) => Statistic::Max,
            (_, "errors") => return Ok(Figure::Errors),
            (_, "rate") => return Ok(Figure::Rate),
            (_, "idle") => return Ok(Figure::Idle),
            _ => match statistic.strip_prefix('p') {
                Some(percent) if percent.starts_with(|c: char| c.is_ascii_digit()) => {
                    Statistic::Percentile(percent.parse()?)
                }
                _ => {
                    return Err(format!(
                        "unknown figure {text:?}; there are p50, p99, p99.9 and so on, mean, max, \
                         service.p99, connect.p99 and so on, errors, rate, idle"
                    ));
                }
            },
        };
        Ok(Figure::Times(times, statistic))
    }
}

impl FromStr for Percentile {
    type Err = String;

    fn from_str(text: &str) -> Result<Percentile, String> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let part = part.trim_end_matches('0');
        if !all_digits(whole) || !all_digits(part) || whole.len() > 3 || text.ends_with('.') {
            return Err(format!("p{text} is no percentile; write one such as p99 or p99.9"));
        }
        if part.len() > DIGITS {
            return Err(format!("p{text} has more than {DIGITS} digits after the point"));
        }
        // At most ten digits, of which the first three make no more than 999.
        let billionths: u64 = format!("{whole}{part:0<DIGITS$}").parse().unwrap_or(u64::MAX);
        match u32::try_from(billionths) {
            Ok(billionths @ 1..WHOLE) => Ok(Percentile { billionths }),
            Ok(0) => Err("there is no percentile 0".to_owned()),
            _ => Err(format!("p{text} is not below 100; the longest is max")),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (times, statistic) = match self {
            Figure::Errors => return f.write_str("errors"),
            Figure::Rate => return f.write_str("rate"),
            Figure::Idle => return f.write_str("idle"),
            Figure::Times(times, statistic) => (times, statistic),
        };
        f.write_str(match times {
            Times::Latency => "",
            Times::Service => "service.",
            Times::Connect => "connect.",
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
        let (whole, part) = (self.billionths / (WHOLE / 100), self.billionths % (WHOLE / 100));
        write!(f, "p{whole}")?;
        match part {
            0 => Ok(()),
            _ => write!(f, ".{}", format!("{part:0DIGITS$}").trim_end_matches('0')),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Unit::ALL.iter().find(|(unit, _)| unit == self).map_or("", |(_, name)| name))
    }
}
