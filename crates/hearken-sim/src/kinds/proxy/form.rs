//! The forms of a proxy: a reverse proxy, one that also opens tunnels, or a forward proxy.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hearken::io::sim::World;
use hearken_server::proxy::config::{Forward, ProxyProtocol, Rule};
use hearken_server::simulation::LookupAnswer;

use super::{FIRST_PORT, ORIGINS};
use crate::history::Simulation;
use crate::origin::OriginSettings;

/// Maximum number of addresses of a name that a forward proxy tries.
pub(super) const MAX_ADDRESSES: u32 = 4;
/// Port of the origin that echoes the bytes of tunnels.
const ECHO_PORT: u16 = 8100;
/// The domain to which access is denied.
const DENIED_DOMAIN: &str = "denied.example";
/// Addresses that are not public, also those within IPv6 addresses.
const PRIVATE: [IpAddr; 6] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0x7f00, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2002, 0x7f00, 1, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1)),
];
/// Hosts in the authority of a request to which access is denied.
const DENIED_HOSTS: [&str; 3] = ["127.1", "[::1]", "[2001:db8::1]"];

/// A form of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::kinds) enum Form {
    /// A reverse proxy.
    Reverse,
    /// A reverse proxy with protocol upgrades and PROXY protocol headers.
    Tunnels,
    /// A forward proxy.
    Forward,
}

impl Form {
    pub(super) fn draw(simulation: &Simulation) -> Form {
        simulation.draw(&[Form::Reverse, Form::Reverse, Form::Tunnels, Form::Forward])
    }

    /// Draws the version of a PROXY protocol header, if there is one.
    pub(super) fn draw_header(self, simulation: &Simulation) -> Option<ProxyProtocol> {
        match self {
            Form::Reverse => None,
            _ => simulation.draw(&[None, Some(ProxyProtocol::V1), Some(ProxyProtocol::V2)]),
        }
    }
}

/// Draws the settings of a forward proxy, and adds an origin for tunnels.
pub(super) fn draw_forward(simulation: &Simulation, origins: &mut OriginSettings) -> Forward {
    origins.addresses.push(SocketAddr::new(ORIGINS, ECHO_PORT).into());
    let mut allow = vec![Rule::Network(ORIGINS, 32)];
    if simulation.draw(&[false, true]) {
        allow.push(Rule::Domain("example".to_owned()));
    }
    Forward {
        allow,
        deny: vec![
            Rule::Domain(DENIED_DOMAIN.to_owned()),
            Rule::Network(closed_network(), 24),
            Rule::Network(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0).into(), 32),
        ],
        connect_ports: vec![ECHO_PORT],
        keepalive: simulation.draw(&[256, 256, 2, 1, 0]),
    }
}

/// Returns an address of the network to which access is denied.
fn closed_network() -> IpAddr {
    Ipv4Addr::new(10, 0, 4, 1).into()
}

/// Answers the lookup of a name.
pub(super) fn resolve(world: &World, name: &str, port: u16) -> LookupAnswer {
    let draw = |values: &[u64]| values[world.decide(values.len() as u32) as usize];
    let delay = Duration::from_millis(draw(&[1, 0, 20, 500, 6_000]));
    let origin = SocketAddr::new(ORIGINS, port);
    let closed = SocketAddr::new(ORIGINS, 9);
    let denied = SocketAddr::new(closed_network(), port);
    let private = || SocketAddr::new(PRIVATE[world.decide(PRIVATE.len() as u32) as usize], port);
    let answer = match draw(&[0, 0, 0, 1, 2, 3, 4, 5]) {
        _ if name.starts_with("local") => Ok(vec![denied, private()]),
        1 => Err(io::Error::other("temporary failure")),
        2 => Ok(Vec::new()),
        3 => Ok(vec![closed, origin]),
        4 => Ok(vec![denied, private(), origin]),
        5 => Ok(vec![closed; 6]),
        _ => Ok(vec![origin]),
    };
    (delay, answer)
}

/// The access of a request to the server that it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// The server may be accessed.
    Allowed,
    /// The server's name may have addresses that may not be accessed, or none.
    Resolved,
    /// The proxy answers with this status.
    Rejected(u16),
}

/// Returns the authority that a request to a forward proxy names, and the access to it. `choice` is
/// less than 12, and 0 is the benign choice.
pub(super) fn authority(choice: u32, origin: u16, is_tunnel: bool) -> (String, Access) {
    let port = if is_tunnel { ECHO_PORT } else { FIRST_PORT + origin };
    let name = match choice {
        0..=4 => return (format!("{ORIGINS}:{port}"), Access::Allowed),
        5..=7 => return (format!("origin{origin}.example:{port}"), Access::Resolved),
        8 => "www.denied.example".to_owned(),
        9 => closed_network().to_string(),
        10 if is_tunnel => return (format!("{ORIGINS}:{FIRST_PORT}"), Access::Rejected(403)),
        10 => return (format!("local{origin}.example:{port}"), Access::Resolved),
        _ => DENIED_HOSTS[usize::from(origin) % DENIED_HOSTS.len()].to_owned(),
    };
    (format!("{name}:{port}"), Access::Rejected(403))
}
