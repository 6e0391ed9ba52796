//! Plots against the offered rate, for loads in steps and for sweeps.

use crate::svg::line_plot::{self, Line, Sample, Stroke, YAxis};
use crate::svg::plot::{Plot, standalone};
use crate::svg::{LIGHT, XAxis};

/// A value measured at an offered rate.
#[derive(Clone, Debug, PartialEq)]
pub struct RatePoint {
    /// Offered requests per second.
    pub offered: f64,
    /// Measured value. NaN if there is none.
    pub value: f64,
    /// Lower bound of the confidence interval, or the value.
    pub low: f64,
    /// Upper bound of the confidence interval, or the value.
    pub high: f64,
    /// Description, shown with the value while the pointer is above it. May be empty.
    pub label: String,
}

/// Renders the replies per second at each offered rate as an SVG document. A line connects the
/// points in the given order.
pub fn replies_svg(points: &[RatePoint]) -> String {
    standalone("Replies by offered rate", &[replies(points)], &LIGHT)
}

/// Renders the 99th percentile of latency in milliseconds at each offered rate as an SVG document.
/// A line connects the points in the given order.
pub fn latency_svg(points: &[RatePoint]) -> String {
    standalone("Latency by offered rate", &[latency(points)], &LIGHT)
}

/// Creates the plot of replies per second.
pub(crate) fn replies(points: &[RatePoint]) -> Plot {
    let highest = points.iter().map(|point| point.offered).fold(0.0, f64::max);
    let ideal = [0.0, highest].map(|rate| Sample { x: rate, y: rate, ..Sample::default() });
    let ideal =
        Line { name: "offered", style: 6, stroke: Stroke::Reference, samples: ideal.to_vec() };
    let lines = [ideal, line("replies", 3, points)];
    line_plot::plot("Replies per second", XAxis::Rate, YAxis::NUMBER, &lines)
}

/// Creates the plot of the 99th percentile of latency.
pub(crate) fn latency(points: &[RatePoint]) -> Plot {
    let lines = [line("p99", 1, points)];
    line_plot::plot("Latency, ms", XAxis::Rate, YAxis::MILLISECONDS, &lines)
}

/// Creates a line with a marker at each point.
pub(crate) fn line(name: &'static str, style: usize, points: &[RatePoint]) -> Line {
    let sample = |point: &RatePoint| Sample {
        x: point.offered,
        y: point.value,
        range: Some((point.low, point.high)),
        label: point.label.clone(),
    };
    let valid = |point: &&RatePoint| point.offered.is_finite() && point.offered >= 0.0;
    let samples = points.iter().filter(valid).map(sample).collect();
    Line { name, style, stroke: Stroke::Marked, samples }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Vec<RatePoint> {
        let point = |offered: f64, value: f64, label: &str| RatePoint {
            offered,
            value,
            low: value * 0.98,
            high: value * 1.02,
            label: label.to_owned(),
        };
        vec![point(500.0, 500.0, "step 1"), point(1000.0, 900.0, "<2>"), point(2000.0, 850.0, "")]
    }

    #[test]
    fn points_have_markers_intervals_and_labels() {
        let svg = replies_svg(&points());
        for text in [
            "500 offered (step 1): replies 500 (490 to 510)",
            "1,000 offered (&lt;2&gt;): replies 900 (882 to 918)",
            "2,000 offered: replies 850 (833 to 867)",
            "offered requests per second",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("offered 500"), "the reference line has no values: {svg}");
        assert!(latency_svg(&points()).contains(">Latency, ms (logarithmic)<"));
    }

    #[test]
    fn any_points_have_a_plot() {
        let invalid = |offered, value| RatePoint {
            offered,
            value,
            low: f64::NAN,
            high: f64::INFINITY,
            label: String::new(),
        };
        let all = [(f64::NAN, 1.0), (f64::INFINITY, 1.0), (-1.0, 1.0), (1.0, f64::NAN), (0.0, 0.0)];
        let all = all.map(|(offered, value)| invalid(offered, value));
        for points in [&all[..], &all[4..], &[]] {
            for svg in [replies_svg(points), latency_svg(points)] {
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }
}
