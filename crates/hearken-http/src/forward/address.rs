//! Addresses as text.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Appends an address. One of IPv4 that came as one of IPv6 is written as what it is.
#[inline]
pub(super) fn write(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => write_v4(out, address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => write_v4(out, address),
            None => write_v6(out, address),
        },
    }
}

/// Whether [`write`] writes colons.
pub(super) fn has_colons(address: IpAddr) -> bool {
    address.to_canonical().is_ipv6()
}

fn write_v6(out: &mut Vec<u8>, address: Ipv6Addr) {
    // Writing to a vector does not fail.
    let _ = write!(out, "{address}");
}

#[inline]
fn write_v4(out: &mut Vec<u8>, address: Ipv4Addr) {
    let mut text = [0; 16];
    let mut len = 0;
    for octet in address.octets() {
        let (digits, digits_len) = OCTETS[usize::from(octet)];
        if let Some(place) = text.get_mut(len..len + 4) {
            place.copy_from_slice(&digits);
        }
        len += usize::from(digits_len);
    }
    // All sixteen bytes, as copying a number that is known is cheaper; then the last dot is one too many.
    let end = out.len() + len - 1;
    out.extend_from_slice(&text);
    out.truncate(end);
}

/// Each octet in decimal with a dot behind it, and how long that is.
static OCTETS: [([u8; 4], u8); 256] = {
    let mut table = [([0; 4], 0); 256];
    let mut octet = 0;
    while octet < 256 {
        let (hundreds, tens, units) = (octet / 100, octet / 10 % 10, octet % 10);
        let (h, t, u) = (b'0' + hundreds as u8, b'0' + tens as u8, b'0' + units as u8);
        table[octet] = if hundreds > 0 {
            ([h, t, u, b'.'], 4)
        } else if tens > 0 {
            ([t, u, b'.', 0], 3)
        } else {
            ([u, b'.', 0, 0], 2)
        };
        octet += 1;
    }
    table
};
