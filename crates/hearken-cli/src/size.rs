//! Sizes on the command line.

/// Parses a number of bytes, which may end in `k`, `M` or `G` for so many times 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'M')) => (&text[..at], 20),
        Some((at, 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("\"{text}\" is not a size; write bytes, or as 16k, 8M, 1G"));
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        // So that it is a number of a file, too.
        .filter(|&bytes| bytes <= i64::MAX.unsigned_abs())
        .ok_or_else(|| format!("\"{text}\" is more than there can be"))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (text, bytes) in [("0", 0), ("17", 17), ("16k", 16384), ("16K", 16384), ("3M", 3 << 20)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        assert_eq!(size("1G"), Ok(1 << 30));
        for wrong in ["", "k", "-1", "+1", "1.5M", "1m", "1kB", "9999999999999G", "1é"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
