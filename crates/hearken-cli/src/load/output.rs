//! The formats and destinations of a result.

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use hearken_lab::{Machine, export};
use hearken_load::Report;

use super::colour::coloured;
use super::file::ResultFile;
use super::github::github_summary;
use super::junit::junit;
use super::{print, to_json};
use crate::{Failure, load_agents};

/// Formats other than JSON.
#[derive(Args, Debug, Default)]
pub(crate) struct OutputArgs {
    /// Write the result as a self-contained page with plots
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "Results")]
    pub(crate) html: Option<PathBuf>,
    /// Write the intervals as CSV (- for stdout, instead of the summary)
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "Results")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the latencies of the intervals as an HdrHistogram log
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "Results")]
    pub(crate) hlog: Option<PathBuf>,
    /// Write the objectives as test cases in JUnit's XML format
    ///
    /// A further test case fails if no request succeeded.
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "Results")]
    pub(crate) junit: Option<PathBuf>,
    /// Append a table in Markdown to the file that $GITHUB_STEP_SUMMARY names
    #[arg(long, hide_short_help = true, help_heading = "Results")]
    pub(crate) github_summary: bool,
}

/// The variable that names the file of a job summary on GitHub.
const GITHUB_SUMMARY: &str = "GITHUB_STEP_SUMMARY";

impl OutputArgs {
    /// Changes each path by `rename`.
    pub(crate) fn rename(&mut self, rename: impl Fn(&mut PathBuf)) {
        let paths = [&mut self.html, &mut self.csv, &mut self.hlog, &mut self.junit];
        paths.into_iter().flatten().for_each(rename);
    }
}

/// The format of a result.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    /// Indented JSON.
    Json,
    /// JSON in one line.
    JsonLine,
    /// Frames for the process that started an agent of this rank.
    Frames(u32),
    /// A page.
    Html,
    /// Intervals as CSV.
    Csv,
    /// An HdrHistogram log.
    Hlog,
    /// Test cases.
    Junit,
    /// A job summary in Markdown.
    GithubSummary,
}

impl Format {
    fn flag(self) -> &'static str {
        match self {
            Format::Json => "--json",
            Format::JsonLine => "--agent",
            Format::Frames(_) => "--framed",
            Format::Html => "--html",
            Format::Csv => "--csv",
            Format::Hlog => "--hlog",
            Format::Junit => "--junit",
            Format::GithubSummary => "--github-summary",
        }
    }

    fn encode(self, report: &Report) -> Result<Vec<u8>, Failure> {
        Ok(match self {
            Format::Json => to_json(report).map_err(Failure::runtime)?.into_bytes(),
            Format::JsonLine => {
                (serde_json::to_string(report).map_err(Failure::runtime)? + "\n").into_bytes()
            }
            Format::Frames(rank) => {
                load_agents::frames(rank, &serde_json::to_vec(report).map_err(Failure::runtime)?)?
            }
            Format::Html => export::html(report).into_bytes(),
            Format::Csv => hearken_load::export::csv(report).into_bytes(),
            Format::Hlog => hearken_load::export::hlog(report).map_err(Failure::runtime)?,
            Format::Junit => junit(report).into_bytes(),
            Format::GithubSummary => github_summary(report).into_bytes(),
        })
    }
}

/// All destinations of a result.
pub(crate) struct Outputs {
    stdout: Option<Format>,
    /// Whether to print no summary.
    quiet: bool,
    files: Vec<(Format, ResultFile)>,
}

impl Outputs {
    /// Opens all files before the run. Keeps their content until the result is written.
    pub(crate) fn open(json: Option<&Path>, others: &OutputArgs) -> Result<Outputs, Failure> {
        let mut outputs = Outputs { stdout: None, quiet: false, files: Vec::new() };
        for (format, path) in [
            (Format::Json, json),
            (Format::Html, others.html.as_deref()),
            (Format::Csv, others.csv.as_deref()),
            (Format::Hlog, others.hlog.as_deref()),
            (Format::Junit, others.junit.as_deref()),
        ] {
            if let Some(path) = path {
                outputs.add(format, path)?;
            }
        }
        if others.github_summary {
            let path = env::var_os(GITHUB_SUMMARY).filter(|path| !path.is_empty());
            let path = path.ok_or_else(|| {
                Failure::usage(format!(
                    "--github-summary: ${GITHUB_SUMMARY} is not set; use it in a job of GitHub Actions"
                ))
            })?;
            let file = ResultFile::append(Path::new(&path))?;
            outputs.files.push((Format::GithubSummary, file));
        }
        Ok(outputs)
    }

    /// Omits the summary if `quiet` is true.
    pub(crate) fn quiet(self, quiet: bool) -> Outputs {
        Outputs { quiet, ..self }
    }

    fn add(&mut self, format: Format, path: &Path) -> Result<(), Failure> {
        let taken =
            self.files.iter().find(|(_, other)| other.path() == path).map(|(format, _)| *format);
        let taken = if path == Path::new("-") { self.stdout } else { taken };
        if let Some(other) = taken {
            return Err(Failure::usage(format!(
                "{} and {} cannot both write to '{}'",
                other.flag(),
                format.flag(),
                path.display()
            )));
        }
        if path == Path::new("-") {
            self.stdout = Some(format);
            return Ok(());
        }
        self.files.push((format, ResultFile::open(path)?));
        Ok(())
    }

    /// Writes this format to standard output, unless the user selected other output.
    pub(crate) fn default_to(&mut self, format: Format) {
        let json = self.files.iter().any(|(format, ..)| matches!(format, Format::Json));
        if matches!(format, Format::Frames(_)) || (self.stdout.is_none() && !json) {
            self.stdout = Some(format);
        }
    }

    /// Returns whether standard output receives a format, so that nothing else may be printed there.
    pub(crate) fn has_stdout(&self) -> bool {
        self.stdout.is_some()
    }

    /// Writes a result to all destinations.
    pub(crate) fn write(self, report: &Report) -> Result<(), Failure> {
        match self.stdout {
            None if self.quiet => {}
            None => print(&coloured(&report.to_string())),
            Some(Format::Frames(rank)) => {
                load_agents::write_frames(&Format::Frames(rank).encode(report)?)?;
            }
            // A reader may close a pipe early.
            Some(format) => {
                let mut out = io::stdout();
                let _ = out.write_all(&format.encode(report)?).and_then(|()| out.flush());
            }
        }
        for (format, file) in self.files {
            file.write(&format.encode(report)?)?;
        }
        Ok(())
    }
}

/// Adds the command and the machine to a report.
pub(crate) fn add_origin(report: &mut Report) {
    let words = std::env::args_os().map(|word| without_secrets(&word.to_string_lossy()));
    report.command = words.collect();
    report.machine = Machine::detect().to_string();
}

/// Returns an argument without credentials, because results are shared.
fn without_secrets(word: &str) -> String {
    let lower = word.to_ascii_lowercase();
    for name in ["authorization:", "cookie:"] {
        if let Some(at) = lower.find(name) {
            return format!("{} (removed)", &word[..at + name.len()]);
        }
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn secrets_are_removed() {
        assert_eq!(without_secrets("-HAuthorization: Bearer x"), "-HAuthorization: (removed)");
        assert_eq!(without_secrets("--header=cookie:a=b"), "--header=cookie: (removed)");
        assert_eq!(without_secrets("http://a/cookie"), "http://a/cookie");
    }
}
