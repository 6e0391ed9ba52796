//! Reads a config file.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::resolve::{Assignment, Origin};
use super::text::Problem;
use super::{Kind, Parameter, Setting, Table, quoted, suggestion, toml_value};

/// Maximum number of errors that are reported at once.
pub(super) const MAX_PROBLEMS: usize = 20;

/// Reads a config file into `config`. File names are relative to `dir`. Returns the settings in the
/// order of the file, or all errors.
pub(super) fn read<C>(
    text: &str,
    dir: &Path,
    table: &Table<C>,
    config: &mut C,
) -> Result<Vec<Assignment<C>>, Vec<Problem>> {
    let (toml, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let problem = |error: &toml::de::Error| Problem {
            at: error.span().map_or(0, |span| span.start),
            message: format!("invalid TOML: {}", error.message().replace('\n', ": ")),
        };
        return Err(errors.iter().take(MAX_PROBLEMS).map(problem).collect());
    }
    let mut reader = Reader { dir, table, config, assignments: Vec::new(), problems: Vec::new() };
    reader.read(toml.get_ref());
    match reader.problems.is_empty() {
        true => Ok(reader.assignments),
        false => Err(reader.problems),
    }
}

struct Reader<'a, C: 'static> {
    dir: &'a Path,
    table: &'a Table<C>,
    config: &'a mut C,
    assignments: Vec<Assignment<C>>,
    problems: Vec<Problem>,
}

impl<C> Reader<'_, C> {
    fn read(&mut self, toml: &DeTable<'_>) {
        for (name, value) in in_order(toml) {
            let section = self.table.sections().find(|section| {
                !section.name.is_empty() && section.name == name.get_ref().as_ref()
            });
            let Some(section) = section else {
                self.key("", name, value);
                continue;
            };
            let DeValue::Table(keys) = value.get_ref() else {
                let message = format!(
                    "'{0}' must be a table, not {1} (write [{0}])",
                    section.name,
                    type_name(value.get_ref())
                );
                self.problem(value.span().start, message);
                continue;
            };
            let mut settings = self.table.section(section.name);
            if let Some(setting) = settings.find(|setting| matches!(setting.kind, Kind::Section)) {
                self.set(setting, "yes".into(), name.span().start);
            }
            for (name, value) in in_order(keys) {
                self.key(section.name, name, value);
            }
        }
    }

    fn key(&mut self, section: &str, name: &Spanned<Cow<'_, str>>, value: &Spanned<DeValue<'_>>) {
        // Further problems are not reported, and finding similar names takes time.
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        let at = value.span().start;
        let Some(setting) = self.table.find(section, name.get_ref()) else {
            return self.problem(name.span().start, self.unknown(section, name.get_ref()));
        };
        match (setting.kind, value.get_ref()) {
            (Kind::Tables(parameters), DeValue::Array(elements)) => {
                for element in elements {
                    self.element(setting, parameters, element);
                }
            }
            (Kind::Tables(_), other) => {
                let key = setting.key;
                let message = format!(
                    "'{key}' must be an array of tables, not {} (write [[{key}]])",
                    type_name(other)
                );
                self.problem(at, message);
            }
            (Kind::List(_), DeValue::Array(elements)) => {
                for element in elements {
                    self.value(setting, element);
                }
            }
            (Kind::List(_), other) => self.wrong_type(setting, "an array", other, at),
            (_, DeValue::Array(_)) => {
                self.problem(at, format!("'{}' has one value, not an array", setting.name()));
            }
            _ => self.value(setting, value),
        }
    }

    fn value(&mut self, setting: &'static Setting<C>, value: &Spanned<DeValue<'_>>) {
        let at = value.span().start;
        let text = match (setting.kind, value.get_ref()) {
            (Kind::Switch, DeValue::Boolean(true)) => "yes".to_owned(),
            (Kind::Switch, DeValue::Boolean(false)) => "no".to_owned(),
            (Kind::Switch, other) => return self.wrong_type(setting, "true or false", other, at),
            (_, value) => match scalar(value) {
                Some(text) => text,
                None => return self.wrong_type(setting, "a string or a number", value, at),
            },
        };
        let value = match setting.is_path && !matches!(text.as_str(), "" | "-" | "none") {
            true => self.dir.join(text).into_os_string(),
            false => text.into(),
        };
        self.set(setting, value, at);
    }

    /// Reads an element of an array of tables.
    fn element(
        &mut self,
        setting: &'static Setting<C>,
        parameters: &'static [Parameter],
        element: &Spanned<DeValue<'_>>,
    ) {
        let [main, ..] = parameters else { return };
        let at = element.span().start;
        let DeValue::Table(keys) = element.get_ref() else {
            let message = format!(
                "'{0}' must be an array of tables, not of {1} (write [[{0}]])",
                setting.key,
                type_name(element.get_ref())
            );
            return self.problem(at, message);
        };
        let before = self.problems.len();
        let (mut value, mut suffix) = (None, String::new());
        for (name, parameter) in in_order(keys) {
            let at = parameter.span().start;
            let Some(known) = parameters.iter().find(|known| known.name == name.get_ref()) else {
                let names = || parameters.iter().map(|known| known.name);
                let similar = suggestion(name.get_ref(), names());
                let hint = match similar.is_empty() {
                    true => format!(" (known keys: {})", names().collect::<Vec<_>>().join(", ")),
                    false => similar,
                };
                let name_at = name.span().start;
                let unknown = quoted(name.get_ref());
                self.problem(
                    name_at,
                    format!("unknown key {unknown} in [[{}]]{hint}", setting.key),
                );
                continue;
            };
            let text = match (parameter.get_ref(), known.example.as_bytes()) {
                (DeValue::String(text), [b'"', ..]) => text.clone().into_owned(),
                (DeValue::Integer(number), [b'0'..=b'9', ..]) => number.to_string(),
                (DeValue::Boolean(on), b"true" | b"false") => {
                    if *on {
                        suffix += &format!(";{}", known.name);
                    }
                    continue;
                }
                (other, _) => {
                    let message = format!(
                        "'{0}' cannot be {1} (example: {0} = {2})",
                        known.name,
                        type_name(other),
                        known.example
                    );
                    self.problem(at, message);
                    continue;
                }
            };
            if let Err(reason) = (known.check)(&text) {
                self.invalid(known.name, &text, &reason, at);
            } else if known.name == main.name {
                value = Some((text, at));
            } else {
                suffix += &format!(";{}={text}", known.name);
            }
        }
        match value {
            Some((value, at)) if self.problems.len() == before => {
                self.set(setting, (value + &suffix).into(), at);
            }
            None if keys.keys().all(|key| key.get_ref() != main.name) => {
                let message = format!(
                    "missing key '{0}' in [[{1}]] (example: {0} = {2})",
                    main.name, setting.key, main.example
                );
                self.problem(at, message);
            }
            _ => {}
        }
    }

    fn set(&mut self, setting: &'static Setting<C>, value: OsString, at: usize) {
        if self.assignments.iter().all(|it| it.setting.key != setting.key) {
            (setting.clear)(self.config);
        }
        match (setting.set)(self.config, &value) {
            Ok(()) => {
                self.assignments.push(Assignment { setting, value, origin: Origin::File(at) });
            }
            Err(reason) => self.invalid(setting.name(), &value.to_string_lossy(), &reason, at),
        }
    }

    fn invalid(&mut self, name: &str, value: &str, reason: &str, at: usize) {
        self.problem(at, format!("invalid value {} for '{name}': {reason}", quoted(value)));
    }

    fn wrong_type(&mut self, setting: &Setting<C>, wanted: &str, value: &DeValue<'_>, at: usize) {
        let default = (setting.get)(&(self.table.defaults)());
        let example = match default.first().and_then(|value| value.to_str()) {
            _ if matches!(setting.kind, Kind::Switch) => "true".to_owned(),
            Some(default) if setting.example.is_empty() => toml_value(default).to_string(),
            _ => setting.example.to_owned(),
        };
        let (name, wrong) = (setting.name(), type_name(value));
        self.problem(
            at,
            format!("'{name}' must be {wanted}, not {wrong} (example: {name} = {example})"),
        );
    }

    fn problem(&mut self, at: usize, message: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { at, message: message.into() });
        }
    }

    /// Returns the message for an unknown key, with a suggestion.
    fn unknown(&self, section: &str, name: &str) -> String {
        let place = if section.is_empty() { "" } else { &format!(" in [{section}]") };
        let unknown = format!("unknown key {}{place}", quoted(name));
        let of_table = |setting: &Setting<C>| match setting.section() {
            "" => format!("'{}' before all tables", setting.name()),
            section => format!("'{}' in [{section}]", setting.name()),
        };
        let full = if section.is_empty() { name } else { &format!("{section}.{name}") };
        let other = |setting: &&Setting<C>| setting.key == full || setting.section() == full;
        if self.table.settings.iter().any(|setting| other(&setting)) {
            return format!("{unknown}: not a setting of '{}'", self.table.command);
        }
        let has_flag = |setting: &&Setting<C>| setting.flag == Some(name);
        if let Some(setting) = self.table.settings().find(has_flag) {
            return format!("{unknown} (did you mean {}?)", of_table(setting));
        }
        let mut known: Vec<_> = self.table.section(section).map(Setting::name).collect();
        if section.is_empty() {
            let sections = self.table.sections().map(|section| section.name);
            known.extend(sections.filter(|name| !name.is_empty()));
        }
        let similar = suggestion(name, known.iter().copied());
        if !similar.is_empty() {
            return unknown + &similar;
        }
        let elsewhere = self.table.settings().filter(|setting| setting.name() == name);
        let elsewhere: Vec<_> = elsewhere.map(of_table).collect();
        match elsewhere.is_empty() {
            true => format!("{unknown} (known keys: {})", known.join(", ")),
            false => format!("{unknown} (did you mean {}?)", elsewhere.join(" or ")),
        }
    }
}

/// Returns the text of a string or number.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Integer(number) => {
            let number = i128::from_str_radix(number.as_str(), number.radix());
            // Out of range for every setting, in any form.
            Some(number.map_or_else(|_| format!("1{:040}", 0), |number| number.to_string()))
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

type Item<'a, 'i> = (&'a Spanned<Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

/// Returns the entries of a table in the order of the file.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Item<'a, 'i>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
