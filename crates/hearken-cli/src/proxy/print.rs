//! A proxy's settings as a file, which read back is the same.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{self, Path};

use clap::Command;
use clap::builder::PossibleValue;
use toml::Value;

use super::keys::{Key, Kind, SERVERS, TABLES, keys_of};
use super::option;
use super::settings::Settings;
use super::to;
use crate::Failure;

/// The file. What is not in force stands there as a comment.
pub(crate) fn print(settings: &Settings) -> Result<String, Failure> {
    let command = option::command();
    let mut text = "# Settings of hearken proxy: hearken proxy --config FILE\n".to_owned();
    let forward = settings.args.place.forward;
    let checked = settings.args.balance.check_path.0.is_some();
    for (table, about) in TABLES {
        let of = keys_of(table).map(|key| key.of).find(|of| *of != Kind::Both);
        let in_force = |of| match of {
            Kind::Both => true,
            Kind::Reverse => !forward,
            Kind::Forward => forward,
            Kind::Checked => !forward && checked,
        };
        if !table.is_empty() {
            let hash = if of.is_none_or(in_force) { "" } else { "# " };
            let _ = write!(text, "\n# {about}\n{hash}[{table}]\n");
        }
        for key in keys_of(table).filter(|key| key.name != SERVERS) {
            setting(&mut text, &command, settings, key, in_force(key.of))?;
        }
        if keys_of(table).any(|key| key.name == SERVERS) {
            servers(&mut text, settings)?;
        }
    }
    Ok(text)
}

fn setting(
    text: &mut String,
    command: &Command,
    settings: &Settings,
    key: &Key,
    in_force: bool,
) -> Result<(), Failure> {
    let Some(arg) = option::find(command, key.flag) else { return Ok(()) };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let help = if key.about.is_empty() { &help } else { key.about };
    let flag = key.flag;
    let _ = writeln!(text, "\n# {help} (--{flag})");
    let known: Vec<_> = arg.get_possible_values();
    if !option::is_switch(arg) && !known.is_empty() {
        let known: Vec<_> = known.iter().map(PossibleValue::get_name).collect();
        let _ = writeln!(text, "# One of: {}", known.join(", "));
    }
    let mut values = Vec::new();
    for value in option::values(&settings.matches, flag) {
        values.push(typed(key, option::is_switch(arg), value)?);
    }
    let value = match values.len() {
        0 => key.example.to_owned(),
        _ if option::is_several(arg) => Value::Array(values).to_string(),
        _ => values.remove(0).to_string(),
    };
    // A default of the other kind of proxy is nothing that was set.
    let given = !option::values(&settings.matches, flag).is_empty();
    let hash = if given && in_force { "" } else { "# " };
    let _ = writeln!(text, "{hash}{} = {value}", key.name);
    Ok(())
}

fn typed(key: &Key, is_switch: bool, value: OsString) -> Result<Value, Failure> {
    let value = utf8(value)?;
    if is_switch {
        return Ok(Value::Boolean((value == "yes") != key.inverse));
    }
    // Where a file is depends on where its name is written.
    if key.flag == "access-log" && !matches!(value.as_str(), "-" | "none") {
        let whole = path::absolute(Path::new(&value)).map_err(Failure::runtime)?;
        return Ok(utf8(whole.into_os_string())?.into());
    }
    Ok(option::typed(&value))
}

fn utf8(value: OsString) -> Result<String, Failure> {
    value.into_string().map_err(|value| {
        Failure::usage(format!("{}: a file of settings is text, and this is not", value.display()))
    })
}

fn servers(text: &mut String, settings: &Settings) -> Result<(), Failure> {
    let _ = writeln!(text, "\n# Each server: http://HOST[:PORT], HOST:PORT or unix:/PATH (--to)");
    let all = option::values(&settings.matches, "to");
    if all.is_empty() {
        text.push_str("# [[upstreams.server]]\n# to = \"http://127.0.0.1:9000\"\n");
        text.push_str("# weight = 1\n# backup = false\n");
    }
    for (nth, value) in all.into_iter().enumerate() {
        let value = utf8(value)?;
        let address = value.split(';').next().unwrap_or_default();
        let server = to::server(&value).map_err(Failure::usage)?;
        let blank = if nth == 0 { "" } else { "\n" };
        let _ = write!(
            text,
            "{blank}[[upstreams.{SERVERS}]]\nto = {}\nweight = {}\nbackup = {}\n",
            Value::from(address),
            server.weight,
            server.backup
        );
    }
    Ok(())
}
