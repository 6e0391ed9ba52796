//! Writing plans, and the equivalent command line.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::path::{self, Path};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use toml::{Table, Value};

use super::read::FILES;
use super::{SetOption, with_path};
use crate::Failure;

/// Maximum total size in bytes of the files in a plan for agents, which is an argument.
const MAX_FILES_SIZE: u64 = 512 << 10;

/// Returns a plan with these options. File names are absolute.
pub(crate) fn print(options: &[SetOption]) -> Result<String, Failure> {
    let mut text = String::new();
    for option in options {
        let values = values(option, absolute)?;
        line(&mut text, option, values);
    }
    Ok(text)
}

/// Returns a plan for agents on other machines, with the content of its files. Secret and large files are not included:
/// the plan contains their absolute names, which are also returned.
pub(crate) fn with_files(options: &[SetOption]) -> Result<(String, Vec<String>), Failure> {
    let (mut text, mut files, mut not_included) = (String::new(), Table::new(), Vec::new());
    let mut space = MAX_FILES_SIZE;
    for option in options {
        let values = values(option, |path| {
            let cannot =
                |error| Failure::usage(format!("--{}: cannot read '{path}': {error}", option.name));
            let metadata = fs::metadata(path).map_err(cannot)?;
            if option.secret || !metadata.is_file() || metadata.len() > space {
                let path = absolute(path)?;
                not_included.push(path.clone());
                return Ok(path);
            }
            let bytes = fs::read(path).map_err(cannot)?;
            space = space.saturating_sub(bytes.len() as u64);
            // Commas may separate parts of a value.
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
    Ok((text, not_included))
}

fn absolute(path: &str) -> Result<String, Failure> {
    let path = path::absolute(path).map_err(Failure::runtime)?.into_os_string();
    path.into_string().map_err(|path| not_text(&path))
}

fn not_text(value: &OsStr) -> Failure {
    Failure::usage(format!("'{}' is not valid UTF-8, as plans require", value.display()))
}

/// Returns the values of an option, with file names replaced by the result of `file`.
fn values(
    option: &SetOption,
    mut file: impl FnMut(&str) -> Result<String, Failure>,
) -> Result<Vec<String>, Failure> {
    let value = |value: &OsString| {
        let value = value.to_str().ok_or_else(|| not_text(value))?;
        match option.path {
            Some(commas) => with_path(value, commas, &mut file),
            None => Ok(value.to_owned()),
        }
    };
    option.values.iter().map(value).collect()
}

fn line(text: &mut String, option: &SetOption, values: Vec<String>) {
    let mut values: Vec<_> = values.into_iter().map(typed).collect();
    let value = match values.len() {
        0 => Value::from(true),
        1 if !option.repeatable => values.remove(0),
        _ => Value::Array(values),
    };
    let _ = writeln!(text, "{} = {value}", option.name);
}

/// Converts text to a number if the number has the same text in TOML.
fn typed(text: String) -> Value {
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(number), _) if number.to_string() == text => Value::from(number),
        (_, Ok(number)) if Value::from(number).to_string() == text => Value::from(number),
        _ => Value::from(text),
    }
}

/// Returns the command line that a plan is equivalent to.
pub(crate) fn check(options: &[SetOption]) -> String {
    let mut words = vec!["hearken load".to_owned()];
    let (positional, named): (Vec<_>, Vec<_>) =
        options.iter().partition(|option| option.positional);
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

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
