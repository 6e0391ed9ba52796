//! Where the result of a load goes, and in which forms.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use hearken_lab::{Machine, export};
use hearken_load::Report;

use super::file::ResultFile;
use super::{as_json, print};
use crate::{Failure, load_agents};

/// The forms besides JSON.
#[derive(Args, Debug, Default)]
pub(crate) struct OutputArgs {
    /// Write the result as a page with plots to FILE, which needs nothing else
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(crate) html: Option<PathBuf>,
    /// Write its intervals as CSV to FILE (one of these may be - for stdout, in place of the summary)
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the latencies of its intervals to FILE as an HdrHistogram log
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(crate) hlog: Option<PathBuf>,
}

impl OutputArgs {
    /// The same files, by the names that `name` gives them.
    pub(crate) fn renamed(&mut self, name: impl Fn(&mut PathBuf)) {
        [&mut self.html, &mut self.csv, &mut self.hlog].into_iter().flatten().for_each(name);
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Form {
    Json,
    /// In one line.
    JsonLine,
    /// As what started an agent takes it from standard output; the agent's rank.
    Frames(u32),
    Html,
    Csv,
    Hlog,
}

impl Form {
    fn flag(self) -> &'static str {
        match self {
            Form::Json => "--json",
            Form::JsonLine => "--agent",
            Form::Frames(_) => "--framed",
            Form::Html => "--html",
            Form::Csv => "--csv",
            Form::Hlog => "--hlog",
        }
    }

    fn of(self, report: &Report) -> Result<Vec<u8>, Failure> {
        Ok(match self {
            Form::Json => as_json(report).map_err(Failure::runtime)?.into_bytes(),
            Form::JsonLine => {
                (serde_json::to_string(report).map_err(Failure::runtime)? + "\n").into_bytes()
            }
            Form::Frames(rank) => {
                load_agents::frames(rank, &serde_json::to_vec(report).map_err(Failure::runtime)?)?
            }
            Form::Html => export::html(report).into_bytes(),
            Form::Csv => hearken_load::export::csv(report).into_bytes(),
            Form::Hlog => hearken_load::export::hlog(report).map_err(Failure::runtime)?,
        })
    }
}

/// All places that the result goes to.
pub(crate) struct Outputs {
    stdout: Option<Form>,
    files: Vec<(Form, ResultFile)>,
}

impl Outputs {
    /// Before the run, and without losing an earlier result should this one come to nothing.
    pub(crate) fn open(json: Option<&Path>, others: &OutputArgs) -> Result<Outputs, Failure> {
        let mut outputs = Outputs { stdout: None, files: Vec::new() };
        for (form, path) in [
            (Form::Json, json),
            (Form::Html, others.html.as_deref()),
            (Form::Csv, others.csv.as_deref()),
            (Form::Hlog, others.hlog.as_deref()),
        ] {
            if let Some(path) = path {
                outputs.add(form, path)?;
            }
        }
        Ok(outputs)
    }

    fn add(&mut self, form: Form, path: &Path) -> Result<(), Failure> {
        let taken =
            self.files.iter().find(|(_, other)| other.path() == path).map(|(form, _)| *form);
        let taken = if path == Path::new("-") { self.stdout } else { taken };
        if let Some(other) = taken {
            return Err(Failure::usage(format!(
                "{} and {} cannot both write to {}",
                other.flag(),
                form.flag(),
                path.display()
            )));
        }
        if path == Path::new("-") {
            self.stdout = Some(form);
            return Ok(());
        }
        self.files.push((form, ResultFile::open(path)?));
        Ok(())
    }

    /// This form goes to standard output, where nothing else was asked for.
    pub(crate) fn take_stdout(&mut self, form: Form) {
        let json = self.files.iter().any(|(form, ..)| matches!(form, Form::Json));
        if matches!(form, Form::Frames(_)) || (self.stdout.is_none() && !json) {
            self.stdout = Some(form);
        }
    }

    /// Does standard output belong to a form, so that nothing else may be said there?
    pub(crate) fn has_stdout(&self) -> bool {
        self.stdout.is_some()
    }

    /// Writes it.
    pub(crate) fn tell(self, report: &Report) -> Result<(), Failure> {
        match self.stdout {
            None => print(&report.to_string()),
            Some(Form::Frames(rank)) => {
                load_agents::hand_over(&Form::Frames(rank).of(report)?)?;
            }
            // A reader that has seen enough is no failure.
            Some(form) => {
                let mut out = io::stdout();
                let _ = out.write_all(&form.of(report)?).and_then(|()| out.flush());
            }
        }
        for (form, file) in self.files {
            file.write(&form.of(report)?)?;
        }
        Ok(())
    }
}

/// Fills in what only this process knows.
pub(crate) fn sign(report: &mut Report) {
    let words = std::env::args_os().map(|word| open(&word.to_string_lossy()));
    report.command = words.collect();
    report.machine = Machine::look().to_string();
}

/// A word of the command line without what is to stay secret: results are shown around.
fn open(word: &str) -> String {
    let lower = word.to_ascii_lowercase();
    for name in ["authorization:", "cookie:"] {
        if let Some(at) = lower.find(name) {
            return format!("{} (left out)", &word[..at + name.len()]);
        }
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::open;

    #[test]
    fn secrets_are_left_out() {
        assert_eq!(open("-HAuthorization: Bearer x"), "-HAuthorization: (left out)");
        assert_eq!(open("--header=cookie:a=b"), "--header=cookie: (left out)");
        assert_eq!(open("http://a/cookie"), "http://a/cookie");
    }
}
