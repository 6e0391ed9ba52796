//! Writing a plan, and the command line that it stands for.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::path::{self, Path};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use toml::{Table, Value};

use super::read::FILES;
use super::{Given, with_path};
use crate::Failure;

/// Of files of this size altogether a plan is handed to agents as an argument.
const MOST_CARRIED: u64 = 512 << 10;

/// The plan that says what was given.
pub(crate) fn print(given: &[Given]) -> Result<String, Failure> {
    let mut text = String::new();
    for option in given {
        let values = values(option, absolute)?;
        line(&mut text, option, values);
    }
    Ok(text)
}

/// The plan for agents elsewhere: with its files, but for those that are too large or are to stay,
/// whose absolute names it has; these are given back.
pub(crate) fn with_files(given: &[Given]) -> Result<(String, Vec<String>), Failure> {
    let (mut text, mut files, mut left) = (String::new(), Table::new(), Vec::new());
    let mut room = MOST_CARRIED;
    for option in given {
        let values = values(option, |path| {
            let cannot =
                |error| Failure::usage(format!("--{}: cannot read {path}: {error}", option.name));
            let about = fs::metadata(path).map_err(cannot)?;
            if option.secret || !about.is_file() || about.len() > room {
                let path = absolute(path)?;
                left.push(path.clone());
                return Ok(path);
            }
            let bytes = fs::read(path).map_err(cannot)?;
            room = room.saturating_sub(bytes.len() as u64);
            // Without a comma, which may have a meaning in a value.
            let file_name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
            let name = format!("{}-{}", files.len(), file_name.replace(',', "_"));
            files.insert(name.clone(), Value::from(STANDARD.encode(bytes)));
            Ok(name)
        })?;
        line(&mut text, option, values);
    }
    if !files.is_empty() {
        let _ = write!(text, "[{FILES}]\n{files}");
    }
    Ok((text, left))
}

fn absolute(path: &str) -> Result<String, Failure> {
    let path = path::absolute(path).map_err(Failure::runtime)?.into_os_string();
    path.into_string().map_err(|path| no_text(&path))
}

fn no_text(value: &OsStr) -> Failure {
    Failure::usage(format!("{}: a plan is text, and this is not", value.display()))
}

/// The values of an option; names of files in them as `file` has them.
fn values(
    option: &Given,
    mut file: impl FnMut(&str) -> Result<String, Failure>,
) -> Result<Vec<String>, Failure> {
    let value = |value: &OsString| {
        let value = value.to_str().ok_or_else(|| no_text(value))?;
        match option.path {
            Some(commas) => with_path(value, commas, &mut file),
            None => Ok(value.to_owned()),
        }
    };
    option.values.iter().map(value).collect()
}

fn line(text: &mut String, option: &Given, values: Vec<String>) {
    let mut values: Vec<_> = values.into_iter().map(typed).collect();
    let value = match values.len() {
        0 => Value::from(true),
        1 if !option.several => values.remove(0),
        _ => Value::Array(values),
    };
    let _ = writeln!(text, "{} = {value}", option.name);
}

/// A number if it is one as a plan would write it.
fn typed(text: String) -> Value {
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(number), _) if number.to_string() == text => Value::from(number),
        (_, Ok(number)) if Value::from(number).to_string() == text => Value::from(number),
        _ => Value::from(text),
    }
}

/// The command that a plan stands for.
pub(crate) fn check(given: &[Given]) -> String {
    let mut words = vec!["hearken load".to_owned()];
    let (positional, named): (Vec<_>, Vec<_>) = given.iter().partition(|option| option.positional);
    for option in positional {
        words.extend(option.values.iter().map(|value| quoted(&value.to_string_lossy())));
    }
    for option in named {
        if option.values.is_empty() {
            words.push(format!("--{}", option.name));
        }
        for value in &option.values {
            words.push(format!("--{} {}", option.name, quoted(&value.to_string_lossy())));
        }
    }
    words.join(" ")
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
