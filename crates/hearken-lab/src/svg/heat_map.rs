//! Heat maps of latency: time from left to right, latency on a logarithmic axis, numbers of replies as colours.

use std::collections::BTreeMap;

use hearken_load::Histogram;
use maud::html;

use super::plot::{HEIGHT, Key, Plot, WIDTH, percent, with_values};
use super::{Scale, XAxis, px};
use crate::units::{count, grouped_tick, milliseconds};

/// Number of colours.
pub(crate) const LEVELS: usize = 7;
/// Rows for each power of ten.
const PER_DECADE: i32 = 10;
/// Width of a colour in the legend.
const SWATCH: f64 = 18.0;

/// The latencies of a time span in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column<'a> {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) latency: &'a Histogram,
}

/// Creates the heat map of the columns.
pub(crate) fn plot(columns: &[Column<'_>], x_axis: XAxis) -> Plot {
    let counts: Vec<BTreeMap<i32, u64>> = columns.iter().map(|of| rows(of.latency)).collect();
    let used = || counts.iter().flat_map(BTreeMap::keys).copied();
    let max = counts.iter().flat_map(BTreeMap::values).copied().max().unwrap_or(0);
    let lowest = used().min().unwrap_or(0);
    // At least a power of ten, so that rows do not become bands.
    let highest = used().max().unwrap_or(0).max(lowest + PER_DECADE - 1);
    let x = x_axis.scale(std::iter::empty(), 0.0, WIDTH);
    let (low, high) = (row_start(lowest), row_start(highest + 1));
    let y = Scale { log: true, low, high, from: HEIGHT, to: 0.0 };
    Plot {
        title: "Latency, ms (logarithmic)".into(),
        x_title: x_axis.title(),
        legend: if max > 0 { vec![key(max)] } else { Vec::new() },
        x_ticks: x_axis.ticks(&x),
        y_ticks: y.ticks_with(grouped_tick),
        has_data: max > 0,
        content: html! {
            @for (column, counts) in columns.iter().zip(&counts) {
                @let (left, right) = (x.at(column.from), x.at(column.to));
                @for (&row, &replies) in counts {
                    @let (from, to) = (row_start(row), row_start(row + 1));
                    @let cell = html! {
                        rect class=(format!("q q{}", level(replies, max))) x=(percent(left))
                            width=(percent(right - left)) y=(px(y.at(to)))
                            height=(px(px(y.at(from)) - px(y.at(to)))) {}
                    };
                    @let replies_name = if replies == 1 { "reply" } else { "replies" };
                    (with_values(&cell, &format!(
                        "{:.1} to {:.1} s, {} to {} ms: {} {replies_name}",
                        column.from, column.to, milliseconds(from), milliseconds(to), count(replies)
                    )))
                }
            }
        },
    }
}

/// Counts the latencies in each row.
fn rows(latency: &Histogram) -> BTreeMap<i32, u64> {
    let mut rows = BTreeMap::new();
    for value in latency.as_hdr().iter_recorded() {
        let nanos = value.value_iterated_to().max(1) as f64;
        let row = (nanos.log10() * f64::from(PER_DECADE)).floor() as i32;
        *rows.entry(row).or_default() += value.count_at_value();
    }
    rows
}

/// Returns the lower end of a row in milliseconds.
fn row_start(row: i32) -> f64 {
    10f64.powf(f64::from(row) / f64::from(PER_DECADE)) / 1e6
}

/// Returns the colour of a count. The scale is logarithmic, so that few replies are visible next to many.
fn level(replies: u64, max: u64) -> usize {
    if max <= 1 {
        return LEVELS - 1;
    }
    let share = (replies as f64).ln() / (max as f64).ln();
    ((share * LEVELS as f64) as usize).min(LEVELS - 1)
}

/// Creates the legend: all colours, between the counts that they stand for.
fn key(max: u64) -> Key {
    let symbol = html! {
        @for level in 0..LEVELS {
            rect class=(format!("q q{level}")) x=(SWATCH * level as f64 + 14.0) y="-6" width=(SWATCH)
                height="12" {}
        }
        text.n x="0" y="4.5" { "1" }
    };
    let width = SWATCH * LEVELS as f64 + 14.0;
    Key { symbol, width, name: format!("{} replies (logarithmic)", count(max)) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::svg::{LIGHT, plot::standalone};

    fn histogram(times: &[(u64, u64)]) -> Histogram {
        let mut histogram = Histogram::new();
        for &(micros, replies) in times {
            (0..replies).for_each(|_| histogram.record(Duration::from_micros(micros)));
        }
        histogram
    }

    #[test]
    fn each_cell_shows_its_count() {
        let (first, second) = (histogram(&[(1_500, 900), (40_000, 1)]), histogram(&[(1_500, 30)]));
        let columns = [
            Column { from: 0.0, to: 1.0, latency: &first },
            Column { from: 1.0, to: 2.5, latency: &second },
        ];
        let svg = standalone("x", &[plot(&columns, XAxis::Time { end: 2.5 })], &LIGHT);
        for text in [
            "0.0 to 1.0 s, 1.26 to 1.58 ms: 900 replies",
            "0.0 to 1.0 s, 39.8 to 50.1 ms: 1 reply<",
            "1.0 to 2.5 s, 1.26 to 1.58 ms: 30 replies",
            "900 replies (logarithmic)",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // Three cells, and the legend.
        assert_eq!(svg.matches("class=\"q q").count(), 3 + LEVELS);
    }

    #[test]
    fn colours_increase_with_the_count() {
        assert_eq!((level(1, 1), level(1, 100), level(100, 100)), (6, 0, 6));
        assert!((1..1000).all(|replies| level(replies, 1000) <= level(replies + 1, 1000)));
    }

    #[test]
    fn empty_heat_map_has_no_data() {
        let none = Histogram::new();
        let map = plot(&[Column { from: 0.0, to: 0.0, latency: &none }], XAxis::Time { end: 0.0 });
        assert!(!map.has_data());
        let svg = standalone("x", &[map], &LIGHT);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
