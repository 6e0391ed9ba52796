//! Headers of the PROXY protocol: parsing and formatting.

use std::net::SocketAddr;

use hearken_server::proxy::config::ProxyProtocol;
use hearken_server::runtime::proxy_protocol::{MAX_HEADER_LENGTH, Parsed, parse, write};
use proptest::prelude::*;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn header(len: usize, both: Option<(&str, &str)>) -> Result<Parsed, &'static str> {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let (source, destination) = (both.map(|it| address(it.0)), both.map(|it| address(it.1)));
    Ok(Parsed::Header { len, source, destination })
}

fn binary(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend_from_slice(&[command, family]);
    bytes.extend_from_slice(&u16::try_from(block.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(block);
    bytes
}

#[test]
fn parses_text_headers() {
    for (line, both) in [
        ("PROXY TCP4 192.0.2.1 192.0.2.255 0 65535", Some(("192.0.2.1:0", "192.0.2.255:65535"))),
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535",
            Some(("255.255.255.255:65535", "255.255.255.255:65535")),
        ),
        ("PROXY TCP6 2001:DB8::1 :: 1 2", Some(("[2001:db8::1]:1", "[::]:2"))),
        ("PROXY TCP6 ::ffff:c000:201 ::1 1 2", Some(("192.0.2.1:1", "[::1]:2"))),
        ("PROXY UNKNOWN", None),
        ("PROXY UNKNOWN ", None),
        ("PROXY UNKNOWN \0 \u{fffd} whatever", None),
        (
            "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
            ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535",
            None,
        ),
    ] {
        let bytes = format!("{line}\r\nGET / HTTP/1.1\r\n");
        assert_eq!(parse(bytes.as_bytes()), header(line.len() + 2, both), "{line}");
    }
}

#[test]
fn rejects_malformed_text_headers() {
    for line in [
        "GET / HTTP/1.1\r\n",
        "proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXYTCP4",
        " PROXY",
        "PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 \r\n",
        "PROXY TCP4\t192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY unknown\r\n",
        "PROXY \r\n",
        "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2 192.0.2.2 1 2\r\n",
        "PROXY TCP4 0x7f.0.0.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP6 fe80::1%1 ::1 1 2\r\n",
        "PROXY TCP6 [::1] ::1 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 00 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 -2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\rx",
        "PROXY TCP4 192.0.2.1\r 192.0.2.2 1 2\r\n",
        "PROXY UNKNOWN a\rb\r\n",
        "PROXY UNKNOWN a\nb\r\n",
    ] {
        assert!(parse(line.as_bytes()).is_err(), "{line:?}");
    }
    // 107 bytes without the end of the line.
    let long = format!("PROXY UNKNOWN {}", "x".repeat(MAX_HEADER_LENGTH));
    assert_eq!(parse(&long.as_bytes()[..106]), Ok(Parsed::Incomplete));
    assert!(parse(&long.as_bytes()[..107]).is_err() && parse(long.as_bytes()).is_err());
    let ends_late = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
    assert!(ends_late.len() == 108 && parse(ends_late.as_bytes()).is_err());
    assert_eq!(parse(&ends_late.as_bytes()[..106]), Ok(Parsed::Incomplete));
}

const FOUR: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 0xc3, 0x50, 0, 80];
const BOTH: Option<(&str, &str)> = Some(("192.0.2.1:50000", "192.0.2.2:80"));

#[test]
fn parses_binary_headers() {
    let mut six = [0; 36];
    (six[0], six[15], six[31], six[33], six[35]) = (0x20, 1, 2, 3, 4);
    let with_options = [&FOUR[..], &[4, 0, 1, 9, 0xea, 0, 0]].concat();
    for (command, family, block, both) in [
        (0x21, 0x11, &FOUR[..], BOTH),
        (0x21, 0x11, &with_options, BOTH),
        (0x21, 0x21, &six, Some(("[2000::1]:3", "[::2]:4"))),
        // LOCAL, or no address of a known family.
        (0x20, 0x00, &[], None),
        (0x20, 0x11, &FOUR, None),
        (0x20, 0xff, &[1, 2], None),
        (0x21, 0x00, &[], None),
        (0x21, 0x00, &[7; 9], None),
        (0x21, 0x12, &FOUR, None),
        (0x21, 0x22, &six, None),
        (0x21, 0x31, &[b'/'; 216], None),
        (0x21, 0x01, &[], None),
        (0x21, 0x10, &[], None),
    ] {
        let mut bytes = binary(command, family, block);
        let len = bytes.len();
        bytes.extend_from_slice(b"GET /");
        assert_eq!(parse(&bytes), header(len, both), "{command:x} {family:x}");
    }
}

#[test]
fn rejects_malformed_binary_headers() {
    let with = |options: &[u8]| [&FOUR[..], options].concat();
    for (command, family, block) in [
        (0x11, 0x11, FOUR.to_vec()),
        (0x31, 0x11, FOUR.to_vec()),
        (0x22, 0x11, FOUR.to_vec()),
        (0x21, 0x13, FOUR.to_vec()),
        (0x21, 0x41, FOUR.to_vec()),
        (0x21, 0x11, FOUR[..11].to_vec()),
        (0x21, 0x21, vec![0; 35]),
        (0x21, 0x31, vec![0; 215]),
        (0x21, 0x11, with(&[4])),
        (0x21, 0x11, with(&[4, 0])),
        (0x21, 0x11, with(&[4, 0, 1])),
        (0x21, 0x11, with(&[3, 0, 4, 1, 2, 3, 4])),
        (0x21, 0x11, with(&[3, 0, 3, 1, 2, 3])),
        (0x20, 0x00, vec![0; MAX_HEADER_LENGTH - 15]),
    ] {
        let bytes = binary(command, family, &block);
        assert!(parse(&bytes).is_err(), "{command:x} {family:x} {}", block.len());
    }
    let longest = binary(0x20, 0, &vec![0; MAX_HEADER_LENGTH - 16]);
    assert_eq!(parse(&longest), header(MAX_HEADER_LENGTH, None));
    // Rejected before the rest is buffered.
    assert!(parse(&[SIGNATURE, &[0x21, 0x11, 0xff, 0xff]].concat()).is_err());
    assert!(parse(&[SIGNATURE, &[0x12]].concat()).is_err());
    assert!(parse(b"\r\n\r\n\r").is_err());
}

/// The checksum of the header below, from another program.
const CHECKSUM: u32 = 0x1090_3893;

#[test]
fn verifies_checksums() {
    let block = [&FOUR[..], &[3, 0, 4], &CHECKSUM.to_be_bytes()].concat();
    let right = binary(0x21, 0x11, &block);
    assert_eq!(parse(&right), header(35, BOTH));
    // With any byte changed, the header is rejected or has the same address.
    for at in 0..right.len() {
        for bits in 1..=255 {
            let mut wrong = right.clone();
            wrong[at] ^= bits;
            if let Ok(Parsed::Header { source: Some(source), .. }) = parse(&wrong) {
                assert_eq!(source.to_string(), BOTH.unwrap().0, "{at} {bits:x}");
            }
        }
    }
}

#[test]
fn formats_headers() {
    let written = |version, source: Option<&str>, destination: Option<&str>| {
        let (mut out, address) = (b"x".to_vec(), |it: &str| it.parse::<SocketAddr>().unwrap());
        write(version, source.map(address), destination.map(address), &mut out);
        out.split_off(1)
    };
    let four = "192.0.2.1:50000";
    for (source, destination, line) in [
        (Some(four), Some("192.0.2.2:80"), "PROXY TCP4 192.0.2.1 192.0.2.2 50000 80\r\n"),
        (Some(four), Some("[::1]:80"), "PROXY TCP6 ::ffff:c000:201 ::1 50000 80\r\n"),
        (
            Some("[::ffff:192.0.2.1]:1"),
            Some("192.0.2.2:2"),
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        ),
        (None, Some("[::1]:80"), "PROXY UNKNOWN\r\n"),
        (Some(four), None, "PROXY UNKNOWN\r\n"),
    ] {
        let got = written(ProxyProtocol::V1, source, destination);
        assert_eq!(String::from_utf8(got).unwrap(), line);
    }
    let v2 = written(ProxyProtocol::V2, Some(four), Some("192.0.2.2:80"));
    assert_eq!(v2, binary(0x21, 0x11, &FOUR));
    assert_eq!(written(ProxyProtocol::V2, None, None), binary(0x20, 0, &[]));
}

fn address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        any::<(u32, u16)>().prop_map(|(ip, port)| (std::net::Ipv4Addr::from(ip), port).into()),
        any::<(u128, u16)>().prop_map(|(ip, port)| (std::net::Ipv6Addr::from(ip), port).into()),
        // Groups of zeroes and ones.
        any::<([bool; 8], u16)>().prop_map(|(groups, port)| (
            std::net::Ipv6Addr::from(groups.map(u16::from)),
            port
        )
            .into()),
    ]
}

fn version() -> impl Strategy<Value = ProxyProtocol> {
    prop_oneof![Just(ProxyProtocol::V1), Just(ProxyProtocol::V2)]
}

proptest! {
    #[test]
    fn formatted_headers_are_parsed_in_any_pieces(
        version in version(),
        source in proptest::option::of(address()),
        destination in proptest::option::of(address()),
        after in proptest::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut bytes = Vec::new();
        write(version, source, destination, &mut bytes);
        let len = bytes.len();
        for end in 0..len {
            prop_assert_eq!(parse(&bytes[..end]), Ok(Parsed::Incomplete));
        }
        bytes.extend_from_slice(&after);
        let both = source.zip(destination);
        let (source, destination) = (both.map(|it| it.0), both.map(|it| it.1));
        prop_assert_eq!(parse(&bytes), Ok(Parsed::Header { len, source, destination }));
    }

    #[test]
    fn changed_headers_are_rejected_or_parsed_as_written(
        version in version(),
        (source, destination) in (address(), address()),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..3),
    ) {
        // A changed header is rejected, or its result matches its text except for the spelling of addresses
        // and for skipped parts.
        let mut bytes = Vec::new();
        write(version, Some(source), Some(destination), &mut bytes);
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => { bytes.remove(at); }
            }
        }
        let Ok(Parsed::Header { len, source: Some(source), destination: Some(destination) }) =
            parse(&bytes) else { return Ok(()) };
        if version == ProxyProtocol::V2 {
            let mut again = Vec::new();
            write(version, Some(source), Some(destination), &mut again);
            if source.is_ipv4() && destination.is_ipv4() {
                prop_assert_eq!(&again[16..28], &bytes[16..28]);
            }
        } else {
            let line = std::str::from_utf8(&bytes[..len]).unwrap();
            let words: Vec<&str> = line.trim_end().split(' ').collect();
            let ip = |word: &str| word.parse::<std::net::IpAddr>().unwrap().to_canonical();
            prop_assert_eq!(words.len(), 6);
            prop_assert_eq!((ip(words[2]), ip(words[3])), (source.ip(), destination.ip()));
            prop_assert_eq!(words[4..].join(" "), format!("{} {}", source.port(), destination.port()));
        }
    }

    #[test]
    fn parses_arbitrary_bytes_without_panicking(
        start in prop::sample::select(vec![
            &b""[..], b"PROXY ", b"PROXY TCP4 ", SIGNATURE,
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x2c",
        ]),
        rest in proptest::collection::vec(any::<u8>(), 0..128),
    ) {
        let bytes = [start, &rest].concat();
        let result = parse(&bytes);
        if let Ok(Parsed::Header { len, .. }) = result {
            prop_assert!(len <= bytes.len());
            prop_assert_eq!(parse(&bytes[..len]), result);
        }
        // More bytes do not change a result.
        for end in 0..bytes.len() {
            let early = parse(&bytes[..end]);
            prop_assert!(early == Ok(Parsed::Incomplete) || early == result, "{} {:?}", end, early);
        }
    }
}
