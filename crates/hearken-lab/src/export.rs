//! The report as files: `results.json`, `report.html`, and each figure as SVG.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::NamedTempFile;

use crate::error::LabError;
use crate::figures::{Figure, figures};
use crate::html;
use crate::load;
use crate::peers;
use crate::results::Report;
use crate::svg::{self, Drawing, ON_WHITE};
use crate::table;

/// A report of any experiment, as what is shown of it.
pub trait Exhibit: Serialize {
    /// One page that needs nothing else.
    fn page(&self) -> String;

    /// The figures that have something to show, each with its name, as SVG on white.
    fn figures_svg(&self) -> Vec<(&'static str, String)>;

    /// The table for a terminal, and what it leaves out.
    fn text(&self) -> String;
}

impl Exhibit for Report {
    fn page(&self) -> String {
        html::quick(self)
    }

    fn figures_svg(&self) -> Vec<(&'static str, String)> {
        alone(figures(self))
    }

    fn text(&self) -> String {
        table::quick(self)
    }
}

impl Exhibit for peers::Report {
    fn page(&self) -> String {
        html::peers(self)
    }

    fn figures_svg(&self) -> Vec<(&'static str, String)> {
        alone(peers::figures(self))
    }

    fn text(&self) -> String {
        let told = table::under(&peers::table(self), self);
        match &self.settings.emulator {
            Some(emulator) => {
                format!("{told}Instructions were counted by emulation: {emulator}.\n")
            }
            None => told,
        }
    }
}

/// What came of a load.
impl Exhibit for hearken_load::Report {
    fn page(&self) -> String {
        html::load(self)
    }

    fn figures_svg(&self) -> Vec<(&'static str, String)> {
        alone(load::figures(self))
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// The report as JSON, the interface to any other program.
pub fn json(report: &impl Exhibit) -> String {
    // Fails only for maps whose keys are not strings, and there are none.
    serde_json::to_string_pretty(report).unwrap_or_default() + "\n"
}

/// The report as one page that needs nothing else.
pub fn html(report: &impl Exhibit) -> String {
    report.page()
}

/// The figures that have something to show, each with its name (such as `cost`, `latency`,
/// `memory`), as SVG on white.
pub fn figures_svg(report: &impl Exhibit) -> Vec<(&'static str, String)> {
    report.figures_svg()
}

/// Figures as they stand in files of their own.
pub(crate) fn alone<P: Drawing>(figures: Vec<Figure<P>>) -> Vec<(&'static str, String)> {
    let css = svg::style(&ON_WHITE, "#1a1c1f", "#d9dde2", "#fff");
    figures
        .into_iter()
        .map(|f| (f.name, svg::figure(f.title, &f.panels, Some(&css)).into_string() + "\n"))
        .collect()
}

/// Writes every file into `dir`, which is created if need be, and returns their paths. A file is
/// there whole or not at all.
pub fn write_all(report: &impl Exhibit, dir: &Path) -> Result<Vec<PathBuf>, LabError> {
    std::fs::create_dir_all(dir).map_err(LabError::file("create the directory", dir))?;
    let mut files =
        vec![("results.json".to_string(), json(report)), ("report.html".into(), html(report))];
    files.extend(figures_svg(report).into_iter().map(|(name, svg)| (format!("{name}.svg"), svg)));
    let mut written = Vec::with_capacity(files.len());
    for (name, content) in files {
        let path = dir.join(name);
        write_atomically(&path, dir, &content).map_err(LabError::file("write", &path))?;
        written.push(path);
    }
    Ok(written)
}

/// Through a temporary file in the same directory, so that the rename cannot cross file systems.
fn write_atomically(path: &Path, dir: &Path, content: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    // Readable by all that the umask allows, as any new file; a temporary one is private otherwise.
    let readable = std::fs::Permissions::from_mode(0o666);
    let mut file: NamedTempFile =
        tempfile::Builder::new().permissions(readable).tempfile_in(dir)?;
    file.write_all(content.as_bytes())?;
    file.persist(path)?;
    Ok(())
}
