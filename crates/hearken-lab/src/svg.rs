//! Charts as SVG: scales, axes, markers, error bars and non-overlapping labels.

use maud::{Markup, PreEscaped, html};

use crate::units::{number, tick, with_margin};

pub(crate) mod dot_plot;
pub(crate) mod heat_map;
pub(crate) mod line_plot;
pub(crate) mod plot;
mod x_axis;

pub(crate) use x_axis::XAxis;

use x_axis::spaced;

/// Width of a figure in user units; the font size is chosen for it.
const WIDTH: f64 = 600.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = WIDTH - 152.0;
/// Length of a label above which its font is smaller.
const LONG_LABEL: usize = 14;
const TOP: f64 = 40.0;
const PLOT_HEIGHT: f64 = 250.0;
const PANEL_HEIGHT: f64 = TOP + PLOT_HEIGHT + 50.0;
/// Minimum distance between two labels.
const LABEL_GAP: f64 = 18.0;
/// Minimum distance between two ticks of the horizontal axis.
const TICK_GAP: f64 = 40.0;
/// Ratio of minimum to maximum above which a horizontal axis does not begin at 0.
const FAR_FROM_ZERO: f64 = 0.3;
/// Ratio of maximum to minimum above which the scale is logarithmic.
const LOG_THRESHOLD: f64 = 20.0;

/// Colours of the series on white, distinguishable with colour blindness (Okabe and Ito, 2008).
const ON_WHITE: [&str; 7] =
    ["#d55e00", "#e69f00", "#56b4e9", "#0072b2", "#009e73", "#cc79a7", "#555555"];
/// Colours of the series on a dark background.
const ON_DARK: [&str; 7] =
    ["#ff8a3d", "#f5c242", "#7cc8f2", "#4f9fe0", "#2bc79b", "#e59bc4", "#bbbbbb"];

/// Colours of the levels of a heat map, from few to many. They are a part of viridis, which is distinguishable
/// with colour blindness and in greyscale. The first is the closest to the background.
const HEAT_ON_WHITE: [&str; heat_map::LEVELS] =
    ["#a5db36", "#5ec962", "#28ae80", "#21918c", "#2c728e", "#3b528b", "#440154"];
const HEAT_ON_DARK: [&str; heat_map::LEVELS] =
    ["#46337f", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725"];

/// The colours of charts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    series: &'static [&'static str; 7],
    heat: &'static [&'static str; heat_map::LEVELS],
    text: &'static str,
    faint: &'static str,
    background: &'static str,
}

/// Colours on white.
pub(crate) const LIGHT: Theme = Theme {
    series: &ON_WHITE,
    heat: &HEAT_ON_WHITE,
    text: "#1a1c1f",
    faint: "#d9dde2",
    background: "#fff",
};
/// Colours on a dark background.
pub(crate) const DARK: Theme = Theme {
    series: &ON_DARK,
    heat: &HEAT_ON_DARK,
    text: "#e6e8ea",
    faint: "#363c43",
    background: "#14171a",
};

/// Paths of the markers around the origin, in the order of the colours.
const MARKERS: [&str; 7] = [
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z",
    "M-4.5,-4.5h9v9h-9z",
    "M0,-5.5L5.5,4.5H-5.5z",
    "M0,-6L6,0L0,6L-6,0z",
    "M0,5.5L5.5,-4.5H-5.5z",
    "M-2,-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
    "M-6,0L-3,-5H3L6,0L3,5H-3z",
];

/// Returns the marker of a style. A colour that is used again gets another marker.
fn marker(style: usize) -> &'static str {
    MARKERS[(style + style / ON_WHITE.len() * 3) % MARKERS.len()]
}

/// A mean with its confidence interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    /// Value. NaN or infinity leaves a gap.
    pub(crate) y: f64,
    /// Half the interval; 0 draws no error bar.
    pub(crate) margin: f64,
    /// Whether the marker is hollow.
    pub(crate) hollow: bool,
}

/// A line with a label.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Index of colour and marker, the same in every figure.
    pub(crate) style: usize,
    pub(crate) points: Vec<Point>,
}

/// A pair of axes. The title names the quantity and its unit and labels the vertical axis.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x_title: String,
    pub(crate) series: Vec<Series>,
}

/// Returns the style sheet for the classes of a figure.
pub(crate) fn stylesheet(theme: &Theme) -> String {
    let Theme { text, faint, background, .. } = theme;
    let mut css = format!(
        "svg text{{font:14px system-ui,sans-serif;fill:{text}}}svg .b{{font-weight:600}}\
         svg .n{{font-size:12px;opacity:.8}}svg .g{{stroke:{faint};stroke-width:1}}\
         svg .s{{stroke-width:1}}"
    );
    for (i, colour) in theme.series.iter().enumerate() {
        css += &format!("svg .c{i}{{stroke:{colour};fill:{colour}}}");
    }
    // These rules come after the colours and partly override them.
    css += "svg .l{fill:none;stroke-width:2}svg .w{stroke-width:1.5}svg .t{fill:none;\
            stroke-width:1;opacity:.5}svg .d{stroke-dasharray:6 3}svg .r{stroke-linecap:round;\
            stroke-linejoin:round}";
    // Pointing at a line or its label shows it alone.
    css += "svg .m{fill-opacity:.13;stroke:none}svg:has(.u:hover) .u:not(:hover){opacity:.12}\
            svg .u:hover .m{fill-opacity:.3}";
    css + &format!("svg .h{{fill:{background};stroke-width:2}}") + &plot::rules(theme)
}

/// A chart of a figure. Charts are stacked vertically.
pub(crate) trait Chart {
    /// Returns the height in user units.
    fn height(&self) -> f64;

    /// Renders the chart with its top left corner at the origin.
    fn draw(&self) -> Markup;
}

impl Chart for Panel {
    fn height(&self) -> f64 {
        PANEL_HEIGHT
    }

    fn draw(&self) -> Markup {
        draw(self)
    }
}

/// Renders a figure; `css` is embedded in standalone documents, which have a white background.
pub(crate) fn figure(alternative: &str, panels: &[impl Chart], css: Option<&str>) -> Markup {
    let tops = panels.iter().scan(0.0, |top, panel| {
        *top += panel.height();
        Some(*top - panel.height())
    });
    let height: f64 = panels.iter().map(Chart::height).sum();
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}"))
            width=[css.map(|_| WIDTH)] height=[css.map(|_| height)]
            role="img" aria-label=(alternative) {
            @if let Some(css) = css {
                // The rules are constants of this module and do not contain `<`.
                style { (PreEscaped(css)) }
                rect width="100%" height="100%" fill="#ffffff" {}
            }
            @for (panel, top) in panels.iter().zip(tops) {
                g transform=(format!("translate(0 {})", px(top))) { (panel.draw()) }
            }
        }
    }
}

fn draw(panel: &Panel) -> Markup {
    let points = || panel.series.iter().flat_map(|s| &s.points);
    let x = Scale::for_positions(points().map(|p| p.x), LEFT + 14.0, RIGHT - 18.0);
    let y = Scale::for_values(points().filter(|p| p.y.is_finite()), TOP + PLOT_HEIGHT, TOP);
    // The measured values are the ticks.
    let mut values: Vec<f64> = points().map(|p| p.x).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let x_ticks = spaced(values.into_iter().map(|value| (x.at(value), number(value))), 1.0);
    let bottom = TOP + PLOT_HEIGHT;
    html! {
        text.b x="8" y="20" { (panel.title) @if y.log { " (logarithmic)" } }
        @for (at, label) in y.ticks() {
            line.g x1=(LEFT) x2=(RIGHT) y1=(px(at)) y2=(px(at)) {}
            text x=(LEFT - 8.0) y=(px(at + 5.0)) text-anchor="end" { (label) }
        }
        @for (at, label) in x_ticks {
            line.g x1=(px(at)) x2=(px(at)) y1=(bottom) y2=(bottom + 5.0) {}
            text x=(px(at)) y=(bottom + 21.0) text-anchor="middle" { (label) }
        }
        text x=(px(f64::midpoint(LEFT, RIGHT))) y=(bottom + 42.0) text-anchor="middle" {
            (panel.x_title)
        }
        @let placed = label_positions(panel, &x, &y);
        @for series in &panel.series { g.u {
            (draw_band(series, &x, &y))
            (draw_series(series, &x, &y))
            @for (at, label) in placed.iter().filter(|(_, label)| label.name == series.name) {
                (draw_label(label, *at, &x, &y))
            }
        } }
    }
}

/// Renders the confidence intervals as a band, which shows overlaps better than many error bars.
fn draw_band(series: &Series, x: &Scale, y: &Scale) -> Markup {
    let ends =
        |end: f64| move |p: &Point| format!("{},{}", px(x.at(p.x)), px(y.at(p.y + end * p.margin)));
    let above = series.points.iter().map(ends(1.0));
    let below = series.points.iter().rev().map(ends(-1.0));
    let outline: Vec<String> = above.chain(below).collect();
    html! {
        @if series.points.iter().any(|point| point.margin > 0.0) {
            polygon class=(format!("m c{}", series.style % ON_WHITE.len())) points=(outline.join(" ")) {}
        }
    }
}

fn draw_series(series: &Series, x: &Scale, y: &Scale) -> Markup {
    let colour = format!("c{}", series.style % ON_WHITE.len());
    let at = |p: &Point| (x.at(p.x), y.at(p.y));
    let path: Vec<String> =
        series.points.iter().map(at).map(|(x, y)| format!("{},{}", px(x), px(y))).collect();
    html! {
        @let dashed = if series.style < ON_WHITE.len() { "" } else { " d" };
        polyline class=(format!("l {colour}{dashed}")) points=(path.join(" ")) {}
        @for point in &series.points {
            @let (cx, cy) = at(point);
            g transform=(format!("translate({} {})", px(cx), px(cy))) {
                title {
                    (series.name) ", " (number(point.x)) ": "
                    (with_margin(point.y, (point.margin > 0.0).then_some(point.margin)))
                }
                // A band needs two points.
                @if point.margin > 0.0 && series.points.len() == 1 {
                    @let (top, low) = (y.at(point.y + point.margin), y.at(point.y - point.margin));
                    path.w.(colour) d=(error_bar(top - cy, low - cy)) {}
                }
                path.(colour).(if point.hollow { "h" } else { "s" })
                    d=(marker(series.style)) {}
            }
        }
    }
}

fn error_bar(top: f64, low: f64) -> String {
    let (top, low) = (px(top), px(low));
    format!("M-3,{top}H3M0,{top}V{low}M-3,{low}H3")
}

/// Returns the last point of a series.
fn last(series: &Series) -> Option<&Point> {
    series.points.iter().rfind(|point| point.y.is_finite())
}

/// Returns the positions of the labels on the right, in the order of the last points.
fn label_positions<'a>(panel: &'a Panel, x: &Scale, y: &Scale) -> Vec<(f64, &'a Series)> {
    let end = |series: &'a Series| Some((series, last(series)?));
    let mut ends: Vec<(&Series, &Point)> = panel.series.iter().filter_map(end).collect();
    ends.sort_by(|a, b| {
        y.at(a.1.y).total_cmp(&y.at(b.1.y)).then(x.at(a.1.x).total_cmp(&x.at(b.1.x)))
    });
    let wanted: Vec<f64> = ends.iter().map(|(_, point)| y.at(point.y)).collect();
    let placed = spread_labels(&wanted, LABEL_GAP, TOP, TOP + PLOT_HEIGHT);
    placed.into_iter().zip(ends.into_iter().map(|(series, _)| series)).collect()
}

/// Renders the label of a series, connected to its line.
fn draw_label(series: &Series, at: f64, x: &Scale, y: &Scale) -> Markup {
    let style = series.style % ON_WHITE.len();
    html! {
        @if let Some(point) = last(series) {
            path.t.{ "c" (style) } d=(format!(
                "M{},{}L{},{}",
                px(x.at(point.x) + 7.0),
                px(y.at(point.y)),
                px(RIGHT + 8.0),
                px(at)
            )) {}
        }
        path.s.{ "c" (style) } d=(marker(series.style))
            transform=(format!("translate({} {})", px(RIGHT + 17.0), px(at))) {}
        text class=[(series.name.len() > LONG_LABEL).then_some("n")] x=(px(RIGHT + 28.0))
            y=(px(at + 5.0)) { (series.name) }
    }
}

/// Moves sorted positions apart to at least `gap`, within the bounds if there is enough space.
fn spread_labels(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut placed = wanted.to_vec();
    for i in 1..placed.len() {
        placed[i] = placed[i].max(placed[i - 1] + gap);
    }
    let mut limit = high;
    for at in placed.iter_mut().rev() {
        *at = at.min(limit);
        limit = *at - gap;
    }
    let mut limit = low;
    for at in &mut placed {
        *at = at.max(limit);
        limit = *at + gap;
    }
    placed
}

/// Rounds a coordinate to a tenth of a unit, to keep the document short.
fn px(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// A mapping from values to coordinates.
#[derive(Clone, Copy, Debug)]
struct Scale {
    log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn linear(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let high = values.fold(0.0, f64::max);
        Scale { log: false, low: 0.0, high: if high > 0.0 { high } else { 1.0 }, from, to }
    }

    /// Creates a scale that begins at 0, or at the lowest value if the values are far from 0.
    fn for_positions(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Scale {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let scale = Scale::linear(values, from, to);
        let is_far = low.is_finite() && low < scale.high && low > FAR_FROM_ZERO * scale.high;
        if is_far { Scale { low, ..scale } } else { scale }
    }

    /// Creates a scale for values with error bars. It is logarithmic if the values differ much.
    fn for_values<'a>(
        points: impl Iterator<Item = &'a Point> + Clone,
        from: f64,
        to: f64,
    ) -> Scale {
        let min = points.clone().map(|p| p.y).fold(f64::INFINITY, f64::min);
        let max = points.clone().map(|p| p.y).fold(0.0, f64::max);
        let high = points.map(|p| p.y + p.margin).fold(0.0, f64::max);
        let log = min > 0.0 && max > 0.0 && max / min > LOG_THRESHOLD;
        Scale::for_range(min, high, log, from, to)
    }

    /// Creates a scale that begins at 0, or at a power of ten if it is logarithmic.
    fn for_range(low: f64, high: f64, log: bool, from: f64, to: f64) -> Scale {
        if log && low > 0.0 && high.is_finite() && high >= low {
            let (low, high) = (low.log10().floor(), high.log10().ceil());
            let (low, high) = (10f64.powf(low), 10f64.powf(high.max(low + 1.0)));
            return Scale { log: true, low, high, from, to };
        }
        let step = nice_step(high);
        Scale { log: false, low: 0.0, high: (high / step).ceil().max(1.0) * step, from, to }
    }

    /// Returns the coordinate of a value. Values outside the scale map to its ends, because an error
    /// bar on a logarithmic scale may extend below 0.
    fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        self.ticks_with(tick)
    }

    /// Returns the ticks with labels in another format.
    fn ticks_with(&self, format: fn(f64) -> String) -> Vec<(f64, String)> {
        let values: Vec<f64> = if self.log {
            let (low, high) = (self.low.log10(), self.high.log10());
            let steps: &[f64] = if high - low > 3.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            (low.floor() as i32..=high.ceil() as i32)
                .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
                .filter(|&value| value >= self.low * 0.999 && value <= self.high * 1.001)
                .collect()
        } else {
            let step = nice_step(self.high);
            (0..=(self.high / step).round() as i32).map(|i| f64::from(i) * step).collect()
        };
        values.into_iter().map(|value| (self.at(value), format(value))).collect()
    }
}

/// Returns a step of 1, 2 or 5 times a power of ten, for four to eight steps up to `high`.
fn nice_step(high: f64) -> f64 {
    let raw = if high > 0.0 { high / 5.0 } else { 0.2 };
    let power = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= raw * 0.999);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests;
