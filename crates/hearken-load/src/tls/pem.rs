//! PEM files of certificates and keys (RFC 7468).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;

/// Maximum size of a file in bytes. All public authorities together take about 256 KiB.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Reads the certificates in a file, at least one. Returns each with the line on which it begins.
pub(super) fn certificates(path: &Path) -> Result<Vec<(usize, CertificateDer<'static>)>, TlsError> {
    let all = items(path)?;
    if all.is_empty() {
        let form = "-----BEGIN CERTIFICATE-----";
        return Err(file_error(path, format!("no certificate found; expected {form}")));
    }
    Ok(all)
}

/// Reads the first private key in a file.
pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let first = items(path)?.into_iter().next();
    first.map(|(_, key)| key).ok_or_else(|| {
        let encrypted = "decrypt an encrypted key first, for example with openssl pkey";
        file_error(path, format!("no private key found; {encrypted}"))
    })
}

/// Reads all items of one type in a file.
fn items<T: PemObject>(path: &Path) -> Result<Vec<(usize, T)>, TlsError> {
    let text = read(path)?;
    let mut found = Vec::new();
    for (line, section) in sections(&text) {
        match T::from_pem_slice(section) {
            Ok(item) => found.push((line, item)),
            Err(pem::Error::NoItemsFound) => {}
            Err(error) => return Err(file_error(path, format!("line {line}: {}", reason(&error)))),
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

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut text = Vec::new();
    // The limit also ends reading from a device such as /dev/zero.
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text))
        .map_err(|error| file_error(path, format!("cannot read the file: {error}")))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let limit = MAX_FILE_BYTES >> 20;
        return Err(file_error(path, format!("the file is longer than {limit} MiB")));
    }
    Ok(text)
}

fn file_error(path: &Path, reason: String) -> TlsError {
    TlsError::File { path: path.to_owned(), reason }
}
