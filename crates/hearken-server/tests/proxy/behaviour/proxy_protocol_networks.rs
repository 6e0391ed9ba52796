//! Networks that send a PROXY protocol header.

use std::net::{IpAddr, SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use super::get;
use crate::common::server::accept_proxy_protocol_from;
use crate::common::{Connection, End, Kind, Origin, RunningServer, Setup};

const HEADER: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n";

/// The only address that sends headers.
const LISTED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Starts an origin that responds with the address of the client, and a proxy to it.
fn start(setup: &Setup) -> (Origin, RunningServer) {
    let origin = Origin::responding(|request| request.field("x-forwarded-for").unwrap_or_default());
    let proxy = setup.proxy(&[origin.addr()], |config| {
        accept_proxy_protocol_from(config, &[([192, 0, 2, 0].into(), 24), (LISTED, 32)]);
    });
    (origin, proxy)
}

/// Connects from this address of the host.
fn connect_from(source: IpAddr, proxy: &RunningServer) -> Connection {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    bind(&socket, &SocketAddr::from((source, 0))).unwrap();
    connect(&socket, &proxy.addr()).unwrap();
    Connection::tcp(TcpStream::from(socket), Kind::Response)
}

pub(crate) fn headers_from_listed_networks_are_accepted(setup: &Setup) {
    let (origin, proxy) = start(setup);
    let mut connection = connect_from(LISTED, &proxy);
    connection.send(format!("{HEADER}{}", get("/")));
    assert_eq!(connection.expect_response().text(), "192.0.2.7");
    assert_eq!(origin.accepted(), 1);
    // A listed network must send a header.
    let mut connection = connect_from(LISTED, &proxy);
    connection.send(get("/"));
    assert!(matches!(connection.drain(), (0, End::Closed | End::Reset)));
    assert_eq!(origin.accepted(), 1);
}

pub(crate) fn headers_from_other_networks_are_rejected(setup: &Setup) {
    let (origin, proxy) = start(setup);
    let mut connection = connect_from(OTHER, &proxy);
    connection.send(format!("{HEADER}{}", get("/")));
    // Without the PROXY protocol the header is a malformed request.
    let status = connection.final_response(Kind::Response).map(|response| response.status());
    assert!(matches!(status, None | Some(400)), "{status:?}");
    connection.assert_closed();
    assert_eq!(origin.accepted(), 0, "a request behind a forged header was forwarded");
}

pub(crate) fn other_networks_need_no_header(setup: &Setup) {
    let (_origin, proxy) = start(setup);
    let mut connection = connect_from(OTHER, &proxy);
    connection.send(get("/"));
    assert_eq!(connection.expect_response().text(), "127.0.0.1");
}
