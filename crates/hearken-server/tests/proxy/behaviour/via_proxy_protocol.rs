//! The PROXY protocol, on either side.

use hearken_server::proxy::config::ProxyProtocol;

use super::{ask, get};
use crate::harness::proxy::{accept_proxy_protocol, of};
use crate::harness::{End, Notes, Origin, Way, latin1};

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2, for TCP over IPv4, with something more that is to be skipped.
fn v2() -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.extend_from_slice(&[0x21, 0x11, 0, 12 + 5]);
    header.extend_from_slice(&[192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 0, 80]);
    header.extend_from_slice(&[0x04, 0, 2, 1, 2]);
    header
}

pub(crate) fn taken(way: &Way) {
    let origin = Origin::answering(|request| request.field("x-forwarded-for").unwrap_or_default());
    let proxy = way.proxy(&[origin.addr()], accept_proxy_protocol);
    for (header, from) in [(V1, "192.0.2.7"), (&v2(), "192.0.2.7")] {
        let mut link = proxy.connect();
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(get("/").as_bytes());
        link.trickle(&bytes);
        assert_eq!(link.answer().text(), from);
        assert_eq!(ask(&mut link, get("/")).text(), from);
    }
    // From the sender itself, for which it does not tell of another.
    let mut local = SIGNATURE.to_vec();
    local.extend_from_slice(&[0x20, 0, 0, 0]);
    for header in [&local[..], b"PROXY UNKNOWN\r\n"] {
        let mut link = proxy.connect();
        link.send(header);
        assert_eq!(ask(&mut link, get("/")).text(), "127.0.0.1");
    }
}

pub(crate) fn refused(way: &Way) {
    let origin = Origin::answering(|_| "reached".to_owned());
    let proxy = way.proxy(&[origin.addr()], accept_proxy_protocol);
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
        let mut link = proxy.connect();
        link.send([header.as_bytes(), get("/").as_bytes()].concat());
        assert!(matches!(link.drain(), (0, End::Closed | End::Reset)), "{header:?}");
    }
    assert_eq!(origin.accepted(), 0);
}

pub(crate) fn sent(way: &Way) {
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        let notes = Notes::new();
        let seen = notes.clone();
        let origin = Origin::new(move |mut peer| {
            let link = &mut peer.link;
            let length = match version {
                ProxyProtocol::V1 => {
                    link.receive_until(|reader| reader.rest().contains(&b'\n'));
                    link.reader.rest().iter().position(|&byte| byte == b'\n').unwrap() + 1
                }
                ProxyProtocol::V2 => 28,
            };
            seen.add(link.raw(length));
            if peer.request().is_some() {
                peer.answer("fine");
            }
        });
        let proxy =
            way.proxy(&[origin.addr()], |config| of(config).send_proxy_protocol = Some(version));
        let mut link = proxy.connect();
        for _ in 0..2 {
            assert_eq!(ask(&mut link, get("/")).text(), "fine");
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
            let port = link.local().port();
            match version {
                ProxyProtocol::V1 => assert!(super::has(&text, &format!(" {port} ")), "{text:?}"),
                ProxyProtocol::V2 => assert_eq!(header[24..26], port.to_be_bytes(), "{text:?}"),
            }
        }
        // One connection tells of one client only.
        assert_eq!(origin.accepted(), 2);
    }
}
