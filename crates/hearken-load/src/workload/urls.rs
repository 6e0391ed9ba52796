//! `--urls FILE`: URLs by weight, one a line: `[WEIGHT] PATH-or-URL [METHOD] [CHECK...]`.

use std::path::Path;
use std::str::SplitAsciiWhitespace;

use super::alias::Alias;
use super::expect::Expect;
use super::lines::{Lines, whole};
use super::message::{Maker, Request};
use super::{Kind, STEPS_MAX, TOO_MANY};
use crate::config::LoadError;

/// Reads the file.
pub(super) fn read(path: &Path, maker: &mut Maker<'_>) -> Result<Kind, LoadError> {
    let mut lines = Lines::open(path, b'\n')?;
    let (mut line, mut weights, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    while lines.next(&mut line)? {
        let text = str::from_utf8(&line).map_err(|_| lines.wrong("it is not UTF-8 text"))?;
        let (weight, words) = weighted(text).map_err(|reason| lines.wrong(reason))?;
        let Some(asked) = Asked::parse(words).map_err(|reason| lines.wrong(reason))? else {
            continue;
        };
        if weights.len() >= STEPS_MAX {
            return Err(lines.wrong(TOO_MANY));
        }
        weights.push(weight);
        messages
            .push(maker.add(&asked.request()).map_err(|reason| lines.wrong(reason.to_string()))?);
    }
    if weights.is_empty() {
        return Err(whole(path, "it names no URL; write one a line".to_owned()));
    }
    Ok(Kind::Weighted { alias: Alias::new(&weights), messages })
}

/// The weight at the start of a line, 1 if there is none, and the words that follow.
fn weighted(text: &str) -> Result<(f64, SplitAsciiWhitespace<'_>), String> {
    let mut words = text.split_ascii_whitespace();
    let after = words.clone().skip(1).count() > 0;
    match words.clone().next() {
        Some(first) if first.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            let weight = first.parse().ok().filter(|weight| (1e-9..=1e9).contains(weight));
            let weight = weight
                .ok_or_else(|| format!("\"{first}\" is no weight: those are from 1e-9 to 1e9"))?;
            if !after {
                return Err("it has a weight, but no URL".to_owned());
            }
            words.next();
            Ok((weight, words))
        }
        _ => Ok((1.0, words)),
    }
}

/// What a line asks for: `PATH-or-URL [METHOD] [CHECK...]`.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    target: &'a str,
    method: Option<&'a str>,
    expect: Option<Expect>,
}

impl<'a> Asked<'a> {
    /// Nothing, if the line is empty or a comment.
    pub(super) fn parse(mut words: SplitAsciiWhitespace<'a>) -> Result<Option<Asked<'a>>, String> {
        let Some(target) = words.next().filter(|word| !word.starts_with('#')) else {
            return Ok(None);
        };
        let mut asked = Asked { target, method: None, expect: None };
        let mut checks: Vec<&str> = Vec::new();
        for word in words {
            if word.contains('=') {
                checks.push(word);
            } else if asked.method.is_none() && checks.is_empty() {
                asked.method = Some(word);
            } else {
                return Err(format!(
                    "\"{word}\" is one word too many; write PATH METHOD CHECKS, as / GET status=200"
                ));
            }
        }
        if !checks.is_empty() {
            let expect: Expect = checks.join(",").parse()?;
            if asked.method == Some("HEAD") && expect.clone().without_content() != expect {
                return Err("a reply to HEAD has no content to check; ask for its status".into());
            }
            asked.expect = Some(expect);
        }
        Ok(Some(asked))
    }

    pub(super) fn request(&self) -> Request<'_> {
        let Asked { target, method, ref expect } = *self;
        Request { target, method, body: None, expect: expect.as_ref() }
    }
}
