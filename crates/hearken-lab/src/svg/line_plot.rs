//! Plots of lines, optionally with markers and error bars.

use maud::{Markup, html};

use super::plot::{HEIGHT, Key, Plot, WIDTH, percent, with_values};
use super::{ON_WHITE, Scale, XAxis, marker, px};
use crate::units::{grouped_tick, milliseconds, number, tick};

/// A value at a position of the horizontal axis.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) x: f64,
    /// Value. NaN or infinity leaves a gap.
    pub(crate) y: f64,
    /// Bounds of the value, drawn as an error bar.
    pub(crate) range: Option<(f64, f64)>,
    /// Description, shown with the value.
    pub(crate) label: String,
}

impl Sample {
    /// Returns the bounds, if they are valid and differ.
    fn interval(&self) -> Option<(f64, f64)> {
        self.range.filter(|(low, high)| low < high && low.is_finite() && high.is_finite())
    }
}

/// The look of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stroke {
    Solid,
    /// Wide enough to remain visible below another line.
    Wide,
    /// Dashed, visible also above a wide line.
    Dashed,
    /// Dashed, without values to show.
    Reference,
    /// With a marker at each value.
    Marked,
}

/// A line with its name in the legend.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// Index of the colour.
    pub(crate) style: usize,
    pub(crate) stroke: Stroke,
    pub(crate) samples: Vec<Sample>,
}

/// The kind of a vertical axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct YAxis {
    pub(crate) log: bool,
    /// Minimum of a logarithmic axis. Smaller values are drawn at its end.
    pub(crate) low: f64,
    /// Formats a value.
    pub(crate) format: fn(f64) -> String,
    /// Formats the label of a tick.
    pub(crate) tick: fn(f64) -> String,
}

impl YAxis {
    /// A rate per second, or a number of things.
    pub(crate) const NUMBER: YAxis = YAxis { log: false, low: 0.0, format: number, tick };
    /// A time in milliseconds.
    pub(crate) const MILLISECONDS: YAxis =
        YAxis { log: true, low: 0.001, format: milliseconds, tick: grouped_tick };
}

/// Creates a plot of lines. Later lines cover earlier ones, and are first in the legend.
pub(crate) fn plot(title: &str, x_axis: XAxis, y_axis: YAxis, lines: &[Line]) -> Plot {
    let samples = || lines.iter().flat_map(|line| &line.samples);
    let shown = || samples().filter(|sample| sample.y.is_finite());
    let x = x_axis.scale(samples().map(|sample| sample.x), 0.0, WIDTH);
    let high = |sample: &Sample| sample.interval().map_or(sample.y, |(_, high)| sample.y.max(high));
    let log = y_axis.log && shown().all(|sample| sample.y > 0.0);
    let highest = shown().map(high).fold(0.0, f64::max);
    let lowest = shown().map(|sample| sample.y).fold(f64::INFINITY, f64::min);
    let y = Scale::for_range(lowest.max(y_axis.low.min(highest)), highest, log, HEIGHT, 0.0);
    let unit = if log { " (logarithmic)" } else { "" };
    Plot {
        title: format!("{title}{unit}"),
        x_title: x_axis.title(),
        legend: lines.iter().rev().map(key).collect(),
        x_ticks: x_axis.ticks(&x),
        y_ticks: y.ticks_with(y_axis.tick),
        has_data: measured(lines).next().is_some(),
        content: html! {
            // Only the lines are stretched.
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) width="100%" height=(HEIGHT)
                preserveAspectRatio="none" overflow="visible" {
                @for line in lines { (draw_line(line, &x, &y)) }
            }
            @for line in lines.iter().filter(|line| line.stroke == Stroke::Marked) {
                @for sample in line.samples.iter().filter(|sample| sample.y.is_finite()) {
                    (draw_marker(line, sample, &x, &y))
                }
            }
            (values(lines, x_axis, y_axis, &x))
        },
    }
}

/// Returns the classes of a line.
fn classes(line: &Line) -> String {
    let stroke = match line.stroke {
        Stroke::Solid | Stroke::Marked => "",
        Stroke::Wide => " f",
        Stroke::Dashed | Stroke::Reference => " a",
    };
    format!("l r c{}{stroke}", line.style % ON_WHITE.len())
}

fn key(line: &Line) -> Key {
    let symbol = html! {
        path class=(classes(line)) d="M0,0H20" {}
        @if line.stroke == Stroke::Marked {
            path.s.{ "c" (line.style % ON_WHITE.len()) } d=(marker(line.style))
                transform="translate(10 0)" {}
        }
    };
    Key { symbol, width: 20.0, name: line.name.to_owned() }
}

/// Renders a line, interrupted at missing values.
fn draw_line(line: &Line, x: &Scale, y: &Scale) -> Markup {
    let segments = line.samples.split(|sample| !sample.y.is_finite());
    let path = |segment: &[Sample]| {
        let at = |sample: &Sample| format!("{},{}", px(x.at(sample.x)), px(y.at(sample.y)));
        let mut path: Vec<String> = segment.iter().map(at).collect();
        // A line of length zero is drawn as a dot.
        if let [only] = &path[..] {
            path.push(only.clone());
        }
        path.join(" ")
    };
    html! {
        @for segment in segments.filter(|segment| !segment.is_empty()) {
            @let points = path(segment);
            @if line.stroke == Stroke::Dashed {
                // Separates the dashes from a line below them.
                polyline class="l r k" points=(points) {}
            }
            polyline class=(classes(line)) points=(points) {}
        }
    }
}

fn draw_marker(line: &Line, sample: &Sample, x: &Scale, y: &Scale) -> Markup {
    let style = line.style % ON_WHITE.len();
    let middle = y.at(sample.y);
    html! {
        svg x=(percent(x.at(sample.x))) y=(px(middle)) overflow="visible" {
            @if let Some((low, high)) = sample.interval() {
                path.w.{ "c" (style) } d=(super::error_bar(y.at(high) - middle, y.at(low) - middle)) {}
            }
            path.s.{ "c" (style) } d=(marker(line.style)) {}
        }
    }
}

/// Returns the samples with values, in the order of the legend, without reference lines.
fn measured(lines: &[Line]) -> impl Iterator<Item = (&Line, &Sample)> {
    lines
        .iter()
        .rev()
        .filter(|line| line.stroke != Stroke::Reference)
        .flat_map(|line| line.samples.iter().map(move |sample| (line, sample)))
        .filter(|(_, sample)| sample.x.is_finite() && sample.y.is_finite())
}

/// Renders columns that show the values of all lines while the pointer is above them.
fn values(lines: &[Line], x_axis: XAxis, y_axis: YAxis, x: &Scale) -> Markup {
    let mut all: Vec<(&Line, &Sample)> = measured(lines).collect();
    // Stable, so that each column lists the lines in the order of the legend.
    all.sort_by(|a, b| a.1.x.total_cmp(&b.1.x));
    let columns: Vec<&[(&Line, &Sample)]> = all.chunk_by(|a, b| a.1.x == b.1.x).collect();
    let at: Vec<f64> = columns.iter().map(|column| x.at(column[0].1.x)).collect();
    let edge = |right: usize| match (right.checked_sub(1).map(|left| at[left]), at.get(right)) {
        (Some(left), Some(right)) => f64::midpoint(left, *right),
        (None, _) => 0.0,
        (_, None) => WIDTH,
    };
    html! {
        @for (index, column) in columns.iter().enumerate() {
            @let (left, right) = (edge(index), edge(index + 1));
            @let area = html! {
                rect.e x=(percent(left)) width=(percent(right - left)) height=(HEIGHT) {}
                line.g x1=(percent(at[index])) x2=(percent(at[index])) y2=(HEIGHT) {}
            };
            (with_values(&area, &describe(column, x_axis, y_axis)))
        }
    }
}

/// Formats the values at a position of the horizontal axis.
fn describe(column: &[(&Line, &Sample)], x_axis: XAxis, y_axis: YAxis) -> String {
    let format = y_axis.format;
    let value = |(line, sample): &(&Line, &Sample)| {
        let range = sample
            .interval()
            .map_or(String::new(), |(low, high)| format!(" ({} to {})", format(low), format(high)));
        format!("{} {}{range}", line.name, format(sample.y))
    };
    let label = column.iter().map(|(_, sample)| &*sample.label).find(|label| !label.is_empty());
    let label = label.map_or(String::new(), |label| format!(" ({label})"));
    let values: Vec<String> = column.iter().map(value).collect();
    format!("{}{label}: {}", x_axis.format(column[0].1.x), values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::{LIGHT, plot::standalone};

    fn draw(x_axis: XAxis, stroke: Stroke, ys: &[f64]) -> String {
        let sample = |(at, &y): (usize, &f64)| Sample {
            x: (at + 1) as f64,
            y,
            range: Some((y * 0.5, y * 2.0)),
            label: format!("<{at}>"),
        };
        let samples = ys.iter().enumerate().map(sample).collect();
        let line = Line { name: "a & b", style: 8, stroke, samples };
        standalone("x", &[plot("Latency, ms", x_axis, YAxis::MILLISECONDS, &[line])], &LIGHT)
    }

    #[test]
    fn lines_are_interrupted_at_missing_values() {
        let ys = [1.0, 2.0, f64::NAN, 3.0, f64::INFINITY, f64::NAN, 2.0, 2.0];
        let svg = draw(XAxis::Time { end: 9.0 }, Stroke::Solid, &ys);
        assert_eq!(svg.matches("<polyline").count(), 3, "{svg}");
        assert!(svg.contains("(logarithmic)"), "{svg}");
        for ys in [&ys[..], &[], &[f64::NAN], &[0.0, 0.0]] {
            for x_axis in [XAxis::Percentiles, XAxis::Rate, XAxis::Time { end: 0.0 }] {
                let svg = draw(x_axis, Stroke::Marked, ys);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn columns_show_values_with_their_range() {
        let svg = draw(XAxis::Rate, Stroke::Marked, &[0.5, 1500.0]);
        let text = "2.00 offered (&lt;1&gt;): a &amp; b 1,500 (750 to 3,000)";
        assert!(svg.contains(text), "{svg}");
        assert!(!svg.contains("<1>"), "{svg}");
        assert!(!plot("", XAxis::Rate, YAxis::NUMBER, &[]).has_data());
    }

    #[test]
    fn percentile_ticks_stand_for_ten_times_fewer_values() {
        let svg = draw(XAxis::Percentiles, Stroke::Solid, &[1.0; 2000]);
        for tick in [">90 %<", ">99 %<", ">99.9 %<"] {
            assert!(svg.contains(tick), "{tick}");
        }
        assert!(!svg.contains(">99.99 %<"));
    }
}
