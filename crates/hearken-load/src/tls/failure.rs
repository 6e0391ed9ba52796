//! Remedies for failed TLS sessions.

use std::fmt;

use hearken_tls::TlsFailure;
use hearken_tls::failure::CertificateProblem;

/// A failure, described on one line together with a remedy.
pub(crate) struct WithRemedy<'a>(pub(crate) &'a TlsFailure);

impl fmt::Display for WithRemedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.describe("server"))?;
        f.write_str(remedy(self.0))
    }
}

fn remedy(failure: &TlsFailure) -> &'static str {
    match failure {
        TlsFailure::Certificate(problem) => match problem {
            CertificateProblem::UnknownIssuer | CertificateProblem::Authority => {
                "; trust it with --cacert FILE, or skip verification with --insecure"
            }
            CertificateProblem::OtherName { .. } => {
                "; set another server name, or skip verification with --insecure"
            }
            CertificateProblem::Expired(_) => "; skip verification with --insecure",
            CertificateProblem::NotYetValid(_) => "; check the clock of this machine",
            CertificateProblem::Signature => {
                "; trust another one with --cacert FILE, or skip verification with --insecure"
            }
            _ => "",
        },
        TlsFailure::Alert(alert) => match alert.as_str() {
            "CertificateRequired" => {
                "; it requires a client certificate: set --cert FILE and --key FILE"
            }
            "UnrecognisedName" => "; set another server name with --server-name NAME",
            "NoApplicationProtocol" => "; it speaks another version of HTTP: set or omit --http2",
            _ => "",
        },
        TlsFailure::NotTls => "; use http:// if the port serves plain HTTP",
        _ => "",
    }
}
