//! Whom a forward proxy connects to, as `--allow`, `--deny` and the file say it.

use std::net::IpAddr;

use hearken_server::proxy::config::Rule;

use super::to;

/// Parses `ADDRESS`, `NETWORK/BITS`, `NAME` or `.DOMAIN`.
pub(crate) fn rule(text: &str) -> Result<Rule, String> {
    let instead = "write ADDRESS, NETWORK/BITS, NAME or .DOMAIN";
    if text.contains("://") {
        return Err(format!("\"{text}\" is a URL; {instead}"));
    }
    if let Some((network, bits)) = text.split_once('/') {
        return self::network(network, bits).map_err(|what| format!("{what}; {instead}"));
    }
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = inside.parse::<IpAddr>() {
        let address = address.to_canonical();
        return Ok(Rule::Network(address, width(address)));
    }
    if text.contains(':') {
        return Err(format!("\"{text}\" is no address, and rules have no port; {instead}"));
    }
    let domain = text.strip_prefix('.');
    let name = domain.unwrap_or(text);
    to::name(name).map_err(|what| format!("{what}; {instead}"))?;
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    Ok(match domain {
        Some(_) => Rule::Domain(format!(".{name}")),
        None => Rule::Name(name),
    })
}

fn network(network: &str, bits: &str) -> Result<Rule, String> {
    let address: IpAddr =
        network.parse().map_err(|_| format!("\"{network}\" is no address of a network"))?;
    let digits = bits.bytes().all(|byte| byte.is_ascii_digit());
    let most = width(address);
    let bits = bits.parse::<u8>().ok().filter(|bits| digits && *bits <= most);
    let bits = bits.ok_or_else(|| format!("\"{network}\" has 0 to {most} bits"))?;
    let first = first(address, bits);
    if first != address {
        return Err(format!("{network} has more than {bits} bits; the network is {first}/{bits}"));
    }
    // An IPv4 address that is written as an IPv6 one is an IPv4 address to all who compare.
    match (address.to_canonical(), bits.checked_sub(96)) {
        (four @ IpAddr::V4(_), Some(bits)) if address.is_ipv6() => Ok(Rule::Network(four, bits)),
        _ => Ok(Rule::Network(address, bits)),
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first address of the network with `bits` that `address` is in.
fn first(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(four) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((four.to_bits() & mask).into())
        }
        IpAddr::V6(six) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((six.to_bits() & mask).into())
        }
    }
}
