//! Files for `--urls`: weighted URLs, one per line: `[WEIGHT] PATH-or-URL [METHOD] [CHECK...]`.

use std::path::Path;
use std::str::SplitAsciiWhitespace;

use super::alias_table::AliasTable;
use super::checks::Expect;
use super::lines::{Lines, file_error};
use super::message::{MessageBuilder, Request};
use super::{MAX_REQUESTS, Selection, TOO_MANY};
use crate::config::LoadError;

/// Reads the file.
pub(super) fn read(path: &Path, builder: &mut MessageBuilder<'_>) -> Result<Selection, LoadError> {
    let mut lines = Lines::open(path, b'\n')?;
    let (mut line, mut weights, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    while lines.next(&mut line)? {
        let text = str::from_utf8(&line).map_err(|_| lines.error("invalid UTF-8"))?;
        let (weight, words) = parse_weight(text).map_err(|reason| lines.error(reason))?;
        let Some(request) = RequestLine::parse(words).map_err(|reason| lines.error(reason))? else {
            continue;
        };
        if weights.len() >= MAX_REQUESTS {
            return Err(lines.error(TOO_MANY));
        }
        weights.push(weight);
        messages.push(
            builder.add(&request.to_request()).map_err(|reason| lines.error(reason.to_string()))?,
        );
    }
    if weights.is_empty() {
        return Err(file_error(path, "no URLs in the file; expected one per line".to_owned()));
    }
    Ok(Selection::Weighted { alias: AliasTable::new(&weights), messages })
}

/// Parses the optional weight at the start of a line. Returns it (default 1) and the remaining words.
fn parse_weight(text: &str) -> Result<(f64, SplitAsciiWhitespace<'_>), String> {
    let mut words = text.split_ascii_whitespace();
    let has_target = words.clone().skip(1).count() > 0;
    match words.clone().next() {
        Some(first) if first.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            let weight = first.parse().ok().filter(|weight| (1e-9..=1e9).contains(weight));
            let weight = weight.ok_or_else(|| {
                format!("invalid weight '{first}': expected a number from 1e-9 to 1e9")
            })?;
            if !has_target {
                return Err("no URL after the weight".to_owned());
            }
            words.next();
            Ok((weight, words))
        }
        _ => Ok((1.0, words)),
    }
}

/// A request as described by a line: `PATH-or-URL [METHOD] [CHECK...]`.
#[derive(Debug)]
pub(super) struct RequestLine<'a> {
    target: &'a str,
    method: Option<&'a str>,
    expect: Option<Expect>,
}

impl<'a> RequestLine<'a> {
    /// Parses the words of a line. Returns `None` if the line is empty or a comment.
    pub(super) fn parse(
        mut words: SplitAsciiWhitespace<'a>,
    ) -> Result<Option<RequestLine<'a>>, String> {
        let Some(target) = words.next().filter(|word| !word.starts_with('#')) else {
            return Ok(None);
        };
        let mut request = RequestLine { target, method: None, expect: None };
        let mut checks: Vec<&str> = Vec::new();
        for word in words {
            if word.contains('=') {
                checks.push(word);
            } else if request.method.is_none() && checks.is_empty() {
                request.method = Some(word);
            } else {
                return Err(format!(
                    "unexpected word '{word}': expected 'PATH [METHOD] [CHECK...]', \
                     as in '/ GET status=200'"
                ));
            }
        }
        if !checks.is_empty() {
            let expect: Expect = checks.join(",").parse()?;
            if request.method == Some("HEAD") && expect.clone().without_content() != expect {
                return Err("a reply to HEAD has no content to check; check only its status".into());
            }
            request.expect = Some(expect);
        }
        Ok(Some(request))
    }

    pub(super) fn to_request(&self) -> Request<'_> {
        let RequestLine { target, method, ref expect } = *self;
        Request { method, expect: expect.as_ref(), ..Request::new(target) }
    }
}
