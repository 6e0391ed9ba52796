//! Access rules of a forward proxy.
//!
//! A proxy can connect to services that its clients cannot access: services on the proxy's own host,
//! private networks, cloud metadata. Addresses that are not public are therefore denied unless a
//! network rule in `allow` contains them. A rule for a name does not allow them, because the owner of
//! the name controls its addresses and can change them at any time. The proxy must therefore check
//! each address after name resolution and before it connects.
//!
//! A rule for all networks (`0.0.0.0/0`, `::/0`) also allows addresses that are not public.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::config::{Forward, Rule};

/// Allowed port of tunnels if none is configured.
const DEFAULT_TUNNEL_PORT: u16 = 443;

/// The access rules of a forward proxy.
#[derive(Clone, Debug)]
pub struct AccessRules {
    allow: Rules,
    deny: Rules,
    ports: Vec<u16>,
}

/// The reason to deny access to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessDenied {
    /// A rule denies the name.
    Name,
    /// A rule denies the network of this address.
    Address(IpAddr),
    /// Rules for allowed servers exist, but none matches.
    NotAllowed,
    /// The address is not public, and no rule allows its network.
    NotPublic(IpAddr),
    /// The host is neither a valid name nor an unambiguously formatted address.
    InvalidHost,
}

impl fmt::Display for AccessDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessDenied::Name => write!(f, "the name is denied"),
            AccessDenied::Address(ip) => write!(f, "the address {ip} is denied"),
            AccessDenied::NotAllowed => write!(f, "no rule allows the server"),
            AccessDenied::NotPublic(ip) => {
                write!(f, "the address {ip} is not public; allow its network to permit access")
            }
            AccessDenied::InvalidHost => write!(f, "the host is neither a name nor an IP address"),
        }
    }
}

impl std::error::Error for AccessDenied {}

/// The result of the check of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostCheck {
    /// The host is this address, and access is allowed.
    Address(IpAddr),
    /// The host is a name to resolve. Each of its addresses must be checked.
    Resolve,
}

impl AccessRules {
    /// Creates the rules from settings.
    pub fn new(forward: &Forward) -> AccessRules {
        let ports = &forward.connect_ports;
        AccessRules {
            allow: Rules::new(&forward.allow),
            deny: Rules::new(&forward.deny),
            ports: if ports.is_empty() { vec![DEFAULT_TUNNEL_PORT] } else { ports.clone() },
        }
    }

    /// Checks the host of a request, without its port: a name, an IPv4 address, or an IPv6 address
    /// with or without brackets.
    ///
    /// # Errors
    /// Access is denied, so the name must not be resolved.
    pub fn check_host(&self, host: &str) -> Result<HostCheck, AccessDenied> {
        if let Some(ip) = parse_literal(host) {
            return self.check_address(host, ip).map(|()| HostCheck::Address(ip));
        }
        if ends_in_number(host) || host.contains([':', '%', '[', ']']) {
            return Err(AccessDenied::InvalidHost);
        }
        if self.deny.matches_name(host) {
            return Err(AccessDenied::Name);
        }
        if self.allow.is_empty() || self.allow.matches_name(host) || !self.allow.networks.is_empty()
        {
            return Ok(HostCheck::Resolve);
        }
        Err(AccessDenied::NotAllowed)
    }

    /// Checks an address of a host. Must be called for each address before connecting to it.
    ///
    /// # Errors
    /// Access is denied.
    pub fn check_address(&self, host: &str, addr: IpAddr) -> Result<(), AccessDenied> {
        let addr = addr.to_canonical();
        if self.deny.matches_name(host) {
            return Err(AccessDenied::Name);
        }
        let inner = embedded_v4(addr).map(IpAddr::V4);
        if self.deny.matches_network(addr)
            || inner.is_some_and(|inner| self.deny.matches_network(inner))
        {
            return Err(AccessDenied::Address(addr));
        }
        if self.allow.matches_network(addr) {
            return Ok(());
        }
        if !is_public(addr) {
            return Err(AccessDenied::NotPublic(addr));
        }
        if self.allow.is_empty() || self.allow.matches_name(host) {
            return Ok(());
        }
        Err(AccessDenied::NotAllowed)
    }

    /// Returns whether tunnels may use this port.
    pub fn allows_tunnel_port(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }
}

/// Rules by kind.
#[derive(Clone, Debug)]
struct Rules {
    networks: Vec<(IpAddr, u8)>,
    names: Vec<String>,
    /// Domains without the leading dot.
    domains: Vec<String>,
}

impl Rules {
    fn new(rules: &[Rule]) -> Rules {
        let mut all = Rules { networks: Vec::new(), names: Vec::new(), domains: Vec::new() };
        let bare = |name: &str| name.trim_matches('.').to_owned();
        for rule in rules {
            match rule {
                Rule::Network(ip, bits) => all.networks.push(canonical_network(*ip, *bits)),
                Rule::Name(name) => all.names.push(bare(name)),
                Rule::Domain(name) => all.domains.push(bare(name)),
            }
        }
        all
    }

    fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.names.is_empty() && self.domains.is_empty()
    }

    fn matches_name(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
            || self.domains.iter().any(|domain| is_in_domain(host, domain))
    }

    fn matches_network(&self, addr: IpAddr) -> bool {
        self.networks.iter().any(|&(ip, bits)| network_contains(ip, bits, addr))
    }
}

/// Returns whether a name is this domain or a subdomain.
fn is_in_domain(host: &str, domain: &str) -> bool {
    let Some((below, end)) =
        host.len().checked_sub(domain.len()).and_then(|at| host.split_at_checked(at))
    else {
        return false;
    };
    end.eq_ignore_ascii_case(domain) && (below.is_empty() || below.ends_with('.'))
}

/// Converts a network of IPv4-mapped IPv6 addresses to an IPv4 network.
fn canonical_network(ip: IpAddr, bits: u8) -> (IpAddr, u8) {
    match ip.to_canonical() {
        IpAddr::V4(v4) if ip.is_ipv6() && bits >= 96 => (IpAddr::V4(v4), bits - 96),
        IpAddr::V4(_) if ip.is_ipv6() => (ip, bits),
        other => (other, bits),
    }
}

/// Returns whether the first `bits` bits of two addresses are equal.
fn network_contains(ip: IpAddr, bits: u8, addr: IpAddr) -> bool {
    match (ip, addr) {
        (IpAddr::V4(ip), IpAddr::V4(addr)) => {
            let differ = ip.to_bits() ^ addr.to_bits();
            differ.leading_zeros() >= u32::from(bits).min(u32::BITS)
        }
        (IpAddr::V6(ip), IpAddr::V6(addr)) => {
            let differ = ip.to_bits() ^ addr.to_bits();
            differ.leading_zeros() >= u32::from(bits).min(u128::BITS)
        }
        _ => false,
    }
}

/// Parses a host that is an address.
fn parse_literal(host: &str) -> Option<IpAddr> {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let v6 = inner.unwrap_or(host).parse().ok().map(IpAddr::V6);
    v6.or_else(|| host.strip_suffix('.').unwrap_or(host).parse().ok().map(IpAddr::V4))
}

/// Returns whether resolvers may interpret a name as an IPv4 address (`127.1`, `2130706433`, `0x7f.1`).
/// Implements the "ends in a number" check of the WHATWG URL standard. No top-level domain is a number.
fn ends_in_number(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or(host);
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
        None => last.bytes().all(|digit| digit.is_ascii_digit()),
    }
}

/// Returns the IPv4 address to which a gateway may translate an IPv6 address: NAT64 (RFC 6052), 6to4
/// (RFC 3056), IPv4-compatible and IPv4-mapped addresses.
fn embedded_v4(addr: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(addr) = addr else { return None };
    let [a, b, c, d, e, f, g, h] = addr.segments();
    let v4 = |high, low| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match [a, b, c, d, e, f] {
        [0x64, 0xff9b, 0, 0, 0, 0] | [0, 0, 0, 0, 0, 0 | 0xffff] => Some(v4(g, h)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// Networks that are not public, from the IANA special-purpose address registries.
const NOT_PUBLIC_V4: &[(Ipv4Addr, u8)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),       // this host, on this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),      // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),   // shared, behind a carrier's NAT
    (Ipv4Addr::new(127, 0, 0, 0), 8),     // loopback
    (Ipv4Addr::new(169, 254, 0, 0), 16),  // link-local
    (Ipv4Addr::new(172, 16, 0, 0), 12),   // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),    // protocols of the IETF
    (Ipv4Addr::new(192, 0, 2, 0), 24),    // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),  // relays of 6to4
    (Ipv4Addr::new(192, 168, 0, 0), 16),  // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),   // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),  // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),     // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),     // reserved, and broadcast
];

/// The network of all public IPv6 addresses.
const PUBLIC_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Networks within [`PUBLIC_V6`] that are not public.
const NOT_PUBLIC_V6: &[(Ipv6Addr, u8)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocols of the IETF, Teredo, benchmarks
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Returns whether an address is public.
fn is_public(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(_) => !NOT_PUBLIC_V4
            .iter()
            .any(|&(network, bits)| network_contains(network.into(), bits, addr)),
        IpAddr::V6(_) => {
            let within =
                |(network, bits): (Ipv6Addr, u8)| network_contains(network.into(), bits, addr);
            match embedded_v4(addr) {
                Some(inner) => is_public(inner.into()),
                None => within(PUBLIC_V6) && !NOT_PUBLIC_V6.iter().copied().any(within),
            }
        }
    }
}
