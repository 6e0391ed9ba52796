//! Sessions with the server of rustls, without sockets.

mod files;
mod properties;
mod servers;

use std::path::PathBuf;

use hearken_http::h2;
use hearken_tls::{TlsFailure, Wire};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};

use super::session::State;
use super::{Tls, TlsOptions, WithRemedy};
use crate::target::Protocol;
use servers::{EACH_VERSION, ONE_PIECE, Pair, Server, handshake, trusting};

fn handshake_error(options: &TlsOptions, server: Server) -> String {
    match handshake(options, server) {
        Err(error) => WithRemedy(&error).to_string(),
        Ok(pair) => panic!("{:?}", pair.client),
    }
}

#[test]
fn transfers_content_after_the_handshake() {
    for versions in EACH_VERSION {
        let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let server = Server { versions, alpn, ..Server::default() }.config();
        let mut pair = Pair::new(&Tls::new("localhost", &trusting()).unwrap(), &server);
        assert!(pair.client.is_handshaking());
        assert_eq!(pair.client.resumed(), None);
        // The session sends it after the handshake.
        pair.send(b"GET");
        pair.transfer(ONE_PIECE).unwrap();
        assert!(!pair.client.is_handshaking());
        assert_eq!(pair.client.resumed(), Some(false));
        assert_eq!(pair.server.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(pair.server.server_name(), Some("localhost"));
        pair.send(b" /");
        pair.answer(b"200");
        pair.transfer(ONE_PIECE).unwrap();
        assert_eq!((&*pair.at_server, &*pair.at_client), (&b"GET /"[..], &b"200"[..]));
        assert!(pair.up.is_empty());
    }
}

#[test]
fn either_side_can_close_first() {
    for client_first in [true, false] {
        let mut pair = handshake(&trusting(), Server::default()).unwrap();
        assert_eq!(pair.client.end(), Err(TlsFailure::Truncated));
        pair.send(b"last");
        if client_first {
            pair.close();
            // Content after the close is not sent.
            pair.send(b"never");
            pair.transfer(ONE_PIECE).unwrap();
            assert_eq!(pair.at_server, b"last");
            assert_eq!(pair.client.end(), Err(TlsFailure::Truncated));
        }
        pair.answer(b"bye");
        pair.server.send_close_notify();
        pair.transfer(ONE_PIECE).unwrap();
        assert_eq!((pair.state, &*pair.at_client), (State::Closed, &b"bye"[..]));
        assert_eq!(pair.client.end(), Ok(()));
        pair.close();
        pair.transfer(ONE_PIECE).unwrap();
        assert_eq!(pair.at_server, b"last");
        let state = pair.server.process_new_packets().unwrap();
        assert!(state.peer_has_closed());
        // Bytes after close_notify are ignored.
        pair.at_client.clear();
        assert_eq!(pair.receive(b"garbage"), Ok(State::Closed));
        assert!(pair.at_client.is_empty());
    }
}

#[test]
fn resumes_sessions_if_enabled() {
    for versions in EACH_VERSION {
        for resumption in [true, false] {
            let server = Server { versions, ..Server::default() }.config();
            let tls = Tls::new("localhost", &TlsOptions { resumption, ..trusting() }).unwrap();
            let resumed = [(); 3].map(|()| {
                let mut pair = Pair::new(&tls.clone(), &server);
                pair.transfer(ONE_PIECE).unwrap();
                pair.client.resumed().unwrap()
            });
            assert_eq!(resumed, [false, resumption, resumption]);
        }
    }
}

// Each ticket is used once, and the store keeps all received tickets.
#[test]
fn resumes_connections_that_start_together() {
    let server = Server { versions: EACH_VERSION[1], ..Server::default() }.config();
    let tls = Tls::new("localhost", &trusting()).unwrap();
    let many = || {
        let mut pairs = [(); 20].map(|()| Pair::new(&tls, &server));
        pairs.iter_mut().for_each(|pair| pair.transfer(ONE_PIECE).unwrap());
        pairs.iter().filter(|pair| pair.client.resumed() == Some(true)).count()
    };
    assert_eq!(many(), 0);
    assert_eq!(many(), 20);
}

#[test]
fn rejects_untrusted_issuers() {
    let unknown = TlsOptions { ca: Some(files::another_authority()), ..TlsOptions::default() };
    let error = handshake_error(&unknown, Server::default());
    assert!(error.contains("issuer") && error.contains("--cacert FILE"), "{error}");
    assert!(error.contains("--insecure"), "{error}");
    let namesake = TlsOptions { ca: Some(files::namesake()), ..TlsOptions::default() };
    let error = handshake_error(&namesake, Server::default());
    assert!(error.contains("signed") && error.contains("--cacert FILE"), "{error}");
    let insecure = TlsOptions { insecure: true, ..TlsOptions::default() };
    for versions in EACH_VERSION {
        handshake(&insecure, Server { versions, ..Server::default() }).unwrap();
    }
}

// `openssl req -x509` creates such a certificate.
#[test]
fn trusts_a_self_signed_certificate_for_its_name_only() {
    let with = |name, ca: Option<PathBuf>| {
        let (certificate, key, path) = files::self_signed(name);
        let options = TlsOptions { ca: ca.or(Some(path)), ..TlsOptions::default() };
        (options, Server { own: Some((certificate, key)), ..Server::default() })
    };
    let (options, server) = with("localhost", None);
    assert!(handshake(&options, server).is_ok());
    let (options, server) = with("elsewhere", None);
    assert!(handshake_error(&options, server).contains("elsewhere"));
    let (options, server) = with("localhost", Some(files::another_authority()));
    assert!(handshake_error(&options, server).contains("--cacert"));
}

#[test]
fn rejects_certificates_for_other_names() {
    let named = |name: &str| {
        let params = CertificateParams::new(vec![name.to_owned(), "b.example".to_owned()]);
        Server { params: params.unwrap(), ..Server::default() }
    };
    let error = handshake_error(&trusting(), named("a.example"));
    assert!(error.contains("is not for localhost") && error.contains("a.example"), "{error}");
    let name = Some("a.example".to_owned());
    let asked = TlsOptions { server_name: name, ..trusting() };
    let pair = handshake(&asked, named("a.example")).unwrap();
    assert_eq!(pair.server.server_name(), Some("a.example"));
    handshake(&TlsOptions { insecure: true, ..trusting() }, named("a.example")).unwrap();

    let server = Server::default().config();
    for (host, is_valid) in [("127.0.0.1", true), ("127.0.0.2", false), ("::1", false)] {
        let mut pair = Pair::new(&Tls::new(host, &trusting()).unwrap(), &server);
        assert_eq!(pair.transfer(ONE_PIECE).is_ok(), is_valid, "{host}");
    }
    for name in ["", "a b", "a..b", "a\nb"] {
        let error = Tls::new(name, &trusting()).unwrap_err().to_string();
        assert!(error.contains("name") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn abbreviates_long_lists_of_names() {
    let names: Vec<_> = (0..100).map(|number| format!("h{number}.example")).collect();
    let params = CertificateParams::new(names).unwrap();
    let error = handshake_error(&trusting(), Server { params, ..Server::default() });
    assert!(error.contains("others") && error.len() < 400, "{error}");
}

#[test]
fn rejects_certificates_outside_their_validity_or_purpose() {
    let changed = |change: &dyn Fn(&mut CertificateParams)| {
        let mut server = Server::default();
        change(&mut server.params);
        handshake_error(&trusting(), server)
    };
    let error = changed(&|params| params.not_after = date_time_ymd(2020, 1, 1));
    assert!(error.contains("expired") && error.contains("days ago"), "{error}");
    let error = changed(&|params| params.not_before = date_time_ymd(3000, 1, 1));
    assert!(error.contains("clock"), "{error}");
    let error = changed(&|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    assert!(error.contains("client"), "{error}");
    let error = changed(&|params| {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    });
    assert!(error.contains("authority"), "{error}");
}

#[test]
fn sends_a_client_certificate_on_request() {
    for versions in EACH_VERSION {
        let server = || Server { versions, requires_client_certificate: true, ..Server::default() };
        let error = handshake_error(&trusting(), server());
        assert!(error.contains("alert"), "{error}");
        assert!(error.contains("--cert FILE") || versions == EACH_VERSION[0], "{error}");
        let [cert, key] = files::identity();
        let options = TlsOptions { cert: Some(cert), key: Some(key), ..trusting() };
        let pair = handshake(&options, server()).unwrap();
        assert_eq!(pair.server.peer_certificates().unwrap().len(), 1);
    }
}

#[test]
fn rejects_servers_without_the_protocol() {
    let alpn = vec![b"h2".to_vec()];
    let error = handshake_error(&trusting(), Server { alpn, ..Server::default() });
    assert!(error.contains("--http2"), "{error}");
}

#[test]
fn selects_http_2() {
    let tls = Tls::new("localhost", &trusting()).unwrap();
    for (alpn, is_selected) in [(vec![b"http/1.1".to_vec(), b"h2".to_vec()], true), (vec![], false)]
    {
        let mut pair =
            Pair::of(&tls, Protocol::Http2, &Server { alpn, ..Server::default() }.config());
        pair.transfer(ONE_PIECE).unwrap();
        assert_eq!(pair.client.has_selected(h2::ALPN), is_selected);
    }
}

#[test]
fn reports_peers_that_do_not_speak_tls() {
    let tls = Tls::new("localhost", &trusting()).unwrap();
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"SSH-2.0-OpenSSH\r\n", &[0; 1000]] {
        let (mut session, mut wire) = (tls.connect(Protocol::Http1).unwrap(), Wire::default());
        session.start(&mut wire);
        wire.clear();
        let mut receive =
            |wire: &mut _| session.receive(&mut bytes.to_vec(), &mut Vec::new(), wire);
        assert_eq!(receive(&mut wire), Err(TlsFailure::NotTls));
        assert!(!wire.is_empty(), "an alert");
        wire.clear();
        assert_eq!(receive(&mut wire), Err(TlsFailure::NotTls));
        session.send(b"x", &mut wire);
        session.close(&mut wire);
        assert!(wire.is_empty());
        assert_eq!(session.end(), Err(TlsFailure::NotTls));
    }
    assert_eq!(tls.connect(Protocol::Http1).unwrap().end(), Err(TlsFailure::Handshake));
}

// The server sends an unencrypted `close_notify`.
#[test]
fn reports_a_close_during_the_handshake() {
    let mut session = Tls::new("localhost", &trusting()).unwrap().connect(Protocol::Http1).unwrap();
    let mut alert = [21, 3, 3, 0, 2, 1, 0];
    let _ = session.receive(&mut alert, &mut Vec::new(), &mut Wire::default());
    assert_eq!(session.end(), Err(TlsFailure::Handshake));
}

// The server sends a handshake message of maximum length in records of one byte each.
#[test]
fn limits_the_size_of_incomplete_messages() {
    let mut session = Tls::new("localhost", &trusting()).unwrap().connect(Protocol::Http1).unwrap();
    let (mut plain, mut wire) = (Vec::new(), Wire::default());
    session.start(&mut wire);
    let record = |byte| [22, 3, 3, 0, 1, byte];
    for byte in [2, 0, 0xff, 0xf0] {
        session.receive(&mut record(byte), &mut plain, &mut wire).unwrap();
    }
    let piece = record(0).repeat(1000);
    let mut receive = || session.receive(&mut piece.clone(), &mut plain, &mut wire);
    let taken = (0..1000).take_while(|_| receive().is_ok()).count();
    assert!(taken < 70, "{taken}");
    assert!(plain.is_empty());
}
