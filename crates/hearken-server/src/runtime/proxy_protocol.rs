//! The PROXY protocol, versions 1 and 2 (proxy-protocol.txt of haproxy, "the specification" below).
//! A proxy sends a header at the start of a connection to report the address of its client.
//!
//! The receiver trusts the header, so the parser is strict. The specification leaves some choices:
//!
//! - A header may arrive in pieces.
//! - The length of version 2 headers is limited to [`MAX_HEADER_LENGTH`] bytes.
//! - Addresses of Unix sockets and datagrams are ignored.
//! - A checksum is optional, but must be correct.
//! - An IPv4-mapped IPv6 address is converted to IPv4.
//!
//! The specification forbids sending requests of several clients on one connection with a header.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum length of a version 2 header in bytes.
pub const MAX_HEADER_LENGTH: usize = 4096;
/// Maximum length of a version 1 line in bytes.
const MAX_LINE: usize = 107;
const V1: &[u8] = b"PROXY ";
const V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Type of the checksum option (`PP2_TYPE_CRC32C`).
const CRC32C: u8 = 3;

/// A version of the PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyProtocol {
    /// Version 1, a line of text.
    V1,
    /// Version 2, a binary header.
    V2,
}

/// The result of parsing the first bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// An incomplete header.
    Incomplete,
    /// A complete header.
    Header {
        /// Length of the header in bytes.
        len: usize,
        /// Address of the client; `None` for the peer address of the connection.
        source: Option<SocketAddr>,
        /// Address that the client connected to; `None` for the local address of the connection.
        destination: Option<SocketAddr>,
    },
}

/// Parses the header of either version at the start of `bytes`.
///
/// ```
/// use hearken_server::runtime::proxy_protocol::{Parsed, parse};
///
/// let bytes = b"PROXY TCP4 192.0.2.1 192.0.2.2 50000 80\r\nGET / HTTP/1.1\r\n";
/// assert_eq!(parse(&bytes[..20]), Ok(Parsed::Incomplete));
/// let Ok(Parsed::Header { len, source, .. }) = parse(bytes) else { panic!() };
/// assert!(bytes[len..].starts_with(b"GET "));
/// assert_eq!(source, Some("192.0.2.1:50000".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
///
/// # Errors
/// The header is missing or malformed. The caller must close the connection.
pub fn parse(bytes: &[u8]) -> Result<Parsed, &'static str> {
    let common = |magic: &[u8]| bytes.iter().zip(magic).all(|(byte, of)| byte == of);
    match (common(V1), common(V2)) {
        (true, _) if bytes.len() > V1.len() => parse_line(bytes),
        (_, true) if bytes.len() > V2.len() => parse_binary(bytes),
        (false, false) => Err("the connection does not begin with a PROXY protocol header"),
        _ => Ok(Parsed::Incomplete),
    }
}

/// Parses a version 1 header.
fn parse_line(bytes: &[u8]) -> Result<Parsed, &'static str> {
    let window = bytes.get(..MAX_LINE).unwrap_or(bytes);
    let end = window.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    let line = match end.and_then(|end| window.split_at_checked(end)) {
        Some((line, [b'\r', b'\n', ..])) => line,
        Some((_, [b'\r'])) | None if window.len() < MAX_LINE => return Ok(Parsed::Incomplete),
        Some((_, [b'\r', _, ..] | [b'\n', ..])) => {
            return Err("PROXY protocol: the line does not end with CR LF");
        }
        _ => return Err("PROXY protocol: the line is longer than 107 bytes"),
    };
    let len = line.len() + 2;
    let bad = "PROXY protocol: the line is malformed";
    let line = line.strip_prefix(V1).ok_or(bad)?;
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        // The rest of the line has no meaning.
        return Ok(Parsed::Header { len, source: None, destination: None });
    }
    let line = std::str::from_utf8(line).map_err(|_| bad)?;
    let mut words = line.split(' ');
    let mut word = || words.next().ok_or(bad);
    let (family, source, destination) = (word()?, word()?, word()?);
    let (source_port, destination_port) = (port(word()?).ok_or(bad)?, port(word()?).ok_or(bad)?);
    if words.next().is_some() {
        return Err(bad);
    }
    let address = |text: &str| match family {
        // The parser of the standard library rejects leading zeros.
        "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => None,
    };
    let source = socket(address(source).ok_or(bad)?, source_port);
    let destination = socket(address(destination).ok_or(bad)?, destination_port);
    Ok(Parsed::Header { len, source: Some(source), destination: Some(destination) })
}

/// Parses a port without sign or leading zeros.
fn port(text: &str) -> Option<u16> {
    let canonical = text == "0" || text.starts_with(|first: char| ('1'..='9').contains(&first));
    text.parse().ok().filter(|_| canonical)
}

/// Parses a version 2 header after its signature.
fn parse_binary(bytes: &[u8]) -> Result<Parsed, &'static str> {
    let own = |len| Ok(Parsed::Header { len, source: None, destination: None });
    let rest = bytes.get(V2.len()..).unwrap_or_default();
    let local = match rest.first() {
        Some(0x20) => true,
        Some(0x21) => false,
        Some(0x22..=0x2f) => return Err("PROXY protocol: the command is neither LOCAL nor PROXY"),
        _ => return Err("PROXY protocol: the version is not 2"),
    };
    let Some(&family) = rest.get(1) else { return Ok(Parsed::Incomplete) };
    // The rest of a LOCAL header is ignored.
    let assigned = family >> 4 <= 3 && family & 15 <= 2;
    if !(local || assigned) {
        return Err("PROXY protocol: unknown address family or transport protocol");
    }
    let &[_, _, high, low, ref rest @ ..] = rest else { return Ok(Parsed::Incomplete) };
    let len = bytes.len() - rest.len() + usize::from(u16::from_be_bytes([high, low]));
    if len > MAX_HEADER_LENGTH {
        return Err("PROXY protocol: the header is longer than 4096 bytes");
    }
    let Some(header) = bytes.get(..len) else { return Ok(Parsed::Incomplete) };
    if local {
        return own(len);
    }
    let block = header.get(V2.len() + 4..).unwrap_or_default();
    let short = "PROXY protocol: the header is too short for its addresses";
    let (addresses, options) = match family {
        0x11 => {
            let (block, options) = block.split_first_chunk::<12>().ok_or(short)?;
            let &[a, b, c, d, e, f, g, h, ref ports @ ..] = block;
            (Some((IpAddr::from([a, b, c, d]), IpAddr::from([e, f, g, h]), *ports)), options)
        }
        0x21 => {
            let (source, block) = block.split_first_chunk::<16>().ok_or(short)?;
            let (destination, block) = block.split_first_chunk::<16>().ok_or(short)?;
            let (ports, options) = block.split_first_chunk::<4>().ok_or(short)?;
            (Some((IpAddr::from(*source), IpAddr::from(*destination), *ports)), options)
        }
        // Known families whose addresses are ignored. Their lengths give the start of the options.
        0x12 => (None, block.get(12..).ok_or(short)?),
        0x22 => (None, block.get(36..).ok_or(short)?),
        0x31 | 0x32 => (None, block.get(216..).ok_or(short)?),
        _ => return own(len),
    };
    check_options(header, options)?;
    let Some((source, destination, [a, b, c, d])) = addresses else { return own(len) };
    let source = socket(source, u16::from_be_bytes([a, b]));
    let destination = socket(destination, u16::from_be_bytes([c, d]));
    Ok(Parsed::Header { len, source: Some(source), destination: Some(destination) })
}

/// Checks the options (type, length, value) at the end of a header. Only the checksum is used.
fn check_options(header: &[u8], mut options: &[u8]) -> Result<(), &'static str> {
    while let [kind, rest @ ..] = options {
        let bad = "PROXY protocol: an option exceeds the header";
        let (len, rest) = rest.split_first_chunk::<2>().ok_or(bad)?;
        let (value, after) =
            rest.split_at_checked(usize::from(u16::from_be_bytes(*len))).ok_or(bad)?;
        if *kind == CRC32C {
            let value: [u8; 4] = value
                .try_into()
                .map_err(|_| "PROXY protocol: the checksum is not four bytes long")?;
            let at = header.len() - rest.len();
            let zeroed = header.iter().enumerate().map(|(index, &byte)| {
                if (at..at + value.len()).contains(&index) { 0 } else { byte }
            });
            if crc32c(zeroed) != u32::from_be_bytes(value) {
                return Err("PROXY protocol: the checksum is wrong");
            }
        }
        options = after;
    }
    Ok(())
}

/// Computes CRC32c (RFC 9260, appendix A), bit by bit, because such headers are rare and short.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

fn socket(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip.to_canonical(), port)
}

/// Appends a header with the addresses of a client's connection. If only one address is IPv6, the
/// other is written as an IPv4-mapped IPv6 address. If an address is `None`, the header contains no
/// addresses (`UNKNOWN` in version 1, `LOCAL` in version 2).
pub fn write(
    version: ProxyProtocol,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    out: &mut Vec<u8>,
) {
    let canonical = |address: SocketAddr| socket(address.ip(), address.port());
    let both = source.map(canonical).zip(destination.map(canonical));
    match (version, both) {
        (ProxyProtocol::V1, None) => out.extend_from_slice(b"PROXY UNKNOWN\r\n"),
        (ProxyProtocol::V2, None) => {
            out.extend_from_slice(V2);
            out.extend_from_slice(&[0x20, 0, 0, 0]);
        }
        (ProxyProtocol::V1, Some((source, destination))) => {
            let ports = (source.port(), destination.port());
            // Writing to a vector does not fail.
            let _ = match (source.ip(), destination.ip()) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => {
                    write!(out, "PROXY TCP4 {source} {destination} {} {}\r\n", ports.0, ports.1)
                }
                (source, destination) => {
                    let (source, destination) =
                        (HexAddress(v6(source)), HexAddress(v6(destination)));
                    write!(out, "PROXY TCP6 {source} {destination} {} {}\r\n", ports.0, ports.1)
                }
            };
        }
        (ProxyProtocol::V2, Some((source, destination))) => {
            out.extend_from_slice(V2);
            match (source.ip(), destination.ip()) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => {
                    out.extend_from_slice(&[0x21, 0x11, 0, 12]);
                    out.extend_from_slice(&source.octets());
                    out.extend_from_slice(&destination.octets());
                }
                (source, destination) => {
                    out.extend_from_slice(&[0x21, 0x21, 0, 36]);
                    out.extend_from_slice(&v6(source).octets());
                    out.extend_from_slice(&v6(destination).octets());
                }
            }
            out.extend_from_slice(&source.port().to_be_bytes());
            out.extend_from_slice(&destination.port().to_be_bytes());
        }
    }
}

fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// An IPv6 address formatted in hexadecimal only, as the specification requires: `::ffff:c000:201`
/// instead of `::ffff:192.0.2.1`.
struct HexAddress(Ipv6Addr);

impl std::fmt::Display for HexAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.to_ipv4_mapped() {
            Some(_) => {
                let [.., high, low] = self.0.segments();
                write!(f, "::ffff:{high:x}:{low:x}")
            }
            None => self.0.fmt(f),
        }
    }
}
