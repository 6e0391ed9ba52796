//! Files for httperf's `--wsesslog N,X,F`: sessions of bursts of requests, in the format of httperf 0.9.
//!
//! A line is a request: a URI, then `method=M`, `think=SECONDS` and `contents=TEXT` in any order. An empty
//! line ends a session. A line that begins with whitespace belongs to the burst of the line before it.
//! `think` is the time to wait after the burst. Lines that begin with `#` are comments.
//!
//! `TEXT` may be in single or double quotes, which are equivalent. Inside and outside of quotes, `\n`,
//! `\r` and `\t` are control characters. A backslash at the end of a line is a line break. Before any other
//! character, a backslash stands for that character.
//!
//! As in httperf, the first request of a burst is sent alone, and the others are sent together when its
//! reply is complete, as browsers do. Such a burst becomes two bursts here.

use std::path::Path;
use std::time::Duration;

use super::lines::{Lines, file_error};
use super::message::{MessageBuilder, Request};
use super::{MAX_REQUESTS, Selection, TOO_MANY};
use crate::config::LoadError;

/// The sessions of a file.
#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) sessions: Box<[Session]>,
    pub(super) bursts: Box<[Burst]>,
    /// Messages of all bursts.
    pub(super) steps: Box<[u32]>,
    /// Total number of sessions to start, or `None` for no limit.
    pub(super) count: Option<u64>,
}

/// The position of the bursts and messages of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Session {
    pub(super) burst: u32,
    pub(super) bursts: u32,
    pub(super) step: u32,
}

/// Requests that are sent together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Burst {
    /// Think time before the burst, from the end of the last reply to the previous burst.
    pub(crate) think: Duration,
    pub(crate) messages: u32,
}

/// A burst as defined by httperf: the number of requests, and the think time after them.
struct Group {
    messages: u32,
    think: Duration,
}

#[derive(Default)]
struct Parser {
    sessions: Vec<Session>,
    bursts: Vec<Burst>,
    steps: Vec<u32>,
    /// Bursts of the current session.
    groups: Vec<Group>,
    /// Index of the first step of the current session.
    session_start: u32,
}

impl Parser {
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
        self.sessions.push(Session { burst: burst as u32, bursts, step: self.session_start });
        self.session_start = self.steps.len() as u32;
    }
}

/// Reads the file. `think` is the think time after bursts that specify none.
pub(super) fn read(
    path: &Path,
    count: Option<u64>,
    think: Duration,
    builder: &mut MessageBuilder<'_>,
) -> Result<Selection, LoadError> {
    let mut lines = Lines::open(path, b'\n')?;
    let (mut line, mut parser) = (Vec::new(), Parser::default());
    while lines.next(&mut line)? {
        if line.starts_with(b"#") {
            continue;
        }
        let continues_burst = line.first().is_some_and(|&byte| is_space(byte));
        let mut at = 0;
        let uri = next_word(&line, &mut at).to_vec();
        if uri.is_empty() {
            parser.end_session();
            continue;
        }
        if parser.steps.len() >= MAX_REQUESTS {
            return Err(lines.error(TOO_MANY));
        }
        match parser.groups.last_mut().filter(|_| continues_burst) {
            Some(group) => group.messages += 1,
            None => parser.groups.push(Group { messages: 1, think }),
        }
        let arguments = Arguments::parse(&mut lines, &mut line, at)?;
        if let (Some(think), Some(group)) = (arguments.think, parser.groups.last_mut()) {
            group.think = think;
        }
        let target =
            str::from_utf8(&uri).map_err(|_| lines.error(crate::UrlError::Path.to_string()))?;
        let (method, body) = (arguments.method.as_deref(), arguments.contents.as_deref());
        let request = Request { method, body, ..Request::new(target) };
        parser.steps.push(builder.add(&request).map_err(|reason| lines.error(reason.to_string()))?);
    }
    parser.end_session();
    if parser.sessions.is_empty() {
        return Err(file_error(
            path,
            "no sessions in the file; expected one URI per line".to_owned(),
        ));
    }
    Ok(Selection::Sessions(Sessions {
        sessions: parser.sessions.into(),
        bursts: parser.bursts.into(),
        steps: parser.steps.into(),
        count,
    }))
}

/// The arguments of a line after the URI.
#[derive(Default)]
struct Arguments {
    method: Option<String>,
    think: Option<Duration>,
    contents: Option<Vec<u8>>,
}

impl Arguments {
    /// Parses the rest of `line` from `at` on, and the lines on which its contents continue.
    fn parse(lines: &mut Lines, line: &mut Vec<u8>, mut at: usize) -> Result<Arguments, LoadError> {
        let mut arguments = Arguments::default();
        loop {
            let mut end = at;
            let text = next_word(line, &mut end);
            if text.is_empty() {
                return Ok(arguments);
            }
            let word = || String::from_utf8_lossy(text).into_owned();
            if let Some(method) = text.strip_prefix(b"method=") {
                arguments.method = Some(String::from_utf8_lossy(method).into_owned());
                at = end;
            } else if let Some(think) = text.strip_prefix(b"think=") {
                arguments.think = Some(parse_seconds(think).ok_or_else(|| {
                    lines.error(format!(
                        "invalid think time '{}': expected 0 to 86400 seconds",
                        word()
                    ))
                })?);
                at = end;
            } else if text.starts_with(b"contents=") && text.len() > b"contents=".len() {
                at = end - text.len() + b"contents=".len();
                let contents = parse_contents(lines, line, &mut at)?;
                // Empty contents mean no body, as in httperf.
                arguments.contents = Some(contents).filter(|contents| !contents.is_empty());
            } else {
                return Err(lines.error(format!(
                    "unknown argument '{}': expected 'method=M', 'think=SECONDS' or 'contents=TEXT'",
                    word()
                )));
            }
        }
    }
}

/// Parses contents that begin at `at`, and moves `at` to their end.
fn parse_contents(
    lines: &mut Lines,
    line: &mut Vec<u8>,
    at: &mut usize,
) -> Result<Vec<u8>, LoadError> {
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
                        return Err(lines.error("no line after a backslash at the end of a line"));
                    }
                }
            }
            (Some(byte), Some(open)) if byte == open => quote = None,
            (Some(byte @ (b'\'' | b'"')), None) => quote = Some(byte),
            (Some(b'\t' | b' ') | None, None) => return Ok(contents),
            (Some(byte), _) => contents.push(byte),
            (None, Some(_)) => {
                return Err(lines.error(
                    "quote is not closed; write a line break as \\n or as a backslash at the end of \
                     the line",
                ));
            }
        }
    }
}

/// Returns whether `byte` is whitespace as defined by C.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b'\x0b'
}

/// Returns the next word from `at` on, and moves `at` to its end.
fn next_word<'l>(line: &'l [u8], at: &mut usize) -> &'l [u8] {
    let rest = line.get(*at..).unwrap_or_default();
    let begin = rest.iter().take_while(|&&byte| is_space(byte)).count();
    let rest = &rest[begin..];
    let len = rest.iter().take_while(|&&byte| !is_space(byte)).count();
    *at += begin + len;
    &rest[..len]
}

fn parse_seconds(text: &[u8]) -> Option<Duration> {
    let seconds: f64 = str::from_utf8(text).ok()?.parse().ok()?;
    (0.0..=86_400.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}
