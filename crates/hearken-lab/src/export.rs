//! The report as files: `results.json`, `report.html`, and each figure as SVG.

use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::LabError;
use crate::figures::figures;
use crate::html;
use crate::results::Report;
use crate::svg::{self, ON_WHITE};

/// The report as JSON, the interface to any other program.
pub fn json(report: &Report) -> String {
    // Fails only for maps whose keys are not strings, and there are none.
    serde_json::to_string_pretty(report).unwrap_or_default() + "\n"
}

/// The report as one page that needs nothing else.
pub fn html(report: &Report) -> String {
    html::page(report)
}

/// The figures that have something to show, each with its name (`cost`, `latency`, `memory`,
/// `syscalls`), as SVG on white.
pub fn figures_svg(report: &Report) -> Vec<(&'static str, String)> {
    let css = svg::style(&ON_WHITE, "#1a1c1f", "#d9dde2", "#fff");
    figures(report)
        .into_iter()
        .map(|f| (f.name, svg::figure(f.title, &f.panels, Some(&css)).into_string() + "\n"))
        .collect()
}

/// Writes every file into `dir`, which is created if need be, and returns their paths. A file is
/// there whole or not at all.
pub fn write_all(report: &Report, dir: &Path) -> Result<Vec<PathBuf>, LabError> {
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
