//! Access rules of a forward proxy.

use std::net::IpAddr;

use hearken_server::proxy::config::Rule;

use super::address::check_name;

const FORM: &str = "expected ADDR, ADDR/BITS, NAME or .DOMAIN";

/// Parses `ADDR`, `ADDR/BITS`, `NAME` or `.DOMAIN`.
pub(super) fn rule(text: &str) -> Result<Rule, String> {
    if text.contains("://") {
        return Err(FORM.to_owned());
    }
    if let Some((network, bits)) = text.split_once('/') {
        return self::network(network, bits);
    }
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = inside.parse::<IpAddr>() {
        let address = address.to_canonical();
        return Ok(Rule::Network(address, width(address)));
    }
    if text.contains(':') {
        return Err(format!("ports are not supported; {FORM}"));
    }
    let domain = text.strip_prefix('.');
    let name = domain.unwrap_or(text);
    check_name(name).map_err(|reason| format!("{reason}; {FORM}"))?;
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    Ok(match domain {
        Some(_) => Rule::Domain(format!(".{name}")),
        None => Rule::Name(name),
    })
}

/// Prints a rule in the form that [`rule`] parses.
pub(super) fn print_rule(rule: &Rule) -> String {
    match rule {
        Rule::Network(address, bits) if *bits == width(*address) => address.to_string(),
        Rule::Network(address, bits) => format!("{address}/{bits}"),
        Rule::Name(name) | Rule::Domain(name) => name.clone(),
    }
}

fn network(network: &str, bits: &str) -> Result<Rule, String> {
    let address: IpAddr =
        network.parse().map_err(|_| format!("'{network}' is not an IP address; {FORM}"))?;
    let digits = bits.bytes().all(|byte| byte.is_ascii_digit());
    let max = width(address);
    let bits = bits.parse::<u8>().ok().filter(|bits| digits && *bits <= max);
    let bits = bits.ok_or_else(|| format!("the prefix length must be from 0 to {max}"))?;
    let first = first(address, bits);
    if first != address {
        return Err(format!(
            "the address has bits after its prefix (did you mean '{first}/{bits}'?)"
        ));
    }
    // Addresses are compared in canonical form, which turns mapped IPv4 addresses into IPv4.
    match (address.to_canonical(), bits.checked_sub(96)) {
        (four @ IpAddr::V4(_), Some(bits)) if address.is_ipv6() => Ok(Rule::Network(four, bits)),
        _ => Ok(Rule::Network(address, bits)),
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns the first address of the network with `bits` that contains `address`.
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
