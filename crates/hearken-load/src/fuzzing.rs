//! Private parsers of this crate, for fuzz targets.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use hearken::timer::Time;
use hearken_http::Method;

use crate::cookies::CookieJar;
use crate::reply::{HeadCache, Heads, Reply};
use crate::url::Url;
use crate::workload::{Cursor, RequestTemplate, Source, Workload};
use crate::{LoadError, UrlError};

/// Parses a URL. Returns the value of the `Host` field and the request-target.
///
/// # Errors
/// The URL is invalid.
pub fn url(text: &str) -> Result<(String, String), UrlError> {
    Url::parse(text).map(|url| (url.authority, url.target))
}

/// Loads a workload for the server `http://a/`. Returns the first `count` encoded requests.
///
/// # Errors
/// A file of the source, or the template, is invalid.
pub fn requests(
    source: &Source,
    template: &RequestTemplate,
    count: usize,
) -> Result<Vec<Vec<u8>>, LoadError> {
    let url = Url::parse("http://a/").map_err(|_| LoadError::Config("the URL is invalid"))?;
    let workload = Workload::load(&url, source, template, None, None, NonZeroUsize::MIN)?;
    let workload = Arc::new(workload);
    let mut cursor = workload.cursor(0, 1, 1);
    let mut next = || match source.has_sessions() {
        true => next_of_session(&mut cursor),
        false => cursor.next_request().map(|index| vec![index]),
    };
    let mut requests = Vec::new();
    while requests.len() < count
        && let Some(indexes) = next()
    {
        requests.extend(indexes.iter().map(|&index| workload.message(index).bytes.to_vec()));
    }
    Ok(requests)
}

/// Returns the messages of the next session.
fn next_of_session(cursor: &mut Cursor) -> Option<Vec<u32>> {
    let mut session = cursor.next_session()?;
    let mut messages = Vec::new();
    while let Some(burst) = cursor.next_burst(&mut session) {
        for _ in 0..burst.messages {
            messages.push(cursor.next_message(&mut session));
        }
    }
    Some(messages)
}

/// The handling of reply heads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadHandling {
    /// Heads are parsed.
    Parsed,
    /// The last head is cached.
    Cached,
}

/// Reads replies to requests with `method` from bytes that arrive in `pieces`, until the last piece or a malformed
/// reply. Returns a line for each event.
pub fn replies(pieces: &[&[u8]], method: Method<'static>, handling: HeadHandling) -> Vec<String> {
    let (mut reply, mut cache) = (Reply::default(), HeadCache::default());
    let (mut events, mut content) = (Vec::new(), Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let heads = match handling {
                HeadHandling::Parsed => Heads::Parsed,
                HeadHandling::Cached => Heads::Cached(&mut cache),
            };
            let interim = |status| events.push(format!("interim {status}"));
            let content_of = |bytes: &[u8]| content.extend_from_slice(bytes);
            match reply.feed_next(&mut rest, method, heads, interim, content_of) {
                Ok(Some(done)) => {
                    events.push(format!("{done:?} {:?}", std::mem::take(&mut content)));
                }
                Ok(None) => break,
                Err(error) => {
                    events.push(error.to_string());
                    return events;
                }
            }
            if rest.is_empty() {
                break;
            }
        }
    }
    events.push(format!("{:?} {content:?}", reply.on_end_of_stream()));
    events
}

/// Stores the values of Set-Cookie fields in a jar. Returns `request` with the cookies for its path.
pub fn cookies<'v>(values: impl Iterator<Item = &'v [u8]>, request: &[u8]) -> Vec<u8> {
    let (mut jar, mut out) = (CookieJar::default(), Vec::new());
    for value in values {
        jar.set(value, request, Time::default(), &|| Duration::from_secs(1_700_000_000));
    }
    jar.write_request(request, Time::default(), &mut out);
    out
}
