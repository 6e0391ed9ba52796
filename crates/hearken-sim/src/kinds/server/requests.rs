//! Requests for files, and the checks of their responses.

use std::io::Write;
use std::rc::Rc;

use hearken::io::sim::World;
use hearken::timer::Time;
use hearken_http::{format_http_date, parse_http_date};

use super::FileFaults;
use super::clock::Clock;
use super::multipart::{self, parse_content_range};
use super::site_model::{SharedModel, Version};
use super::stopping::StopOnRequest;
use super::timing::Timing;
use crate::client::{Exchange, HttpVersion, Planned, RequestId, Script};
use crate::response::Head;

/// The kind of a request, which determines the statuses of its response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// A complete file.
    Get,
    /// One byte range.
    Range,
    /// Several or malformed byte ranges.
    Ranges,
    /// A request with If-None-Match.
    IfNoneMatch,
    /// A request with If-Match.
    IfMatch,
    /// A request with If-Modified-Since.
    IfModifiedSince,
    /// A path without a file.
    Missing,
    /// Another method.
    Method,
    /// A malformed head.
    Malformed,
    /// A body that is malformed or too long.
    BadBody,
}

/// A request and what is known of its response.
#[derive(Debug)]
pub(super) struct Requested {
    pub(super) form: Form,
    /// The file, if the path names one.
    pub(super) file: Option<usize>,
    /// First byte of the requested range and the last, or a number of bytes from the end.
    range: Option<(u64, Option<u64>)>,
    is_suffix: bool,
    /// Several byte ranges: the first byte and the last.
    ranges: Vec<(u64, u64)>,
    /// The body of a response with several byte ranges.
    multipart: Vec<u8>,
    /// The time in If-Modified-Since, in seconds since 1970.
    since: u64,
    /// The ETag in a precondition, if it is one of the site.
    etag: Option<String>,
    /// Expected status, if there is only one.
    status: Option<u16>,
    /// Whether a body follows the head.
    pub(super) has_body: bool,
    /// Whether the version is HTTP/1.0, in which a connection is closed by default.
    is_old: bool,
    /// Versions that agree with the response so far, as bits.
    candidates: u64,
    /// Offset in the file of the first byte of the body.
    offset: u64,
}

impl Requested {
    /// Returns whether the connection closes after the response with `head`.
    pub(super) fn closes(&self, head: &Head) -> bool {
        match self.is_old {
            true => head.field("connection") != Some("keep-alive"),
            false => head.closes(),
        }
    }
}

/// The requests of all clients.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) world: World,
    pub(super) model: SharedModel,
    pub(super) timing: Timing,
    pub(super) clock: Clock,
    pub(super) stop: Rc<StopOnRequest>,
    pub(super) faults: Rc<FileFaults>,
    /// Maximum size of a request body.
    pub(super) max_body: u64,
    /// Whether connections start with a PROXY protocol header.
    pub(super) sends_proxy_header: bool,
}

/// Heads that a server must reject. `@` is replaced by the target.
const MALFORMED: [&str; 12] = [
    "GET @ HTTP/1.1\r\n\r\n",
    "GET @ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET @ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "GET @ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "GET @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    "GET @ HTTP/1.1\r\nHost : a\r\n\r\n",
    "GET @ HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n",
    "GET @ HTTP/1.1\nHost: a\n\n",
    "GET  @ HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET @ HTTP/2.0\r\nHost: a\r\n\r\n",
    "G(T @ HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET @ HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
];

impl Requests {
    fn draw<T: Copy>(&self, values: &[T]) -> T {
        values[self.world.decide(values.len() as u32) as usize]
    }

    fn draw_file(&self) -> usize {
        self.world.decide(self.model.borrow().files.len() as u32) as usize
    }

    /// Appends a body with framing, and returns whether the head announced it as chunked.
    fn append_body(&self, out: &mut Vec<u8>, length: u64, is_chunked: bool) {
        let body = vec![b'b'; length as usize];
        if !is_chunked {
            return out.extend_from_slice(&body);
        }
        for chunk in body.chunks(1000) {
            let _ = write!(out, "{:x}\r\n", chunk.len());
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
    }

    /// Returns the versions that a response at this time may contain.
    fn candidates(&self, exchange: &Exchange<Requested>, file: usize) -> u64 {
        let from = exchange.sent_at.or(exchange.started_at).unwrap_or_default();
        self.model.borrow().current_since(file, from)
    }
}

impl Script for Requests {
    type Request = Requested;

    fn preamble(&mut self, client: u16, out: &mut Vec<u8>) {
        if self.sends_proxy_header {
            if self.draw(&[false, true]) {
                out.extend_from_slice(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c");
                out.extend_from_slice(&[192, 0, 2, client as u8, 192, 0, 2, 255, 1, 2, 0, 80]);
            } else {
                let _ = write!(out, "PROXY TCP4 192.0.2.{} 192.0.2.255 258 80\r\n", client as u8);
            }
        }
    }

    fn request(
        &mut self,
        id: RequestId,
        version: HttpVersion,
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Planned<Requested> {
        let before = out.len();
        let file = self.draw_file();
        let name = self.model.borrow().files[file].name.clone();
        let mut requested = Requested {
            form: Form::Get,
            file: Some(file),
            range: None,
            is_suffix: false,
            ranges: Vec::new(),
            multipart: Vec::new(),
            since: 0,
            etag: None,
            status: None,
            has_body: false,
            is_old: false,
            candidates: 0,
            offset: 0,
        };
        let mut method = "GET";
        let mut fields = String::new();
        let mut target = format!("/{name}?{id}");
        let (mut body, mut is_chunked, mut expects) = (None, false, false);
        let is_http2 = version == HttpVersion::Http2;
        match self.world.decide(20) {
            0..=6 => {}
            7 => method = "HEAD",
            8 | 9 => {
                let length =
                    self.model.borrow().files[file].versions.last().map_or(0, |v| v.length);
                let max = u32::try_from(length).unwrap_or(u32::MAX) / 4 * 5 + 2;
                let first = u64::from(self.world.decide(max));
                requested.form = Form::Range;
                match self.world.decide(4) {
                    0 => {
                        let last = first + u64::from(self.world.decide(max));
                        requested.range = Some((first, Some(last)));
                        fields += &format!("Range: bytes={first}-{last}\r\n");
                    }
                    1 => {
                        requested.range = Some((first, None));
                        fields += &format!("Range: bytes={first}-\r\n");
                    }
                    2 => {
                        requested.range = Some((first, None));
                        requested.is_suffix = true;
                        fields += &format!("Range: bytes=-{first}\r\n");
                    }
                    _ if self.draw(&[true, false]) => {
                        requested.form = Form::Ranges;
                        let count = self.draw(&[2, 3, 8]);
                        requested.ranges = (0..count).map(|_| self.draw_range(max)).collect();
                        let ranges = requested.ranges.iter();
                        let ranges: Vec<_> =
                            ranges.map(|(first, last)| format!("{first}-{last}")).collect();
                        fields += &format!("Range: bytes={}\r\n", ranges.join(", "));
                    }
                    _ => {
                        requested.form = Form::Ranges;
                        fields += self.draw(&[
                            "Range: bytes=5-1\r\n",
                            "Range: items=0-1\r\n",
                            "Range: bytes=0-0\r\nIf-Range: \"none\"\r\n",
                        ]);
                    }
                }
            }
            10 | 11 => {
                requested.form = Form::IfNoneMatch;
                let known = self.draw_etag();
                match known {
                    Some(etag) if self.draw(&[true, false]) => {
                        fields += &format!("If-None-Match: \"other\", {etag}\r\n");
                        requested.etag = Some(etag);
                    }
                    Some(etag) => {
                        requested.form = Form::IfMatch;
                        fields += &format!("If-Match: {etag}\r\n");
                        requested.etag = Some(etag);
                    }
                    None => fields += "If-None-Match: \"other\"\r\n",
                }
            }
            12 => {
                requested.form = Form::Missing;
                requested.file = None;
                let (path, status) = self.draw(&[
                    ("/none", 404),
                    ("/.hidden", 404),
                    ("/../outside", 400),
                    ("/%zz", 400),
                    ("/a/%2e%2e/%2e%2e/b", 400),
                    ("/none/", 404),
                ]);
                target = format!("{path}?{id}");
                requested.status = Some(status);
            }
            13 => {
                requested.form = Form::Method;
                let (name, status) =
                    self.draw(&[("OPTIONS", 204), ("POST", 405), ("DELETE", 405), ("BREW", 501)]);
                method = name;
                requested.status = Some(status);
            }
            14 | 15 => {
                is_chunked = self.draw(&[false, true]);
                expects = self.draw(&[false, false, true]);
                let size = self.draw(&[0, 1, 100, 5_000, self.max_body, self.max_body + 1]);
                body = Some(size);
                if size > self.max_body {
                    requested.form = Form::BadBody;
                    requested.status = Some(413);
                }
            }
            // HTTP/2 has another syntax.
            16 | 17 if is_http2 => {}
            16 => {
                is_chunked = true;
                body = Some(0);
                requested.form = Form::BadBody;
                requested.status = Some(400);
            }
            17 => requested.form = Form::Malformed,
            18 => {
                requested.form = Form::IfModifiedSince;
                let model = self.model.borrow();
                let versions = &model.files[file].versions;
                let version = versions[self.world.decide(versions.len() as u32) as usize];
                requested.since = version.modified + self.draw(&[1, 2, 0]) - 1;
                let date = format_http_date(requested.since);
                fields += &format!("If-Modified-Since: {}\r\n", String::from_utf8_lossy(&date));
            }
            _ => {}
        }
        let has_response_body = method != "HEAD";
        if requested.form == Form::Malformed {
            let head = self.draw(&MALFORMED).replace('@', &target);
            out.extend_from_slice(head.as_bytes());
            let head_length = out.len() - before;
            let (keep_alive, has_body) = (false, has_response_body);
            return Planned {
                request: requested,
                head_length,
                expects: false,
                has_body,
                keep_alive,
            };
        }
        let (version, connection, keep_alive) = match self.world.decide(10) {
            _ if is_http2 => ("HTTP/1.1", "", true),
            8 => ("HTTP/1.0", "", false),
            9 => ("HTTP/1.0", "Connection: keep-alive\r\n", true),
            _ if is_last && self.draw(&[false, true]) => {
                ("HTTP/1.1", "Connection: close\r\n", false)
            }
            _ => ("HTTP/1.1", "", true),
        };
        requested.is_old = version == "HTTP/1.0";
        if requested.is_old {
            // HTTP/1.0 has neither.
            is_chunked = false;
            expects = false;
            if requested.form == Form::BadBody && requested.status == Some(400) {
                (requested.form, requested.status, body) = (Form::Get, None, None);
            }
        }
        let _ = write!(out, "{method} {target} {version}\r\nHost: sim\r\n{connection}{fields}");
        match body {
            Some(_) if is_chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Some(length) => {
                let _ = write!(out, "Content-Length: {length}\r\n");
            }
            None => {}
        }
        if expects {
            out.extend_from_slice(b"Expect: 100-continue\r\n");
        }
        out.extend_from_slice(b"\r\n");
        let head_length = out.len() - before;
        match body {
            Some(_) if requested.status == Some(400) => out.extend_from_slice(b"xyz\r\n"),
            Some(length) => self.append_body(out, length, is_chunked),
            None => {}
        }
        requested.has_body = body.is_some_and(|length| length > 0 || is_chunked);
        // A rejected body ends the connection.
        let keep_alive = keep_alive && (is_http2 || requested.form != Form::BadBody);
        let has_body = has_response_body;
        Planned { request: requested, head_length, expects, has_body, keep_alive }
    }

    fn on_taken(&mut self, now: Time) {
        self.stop.on_taken(now);
    }

    fn on_head(&mut self, now: Time, exchange: &mut Exchange<Requested>) -> Result<(), String> {
        let Some(head) = &exchange.head else { return Ok(()) };
        let status = head.status;
        let started = exchange.started_at.unwrap_or_default();
        if status == 408 {
            let minimum = self.timing.min_client_timeout();
            return match now.duration_since(started) < minimum && exchange.id.number > 0 {
                true => Err(format!("408 before {minimum:?} have passed")),
                false => Ok(()),
            };
        }
        self.check_date(head, started, now)?;
        if self.faults.statuses.borrow().contains(&status) {
            return Ok(());
        }
        let complete = exchange.has_sent_content;
        let may_be_early = matches!(exchange.planned.request.form, Form::Malformed | Form::BadBody)
            || (exchange.planned.request.has_body && status >= 400);
        if !complete && !may_be_early {
            return Err(format!("response {status} before the end of the request"));
        }
        let candidates = exchange.planned.request.file.map(|file| self.candidates(exchange, file));
        let requested = &mut exchange.planned.request;
        if let Some(expected) = requested.status {
            return match status == expected {
                true => Ok(()),
                false => Err(format!("status {status} instead of {expected}")),
            };
        }
        let (Some(mut candidates), Some(file)) = (candidates, requested.file) else {
            return Ok(());
        };
        let model = self.model.borrow();
        let versions = &model.files[file].versions;
        let length = head.content_length();
        let retain = |candidates: &mut u64, is_candidate: &dyn Fn(u64) -> bool| {
            for (index, version) in versions.iter().enumerate().take(64) {
                if !is_candidate(version.length) {
                    *candidates &= !(1 << index);
                }
            }
        };
        match (requested.form, status) {
            (Form::Malformed, 400 | 431 | 501 | 505) => return Ok(()),
            (Form::Malformed, _) => {
                return Err(format!("status {status} to a malformed request"));
            }
            (Form::IfNoneMatch, 304) | (Form::IfMatch, 200 | 412) => {
                let of_etag = requested.etag.as_ref().and_then(|etag| model.etags.get(etag));
                let is_valid = of_etag.is_some_and(|(of, version)| {
                    *of == file && candidates & 1 << version.min(&63) != 0
                });
                if status == 412 {
                    return Ok(()); // A version that is not stable has another ETag each time.
                }
                if !is_valid {
                    return Err(format!("status {status}, but the ETag is of another version"));
                }
                if status == 304 {
                    return Ok(());
                }
                retain(&mut candidates, &|of| Some(of) == length);
            }
            (Form::Get | Form::IfNoneMatch | Form::Ranges, 200) => {
                retain(&mut candidates, &|of| Some(of) == length);
            }
            (Form::Ranges, 206) => {
                requested.candidates = candidates;
                return Ok(());
            }
            (Form::Ranges, 416) => return Ok(()),
            (Form::IfModifiedSince, 200 | 304) => {
                // A version from the future has the time of the first response that contained it.
                let is_exact = !self.clock.has_jumped();
                let since = requested.since;
                for (index, version) in versions.iter().enumerate().take(64) {
                    let is_newer = version.modified > since;
                    let is_wrong = if status == 200 { !is_newer } else { is_newer && is_exact };
                    if is_wrong {
                        candidates &= !(1 << index);
                    }
                }
                if candidates == 0 {
                    return Err(format!("{status} to If-Modified-Since {since}: {versions:?}"));
                }
                if status == 304 {
                    return Ok(());
                }
                retain(&mut candidates, &|of| Some(of) == length);
            }
            // An empty file has no range that a response can name.
            (Form::Range, 200) if requested.is_suffix && length == Some(0) => {
                retain(&mut candidates, &|of| of == 0);
            }
            (Form::Range, 206) => {
                let range = head.field("content-range").unwrap_or_default();
                let parsed = parse_content_range(range);
                let Some((first, last, total)) = parsed else {
                    return Err(format!("invalid Content-Range '{range}'"));
                };
                let expected = requested.expected_range(total);
                if expected != Some((first, last)) || length != Some(last - first + 1) {
                    return Err(format!("range {range} instead of {expected:?}"));
                }
                requested.offset = first;
                retain(&mut candidates, &|of| of == total);
            }
            (Form::Range, 416) => {
                let total =
                    head.field("content-range").and_then(|range| range.strip_prefix("bytes */"));
                let total = total.and_then(|total| total.parse().ok());
                if total.is_none_or(|total| requested.expected_range(total).is_some()) {
                    return Err("416 to a satisfiable range".to_owned());
                }
                retain(&mut candidates, &|of| Some(of) == total);
                requested.file = None; // The body is text.
            }
            _ => return Err(format!("unexpected status {status}")),
        }
        if candidates == 0 {
            return Err(format!(
                "no current version has length {length:?}; versions: {versions:?}"
            ));
        }
        exchange.planned.request.candidates = candidates;
        Ok(())
    }

    fn on_body(&mut self, exchange: &mut Exchange<Requested>, bytes: &[u8]) -> Result<(), String> {
        let at = exchange.received;
        let status = exchange.head.as_ref().map_or(0, |head| head.status);
        let requested = &mut exchange.planned.request;
        if requested.form == Form::Ranges && status == 206 {
            requested.multipart.extend_from_slice(bytes);
            return Ok(());
        }
        let (Some(file), true) = (requested.file, requested.candidates != 0) else { return Ok(()) };
        let model = self.model.borrow();
        let before = requested.candidates;
        for (index, version) in model.files[file].versions.iter().enumerate().take(64) {
            if before & 1 << index != 0 && !version.contains(requested.offset + at, bytes) {
                requested.candidates &= !(1 << index);
            }
        }
        match requested.candidates {
            0 => Err(format!("the body at {at} is not that of a current version")),
            _ => Ok(()),
        }
    }

    fn on_complete(&mut self, exchange: &mut Exchange<Requested>) -> Result<(), String> {
        let requested = &exchange.planned.request;
        let Some(head) = &exchange.head else { return Ok(()) };
        if requested.form == Form::Ranges && head.status == 206 {
            self.check_ranges(requested, head)?;
        }
        let must_close = !exchange.planned.keep_alive;
        let is_old = head.field("connection") != Some("keep-alive");
        if must_close && !head.closes() && !(is_old && requested.form != Form::Malformed) {
            return Err("the response keeps a connection that must close".to_owned());
        }
        let (Some(etag), Some(file)) = (head.field("etag"), requested.file) else { return Ok(()) };
        if requested.candidates.count_ones() == 1 && exchange.received > 8 {
            let version = requested.candidates.trailing_zeros() as usize;
            let mut model = self.model.borrow_mut();
            let known = *model.etags.entry(etag.to_owned()).or_insert((file, version));
            if known != (file, version) {
                return Err(format!(
                    "ETag {etag} of {known:?} is reused for {:?}",
                    (file, version)
                ));
            }
        }
        Ok(())
    }
}

impl Requests {
    /// Draws a byte range that starts before `max`.
    fn draw_range(&self, max: u32) -> (u64, u64) {
        let first = u64::from(self.world.decide(max));
        (first, first + self.draw(&[0, 1, 100, 10_000]))
    }

    /// Checks that the time of day was that of the head at some time while the request was open.
    fn check_date(&self, head: &Head, from: Time, until: Time) -> Result<(), String> {
        let field = head.field("date").unwrap_or_default();
        match parse_http_date(field.as_bytes()) {
            Some(date) if self.clock.had(date, from, until) => Ok(()),
            _ => Err(format!("date '{field}': {:?}", self.clock)),
        }
    }

    /// Checks a response with one or more of several requested ranges.
    fn check_ranges(&self, requested: &Requested, head: &Head) -> Result<(), String> {
        let body = &requested.multipart;
        let parts = match head.field("content-range") {
            Some(value) => {
                let (first, last, total) = parse_content_range(value)
                    .ok_or_else(|| format!("invalid Content-Range '{value}'"))?;
                vec![multipart::Part { range: (first, last), total, content: body }]
            }
            None => multipart::parse(head.field("content-type").unwrap_or_default(), body)?,
        };
        let model = self.model.borrow();
        let versions = requested.file.map_or(&[][..], |file| &model.files[file].versions);
        let is_of = |version: &Version| {
            let in_parts = |&(first, last): &(u64, u64)| {
                let last = last.min(version.length.saturating_sub(1));
                let mut ranges = parts.iter().map(|part| part.range);
                first >= version.length || ranges.any(|range| range.0 <= first && range.1 >= last)
            };
            requested.ranges.iter().all(in_parts)
                && parts.iter().all(|part| {
                    part.total == version.length
                        && part.content.len() as u64 == part.range.1 - part.range.0 + 1
                        && version.contains(part.range.0, part.content)
                })
        };
        let mut candidates = versions.iter().enumerate().take(64);
        if candidates.any(|(index, it)| requested.candidates & 1 << index != 0 && is_of(it)) {
            return Ok(());
        }
        let ranges: Vec<_> = parts.iter().map(|part| (part.range, part.total)).collect();
        Err(format!("no current version has the ranges {ranges:?}"))
    }

    /// Returns one of the ETags of the site.
    fn draw_etag(&self) -> Option<String> {
        let model = self.model.borrow();
        let count = model.etags.len() as u32;
        if count == 0 {
            return None;
        }
        model.etags.keys().nth(self.world.decide(count) as usize).cloned()
    }
}

impl Requested {
    /// Returns the first and the last byte of the range for a file of `length` bytes.
    fn expected_range(&self, length: u64) -> Option<(u64, u64)> {
        let (first, last) = self.range?;
        if self.is_suffix {
            let count = first.min(length);
            return (count > 0).then(|| (length - count, length - 1));
        }
        let last = last.unwrap_or(u64::MAX).min(length.checked_sub(1)?);
        (first <= last).then_some((first, last))
    }
}
