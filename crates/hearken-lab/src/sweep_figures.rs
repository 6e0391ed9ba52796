//! Figures of a sweep.

use hearken_load::Estimate;
use hearken_load::sweep::{Point, Sweep};

use crate::figures::Figure;
use crate::rate_plot::{self, RatePoint};
use crate::svg::XAxis;
use crate::svg::line_plot::{self, YAxis};
use crate::svg::plot::Plot;

/// Colours of the lines, as in the figures of a load.
const MEDIAN: usize = 3;
const P99: usize = 1;
const ERRORS: usize = 0;
const MISSED: usize = 6;

/// Returns the figures that have data.
pub(crate) fn figures(sweep: &Sweep) -> Vec<Figure<Plot>> {
    let points = |of: &dyn Fn(&Point) -> Option<Estimate>, factor: f64, max: f64| {
        let point = |point: &Point| {
            let value = of(point)?;
            let margin = value.margin.unwrap_or(0.0);
            Some(RatePoint {
                offered: point.rate,
                value: value.mean * factor,
                low: ((value.mean - margin) * factor).max(0.0),
                high: ((value.mean + margin) * factor).min(max),
                label: if point.generator_limited { "generator".into() } else { String::new() },
            })
        };
        sweep.points.iter().filter_map(point).collect::<Vec<_>>()
    };
    let replies = points(&|point| Some(point.reply_rate), 1.0, f64::INFINITY);
    let milliseconds = |of| points(of, 1e-6, f64::INFINITY);
    let percent = |of| points(of, 100.0, 100.0);
    let latencies = [
        rate_plot::line("p50", MEDIAN, &milliseconds(&|point| point.p50_ns)),
        rate_plot::line("p99", P99, &milliseconds(&|point| point.p99_ns)),
    ];
    let failures = [
        rate_plot::line("missed", MISSED, &percent(&|point| Some(point.missed_share))),
        rate_plot::line("errors", ERRORS, &percent(&|point| Some(point.error_share))),
    ];
    let all = [
        Figure {
            name: "replies",
            title: "Reply rate by offered rate",
            caption: "The diagonal is the offered rate. Error bars are 95 % confidence intervals.",
            panels: vec![rate_plot::replies(&replies)],
        },
        Figure {
            name: "latency",
            title: "Latency by offered rate",
            caption: "Latency of the replies, measured from the scheduled time of the request. Requests \
                      without a reply are not included.",
            panels: vec![line_plot::plot(
                "Latency, ms",
                XAxis::Rate,
                YAxis::MILLISECONDS,
                &latencies,
            )],
        },
        Figure {
            name: "errors",
            title: "Errors by offered rate",
            caption: "Share of the requests that failed, and of those that the generator could not send \
                      because all connections were busy or because it was too slow.",
            panels: vec![line_plot::plot(
                "Share of the requests, %",
                XAxis::Rate,
                YAxis::NUMBER,
                &failures,
            )],
        },
    ];
    all.into_iter()
        .filter(|_| !sweep.points.is_empty())
        .filter(|figure| figure.panels.iter().all(Plot::has_data))
        .collect()
}
