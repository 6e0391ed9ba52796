//! The horizontal axis of a line chart, and lines without markers.

use maud::{Markup, html};

use super::{ON_WHITE, Scale, Series, TICK_GAP, nice_step, px};
use crate::units::{number, tick};

/// Width of a character of a label.
const CHARACTER_WIDTH: f64 = 8.0;

/// The kind of a horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XAxis {
    /// Measured values. They are the ticks, and each point has a marker.
    Values,
    /// Time in seconds.
    Time,
    /// 1/(1 - p) for the quantile p on a logarithmic scale.
    Percentiles,
}

impl XAxis {
    pub(super) fn has_markers(self) -> bool {
        self == XAxis::Values
    }

    pub(super) fn scale(self, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        match self {
            XAxis::Values => Scale::linear(values, from + 14.0, to - 18.0),
            XAxis::Time => Scale::linear(values, from, to),
            XAxis::Percentiles => {
                let high = values.fold(10.0, f64::max);
                Scale { log: true, low: 1.0, high, from, to }
            }
        }
    }

    pub(super) fn ticks(self, values: impl Iterator<Item = f64>, x: &Scale) -> Vec<(f64, String)> {
        let ticks: Vec<(f64, String)> = match self {
            XAxis::Values => {
                let mut values: Vec<f64> = values.collect();
                values.sort_by(f64::total_cmp);
                values.dedup();
                values.into_iter().map(|value| (value, number(value))).collect()
            }
            XAxis::Time => {
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
        let mut spaced: Vec<(f64, String)> = Vec::new();
        for (value, label) in ticks {
            let at = x.at(value);
            let gap = |last: &str| {
                TICK_GAP.max((last.len() + label.len() + 1) as f64 * CHARACTER_WIDTH / 2.0)
            };
            if spaced.last().is_none_or(|(last, name)| at - last >= gap(name)) {
                spaced.push((at, label));
            }
        }
        spaced
    }
}

/// Formats the quantile 1 - 10^-nines as a percentage.
fn percentage(nines: i32) -> String {
    let places = usize::try_from(nines - 2).unwrap_or(0);
    format!("{:.places$} %", 100.0 - 100.0 / 10f64.powi(nines))
}

/// Renders a line without markers, interrupted at missing values.
pub(super) fn draw_line(series: &Series, x: &Scale, y: &Scale) -> Markup {
    let colour = format!("c{}", series.style % ON_WHITE.len());
    let segments = series.points.split(|point| !point.y.is_finite());
    let path = |segment: &[super::Point]| {
        let at = |p: &super::Point| format!("{},{}", px(x.at(p.x)), px(y.at(p.y)));
        let mut path: Vec<String> = segment.iter().map(at).collect();
        // A line of length zero is drawn as a dot.
        if let [only] = &path[..] {
            path.push(only.clone());
        }
        path.join(" ")
    };
    html! {
        @for segment in segments.filter(|segment| !segment.is_empty()) {
            polyline class=(format!("l r {colour}")) points=(path(segment)) {}
        }
    }
}
