//! Certificate verification with `--cacert` and `--insecure`.

use std::sync::Arc;

use hearken_tls::failure::CertificateProblem;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// Verifies certificates by a policy. It always verifies the handshake signature, so that a
/// handshake costs both sides the same under any policy.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    pub(super) policy: TrustPolicy,
}

/// The servers that are trusted.
#[derive(Debug)]
pub(super) enum TrustPolicy {
    /// Any server, for `--insecure`.
    AnyServer,
    /// Servers with a certificate from one of these authorities, or with one of these certificates.
    ///
    /// `openssl req -x509` marks a self-signed certificate as an authority certificate, and webpki
    /// rejects such certificates for servers. Hence the comparison with `certificates`.
    Certificates { webpki: Arc<WebPkiServerVerifier>, certificates: Vec<CertificateDer<'static>> },
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let TrustPolicy::Certificates { webpki, certificates } = &self.policy else {
            return Ok(ServerCertVerified::assertion());
        };
        let verdict =
            webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            // webpki has checked the validity period before, but not the name.
            Err(Error::InvalidCertificate(reason))
                if CertificateProblem::from_rustls(&reason) == CertificateProblem::Authority
                    && certificates.contains(end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
