//! Settings of a command, each described once.
//!
//! A [`Table`] lists [`Setting`]s. A setting has a key such as `timeouts.connect`, texts for users,
//! and two functions. `set` parses a value into a configuration of type `C`; `get` prints the
//! value of a configuration. Everything else is derived from the table:
//!
//! | module | derives |
//! |---|---|
//! | [`arguments`] | command-line flags and their help |
//! | [`file`] | keys of the config file, in TOML |
//! | [`resolve`] | the configuration: command line over file over defaults |
//! | [`print`] | `--print-config` |
//! | `reference` | a table of all settings for the documentation |
//!
//! The default of a setting is the value that `get` prints for [`Table::defaults`]. To add a
//! setting, add one entry to the table. To describe the settings of another command:
//!
//! 1. Write a table for its configuration, with [`setting`] and [`list`].
//! 2. Implement [`arguments::Configured`] with [`arguments::add`], and use
//!    [`arguments::Matches`] in the derived command line.
//! 3. Pass the matches to [`resolve::resolve`], with a function that checks the configuration.
//!
//! [`setting`]: setting!
//! [`list`]: list!

use std::ffi::{OsStr, OsString};

pub(crate) mod arguments;
mod file;
pub(crate) mod print;
#[cfg(test)]
pub(crate) mod reference;
pub(crate) mod resolve;
mod text;

/// The settings of one command.
pub(crate) struct Table<C: 'static> {
    /// The command, such as `hearken proxy`.
    pub(crate) command: &'static str,
    /// The bit of this command in [`Setting::commands`].
    pub(crate) bit: u8,
    /// Settings of this and other commands, in the order of help and documentation.
    pub(crate) settings: &'static [Setting<C>],
    /// Tables of the config file, in order. The first is the top level, with an empty name.
    pub(crate) sections: &'static [Section<C>],
    /// Returns the default configuration.
    pub(crate) defaults: fn() -> C,
}

/// A table of the config file.
pub(crate) struct Section<C: 'static> {
    pub(crate) name: &'static str,
    /// Heading of its flags in the help text. Empty for the first, general list.
    pub(crate) heading: &'static str,
    /// Noun phrase for the documentation.
    pub(crate) summary: &'static str,
    /// Bits of the commands that have the section.
    pub(crate) commands: u8,
    /// Default of [`Setting::applies`].
    pub(crate) applies: Applies<C>,
}

/// Returns an error if a setting has no effect in a configuration.
pub(crate) type Applies<C> = fn(&C) -> Result<(), &'static str>;

/// One setting.
pub(crate) struct Setting<C: 'static> {
    /// Key in the config file, with its table: `timeouts.connect`.
    pub(crate) key: &'static str,
    /// Long name on the command line, if the setting has a flag.
    pub(crate) flag: Option<&'static str>,
    /// Whether the setting is a positional argument.
    pub(crate) positional: bool,
    /// Name of the value in help texts, without angle brackets.
    pub(crate) placeholder: &'static str,
    /// Noun phrase of at most one line.
    pub(crate) summary: &'static str,
    /// Further sentences, or empty.
    pub(crate) details: &'static str,
    /// All values, if there are few.
    pub(crate) choices: &'static [&'static str],
    /// An example in TOML, for a setting without a default value.
    pub(crate) example: &'static str,
    /// The default in words, for a setting without a default value.
    pub(crate) default_text: &'static str,
    /// Whether `-h` shows the flag. `--help` shows all flags.
    pub(crate) common: bool,
    /// Whether the flag is in the first list of the help text, without the heading of its section.
    pub(crate) first: bool,
    /// Whether the value is a file name, which is relative to the directory of the config file.
    pub(crate) is_path: bool,
    /// Bits of the commands that have the setting, if they have its section.
    pub(crate) commands: u8,
    pub(crate) kind: Kind,
    /// Replaces the function of the section.
    pub(crate) applies: Option<Applies<C>>,
    /// Parses a value and stores it. Appends it to a list.
    pub(crate) set: fn(&mut C, &OsStr) -> Result<(), String>,
    /// Returns the present values. None if the setting has no value.
    pub(crate) get: fn(&C) -> Vec<OsString>,
    /// Empties a list before the values of another source are set.
    pub(crate) clear: fn(&mut C),
}

/// The form of a setting's value.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// One value.
    Value,
    /// `yes` or `no`, a boolean in the file. The flag alone means `yes`.
    Switch,
    /// Several values, an array in the file. The flag may be repeated, and the character may
    /// separate values.
    List(Option<char>),
    /// The presence of a table in the file, a flag without a value.
    Section,
    /// Several values with parameters: `VALUE;weight=3;backup`, in the file an array of tables. The
    /// first parameter is the key of the value itself.
    Tables(&'static [Parameter]),
}

/// A key of a table in an array of tables.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    /// A value in TOML. Its type is the type of the parameter.
    pub(crate) example: &'static str,
    /// Checks the value alone.
    pub(crate) check: fn(&str) -> Result<(), String>,
}

/// A form of values: how a value is parsed and printed.
pub(crate) struct Format<T: 'static> {
    pub(crate) kind: Kind,
    pub(crate) placeholder: &'static str,
    pub(crate) choices: &'static [&'static str],
    /// Parses a value. The error is a reason such as `must be at least 1`.
    pub(crate) parse: fn(&str) -> Result<T, String>,
    /// Prints a value in the form that `parse` accepts. Returns `None` if there is no value.
    pub(crate) print: fn(&T) -> Option<String>,
}

/// A boolean.
pub(crate) const SWITCH: Format<bool> = Format {
    kind: Kind::Switch,
    placeholder: "BOOL",
    choices: &[],
    parse: |text| match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("expected yes or no".to_owned()),
    },
    print: |value| Some(if *value { "yes" } else { "no" }.to_owned()),
};

/// Creates a [`Setting`]: its configuration type, key, [`Format`], place and summary.
macro_rules! setting {
    ($config:ty, $key:literal, $format:expr, |$c:ident| $place:expr, $summary:literal) => {
        $crate::settings::Setting::<$config>::new(
            $key,
            $summary,
            ($format.placeholder, $format.choices, $format.kind),
            |$c: &mut $config, value: &::std::ffi::OsStr| {
                $place = ($format.parse)($crate::settings::text_of(value)?)?;
                Ok(())
            },
            |$c: &$config| ($format.print)(&$place).into_iter().map(Into::into).collect(),
        )
    };
}
pub(crate) use setting;

/// Creates a [`Setting`] for a list, a `Vec` of what the [`Format`] parses.
macro_rules! list {
    ($config:ty, $key:literal, $format:expr, |$c:ident| $place:expr, $summary:literal) => {
        $crate::settings::Setting::<$config> {
            clear: |$c: &mut $config| $place.clear(),
            ..$crate::settings::Setting::<$config>::new(
                $key,
                $summary,
                ($format.placeholder, $format.choices, $format.kind),
                |$c: &mut $config, value: &::std::ffi::OsStr| {
                    $place.push(($format.parse)($crate::settings::text_of(value)?)?);
                    Ok(())
                },
                |$c: &$config| $place.iter().filter_map($format.print).map(Into::into).collect(),
            )
        }
    };
}
pub(crate) use list;

impl<C> Setting<C> {
    pub(crate) const fn new(
        key: &'static str,
        summary: &'static str,
        (placeholder, choices, kind): (&'static str, &'static [&'static str], Kind),
        set: fn(&mut C, &OsStr) -> Result<(), String>,
        get: fn(&C) -> Vec<OsString>,
    ) -> Setting<C> {
        Setting {
            key,
            flag: None,
            positional: false,
            placeholder,
            summary,
            details: "",
            choices,
            example: "",
            default_text: "",
            common: false,
            first: false,
            is_path: false,
            commands: u8::MAX,
            kind,
            applies: None,
            set,
            get,
            clear: |_| (),
        }
    }

    /// Adds a flag that only `--help` shows.
    pub(crate) const fn flag(mut self, flag: &'static str) -> Setting<C> {
        self.flag = Some(flag);
        self
    }

    /// Adds a flag that `-h` shows, too.
    pub(crate) const fn common_flag(mut self, flag: &'static str) -> Setting<C> {
        self.common = true;
        self.flag(flag)
    }

    /// Adds a flag to the first list of the help text.
    pub(crate) const fn first_flag(mut self, flag: &'static str) -> Setting<C> {
        self.first = true;
        self.common_flag(flag)
    }

    pub(crate) const fn placeholder(mut self, placeholder: &'static str) -> Setting<C> {
        self.placeholder = placeholder;
        self
    }

    pub(crate) const fn details(mut self, details: &'static str) -> Setting<C> {
        self.details = details;
        self
    }

    /// Limits the setting to some commands.
    pub(crate) const fn only(mut self, commands: u8) -> Setting<C> {
        self.commands = commands;
        self
    }

    /// Describes a setting without a default value.
    pub(crate) const fn unset(mut self, text: &'static str, example: &'static str) -> Setting<C> {
        self.default_text = text;
        self.example = example;
        self
    }

    pub(crate) const fn requires(
        mut self,
        applies: fn(&C) -> Result<(), &'static str>,
    ) -> Setting<C> {
        self.applies = Some(applies);
        self
    }

    /// Returns the table of the config file.
    pub(crate) fn section(&self) -> &'static str {
        match (self.kind, self.key.split_once('.')) {
            (Kind::Section, _) => self.key,
            (_, Some((section, _))) => section,
            (_, None) => "",
        }
    }

    /// Returns the key without its table.
    pub(crate) fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }

    /// Returns whether the flag may be repeated.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self.kind, Kind::List(_) | Kind::Tables(_))
    }

    /// Returns the setting as the command line names it, without its value, or its key.
    pub(crate) fn argument(&self) -> String {
        match self.flag {
            Some(flag) => format!("--{flag}"),
            None if self.positional => format!("<{}>", self.placeholder),
            None if self.section() == EXPERIMENTS => format!("--experiment {}", self.name()),
            None => self.key.to_owned(),
        }
    }
}

/// The table of settings that have no flags of their own, but `--experiment KEY=VALUE`.
pub(crate) const EXPERIMENTS: &str = "experiments";

impl<C> Table<C> {
    /// Returns the settings of this command.
    pub(crate) fn settings(&self) -> impl Iterator<Item = &'static Setting<C>> + use<C> {
        let (bit, sections) = (self.bit, self.sections);
        self.settings.iter().filter(move |setting| commands(sections, setting) & bit != 0)
    }

    /// Returns an error if the setting has no effect in the configuration.
    pub(crate) fn applies(&self, setting: &Setting<C>, config: &C) -> Result<(), &'static str> {
        let section = self.sections.iter().find(|section| section.name == setting.section());
        match setting.applies.or(section.map(|section| section.applies)) {
            Some(applies) => applies(config),
            None => Ok(()),
        }
    }

    /// Returns the settings of this command in a table of the config file.
    pub(crate) fn section(&self, name: &str) -> impl Iterator<Item = &'static Setting<C>> {
        self.settings().filter(move |setting| setting.section() == name)
    }

    /// Returns the tables of the config file that have settings of this command.
    pub(crate) fn sections(&self) -> impl Iterator<Item = &'static Section<C>> {
        self.sections.iter().filter(|section| self.section(section.name).next().is_some())
    }

    pub(crate) fn find(&self, section: &str, name: &str) -> Option<&'static Setting<C>> {
        self.section(section)
            .find(|setting| setting.name() == name && !matches!(setting.kind, Kind::Section))
    }
}

/// Returns the bits of the commands that have a setting.
fn commands<C>(sections: &[Section<C>], setting: &Setting<C>) -> u8 {
    let section = sections.iter().find(|section| section.name == setting.section());
    section.map_or(0, |section| section.commands) & setting.commands
}

/// Returns a value as text.
pub(crate) fn text_of(value: &OsStr) -> Result<&str, String> {
    value.to_str().ok_or_else(|| "not valid UTF-8".to_owned())
}

/// Returns ` (did you mean 'NAME'?)` with the most similar known name, or an empty string.
pub(crate) fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    // Comparing very long names takes long.
    if name.len() > MAX_NAME {
        return String::new();
    }
    known
        .map(|known| (strsim::jaro_winkler(&name.to_ascii_lowercase(), known), known))
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or(String::new(), |(_, known)| format!(" (did you mean '{known}'?)"))
}

/// Quotes user input, escaped and truncated.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("'{}...'", Escaped(&text[..end])),
        None => format!("'{}'", Escaped(text)),
    }
}

/// Text with control characters escaped.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|c| match c.is_control() {
            true => write!(f, "{}", c.escape_debug()),
            false => write!(f, "{c}"),
        })
    }
}

/// Maximum number of characters of user input in an error message.
const MAX_NAME: usize = 60;

/// Returns a value as TOML: a number if it is the usual form of one, else a string.
pub(crate) fn toml_value(text: &str) -> toml::Value {
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => number.into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Config {
        enabled: bool,
        switches: Vec<bool>,
    }

    fn enabled() -> Setting<Config> {
        setting!(Config, "output.enabled", SWITCH, |c| c.enabled, "Output")
    }

    #[test]
    fn builders_set_the_texts_and_the_visibility_of_flags() {
        let hidden = enabled().flag("enabled");
        assert_eq!((hidden.flag, hidden.common, hidden.first), (Some("enabled"), false, false));
        let common = enabled().common_flag("enabled");
        assert_eq!((common.common, common.first), (true, false));
        let setting = enabled()
            .first_flag("enabled")
            .placeholder("WHEN")
            .details("More.")
            .unset("never", "true")
            .only(2)
            .requires(|config| if config.enabled { Ok(()) } else { Err("reason") });
        assert_eq!((setting.common, setting.first, setting.commands), (true, true, 2));
        assert_eq!((setting.placeholder, setting.details), ("WHEN", "More."));
        assert_eq!((setting.default_text, setting.example), ("never", "true"));
        assert_eq!(setting.applies.map(|applies| applies(&Config::default())), Some(Err("reason")));
        assert_eq!((setting.section(), setting.argument()), ("output", "--enabled".to_owned()));
    }

    #[test]
    fn lists_append_values_and_can_be_cleared() {
        let setting = list!(Config, "switches", SWITCH, |c| c.switches, "Switches");
        let mut config = Config::default();
        for value in ["yes", "no"] {
            (setting.set)(&mut config, OsStr::new(value)).unwrap();
        }
        assert_eq!((setting.get)(&config), ["yes", "no"]);
        assert!((setting.set)(&mut config, OsStr::new("maybe")).is_err());
        (setting.clear)(&mut config);
        assert!((setting.get)(&config).is_empty());
    }
}
