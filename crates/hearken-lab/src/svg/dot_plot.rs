//! Dot plots: rows of marks on a common axis, for categories instead of numbers. Labels never overlap,
//! regardless of the number of rows.

use maud::{Markup, html};

use super::{Chart, ON_WHITE, Point, Scale, TICK_GAP, WIDTH, marker, px};
use crate::units::{number, with_margin};

const LEFT: f64 = 122.0;
/// Width of the column of values to the right of the axis: space for two values, plus
/// `VALUE_WIDTH` for each further value.
const VALUES_WIDTH: f64 = 118.0;
const VALUE_WIDTH: f64 = 64.0;
const TOP: f64 = 52.0;
const ROW_HEIGHT: f64 = 26.0;
const AXIS_HEIGHT: f64 = 46.0;
/// Extension of the axis for error bars, relative to the largest value. Error bars end at its edge.
const ERROR_BAR_SPACE: f64 = 0.3;
/// Distance between the marks of a row.
const MARK_SPACING: f64 = 9.0;

/// A value with its confidence interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) value: f64,
    /// Half the interval; 0 draws no error bar.
    pub(crate) margin: f64,
}

/// A category and its marks: one for each level, or none.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) marks: Vec<Option<Mark>>,
}

/// An axis with its rows. The title names the quantity and its unit.
#[derive(Clone, Debug)]
pub(crate) struct DotPlot {
    pub(crate) title: String,
    pub(crate) levels: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

impl DotPlot {
    fn bottom(&self) -> f64 {
        TOP + ROW_HEIGHT * self.rows.len() as f64
    }

    fn scale(&self) -> Scale {
        let marks = || self.rows.iter().flat_map(|row| row.marks.iter().flatten());
        let max = marks().map(|mark| mark.value).fold(0.0, f64::max) * (1.0 + ERROR_BAR_SPACE);
        let point = |mark: &Mark| {
            let margin = mark.margin.min((max - mark.value).max(0.0));
            Point { x: 0.0, y: mark.value, margin, hollow: false }
        };
        let points: Vec<Point> = marks().map(point).collect();
        Scale::for_values(points.iter(), LEFT, self.right())
    }

    /// Returns the right end of the axis.
    fn right(&self) -> f64 {
        WIDTH - VALUES_WIDTH - VALUE_WIDTH * self.levels.len().clamp(2, 4).saturating_sub(2) as f64
    }

    /// Returns the colour and marker of a level. The most distinct ones come first.
    fn style(level: usize) -> usize {
        [3, 0, 4, 1, 5, 2, 6][level % ON_WHITE.len()]
    }
}

impl Chart for DotPlot {
    fn height(&self) -> f64 {
        self.bottom() + AXIS_HEIGHT
    }

    fn draw(&self) -> Markup {
        let scale = self.scale();
        let bottom = self.bottom();
        let legend_step = (WIDTH - VALUES_WIDTH - LEFT) / self.levels.len().max(3) as f64;
        html! {
            text.b x="8" y="18" { (self.title) @if scale.log { " (logarithmic)" } }
            @for (level, name) in self.levels.iter().enumerate() {
                @let x = LEFT + legend_step * level as f64;
                @let style = DotPlot::style(level);
                path.s.{ "c" (style) } d=(marker(style))
                    transform=(format!("translate({} 36)", px(x + 6.0))) {}
                text x=(px(x + 17.0)) y="41" { (name) }
            }
            @for (at, label) in spaced_ticks(&scale) {
                line.g x1=(px(at)) x2=(px(at)) y1=(TOP) y2=(px(bottom + 4.0)) {}
                text x=(px(at)) y=(px(bottom + 20.0)) text-anchor="middle" { (label) }
            }
            @for (index, row) in self.rows.iter().enumerate() {
                (draw_row(row, TOP + ROW_HEIGHT * (index as f64 + 0.5), &scale, self.right()))
            }
        }
    }
}

fn draw_row(row: &Row, middle: f64, scale: &Scale, right: f64) -> Markup {
    let count = row.marks.len() as f64;
    let spacing = MARK_SPACING.min((ROW_HEIGHT - 8.0) / count.max(1.0));
    let offset = |level: usize| (level as f64 - (count - 1.0) / 2.0) * spacing;
    let values: Vec<String> = row.marks.iter().flatten().map(|mark| number(mark.value)).collect();
    html! {
        text x=(LEFT - 10.0) y=(px(middle + 5.0)) text-anchor="end" { (row.name) }
        line.g x1=(LEFT) x2=(right) y1=(px(middle)) y2=(px(middle)) {}
        @for (level, mark) in row.marks.iter().enumerate() {
            @if let Some(mark) = mark {
                @let style = DotPlot::style(level);
                @let (x, y) = (scale.at(mark.value), middle + offset(level));
                g transform=(format!("translate({} {})", px(x), px(y))) {
                    title {
                        (row.name) ": "
                        (with_margin(mark.value, (mark.margin > 0.0).then_some(mark.margin)))
                    }
                    @if mark.margin > 0.0 {
                        @let low = px(scale.at(mark.value - mark.margin) - x);
                        @let high = px(scale.at(mark.value + mark.margin) - x);
                        path.w.{ "c" (style) } d=(format!("M{low},-3V3M{low},0H{high}M{high},-3V3")) {}
                    }
                    path.s.{ "c" (style) } d=(marker(style)) transform="scale(.8)" {}
                }
            }
        }
        text.n x=(px(right + 10.0)) y=(px(middle + 4.5)) { (values.join(", ")) }
    }
}

/// Returns ticks with enough distance for their labels.
fn spaced_ticks(scale: &Scale) -> Vec<(f64, String)> {
    let mut ticks: Vec<(f64, String)> = Vec::new();
    for (at, label) in scale.ticks() {
        if ticks.last().is_none_or(|(last, _)| at - last >= TICK_GAP) {
            ticks.push((at, label));
        }
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::figure;

    fn rows(values: &[f64]) -> DotPlot {
        let row = |(i, &value): (usize, &f64)| Row {
            name: format!("<{i}>"),
            marks: vec![Some(Mark { value, margin: value / 5.0 }), None],
        };
        DotPlot {
            title: "a & b".into(),
            levels: vec!["none".into(), "some".into()],
            rows: values.iter().enumerate().map(row).collect(),
        }
    }

    #[test]
    fn every_row_is_drawn_and_all_text_is_escaped() {
        let panel = rows(&[1.0, 500.0, 3.0]);
        assert_eq!(panel.height(), TOP + 3.0 * ROW_HEIGHT + AXIS_HEIGHT);
        let svg = figure("x", &[panel], None).into_string();
        assert!(svg.contains("&lt;2&gt;") && svg.contains("a &amp; b (logarithmic)"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("<0>"));
    }

    #[test]
    fn axis_labels_do_not_overlap() {
        for values in [&[0.0][..], &[1.0, 19.0], &[0.002, 900.0], &[123_456.0, 130_000.0]] {
            let ticks = spaced_ticks(&rows(values).scale());
            assert!(ticks.len() >= 2, "{values:?} {ticks:?}");
            assert!(ticks.windows(2).all(|w| w[1].0 - w[0].0 >= TICK_GAP), "{ticks:?}");
        }
    }
}
