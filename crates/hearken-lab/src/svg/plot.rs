//! Plots as wide as the page. The text keeps its size, only the data are stretched. A column or cell shows its
//! values while the pointer is above it, by style rules alone.

use maud::{Markup, PreEscaped, html};

use super::x_axis::spaced;
use super::{Theme, px};

/// Height of the plot area.
pub(super) const HEIGHT: f64 = 260.0;
/// Width of the plot area in units of horizontal positions.
pub(super) const WIDTH: f64 = 1000.0;
/// Space around the plot area, for texts.
const TOP: f64 = 78.0;
const RIGHT: f64 = 18.0;
const BOTTOM: f64 = 52.0;
const LEFT: f64 = 60.0;
/// Width of a standalone document.
const STANDALONE_WIDTH: f64 = 960.0;
/// Width of the plot area on wide and on narrow screens, for the distance between ticks.
const WIDE: f64 = 560.0;
const NARROW: f64 = 270.0;
/// Distance between two entries of the legend.
const LEGEND_GAP: f64 = 10.0;
/// Width of a character of the legend.
const CHARACTER_WIDTH: f64 = 7.5;

/// An entry of the legend.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// Symbol around the line y = 0, from x = 0.
    pub(super) symbol: Markup,
    pub(super) width: f64,
    pub(super) name: String,
}

/// A plot area with its axes and legend.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// Quantity and unit of the vertical axis.
    pub(super) title: String,
    pub(super) x_title: &'static str,
    pub(super) legend: Vec<Key>,
    /// Labels of the axes with their positions.
    pub(super) x_ticks: Vec<(f64, String)>,
    pub(super) y_ticks: Vec<(f64, String)>,
    /// Elements of the plot area.
    pub(super) content: Markup,
    /// Whether there is anything to show.
    pub(super) has_data: bool,
}

/// Returns the style rules for plots in a page.
pub(crate) fn page_rules() -> String {
    format!(
        ".plots{{display:grid}}svg.plot{{display:block;overflow:visible;width:calc(100% - {}px);height:{HEIGHT}px;\
         margin:{TOP}px {RIGHT}px {BOTTOM}px {LEFT}px}}\
         @media(max-width:40rem){{svg .o{{display:none}}svg .v text{{font-size:10px}}}}",
        LEFT + RIGHT
    )
}

/// Returns the style rules for the data of plots and for the values under the pointer.
pub(super) fn rules(theme: &Theme) -> String {
    let mut css = format!(
        "svg .l{{vector-effect:non-scaling-stroke}}svg .a{{stroke-dasharray:5 3;\
         stroke-linecap:butt}}svg .f{{stroke-width:5}}\
         svg .k{{stroke:{background};stroke-width:3}}svg .v{{pointer-events:all}}\
         svg .v text,svg .v line{{display:none;pointer-events:none}}\
         svg .v text{{font-size:13px;transform:translate({}px,-12px)}}\
         svg .v:hover text,svg .v:hover line{{display:inline}}\
         svg .e{{fill:none}}svg .q{{shape-rendering:crispEdges}}\
         svg .v:hover .q{{stroke:{};stroke-width:2}}",
        8.0 - LEFT,
        theme.text,
        background = theme.background,
    );
    for (level, colour) in theme.heat.iter().enumerate() {
        css += &format!("svg .q{level}{{fill:{colour}}}");
    }
    css
}

impl Plot {
    /// Returns whether there is anything to show.
    pub(crate) fn has_data(&self) -> bool {
        self.has_data
    }

    /// Renders the plot for a page, with the full width available.
    pub(crate) fn in_page(&self, alternative: &str) -> Markup {
        html! {
            svg.plot role="img" aria-label=(format!("{alternative}: {}", self.title)) { (self.draw()) }
        }
    }

    /// Renders the plot area, the axes around it and the legend above it.
    fn draw(&self) -> Markup {
        let narrow = spaced(self.x_ticks.iter().cloned(), WIDTH / NARROW);
        let wide = spaced(self.x_ticks.iter().cloned(), WIDTH / WIDE);
        let is_optional = |tick| (!narrow.contains(tick)).then_some("o");
        html! {
            text.b x=(8.0 - LEFT) y=(20.0 - TOP) { (self.title) }
            (self.draw_legend())
            @for (at, label) in &self.y_ticks {
                line.g x1="0" x2="100%" y1=(px(*at)) y2=(px(*at)) {}
                text x="-8" y=(px(at + 5.0)) text-anchor="end" { (label) }
            }
            @for tick in &wide {
                @let (at, label) = (percent(tick.0), &tick.1);
                line.g x1=(at) x2=(at) y1=(HEIGHT) y2=(HEIGHT + 5.0) {}
                text class=[is_optional(tick)] x=(at) y=(HEIGHT + 21.0) text-anchor="middle" { (label) }
            }
            text x="50%" y=(HEIGHT + 42.0) text-anchor="middle" { (self.x_title) }
            (self.content)
        }
    }

    fn draw_legend(&self) -> Markup {
        let width = |key: &Key| key.width + 6.0 + key.name.chars().count() as f64 * CHARACTER_WIDTH;
        let lefts = self.legend.iter().scan(8.0 - LEFT, |left, key| {
            *left += width(key) + LEGEND_GAP;
            Some(*left - width(key) - LEGEND_GAP)
        });
        html! {
            @for (key, left) in self.legend.iter().zip(lefts) {
                g transform=(format!("translate({} {})", px(left), 39.0 - TOP)) {
                    (key.symbol)
                    text.n x=(px(key.width + 6.0)) y="4.5" { (key.name) }
                }
            }
        }
    }
}

/// Renders plots below each other as a document of their own.
pub(crate) fn standalone(alternative: &str, plots: &[Plot], theme: &Theme) -> String {
    let height = TOP + HEIGHT + BOTTOM;
    let total = height * plots.len() as f64;
    html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(STANDALONE_WIDTH) height=(total)
            viewBox=(format!("0 0 {STANDALONE_WIDTH} {total}")) role="img" aria-label=(alternative) {
            // The rules are constants of this crate and do not contain `<`.
            style { (PreEscaped(super::stylesheet(theme))) }
            rect width="100%" height="100%" fill=(theme.background) {}
            @for (index, plot) in plots.iter().enumerate() {
                svg x=(LEFT) y=(TOP + height * index as f64) width=(STANDALONE_WIDTH - LEFT - RIGHT)
                    height=(HEIGHT) overflow="visible" { (plot.draw()) }
            }
        }
    }
    .into_string()
        + "\n"
}

/// Formats a horizontal position.
pub(super) fn percent(at: f64) -> String {
    format!("{}%", (at / WIDTH * 1e5).round() / 1e3)
}

/// Renders elements, and a text that appears while the pointer is above them.
pub(super) fn with_values(elements: &Markup, text: &str) -> Markup {
    html! { g.v { (elements) text { (text) } } }
}
