//! TLS whose random numbers, keys and time of day the history determines.
//!
//! Certificates and signatures are Ed25519, whose signatures are deterministic. Key exchange adds
//! nothing to what is tested, so it is replaced by numbers that both sides combine.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::{Arc, Once};
use std::time::Duration;

use hearken::io::sim::{Host, World};
use hearken_tls::server::{CertificateFiles, ServerTlsSettings};
use hearken_tls::{ClientTls, ClientTlsSettings, ServerTls, Trust};
use rustls::NamedGroup;
use rustls::crypto::{
    ActiveKeyExchange, GetRandomFailed, SecureRandom, SharedSecret, SupportedKxGroup,
};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use crate::client::HttpVersion;

thread_local! {
    /// State of the generator of random numbers (SplitMix64).
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    /// The host whose clock sessions read.
    static CLOCK: RefCell<Option<Host>> = const { RefCell::new(None) };
}

/// Name of the server in its certificate.
const NAME: &str = "sim";
/// Length of the public and private numbers of a key exchange.
const KEY_LENGTH: usize = 32;

/// Begins a history, whose random numbers follow from `seed`.
pub(crate) fn begin(seed: u64, clock: Host) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let mut provider = (*hearken_tls::provider()).clone();
        provider.secure_random = &Random;
        provider.kx_groups = vec![&Exchange];
        hearken_tls::simulate(provider, Arc::new(Clock));
    });
    RANDOM.set(seed);
    CLOCK.set(Some(clock));
}

/// Ends a history.
pub(crate) fn end() {
    CLOCK.set(None);
}

fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tls", name].iter().collect()
}

/// Draws the settings of a server.
///
/// # Errors
/// The settings cannot be used.
pub(crate) fn draw_server(world: &World) -> Result<ServerTls, String> {
    let draw = |values: &[usize]| values[world.decide(values.len() as u32) as usize];
    let certificate = CertificateFiles::new(file("certificate.pem"), file("key.pem"));
    let mut settings = ServerTlsSettings::new(certificate);
    settings.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    settings.ticket_lifetime = Duration::from_secs(draw(&[12 * 3600, 12 * 3600, 0]) as u64);
    settings.max_fragment = match draw(&[0, 0, 0, 512]) {
        0 => None,
        length => Some(length),
    };
    ServerTls::load(settings).map_err(|error| error.to_string())
}

/// Draws the settings of clients: those of HTTP/1.1 and those of HTTP/2.
///
/// # Errors
/// The settings cannot be used.
pub(crate) fn draw_clients(world: &World) -> Result<Arc<[ClientTls]>, String> {
    let (is_tls12, trusts_all) = (world.decide(4) == 3, world.decide(2) == 1);
    let load = |alpn: &[u8]| {
        let mut settings = ClientTlsSettings::default();
        settings.trust = match trusts_all {
            true => Trust::AllServers,
            false => Trust::Authorities(file("certificate.pem")),
        };
        settings.alpn = vec![alpn.to_vec()];
        if is_tls12 {
            let mut provider = (*settings.provider).clone();
            provider.cipher_suites.retain(|suite| suite.tls13().is_none());
            settings.provider = Arc::new(provider);
        }
        let profile = settings.load().map_err(|error| error.to_string())?;
        profile.for_server(NAME).ok_or_else(|| "invalid name".to_owned())
    };
    Ok([load(b"http/1.1")?, load(b"h2")?].into())
}

/// Returns the number of the settings for a version of HTTP.
pub(crate) fn profile(version: HttpVersion) -> u32 {
    match version {
        HttpVersion::Http1 => 1,
        HttpVersion::Http2 => 2,
    }
}

/// The random numbers of a history.
#[derive(Debug)]
struct Random;

impl SecureRandom for Random {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        let mut state = RANDOM.get();
        for piece in bytes.chunks_mut(8) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            piece.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..piece.len()]);
        }
        RANDOM.set(state);
        Ok(())
    }
}

/// The time of day of a history.
#[derive(Debug)]
struct Clock;

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        CLOCK.with_borrow(|clock| {
            clock.as_ref().map(|clock| UnixTime::since_unix_epoch(clock.unix_time()))
        })
    }
}

/// A key exchange in which both sides combine random numbers.
#[derive(Debug)]
struct Exchange;

impl SupportedKxGroup for Exchange {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, rustls::Error> {
        let mut number = [0; KEY_LENGTH];
        Random.fill(&mut number)?;
        Ok(Box::new(Number(number)))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// The number of one side.
struct Number([u8; KEY_LENGTH]);

impl ActiveKeyExchange for Number {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, rustls::Error> {
        let peer: [u8; KEY_LENGTH] =
            peer.try_into().map_err(|_| rustls::PeerMisbehaved::InvalidKeyShare)?;
        let secret: Vec<u8> = self.0.iter().zip(peer).map(|(ours, theirs)| ours ^ theirs).collect();
        Ok(SharedSecret::from(&secret[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &self.0
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}
