//! Sessions over a simulated network: certificates, versions, resumption, limits and ends.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hearken::Token;
use hearken::io::sim::{Decisions, NetworkSettings, SimIo, SimIoSettings, World};
use hearken::io::{Io, ListenOptions};
use hearken_tls::server::{CertificateFiles, ClientCertificates, ServerTlsSettings};
use hearken_tls::{ClientTls, ServerTls, TlsIo, TlsLimits, TlsVersion, provider};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;

use crate::clauses::Case;
use crate::net::{LONG, Net, between, both, pattern};
use crate::suite::{Tests, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        certificates_follow_the_requested_name
        unusable_files_are_reported
        versions_below_the_minimum_are_refused
        application_protocols_are_negotiated
        sessions_resume_with_any_worker_and_after_a_reload
        reloads_replace_certificates_and_keep_them_after_an_error
        changed_files_are_read_when_they_have_settled
        servers_share_ticket_keys_from_a_file
        handshakes_are_counted
        client_certificates_are_verified
        stapled_responses_are_sent
        streams_without_close_notify_fail
        other_protocols_are_refused
        slow_handshakes_time_out
        deadlines_are_reported_during_a_handshake
        oversized_and_fragmented_handshakes_are_refused
        handshakes_are_limited_per_turn
        handshakes_in_progress_are_limited
    }
}

/// An authority that issues certificates, and a directory for their files.
struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca"), certificate.pem()).unwrap();
        Authority { certificate, issuer: Issuer::new(params, key), dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Issues a certificate, and writes it and its key to files. Returns the certificate and its key.
    fn issue(&self, file: &str, params: &CertificateParams) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(file), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).unwrap();
        (certificate, key)
    }

    /// Issues a certificate for names. Returns its files and its DER form.
    fn files(&self, file: &str, names: &[&str]) -> (CertificateFiles, Vec<u8>) {
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (certificate, _) = self.issue(file, &CertificateParams::new(names).unwrap());
        let files = CertificateFiles::new(self.path(file), self.path(&format!("{file}.key")));
        (files, certificate.der().to_vec())
    }

    fn client(&self, name: &str) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        Client {
            roots,
            name: ServerName::try_from(name.to_owned()).unwrap(),
            versions: &BOTH,
            alpn: Vec::new(),
            identity: None,
        }
    }
}

static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
/// Each version alone.
static EACH: [&[&SupportedProtocolVersion]; 2] = [&[&TLS12], &[&TLS13]];

/// Settings of a client.
struct Client {
    roots: RootCertStore,
    name: ServerName<'static>,
    versions: &'static [&'static SupportedProtocolVersion],
    alpn: Vec<Vec<u8>>,
    identity: Option<(rcgen::Certificate, KeyPair)>,
}

impl Client {
    fn tls(self) -> ClientTls {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(self.roots);
        let mut config = match self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                builder.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
            }
        };
        config.alpn_protocols = self.alpn;
        ClientTls::new(Arc::new(config), self.name)
    }
}

type SimNet = Net<TlsIo<SimIo>>;

/// A simulated network.
struct Network(World);

impl Network {
    fn new() -> Network {
        Network(World::new(Decisions::from_seed(1), NetworkSettings::default()))
    }

    fn net(&self, accepts: Option<&ServerTls>, connects: Option<&ClientTls>) -> SimNet {
        self.net_with(TlsLimits::default(), accepts, connects)
    }

    fn net_with(
        &self,
        limits: TlsLimits,
        accepts: Option<&ServerTls>,
        connects: Option<&ClientTls>,
    ) -> SimNet {
        let io = || {
            let host = self.0.host([127, 0, 0, 1].into());
            let io = SimIo::new(&host, SimIoSettings::default());
            let mut io = TlsIo::new(io, limits);
            io.set_accepts(accepts.cloned());
            io.set_connects(connects.cloned());
            io
        };
        Net::new(&Case {
            io: &io,
            wakes_when_idle: false,
            turn_bytes: None,
            bulk_bytes: None,
            accept_limit: None,
            max_waits: 1,
            keeps_interest: false,
            has_handshake: true,
        })
    }
}

/// A session, seen from both sides.
#[derive(Debug)]
struct Outcome {
    version: TlsVersion,
    resumed: bool,
    alpn: Option<Vec<u8>>,
    /// Certificate of the server.
    certificate: Option<Vec<u8>>,
    /// Certificate of the client.
    client_certificate: Option<Vec<u8>>,
    /// Subject of the client's certificate.
    client_subject: Option<String>,
}

/// Connects, and exchanges a message. Returns the error of the client or of the server otherwise.
fn connect(server: &ServerTls, client: &ClientTls) -> Result<Outcome, ErrorKind> {
    let network = Network::new();
    let (mut near, mut far) = (network.net(None, Some(client)), network.net(Some(server), None));
    let (from, to) = between(&mut near, &mut far);
    (near.seen(from).connected.unwrap())?;
    near.io.start(from);
    far.io.start(to);
    near.send(from, b"request");
    both(&mut near, &mut far, "the request arrives or fails", |near, far| {
        near.seen(from).failed.is_some() || far.seen(to).received == b"request"
    });
    if let Some(failed) = near.seen(from).failed {
        return Err(failed);
    }
    far.send(to, b"response");
    near.expect_received(from, b"response");
    let ours = near.io.get_ref().session(from).unwrap();
    let theirs = far.io.get_ref().session(to).unwrap();
    assert_eq!(
        (ours.version, ours.resumed, ours.alpn),
        (theirs.version, theirs.resumed, theirs.alpn)
    );
    let outcome = Outcome {
        version: ours.version,
        resumed: ours.resumed,
        alpn: ours.alpn.map(<[u8]>::to_vec),
        certificate: ours.peer_certificate.map(<[u8]>::to_vec),
        client_certificate: theirs.peer_certificate.map(<[u8]>::to_vec),
        client_subject: theirs.client_subject.map(str::to_owned),
    };
    near.io.shutdown(from);
    far.expect_end(to, b"request");
    far.io.close(to);
    near.expect_end(from, b"response");
    Ok(outcome)
}

/// Checks the selection by exact names, by one wildcard label, and the default.
fn certificates_follow_the_requested_name() {
    let authority = Authority::new();
    let (first, default) = authority.files("first", &["a.example"]);
    let (second, wildcard) = authority.files("second", &["*.b.example", "b.example"]);
    let (third, exact) = authority.files("third", &["c.b.example"]);
    let mut settings = ServerTlsSettings::new(first);
    settings.certificates.extend([second, third]);
    let server = ServerTls::load(settings).unwrap();
    for (name, certificate) in [
        ("a.example", &default),
        ("A.EXAMPLE", &default),
        ("b.example", &wildcard),
        ("x.b.example", &wildcard),
        ("c.b.example", &exact),
    ] {
        let outcome = connect(&server, &authority.client(name).tls()).unwrap();
        assert_eq!(outcome.certificate.as_ref(), Some(certificate), "{name}");
    }
    // The client refuses the default for these.
    for name in ["x.c.b.example", "x.y.b.example", "other.example", "example"] {
        let error = connect(&server, &authority.client(name).tls()).unwrap_err();
        assert_eq!(error, ErrorKind::InvalidData, "{name}");
    }
}

/// Returns the error of a server with changed settings.
fn load_error(files: CertificateFiles, change: impl FnOnce(&mut ServerTlsSettings)) -> String {
    let mut settings = ServerTlsSettings::new(files);
    change(&mut settings);
    let error = ServerTls::load(settings).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

fn unusable_files_are_reported() {
    let authority = Authority::new();
    let path = |name: &str| authority.path(name);
    let (good, _) = authority.files("good", &["a.example", "b.example"]);
    let (other, _) = authority.files("other", &["a.example"]);
    let dated = |file: &str, from: i32, to: i32| {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        authority.issue(file, &params);
        CertificateFiles::new(path(file), path(&format!("{file}.key")))
    };
    let write = |name: &str, content: &str| -> PathBuf {
        fs::write(path(name), content).unwrap();
        path(name)
    };
    let mixed = CertificateFiles::new(&good.certificate, &other.key);
    let mut named = good.clone();
    named.names = vec!["b.example".to_owned(), "c.example".to_owned()];
    let mut stapled = good.clone();
    stapled.ocsp = Some(write("ocsp", "\x30\x03\x0a\x01\x06"));
    let malformed = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let with = |certificate: &Path| CertificateFiles::new(certificate, &good.key);
    let cases: [(CertificateFiles, &[&str]); 10] = [
        (mixed, &["other.key", "does not match", "good"]),
        (dated("old", 2000, 2001), &["old", "expired", "days ago"]),
        (dated("new", 3000, 3001), &["new", "not valid for another", "clock"]),
        (named, &["good", "'c.example'", "a.example, b.example"]),
        (stapled, &["ocsp", "OCSP", "successful"]),
        (with(&path("absent")), &["absent", "cannot read"]),
        (with(&write("empty", "")), &["empty", "no certificate", "BEGIN CERTIFICATE"]),
        (with(&write("bad", malformed)), &["bad", "line 1", "malformed"]),
        (CertificateFiles::new(&good.certificate, &good.certificate), &["good", "no private key"]),
        (CertificateFiles::new(&good.certificate, path("none")), &["none", "cannot read"]),
    ];
    for (files, words) in cases {
        let error = load_error(files.clone(), |_| {});
        assert!(words.iter().all(|word| error.contains(word)), "{files:?}: {error}");
    }
    let error = load_error(good.clone(), |settings| settings.certificates.clear());
    assert!(error.contains("needs a certificate"), "{error}");
    let error = load_error(good, |settings| {
        settings.client_certificates = ClientCertificates::Required(path("no-ca"));
    });
    assert!(error.contains("no-ca"), "{error}");
}

fn versions_below_the_minimum_are_refused() {
    let authority = Authority::new();
    for (min, works) in [(TlsVersion::Tls12, [true, true]), (TlsVersion::Tls13, [false, true])] {
        let (files, _) = authority.files("cert", &["a.example"]);
        let mut settings = ServerTlsSettings::new(files);
        settings.min_version = min;
        let server = ServerTls::load(settings).unwrap();
        for (versions, works) in EACH.into_iter().zip(works) {
            let client = Client { versions, ..authority.client("a.example") };
            let outcome = connect(&server, &client.tls());
            assert_eq!(outcome.as_ref().is_ok(), works, "{outcome:?}");
        }
    }
    let (files, _) = authority.files("cert", &["a.example"]);
    let server = ServerTls::load(ServerTlsSettings::new(files)).unwrap();
    let outcome = connect(&server, &authority.client("a.example").tls()).unwrap();
    assert_eq!(outcome.version, TlsVersion::Tls13);
    assert!(server.expiries()[0].1 > std::time::SystemTime::now());
}

fn application_protocols_are_negotiated() {
    let authority = Authority::new();
    let (files, _) = authority.files("cert", &["a.example"]);
    let mut settings = ServerTlsSettings::new(files);
    settings.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let server = ServerTls::load(settings).unwrap();
    let connect_with = |protocols: &[&str]| {
        let alpn = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        connect(&server, &Client { alpn, ..authority.client("a.example") }.tls())
    };
    let alpn = |protocols: &[&str]| connect_with(protocols).unwrap().alpn;
    assert_eq!(alpn(&["http/1.1", "h2"]).unwrap(), b"h2");
    assert_eq!(alpn(&["http/1.1"]).unwrap(), b"http/1.1");
    assert_eq!(alpn(&[]), None);
    assert!(connect_with(&["spdy"]).is_err());
}

fn sessions_resume_with_any_worker_and_after_a_reload() {
    let authority = Authority::new();
    let (files, _) = authority.files("cert", &["a.example"]);
    let server = ServerTls::load(ServerTlsSettings::new(files.clone())).unwrap();
    for versions in EACH {
        let client = Client { versions, ..authority.client("a.example") }.tls();
        assert!(!connect(&server, &client).unwrap().resumed);
        // Workers have clones.
        assert!(connect(&server.clone(), &client).unwrap().resumed);
        server.reload().unwrap();
        assert!(connect(&server, &client).unwrap().resumed);
    }
    let mut settings = ServerTlsSettings::new(files);
    settings.ticket_lifetime = Duration::ZERO;
    let without = ServerTls::load(settings).unwrap();
    let client = authority.client("a.example").tls();
    for _ in 0..2 {
        assert!(!connect(&without, &client).unwrap().resumed);
    }
}

fn reloads_replace_certificates_and_keep_them_after_an_error() {
    let authority = Authority::new();
    let (files, first) = authority.files("cert", &["a.example"]);
    let server = ServerTls::load(ServerTlsSettings::new(files.clone())).unwrap();
    let current =
        || connect(&server, &authority.client("a.example").tls()).unwrap().certificate.unwrap();
    assert_eq!(current(), first);
    let (_, second) = authority.files("cert", &["a.example"]);
    assert_eq!(current(), first);
    server.reload().unwrap();
    assert_eq!(current(), second);
    fs::write(&files.key, "").unwrap();
    assert!(server.reload().unwrap_err().to_string().contains("cert.key"));
    assert_eq!(current(), second);
}

fn changed_files_are_read_when_they_have_settled() {
    let authority = Authority::new();
    let (files, first) = authority.files("cert", &["a.example"]);
    let server = ServerTls::load(ServerTlsSettings::new(files.clone())).unwrap();
    let current =
        || connect(&server, &authority.client("a.example").tls()).unwrap().certificate.unwrap();
    assert!(server.reload_changed().is_none() && server.reload_changed().is_none());
    let (_, second) = authority.files("cert", &["a.example"]);
    assert!(server.reload_changed().is_none());
    assert_eq!(current(), first);
    server.reload_changed().unwrap().unwrap();
    assert_eq!(current(), second);
    assert!(server.reload_changed().is_none());
    // An error is reported once.
    fs::remove_file(&files.key).unwrap();
    assert!(server.reload_changed().is_none());
    server.reload_changed().unwrap().unwrap_err();
    assert!(server.reload_changed().is_none());
    assert_eq!((current(), server.failed_reloads()), (second, 1));
}

fn servers_share_ticket_keys_from_a_file() {
    let authority = Authority::new();
    let (files, _) = authority.files("cert", &["a.example"]);
    let keys = authority.path("keys");
    let load = |change: fn(&mut ServerTlsSettings)| {
        let mut settings = ServerTlsSettings::new(files.clone());
        settings.ticket_keys = Some(keys.clone());
        change(&mut settings);
        ServerTls::load(settings)
    };
    // Two keys of 32 bytes.
    let [old, new] = ["QUFB", "QkJC"].map(|part| format!("{}QQ==\n", part.repeat(10)));
    let [old, new] = [old, new].map(|line| line.replace("QQ==", "QUE="));
    fs::write(&keys, format!("# comment\n\n{old}")).unwrap();
    let (one, other) = (load(|_| ()).unwrap(), load(|_| ()).unwrap());
    for versions in EACH {
        let client = Client { versions, ..authority.client("a.example") }.tls();
        assert!(!connect(&one, &client).unwrap().resumed);
        assert!(connect(&other, &client).unwrap().resumed);
    }
    // A new key encrypts, and the old one still decrypts.
    let client = authority.client("a.example").tls();
    assert!(!connect(&one, &client).unwrap().resumed);
    fs::write(&keys, format!("{new}{old}")).unwrap();
    other.reload().unwrap();
    assert!(connect(&other, &client).unwrap().resumed);
    fs::write(&keys, [b'B'; 32]).unwrap();
    assert!(other.reload().unwrap_err().to_string().contains("line 1: expected 32 or 80 bytes"));
    assert!(connect(&other, &client).unwrap().resumed);
    // Binary keys, and none.
    fs::write(&keys, [0xff; 160]).unwrap();
    other.reload().unwrap();
    assert!(!connect(&other, &client).unwrap().resumed);
    fs::write(&keys, [0xff; 33]).unwrap();
    let error = load(|_| ()).unwrap_err().to_string();
    assert!(error.contains("expected keys of 32 or 80 bytes"), "{error}");
}

fn handshakes_are_counted() {
    let authority = Authority::new();
    let (files, _) = authority.files("cert", &["a.example"]);
    let server = ServerTls::load(ServerTlsSettings::new(files)).unwrap();
    for versions in EACH {
        let client = Client { versions, ..authority.client("a.example") }.tls();
        for _ in 0..2 {
            connect(&server, &client).unwrap();
        }
    }
    connect(&server, &authority.client("b.example").tls()).unwrap_err();
    let stats = server.handshakes();
    let complete = stats.complete.map(|it| (it.version, it.full, it.resumed));
    assert_eq!(complete, [("TLSv1.2", 1, 1), ("TLSv1.3", 1, 1)]);
    let failed = stats.failed.iter().map(|(_, count)| count).sum::<u64>();
    assert_eq!((failed, stats.failed.contains(&("alert", 1))), (1, true));
}

fn client_certificates_are_verified() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let (files, _) = authority.files("cert", &["a.example"]);
    let issue = |by: &Authority| {
        let mut params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "a, b");
        params.distinguished_name.push(DnType::OrganizationName, "c");
        by.issue("client", &params)
    };
    for versions in EACH {
        for is_required in [false, true] {
            let mut settings = ServerTlsSettings::new(files.clone());
            let ca = authority.path("ca");
            settings.client_certificates = match is_required {
                true => ClientCertificates::Required(ca),
                false => ClientCertificates::Optional(ca),
            };
            let server = ServerTls::load(settings).unwrap();
            let connect_as = |identity| {
                let client = Client { versions, identity, ..authority.client("a.example") };
                connect(&server, &client.tls())
            };
            let identity = issue(&authority);
            let certificate = identity.0.der().to_vec();
            let outcome = connect_as(Some(identity)).unwrap();
            assert_eq!(outcome.client_certificate, Some(certificate));
            assert_eq!(outcome.client_subject.unwrap(), "O=c,CN=a\\, b");
            let without = connect_as(None);
            assert_eq!(without.is_err(), is_required, "{without:?}");
            assert!(connect_as(Some(issue(&foreign))).is_err());
            // A resumed session has the certificate of the first one. A reload ends it, since it may
            // have replaced the authorities.
            let identity = Some(issue(&authority));
            let client = Client { versions, identity, ..authority.client("a.example") }.tls();
            assert!(!connect(&server, &client).unwrap().resumed);
            let resumed = connect(&server, &client).unwrap();
            assert!(resumed.resumed && resumed.client_certificate.is_some());
            assert!(resumed.client_subject.is_some());
            server.reload().unwrap();
            assert!(!connect(&server, &client).unwrap().resumed);
        }
    }
}

/// Checks that a stapled response does not disturb clients. The client of rustls ignores its content.
fn stapled_responses_are_sent() {
    let authority = Authority::new();
    let (mut files, _) = authority.files("cert", &["a.example"]);
    fs::write(authority.path("ocsp"), [0x30, 0x82, 0, 3, 0x0a, 1, 0]).unwrap();
    files.ocsp = Some(authority.path("ocsp"));
    let server = ServerTls::load(ServerTlsSettings::new(files)).unwrap();
    connect(&server, &authority.client("a.example").tls()).unwrap();
}

/// Checks that the oldest handshakes end when there are too many, and no others.
fn handshakes_in_progress_are_limited() {
    let (server, client) = one_server();
    let network = Network::new();
    let mut limits = TlsLimits::default();
    limits.open_handshakes = 3;
    let mut far = network.net_with(limits, Some(&server), None);
    let mut clients = network.net(None, Some(&client));
    // Complete handshakes do not count.
    let complete: Vec<_> = (0..10).map(|_| between(&mut clients, &mut far).1).collect();
    let mut plain = network.net(None, None);
    let open: Vec<_> = (0..5).map(|_| between(&mut plain, &mut far).1).collect();
    open.iter().chain(&complete).for_each(|token| far.io.start(*token));
    far.run_until_idle();
    let mut failed = |token: &Token| far.seen(*token).failed;
    let expected = [Some(ErrorKind::TimedOut), Some(ErrorKind::TimedOut), None, None, None];
    assert_eq!(open.iter().map(&mut failed).collect::<Vec<_>>(), expected);
    assert!(complete.iter().all(|token| failed(token).is_none()));
}

/// Creates a server and a client for it.
fn one_server() -> (ServerTls, ClientTls) {
    let authority = Authority::new();
    let (files, _) = authority.files("cert", &["a.example"]);
    let server = ServerTls::load(ServerTlsSettings::new(files)).unwrap();
    (server, authority.client("a.example").tls())
}

/// Checks that a stream that ends in the middle is an error and not an end.
fn streams_without_close_notify_fail() {
    let (server, client) = one_server();
    let network = Network::new();
    let (mut near, mut far) = (network.net(None, Some(&client)), network.net(Some(&server), None));
    for closes in [false, true] {
        let (from, to) = between(&mut near, &mut far);
        // It receives its ticket. Otherwise the connection would be reset.
        near.io.start(from);
        near.run_until_idle();
        near.send_body(from, Bytes::from(pattern(1, LONG)));
        near.run_until_idle();
        // The send is incomplete.
        if closes {
            near.io.close(from);
        } else {
            near.io.shutdown(from);
        }
        far.io.start(to);
        both(&mut near, &mut far, "the stream fails", |_, far| far.seen(to).failed.is_some());
        assert_eq!(far.seen(to).failed, Some(ErrorKind::UnexpectedEof));
        assert!(!far.seen(to).ended && far.seen(to).received.len() < LONG);
    }
    // An aborted connection of a Unix socket has no reset.
    let dir = tempfile::tempdir().unwrap();
    let mut net = network.net(Some(&server), Some(&client));
    let path = dir.path().join("socket");
    let listener = net.io.listen(&path.as_path().into(), &ListenOptions::default()).unwrap();
    net.io.start(listener);
    let from = net.io.connect(&path.as_path().into(), None).unwrap();
    net.run("it is connected", |net| net.seen(from).connected.is_some());
    let to = net.accepted[0];
    net.io.start(from);
    net.run_until_idle();
    net.io.abort(to);
    net.run("the stream fails", |net| net.seen(from).failed.is_some());
    assert_eq!(net.seen(from).failed, Some(ErrorKind::UnexpectedEof));
}

/// Connects a plain client to a server. Returns both and their tokens.
fn plain_client() -> ((SimNet, Token), (SimNet, Token)) {
    let (server, _) = one_server();
    let network = Network::new();
    let (mut near, mut far) = (network.net(None, None), network.net(Some(&server), None));
    let (from, to) = between(&mut near, &mut far);
    near.io.start(from);
    far.io.start(to);
    ((near, from), (far, to))
}

/// Sends bytes to a server, which must send an alert and fail the connection.
fn expect_refused(bytes: &[u8]) {
    let ((mut near, from), _) = refused(bytes);
    near.run("the alert arrives", |near| !near.seen(from).received.is_empty());
    assert_eq!(near.seen(from).received[0], 21);
}

/// Sends bytes to a server, which must fail the connection. Returns both sides.
fn refused(bytes: &[u8]) -> ((SimNet, Token), (SimNet, Token)) {
    let ((mut near, from), (mut far, to)) = plain_client();
    near.send(from, bytes);
    both(&mut near, &mut far, "the handshake fails", |_, far| far.seen(to).failed.is_some());
    assert_eq!(far.seen(to).failed, Some(ErrorKind::InvalidData));
    // Sends fail.
    far.send(to, b"to nobody");
    far.run("the send fails", |far| !far.seen(to).sent.is_empty());
    assert!(far.seen(to).sent[0].is_err());
    ((near, from), (far, to))
}

fn other_protocols_are_refused() {
    expect_refused(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    expect_refused(b"SSH-2.0-OpenSSH_9.2\r\n");
    // A record of application data before the handshake, and an empty handshake record.
    expect_refused(&[23, 3, 3, 0, 1, 0]);
    expect_refused(&[22, 3, 3, 0, 0]);
}

/// Checks that the duration of a handshake is limited, even if the client sends bytes all the time.
fn slow_handshakes_time_out() {
    for sends in [false, true] {
        let ((mut near, from), (mut far, to)) = plain_client();
        let start = far.io.now();
        if sends {
            near.send(from, &[22, 3, 1, 2, 0, 1, 0, 1]);
        }
        let mut second = 0;
        while far.seen(to).failed.is_none() {
            let elapsed = (far.io.now() - start).as_secs();
            assert!(elapsed < 20, "the handshake continues");
            if sends && elapsed > second {
                second = elapsed;
                near.send(from, &[0]);
            }
            near.turn(Duration::from_millis(100));
            far.turn(Duration::from_millis(100));
        }
        assert_eq!(far.seen(to).failed, Some(ErrorKind::TimedOut));
        assert!((far.io.now() - start).as_secs() < 12);
    }
    // The same for a client whose server does nothing.
    let (_, client) = one_server();
    let network = Network::new();
    let (mut near, far) = (network.net(None, Some(&client)), network.net(None, None));
    let from = near.io.connect(&far.addr.into(), None).unwrap();
    near.run("the connect fails", |near| near.seen(from).connected.is_some());
    assert_eq!(near.seen(from).connected, Some(Err(ErrorKind::TimedOut)));
}

fn deadlines_are_reported_during_a_handshake() {
    let ((_near, _), (mut far, to)) = plain_client();
    let start = far.io.now();
    far.io.set_deadline(to, Some(start + Duration::from_secs(2)));
    far.run("the deadline expires", |far| far.seen(to).deadlines == 1);
    assert!((far.io.now() - start).as_secs() < 4);
    far.io.set_deadline(to, Some(start + Duration::from_secs(30)));
    far.run("the handshake times out", |far| far.seen(to).failed.is_some());
    assert!((far.io.now() - start).as_secs() < 12);
    far.run("the deadline expires", |far| far.seen(to).deadlines == 2);
}

fn oversized_and_fragmented_handshakes_are_refused() {
    expect_refused(&[&[22, 3, 3, 0xff, 0xff][..], &[1; 70_000]].concat());
    // A message of the maximum length in records of one byte each.
    let record = |byte| [22, 3, 3, 0, 1, byte];
    let message = [1, 0, 0xff, 0xf0].into_iter().chain(std::iter::repeat_n(0, 40_000));
    refused(&message.flat_map(record).collect::<Vec<_>>());
}

/// Checks that a flood of clients is served a few handshakes per turn, and completely.
fn handshakes_are_limited_per_turn() {
    const CLIENTS: usize = 30;
    let (server, client) = one_server();
    let network = Network::new();
    let (mut near, mut far) = (network.net(None, Some(&client)), network.net(Some(&server), None));
    let from: Vec<_> =
        (0..CLIENTS).map(|_| near.io.connect(&far.addr.into(), None).unwrap()).collect();
    near.run_until_idle();
    let connected = |near: &mut SimNet| {
        from.iter().filter(|&&token| near.seen(token).connected == Some(Ok(()))).count()
    };
    let (mut turns, mut before) = (0, 0);
    while before < CLIENTS {
        far.turn(Duration::ZERO);
        near.run_until_idle();
        let now = connected(&mut near);
        let limit = TlsLimits::default().handshakes_per_turn as usize;
        assert!(now - before <= limit, "{} handshakes in a turn", now - before);
        before = now;
        turns += 1;
        assert!(turns < 1000, "only {before} handshakes");
    }
}
