//! PEM files of certificates and keys (RFC 7468).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::failure::describe_error;

/// The error for a file of certificates or keys that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {}: {reason}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The reason, and the expected content.
    pub reason: String,
}

impl FileError {
    pub(crate) fn new(path: &Path, reason: impl Into<String>) -> FileError {
        FileError { path: path.to_owned(), reason: reason.into() }
    }
}

/// Maximum size of a file in bytes. All public authorities together take about 256 KiB.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Reads the certificates in a file, at least one. Returns each with the line on which it begins.
///
/// # Errors
/// The file cannot be read or is malformed.
pub fn certificates(path: &Path) -> Result<Vec<(usize, CertificateDer<'static>)>, FileError> {
    let all = items(path)?;
    if all.is_empty() {
        let form = "-----BEGIN CERTIFICATE-----";
        return Err(FileError::new(path, format!("no certificate found; expected {form}")));
    }
    Ok(all)
}

/// Reads the first private key in a file.
///
/// # Errors
/// The file cannot be read, is malformed, or contains no unencrypted key.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let first = items(path)?.into_iter().next();
    first.map(|(_, key)| key).ok_or_else(|| {
        let encrypted = "decrypt an encrypted key first, for example with openssl pkey";
        FileError::new(path, format!("no private key found; {encrypted}"))
    })
}

/// Reads the certificates of authorities in a file, at least one.
///
/// # Errors
/// The file cannot be read or is malformed.
pub fn roots(path: &Path) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), FileError> {
    let (mut roots, mut all) = (RootCertStore::empty(), Vec::new());
    for (number, certificate) in certificates(path)? {
        roots.add(certificate.clone()).map_err(|error| {
            let reason = describe_error(&error);
            FileError::new(path, format!("line {number}: not a certificate: {reason}"))
        })?;
        all.push(certificate);
    }
    Ok((roots, all))
}

/// Reads all items of one type in a file.
fn items<T: PemObject>(path: &Path) -> Result<Vec<(usize, T)>, FileError> {
    let text = read(path)?;
    let mut found = Vec::new();
    for (line, section) in sections(&text) {
        match T::from_pem_slice(section) {
            Ok(item) => found.push((line, item)),
            Err(pem::Error::NoItemsFound) => {}
            Err(error) => {
                return Err(FileError::new(path, format!("line {line}: {}", reason(&error))));
            }
        }
    }
    Ok(found)
}

fn reason(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "the section has no END line",
        pem::Error::IllegalSectionStart { .. } => "the BEGIN line must end with -----",
        pem::Error::Base64Decode(_) => "the section is not valid base64",
        _ => "the section is malformed",
    }
}

/// Splits the text before each BEGIN line. Returns the parts with the numbers of these lines.
fn sections(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let (mut at, mut begins) = (0, Vec::new());
    for (number, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
        if line.trim_ascii_start().starts_with(b"-----BEGIN ") {
            begins.push((number + 1, at));
        }
        at += line.len();
    }
    let ends: Vec<_> = begins.iter().skip(1).map(|&(_, at)| at).chain([text.len()]).collect();
    begins.into_iter().zip(ends).map(|((line, from), to)| (line, &text[from..to]))
}

/// Reads a file of limited size.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let mut text = Vec::new();
    // The limit also ends reading from a device such as /dev/zero.
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text))
        .map_err(|error| FileError::new(path, format!("cannot read the file: {error}")))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let limit = MAX_FILE_BYTES >> 20;
        return Err(FileError::new(path, format!("the file is longer than {limit} MiB")));
    }
    Ok(text)
}
