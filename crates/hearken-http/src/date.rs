//! Parsing and formatting of HTTP dates.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

/// Last second of the year 9999, the last that a four-digit year can express.
const LAST_SECOND: u64 = 253_402_300_799;
const PREFIX: usize = b"Date: ".len();
const DATE: usize = b"Thu, 01 Jan 1970 00:00:00 GMT".len();

/// The formatted current date, updated only when the second changes.
///
/// ```
/// use hearken_http::DateCache;
///
/// let mut date = DateCache::new(784_111_776);
/// assert!(date.update(784_111_777));
/// assert!(!date.update(784_111_777));
/// assert_eq!(date.as_bytes(), b"Sun, 06 Nov 1994 08:49:37 GMT");
/// ```
#[derive(Debug, Clone)]
pub struct DateCache {
    second: u64,
    /// The complete field line, so that writing a head copies it at once.
    line: [u8; PREFIX + DATE + 2],
}

impl DateCache {
    /// Creates a cache with the date `unix_seconds` after 1970-01-01 00:00:00 UTC.
    pub fn new(unix_seconds: u64) -> Self {
        let mut line = *b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
        if let Some(date) = line.get_mut(PREFIX..PREFIX + DATE) {
            date.copy_from_slice(&format_http_date(unix_seconds));
        }
        Self { second: unix_seconds, line }
    }

    /// Sets the date to `unix_seconds`. Returns whether the second changed.
    #[inline]
    pub fn update(&mut self, unix_seconds: u64) -> bool {
        let changed = unix_seconds != self.second;
        if changed {
            *self = Self::new(unix_seconds);
        }
        changed
    }

    /// Returns the date in seconds after 1970-01-01 00:00:00 UTC.
    #[inline]
    pub fn unix_seconds(&self) -> u64 {
        self.second
    }

    /// Returns the date as an IMF-fixdate of 29 bytes, RFC 9110 section 5.6.7.
    pub fn as_bytes(&self) -> &[u8] {
        self.line.get(PREFIX..PREFIX + DATE).unwrap_or_default()
    }

    /// Returns the line `Date: ...` with its CRLF.
    pub(crate) fn line(&self) -> &[u8] {
        &self.line
    }
}

/// Formats a date as an IMF-fixdate, RFC 9110 section 5.6.7.
///
/// Dates after the year 9999 are formatted as the last second of that year.
///
/// ```
/// assert_eq!(&hearken_http::format_http_date(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
/// ```
pub fn format_http_date(unix_seconds: u64) -> [u8; 29] {
    let time = UNIX_EPOCH + Duration::from_secs(unix_seconds.min(LAST_SECOND));
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    // Every date up to LAST_SECOND takes exactly 29 bytes, so this cannot fail.
    let _ = write!(text.as_mut_slice(), "{}", httpdate::HttpDate::from(time));
    text
}

/// Parses a date in one of the three formats of RFC 9110 section 5.6.7.
///
/// Returns seconds after 1970-01-01 00:00:00 UTC, or `None` if the date is invalid or before 1970.
///
/// ```
/// use hearken_http::parse_http_date;
///
/// for date in [
///     "Sun, 06 Nov 1994 08:49:37 GMT",
///     "Sunday, 06-Nov-94 08:49:37 GMT",
///     "Sun Nov  6 08:49:37 1994",
/// ] {
///     assert_eq!(parse_http_date(date.as_bytes()), Some(784_111_777));
/// }
/// assert_eq!(parse_http_date(b"yesterday"), None);
/// ```
pub fn parse_http_date(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let time = httpdate::parse_http_date(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}
