//! What is shown on standard error while a run goes on.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Is told how far a run is.
pub trait Progress {
    /// The next measurement begins; `left` is an estimate.
    fn step(&mut self, done: usize, planned: usize, next: &dyn Display, left: Duration);

    /// The run is over, complete or not.
    fn finish(&mut self) {}
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn step(&mut self, _: usize, _: usize, _: &dyn Display, _: Duration) {}
}

/// A bar on a terminal, elsewhere a line for each tenth of the run.
#[derive(Debug)]
pub struct Shown {
    bar: Option<ProgressBar>,
    said: Option<usize>,
}

impl Shown {
    /// Writes to standard error.
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
        let text = format!("{next}; about {} left", HumanDuration(left));
        if let Some(bar) = &self.bar {
            bar.set_length(planned as u64);
            bar.set_position(done as u64);
            bar.set_message(text);
        } else if let Some(tenth) = due(self.said, done, planned) {
            self.said = Some(tenth);
            eprintln!("lab: {done} of {planned} measured; now {text}");
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// The tenth of the run that `done` is in, if nothing was said in it.
fn due(said: Option<usize>, done: usize, planned: usize) -> Option<usize> {
    let tenth = done * 10 / planned.max(1);
    (said != Some(tenth)).then_some(tenth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_are_sparse() {
        let mut said = None;
        let lines = (0..60).filter(|&done| {
            let tenth = due(said, done, 60);
            said = tenth.or(said);
            tenth.is_some()
        });
        assert_eq!(lines.count(), 10);
    }
}
