//! HTTP Archives (HAR 1.2), which browsers and proxies record.
//!
//! The requests of a page become a session, in the order of their start. Requests without a page form another
//! session. A request is sent when the reply to the one before it is complete, after the time that passed
//! between them in the recording. Requests that overlapped are sent one after another without a pause.
//!
//! Requests to other servers are skipped. Method, path, query, header fields and the text of the body are kept.
//! Fields that concern the connection are not, nor those that the generator sets itself.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

use super::Selection;
use super::lines::{FILE_TOO_LARGE, MAX_FILE_BYTES, file_error};
use super::message::{MessageBuilder, Request};
use super::wsesslog::{Burst, Session, Sessions};
use crate::config::LoadError;
use crate::url::Url;

/// Maximum think time, as in session files.
const MAX_THINK: Duration = Duration::from_secs(86_400);

/// Header fields that are not kept: those of a connection, and those that the generator sets.
const OMITTED_FIELDS: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[derive(Deserialize)]
struct Archive {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    #[serde(deserialize_with = "numbered_entries")]
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    started_date_time: String,
    /// Time until the end of the reply, in milliseconds.
    time: Option<f64>,
    pageref: Option<String>,
    request: RecordedRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedRequest {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Field>,
    post_data: Option<PostData>,
}

#[derive(Deserialize)]
struct Field {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct PostData {
    text: Option<String>,
    #[serde(default)]
    params: Vec<IgnoredAny>,
}

/// Deserializes the entries. Errors contain the number of the entry.
fn numbered_entries<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Entry>, D::Error> {
    struct Entries;

    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<Entry>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array of entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<Entry>, A::Error> {
            let mut entries = Vec::new();
            loop {
                let number = entries.len() + 1;
                let next = from.next_element();
                match next.map_err(|error| A::Error::custom(format!("entry {number}: {error}")))? {
                    Some(entry) => entries.push(entry),
                    None => return Ok(entries),
                }
            }
        }
    }

    from.deserialize_seq(Entries)
}

/// A request of a session, with its time in nanoseconds since 1970.
struct Step {
    start: i128,
    end: i128,
    message: u32,
}

/// Reads the archive. Returns also the number of skipped requests to other servers.
pub(super) fn read(
    path: &Path,
    url: &Url,
    builder: &mut MessageBuilder<'_>,
) -> Result<(Selection, u64), LoadError> {
    let entries = parse(path)?;
    let total = entries.len();
    let mut pages: Vec<Vec<Step>> = Vec::new();
    let mut indices: HashMap<Option<String>, usize> = HashMap::new();
    let mut others: HashMap<String, u64> = HashMap::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let error = |reason: String| file_error(path, format!("entry {}: {reason}", index + 1));
        if let Some(origin) = other_origin(&entry.request.url, url) {
            *others.entry(origin.to_owned()).or_default() += 1;
            continue;
        }
        let step = Step::new(&entry, builder).map_err(error)?;
        let index = *indices.entry(entry.pageref).or_insert(pages.len());
        match pages.get_mut(index) {
            Some(page) => page.push(step),
            None => pages.push(vec![step]),
        }
    }
    if pages.is_empty() {
        let most = others.into_iter().max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0)));
        return Err(file_error(
            path,
            match most {
                None => "no entries in the file".to_owned(),
                Some((origin, count)) => format!(
                    "no request to the server of the URL; {count} of {total} are to '{origin}'; use that \
                     server in the URL, and --resolve or --unix-socket to connect to another"
                ),
            },
        ));
    }
    let skipped = others.values().sum();
    Ok((Selection::Sessions(sessions(pages)), skipped))
}

/// Reads the entries of the file.
fn parse(path: &Path) -> Result<Vec<Entry>, LoadError> {
    let failed = |error: &dyn fmt::Display| file_error(path, error.to_string());
    let file = File::open(path).map_err(|error| failed(&error))?;
    let mut input = BufReader::new(file.take(MAX_FILE_BYTES + 1));
    // Some programs write a byte order mark.
    if input.fill_buf().map_err(|error| failed(&error))?.starts_with(b"\xef\xbb\xbf") {
        input.consume(3);
    }
    let parsed: Result<Archive, _> = serde_json::from_reader(&mut input);
    if input.get_ref().limit() == 0 {
        return Err(failed(&FILE_TOO_LARGE));
    }
    match parsed {
        Ok(archive) => Ok(archive.log.entries),
        Err(error) => Err(failed(&format!("not an HTTP Archive (HAR 1.2): {error}"))),
    }
}

/// Returns the scheme and the authority of the URL if it refers to another server, or to none.
fn other_origin<'t>(text: &'t str, url: &Url) -> Option<&'t str> {
    let authority = text.find("://").map_or(0, |at| at + 3);
    let end = text[authority..].find(['/', '?', '#']).map_or(text.len(), |at| authority + at);
    let origin = &text[..end];
    let same = Url::parse(origin).is_ok_and(|origin| origin.is_same_server(url));
    (!same).then_some(origin)
}

impl Step {
    fn new(entry: &Entry, builder: &mut MessageBuilder<'_>) -> Result<Step, String> {
        let RecordedRequest { method, url, headers, post_data } = &entry.request;
        let time = &entry.started_date_time;
        let start: Timestamp = time.parse().map_err(|_| {
            format!("invalid startedDateTime '{time}': expected 2030-01-31T12:00:00.000Z")
        })?;
        let start = start.as_nanosecond();
        let lasted = entry.time.filter(|time| time.is_finite() && *time > 0.0).unwrap_or(0.0);
        let connection: Vec<_> = headers
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case("connection"))
            .flat_map(|field| field.value.split(','))
            .map(str::trim)
            .collect();
        let is_kept = |name: &str| {
            let omitted = OMITTED_FIELDS.iter().chain(&connection);
            !name.starts_with(':') && !omitted.into_iter().any(|of| name.eq_ignore_ascii_case(of))
        };
        let fields = headers.iter().map(|field| (&*field.name, field.value.trim()));
        let fields: Vec<_> = fields.filter(|(name, _)| is_kept(name)).collect();
        let body = match post_data {
            Some(PostData { text: None, params }) if !params.is_empty() => {
                return Err(
                    "the body is recorded as parameters without its text; record the text".into()
                );
            }
            data => data.as_ref().and_then(|data| data.text.as_deref()),
        };
        let request = Request {
            method: Some(method),
            body: body.filter(|body| !body.is_empty()).map(str::as_bytes),
            fields: &fields,
            ..Request::new(url)
        };
        let message = builder.add(&request).map_err(|reason| reason.to_string())?;
        Ok(Step { start, end: start.saturating_add((lasted * 1e6) as i128), message })
    }
}

/// Returns one session per page, in the order of their first requests.
fn sessions(mut pages: Vec<Vec<Step>>) -> Sessions {
    for page in &mut pages {
        page.sort_by_key(|step| step.start);
    }
    pages.sort_by_key(|page| page.first().map(|step| step.start));
    let (mut sessions, mut bursts, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for page in pages {
        let (burst, step) = (bursts.len() as u32, steps.len() as u32);
        sessions.push(Session { burst, bursts: page.len() as u32, step });
        let mut last_end = None;
        for Step { start, end, message } in page {
            let pause = start.saturating_sub(last_end.unwrap_or(start));
            let think = Duration::from_nanos(u64::try_from(pause).unwrap_or(0)).min(MAX_THINK);
            bursts.push(Burst { think, messages: 1 });
            steps.push(message);
            last_end = last_end.max(Some(end));
        }
    }
    Sessions { sessions: sessions.into(), bursts: bursts.into(), steps: steps.into(), count: None }
}
