//! Metrics of TLS.

use std::time::UNIX_EPOCH;

use hearken_tls::ServerTls;

use super::exposition::Page;

/// Appends the counters of handshakes, and the times at which certificates expire.
pub(super) fn render(tls: &ServerTls, page: &mut Page<'_>) {
    let stats = tls.handshakes();
    let name = page.counter("tls_handshakes", "Complete TLS handshakes of clients.");
    for version in stats.complete {
        for (resumed, count) in [("false", version.full), ("true", version.resumed)] {
            page.sample(&name, &[("version", &version.version), ("resumed", &resumed)], count);
        }
    }
    let name = page.counter("tls_handshake_failures", "Failed TLS handshakes of clients.");
    for (reason, count) in stats.failed {
        page.sample(&name, &[("reason", &reason)], count);
    }
    let name = page.gauge(
        "tls_certificate_expiry_timestamp_seconds",
        "Time at which the certificate expires, in seconds since 1970.",
    );
    for (number, (file, expires)) in (1..).zip(tls.expiries()) {
        let expires = expires.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        page.sample(&name, &[("number", &number), ("file", &file.display())], expires);
    }
    let name = page
        .counter("tls_reload_failures", "Changed certificates and keys that could not be used.");
    page.sample(&name, &[], tls.failed_reloads());
}
