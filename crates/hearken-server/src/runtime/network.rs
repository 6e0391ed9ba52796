//! Networks of IP addresses.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// An IP network: all addresses with the same prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// The networks of all IPv4 addresses and all IPv6 addresses.
    pub const ALL: [Network; 2] = [
        Network { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), bits: 0 },
        Network { address: IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), bits: 0 },
    ];

    /// Creates the network of the addresses that share the first `bits` bits of `address`.
    /// A network of IPv4-mapped IPv6 addresses becomes an IPv4 network.
    pub fn new(address: IpAddr, bits: u8) -> Network {
        match address.to_canonical() {
            IpAddr::V4(v4) if address.is_ipv6() && bits >= 96 => {
                Network { address: IpAddr::V4(v4), bits: bits - 96 }
            }
            IpAddr::V4(_) if address.is_ipv6() => Network { address, bits },
            address => Network { address, bits },
        }
    }

    /// Returns whether the network contains this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = u32::from(self.bits);
        match (self.address, address) {
            (IpAddr::V4(ip), IpAddr::V4(address)) => {
                let differing = ip.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= bits.min(u32::BITS)
            }
            (IpAddr::V6(ip), IpAddr::V6(address)) => {
                let differing = ip.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= bits.min(u128::BITS)
            }
            _ => false,
        }
    }
}

/// The error for text that is not a [`Network`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid network '{0}': expected ADDRESS or ADDRESS/BITS, such as 192.0.2.0/24")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    /// Parses `192.0.2.0/24`, `2001:db8::/32`, or a single address.
    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let error = || NetworkError(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let max_bits = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => max_bits,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= max_bits).ok_or_else(error)?,
        };
        Ok(Network::new(address, bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contains_addresses_with_the_same_prefix() {
        for (network, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("2001:db8::/33", "2001:db8:7fff::", "2001:db8:8000::"),
            ("::ffff:192.0.2.0/120", "192.0.2.1", "192.0.3.1"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network:?}");
            assert!(!network.contains(outside.parse().unwrap()), "{network:?}");
        }
    }

    #[test]
    fn rejects_malformed_networks() {
        for text in ["", "a", "1.2.3.4/33", "::/129", "1.2.3.4/", "1.2.3/8", "1.2.3.4/-1"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
