//! Character classes of the HTTP grammar.

/// Bytes of a token: `tchar`, RFC 9110 section 5.6.2.
pub(crate) const TOKEN: u8 = 1;
/// Bytes of a request-target before its query.
pub(crate) const PATH: u8 = 2;
/// Bytes of a request-target: visible ASCII except `#`.
pub(crate) const TARGET: u8 = 4;
/// Bytes of a `reg-name` (RFC 3986 section 3.2.2) without percent-encoding.
pub(crate) const HOST: u8 = 8;
/// Bytes of a field value: visible ASCII, space, tab and obs-text, RFC 9110 section 5.5.
pub(crate) const TEXT: u8 = 16;
/// Bytes of a token except uppercase letters, RFC 9113 section 8.2.1.
pub(crate) const LOWERCASE_TOKEN: u8 = 32;

static CLASS: [u8; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let byte = index as u8;
        let alphanumeric = byte.is_ascii_alphanumeric();
        let mut class = 0;
        if alphanumeric || in_set(byte, b"!#$%&'*+-.^_`|~") {
            class |= TOKEN;
            if !byte.is_ascii_uppercase() {
                class |= LOWERCASE_TOKEN;
            }
        }
        if byte.is_ascii_graphic() && byte != b'#' {
            class |= TARGET;
            if byte != b'?' {
                class |= PATH;
            }
        }
        if alphanumeric || in_set(byte, b"-._~!$&'()*+,;=") {
            class |= HOST;
        }
        if (byte >= b' ' && byte != 0x7f) || byte == b'\t' {
            class |= TEXT;
        }
        table[index] = class;
        index += 1;
    }
    table
};

const fn in_set(byte: u8, set: &[u8]) -> bool {
    let mut index = 0;
    while index < set.len() {
        if set[index] == byte {
            return true;
        }
        index += 1;
    }
    false
}

/// Returns whether `byte` belongs to `class`.
#[inline]
pub(crate) fn is(byte: u8, class: u8) -> bool {
    CLASS[usize::from(byte)] & class != 0
}

/// Returns the number of leading bytes that belong to `class`, tested one by one.
#[cfg(test)]
pub(crate) fn prefix_len(bytes: &[u8], class: u8) -> usize {
    bytes.iter().position(|&byte| !is(byte, class)).unwrap_or(bytes.len())
}

/// Returns `bytes` without leading and trailing spaces and tabs (OWS, RFC 9110 section 5.6.3).
#[inline(always)]
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    // Nearly all senders write one space before the value and none after it.
    match bytes {
        [b' ', value @ ..] if is_trimmed(value) => value,
        _ => trim_any(bytes),
    }
}

/// Returns whether `bytes` starts and ends with a byte that is certainly not whitespace.
#[inline(always)]
fn is_trimmed(bytes: &[u8]) -> bool {
    matches!((bytes.first(), bytes.last()), (Some(b'!'..), Some(b'!'..)))
}

#[inline(never)]
fn trim_any(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Compares the token `name` with `lower`, ignoring case. `lower` contains at least four bytes, each in
/// `a..=z` or `-`.
#[inline(always)]
pub(crate) fn eq_ignore_case<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    // Setting bit 5 maps no other token byte onto a letter or a hyphen.
    let Ok(name) = <&[u8; N]>::try_from(name) else {
        return false;
    };
    // Compare word by word. The last two words may overlap.
    let (word, bit_5) = if N < 8 { (4, 0x2020_2020) } else { (8, 0x2020_2020_2020_2020) };
    let mut difference = 0;
    let mut at = 0;
    while at < N {
        let from = at.min(N.saturating_sub(word));
        difference |= (load(name, from, word) | bit_5) ^ load(lower, from, word);
        at += word;
    }
    difference == 0
}

/// Compares the token `name` with `lower`, ignoring case, for any length. `lower` contains only letters in
/// lowercase and hyphens.
#[inline(always)]
pub(crate) fn eq_name(name: &[u8], lower: &[u8]) -> bool {
    const BIT_5: u64 = 0x2020_2020_2020_2020;
    if name.len() != lower.len() {
        return false;
    }
    let word = if name.len() < 8 { 4 } else { 8 };
    let Some(last) = name.len().checked_sub(word) else {
        return name.eq_ignore_ascii_case(lower);
    };
    let differs = |at| {
        // Four bytes are loaded into the lower half.
        let bit_5 = BIT_5 >> (64 - 8 * word);
        load(name, at, word) | bit_5 != load(lower, at, word)
    };
    let mut at = 0;
    while at < last {
        if differs(at) {
            return false;
        }
        at += word;
    }
    !differs(last)
}

/// Loads `word` bytes (four or eight) at position `at` as a little-endian number.
#[inline(always)]
fn load(bytes: &[u8], at: usize, word: usize) -> u64 {
    let bytes = bytes.get(at..).unwrap_or_default();
    match (bytes.first_chunk::<8>(), bytes.first_chunk::<4>()) {
        (Some(eight), _) if word == 8 => u64::from_le_bytes(*eight),
        (_, Some(four)) if word == 4 => u32::from_le_bytes(*four).into(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::eq_ignore_case;

    #[test]
    fn names_compare_without_case() {
        assert!(eq_ignore_case(b"If-Match", b"if-match"));
        assert!(!eq_ignore_case(b"If_Match", b"if-match"));
        assert!(!eq_ignore_case(b"If-Matc", b"if-match"));
    }
}
