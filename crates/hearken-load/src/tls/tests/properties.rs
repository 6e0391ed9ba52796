//! Properties that hold for any content, any fragmentation, and any corruption of bytes.

use hearken_tls::{TlsFailure, Wire};
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::Tls;
use super::super::session::State;
use super::servers::{EACH_VERSION, ONE_PIECE, Pair, Server, trusting};
use crate::target::Protocol;

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1..20usize, 20..2000usize, Just(usize::MAX)], 1..8)
}

fn content(max_length: usize) -> impl Strategy<Value = Vec<u8>> {
    (0..max_length, any::<u8>())
        .prop_map(|(length, first)| (0..length).map(|at| first.wrapping_add(at as u8)).collect())
}

/// Changes a byte that has a meaning. The type and version in a record header have none.
fn change(wire: &mut [u8], at: prop::sample::Index, by: u8) {
    let (mut record, mut significant) = (0, Vec::new());
    while record < wire.len() {
        let length = usize::from(wire[record + 3]) << 8 | usize::from(wire[record + 4]);
        significant.extend(record + 3..record + 5 + length);
        record += 5 + length;
    }
    wire[significant[at.index(significant.len())]] ^= by;
}

/// Returns a session after its handshake, and all bytes in which the server then sends `content`.
fn wire(content: &[u8], tls: &Tls) -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(tls, &Server::default().config());
    pair.transfer(ONE_PIECE).unwrap();
    pair.wire.clear();
    pair.answer(content);
    pair.server.send_close_notify();
    let mut down = Vec::new();
    while pair.server.wants_write() {
        pair.server.write_tls(&mut down).unwrap();
    }
    (pair, down)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn transfers_content_in_both_directions_in_any_pieces(
        up in content(60_000),
        down in content(60_000),
        pieces in sizes(),
        tls12: bool,
        early: bool,
    ) {
        let versions = EACH_VERSION[usize::from(!tls12)];
        let server = Server { versions, ..Server::default() }.config();
        let mut pair = Pair::new(&Tls::new("localhost", &trusting()).unwrap(), &server);
        if !early {
            pair.transfer(&pieces).unwrap();
        }
        for part in up.chunks(10_000) {
            pair.send(part);
        }
        pair.close();
        pair.answer(&down);
        pair.transfer(&pieces).unwrap();
        pair.server.send_close_notify();
        pair.transfer(&pieces).unwrap();
        prop_assert!(pair.at_server == up);
        prop_assert!(pair.at_client == down);
        prop_assert_eq!(pair.client.end(), Ok(()));
    }

    #[test]
    fn detects_truncation(down in content(40_000), at: prop::sample::Index) {
        let tls = Tls::new("localhost", &trusting()).unwrap();
        let (mut pair, wire) = wire(&down, &tls);
        let cut = at.index(wire.len());
        pair.receive(&wire[..cut]).unwrap();
        prop_assert!(down.starts_with(&pair.at_client));
        prop_assert_eq!(pair.client.end(), Err(TlsFailure::Truncated));
        let state = pair.receive(&wire[cut..]);
        prop_assert_eq!(state, Ok(State::Closed));
        prop_assert_eq!(pair.client.end(), Ok(()));
    }

    #[test]
    fn detects_corruption(
        down in content(40_000),
        at: prop::sample::Index,
        by in 1..=255u8,
    ) {
        let tls = Tls::new("localhost", &trusting()).unwrap();
        let (mut pair, mut wire) = wire(&down, &tls);
        change(&mut wire, at, by);
        let _ = pair.receive(&wire);
        prop_assert!(down.starts_with(&pair.at_client));
        prop_assert!(pair.client.end().is_err());
    }

    #[test]
    fn garbage_ends_the_session(bytes in vec(any::<u8>(), 0..500), kind in 20..25u8, header: bool) {
        let tls = Tls::new("localhost", &trusting()).unwrap();
        let mut session = tls.connect(Protocol::Http1).unwrap();
        let (mut plain, mut wire) = (Vec::new(), Wire::default());
        session.start(&mut wire);
        let mut record = vec![kind, 3, 3, (bytes.len() >> 8) as u8, bytes.len() as u8];
        if header {
            record.extend_from_slice(&bytes);
        } else {
            record = bytes;
        }
        let _ = session.receive(&mut record.clone(), &mut plain, &mut wire);
        let _ = session.receive(&mut record, &mut plain, &mut wire);
        prop_assert!(session.end().is_err());
    }

    // The handshake fails or stalls.
    #[test]
    fn a_corrupted_handshake_never_succeeds(at: prop::sample::Index, by in 1..=255u8, tls12: bool) {
        let versions = EACH_VERSION[usize::from(!tls12)];
        let server = Server { versions, ..Server::default() }.config();
        let mut pair = Pair::new(&Tls::new("localhost", &trusting()).unwrap(), &server);
        pair.server.read_tls(&mut pair.up.bytes()).unwrap();
        pair.server.process_new_packets().unwrap();
        let mut flight = Vec::new();
        while pair.server.wants_write() {
            pair.server.write_tls(&mut flight).unwrap();
        }
        change(&mut flight, at, by);
        let result = pair.receive(&flight);
        prop_assert!(pair.at_client.is_empty());
        prop_assert!(result.is_err() || pair.client.is_handshaking());
    }
}
