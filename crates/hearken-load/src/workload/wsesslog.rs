//! httperf's `--wsesslog N,X,F`: sessions of bursts of requests, in the format of httperf 0.9.
//!
//! A line is a request: a URI, then `method=M`, `think=SECONDS`, `contents=TEXT` in any order. An
//! empty line ends a session. A line that begins with whitespace belongs to the burst of the line
//! before it; `think` is how long is waited after the burst it stands in. `TEXT` is quoted as in
//! a shell, with 'single' or "double" quotes that mean the same; a backslash, in quotes or not,
//! makes `\n`, `\r` and `\t` of these letters, a line break of the end of a line, and itself of
//! any other. A line whose first character is `#` is a comment.
//!
//! As in httperf, the first request of a burst is sent alone, and the others all at once when its
//! reply is complete, as a browser does: so that is two bursts here.

use std::path::Path;
use std::time::Duration;

use super::lines::{Lines, whole};
use super::message::{Maker, Request};
use super::{Kind, STEPS_MAX, TOO_MANY};
use crate::config::LoadError;

/// Sessions that begin in turn.
#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) sessions: Box<[Session]>,
    pub(super) bursts: Box<[Burst]>,
    /// The messages of all bursts.
    pub(super) steps: Box<[u32]>,
    /// How many are begun in all; no end without it.
    pub(super) count: Option<u64>,
}

/// Where a session's bursts and messages are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Session {
    pub(super) burst: u32,
    pub(super) bursts: u32,
    pub(super) step: u32,
}

/// Requests that are sent together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Burst {
    /// How long is waited before it, when the replies to the burst before are complete.
    pub(crate) think: Duration,
    pub(crate) messages: u32,
}

/// A burst as httperf counts: how many requests, and what is waited after them.
struct Group {
    messages: u32,
    think: Duration,
}

#[derive(Default)]
struct Reading {
    sessions: Vec<Session>,
    bursts: Vec<Burst>,
    steps: Vec<u32>,
    /// The session that is being read, and at which step it began.
    groups: Vec<Group>,
    began: u32,
}

impl Reading {
    fn end_session(&mut self) {
        if self.groups.is_empty() {
            return;
        }
        let burst = self.bursts.len();
        let mut think = Duration::ZERO;
        for group in self.groups.drain(..) {
            self.bursts.push(Burst { think, messages: 1 });
            if group.messages > 1 {
                let messages = group.messages - 1;
                self.bursts.push(Burst { think: Duration::ZERO, messages });
            }
            think = group.think;
        }
        let bursts = (self.bursts.len() - burst) as u32;
        self.sessions.push(Session { burst: burst as u32, bursts, step: self.began });
        self.began = self.steps.len() as u32;
    }
}

/// Reads the file; `think` is what is waited after a burst that does not say it.
pub(super) fn read(
    path: &Path,
    count: Option<u64>,
    think: Duration,
    maker: &mut Maker<'_>,
) -> Result<Kind, LoadError> {
    let mut lines = Lines::open(path, b'\n')?;
    let (mut line, mut reading) = (Vec::new(), Reading::default());
    while lines.next(&mut line)? {
        if line.starts_with(b"#") {
            continue;
        }
        let joins = line.first().is_some_and(|&byte| is_space(byte));
        let mut at = 0;
        let uri = word(&line, &mut at).to_vec();
        if uri.is_empty() {
            reading.end_session();
            continue;
        }
        if reading.steps.len() >= STEPS_MAX {
            return Err(lines.wrong(TOO_MANY));
        }
        match reading.groups.last_mut().filter(|_| joins) {
            Some(group) => group.messages += 1,
            None => reading.groups.push(Group { messages: 1, think }),
        }
        let given = Given::read(&mut lines, &mut line, at)?;
        if let (Some(think), Some(group)) = (given.think, reading.groups.last_mut()) {
            group.think = think;
        }
        let target =
            str::from_utf8(&uri).map_err(|_| lines.wrong(crate::UrlError::Path.to_string()))?;
        let (method, body) = (given.method.as_deref(), given.contents.as_deref());
        let request = Request { method, body, ..Request::of(target) };
        reading.steps.push(maker.add(&request).map_err(|reason| lines.wrong(reason.to_string()))?);
    }
    reading.end_session();
    if reading.sessions.is_empty() {
        return Err(whole(path, "it has no session; write one URI a line".to_owned()));
    }
    Ok(Kind::Sessions(Sessions {
        sessions: reading.sessions.into(),
        bursts: reading.bursts.into(),
        steps: reading.steps.into(),
        count,
    }))
}

/// What a line says besides the URI.
#[derive(Default)]
struct Given {
    method: Option<String>,
    think: Option<Duration>,
    contents: Option<Vec<u8>>,
}

impl Given {
    /// Reads the rest of `line`, from `at` on, and the lines that its contents go on in.
    fn read(lines: &mut Lines, line: &mut Vec<u8>, mut at: usize) -> Result<Given, LoadError> {
        let mut given = Given::default();
        loop {
            let mut end = at;
            let text = word(line, &mut end);
            if text.is_empty() {
                return Ok(given);
            }
            let shown = || String::from_utf8_lossy(text).into_owned();
            if let Some(method) = text.strip_prefix(b"method=") {
                given.method = Some(String::from_utf8_lossy(method).into_owned());
                at = end;
            } else if let Some(think) = text.strip_prefix(b"think=") {
                given.think = Some(seconds(think).ok_or_else(|| {
                    lines.wrong(format!("\"{}\" is no number of seconds up to a day", shown()))
                })?);
                at = end;
            } else if text.starts_with(b"contents=") && text.len() > b"contents=".len() {
                at = end - text.len() + b"contents=".len();
                let contents = contents(lines, line, &mut at)?;
                // Nothing at all is no body, as in httperf.
                given.contents = Some(contents).filter(|contents| !contents.is_empty());
            } else {
                return Err(lines.wrong(format!(
                    "unknown argument \"{}\" (known are method=M, think=SECONDS, contents='TEXT')",
                    shown()
                )));
            }
        }
    }
}

/// Reads contents, which begin at `at`, and moves it behind them.
fn contents(lines: &mut Lines, line: &mut Vec<u8>, at: &mut usize) -> Result<Vec<u8>, LoadError> {
    let mut contents = Vec::new();
    let mut quote = None;
    loop {
        let byte = line.get(*at).copied();
        *at += 1;
        match (byte, quote) {
            (Some(b'\\'), _) => {
                let escaped = line.get(*at).copied();
                *at += 1;
                contents.push(match escaped {
                    Some(b'n') | None => b'\n',
                    Some(b'r') => b'\r',
                    Some(b't') => b'\t',
                    Some(other) => other,
                });
                if escaped.is_none() {
                    *at = 0;
                    if !lines.next(line)? {
                        return Err(lines.wrong("it ends in a backslash, and no line follows"));
                    }
                }
            }
            (Some(byte), Some(open)) if byte == open => quote = None,
            (Some(byte @ (b'\'' | b'"')), None) => quote = Some(byte),
            (Some(b'\t' | b' ') | None, None) => return Ok(contents),
            (Some(byte), _) => contents.push(byte),
            (None, Some(_)) => {
                return Err(lines.wrong(
                    "a quote is not closed; a line break in it is written \\n, or as a backslash \
                     at the end of the line",
                ));
            }
        }
    }
}

/// What C calls whitespace.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b'\x0b'
}

/// The next word from `at` on, and moves it behind that.
fn word<'l>(line: &'l [u8], at: &mut usize) -> &'l [u8] {
    let rest = line.get(*at..).unwrap_or_default();
    let begin = rest.iter().take_while(|&&byte| is_space(byte)).count();
    let rest = &rest[begin..];
    let len = rest.iter().take_while(|&&byte| !is_space(byte)).count();
    *at += begin + len;
    &rest[..len]
}

fn seconds(text: &[u8]) -> Option<Duration> {
    let seconds: f64 = str::from_utf8(text).ok()?.parse().ok()?;
    (0.0..=86_400.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}
