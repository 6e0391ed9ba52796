//! Networks that send a PROXY protocol header.

use std::net::{IpAddr, SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use super::get;
use crate::harness::proxy::accept_proxy_protocol_from;
use crate::harness::{End, Kind, Link, Origin, Proxy, Way};

const HEADER: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n";

/// The only address that sends headers.
const LISTED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// An origin that answers with the client's address, and a proxy to it.
fn start(way: &Way) -> (Origin, Proxy) {
    let origin = Origin::answering(|request| request.field("x-forwarded-for").unwrap_or_default());
    let proxy = way.proxy(&[origin.addr()], |config| {
        accept_proxy_protocol_from(config, &[([192, 0, 2, 0].into(), 24), (LISTED, 32)]);
    });
    (origin, proxy)
}

/// A connection from this address of the host.
fn connect_from(source: IpAddr, proxy: &Proxy) -> Link {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    bind(&socket, &SocketAddr::from((source, 0))).unwrap();
    connect(&socket, &proxy.addr()).unwrap();
    Link::tcp(TcpStream::from(socket), Kind::Response)
}

pub(crate) fn headers_from_listed_networks_are_accepted(way: &Way) {
    let (origin, proxy) = start(way);
    let mut link = connect_from(LISTED, &proxy);
    link.send(format!("{HEADER}{}", get("/")));
    assert_eq!(link.answer().text(), "192.0.2.7");
    assert_eq!(origin.accepted(), 1);
    // From there a header is required.
    let mut link = connect_from(LISTED, &proxy);
    link.send(get("/"));
    assert!(matches!(link.drain(), (0, End::Closed | End::Reset)));
    assert_eq!(origin.accepted(), 1);
}

pub(crate) fn headers_from_other_networks_are_refused(way: &Way) {
    let (origin, proxy) = start(way);
    let mut link = connect_from(OTHER, &proxy);
    link.send(format!("{HEADER}{}", get("/")));
    // Without the PROXY protocol the header is a malformed request.
    let status = link.response(Kind::Response).map(|response| response.status());
    assert!(matches!(status, None | Some(400)), "{status:?}");
    link.ends();
    assert_eq!(origin.accepted(), 0, "a request behind a forged header was forwarded");
}

pub(crate) fn other_networks_need_no_header(way: &Way) {
    let (_origin, proxy) = start(way);
    let mut link = connect_from(OTHER, &proxy);
    link.send(get("/"));
    assert_eq!(link.answer().text(), "127.0.0.1");
}
