//! Progress display on standard error.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A receiver of progress reports.
pub trait Progress {
    /// Reports the start of the next measurement. `left` is the estimated remaining time.
    fn step(&mut self, done: usize, planned: usize, next: &dyn Display, left: Duration);

    /// Reports the end of the run, complete or not.
    fn finish(&mut self) {}
}

/// Discards progress reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn step(&mut self, _: usize, _: usize, _: &dyn Display, _: Duration) {}
}

/// Displays a progress bar on a terminal, otherwise one line per tenth of the run.
#[derive(Debug)]
pub struct Shown {
    bar: Option<ProgressBar>,
    said: Option<usize>,
}

impl Shown {
    /// Creates a display on standard error.
    pub fn on_stderr() -> Shown {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            bar.with_style(style)
        });
        Shown { bar, said: None }
    }
}

impl Progress for Shown {
    fn step(&mut self, done: usize, planned: usize, next: &dyn Display, left: Duration) {
        let text = format!("{next}, about {} remaining", HumanDuration(left));
        if let Some(bar) = &self.bar {
            bar.set_length(planned as u64);
            bar.set_position(done as u64);
            bar.set_message(text);
        } else if let Some(tenth) = due(self.said, done, planned) {
            self.said = Some(tenth);
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
fn due(said: Option<usize>, done: usize, planned: usize) -> Option<usize> {
    let tenth = done * 10 / planned.max(1);
    (said != Some(tenth)).then_some(tenth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_one_line_per_tenth() {
        let mut said = None;
        let lines = (0..60).filter(|&done| {
            let tenth = due(said, done, 60);
            said = tenth.or(said);
            tenth.is_some()
        });
        assert_eq!(lines.count(), 10);
    }
}
