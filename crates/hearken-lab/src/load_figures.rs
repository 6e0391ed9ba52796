//! Figures of a load test.

use hearken_load::{Histogram, Interval, LoadStep, Report};

use crate::figures::Figure;
use crate::rate_plot::{self, RatePoint};
use crate::svg::XAxis;
use crate::svg::heat_map::{self, Column};
use crate::svg::line_plot::{self, Line, Sample, Stroke, YAxis};
use crate::svg::plot::Plot;
use crate::units::{millis, number};

/// Maximum number of points of a line. Successive intervals are merged.
const MAX_POINTS: usize = 400;
/// Maximum number of columns of a heat map.
const MAX_COLUMNS: usize = 150;
/// Points of a percentile line for each power of ten.
const PER_DECADE: f64 = 40.0;

/// Successive intervals merged into one, with their latencies.
pub(crate) struct IntervalGroup {
    pub(crate) interval: Interval,
    pub(crate) latency: Histogram,
}

/// Merges the intervals of a run into about `max_groups` groups. Draining intervals form their own groups.
pub(crate) fn group_intervals(report: &Report, max_groups: usize) -> Vec<IntervalGroup> {
    let group_size = report.intervals.len().div_ceil(max_groups.max(1)).max(1);
    let by_kind = report.intervals.chunk_by(|a, b| a.draining == b.draining);
    by_kind.flat_map(|same_kind| same_kind.chunks(group_size)).map(IntervalGroup::merge).collect()
}

impl IntervalGroup {
    fn merge(intervals: &[Interval]) -> IntervalGroup {
        let mut latency = Histogram::new();
        let mut sum = Interval::default();
        for (index, interval) in intervals.iter().enumerate() {
            latency.add(&interval.histogram().unwrap_or_default());
            if index == 0 {
                (sum.offset_s, sum.draining) = (interval.offset_s, interval.draining);
            }
            sum.duration_s += interval.duration_s;
            sum.scheduled = sum.scheduled.saturating_add(interval.scheduled);
            sum.sent = sum.sent.saturating_add(interval.sent);
            sum.replies = sum.replies.saturating_add(interval.replies);
            sum.failed = sum.failed.saturating_add(interval.failed);
            sum.connections_opened =
                sum.connections_opened.saturating_add(interval.connections_opened);
            sum.idle_open = interval.idle_open;
        }
        sum.latency_ns = latency.quantiles();
        IntervalGroup { interval: sum, latency }
    }

    fn middle(&self) -> f64 {
        self.interval.offset_s + self.interval.duration_s / 2.0
    }

    fn rate(&self, count: u64) -> f64 {
        // An interval of length zero becomes a gap in the line.
        if self.interval.duration_s > 0.0 {
            count as f64 / self.interval.duration_s
        } else {
            f64::NAN
        }
    }
}

/// Returns the figures that have data.
pub(crate) fn figures(report: &Report) -> Vec<Figure<Plot>> {
    let groups = group_intervals(report, MAX_POINTS);
    let ends = report.intervals.iter().map(|interval| interval.offset_s + interval.duration_s);
    // All time axes end together.
    let time = XAxis::Time { end: ends.fold(0.0, f64::max) };
    let steps = report.steps();
    let all = [
        Figure {
            name: "steps",
            title: "Replies and latency by offered rate",
            caption: "One point per step, or part of a ramp. The server is saturated where the \
                      replies fall below the offered rate.",
            panels: by_rate(&steps),
        },
        Figure {
            name: "rate",
            title: "Offered load and replies",
            caption: "Scheduled requests, replies and failures per second. If the replies fall \
                      below the offered load, the server is saturated.",
            panels: vec![rates(&groups, time)],
        },
        Figure {
            name: "heat-map",
            title: "Latency heat map",
            caption: "Number of replies by the time at which they were received and by their \
                      latency, measured from the scheduled time of the request, even if it was sent \
                      late.",
            panels: vec![heat_map(report, time)],
        },
        Figure {
            name: "latency",
            title: "Latency over time",
            caption: "Percentiles of the latency of the replies received in each interval. Gaps are \
                      intervals without replies.",
            panels: vec![latencies(&groups, time)],
        },
        Figure {
            name: "distribution",
            title: "Latency by percentile",
            caption: "Time within which each share of the replies was received. Each tick to the right \
                      stands for ten times fewer replies.",
            panels: vec![distribution(report)],
        },
        Figure {
            name: "idle",
            title: "Idle connections",
            caption: "Open idle connections at the end of each interval.",
            panels: vec![idle(report, &groups, time)],
        },
        Figure {
            name: "server",
            title: "Server CPU",
            caption: "Mean number of processors used by the server in each interval.",
            panels: vec![server(report, time)],
        },
    ];
    all.into_iter()
        .map(|figure| Figure {
            panels: figure.panels.into_iter().filter(Plot::has_data).collect(),
            ..figure
        })
        .filter(|figure| !figure.panels.is_empty())
        .collect()
}

/// Creates a line without error bars.
fn line(
    name: &'static str,
    style: usize,
    stroke: Stroke,
    points: impl Iterator<Item = (f64, f64)>,
) -> Line {
    let samples = points.map(|(x, y)| Sample { x, y, ..Sample::default() }).collect();
    Line { name, style, stroke, samples }
}

fn by_rate(steps: &[LoadStep]) -> Vec<Plot> {
    let point = |step: &LoadStep, value: f64| RatePoint {
        offered: step.offered_rate(),
        value,
        low: value,
        high: value,
        label: format!("from {} s", number(step.offset_s)),
    };
    let steps = || steps.iter().filter(|step| !step.draining);
    let p99 = |step: &LoadStep| match step.latency_ns.count {
        0 => f64::NAN,
        _ => millis(step.latency_ns.p99 as f64),
    };
    let replies: Vec<_> = steps().map(|step| point(step, step.reply_rate())).collect();
    let latencies: Vec<_> = steps().map(|step| point(step, p99(step))).collect();
    vec![rate_plot::replies(&replies), rate_plot::latency(&latencies)]
}

fn rates(groups: &[IntervalGroup], time: XAxis) -> Plot {
    let longest = groups.iter().filter(|group| !group.interval.draining);
    let longest = longest.map(|group| group.interval.duration_s).fold(0.0, f64::max);
    // The rates of much shorter intervals, such as the last, are not representative.
    let long_enough = |group: &&IntervalGroup| group.interval.duration_s * 2.0 >= longest;
    let groups = || groups.iter().filter(long_enough);
    let rate = |name, style, stroke, count: fn(&Interval) -> u64| {
        line(name, style, stroke, groups().map(|s| (s.middle(), s.rate(count(&s.interval)))))
    };
    // Draining starts after the last scheduled request.
    let offered = groups().filter(|group| !group.interval.draining);
    let offered = offered.map(|group| (group.middle(), group.rate(group.interval.scheduled)));
    let mut lines = vec![rate("replies", 3, Stroke::Wide, |i| i.replies)];
    if groups().any(|group| group.interval.failed > 0) {
        lines.push(rate("errors", 0, Stroke::Solid, |interval| interval.failed));
    }
    // The offered rate covers the other lines.
    lines.push(line("offered", 6, Stroke::Dashed, offered));
    line_plot::plot("Per second", time, YAxis::NUMBER, &lines)
}

fn heat_map(report: &Report, time: XAxis) -> Plot {
    let groups = group_intervals(report, MAX_COLUMNS);
    let column = |group: &IntervalGroup| {
        let Interval { offset_s, duration_s, .. } = group.interval;
        (offset_s, offset_s + duration_s)
    };
    let columns: Vec<Column<'_>> = groups
        .iter()
        .map(|group| (column(group), &group.latency))
        .map(|((from, to), latency)| Column { from, to, latency })
        .collect();
    heat_map::plot(&columns, time)
}

fn latencies(groups: &[IntervalGroup], time: XAxis) -> Plot {
    let quantile = |name, style, quantile| {
        let at = |group: &IntervalGroup| match group.latency.is_empty() {
            true => f64::NAN,
            false => millis(group.latency.value_at_quantile(quantile) as f64),
        };
        line(name, style, Stroke::Solid, groups.iter().map(|group| (group.middle(), at(group))))
    };
    let lines = [
        quantile("p99.9", 0, 0.999),
        quantile("p99", 1, 0.99),
        quantile("p90", 4, 0.9),
        quantile("p50", 3, 0.5),
    ];
    line_plot::plot("Latency, ms", time, YAxis::MILLISECONDS, &lines)
}

fn distribution(report: &Report) -> Plot {
    let times = |name, style, of: &Histogram| {
        let decades = (of.len().max(1) as f64).log10();
        let steps = (decades * PER_DECADE).ceil().min(1000.0) as u32;
        let rarity = move |step: u32| 10f64.powf((f64::from(step) / PER_DECADE).min(decades));
        let point = |rare: f64| (rare, millis(of.value_at_quantile(1.0 - 1.0 / rare) as f64));
        let points = (0..=steps).map(rarity).map(point);
        let all = if of.is_empty() { 0 } else { steps as usize + 1 };
        line(name, style, Stroke::Solid, points.take(all))
    };
    let of = &report.histograms;
    let mut lines = vec![times("lateness", 6, &of.lateness), times("connect", 5, &of.connect)];
    lines.extend([times("service", 4, &of.service), times("latency", 3, &of.latency)]);
    lines.retain(|line| !line.samples.is_empty());
    line_plot::plot("Time, ms", XAxis::Percentiles, YAxis::MILLISECONDS, &lines)
}

fn idle(report: &Report, groups: &[IntervalGroup], time: XAxis) -> Plot {
    let end = |group: &IntervalGroup| group.interval.offset_s + group.interval.duration_s;
    let requested = report.idle.requested as f64;
    let open = groups.iter().map(|group| (end(group), group.interval.idle_open as f64));
    let lines = match report.idle.requested {
        0 => Vec::new(),
        _ => vec![
            line("open", 3, Stroke::Wide, open),
            line(
                "requested",
                6,
                Stroke::Dashed,
                groups.iter().map(|group| (end(group), requested)),
            ),
        ],
    };
    line_plot::plot("Connections", time, YAxis::NUMBER, &lines)
}

fn server(report: &Report, time: XAxis) -> Plot {
    let samples = report.server.as_ref().map_or(&[][..], |server| &server.samples);
    let group_size = samples.len().div_ceil(MAX_POINTS).max(1);
    let selected: Vec<_> = samples.iter().step_by(group_size).collect();
    let cores_used = selected.windows(2).map(|pair| {
        let cores = pair[1].cores_since(pair[0]).unwrap_or(f64::NAN);
        (f64::midpoint(pair[0].offset_s, pair[1].offset_s), cores)
    });
    let lines = [line("CPU", 3, Stroke::Solid, cores_used)];
    line_plot::plot("Processors used", time, YAxis::NUMBER, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_thousands_of_intervals() {
        let mut latency = Histogram::new();
        latency.record(std::time::Duration::from_millis(1));
        let interval = |at: u32| Interval {
            offset_s: f64::from(at),
            duration_s: 1.0,
            replies: 1,
            draining: at == 999,
            latency: latency.encode(),
            ..Interval::default()
        };
        let report = Report { intervals: (0..1000).map(interval).collect(), ..Report::default() };
        let groups = group_intervals(&report, 100);
        assert_eq!((groups.len(), groups[0].interval.replies), (101, 10));
        assert_eq!(groups.iter().map(|group| group.latency.len()).sum::<u64>(), 1000);
        assert!(groups[100].interval.draining && !groups[99].interval.draining);
    }

    #[test]
    fn empty_report_has_no_figures() {
        assert_eq!(figures(&Report::default()).len(), 0);
    }
}
