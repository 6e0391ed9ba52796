//! Valid and invalid files of certificates and keys.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DistinguishedName, IsCa, KeyPair};
use tempfile::TempDir;

use super::super::{Tls, TlsOptions};
use super::servers::{AUTHORITY, trusting};

static DIR: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

fn file(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = DIR.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

/// Creates the certificate of an authority that issued no other certificate.
pub(super) fn another_authority() -> PathBuf {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(Vec::new()).unwrap();
    file("another.pem", params.self_signed(&key).unwrap().pem())
}

/// Creates the certificate of another authority with the name of [`AUTHORITY`].
pub(super) fn namesake() -> PathBuf {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = DistinguishedName::new();
    file("namesake.pem", params.self_signed(&key).unwrap().pem())
}

/// Creates a self-signed certificate for a server name. Returns it, its key and its file.
pub(super) fn self_signed(name: &str) -> (Certificate, KeyPair, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let path = file(&format!("own-{name}.pem"), certificate.pem());
    (certificate, key, path)
}

/// Creates the files of a client certificate and its key.
pub(super) fn identity() -> [PathBuf; 2] {
    let params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
    let (certificate, key) = AUTHORITY.issue(&params);
    [file("cert.pem", certificate.pem()), file("key.pem", key.serialize_pem())]
}

fn setup_error(options: &TlsOptions) -> String {
    let error = Tls::new("localhost", options).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn reads_files_of_authorities() {
    let good = AUTHORITY.certificate.pem();
    let with = |ca: PathBuf| TlsOptions { ca: Some(ca), ..TlsOptions::default() };
    for (name, content, expected) in [
        ("empty.pem", String::new(), "no certificate"),
        ("text.pem", "hello\n".to_owned(), "-----BEGIN CERTIFICATE-----"),
        ("key-only.pem", KeyPair::generate().unwrap().serialize_pem(), "no certificate"),
        ("no-end.pem", format!("{good}\n-----BEGIN CERTIFICATE-----\nAAAA\n"), "END"),
        ("start.pem", "-----BEGIN CERTIFICATE\nAAAA\n".to_owned(), "line 1: "),
        (
            "base64.pem",
            "\n\n-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n".to_owned(),
            "line 3: ",
        ),
        (
            "der.pem",
            "# one\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
            "line 2: not a certificate",
        ),
    ] {
        let error = setup_error(&with(file(name, content)));
        assert!(error.contains(expected) && error.contains(name), "{error}");
    }
    let error = setup_error(&with(DIR.path().join("absent.pem")));
    assert!(error.contains("absent.pem: cannot read the file: No such file"), "{error}");
    let error = setup_error(&with("/dev/zero".into()));
    assert!(error.contains("longer than"), "{error}");
    let several = format!("# text\r\n{}\r\n\r\nmore\r\n{good}", good.replace('\n', "\r\n"));
    Tls::new("localhost", &with(file("several.pem", several))).unwrap();
}

#[test]
fn reads_files_of_client_certificates() {
    let [cert, key] = identity();
    let with = |cert: Option<&PathBuf>, key: Option<&PathBuf>| TlsOptions {
        cert: cert.cloned(),
        key: key.cloned(),
        ..trusting()
    };
    Tls::new("localhost", &with(Some(&cert), Some(&key))).unwrap();
    let both = [&cert, &key].map(|path| fs::read_to_string(path).unwrap()).concat();
    Tls::new("localhost", &with(Some(&file("both.pem", both)), None)).unwrap();
    assert!(setup_error(&with(None, Some(&key))).contains("--cert FILE"));
    assert!(setup_error(&with(Some(&cert), None)).contains("no private key"));
    assert!(setup_error(&with(Some(&key), Some(&key))).contains("no certificate"));
    let other = file("other-key.pem", KeyPair::generate().unwrap().serialize_pem());
    let error = setup_error(&with(Some(&cert), Some(&other)));
    assert!(error.contains("other-key.pem") && error.contains("does not match"), "{error}");
    let broken = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let error = setup_error(&with(Some(&cert), Some(&file("broken.pem", broken))));
    assert!(error.contains("broken.pem"), "{error}");
}
