//! The reply rate over the offered rate, as a plot in text.

use std::fmt;

use super::Point;
use crate::knee::Rate;

/// Length of the longest bar in characters.
const WIDTH: f64 = 56.0;

/// Writes a bar of the reply rate for each point, with a mark at the offered rate.
pub(super) fn write_bars(points: &[Point], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let highest = points.iter().map(|point| point.rate.max(point.reply_rate.mean));
    let highest = highest.fold(0.0, f64::max);
    if highest <= 0.0 {
        return Ok(());
    }
    writeln!(f, "\n   offered/s  # replies/s, | offered rate")?;
    for point in points {
        let length = |rate: f64| (rate / highest * WIDTH).round() as usize;
        let (replies, offered) = (length(point.reply_rate.mean), length(point.rate));
        let cell = |at: usize| match at {
            at if at == offered => '|',
            at if at < replies => '#',
            _ => ' ',
        };
        let bar: String = (0..=replies.max(offered)).map(cell).collect();
        writeln!(f, "  {:>10}  {}", Rate(point.rate).to_string(), bar.trim_end())?;
    }
    Ok(())
}
