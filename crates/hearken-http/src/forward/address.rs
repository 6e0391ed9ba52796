//! Addresses as text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Appends an address. One of IPv4 that came as one of IPv6 is written as what it is.
#[inline]
pub(super) fn write(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => write_v4(out, address),
        IpAddr::V6(address) => write_v6(out, address),
    }
}

/// Whether [`write`] writes colons.
pub(super) fn has_colons(address: IpAddr) -> bool {
    address.to_canonical().is_ipv6()
}

/// As RFC 5952 has it.
#[inline(never)]
fn write_v6(out: &mut Vec<u8>, address: Ipv6Addr) {
    if let Some(address) = address.to_ipv4_mapped() {
        return write_v4(out, address);
    }
    let segments = address.segments();
    let zeros = longest_zeros(&segments);
    let mut text = [0; LONGEST_V6 + 4];
    let mut len = 0usize;
    let mut at = 0;
    while let Some(segment) = segments.get(at) {
        if at == zeros.start && !zeros.is_empty() {
            // One colon is there already, unless these are the first.
            let start = len.saturating_sub(1) % LONGEST_V6;
            text[start..start + 2].copy_from_slice(b"::");
            len = start + 2;
            at = zeros.end;
            continue;
        }
        // Which `len` is in any case, as the compiler now sees.
        let place = len % LONGEST_V6;
        let (digits, digits_len) = hex(*segment);
        text[place..place + 4].copy_from_slice(&digits);
        len += digits_len;
        at += 1;
        if at < segments.len() {
            text[len % LONGEST_V6] = b':';
            len += 1;
        }
    }
    let end = out.len() + len;
    out.extend_from_slice(text.first_chunk::<LONGEST_V6>().unwrap_or(&[0; LONGEST_V6]));
    out.truncate(end);
}

/// `ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff`, and one.
const LONGEST_V6: usize = 40;

/// A number in hexadecimal without zeros before it, and how long that is.
#[inline]
fn hex(number: u16) -> ([u8; 4], usize) {
    let number = u32::from(number);
    // A byte for each digit, the first of them the lowest.
    let digits = number >> 12 | number & 0xf00 | (number & 0xf0) << 12 | (number & 0xf) << 24;
    let above_nine = (digits + 0x0606_0606) >> 4 & 0x0101_0101;
    let text = digits + 0x3030_3030 + above_nine * u32::from(b'a' - b'9' - 1);
    let zeros = (number | 1).leading_zeros() / 4 - 4;
    ((text >> (8 * zeros)).to_le_bytes(), 4 - zeros as usize)
}

/// The first of the longest runs of zeros, if there is one of more than one.
fn longest_zeros(segments: &[u16; 8]) -> Range<usize> {
    let mut longest = 0..0;
    let mut start = 0;
    for (at, segment) in segments.iter().enumerate() {
        if *segment != 0 {
            start = at + 1;
        } else if at + 1 - start > longest.len().max(1) {
            longest = start..at + 1;
        }
    }
    longest
}

#[inline]
fn write_v4(out: &mut Vec<u8>, address: Ipv4Addr) {
    let mut text = [0; LONGEST + 3];
    let mut len = 0;
    for octet in address.octets() {
        let (digits, digits_len) = OCTETS[usize::from(octet)];
        // Which `len` is in any case, as the compiler now sees.
        let at = len % LONGEST;
        text[at..at + 4].copy_from_slice(&digits);
        len += usize::from(digits_len);
    }
    // As many bytes as there may be, since to copy a number that is known is cheaper; then the last dot is
    // one too many.
    let end = out.len() + len - 1;
    out.extend_from_slice(text.first_chunk::<LONGEST>().unwrap_or(&[0; LONGEST]));
    out.truncate(end);
}

/// `255.255.255.255.`
const LONGEST: usize = 16;

/// Each octet in decimal with a dot behind it, and how long that is.
static OCTETS: [([u8; 4], u8); 256] = {
    let mut table = [([0; 4], 0); 256];
    let mut octet = 0;
    while octet < 256 {
        let hundreds = b'0' + (octet / 100) as u8;
        let tens = b'0' + (octet / 10 % 10) as u8;
        let units = b'0' + (octet % 10) as u8;
        table[octet] = match octet {
            100.. => ([hundreds, tens, units, b'.'], 4),
            10.. => ([tens, units, b'.', 0], 3),
            _ => ([units, b'.', 0, 0], 2),
        };
        octet += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn addresses_are_as_others_write_them(
            v4: [u8; 4],
            segments in prop::array::uniform8(prop_oneof![3 => Just(0), 1 => Just(0xffff), 2 => any::<u16>()]),
        ) {
            for address in [IpAddr::from(v4), IpAddr::from(segments)] {
                let mut out = b"x".to_vec();
                write(&mut out, address);
                prop_assert_eq!(String::from_utf8(out).unwrap(), format!("x{}", address.to_canonical()));
            }
        }
    }
}
