//! Headers of the PROXY protocol.

use hearken_server::runtime::proxy_protocol::{
    MAX_HEADER_LENGTH, Parsed, ProxyProtocol, parse, write,
};

// The result for the first bytes is incomplete or final, and addresses survive writing.
#[test]
fn proxy_header() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let whole = parse(bytes);
        let complete = (0..=bytes.len().min(MAX_HEADER_LENGTH))
            .map(|len| parse(&bytes[..len]))
            .find(|result| *result != Ok(Parsed::Incomplete));
        if bytes.len() <= MAX_HEADER_LENGTH {
            assert_eq!(complete.unwrap_or(Ok(Parsed::Incomplete)), whole);
        }
        let Ok(Parsed::Header { len, source, destination }) = whole else { return };
        assert!(0 < len && len <= bytes.len().min(MAX_HEADER_LENGTH));
        assert_eq!(source.is_some(), destination.is_some());
        for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
            let mut out = Vec::new();
            write(version, source, destination, &mut out);
            let want = Parsed::Header { len: out.len(), source, destination };
            assert_eq!(parse(&out), Ok(want), "{}", out.escape_ascii());
        }
    });
}
