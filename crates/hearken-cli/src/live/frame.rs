//! A snapshot of a load as text of any width.

use hearken_load::{Grouped, Snapshot};

use super::numbers::{elapsed, rate, time};

/// Columns of the title of a line.
const TITLE: usize = 11;
/// Terminals with fewer columns get no titles.
const MIN_TITLED: usize = 30;

/// The displayed figures. [`Frame::new`] computes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    /// Seconds since the first request. `None` while connections are prepared.
    pub(super) elapsed_s: Option<f64>,
    /// Seconds until the last scheduled request, if known.
    pub(super) remaining_s: Option<f64>,
    /// Scheduled requests per second in the last interval.
    pub(super) offered: f64,
    /// Replies per second in the last interval.
    pub(super) replied: f64,
    /// Median latency in the last interval, in nanoseconds.
    pub(super) p50_ns: Option<u64>,
    /// 99th percentile of the latency in the last interval, in nanoseconds.
    pub(super) p99_ns: Option<u64>,
    /// Requests sent since the start.
    pub(super) sent: u64,
    /// Replies since the start.
    pub(super) replies: u64,
    /// Errors since the start.
    pub(super) errors: u64,
    /// The number of errors by kind, without zeros.
    pub(super) kinds: Vec<(&'static str, u64)>,
    /// The number of missed requests by cause, without zeros.
    pub(super) missed: Vec<(&'static str, u64)>,
    /// Connections for requests.
    pub(super) active: u64,
    /// Open idle connections.
    pub(super) idle: u64,
    /// Processors that the watched server keeps busy.
    pub(super) cores: Option<f64>,
}

impl Frame {
    /// Computes the figures of a snapshot. `cores` is the CPU use of the watched server, in processors.
    pub(super) fn new(now: &Snapshot, cores: Option<f64>) -> Frame {
        let interval = &now.interval;
        let rate = |count: u64| match interval.duration_s {
            seconds if seconds > 0.0 => count as f64 / seconds,
            _ => 0.0,
        };
        let latency = Some(&interval.latency_ns).filter(|latency| latency.count > 0);
        Frame {
            elapsed_s: (!now.elapsed.is_zero()).then_some(now.elapsed.as_secs_f64()),
            remaining_s: now.remaining.map(|remaining| remaining.as_secs_f64()),
            offered: rate(interval.scheduled),
            replied: rate(interval.replies),
            p50_ns: latency.map(|latency| latency.p50),
            p99_ns: latency.map(|latency| latency.p99),
            sent: now.sent,
            replies: now.replies,
            errors: now.errors.total(),
            kinds: nonzero(&now.errors.by_name()),
            missed: nonzero(&now.missed.by_cause()),
            active: now.connections,
            idle: now.idle,
            cores,
        }
    }
}

/// Returns the counts that are not zero.
fn nonzero(counts: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    counts.iter().copied().filter(|(_, count)| *count > 0).collect()
}

/// A line of the block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The text, at most as wide as requested.
    pub(super) text: String,
    /// Whether the line reports a problem.
    pub(super) is_problem: bool,
}

/// Returns the frame as lines of at most `width` characters, with a plot of the reply rates of `history` made of
/// `bars`.
pub(super) fn lines(frame: &Frame, history: &[f64], bars: &[char], width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |title: &str, parts: &[String], is_problem: bool| {
        let wrapped = wrap(parts, text_width(width));
        for (index, text) in wrapped.into_iter().enumerate() {
            let title = if index == 0 { title } else { "" };
            lines.push(Line { text: titled(title, &text, width), is_problem });
        }
    };
    let Some(elapsed_s) = frame.elapsed_s else {
        add("preparing", &[format!("{} idle connections", Grouped(frame.idle))], false);
        return lines;
    };
    let mut rates = vec![
        format!("{} requests/s", rate(frame.offered)),
        format!("{} replies/s", rate(frame.replied)),
    ];
    rates.extend(frame.p50_ns.map(|ns| format!("p50 {}", time(ns))));
    rates.extend(frame.p99_ns.map(|ns| format!("p99 {}", time(ns))));
    add(&elapsed(elapsed_s), &rates, false);
    let [sent, replies] = [frame.sent, frame.replies].map(Grouped);
    let mut so_far = vec![format!("{sent} sent"), format!("{replies} replies")];
    so_far.extend(frame.remaining_s.map(|left| format!("{} remaining", elapsed(left))));
    add("so far", &so_far, false);
    if frame.errors > 0 {
        add("errors", &named(&frame.kinds), true);
    }
    if !frame.missed.is_empty() {
        add("missed", &named(&frame.missed), true);
    }
    let mut connections = vec![format!("{} active", Grouped(frame.active))];
    if frame.idle > 0 {
        connections.push(format!("{} idle", Grouped(frame.idle)));
    }
    add("connected", &connections, false);
    if let Some(cores) = frame.cores {
        add("server", &[format!("{cores:.2} processors")], false);
    }
    let plot = sparkline(history, bars, text_width(width));
    if !plot.is_empty() {
        add("replies/s", &[plot], false);
    }
    lines
}

/// Returns the frame as one line of a log.
pub(super) fn log_line(frame: &Frame) -> String {
    let Some(elapsed_s) = frame.elapsed_s else {
        return format!("preparing: {} idle connections", frame.idle);
    };
    let mut line = format!(
        "{elapsed_s:.1} s: {} requests/s, {} replies/s",
        rate(frame.offered),
        rate(frame.replied)
    );
    for (name, ns) in [("p50", frame.p50_ns), ("p99", frame.p99_ns)] {
        line.extend(ns.map(|ns| format!(", {name} {}", time(ns))));
    }
    line += &format!(", {} errors", Grouped(frame.errors));
    if !frame.kinds.is_empty() {
        line += &format!(" ({})", named(&frame.kinds).join(", "));
    }
    if !frame.missed.is_empty() {
        line += &format!(", missed ({})", named(&frame.missed).join(", "));
    }
    line += &format!(", {} active, {} idle", Grouped(frame.active), Grouped(frame.idle));
    line.extend(frame.cores.map(|cores| format!(", server {cores:.2} processors")));
    line.extend(frame.remaining_s.map(|left| format!(", {} remaining", elapsed(left))));
    line
}

fn named(counts: &[(&str, u64)]) -> Vec<String> {
    counts.iter().map(|(name, count)| format!("{name} {}", Grouped(*count))).collect()
}

/// Returns one bar per rate, scaled to the highest displayed rate. The latest rate is on the right.
fn sparkline(history: &[f64], bars: &[char], width: usize) -> String {
    let shown = &history[history.len().saturating_sub(width)..];
    let max = shown.iter().copied().fold(0.0, f64::max);
    let steps = bars.len().saturating_sub(1);
    let bar = |rate: &f64| {
        let step = if max > 0.0 { (rate / max * steps as f64).round() as usize } else { 0 };
        bars.get(step.min(steps))
    };
    shown.iter().filter_map(bar).collect()
}

/// Returns the number of columns next to the title.
fn text_width(width: usize) -> usize {
    if width < MIN_TITLED { width } else { width - TITLE - 2 }
}

fn titled(title: &str, text: &str, width: usize) -> String {
    let text =
        if width < MIN_TITLED { text.to_owned() } else { format!("  {title:<TITLE$}{text}") };
    text.chars().take(width).collect()
}

/// Joins parts into lines of at most `width` characters, unless a single part is longer.
fn wrap(parts: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + part.chars().count() <= width => {
                line.push_str("  ");
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hearken_load::Interval;

    use super::super::{ASCII_BARS, BARS};
    use super::*;

    fn busy() -> Frame {
        Frame {
            elapsed_s: Some(12.3),
            offered: 1_000.0,
            replied: 998.4,
            p50_ns: Some(1_234_567),
            p99_ns: Some(45_678_901),
            sent: 12_345,
            replies: 12_300,
            errors: 45,
            remaining_s: Some(47.7),
            kinds: vec![("client-timo", 40), ("connreset", 5)],
            missed: vec![("no free connection", 1_234)],
            active: 50,
            idle: 10_000,
            cores: Some(0.421),
        }
    }

    fn extreme() -> Frame {
        let max = u64::MAX;
        Frame {
            elapsed_s: Some(f64::MAX),
            offered: f64::MAX,
            replied: f64::INFINITY,
            p50_ns: Some(max),
            p99_ns: Some(max),
            sent: max,
            replies: max,
            errors: max,
            remaining_s: Some(f64::MAX),
            kinds: vec![("client-timo", max); 7],
            missed: vec![("no free connection", max); 3],
            active: max,
            idle: max,
            cores: Some(f64::MAX),
        }
    }

    #[test]
    fn lines_fit_the_terminal() {
        let history: Vec<f64> = (0..500).map(f64::from).collect();
        for frame in [busy(), extreme(), Frame::default()] {
            for history in [&history[..], &[], &[0.0, 0.0], &[f64::INFINITY, f64::NAN]] {
                for width in (0..100).chain([200, 10_000]) {
                    for line in lines(&frame, history, &BARS, width) {
                        let wide = line.text.chars().count();
                        assert!(wide <= width, "{wide} > {width}: {}", line.text);
                        assert!(!line.text.contains('\n'));
                    }
                }
            }
        }
    }

    fn text(width: usize) -> String {
        let lines = lines(&busy(), &[0.0, 500.0, 1_000.0, 998.0], &ASCII_BARS, width);
        lines.into_iter().map(|line| line.text + "\n").collect()
    }

    #[test]
    fn wide_terminals_need_no_wrapping() {
        let expected = "  12 s       1,000 requests/s  998 replies/s  p50 1.23 ms  p99 45.7 ms
  so far     12,345 sent  12,300 replies  48 s remaining
  errors     client-timo 40  connreset 5
  missed     no free connection 1,234
  connected  50 active  10,000 idle
  server     0.42 processors
  replies/s  _=##
";
        assert_eq!(text(80), expected);
        assert_eq!(text(200), expected);
    }

    #[test]
    fn narrow_terminals_wrap_lines() {
        let lines = text(40);
        let expected = "  12 s       1,000 requests/s
             998 replies/s  p50 1.23 ms
             p99 45.7 ms
";
        assert!(lines.starts_with(expected), "{lines}");
        assert!(text(20).starts_with("1,000 requests/s\n998 replies/s\n"), "{}", text(20));
    }

    #[test]
    fn log_has_one_line_per_frame() {
        let expected = "12.3 s: 1,000 requests/s, 998 replies/s, p50 1.23 ms, p99 45.7 ms, \
                        45 errors (client-timo 40, connreset 5), \
                        missed (no free connection 1,234), 50 active, 10,000 idle, \
                        server 0.42 processors, 48 s remaining";
        assert_eq!(log_line(&busy()), expected);
        assert_eq!(log_line(&Frame::default()), "preparing: 0 idle connections");
        assert!(!log_line(&extreme()).contains('\n'));
    }

    #[test]
    fn rates_cover_the_last_interval() {
        let mut now = Snapshot::default();
        assert_eq!(Frame::new(&now, None).elapsed_s, None);
        now.elapsed = Duration::from_secs(3);
        (now.sent, now.replies, now.connections, now.idle) = (500, 400, 6, 7);
        now.errors.conn_reset = 3;
        now.missed.generator = 4;
        now.remaining = Some(Duration::from_secs(7));
        (now.interval.duration_s, now.interval.scheduled, now.interval.replies) = (2.0, 400, 100);
        let latency = &mut now.interval.latency_ns;
        (latency.count, latency.p50, latency.p99) = (100, 5, 9);
        let frame = Frame::new(&now, Some(0.5));
        assert_eq!((frame.offered, frame.replied), (200.0, 50.0));
        assert_eq!((frame.p50_ns, frame.p99_ns), (Some(5), Some(9)));
        assert_eq!((frame.active, frame.idle, frame.cores), (6, 7, Some(0.5)));
        assert_eq!((frame.errors, frame.kinds), (3, vec![("connreset", 3)]));
        assert_eq!((frame.missed, frame.remaining_s), (vec![("generator too slow", 4)], Some(7.0)));
        now.interval = Interval::default();
        let empty = Frame::new(&now, None);
        assert_eq!((empty.offered, empty.p99_ns), (0.0, None));
    }

    #[test]
    fn sparkline_ends_with_the_latest_rate() {
        assert_eq!(sparkline(&[1.0, 0.0, 4.0, 8.0], &BARS, 3), "▁▅█");
        assert_eq!(sparkline(&[0.0, 0.0], &BARS, 9), "▁▁");
        assert_eq!(
            (sparkline(&[], &BARS, 9), sparkline(&[1.0], &[], 9)),
            (String::new(), String::new())
        );
    }
}
