//! Prints a configuration as a file that results in the same configuration.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{self, Path};

use toml::Value;

use super::{Kind, Parameter, Setting, Table, toml_value};
use crate::Failure;

/// Returns the file. Settings without a value or without effect are comments.
pub(crate) fn print<C>(table: &Table<C>, config: &C) -> Result<String, Failure> {
    let command = table.command;
    let mut text = format!("# Configuration of {command}: {command} --config FILE\n");
    for section in table.sections() {
        let mut settings: Vec<_> = table.section(section.name).collect();
        // A key after an array of tables would belong to its last table.
        settings.sort_by_key(|setting| matches!(setting.kind, Kind::Tables(_)));
        let is_active = |setting: &Setting<C>| {
            table.applies(setting, config).is_ok()
                && (!matches!(setting.kind, Kind::Section) || !(setting.get)(config).is_empty())
        };
        if !section.name.is_empty() {
            let mark = if settings.iter().any(|it| is_active(it)) { "" } else { "# " };
            let _ = write!(text, "\n# {}\n{mark}[{}]\n", section.summary, section.name);
        }
        for setting in settings {
            match setting.kind {
                Kind::Section => {}
                Kind::Tables(parameters) => tables(&mut text, setting, parameters, config)?,
                _ => line(&mut text, setting, config, is_active(setting))?,
            }
        }
    }
    Ok(text)
}

fn describe<C>(text: &mut String, setting: &Setting<C>) {
    let _ = write!(text, "\n# {}", setting.summary);
    if setting.flag.is_some() || setting.positional {
        let _ = write!(text, " ({})", setting.argument());
    }
    text.push('\n');
    if !setting.choices.is_empty() {
        let _ = writeln!(text, "# One of: {}", setting.choices.join(", "));
    }
}

fn line<C>(
    text: &mut String,
    setting: &Setting<C>,
    config: &C,
    is_active: bool,
) -> Result<(), Failure> {
    describe(text, setting);
    let mut values = Vec::new();
    for value in (setting.get)(config) {
        values.push(value_of(setting, value)?);
    }
    let mark = if is_active && !values.is_empty() { "" } else { "# " };
    let value = match values.len() {
        0 => setting.example.to_owned(),
        _ if setting.is_list() => Value::Array(values).to_string(),
        _ => values.remove(0).to_string(),
    };
    let _ = writeln!(text, "{mark}{} = {value}", setting.name());
    Ok(())
}

fn value_of<C>(setting: &Setting<C>, value: OsString) -> Result<Value, Failure> {
    let text = utf8(value)?;
    if matches!(setting.kind, Kind::Switch) {
        return Ok(Value::Boolean(text == "yes"));
    }
    // The printed file may be stored in another directory.
    if setting.is_path && !matches!(text.as_str(), "-" | "none") {
        let absolute = path::absolute(Path::new(&text)).map_err(Failure::runtime)?;
        return Ok(utf8(absolute.into_os_string())?.into());
    }
    Ok(toml_value(&text))
}

fn utf8(value: OsString) -> Result<String, Failure> {
    value.into_string().map_err(|value| {
        Failure::usage(format!("cannot print '{}' in a config file: not UTF-8", value.display()))
    })
}

fn tables<C>(
    text: &mut String,
    setting: &Setting<C>,
    parameters: &[Parameter],
    config: &C,
) -> Result<(), Failure> {
    describe(text, setting);
    let values = (setting.get)(config);
    if values.is_empty() {
        let _ = writeln!(text, "# [[{}]]", setting.key);
        for Parameter { name, example, .. } in parameters {
            let _ = writeln!(text, "# {name} = {example}");
        }
    }
    for (index, value) in values.into_iter().enumerate() {
        let value = utf8(value)?;
        let mut parts = value.split(';');
        let main = parts.next().unwrap_or_default();
        let present: Vec<_> =
            parts.map(|part| part.split_once('=').unwrap_or((part, "true"))).collect();
        let _ = writeln!(text, "{}[[{}]]", if index == 0 { "" } else { "\n" }, setting.key);
        for (position, Parameter { name, example, .. }) in parameters.iter().enumerate() {
            let value =
                present.iter().find(|(present, _)| present == name).map(|(_, value)| *value);
            let _ = match position {
                0 => writeln!(text, "{name} = {}", Value::from(main)),
                _ => writeln!(text, "{name} = {}", value.unwrap_or(example)),
            };
        }
    }
    Ok(())
}
