//! The cryptography.

use std::sync::Arc;
#[cfg(feature = "simulation")]
use std::sync::OnceLock;

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};

#[cfg(not(any(feature = "aws-lc-rs", feature = "ring")))]
compile_error!("enable the feature aws-lc-rs or ring");

/// An implementation of the cryptography of TLS.
pub type Provider = CryptoProvider;

#[cfg(feature = "simulation")]
static SIMULATED: OnceLock<(Arc<Provider>, Arc<dyn TimeProvider>)> = OnceLock::new();

/// Replaces the cryptography and the time of day of later settings in this process, for deterministic
/// simulations. Only the first call has an effect.
#[cfg(feature = "simulation")]
pub fn simulate(provider: Provider, time: Arc<dyn TimeProvider>) {
    let _ = SIMULATED.set((Arc::new(provider), time));
}

/// Returns the source of the time of day at which sessions begin.
pub fn time_provider() -> Arc<dyn TimeProvider> {
    #[cfg(feature = "simulation")]
    if let Some((_, time)) = SIMULATED.get() {
        return Arc::clone(time);
    }
    Arc::new(DefaultTimeProvider)
}

/// Returns the implementation that a feature of the crate selects, with its suites in the order of
/// their cost: AES-128 before AES-256, whose hash is the slower one.
pub fn provider() -> Arc<Provider> {
    #[cfg(feature = "simulation")]
    if let Some((provider, _)) = SIMULATED.get() {
        return Arc::clone(provider);
    }
    #[cfg(feature = "aws-lc-rs")]
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "aws-lc-rs"))]
    let mut provider = rustls::crypto::ring::default_provider();
    // The sort is stable.
    provider.cipher_suites.sort_by_key(|suite| match suite.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => 0,
        CipherSuite::TLS13_AES_256_GCM_SHA384 | CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => 1,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => 2,
        _ => 3,
    });
    Arc::new(provider)
}
