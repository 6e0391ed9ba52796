//! From the path of a request-target to the path of a file.

use std::fmt;

/// A relative path that stays below the directory it is looked up in.
///
/// Holds no `.`, `..` or empty segment, no control character and no backslash, and does not
/// start with `/`. It is bytes, not text, and may hold anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SafePath<'o> {
    /// Segments joined by `/`, without a trailing one; empty for the root.
    pub path: &'o [u8],
    /// Whether the request named a directory: it ended in `/`, `/.` or `/..`.
    pub trailing_slash: bool,
    /// Whether any segment starts with a dot, as the names of hidden files do.
    pub has_dot_segment_file: bool,
}

/// Why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    /// It does not start with `/`.
    NotRooted,
    /// A `%` is not followed by two hexadecimal digits.
    Encoding,
    /// It holds a NUL or another control character, encoded or not.
    Control,
    /// It holds an encoded `/`, or a backslash, encoded or not: what one program takes for a
    /// name another takes for two.
    Separator,
    /// Its `..` segments lead above the root.
    Escape,
}

impl PathError {
    /// The status code to answer with: 404 where the path is well formed but names nothing that
    /// could be served, else 400.
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
            Self::NotRooted => "path does not start with a slash",
            Self::Encoding => "malformed percent-encoding",
            Self::Control => "control character in the path",
            Self::Separator => "backslash or encoded slash in the path",
            Self::Escape => "path leads above the root",
        })
    }
}

impl std::error::Error for PathError {}

/// Decodes and normalises the path of a request-target into `out`, which is cleared first.
///
/// Percent-encoding is undone once. Dot segments are removed after that (RFC 3986 section
/// 5.2.4), so `%2e%2e` is one too. Slashes in a row count as one.
///
/// # Errors
///
/// [`PathError`] when the path is not to be looked up at all; `out` is then of no use.
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
    let has_dot_segment_file = out.starts_with(b".") || out.windows(2).any(|pair| pair == b"/.");
    Ok(SafePath { path: out, trailing_slash, has_dot_segment_file })
}

/// Appends one segment, decoded.
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
