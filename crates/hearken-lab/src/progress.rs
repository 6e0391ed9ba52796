//! Progress display on standard error.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A receiver of progress reports.
pub trait Progress {
    /// Reports the start of the next measurement. `left` is the estimated remaining time.
    fn update(&mut self, done: usize, planned: usize, next: &dyn Display, remaining: Duration);

    /// Reports the end of the run, complete or not.
    fn finish(&mut self) {}
}

/// Discards progress reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn update(&mut self, _: usize, _: usize, _: &dyn Display, _: Duration) {}
}

/// Displays a progress bar on a terminal, otherwise one line per tenth of the run.
#[derive(Debug)]
pub struct StderrProgress {
    bar: Option<ProgressBar>,
    last_tenth: Option<usize>,
}

impl Default for StderrProgress {
    /// Creates a progress bar if standard error is a terminal.
    fn default() -> StderrProgress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            bar.with_style(style)
        });
        StderrProgress { bar, last_tenth: None }
    }
}

impl Progress for StderrProgress {
    fn update(&mut self, done: usize, planned: usize, next: &dyn Display, remaining: Duration) {
        let text = format!("{next}, about {} remaining", HumanDuration(remaining));
        if let Some(bar) = &self.bar {
            bar.set_length(planned as u64);
            bar.set_position(done as u64);
            bar.set_message(text);
        } else if let Some(tenth) = next_tenth(self.last_tenth, done, planned) {
            self.last_tenth = Some(tenth);
            eprintln!("lab: {done} of {planned} measurements completed; measuring {text}");
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Returns the current tenth of the run if no line was printed in it.
fn next_tenth(last: Option<usize>, done: usize, planned: usize) -> Option<usize> {
    let tenth = done * 10 / planned.max(1);
    (last != Some(tenth)).then_some(tenth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_one_line_per_tenth() {
        let mut last = None;
        let lines = (0..60).filter(|&done| {
            let tenth = next_tenth(last, done, 60);
            last = tenth.or(last);
            tenth.is_some()
        });
        assert_eq!(lines.count(), 10);
    }
}
