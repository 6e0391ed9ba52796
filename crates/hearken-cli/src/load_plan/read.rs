//! Reading plans.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, ArgAction, Command};
use rustix::fs::{MemfdFlags, memfd_create};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{LOCAL, is_flag, name, one_line, path, with_path};
use crate::Failure;

/// Maximum size of a plan in bytes, including its files.
const MAX_SIZE: u64 = 16 << 20;

/// The table of files in a plan, in base64.
pub(super) const FILES: &str = "files";

/// An option of a plan and the equivalent arguments.
pub(crate) struct Planned<'a> {
    pub(crate) arg: &'a Arg,
    pub(crate) arguments: Vec<OsString>,
}

/// Reads the text of a plan from a file, or from standard input (`-`).
pub(super) fn text(path: &Path) -> Result<String, Failure> {
    let cannot = |error| Failure::usage(format!("cannot read plan '{}': {error}", path.display()));
    let mut from: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).map_err(cannot)?),
    };
    let mut text = String::new();
    from.by_ref().take(MAX_SIZE + 1).read_to_string(&mut text).map_err(cannot)?;
    match text.len() as u64 > MAX_SIZE {
        true => Err(Failure::usage(format!(
            "plan '{}' is larger than {} MiB",
            path.display(),
            MAX_SIZE >> 20
        ))),
        false => Ok(text),
    }
}

/// Parses a plan. File names in it are relative to `dir`.
pub(crate) fn plan<'a>(
    text: &str,
    file: &str,
    dir: &Path,
    command: &'a Command,
) -> Result<Vec<Planned<'a>>, Failure> {
    let mut reader = Reader { text, file, dir, command, files: BTreeMap::new() };
    let table = DeTable::parse(text).map_err(|error| {
        reader.error(error.span().map_or(0, |span| span.start), error.message())
    })?;
    let mut entries: Vec<_> = table.into_inner().into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    if let Some(at) = entries.iter().position(|(key, _)| key.get_ref() == FILES) {
        reader.store_files(&entries.swap_remove(at).1)?;
        entries.sort_by_key(|(key, _)| key.span().start);
    }
    entries
        .iter()
        .map(|(key, value)| reader.option(key.get_ref(), key.span().start, value))
        .collect()
}

struct Reader<'t, 'a> {
    text: &'t str,
    file: &'t str,
    dir: &'t Path,
    command: &'a Command,
    files: BTreeMap<String, PathBuf>,
}

impl<'a> Reader<'_, 'a> {
    /// Returns an error at a byte offset, with line and column.
    fn error(&self, at: usize, reason: impl AsRef<str>) -> Failure {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        // A message of the TOML parser may have several lines.
        let reason = reason.as_ref().lines().collect::<Vec<_>>().join("; ");
        Failure::usage(format!("{}:{line}:{column}: {reason}", self.file))
    }

    fn option(
        &self,
        key: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Planned<'a>, Failure> {
        let Some(arg) = self.command.get_arguments().find(|arg| name(arg) == key) else {
            return Err(self.error(at, self.unknown(key)));
        };
        if LOCAL.contains(&name(arg)) {
            let reason = format!("'{key}' is not part of a plan; use --{key} on the command line");
            return Err(self.error(at, reason));
        }
        let arguments = self.arguments(arg, key, value)?;
        self.check(arg, &arguments).map_err(|reason| self.error(value.span().start, reason))?;
        Ok(Planned { arg, arguments })
    }

    /// Returns the error for an unknown key, with clap's suggestion if there is one.
    fn unknown(&self, key: &str) -> String {
        let matches = self.command.clone().try_get_matches_from(["load", &format!("--{key}")]);
        let similar = matches
            .err()
            .and_then(|error| error.get(ContextKind::SuggestedArg).map(ToString::to_string));
        let similar = similar.map(|flag| flag.trim_start_matches('-').to_owned());
        match similar.filter(|similar| !LOCAL.contains(&&**similar)) {
            Some(similar) => format!("unknown key '{key}' (did you mean '{similar}'?)"),
            None => format!("unknown key '{key}'; hearken load --help lists the options"),
        }
    }

    fn arguments(
        &self,
        arg: &Arg,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Vec<OsString>, Failure> {
        let flag = || OsString::from(format!("--{}", name(arg)));
        let optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
        match value.get_ref() {
            DeValue::Boolean(false) if is_flag(arg) => Ok(Vec::new()),
            DeValue::Boolean(true) if is_flag(arg) || optional => Ok(vec![flag()]),
            _ if is_flag(arg) => {
                let reason = format!("'{key}' is true or false, not {}", kind(value.get_ref()));
                Err(self.error(value.span().start, reason))
            }
            DeValue::Array(_) if !matches!(arg.get_action(), ArgAction::Append) => {
                Err(self.error(value.span().start, format!("'{key}' takes a single value")))
            }
            DeValue::Array(all) => all.iter().map(|one| self.argument(arg, key, one)).collect(),
            _ => Ok(vec![self.argument(arg, key, value)?]),
        }
    }

    fn argument(
        &self,
        arg: &Arg,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<OsString, Failure> {
        let error = |reason: String| self.error(value.span().start, reason);
        let text = match value.get_ref() {
            DeValue::String(text) => text.clone().into_owned(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
                .map_err(|cause| error(format!("'{key}': {cause}")))?
                .to_string(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Datetime(time) => time.to_string(),
            other => return Err(error(format!("'{key}' takes a value, not {}", kind(other)))),
        };
        let resolve = |name: &str| match self.files.get(name) {
            Some(stored) => Ok(stored.display().to_string()),
            None => self.dir.join(name).into_os_string().into_string().map_err(|_| {
                error(format!("'{key}': the name of the plan's directory is not valid UTF-8"))
            }),
        };
        let text = match path(arg) {
            Some(commas) => with_path(&text, commas, resolve)?,
            None => text,
        };
        let text = OsString::from(text);
        if !arg.is_positional() {
            let mut joined = OsString::from(format!("--{}=", name(arg)));
            joined.push(text);
            return Ok(joined);
        }
        // clap would take it for an option.
        match text.as_encoded_bytes().first() {
            Some(b'-') => Err(error(format!("'{key}' cannot begin with a dash"))),
            _ => Ok(text),
        }
    }

    /// Checks the value of an option. Conflicts between options are checked later.
    fn check(&self, arg: &Arg, arguments: &[OsString]) -> Result<(), String> {
        let command = self.command.clone().no_binary_name(true);
        let Err(error) = command.try_get_matches_from(arguments) else { return Ok(()) };
        let key = name(arg);
        match error.kind() {
            ErrorKind::ValueValidation => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                Err(format!("'{key}': {}", source.unwrap_or_else(|| one_line(&error))))
            }
            ErrorKind::InvalidValue => {
                let known = error.get(ContextKind::ValidValue).map(ToString::to_string);
                let known = known.filter(|known| !known.is_empty());
                Err(match known {
                    Some(known) => format!("'{key}' is one of: {known}"),
                    None => format!("'{key}' needs a value"),
                })
            }
            ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict => Ok(()),
            _ => Err(format!("'{key}': {}", one_line(&error))),
        }
    }

    /// Stores the files of the plan in memory, under names that exist until the process ends.
    fn store_files(&mut self, files: &Spanned<DeValue<'_>>) -> Result<(), Failure> {
        let DeValue::Table(table) = files.get_ref() else {
            let reason = "'files' is a table of names and content in base64";
            return Err(self.error(files.span().start, reason));
        };
        for (name, content) in table {
            let at = content.span().start;
            let bytes = content.get_ref().as_str().and_then(|text| STANDARD.decode(text).ok());
            let Some(bytes) = bytes else {
                let reason = format!("content of file '{}' is not valid base64", name.get_ref());
                return Err(self.error(at, reason));
            };
            let path = in_memory(&bytes).map_err(|error| {
                let name = name.get_ref();
                Failure::runtime(format!("cannot store file '{name}': memfd_create: {error}"))
            })?;
            self.files.insert(name.get_ref().clone().into_owned(), path);
        }
        Ok(())
    }
}

/// Creates a file in memory and returns its path.
fn in_memory(bytes: &[u8]) -> io::Result<PathBuf> {
    let mut file = File::from(memfd_create("hearken-plan", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // The path is valid only while the descriptor is open.
    mem::forget(file);
    Ok(path.into())
}

/// Returns the type of a value, for errors.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
