//! How a load goes, on standard error: a block of lines in place on a terminal, elsewhere a line
//! for each interval if that is asked for.

mod frame;
mod numbers;

use std::collections::VecDeque;
use std::env;

use console::{Style, Term};
use hearken_load::Snapshot;

use crate::args::load::ProgressArg;
use frame::{Frame, Line};

/// From none to the most.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Where characters beyond ASCII are not to be had.
const ASCII_BARS: [char; 7] = ['_', '.', '-', '=', '+', '*', '#'];
/// Rates that are kept for the widest terminal.
const MOST_RATES: usize = 512;

/// Shows how a load goes.
pub(crate) struct Live {
    how: How,
    rates: VecDeque<f64>,
}

enum How {
    NotAtAll,
    Log,
    InPlace(InPlace),
}

/// A block at the end of what a terminal shows; the cursor stands on the line below it.
struct InPlace {
    term: Term,
    /// The widths of the lines that are there.
    drawn: Vec<usize>,
    bars: &'static [char],
}

impl Live {
    /// Decides how, by what was asked for and what standard error is.
    pub(crate) fn on_stderr(asked: ProgressArg) -> Live {
        let term = Term::buffered_stderr();
        let how = match asked {
            ProgressArg::None => How::NotAtAll,
            ProgressArg::Log => How::Log,
            ProgressArg::Auto if term.is_term() && !console::is_dumb() => {
                let bars: &[char] = if speaks_utf8() { &BARS } else { &ASCII_BARS };
                How::InPlace(InPlace { term, drawn: Vec::new(), bars })
            }
            ProgressArg::Auto => How::NotAtAll,
        };
        Live { how, rates: VecDeque::new() }
    }

    /// Shows how it is now; `cores` of the machine work for the watched server.
    pub(crate) fn show(&mut self, now: &Snapshot, cores: Option<f64>) {
        let frame = Frame::of(now, cores);
        if frame.at_s.is_some() {
            self.rates.push_back(frame.replied);
            if self.rates.len() > MOST_RATES {
                self.rates.pop_front();
            }
        }
        match &mut self.how {
            How::NotAtAll => {}
            How::Log => eprintln!("{}", frame::log_line(&frame)),
            How::InPlace(block) => block.draw(&frame, self.rates.make_contiguous()),
        }
    }

    /// Leaves nothing of the block, so that something else can be written.
    pub(crate) fn clear(&mut self) {
        if let How::InPlace(block) = &mut self.how {
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
    /// A terminal that cannot be written to has nobody who looks at it.
    fn draw(&mut self, frame: &Frame, rates: &[f64]) {
        self.clear();
        let (rows, columns) = self.term.size();
        // The last column is left: some terminals begin a new line after it.
        let width = usize::from(columns).saturating_sub(1);
        let mut lines = frame::lines(frame, rates, self.bars, width);
        lines.truncate(usize::from(rows).saturating_sub(1));
        self.drawn = lines.iter().map(|line| line.text.chars().count()).collect();
        for line in &lines {
            let _ = self.term.write_line(&painted(line));
        }
        let _ = self.term.flush();
    }

    fn clear(&mut self) {
        let columns = usize::from(self.term.size().1);
        let taken = rows_taken(&std::mem::take(&mut self.drawn), columns);
        if taken > 0 {
            // What is below goes too: the `^C` that the terminal shows.
            let _ = self.term.move_cursor_up(taken);
            let _ = self.term.clear_line();
            let _ = self.term.clear_to_end_of_screen();
        }
    }
}

/// In colours where they are wanted: not with NO_COLOR.
fn painted(line: &Line) -> String {
    if line.bad {
        Style::new().for_stderr().yellow().apply_to(&line.text).to_string()
    } else {
        line.text.clone()
    }
}

/// How many rows lines of these widths take: a terminal that was made narrower has folded them.
fn rows_taken(widths: &[usize], columns: usize) -> usize {
    widths.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum()
}

/// By the first of the variables that decide it.
fn speaks_utf8() -> bool {
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
    fn a_block_is_taken_back_line_by_line() {
        let file = NamedTempFile::new().unwrap();
        let (read, write) = (file.reopen().unwrap(), file.reopen().unwrap());
        let term = Term::read_write_pair(read, write);
        let mut block = InPlace { term, drawn: Vec::new(), bars: &ASCII_BARS };
        let frame = Frame { at_s: Some(1.0), idle: 5, ..Frame::default() };
        block.draw(&frame, &[1.0]);
        let drawn = fs::read_to_string(file.path()).unwrap();
        assert_eq!((drawn.lines().count(), drawn.contains('\x1b')), (4, false), "{drawn}");
        block.clear();
        let cleared = fs::read_to_string(file.path()).unwrap();
        let after = cleared.strip_prefix(&drawn).unwrap();
        // Up to the first line, then all that is from there on.
        assert!(after.starts_with("\x1b[4A") && after.ends_with("\x1b[0J"), "{after:?}");
        block.clear();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), cleared);
    }

    #[test]
    fn lines_that_were_folded_take_more_rows() {
        assert_eq!(rows_taken(&[10, 0, 79], 80), 3);
        assert_eq!(rows_taken(&[10, 0, 79], 40), 4);
        assert_eq!(rows_taken(&[3], 0), 3);
        assert_eq!(rows_taken(&[], 80), 0);
    }
}
