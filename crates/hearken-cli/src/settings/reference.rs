//! The reference of all settings, in Markdown.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{Kind, Setting, Table, commands, toml_value};

/// Returns a list of sections, each with a table of its settings. `names` has the names of the bits
/// of [`Setting::commands`].
pub(crate) fn reference<C>(table: &Table<C>, names: &[(u8, &str)]) -> String {
    let defaults = (table.defaults)();
    let mut text = String::new();
    for section in table.sections {
        let settings: Vec<_> = table
            .settings
            .iter()
            .filter(|setting| setting.section() == section.name)
            .filter(|setting| !matches!(setting.kind, Kind::Section))
            .collect();
        let summary = lower(section.summary);
        let heading = match section.name {
            "" => section.summary.to_owned(),
            name if name == summary => format!("`[{name}]`"),
            name => format!("`[{name}]`: {summary}"),
        };
        let _ = write!(text, "\n### {heading}\n\n");
        let shared =
            settings.iter().fold(0, |bits, setting| bits | commands(table.sections, setting));
        if let Some(command) = only(shared, names) {
            let _ = write!(text, "Only for {command}.\n\n");
        }
        text += "| key | flag | default | description |\n|---|---|---|---|\n";
        for setting in settings {
            let mut row = row(setting, &defaults);
            let bits = commands(table.sections, setting);
            if let Some(command) = only(bits, names).filter(|_| bits != shared) {
                let _ = write!(row, " Only for {command}.");
            }
            let _ = writeln!(text, "{row} |");
        }
    }
    text
}

/// Returns the command if there is only one.
fn only(bits: u8, names: &[(u8, &str)]) -> Option<String> {
    let mut names = names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name);
    let name = names.next().filter(|_| names.next().is_none());
    name.map(|name| format!("`{name}`"))
}

/// Lowers the first letter of a phrase, unless it is an abbreviation.
fn lower(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_lowercase() + rest
}

fn row<C>(setting: &Setting<C>, defaults: &C) -> String {
    let flag = match (setting.flag, setting.positional) {
        (None, false) if setting.section() != super::EXPERIMENTS => String::new(),
        _ => format!("`{}`", setting.argument()),
    };
    let value = (setting.get)(defaults).first().map(|value| value.to_string_lossy().into_owned());
    let default = match (setting.kind, value) {
        (Kind::Switch, Some(value)) => format!("`{}`", value == "yes"),
        (_, Some(value)) => format!("`{}`", toml_value(&value)),
        (_, None) => setting.default_text.to_owned(),
    };
    let mut text = format!("{}.", setting.summary);
    if !setting.details.is_empty() {
        let _ = write!(text, " {}", setting.details);
    }
    if !setting.choices.is_empty() {
        let choices: Vec<_> = setting.choices.iter().map(|it| format!("`{it}`")).collect();
        let _ = write!(text, " Values: {}.", choices.join(", "));
    }
    let text = text.replace('|', "\\|");
    format!("| `{}` | {flag} | {default} | {text}", setting.key)
}

/// Checks that a file contains the generated text between two comments. With `UPDATE_DOCS=1` in the
/// environment, writes it there.
pub(crate) fn check_document(path: &Path, generated: &str) {
    const BEGIN: &str = "<!-- begin of generated text -->\n";
    const END: &str = "\n<!-- end of generated text -->\n";
    let document = fs::read_to_string(path).unwrap();
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let (present, after) = rest.split_once(END).unwrap();
    if present == generated {
        return;
    }
    assert!(
        std::env::var_os("UPDATE_DOCS").is_some(),
        "{} is out of date; run UPDATE_DOCS=1 cargo test -p hearken-cli --bin hearken reference",
        path.display()
    );
    fs::write(path, format!("{before}{BEGIN}{generated}{END}{after}")).unwrap();
}
