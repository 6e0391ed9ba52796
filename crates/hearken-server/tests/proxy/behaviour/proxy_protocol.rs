//! The PROXY protocol, received and sent.

use hearken_server::proxy::config::ProxyProtocol;

use super::{exchange, get};
use crate::common::server::{accept_proxy_protocol, upstreams_config};
use crate::common::{End, Origin, Recorder, Setup, latin1};

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Returns a header of version 2 for TCP over IPv4, with an option that is skipped.
fn v2() -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.extend_from_slice(&[0x21, 0x11, 0, 12 + 5]);
    header.extend_from_slice(&[192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 0, 80]);
    header.extend_from_slice(&[0x04, 0, 2, 1, 2]);
    header
}

pub(crate) fn accepts_headers(setup: &Setup) {
    let origin = Origin::responding(|request| request.field("x-forwarded-for").unwrap_or_default());
    let proxy = setup.proxy(&[origin.addr()], accept_proxy_protocol);
    for (header, from) in [(V1, "192.0.2.7"), (&v2(), "192.0.2.7")] {
        let mut connection = proxy.connect();
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(get("/").as_bytes());
        connection.send_slowly(&bytes);
        assert_eq!(connection.expect_response().text(), from);
        assert_eq!(exchange(&mut connection, get("/")).text(), from);
    }
    // The sender connects on its own behalf, so the header contains no other address.
    let mut local = SIGNATURE.to_vec();
    local.extend_from_slice(&[0x20, 0, 0, 0]);
    for header in [&local[..], b"PROXY UNKNOWN\r\n"] {
        let mut connection = proxy.connect();
        connection.send(header);
        assert_eq!(exchange(&mut connection, get("/")).text(), "127.0.0.1");
    }
}

pub(crate) fn rejects_malformed_headers(setup: &Setup) {
    let origin = Origin::responding(|_| "forwarded".to_owned());
    let proxy = setup.proxy(&[origin.addr()], accept_proxy_protocol);
    let long = format!("PROXY TCP4 192.0.2.7 198.51.100.1 4711 {}\r\n", "8".repeat(200));
    for header in [
        "",
        "PROXY TCP4 192.0.2.7 198.51.100.1 4711\r\n",
        "PROXY TCP4 192.0.2.777 198.51.100.1 4711 80\r\n",
        "PROXY TCP6 192.0.2.7 198.51.100.1 4711 80\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\n",
        &long,
        "\r\n\r\n\0\r\nQUIT\n\x31\x11\0\0",
    ] {
        let mut connection = proxy.connect();
        connection.send([header.as_bytes(), get("/").as_bytes()].concat());
        assert!(matches!(connection.drain(), (0, End::Closed | End::Reset)), "{header:?}");
    }
    assert_eq!(origin.accepted(), 0);
}

pub(crate) fn sends_headers(setup: &Setup) {
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        let notes = Recorder::new();
        let seen = notes.clone();
        let origin = Origin::new(move |mut peer| {
            let connection = &mut peer.connection;
            let length = match version {
                ProxyProtocol::V1 => {
                    connection.receive_until(|reader| reader.rest().contains(&b'\n'));
                    connection.reader.rest().iter().position(|&byte| byte == b'\n').unwrap() + 1
                }
                ProxyProtocol::V2 => 28,
            };
            seen.add(connection.read_raw(length));
            if peer.request().is_some() {
                peer.respond("fine");
            }
        });
        let proxy = setup.proxy(&[origin.addr()], |config| {
            upstreams_config(config).send_proxy_protocol = Some(version);
        });
        let mut connection = proxy.connect();
        for _ in 0..2 {
            assert_eq!(exchange(&mut connection, get("/")).text(), "fine");
            let header = notes.take().remove(0);
            let text = latin1(&header);
            match version {
                ProxyProtocol::V1 => {
                    assert!(text.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "), "{text:?}");
                }
                ProxyProtocol::V2 => {
                    assert!(header.starts_with(SIGNATURE), "{text:?}");
                    assert_eq!(header[12..24], [0x21, 0x11, 0, 12, 127, 0, 0, 1, 127, 0, 0, 1]);
                }
            }
            let port = connection.local().port();
            match version {
                ProxyProtocol::V1 => assert!(super::has(&text, &format!(" {port} ")), "{text:?}"),
                ProxyProtocol::V2 => assert_eq!(header[24..26], port.to_be_bytes(), "{text:?}"),
            }
        }
        // A connection has a single header, so it carries the requests of a single client.
        assert_eq!(origin.accepted(), 2);
    }
}
