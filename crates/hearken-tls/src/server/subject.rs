//! The subject of a certificate as text (RFC 4514).

use std::fmt::Write;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Maximum length of the text in bytes.
const MAX_BYTES: usize = 1024;

/// Returns the subject of a certificate, with the most specific attribute first, as in
/// `CN=client,O=Example`. `None` if it is empty, malformed or too long.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> Option<Box<str>> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let text = text(certificate.subject())?;
    (!text.is_empty() && text.len() <= MAX_BYTES).then(|| text.into())
}

/// Converts the content of an `RDNSequence`.
fn text(mut names: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !names.is_empty() {
        let mut set = element(&mut names, 0x31)?;
        let mut part = String::new();
        while !set.is_empty() {
            let mut attribute = element(&mut set, 0x30)?;
            let kind = element(&mut attribute, 0x06)?;
            let tag = *attribute.first()?;
            let value = element(&mut attribute, tag)?;
            if !part.is_empty() {
                part.push('+');
            }
            write_attribute(&mut part, kind, tag, value);
        }
        parts.push(part);
    }
    parts.reverse();
    Some(parts.join(","))
}

/// Takes an element with a tag off the front of `input`, in DER. Returns its content.
fn element<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (&[found, length], rest) = input.split_first_chunk()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        0x82 => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *input = rest;
    (found == tag).then_some(content)
}

fn write_attribute(out: &mut String, kind: &[u8], tag: u8, value: &[u8]) {
    match name(kind) {
        Some(name) => out.push_str(name),
        None => write_numbers(out, kind),
    }
    out.push('=');
    let value = match tag {
        // UTF8String, NumericString, PrintableString, IA5String.
        0x0c | 0x12 | 0x13 | 0x16 => std::str::from_utf8(value).ok(),
        _ => None,
    };
    match (name(kind), value) {
        (Some(_), Some(value)) => write_escaped(out, value),
        _ => {
            out.push('#');
            // Writing to a string does not fail.
            value.map_or(&[][..], str::as_bytes).iter().for_each(|byte| {
                let _ = write!(out, "{byte:02x}");
            });
        }
    }
}

/// Returns the short name of an attribute type: those of RFC 4514, and `emailAddress`.
fn name(kind: &[u8]) -> Option<&'static str> {
    Some(match kind {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "STREET",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "emailAddress",
        _ => return None,
    })
}

/// Writes an object identifier with dots.
fn write_numbers(out: &mut String, kind: &[u8]) {
    let mut value = 0_u64;
    let mut is_first = true;
    for byte in kind {
        value = value.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        let _ = match std::mem::take(&mut is_first) {
            true => {
                let first = (value / 40).min(2);
                write!(out, "{first}.{}", value - first * 40)
            }
            false => write!(out, ".{value}"),
        };
        value = 0;
    }
}

/// Writes a value, in which all bytes but printable ASCII are escaped, so that it fits into a header
/// field.
fn write_escaped(out: &mut String, value: &str) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' => out.extend(['\\', char::from(byte)]),
            b'#' if at == 0 => out.push_str("\\#"),
            b' ' if at == 0 || at == last => out.push_str("\\ "),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(content.len()).unwrap()], content].concat()
    }

    fn attribute(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        der(0x30, &[der(6, kind), der(tag, value)].concat())
    }

    #[test]
    fn subjects_are_written_in_reverse_order() {
        let country = der(0x31, &attribute(&[0x55, 4, 6], 0x13, b"NL"));
        let name = attribute(&[0x55, 4, 3], 0x0c, " \u{e9},+\"\\\r\n#".as_bytes());
        let unit = attribute(&[0x55, 4, 11], 0x0c, b"#u ");
        let names = [country, der(0x31, &[name, unit].concat())].concat();
        let expected = "CN=\\ \\C3\\A9\\,\\+\\\"\\\\\\0D\\0A#+OU=\\#u\\ ,C=NL";
        assert_eq!(text(&names).unwrap(), expected);
        let unknown = der(0x31, &attribute(&[0x2a, 0x83, 0x55, 1], 0x0c, b"ab"));
        assert_eq!(text(&unknown).unwrap(), "1.2.469.1=#6162");
        assert_eq!(text(&[]).unwrap(), "");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            let line = text(&bytes).unwrap_or_default();
            prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }

        #[test]
        fn any_value_is_printable(value in "\\PC{0,40}") {
            let names = der(0x31, &attribute(&[0x55, 4, 3], 0x0c, value.as_bytes()));
            let line = text(&names).unwrap();
            prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
    }
}
