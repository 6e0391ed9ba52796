//! Addresses as text.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

#[inline(never)]
fn write_v6(out: &mut Vec<u8>, address: Ipv6Addr) {
    match address.to_ipv4_mapped() {
        Some(address) => write_v4(out, address),
        // Writing to a vector does not fail.
        None => drop(write!(out, "{address}")),
    }
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
