//! Reads and validates a certificate with its key.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::{ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use webpki::{EndEntityCert, KeyUsage};

use super::CertificateFiles;
use crate::Provider;
use crate::failure::line;
use crate::pem::{self, FileError};

/// A certificate with its key.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// The host names, which may begin with a wildcard label.
    pub(super) names: Vec<String>,
    pub(super) expires: SystemTime,
}

impl Certificate {
    /// Reads a certificate that must be valid at `now`.
    pub(super) fn read(
        files: &CertificateFiles,
        provider: &Provider,
        now: UnixTime,
    ) -> Result<Certificate, FileError> {
        let path = &files.certificate;
        let chain = pem::certificates(path)?;
        let first_line = chain.first().map_or(1, |(number, _)| *number);
        let chain: Vec<_> = chain.into_iter().map(|(_, certificate)| certificate).collect();
        let invalid = |reason: String| {
            FileError::new(path, format!("line {first_line}: the certificate {reason}"))
        };
        let (names, not_after) = {
            let end_entity = chain.first().and_then(|leaf| EndEntityCert::try_from(leaf).ok());
            let end_entity = end_entity.ok_or_else(|| invalid("is malformed".to_owned()))?;
            for name in &files.names {
                check_name(&end_entity, name).map_err(invalid)?;
            }
            let names: Vec<_> = end_entity.valid_dns_names().map(str::to_ascii_lowercase).collect();
            (names, check_dates(&end_entity, provider, now).map_err(invalid)?)
        };
        let key = pem::key(&files.key)?;
        let key = provider.key_provider.load_private_key(key).map_err(|_| {
            FileError::new(&files.key, "the private key is malformed, or of an unknown type")
        })?;
        let mut key = CertifiedKey::new(chain, key);
        match key.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(_) => {
                let certificate = path.display();
                let reason =
                    format!("the private key does not match the certificate in {certificate}");
                return Err(FileError::new(&files.key, reason));
            }
        }
        if let Some(path) = &files.ocsp {
            let response = pem::read(path)?;
            if !is_successful_ocsp(&response) {
                let reason = "expected an OCSP response in DER with the status 'successful'";
                return Err(FileError::new(path, reason));
            }
            key.ocsp = Some(response);
        }
        let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(not_after);
        Ok(Certificate { key: Arc::new(key), names, expires })
    }
}

fn check_name(certificate: &EndEntityCert<'_>, name: &str) -> Result<(), String> {
    let parsed = ServerName::try_from(name)
        .map_err(|_| format!("cannot be valid for '{}', which is no host name", line(name)))?;
    certificate.verify_is_valid_for_subject_name(&parsed).map_err(|_| {
        let names: Vec<_> = certificate.valid_dns_names().take(3).collect();
        let names = if names.is_empty() { "no host".to_owned() } else { names.join(", ") };
        format!("is not valid for '{name}', but for {}", line(&names))
    })
}

/// Checks the validity period. Returns its end, in seconds since 1970.
fn check_dates(
    certificate: &EndEntityCert<'_>,
    provider: &Provider,
    now: UnixTime,
) -> Result<u64, String> {
    // Nothing issued the certificate, so the verification fails in any case. It checks the validity
    // period first.
    let verify = |time| {
        let algorithms = provider.signature_verification_algorithms.all;
        let usage = KeyUsage::server_auth();
        certificate.verify_for_usage(algorithms, &[], &[], time, usage, None, None).err()
    };
    let days = |from: UnixTime, to: UnixTime| to.as_secs().saturating_sub(from.as_secs()) / 86_400;
    match verify(now) {
        Some(webpki::Error::CertExpired { time, not_after }) => {
            return Err(format!("expired {} days ago; renew it", days(not_after, time)));
        }
        Some(webpki::Error::CertNotValidYet { time, not_before }) => {
            let days = days(time, not_before);
            return Err(format!("is not valid for another {days} days; check the clock"));
        }
        _ => {}
    }
    // A certificate is not valid at this time, so the error contains the end of its period.
    let late = UnixTime::since_unix_epoch(Duration::from_secs(1 << 40));
    match verify(late) {
        Some(webpki::Error::CertExpired { not_after, .. }) => Ok(not_after.as_secs()),
        _ => Err("has a malformed validity period".to_owned()),
    }
}

/// Returns whether `response` begins like an OCSP response whose status is successful (RFC 6960).
fn is_successful_ocsp(response: &[u8]) -> bool {
    let [0x30, length, rest @ ..] = response else { return false };
    let skipped = if *length < 0x80 { 0 } else { usize::from(*length & 0x7f) };
    rest.get(skipped..).is_some_and(|content| content.starts_with(&[0x0a, 1, 0]))
}
