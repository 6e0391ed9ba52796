//! Formatting of IP addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Appends an address. Writes IPv4-mapped IPv6 addresses as IPv4.
#[inline]
pub(super) fn write(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => write_v4(out, address),
        IpAddr::V6(address) => write_v6(out, address),
    }
}

/// Returns whether [`write`] writes `address` in IPv6 notation.
pub(super) fn has_colons(address: IpAddr) -> bool {
    address.to_canonical().is_ipv6()
}

/// Appends an IPv6 address as specified in RFC 5952.
#[inline(never)]
fn write_v6(out: &mut Vec<u8>, address: Ipv6Addr) {
    if let Some(address) = address.to_ipv4_mapped() {
        return write_v4(out, address);
    }
    let segments = address.segments();
    let zeros = longest_zeros(&segments);
    let mut text = [0; MAX_V6_LEN + 4];
    let mut len = 0usize;
    let mut at = 0;
    while let Some(segment) = segments.get(at) {
        if at == zeros.start && !zeros.is_empty() {
            // The separator before the zeros is already present, except at the start.
            let start = len.saturating_sub(1) % MAX_V6_LEN;
            text[start..start + 2].copy_from_slice(b"::");
            len = start + 2;
            at = zeros.end;
            continue;
        }
        // The remainder equals `len`. It lets the compiler omit the bounds check.
        let position = len % MAX_V6_LEN;
        let (digits, digits_len) = hex(*segment);
        text[position..position + 4].copy_from_slice(&digits);
        len += digits_len;
        at += 1;
        if at < segments.len() {
            text[len % MAX_V6_LEN] = b':';
            len += 1;
        }
    }
    let end = out.len() + len;
    out.extend_from_slice(text.first_chunk::<MAX_V6_LEN>().unwrap_or(&[0; MAX_V6_LEN]));
    out.truncate(end);
}

/// Length of `ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff` plus one.
const MAX_V6_LEN: usize = 40;

/// Formats a hexadecimal number without leading zeros. Returns the digits and their count.
#[inline]
fn hex(number: u16) -> ([u8; 4], usize) {
    let number = u32::from(number);
    // One byte per digit, least significant byte first.
    let digits = number >> 12 | number & 0xf00 | (number & 0xf0) << 12 | (number & 0xf) << 24;
    let above_nine = (digits + 0x0606_0606) >> 4 & 0x0101_0101;
    let text = digits + 0x3030_3030 + above_nine * u32::from(b'a' - b'9' - 1);
    let zeros = (number | 1).leading_zeros() / 4 - 4;
    ((text >> (8 * zeros)).to_le_bytes(), 4 - zeros as usize)
}

/// Returns the first of the longest runs of at least two zeros, or an empty range.
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
    let mut text = [0; MAX_V4_LEN + 3];
    let mut len = 0;
    for octet in address.octets() {
        let (digits, digits_len) = OCTETS[usize::from(octet)];
        // The remainder equals `len`. It lets the compiler omit the bounds check.
        let at = len % MAX_V4_LEN;
        text[at..at + 4].copy_from_slice(&digits);
        len += usize::from(digits_len);
    }
    // Copying a constant number of bytes is cheaper than copying `len` bytes. The last dot is removed too.
    let end = out.len() + len - 1;
    out.extend_from_slice(text.first_chunk::<MAX_V4_LEN>().unwrap_or(&[0; MAX_V4_LEN]));
    out.truncate(end);
}

/// Length of `255.255.255.255.`.
const MAX_V4_LEN: usize = 16;

/// Decimal representation of each octet followed by a dot, and its length.
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
        fn formats_addresses_like_the_standard_library(
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
