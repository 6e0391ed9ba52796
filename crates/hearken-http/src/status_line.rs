//! Parsing of status lines.

use crate::block::Block;
use crate::error::Reject;
use crate::field_line::invalid_control;
use crate::scan;
use crate::version::Version;

/// A status line with a status code in `100..=999`.
pub(crate) struct StatusLine<'b> {
    pub(crate) version: Version,
    pub(crate) status: u16,
    pub(crate) reason: &'b [u8],
    /// Bytes after the line.
    pub(crate) rest: &'b [u8],
}

/// Parses `HTTP-version SP status-code [SP reason-phrase] CRLF`, RFC 9112 section 4.
#[inline(always)]
pub(crate) fn parse_status_line(bytes: &[u8]) -> Result<Option<StatusLine<'_>>, Reject> {
    // Fast path for HTTP/1.1 with a reason phrase shorter than a block.
    if let Some([hundreds, tens, units, b' ', text @ ..]) = bytes.strip_prefix(b"HTTP/1.1 ")
        && let (b'1'..=b'9', b'0'..=b'9', b'0'..=b'9') = (hundreds, tens, units)
        && let Some(block) = text.first_chunk()
        && let Some((reason, [b'\r', b'\n', rest @ ..])) =
            text.split_at_checked(Block::from(block).text_prefix())
    {
        let digit = |digit: u8| u16::from(digit & 15);
        let status = 100 * digit(*hundreds) + 10 * digit(*tens) + digit(*units);
        return Ok(Some(StatusLine { version: Version::Http11, status, reason, rest }));
    }
    parse_any_status_line(bytes)
}

/// Parses a status line of any form.
#[inline(never)]
fn parse_any_status_line(bytes: &[u8]) -> Result<Option<StatusLine<'_>>, Reject> {
    const BAD: Reject =
        Reject::bad("invalid status line: expected version, three-digit status and reason phrase");
    let Some(digits) = Version::digits(bytes)? else {
        return Ok(None);
    };
    let version = Version::from_digits(digits)?;
    let code = bytes.get(8..).unwrap_or_default();
    let fits = code.iter().zip(b" ddd").all(|(&byte, &shape)| match shape {
        b'd' => byte.is_ascii_digit(),
        _ => byte == shape,
    });
    if !fits {
        return Err(BAD);
    }
    let [_, hundreds, tens, units, rest @ ..] = code else {
        return Ok(None);
    };
    let status = [hundreds, tens, units]
        .into_iter()
        .fold(0, |status, digit| status * 10 + u16::from(digit.wrapping_sub(b'0')));
    if status < 100 {
        return Err(BAD);
    }
    let text = match rest {
        [b' ', text @ ..] => text,
        [b'\r', ..] | [] => rest,
        [b'\n', ..] => return Err(invalid_control(b'\n')),
        _ => return Err(BAD),
    };
    let (reason, end) = text.split_at(scan::text_len(text));
    match end {
        [b'\r', b'\n', rest @ ..] => Ok(Some(StatusLine { version, status, reason, rest })),
        [] | [b'\r'] => Ok(None),
        [stop, ..] => Err(invalid_control(*stop)),
    }
}
