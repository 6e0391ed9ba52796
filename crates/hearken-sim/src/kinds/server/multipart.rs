//! Reads bodies of the type `multipart/byteranges`, independently of the code that writes them.

/// A part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'b> {
    /// Position of the first byte in the file, and of the last.
    pub(super) range: (u64, u64),
    /// Length of the file.
    pub(super) total: u64,
    /// The content.
    pub(super) content: &'b [u8],
}

/// Returns the first position, the last position and the length of the file in a Content-Range.
pub(super) fn parse_content_range(value: &str) -> Option<(u64, u64, u64)> {
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last, total.parse().ok()?))
}

/// Splits a body into its parts.
///
/// # Errors
/// The type or the body is malformed.
pub(super) fn parse<'b>(content_type: &str, mut body: &'b [u8]) -> Result<Vec<Part<'b>>, String> {
    let boundary = content_type
        .strip_prefix("multipart/byteranges; boundary=")
        .ok_or_else(|| format!("206 with several ranges of the type '{content_type}'"))?;
    let (delimiter, end) = (format!("--{boundary}\r\n"), format!("--{boundary}--\r\n"));
    let mut parts = Vec::new();
    while body != end.as_bytes() {
        let part = body.strip_prefix(delimiter.as_bytes()).and_then(parse_part);
        let number = parts.len();
        let (part, rest) = part.ok_or_else(|| format!("part {number} is malformed"))?;
        parts.push(part);
        body = rest;
    }
    Ok(parts)
}

/// Reads the fields and the content of a part. Returns it and what follows it.
fn parse_part(body: &[u8]) -> Option<(Part<'_>, &[u8])> {
    let end = body.windows(4).position(|four| four == b"\r\n\r\n")?;
    let fields = std::str::from_utf8(&body[..end]).ok()?;
    let value = fields.lines().find_map(|line| line.strip_prefix("Content-Range: "))?;
    let (first, last, total) = parse_content_range(value)?;
    let length = usize::try_from(last - first + 1).ok()?;
    let (content, rest) = body[end + 4..].split_at_checked(length)?;
    Some((Part { range: (first, last), total, content }, rest.strip_prefix(b"\r\n")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_body_into_its_parts() {
        let body = b"--b\r\nContent-Type: a/b\r\nContent-Range: bytes 1-2/9\r\n\r\nxy\r\n\
            --b\r\nContent-Range: bytes 4-4/9\r\n\r\nz\r\n--b--\r\n";
        let parts = parse("multipart/byteranges; boundary=b", body).unwrap();
        assert_eq!(parts[0], Part { range: (1, 2), total: 9, content: b"xy" });
        assert_eq!(parts[1], Part { range: (4, 4), total: 9, content: b"z" });
        assert_eq!(parts.len(), 2);
        assert!(parse("text/plain", body).is_err());
        for end in 0..body.len() {
            assert!(parse("multipart/byteranges; boundary=b", &body[..end]).is_err(), "{end}");
        }
    }
}
