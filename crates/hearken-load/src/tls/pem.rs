//! Files of certificates and keys: PEM (RFC 7468).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;

/// The largest file that is read. All the world's authorities are a quarter of a mebibyte.
const MOST: u64 = 16 << 20;

/// The certificates in a file, at least one, each with the line on which it begins.
pub(super) fn certificates(path: &Path) -> Result<Vec<(usize, CertificateDer<'static>)>, TlsError> {
    let all = items(path)?;
    if all.is_empty() {
        let form = "-----BEGIN CERTIFICATE-----";
        return Err(of(path, format!("there is no certificate in it; one in PEM has {form}")));
    }
    Ok(all)
}

/// The first private key in a file.
pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let first = items(path)?.into_iter().next();
    first.map(|(_, key)| key).ok_or_else(|| {
        let encrypted = "one that is encrypted must be decrypted first, as by openssl pkey";
        of(path, format!("there is no private key in it; {encrypted}"))
    })
}

/// All of a kind that there are in a file.
fn items<T: PemObject>(path: &Path) -> Result<Vec<(usize, T)>, TlsError> {
    let text = read(path)?;
    let mut found = Vec::new();
    for (line, section) in sections(&text) {
        match T::from_pem_slice(section) {
            Ok(item) => found.push((line, item)),
            Err(pem::Error::NoItemsFound) => {}
            Err(error) => return Err(of(path, format!("line {line}: {}", reason(&error)))),
        }
    }
    Ok(found)
}

fn reason(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "the section that begins here lacks its END line",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line must end with -----",
        pem::Error::Base64Decode(_) => "the section that begins here is not base64",
        _ => "the section that begins here cannot be read",
    }
}

/// From each BEGIN line to the next, with the number of the line.
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
    // Not of a device that never ends.
    File::open(path)
        .and_then(|file| file.take(MOST + 1).read_to_end(&mut text))
        .map_err(|error| of(path, format!("it cannot be read: {error}")))?;
    if text.len() as u64 > MOST {
        return Err(of(path, format!("it is longer than {} MiB", MOST >> 20)));
    }
    Ok(text)
}

fn of(path: &Path, reason: String) -> TlsError {
    TlsError::File { path: path.to_owned(), reason }
}
