//! Conversion of the path of a request-target to a relative file path.

use std::fmt;

/// A relative path that cannot leave the directory in which it is looked up.
///
/// It contains no `.`, `..` or empty segment, no control character and no backslash, and does not start
/// with `/`. All other bytes are permitted, including invalid UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SafePath<'o> {
    /// Segments joined by `/`, without a trailing slash. Empty for the root.
    pub path: &'o [u8],
    /// Whether the request named a directory: the path ended in `/`, `/.` or `/..`.
    pub trailing_slash: bool,
    /// Whether any segment starts with a dot, as the names of hidden files do.
    pub has_hidden_segment: bool,
}

/// The reason for which a path is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// The path does not start with `/`.
    NotRooted,
    /// A `%` is not followed by two hexadecimal digits.
    Encoding,
    /// The path contains a NUL or another control character, encoded or not.
    Control,
    /// The path contains an encoded `/`, or a backslash, encoded or not. Programs disagree on whether these
    /// separate segments.
    Separator,
    /// The `..` segments lead above the root.
    Escape,
}

impl PathError {
    /// Returns the status code for the response: 404 if a valid path cannot name a served file, else 400.
    pub fn status(&self) -> u16 {
        match self {
            Self::Separator => 404,
            Self::NotRooted | Self::Encoding | Self::Control | Self::Escape => 400,
        }
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRooted => "invalid path: expected '/' at the start",
            Self::Encoding => {
                "invalid percent-encoding in the path: expected two hexadecimal digits after '%'"
            }
            Self::Control => "control character in the path",
            Self::Separator => "backslash or encoded slash in the path",
            Self::Escape => "path leads above the root directory",
        })
    }
}

impl std::error::Error for PathError {}

/// Decodes and normalises the path of a request-target into `out`, replacing its content.
///
/// Percent-encoding is decoded once. Dot segments are removed afterwards (RFC 3986 section 5.2.4), so
/// `%2e%2e` is a dot segment too. Consecutive slashes count as one.
///
/// # Errors
///
/// [`PathError`] if the path is invalid. The content of `out` is unspecified then.
///
/// ```
/// use hearken_http::path::{PathError, resolve};
///
/// let mut out = Vec::new();
/// let safe = resolve(b"/a//b/../%41.txt", &mut out)?;
/// assert_eq!(safe.path, b"a/A.txt");
/// assert!(!safe.trailing_slash);
/// assert_eq!(resolve(b"/a/../../etc/passwd", &mut out), Err(PathError::Escape));
/// # Ok::<(), PathError>(())
/// ```
pub fn resolve<'o>(path: &[u8], out: &'o mut Vec<u8>) -> Result<SafePath<'o>, PathError> {
    out.clear();
    let segments = path.strip_prefix(b"/").ok_or(PathError::NotRooted)?;
    let mut trailing_slash = true;
    for segment in segments.split(|&byte| byte == b'/') {
        let parent = out.len();
        if parent > 0 {
            out.push(b'/');
        }
        let start = out.len();
        decode(segment, out)?;
        trailing_slash = matches!(out.get(start..), Some(b"" | b"." | b".."));
        match out.get(start..) {
            Some(b"" | b".") => out.truncate(parent),
            Some(b"..") if parent == 0 => return Err(PathError::Escape),
            Some(b"..") => {
                out.truncate(parent);
                let grandparent = memchr::memrchr(b'/', out).unwrap_or(0);
                out.truncate(grandparent);
            }
            _ => {}
        }
    }
    let has_hidden_segment = out.starts_with(b".") || out.windows(2).any(|pair| pair == b"/.");
    Ok(SafePath { path: out, trailing_slash, has_hidden_segment })
}

/// Appends one decoded segment.
fn decode(mut segment: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    loop {
        let special = |&byte: &u8| matches!(byte, b'%' | b'\\') || byte.is_ascii_control();
        let plain = segment.iter().position(special).unwrap_or(segment.len());
        let (plain, rest) = segment.split_at(plain);
        out.extend_from_slice(plain);
        let byte = match rest {
            [] => return Ok(()),
            [b'%', high, low, after @ ..] => {
                segment = after;
                hex(*high)? << 4 | hex(*low)?
            }
            [b'%', ..] => return Err(PathError::Encoding),
            [byte, after @ ..] => {
                segment = after;
                *byte
            }
        };
        match byte {
            b'/' | b'\\' => return Err(PathError::Separator),
            byte if byte.is_ascii_control() => return Err(PathError::Control),
            byte => out.push(byte),
        }
    }
}

fn hex(digit: u8) -> Result<u8, PathError> {
    let value = char::from(digit).to_digit(16).ok_or(PathError::Encoding)?;
    Ok(value as u8)
}
