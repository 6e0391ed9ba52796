//! Access rules of the forward proxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hearken_server::proxy::access::{AccessDenied, AccessRules, HostCheck};
use hearken_server::proxy::config::{Forward, Rule};
use proptest::prelude::*;

crate::test_list! {
    only_public_addresses_are_allowed_by_default
    an_allowed_name_does_not_allow_private_addresses
    allowed_networks_may_be_private
    deny_rules_override_allow_rules
    ambiguous_address_spellings_are_rejected
    tunnels_are_limited_to_configured_ports
    embedded_ipv4_addresses_are_treated_alike
    random_rules_match_the_model
    parses_any_host_without_panicking
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Parses rules such as `10.0.0.0/8`, `.example.org` and `example.org`.
fn rules(texts: &[&str]) -> Vec<Rule> {
    let rule = |text: &&str| match text.split_once('/') {
        Some((network, bits)) => Rule::Network(ip(network), bits.parse().unwrap()),
        None if text.starts_with('.') => Rule::Domain((*text).to_owned()),
        None => Rule::Name((*text).to_owned()),
    };
    texts.iter().map(rule).collect()
}

fn access(allow: &[&str], deny: &[&str]) -> AccessRules {
    AccessRules::new(&Forward { allow: rules(allow), deny: rules(deny), ..Forward::default() })
}

const NOT_PUBLIC: &[&str] = &[
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.0",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.255",
    "169.254.169.254",
    "172.16.0.0",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::2",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::7f00:1",
    "64:ff9b:1::808:808",
    "100::1",
    "2001::1",
    "2001:2::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:c0a8:101::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fdff:ffff::1",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "fd00:ec2::254",
];

const PUBLIC: &[&str] = &[
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2002:808:808::1",
    "2606:4700::1111",
    "3fff:1000::1",
];

fn only_public_addresses_are_allowed_by_default() {
    let access = access(&[], &[]);
    for text in NOT_PUBLIC {
        let refused = access.check_address("a", ip(text));
        assert!(matches!(refused, Err(AccessDenied::NotPublic(_))), "{text}: {refused:?}");
        assert!(access.check_host(text).is_err(), "{text}");
    }
    for text in PUBLIC {
        assert_eq!(access.check_address("a", ip(text)), Ok(()), "{text}");
        assert_eq!(access.check_host(text), Ok(HostCheck::Address(ip(text))), "{text}");
    }
}

fn an_allowed_name_does_not_allow_private_addresses() {
    let access = access(&["a.example", ".b.example"], &[]);
    for host in ["a.example", "A.Example.", "b.example", "x.y.B.example", "x.b.example."] {
        assert_eq!(access.check_host(host), Ok(HostCheck::Resolve), "{host}");
        assert_eq!(access.check_address(host, ip("8.8.8.8")), Ok(()), "{host}");
        for text in NOT_PUBLIC {
            assert!(access.check_address(host, ip(text)).is_err(), "{host} {text}");
        }
    }
    for host in ["x.a.example", "xb.example", "example", "a.example.org", "", ".", "a.example.."] {
        assert!(access.check_host(host).is_err(), "{host}");
        assert_eq!(
            access.check_address(host, ip("8.8.8.8")),
            Err(AccessDenied::NotAllowed),
            "{host}"
        );
    }
}

fn allowed_networks_may_be_private() {
    let access = access(&["10.1.0.0/16", "fd00::/8", "::ffff:192.168.1.0/120"], &["10.1.2.0/24"]);
    // Any name may have such an address.
    assert_eq!(access.check_host("any.example"), Ok(HostCheck::Resolve));
    for text in ["10.1.0.1", "::ffff:10.1.255.255", "fd12::1", "192.168.1.255"] {
        assert_eq!(access.check_address("any.example", ip(text)), Ok(()), "{text}");
    }
    for text in ["10.2.0.1", "127.0.0.1", "fc00::1", "192.168.2.0", "64:ff9b::a01:1", "::10.1.0.1"]
    {
        let refused = access.check_address("any.example", ip(text));
        assert!(matches!(refused, Err(AccessDenied::NotPublic(_))), "{text}: {refused:?}");
    }
    assert_eq!(access.check_address("any.example", ip("8.8.8.8")), Err(AccessDenied::NotAllowed));
    for text in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "2002:a01:203::"] {
        let refused = access.check_address("any.example", ip(text));
        assert!(matches!(refused, Err(AccessDenied::Address(_))), "{text}: {refused:?}");
    }
}

fn deny_rules_override_allow_rules() {
    let all = ["0.0.0.0/0", "::/0", ".example"];
    let access = access(&all, &[".bad.example", "evil.example", "8.0.0.0/8", "2606::/16"]);
    for host in ["bad.example", "x.BAD.example.", "evil.example", "EVIL.example."] {
        assert_eq!(access.check_host(host), Err(AccessDenied::Name), "{host}");
        assert_eq!(access.check_address(host, ip("1.1.1.1")), Err(AccessDenied::Name), "{host}");
    }
    for text in ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700::1111"] {
        assert!(access.check_address("good.example", ip(text)).is_err(), "{text}");
        assert!(access.check_host(text).is_err(), "{text}");
        assert!(access.check_host(&format!("[{text}]")).is_err(), "{text}");
    }
    for text in ["1.1.1.1", "127.0.0.1", "::1", "2001:db8::1"] {
        assert_eq!(access.check_address("good.example", ip(text)), Ok(()), "{text}");
    }
}

fn ambiguous_address_spellings_are_rejected() {
    let access = access(&["0.0.0.0/0", "::/0"], &[]);
    for host in [
        "127.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0X7F.0.0.1",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.1.1",
        "1.2.3.256",
        "a.b.1",
        "a.0x",
        "127.1.",
        "0",
        "",
        "[1.2.3.4]",
        "fe80::1%1",
        "[fe80::1%251]",
        "[::1].",
        "[[::1]]",
        "a:1",
    ] {
        assert_eq!(access.check_host(host), Err(AccessDenied::InvalidHost), "{host}");
    }
    for host in ["1.2.3.4.example", "0x7f.example", "a1", "x0x1", "127-0-0-1.example", "1e1"] {
        assert_eq!(access.check_host(host), Ok(HostCheck::Resolve), "{host}");
    }
    for host in ["127.0.0.1", "127.0.0.1.", "[::1]", "::1", "[::ffff:127.0.0.1]"] {
        assert!(matches!(access.check_host(host), Ok(HostCheck::Address(_))), "{host}");
    }
}

fn tunnels_are_limited_to_configured_ports() {
    let https = access(&[], &[]);
    assert!(
        https.allows_tunnel_port(443)
            && !https.allows_tunnel_port(80)
            && !https.allows_tunnel_port(0)
    );
    let set = AccessRules::new(&Forward { connect_ports: vec![22, 8443], ..Forward::default() });
    assert!(
        set.allows_tunnel_port(22) && set.allows_tunnel_port(8443) && !set.allows_tunnel_port(443)
    );
}

proptest! {
    /// Rules for an IPv4 address apply to all its forms in IPv6.
    fn embedded_ipv4_addresses_are_treated_alike(bits in any::<u32>(), special in any::<bool>(), low in any::<u16>()) {
        let bits = if special { bits & 0xffff | 0x7f00_0000 | (u32::from(low) & 1) << 25 } else { bits };
        let v4 = Ipv4Addr::from_bits(bits);
        let [high, rest] = [(bits >> 16) as u16, bits as u16];
        let access = access(&[], &["8.8.0.0/16"]);
        let expected = access.check_address("a", v4.into()).is_ok();
        prop_assert_eq!(access.check_address("a", v4.to_ipv6_mapped().into()).is_ok(), expected);
        for form in [
            Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, rest),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, rest),
            Ipv6Addr::new(0x2002, high, rest, low, 0, 0, 0, low),
        ] {
            prop_assert_eq!(access.check_address("a", form.into()).is_ok(), expected, "{}", form);
        }
        // Compares with the stable predicates of the standard library.
        if v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
            || v4.is_unspecified() || v4.is_broadcast() || v4.is_documentation()
        {
            prop_assert!(!expected);
        }
    }

    fn random_rules_match_the_model(
        allow in proptest::collection::vec((any::<u32>(), 0_u8..=32), 0..3),
        deny in proptest::collection::vec((any::<u32>(), 1_u8..=32), 0..3),
        pick in any::<prop::sample::Index>(), tail in any::<u32>(),
    ) {
        // Deny rules override allow rules. Without allow rules, all public addresses are allowed.
        // An address in a network of the rules, or any address.
        let all: Vec<(u32, u8)> = allow.iter().chain(&deny).copied().chain([(0, 0)]).collect();
        let (network, bits) = all[pick.index(all.len())];
        let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        let addr = network & mask | tail & !mask;
        let inside = |rules: &[(u32, u8)]| rules.iter().any(|&(network, bits)| {
            bits == 0 || network >> (32 - bits) == addr >> (32 - bits)
        });
        let as_rules = |rules: &[(u32, u8)]| {
            rules.iter().map(|&(ip, bits)| Rule::Network(Ipv4Addr::from_bits(ip).into(), bits)).collect()
        };
        let with = |allow, deny| AccessRules::new(&Forward { allow, deny, ..Forward::default() });
        let addr_ip = IpAddr::from(Ipv4Addr::from_bits(addr));
        let public = with(vec![], vec![]).check_address("a", addr_ip).is_ok();
        let expected = !inside(&deny) && (inside(&allow) || allow.is_empty() && public);
        let got = with(as_rules(&allow), as_rules(&deny)).check_address("a", addr_ip);
        prop_assert_eq!(got.is_ok(), expected, "{} {:?}", addr_ip, got);
    }

    fn parses_any_host_without_panicking(host in "\\PC{0,12}|[0-9a-fx.:\\[\\]]{0,16}", bits in any::<u128>()) {
        let access = access(&[".a", "b"], &["c", ".ab"]);
        let _ = access.check_host(&host);
        let _ = access.check_address(&host, Ipv6Addr::from_bits(bits).into());
    }
}
