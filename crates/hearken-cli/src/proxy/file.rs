//! Reading a proxy's file: TOML, whose every value is that of an option.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Key, Kind, SERVERS, TABLES};
use super::option;
use super::place::Wrong;
use super::to;

/// Of so many mistakes no more are looked for.
const MOST_WRONG: usize = 20;

/// An option that the file gives.
pub(crate) struct Entry {
    pub(crate) flag: &'static str,
    pub(crate) of: Kind,
    /// Its value, as the command line would have it; none of one that has none.
    pub(crate) value: Option<OsString>,
    /// Where in the file.
    pub(crate) at: usize,
}

/// What the file says, in its order, or all that is wrong in it. Names of files are relative to `dir`.
pub(crate) fn read(text: &str, dir: &Path, command: &Command) -> Result<Vec<Entry>, Vec<Wrong>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let wrong = |error: &toml::de::Error| Wrong {
            at: error.span().map_or(0, |span| span.start),
            what: format!("no TOML: {}", error.message().replace('\n', "; ")),
        };
        return Err(errors.iter().take(MOST_WRONG).map(wrong).collect());
    }
    let mut reader = Reader { dir, command, entries: Vec::new(), wrong: Vec::new() };
    reader.top(table.get_ref());
    match reader.wrong.is_empty() {
        true => Ok(reader.entries),
        false => Err(reader.wrong),
    }
}

struct Reader<'a> {
    dir: &'a Path,
    command: &'a Command,
    entries: Vec<Entry>,
    wrong: Vec<Wrong>,
}

impl Reader<'_> {
    fn top(&mut self, top: &DeTable<'_>) {
        for (name, value) in in_order(top) {
            let is_table = TABLES.iter().any(|(table, _)| table == name.get_ref());
            if !is_table || name.get_ref().is_empty() {
                self.key("", name, value);
                continue;
            }
            if name.get_ref() == "forward" {
                self.entry("forward", Kind::Forward, None, name.span().start);
            }
            match value.get_ref() {
                DeValue::Table(table) => {
                    for (key, value) in in_order(table) {
                        self.key(name.get_ref(), key, value);
                    }
                }
                other => {
                    let what = format!(
                        "\"{0}\" is a table, not {1}; write [{0}]",
                        name.get_ref(),
                        kind(other)
                    );
                    self.wrong(value.span().start, what);
                }
            }
        }
    }

    fn key(&mut self, table: &str, name: &Spanned<Cow<'_, str>>, value: &Spanned<DeValue<'_>>) {
        // Nothing more is told, and finding what is like it takes time.
        if self.wrong.len() >= MOST_WRONG {
            return;
        }
        let at = value.span().start;
        let Some(key) = keys::find(table, name.get_ref()) else {
            return self.wrong(name.span().start, keys::unknown(table, name.get_ref()));
        };
        if key.name == SERVERS && key.flag == "to" {
            return match value.get_ref() {
                DeValue::Array(servers) => {
                    servers.iter().for_each(|server| self.server(key, server));
                }
                DeValue::Table(_) => self.wrong(
                    name.span().start,
                    "there may be several servers; write [[upstreams.server]]",
                ),
                other => self.wrong(
                    at,
                    format!("a server is a table, not {}; write [[upstreams.server]]", kind(other)),
                ),
            };
        }
        let Some(arg) = option::find(self.command, key.flag) else { return };
        match value.get_ref() {
            DeValue::Array(all) if option::is_several(arg) => {
                for one in all {
                    self.value(key, arg, one);
                }
            }
            DeValue::Array(_) => {
                self.wrong(at, format!("\"{}\" has one value, not an array", key.name));
            }
            other if option::is_several(arg) => {
                let what = format!(
                    "\"{}\" is an array, not {}; write {}",
                    key.name,
                    kind(other),
                    key.example
                );
                self.wrong(at, what);
            }
            _ => self.value(key, arg, value),
        }
    }

    fn value(&mut self, key: &Key, arg: &Arg, value: &Spanned<DeValue<'_>>) {
        let at = value.span().start;
        let name = key.name;
        if option::is_switch(arg) {
            match value.get_ref() {
                DeValue::Boolean(on) => {
                    let value = if *on != key.inverse { "yes" } else { "no" };
                    self.entry(key.flag, key.of, Some(value.into()), at);
                }
                other => self
                    .wrong(at, format!("\"{name}\" is not {}; write true or false", kind(other))),
            }
            return;
        }
        let said = match said(value.get_ref()) {
            Ok(said) => said,
            Err(what) => {
                return self
                    .wrong(at, format!("\"{name}\" cannot be {what}; {}", instead(key, arg)));
            }
        };
        // No argument can have one.
        if said.contains('\0') {
            return self.wrong(at, format!("\"{name}\" has a NUL in it; {}", instead(key, arg)));
        }
        let said = match key.flag == "access-log" && !matches!(said.as_str(), "" | "-" | "none") {
            true => self.dir.join(said).into_os_string(),
            false => said.into(),
        };
        match option::accepts(arg, &said) {
            Ok(()) => self.entry(key.flag, key.of, Some(said), at),
            Err(what) if what.contains("; ") => self.wrong(at, format!("\"{name}\": {what}")),
            Err(what) => self.wrong(at, format!("\"{name}\": {what}; {}", instead(key, arg))),
        }
    }

    fn server(&mut self, key: &Key, server: &Spanned<DeValue<'_>>) {
        let at = server.span().start;
        let DeValue::Table(table) = server.get_ref() else {
            let what = format!(
                "a server is a table, not {}; write [[upstreams.server]]",
                kind(server.get_ref())
            );
            return self.wrong(at, what);
        };
        let before = self.wrong.len();
        let (mut address, mut parameters) = (None, String::new());
        for (name, value) in in_order(table) {
            let at = value.span().start;
            let parsed = match (name.get_ref().as_ref(), value.get_ref()) {
                ("to", DeValue::String(said)) => {
                    address = Some((said.clone().into_owned(), at));
                    to::server(said).map(drop)
                }
                ("to", other) => {
                    Err(format!("\"to\" is not {}; write \"http://HOST:PORT\"", kind(other)))
                }
                ("weight", DeValue::Integer(number)) => {
                    parameters += &format!(";weight={number}");
                    to::weight(&number.to_string()).map(drop)
                }
                ("weight", other) => {
                    Err(format!("\"weight\" is not {}; write 1 to 65535", kind(other)))
                }
                ("backup", DeValue::Boolean(on)) => {
                    parameters += if *on { ";backup" } else { "" };
                    Ok(())
                }
                ("backup", other) => {
                    Err(format!("\"backup\" is not {}; write true or false", kind(other)))
                }
                (unknown, _) => {
                    self.wrong(name.span().start, keys::unknown_of_server(unknown));
                    Ok(())
                }
            };
            if let Err(what) = parsed {
                self.wrong(at, what);
            }
        }
        match address {
            None => self.wrong(at, "a server without \"to\"; write to = \"http://HOST:PORT\""),
            Some((address, at)) if self.wrong.len() == before => {
                let whole = address + &parameters;
                match to::server(&whole) {
                    Ok(_) => self.entry(key.flag, key.of, Some(whole.into()), at),
                    Err(what) => self.wrong(at, what),
                }
            }
            Some(_) => {}
        }
    }

    fn entry(&mut self, flag: &'static str, of: Kind, value: Option<OsString>, at: usize) {
        self.entries.push(Entry { flag, of, value, at });
    }

    fn wrong(&mut self, at: usize, what: impl Into<String>) {
        if self.wrong.len() < MOST_WRONG {
            self.wrong.push(Wrong { at, what: what.into() });
        }
    }
}

/// What can be written for it.
fn instead(key: &Key, arg: &Arg) -> String {
    match option::default(arg) {
        Some(default) => format!("write for example {} = {}", key.name, option::typed(default)),
        None => format!("write for example {} = {}", key.name, key.example),
    }
}

/// A value as the command line would have it.
fn said(value: &DeValue<'_>) -> Result<String, &'static str> {
    match value {
        DeValue::String(said) => Ok(said.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| "so large a number"),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        other => Err(kind(other)),
    }
}

type Item<'a, 'i> = (&'a Spanned<Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

/// The entries of a table, in the order of the file.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Item<'a, 'i>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
