//! Files of certificates and keys, good and bad.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DistinguishedName, IsCa, KeyPair};
use tempfile::TempDir;

use super::super::{Tls, TlsOptions, roots_among};
use super::servers::{AUTHORITY, trusting};

static DIR: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

fn file(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = DIR.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

/// The certificate of one who issued nothing.
pub(super) fn another_authority() -> PathBuf {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(Vec::new()).unwrap();
    file("another.pem", params.self_signed(&key).unwrap().pem())
}

/// The certificate of another authority by the name of [`AUTHORITY`].
pub(super) fn namesake() -> PathBuf {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = DistinguishedName::new();
    file("namesake.pem", params.self_signed(&key).unwrap().pem())
}

/// One that a server has signed itself, as an authority does, and its file.
pub(super) fn of_its_own(name: &str) -> (Certificate, KeyPair, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let path = file(&format!("own-{name}.pem"), certificate.pem());
    (certificate, key, path)
}

/// A client's certificate and its key.
pub(super) fn identity() -> [PathBuf; 2] {
    let params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
    let (certificate, key) = AUTHORITY.issue(&params);
    [file("cert.pem", certificate.pem()), file("key.pem", key.serialize_pem())]
}

fn refused(options: &TlsOptions) -> String {
    let error = Tls::new("localhost", options).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn files_of_authorities() {
    let good = AUTHORITY.certificate.pem();
    let with = |ca: PathBuf| TlsOptions { ca: Some(ca), ..TlsOptions::default() };
    for (name, content, says) in [
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
        let error = refused(&with(file(name, content)));
        assert!(error.contains(says) && error.contains(name), "{error}");
    }
    let error = refused(&with(DIR.path().join("absent.pem")));
    assert!(error.contains("absent.pem: it cannot be read: No such file"), "{error}");
    let error = refused(&with("/dev/zero".into()));
    assert!(error.contains("longer than"), "{error}");
    let several = format!("# text\r\n{}\r\n\r\nmore\r\n{good}", good.replace('\n', "\r\n"));
    Tls::new("localhost", &with(file("several.pem", several))).unwrap();
}

#[test]
fn files_of_ours() {
    let [cert, key] = identity();
    let with = |cert: Option<&PathBuf>, key: Option<&PathBuf>| TlsOptions {
        cert: cert.cloned(),
        key: key.cloned(),
        ..trusting()
    };
    Tls::new("localhost", &with(Some(&cert), Some(&key))).unwrap();
    let both = [&cert, &key].map(|path| fs::read_to_string(path).unwrap()).concat();
    Tls::new("localhost", &with(Some(&file("both.pem", both)), None)).unwrap();
    assert!(refused(&with(None, Some(&key))).contains("--cert FILE"));
    assert!(refused(&with(Some(&cert), None)).contains("no private key"));
    assert!(refused(&with(Some(&key), Some(&key))).contains("no certificate"));
    let other = file("other-key.pem", KeyPair::generate().unwrap().serialize_pem());
    let error = refused(&with(Some(&cert), Some(&other)));
    assert!(error.contains("other-key.pem") && error.contains("certificate's"), "{error}");
    let broken = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let error = refused(&with(Some(&cert), Some(&file("broken.pem", broken))));
    assert!(error.contains("broken.pem"), "{error}");
}

#[test]
fn a_system_without_authorities() {
    let none = roots_among(Vec::new(), vec!["cannot read /x".to_owned()]);
    let error = none.unwrap_err().to_string();
    assert!(error.contains("--cacert FILE") && error.contains("(cannot read /x)"), "{error}");
    assert!(roots_among(vec![vec![0; 3].into()], Vec::new()).is_err());
    let certificate = AUTHORITY.certificate.der().clone();
    assert_eq!(roots_among(vec![certificate, vec![0; 3].into()], Vec::new()).unwrap().len(), 1);
}
