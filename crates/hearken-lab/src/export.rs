//! Export of reports: `results.json`, `report.html` and an SVG file for each figure.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::NamedTempFile;

use crate::error::LabError;
use crate::figures::{Figure, figures};
use crate::html;
use crate::load_figures;
use crate::results::Report;
use crate::svg::{self, Chart, LIGHT, plot};
use crate::sweep_figures;
use crate::table;

/// A report that can be rendered.
pub trait Render: Serialize {
    /// Renders a self-contained HTML page.
    fn render_html(&self) -> String;

    /// Renders each figure that has data as SVG on a white background, with its name.
    fn render_svg(&self) -> Vec<(String, String)>;

    /// Renders the table and notes for a terminal.
    fn render_text(&self) -> String;
}

impl Render for Report {
    fn render_html(&self) -> String {
        html::lab(self)
    }

    fn render_svg(&self) -> Vec<(String, String)> {
        let figures = |e| standalone(figures(e, self.emulator_of(e).is_some()));
        self.experiments.iter().flat_map(figures).collect()
    }

    fn render_text(&self) -> String {
        table::text(self)
    }
}

/// The result of a load test.
impl Render for hearken_load::Report {
    fn render_html(&self) -> String {
        html::load(self)
    }

    fn render_svg(&self) -> Vec<(String, String)> {
        let figures = load_figures::figures(self).into_iter();
        figures.map(|f| (f.name.to_owned(), plot::standalone(f.title, &f.panels, &LIGHT))).collect()
    }

    fn render_text(&self) -> String {
        self.to_string()
    }
}

/// The result of a sweep.
impl Render for hearken_load::sweep::Sweep {
    fn render_html(&self) -> String {
        html::sweep(self)
    }

    fn render_svg(&self) -> Vec<(String, String)> {
        let figures = sweep_figures::figures(self).into_iter();
        figures.map(|f| (f.name.to_owned(), plot::standalone(f.title, &f.panels, &LIGHT))).collect()
    }

    fn render_text(&self) -> String {
        self.to_string()
    }
}

/// Serialises the report as JSON, for use by other programs.
pub fn json(report: &impl Render) -> String {
    // Fails only for maps with non-string keys, and there are none.
    serde_json::to_string_pretty(report).unwrap_or_default() + "\n"
}

/// Renders the report as a self-contained HTML page.
pub fn html(report: &impl Render) -> String {
    report.render_html()
}

/// Renders the tables and notes for a terminal.
pub fn text(report: &impl Render) -> String {
    report.render_text()
}

/// Renders the figures that have data as SVG on a white background, each with its name, such as
/// `quick-cost`.
pub fn figures_svg(report: &impl Render) -> Vec<(String, String)> {
    report.render_svg()
}

/// Renders figures as standalone SVG documents.
fn standalone<P: Chart>(figures: Vec<Figure<P, String>>) -> Vec<(String, String)> {
    let css = svg::stylesheet(&LIGHT);
    let render = |figure: Figure<P, String>| {
        let svg = svg::figure(&figure.title, &figure.panels, Some(&css)).into_string();
        (figure.name, svg + "\n")
    };
    figures.into_iter().map(render).collect()
}

/// Writes all files into `dir` and returns their paths. Creates the directory if necessary. Each
/// file is written atomically.
pub fn write_all(report: &impl Render, dir: &Path) -> Result<Vec<PathBuf>, LabError> {
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

/// Writes a temporary file in the same directory and renames it, so no file system is crossed.
fn write_atomically(path: &Path, dir: &Path, content: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    // Temporary files are private by default; the result has the permissions of any new file.
    let readable = std::fs::Permissions::from_mode(0o666);
    let mut file: NamedTempFile =
        tempfile::Builder::new().permissions(readable).tempfile_in(dir)?;
    file.write_all(content.as_bytes())?;
    file.persist(path)?;
    Ok(())
}
