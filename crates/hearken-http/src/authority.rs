//! Parsing of `host [":" port]` in Host fields and request-targets.

use std::net::Ipv6Addr;

use crate::block::Block;
use crate::scan;

/// Parses a Host line in its common form with a valid host. Returns the host and the bytes after the line.
#[inline(always)]
pub(crate) fn parse_common_host_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let value = bytes.strip_prefix(b"Host: ")?;
    let block = Block::new(value);
    let mut len = match block.host_prefix() {
        0 => return None,
        Block::LEN => scan::host_end(value, Block::LEN),
        len => len,
    };
    if value.get(len) == Some(&b':') {
        // A number of four digits is a valid port, as is one of five digits below 60000.
        let first = len + 1;
        let digits = block.digits_from(first);
        if digits > 4 && !(digits == 5 && matches!(value.get(first), Some(b'0'..=b'5'))) {
            return None;
        }
        len = first + digits;
    }
    match value.split_at_checked(len)? {
        (host, [b'\r', b'\n', rest @ ..]) => Some((host, rest)),
        _ => None,
    }
}

/// Splits an authority without userinfo into host and port. Returns `None` if the authority is invalid.
///
/// The port is `None` without a colon, and may be empty after a colon. A host is a non-empty reg-name
/// without percent-encoding, an IPv4 address, or an IPv6 address in brackets without a zone (RFC 3986
/// section 3.2.2). A port is at most 65535.
pub(crate) fn split(authority: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let host_len = match authority {
        [b'[', rest @ ..] => {
            let inner = memchr::memchr(b']', rest)?;
            let address = std::str::from_utf8(rest.get(..inner)?).ok()?;
            address.parse::<Ipv6Addr>().ok()?;
            inner + 2
        }
        _ => scan::host_len(authority),
    };
    let (host, rest) = authority.split_at_checked(host_len)?;
    let port = match rest {
        [] => None,
        [b':', port @ ..] if is_port(port) => Some(port),
        _ => return None,
    };
    (!host.is_empty()).then_some((host, port))
}

fn is_port(digits: &[u8]) -> bool {
    let mut number = 0u32;
    digits.len() <= 5
        && digits.iter().all(|digit| {
            number = number * 10 + u32::from(digit.wrapping_sub(b'0'));
            digit.is_ascii_digit()
        })
        && number <= u32::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn splits_valid_authorities() {
        for (authority, host, port) in [
            ("a", "a", None),
            ("a:", "a", Some("")),
            ("a.b-c_d:65535", "a.b-c_d", Some("65535")),
            ("127.0.0.1:80", "127.0.0.1", Some("80")),
            ("[::1]", "[::1]", None),
            ("[::ffff:1.2.3.4]:8", "[::ffff:1.2.3.4]", Some("8")),
        ] {
            let want = Some((host.as_bytes(), port.map(str::as_bytes)));
            assert_eq!(split(authority.as_bytes()), want, "{authority}");
        }
    }

    #[test]
    fn rejects_invalid_authorities() {
        for authority in [
            "",
            ":",
            ":80",
            "a:65536",
            "a:080000",
            "a:+1",
            "a:1:2",
            "a b",
            "a/b",
            "u@a",
            "a%41",
            "[::1",
            "[]",
            "[::1]x",
            "[fe80::1%25eth0]",
            "[v1.x]",
            "::1",
            "a\u{e9}",
            "a\\b",
        ] {
            assert_eq!(split(authority.as_bytes()), None, "{authority}");
        }
    }
}
