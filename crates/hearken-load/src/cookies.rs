//! Cookies of a session (RFC 6265). Because a session has one server, the attributes `Domain`, `Secure` and
//! `SameSite` have no effect.

use std::time::{Duration, UNIX_EPOCH};

use hearken::timer::Time;

/// Maximum number of cookies of a session, the minimum of RFC 6265 section 6.1. The oldest make room for others.
const MAX_COOKIES: usize = 50;
/// Maximum length of a `Set-Cookie` value in bytes, the minimum of the same section. Longer ones are ignored.
const MAX_COOKIE_BYTES: usize = 4096;
/// Lifetime of cookies that expire later.
const MAX_LIFETIME: Duration = Duration::from_secs(u32::MAX as u64);

/// The cookies of a session.
#[derive(Debug, Default)]
pub(crate) struct CookieJar {
    /// Cookies with longer paths first, and older ones first among equals, in the order of sending.
    cookies: Vec<Cookie>,
    /// Number of cookies created so far.
    created: u64,
}

#[derive(Debug)]
struct Cookie {
    /// Name, `=` and value.
    pair: Box<[u8]>,
    name_len: usize,
    path: Box<[u8]>,
    expires_at: Option<Time>,
    /// Number of the cookie in the order of creation.
    number: u64,
}

impl Cookie {
    fn name(&self) -> &[u8] {
        &self.pair[..self.name_len]
    }
}

impl CookieJar {
    /// Removes all cookies, at the start of another session.
    pub(crate) fn clear(&mut self) {
        self.cookies.clear();
    }

    /// Handles the value of a `Set-Cookie` field in the reply to `request`, which is an encoded request.
    /// `unix_time` returns the time of day.
    pub(crate) fn set(
        &mut self,
        value: &[u8],
        request: &[u8],
        now: Time,
        unix_time: &dyn Fn() -> Duration,
    ) {
        let Some(parsed) = SetCookie::parse(value, unix_time) else { return };
        let path = parsed.path.unwrap_or_else(|| default_path(path_of(request)));
        let same = |of: &Cookie| of.name() == parsed.name && *of.path == *path;
        let old = self.cookies.iter().position(same).map(|at| self.cookies.remove(at));
        let expires_at = match parsed.lifetime {
            Some(Duration::ZERO) => return,
            lifetime => lifetime.map(|lifetime| now + lifetime),
        };
        if self.cookies.len() >= MAX_COOKIES {
            self.cookies.retain(|cookie| cookie.expires_at.is_none_or(|at| at > now));
        }
        if self.cookies.len() >= MAX_COOKIES {
            let oldest = self.cookies.iter().enumerate().min_by_key(|(_, cookie)| cookie.number);
            if let Some((at, _)) = oldest {
                self.cookies.remove(at);
            }
        }
        self.created += 1;
        // A replaced cookie keeps its place.
        let number = old.map_or(self.created, |old| old.number);
        let key = |cookie: &Cookie| (usize::MAX - cookie.path.len(), cookie.number);
        let at = self.cookies.partition_point(|of| key(of) < (usize::MAX - path.len(), number));
        let pair = [parsed.name, b"=", parsed.value].concat().into();
        let (name_len, path) = (parsed.name.len(), path.into());
        self.cookies.insert(at, Cookie { pair, name_len, path, expires_at, number });
    }

    /// Appends an encoded request to `out`, with the cookies for its path.
    pub(crate) fn write_request(&self, request: &[u8], now: Time, out: &mut Vec<u8>) {
        let path = path_of(request);
        let is_sent = |cookie: &&Cookie| {
            cookie.expires_at.is_none_or(|at| at > now) && path_matches(path, &cookie.path)
        };
        let mut cookies = self.cookies.iter().filter(is_sent);
        let end = request.windows(4).position(|window| window == b"\r\n\r\n");
        let (Some(first), Some(end)) = (cookies.next(), end) else {
            return out.extend_from_slice(request);
        };
        let (fields, rest) = request.split_at(end + 2);
        out.extend_from_slice(fields);
        out.extend_from_slice(b"Cookie: ");
        out.extend_from_slice(&first.pair);
        for cookie in cookies {
            out.extend_from_slice(b"; ");
            out.extend_from_slice(&cookie.pair);
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(rest);
    }
}

/// The parts of a `Set-Cookie` value that have an effect.
struct SetCookie<'v> {
    name: &'v [u8],
    value: &'v [u8],
    path: Option<&'v [u8]>,
    /// Time until the cookie expires. Zero deletes it.
    lifetime: Option<Duration>,
}

impl<'v> SetCookie<'v> {
    /// Parses a value (RFC 6265 section 5.2). Returns `None` if the cookie is ignored.
    fn parse(value: &'v [u8], unix_time: &dyn Fn() -> Duration) -> Option<SetCookie<'v>> {
        let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
        if value.len() > MAX_COOKIE_BYTES || value.iter().any(is_control) {
            return None;
        }
        let mut parts = value.split(|&byte| byte == b';');
        let (name, value) = split_pair(parts.next()?);
        let value = value.filter(|_| !name.is_empty())?;
        let mut cookie = SetCookie { name, value, path: None, lifetime: None };
        let mut max_age = None;
        for part in parts {
            let (name, value) = split_pair(part);
            let value = value.unwrap_or_default();
            if name.eq_ignore_ascii_case(b"path") {
                cookie.path = value.starts_with(b"/").then_some(value);
            } else if name.eq_ignore_ascii_case(b"max-age") {
                max_age = parse_max_age(value).or(max_age);
            } else if name.eq_ignore_ascii_case(b"expires") {
                let date = parse_date(value);
                let lifetime = date.map(|date| date.saturating_sub(unix_time()).min(MAX_LIFETIME));
                cookie.lifetime = lifetime.or(cookie.lifetime);
            }
        }
        cookie.lifetime = max_age.or(cookie.lifetime);
        Some(cookie)
    }
}

/// Splits a name from a value, without the whitespace around them.
fn split_pair(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| byte == b'=') {
        Some(at) => (text[..at].trim_ascii(), Some(text[at + 1..].trim_ascii())),
        None => (text.trim_ascii(), None),
    }
}

/// Parses the value of `Max-Age`: seconds, of which negative ones count as zero.
fn parse_max_age(text: &[u8]) -> Option<Duration> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // A time too large for the type is beyond the end of any run.
    let seconds = str::from_utf8(digits).ok()?.parse().unwrap_or(u32::MAX);
    Some(Duration::from_secs(if text.starts_with(b"-") { 0 } else { seconds.into() }))
}

/// Parses a date in one of the forms of HTTP, or with dashes as in `Wed, 21-Oct-2015 07:28:00 GMT`.
/// Returns the time since 1970.
fn parse_date(text: &[u8]) -> Option<Duration> {
    let text = str::from_utf8(text).ok()?;
    let plain = httpdate::parse_http_date(text);
    let date = plain.or_else(|_| httpdate::parse_http_date(&text.replace('-', " "))).ok()?;
    Some(date.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Returns the path of an encoded request.
fn path_of(request: &[u8]) -> &[u8] {
    let target = request.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
    target.split(|&byte| byte == b'?').next().unwrap_or_default()
}

/// Returns the path of a cookie without the attribute (RFC 6265 section 5.1.4): the directory of the request.
fn default_path(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at @ 1..) if path.starts_with(b"/") => &path[..at],
        _ => b"/",
    }
}

/// Returns whether a cookie with this path is sent with a request (RFC 6265 section 5.1.4).
fn path_matches(request: &[u8], cookie: &[u8]) -> bool {
    request
        .strip_prefix(cookie)
        .is_some_and(|rest| rest.is_empty() || cookie.ends_with(b"/") || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hearken::timer::Time;
    use proptest::prelude::*;

    use super::{CookieJar, MAX_COOKIES};

    const NOW: Time = Time::from_nanos(1_000_000_000_000);
    /// The year 2027.
    const UNIX_TIME: Duration = Duration::from_secs(1_800_000_000);

    fn request(path: &str) -> Vec<u8> {
        format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\nbody").into_bytes()
    }

    /// Returns the `Cookie` field of a request for `path`.
    fn sent_at(jar: &CookieJar, path: &str, now: Time) -> String {
        let mut out = Vec::new();
        jar.write_request(&request(path), now, &mut out);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "body");
        assert!(head.starts_with(&format!("GET {path} HTTP/1.1\r\nHost: h")), "{head}");
        let fields: Vec<_> =
            head.lines().filter_map(|line| line.strip_prefix("Cookie: ")).collect();
        assert!(fields.len() <= 1);
        fields.concat()
    }

    fn sent(jar: &CookieJar, path: &str) -> String {
        sent_at(jar, path, NOW)
    }

    fn jar(fields: &[&str]) -> CookieJar {
        let mut jar = CookieJar::default();
        for field in fields {
            jar.set(field.as_bytes(), &request("/a/b?c=/d/e"), NOW, &|| UNIX_TIME);
        }
        jar
    }

    #[test]
    fn sends_cookies_for_matching_paths() {
        let all =
            jar(&["r=1; Path=/", "a=2", "x=3; path=/a/b/; Secure; HttpOnly", "o=4;Path=/other"]);
        assert_eq!(sent(&all, "/"), "r=1");
        assert_eq!(sent(&all, "/a"), "a=2; r=1");
        assert_eq!(sent(&all, "/ab"), "r=1");
        assert_eq!(sent(&all, "/a/b/c?d"), "x=3; a=2; r=1");
        assert_eq!(sent(&all, "/other/"), "o=4; r=1");
    }

    #[test]
    fn later_cookies_replace_and_delete_earlier_ones() {
        assert_eq!(sent(&jar(&["a=1", "b=2", "a=3"]), "/a/"), "a=3; b=2");
        for deleted in [
            "a=; Max-Age=0",
            "a=x; max-age=-1",
            "a=x; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            "a=x; expires=Thu, 01-Jan-1970 00:00:00 GMT",
            "a=x; Max-Age=0; Expires=Fri, 01 Jan 2100 00:00:00 GMT",
        ] {
            assert_eq!(sent(&jar(&["a=1", "b=2", deleted]), "/a/"), "b=2", "{deleted}");
        }
        let kept = "a=3; Max-Age=5; Expires=Thu, 01 Jan 1970 00:00:00 GMT";
        let kept = jar(&["a=1", kept, "b=2; Path=relative; Expires=unknown; Max-Age=x"]);
        assert_eq!(sent(&kept, "/a/"), "a=3; b=2");
        assert_eq!(sent_at(&kept, "/a/", NOW + Duration::from_secs(5)), "b=2");
    }

    #[test]
    fn ignores_invalid_cookies() {
        let long = format!("a={}", "x".repeat(4096));
        for ignored in ["", "a", "=1", " = ", "a\0=1", "a=\x7f", &long] {
            assert_eq!(sent(&jar(&[ignored]), "/a/"), "", "{ignored}");
        }
        assert_eq!(sent(&jar(&[" a = \"1 2\" ;"]), "/a/"), "a=\"1 2\"");
    }

    #[test]
    fn the_oldest_cookie_makes_room() {
        let mut all = CookieJar::default();
        for number in 0..MAX_COOKIES + 10 {
            let field = format!("n{number}=");
            all.set(field.as_bytes(), &request("/"), NOW, &|| UNIX_TIME);
        }
        let expected: Vec<_> = (10..MAX_COOKIES + 10).map(|number| format!("n{number}=")).collect();
        assert_eq!(sent(&all, "/"), expected.join("; "));
        all.clear();
        assert_eq!(sent(&all, "/"), "");
    }

    proptest! {
        #[test]
        fn arbitrary_fields_do_not_break_requests(fields in prop::collection::vec(".{0,40}", 0..80)) {
            let all = jar(&fields.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert!(!sent(&all, "/a/b/c").contains(['\r', '\n']));
        }
    }
}
