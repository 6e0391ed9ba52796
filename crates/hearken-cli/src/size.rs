//! Sizes in bytes.

/// Parses a number of bytes, optionally with the suffix `k`, `M` or `G` (powers of 1024).
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'M')) => (&text[..at], 20),
        Some((at, 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("expected a size such as 1000, 16k, 8M or 1G".to_owned());
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        // TOML integers are signed.
        .filter(|&bytes| bytes <= i64::MAX.unsigned_abs())
        .ok_or_else(|| "too large".to_owned())
}

/// Prints a size in the form that [`size`] parses.
pub(crate) fn print_size(bytes: u64) -> String {
    let suffix = [(30, 'G'), (20, 'M'), (10, 'k')]
        .into_iter()
        .find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    match suffix {
        Some((shift, suffix)) => format!("{}{suffix}", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{print_size, size};

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (text, bytes) in [("0", 0), ("17", 17), ("16k", 16384), ("16K", 16384), ("3M", 3 << 20)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
            assert_eq!(size(&print_size(bytes)), Ok(bytes), "{text}");
        }
        assert_eq!(size("1G"), Ok(1 << 30));
        for wrong in ["", "k", "-1", "+1", "1.5M", "1m", "1kB", "9999999999999G", "1é"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
