//! Figures of a load test.

use hearken_load::{Histogram, Interval, Report};

use crate::figures::Figure;
use crate::svg::{Panel, Point, Series, XAxis};
use crate::units::micros;

/// Maximum number of points of a line. Successive intervals are merged.
const MAX_POINTS: usize = 400;
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
pub(crate) fn figures(report: &Report) -> Vec<Figure> {
    let groups = group_intervals(report, MAX_POINTS);
    let all = [
        Figure {
            name: "rate",
            title: "Offered load and replies",
            caption: "Scheduled requests, replies and failures per second. If the replies fall \
                      below the offered load, the server is saturated.",
            panels: vec![rates(&groups)],
        },
        Figure {
            name: "latency",
            title: "Latency over time",
            caption: "Latency of the replies received in each interval, measured from the scheduled time \
                      of the request, even if it was sent late. Gaps are intervals without replies.",
            panels: vec![latencies(&groups)],
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
            panels: vec![idle(report, &groups)],
        },
        Figure {
            name: "server",
            title: "Server CPU",
            caption: "Mean number of processors used by the server in each interval.",
            panels: vec![server(report)],
        },
    ];
    let shown =
        |panel: &Panel| panel.series.iter().any(|s| s.points.iter().any(|p| p.y.is_finite()));
    all.into_iter().filter(|figure| figure.panels.iter().all(shown)).collect()
}

fn panel(title: &str, x_axis: XAxis, series: Vec<Series>) -> Panel {
    let x_title = match x_axis {
        XAxis::Percentiles => "share of the replies",
        _ => "time since the start, s",
    };
    Panel { title: title.into(), x_title: x_title.into(), x_axis, log: false, series }
}

fn series(name: &str, style: usize, points: impl Iterator<Item = (f64, f64)>) -> Series {
    let point = |(x, y)| Point { x, y, margin: 0.0, hollow: false };
    Series { name: name.into(), style, points: points.map(point).collect() }
}

fn rates(groups: &[IntervalGroup]) -> Panel {
    let line = |name, style, count: fn(&Interval) -> u64| {
        series(name, style, groups.iter().map(|s| (s.middle(), s.rate(count(&s.interval)))))
    };
    // Draining starts after the last scheduled request.
    let offered = groups.iter().filter(|group| !group.interval.draining);
    let offered = offered.map(|group| (group.middle(), group.rate(group.interval.scheduled)));
    let mut lines = vec![series("offered", 6, offered), line("replies", 3, |i| i.replies)];
    if groups.iter().any(|group| group.interval.failed > 0) {
        lines.push(line("errors", 0, |interval| interval.failed));
    }
    panel("Per second", XAxis::Time, lines)
}

fn latencies(groups: &[IntervalGroup]) -> Panel {
    let line = |name, style, quantile| {
        let at = |group: &IntervalGroup| match group.latency.is_empty() {
            true => f64::NAN,
            false => micros(group.latency.value_at_quantile(quantile) as f64),
        };
        series(name, style, groups.iter().map(|group| (group.middle(), at(group))))
    };
    let lines = vec![
        line("p50", 3, 0.5),
        line("p90", 4, 0.9),
        line("p99", 1, 0.99),
        line("p99.9", 0, 0.999),
    ];
    Panel { log: true, ..panel("Latency, µs", XAxis::Time, lines) }
}

fn distribution(report: &Report) -> Panel {
    let line = |name, style, of: &Histogram| {
        let decades = (of.len().max(1) as f64).log10();
        let steps = (decades * PER_DECADE).ceil().min(1000.0) as u32;
        let rarity = move |step: u32| 10f64.powf((f64::from(step) / PER_DECADE).min(decades));
        let point = |rare: f64| (rare, micros(of.value_at_quantile(1.0 - 1.0 / rare) as f64));
        let points = (0..=steps).map(rarity).map(point);
        let all = if of.is_empty() { 0 } else { steps as usize + 1 };
        series(name, style, points.take(all))
    };
    let of = &report.histograms;
    let mut lines = vec![line("latency", 3, &of.latency), line("service", 4, &of.service)];
    lines.push(line("connect", 5, &of.connect));
    lines.push(line("lateness", 6, &of.lateness));
    lines.retain(|line| !line.points.is_empty());
    Panel { log: true, ..panel("Time, µs", XAxis::Percentiles, lines) }
}

fn idle(report: &Report, groups: &[IntervalGroup]) -> Panel {
    let open = groups.iter().map(|group| {
        let Interval { offset_s, duration_s, idle_open, .. } = group.interval;
        (offset_s + duration_s, idle_open as f64)
    });
    let requested = groups
        .iter()
        .map(|s| (s.interval.offset_s + s.interval.duration_s, report.idle.requested as f64));
    let lines = match report.idle.requested {
        0 => Vec::new(),
        _ => vec![series("requested", 6, requested), series("open", 3, open)],
    };
    panel("Connections", XAxis::Time, lines)
}

fn server(report: &Report) -> Panel {
    let samples = report.server.as_ref().map_or(&[][..], |server| &server.samples);
    let group_size = samples.len().div_ceil(MAX_POINTS).max(1);
    let selected: Vec<_> = samples.iter().step_by(group_size).collect();
    let cores_used = selected.windows(2).map(|pair| {
        let cores = pair[1].cores_since(pair[0]).unwrap_or(f64::NAN);
        (f64::midpoint(pair[0].offset_s, pair[1].offset_s), cores)
    });
    panel("Processors used", XAxis::Time, vec![series("CPU", 3, cores_used)])
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
