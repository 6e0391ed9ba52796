//! Reading a plan: TOML, each key the name of an option.

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

/// The longest plan, with the files that it carries.
const LONGEST: u64 = 16 << 20;

/// The table of files that a plan carries, in base64.
pub(super) const FILES: &str = "files";

/// An option, as the command line has it.
pub(super) struct Planned<'a> {
    pub(super) arg: &'a Arg,
    pub(super) arguments: Vec<OsString>,
}

/// The text of a plan; `-` is standard input.
pub(super) fn text(path: &Path) -> Result<String, Failure> {
    let cannot = |error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    let mut from: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).map_err(cannot)?),
    };
    let mut text = String::new();
    from.by_ref().take(LONGEST + 1).read_to_string(&mut text).map_err(cannot)?;
    match text.len() as u64 > LONGEST {
        true => Err(Failure::usage(format!(
            "{} is longer than {} MiB, which no plan is",
            path.display(),
            LONGEST >> 20
        ))),
        false => Ok(text),
    }
}

/// What a plan says, in its order. Names of files in it are relative to `dir`.
pub(super) fn plan<'a>(
    text: &str,
    file: &str,
    dir: &Path,
    command: &'a Command,
) -> Result<Vec<Planned<'a>>, Failure> {
    let mut reader = Reader { text, file, dir, command, files: BTreeMap::new() };
    let table = DeTable::parse(text).map_err(|error| {
        reader.wrong(error.span().map_or(0, |span| span.start), error.message())
    })?;
    let mut entries: Vec<_> = table.into_inner().into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    if let Some(at) = entries.iter().position(|(key, _)| key.get_ref() == FILES) {
        reader.carried(&entries.swap_remove(at).1)?;
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
    fn wrong(&self, at: usize, what: impl AsRef<str>) -> Failure {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        // A parser's message may have several lines.
        let what = what.as_ref().lines().collect::<Vec<_>>().join("; ");
        Failure::usage(format!("{}:{line}:{column}: {what}", self.file))
    }

    fn option(
        &self,
        key: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Planned<'a>, Failure> {
        let known = |arg: &&Arg| {
            name(arg) == key || arg.get_all_aliases().is_some_and(|all| all.contains(&key))
        };
        let Some(arg) = self.command.get_arguments().find(known) else {
            return Err(self.wrong(at, self.unknown(key)));
        };
        if LOCAL.contains(&name(arg)) {
            let what = format!("\"{key}\" is of a process and not of a run: give it as --{key}");
            return Err(self.wrong(at, what));
        }
        let arguments = self.arguments(arg, key, value)?;
        self.parses(arg, &arguments).map_err(|what| self.wrong(value.span().start, what))?;
        Ok(Planned { arg, arguments })
    }

    /// What is said of a name that no option has; clap knows those that are like it.
    fn unknown(&self, key: &str) -> String {
        let tried = self.command.clone().try_get_matches_from(["load", &format!("--{key}")]);
        let like = tried
            .err()
            .and_then(|error| error.get(ContextKind::SuggestedArg).map(ToString::to_string));
        let like = like.filter(|like| !LOCAL.contains(&like.trim_start_matches('-')));
        match like {
            Some(like) => {
                format!("no option \"{key}\"; is it \"{}\"?", like.trim_start_matches('-'))
            }
            None => format!("no option \"{key}\"; hearken load --help lists them"),
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
                let what = format!("\"{key}\" is true or false, not {}", kind(value.get_ref()));
                Err(self.wrong(value.span().start, what))
            }
            DeValue::Array(_) if !matches!(arg.get_action(), ArgAction::Append) => {
                Err(self.wrong(value.span().start, format!("\"{key}\" has one value, not several")))
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
        let wrong = |what: String| self.wrong(value.span().start, what);
        let said = match value.get_ref() {
            DeValue::String(said) => said.clone().into_owned(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
                .map_err(|error| wrong(format!("\"{key}\": {error}")))?
                .to_string(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Datetime(time) => time.to_string(),
            other => return Err(wrong(format!("\"{key}\" has a value, not {}", kind(other)))),
        };
        let found = |name: &str| match self.files.get(name) {
            Some(carried) => Ok(carried.display().to_string()),
            None => self.dir.join(name).into_os_string().into_string().map_err(|_| {
                wrong(format!("\"{key}\": the directory of this plan has a name that is no text"))
            }),
        };
        let said = match path(arg) {
            Some(commas) => with_path(&said, commas, found)?,
            None => said,
        };
        let said = OsString::from(said);
        if !arg.is_positional() {
            let mut joined = OsString::from(format!("--{}=", name(arg)));
            joined.push(said);
            return Ok(joined);
        }
        // It would be taken for an option.
        match said.as_encoded_bytes().first() {
            Some(b'-') => Err(wrong(format!("\"{key}\" cannot begin with a dash"))),
            _ => Ok(said),
        }
    }

    /// Refuses a value that the option would refuse; what it is combined with is looked at later.
    fn parses(&self, arg: &Arg, arguments: &[OsString]) -> Result<(), String> {
        let command = self.command.clone().no_binary_name(true);
        let Err(error) = command.try_get_matches_from(arguments) else { return Ok(()) };
        let key = name(arg);
        match error.kind() {
            ErrorKind::ValueValidation => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                Err(format!("\"{key}\": {}", source.unwrap_or_else(|| one_line(&error))))
            }
            ErrorKind::InvalidValue => {
                let known = error.get(ContextKind::ValidValue).map(ToString::to_string);
                let known = known.filter(|known| !known.is_empty());
                Err(match known {
                    Some(known) => format!("\"{key}\" is one of: {known}"),
                    None => format!("\"{key}\" needs a value"),
                })
            }
            ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict => Ok(()),
            _ => Err(format!("\"{key}\": {}", one_line(&error))),
        }
    }

    /// The files that the plan carries, in memory, where they have names for as long as we run.
    fn carried(&mut self, files: &Spanned<DeValue<'_>>) -> Result<(), Failure> {
        let DeValue::Table(table) = files.get_ref() else {
            return Err(self.wrong(files.span().start, "\"files\" is a table of names and base64"));
        };
        for (name, content) in table {
            let at = content.span().start;
            let bytes = content.get_ref().as_str().and_then(|text| STANDARD.decode(text).ok());
            let Some(bytes) = bytes else {
                return Err(self.wrong(at, format!("file \"{}\" is not in base64", name.get_ref())));
            };
            let path = in_memory(&bytes).map_err(|error| {
                Failure::runtime(format!("holding \"{}\" in memory: {error}", name.get_ref()))
            })?;
            self.files.insert(name.get_ref().clone().into_owned(), path);
        }
        Ok(())
    }
}

fn in_memory(bytes: &[u8]) -> io::Result<PathBuf> {
    let mut file = File::from(memfd_create("hearken-plan", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // Kept open until the process ends: its name goes with it.
    mem::forget(file);
    Ok(path.into())
}

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
