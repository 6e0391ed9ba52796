//! Verification of the certificates of servers by a policy.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use crate::failure::CertificateProblem;
use crate::pem::{self, FileError};

/// Verifies the certificates of servers by a policy. It always verifies the signature of the handshake,
/// so that a handshake costs both sides the same under any policy.
#[derive(Debug)]
pub struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    policy: Policy,
}

/// The servers that are trusted.
#[derive(Debug)]
enum Policy {
    /// Any server.
    AnyServer,
    /// Servers with a certificate from one of these authorities, or with one of these certificates.
    ///
    /// `openssl req -x509` marks a self-signed certificate as an authority certificate, and webpki
    /// rejects such certificates for servers. Hence the comparison with `certificates`.
    Certificates { webpki: Arc<WebPkiServerVerifier>, certificates: Vec<CertificateDer<'static>> },
}

impl Verifier {
    /// Trusts any server.
    pub fn any_server(provider: &CryptoProvider) -> Verifier {
        let algorithms = provider.signature_verification_algorithms;
        Verifier { algorithms, policy: Policy::AnyServer }
    }

    /// Trusts servers with a certificate from an authority in a PEM file, or with a certificate in it.
    ///
    /// # Errors
    /// The file cannot be read, or contains something else.
    pub fn certificates(
        path: &Path,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Verifier, FileError> {
        let (roots, certificates) = pem::roots(path)?;
        let builder =
            WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider));
        let webpki = builder.build().map_err(|error| FileError::new(path, error.to_string()))?;
        let algorithms = provider.signature_verification_algorithms;
        Ok(Verifier { algorithms, policy: Policy::Certificates { webpki, certificates } })
    }
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
        let Policy::Certificates { webpki, certificates } = &self.policy else {
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
