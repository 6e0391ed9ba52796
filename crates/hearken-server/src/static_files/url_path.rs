//! Canonical URL paths of files. `hearken_http::path` performs the opposite conversion.

/// Writes the canonical URL path of a normalised path: with a leading slash, a final slash if it
/// `is_directory`, and percent-encoding where necessary.
///
/// Different paths have different canonical forms, so the result is the cache key and can be compared
/// with the path of a request as sent. It is safe in a `Location` field, because it never starts with
/// two slashes.
pub(super) fn encode(path: &[u8], is_directory: bool, out: &mut Vec<u8>) {
    out.clear();
    out.push(b'/');
    for &byte in path {
        if is_unescaped(byte) {
            out.push(byte);
        } else {
            let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble & 15)];
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
        }
    }
    if is_directory && !path.is_empty() {
        out.push(b'/');
    }
}

/// Returns whether a byte needs no percent-encoding in a path: a `pchar` of RFC 3986, or the slash.
fn is_unescaped(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte)
}

/// Returns whether a path is in `.well-known` (RFC 8615) and has no other name with a leading dot.
pub(super) fn is_well_known(path: &[u8]) -> bool {
    let mut names = path.split(|&byte| byte == b'/');
    names.next() == Some(b".well-known") && !names.any(|name| name.starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(path: &str, is_directory: bool) -> String {
        let mut out = b"old".to_vec();
        encode(path.as_bytes(), is_directory, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn encodes_paths_canonically() {
        for (path, is_directory, expected) in [
            ("", true, "/"),
            ("a", false, "/a"),
            ("a/b", true, "/a/b/"),
            ("a b", false, "/a%20b"),
            ("a%20b", false, "/a%2520b"),
            ("\u{e4}", false, "/%C3%A4"),
            ("a?b#c", false, "/a%3Fb%23c"),
            ("a:b@c", false, "/a:b@c"),
            ("\"<>|^`{}[]", false, "/%22%3C%3E%7C%5E%60%7B%7D%5B%5D"),
        ] {
            assert_eq!(encoded(path, is_directory), expected);
        }
    }

    #[test]
    fn recognises_well_known_paths() {
        for path in [".well-known", ".well-known/acme-challenge/x"] {
            assert!(is_well_known(path.as_bytes()));
        }
        for path in ["", ".git", ".well-known/.git", ".well-knownx", "a/.well-known/x"] {
            assert!(!is_well_known(path.as_bytes()), "{path}");
        }
    }
}
