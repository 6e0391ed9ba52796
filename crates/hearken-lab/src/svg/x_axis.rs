//! The horizontal axis of plots, and ticks whose labels do not overlap.

use super::{Scale, TICK_GAP, nice_step};
use crate::units::{number, tick};

/// Width of a character of a label.
const CHARACTER_WIDTH: f64 = 8.0;

/// The kind of a horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum XAxis {
    /// Time in seconds, up to `end`.
    Time { end: f64 },
    /// 1/(1 - p) for the quantile p on a logarithmic scale.
    Percentiles,
    /// A rate per second.
    Rate,
}

impl XAxis {
    /// Returns the title of the axis.
    pub(super) fn title(self) -> &'static str {
        match self {
            XAxis::Time { .. } => "time since the start, s",
            XAxis::Percentiles => "share of the replies",
            XAxis::Rate => "offered requests per second",
        }
    }

    pub(super) fn scale(self, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        match self {
            XAxis::Time { end } => Scale::linear([end].into_iter(), from, to),
            XAxis::Percentiles => {
                let high = values.fold(10.0, f64::max);
                Scale { log: true, low: 1.0, high, from, to }
            }
            XAxis::Rate => {
                // Space for the marker of the highest rate.
                let high = values.filter(|value| value.is_finite()).fold(0.0, f64::max) * 1.02;
                Scale::linear([high].into_iter(), from, to)
            }
        }
    }

    pub(super) fn ticks(self, x: &Scale) -> Vec<(f64, String)> {
        let ticks: Vec<(f64, String)> = match self {
            XAxis::Time { .. } | XAxis::Rate => {
                let step = nice_step(x.high);
                let count = (x.high / step * 1.001).floor() as u32;
                (0..=count).map(|i| f64::from(i) * step).map(|at| (at, tick(at))).collect()
            }
            XAxis::Percentiles => {
                let rarer = (1..=9).map(|nines| (10f64.powi(nines), percentage(nines)));
                let all = [(1.0, "0 %".to_owned()), (2.0, "50 %".to_owned())].into_iter();
                all.chain(rarer).filter(|(at, _)| *at <= x.high * 1.001).collect()
            }
        };
        ticks.into_iter().map(|(value, label)| (x.at(value), label)).collect()
    }

    /// Formats a value of the axis with its unit.
    pub(super) fn format(self, value: f64) -> String {
        match self {
            XAxis::Time { .. } => format!("{value:.1} s"),
            XAxis::Percentiles => {
                let places = value.log10().clamp(0.0, 9.0).floor() as usize;
                format!("{:.places$} %", 100.0 - 100.0 / value)
            }
            XAxis::Rate => format!("{} offered", number(value)),
        }
    }
}

/// Formats the quantile 1 - 10^-nines as a percentage.
fn percentage(nines: i32) -> String {
    let places = usize::try_from(nines - 2).unwrap_or(0);
    format!("{:.places$} %", 100.0 - 100.0 / 10f64.powi(nines))
}

/// Returns the ticks that do not overlap previous ones, if a pixel has the length `pixel`.
pub(super) fn spaced(
    ticks: impl IntoIterator<Item = (f64, String)>,
    pixel: f64,
) -> Vec<(f64, String)> {
    let mut spaced: Vec<(f64, String)> = Vec::new();
    for (at, label) in ticks {
        let gap = |last: &str| {
            let characters = (last.chars().count() + label.chars().count() + 1) as f64;
            TICK_GAP.max(characters * CHARACTER_WIDTH / 2.0) * pixel
        };
        if spaced.last().is_none_or(|(last, name)| at - last >= gap(name)) {
            spaced.push((at, label));
        }
    }
    spaced
}
