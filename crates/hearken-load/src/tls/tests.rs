//! Against rustls' own server, without sockets.

mod files;
mod properties;
mod servers;

use std::path::PathBuf;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};

use super::session::State;
use super::{SessionError, Tls, TlsOptions};
use servers::{EACH, Pair, Server, WHOLE, shake, trusting};

fn refusal(options: &TlsOptions, server: Server) -> String {
    match shake(options, server) {
        Err(error) => error.to_string(),
        Ok(pair) => panic!("{:?}", pair.client),
    }
}

#[test]
fn a_handshake_a_request_and_an_answer() {
    for versions in EACH {
        let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let server = Server { versions, alpn, ..Server::default() }.config();
        let mut pair = Pair::new(&Tls::new("localhost", &trusting()).unwrap(), &server);
        assert!(pair.client.is_handshaking());
        assert_eq!(pair.client.resumed(), None);
        // It waits for the handshake.
        pair.client.send(b"GET");
        pair.carry(WHOLE).unwrap();
        assert!(!pair.client.is_handshaking());
        assert_eq!(pair.client.resumed(), Some(false));
        assert_eq!(pair.server.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(pair.server.server_name(), Some("localhost"));
        pair.client.send(b" /");
        pair.answer(b"200");
        pair.carry(WHOLE).unwrap();
        assert_eq!((&*pair.at_server, &*pair.at_client), (&b"GET /"[..], &b"200"[..]));
        assert!(!pair.client.outgoing(&mut Vec::new()));
    }
}

#[test]
fn both_may_close_first() {
    for client_first in [true, false] {
        let mut pair = shake(&trusting(), Server::default()).unwrap();
        assert_eq!(pair.client.end(), Err(SessionError::Truncated));
        pair.client.send(b"last");
        if client_first {
            pair.client.close();
            // What comes after is not sent.
            pair.client.send(b"never");
            pair.carry(WHOLE).unwrap();
            assert_eq!(pair.at_server, b"last");
            assert_eq!(pair.client.end(), Err(SessionError::Truncated));
        }
        pair.answer(b"bye");
        pair.server.send_close_notify();
        pair.carry(WHOLE).unwrap();
        assert_eq!((pair.state, &*pair.at_client), (State::Closed, &b"bye"[..]));
        assert_eq!(pair.client.end(), Ok(()));
        pair.client.close();
        pair.carry(WHOLE).unwrap();
        assert_eq!(pair.at_server, b"last");
        let state = pair.server.process_new_packets().unwrap();
        assert!(state.peer_has_closed());
        // What comes behind the end is nothing.
        let mut plain = Vec::new();
        assert_eq!(pair.client.receive(b"garbage", &mut plain), Ok(State::Closed));
        assert!(plain.is_empty());
    }
}

#[test]
fn a_session_is_resumed() {
    for versions in EACH {
        for resumption in [true, false] {
            let server = Server { versions, ..Server::default() }.config();
            let tls = Tls::new("localhost", &TlsOptions { resumption, ..trusting() }).unwrap();
            let resumed = [(); 3].map(|()| {
                let mut pair = Pair::new(&tls.clone(), &server);
                pair.carry(WHOLE).unwrap();
                pair.client.resumed().unwrap()
            });
            assert_eq!(resumed, [false, resumption, resumption]);
        }
    }
}

/// Each ticket is used once, and all that came are kept.
#[test]
fn connections_that_begin_together_are_resumed() {
    let server = Server { versions: EACH[1], ..Server::default() }.config();
    let tls = Tls::new("localhost", &trusting()).unwrap();
    let many = || {
        let mut pairs = [(); 20].map(|()| Pair::new(&tls, &server));
        pairs.iter_mut().for_each(|pair| pair.carry(WHOLE).unwrap());
        pairs.iter().filter(|pair| pair.client.resumed() == Some(true)).count()
    };
    assert_eq!(many(), 0);
    assert_eq!(many(), 20);
}

#[test]
fn a_stranger_is_refused() {
    let unknown = TlsOptions { ca: Some(files::another_authority()), ..TlsOptions::default() };
    let error = refusal(&unknown, Server::default());
    assert!(error.contains("issuer") && error.contains("--cacert FILE"), "{error}");
    assert!(error.contains("--insecure"), "{error}");
    let namesake = TlsOptions { ca: Some(files::namesake()), ..TlsOptions::default() };
    let error = refusal(&namesake, Server::default());
    assert!(error.contains("signed") && error.contains("--cacert FILE"), "{error}");
    let insecure = TlsOptions { insecure: true, ..TlsOptions::default() };
    for versions in EACH {
        shake(&insecure, Server { versions, ..Server::default() }).unwrap();
    }
}

/// As `openssl req -x509` makes it: believed if it is the very one that is trusted, by its name.
#[test]
fn a_certificate_that_is_its_own_authority() {
    let with = |name, ca: Option<PathBuf>| {
        let (certificate, key, path) = files::of_its_own(name);
        let options = TlsOptions { ca: ca.or(Some(path)), ..TlsOptions::default() };
        (options, Server { own: Some((certificate, key)), ..Server::default() })
    };
    let (options, server) = with("localhost", None);
    assert!(shake(&options, server).is_ok());
    let (options, server) = with("elsewhere", None);
    assert!(refusal(&options, server).contains("elsewhere"));
    let (options, server) = with("localhost", Some(files::another_authority()));
    assert!(refusal(&options, server).contains("--cacert"));
}

#[test]
fn a_wrong_name_is_refused() {
    let named = |name: &str| {
        let params = CertificateParams::new(vec![name.to_owned(), "b.example".to_owned()]);
        Server { params: params.unwrap(), ..Server::default() }
    };
    let error = refusal(&trusting(), named("a.example"));
    assert!(error.contains("is not for localhost") && error.contains("a.example"), "{error}");
    let name = Some("a.example".to_owned());
    let asked = TlsOptions { server_name: name, ..trusting() };
    let pair = shake(&asked, named("a.example")).unwrap();
    assert_eq!(pair.server.server_name(), Some("a.example"));
    shake(&TlsOptions { insecure: true, ..trusting() }, named("a.example")).unwrap();

    let server = Server::default().config();
    for (host, fine) in [("127.0.0.1", true), ("127.0.0.2", false), ("::1", false)] {
        let mut pair = Pair::new(&Tls::new(host, &trusting()).unwrap(), &server);
        assert_eq!(pair.carry(WHOLE).is_ok(), fine, "{host}");
    }
    for name in ["", "a b", "a..b", "a\nb"] {
        let error = Tls::new(name, &trusting()).unwrap_err().to_string();
        assert!(error.contains("name") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn very_many_names_are_one_line() {
    let names: Vec<_> = (0..100).map(|number| format!("h{number}.example")).collect();
    let params = CertificateParams::new(names).unwrap();
    let error = refusal(&trusting(), Server { params, ..Server::default() });
    assert!(error.contains("others") && error.len() < 400, "{error}");
}

#[test]
fn certificates_out_of_their_time_or_purpose_are_refused() {
    let changed = |change: &dyn Fn(&mut CertificateParams)| {
        let mut server = Server::default();
        change(&mut server.params);
        refusal(&trusting(), server)
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
fn a_server_may_ask_who_we_are() {
    for versions in EACH {
        let server = || Server { versions, asks_who: true, ..Server::default() };
        let error = refusal(&trusting(), server());
        assert!(error.contains("alert"), "{error}");
        assert!(error.contains("--cert FILE") || versions == EACH[0], "{error}");
        let [cert, key] = files::identity();
        let options = TlsOptions { cert: Some(cert), key: Some(key), ..trusting() };
        let pair = shake(&options, server()).unwrap();
        assert_eq!(pair.server.peer_certificates().unwrap().len(), 1);
    }
}

#[test]
fn a_server_without_http_1_is_refused() {
    let alpn = vec![b"h2".to_vec()];
    let error = refusal(&trusting(), Server { alpn, ..Server::default() });
    assert!(error.contains("HTTP/1.1"), "{error}");
}

#[test]
fn what_is_not_tls_is_said_to_be_none() {
    let tls = Tls::new("localhost", &trusting()).unwrap();
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"SSH-2.0-OpenSSH\r\n", &[0; 1000]] {
        let mut session = tls.connect().unwrap();
        assert_eq!(session.receive(bytes, &mut Vec::new()), Err(SessionError::NotTls));
        assert_eq!(session.receive(bytes, &mut Vec::new()), Err(SessionError::NotTls));
        session.send(b"x");
        session.close();
        assert!(session.outgoing(&mut Vec::new()), "an alert");
        assert!(!session.outgoing(&mut Vec::new()));
        assert_eq!(session.end(), Err(SessionError::NotTls));
    }
    assert_eq!(tls.connect().unwrap().end(), Err(SessionError::Handshake));
}

/// By a `close_notify` that is not encrypted yet.
#[test]
fn a_server_may_leave_the_handshake() {
    let mut session = Tls::new("localhost", &trusting()).unwrap().connect().unwrap();
    let alert = [21, 3, 3, 0, 2, 1, 0];
    let _ = session.receive(&alert, &mut Vec::new());
    assert_eq!(session.end(), Err(SessionError::Handshake));
}

/// Records of one byte each, of a handshake message that is as long as may be.
#[test]
fn a_message_that_does_not_end_is_refused() {
    let mut session = Tls::new("localhost", &trusting()).unwrap().connect().unwrap();
    let mut plain = Vec::new();
    let record = |byte| [22, 3, 3, 0, 1, byte];
    for byte in [2, 0, 0xff, 0xf0] {
        session.receive(&record(byte), &mut plain).unwrap();
    }
    let piece = record(0).repeat(1000);
    let taken = (0..1000).take_while(|_| session.receive(&piece, &mut plain).is_ok()).count();
    assert!(taken < 70, "{taken}");
    assert!(plain.is_empty());
}
