//! Progress of a load on standard error: a block of lines that is redrawn on a terminal, or one line per interval.

mod frame;
pub(crate) mod numbers;

pub(crate) use numbers::{rate, time};

use std::collections::VecDeque;
use std::env;

use console::{Style, Term};
use hearken_load::Snapshot;

use crate::args::load::ProgressArg;
use frame::{Frame, Line};

/// Bars from zero to the maximum.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Bars for terminals without UTF-8.
const ASCII_BARS: [char; 7] = ['_', '.', '-', '=', '+', '*', '#'];
/// Maximum number of rates in the plot: the columns of a very wide terminal.
const MAX_RATES: usize = 512;

/// A display of the progress of a load.
pub(crate) struct Live {
    mode: Mode,
    rates: VecDeque<f64>,
}

enum Mode {
    Off,
    Log,
    InPlace(InPlace),
}

/// A block of lines on a terminal. The cursor is on the line below it.
struct InPlace {
    term: Term,
    /// Widths of the drawn lines, in columns.
    drawn: Vec<usize>,
    bars: &'static [char],
}

impl Live {
    /// Creates a display in the requested mode. `Auto` draws a block if standard error is a terminal.
    pub(crate) fn on_stderr(requested: ProgressArg) -> Live {
        let term = Term::buffered_stderr();
        let mode = match requested {
            ProgressArg::None => Mode::Off,
            ProgressArg::Log => Mode::Log,
            ProgressArg::Auto if term.is_term() && !console::is_dumb() => {
                let bars: &[char] = if supports_utf8() { &BARS } else { &ASCII_BARS };
                Mode::InPlace(InPlace { term, drawn: Vec::new(), bars })
            }
            ProgressArg::Auto => Mode::Off,
        };
        Live { mode, rates: VecDeque::new() }
    }

    /// Displays a snapshot. `cores` is the number of processors that the watched server keeps busy.
    pub(crate) fn show(&mut self, now: &Snapshot, cores: Option<f64>) {
        let frame = Frame::new(now, cores);
        if frame.elapsed_s.is_some() {
            self.rates.push_back(frame.replied);
            if self.rates.len() > MAX_RATES {
                self.rates.pop_front();
            }
        }
        match &mut self.mode {
            Mode::Off => {}
            Mode::Log => eprintln!("{}", frame::log_line(&frame)),
            Mode::InPlace(block) => block.draw(&frame, self.rates.make_contiguous()),
        }
    }

    /// Removes the block, so that other output can be written.
    pub(crate) fn clear(&mut self) {
        if let Mode::InPlace(block) = &mut self.mode {
            block.clear();
            let _ = block.term.flush();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.clear();
    }
}

impl InPlace {
    /// Redraws the block. Ignores errors: no one reads a terminal that cannot be written to.
    fn draw(&mut self, frame: &Frame, rates: &[f64]) {
        self.clear();
        let (rows, columns) = self.term.size();
        // The last column stays empty, because some terminals begin a new line after it.
        let width = usize::from(columns).saturating_sub(1);
        let mut lines = frame::lines(frame, rates, self.bars, width);
        lines.truncate(usize::from(rows).saturating_sub(1));
        self.drawn = lines.iter().map(|line| line.text.chars().count()).collect();
        for line in &lines {
            let _ = self.term.write_line(&coloured(line));
        }
        let _ = self.term.flush();
    }

    fn clear(&mut self) {
        let columns = usize::from(self.term.size().1);
        let rows = occupied_rows(&std::mem::take(&mut self.drawn), columns);
        if rows > 0 {
            // This also clears the `^C` that the terminal echoes below the block.
            let _ = self.term.move_cursor_up(rows);
            let _ = self.term.clear_line();
            let _ = self.term.clear_to_end_of_screen();
        }
    }
}

/// Returns the text of a line, in colour for problems. `console` honours NO_COLOR.
fn coloured(line: &Line) -> String {
    if line.is_problem {
        Style::new().for_stderr().yellow().apply_to(&line.text).to_string()
    } else {
        line.text.clone()
    }
}

/// Returns the number of rows that lines of these widths occupy. A terminal that became narrower has wrapped them.
fn occupied_rows(widths: &[usize], columns: usize) -> usize {
    widths.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum()
}

/// Returns whether the locale uses UTF-8, according to the first variable that sets it.
fn supports_utf8() -> bool {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::NamedTempFile;

    use super::*;

    #[test]
    fn clear_removes_all_lines_of_the_block() {
        let file = NamedTempFile::new().unwrap();
        let (read, write) = (file.reopen().unwrap(), file.reopen().unwrap());
        let term = Term::read_write_pair(read, write);
        let mut block = InPlace { term, drawn: Vec::new(), bars: &ASCII_BARS };
        let frame = Frame { elapsed_s: Some(1.0), idle: 5, ..Frame::default() };
        block.draw(&frame, &[1.0]);
        let drawn = fs::read_to_string(file.path()).unwrap();
        assert_eq!((drawn.lines().count(), drawn.contains('\x1b')), (4, false), "{drawn}");
        block.clear();
        let cleared = fs::read_to_string(file.path()).unwrap();
        let after = cleared.strip_prefix(&drawn).unwrap();
        // Up to the first line, then clear to the end of the screen.
        assert!(after.starts_with("\x1b[4A") && after.ends_with("\x1b[0J"), "{after:?}");
        block.clear();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), cleared);
    }

    #[test]
    fn wrapped_lines_occupy_more_rows() {
        assert_eq!(occupied_rows(&[10, 0, 79], 80), 3);
        assert_eq!(occupied_rows(&[10, 0, 79], 40), 4);
        assert_eq!(occupied_rows(&[3], 0), 3);
        assert_eq!(occupied_rows(&[], 80), 0);
    }
}
